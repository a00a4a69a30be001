//! Sockets whose owner, partner or interface explains a loss.

use super::sockets::starved;
use super::*;
use crate::CpuList;
use crate::facts::{JoinedGroup, ProcessLoad, QueueCourse};

/// The finding about these two moments of port 53.
fn first(before: &Observation, after: &Observation) -> Finding {
    findings(&Observed::new(before, after, None, asked(Some(53)))).remove(0)
}

/// Has all words of the first list and none of the second.
fn says(found: &Finding, words: &[&str], never: &[&str]) {
    let text = format!("{} {} {}", found.what, found.why, found.remedy);
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
    for word in never {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

/// Two sockets at one address, the last bound first: that of 1, and that of 2.
fn two(shares: Option<[bool; 2]>, groups: [u32; 2]) -> (Observation, Observation) {
    let at = |read| {
        let mut facts = host(&[("Udp.InDatagrams", read)]);
        for (inode, group) in (1..).zip(groups) {
            facts.sockets.push(socket("0.0.0.0:53", inode, 0));
            let process = Process {
                pid: inode,
                group,
                ..owner(1, 0)
            };
            has(&mut facts, inode, process);
        }
        facts.port_sharing = (1..).zip(shares.into_iter().flatten()).collect();
        facts
    };
    (at(0), later(at(10)))
}

#[test]
fn the_last_of_two_sockets_gets_all_unless_they_share() {
    let of = |shares, groups, pid, joins: bool| {
        let (before, mut after) = two(shares, groups);
        after.groups.extend(joins.then(|| JoinedGroup {
            interface: "eth0".to_owned(),
            group: [239, 1, 1, 1].into(),
            only_from: Vec::new(),
        }));
        let port = if pid == 0 { Some(53) } else { None };
        let request = DoctorRequest {
            pid: (pid > 0).then_some(pid),
            ..asked(port)
        };
        let found = findings(&Observed::new(&before, &after, None, request));
        found.first().map(|one| (one.is_remark, one.what.clone()))
    };
    let starved = "unbound1 (pid 2) gets no datagram that comes to one address, because unbound1 (pid 1) bound";
    for (shares, groups, pid, joins, expected) in [
        // Also two programs that one script started.
        (
            Some([false, false]),
            [7, 7],
            0,
            false,
            Some((true, starved)),
        ),
        (Some([false, true]), [7, 7], 0, false, Some((true, starved))),
        (
            Some([false, false]),
            [7, 7],
            2,
            false,
            Some((false, starved)),
        ),
        // Copies of groups reach both.
        (Some([false, false]), [7, 7], 2, true, Some((true, starved))),
        (
            Some([false, false]),
            [7, 7],
            1,
            false,
            Some((true, starved)),
        ),
        (Some([true, true]), [7, 7], 0, false, None),
        (None, [7, 7], 0, false, None),
        (
            Some([true, true]),
            [7, 8],
            0,
            false,
            Some((true, "2 programs have UDP 0.0.0.0:53")),
        ),
        (
            None,
            [7, 8],
            0,
            false,
            Some((true, "2 programs have UDP 0.0.0.0:53")),
        ),
    ] {
        let found = of(shares, groups, pid, joins);
        let case = format!("{shares:?} {groups:?} {pid} {joins}: {found:?}");
        assert_eq!(found.is_some(), expected.is_some(), "{case}");
        let fits = found.zip(expected);
        assert!(
            fits.is_none_or(|((is, what), (remark, words))| is == remark && what.contains(words)),
            "{case}"
        );
    }
}

#[test]
fn one_socket_that_two_processes_have_is_one() {
    let (mut before, mut after) = two(None, [7, 8]);
    for facts in [&mut before, &mut after] {
        facts.sockets.pop();
        facts.owners = [(1, vec![1, 2])].into();
    }
    let seen = Observed::new(&before, &after, None, asked(Some(53)));
    assert_eq!(told(&findings(&seen)), is(&[]));
}

/// Sockets of the port that take none of what comes there.
#[test]
fn sockets_that_cannot_hear_have_the_remedy_of_their_kind() {
    let bind = "bind the program to the address";
    let gone = UdpEntry {
        interface: 3,
        ..socket("0.0.0.0:53", 1, 0)
    };
    let connected = UdpEntry {
        remote: Some("10.0.0.9:69".parse().expect("an address")),
        ..socket("10.0.0.1:53", 2, 0)
    };
    let here = UdpEntry {
        interface: 2,
        ..gone.clone()
    };
    let drops = [dropped("NO_SOCKET", 40)];
    let restart = "restart the program";
    let partner = "a connected socket takes only";
    for (sockets, words, never, confidence) in [
        (
            vec![gone.clone()],
            &["interface number 3, which is gone", restart][..],
            &[bind, partner][..],
            Confidence::Certain,
        ),
        (
            vec![connected.clone()],
            &["(only from 10.0.0.9:69)", partner],
            &[bind, restart],
            Confidence::Likely,
        ),
        (
            vec![here.clone()],
            &["only at eth0", bind],
            &[restart, partner],
            Confidence::Likely,
        ),
        (
            vec![gone, connected],
            &[restart, partner],
            &[bind],
            Confidence::Likely,
        ),
    ] {
        let at = |count| {
            let mut facts = host(&[("Udp.NoPorts", count)]);
            let (name, index) = ("eth0".to_owned(), 2);
            facts.links = vec![NetlinkLink {
                name,
                index,
                ..NetlinkLink::default()
            }];
            facts.sockets.clone_from(&sockets);
            facts
        };
        let (before, after) = (at(0), later(at(40)));
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(Some(53)));
        let found = findings(&seen).remove(0);
        assert_eq!(
            (&*found.check, found.confidence),
            ("listener_elsewhere", confidence)
        );
        says(&found, words, never);
    }
}

/// A resolver here asks port 53 of another host, which answers from another of its addresses.
#[test]
fn answers_for_connected_sockets_belong_to_the_port_that_was_asked() {
    for (partners, told_of) in [
        (["10.9.0.3:53", "10.9.0.3:53"], "no_listener"),
        (["10.9.0.3:99", "10.9.0.3:99"], "not_asked"),
        (["10.9.0.3:53", "10.9.0.4:53"], "not_asked"),
        (["10.9.0.3:53", "10.9.0.4:99"], "no_listener"),
    ] {
        let at = |count| {
            let mut facts = host(&[("Udp.NoPorts", count), ("Udp.InDatagrams", count)]);
            facts.sockets = vec![socket("10.9.0.1:53", 1, 0)];
            let asks = (2..).zip(partners).map(|(inode, partner)| UdpEntry {
                remote: partner.parse().ok(),
                ..socket("10.9.0.1:4000", inode, 0)
            });
            facts.sockets.extend(asks);
            facts
        };
        let (before, after) = (at(0), later(at(40)));
        let seen = Observed::new(&before, &after, Some((&[], &[], 1)), asked(Some(53)));
        let found = &findings(&seen)[0];
        assert_eq!(found.check, told_of, "{found:#?}");
        let is_answer = found.what.contains(" for answers of 10.9.0.3:53 only");
        assert_eq!(is_answer, told_of == "no_listener", "{found:#?}");
        assert_eq!(found.is_remark, !is_answer, "{found:#?}");
    }
}

#[test]
fn a_port_that_is_opened_again_and_again_has_its_program() {
    for (new, stays, is_reopened) in [(25, false, true), (2, false, false), (25, true, false)] {
        let at = |count, inode| {
            let mut facts = host(&[("Udp.NoPorts", count), ("Ip.InDelivers", 2 * count)]);
            facts.sockets = vec![socket("0.0.0.0:53", inode, 0)];
            facts.new_sockets = new;
            facts
        };
        let (before, after) = (at(0, 1), later(at(40, if stays { 1 } else { 9 })));
        let closed = DropCount {
            netns: 0,
            ..dropped("QUEUE_PURGE", 40)
        };
        let drops = [dropped("NO_SOCKET", 40), closed];
        let seen = Observed::new(&before, &after, Some((&[], &drops, 1)), asked(Some(53)));
        let found = findings(&seen);
        assert_eq!(
            told(&found),
            is(&[("no_listener", 40), ("closed_unread", 40)])
        );
        for one in &found {
            let words = ["came and went meanwhile", "open one socket, keep it"];
            match is_reopened {
                true => says(one, &words, &["start the program that serves"]),
                false => says(one, &[], &words),
            }
        }
    }
}

#[test]
fn a_program_that_does_not_read_has_a_reason() {
    let look = |change: &dyn Fn(&mut Observation)| {
        let (mut before, mut after) = starved(0, 0);
        before.snapshot.snmp = host(&[("Udp.RcvbufErrors", 0)]).snapshot.snmp;
        after.snapshot.snmp = host(&[("Udp.RcvbufErrors", 500)]).snapshot.snmp;
        // Its threads are known to be idle.
        for facts in [&mut before, &mut after] {
            let process = facts.processes.get_mut(&812).expect("it is there");
            process.threads.values_mut().for_each(|one| one.run_ns += 1);
            change(facts);
        }
        first(&before, &after)
    };
    let frozen = |thaw: &'static str| {
        look(&|facts| {
            let process = facts.processes.get_mut(&812).expect("it is there");
            process.frozen = Some(thaw.to_owned());
        })
    };
    let thaw = "echo 0 > /sys/fs/cgroup/a/cgroup.freeze";
    says(
        &frozen(thaw),
        &["the program is frozen", "docker unpause", thaw],
        &["wchan", "kill"],
    );
    assert_eq!(frozen("").confidence, Confidence::Certain);
    says(&frozen(""), &["cat /proc/812/cgroup"], &["echo"]);
    // Another program, or one with a parent, reads a socket at the same address.
    let beside = |name: &'static str, parents: [u32; 2]| {
        look(&move |facts| {
            facts.processes.get_mut(&812).expect("it is there").parent = parents[0];
            facts.sockets.push(socket("0.0.0.0:53", 2, 0));
            let reader = Process {
                pid: 900,
                name: name.to_owned(),
                parent: parents[1],
                ..owner(1, 0)
            };
            has(facts, 2, reader);
        })
    };
    let left = ["left over", "kill 812", "SOCK_CLOEXEC"];
    says(&beside("nsd", [1, 1]), &left, &["wchan"]);
    says(&beside("unbound1", [1, 900]), &left, &["wchan"]);
    says(&beside("unbound1", [5, 5]), &["does not read it"], &left);
    // It is connected to one client.
    let connected = look(&|facts| {
        facts.sockets[0].remote = Some("10.0.0.9:5555".parse().expect("an address"));
        let process = facts.processes.get_mut(&812).expect("it is there");
        process.waits = [(812, "ep_poll".to_owned())].into();
    });
    says(
        &connected,
        &[
            "(connected to 10.0.0.9:5555) of unbound1",
            "gets all datagrams from 10.0.0.9:5555",
            "slept in ep_poll",
        ],
        &left,
    );
}

