//! Verdicts on four interfaces: recorded hosts, with answers of the kernel as it would give them.

use std::collections::BTreeMap;

use super::*;
use crate::facts::Interface;
use crate::root::fixture;

type Verdicts = BTreeMap<&'static str, PathVerdict>;

fn facts(tree: &str, bus: &str, nic: NicFacts, initial: bool) -> PathFacts {
    let tree = fixture::tree(tree);
    let host = HostFacts {
        initial_user_namespace: initial,
        ..HostFacts::from_root(&tree.root)
    };
    let nic = nic.with_device(&tree.root, bus);
    PathFacts { host, nic }
}

/// The verdicts. The interface is judged under two more names: words are the same but for the name,
/// and a name that a user chose is clean, and quoted in commands.
fn verdicts(facts: &PathFacts) -> Verdicts {
    let (usual, hostile) = ("usual0", "a;$(id)\x1b]0;b'");
    let [one, other] = [usual, hostile].map(|name| {
        let mut facts = facts.clone();
        facts.nic.name = name.to_owned();
        facts
    });
    let word = ShellWord::new(hostile).to_string();
    let shown = Foreign(hostile).to_string();
    for path in RECEIVE_PATHS {
        let (one, other) = (path.assess(&one), path.assess(&other));
        let remedy = one.remedy.map(|remedy| remedy.replace(usual, &word));
        assert_eq!(other.remedy, remedy);
        // One word has the name inside.
        let arguments = |name| format!("--no-pci --vdev=net_af_packet0,iface={name}");
        let [inside, inside_other] = [usual, hostile].map(arguments);
        let inside = ShellWord::new(&inside).to_string();
        let why = one
            .why
            .replace(&inside, &ShellWord::new(&inside_other).to_string());
        assert_eq!(other.why, why.replace(usual, &shown));
    }
    RECEIVE_PATHS
        .iter()
        .map(|path| (path.name, path.assess(facts)))
        .collect()
}

/// A recorded host, and the kernel's answers on its interface.
fn recorded(tree: &'static str, bus: &str, initial: bool) -> PathFacts {
    let nic = tree.lines().find_map(|line| line.strip_prefix("nic = "));
    let nic = serde_json::from_str(nic.expect("the answers")).expect("facts of an interface");
    facts(tree, bus, nic, initial)
}

fn intel() -> PathFacts {
    let tree = include_str!("../../../tests/fixtures/nic-sriov.tree");
    recorded(tree, "0000:03:00.0", true)
}

fn solarflare() -> PathFacts {
    let tree = include_str!("../../../tests/fixtures/nic-solarflare.tree");
    recorded(tree, "0000:81:00.0", true)
}

fn virtio() -> PathFacts {
    let tree = include_str!("../../../tests/fixtures/nic-virtio.tree");
    recorded(tree, "0000:00:03.0", true)
}

fn veth() -> PathFacts {
    let tree = include_str!("../../../tests/fixtures/nic-veth.tree");
    recorded(tree, "", false)
}

#[track_caller]
fn expect(verdicts: &Verdicts, name: &str, usable: Usable, why: &str, remedy: Option<&str>) {
    let verdict = &verdicts[name];
    assert_eq!(verdict.usable, usable, "{name}: {verdict:#?}");
    assert!(verdict.why.contains(why), "{name}: {verdict:#?}");
    match (remedy, &verdict.remedy) {
        (None, None) => {}
        (Some(wanted), Some(remedy)) if remedy.contains(wanted) => {}
        _ => panic!("{name}: another remedy: {verdict:#?}"),
    }
}

