//! The rights of this thread, read before it tries anything.

use crate::CallError;
use crate::limit::{self, LOCKED_MEMORY_REMEDY};
use rustix::process::geteuid;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;

/// May use files and directories that their modes refuse.
pub const CAP_DAC_OVERRIDE: u8 = 1;
/// May change its group and its list of groups.
pub const CAP_SETGID: u8 = 6;
/// May change its user.
pub const CAP_SETUID: u8 = 7;
/// May bind ports below 1024.
pub const CAP_NET_BIND_SERVICE: u8 = 10;
/// May change networks: interfaces, addresses, offloads, forced socket buffers.
pub const CAP_NET_ADMIN: u8 = 12;
/// May open raw and packet sockets.
pub const CAP_NET_RAW: u8 = 13;
/// May lock memory without a limit.
pub const CAP_IPC_LOCK: u8 = 14;
/// May look into processes of others.
pub const CAP_SYS_PTRACE: u8 = 19;
/// May make namespaces and mount file systems.
pub const CAP_SYS_ADMIN: u8 = 21;
/// May place threads of others, and raise priorities.
pub const CAP_SYS_NICE: u8 = 23;
/// May raise limits of the process.
pub const CAP_SYS_RESOURCE: u8 = 24;
/// May see where the kernel's functions are.
pub const CAP_SYSLOG: u8 = 34;
/// May read what the kernel traces (since Linux 5.8).
pub const CAP_PERFMON: u8 = 38;
/// May load BPF programs (since Linux 5.8).
pub const CAP_BPF: u8 = 39;

/// The number of the user namespace that the kernel starts with (`PROC_USER_INIT_INO`,
/// include/linux/proc_ns.h).
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether the calling thread has this capability (`capabilities(7)`) in its own user namespace.
///
/// Some calls ask for it in the initial one: see [`in_initial_user_namespace`]. Without `/proc`
/// the answer is no.
pub fn effective(capability: u8) -> bool {
    fs::read("/proc/thread-self/status")
        .ok()
        .and_then(|status| parse_effective(&String::from_utf8_lossy(&status)))
        .is_some_and(|set| set.checked_shr(capability.into()).unwrap_or(0) & 1 == 1)
}

/// Whether this process is in the user namespace that the kernel starts with, which some calls
/// ask for: BPF, forced socket buffers, pinning of kernel threads. Without `/proc` the answer
/// is no.
pub fn in_initial_user_namespace() -> bool {
    fs::metadata("/proc/self/ns/user").is_ok_and(|file| file.st_ino() == INITIAL_USER_NAMESPACE)
}

/// The remedy for a process without a free descriptor.
const MORE_FILES: &str = "RLIMIT_NOFILE is reached: raise `ulimit -n`";

/// The limits of [`Rights::memory`], and how to raise them.
const MEMORY: [[&str; 2]; 2] = [
    ["addresses (RLIMIT_AS)", "`ulimit -v` or LimitAS="],
    ["data (RLIMIT_DATA)", "`ulimit -d` or LimitDATA="],
];

/// The memory of a thread: its stack, and what its allocator takes at first.
const STACK_BYTES: u64 = 8 << 20;

/// The names of those that a refusal is explained by.
const NAMES: [(u8, &str); 14] = [
    (CAP_DAC_OVERRIDE, "DAC_OVERRIDE"),
    (CAP_SETGID, "SETGID"),
    (CAP_SETUID, "SETUID"),
    (CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE"),
    (CAP_NET_ADMIN, "NET_ADMIN"),
    (CAP_NET_RAW, "NET_RAW"),
    (CAP_IPC_LOCK, "IPC_LOCK"),
    (CAP_SYS_PTRACE, "SYS_PTRACE"),
    (CAP_SYS_ADMIN, "SYS_ADMIN"),
    (CAP_SYS_NICE, "SYS_NICE"),
    (CAP_SYS_RESOURCE, "SYS_RESOURCE"),
    (CAP_SYSLOG, "SYSLOG"),
    (CAP_PERFMON, "PERFMON"),
    (CAP_BPF, "BPF"),
];

/// A thread's rights and limits. They explain why the kernel refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// It is user 0 of its user namespace.
    pub is_root: bool,
    /// Its user namespace is the initial one.
    pub is_initial: bool,
    /// Its capabilities, a bit each.
    pub effective: u64,
    /// The memory that it may lock; none is without a limit.
    pub locked_bytes: Option<u64>,
    /// The bytes of addresses that it may have, and those that it has; the same of its data. None is without
    /// a limit.
    pub memory: [Option<[u64; 2]>; 2],
    /// The threads and processes that its user may have; none is without a limit.
    pub processes: Option<u64>,
}

