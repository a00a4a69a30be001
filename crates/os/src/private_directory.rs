//! A directory that only its user can write, and the files that this user made there.
//!
//! Every file is opened below the descriptor of a checked directory. A symbolic link, a FIFO or a
//! file of another user is refused, never followed and never waited for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::On;
use crate::{CallError, CallResult};

/// Write permission for the group and for all others (`inode(7)`).
const WRITE_BY_OTHERS: Mode = Mode::WGRP.union(Mode::WOTH);

/// An open directory of this user.
#[derive(Debug)]
pub struct PrivateDirectory {
    directory: File,
    path: PathBuf,
}

impl PrivateDirectory {
    /// Opens the directory at an absolute path.
    ///
    /// The path may hold no symbolic link. The directory belongs to the effective user, and only
    /// that user may write to it. Each directory above belongs to root or to that user, and only
    /// its owner may write to it, unless it is sticky (`inode(7)`). Its mode becomes 0700.
    ///
    /// # Errors
    /// `ENOENT` if it does not exist; `EPERM` with the reason if another user could write to it;
    /// `ELOOP` or `ENOTDIR` for a symbolic link.
    pub fn open(path: &Path) -> CallResult<Self> {
        Self::walk(path, false)
    }

    /// As [`PrivateDirectory::open`], and makes the missing directories with mode 0700.
    ///
    /// # Errors
    /// As [`PrivateDirectory::open`], and the refusal of mkdir(2).
    pub fn create(path: &Path) -> CallResult<Self> {
        Self::walk(path, true)
    }

    fn walk(path: &Path, creates: bool) -> CallResult<Self> {
        const SEARCH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
        let mut reached = PathBuf::from("/");
        let mut directory = rustix::fs::open("/", SEARCH, Mode::empty()).on("open", "/")?;
        // In a user namespace root of the machine has another number, and owns `/` there, too.
        let root = rustix::fs::fstat(&directory).on("fstat", "/")?.st_uid;
        let trusted = [0, root, geteuid().as_raw()];
        for component in path.components() {
            let name = match component {
                Component::RootDir => continue,
                Component::Normal(name) => name,
                _ => return Err(refused(path, "the path is not absolute or has `..`")),
            };
            reached.push(name);
            if creates {
                match rustix::fs::mkdirat(&directory, name, Mode::RWXU) {
                    // The code below checks what is there.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => {
                        return Err(CallError::new("mkdir", reached.display(), errno.into()));
                    }
                }
            }
            directory =
                rustix::fs::openat(&directory, name, SEARCH | OFlags::NOFOLLOW, Mode::empty())
                    .on("open", reached.display())?;
            let status = rustix::fs::fstat(&directory).on("fstat", reached.display())?;
            let allowed = if reached == path {
                &trusted[2..]
            } else {
                &trusted
            };
            let may_be_sticky = reached != path;
            if let Some(why) = fault(status.st_uid, status.st_mode, allowed, may_be_sticky) {
                return Err(refused(&reached, &why));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&directory, ".", flags, Mode::empty());
        let directory: File = opened.on("open", path.display())?.into();
        // A user who can open it can lock it, and hold up every undo.
        rustix::fs::fchmod(&directory, Mode::RWXU).on("chmod", path.display())?;
        Ok(Self {
            directory,
            path: path.to_owned(),
        })
    }

    /// The names of all its files.
    ///
    /// # Errors
    /// The refusal of getdents(2).
    pub fn names(&self) -> CallResult<Vec<OsString>> {
        let entries = Dir::read_from(&self.directory).on("open", self.path.display())?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.on("getdents", self.path.display())?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The bytes of a file; none if there is no such file.
    ///
    /// # Errors
    /// `EPERM` with the reason for what is no regular file, belongs to another user, may be
    /// written by others, is a symbolic link, or is longer than `length_max` bytes.
    pub fn read(&self, name: &OsStr, length_max: u64) -> CallResult<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(refused(&path, "it is a symbolic link")),
            opened => File::from(opened.on("open", path.display())?),
        };
        let status = rustix::fs::fstat(&file).on("fstat", path.display())?;
        let user = geteuid().as_raw();
        let why = if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            Some("it is no regular file".to_owned())
        } else {
            fault(status.st_uid, status.st_mode, &[user], false)
        };
        if let Some(why) = why {
            return Err(refused(&path, &why));
        }
        let mut bytes = Vec::new();
        let read = file.take(length_max + 1).read_to_end(&mut bytes);
        read.on("read", path.display())?;
        if bytes.len() as u64 > length_max {
            let why = format!("it is longer than {length_max} bytes");
            return Err(refused(&path, &why));
        }
        Ok(Some(bytes))
    }

    /// Writes a new file with mode 0600, and has the disk keep its bytes. A file that cannot be
    /// written whole is removed.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken; the refusal of write(2) or fsync(2).
    pub fn write_new(&self, name: &OsStr, bytes: &[u8]) -> CallResult<()> {
        let path = self.path.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.on("open", path.display())?);
        let written = file.write_all(bytes).on("write", path.display());
        let kept = written.and_then(|()| file.sync_all().on("fsync", path.display()));
        kept.inspect_err(|_| drop(self.remove(name)))
    }

    /// Gives a file another name. Fails if the name is taken, unless it `replaces` that file.
    ///
    /// # Errors
    /// `EEXIST`; the refusal of renameat2(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr, replaces: bool) -> CallResult<()> {
        let flags = match replaces {
            true => RenameFlags::empty(),
            false => RenameFlags::NOREPLACE,
        };
        rustix::fs::renameat_with(&self.directory, from, &self.directory, to, flags)
            .on("rename", self.path.join(to).display())?;
        self.flush()
    }

    /// Removes a file; a missing file is no error.
    ///
    /// # Errors
    /// The refusal of unlinkat(2).
    pub fn remove(&self, name: &OsStr) -> CallResult<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) => self.flush(),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(CallError::new(
                "unlink",
                self.path.join(name).display(),
                errno.into(),
            )),
        }
    }

    /// Waits until no other program has this directory locked, with a limit. Locks it until the
    /// answer is dropped (`flock(2)`).
    ///
    /// # Errors
    /// As [`crate::file::lock`].
    pub fn lock(self) -> CallResult<File> {
        crate::file::lock(&self.directory, &self.path)?;
        Ok(self.directory)
    }

    /// Has the disk keep a new or removed name, which flushing the file does not (`fsync(2)`).
    fn flush(&self) -> CallResult<()> {
        self.directory.sync_all().on("fsync", self.path.display())
    }
}

