//! Sockets that lose, and the causes.

use super::{SECOND, asked, dropped, findings, found, has, host, is, later, owner, socket, told};
use crate::ProcStat;
use crate::check::{Confidence, DoctorRequest, Observed};
use crate::facts::{Observation, Process, ProcessLoad, QueueCourse, Quota};
use mpps_os::netlink::sock_diag::UdpEntry;

/// A socket that lost 500. Its owner's thread ran and waited for these milliseconds of a second.
pub(super) fn starved(run_ms: u64, wait_ms: u64) -> (Observation, Observation) {
    let at = |drops, queued_bytes, process| {
        let socket = UdpEntry {
            queued_bytes,
            ..socket("0.0.0.0:53", 4711, drops)
        };
        let mut facts = host(&[]);
        facts.sockets = vec![socket];
        has(&mut facts, 4711, process);
        facts
    };
    let before = at(10, 0, owner(0, 0));
    let after = at(510, 212_992, owner(run_ms * 1_000_000, wait_ms * 1_000_000));
    (before, later(after))
}

#[test]
fn a_full_buffer_has_a_cause() {
    for (run_ms, wait_ms, words) in [
        (900, 0, "too slow"),
        (760, 240, "too slow"),
        (740, 250, "lacked a CPU for 25 %"),
        (660, 210, "too small for the bursts"),
        // Of the time that it had work it waited for most.
        (100, 180, "lacked a CPU for 64 %"),
        (749, 250, "lacked a CPU for 25 %"),
        (899, 0, "too small for the bursts"),
        (5, 0, "too small for the bursts"),
        // Hardly any wait.
        (20, 49, "too small for the bursts"),
        (4, 0, "does not read it"),
        (4, 300, "lacked a CPU for 99 %"),
    ] {
        let (mut before, mut after) = starved(run_ms, wait_ms);
        before.snapshot.snmp = host(&[("Udp.RcvbufErrors", 0)]).snapshot.snmp;
        after.snapshot.snmp = host(&[("Udp.RcvbufErrors", 500)]).snapshot.snmp;
        let findings = findings(&Observed::new(&before, &after, None, asked(None)));
        assert_eq!(told(&findings), is(&[("socket_buffer", 500)]));
        assert!(
            findings[0].what.contains(words),
            "{run_ms}: {}",
            findings[0].what
        );
        assert!(
            findings[0]
                .what
                .contains("0.0.0.0:53 of unbound1 (pid 812)")
        );
        assert!(findings[0].why.starts_with("its busiest thread ran"));
        assert_eq!(findings[0].confidence, Confidence::Likely);
    }
    let (before, mut after) = starved(4, 0);
    after.processes.get_mut(&812).expect("it is there").stopped = true;
    let findings = super::findings(&Observed::new(&before, &after, None, asked(None)));
    assert!(
        findings[0].what.contains("is stopped"),
        "{}",
        findings[0].what
    );
    assert_eq!(findings[0].remedy, "kill -CONT 812");
}

#[test]
fn a_queue_that_nobody_reads_is_told_before_it_is_full() {
    let look = |port, looks: usize, queued_bytes, read, is_seen| {
        let at = |queued_bytes, read| {
            let mut facts = host(&[("Udp.InDatagrams", read)]);
            facts.sockets = vec![UdpEntry {
                queued_bytes,
                ..socket("0.0.0.0:53", 4711, 0)
            }];
            facts
        };
        let (mut before, mut after) = (at(0, 0), at(queued_bytes, read));
        let mut courses = QueueCourse::begin(&before.sockets);
        (0..looks).for_each(|_| QueueCourse::add(&mut courses, &after.sockets));
        after.queues = courses;
        if is_seen {
            has(&mut before, 4711, owner(0, 0));
            has(&mut after, 4711, owner(4_000_000, 0));
        }
        let after = later(after);
        let found = findings(&Observed::new(&before, &after, None, asked(port)));
        let mut found = found.into_iter().filter(|one| one.check == "socket_buffer");
        found.next().map(|one| (one.what, one.is_remark))
    };
    let (what, is_remark) = look(Some(53), 10, 9000, 0, false).expect("a finding");
    assert!(
        what.contains("does not read 0.0.0.0:53") && what.contains("9000 bytes"),
        "{what}"
    );
    assert!(!is_remark);
    assert!(look(Some(53), 10, 9000, 0, true).is_some());
    // Others read, and its own reader sleeps.
    assert!(look(Some(53), 10, 9000, 7, true).is_some());
    // Its reader may have read; the queue is empty; it is a moment; it was not asked for.
    for healthy in [
        look(Some(53), 10, 9000, 7, false),
        look(Some(53), 10, 0, 0, false),
        look(Some(53), 9, 9000, 0, false),
        look(None, 10, 9000, 0, false),
    ] {
        assert_eq!(healthy, None);
    }
}

