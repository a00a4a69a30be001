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

/// The prediction is as this row: `check | state | part of the finding -> remedy`.
#[track_caller]
fn expect(facts: &PathFacts, row: &str) {
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
    let (row, remedy) = match row.split_once(" -> ") {
        Some((row, remedy)) => (row, Some(remedy)),
        None => (row, None),
    };
    let [check, state, said] = row.split(" | ").collect::<Vec<_>>()[..] else {
        panic!("{row}");
    };
    let row = rows.iter().find(|row| row.check == check).expect(check);
    assert_eq!(format!("{:?}", row.state), state, "{row:#?}");
    assert!(row.finding.contains(said), "{row:#?}");
    assert_eq!(row.remedy.as_deref(), remedy, "{row:#?}");
    assert!(state != "Refused" || !is_ready(&rows), "{rows:#?}");
}

#[test]
fn a_card_that_can_is_ready_and_its_link_goes_down() {
    let mut facts = facts("igb");
    for row in of_af_xdp(&facts) {
        let expected = match row.check {
            "link bounce" => Obstacle::Note,
            _ => Obstacle::Fine,
        };
        assert_eq!(row.state, expected, "{row:#?}");
    }
    expect(&facts, "link bounce | Note | closes and opens");
    facts.nic.default_route = true;
    let remedy = "have another way into this host, such as a console";
    let row = format!("link bounce | Note | the default route goes by it -> {remedy}");
    expect(&facts, &row);
}

#[test]
fn what_stands_in_the_way_has_its_remedy() {
    let mut down = facts("igb");
    down.nic.up = false;
    expect(&down, "link | Refused | is down -> ip link set dev eth2 up");
    expect(&down, "kernel, rights | Fine | 6.17.0");
    let mut unplugged = facts("igb");
    unplugged.nic.carrier = false;
    let remedy = "plug it in, or set its other end up";
    expect(
        &unplugged,
        &format!("link | Refused | no carrier -> {remedy}"),
    );
    let mut taken = facts("igb");
    taken.nic.native_xdp = Some(true);
    let remedy = "end the program that has it: `bpftool net show dev eth2` names it";
    expect(
        &taken,
        &format!("other XDP program | Refused | in its driver -> {remedy}"),
    );
    let mut user = facts("igb");
    user.host.capabilities = 0;
    let remedy = "sudo mpps recv --backend af_xdp --interface eth2 ADDR:PORT";
    expect(
        &user,
        &format!("kernel, rights | Refused | CAP_NET_ADMIN -> {remedy}"),
    );
    expect(&user, "native XDP | Fine | driver igb");
    let remedy = "raise ulimit -l, or take fewer frames by --ring";
    let finding = "32 MiB for the frames of all queues, and this user may lock 8192 KiB";
    expect(
        &user,
        &format!("locked memory | Refused | {finding} -> {remedy}"),
    );
    user.nic.mtu_bytes = 3000;
    expect(
        &user,
        &format!("locked memory | Refused | 64 MiB -> {remedy}"),
    );
    user.host.locked_memory_bytes = None;
    user.nic.mtu_bytes = 1500;
    expect(&user, "locked memory | Fine | 32 MiB");
}

#[test]
fn what_a_driver_refuses_is_told_before_it_does() {
    let mut functions = facts("ixgbe");
    functions.nic.virtual_functions = Some(VirtualFunctions { total: 63, now: 2 });
    let remedy = "echo 0 > /sys/class/net/eth2/device/sriov_numvfs";
    let row = format!("virtual functions | Refused | 2; driver ixgbe -> {remedy}");
    expect(&functions, &row);
    functions.nic.driver = "igb".to_owned();
    expect(
        &functions,
        "virtual functions | Note | 2: what goes to them",
    );
    let mut merging = facts("mlx5_core");
    merging.nic.merging = vec!["rx-lro", "rx-gro-hw"];
    // That driver offers no XDP meanwhile (mlx5e_set_xdp_feature()).
    merging.nic.xdp_features = KernelAnswer::Is(vec![]);
    let generic = "mpps recv --backend af_xdp --xdp generic --interface eth2 ADDR:PORT";
    expect(
        &merging,
        &format!("native XDP | Unknown | not as it is set now -> {generic}"),
    );
    let off = "ethtool -K eth2 rx-lro off rx-gro-hw off";
    let merges = |facts: &PathFacts, row: &str| {
        expect(facts, &format!("merging by the card | {row} -> {off}"));
    };
    merges(&merging, "Refused | on: rx-lro, rx-gro-hw");
    merging.nic.xdp_features = KernelAnswer::Is(vec!["basic", "redirect"]);
    merging.nic.driver = "bnxt_en".to_owned();
    merges(&merging, "Note | it switches");
    merging.nic.driver = "unheard_of".to_owned();
    merges(&merging, "Unknown | nothing is known of unheard_of");
    // AWS: a MTU of 9001, and as many channels as there may be.
    let mut ena = facts("ena");
    ena.nic.mtu_bytes = 9001;
    ena.nic.rx_queues = 8;
    expect(
        &ena,
        "MTU | Refused | at most 3498 -> ip link set dev eth2 mtu 1500",
    );
    expect(
        &ena,
        "channels | Refused | 8 of at most 8 -> ethtool -L eth2 combined 4",
    );
    ena.nic.rx_queues = 4;
    expect(&ena, "channels | Fine | 4 of at most 8");
}

