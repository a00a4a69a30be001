//! Interfaces, their queues, interrupts and CPUs.

use super::scene::{Scene, common, finds, mentions, tells};
use super::sockets::starved;
use super::{link, socket};
use crate::facts::{CrowdedPartner, Interface, Interrupt, KernelAnswer, Observation};
use crate::{Cpu, CpuList, Overview, ProcStat, Softnet, Topology};
use mpps_os::ethtool::coalesce::Coalescing;
use mpps_os::ethtool::rss::Rss;
use mpps_os::ethtool::{Channels, RingSizes};
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::sock_diag::XdpEntry;

/// A host with `eth0` of this driver, whose counters and those of every interface grew from nothing by this.
fn eth0(driver: &str, counters: &[(&str, u64)], all: &str) -> Scene {
    let mut scene = Scene::grown("").both(|facts| {
        let card = Interface {
            driver: driver.to_owned(),
            ..Interface::default()
        };
        facts.cards.insert("eth0".to_owned(), card);
    });
    let zero: Vec<_> = counters.iter().map(|(name, _)| (*name, 0)).collect();
    let then = link(&zero, common(""));
    scene.before.snapshot.links = [("eth0".to_owned(), then)].into();
    scene.after.snapshot.links = [("eth0".to_owned(), link(counters, common(all)))].into();
    scene
}

/// A card that lost 7.
fn lossy(counters: &[(&str, u64)]) -> Scene {
    eth0("new", counters, "rx_missed_errors 7")
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
    for (all, count) in [
        ("rx_missed_errors 6", 6),
        ("rx_fifo_errors 5", 5),
        ("rx_missed_errors 6, rx_fifo_errors 1", 7),
        // One count in both.
        ("rx_missed_errors 6, rx_fifo_errors 6", 6),
    ] {
        eth0("new", &[("x", 9)], all).finds(&format!("nic_no_room {count}"));
    }
    eth0("new", &[("x", 9)], "rx_crc_errors 4").finds("frame_errors 4");
    eth0("new", &[("x", 9)], "rx_frame_errors 3").finds("frame_errors 3");
    // A loss in the driver's own counter and in the common counter is one loss.
    for (driver, counter, all, check) in [
        ("vmxnet3", "  pkts rx OOB#2", "", "nic_no_room"),
        (
            "igb",
            "rx_fifo_errors",
            "rx_missed_errors 4, rx_fifo_errors 9",
            "nic_no_room",
        ),
        (
            "e1000e",
            "rx_missed_errors",
            "rx_missed_errors 9",
            "nic_no_room",
        ),
        ("ena", "pps_allowance_exceeded", "", "allowance"),
        ("ena", "bw_in_allowance_exceeded", "", "allowance"),
        ("new", "qstats rx 3 rx-hw-drop-ratelimits", "", "allowance"),
        ("new", "qstats rx 3 rx-hw-drop-overruns", "", "nic_no_room"),
        ("veth", "rx_queue_0_xdp_drops", "", "xdp_drop"),
        ("ena", "queue_3_rx_xdp_drop", "", "xdp_drop"),
    ] {
        eth0(driver, &[(counter, 9)], all).finds(&format!("{check} 9"));
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
        let part = match counter {
            "none" => String::new(),
            _ => format!(", rx_{counter}_errors 5"),
        };
        let scene = eth0(driver, &[], &format!("rx_errors 5{part}"));
        let scene = scene.both(|facts| {
            let link = facts.snapshot.links.get_mut("eth0").expect("it is there");
            if !has_card {
                driver.clone_into(&mut link.driver_name);
                facts.cards.clear();
            }
        });
        scene.found()
    };
    for line in VIRTUAL_LOSSES.lines() {
        let [driver, counter, words] = *line.splitn(3, ' ').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        for has_card in [true, false] {
            let found = told(driver, counter, has_card);
            tells(&found, &format!("virtual_device 5 alone: {words}"));
            assert!(found[0].what.starts_with("eth0: "), "{found:#?}");
            assert!(!found[0].remedy.contains("IF"), "{found:#?}");
        }
    }
    // A full backlog and the ports have counters of their own.
    for driver in ["macvlan", "ipvlan", "bridge", "bonding", "dummy"] {
        assert_eq!(told(driver, "none", true), [], "{driver}");
    }
    tells(&told("new", "frame", true), "frame_errors");
}

