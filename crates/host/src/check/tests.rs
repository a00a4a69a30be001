//! Hosts at two moments as data: what the counters were, and what each check makes of it.

mod cards;
mod counts;
mod delivery;
mod far_end;
mod fixes;
mod fragments;
mod groups;
mod out;
mod owners;
mod packet_filter;
mod places;
mod reads;
mod refusals;
mod sockets;
mod ways;

use self::sockets::starved;
use super::*;
use crate::counters::drop_probe::DropCount;
use crate::facts::{Conntrack, Observation, Process, ThreadTime};
use crate::{Ledger, LinkCounters, LinkSnapshot, ProcStat, Snapshot, Snmp, Softnet};
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::sock_diag::{ListeningSocket, UdpEntry};
use mpps_os::text::ShellWord;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// The time between the two moments.
const SECOND: u64 = 1_000_000_000;

/// A host: protocol counters as `Udp.NoPorts 7`, and what a test adds.
fn host(counters: &[(&str, u64)]) -> Observation {
    let lines: String = counters
        .iter()
        .filter_map(|(name, value)| {
            let (protocol, name) = name.split_once('.')?;
            Some(format!("{protocol}: {name}\n{protocol}: {value}\n"))
        })
        .collect();
    // Those of IPsec have no protocol in front.
    let rows = counters.iter().filter(|(name, _)| !name.contains('.'));
    let rows: String = rows
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect();
    let mut snmp = Snmp::parse_pairs(&lines).expect("counters of a test");
    snmp.add_rows(&rows).expect("rows of a test");
    Observation {
        snapshot: Snapshot {
            snmp,
            ..Snapshot::default()
        },
        ..Observation::default()
    }
}

/// The same host a second later.
fn later(mut facts: Observation) -> Observation {
    facts.snapshot.monotonic_ns += SECOND;
    for process in facts.processes.values_mut() {
        process.read_ns += SECOND;
    }
    facts
}

fn asked(port: Option<u16>) -> DoctorRequest {
    DoctorRequest {
        port,
        again: "look again".to_owned(),
        ..DoctorRequest::default()
    }
}

/// Gives this socket to a process.
fn has(facts: &mut Observation, inode: u32, process: Process) {
    facts.owners.entry(inode).or_default().push(process.pid);
    facts.processes.insert(process.pid, process);
}

fn socket(local: &str, inode: u32, drops: u32) -> UdpEntry {
    UdpEntry {
        local: local.parse().expect("an address"),
        remote: None,
        only_v6: false,
        interface: 0,
        inode,
        cookie: inode.into(),
        user: 0,
        queued_bytes: 0,
        buffer_bytes: 212_992,
        drops,
    }
}

fn owner(run_ns: u64, wait_ns: u64) -> Process {
    Process {
        pid: 812,
        name: "unbound1".to_owned(),
        threads: [(
            812,
            ThreadTime {
                run_ns,
                wait_ns,
                cpu: Some(3),
                turns: 10,
                priority: Some(20),
            },
        )]
        .into(),
        ..Process::default()
    }
}

fn link(driver: &[(&str, u64)], counters: LinkCounters<u64>) -> LinkSnapshot {
    let driver = driver.iter().map(|&(name, value)| (name.to_owned(), value));
    LinkSnapshot {
        driver: driver.collect(),
        counters,
        ..LinkSnapshot::default()
    }
}

fn dropped(reason: &str, datagrams: u64) -> DropCount {
    DropCount {
        netns: 1,
        reason: 7,
        reason_name: reason.to_owned(),
        ours: true,
        sent: false,
        skbs: datagrams,
        datagrams,
        ..DropCount::default()
    }
}

/// A name that a user gave an interface and a program.
const HOSTILE: &str = "a;$(id)\x1b]0;b\n\u{202e}'";