impl Rights {
    /// Those of the calling thread. Without `/proc` it has no capability.
    pub fn own() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self {
            is_root: geteuid().is_root(),
            is_initial: in_initial_user_namespace(),
            effective: parse_effective(&status).unwrap_or(0),
            locked_bytes: limit::locked_memory(),
            memory: limit::memory(),
            processes: limit::processes(),
        }
    }

    /// True if it has this capability, or `CAP_SYS_ADMIN` if that includes it.
    pub fn has(&self, capability: u8) -> bool {
        let has = |one: u8| self.effective.checked_shr(one.into()).unwrap_or(0) & 1 == 1;
        has(capability)
            || [CAP_BPF, CAP_PERFMON, CAP_SYSLOG].contains(&capability) && has(CAP_SYS_ADMIN)
    }

    /// The remedy for a refusal of something that needs these capabilities. If root lacks one, the
    /// remedy names it instead of advising root. An empty list means that no need is known.
    pub fn remedy(&self, needed: &[u8]) -> String {
        let missing: Vec<&str> = NAMES
            .iter()
            .filter(|(one, _)| needed.contains(one) && !self.has(*one))
            .map(|(_, name)| *name)
            .collect();
        let join = |before: &str, between: &str| {
            let names = missing.iter().map(|name| format!("{before}{name}"));
            names.collect::<Vec<_>>().join(between)
        };
        match (self.is_root, missing.is_empty()) {
            (true, false) => format!(
                "this process is root without {} (a container?): start it with {}",
                join("CAP_", " and "),
                join("--cap-add ", " "),
            ),
            (false, false) => format!("run as root, or with {}", join("CAP_", " and ")),
            (false, true) if needed.is_empty() => "run as root".to_owned(),
            (_, true) if !self.is_initial => "the root of a user namespace (a rootless container, \
                `unshare -r`) is not enough: run as root of the host"
                .to_owned(),
            (true, true) if needed.is_empty() => "a capability that this root lacks, a seccomp \
                filter or a security module (AppArmor, SELinux, lockdown) may be the reason"
                .to_owned(),
            (_, true) => "this process has the capability for it: a seccomp filter or a security \
                module (AppArmor, SELinux, lockdown) refuses"
                .to_owned(),
        }
    }

    /// The remedy if a limit of this process or of its user caused the refusal; otherwise none. A
    /// probe asks this before it reports that the kernel is too old.
    pub fn limit_remedy(&self, refusal: &CallError) -> Option<String> {
        let text = match (refusal.errno()?, refusal.call) {
            (libc::EMFILE, _) => MORE_FILES.to_owned(),
            (libc::ENOMEM, "mmap") => {
                self.memory_remedy(refusal.object.split(' ').next()?.parse().ok()?)?
            }
            (libc::EAGAIN, "clone" | "fork" | "execve") => self
                .memory_remedy(STACK_BYTES)
                .unwrap_or_else(|| self.process_remedy()),
            (libc::ENOSPC, call) if call.starts_with("unshare") => {
                "too many namespaces of this user: raise sysctl user.max_net_namespaces, \
                 user.max_user_namespaces and their like"
                    .to_owned()
            }
            (libc::ENOMEM | libc::ENOBUFS, call) if locks(call) && !self.has(CAP_IPC_LOCK) => {
                format!(
                    "this process may lock {} KiB of memory (RLIMIT_MEMLOCK), which all rings of its user \
                 share, and the ring needs more: {LOCKED_MEMORY_REMEDY}",
                    self.locked_bytes? / 1024
                )
            }
            _ => return None,
        };
        Some(text)
    }
}

impl Rights {
    /// The remedy if fewer than `bytes` of addresses or of data are left.
    fn memory_remedy(&self, bytes: u64) -> Option<String> {
        self.memory.iter().zip(MEMORY).find_map(|(limit, [of, raise])| {
            let [most, used] = (*limit)?;
            let (most_kib, used_kib) = (most / 1024, used / 1024);
            (used.saturating_add(bytes) > most).then(|| {
                format!("this process may have {most_kib} KiB of {of}, and has {used_kib}: raise {raise}")
            })
        })
    }

    /// The remedy if no thread can be started. The limit of a user does not apply to a process with
    /// one of these capabilities (`copy_process`, kernel/fork.c).
    fn process_remedy(&self) -> String {
        let is_exempt = [CAP_SYS_RESOURCE, CAP_SYS_ADMIN]
            .iter()
            .any(|one| self.has(*one));
        let is_held = self.processes.is_some() && !(is_exempt && self.is_initial);
        let (limit, raise) = match is_held {
            true => (
                "RLIMIT_NPROC of this user is reached, or a",
                "`ulimit -u`, ",
            ),
            false => ("a", "sysctl kernel.threads-max, "),
        };
        format!("{limit} limit of its unit or container: raise {raise}TasksMax= or --pids-limit")
    }
}

/// True if what a call asks for counts as locked memory of the user: the frames of AF_XDP
/// (`xdp_umem_account_pages` of net/xdp/xdp_umem.c), the queues and buffers of io_uring
/// (`__io_account_mem` of io_uring/rsrc.c).
fn locks(call: &str) -> bool {
    call.starts_with("io_uring") || call == "buffer ring" || call == "setsockopt XDP_UMEM_REG"
}

