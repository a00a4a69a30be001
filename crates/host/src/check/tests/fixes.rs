//! Changes to a running program that losses call for.

use super::*;
use crate::check::{Fix, FixKind, fixes};
use crate::facts::ProcessLoad;
use crate::setting::SocketSize;
use mpps_os::CpuList;
use mpps_os::borrowed::SpreadWay;
use mpps_os::netlink::sock_diag::ListeningSocket;

/// Two sockets at one address, of a program each that ran this long in a second. The first lost as many.
fn pair(lost: u32, run_ms: [u64; 2], shared: bool) -> (Observation, Observation) {
    let at = |drops, run: [u64; 2]| {
        let mut facts = host(&[("Udp.RcvbufErrors", u64::from(drops))]);
        facts.sockets = vec![socket("0.0.0.0:53", 1, drops), socket("0.0.0.0:53", 2, 0)];
        for (inode, run) in [1, 2].into_iter().zip(run) {
            let process = owner(run * 1_000_000, 0);
            has(
                &mut facts,
                inode,
                Process {
                    pid: 811 + inode,
                    ..process
                },
            );
        }
        facts.port_sharing = [(1, shared), (2, shared)].into();
        facts
    };
    (at(0, [0, 0]), later(at(lost, run_ms)))
}

fn kinds((before, after): &(Observation, Observation)) -> Vec<FixKind> {
    let found = fixes(&Observed::new(before, after, None, asked(Some(53))));
    found.into_iter().map(|one: Fix| one.kind).collect()
}

#[test]
fn a_healthy_program_is_left_as_it_is() {
    assert_eq!(kinds(&pair(0, [900, 3], true)), []);
}

#[test]
fn one_full_socket_of_a_group_is_spread_over_it() {
    // A buffer would only delay it.
    let found = kinds(&pair(5000, [950, 3], true));
    let ways = [SpreadWay::Flow, SpreadWay::Random];
    assert_eq!(found, ways.map(|way| FixKind::Spread(way, vec![1, 2])));
    // Packets come by two CPUs.
    let (mut before, mut after) = pair(5000, [950, 3], true);
    let softnet = |rows: &str| Softnet::parse(rows).expect("rows of a test");
    before.snapshot.softnet = softnet("1 0 0\n1 0 0");
    after.snapshot.softnet = softnet("9 0 0\n9 0 0");
    let found = kinds(&(before, after));
    assert_eq!(found[1], FixKind::Spread(SpreadWay::Cpu, vec![1, 2]));
    // Two of its three programs lose: one step for each way is enough.
    let (mut before, mut after) = pair(5000, [950, 3], true);
    for (facts, drops) in [(&mut before, 0), (&mut after, 900)] {
        facts.sockets.push(socket("0.0.0.0:53", 3, drops));
        facts.port_sharing.insert(3, true);
        let process = Process {
            pid: 814,
            ..facts.processes[&812].clone()
        };
        has(facts, 3, process);
    }
    let found = kinds(&(before, after));
    assert_eq!(found, ways.map(|way| FixKind::Spread(way, vec![1, 2, 3])));
    // Without SO_REUSEPORT the kernel spreads nothing.
    assert_eq!(kinds(&pair(5000, [950, 3], false)), []);
    // A program that it attached cannot be brought back.
    let (before, mut after) = pair(5000, [950, 3], true);
    for process in after.processes.values_mut() {
        process.name = "knotd".to_owned();
    }
    assert_eq!(kinds(&(before, after)), []);
    // The other one is full, too, or stopped: it has no room.
    let (before, mut after) = pair(5000, [950, 3], true);
    after.sockets[1].queued_bytes = 212_000;
    assert_eq!(kinds(&(before.clone(), after.clone())), []);
    after.sockets[1].queued_bytes = 0;
    after.processes.get_mut(&813).expect("it is there").stopped = true;
    assert_eq!(kinds(&(before, after)), []);
}