#[test]
fn what_only_trying_tells_is_unknown() {
    let mut ring = facts("ice");
    ring.nic.rx_ring = Some(511);
    expect(
        &ring,
        "receive ring | Unknown | 511 descriptors -> ethtool -G eth2 rx 256",
    );
    ring.nic.driver = "igb".to_owned();
    expect(&ring, "receive ring | Fine | 511");
    let mut long = facts("ice");
    long.nic.mtu_bytes = 3046;
    expect(&long, "MTU | Fine | at most 3046");
    long.nic.mtu_bytes = 3047;
    let mtu = "ip link set dev eth2 mtu 1500";
    expect(
        &long,
        &format!("MTU | Note | it is generic XDP then -> {mtu}"),
    );
    long.nic.driver = "i40e".to_owned();
    expect(&long, &format!("MTU | Refused | 3047 -> {mtu}"));
    long.nic.xdp_features = KernelAnswer::Is(vec!["basic", "redirect", "rx-sg"]);
    expect(&long, &format!("MTU | Unknown | 3047 -> {mtu}"));
    let remedy = "mpps backends --try eth2 shows it, and may cause it";
    let row = format!("link bounce | Unknown | nothing is known of unheard_of -> {remedy}");
    expect(&facts("unheard_of"), &row);
}

#[test]
fn a_driver_without_xdp_has_no_limits() {
    let mut generic = facts("e1000e");
    generic.nic.xdp_features = KernelAnswer::Is(vec![]);
    generic.nic.mtu_bytes = 9000;
    generic.nic.merging = vec!["rx-lro"];
    expect(&generic, "link bounce | Fine | leaves the driver alone");
    let merging = "rx-lro; the kernel switches it off for generic XDP";
    expect(&generic, &format!("merging by the card | Note | {merging}"));
    expect(&generic, "MTU | Fine | 9000");
    let rows = of_af_xdp(&generic);
    let native = rows.iter().find(|row| row.check == "native XDP");
    assert_eq!(native.expect("it is judged").state, Obstacle::Note);
    assert!(is_ready(&rows), "{rows:#?}");
}

#[test]
fn queues_on_one_cpu_are_told() {
    let mut shared = facts("igb");
    shared.nic.queue_cpus = BTreeMap::from([(0, vec![0]), (1, vec![0])]);
    let remedy = "mpps tune plan --for af_xdp eth2";
    expect(
        &shared,
        &format!("queues | Note | 0 on 0, 1 on 0: some share -> {remedy}"),
    );
}

#[test]
fn what_the_host_does_not_tell_is_unknown_of_drivers_that_are_known_for_it() {
    expect(&facts("ixgbe"), "other refusals | Unknown | DCB");
    expect(&facts("igb"), "other refusals | Fine | none");
    expect(
        &facts("hv_netvsc"),
        "link bounce | Unknown | virtual function",
    );
    let mut google = facts("gve");
    expect(&google, "zero-copy | Unknown | largest MTU");
    expect(&google, "channels | Unknown | 4 of at most 8");
    google.nic.rx_queues = 8;
    expect(
        &google,
        "channels | Refused | 8 of at most 8 -> ethtool -L eth2 rx 4 tx 4",
    );
    google.nic.rx_queues = 1;
    google.nic.rx_queues_max = 1;
    expect(&google, "channels | Refused | 1 of at most 1");
}