#[test]
fn a_reader_that_waits_elsewhere_does_not_hold_its_socket_for_another() {
    for (wait, words) in [
        ("wait_woken", "Send-Q"),
        ("anon_pipe_write", "have that pipe read"),
        ("poll_schedule_timeout.constprop.0", "dst :53"),
        ("hrtimer_nanosleep", "holds the socket for another"),
    ] {
        let (mut before, mut after) = starved(0, 0);
        for facts in [&mut before, &mut after] {
            let process = facts.processes.get_mut(&812).expect("it is there");
            process.threads.values_mut().for_each(|one| one.run_ns += 1);
            process.waits = [(812, wait.to_owned())].into();
        }
        let is_known = wait != "hrtimer_nanosleep";
        let never = ["holds the socket for another"];
        says(
            &first(&before, &after),
            &[words],
            &never[..usize::from(is_known)],
        );
    }
}

/// A real-time program took most of the CPU that soft interrupts used, too.
#[test]
fn a_program_that_goes_first_is_told_before_soft_interrupts() {
    for (priority, check) in [(-51, "socket_buffer"), (20, "shared_cpu")] {
        let (mut before, mut after) = starved(20, 960);
        let load = |ticks| ProcessLoad {
            name: "hog".to_owned(),
            ticks,
            priority,
            cpus: [3].into(),
        };
        (before.loads, after.loads) = ([(7, load(0))].into(), [(7, load(60))].into());
        let cpus = |user, softirq| {
            ProcStat::parse(&format!("cpu3 {user} 0 0 0 0 0 {softirq} 0 0 0")).expect("a line")
        };
        (before.cpus, after.cpus) = (cpus(0, 0), cpus(74, 26));
        let found = first(&before, &after);
        assert_eq!(found.check, check, "{found:#?}");
    }
}

