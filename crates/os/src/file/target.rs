//! A file that is to be written: its directory, held open, and its name there.
//!
//! The path is walked here, one name at a time, because the kernel follows the symbolic link of any
//! user: who may write to a directory on the way could choose which file of root is overwritten.

#[cfg(test)]
mod tests;

use crate::{terminal, user};
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, XattrFlags,
    fallocate, fchmod, fchown, fgetxattr, fremovexattr, fsetxattr, fstat, fstatfs, lstat, mkdirat,
    openat, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The most symbolic links that may lead to a file (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// Directories that only root of the machine writes to, also where its number is not known.
const OF_ROOT: [&str; 3] = ["/", "/dev", "/var"];

/// A directory to look up names in.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The access list of a file beside its mode (`acl(5)`), and the size of the longest one
/// (`XATTR_SIZE_MAX`, include/uapi/linux/limits.h).
const ACL: &str = "system.posix_acl_access";
const ACL_BYTES: usize = 65_536;

/// The prefix of a new file's name. It does not contain the old name, which may have any length.
const PREFIX: &str = ".mpps-";
/// The text before the end of a result's name, if the result could not be put in place.
const ASIDE: &str = ".mpps-";
/// The digits at the end of both.
const CHOSEN_DIGITS: usize = 8;
/// The bytes that lines to come need at first.
const ROOM: u64 = 4096;
/// The longest name, in bytes (include/uapi/linux/limits.h).
const NAME_MAX: usize = 255;

/// A file that is there or not: a directory, and a name in it that is no symbolic link.
#[derive(Debug)]
pub struct FileTarget {
    directory: OwnedFd,
    name: OsString,
    /// As the kernel's own links to open files are, which it follows itself.
    is_in_proc: bool,
}

impl FileTarget {
    /// Finds where a path leads. It follows the symbolic links of this user and of root, in any part
    /// of the path, where no other user could have put them under their names.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] for any other link; the kernel's refusal of a directory on
    /// the way.
    pub fn find(path: &Path) -> io::Result<Self> {
        Self::find_as(path, geteuid().as_raw())
    }

    /// The same for a user.
    fn find_as(path: &Path, user: u32) -> io::Result<Self> {
        let mut directory = openat(CWD, ".", DIRECTORY, Mode::empty())?;
        let (mut left, mut shown, mut links) = (names(path), PathBuf::new(), 0);
        while let Some(name) = left.pop() {
            shown.push(&name);
            let is_in_proc = fstatfs(&directory)?.f_type == PROC_SUPER_MAGIC;
            if left.is_empty() {
                if ["/", ".", ".."].iter().any(|other| *other == name) {
                    break;
                }
            } else {
                // All links in /proc are the kernel's own.
                let follow = if is_in_proc {
                    OFlags::empty()
                } else {
                    OFlags::NOFOLLOW
                };
                match openat(&directory, &name, DIRECTORY | follow, Mode::empty()) {
                    Ok(next) => {
                        directory = next;
                        continue;
                    }
                    Err(Errno::NOTDIR) if !is_in_proc => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            let link = if is_in_proc {
                None
            } else {
                link(&directory, &name)?
            };
            let Some((status, target)) = link else {
                if !left.is_empty() {
                    return Err(Errno::NOTDIR.into());
                }
                return Ok(Self {
                    directory,
                    name,
                    is_in_proc,
                });
            };
            let what = format!("{} is a symbolic link", shown.display());
            ensure_trusted(&what, &status, user, &directory)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            shown.pop();
            left.extend(names(&target));
        }
        Err(ErrorKind::IsADirectory.into())
    }

    /// Whether it is the same name in the same directory.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let is_one = is_one(&fstat(&self.directory)?, &fstat(&other.directory)?);
        Ok(is_one && self.name == other.name)
    }

    /// Whether it keeps what is written to it: a regular file, or a name that is free.
    pub fn keeps(&self) -> bool {
        matches!(self.kind(), Ok(FileType::RegularFile) | Err(Errno::NOENT))
    }

    /// The kind of the file that is there.
    fn kind(&self) -> Result<FileType, Errno> {
        let follow = if self.is_in_proc {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        statat(&self.directory, &self.name, follow).map(|status| kind(&status))
    }

    /// Whether `/proc` names it: an open file, which may have no other name.
    pub fn is_in_proc(&self) -> bool {
        self.is_in_proc
    }

    /// The descriptor of this process that it stands for, as `/dev/stdout` and `/dev/fd/N` do.
    pub fn own_descriptor(&self) -> Option<u32> {
        let own = rustix::fs::stat("/proc/self/fd").ok()?;
        let directory = fstat(&self.directory).ok()?;
        let number = self.name.to_str()?.parse().ok()?;
        is_one(&own, &directory).then_some(number)
    }

    /// Opens what is there to add to it. It waits for no reader of a named pipe, and no write waits for
    /// room (`O_NONBLOCK`). None if nothing is there, or a symbolic link that came after the path was walked.
    ///
    /// # Errors
    /// The kernel's refusal; [`ErrorKind::InvalidInput`] for a named pipe without a reader, a
    /// socket or a disk; [`ErrorKind::PermissionDenied`] for a named pipe that is not trusted, as
    /// links are: its reader could leave it unread.
    pub fn open(&self) -> io::Result<Option<File>> {
        let mut flags = OFlags::WRONLY | OFlags::APPEND;
        flags |= OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !self.is_in_proc {
            flags |= OFlags::NOFOLLOW;
        }
        let unfit = |text: &str| Err(io::Error::new(ErrorKind::InvalidInput, text));
        let opened = match openat(&self.directory, &self.name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            // The existing file's kind is the reason. A device without hardware keeps the kernel's
            // answer.
            Err(Errno::NXIO) => match self.kind() {
                Ok(FileType::Socket) => return unfit("it is a socket"),
                Ok(FileType::Fifo) => return unfit("it is a named pipe that no program reads"),
                _ => return Err(Errno::NXIO.into()),
            },
            Err(errno) => return Err(errno.into()),
        };
        let status = fstat(&opened)?;
        match kind(&status) {
            FileType::RegularFile => return Ok(Some(File::from(opened))),
            FileType::BlockDevice => return unfit("it is a disk"),
            FileType::Fifo if !self.is_in_proc => {
                let user = geteuid().as_raw();
                ensure_trusted("it is a named pipe", &status, user, &self.directory)?;
            }
            _ => {}
        }
        Ok(Some(File::from(opened)))
    }

    /// Overwrites what [`FileTarget::open`] opened, if its disk has room for it; what has no end, and the open file of a program,
    /// which is not ours to cut, is added to. A pipe or a terminal without room is waited for, as by
    /// [`terminal::write_all`].
    ///
    /// # Errors
    /// As [`terminal::write_all`]'s, and then a file is empty; [`ErrorKind::PermissionDenied`] for a hard
    /// link in a directory of others, who may have made it of any file.
    pub fn overwrite(
        &self,
        opened: &File,
        bytes: &[u8],
        gives_up: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let status = fstat(opened)?;
        let is_cut = kind(&status) == FileType::RegularFile && !self.is_in_proc;
        if is_cut {
            let directory = fstat(&self.directory)?;
            let is_own = [0, geteuid().as_raw()].contains(&directory.st_uid);
            let is_shared = !is_own || directory.st_mode & 0o022 != 0;
            if status.st_nlink > 1 && is_shared {
                let text = "it has other names, and other users may write to its directory";
                return Err(io::Error::new(ErrorKind::PermissionDenied, text));
            }
            // Not every file system can reserve it.
            let reserved = fallocate(opened, FallocateFlags::empty(), 0, bytes.len() as u64);
            if let Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) = reserved {
                opened.set_len(status.st_size as u64)?;
                return Err(errno.into());
            }
            opened.set_len(0)?;
        }
        terminal::write_all(opened, bytes, gives_up).map_err(|error| match is_cut {
            true => {
                let _ = opened.set_len(0);
                io::Error::new(error.kind(), format!("{error}; the file is empty now"))
            }
            false => error,
        })
    }

    /// Makes a new file in the same directory. It has the owner, the group and the rights of an old
    /// one; an old file of another user counts less where all may write: there, it gives its rights
    /// only as far as any new file has them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn create_beside(&self, old: Option<&File>) -> io::Result<NewFile<'_>> {
        let old = match old {
            Some(file) => Some((file, fstat(file)?)),
            None => None,
        };
        let is_open_to_all = fstat(&self.directory)?.st_mode & 0o002 != 0;
        let is_own = |status: &Stat| status.st_uid == geteuid().as_raw();
        let (mode, kept) = match old {
            None => (0o666, None),
            Some((_, status)) if is_open_to_all && !is_own(&status) => {
                (status.st_mode & 0o666, None)
            }
            // Only for us until it has its owner.
            Some(old) => (0o600, Some(old)),
        };
        let new = self.create(PREFIX.into(), mode)?;
        if let Some((file, status)) = kept {
            keep_rights(&new.file, file, &status)?;
        }
        Ok(new)
    }

    /// Removes new files of that age which a killed program of this user left beside this one, or
    /// beside others of its directory.
    pub fn remove_left(&self, age: Duration) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(&self.directory, ".", flags, Mode::empty());
        let entries = listed.and_then(Dir::new);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let chosen = name.to_bytes().strip_prefix(PREFIX.as_bytes());
            if !chosen.is_some_and(is_chosen) {
                continue;
            }
            let Ok(status) = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_own = status.st_uid == geteuid().as_raw();
            if kind(&status) != FileType::RegularFile || !is_own {
                continue;
            }
            let written = Duration::from_secs(status.st_mtime.max(0) as u64);
            let written = SystemTime::UNIX_EPOCH + written;
            if written.elapsed().is_ok_and(|passed| passed > age) {
                // It is no matter of this run if that cannot be.
                let _ = unlinkat(&self.directory, name, AtFlags::empty());
            }
        }
    }

    /// Writes to a new file in the same directory, which stays under a name of its own, for this user
    /// only; answers its path.
    ///
    /// # Errors
    /// The kernel's refusal; the new file is gone then.
    pub fn write_aside(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        // The longest names have no room for the end.
        let name = self.name.as_bytes();
        let most = NAME_MAX - ASIDE.len() - CHOSEN_DIGITS;
        let mut prefix = OsString::from_vec(name[..name.len().min(most)].to_vec());
        prefix.push(ASIDE);
        let mut new = self.create(prefix, 0o600)?;
        new.write(bytes)?;
        new.is_in_place = true;
        let directory = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        // Without /proc the name says enough.
        let directory = std::fs::read_link(directory).unwrap_or_default();
        Ok(directory.join(&new.name))
    }

    /// Creates a file whose name begins so, and ends with what [`is_chosen`].
    fn create(&self, mut name: OsString, mode: u32) -> io::Result<NewFile<'_>> {
        let mut flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        flags |= OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // As hard to guess as a hash map's seed, so that no program can take all names before.
        let chosen = RandomState::new().hash_one(&self.name) as u32;
        name.push(format!("{chosen:08x}"));
        let opened = openat(&self.directory, &name, flags, Mode::from_raw_mode(mode))?;
        Ok(NewFile {
            target: self,
            name,
            file: File::from(opened),
            is_in_place: false,
        })
    }
}