/// All that is wrong. The same host is looked at once more, as if a user had chosen the names of
/// its interface and its programs: words stay clean, and commands quote the name.
fn findings(seen: &Observed) -> Vec<Finding> {
    let found = super::findings(seen);
    let [before, after] = [seen.before, seen.after].map(renamed);
    let mut twin = Observed::new(&before, &after, None, seen.asked.clone());
    twin.drops.clone_from(&seen.drops);
    twin.other_drops.clone_from(&seen.other_drops);
    twin.drops_out.clone_from(&seen.drops_out);
    twin.drops_forwarded.clone_from(&seen.drops_forwarded);
    twin.drops_closed.clone_from(&seen.drops_closed);
    twin.drops_elsewhere.clone_from(&seen.drops_elsewhere);
    twin.drops_unknown.clone_from(&seen.drops_unknown);
    let mut expected: Vec<[String; 3]> = found.iter().map(words).collect();
    let [shown, word] = [
        Foreign(HOSTILE).to_string(),
        ShellWord::new(HOSTILE).to_string(),
    ];
    for [what, proof, remedy] in &mut expected {
        for text in [what, proof] {
            *text = text.replace("eth0", &shown).replace("unbound", &shown);
        }
        // Several names of programs stand in remedies of their own accord.
        *remedy = remedy.replace("eth0", &word);
    }
    let mut told: Vec<[String; 3]> = super::findings(&twin).iter().map(words).collect();
    // Of interfaces with equal losses the first by its name comes first.
    expected.sort();
    told.sort();
    assert_eq!(told, expected);
    found
}

fn words(finding: &Finding) -> [String; 3] {
    let proof = finding.evidence.iter().map(|one| one.source.clone());
    let proof: Vec<String> = proof.collect();
    [
        finding.what.clone(),
        proof.join("; "),
        finding.remedy.clone(),
    ]
}

fn renamed(facts: &Observation) -> Observation {
    fn all<T: Clone>(map: &BTreeMap<String, T>) -> BTreeMap<String, T> {
        let all = map.iter();
        all.map(|(name, value)| (name.replace("eth0", HOSTILE), value.clone()))
            .collect()
    }
    let mut facts = facts.clone();
    facts.snapshot.links = all(&facts.snapshot.links);
    facts.cards = all(&facts.cards);
    facts.steering = all(&facts.steering);
    facts.reverse_path = all(&facts.reverse_path);
    for neighbour in &mut facts.unanswered {
        *neighbour = neighbour.replace("eth0", HOSTILE);
    }
    facts.far_ends = all(&facts.far_ends);
    facts.forwarding = all(&facts.forwarding);
    for link in &mut facts.links {
        link.name = link.name.replace("eth0", HOSTILE);
    }
    for process in facts.processes.values_mut() {
        process.name = process.name.replace("unbound", HOSTILE);
    }
    for load in facts.loads.values_mut() {
        load.name = load.name.replace("unbound", HOSTILE);
    }
    facts
}

/// The findings, as checks and counts.
fn found(before: &Observation, after: &Observation) -> Vec<(String, u64)> {
    told(&findings(&Observed::new(before, after, None, asked(None))))
}

fn told(findings: &[Finding]) -> Vec<(String, u64)> {
    let told = findings.iter();
    told.map(|one| (one.check.clone(), one.count)).collect()
}

fn is(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let expected = expected.iter();
    expected
        .map(|&(check, count)| (check.to_owned(), count))
        .collect()
}

#[test]
fn a_host_that_loses_nothing_is_healthy() {
    let names = [
        "Udp.InDatagrams",
        "Udp.NoPorts",
        "Ip.InReceives",
        "TcpExt.ListenOverflows",
    ];
    let before = host(&names.map(|name| (name, 7)));
    assert_eq!(found(&before, &later(before.clone())), is(&[]));
    let after = later(host(&[
        ("Udp.InDatagrams", 9),
        ("Udp.NoPorts", 7),
        ("Ip.InReceives", 9),
    ]));
    assert_eq!(found(&before, &after), is(&[]));
}

