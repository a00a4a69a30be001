//! Remedies for refusals of the kernel.

pub(crate) mod flags;

use crate::output;
use mpps_os::CallError as Refusal;
use mpps_os::capability::{
    CAP_BPF, CAP_DAC_OVERRIDE, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW, CAP_PERFMON,
    CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, Rights,
};
use mpps_os::netlink::route::{self, RouteKind};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// Ends the program with status 2 after one line: what failed, on what, why, and what helps.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(flags::text_of) {
        // A refusal names the kernel's answer itself, and the chain repeats it.
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line.push_str(colon);
            line.push_str(&cause);
        }
    }
    let refusal = error.chain().find_map(refusal);
    let tcp = error
        .chain()
        .any(|cause| cause.is::<mpps_http::HttpError>());
    let own = |refusal| match () {
        () if tcp => tcp_remedy(refusal),
        () if error.is::<CannotSend>() => sender_remedy(refusal),
        () => None,
    };
    let remedy = |refusal| {
        let remedy = || remedy(refusal, &Rights::own());
        range_remedy(refusal)
            .or_else(|| own(refusal))
            .or_else(remedy)
    };
    if let Some((refusal, remedy)) = refusal.and_then(|one| Some((one, remedy(one)?))) {
        match refusal.errno() {
            // It says all of it.
            Some(19) if remedy.starts_with(NO_INTERFACE) => {
                line = line.replace(&refusal.to_string(), &remedy);
            }
            _ => {
                line.push_str("; ");
                line.push_str(&remedy);
            }
        }
    }
    output::printable(&line)
}

/// True if the kernel refused it for lack of rights.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    let refusal = error.chain().find_map(refusal);
    refusal.is_some_and(|one| matches!(one.errno(), Some(1 | 13)))
}

/// The error of a sender that could not be opened. Its options differ from a receiver's.
#[derive(Debug, thiserror::Error)]
#[error("cannot send to {0}")]
pub(crate) struct CannotSend(pub(crate) SocketAddr);

