//! What helps against a refusal of the kernel.

use crate::output;
use mpps_os::Error as Refusal;
use mpps_os::capability::{
    CAP_BPF, CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_PERFMON,
    CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, Rights,
};
use std::io;
use std::path::Path;

/// Ends the program with status 2 after one line: what failed, on what, why, and what helps.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A refusal tells the kernel's answer itself, and the chain then tells it again.
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line.push_str(colon);
            line.push_str(&cause);
        }
    }
    let refusal = error.chain().find_map(refusal);
    let tcp = error.chain().any(|cause| cause.is::<mpps_http::Error>());
    let own = |refusal| if tcp { tcp_remedy(refusal) } else { None };
    let remedy = |refusal| own(refusal).or_else(|| remedy(refusal, &Rights::own()));
    if let Some(remedy) = refusal.and_then(remedy) {
        line.push_str("; ");
        line.push_str(&remedy);
    }
    output::printable(&line)
}

/// The refusal that an error is. The crates wrap it transparently, which hides it as a source.
fn refusal<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Refusal> {
    if let Some(mpps_io::Error::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_host::Error::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_lab::Error::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_http::Error::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    // One that passed through the standard library's error.
    let inner = cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    cause.downcast_ref().or_else(|| inner?.downcast_ref())
}

/// The same, where it is another thing for a server or a load than for datagrams.
fn tcp_remedy(refusal: &Refusal) -> Option<String> {
    let object = &refusal.object;
    let text = match (refusal.errno()?, refusal.call) {
        (98, _) => format!(
            "another program has it: `ss -tlpn` shows which; take another port than {object}, or 0 \
             for a free one"
        ),
        (24, _) => "too many open files: raise `ulimit -n`, or use fewer connections".to_owned(),
        (13, "access") => format!(
            "the user that root goes on as may not search {object}: name one that may by --user, or \
             `chmod o+x`"
        ),
        (2, "open") => "--root takes a directory that is there".to_owned(),
        _ => return None,
    };
    Some(text)
}

/// What a user can do about a refusal; numbers of include/uapi/asm-generic/errno*.h.
fn remedy(refusal: &Refusal, rights: &Rights) -> Option<String> {
    let object = &refusal.object;
    if let Some(limit) = rights.limit_remedy(refusal) {
        // Not all commands have an option for each.
        let fewer = ", or use fewer flows, threads or connections";
        let fewer = if refusal.errno() == Some(24) {
            fewer
        } else {
            ""
        };
        return Some(limit + fewer);
    }
    let text = match (refusal.errno()?, refusal.call) {
        (98, _) => format!(
            "another program has it: `ss -ulpn` shows which; take another port than {object}, or \
             let sockets share it with --reuseport (if the other allows it)"
        ),
        (16 | 17, "bpf BPF_LINK_CREATE") => "an XDP program is there already, of another receiver \
            or another program: `ip link` shows it as prog/xdp; end what attached it, or name \
            another --interface"
            .to_owned(),
        (16, "bind AF_XDP") => "another AF_XDP socket has this queue: end its program, or take \
            another --queue"
            .to_owned(),
        (99, _) if object.starts_with('[') => "no interface here has this address, or IPv6 is \
            switched off (sysctl net.ipv6.conf.all.disable_ipv6): `ip address` lists them"
            .to_owned(),
        (99, _) => "no interface here has this address: `ip address` lists them".to_owned(),
        (97, _) => "this machine has IPv6 switched off: use an IPv4 address".to_owned(),
        (101 | 113, _) => "there is no route to it: `ip route get ADDR` tells more".to_owned(),
        (1 | 13, "bind") => format!(
            "a port below 1024 needs a right: take a higher port; or {}",
            rights.remedy(&[CAP_NET_BIND_SERVICE])
        ),
        (1, "io_uring_setup") if rights.is_root => {
            "sysctl kernel.io_uring_disabled forbids it, or a \
            seccomp filter, as containers have one: name another --backend"
                .to_owned()
        }
        (1, "io_uring_setup") => "it is switched off for this user (sysctl \
            kernel.io_uring_disabled), or by the sandbox it runs in: run as root"
            .to_owned(),
        (13, "open" | "openat" | "openat2" | "access") => rights.remedy(of_open(object, rights)),
        (13, "connect") => format!(
            "{object} is a broadcast address, or a route forbids it: `ip route get ADDR` tells which"
        ),
        (1, "connect" | "sendmsg" | "send") => {
            "a firewall, or a BPF program of its cgroup, forbids it: `nft list ruleset`".to_owned()
        }
        (1 | 13, call) => rights.remedy(capabilities(call, object)?),
        (30, _) if object.starts_with("/proc/sys") || object.starts_with("/sys") => format!(
            "a container sees {object} read-only: set it on the host, or start the container with \
             --privileged"
        ),
        (19, "join multicast group") => "name an interface: --join GROUP%IF".to_owned(),
        (19, _) => format!("there is no interface {object}: `ip link` lists them"),
        (12 | 105, _) => "the kernel is out of memory for it".to_owned(),
        (92, call) => format!("this kernel is too old for {call}"),
        (2, _) if lacks(object, "/proc", "self") => {
            "/proc is not mounted: mount -t proc proc /proc".to_owned()
        }
        (2, _) if lacks(object, "/sys", "class") => {
            "/sys is not mounted: mount -t sysfs sysfs /sys".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// What opening a file needs whose mode, or whose process, refuses it. An ordinary user is not told
/// to take a right over all files.
fn of_open(path: &str, rights: &Rights) -> &'static [u8] {
    let is_of_process = |kind| path.starts_with("/proc/") && path.contains(kind);
    match ["/ns/", "/fd/"].into_iter().any(is_of_process) {
        // ptrace(2), PTRACE_MODE_READ_FSCREDS; a namespace is then to be entered.
        true => &[CAP_SYS_PTRACE, CAP_SYS_ADMIN],
        false if rights.is_root => &[CAP_DAC_OVERRIDE],
        false => &[],
    }
}

/// True if a file is not there because nothing is mounted there, which would have this entry.
fn lacks(object: &str, mount: &str, entry: &str) -> bool {
    object.starts_with(mount) && !Path::new(mount).join(entry).exists()
}

/// What a call needs (capabilities(7)); none if that is not known.
fn capabilities(call: &str, object: &str) -> Option<&'static [u8]> {
    let begins = |words: &[&str]| words.iter().any(|word| call.starts_with(word));
    Some(match call {
        "socket AF_XDP" | "socket AF_PACKET" => &[CAP_NET_RAW],
        // A filter adds what it read in a packet to a pointer, which the verifier grants to
        // CAP_PERFMON (kernel/bpf/verifier.c); the sockets that it serves need the last one.
        _ if begins(&["bpf "]) => &[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW],
        _ if begins(&["unshare", "setns", "clone", "mount", "fsopen", "fsmount"]) => {
            &[CAP_SYS_ADMIN]
        }
        _ if begins(&["rtnetlink ", "netlink ", "ioctl ", "setsockopt "]) => &[CAP_NET_ADMIN],
        _ if begins(&["sched_setaffinity", "setpriority"]) => &[CAP_SYS_NICE],
        _ if begins(&["setrlimit"]) => &[CAP_SYS_RESOURCE],
        _ if begins(&["setres", "setgroups"]) => &[CAP_SETGID, CAP_SETUID],
        // `store_rps_map` and `net_store` (net/core/net-sysfs.c).
        "write" if object.starts_with("/sys/class/net/") => &[CAP_NET_ADMIN],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use mpps_os::capability::CAP_IPC_LOCK;

    #[test]
    fn a_taken_port_is_one_line_with_a_remedy() {
        let refusal = Refusal::new("bind", "0.0.0.0:4321", io::Error::from_raw_os_error(98));
        let error: anyhow::Error = mpps_io::Error::from(refusal).into();
        let line = explain(&error.context("cannot receive"));
        assert!(
            line.contains("0.0.0.0:4321") && line.contains("ss -ulpn"),
            "{line}"
        );
        assert!(!line.contains('\n'));
    }

    #[test]
    fn a_servers_port_is_looked_for_among_the_servers() {
        let refusal = Refusal::new("bind", "0.0.0.0:80", io::Error::from_raw_os_error(98));
        let line = explain(&mpps_http::Error::from(refusal).into());
        assert!(
            line.contains("ss -tlpn") && !line.contains("reuseport"),
            "{line}"
        );
    }

    const USER: Rights = Rights {
        is_root: false,
        is_initial: true,
        effective: 0,
        locked_bytes: Some(64 << 10),
        addresses: None,
        processes: Some(1000),
    };

    fn said(call: &'static str, object: &str, errno: i32, rights: &Rights) -> String {
        let refusal = Refusal::new(call, object, io::Error::from_raw_os_error(errno));
        remedy(&refusal, rights).unwrap_or_default()
    }

    #[test]
    fn a_missing_capability_has_its_name() {
        let root = Rights {
            is_root: true,
            ..USER
        };
        for (call, name) in [
            ("socket AF_PACKET", "CAP_NET_RAW"),
            ("bpf BPF_MAP_CREATE", "CAP_BPF"),
            ("bind", "CAP_NET_BIND_SERVICE"),
            ("rtnetlink RTM_NEWLINK", "CAP_NET_ADMIN"),
            ("netlink NETDEV_CMD_NAPI_SET", "CAP_NET_ADMIN"),
            ("setsockopt SO_PREFER_BUSY_POLL", "CAP_NET_ADMIN"),
            ("unshare CLONE_NEWPID", "CAP_SYS_ADMIN"),
            ("sched_setaffinity", "CAP_SYS_NICE"),
            ("write", "CAP_NET_ADMIN"),
        ] {
            let object = "/sys/class/net/eth1/queues/rx-0/rps_cpus";
            let user = said(call, object, 1, &USER);
            assert!(
                user.contains("run as root") && user.contains(name),
                "{user}"
            );
            let root = said(call, object, 1, &root);
            assert!(root.contains(name) && root.contains("--cap-add"), "{root}");
            assert!(!root.contains("run as root"), "{root}");
        }
        assert_eq!(said("open", "/x", 13, &USER), "run as root");
        for (object, has, lacks) in [
            ("/proc/7/ns/user", CAP_SYS_ADMIN, "CAP_SYS_PTRACE"),
            ("/proc/7/fd/9", CAP_SYS_ADMIN, "CAP_SYS_PTRACE"),
            ("/proc/7/net/dev", CAP_SYS_ADMIN, "CAP_DAC_OVERRIDE"),
            ("/srv/x/ns/y", CAP_SYS_PTRACE, "CAP_DAC_OVERRIDE"),
        ] {
            let root = Rights {
                effective: 1 << has,
                ..root
            };
            let said = said("open", object, 13, &root);
            let only = format!("root without {lacks} (");
            assert!(said.contains(&only), "{object}: {said}");
        }
        for object in ["/proc/sys/net/core/rmem_max", "/sys/class/net/v0/threaded"] {
            let read_only = said("open", object, 30, &root);
            assert!(read_only.contains("--privileged"), "{read_only}");
        }
        // Nobody knows what these need.
        for object in ["/proc/irq/9/smp_affinity", "result.json"] {
            assert_eq!(said("write", object, 1, &root), "");
        }
    }

    #[test]
    fn an_address_that_a_route_forbids_needs_no_right() {
        for rights in [
            USER,
            Rights {
                is_root: true,
                ..USER
            },
        ] {
            let said = said("connect", "10.1.1.255:4321", 13, &rights);
            assert!(
                said.contains("broadcast") && !said.contains("root"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_is_mounted_is_not_to_be_mounted() {
        // The test runs where both are.
        for object in ["/proc/4194305/ns/net", "/sys/class/net/nosuch0/mtu"] {
            assert_eq!(said("open", object, 2, &USER), "");
        }
        assert!(lacks("/nosuch/9", "/nosuch", "self") && !lacks("/x", "/nosuch", "self"));
    }

    #[test]
    fn a_limit_of_threads_has_its_name() {
        let line = said("clone", "exporter", 11, &USER);
        assert!(
            line.contains("ulimit -u") && line.contains("RLIMIT_NPROC"),
            "{line}"
        );
        assert_eq!(said("recv", "0.0.0.0:9", 11, &USER), "");
        // A read says so, too.
        let bare = explain(&io::Error::from_raw_os_error(11).into());
        assert!(!bare.contains("ulimit"), "{bare}");
        let refusal = Refusal::new("clone", "rx", io::Error::from_raw_os_error(11));
        let wrapped = explain(&io::Error::other(refusal).into());
        assert!(wrapped.contains("--pids-limit"), "{wrapped}");
    }

    #[test]
    fn too_many_files_name_no_option_that_a_command_lacks() {
        let line = said("socket", "0.0.0.0:0", 24, &USER);
        assert!(
            line.contains("ulimit -n") && line.contains("fewer flows, threads or connections"),
            "{line}"
        );
        assert!(!line.contains("--"), "{line}");
    }

    #[test]
    fn a_limit_of_locked_memory_is_told_from_a_kernel_without_memory() {
        let locked = [
            "io_uring_setup",
            "io_uring_register",
            "setsockopt XDP_UMEM_REG",
        ];
        for (call, errno) in locked
            .into_iter()
            .flat_map(|call| [(call, 12), (call, 105)])
        {
            let limited = said(call, "", errno, &USER);
            assert!(
                limited.contains("64 KiB") && limited.contains("ulimit -l"),
                "{limited}"
            );
            let lifted = [
                Rights {
                    locked_bytes: None,
                    ..USER
                },
                Rights {
                    effective: 1 << CAP_IPC_LOCK,
                    ..USER
                },
            ];
            for rights in lifted {
                let said = said(call, "", errno, &rights);
                assert!(
                    !said.contains("ulimit") && said.contains("out of memory"),
                    "{said}"
                );
            }
        }
        for call in ["socket", "setsockopt PACKET_RX_RING"] {
            assert!(!said(call, "", 12, &USER).contains("ulimit"), "{call}");
        }
    }

    #[test]
    fn an_error_of_our_own_is_told_as_it_is() {
        let error = Err::<(), _>(mpps_io::backend::find("x").unwrap_err()).context("--backend");
        let line = explain(&error.unwrap_err());
        assert!(
            line.starts_with("--backend: no backend is called `x`"),
            "{line}"
        );
    }
}
