//! What this thread may do, before it tries.

use std::fs;
use std::os::linux::fs::MetadataExt;

/// May change its group and its list of groups.
pub const CAP_SETGID: u8 = 6;
/// May change its user.
pub const CAP_SETUID: u8 = 7;
/// May change networks: interfaces, addresses, offloads, forced socket buffers.
pub const CAP_NET_ADMIN: u8 = 12;
/// May open raw and packet sockets.
pub const CAP_NET_RAW: u8 = 13;
/// May lock memory without a limit.
pub const CAP_IPC_LOCK: u8 = 14;
/// May make namespaces and mount file systems.
pub const CAP_SYS_ADMIN: u8 = 21;
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

/// The line `CapEff` of `/proc/PID/status` (`proc_pid_status(5)`): a mask in hexadecimal.
fn parse_effective(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn root_and_nobody() {
        let status = "Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\n";
        assert_eq!(parse_effective(status), Some(1 << CAP_NET_ADMIN));
        assert_eq!(parse_effective("Name:\tx\nCapEff:\n"), None);
        assert!(!effective(200));
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