#[test]
fn a_drop_reason_of_a_tunnel_is_its_counters_and_no_other_loss() {
    let both = "virtual_device 9, drop_reason 4";
    for (driver, drops, expected) in [
        ("vxlan", "IP_TUNNEL_ECN 9", "virtual_device 9"),
        ("vxlan", "VXLAN_INVALID_HDR 9", "virtual_device 9"),
        // Older kernels name no reason.
        ("vxlan", "NOT_SPECIFIED 9", "virtual_device 9"),
        ("vxlan", "VXLAN_INVALID_HDR 13", both),
        ("vxlan", "IP_TUNNEL_ECN 9, NOT_SPECIFIED 4", both),
        // WireGuard's drops have no reason, so that these are others.
        ("wireguard", "NOT_SPECIFIED 4", both),
    ] {
        let scene = eth0(driver, &[], "rx_errors 9, rx_frame_errors 9");
        scene.drops(drops).finds(expected);
    }
}

#[test]
fn what_is_counted_twice_is_lost_once() {
    // On a veth the same packets have a reason, which is none.
    let veth = eth0("veth", &[("rx_queue_0_xdp_drops", 9)], "");
    veth.clone().drops("NOT_SPECIFIED 9").finds("xdp_drop 9");
    let more = veth.drops("NOT_SPECIFIED 10");
    more.finds("xdp_drop 9, drop_reason 1");
    // mlx5 has the sum of its queues, too.
    let both = [("rx_xdp_drop", 8), ("rx0_xdp_drop", 8)];
    eth0("mlx5_core", &both, "").finds("xdp_drop 8");
    // A bond counts again what its ports have counted.
    eth0("bonding", &[], "rx_missed_errors 8").finds("");
    // An interface that was made anew under its name began from zero.
    let anew = lossy(&[]).now(|after| {
        let link = after.snapshot.links.get_mut("eth0");
        link.expect("it is there").index = 9;
    });
    anew.finds("");
}

#[test]
fn a_ring_that_could_be_larger_is_told_with_its_size() {
    for (size, words) in [
        (256, "ethtool -G eth0 rx 4096 (it is 256)"),
        (4096, "as large as can be (4096)"),
    ] {
        let size_max = 4096;
        let ring = Some(RingSizes { size, size_max });
        let scene = lossy(&[]).now(|after| card(after).ring = ring);
        mentions(&scene.found()[0].remedy, words);
    }
}

#[test]
fn a_card_that_waits_too_long_for_its_ring_is_told() {
    // 10 000 packets in a second to a ring of 64, which a wait of 3200 us fills to one half.
    for (wait_us, expected) in [
        (3199, "nic_no_room 7"),
        (3200, "nic_no_room 7, coalescing 0"),
    ] {
        let scene = lossy(&[("rx_queue_0_packets", 10_000)]).now(|after| {
            card(after).ring = Some(RingSizes {
                size: 64,
                size_max: 64,
            });
            let mut words = [0; 22];
            words[0] = wait_us;
            card(after).coalescing = Coalescing::from_words(&words);
        });
        scene.finds(expected);
    }
}