/// The thread may use only one CPU, or another goes before it there.
#[test]
fn a_thread_that_lacks_a_cpu_by_its_settings_has_them_as_remedy() {
    let add = "add CPUs";
    for (allowed, own, rival, words, never) in [
        (
            vec![0, 1, 3],
            20,
            20,
            &["no other CPU is idle", add][..],
            &["taskset", "renice", "chrt"][..],
        ),
        (
            vec![3],
            20,
            20,
            &["it may use only CPU 3", "taskset -pc 0-1,3 812"],
            &[add, "renice"],
        ),
        (
            vec![0, 1, 3],
            25,
            10,
            &[
                "its nice value is 5, that of hog (pid 7) is -10",
                "renice -n -10 -p 812",
            ],
            &[add, "taskset"],
        ),
        (
            vec![0, 3],
            25,
            10,
            &["CPUs 0,3, and its nice value is 5", "; or renice"],
            &[add],
        ),
        (
            vec![0, 1, 3],
            20,
            -51,
            &["real-time priority", "chrt -o -p 0 7"],
            &[add, "renice"],
        ),
        // A hog that goes behind it is not to blame.
        (vec![0, 1, 3], 20, 39, &[add], &["renice"]),
    ] {
        let (mut before, mut after) = starved(20, 960);
        let load = |ticks| ProcessLoad {
            name: "hog".to_owned(),
            ticks,
            priority: rival,
            cpus: [3].into(),
        };
        (before.loads, after.loads) = ([(7, load(0))].into(), [(7, load(60))].into());
        let cpus = |busy: u32| {
            let lines = [0, 1, 3].map(|cpu| format!("cpu{cpu} {busy} 0 0 0 0 0 0 0 0 0"));
            ProcStat::parse(&lines.join("\n")).expect("lines")
        };
        (before.cpus, after.cpus) = (cpus(0), cpus(100));
        let process = after.processes.get_mut(&812).expect("it is there");
        process.allowed = [(812, CpuList(allowed))].into();
        process
            .threads
            .values_mut()
            .for_each(|one| one.priority = Some(own));
        says(&first(&before, &after), words, never);
    }
}