#[test]
fn bursts_get_a_buffer_and_a_stopped_process_goes_on() {
    let bursts = starved(660, 210);
    assert_eq!(
        kinds(&bursts),
        [FixKind::Size(
            SocketSize::ReceiveBuffer,
            vec![4711],
            4 << 20
        )]
    );
    let (before, mut after) = starved(4, 0);
    after.processes.get_mut(&812).expect("it is there").stopped = true;
    assert_eq!(kinds(&(before, after)), [FixKind::Continue]);
    // A frozen cgroup is not thawed by a signal; a queue without a reader is the program's fault.
    let (before, mut after) = starved(4, 0);
    assert_eq!(kinds(&(before.clone(), after.clone())), []);
    // It wakes and reads, however little it runs.
    let mut woken = after.clone();
    let threads = woken.processes.get_mut(&812).map(|one| &mut one.threads);
    threads
        .into_iter()
        .flatten()
        .for_each(|(_, time)| time.turns += 20);
    let buffer = kinds(&(before.clone(), woken));
    assert!(matches!(buffer[..], [FixKind::Size(..)]), "{buffer:?}");
    after.processes.get_mut(&812).expect("it is there").frozen = Some(String::new());
    assert_eq!(kinds(&(before, after)), []);
}

#[test]
fn a_reader_without_a_cpu_gets_another() {
    let lacks = |allowed: &[usize], busy: [u64; 2]| {
        let (mut before, mut after) = starved(100, 600);
        let reader = after.processes.get_mut(&812).expect("it is there");
        reader.allowed = [(812, CpuList(allowed.to_vec()))].into();
        let stat = |ticks: [u64; 2], all: u64| {
            let lines = [2, 3].iter().zip(ticks);
            let lines = lines.map(|(cpu, busy)| format!("cpu{cpu} {busy} 0 0 {}\n", all - busy));
            ProcStat::parse(&lines.collect::<String>()).expect("as proc_stat(5)")
        };
        (before.cpus, after.cpus) = (stat([0, 0], 0), stat(busy, 200));
        kinds(&(before, after))
    };
    let to = |cpus: &[usize]| FixKind::Affinity(812, CpuList(cpus.to_vec()));
    // Its CPU 3 is full, CPU 2 is idle, or not.
    let found = lacks(&[2, 3], [4, 200]);
    assert!(found.contains(&to(&[2])), "{found:?}");
    assert!(
        !lacks(&[2, 3], [190, 200])
            .iter()
            .any(|one| matches!(one, FixKind::Affinity(..)))
    );
    // It may use only that one.
    assert!(lacks(&[3], [190, 200]).contains(&to(&[2, 3])));
}