#[test]
fn who_is_not_seen_is_not_judged() {
    let changes: [fn(&mut Observation); 3] = [
        |after| after.owners.clear(),
        // Another process with the socket is another program.
        |after| {
            after.owners.insert(4711, vec![9]);
        },
        |after| {
            let process = after.processes.get_mut(&812);
            process.expect("it is there").threads.clear();
        },
    ];
    for change in changes {
        let (before, mut after) = starved(900, 0);
        change(&mut after);
        let findings = findings(&Observed::new(&before, &after, None, asked(None)));
        assert_eq!(findings[0].confidence, Confidence::Possible);
        assert!(
            findings[0].what.contains("is not seen"),
            "{}",
            findings[0].what
        );
    }
}

/// A server that forks: the parent sleeps, and one of its children is reported.
#[test]
fn of_several_owners_the_busiest_is_told() {
    let (mut before, mut after) = starved(0, 0);
    let child = |run_ms: u64, read_ns| Process {
        pid: 900,
        read_ns,
        ..owner(1 + run_ms * 1_000_000, 0)
    };
    let what = |before: &Observation, after: &Observation| {
        let seen = Observed::new(before, after, None, asked(None));
        let found = findings(&seen).remove(0);
        format!("{}: {}", found.what, found.why)
    };
    has(&mut before, 4711, child(0, 0));
    has(&mut after, 4711, child(950, SECOND));
    let said = what(&before, &after);
    assert!(
        said.contains("pid 900") && said.contains("too slow"),
        "{said}"
    );
    // A stopped process, however busy it was, does not hide a running one, and may be the reader.
    after.processes.get_mut(&900).expect("it is there").stopped = true;
    let said = what(&before, &after);
    assert!(
        said.contains("unbound1 (pid 812) was full") && said.contains("(pid 900, stopped)"),
        "{said}"
    );
}

#[test]
fn a_socket_that_is_new_lost_all_that_it_counts() {
    let (mut before, after) = starved(4, 0);
    before.sockets.clear();
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 510)]));
    // Where they could not be listed, none is new.
    before.are_sockets_unknown = true;
    assert_eq!(found(&before, &after), is(&[]));
}

#[test]
fn a_counter_of_a_socket_wraps() {
    let (mut before, mut after) = starved(4, 0);
    (before.sockets[0].drops, after.sockets[0].drops) = (u32::MAX - 4, 5);
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 10)]));
    // A socket that the kernel listed twice is one socket.
    after.sockets.push(after.sockets[0].clone());
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 10)]));
}

#[test]
fn a_port_hides_the_sockets_of_others() {
    let (before, after) = starved(900, 0);
    for (port, count) in [(53, 1), (54, 0)] {
        let seen = Observed::new(&before, &after, None, asked(Some(port)));
        let findings = findings(&seen).into_iter();
        let own = findings.filter(|one| one.check == "socket_buffer");
        assert_eq!(own.count(), count, "{port}");
    }
}