/// Steady traffic, and a reader that waits for two seconds at a time.
#[test]
fn a_reader_that_waits_for_something_besides_its_socket_has_no_bursts() {
    let (mut before, mut after) = starved(30, 20);
    before.sockets[0].queued_bytes = 0;
    let at = |drops, queued_bytes| UdpEntry {
        queued_bytes,
        ..socket("0.0.0.0:53", 4711, drops)
    };
    let mut courses = QueueCourse::begin(&[at(10, 0)]);
    for (drops, queued) in [
        (10, 0),
        (10, 150_000),
        (135, 212_992),
        (260, 212_992),
        (260, 0),
        (260, 150_000),
        (385, 212_992),
        (510, 212_992),
    ] {
        QueueCourse::add(&mut courses, &[at(drops, queued)]);
    }
    after.queues = courses;
    let words = [
        "waited for something besides this socket",
        "at 6 of 8 looks",
        "DNS",
        "SO_RCVBUF",
    ];
    says(&first(&before, &after), &words, &["bursts", "lacked a CPU"]);
}

#[test]
fn a_socket_that_waits_for_its_service_has_no_slow_reader() {
    let said = |holders: &[&str]| {
        let (mut before, mut after) = starved(0, 0);
        for facts in [&mut before, &mut after] {
            facts.owners.clear();
            facts.processes.clear();
        }
        for (at, name) in holders.iter().enumerate() {
            let of = |run_ns, read_ns| Process {
                pid: at as u32 + 1,
                name: (*name).to_owned(),
                read_ns,
                ..owner(run_ns, 0)
            };
            // The first of them is the busiest.
            has(&mut before, 4711, of(0, 0));
            has(
                &mut after,
                4711,
                of(if at == 0 { SECOND / 2 } else { 0 }, SECOND),
            );
        }
        let seen = Observed::new(&before, &after, None, asked(None));
        let found = findings(&seen).remove(0);
        format!("{} | {}", found.what, found.remedy)
    };
    for name in ["systemd", "systemd-socket-", "xinetd"] {
        let words = said(&[name]);
        assert!(words.contains("the service does not run"), "{words}");
        assert!(
            !words.contains("slow") && !words.contains("SO_RCVBUF"),
            "{words}"
        );
    }
    let running = said(&["systemd", "tftpd"]);
    assert!(running.contains("of tftpd (pid 2)"), "{running}");
    assert!(!running.contains("socket activation)"), "{running}");
}

/// Each datagram costs a query of DNS, and at the end it waits for the next event.
#[test]
fn a_reader_that_often_wakes_is_slow() {
    for (turns, words) in [
        (0, ["does not read it", "EAGAIN"]),
        (20, ["reads less than comes", "no sleep"]),
    ] {
        let (mut before, mut after) = starved(4, 0);
        for (facts, read) in [(&mut before, 0), (&mut after, 30)] {
            facts.snapshot.snmp = host(&[("Udp.InDatagrams", read)]).snapshot.snmp;
            facts.sockets.push(socket("0.0.0.0:67", 9, 0));
        }
        before.sockets[0].queued_bytes = 212_992;
        let process = after.processes.get_mut(&812).expect("it is there");
        process.waits = [(812, "do_epoll_wait".to_owned())].into();
        process
            .threads
            .values_mut()
            .for_each(|time| time.turns += turns);
        let found = first(&before, &after);
        let text = format!("{} {}", found.what, found.remedy);
        assert!(words.iter().all(|one| text.contains(one)), "{text}");
        assert_eq!(text.contains("EAGAIN"), turns == 0, "{text}");
    }
}
