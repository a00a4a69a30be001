//! The files of `/sys`, as the calling thread's network namespace has them.
//!
//! `/sys/class/net` shows the interfaces of the namespace that mounted that sysfs, not of the
//! reader's. A mount that is attached nowhere shows the right ones, and is gone with its last
//! descriptor.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::On;
use crate::{CallError, CallResult, text};

/// The full name of a file, for messages.
fn name(path: &str) -> String {
    format!("/sys/{path}")
}

/// A sysfs of one network namespace.
#[derive(Debug)]
pub struct Sysfs {
    root: OwnedFd,
}

impl Sysfs {
    /// Mounts the sysfs of the calling thread's network namespace, attached to no directory
    /// (`fsopen(2)`, `fsmount(2)`, Linux 5.2).
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` in the user namespace of the caller's mount namespace, or,
    /// for an ordinary user in a container, where parts of the present `/sys` are hidden.
    pub fn mount() -> CallResult<Self> {
        let failed =
            |call| move |errno: rustix::io::Errno| CallError::new(call, "sysfs", errno.into());
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed("fsopen"))?;
        fsconfig_create(&context).map_err(failed("fsconfig"))?;
        let restrictions = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, restrictions)
            .map_err(failed("fsmount"))?;
        Ok(Self { root })
    }

    /// The text of a file, without the line end; `path` is relative, such as
    /// `class/net/eth0/mtu`.
    ///
    /// # Errors
    ///
    /// The file does not exist, or cannot be read.
    pub fn read(&self, path: &str) -> CallResult<String> {
        let mut text = String::new();
        self.open(path, OFlags::RDONLY)?
            .read_to_string(&mut text)
            .on("read", name(path))?;
        text.truncate(text.trim_end().len());
        Ok(text)
    }

    /// Writes a value to a file.
    ///
    /// # Errors
    ///
    /// The kernel's answer to that value; `EACCES` or `EPERM` for a file that belongs to the
    /// initial user namespace; no such file.
    pub fn write(&self, path: &str, value: &str) -> CallResult<()> {
        // One call with the whole value: every write to a sysfs file is a command of its own.
        self.open(path, OFlags::WRONLY)?
            .write_all(value.as_bytes())
            .on("write", name(path))
    }

    fn open(&self, path: &str, flags: OFlags) -> CallResult<File> {
        rustix::fs::openat(
            &self.root,
            text::to_bytes(path),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(File::from)
        .on("openat", name(path))
    }
}