#[test]
fn a_card_with_virtual_functions() {
    use Usable::{No, Unknown, Yes};
    let facts = intel();
    let function = facts.nic.function.as_ref().expect("a PCI card");
    assert_eq!((function.vendor, function.device), (0x8086, 0x10fb));
    assert!(facts.nic.default_route);
    let all = verdicts(&facts);
    expect(&all, "recvmmsg", Yes, "8 receive queues", None);
    expect(&all, "GRO", Yes, "rx-gro is on", None);
    let remedy = Some("--busy-poll");
    expect(&all, "busy polling", Unknown, "NAPI_GET", remedy);
    expect(&all, "packet_mmap", Yes, "AF_PACKET", None);
    expect(&all, "AF_XDP native", Yes, "ixgbe", None);
    expect(&all, "AF_XDP zero-copy", Yes, "xsk-zerocopy", None);
    expect(&all, "bifurcated driver", Yes, "128 entries", None);
    let sriov = Some("echo 1 > /sys/class/net/eth2/device/sriov_numvfs");
    expect(&all, "SR-IOV VF", No, "0 of 63", sriov);
    let bind = Some("dpdk-devbind.py --bind=vfio-pci 0000:03:00.0");
    expect(&all, "DPDK", No, "default route", bind);
    expect(&all, "OpenOnload/EF_VI", No, "8086:10fb", None);
    expect(&all, "Snabb", No, "/usr/bin/snabb", Some("make install"));
    expect(&all, "PF_RING", No, "not loaded", Some("modprobe pf_ring"));
    expect(&all, "netmap", No, "/dev/netmap", Some("modprobe netmap"));
    assert_eq!(all["DPDK"].takes, StackPart::Nic);
    assert_eq!(all["bifurcated driver"].takes, StackPart::Queue);
    assert_eq!(all["bifurcated driver"].copies, Copies::ZeroCopy);
    assert_eq!(all["recvmmsg"].copies, Copies::Copy);
}

#[test]
fn a_solarflare_card() {
    use Usable::{No, Unknown, Yes};
    let all = verdicts(&solarflare());
    expect(&all, "OpenOnload/EF_VI", Yes, "1924", None);
    let remedy = Some("ethtool -K sf0 gro on");
    expect(&all, "GRO", No, "rx-gro is off", remedy);
    expect(&all, "io_uring", No, "5.15.0", Some("newer kernel"));
    let native = "AF_XDP native";
    let mtu = Some("ip link set dev sf0 mtu 1500");
    expect(&all, native, No, "MTU 9000", mtu);
    let mut short = solarflare();
    short.nic.mtu_bytes = 1500;
    let tried = Some("mpps backends --try sf0");
    expect(&verdicts(&short), native, Unknown, "DEV_GET", tried);
    let queues = Some("ethtool -L sf0 combined 2");
    expect(&all, "bifurcated driver", No, "at most 16", queues);
    expect(&all, "SR-IOV VF", Yes, "2 of 240", None);
    expect(&all, "DPDK", No, "HugePages_Total", Some("vm.nr_hugepages"));
    expect(&all, "Snabb", No, "1924:0a03", None);
}

#[test]
fn a_virtual_machine() {
    use Usable::{No, Yes};
    let facts = virtio();
    assert_eq!(
        facts.nic.function.as_ref().map(|f| f.address.as_str()),
        Some("0000:00:03.0")
    );
    assert_eq!(facts.host.unprivileged_bpf_disabled, Some(2));
    let all = verdicts(&facts);
    expect(&all, "busy polling", Yes, "1 NAPI context", None);
    expect(&all, "io_uring", Yes, "io_uring_disabled is 0", None);
    expect(&all, "AF_XDP native", Yes, "rx-sg", None);
    expect(&all, "AF_XDP zero-copy", No, "no xsk-zerocopy", None);
    expect(&all, "bifurcated driver", No, "off [fixed]", None);
    expect(&all, "SR-IOV VF", No, "sriov_totalvfs", None);
}