#[test]
fn one_queue_that_gets_all_is_told_where_packets_are_lost() {
    let queues = |first, second, lost| {
        let queues = [
            ("rx_queue_0_packets", first),
            ("rx_queue_1_packets", second),
        ];
        eth0("new", &queues, &format!("rx_missed_errors {lost}"))
    };
    let ask = |scene: Scene, indirection| {
        let scene = scene.now(|after| {
            card(after).rss = KernelAnswer::Is(Rss {
                indirection,
                ..Rss::default()
            });
        });
        let mut found = scene.found();
        found.retain(|one| one.check == "one_queue");
        found
    };
    let words = "queue 0 of 2 of eth0 got 80 % of its packets | rx-flow-hash";
    let found = ask(queues(800, 200, 7), vec![]);
    tells(&found, &format!("one_queue: {words}"));
    let found = ask(queues(800, 200, 7), vec![1; 128]);
    tells(&found, "one_queue: ethtool -X eth0 equal 2");
    for (first, second, lost) in [(800, 201, 7), (999, 0, 7), (800, 200, 0)] {
        finds(&ask(queues(first, second, lost), vec![]), "");
    }
    // mlx5 keeps reporting a queue that it no longer has.
    let gone = queues(1000, 0, 7).now(|after| {
        card(after).channels = Some(Channels {
            combined: 1,
            ..Channels::default()
        });
    });
    gone.finds("nic_no_room 7");
}

#[test]
fn a_cpu_that_soft_interrupts_fill_is_told_where_packets_are_lost() {
    for (lost, [idle, softirq, user], expected) in [
        (7, [10, 50, 40], "nic_no_room 7, soft_interrupts 0"),
        // It had time; a program fills it; nothing was lost.
        (7, [11, 50, 39], "nic_no_room 7"),
        (7, [10, 49, 41], "nic_no_room 7"),
        (0, [0, 100, 0], ""),
    ] {
        let mut scene = eth0("new", &[], &format!("rx_missed_errors {lost}"));
        scene.before.cpus = cpus(&[[0; 8]]);
        scene.after.cpus = cpus(&[[user, 0, 0, idle, 0, 0, softirq, 0]]);
        scene.finds(expected);
    }
}

#[test]
fn a_short_budget_is_told_where_no_cpu_is_full() {
    // The counter has 32 bits.
    for (lost, squeezes, softirq, expected) in [
        (7, 10_u32, 50, "nic_no_room 7, time_squeeze 0"),
        (7, 9, 50, "nic_no_room 7"),
        (7, 10, 95, "nic_no_room 7, soft_interrupts 0"),
        (0, 10, 50, ""),
    ] {
        let mut scene = eth0("new", &[], &format!("rx_missed_errors {lost}"));
        let stat = [0, 0, 0, 100 - softirq, 0, 0, softirq, 0];
        (scene.before.cpus, scene.after.cpus) = (cpus(&[[0; 8]]), cpus(&[stat]));
        let row = |squeezes: u32| Softnet::parse(&format!("1 0 {squeezes:x}")).expect("a row");
        scene.before.snapshot.softnet = row(u32::MAX);
        scene.after.snapshot.softnet = row(squeezes.wrapping_sub(1));
        scene.finds(expected);
    }
}

/// A machine of two nodes whose card, at node 0, loses; an interrupt at this CPU.
fn far(cpu: usize, taken: u64) -> Scene {
    let mut scene = lossy(&[]).both(|facts| {
        facts.topology = two_nodes();
        card(facts).node = Some(0);
        card(facts).interrupts = vec![Interrupt {
            number: 40,
            counts: [(cpu, 1000)].into(),
            effective: vec![cpu],
            ..Interrupt::default()
        }];
    });
    card(&mut scene.after).interrupts[0].counts = [(cpu, 1000 + taken)].into();
    scene
}

#[test]
fn an_interrupt_at_another_node_is_told() {
    let (lost, told) = ("nic_no_room 7", "nic_no_room 7, far_node 0");
    far(2, 99).finds(lost);
    far(1, 100).finds(lost);
    let found = far(2, 100).found();
    finds(&found, told);
    mentions(&found[1].remedy, "echo 0,1 > /proc/irq/40/");
    // Without a loss, or with one node, there is no finding.
    far(2, 100)
        .now(|after| after.topology.cpus.truncate(2))
        .finds(lost);
    let mut scene = far(2, 100);
    scene.after.snapshot.links = scene.before.snapshot.links.clone();
    scene.finds("");
}

#[test]
fn packets_that_are_handed_to_another_node_are_told() {
    let list = |cpus: &[usize]| vec![CpuList::default(), CpuList(cpus.to_vec())];
    let steered = |cpus: &[usize]| {
        far(0, 100).now(|after| after.steering = [("eth0".to_owned(), list(cpus))].into())
    };
    steered(&[0, 1]).finds("nic_no_room 7");
    mentions(
        &steered(&[1, 3]).found()[1].what,
        "RPS hands packets of eth0 to CPU 3",
    );
}

