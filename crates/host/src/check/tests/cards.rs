//! Interfaces, their queues, interrupts and CPUs.

use super::sockets::starved;
use super::{asked, dropped, findings, found, host, is, later, link, told};
use crate::check::{Finding, Observed, ledger};
use crate::facts::{Interface, Interrupt, KernelAnswer, Observation};
use crate::{Cpu, CpuList, Ledger, LinkCounters, Overview, ProcStat, Softnet, Topology};
use mpps_os::ethtool::coalesce::Coalescing;
use mpps_os::ethtool::rss::Rss;
use mpps_os::ethtool::{Channels, RingSizes};
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::sock_diag::XdpEntry;

/// A host with `eth0` of this driver, and what that counts.
fn eth0(driver: &str, counters: &[(&str, u64)], common: LinkCounters<u64>) -> Observation {
    let mut facts = host(&[]);
    facts
        .snapshot
        .links
        .insert("eth0".to_owned(), link(counters, common));
    let card = Interface {
        driver: driver.to_owned(),
        ..Interface::default()
    };
    facts.cards.insert("eth0".to_owned(), card);
    facts
}

fn missed(rx_missed_errors: u64) -> LinkCounters<u64> {
    LinkCounters {
        rx_missed_errors,
        ..LinkCounters::default()
    }
}

fn all(before: &Observation, after: &Observation) -> Vec<Finding> {
    findings(&Observed::new(before, after, None, asked(None)))
}

fn card(facts: &mut Observation) -> &mut Interface {
    facts.cards.get_mut("eth0").expect("it is there")
}

/// As `/proc/stat` has it: user, nice, system, idle, iowait, irq, softirq, steal.
fn cpus(lines: &[[u64; 8]]) -> ProcStat {
    let lines = lines.iter().enumerate().map(|(cpu, ticks)| {
        let ticks = ticks.map(|ticks| ticks.to_string());
        format!("cpu{cpu} {} 0 0\n", ticks.join(" "))
    });
    ProcStat::parse(&lines.collect::<String>()).expect("lines of a test")
}

/// Four CPUs: two cores of two siblings, one at each of two nodes.
fn two_nodes() -> Topology {
    let cpu = |id: usize| Cpu {
        id,
        package: None,
        siblings: vec![id & !1, id | 1],
        node: id / 2,
        capacity: None,
        allowed: true,
    };
    Topology {
        cpus: (0..4).map(cpu).collect(),
        offline: Vec::new(),
    }
}

#[test]
fn interfaces_lose_in_their_own_ways() {
    let counters = LinkCounters::default;
    let errors = |missed, full, damaged, framed| LinkCounters {
        rx_missed_errors: missed,
        rx_fifo_errors: full,
        rx_crc_errors: damaged,
        rx_frame_errors: framed,
        ..counters()
    };
    for (driver, counter, common, check, count) in [
        ("new", "x", errors(6, 0, 0, 0), "nic_no_room", 6),
        ("new", "x", errors(0, 5, 0, 0), "nic_no_room", 5),
        ("new", "x", errors(6, 1, 0, 0), "nic_no_room", 7),
        // One count in both.
        ("new", "x", errors(6, 6, 0, 0), "nic_no_room", 6),
        ("new", "x", errors(0, 0, 4, 0), "frame_errors", 4),
        ("new", "x", errors(0, 0, 0, 3), "frame_errors", 3),
        ("vmxnet3", "  pkts rx OOB#2", counters(), "nic_no_room", 9),
        // A loss in the driver's own counter and in the common counter is one loss.
        (
            "igb",
            "rx_fifo_errors",
            errors(4, 9, 0, 0),
            "nic_no_room",
            9,
        ),
        (
            "e1000e",
            "rx_missed_errors",
            errors(9, 0, 0, 0),
            "nic_no_room",
            9,
        ),
        ("ena", "pps_allowance_exceeded", counters(), "allowance", 9),
        (
            "ena",
            "bw_in_allowance_exceeded",
            counters(),
            "allowance",
            9,
        ),
        (
            "new",
            "qstats rx 3 rx-hw-drop-ratelimits",
            counters(),
            "allowance",
            9,
        ),
        (
            "new",
            "qstats rx 3 rx-hw-drop-overruns",
            counters(),
            "nic_no_room",
            9,
        ),
        ("veth", "rx_queue_0_xdp_drops", counters(), "xdp_drop", 9),
        ("ena", "queue_3_rx_xdp_drop", counters(), "xdp_drop", 9),
    ] {
        let before = eth0(driver, &[(counter, 0)], counters());
        let after = later(eth0(driver, &[(counter, 9)], common));
        assert_eq!(found(&before, &after), is(&[(check, count)]), "{counter}");
    }
}