#[test]
fn a_process_hides_the_sockets_of_others() {
    let (before, after) = starved(900, 0);
    for (pid, expected) in [(812, &[("socket_buffer", 500)][..]), (813, &[])] {
        let asked = DoctorRequest {
            pid: Some(pid),
            ..asked(None)
        };
        let seen = Observed::new(&before, &after, None, asked);
        assert_eq!(told(&findings(&seen)), is(expected), "{pid}");
    }
}

#[test]
fn a_cpu_that_is_shared_with_its_queue_explains_a_full_buffer() {
    for (stat, expected) in [
        ("cpu3 70 0 0 10 0 0 20 0 0 0", "shared_cpu"),
        ("cpu3 71 0 0 10 0 0 19 0 0 0", "socket_buffer"),
        ("cpu3 69 0 0 11 0 0 20 0 0 0", "socket_buffer"),
        ("cpu2 70 0 0 10 0 0 20 0 0 0", "socket_buffer"),
    ] {
        let (mut before, mut after) = starved(700, 300);
        let zero = format!("{} 0 0 0 0 0 0 0 0 0 0", &stat[..4]);
        before.cpus = ProcStat::parse(&zero).expect("a line of a test");
        after.cpus = ProcStat::parse(stat).expect("a line of a test");
        assert_eq!(found(&before, &after), is(&[(expected, 500)]), "{stat}");
    }
}

#[test]
fn a_quota_explains_a_full_buffer() {
    let (mut before, mut after) = starved(300, 0);
    let set = |facts: &mut Observation, quotas: &[(&str, u64, u64)]| {
        let process = facts.processes.get_mut(&812).expect("it is there");
        let quotas = quotas.iter().map(|&(group, periods, throttled)| Quota {
            group: group.to_owned(),
            periods,
            throttled,
            throttled_ns: throttled,
            ..Quota::default()
        });
        process.quotas = quotas.collect();
    };
    set(&mut before, &[("/pod/c", 100, 7), ("/pod", 900, 0)]);
    for (own, above, expected) in [
        (17, 0, Some("/pod/c")),
        (16, 0, None),
        (6, 0, None),
        // Not the nearest group, but the group that held the program back.
        (7, 56, Some("/pod")),
        (16, 9, None),
        (20, 99, Some("/pod")),
        (99, 20, Some("/pod/c")),
    ] {
        set(&mut after, &[("/pod/c", 200, own), ("/pod", 1000, above)]);
        let findings = findings(&Observed::new(&before, &after, None, asked(None)));
        let check = expected.map_or("socket_buffer", |_| "quota");
        assert_eq!(told(&findings), is(&[(check, 500)]), "{own} {above}");
        if let Some(group) = expected {
            let proof = format!("cgroup {group}, of unbound1 (pid 812)");
            let source = &findings[0].evidence[1].source;
            assert!(source.ends_with(&proof), "{source}");
            let what = &findings[0].what;
            assert!(what.contains(&format!("cgroup {group} held")), "{what}");
        }
    }
    // A group that the program joined meanwhile counted for others.
    set(&mut after, &[("/pod/c", 200, 7), ("/other", 1000, 900)]);
    assert_eq!(found(&before, &after), is(&[("socket_buffer", 500)]));
}

/// The findings about a group of sockets at one port, each with these losses.
fn group(drops: &[u32]) -> Vec<(String, u64)> {
    let sockets = |drops: &[u32]| {
        let numbered = (1..).zip(drops);
        numbered
            .map(|(inode, &drops)| socket("0.0.0.0:53", inode, drops))
            .collect()
    };
    let before = Observation {
        sockets: sockets(&vec![0; drops.len()]),
        ..host(&[])
    };
    let after = later(Observation {
        sockets: sockets(drops),
        ..host(&[])
    });
    found(&before, &after)
}