/// The refusal that an error is. The crates wrap it transparently, which hides it as a source.
fn refusal<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Refusal> {
    if let Some(mpps_io::Error::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_host::HostError::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_lab::LabError::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    if let Some(mpps_http::HttpError::Kernel(refusal)) = cause.downcast_ref() {
        return Some(refusal);
    }
    // A refusal that passed through the standard library's error.
    let inner = cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    cause.downcast_ref().or_else(|| inner?.downcast_ref())
}

/// The remedy if the kernel is to choose a port, and has none.
fn range_remedy(refusal: &Refusal) -> Option<String> {
    let is_chosen = match (refusal.errno()?, refusal.call) {
        (98, "bind") => refusal.object.ends_with(":0"),
        // `inet_autobind` (net/ipv4/af_inet.c).
        (11, "connect") => true,
        _ => false,
    };
    is_chosen.then(|| {
        "all ports of sysctl net.ipv4.ip_local_port_range are in use: widen it, or name a port outside \
         of it"
            .to_owned()
    })
}

/// The remedy for a sender, where it is another one than for a receiver.
fn sender_remedy(refusal: &Refusal) -> Option<String> {
    let text = match (refusal.errno()?, refusal.call) {
        (98, "bind") => {
            "another program has it: `ss -ulpn` shows which; take another --source-port, or 0 for a free one"
        }
        (13, "connect") => {
            let to: SocketAddr = refusal.object.parse().ok()?;
            match route::find(to.ip(), None, None).ok()?.kind {
                RouteKind::Broadcast => {
                    "that address is all hosts of the network: name one host, or a multicast group"
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// The remedy for datagrams that the kernel refused while others went: what `send` was answered, and by
/// which cause. Numbers of include/uapi/asm-generic/errno*.h.
const REFUSALS: [(i32, &str); 8] = [
    (
        1,
        "a firewall, or a BPF program of the cgroup, forbids it: nft list ruleset, bpftool cgroup tree",
    ),
    (
        13,
        "the address is all hosts of the network, or a route forbids it: ip route get ADDR",
    ),
    (22, "a route drops it (blackhole): ip route get ADDR"),
    (90, "longer than the path takes: a smaller --size"),
    (100, "the interface is down: ip link set IF up"),
    (101, "no route: ip route get ADDR"),
    (111, "no program listens at that port"),
    (
        113,
        "the next host does not answer ARP, or a route forbids it: ip neigh, ip route get ADDR",
    ),
];

/// The remedy for an answer of the kernel, as [`io::Error`] prints it.
pub(crate) fn answer_remedy(answer: &str) -> Option<&'static str> {
    let number = answer.rsplit_once("(os error ")?.1.strip_suffix(')')?;
    let number: i32 = number.parse().ok()?;
    let mut known = REFUSALS.iter();
    Some(known.find(|(errno, _)| *errno == number)?.1)
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
            "the user that root becomes may not search {object}: name another user by --user, or \
             `chmod o+x`"
        ),
        (2, "open") => "--root takes a directory that is there".to_owned(),
        _ => return None,
    };
    Some(text)
}

/// The remedy for a refusal; numbers of include/uapi/asm-generic/errno*.h.
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
        (101 | 113, _) => "there is no route to it: `ip route get ADDR` shows more".to_owned(),
        (1 | 13, "bind") => low_port_remedy(object, unprivileged_from(), rights),
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
            "{object} is a broadcast address, or a route forbids it: `ip route get ADDR` shows which"
        ),
        (1, "connect" | "sendmsg" | "send") => {
            "a firewall, or a BPF program of its cgroup, forbids it: `nft list ruleset`".to_owned()
        }
        (1 | 13, call) => rights.remedy(capabilities(call, object)?),
        (30, _) if object.starts_with("/proc/sys") || object.starts_with("/sys") => format!(
            "a container sees {object} read-only: set it on the host, or start the container with \
             --privileged"
        ),
        (2, "rtnetlink RTM_NEWQDISC") => "this kernel lacks that queue discipline \
            (CONFIG_NET_SCHED, CONFIG_NET_SCH_TBF), or may not load it: modprobe sch_tbf"
            .to_owned(),
        (19, "join multicast group") => "name an interface: --join GROUP%IF".to_owned(),
        (19, _) => no_interface(object),
        (12 | 105, _) => shortage_remedy(refusal).to_owned(),
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

/// How the error of a missing interface begins.
const NO_INTERFACE: &str = "there is no interface";

/// The message for an interface that does not exist, with a remedy.
fn no_interface(name: &str) -> String {
    // A port is easily taken for the interface of `mpps doctor`.
    if name.parse::<u16>().is_ok_and(|port| port > 0) {
        return format!("{NO_INTERFACE} {name}; did you mean --port {name}?");
    }
    let links = mpps_os::netlink::link::list().unwrap_or_default();
    let names: Vec<String> = links.iter().map(|link| link.name.to_string()).collect();
    let names = names.join(", ");
    format!("{NO_INTERFACE} {name}; this host has {names}")
}

/// The remedy if the kernel has no memory for something, or a sysctl does not allow more.
fn shortage_remedy(refusal: &Refusal) -> &'static str {
    match (refusal.errno(), refusal.call) {
        (Some(105), "join multicast group") => {
            "a socket may join as many groups as sysctl net.ipv4.igmp_max_memberships says: raise it, \
             or join fewer"
        }
        (_, call) if call.starts_with("setsockopt SO_ATTACH") || call == "join multicast group" => {
            "it may need more than sysctl net.core.optmem_max lets a socket have: raise it"
        }
        _ => "the kernel is out of memory for it",
    }
}

/// The first port that needs no right.
fn unprivileged_from() -> u16 {
    let sysctl = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let port = sysctl.ok().and_then(|text| text.trim().parse().ok());
    port.unwrap_or(1024)
}

/// The remedy for the refusal of a port.
fn low_port_remedy(address: &str, from: u16, rights: &Rights) -> String {
    let port = address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse::<u16>().ok());
    if port.is_some_and(|port| port >= from) {
        return "a BPF program of its cgroup, or a security module (AppArmor, SELinux), forbids it: take \
            another port"
            .to_owned();
    }
    format!(
        "a port below {from} needs a right (sysctl net.ipv4.ip_unprivileged_port_start): take a higher \
         port; or {}",
        rights.remedy(&[CAP_NET_BIND_SERVICE])
    )
}

/// The rights to open a file whose mode, or whose process, refuses it. An ordinary user gets no
/// advice to take a right over all files.
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