#[test]
fn each_counter_has_its_check() {
    for (counter, check) in [
        ("Udp.NoPorts", "no_listener"),
        ("Udp6.NoPorts", "no_listener"),
        ("Udp.InCsumErrors", "checksum"),
        ("Udp6.MemErrors", "udp_memory"),
        ("TcpExt.IPReversePathFilter", "reverse_path"),
        ("Ip.InAddrErrors", "address"),
        ("Ip.InHdrErrors", "bad_header"),
        ("Ip.ReasmFails", "fragments"),
        ("TcpExt.ListenOverflows", "listen_queue"),
        ("TcpExt.TCPReqQFullDrop", "handshake_queue"),
        ("TcpExt.ListenDrops", "handshake_queue"),
        ("TcpExt.TCPMD5NotFound", "handshake_queue"),
        ("TcpExt.TCPAOBad", "handshake_queue"),
    ] {
        let (before, after) = (host(&[(counter, 5)]), later(host(&[(counter, 15)])));
        assert_eq!(found(&before, &after), is(&[(check, 10)]), "{counter}");
        let seen = Observed::new(&before, &after, None, asked(None));
        let finding = &findings(&seen)[0];
        let evidence = &finding.evidence[0];
        assert_eq!(
            (&*evidence.source, evidence.before, evidence.after),
            (counter, 5, 15)
        );
        assert_eq!((finding.rate_pps, &*finding.verify), (10.0, "look again"));
        assert!(!finding.what.is_empty() && !finding.remedy.is_empty());
        // A counter that went back was reset, and lost nothing that is known.
        assert_eq!(found(&after, &later(before.clone())), is(&[]), "{counter}");
    }
}

#[test]
fn what_costs_most_is_told_first() {
    let before = host(&[
        ("Udp.NoPorts", 0),
        ("Ip.InAddrErrors", 0),
        ("Udp.InCsumErrors", 0),
    ]);
    let after = later(host(&[
        ("Udp.NoPorts", 3),
        ("Ip.InAddrErrors", 3),
        ("Udp.InCsumErrors", 4),
    ]));
    let expected = is(&[("checksum", 4), ("address", 3), ("no_listener", 3)]);
    assert_eq!(
        found(&before, &after),
        expected,
        "among equals the way of a packet"
    );
}

#[test]
fn a_backlog_wraps_and_names_its_cpus() {
    let softnet = |text: &str| {
        let mut facts = host(&[]);
        facts.snapshot.softnet = Softnet::parse(text).expect("rows of a test");
        facts
    };
    let (before, after) = (
        softnet("1 fffffff0 0\n1 0 0"),
        later(softnet("1 5 0\n1 0 0")),
    );
    let found = findings(&Observed::new(&before, &after, None, asked(None)));
    assert_eq!(told(&found), is(&[("backlog", 21)]));
    let what = &found[0].what;
    assert!(what.contains("CPU 0 was full"), "{what}");
    for (elsewhere, expected) in [(11, &[("backlog", 10)][..]), (21, &[])] {
        let theirs = [DropCount {
            netns: 2,
            ..dropped("CPU_BACKLOG", elsewhere)
        }];
        let drops = Some((&[][..], &theirs[..], 1));
        let found = findings(&Observed::new(&before, &after, drops, asked(None)));
        assert_eq!(
            told(&found),
            is(expected),
            "{elsewhere} of another namespace"
        );
    }
}

#[test]
fn a_full_table_of_connections_is_told() {
    let table = |dropped| Observation {
        conntrack: Some(Conntrack {
            entries: 9,
            entries_max: 10,
            dropped,
            ..Conntrack::default()
        }),
        ..host(&[])
    };
    assert_eq!(found(&table(3), &later(table(8))), is(&[("conntrack", 5)]));
    assert_eq!(found(&table(8), &later(table(8))), is(&[]));
    // The same packets are the packet filter's for the probe.
    let (before, after) = (table(3), later(table(8)));
    for (filtered, expected) in [
        (5, &[("conntrack", 5)][..]),
        (7, &[("conntrack", 5), ("firewall", 2)]),
    ] {
        let drops = [dropped("NETFILTER_DROP", filtered)];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        assert_eq!(told(&findings(&seen)), is(expected), "{filtered}");
    }
}