#[test]
fn an_uneven_group_is_told_as_one() {
    assert_eq!(group(&[100, 0, 0, 0]), is(&[("reuseport_uneven", 100)]));
    assert_eq!(group(&[60, 60, 0, 0]), is(&[("reuseport_uneven", 120)]));
    // All lose, alike or not: each is too slow for itself.
    let each = |drops: &[u64]| {
        let each = drops.iter().map(|&drops| ("socket_buffer", drops));
        is(&each.collect::<Vec<_>>())
    };
    assert_eq!(group(&[400, 90, 80, 70]), each(&[400, 90, 80, 70]));
    assert_eq!(
        group(&[70, 60, 60, 0]),
        each(&[70, 60, 60]),
        "the most is below twice the mean"
    );
    assert_eq!(
        group(&[99, 0, 0, 0]),
        each(&[99]),
        "too few to judge shares by"
    );
    assert_eq!(group(&[500]), each(&[500]));
}

/// If one program of a group does not read, the hash is not at fault.
#[test]
fn a_group_of_which_one_does_not_read_is_not_uneven() {
    let at = |drops, run_ms: u64, stopped| {
        let mut facts = host(&[]);
        facts.sockets = vec![socket("0.0.0.0:53", 1, drops), socket("0.0.0.0:53", 2, 0)];
        facts.sockets[0].queued_bytes = drops * 700;
        for (inode, pid, run_ms, stopped) in [(1, 901, 0, stopped), (2, 902, run_ms, false)] {
            let process = Process {
                pid,
                stopped,
                ..owner(1 + run_ms * 1_000_000, 0)
            };
            has(&mut facts, inode, process);
        }
        facts
    };
    for (run_ms, stopped, expected) in [
        (100, true, "socket_buffer"),
        (100, false, "socket_buffer"),
        (1, false, "socket_buffer"),
    ] {
        let (before, after) = (at(0, 0, false), later(at(300, run_ms, stopped)));
        let expected = is(&[(expected, 300)]);
        assert_eq!(found(&before, &after), expected, "{run_ms} {stopped}");
    }
}

#[test]
fn what_found_no_socket_is_told_with_the_sockets_there_are() {
    let drops = [dropped("NO_SOCKET", 40)];
    let counters = |count| host(&[("Udp.NoPorts", count)]);
    let ask = |sockets: Vec<UdpEntry>| {
        let before = Observation {
            sockets: sockets.clone(),
            ..counters(0)
        };
        let after = later(Observation {
            sockets,
            ..counters(90)
        });
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(Some(53)));
        told(&findings(&seen))
    };
    assert_eq!(ask(vec![]), is(&[("no_listener", 40)]), "90 are of all");
    let other = socket("10.0.0.1:53", 1, 0);
    assert_eq!(ask(vec![other]), is(&[("listener_elsewhere", 40)]));
    let v6 = UdpEntry {
        only_v6: true,
        ..socket("[::]:53", 2, 0)
    };
    assert_eq!(ask(vec![v6.clone()]), is(&[("listener_elsewhere", 40)]));
    // With one for each family what found none came earlier.
    let v4 = socket("0.0.0.0:53", 3, 0);
    assert_eq!(ask(vec![v6.clone(), v4]), is(&[("no_listener", 40)]));
    let both = UdpEntry {
        only_v6: false,
        ..v6
    };
    assert_eq!(ask(vec![both.clone()]), is(&[("no_listener", 40)]));
    let bound = UdpEntry {
        interface: 3,
        ..both.clone()
    };
    assert_eq!(ask(vec![bound]), is(&[("listener_elsewhere", 40)]));
    let elsewhere = socket("10.0.0.1:54", 3, 0);
    assert_eq!(ask(vec![elsewhere]), is(&[("no_listener", 40)]));
    // Without drop reasons the count is of all ports. It may be of other ports.
    for (sockets, expected) in [
        (vec![], Some((90, Confidence::Possible))),
        (vec![both], Some((90, Confidence::Possible))),
    ] {
        let at = |count| Observation {
            sockets: sockets.clone(),
            ..counters(count)
        };
        let (before, after) = (at(0), later(at(90)));
        let found = findings(&Observed::new(&before, &after, None, asked(Some(53))));
        let told = found.first().map(|one| (one.count, one.confidence));
        assert_eq!(told, expected);
    }
}

