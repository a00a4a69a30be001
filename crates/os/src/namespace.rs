//! Network namespaces that are held by a file descriptor and by nothing else.
//!
//! A namespace without a name in the file system cannot be left behind: it ends with the last
//! descriptor, thread or process that holds it, also when a program is killed.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::On;
use crate::{Error, Result};

/// The calling thread's own network namespace. `/proc/self` would name that of the main thread.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The file system of namespaces (include/uapi/linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// An anonymous network namespace.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
    inode: u32,
}

impl NetNamespace {
    /// Makes a new network namespace, by `unshare(2)` in a thread that ends at once.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` in the caller's user namespace; `ENOSPC` where
    /// `/proc/sys/user/max_net_namespaces` is reached; no `/proc`.
    pub fn new() -> Result<Self> {
        scratch_thread(|| {
            unshare(UnshareFlags::NEWNET, "network namespace")?;
            Self::current()
        })?
    }

    /// The calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// No `/proc`, or no descriptor left.
    pub fn current() -> Result<Self> {
        Self::open(OWN_NAMESPACE)
    }

    /// The network namespace that a file stands for, such as `/proc/PID/ns/net` or, where it is a
    /// descriptor of a namespace, `/proc/PID/fd/N`.
    ///
    /// # Errors
    ///
    /// No such file; `EACCES` or `EPERM` for the process of another user; `EINVAL` for a file of
    /// another kind.
    pub fn open(path: &str) -> Result<Self> {
        // Rust opens every file with O_CLOEXEC, so no child keeps the namespace by accident. A named
        // pipe is opened, too, without a wait for its writer, and is found to be none below.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = File::options();
        let file = options.read(true).custom_flags(flags).open(path);
        let file = file.on("open", path)?;
        let fd = OwnedFd::from(file);
        let failed = |source| Error::new("fstat", path, source);
        let status = rustix::fs::fstat(&fd).map_err(|errno| failed(errno.into()))?;
        let kind = rustix::fs::fstatfs(&fd).map_err(|errno| failed(errno.into()))?;
        if kind.f_type as u64 != NSFS_MAGIC {
            return Err(failed(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        // The kernel numbers namespaces with 32 bits (ns_common.inum in include/linux/ns_common.h).
        let inode =
            u32::try_from(status.st_ino).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
        Ok(Self { fd, inode })
    }

    /// A descriptor that commands started from now on inherit, for `nsenter --net=/proc/self/fd/N`
    /// (`dup(2)`, without `FD_CLOEXEC`). The namespace lives as long as any of them holds it.
    ///
    /// # Errors
    ///
    /// `EMFILE` if descriptors ran out.
    pub fn inheritable(&self) -> Result<OwnedFd> {
        rustix::io::dup(&self.fd).on("dup", "namespace")
    }

    /// The number by which the kernel and `lsns` know this namespace (`ns.inum`).
    pub fn inode(&self) -> u32 {
        self.inode
    }

    /// Runs `work` in a thread that has entered this namespace by `setns(2)`, and waits for it.
    ///
    /// Sockets that `work` makes belong to the namespace for ever, whichever thread then uses
    /// them. A panic of `work` goes on in the caller.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` both in the caller's user namespace and in that of the
    /// network namespace; `EAGAIN` where no thread can be had.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R> {
        scratch_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Moves the calling thread, and it alone, into this namespace for good, by `setns(2)`.
    ///
    /// # Errors
    ///
    /// As for [`NetNamespace::run`].
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .on("setns", self.object())
    }

    fn object(&self) -> String {
        format!("net:[{}]", self.inode)
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes an ordinary user root in a new user namespace with its own mount namespace, so that the
/// process may make network namespaces (`user_namespaces(7)`).
///
/// To be called at the start of a program: the kernel refuses it in a process with more than one
/// thread. It cannot be undone.
///
/// # Errors
///
/// `EINVAL` in a process with several threads; `ENOSPC` or `EPERM` where the host forbids user
/// namespaces to ordinary users (`user.max_user_namespaces`, AppArmor).
pub fn become_root_in_user_namespace() -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(
        UnshareFlags::NEWUSER | UnshareFlags::NEWNS,
        "user and mount namespace",
    )?;
    // The kernel lets a process without privilege map its group only after it has given up
    // setgroups(2), with which it could shed a group that denies it something.
    write_identity("/proc/self/setgroups", "deny")?;
    write_identity("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write_identity("/proc/self/gid_map", &format!("0 {group} 1"))
}

fn write_identity(path: &'static str, value: &str) -> Result<()> {
    fs::write(path, value).on("write", path)
}

/// `unshare(2)` for the kinds of namespace, which leave file descriptors shared.
fn unshare(flags: UnshareFlags, object: &'static str) -> Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: `unshare` is only unsafe with CLONE_FILES, after which descriptors of other threads
    // would mean other files here. No caller in this module passes that flag.
    unsafe { unshare_unsafe(flags) }.on("unshare", object)
}

/// Runs `work` in a thread of its own, so that what it does to the thread ends with it.
fn scratch_thread<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("mpps-namespace".to_owned())
            .spawn_scoped(scope, work)
            .on("clone", "thread")?;
        match worker.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
