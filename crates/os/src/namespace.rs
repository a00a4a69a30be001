//! Network namespaces held only by a file descriptor.
//!
//! A namespace without a name in the file system cannot be left behind. It ends with the last
//! descriptor, thread or process that holds it, even when a program is killed.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::On;
use crate::option::words;
use crate::{CallError, CallResult, text};

/// The calling thread's own network namespace. `/proc/self` would name that of the main thread.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The file system of namespaces (include/uapi/linux/magic.h).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Asks for the kind of a namespace, a flag of clone(2) (include/uapi/linux/nsfs.h).
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// Asks for the user namespace that owns a namespace (ioctl_ns(2)).
const NS_GET_USERNS: libc::Ioctl = 0xb701;

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
    pub fn new() -> CallResult<Self> {
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
    pub fn current() -> CallResult<Self> {
        Self::open(OWN_NAMESPACE)
    }

    /// The network namespace that a file stands for, such as `/proc/PID/ns/net` or, where it is a
    /// descriptor of a namespace, `/proc/PID/fd/N`.
    ///
    /// # Errors
    ///
    /// No such file; `EACCES` or `EPERM` for the process of another user;
    /// [`io::ErrorKind::InvalidInput`] for a file of another kind, which is not opened.
    pub fn open(path: &str) -> CallResult<Self> {
        // Some devices act when they are opened, as a watchdog does, and a named pipe lets its writer
        // go on.
        let open = |path: &str, flags| {
            let path = text::to_bytes(path);
            rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        let named = open(path, OFlags::PATH).on("open", path)?;
        let failed = |source| CallError::new("fstat", path, source);
        let kind = rustix::fs::fstatfs(&named).map_err(|errno| failed(errno.into()))?;
        let unfit = || {
            let text = "it is no network namespace; name a file such as /proc/PID/ns/net or /run/netns/NAME";
            failed(io::Error::new(io::ErrorKind::InvalidInput, text))
        };
        if kind.f_type as u64 != NSFS_MAGIC {
            return Err(unfit());
        }
        // The file that was looked at, whatever has its name by now.
        let again = format!("/proc/self/fd/{}", named.as_raw_fd());
        let fd = open(&again, OFlags::RDONLY).on("open", path)?;
        // SAFETY: this request of a namespace takes no argument and answers a number (ioctl_ns(2)).
        if unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) } != libc::CLONE_NEWNET {
            return Err(unfit());
        }
        let status = rustix::fs::fstat(&fd).map_err(|errno| failed(errno.into()))?;
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
    pub fn inheritable(&self) -> CallResult<OwnedFd> {
        rustix::io::dup(&self.fd).on("dup", "namespace")
    }

    /// The number of this namespace in the kernel and in `lsns` (`ns.inum`).
    pub fn inode(&self) -> u32 {
        self.inode
    }

    /// The number that no other namespace of this boot has: that of [`NetNamespace::inode`] is used again.
    /// Of the calling thread's namespace (`SO_NETNS_COOKIE`, Linux 5.14).
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` before that.
    pub fn current_cookie() -> CallResult<u64> {
        /// include/uapi/asm-generic/socket.h; libc lacks it on some targets.
        const SO_NETNS_COOKIE: libc::c_int = 71;
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0));
        let socket = socket.map_err(|error| CallError::new("socket", "UDP", error))?;
        let words = words::<2>(&socket, libc::SOL_SOCKET, SO_NETNS_COOKIE);
        let [low, high] = words.on("getsockopt SO_NETNS_COOKIE", "UDP")?;
        // The option is one number of 64 bits.
        let [low, high] = [low, high].map(u32::to_ne_bytes);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&low);
        bytes[4..].copy_from_slice(&high);
        Ok(u64::from_ne_bytes(bytes))
    }

    /// True if it is owned by the user namespace of this process, so that no ordinary user made it in one of
    /// his own. False where that cannot be seen.
    pub fn is_of_own_user_namespace(&self) -> bool {
        // SAFETY: this request of a namespace takes no argument and answers a new descriptor.
        let owner = unsafe { libc::ioctl(self.fd.as_raw_fd(), NS_GET_USERNS) };
        if owner < 0 {
            return false;
        }
        // SAFETY: the descriptor is new, and only this value owns it.
        let owner = unsafe { OwnedFd::from_raw_fd(owner) };
        let inode = |file: &OwnedFd| rustix::fs::fstat(file).ok().map(|status| status.st_ino);
        let own = fs::metadata("/proc/self/ns/user")
            .ok()
            .map(|status| status.ino());
        own.is_some() && inode(&owner) == own
    }

    /// Runs `work` in a thread that has entered this namespace by `setns(2)`, and waits for it.
    ///
    /// Sockets that `work` makes belong to the namespace as long as they exist, whichever thread
    /// then uses them. A panic of `work` goes on in the caller.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` both in the caller's user namespace and in that of the
    /// network namespace; `EAGAIN` where no thread can be had.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> CallResult<R> {
        scratch_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// Moves only the calling thread into this namespace for good, by `setns(2)`.
    ///
    /// # Errors
    ///
    /// As for [`NetNamespace::run`].
    pub fn enter(&self) -> CallResult<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .on("setns", self.object())
    }

    fn object(&self) -> String {
        format!("net:[{}]", self.inode)
    }
}