/// Drivers, the counter that grows beside `rx_errors`, and words of the finding.
const VIRTUAL_LOSSES: &str = "\
    wireguard frame AllowedIPs of the peer\n\
    wireguard length IP header says\n\
    gre crc check sums in its GRE header\n\
    gretap fifo sequence number\n\
    ip6gretap fifo sequence number\n\
    ipip frame ECN CE\n\
    ip6tnl length shorter than an IP header\n\
    sit none IPv4 address outside\n\
    vxlan frame header bits\n\
    geneve none own hardware address\n\
    xfrm none IPsec refused\n\
    tun frame virtio_net header";

/// A tunnel's counters are no cable's and no ring's.
#[test]
fn virtual_devices_lose_for_causes_of_their_own() {
    let told = |driver: &str, counter: &str, has_card: bool| {
        let at = |count| {
            let of = |name| if counter == name { count } else { 0 };
            let common = LinkCounters {
                rx_errors: count,
                rx_crc_errors: of("crc"),
                rx_frame_errors: of("frame"),
                rx_fifo_errors: of("fifo"),
                rx_length_errors: of("length"),
                ..LinkCounters::default()
            };
            let mut facts = eth0(driver, &[], common);
            let link = facts.snapshot.links.get_mut("eth0").expect("it is there");
            if !has_card {
                driver.clone_into(&mut link.driver_name);
                facts.cards.clear();
            }
            facts
        };
        all(&at(0), &later(at(5)))
    };
    for line in VIRTUAL_LOSSES.lines() {
        let [driver, counter, words] = *line.splitn(3, ' ').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        for has_card in [true, false] {
            let found = told(driver, counter, has_card);
            let [one] = &found[..] else {
                panic!("{line}: {found:#?}");
            };
            assert_eq!((&*one.check, one.count), ("virtual_device", 5), "{line}");
            let is_named = one.what.starts_with("eth0: ") && one.what.contains(words);
            assert!(is_named && !one.remedy.contains("IF"), "{one:#?}");
        }
    }
    // A full backlog and the ports have counters of their own.
    for driver in ["macvlan", "ipvlan", "bridge", "bonding", "dummy"] {
        assert_eq!(told(driver, "none", true), [], "{driver}");
    }
    assert_eq!(told("new", "frame", true)[0].check, "frame_errors");
}

#[test]
fn a_drop_reason_of_a_tunnel_is_its_counters_and_no_other_loss() {
    let ask = |driver: &str, counted, reasons: &[(&str, u64)]| {
        let at = |rx_frame_errors| {
            let common = LinkCounters {
                rx_errors: rx_frame_errors,
                rx_frame_errors,
                ..LinkCounters::default()
            };
            eth0(driver, &[], common)
        };
        let drops: Vec<_> = reasons
            .iter()
            .map(|&(name, count)| dropped(name, count))
            .collect();
        let (before, after) = (at(0), later(at(counted)));
        told(&findings(&Observed::new(
            &before,
            &after,
            Some((&[], &drops, 1)),
            asked(None),
        )))
    };
    let lost = |count| is(&[("virtual_device", count)]);
    assert_eq!(ask("vxlan", 9, &[("IP_TUNNEL_ECN", 9)]), lost(9));
    assert_eq!(ask("vxlan", 9, &[("VXLAN_INVALID_HDR", 9)]), lost(9));
    // Older kernels name no reason.
    assert_eq!(ask("vxlan", 9, &[("NOT_SPECIFIED", 9)]), lost(9));
    let both = is(&[("virtual_device", 9), ("drop_reason", 4)]);
    assert_eq!(ask("vxlan", 9, &[("VXLAN_INVALID_HDR", 13)]), both);
    assert_eq!(
        ask("vxlan", 9, &[("IP_TUNNEL_ECN", 9), ("NOT_SPECIFIED", 4)]),
        both
    );
    // WireGuard's drops have no reason, so that these are others.
    assert_eq!(ask("wireguard", 9, &[("NOT_SPECIFIED", 4)]), both);
}