#[test]
fn a_veth_of_an_ordinary_user() {
    use Usable::{No, Yes};
    let all = verdicts(&veth());
    expect(&all, "recv", Yes, "4 receive queues", None);
    let mut leased = veth();
    leased.nic.leases = [(1, (7, 3))].into();
    let why = "4 receive queues, queue 1 leased (queue 3 of interface 7)";
    expect(&verdicts(&leased), "recv", Yes, why, None);
    let gro = Some("ethtool -K near gro on");
    expect(&all, "busy polling", No, "NAPI", gro);
    let uring = Some("sysctl kernel.io_uring_disabled=0");
    expect(&all, "io_uring", No, "is 2", uring);
    let remedy = Some("sudo mpps recv");
    expect(&all, "packet_mmap", No, "CAP_NET_RAW", remedy);
    let sudo = Some("sudo mpps recv --backend af_xdp --interface near");
    for name in ["AF_XDP generic", "AF_XDP native", "AF_XDP zero-copy"] {
        let missing = "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW";
        expect(&all, name, No, missing, sudo);
    }
    expect(&all, "DPDK", Yes, "net_af_packet0,iface=near", None);
    assert_eq!(all["DPDK"].takes, StackPart::Nothing);
    expect(&all, "Snabb", No, "no PCI card but a veth", None);
    expect(&all, "SR-IOV VF", No, "no PCI card", None);
    let mut root = veth();
    root.host.capabilities = u64::MAX;
    root.host.initial_user_namespace = true;
    let all = verdicts(&root);
    expect(&all, "AF_XDP zero-copy", No, "no xsk-zerocopy", None);
    root.nic.xdp_features = KernelAnswer::Is(vec![]);
    let all = verdicts(&root);
    let remedy = Some("--xdp generic");
    expect(&all, "AF_XDP native", No, "xdp-features: none", remedy);
    expect(&all, "AF_XDP zero-copy", No, "xdp-features: none", None);
}

#[test]
fn an_interface_that_is_down_has_one_remedy() {
    let mut facts = intel();
    facts.nic.up = false;
    for (name, verdict) in verdicts(&facts) {
        assert_ne!(verdict.usable, Usable::Yes, "{name}");
    }
    let all = verdicts(&facts);
    let remedy = Some("ip link set dev eth2 up");
    expect(&all, "recv", Usable::No, "is down", remedy);
}

#[test]
fn a_large_mtu_needs_several_buffers() {
    let mut facts = intel();
    facts.nic.mtu_bytes = 9000;
    facts.host.kernel = "6.12.0".to_owned();
    let all = verdicts(&facts);
    let mtu = Some("ip link set dev eth2 mtu 1500");
    expect(&all, "AF_XDP native", Usable::No, "multi-buffer", mtu);
    expect(&all, "bifurcated driver", Usable::No, "multi-buffer", mtu);
}

#[test]
fn a_packet_in_pieces_needs_a_newer_kernel() {
    let mut facts = intel();
    facts.nic.mtu_bytes = 3819;
    facts.host.kernel = "6.1.0-56-amd64".to_owned();
    let all = verdicts(&facts);
    let mtu = Some("ip link set dev eth2 mtu 1500");
    for name in ["AF_XDP generic", "AF_XDP native", "AF_XDP zero-copy"] {
        expect(&all, name, Usable::No, "Linux 6.6", mtu);
    }
    facts.host.kernel = "6.6.0".to_owned();
    expect(
        &verdicts(&facts),
        "AF_XDP generic",
        Usable::Yes,
        "any driver",
        None,
    );
}

#[test]
fn a_kernel_without_it_has_no_remedy_but_another() {
    let mut card = intel();
    for built in [None, Some(true), Some(false)] {
        card.host.af_xdp = built;
        let verdict = AF_XDP_GENERIC.assess(&card);
        let lacks = verdict.why.contains("CONFIG_XDP_SOCKETS");
        assert_eq!(lacks, built == Some(false), "{verdict:?}");
    }
    let shown = |text: &str| {
        let tree = fixture::tree(&format!("proc/net/protocols = {text}"));
        HostFacts::from_root(&tree.root).af_xdp
    };
    assert_eq!(shown("protocol  size\\nXDP       1088      0"), Some(true));
    assert_eq!(shown("protocol  size\\nUDP       1216      2"), Some(false));
    assert_eq!(HostFacts::from_root(&fixture::tree("").root).af_xdp, None);
}