lends_descriptor!(NetNamespace, fd);

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
pub fn become_root_in_user_namespace() -> CallResult<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(
        UnshareFlags::NEWUSER | UnshareFlags::NEWNS,
        "user and mount namespace",
    )?;
    // The kernel lets a process without privilege map its group only after it has given up
    // setgroups(2). With that it could shed a group that denies it something.
    write_identity("/proc/self/setgroups", "deny")?;
    write_identity("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write_identity("/proc/self/gid_map", &format!("0 {group} 1"))
}

fn write_identity(path: &'static str, value: &str) -> CallResult<()> {
    fs::write(path, value).on("write", path)
}

/// `unshare(2)` for the kinds of namespace, which leave file descriptors shared.
fn unshare(flags: UnshareFlags, object: &'static str) -> CallResult<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: `unshare` is unsafe only with CLONE_FILES: descriptors of other threads would then
    // mean other files here. No caller in this module passes that flag.
    unsafe { unshare_unsafe(flags) }.on("unshare", object)
}

/// Runs `work` in a thread of its own, so that what it does to the thread ends with it.
fn scratch_thread<R: Send>(work: impl FnOnce() -> R + Send) -> CallResult<R> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, mknodat};
    use rustix::io::Errno;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_another_kind_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("pipe", at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        std::thread::scope(|scope| {
            // It waits for the first that opens the pipe to read.
            let writer = scope.spawn(|| fs::File::options().write(true).open(at("pipe")));
            let names = ["pipe", "link", "file", ""].map(at);
            for path in names
                .iter()
                .map(|path| &**path)
                .chain(["/dev/null", "/proc/self/ns/mnt"])
            {
                let error = NetNamespace::open(path).unwrap_err().to_string();
                assert!(
                    error.contains("it is no network namespace; name"),
                    "{error}"
                );
            }
            for _ in 0..1000 {
                let _ = NetNamespace::open(&at("pipe"));
            }
            let is_open = writer.is_finished();
            let flags = OFlags::WRONLY | OFlags::NONBLOCK;
            let reader = rustix::fs::open(at("pipe"), flags, Mode::empty());
            // Opening for both does not wait (fifo(7)), and ends the writer's wait.
            let both = fs::File::options().read(true).write(true).open(at("pipe"));
            assert!(both.is_ok() && writer.join().unwrap().is_ok());
            assert!(!is_open, "its writer was let go on");
            assert_eq!(reader.unwrap_err(), Errno::NXIO, "it has a reader");
        });
        let own = NetNamespace::current().unwrap().inode();
        symlink("/proc/self/ns/net", at("own")).unwrap();
        for path in ["/proc/self/ns/net", &at("own")] {
            assert_eq!(NetNamespace::open(path).unwrap().inode(), own, "{path}");
        }
    }
}