#[test]
fn what_is_counted_twice_is_lost_once() {
    let counters = LinkCounters::default;
    // On a veth the same packets have a reason, which is none.
    let both = |count| eth0("veth", &[("rx_queue_0_xdp_drops", count)], counters());
    let (before, after) = (both(0), later(both(9)));
    let ask = |count| {
        let drops = [dropped("NOT_SPECIFIED", count)];
        let drops: Option<(&[_], &[_], u32)> = Some((&[], &drops, 1));
        told(&findings(&Observed::new(
            &before,
            &after,
            drops,
            asked(None),
        )))
    };
    assert_eq!(ask(9), is(&[("xdp_drop", 9)]));
    assert_eq!(ask(10), is(&[("xdp_drop", 9), ("drop_reason", 1)]));
    // mlx5 has the sum of its queues, too.
    let both = |count| [("rx_xdp_drop", count), ("rx0_xdp_drop", count)];
    let before = eth0("mlx5_core", &both(0), counters());
    let after = later(eth0("mlx5_core", &both(8), counters()));
    assert_eq!(found(&before, &after), is(&[("xdp_drop", 8)]));
    // A bond counts again what its ports have counted.
    let before = eth0("bonding", &[], missed(0));
    let after = later(eth0("bonding", &[], missed(8)));
    assert_eq!(found(&before, &after), is(&[]));
    // An interface that was made anew under its name began from zero.
    let before = eth0("new", &[], missed(0));
    let mut after = later(eth0("new", &[], missed(8)));
    after
        .snapshot
        .links
        .get_mut("eth0")
        .expect("it is there")
        .index = 9;
    assert_eq!(found(&before, &after), is(&[]));
}

#[test]
fn a_ring_that_could_be_larger_is_told_with_its_size() {
    let ask = |size| {
        let (before, mut after) = (
            eth0("new", &[], missed(0)),
            later(eth0("new", &[], missed(7))),
        );
        card(&mut after).ring = Some(RingSizes {
            size,
            size_max: 4096,
        });
        all(&before, &after)[0].remedy.clone()
    };
    assert!(
        ask(256).contains("ethtool -G eth0 rx 4096 (it is 256)"),
        "{}",
        ask(256)
    );
    assert!(
        ask(4096).contains("as large as can be (4096)"),
        "{}",
        ask(4096)
    );
}

#[test]
fn a_card_that_waits_too_long_for_its_ring_is_told() {
    // 10 000 packets in a second to a ring of 64, which a wait of 3200 us fills to one half.
    let ask = |wait_us| {
        let counters = |packets| [("rx_queue_0_packets", packets)];
        let before = eth0("new", &counters(0), missed(0));
        let mut after = later(eth0("new", &counters(10_000), missed(7)));
        card(&mut after).ring = Some(RingSizes {
            size: 64,
            size_max: 64,
        });
        let mut words = [0; 22];
        words[0] = wait_us;
        card(&mut after).coalescing = Coalescing::from_words(&words);
        found(&before, &after)
    };
    assert_eq!(ask(3199), is(&[("nic_no_room", 7)]));
    assert_eq!(ask(3200), is(&[("nic_no_room", 7), ("coalescing", 0)]));
}