/// The line `CapEff` of `/proc/PID/status` (`proc_pid_status(5)`): a mask in hexadecimal.
fn parse_effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// The refusal of a file that a user named, and what helps if this is a root who lacks the right, or too many
/// files are open.
pub fn of_file(error: &io::Error) -> String {
    let rights = Rights::own();
    let lacks = rights.is_root && !rights.has(CAP_DAC_OVERRIDE);
    match error.raw_os_error() {
        Some(13) if lacks => format!("{error}; {}", rights.remedy(&[CAP_DAC_OVERRIDE])),
        Some(libc::EMFILE) => format!("{error}; {MORE_FILES}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_trial::mentions;
    use proptest::prelude::*;

    #[test]
    fn root_and_nobody() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\n";
        assert_eq!(parse_effective(status), Some(1 << CAP_NET_ADMIN));
        assert_eq!(parse_effective("Name:\tx\nCapEff:\n"), None);
        assert!(!effective(200));
    }

    #[test]
    fn a_root_is_told_what_it_lacks_and_not_to_become_root() {
        let all = Rights {
            is_root: true,
            is_initial: true,
            effective: u64::MAX,
            locked_bytes: None,
            memory: [None; 2],
            processes: None,
        };
        let without = |lacks: &[u8]| Rights {
            effective: lacks.iter().fold(u64::MAX, |set, one| set & !(1 << one)),
            ..all
        };
        let docker = without(&[CAP_NET_RAW, CAP_BPF, CAP_SYS_ADMIN]);
        let said = docker.remedy(&[CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW]);
        let lacks = "root without CAP_NET_RAW and CAP_BPF (a container?)";
        assert!(said.contains(lacks), "{said}");
        mentions(
            &said,
            "--cap-add NET_RAW --cap-add BPF$ | !run as root | !NET_ADMIN",
        );
        let user = Rights {
            is_root: false,
            effective: 0,
            ..all
        };
        let said = user.remedy(&[CAP_NET_RAW]);
        assert_eq!(said, "run as root, or with CAP_NET_RAW");
        assert_eq!(user.remedy(&[]), "run as root");
        // CAP_SYS_ADMIN is all of BPF, and nothing of the network.
        let old = without(&[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN]);
        assert!(old.has(CAP_BPF) && !old.has(CAP_NET_ADMIN));
        assert!(
            all.remedy(&[CAP_BPF])
                .contains("has the capability for it: a seccomp")
        );
        // Nothing that is known to be needed is not all that is needed.
        let said = all.remedy(&[]);
        mentions(&said, "seccomp | !has the capability");
        let mapped = Rights {
            is_initial: false,
            ..all
        };
        assert!(mapped.remedy(&[CAP_BPF]).contains("root of the host"));
        for (one, name) in NAMES {
            assert!(without(&[one, CAP_SYS_ADMIN]).remedy(&[one]).contains(name));
        }
    }

    #[test]
    fn a_limit_is_named_only_where_it_is_reached() {
        let user = Rights {
            is_root: false,
            is_initial: true,
            effective: 0,
            locked_bytes: None,
            memory: [Some([100 << 20, 40 << 20]), None],
            processes: Some(1000),
        };
        let root = Rights {
            effective: 1 << CAP_SYS_RESOURCE,
            ..user
        };
        let short = Rights {
            memory: [Some([100 << 20, 99 << 20]), None],
            ..user
        };
        let little = Rights {
            memory: [None, short.memory[0]],
            ..user
        };
        let unlimited = Rights {
            processes: None,
            ..user
        };
        for (rights, call, errno, names) in [
            (user, "clone", libc::EAGAIN, "`ulimit -u`"),
            (user, "execve", libc::EAGAIN, "`ulimit -u`"),
            (
                root,
                "clone",
                libc::EAGAIN,
                "raise sysctl kernel.threads-max",
            ),
            (
                unlimited,
                "fork",
                libc::EAGAIN,
                "raise sysctl kernel.threads-max",
            ),
            (short, "clone", libc::EAGAIN, "`ulimit -v`"),
            (short, "mmap", libc::ENOMEM, "`ulimit -v`"),
            (little, "clone", libc::EAGAIN, "`ulimit -d`"),
            (little, "mmap", libc::ENOMEM, "`ulimit -d`"),
            (user, "mmap", libc::ENOMEM, ""),
            (user, "read", libc::EAGAIN, ""),
        ] {
            let answer = io::Error::from_raw_os_error(errno);
            let refusal = CallError::new(call, "33554432 bytes of memory", answer);
            let said = rights.limit_remedy(&refusal).unwrap_or_default();
            assert!(said.contains(names), "{call}: {said}");
            assert_eq!(said.is_empty(), names.is_empty(), "{call}: {said}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            let _ = parse_effective(&text);
        }

        #[test]
        fn round_trip(mask: u64) {
            prop_assert_eq!(parse_effective(&format!("CapEff:\t{mask:016x}\n")), Some(mask));
        }
    }
}