#[test]
fn reasons_without_a_check_are_told_as_they_are() {
    let ask = |reason: &str| {
        let (before, after) = (host(&[]), later(host(&[])));
        let (then, now) = ([dropped(reason, 2)], [dropped(reason, 12)]);
        findings(&Observed::new(
            &before,
            &after,
            Some((&then, &now, 1)),
            asked(None),
        ))
    };
    assert_eq!(told(&ask("NETFILTER_DROP")), is(&[("firewall", 10)]));
    for explained in ["SOCKET_RCVBUFF", "NO_SOCKET", "QUEUE_PURGE"] {
        assert_eq!(told(&ask(explained)), is(&[]), "{explained}");
    }
    for (reason, confidence) in [
        ("VXLAN_VNI_NOT_FOUND", Confidence::Likely),
        ("SOCKET_FILTER", Confidence::Possible),
        ("OTHERHOST", Confidence::Possible),
        ("IP_LOCALNET", Confidence::Possible),
        ("NEVER_HEARD_OF", Confidence::Possible),
    ] {
        let findings = ask(reason);
        assert_eq!(told(&findings), is(&[("drop_reason", 10)]));
        assert!(findings[0].what.contains(reason));
        assert_eq!(findings[0].confidence, confidence);
        assert!(!findings[0].what.contains("VLAN"), "{reason}");
    }
}

#[test]
fn what_has_no_reason_is_what_other_counters_say() {
    let at = |unrouted: u64, fails| {
        host(&[
            ("Ip.InReceives", unrouted + fails),
            ("Ip.InDelivers", 0),
            ("Ip.ReasmFails", fails),
            ("Ip.ReasmReqds", fails),
        ])
    };
    for (unrouted, fails, expected) in [
        (0, 0, &[("drop_reason", 10)][..]),
        (4, 0, &[("drop_reason", 6), ("unrouted", 4)]),
        (40, 0, &[("unrouted", 10), ("unaccounted", 0)]),
        (0, 9, &[("fragments", 9), ("drop_reason", 1)]),
        (
            2,
            7,
            &[("fragments", 7), ("unrouted", 2), ("drop_reason", 1)],
        ),
        (3, 12, &[("fragments", 12), ("unaccounted", 0)]),
    ] {
        let (before, after) = (at(0, 0), later(at(unrouted, fails)));
        let drops = [dropped("NOT_SPECIFIED", 10)];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        assert_eq!(told(&findings(&seen)), is(expected), "{unrouted} {fails}");
    }
    // Without a reason the fate of these packets is unknown.
    let unknown = is(&[("unaccounted", 0)]);
    assert_eq!(found(&at(0, 0), &later(at(50, 0))), unknown);
    // Datagrams for all hosts that have no listener are no problem.
    let at = |ignored| host(&[("Udp.IgnoredMulti", ignored), ("Ip.InReceives", ignored)]);
    let (before, after) = (at(0), later(at(10)));
    let drops = [dropped("NOT_SPECIFIED", 10)];
    let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
    let ignored = findings(&seen);
    assert_eq!(told(&ignored), is(&[("no_listener", 10)]));
    assert!(ignored[0].is_remark);
    // Packets that a firewall dropped are no gap of IP's.
    let (before, after) = (
        host(&[("Ip.InReceives", 0)]),
        later(host(&[("Ip.InReceives", 30)])),
    );
    let drops = [dropped("NOT_SPECIFIED", 10), dropped("NETFILTER_DROP", 30)];
    let drops = drops.map(|one| DropCount {
        reason: one.datagrams as u32,
        ..one
    });
    let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
    let expected = is(&[("drop_reason", 10), ("firewall", 30)]);
    assert_eq!(told(&findings(&seen)), expected);
}