#[test]
fn one_queue_that_gets_all_is_told_where_packets_are_lost() {
    let queues = |first, second| {
        [
            ("rx_queue_0_packets", first),
            ("rx_queue_1_packets", second),
        ]
    };
    let ask = |first, second, lost, table| {
        let before = eth0("new", &queues(0, 0), missed(0));
        let mut after = later(eth0("new", &queues(first, second), missed(lost)));
        card(&mut after).rss = KernelAnswer::Is(Rss {
            indirection: table,
            ..Rss::default()
        });
        let found = all(&before, &after)
            .into_iter()
            .find(|one| one.check == "one_queue");
        found.map(|one| one.what + &one.remedy)
    };
    let said = ask(800, 200, 7, vec![]).expect("it has 80 %");
    assert!(
        said.contains("queue 0 of 2 of eth0 got 80 % of its packets"),
        "{said}"
    );
    assert!(said.contains("rx-flow-hash"), "{said}");
    let said = ask(800, 200, 7, vec![1; 128]).expect("it has 80 %");
    assert!(said.contains("ethtool -X eth0 equal 2"), "{said}");
    for (first, second, lost) in [(800, 201, 7), (999, 0, 7), (800, 200, 0)] {
        assert_eq!(
            ask(first, second, lost, vec![]),
            None,
            "{first} {second} {lost}"
        );
    }
    // mlx5 keeps reporting a queue that it no longer has.
    let before = eth0("new", &queues(0, 0), missed(0));
    let mut after = later(eth0("new", &queues(1000, 0), missed(7)));
    card(&mut after).channels = Some(Channels {
        combined: 1,
        ..Channels::default()
    });
    assert_eq!(found(&before, &after), is(&[("nic_no_room", 7)]));
}

#[test]
fn a_cpu_that_soft_interrupts_fill_is_told_where_packets_are_lost() {
    let ask = |lost, idle, softirq, user| {
        let at = |lost, stat| Observation {
            cpus: cpus(&[stat]),
            ..eth0("new", &[], missed(lost))
        };
        let before = at(0, [0; 8]);
        found(
            &before,
            &later(at(lost, [user, 0, 0, idle, 0, 0, softirq, 0])),
        )
    };
    let both = is(&[("nic_no_room", 7), ("soft_interrupts", 0)]);
    assert_eq!(ask(7, 10, 50, 40), both);
    assert_eq!(ask(7, 11, 50, 39), is(&[("nic_no_room", 7)]), "it had time");
    assert_eq!(
        ask(7, 10, 49, 41),
        is(&[("nic_no_room", 7)]),
        "a program fills it"
    );
    assert_eq!(ask(0, 0, 100, 0), is(&[]), "nothing was lost");
}

#[test]
fn a_short_budget_is_told_where_no_cpu_is_full() {
    let ask = |lost, squeezes: u32, softirq| {
        let at = |lost, squeezes: u32, stat| {
            let mut facts = eth0("new", &[], missed(lost));
            facts.snapshot.softnet = Softnet::parse(&format!("1 0 {squeezes:x}")).expect("a row");
            facts.cpus = cpus(&[stat]);
            facts
        };
        let before = at(0, u32::MAX, [0; 8]);
        let stat = [0, 0, 0, 100 - softirq, 0, 0, softirq, 0];
        found(&before, &later(at(lost, squeezes.wrapping_sub(1), stat)))
    };
    let squeezed = is(&[("nic_no_room", 7), ("time_squeeze", 0)]);
    assert_eq!(ask(7, 10, 50), squeezed, "the counter has 32 bits");
    assert_eq!(ask(7, 9, 50), is(&[("nic_no_room", 7)]));
    let full = is(&[("nic_no_room", 7), ("soft_interrupts", 0)]);
    assert_eq!(ask(7, 10, 95), full);
    assert_eq!(ask(0, 10, 50), is(&[]));
}

/// A machine of two nodes whose card, at node 0, loses; an interrupt at this CPU.
fn far(cpu: usize, taken: u64) -> (Observation, Observation) {
    let at = |lost, count| {
        let mut facts = eth0("new", &[], missed(lost));
        facts.topology = two_nodes();
        card(&mut facts).node = Some(0);
        card(&mut facts).interrupts = vec![Interrupt {
            number: 40,
            counts: [(cpu, count)].into(),
            effective: vec![cpu],
            ..Interrupt::default()
        }];
        facts
    };
    (at(0, 1000), later(at(7, 1000 + taken)))
}