/// Opens a regular file to read, if only this user and root could have put it there. It follows links as
/// [`FileTarget::find`] does.
///
/// # Errors
/// The kernel's refusal; [`ErrorKind::PermissionDenied`] for the file or the link of another user;
/// [`ErrorKind::InvalidInput`] for a file of another kind.
pub fn open_believed(path: &Path) -> io::Result<File> {
    let FileTarget {
        directory, name, ..
    } = FileTarget::find(path)?;
    let mut flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    flags |= OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&directory, &name, flags, Mode::empty())?;
    let status = fstat(&file)?;
    if kind(&status) != FileType::RegularFile {
        return Err(ErrorKind::InvalidInput.into());
    }
    ensure_trusted("it is a file", &status, geteuid().as_raw(), &directory)?;
    Ok(File::from(file))
}

/// Makes a directory and those above it that are not there yet (`mkdirat(2)`), and follows links as
/// [`FileTarget::find`] does.
///
/// # Errors
/// As [`FileTarget::find`]'s; the kernel's refusal.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let mut paths: Vec<&Path> = path.ancestors().collect();
    paths.reverse();
    for path in paths {
        let target = match FileTarget::find(path) {
            Ok(target) => target,
            // It ends with no name, and so it is there.
            Err(error) if error.kind() == ErrorKind::IsADirectory => continue,
            Err(error) => return Err(error),
        };
        let mode = Mode::from_raw_mode(0o777);
        match mkdirat(&target.directory, &target.name, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A new file beside another, removed if it does not take its place.
#[derive(Debug)]
pub struct NewFile<'a> {
    target: &'a FileTarget,
    name: OsString,
    file: File,
    is_in_place: bool,
}

impl NewFile<'_> {
    /// Writes to the file until the disk has it. No bytes stand for lines to come: they have room.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Not every file system can reserve it.
        if bytes.is_empty()
            && let Err(Errno::NOSPC) = fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, ROOM)
        {
            return Err(Errno::NOSPC.into());
        }
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    /// Takes the place of the other file (`renameat(2)`), whatever that is by now. Answers the open file,
    /// to add to it.
    ///
    /// # Errors
    /// The kernel's refusal; this file is gone then.
    pub fn take_place(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?;
        let FileTarget {
            directory, name, ..
        } = self.target;
        renameat(directory, &self.name, directory, name)?;
        self.is_in_place = true;
        Ok(file)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = unlinkat(&self.target.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Whether it is what [`FileTarget::create`] chooses for the end of a name.
fn is_chosen(end: &[u8]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    end.len() == CHOSEN_DIGITS && end.iter().all(is_digit)
}

/// The names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names.map(|name| name.as_os_str().to_owned()).collect()
}

/// A symbolic link and where it leads; none if it is no link, or not there.
fn link(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<(Stat, PathBuf)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let status = fstat(&opened)?;
    if kind(&status) != FileType::Symlink {
        return Ok(None);
    }
    // Of the link that is open, whatever has its name by now.
    let target = readlinkat(&opened, "", Vec::new())?;
    let target = OsString::from_vec(target.into_bytes());
    Ok(Some((status, target.into())))
}

/// Refuses what another user has put in a directory, or could have put there under this name.
fn ensure_trusted(what: &str, status: &Stat, user: u32, directory: &OwnedFd) -> io::Result<()> {
    let directory = fstat(directory)?;
    let (owner, keeper) = (status.st_uid, directory.st_uid);
    // In a user namespace, root of the machine has the number of all its other users, and without a
    // map this user has it too. Only some directories are known to be root's.
    let is_at = |path: &&str| lstat(*path).is_ok_and(|known| is_one(&known, &directory));
    let is_of_root =
        directory.st_mode & 0o022 == 0 && user::is_unmapped(keeper) && OF_ROOT.iter().any(is_at);
    if is_of_root && user::is_unmapped(owner) {
        return Ok(());
    }
    let is_own = |owner| [user, 0].contains(&owner) && !user::is_unmapped(owner);
    // Others of a group may rename too, but a group may be of this user only.
    let others = match directory.st_gid == getegid().as_raw() {
        true => 0o002,
        false => 0o022,
    };
    // Where that bit is set, all may add names, and move their own only (inode(7)).
    let is_sticky = Mode::from_raw_mode(directory.st_mode).contains(Mode::SVTX);
    let why = if !is_own(owner) {
        format!("of user {owner}")
    } else if !is_own(keeper) {
        format!("in a directory of user {keeper}")
    } else if directory.st_mode & others != 0 && !is_sticky {
        "in a directory where others may rename".to_owned()
    } else {
        return Ok(());
    };
    let text = format!("{what} {why}, which mpps does not trust");
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

/// Gives a new file the owner, the group and the rights of an old one. Where the group cannot be had,
/// the new one may do what all may; and so where the access list cannot be.
fn keep_rights(new: &File, old: &File, status: &Stat) -> io::Result<()> {
    let (owner, group) = (Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid));
    let owned = fchown(new, Some(owner), Some(group));
    let owned = owned.or_else(|_| fchown(new, None, Some(group)));
    let mut acl = vec![0; ACL_BYTES];
    let listed = match fgetxattr(old, ACL, &mut *acl) {
        Ok(bytes) => fsetxattr(new, ACL, &acl[..bytes], XattrFlags::empty()),
        // It has none. The new one may have that of new files in its directory.
        Err(_) => match fremovexattr(new, ACL) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => removed,
        },
    };
    let mode = match owned.and(listed) {
        Ok(()) => status.st_mode & 0o777,
        Err(_) => (status.st_mode & 0o707) | ((status.st_mode & 0o007) << 3),
    };
    Ok(fchmod(new, Mode::from_raw_mode(mode))?)
}

fn kind(status: &Stat) -> FileType {
    FileType::from_raw_mode(status.st_mode)
}

fn is_one(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}
