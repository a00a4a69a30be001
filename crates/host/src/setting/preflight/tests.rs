//! Predictions for cards without an obstacle, and with one.

use super::*;
use crate::facts::receive_path::{HostFacts, KernelAnswer, NicFacts, VirtualFunctions};
use std::collections::BTreeMap;

/// A card without an obstacle for root.
fn facts(driver: &str) -> PathFacts {
    PathFacts {
        host: HostFacts {
            kernel: "6.17.0".to_owned(),
            capabilities: u64::MAX,
            initial_user_namespace: true,
            locked_memory_bytes: Some(8 << 20),
            ..HostFacts::default()
        },
        nic: NicFacts {
            name: "eth2".to_owned(),
            driver: driver.to_owned(),
            up: true,
            carrier: true,
            mtu_bytes: 1500,
            rx_queues: 4,
            rx_queues_max: 8,
            rx_ring: Some(512),
            queue_cpus: (0..4).map(|queue| (queue, vec![queue])).collect(),
            xdp_features: KernelAnswer::Is(vec!["basic", "redirect", "xsk-zerocopy"]),
            ..NicFacts::default()
        },
    }
}

#[track_caller]
fn expect(facts: &PathFacts, check: &str, state: Obstacle, said: &str, remedy: Option<&str>) {
    let rows = of_af_xdp(facts);
    // The same under a name that a user chose.
    let hostile = "a;$(id)\x1b]0;b'";
    let mut other = facts.clone();
    other.nic.name = hostile.to_owned();
    for (row, told) in rows.iter().zip(of_af_xdp(&other)) {
        let word = ShellWord::new(hostile).to_string();
        let remedy = row.remedy.as_ref().map(|row| row.replace("eth2", &word));
        assert_eq!(told.remedy, remedy);
        let shown = Foreign(hostile).to_string();
        assert_eq!(told.finding, row.finding.replace("eth2", &shown));
    }
    let row = rows.iter().find(|row| row.check == check).expect(check);
    assert_eq!(row.state, state, "{row:#?}");
    assert!(row.finding.contains(said), "{row:#?}");
    assert_eq!(row.remedy.as_deref(), remedy, "{row:#?}");
    assert!(state != Obstacle::Refused || !is_ready(&rows), "{rows:#?}");
}

#[test]
fn a_card_that_can_is_ready_and_its_link_goes_down() {
    let facts = facts("igb");
    for row in of_af_xdp(&facts) {
        let expected = match row.check {
            "link bounce" => Obstacle::Note,
            _ => Obstacle::Fine,
        };
        assert_eq!(row.state, expected, "{row:#?}");
    }
    expect(
        &facts,
        "link bounce",
        Obstacle::Note,
        "closes and opens",
        None,
    );
    let mut only = facts.clone();
    only.nic.default_route = true;
    let remedy = Some("have another way into this host, such as a console");
    expect(
        &only,
        "link bounce",
        Obstacle::Note,
        "the default route goes by it",
        remedy,
    );
}

#[test]
fn what_stands_in_the_way_has_its_remedy() {
    use Obstacle::Refused;
    let mut down = facts("igb");
    down.nic.up = false;
    expect(
        &down,
        "link",
        Refused,
        "is down",
        Some("ip link set dev eth2 up"),
    );
    expect(&down, "kernel, rights", Obstacle::Fine, "6.17.0", None);
    let mut unplugged = facts("igb");
    unplugged.nic.carrier = false;
    let remedy = Some("plug it in, or set its other end up");
    expect(&unplugged, "link", Refused, "no carrier", remedy);
    let mut taken = facts("igb");
    taken.nic.native_xdp = Some(true);
    let remedy = "end the program that has it: `bpftool net show dev eth2` names it";
    expect(
        &taken,
        "other XDP program",
        Refused,
        "in its driver",
        Some(remedy),
    );
    let mut user = facts("igb");
    user.host.capabilities = 0;
    let remedy = Some("sudo mpps recv --backend af_xdp --interface eth2 ADDR:PORT");
    expect(&user, "kernel, rights", Refused, "CAP_NET_ADMIN", remedy);
    expect(&user, "native XDP", Obstacle::Fine, "driver igb", None);
    let remedy = Some("raise ulimit -l, or take fewer frames by --ring");
    let finding = "32 MiB for the frames of all queues, and this user may lock 8192 KiB";
    expect(&user, "locked memory", Refused, finding, remedy);
    user.nic.mtu_bytes = 3000;
    expect(&user, "locked memory", Refused, "64 MiB", remedy);
    user.host.locked_memory_bytes = None;
    user.nic.mtu_bytes = 1500;
    expect(&user, "locked memory", Obstacle::Fine, "32 MiB", None);
}