#[test]
fn a_limit_that_no_driver_tells_is_unknown() {
    let mut facts = intel();
    facts.nic.mtu_bytes = 3500;
    let all = verdicts(&facts);
    for name in ["AF_XDP native", "AF_XDP zero-copy"] {
        expect(&all, name, Usable::Unknown, "MTU 3500", Some("--try"));
    }
    facts.nic.driver = "veth".to_owned();
    let native = &verdicts(&facts)["AF_XDP native"];
    assert_eq!(native.usable, Usable::Yes, "{native:#?}");
    // Frames of several buffers are no limit for a program; what zero-copy has room for is.
    facts.nic.driver = "ice".to_owned();
    facts.nic.xdp_features = KernelAnswer::Is(vec!["basic", "redirect", "xsk-zerocopy", "rx-sg"]);
    let all = verdicts(&facts);
    expect(&all, "AF_XDP native", Usable::Yes, "rx-sg", None);
    let zero_copy = "AF_XDP zero-copy";
    expect(&all, zero_copy, Usable::Unknown, "MTU 3500", Some("--try"));
}

#[test]
fn a_virtual_card_has_zero_copy_only_where_it_reaches_memory_as_others_do() {
    let features = vec!["basic", "redirect", "rx-sg", "xsk-zerocopy"];
    let zero_copy = |bits: &str| {
        let tree = fixture::tree(&format!(
            "sys/bus/pci/devices/0000:00:03.0/virtio0/features = {bits}\n"
        ));
        let mut facts = virtio();
        facts.nic.xdp_features = KernelAnswer::Is(features.clone());
        facts.nic = facts.nic.with_device(&tree.root, "0000:00:03.0");
        (facts.nic.virtio_dma, verdicts(&facts))
    };
    let bits = |dma: u8| format!("{}{dma}{}", "1".repeat(33), "1".repeat(30));
    let (dma, all) = zero_copy(&bits(0));
    assert_eq!(dma, Some(false));
    let remedy = Some("iommu_platform=on");
    let name = "AF_XDP zero-copy";
    expect(&all, name, Usable::No, "VIRTIO_F_ACCESS_PLATFORM", remedy);
    expect(&all, "AF_XDP native", Usable::Yes, "rx-sg", None);
    let (dma, all) = zero_copy(&bits(1));
    assert_eq!(dma, Some(true));
    expect(&all, name, Usable::Yes, "xsk-zerocopy", None);
    assert_eq!(zero_copy("").0, None);
}

#[test]
fn taking_from_a_tap_needs_a_newer_kernel_than_the_tap() {
    let mut facts = virtio();
    let of = |facts: &PathFacts| verdicts(facts)["packet_mmap"].clone();
    assert!(!of(&facts).why.contains("--take"), "{:?}", of(&facts));
    facts.host.kernel = "6.1.0-56-amd64".to_owned();
    let old = of(&facts);
    assert_eq!(old.usable, Usable::Yes);
    assert!(
        old.why.contains("--take needs TCX, of Linux 6.6"),
        "{old:?}"
    );
}

#[test]
fn a_bare_machine_panics_nowhere() {
    let all = verdicts(&facts("", "../..", NicFacts::default(), false));
    assert_eq!(all.len(), RECEIVE_PATHS.len());
    assert!(all.values().all(|verdict| !verdict.why.is_empty()));
}

#[test]
fn loopback_here_has_verdicts() {
    let facts = PathFacts::gather(&Interface::read("lo")).expect("every namespace has one");
    assert!(
        verdicts(&facts)
            .values()
            .all(|verdict| !verdict.why.is_empty())
    );
    serde_json::to_string(&facts).expect("plain data");
    let error = PathFacts::gather(&Interface::read("mpps-nowhere")).expect_err("no such interface");
    assert!(error.to_string().contains("this host has"), "{error}");
    assert!(error.to_string().contains("lo"), "{error}");
}

#[test]
fn the_table_has_no_twins() {
    let names: std::collections::BTreeSet<&str> = RECEIVE_PATHS.iter().map(|t| t.name).collect();
    assert_eq!(names.len(), RECEIVE_PATHS.len());
}