#[test]
fn a_full_accept_queue_gets_what_the_kernel_allows() {
    let kinds = |port, somaxconn, accepted| {
        let at = |drops: u32, accepted| {
            let mut facts = host(&[
                ("TcpExt.ListenOverflows", u64::from(drops)),
                ("Tcp.PassiveOpens", accepted),
            ]);
            let mut program = owner(0, 0);
            let threads = program.threads.values_mut();
            threads.for_each(|time| time.turns += u64::from(drops));
            has(&mut facts, 7, program);
            facts.listeners = vec![ListeningSocket {
                local: ([0, 0, 0, 0], 80).into(),
                only_v6: false,
                inode: 7,
                cookie: 7,
                waiting: 6,
                waiting_max: 5,
                drops,
            }];
            facts.settings = [("net.core.somaxconn", somaxconn)].into();
            facts
        };
        let (before, after) = (at(0, 0), later(at(90, accepted)));
        let found = fixes(&Observed::new(&before, &after, None, asked(Some(port))));
        found.into_iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    let queue = FixKind::Size(SocketSize::AcceptQueue, vec![7], 4096);
    assert_eq!(kinds(80, 4096, 500), [queue]);
    // Another port; the kernel allows no more; the program accepts none.
    assert_eq!(kinds(81, 4096, 500), []);
    assert_eq!(kinds(80, 5, 500), []);
    assert_eq!(kinds(80, 4096, 0), []);
}

#[test]
fn a_full_send_buffer_gets_larger() {
    let kinds = |errors, port| {
        let at = |errors| {
            let mut facts = host(&[
                ("Udp.SndbufErrors", errors),
                ("Udp.OutDatagrams", 10 * errors),
                ("Ip.OutRequests", 10 * errors),
                ("Ip.OutDiscards", 0),
            ]);
            facts.sockets = vec![socket("0.0.0.0:53", 4711, 0)];
            has(&mut facts, 4711, owner(0, 0));
            facts
        };
        let (before, mut after) = (at(0), later(at(errors)));
        after.processes.clear();
        let found = fixes(&Observed::new(&before, &after, None, asked(port)));
        found.into_iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    let larger = FixKind::Size(SocketSize::SendBuffer, vec![4711], 4 << 20);
    assert_eq!(kinds(500, Some(53)), [larger]);
    assert_eq!(kinds(0, Some(53)), []);
    // Any program of the namespace may have found it full.
    assert_eq!(kinds(500, None), []);
}

#[test]
fn a_pinned_reader_gets_its_nice_value_and_its_cpu() {
    let kinds = |allowed: &[usize], priority: i32| {
        let (mut before, mut after) = starved(100, 600);
        let reader = after.processes.get_mut(&812).expect("it is there");
        reader.allowed = [(812, CpuList(allowed.to_vec()))].into();
        let stat = |ticks: u64| {
            let lines = [2, 3].map(|cpu| format!("cpu{cpu} {ticks} 0 0 0\n"));
            ProcStat::parse(&lines.concat()).expect("as proc_stat(5)")
        };
        (before.cpus, after.cpus) = (stat(0), stat(200));
        let load = |ticks| ProcessLoad {
            name: "busy".to_owned(),
            ticks,
            priority,
            cpus: [3].into(),
        };
        before.loads = [(99, load(0))].into();
        after.loads = [(99, load(50))].into();
        let found = fixes(&Observed::new(&before, &after, None, asked(Some(53))));
        let found = found.into_iter().map(|one| (one.pid, one.kind));
        found.collect::<Vec<_>>()
    };
    let nice = (812, FixKind::Nice(812, -5));
    let others = (99, FixKind::Others(CpuList(vec![2])));
    let found = kinds(&[3], 15);
    assert!(
        found.contains(&nice) && found.contains(&others),
        "{found:?}"
    );
    // It goes not before the reader, or has a real-time priority; the reader may use all CPUs.
    assert!(!kinds(&[3], 20).contains(&nice) && kinds(&[3], 20).contains(&others));
    assert!(
        !kinds(&[3], -2)
            .iter()
            .any(|(_, kind)| matches!(kind, FixKind::Nice(..)))
    );
    assert!(!kinds(&[2, 3], 15).contains(&others));
}

#[test]
fn a_fix_is_made_again_for_the_new_process_of_a_program() {
    let fix = |kind| Fix {
        pid: 812,
        program: "unbound".to_owned(),
        user: None,
        kind,
        why: String::new(),
        permanent: None,
    };
    let again = |kind, datagrams: &[u32], group: &[u32]| {
        let again = fix(kind).again(99, datagrams, &[7], group)?;
        assert_eq!(again.pid, 99);
        Some(again.kind)
    };
    let size = |size, inodes: &[u32]| FixKind::Size(size, inodes.to_vec(), 4096);
    for (kind, expected) in [
        (
            size(SocketSize::ReceiveBuffer, &[1]),
            Some(size(SocketSize::ReceiveBuffer, &[3, 4])),
        ),
        (
            size(SocketSize::AcceptQueue, &[1]),
            Some(size(SocketSize::AcceptQueue, &[7])),
        ),
        (
            FixKind::Spread(SpreadWay::Flow, vec![1, 2]),
            Some(FixKind::Spread(SpreadWay::Flow, vec![3, 4, 5])),
        ),
        (FixKind::Nice(812, -5), Some(FixKind::Nice(99, -5))),
        // Which thread of the new process that is, is not known.
        (FixKind::Nice(813, -5), None),
        (FixKind::Continue, None),
        (FixKind::Others(CpuList(vec![1])), None),
    ] {
        assert_eq!(again(kind, &[3, 4], &[3, 4, 5]), expected);
    }
    // Another process of the group has the first socket; there is no group.
    let spread = FixKind::Spread(SpreadWay::Flow, vec![1, 2]);
    assert_eq!(again(spread.clone(), &[4], &[3, 4]), None);
    assert_eq!(again(spread, &[3], &[3]), None);
}

#[test]
fn losses_before_any_socket_are_for_a_stage_of_tune() {
    let kinds = |dropped, port| {
        let at = |packets, dropped: u32| {
            let mut facts = host(&[]);
            facts.snapshot.softnet = Softnet::parse(&format!("9 {dropped:x} 0")).expect("a row");
            let mut link = LinkSnapshot::default();
            link.counters.rx_packets = packets;
            facts.snapshot.links = [("eth0".to_owned(), link)].into();
            facts
        };
        let (before, after) = (at(0, 0), later(at(900, dropped)));
        let found = fixes(&Observed::new(&before, &after, None, asked(port)));
        found.into_iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    let stages = ["rps", "backlog"].map(|stage| FixKind::Tune(stage, "eth0".to_owned()));
    assert_eq!(kinds(500, Some(53)), stages);
    assert_eq!(kinds(0, Some(53)), []);
    assert_eq!(kinds(500, None), []);
}