#[test]
fn little_that_may_be_meant_is_a_remark() {
    let at = |came, missed| host(&[("Ip.InReceives", came), ("Udp.NoPorts", missed)]);
    for (came, missed, is_remark) in [(10, 1, false), (1000, 1, false), (1001, 1, true)] {
        let (before, after) = (at(0, 0), later(at(came, missed)));
        let findings = findings(&Observed::new(&before, &after, None, asked(None)));
        let told = (findings[0].count, findings[0].is_remark);
        assert_eq!(told, (1, is_remark), "{came}");
    }
    // Half a packet a second.
    let (before, after) = (at(0, 0), later(later(at(10, 1))));
    assert!(findings(&Observed::new(&before, &after, None, asked(None)))[0].is_remark);
    // A loss at a socket is never on purpose.
    let (mut before, mut after) = starved(4, 0);
    before.snapshot.snmp = at(0, 0).snapshot.snmp;
    after.snapshot.snmp = at(10_000_000, 0).snapshot.snmp;
    assert!(!findings(&Observed::new(&before, &after, None, asked(None)))[0].is_remark);
}

#[test]
fn stolen_time_is_told_where_packets_were_lost() {
    let stat = |idle: u64, steal: u64| {
        ProcStat::parse(&format!("cpu0 0 0 0 {idle} 0 0 0 {steal} 0 0")).expect("a line of a test")
    };
    let (before, mut after) = starved(900, 0);
    let before = Observation {
        cpus: stat(0, 0),
        ..before
    };
    after.cpus = stat(90, 10);
    assert_eq!(
        found(&before, &after),
        is(&[("socket_buffer", 500), ("steal", 0)])
    );
    after.cpus = stat(91, 9);
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 500)]));
    let idle = Observation {
        cpus: stat(0, 0),
        ..host(&[])
    };
    let stolen = later(Observation {
        cpus: stat(50, 50),
        ..host(&[])
    });
    assert_eq!(found(&idle, &stolen), is(&[]), "nothing was lost");
}

#[test]
fn where_nothing_arrives_the_first_silent_station_is_named() {
    let at = |packets, ip, udp| {
        let mut facts = host(&[("Ip.InReceives", ip), ("Udp.InDatagrams", udp)]);
        let counters = LinkCounters {
            rx_packets: packets,
            ..LinkCounters::default()
        };
        facts
            .snapshot
            .links
            .insert("eth0".to_owned(), link(&[], counters));
        facts
    };
    let ask = |after: Observation, port| {
        let before = at(0, 0, 0);
        let findings = findings(&Observed::new(&before, &later(after), None, asked(port)));
        findings.first().map(|one| (one.station, one.what.clone()))
    };
    for (after, station, words) in [
        (
            at(0, 0, 0),
            Station::Wire,
            "no interface received any packet",
        ),
        (at(5, 0, 0), Station::Ip, "none reached IP"),
        (at(5, 5, 0), Station::Udp, "no UDP datagram was among them"),
    ] {
        let (found, what) = ask(after.clone(), Some(53)).expect("something is wrong");
        assert_eq!(found, station, "{what}");
        assert!(
            what.contains(words) && what.contains("no socket has UDP port 53"),
            "{what}"
        );
        assert_eq!(
            ask(after, None),
            None,
            "without a port nobody misses anything"
        );
    }
    let (station, what) = ask(at(5, 5, 5), Some(53)).expect("nobody has it");
    assert_eq!(
        (station, &*what),
        (Station::Udp, "no socket of this namespace has UDP port 53")
    );
    let counters = host(&[("Ip.InReceives", 0), ("Udp.InDatagrams", 0)]);
    let after = later(counters.clone());
    let alone = findings(&Observed::new(&counters, &after, None, asked(Some(53))));
    let what = &alone[0].what;
    assert!(what.contains("no interface here but loopback"), "{what}");
    // Loopback that was asked for is an interface like any other.
    let link_of = |name: &str| NetlinkLink {
        name: name.to_owned(),
        index: 1,
        up: true,
        carrier: true,
        ..NetlinkLink::default()
    };
    let mut before = counters.clone();
    before.links = vec![link_of("lo"), link_of("eth0")];
    let loopback = link(&[], LinkCounters::default());
    before.snapshot.links.insert("lo".to_owned(), loopback);
    let after = later(before.clone());
    let silent = findings(&Observed::new(&before, &after, None, asked(Some(53))));
    let what = &silent[0].what;
    assert!(what.contains("no interface received any packet"), "{what}");
}