/// The rights that a call needs (capabilities(7)); none if they are not known.
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
    use mpps_trial::mentions;

    #[test]
    fn a_taken_port_is_one_line_with_a_remedy() {
        let refusal = Refusal::new("bind", "0.0.0.0:4321", io::Error::from_raw_os_error(98));
        let error: anyhow::Error = mpps_io::Error::from(refusal).into();
        let line = explain(&error.context("cannot receive"));
        mentions(&line, "0.0.0.0:4321 | ss -ulpn");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn a_servers_port_is_looked_for_among_the_servers() {
        let refusal = Refusal::new("bind", "0.0.0.0:80", io::Error::from_raw_os_error(98));
        let line = explain(&mpps_http::HttpError::from(refusal).into());
        mentions(&line, "ss -tlpn | !reuseport");
    }

    const USER: Rights = Rights {
        is_root: false,
        is_initial: true,
        effective: 0,
        locked_bytes: Some(64 << 10),
        memory: [None; 2],
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
        // The rights for these are unknown.
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
            mentions(&said, "broadcast | !root");
        }
    }

    #[test]
    fn a_missing_queue_discipline_is_named() {
        let said = said("rtnetlink RTM_NEWQDISC", "interface 2", 2, &USER);
        assert!(said.contains("modprobe sch_tbf"), "{said}");
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
        mentions(&line, "ulimit -u | RLIMIT_NPROC");
        assert_eq!(said("recv", "0.0.0.0:9", 11, &USER), "");
        // A read says so, too.
        let bare = explain(&io::Error::from_raw_os_error(11).into());
        assert!(!bare.contains("ulimit"), "{bare}");
        let refusal = Refusal::new("clone", "rx", io::Error::from_raw_os_error(11));
        let wrapped = explain(&io::Error::other(refusal).into());
        assert!(wrapped.contains("--pids-limit"), "{wrapped}");
    }

    #[test]
    fn a_port_that_is_refused_has_its_reason() {
        let cannot_send = |object| {
            let refusal = Refusal::new("bind", object, io::Error::from_raw_os_error(98));
            let error = anyhow::Error::from(mpps_io::Error::from(refusal));
            explain(&error.context(CannotSend(([127, 0, 0, 1], 9).into())))
        };
        let taken = cannot_send("0.0.0.0:4444");
        mentions(
            &taken,
            "^cannot send to 127.0.0.1:9 | --source-port | !--reuseport",
        );
        let refusal = Refusal::new("bind", "[::]:0", io::Error::from_raw_os_error(98));
        let tcp = explain(&mpps_http::HttpError::from(refusal).into());
        for none in [cannot_send("0.0.0.0:0"), tcp] {
            mentions(&none, "ip_local_port_range | !0 for a free one");
        }
        let low = |from| low_port_remedy("0.0.0.0:5555", from, &USER);
        assert!(low(6000).contains("below 6000") && low(6000).contains("port_start"));
        assert!(!low(1024).contains("CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn an_answer_of_the_kernel_has_a_remedy() {
        for (errno, _) in REFUSALS {
            let answer = io::Error::from_raw_os_error(errno).to_string();
            assert!(answer_remedy(&answer).is_some(), "{answer}");
        }
        for unknown in ["", "x (os error 9)", "(os error x)"] {
            assert_eq!(answer_remedy(unknown), None);
        }
    }

    #[test]
    fn a_shortage_that_a_sysctl_makes_has_its_name() {
        for (call, errno, part) in [
            ("join multicast group", 105, "net.ipv4.igmp_max_memberships"),
            ("join multicast group", 12, "net.core.optmem_max"),
            ("setsockopt SO_ATTACH_FILTER", 12, "net.core.optmem_max"),
            ("setsockopt PACKET_RX_RING", 12, "out of memory"),
        ] {
            let said = said(call, "239.0.0.1", errno, &USER);
            assert!(said.contains(part), "{call}: {said}");
        }
    }

    #[test]
    fn too_many_files_name_no_option_that_a_command_lacks() {
        let line = said("socket", "0.0.0.0:0", 24, &USER);
        mentions(
            &line,
            "ulimit -n | fewer flows, threads or connections | !--",
        );
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
            mentions(&limited, "64 KiB | ulimit -l");
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
                mentions(&said, "!ulimit | out of memory");
            }
        }
        for call in ["socket", "setsockopt PACKET_RX_RING"] {
            assert!(!said(call, "", 12, &USER).contains("ulimit"), "{call}");
        }
    }

    #[test]
    fn the_libraries_print_their_errors_alike_in_debug() {
        fn check<E: std::error::Error>(error: E) {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        let refusal = || Refusal::new("bind", "eth0", io::Error::from_raw_os_error(98));
        check(refusal());
        check(mpps_io::Error::from(refusal()));
        check(mpps_host::HostError::from(refusal()));
        check(mpps_http::HttpError::from(refusal()));
        check(mpps_lab::LabError::Queues(0));
        check(mpps_io::backend::find("x").unwrap_err());
        check(mpps_http::Url::parse("x").unwrap_err());
    }

    #[test]
    fn an_error_of_our_own_is_told_as_it_is() {
        let error = Err::<(), _>(mpps_io::backend::find("x").unwrap_err()).context("--backend");
        let line = explain(&error.unwrap_err());
        mentions(&line, "^--backend: no backend is called `x`");
    }
}