#[test]
fn what_else_a_socket_drops_is_no_full_buffer() {
    for (full, others, expected) in [
        (0, [500, 0, 0], &[("drop_reason", 500)][..]),
        (0, [0, 500, 0], &[("checksum", 500)]),
        (0, [0, 0, 500], &[("udp_memory", 500)]),
        (
            400,
            [0, 100, 0],
            &[("socket_buffer", 400), ("checksum", 100)],
        ),
        (500, [0, 0, 0], &[("socket_buffer", 500)]),
        // Linux 6.18 counts nothing for what its lockless queue found no memory for.
        (0, [0, 0, 0], &[("udp_memory", 500)]),
        (
            400,
            [0, 0, 0],
            &[("socket_buffer", 400), ("udp_memory", 100)],
        ),
        (497, [0, 0, 0], &[("socket_buffer", 500)]),
    ] {
        let counters = |full, checksum, memory| {
            let counters = [
                ("Udp.RcvbufErrors", full),
                ("Udp6.InCsumErrors", checksum),
                ("Udp.MemErrors", memory),
            ];
            host(&counters).snapshot.snmp
        };
        let (mut before, mut after) = starved(4, 0);
        let [filtered, checksum, memory] = others;
        before.snapshot.snmp = counters(0, 0, 0);
        after.snapshot.snmp = counters(full, checksum, memory);
        let drops = [dropped("SOCKET_FILTER", filtered)];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(None));
        assert_eq!(told(&findings(&seen)), is(expected), "{others:?}");
    }
}

#[test]
fn full_buffers_of_sockets_that_are_gone_are_told() {
    let counters = |full| host(&[("Udp.RcvbufErrors", full)]);
    for (full, expected) in [(100, &[("socket_gone", 100)][..]), (99, &[])] {
        assert_eq!(found(&counters(0), &later(counters(full))), is(expected));
    }
    let (mut before, mut after) = starved(4, 0);
    before.snapshot.snmp = counters(0).snapshot.snmp;
    after.snapshot.snmp = counters(700).snapshot.snmp;
    let expected = is(&[("socket_buffer", 500), ("socket_gone", 200)]);
    assert_eq!(found(&before, &after), expected);
}

#[test]
fn threads_that_share_a_socket_are_told_where_they_are_busy() {
    let thread = |run_ms: u64, wait_ms: u64| crate::facts::ThreadTime {
        run_ns: run_ms * 1_000_000,
        wait_ns: wait_ms * 1_000_000,
        turns: 10,
        cpu: Some(3),
        priority: Some(20),
    };
    let ask = |first: (u64, u64), second: (u64, u64)| {
        let (mut before, mut after) = starved(first.0, first.1);
        let threads = |facts: &mut Observation, time| {
            let process = facts.processes.get_mut(&812).expect("it is there");
            process.threads.insert(813, time);
        };
        threads(&mut before, thread(0, 0));
        threads(&mut after, thread(second.0, second.1));
        (before, after)
    };
    for (first, second, check) in [
        ((900, 0), (200, 0), "shared_socket"),
        ((900, 0), (199, 0), "socket_buffer"),
        ((700, 220), (300, 0), "shared_socket"),
        // It lacks a CPU, or another thread than the busiest does.
        ((600, 300), (300, 0), "socket_buffer"),
        ((600, 0), (500, 400), "socket_buffer"),
    ] {
        let (before, after) = ask(first, second);
        assert_eq!(
            found(&before, &after),
            is(&[(check, 500)]),
            "{first:?} {second:?}"
        );
    }
    // Another socket takes its part.
    let (mut before, mut after) = ask((900, 0), (900, 0));
    for facts in [&mut before, &mut after] {
        facts.sockets.push(socket("0.0.0.0:53", 4712, 0));
        has(facts, 4712, owner(0, 0));
    }
    let checks = found(&before, &after);
    assert!(
        checks.iter().all(|(check, _)| check != "shared_socket"),
        "{checks:?}"
    );
}