#[test]
fn a_reader_at_another_node_is_told() {
    let (mut scene, far) = (Scene::of(starved(900, 0)), far(0, 0));
    (scene.before.cards, scene.after.cards) = (far.before.cards, far.after.cards);
    scene.after.topology = two_nodes();
    let found = scene.found();
    finds(&found, "socket_buffer 500, far_node 0");
    mentions(&found[1].remedy, "taskset -pc 0,1 812");
    // With a card at each node it may be the right one.
    let other = Interface {
        node: Some(1),
        ..Interface::default()
    };
    scene.after.cards.insert("eth1".to_owned(), other);
    scene.finds("socket_buffer 500");
}

#[test]
fn an_interrupt_that_moved_is_told() {
    let found = far(0, 100)
        .now(|after| card(after).interrupts[0].effective = vec![1])
        .found();
    finds(&found, "nic_no_room 7, interrupts_moved 0");
    let evidence = &found[1].evidence[0];
    assert_eq!((evidence.before, evidence.after), (0, 1));
}

#[test]
fn a_reader_beside_the_soft_interrupts_of_its_core_is_told() {
    // The reader is on CPU 3, and CPU 2 is the other half of that core.
    for (run_ms, softirq, expected) in [
        (800, 50, "socket_buffer 500, shared_core 0"),
        (800, 49, "socket_buffer 500"),
        (799, 50, "socket_buffer 500"),
    ] {
        let mut scene = Scene::of(starved(run_ms, 0));
        scene.after.topology = two_nodes();
        let at = |softirq, idle| cpus(&[[0; 8], [0; 8], [0, 0, 0, idle, 0, 0, softirq, 0], [0; 8]]);
        (scene.before.cpus, scene.after.cpus) = (at(0, 0), at(softirq, 100 - softirq));
        scene.finds(expected);
    }
}

#[test]
fn a_link_that_bounces_is_told_whatever_was_lost() {
    for (driver, changes, [carrier, up], expected) in [
        ("veth", 0, [true, true], ""),
        // Its carrier is that of its ports.
        ("bridge", 2, [true, true], ""),
        // It was taken down.
        ("veth", 1, [false, false], ""),
        ("veth", 1, [false, true], "went, and it is not back"),
        ("veth", 1, [true, true], "came back"),
        ("veth", 2, [true, true], "went and came: 2 changes"),
    ] {
        let at = |carrier_changes, carrier, up| NetlinkLink {
            index: 2,
            name: "eth0".to_owned(),
            up,
            carrier,
            carrier_changes,
            ..NetlinkLink::default()
        };
        let mut scene = eth0(driver, &[], "");
        scene.before.links = vec![at(3, true, true)];
        scene.after.links = vec![at(3 + changes, carrier, up)];
        match expected {
            "" => scene.finds(""),
            words => scene.tells(&format!("link_bounced: {words}")),
        };
    }
}

/// A socket of AF_XDP at `eth0`, and what the driver counts beside it.
fn xdp(dropped: u64, ring_full: u64, is_zero_copy: bool, counters: &[(&str, u64)]) -> Scene {
    let entry = |dropped, ring_full| XdpEntry {
        interface: 2,
        queue: 1,
        inode: 7,
        is_zero_copy,
        memory_bytes: 32 << 20,
        dropped,
        ring_full,
    };
    let mut scene = eth0("veth", counters, "").both(|facts| {
        facts.links = vec![NetlinkLink {
            index: 2,
            name: "eth0".to_owned(),
            ..NetlinkLink::default()
        }];
    });
    scene.before.xdp_sockets = vec![entry(0, 0)];
    scene.after.xdp_sockets = vec![entry(dropped, ring_full)];
    scene
}

