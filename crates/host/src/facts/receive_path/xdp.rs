//! AF_XDP: packets go from the driver, or from just behind it, to the program.

use mpps_os::capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN};
use mpps_os::text::ShellWord;

use super::socket::queues;
use super::{Copies, KernelAnswer, NicFacts, PathFacts, PathVerdict, StackPart, Usable};

/// The largest MTU whose frame fits one page beside the room that XDP needs, as in veth. Other
/// drivers have buffers of 2 or 3 KiB, or of a page. No driver shows this before it is asked to
/// attach a program.
const SINGLE_PAGE_MTU_BYTES: u32 = 3506;
/// The largest MTU whose frame, with two VLAN tags, fits one frame of shared memory: a page without
/// the 256 bytes that the kernel leaves free (`XDP_PACKET_HEADROOM`).
const SINGLE_PIECE_MTU_BYTES: u32 = 3818;
/// The MTU of Ethernet, whose frames fit into every driver's buffers.
pub(crate) const ETHERNET_MTU_BYTES: u32 = 1500;

pub(super) fn generic(facts: &PathFacts) -> PathVerdict {
    let verdict = PathVerdict::yes(
        "works behind any driver; the kernel makes its own buffer for each packet first",
        StackPart::Flow,
        Copies::Copy,
    );
    obstacle(facts, verdict.clone()).unwrap_or(verdict)
}

pub(super) fn native(facts: &PathFacts) -> PathVerdict {
    let nic = &facts.nic;
    let verdict = PathVerdict::yes(
        format!("{}, {}; {}", driver(facts), features(facts), queues(facts)),
        StackPart::Flow,
        Copies::Copy,
    );
    if let Some(obstacle) = obstacle(facts, verdict.clone()) {
        return obstacle;
    }
    let generic = format!(
        "mpps recv --backend af_xdp --xdp generic --interface {} ADDR:PORT",
        ShellWord::new(&nic.name)
    );
    if let KernelAnswer::Refused(why) = &nic.xdp_features {
        return verdict.unknown(
            format!("the kernel does not show the driver's XDP features ({why})"),
            format!("mpps backends --try {}", ShellWord::operand(&nic.name)),
        );
    }
    if !nic.xdp("basic") || !nic.xdp("redirect") {
        let why = format!(
            "{}: no XDP programs that redirect ({})",
            driver(facts),
            features(facts)
        );
        return verdict.no(why, generic);
    }
    if nic.mtu_bytes > SINGLE_PAGE_MTU_BYTES && !nic.xdp("rx-sg") {
        let why = format!(
            "a frame of MTU {} needs more than a page, and the driver has no multi-buffer XDP ({})",
            nic.mtu_bytes,
            features(facts)
        );
        return verdict.no(why, shorter_packets(nic));
    }
    let is_known = nic.driver == "veth" || nic.xdp("rx-sg");
    if nic.mtu_bytes > ETHERNET_MTU_BYTES && !is_known {
        return untold_mtu(facts, verdict, "takes XDP programs");
    }
    verdict
}

/// The verdict on a driver whose behaviour at this MTU is unknown until it is tried.
fn untold_mtu(facts: &PathFacts, verdict: PathVerdict, does: &str) -> PathVerdict {
    let mtu_bytes = facts.nic.mtu_bytes;
    verdict.unknown(
        format!(
            "{} does not show whether it {does} at MTU {mtu_bytes}; at 1500 it does",
            driver(facts)
        ),
        format!(
            "mpps backends --try {}, or {}",
            ShellWord::operand(&facts.nic.name),
            shorter_packets(&facts.nic)
        ),
    )
}

/// The command that makes every frame fit.
pub(crate) fn shorter_packets(nic: &NicFacts) -> String {
    let name = ShellWord::new(&nic.name);
    format!("ip link set dev {name} mtu {ETHERNET_MTU_BYTES}")
}