#[test]
fn an_interrupt_at_another_node_is_told() {
    let lost = is(&[("nic_no_room", 7)]);
    let told = is(&[("nic_no_room", 7), ("far_node", 0)]);
    for (cpu, taken, expected) in [(2, 100, &told), (2, 99, &lost), (1, 100, &lost)] {
        let (before, after) = far(cpu, taken);
        assert_eq!(found(&before, &after), *expected, "{cpu} {taken}");
    }
    let (before, after) = far(2, 100);
    let said = &all(&before, &after)[1];
    assert!(
        said.remedy.contains("echo 0,1 > /proc/irq/40/"),
        "{}",
        said.remedy
    );
    // Without a loss, or with one node, there is no finding.
    let (before, mut after) = far(2, 100);
    after.topology.cpus.truncate(2);
    assert_eq!(found(&before, &after), lost);
    let (before, mut after) = far(2, 100);
    after.snapshot.links = before.snapshot.links.clone();
    assert_eq!(found(&before, &after), is(&[]));
}

#[test]
fn packets_that_are_handed_to_another_node_are_told() {
    let (before, mut after) = far(0, 100);
    let list = |cpus: &[usize]| vec![CpuList::default(), CpuList(cpus.to_vec())];
    after.steering = [("eth0".to_owned(), list(&[0, 1]))].into();
    assert_eq!(found(&before, &after), is(&[("nic_no_room", 7)]));
    after.steering = [("eth0".to_owned(), list(&[1, 3]))].into();
    let told = all(&before, &after);
    assert!(
        told[1].what.contains("RPS hands packets of eth0 to CPU 3"),
        "{told:?}"
    );
}

#[test]
fn a_reader_at_another_node_is_told() {
    let (mut before, mut after) = starved(900, 0);
    let (far_before, far_after) = far(0, 0);
    (before.cards, after.cards) = (far_before.cards, far_after.cards);
    after.topology = two_nodes();
    let told = all(&before, &after);
    assert_eq!(
        super::told(&told),
        is(&[("socket_buffer", 500), ("far_node", 0)])
    );
    assert!(
        told[1].remedy.contains("taskset -pc 0,1 812"),
        "{}",
        told[1].remedy
    );
    // With a card at each node it may be the right one.
    let other = Interface {
        node: Some(1),
        ..Interface::default()
    };
    after.cards.insert("eth1".to_owned(), other);
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 500)]));
}

#[test]
fn an_interrupt_that_moved_is_told() {
    let (before, mut after) = far(0, 100);
    card(&mut after).interrupts[0].effective = vec![1];
    let told = all(&before, &after);
    assert_eq!(
        super::told(&told),
        is(&[("nic_no_room", 7), ("interrupts_moved", 0)])
    );
    let evidence = &told[1].evidence[0];
    assert_eq!((evidence.before, evidence.after), (0, 1));
}

#[test]
fn a_reader_beside_the_soft_interrupts_of_its_core_is_told() {
    // The reader is on CPU 3, and CPU 2 is the other half of that core.
    let ask = |run_ms, softirq| {
        let (mut before, mut after) = starved(run_ms, 0);
        after.topology = two_nodes();
        let at = |softirq, idle| cpus(&[[0; 8], [0; 8], [0, 0, 0, idle, 0, 0, softirq, 0], [0; 8]]);
        (before.cpus, after.cpus) = (at(0, 0), at(softirq, 100 - softirq));
        found(&before, &after)
    };
    let alone = is(&[("socket_buffer", 500)]);
    assert_eq!(
        ask(800, 50),
        is(&[("socket_buffer", 500), ("shared_core", 0)])
    );
    assert_eq!(ask(800, 49), alone);
    assert_eq!(ask(799, 50), alone);
}

