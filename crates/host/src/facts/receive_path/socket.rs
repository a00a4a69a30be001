//! Techniques on sockets of the kernel.

use mpps_os::capability::{CAP_NET_RAW, CAP_SYS_ADMIN};
use mpps_os::text::ShellWord;

use super::{Copies, KernelAnswer, PathFacts, PathVerdict, StackPart, Usable};

fn plain(why: impl Into<String>) -> PathVerdict {
    PathVerdict::yes(why, StackPart::Nothing, Copies::Copy)
}

pub(super) fn recv(facts: &PathFacts) -> PathVerdict {
    plain(format!("sockets work on any interface; {}", queues(facts)))
}

pub(super) fn recvmmsg(facts: &PathFacts) -> PathVerdict {
    plain(format!(
        "Linux {} has recvmmsg(2); {}",
        facts.host.kernel,
        queues(facts)
    ))
}

pub(super) fn gro(facts: &PathFacts) -> PathVerdict {
    let name = ShellWord::new(&facts.nic.name);
    let verdict = plain(
        "rx-gro is on: datagrams of one flow and one size come as a train, if they have checksums",
    );
    if !facts.host.since(5, 0) {
        return verdict.no(
            format!("UDP_GRO needs Linux 5.0, this is {}", facts.host.kernel),
            "a newer kernel",
        );
    }
    match facts.nic.gro {
        Some(true) => verdict,
        Some(false) => verdict.no("rx-gro is off", format!("ethtool -K {name} gro on")),
        None => verdict.unknown(
            "the kernel does not show whether rx-gro is on",
            format!("ethtool -K {name} gro on"),
        ),
    }
}

pub(super) fn busy_poll(facts: &PathFacts) -> PathVerdict {
    let nic = &facts.nic;
    let verdict = plain("");
    if facts.host.busy_poll == Some(false) {
        return verdict.no(
            "/proc/sys/net/core/busy_poll is not there",
            "a kernel built with CONFIG_NET_RX_BUSY_POLL",
        );
    }
    match &nic.napi_contexts {
        KernelAnswer::Is(0) if nic.driver == "veth" => verdict.no(
            "a veth has no NAPI contexts while GRO is off",
            format!("ethtool -K {} gro on", ShellWord::new(&nic.name)),
        ),
        KernelAnswer::Is(0) => verdict.never(format!("{} has no NAPI contexts to poll", nic.name)),
        KernelAnswer::Is(1) => plain("1 NAPI context"),
        KernelAnswer::Is(contexts) => plain(format!("{contexts} NAPI contexts")),
        KernelAnswer::Refused(why) => verdict.unknown(
            format!("the kernel does not list NAPI contexts ({why})"),
            format!(
                "mpps recv --busy-poll 50us --interface {} ADDR:PORT",
                ShellWord::new(&nic.name)
            ),
        ),
    }
}

pub(super) fn io_uring(facts: &PathFacts) -> PathVerdict {
    let host = &facts.host;
    let verdict = plain(format!(
        "Linux {}{}",
        host.kernel,
        host.io_uring_disabled
            .map_or_else(String::new, |value| format!(
                ", kernel.io_uring_disabled is {value}"
            ))
    ));
    if !host.since(6, 0) {
        return verdict.no(
            format!(
                "multishot receiving needs Linux 6.0, this is {}",
                host.kernel
            ),
            "a newer kernel",
        );
    }
    match host.io_uring_disabled {
        Some(2) => verdict.no(
            "kernel.io_uring_disabled is 2",
            "sysctl kernel.io_uring_disabled=0",
        ),
        Some(1) if !host.capable(CAP_SYS_ADMIN) => verdict.no(
            "kernel.io_uring_disabled is 1, and this process has no CAP_SYS_ADMIN",
            "sysctl kernel.io_uring_disabled=0",
        ),
        _ => verdict,
    }
}

pub(super) fn packet_mmap(facts: &PathFacts) -> PathVerdict {
    let verdict = tap(facts, "sudo mpps recv --backend packet_mmap ADDR:PORT");
    match facts.host.without_tcx() {
        Some(lacking) if verdict.usable == Usable::Yes => {
            let why = format!("{}; {lacking}", verdict.why);
            verdict.because(why)
        }
        _ => verdict,
    }
}

pub(super) fn pcap(facts: &PathFacts) -> PathVerdict {
    tap(facts, "sudo mpps recv --backend pcap ADDR:PORT")
}

/// AF_PACKET, which libpcap uses as well.
fn tap(facts: &PathFacts, command: &str) -> PathVerdict {
    let verdict = plain("AF_PACKET is there; the kernel still handles every packet itself");
    if !facts.host.has_file("/proc/net/packet") {
        return verdict.no("/proc/net/packet is not there", "modprobe af_packet");
    }
    if !facts.host.capable(CAP_NET_RAW) {
        return verdict.no("this process has no CAP_NET_RAW", command);
    }
    verdict
}

pub(crate) fn queues(facts: &PathFacts) -> String {
    let mut text = match facts.nic.rx_queues {
        1 => "1 receive queue".to_owned(),
        queues => format!("{queues} receive queues"),
    };
    for (own, (interface, other)) in &facts.nic.leases {
        text += &format!(", queue {own} leased (queue {other} of interface {interface})");
    }
    text
}