#[test]
fn the_ledger_takes_each_loss_once() {
    let names = [
        ("Ip.InReceives", 1000),
        ("Tcp.InSegs", 100),
        ("Icmp.InMsgs", 10),
        ("Udp.InDatagrams", 500),
        ("Udp.NoPorts", 90),
        ("Udp.RcvbufErrors", 180),
        ("Udp.InCsumErrors", 20),
        ("TcpExt.IPReversePathFilter", 60),
        ("Ip.InAddrErrors", 30),
    ];
    let mut before = host(&names.map(|(name, _)| (name, 0)));
    let mut after = later(host(&names));
    let missed = |rx_missed_errors| LinkCounters {
        rx_missed_errors,
        ..LinkCounters::default()
    };
    before
        .snapshot
        .links
        .insert("eth0".to_owned(), link(&[], missed(0)));
    after
        .snapshot
        .links
        .insert("eth0".to_owned(), link(&[], missed(7)));
    let drops = [dropped("NETFILTER_DROP", 10)];
    let of = |port| {
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(port));
        ledger(&seen)
    };
    let all = of(None);
    assert_eq!(
        (all.offered, all.delivered, all.unaccounted),
        (897, 500, 0),
        "{all}"
    );
    assert_eq!(all.lost(), 397);
    // A rule before IP drops what IP never received.
    let drops = [dropped("NETFILTER_DROP", 1010)];
    let beside = ledger(&Observed::new(
        &before,
        &after,
        Some((&[], &drops, 1)),
        asked(None),
    ));
    assert_eq!((beside.offered, beside.unaccounted), (1897, 0), "{beside}");
    assert!(
        beside
            .notes
            .iter()
            .any(|note| note.contains("1000 packets more")),
        "{beside}"
    );
    // The probe counts only this port: the ledger and the finding agree.
    assert_eq!((of(Some(53)).lost(), of(Some(53)).unaccounted), (397, 0));
}

/// The ledger of a host whose counters grew by this, and that dropped these.
fn ledger_of(grown: &[(&str, u64)], drops: &[DropCount]) -> Ledger {
    let names = [
        "Ip.InReceives",
        "Ip.InDelivers",
        "IpExt.InMcastPkts",
        "Ip6.InReceives",
        "Ip6.InDelivers",
        "Ip6.InMcastPkts",
        "Icmp6.InMsgs",
        "Udp.InDatagrams",
        "Udp6.InDatagrams",
    ];
    let before = host(&names.map(|name| (name, 0)));
    let value = |name| grown.iter().find(|(known, _)| *known == name);
    let after = names.map(|name| (name, value(name).map_or(0, |(_, value)| *value)));
    let after = later(host(&after));
    ledger(&Observed::new(
        &before,
        &after,
        Some((&[], drops, 1)),
        asked(None),
    ))
}