/// The same, with the queue full at both looks.
fn always_full(run_ms: u64, wait_ms: u64) -> (Observation, Observation) {
    let (mut before, after) = starved(run_ms, wait_ms);
    before.sockets[0].queued_bytes = 212_992;
    (before, after)
}

fn first(before: &Observation, after: &Observation) -> super::Finding {
    findings(&Observed::new(before, after, None, asked(None))).remove(0)
}

/// A reader that a timer wakes empties the queue each time. A reader that sleeps after each datagram does not.
#[test]
fn a_queue_that_is_emptied_at_times_needs_room() {
    for (turns, read, has_room) in [(4, 848, false), (848, 848, true), (40, 848, true)] {
        let (mut before, mut after) = always_full(4, 0);
        let owner = after.processes.get_mut(&812).expect("it is there");
        owner
            .threads
            .values_mut()
            .for_each(|one| one.turns += turns);
        for (facts, read) in [(&mut before, 0), (&mut after, read)] {
            facts.snapshot.snmp = host(&[("Udp.InDatagrams", read)]).snapshot.snmp;
        }
        let found = first(&before, &after);
        let of_timer = found.remedy.contains("or to bridge these waits: SO_RCVBUF");
        assert_eq!(of_timer, !has_room, "{turns}: {found:#?}");
        assert_eq!(found.what.contains("only delays"), has_room, "{found:#?}");
    }
}

/// A larger buffer helps against bursts. It does not help a reader that is slower than its traffic.
#[test]
fn a_queue_that_stays_full_is_no_burst() {
    let with_counter = |facts: &mut Observation, read| {
        facts.snapshot.snmp = host(&[("Udp.InDatagrams", read)]).snapshot.snmp;
    };
    for (run_ms, wait_ms, read, words) in [
        (30, 0, 125, "the program reads 125/s of 625/s"),
        (30, 40, 125, "sleeps or waits while datagrams wait"),
        // It slept before the flood began, and waited for its CPU since.
        (200, 660, 125, "lacked a CPU for 77 %"),
        // With the policy SCHED_IDLE.
        (4, 990, 125, "lacked a CPU for 100 %"),
        (100, 180, 125, "sleeps or waits while datagrams wait"),
        (4, 0, 0, "does not read it"),
        (4, 300, 0, "does not read it"),
        // Reading ten a second takes no time to speak of.
        (4, 0, 10, "the program reads 10/s of 510/s"),
        (500, 450, 125, "lacked a CPU for 47 %"),
        (950, 0, 125, "too slow"),
    ] {
        let (mut before, mut after) = always_full(run_ms, wait_ms);
        with_counter(&mut before, 0);
        with_counter(&mut after, read);
        let found = first(&before, &after);
        assert!(found.what.contains(words), "{run_ms}: {}", found.what);
        assert!(!found.what.contains("too small"), "{}", found.what);
    }
    let (mut before, mut after) = always_full(30, 0);
    with_counter(&mut before, 0);
    with_counter(&mut after, 125);
    let found = first(&before, &after);
    assert!(!found.remedy.contains("SO_RCVBUF"), "{}", found.remedy);
    assert!(
        found.what.contains("only delays the loss"),
        "{}",
        found.what
    );
    // Another socket reads, too.
    after.sockets.push(socket("0.0.0.0:67", 9, 0));
    let found = first(&before, &after);
    assert!(
        found.what.contains("reads less than comes"),
        "{}",
        found.what
    );
    // The owner is not seen, and the queue is.
    after.owners.clear();
    let found = first(&before, &after);
    assert!(found.what.contains("stayed full"), "{}", found.what);
    assert!(found.remedy.contains("as root, mpps doctor shows how long"));
    after.sees_owners = true;
    let found = first(&before, &after);
    assert!(!found.remedy.contains("as root"), "{}", found.remedy);
}

