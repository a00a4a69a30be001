//! Files below a directory and nothing outside of it, files that one program has at a time, and
//! files that a user names to be read or written.

mod input;
mod target;

pub use input::open_input;
pub use target::{FileTarget, NewFile, create_directories, open_believed};

use crate::error::On;
use crate::{CallError, CallResult};
use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often a path is looked up again after a directory on the way was renamed. The kernel then
/// cannot know whether the path stayed below, and answers `EAGAIN`.
const ATTEMPTS: usize = 4;
/// How long a lock is waited for: longer than an undo takes whose every step restarts a card.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is tried meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// A directory whose files can be opened by untrusted paths.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory (`openat(2)`, `O_PATH`), and makes sure that the kernel can keep paths
    /// below it.
    ///
    /// # Errors
    /// There is no such directory, or it may not be searched; `ENOSYS` before Linux 5.6.
    pub fn open(path: &Path) -> CallResult<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).on("open", path.display())?;
        let directory = Self {
            fd,
            path: path.to_owned(),
        };
        directory.open_below(Path::new("."))?;
        Ok(directory)
    }

    /// Whether this user may look up names in it, which a user that the program became since may not.
    ///
    /// # Errors
    /// `EACCES` if not.
    pub fn may_be_searched(&self) -> CallResult<()> {
        let looked = rustix::fs::accessat(&self.fd, ".", Access::EXEC_OK, AtFlags::empty());
        looked.on("access", self.path.display())
    }

    /// Opens what a relative path names, for reading (`openat2(2)`, `RESOLVE_BENEATH`). The kernel
    /// refuses to leave the directory, whether by `..`, by an absolute path, or by a symbolic link,
    /// and does not follow the links of `/proc`. It may be a directory or a FIFO: it does not wait
    /// for a FIFO's writer, and takes no terminal.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` and the like; `EXDEV` if the path leads outside.
    pub fn open_below(&self, path: &Path) -> CallResult<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mut refusal = Errno::AGAIN;
        for _ in 0..ATTEMPTS {
            match rustix::fs::openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                Ok(fd) => return Ok(File::from(fd)),
                Err(errno) => refusal = errno,
            }
            if refusal != Errno::AGAIN && refusal != Errno::INTR {
                break;
            }
        }
        let object = self.path.join(path);
        Err(CallError::new("openat2", object.display(), refusal.into()))
    }
}

/// Whether a file has an extended attribute (`getxattr(2)`, xattr(7)).
pub fn has_attribute(path: &Path, name: &str) -> bool {
    rustix::fs::getxattr(path, name, &mut [0_u8; 0]).is_ok()
}

/// Whether a refusal of [`Directory::open_below`] means that nothing of this name is to be had: it
/// does not exist, lies outside, goes round in circles, or cannot be a name.
pub fn is_absent(error: &CallError) -> bool {
    let errno = error.errno().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::XDEV,
            Errno::LOOP,
            Errno::NAMETOOLONG,
            // The answers for a socket of the file system, and for a device without a driver.
            Errno::NXIO,
            Errno::NODEV,
        ]
        .contains(&errno)
    })
}

/// Waits until no other program has this file or directory locked, and locks it until it is closed
/// (`flock(2)`). The wait for a program that is stopped or stuck has a limit.
///
/// # Errors
/// [`ErrorKind::TimedOut`] after half a minute; `ENOLCK`; `EBADF` on a network file system that
/// locks only files open for writing.
pub fn lock(file: &File, path: &Path) -> CallResult<()> {
    lock_within(file, path, PATIENCE)
}

fn lock_within(file: &File, path: &Path, patience: Duration) -> CallResult<()> {
    let began = Instant::now();
    let refusal = loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() > patience => {
                let why = format!(
                    "another mpps, or another program, has had it locked for {patience:?}: \
                     `lslocks` shows the process"
                );
                break io::Error::new(ErrorKind::TimedOut, why);
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOOK),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => break error,
        }
    };
    Err(CallError::new("flock", path.display(), refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_until_its_file_is_closed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let [first, second] = [0; 2].map(|_| File::open(&path).expect("it is there"));
        lock(&first, &path).expect("nobody has it");
        let held = lock_within(&second, &path, Duration::from_millis(50));
        let held = held.expect_err("the first has it").to_string();
        assert!(held.contains("Cargo.toml: another mpps"), "{held}");
        // A child that another test starts may have it for a moment longer.
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        lock(&second, &path).expect("it is free again");
    }
}