#[test]
fn listener_reports_of_other_hosts_are_no_datagrams() {
    let of = |grown: &[(&str, u64)]| ledger_of(grown, &[]);
    let said = |found: &Ledger, words: &str| found.notes.iter().any(|note| note.contains(words));
    // Ten datagrams, and three reports to a group of routers. This host is no router.
    let reports = of(&[
        ("Ip6.InReceives", 13),
        ("Ip6.InDelivers", 10),
        ("Ip6.InMcastPkts", 3),
        ("Udp6.InDatagrams", 10),
    ]);
    assert_eq!((reports.offered, reports.unaccounted), (10, 0), "{reports}");
    assert!(said(&reports, "3 packets came to groups"), "{reports}");
    // To a joined group they are ICMP; what is not multicast stays unaccounted for.
    let asked_for = of(&[
        ("Ip6.InReceives", 14),
        ("Ip6.InDelivers", 12),
        ("Ip6.InMcastPkts", 2),
        ("Icmp6.InMsgs", 2),
        ("Udp6.InDatagrams", 10),
    ]);
    assert_eq!(
        (asked_for.offered, asked_for.unaccounted),
        (10, 0),
        "{asked_for}"
    );
    let lost = of(&[
        ("Ip6.InReceives", 15),
        ("Ip6.InDelivers", 10),
        ("Udp6.InDatagrams", 10),
    ]);
    assert_eq!((lost.offered, lost.unaccounted), (15, 5), "{lost}");
    assert!(!said(&lost, "groups"), "{lost}");
    // Packets that a firewall dropped, to a group that a program did join, are no reports.
    let filtered = ledger_of(
        &[
            ("Ip6.InReceives", 15),
            ("Ip6.InDelivers", 10),
            ("Ip6.InMcastPkts", 15),
            ("Udp6.InDatagrams", 10),
        ],
        &[dropped("NETFILTER_DROP", 5)],
    );
    assert_eq!((filtered.offered, filtered.lost()), (15, 5), "{filtered}");
    assert!(!said(&filtered, "groups that no"), "{filtered}");
    // Reports beside what a firewall dropped of IPv4 are still reports; where its drops are not seen,
    // nothing is left out.
    let names = [
        ("Ip.InReceives", 5),
        ("Ip6.InReceives", 13),
        ("Ip6.InDelivers", 10),
        ("Ip6.InMcastPkts", 3),
        ("Udp6.InDatagrams", 10),
    ];
    let beside = ledger_of(&names, &[dropped("NETFILTER_DROP", 5)]);
    assert_eq!((beside.lost(), beside.unaccounted), (5, 0), "{beside}");
    // Of IGMP there is no counter, and that is said.
    let igmp = of(&[
        ("Ip.InReceives", 12),
        ("Ip.InDelivers", 11),
        ("IpExt.InMcastPkts", 1),
        ("Udp.InDatagrams", 10),
    ]);
    assert_eq!((igmp.offered, igmp.unaccounted), (12, 2), "{igmp}");
    assert!(said(&igmp, "IGMP may be in UNACCOUNTED"), "{igmp}");
    assert!(said(&igmp, "1 packets are in UNACCOUNTED"), "{igmp}");
    let quiet = of(&[
        ("Ip.InReceives", 10),
        ("Ip.InDelivers", 10),
        ("Udp.InDatagrams", 10),
    ]);
    assert!(quiet.unaccounted == 0 && quiet.notes.is_empty(), "{quiet}");
}

proptest! {
    /// Whatever a host counts, each finding has evidence that grew, and the ledger adds up.
    #[test]
    fn findings_rest_on_counts(values: [u64; 12], earlier: [u64; 12], drops: u32, port: Option<u16>) {
        let names = [
            "Ip.InReceives", "Tcp.InSegs", "Udp.InDatagrams", "Udp.NoPorts", "Udp.RcvbufErrors",
            "Udp.InCsumErrors", "Udp.MemErrors", "TcpExt.IPReversePathFilter", "Ip.InAddrErrors",
            "Ip.ReasmFails", "TcpExt.ListenOverflows", "Ip.ReasmReqds",
        ];
        let at = |values: [u64; 12]| {
            // The kernel's numbers are signed here.
            let pairs = names.iter().zip(values).map(|(&name, value)| (name, value >> 1));
            host(&pairs.collect::<Vec<_>>())
        };
        let before = at(earlier);
        let mut after = later(at(values));
        after.sockets = vec![socket("0.0.0.0:53", 1, drops)];
        let seen = Observed::new(&before, &after, None, asked(port));
        for finding in findings(&seen) {
            prop_assert!(finding.check == "nothing_arrives" || finding.evidence.iter().any(|one| one.grown() > 0));
            prop_assert!(!finding.what.is_empty() && !finding.remedy.is_empty());
        }
        prop_assert!(ledger(&seen).adds_up());
    }
}

#[test]
fn names_of_checks_are_their_own() {
    let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}