#[test]
fn what_a_driver_refuses_is_told_before_it_does() {
    use Obstacle::Refused;
    let mut functions = facts("ixgbe");
    functions.nic.virtual_functions = Some(VirtualFunctions { total: 63, now: 2 });
    let remedy = Some("echo 0 > /sys/class/net/eth2/device/sriov_numvfs");
    expect(
        &functions,
        "virtual functions",
        Refused,
        "2; driver ixgbe",
        remedy,
    );
    functions.nic.driver = "igb".to_owned();
    let found = "2: what goes to them";
    expect(&functions, "virtual functions", Obstacle::Note, found, None);
    let mut merging = facts("mlx5_core");
    merging.nic.merging = vec!["rx-lro", "rx-gro-hw"];
    // That driver offers no XDP meanwhile (mlx5e_set_xdp_feature()).
    merging.nic.xdp_features = KernelAnswer::Is(vec![]);
    expect(
        &merging,
        "native XDP",
        Obstacle::Unknown,
        "not as it is set now",
        Some("mpps recv --backend af_xdp --xdp generic --interface eth2 ADDR:PORT"),
    );
    let remedy = Some("ethtool -K eth2 rx-lro off rx-gro-hw off");
    let check = "merging by the card";
    expect(&merging, check, Refused, "on: rx-lro, rx-gro-hw", remedy);
    merging.nic.xdp_features = KernelAnswer::Is(vec!["basic", "redirect"]);
    merging.nic.driver = "bnxt_en".to_owned();
    expect(&merging, check, Obstacle::Note, "it switches", remedy);
    merging.nic.driver = "unheard_of".to_owned();
    expect(
        &merging,
        check,
        Obstacle::Unknown,
        "nothing is known of unheard_of",
        remedy,
    );
    // AWS: a MTU of 9001, and as many channels as there may be.
    let mut ena = facts("ena");
    ena.nic.mtu_bytes = 9001;
    ena.nic.rx_queues = 8;
    expect(
        &ena,
        "MTU",
        Refused,
        "at most 3498",
        Some("ip link set dev eth2 mtu 1500"),
    );
    expect(
        &ena,
        "channels",
        Refused,
        "8 of at most 8",
        Some("ethtool -L eth2 combined 4"),
    );
    ena.nic.rx_queues = 4;
    expect(&ena, "channels", Obstacle::Fine, "4 of at most 8", None);
}

#[test]
fn what_only_trying_tells_is_unknown() {
    use Obstacle::Unknown;
    let mut ring = facts("ice");
    ring.nic.rx_ring = Some(511);
    let remedy = Some("ethtool -G eth2 rx 256");
    expect(&ring, "receive ring", Unknown, "511 descriptors", remedy);
    ring.nic.driver = "igb".to_owned();
    expect(&ring, "receive ring", Obstacle::Fine, "511", None);
    let mut long = facts("ice");
    long.nic.mtu_bytes = 3046;
    expect(&long, "MTU", Obstacle::Fine, "at most 3046", None);
    long.nic.mtu_bytes = 3047;
    let remedy = Some("ip link set dev eth2 mtu 1500");
    expect(
        &long,
        "MTU",
        Obstacle::Note,
        "it is generic XDP then",
        remedy,
    );
    long.nic.driver = "i40e".to_owned();
    expect(&long, "MTU", Obstacle::Refused, "3047", remedy);
    long.nic.xdp_features = KernelAnswer::Is(vec!["basic", "redirect", "rx-sg"]);
    expect(&long, "MTU", Unknown, "3047", remedy);
    let other = facts("unheard_of");
    let remedy = Some("mpps backends --try eth2 shows it, and may cause it");
    expect(
        &other,
        "link bounce",
        Unknown,
        "nothing is known of unheard_of",
        remedy,
    );
}

#[test]
fn a_driver_without_xdp_has_no_limits() {
    let mut generic = facts("e1000e");
    generic.nic.xdp_features = KernelAnswer::Is(vec![]);
    generic.nic.mtu_bytes = 9000;
    generic.nic.merging = vec!["rx-lro"];
    expect(
        &generic,
        "link bounce",
        Obstacle::Fine,
        "leaves the driver alone",
        None,
    );
    let merging = "rx-lro; the kernel switches it off for generic XDP";
    expect(
        &generic,
        "merging by the card",
        Obstacle::Note,
        merging,
        None,
    );
    expect(&generic, "MTU", Obstacle::Fine, "9000", None);
    let rows = of_af_xdp(&generic);
    let native = rows
        .iter()
        .find(|row| row.check == "native XDP")
        .expect("it is judged");
    assert_eq!(native.state, Obstacle::Note);
    assert!(is_ready(&rows), "{rows:#?}");
}

#[test]
fn queues_on_one_cpu_are_told() {
    let mut shared = facts("igb");
    shared.nic.queue_cpus = BTreeMap::from([(0, vec![0]), (1, vec![0])]);
    let remedy = Some("mpps tune plan --for af_xdp eth2");
    expect(
        &shared,
        "queues",
        Obstacle::Note,
        "0 on 0, 1 on 0: some share",
        remedy,
    );
}

#[test]
fn what_the_host_does_not_tell_is_unknown_of_drivers_that_are_known_for_it() {
    use Obstacle::Unknown;
    expect(&facts("ixgbe"), "other refusals", Unknown, "DCB", None);
    expect(
        &facts("igb"),
        "other refusals",
        Obstacle::Fine,
        "none",
        None,
    );
    expect(
        &facts("hv_netvsc"),
        "link bounce",
        Unknown,
        "virtual function",
        None,
    );
    let mut google = facts("gve");
    expect(&google, "zero-copy", Unknown, "largest MTU", None);
    expect(&google, "channels", Unknown, "4 of at most 8", None);
    google.nic.rx_queues = 8;
    let remedy = Some("ethtool -L eth2 rx 4 tx 4");
    expect(
        &google,
        "channels",
        Obstacle::Refused,
        "8 of at most 8",
        remedy,
    );
    google.nic.rx_queues = 1;
    google.nic.rx_queues_max = 1;
    expect(
        &google,
        "channels",
        Obstacle::Refused,
        "1 of at most 1",
        None,
    );
}