#[test]
fn a_link_that_bounces_is_told_whatever_was_lost() {
    let ask = |driver: &str, changes: u32, carrier, up| {
        let at = |carrier_changes, carrier, up| Observation {
            links: vec![NetlinkLink {
                index: 2,
                name: "eth0".to_owned(),
                up,
                carrier,
                carrier_changes,
                ..NetlinkLink::default()
            }],
            ..eth0(driver, &[], missed(0))
        };
        let told = all(&at(3, true, true), &later(at(3 + changes, carrier, up)));
        told.first().map(|one| one.what.clone())
    };
    assert_eq!(ask("veth", 0, true, true), None);
    assert_eq!(
        ask("bridge", 2, true, true),
        None,
        "its carrier is that of its ports"
    );
    assert_eq!(ask("veth", 1, false, false), None, "it was taken down");
    for (changes, carrier, words) in [
        (1, false, "went, and it is not back"),
        (1, true, "came back"),
        (2, true, "went and came: 2 changes"),
    ] {
        let what = ask("veth", changes, carrier, true).expect("it changed");
        assert!(what.contains(words), "{what}");
    }
}

/// A socket of AF_XDP at `eth0`, and what the driver counts beside it.
fn xdp(dropped: u64, ring_full: u64, is_zero_copy: bool, counters: &[(&str, u64)]) -> Observation {
    let mut facts = eth0("veth", counters, missed(0));
    facts.links = vec![NetlinkLink {
        index: 2,
        name: "eth0".to_owned(),
        ..NetlinkLink::default()
    }];
    facts.xdp_sockets = vec![XdpEntry {
        interface: 2,
        queue: 1,
        inode: 7,
        is_zero_copy,
        memory_bytes: 32 << 20,
        dropped,
        ring_full,
    }];
    facts
}

#[test]
fn a_socket_of_af_xdp_tells_why_it_dropped() {
    let ask = |dropped, ring_full, is_zero_copy| {
        let after = later(xdp(dropped, ring_full, is_zero_copy, &[]));
        let told = all(&xdp(0, 0, is_zero_copy, &[]), &after);
        told.first().map(|one| (one.count, one.what.clone()))
    };
    assert_eq!(ask(0, 0, true), None);
    let (count, what) = ask(5, 0, false).expect("it lost");
    assert!(
        count == 5 && what.contains("at eth0 queue 1 dropped packets for want"),
        "{count} {what}"
    );
    assert!(what.contains("copy mode"), "{what}");
    let (count, what) = ask(0, 4, true).expect("it lost");
    assert!(
        count == 4 && what.contains("its receive ring was full"),
        "{count} {what}"
    );
    assert!(!what.contains("copy mode"), "{what}");
}

#[test]
fn memory_of_af_xdp_that_is_larger_than_the_cache_is_told() {
    let ask = |cache: u64| {
        let mut after = later(xdp(5, 0, true, &[]));
        after.cache_bytes = Some(cache << 20);
        all(&xdp(0, 0, true, &[]), &after)[0].what.clone()
    };
    assert!(
        ask(31).contains("its memory of 32 MiB does not fit into the cache of 31 MiB"),
        "{}",
        ask(31)
    );
    assert!(!ask(32).contains("cache"), "{}", ask(32));
}

/// A veth and virtio_net count what such a socket did not take once more.
#[test]
fn what_a_socket_of_af_xdp_dropped_is_its_own() {
    let both = |own, count| {
        xdp(
            own,
            0,
            true,
            &[("rx_queue_0_drops", count), ("rx_queue_0_xdp_drops", count)],
        )
    };
    let told = all(&both(0, 0), &later(both(5, 5)));
    assert_eq!(super::told(&told), is(&[("xdp_socket", 5)]));
    let told = all(&both(0, 0), &later(both(5, 8)));
    assert_eq!(
        super::told(&told),
        is(&[("xdp_socket", 5), ("xdp_drop", 3)])
    );
    assert!(!told[1].remedy.contains("xdp off"), "{}", told[1].remedy);
}

