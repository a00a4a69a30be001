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
mod scene;
mod sockets;
mod ways;

use self::scene::{Scene, finds, mentions, tells};
use self::sockets::starved;
use super::*;
use crate::counters::drop_probe::DropCount;
use crate::facts::{Conntrack, Observation, Process, ThreadTime};
use crate::{Ledger, LinkCounters, LinkSnapshot, ProcStat, Snapshot, Snmp, Softnet};
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::sock_diag::{ListeningSocket, UdpEntry};
use mpps_os::text::ShellWord;
use proptest::prelude::*;
use std::collections::BTreeMap;

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
        unsent_bytes: 0,
        send_buffer_bytes: 212_992,
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

/// The owner of the tests.
fn reader(facts: &mut Observation) -> &mut Process {
    facts.processes.get_mut(&812).expect("it is there")
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
    for name in facts
        .unanswered
        .iter_mut()
        .chain(&mut facts.deaf_to_routers)
    {
        *name = name.replace("eth0", HOSTILE);
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
    let counters = "Udp.InDatagrams 7, Udp.NoPorts 7, Ip.InReceives 7, TcpExt.ListenOverflows 7";
    let seven = Scene::grown(counters).after;
    Scene::of((seven.clone(), later(seven))).finds("");
    Scene::grown("Udp.InDatagrams 2, Udp.NoPorts 0, Ip.InReceives 2").finds("");
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
        let Evidence {
            source,
            before: from,
            after: to,
        } = &finding.evidence[0];
        assert_eq!((&**source, from, to), (counter, &5, &15));
        assert_eq!((finding.rate_pps, &*finding.verify), (10.0, "look again"));
        assert!(!finding.what.is_empty() && !finding.remedy.is_empty());
        // A counter that went back was reset, and lost nothing that is known.
        assert_eq!(found(&after, &later(before.clone())), is(&[]), "{counter}");
    }
}

#[test]
fn what_costs_most_is_told_first() {
    // Among equals the order is the way of a packet.
    Scene::grown("Udp.NoPorts 3, Ip.InAddrErrors 3, Udp.InCsumErrors 4")
        .finds("checksum 4, address 3, no_listener 3");
}