/// Several looks in between count more than two looks.
#[test]
fn the_course_of_a_queue_tells_bursts() {
    let course = |looks: &[(u32, u32)]| {
        let at = |&(drops, queued_bytes): &(u32, u32)| UdpEntry {
            queued_bytes,
            ..socket("0.0.0.0:53", 4711, drops)
        };
        let mut courses = QueueCourse::begin(&[at(&(10, 0))]);
        looks
            .iter()
            .for_each(|look| QueueCourse::add(&mut courses, &[at(look)]));
        courses
    };
    let full = 212_992;
    for (looks, words, remedy) in [
        (
            &[(110, full), (310, full), (510, full)][..],
            "stayed full",
            "no sleep",
        ),
        // The reader emptied it, and twice 250 did not fit.
        (
            &[(260, full), (260, 0), (260, 0), (510, full), (510, full)],
            "too small for the bursts",
            "SO_RCVBUF of 1048576 bytes",
        ),
        // One burst of 500, which is still there.
        (
            &[(510, full), (510, full), (510, full)],
            "too small for the bursts",
            "SO_RCVBUF of 2097152 ",
        ),
        // Hundred at each look.
        (
            &[(110, 0), (210, full), (310, 0), (410, 0), (510, full)],
            "too small for the bursts",
            "SO_RCVBUF of 524288 bytes in the program's setsockopt or its configuration (the kernel then \
             shows twice that, 1048576)",
        ),
        // Too few looks: both ends count.
        (&[(510, full)], "stayed full", "no sleep"),
    ] {
        // It waited for a CPU far less than it slept beside a full queue.
        for wait_ms in [0, 100] {
            let (before, mut after) = always_full(30, wait_ms);
            after.queues = course(looks);
            let found = first(&before, &after);
            let told = format!("{looks:?}: {} {}", found.what, found.remedy);
            assert!(found.what.contains(words), "{told}");
            assert!(found.remedy.contains(remedy), "{told}");
        }
    }
}

/// It computes for 600 ms of each second, and datagrams come on; a burst is over at once.
#[test]
fn a_reader_that_is_away_has_no_bursts() {
    let words = "away for about 600 ms at a time";
    let at = |drops, queued_bytes| UdpEntry {
        queued_bytes,
        ..socket("0.0.0.0:53", 4711, drops)
    };
    // It waits for a CPU in turns, each far shorter than it is away, or once for long.
    for (drops, [run_ms, wait_ms], turns, told) in [
        ([170, 340, 510], [520, 40], 0, words),
        ([510, 510, 510], [520, 40], 0, "bursts"),
        ([170, 340, 510], [520, 300], 1000, words),
        ([170, 340, 510], [520, 300], 0, "lacked a CPU"),
        ([170, 340, 510], [200, 600], 1000, "lacked a CPU"),
        ([510, 510, 510], [20, 100], 5000, "bursts"),
    ] {
        let (mut before, mut after) = starved(run_ms, wait_ms);
        let process = after.processes.get_mut(&812).expect("it is there");
        let threads = process.threads.values_mut();
        threads.for_each(|time| time.turns += turns);
        before.sockets[0].queued_bytes = 0;
        let mut courses = QueueCourse::begin(&[at(10, 0)]);
        let looks = [(10, 0), (drops[0], 212_992), (drops[1], 212_992)];
        for (drops, queued) in looks.into_iter().chain([(drops[2], 212_992), (510, 0)]) {
            QueueCourse::add(&mut courses, &[at(drops, queued)]);
        }
        after.queues = courses;
        let found = first(&before, &after);
        assert!(found.what.contains(told), "{found:#?}");
        assert!(found.remedy.contains("SO_RCVBUF"), "{found:#?}");
    }
}