#[test]
fn want_of_memory_is_no_want_of_room() {
    let at = |count| eth0("gve", &[("rx_skb_alloc_fail", count)], missed(0));
    assert_eq!(found(&at(0), &later(at(7))), is(&[("nic_no_memory", 7)]));
}

#[test]
fn a_range_without_a_free_port_is_told() {
    let ask = |used: u16| {
        let mut facts = host(&[]);
        facts.client_ports = Some(40_000..=40_099);
        facts.sockets = (0..used)
            .map(|at| super::socket(&format!("0.0.0.0:{}", 40_000 + at), at.into(), 0))
            .chain([
                super::socket("0.0.0.0:53", 9999, 0),
                super::socket("[::]:40000", 9998, 0),
            ])
            .collect();
        let before = Observation {
            client_ports: facts.client_ports.clone(),
            ..host(&[])
        };
        found(&before, &later(facts))
    };
    assert_eq!(ask(94), is(&[]), "a port that two have is one");
    assert_eq!(ask(95), is(&[("ports_used_up", 0)]));
}

/// A host whose interfaces dropped `dropped` and ignored `inactive` frames, while the kernel dropped
/// `unhandled` for want of a protocol.
fn strangers(
    dropped: &[u64],
    inactive: u64,
    unhandled: Option<u64>,
) -> (Vec<Finding>, Ledger, Overview) {
    let links = |times: u64| {
        let named = dropped.iter().enumerate().map(|(at, &count)| {
            let counters = LinkCounters {
                rx_packets: 1000 * times,
                rx_dropped: count * times,
                rx_nohandler: inactive * times,
                ..LinkCounters::default()
            };
            (format!("eth{at}"), link(&[], counters))
        });
        let mut facts = host(&[
            ("Ip.InReceives", 500 * times),
            ("Udp.InDatagrams", 500 * times),
        ]);
        facts.snapshot.links = named.collect();
        facts
    };
    let (before, after) = (links(1), later(links(2)));
    let drops = unhandled.map(|count| {
        let mut drop = super::dropped("UNHANDLED_PROTO", count);
        drop.ours = false;
        vec![drop]
    });
    let drops = drops.as_ref().map(|drops| (&[][..], &drops[..], 1));
    let seen = Observed::new(&before, &after, drops, asked(None));
    (findings(&seen), ledger(&seen), Overview::of(&seen))
}

#[test]
fn frames_that_no_protocol_takes_are_named_and_no_loss() {
    for (dropped, inactive, unhandled, rates, words) in [
        (
            &[50, 0][..],
            0,
            Some(50),
            (0.0, 50.0),
            "rx_dropped of eth0 50 are frames",
        ),
        (
            &[50, 7],
            0,
            Some(60),
            (0.0, 50.0),
            "of eth0 50, eth1 7 are frames",
        ),
        (
            &[50],
            0,
            Some(20),
            (50.0, 0.0),
            "20 of rx_dropped of eth0 50 are",
        ),
        // Those of an inactive port are none of rx_dropped.
        (
            &[50],
            20,
            Some(50),
            (50.0, 0.0),
            "30 of rx_dropped of eth0 50 are",
        ),
        (&[50], 0, Some(0), (50.0, 0.0), ""),
        (&[50], 0, None, (50.0, 0.0), "rx_dropped of eth0 50 may be"),
        (&[0], 0, Some(50), (0.0, 0.0), ""),
    ] {
        let (found, ledger, page) = strangers(dropped, inactive, unhandled);
        assert_eq!(found, [], "{dropped:?}");
        assert_eq!((ledger.lost(), ledger.unaccounted), (0, 0));
        let row = &page.queues[0];
        assert_eq!(
            (row.dropped_pps, row.unhandled_pps),
            (Some(rates.0), Some(rates.1))
        );
        let mut notes = ledger
            .notes
            .iter()
            .filter(|note| note.contains("no protocol here"));
        match words {
            "" => assert_eq!(notes.next(), None),
            words => assert!(
                notes.any(|note| note.contains(words)),
                "{words}: {:?}",
                ledger.notes
            ),
        }
    }
}