#[test]
fn a_backlog_wraps_and_names_its_cpus() {
    let softnet = |text: &str| {
        let mut facts = host(&[]);
        facts.snapshot.softnet = Softnet::parse(text).expect("rows of a test");
        facts
    };
    let after = later(softnet("1 5 0\n1 0 0"));
    let scene = Scene::of((softnet("1 fffffff0 0\n1 0 0"), after));
    scene
        .finds("backlog 21")
        .tells("backlog: CPU 0 was full | !rules");
    let ruled = |count| move |after: &mut Observation| after.packet_filter.rule_count = count;
    for (count, parts) in [(6000, "has 6000 rules"), (60, "!rules")] {
        let scene = scene.clone().now(ruled(count));
        scene.tells(&format!("backlog: {parts}"));
    }
    for (drops, expected) in [
        ("CPU_BACKLOG 11 elsewhere", "backlog 10"),
        ("CPU_BACKLOG 21 elsewhere", ""),
    ] {
        scene.clone().drops(drops).finds(expected);
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
    let scene = Scene::of((table(3), later(table(8))));
    scene.finds("conntrack 5");
    Scene::of((table(8), later(table(8)))).finds("");
    // The same packets are the packet filter's for the probe.
    scene.clone().drops("NETFILTER_DROP 5").finds("conntrack 5");
    scene
        .drops("NETFILTER_DROP 7")
        .finds("conntrack 5, firewall 2");
}

#[test]
fn reasons_without_a_check_are_told_as_they_are() {
    let ask = |reason: &str| {
        let (before, after) = (host(&[]), later(host(&[])));
        let (then, now) = ([dropped(reason, 2)], [dropped(reason, 12)]);
        let drops = Some((&then[..], &now[..], 1));
        findings(&Observed::new(&before, &after, drops, asked(None)))
    };
    finds(&ask("NETFILTER_DROP"), "firewall 10");
    for explained in ["SOCKET_RCVBUFF", "NO_SOCKET", "QUEUE_PURGE"] {
        finds(&ask(explained), "");
    }
    for (reason, confidence) in [
        ("VXLAN_VNI_NOT_FOUND", "likely"),
        ("SOCKET_FILTER", "possible"),
        ("OTHERHOST", "possible"),
        ("IP_LOCALNET", "possible"),
        ("NEVER_HEARD_OF", "possible"),
    ] {
        let expected = format!("drop_reason 10 {confidence} alone");
        tells(&ask(reason), &expected);
        mentions(&ask(reason)[0].what, &format!("{reason} | !VLAN"));
    }
}

#[test]
fn what_has_no_reason_is_what_other_counters_say() {
    let at = |unrouted, fails| {
        let came = unrouted + fails;
        Scene::grown(&format!(
            "Ip.InReceives {came}, Ip.InDelivers 0, Ip.ReasmFails {fails}, Ip.ReasmReqds {fails}"
        ))
    };
    for (unrouted, fails, expected) in [
        (0, 0, "drop_reason 10"),
        (4, 0, "drop_reason 6, unrouted 4"),
        (40, 0, "unrouted 10, unaccounted 0"),
        (0, 9, "fragments 9, drop_reason 1"),
        (2, 7, "fragments 7, unrouted 2, drop_reason 1"),
        (3, 12, "fragments 12, unaccounted 0"),
    ] {
        at(unrouted, fails)
            .drops("NOT_SPECIFIED 10")
            .finds(expected);
    }
    // Without a reason the fate of these packets is unknown.
    at(50, 0).finds("unaccounted 0");
    // Datagrams for all hosts that have no listener are no problem.
    let ignored = Scene::grown("Udp.IgnoredMulti 10, Ip.InReceives 10");
    ignored
        .drops("NOT_SPECIFIED 10")
        .tells("no_listener 10 remark alone");
    // A router may have to pass them on.
    for (passes, parts) in [(0, "bc_forwarding=1"), (1, "!bc_forwarding")] {
        let router = Scene::grown("Udp.IgnoredMulti 10, Ip.InReceives 10, IpExt.InBcastPkts 10");
        let router = router.now(|after| {
            let settings = [
                ("net.ipv4.ip_forward", 1),
                ("net.ipv4.conf.all.bc_forwarding", passes),
            ];
            after.settings = settings.into();
        });
        router.tells(&format!("no_listener remark: {parts}"));
    }
    // Packets that a firewall dropped are no gap of IP's.
    let filtered = Scene::grown("Ip.InReceives 30").drops("NOT_SPECIFIED 10, NETFILTER_DROP 30");
    filtered.finds("drop_reason 10, firewall 30");
}

#[test]
fn little_that_may_be_meant_is_a_remark() {
    let at = |came| Scene::grown(&format!("Ip.InReceives {came}, Udp.NoPorts 1"));
    at(10).tells("no_listener 1");
    at(1000).tells("no_listener 1");
    at(1001).tells("no_listener 1 remark");
    // Half a packet a second.
    let slow = at(10).now(|after| *after = later(after.clone()));
    slow.tells("no_listener 1 remark");
    // A loss at a socket is never on purpose.
    let lost = Scene::of(starved(4, 0)).counting("Ip.InReceives 10000000, Udp.NoPorts 0");
    lost.tells("socket_buffer");
}

#[test]
fn stolen_time_is_told_where_packets_were_lost() {
    let stat = |idle: u64, steal: u64| {
        ProcStat::parse(&format!("cpu0 0 0 0 {idle} 0 0 0 {steal} 0 0")).expect("a line of a test")
    };
    let lossy = Scene::of(starved(900, 0));
    let idle = Scene::grown("");
    for (scene, [free, stolen], expected) in [
        (&lossy, [90, 10], "socket_buffer 500, steal 0"),
        (&lossy, [91, 9], "socket_buffer 500"),
        // Nothing was lost.
        (&idle, [50, 50], ""),
    ] {
        let mut scene = scene.clone();
        (scene.before.cpus, scene.after.cpus) = (stat(0, 0), stat(free, stolen));
        scene.finds(expected);
    }
}

#[test]
fn where_nothing_arrives_the_first_silent_station_is_named() {
    let at = |packets, ip, udp| {
        let counters = format!("Ip.InReceives {ip}, Udp.InDatagrams {udp}");
        let rx_packets = |rx_packets| LinkCounters {
            rx_packets,
            ..LinkCounters::default()
        };
        let mut scene = Scene::grown(&counters);
        scene.before.snapshot.links = [("eth0".to_owned(), link(&[], rx_packets(0)))].into();
        scene.after.snapshot.links = [("eth0".to_owned(), link(&[], rx_packets(packets)))].into();
        scene
    };
    for (scene, station, words) in [
        (
            at(0, 0, 0),
            Station::Wire,
            "no interface received any packet",
        ),
        (at(5, 0, 0), Station::Ip, "none reached IP"),
        (at(5, 5, 0), Station::Udp, "no UDP datagram was among them"),
    ] {
        // Without a port none is missed.
        scene.finds("");
        let found = scene.port(53).found();
        assert_eq!(found[0].station, station, "{found:#?}");
        mentions(
            &found[0].what,
            &format!("{words} | no socket has UDP port 53"),
        );
    }
    let found = at(5, 5, 5).port(53).found();
    let what = "no socket of this namespace has UDP port 53";
    assert_eq!((found[0].station, &*found[0].what), (Station::Udp, what));
    let scene = Scene::grown("Ip.InReceives 0, Udp.InDatagrams 0").port(53);
    scene.tells("nothing_arrives: no interface here but loopback");
    // Loopback that was asked for is an interface like any other.
    let link_of = |name: &str| NetlinkLink {
        name: name.to_owned(),
        index: 1,
        up: true,
        carrier: true,
        ..NetlinkLink::default()
    };
    let scene = scene.both(|facts| {
        facts.links = vec![link_of("lo"), link_of("eth0")];
        let loopback = link(&[], LinkCounters::default());
        facts.snapshot.links.insert("lo".to_owned(), loopback);
    });
    scene.tells("nothing_arrives: no interface received any packet");
}

#[test]
fn the_ledger_takes_each_loss_once() {
    let missed = |rx_missed_errors| LinkCounters {
        rx_missed_errors,
        ..LinkCounters::default()
    };
    let mut scene = Scene::grown(
        "Ip.InReceives 1000, Tcp.InSegs 100, Icmp.InMsgs 10, Udp.InDatagrams 500, Udp.NoPorts 90, \
         Udp.RcvbufErrors 180, Udp.InCsumErrors 20, TcpExt.IPReversePathFilter 60, Ip.InAddrErrors 30",
    );
    scene.before.snapshot.links = [("eth0".to_owned(), link(&[], missed(0)))].into();
    scene.after.snapshot.links = [("eth0".to_owned(), link(&[], missed(7)))].into();
    let filtered = scene.clone().drops("NETFILTER_DROP 10");
    filtered.sums([897, 397, 0]);
    assert_eq!(filtered.ledger().delivered, 500);
    // A rule before IP drops what IP never received.
    let beside = scene.drops("NETFILTER_DROP 1010").ledger();
    assert_eq!((beside.offered, beside.unaccounted), (1897, 0), "{beside}");
    mentions(&beside.notes.join("\n"), "1000 packets more");
    // The probe counts only this port: the ledger and the finding agree.
    filtered.port(53).sums([897, 397, 0]);
}

#[test]
fn listener_reports_of_other_hosts_are_no_datagrams() {
    let of = |grown: &str, drops: &str, sums: [i64; 3], notes: &str| {
        let all = "Ip.InReceives 0, Ip.InDelivers 0, IpExt.InMcastPkts 0, Ip6.InReceives 0, Ip6.InDelivers 0, \
                   Ip6.InMcastPkts 0, Icmp6.InMsgs 0, Udp.InDatagrams 0, Udp6.InDatagrams 0, ";
        let scene = Scene::grown(&format!("{all}{grown}")).drops(drops);
        mentions(&scene.sums(sums).ledger().notes.join("\n"), notes);
    };
    // Ten datagrams, and three reports to a group of routers. This host is no router.
    let reports = "Ip6.InReceives 13, Ip6.InDelivers 10, Ip6.InMcastPkts 3, Udp6.InDatagrams 10";
    of(reports, "", [10, 0, 0], "3 packets came to groups");
    // To a joined group they are ICMP; what is not multicast stays unaccounted for.
    let asked_for = "Ip6.InReceives 14, Ip6.InDelivers 12, Ip6.InMcastPkts 2, Icmp6.InMsgs 2, Udp6.InDatagrams 10";
    of(asked_for, "", [10, 0, 0], "");
    let lost = "Ip6.InReceives 15, Ip6.InDelivers 10, Udp6.InDatagrams 10";
    of(lost, "", [15, 0, 5], "!groups");
    // Packets that a firewall dropped, to a group that a program did join, are no reports.
    let filtered = "Ip6.InReceives 15, Ip6.InDelivers 10, Ip6.InMcastPkts 15, Udp6.InDatagrams 10";
    of(filtered, "NETFILTER_DROP 5", [15, 5, 0], "!groups that no");
    // Reports beside what a firewall dropped of IPv4 are still reports; where its drops are not seen,
    // nothing is left out.
    let beside = format!("Ip.InReceives 5, {reports}");
    of(&beside, "NETFILTER_DROP 5", [15, 5, 0], "");
    // Of IGMP there is no counter, and that is said.
    let igmp = "Ip.InReceives 12, Ip.InDelivers 11, IpExt.InMcastPkts 1, Udp.InDatagrams 10";
    let notes = "IGMP may be in UNACCOUNTED | 1 packets are in UNACCOUNTED";
    of(igmp, "", [12, 0, 2], notes);
    let quiet = Scene::grown("Ip.InReceives 10, Ip.InDelivers 10, Udp.InDatagrams 10").drops("");
    let quiet = quiet.ledger();
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