/// Why another user could have made or changed a file or directory, by its owner and mode. In a
/// sticky directory only the owner of a file can rename or remove it.
fn fault(owner: u32, mode: u32, allowed: &[u32], may_be_sticky: bool) -> Option<String> {
    let bits = Mode::from_raw_mode(mode);
    if !allowed.contains(&owner) {
        let own = allowed.last().copied().unwrap_or_default();
        return Some(format!("it belongs to user {owner}, not to {own}"));
    }
    let is_kept = may_be_sticky && bits.contains(Mode::SVTX);
    let is_open = bits.intersects(WRITE_BY_OTHERS) && !is_kept;
    is_open.then(|| format!("other users may write to it (mode {:o})", mode & 0o7777))
}

fn refused(path: &Path, why: &str) -> CallError {
    let source = io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned());
    CallError::new("open", path.display(), source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A temporary directory of this user that is removed at the end of its test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mpps-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            PrivateDirectory::create(&path).expect("made");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_written_once_read_renamed_and_removed() {
        let scratch = Scratch::new("round");
        let own = PrivateDirectory::open(&scratch.0).expect("it is ours");
        let [a, b] = ["a", "b"].map(OsStr::new);
        own.write_new(a, b"one").expect("written");
        own.write_new(a, b"two").expect_err("the name is taken");
        own.write_new(b, b"two").expect("written");
        let error = own.rename(a, b, false).expect_err("the name is taken");
        assert_eq!(error.source.kind(), io::ErrorKind::AlreadyExists);
        own.rename(a, b, true).expect("renamed");
        assert_eq!(
            own.read(b, 3).expect("readable").as_deref(),
            Some(&b"one"[..])
        );
        let error = own.read(b, 2).expect_err("too long").to_string();
        assert!(error.contains("longer than 2 bytes"), "{error}");
        assert_eq!(own.names().expect("readable"), ["b"]);
        for _ in 0..2 {
            own.remove(b).expect("removed, or not there");
        }
        assert_eq!(own.read(b, 3).expect("no error"), None);
    }

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
        let scratch = Scratch::new("kinds");
        let own = PrivateDirectory::open(&scratch.0).expect("it is ours");
        fs::write(scratch.0.join("target"), "{}").expect("written");
        symlink("target", scratch.0.join("link")).expect("made");
        fs::create_dir(scratch.0.join("folder")).expect("made");
        rustix::fs::mkfifoat(&own.directory, "fifo", Mode::RUSR | Mode::WUSR).expect("made");
        fs::write(scratch.0.join("open"), "{}").expect("written");
        fs::set_permissions(scratch.0.join("open"), Permissions::from_mode(0o666)).expect("ours");
        for (name, why) in [
            ("link", "it is a symbolic link"),
            ("folder", "no regular file"),
            ("fifo", "no regular file"),
            ("open", "other users may write to it (mode 666)"),
        ] {
            let error = own.read(OsStr::new(name), 9).expect_err(name).to_string();
            assert!(error.contains(why) && error.contains(name), "{error}");
        }
        let target = own.read(OsStr::new("target"), 9).expect("a plain file");
        assert_eq!(target.as_deref(), Some(&b"{}"[..]));
    }

    #[test]
    fn a_directory_that_others_could_replace_is_refused() {
        let scratch = Scratch::new("ways");
        let [real, link] = ["real", "link"].map(|name| scratch.0.join(name));
        PrivateDirectory::create(&real.join("own")).expect("made");
        symlink(&real, &link).expect("made");
        for path in [&link, &link.join("own")] {
            PrivateDirectory::open(path).expect_err("through a link");
        }
        let open = |mode| {
            fs::set_permissions(&real, Permissions::from_mode(mode)).expect("ours");
            (
                PrivateDirectory::open(&real),
                PrivateDirectory::open(&real.join("own")),
            )
        };
        assert!(matches!(open(0o755), (Ok(_), Ok(_))));
        let mode = fs::metadata(&real).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(matches!(open(0o777), (Err(_), Err(_))));
        assert!(matches!(open(0o775), (Err(_), Err(_))));
        // As /tmp is.
        assert!(matches!(open(0o1777), (Err(_), Ok(_))));
        for path in ["relative", "/tmp/../tmp"] {
            PrivateDirectory::open(Path::new(path)).expect_err(path);
        }
    }

    #[test]
    fn owners_and_modes_are_judged() {
        assert_eq!(fault(7, 0o700, &[0, 7], false), None);
        assert_eq!(fault(0, 0o41777, &[0, 7], true), None);
        for (owner, mode, allowed, may_be_sticky) in [
            (7, 0o700, &[0][..], true),
            (0, 0o720, &[0], true),
            (0, 0o702, &[0], true),
            (0, 0o1777, &[0], false),
        ] {
            assert!(
                fault(owner, mode, allowed, may_be_sticky).is_some(),
                "{owner} {mode:o}"
            );
        }
    }
}