/// Its CPU is named with those who have it, and a CPU that is idle.
#[test]
fn a_lack_of_a_cpu_is_told_with_its_holders() {
    let (mut before, mut after) = starved(100, 180);
    let load = |ticks, cpu| ProcessLoad {
        name: "unbound-spin".to_owned(),
        ticks,
        priority: 20,
        cpus: [cpu].into(),
    };
    before.loads = [(7, load(100, 3)), (8, load(0, 3)), (9, load(0, 2))].into();
    after.loads = [
        (7, load(160, 3)),
        (8, load(4, 3)),
        (9, load(90, 2)),
        (812, load(10, 3)),
    ]
    .into();
    for (busy, words) in [
        (["10", "90"], "taskset -pc 1 812 (CPU 1 was 10 % busy)"),
        (
            ["60", "40"],
            "no other CPU is idle (the least busy, CPU 1, was 60 % busy)",
        ),
        (["", ""], "there is no other CPU"),
    ] {
        let [one, rest] = busy;
        let stat = |user: &str, idle: &str| match user {
            "" => String::new(),
            _ => format!("cpu1 {user} 0 0 {idle} 0 0 0 0 0 0\n"),
        };
        let three = |ticks| format!("cpu3 {ticks} 0 0 0 0 0 0 0 0 0");
        let idle = match one {
            "" => String::new(),
            _ => stat("0", "0"),
        };
        before.cpus = ProcStat::parse(&(idle + &three(0))).expect("lines");
        after.cpus = ProcStat::parse(&(stat(one, rest) + &three(100))).expect("lines");
        let found = first(&before, &after);
        assert!(
            found
                .why
                .contains("ran 10 %, waited for a CPU 18 % and slept 72 %")
        );
        assert!(found.what.contains("180.0 ms at a time"), "{}", found.what);
        let holders = "CPU 3 was also used by unbound-spin (pid 7) 60 %";
        assert!(found.why.ends_with(holders), "{}", found.why);
        assert!(found.remedy.contains(words), "{}", found.remedy);
    }
}

/// In a group, the socket whose own reader or buffer differs is no matter of flows.
#[test]
fn one_socket_of_a_group_that_differs_is_told() {
    let ask = |change: fn(&mut Observation, &mut Observation)| {
        let (mut before, mut after) = always_full(300, 0);
        for facts in [&mut before, &mut after] {
            facts.sockets.push(socket("0.0.0.0:53", 2, 0));
            facts.owners.insert(2, vec![812]);
        }
        change(&mut before, &mut after);
        let found = findings(&Observed::new(&before, &after, None, asked(None))).remove(0);
        (found.check, format!("{}: {}", found.what, found.why))
    };
    let stopped = |facts: &mut Observation| {
        let child = Process {
            pid: 900,
            stopped: true,
            ..owner(1, 0)
        };
        has(facts, 4711, child);
    };
    let (check, what) = ask(|_, _| ());
    assert_eq!(check, "socket_buffer", "a thread that hangs: {what}");
    assert!(
        what.ends_with("1 more at that address lost nothing, so this one's own reader differs"),
        "{what}"
    );
    let (check, what) = ask(|before, _| before.sockets[0].queued_bytes = 0);
    assert_eq!(check, "reuseport_uneven", "{what}");
    let (check, what) = ask(|before, after| {
        before.sockets[0].queued_bytes = 0;
        after.sockets[0].buffer_bytes = 416;
    });
    assert_eq!(check, "socket_buffer", "{what}");
    assert!(
        what.contains("have buffers of up to 212992 bytes"),
        "{what}"
    );
    let (mut before, mut after) = starved(300, 0);
    for facts in [&mut before, &mut after] {
        stopped(facts);
        facts.sockets.push(socket("0.0.0.0:53", 2, 0));
    }
    let found = first(&before, &after);
    assert!(
        found.what.contains("a process that has it is stopped"),
        "{}",
        found.what
    );
    assert!(
        found.why.contains("unbound1 (pid 900, stopped)"),
        "{}",
        found.what
    );
    assert_eq!(found.remedy, "kill -CONT 900");
    // A reader at its limit has no socket to share with the stopped one.
    after.processes.get_mut(&812).expect("it is there").threads = owner(SECOND, 0).threads;
    let found = first(&before, &after);
    assert_eq!(
        (&*found.check, found.confidence),
        ("reuseport_uneven", Confidence::Possible)
    );
}