#[test]
fn a_socket_of_af_xdp_tells_why_it_dropped() {
    xdp(0, 0, true, &[]).finds("");
    let words = "at eth0 queue 1 dropped packets for want | copy mode";
    xdp(5, 0, false, &[]).tells(&format!("xdp_socket 5: {words}"));
    let found = xdp(0, 4, true, &[]).found();
    tells(&found, "xdp_socket 4: its receive ring was full");
    assert!(!found[0].what.contains("copy mode"), "{found:#?}");
}

#[test]
fn memory_of_af_xdp_that_is_larger_than_the_cache_is_told() {
    for (cache, words) in [
        (
            31,
            "its memory of 32 MiB does not fit into the cache of 31 MiB",
        ),
        (32, "!cache"),
    ] {
        let scene = xdp(5, 0, true, &[]).now(|after| after.cache_bytes = Some(cache << 20));
        mentions(&scene.found()[0].what, words);
    }
}

/// A veth and virtio_net count what such a socket did not take once more.
#[test]
fn what_a_socket_of_af_xdp_dropped_is_its_own() {
    let both = |count| {
        xdp(
            5,
            0,
            true,
            &[("rx_queue_0_drops", count), ("rx_queue_0_xdp_drops", count)],
        )
    };
    both(5).finds("xdp_socket 5");
    let found = both(8).found();
    finds(&found, "xdp_socket 5, xdp_drop 3");
    mentions(&found[1].remedy, "!xdp off");
}

#[test]
fn want_of_memory_is_no_want_of_room() {
    eth0("gve", &[("rx_skb_alloc_fail", 7)], "").finds("nic_no_memory 7");
}

#[test]
fn a_range_without_a_free_port_is_told() {
    // A port that two have is one.
    for (used, expected) in [(94, ""), (95, "ports_used_up 0")] {
        let scene = Scene::grown("").both(|facts| facts.client_ports = Some(40_000..=40_099));
        let scene = scene.now(|after| {
            let client = |at: u16| socket(&format!("0.0.0.0:{}", 40_000 + at), at.into(), 0);
            let more = [socket("0.0.0.0:53", 9999, 0), socket("[::]:40000", 9998, 0)];
            after.sockets = (0..used).map(client).chain(more).collect();
        });
        scene.finds(expected);
    }
}

#[test]
fn a_partner_who_has_all_ports_is_told() {
    for (ports, expected) in [
        (94, ""),
        (
            95,
            "ports_used_up likely: 95 of the 100 ports | 9 of them in TIME_WAIT | tcp_tw_reuse | ip_local_port_range=",
        ),
    ] {
        let scene = Scene::grown("").both(|facts| facts.client_ports = Some(40_000..=40_099));
        let scene = scene.now(|after| {
            after.crowded_partner = Some(CrowdedPartner {
                from: [10, 0, 0, 1].into(),
                to: ([10, 0, 0, 2], 80).into(),
                ports,
                in_time_wait: 9,
            });
        });
        scene.tells(expected);
    }
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
        (&[50], 0, Some(0), (50.0, 0.0), "!no protocol here"),
        (&[50], 0, None, (50.0, 0.0), "rx_dropped of eth0 50 may be"),
        (&[0], 0, Some(50), (0.0, 0.0), "!no protocol here"),
    ] {
        let mut scene = Scene::grown("Ip.InReceives 500, Udp.InDatagrams 500");
        for (at, count) in dropped.iter().enumerate() {
            let all = format!("rx_packets 1000, rx_dropped {count}, rx_nohandler {inactive}");
            for (facts, all) in [(&mut scene.before, ""), (&mut scene.after, &all)] {
                let link = link(&[], common(all));
                facts.snapshot.links.insert(format!("eth{at}"), link);
            }
        }
        if let Some(count) = unhandled {
            scene = scene.drops(&format!("UNHANDLED_PROTO {count} other"));
        }
        scene.finds("").sums([500, 0, 0]);
        let page = scene.see(Overview::of);
        let row = &page.queues[0];
        let expected = (Some(rates.0), Some(rates.1));
        assert_eq!((row.dropped_pps, row.unhandled_pps), expected);
        mentions(&scene.ledger().notes.join("\n"), words);
    }
}
