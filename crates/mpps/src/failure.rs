//! What helps against a refusal of the kernel.

use crate::output;
use mpps_os::Error as Refusal;

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
    if let Some(remedy) = refusal.and_then(|refusal| own(refusal).or_else(|| remedy(refusal))) {
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
    cause.downcast_ref()
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
fn remedy(refusal: &Refusal) -> Option<String> {
    let object = &refusal.object;
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
        (1 | 13, "bind") => "ports below 1024 need root: take a higher port".to_owned(),
        (1, "io_uring_setup") => "it is switched off for this user (sysctl \
            kernel.io_uring_disabled), or by the sandbox it runs in: run as root"
            .to_owned(),
        (1 | 13, call) => match capability(call) {
            Some(names) => format!("run as root, or with {names}"),
            None => "run as root, or with the capability that the call needs".to_owned(),
        },
        (19, "join multicast group") => "name an interface: --join GROUP%IF".to_owned(),
        (19, _) => format!("there is no interface {object}: `ip link` lists them"),
        (24, _) => "too many open files: raise `ulimit -n`, or use fewer --flows".to_owned(),
        (12 | 105, _) => "the kernel is out of memory for sockets".to_owned(),
        (92, call) => format!("this kernel is too old for {call}"),
        (2, _) if object.starts_with("/proc") => {
            "/proc is not mounted: mount -t proc proc /proc".to_owned()
        }
        (2, _) if object.starts_with("/sys") => {
            "/sys is not mounted: mount -t sysfs sysfs /sys".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// What a system call asks for (capabilities(7)).
fn capability(call: &str) -> Option<&'static str> {
    match call {
        "socket AF_XDP" | "socket AF_PACKET" => Some("CAP_NET_RAW"),
        // A filter adds what it read in a packet to a pointer, which the verifier grants to
        // CAP_PERFMON (kernel/bpf/verifier.c); the sockets that it serves need the last one.
        call if call.starts_with("bpf ") => {
            Some("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and CAP_NET_RAW")
        }
        call if call.starts_with("unshare ") => Some("CAP_SYS_ADMIN"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::io;

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

    #[test]
    fn a_missing_capability_has_its_name() {
        for (call, name) in [
            ("socket AF_PACKET", "CAP_NET_RAW"),
            ("bpf BPF_MAP_CREATE", "CAP_BPF"),
        ] {
            let refusal = Refusal::new(call, "eth1", io::Error::from_raw_os_error(1));
            let line = explain(&anyhow::Error::new(refusal));
            assert!(line.contains("root") && line.contains(name), "{line}");
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