pub(super) fn zero_copy(facts: &PathFacts) -> PathVerdict {
    let nic = &facts.nic;
    let verdict = PathVerdict {
        copies: Copies::ZeroCopy,
        ..native(facts)
    };
    let known = matches!(nic.xdp_features, KernelAnswer::Is(_));
    if !known || obstacle(facts, verdict.clone()).is_some() {
        return verdict;
    }
    if !nic.xdp("xsk-zerocopy") {
        let why = format!("{}: no xsk-zerocopy ({})", driver(facts), features(facts));
        return verdict.never(why);
    }
    if nic.virtio_dma == Some(false) {
        // `virtnet_xsk_pool_enable` of drivers/net/virtio_net.c wants the device to use the DMA API.
        return verdict.no(
            "the hypervisor does not offer VIRTIO_F_ACCESS_PLATFORM (bit 33 of the device's features), \
             without which virtio_net binds no zero-copy socket",
            "have the hypervisor offer it (QEMU: iommu_platform=on), or take --copy copy",
        );
    }
    if verdict.usable == Usable::Yes && nic.mtu_bytes > ETHERNET_MTU_BYTES {
        return untold_mtu(facts, verdict, "has zero-copy");
    }
    verdict
}

/// The first obstacle for any kind of AF_XDP; none if there is none.
fn obstacle(facts: &PathFacts, verdict: PathVerdict) -> Option<PathVerdict> {
    let host = &facts.host;
    if !host.since(5, 9) {
        let why = format!("XDP links need Linux 5.9, this is {}", host.kernel);
        return Some(verdict.no(why, "a newer kernel"));
    }
    if host.af_xdp == Some(false) {
        let why = "this kernel was built without AF_XDP (CONFIG_XDP_SOCKETS)";
        return Some(verdict.no(why, "a kernel that has it"));
    }
    // CAP_SYS_ADMIN grants everything that CAP_BPF and CAP_PERFMON grant (capabilities(7)).
    let may = |capability| host.capable(capability) || host.capable(CAP_SYS_ADMIN);
    let needed = [
        ("CAP_BPF", may(CAP_BPF)),
        ("CAP_PERFMON", may(CAP_PERFMON)),
        ("CAP_NET_ADMIN", host.capable(CAP_NET_ADMIN)),
        ("CAP_NET_RAW", host.capable(CAP_NET_RAW)),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(_, has)| !has)
        .map(|(n, _)| *n)
        .collect();
    let command = format!(
        "sudo mpps recv --backend af_xdp --interface {} ADDR:PORT",
        ShellWord::new(&facts.nic.name)
    );
    if !missing.is_empty() {
        let why = format!("this process has no {}", missing.join(", "));
        return Some(verdict.no(why, command));
    }
    if facts.nic.mtu_bytes > SINGLE_PIECE_MTU_BYTES && !host.since(6, 6) {
        let why = format!(
            "at MTU {} a packet comes in several pieces, which AF_XDP has from Linux 6.6 on; this is {}",
            facts.nic.mtu_bytes, host.kernel
        );
        return Some(verdict.no(why, shorter_packets(&facts.nic)));
    }
    if !host.initial_user_namespace {
        let why = "this is a user namespace, where the kernel allows no BPF";
        return Some(verdict.no(why, format!("outside of it: {command}")));
    }
    None
}

pub(super) fn driver(facts: &PathFacts) -> String {
    match facts.nic.driver.as_str() {
        "" => format!("{} has no driver", facts.nic.name),
        driver => format!("driver {driver}"),
    }
}

pub(super) fn features(facts: &PathFacts) -> String {
    match &facts.nic.xdp_features {
        KernelAnswer::Is(features) if features.is_empty() => "xdp-features: none".to_owned(),
        KernelAnswer::Is(features) => format!("xdp-features: {}", features.join(", ")),
        KernelAnswer::Refused(why) => why.clone(),
    }
}
