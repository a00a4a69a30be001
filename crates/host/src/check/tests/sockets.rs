//! Sockets that lose, and the causes.

use super::scene::{Scene, mentions, tells};
use super::{SECOND, asked, findings, has, host, later, owner, reader, socket};
use crate::check::{DoctorRequest, Finding, Observed};
use crate::facts::{Observation, Process, ProcessLoad, QueueCourse, Quota};
use crate::{CpuList, ProcStat};
use mpps_os::netlink::sock_diag::UdpEntry;

/// A buffer of the usual size.
const FULL: u32 = 212_992;

/// The socket of the tests after these drops, with these bytes in its queue.
fn queue(drops: u32, queued_bytes: u32) -> UdpEntry {
    UdpEntry {
        queued_bytes,
        ..socket("0.0.0.0:53", 4711, drops)
    }
}

/// A socket that lost 500. Its owner's thread ran and waited for these milliseconds of a second.
pub(super) fn starved(run_ms: u64, wait_ms: u64) -> (Observation, Observation) {
    let at = |socket, process| {
        let mut facts = host(&[]);
        facts.sockets = vec![socket];
        has(&mut facts, 4711, process);
        facts
    };
    let before = at(queue(10, 0), owner(0, 0));
    let now = owner(run_ms * 1_000_000, wait_ms * 1_000_000);
    (before, later(at(queue(510, FULL), now)))
}

fn lossy(run_ms: u64, wait_ms: u64) -> Scene {
    Scene::of(starved(run_ms, wait_ms))
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
        let found = lossy(run_ms, wait_ms)
            .counting("Udp.RcvbufErrors 500")
            .found();
        tells(&found, "socket_buffer 500 likely alone");
        let name = "0.0.0.0:53 of unbound1 (pid 812)";
        mentions(&found[0].what, &format!("{name} | {words}"));
        assert!(found[0].why.starts_with("its busiest thread ran"));
    }
    let found = lossy(4, 0)
        .now(|after| reader(after).stopped = true)
        .found();
    mentions(&found[0].what, "is stopped");
    assert_eq!(found[0].remedy, "kill -CONT 812");
}

#[test]
fn a_queue_that_nobody_reads_is_told_before_it_is_full() {
    let look = |port, looks: usize, queued_bytes, read, is_seen| {
        let mut scene = Scene::grown(&format!("Udp.InDatagrams {read}")).port(port);
        scene.before.sockets = vec![queue(0, 0)];
        scene.after.sockets = vec![queue(0, queued_bytes)];
        let mut courses = QueueCourse::begin(&scene.before.sockets);
        (0..looks).for_each(|_| QueueCourse::add(&mut courses, &scene.after.sockets));
        scene.after.queues = courses;
        if is_seen {
            has(&mut scene.before, 4711, owner(0, 0));
            has(&mut scene.after, 4711, owner(4_000_000, 0));
            reader(&mut scene.after).read_ns = SECOND;
        }
        let mut found = scene.found();
        found.retain(|one| one.check == "socket_buffer");
        found
    };
    let unread = "socket_buffer: does not read 0.0.0.0:53 | 9000 bytes";
    tells(&look(Some(53), 10, 9000, 0, false), unread);
    tells(&look(Some(53), 10, 9000, 0, true), unread);
    // Others read, and its own reader sleeps.
    tells(&look(Some(53), 10, 9000, 7, true), unread);
    // Its reader may have read; the queue is empty; it is a moment; it was not asked for.
    for healthy in [
        look(Some(53), 10, 9000, 7, false),
        look(Some(53), 10, 0, 0, false),
        look(Some(53), 9, 9000, 0, false),
        look(None, 10, 9000, 0, false),
    ] {
        assert_eq!(healthy, []);
    }
}

#[test]
fn who_is_not_seen_is_not_judged() {
    let changes: [fn(&mut Observation); 3] = [
        |after| after.owners.clear(),
        // Another process with the socket is another program.
        |after| drop(after.owners.insert(4711, vec![9])),
        |after| reader(after).threads.clear(),
    ];
    for change in changes {
        lossy(900, 0)
            .now(change)
            .tells("socket_buffer possible: is not seen");
    }
}

/// A server that forks: the parent sleeps, and one of its children is reported.
#[test]
fn of_several_owners_the_busiest_is_told() {
    let child = |run_ms: u64, read_ns| Process {
        pid: 900,
        read_ns,
        ..owner(1 + run_ms * 1_000_000, 0)
    };
    let mut scene = lossy(0, 0);
    has(&mut scene.before, 4711, child(0, 0));
    has(&mut scene.after, 4711, child(950, SECOND));
    scene.tells("socket_buffer: pid 900 | too slow");
    // A stopped process, however busy it was, does not hide a running one, and may be the reader.
    scene
        .after
        .processes
        .get_mut(&900)
        .expect("it is there")
        .stopped = true;
    scene.tells("socket_buffer: unbound1 (pid 812) was full | (pid 900, stopped)");
}

#[test]
fn a_socket_that_is_new_lost_all_that_it_counts() {
    let mut scene = lossy(4, 0);
    scene.before.sockets.clear();
    scene.finds("socket_buffer 510");
    // Where they could not be listed, none is new.
    scene.before.are_sockets_unknown = true;
    scene.finds("");
}

#[test]
fn a_counter_of_a_socket_wraps() {
    let mut scene = lossy(4, 0);
    (scene.before.sockets[0].drops, scene.after.sockets[0].drops) = (u32::MAX - 4, 5);
    scene.finds("socket_buffer 10");
    // A socket that the kernel listed twice is one socket.
    let twice = scene.after.sockets[0].clone();
    scene
        .now(|after| after.sockets.push(twice))
        .finds("socket_buffer 10");
}

#[test]
fn a_port_or_a_process_hides_the_sockets_of_others() {
    lossy(900, 0).port(53).finds("socket_buffer 500");
    let others = lossy(900, 0).port(54).found();
    assert!(others.iter().all(|one| one.check != "socket_buffer"));
    for (pid, expected) in [(812, "socket_buffer 500"), (813, "")] {
        let asked = DoctorRequest {
            pid: Some(pid),
            ..asked(None)
        };
        lossy(900, 0).asking(asked).finds(expected);
    }
}

#[test]
fn a_cpu_that_is_shared_with_its_queue_explains_a_full_buffer() {
    for (stat, expected) in [
        ("cpu3 70 0 0 10 0 0 20 0 0 0", "shared_cpu 500"),
        ("cpu3 71 0 0 10 0 0 19 0 0 0", "socket_buffer 500"),
        ("cpu3 69 0 0 11 0 0 20 0 0 0", "socket_buffer 500"),
        ("cpu2 70 0 0 10 0 0 20 0 0 0", "socket_buffer 500"),
    ] {
        let mut scene = lossy(700, 300);
        let zero = format!("{} 0 0 0 0 0 0 0 0 0 0", &stat[..4]);
        scene.before.cpus = ProcStat::parse(&zero).expect("a line of a test");
        scene.after.cpus = ProcStat::parse(stat).expect("a line of a test");
        scene.finds(expected);
    }
}

#[test]
fn a_quota_explains_a_full_buffer() {
    let set = |facts: &mut Observation, quotas: &[(&str, u64, u64)]| {
        let quotas = quotas.iter().map(|&(group, periods, throttled)| Quota {
            group: group.to_owned(),
            periods,
            throttled,
            throttled_ns: throttled,
            ..Quota::default()
        });
        reader(facts).quotas = quotas.collect();
    };
    let mut scene = lossy(300, 0);
    set(&mut scene.before, &[("/pod/c", 100, 7), ("/pod", 900, 0)]);
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
        set(
            &mut scene.after,
            &[("/pod/c", 200, own), ("/pod", 1000, above)],
        );
        let found = scene.found();
        let Some(group) = expected else {
            tells(&found, "socket_buffer 500 alone");
            continue;
        };
        tells(&found, &format!("quota 500 alone: cgroup {group} held"));
        let proof = format!("cgroup {group}, of unbound1 (pid 812)");
        assert!(found[0].evidence[1].source.ends_with(&proof), "{found:#?}");
    }
    // A group that the program joined meanwhile counted for others.
    set(
        &mut scene.after,
        &[("/pod/c", 200, 7), ("/other", 1000, 900)],
    );
    scene.finds("socket_buffer 500");
}

#[test]
fn an_uneven_group_is_told_as_one() {
    for (drops, expected) in [
        (&[100, 0, 0, 0][..], "reuseport_uneven 100"),
        (&[60, 60, 0, 0], "reuseport_uneven 120"),
        // All lose, alike or not: each is too slow for itself.
        (
            &[400, 90, 80, 70],
            "socket_buffer 400, socket_buffer 90, socket_buffer 80, socket_buffer 70",
        ),
        // The most is below twice the mean.
        (
            &[70, 60, 60, 0],
            "socket_buffer 70, socket_buffer 60, socket_buffer 60",
        ),
        // Too few to judge shares by.
        (&[99, 0, 0, 0], "socket_buffer 99"),
        (&[500], "socket_buffer 500"),
    ] {
        let mut scene = Scene::grown("");
        for (inode, drops) in (1..).zip(drops) {
            scene.before.sockets.push(socket("0.0.0.0:53", inode, 0));
            scene
                .after
                .sockets
                .push(socket("0.0.0.0:53", inode, *drops));
        }
        scene.finds(expected);
    }
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
    for (run_ms, stopped) in [(100, true), (100, false), (1, false)] {
        let hosts = (at(0, 0, false), later(at(300, run_ms, stopped)));
        Scene::of(hosts).finds("socket_buffer 300");
    }
}

#[test]
fn what_found_no_socket_is_told_with_the_sockets_there_are() {
    let missed = Scene::grown("Udp.NoPorts 90").port(53);
    let with = |sockets: &[UdpEntry]| {
        missed
            .clone()
            .both(|facts| facts.sockets = sockets.to_vec())
    };
    let v6 = UdpEntry {
        only_v6: true,
        ..socket("[::]:53", 2, 0)
    };
    let both = UdpEntry {
        only_v6: false,
        ..v6.clone()
    };
    let bound = UdpEntry {
        interface: 3,
        ..both.clone()
    };
    let v4 = socket("0.0.0.0:53", 3, 0);
    for (sockets, expected) in [
        // The counter has those of all ports.
        (&[][..], "no_listener 40"),
        (&[socket("10.0.0.1:53", 1, 0)], "listener_elsewhere 40"),
        (std::slice::from_ref(&v6), "listener_elsewhere 40"),
        // With one for each family what found none came earlier.
        (&[v6.clone(), v4], "no_listener 40"),
        (std::slice::from_ref(&both), "no_listener 40"),
        (&[bound], "listener_elsewhere 40"),
        (&[socket("10.0.0.1:54", 3, 0)], "no_listener 40"),
    ] {
        with(sockets).drops("NO_SOCKET 40").finds(expected);
    }
    // Without drop reasons the count is of all ports. It may be of other ports.
    with(&[]).tells("no_listener 90 possible");
    let found = with(&[both]).found();
    assert_eq!(
        (found[0].count, found[0].confidence),
        (90, super::Confidence::Possible)
    );
}

#[test]
fn what_else_a_socket_drops_is_no_full_buffer() {
    for (full, [filtered, checksum, memory], expected) in [
        (0, [500, 0, 0], "drop_reason 500"),
        (0, [0, 500, 0], "checksum 500"),
        (0, [0, 0, 500], "udp_memory 500"),
        (400, [0, 100, 0], "socket_buffer 400, checksum 100"),
        (500, [0, 0, 0], "socket_buffer 500"),
        // Linux 6.18 counts nothing for what its lockless queue found no memory for.
        (0, [0, 0, 0], "udp_memory 500"),
        (400, [0, 0, 0], "socket_buffer 400, udp_memory 100"),
        (497, [0, 0, 0], "socket_buffer 500"),
    ] {
        let counters = format!(
            "Udp.RcvbufErrors {full}, Udp6.InCsumErrors {checksum}, Udp.MemErrors {memory}"
        );
        let scene = lossy(4, 0).counting(&counters);
        scene
            .drops(&format!("SOCKET_FILTER {filtered}"))
            .finds(expected);
    }
}

#[test]
fn full_buffers_of_sockets_that_are_gone_are_told() {
    Scene::grown("Udp.RcvbufErrors 100").finds("socket_gone 100");
    Scene::grown("Udp.RcvbufErrors 99").finds("");
    let some = lossy(4, 0).counting("Udp.RcvbufErrors 700");
    some.finds("socket_buffer 500, socket_gone 200");
}

#[test]
fn threads_that_share_a_socket_are_told_where_they_are_busy() {
    let ask = |first: (u64, u64), second: (u64, u64)| {
        let mut scene = lossy(first.0, first.1);
        let [zero, time] = [(0, 0), second].map(|(run_ms, wait_ms): (u64, u64)| {
            let of = owner(run_ms * 1_000_000, wait_ms * 1_000_000);
            of.threads[&812]
        });
        reader(&mut scene.before).threads.insert(813, zero);
        reader(&mut scene.after).threads.insert(813, time);
        scene
    };
    for (first, second, expected) in [
        ((900, 0), (200, 0), "shared_socket 500"),
        ((900, 0), (199, 0), "socket_buffer 500"),
        ((700, 220), (300, 0), "shared_socket 500"),
        // It lacks a CPU, or another thread than the busiest does.
        ((600, 300), (300, 0), "socket_buffer 500"),
        ((600, 0), (500, 400), "socket_buffer 500"),
    ] {
        ask(first, second).finds(expected);
    }
    // Another socket takes its part.
    let two = ask((900, 0), (900, 0)).both(|facts| {
        facts.sockets.push(socket("0.0.0.0:53", 4712, 0));
        has(facts, 4712, owner(0, 0));
    });
    let found = two.found();
    assert!(
        found.iter().all(|one| one.check != "shared_socket"),
        "{found:#?}"
    );
}

/// The same, with the queue full at both looks.
fn always_full(run_ms: u64, wait_ms: u64) -> Scene {
    let mut scene = lossy(run_ms, wait_ms);
    scene.before.sockets[0].queued_bytes = FULL;
    scene
}

fn first(scene: &Scene) -> Finding {
    scene.see(|seen: &Observed| findings(seen).remove(0))
}

/// A reader that a timer wakes empties the queue each time. A reader that sleeps after each datagram does not.
#[test]
fn a_queue_that_is_emptied_at_times_needs_room() {
    for (turns, read, has_room) in [(4, 848, false), (848, 848, true), (40, 848, true)] {
        let mut scene = always_full(4, 0).counting(&format!("Udp.InDatagrams {read}"));
        let mut threads = reader(&mut scene.after).threads.values_mut();
        threads.next().expect("one").turns += turns;
        let found = first(&scene);
        let of_timer = found.remedy.contains("or to bridge these waits: SO_RCVBUF");
        assert_eq!(of_timer, !has_room, "{turns}: {found:#?}");
        assert_eq!(found.what.contains("only delays"), has_room, "{found:#?}");
    }
}

/// A larger buffer helps against bursts. It does not help a reader that is slower than its traffic.
#[test]
fn a_queue_that_stays_full_is_no_burst() {
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
        let scene = always_full(run_ms, wait_ms).counting(&format!("Udp.InDatagrams {read}"));
        mentions(&first(&scene).what, &format!("{words} | !too small"));
    }
    let mut scene = always_full(30, 0).counting("Udp.InDatagrams 125");
    scene.tells("socket_buffer: only delays the loss | !SO_RCVBUF");
    // It starts a process for each datagram, or a few begin.
    for (began, parts) in [(130, "130/s processes | (fork)"), (20, "!(fork)")] {
        scene.after.begun = began;
        scene.tells(&format!("socket_buffer: {parts}"));
    }
    // Another socket reads, too.
    scene.after.sockets.push(socket("0.0.0.0:67", 9, 0));
    scene.tells("socket_buffer: reads less than comes");
    // The owner is not seen, and the queue is.
    scene.after.owners.clear();
    scene.tells("socket_buffer: stayed full | as root, mpps doctor shows how long");
    scene.after.sees_owners = true;
    assert!(!first(&scene).remedy.contains("as root"));
}

/// Each thread of a chain seems to sleep while the next one waits for the CPU that others hold. A slow reader beside a
/// pool of threads does sleep.
#[test]
fn a_chain_of_threads_lacks_a_cpu_together() {
    let (lacks, sleeps) = (
        "lacked a CPU | taskset -apc 1,3 812",
        "sleeps or waits | !lacked a CPU",
    );
    let chain = [(60, 300, 3), (20, 120, 3), (30, 250, 3)];
    for (threads, taken, expected) in [
        (chain, 100, lacks),
        // None holds its CPU; its pool holds that; its pool has it, and another CPU.
        (chain, 40, sleeps),
        ([(200, 250, 3), (200, 200, 3), (200, 200, 3)], 100, sleeps),
        ([(60, 300, 3), (20, 120, 1), (30, 250, 3)], 100, sleeps),
        // The CPU is shared, and serves the pool at once.
        ([(100, 10, 3), (10, 5, 3), (100, 10, 3)], 100, sleeps),
    ] {
        let mut scene = always_full(0, 0).counting("Udp.InDatagrams 125");
        for (tid, (run_ms, wait_ms, cpu)) in (812..).zip(threads) {
            let mut time = owner(run_ms * 1_000_000, wait_ms * 1_000_000).threads[&812];
            time.cpu = Some(cpu);
            reader(&mut scene.after).threads.insert(tid, time);
        }
        reader(&mut scene.after).allowed = [(812, CpuList(vec![3]))].into();
        let stat = |busy: u64, all: u64| {
            let line = format!("cpu1 0 0 0 {all}\ncpu3 {busy} 0 0 {}\n", all - busy);
            ProcStat::parse(&line).expect("as proc_stat(5)")
        };
        (scene.before.cpus, scene.after.cpus) = (stat(0, 0), stat(taken, 100));
        scene.tells(&format!("socket_buffer: {expected}"));
    }
}

/// Several looks in between count more than two looks.
#[test]
fn the_course_of_a_queue_tells_bursts() {
    for (looks, parts) in [
        (
            &[(110, FULL), (310, FULL), (510, FULL)][..],
            "stayed full | no sleep",
        ),
        // The reader emptied it, and twice 250 did not fit.
        (
            &[(260, FULL), (260, 0), (260, 0), (510, FULL), (510, FULL)],
            "too small for the bursts | SO_RCVBUF of 1048576 bytes",
        ),
        // One burst of 500, which is still there.
        (
            &[(510, FULL), (510, FULL), (510, FULL)],
            "too small for the bursts | SO_RCVBUF of 2097152 ",
        ),
        // Hundred at each look.
        (
            &[(110, 0), (210, FULL), (310, 0), (410, 0), (510, FULL)],
            "too small for the bursts | SO_RCVBUF of 524288 bytes in the program's setsockopt or its configuration \
             (the kernel then shows twice that, 1048576)",
        ),
        // Too few looks: both ends count.
        (&[(510, FULL)], "stayed full | no sleep"),
    ] {
        // It waited for a CPU far less than it slept beside a full queue.
        for wait_ms in [0, 100] {
            let mut scene = always_full(30, wait_ms);
            scene.after.queues = course(looks);
            scene.tells(&format!("socket_buffer: {parts}"));
        }
    }
}

/// The course of a queue that was empty after 10 drops, by these looks at drops and queued bytes.
pub(super) fn course(looks: &[(u32, u32)]) -> crate::facts::QueueCourses {
    let mut courses = QueueCourse::begin(&[queue(10, 0)]);
    for &(drops, queued_bytes) in looks {
        QueueCourse::add(&mut courses, &[queue(drops, queued_bytes)]);
    }
    courses
}

/// It computes for 600 ms of each second, and datagrams come on; a burst is over at once.
#[test]
fn a_reader_that_is_away_has_no_bursts() {
    let away = "away for about 600 ms at a time | !bursts | !lacked a CPU";
    let bursts = "bursts | !away for about 600 ms at a time";
    let lacked = "lacked a CPU | !away for about 600 ms at a time";
    let brief = "lacked a CPU | 600 us at a time";
    // It waits for a CPU in turns, each far shorter than it is away, or once for long.
    for (drops, [run_ms, wait_ms], turns, parts) in [
        ([170, 340, 510], [520, 40], 0, away),
        ([510, 510, 510], [520, 40], 0, bursts),
        ([170, 340, 510], [520, 300], 1000, away),
        ([170, 340, 510], [520, 300], 0, lacked),
        ([170, 340, 510], [200, 600], 1000, brief),
        ([510, 510, 510], [20, 100], 5000, bursts),
    ] {
        let mut scene = lossy(run_ms, wait_ms);
        let threads = reader(&mut scene.after).threads.values_mut();
        threads.for_each(|time| time.turns += turns);
        let full = drops.map(|drops| (drops, FULL));
        scene.after.queues = course(&[&[(10, 0)], &full[..], &[(510, 0)]].concat());
        scene.tells(&format!("socket_buffer: {parts} | SO_RCVBUF"));
    }
}

/// Its CPU is named with those who have it, and a CPU that is idle.
#[test]
fn a_lack_of_a_cpu_is_told_with_its_holders() {
    let mut scene = lossy(100, 180);
    let load = |ticks, cpu| ProcessLoad {
        name: "unbound-spin".to_owned(),
        ticks,
        priority: 20,
        cpus: [cpu].into(),
    };
    scene.before.loads = [(7, load(100, 3)), (8, load(0, 3)), (9, load(0, 2))].into();
    let later = [(7, load(160, 3)), (8, load(4, 3)), (9, load(90, 2))];
    scene.after.loads = later.into_iter().chain([(812, load(10, 3))]).collect();
    let three = |ticks| format!("cpu3 {ticks} 0 0 0 0 0 0 0 0 0");
    for (other, words) in [
        (Some(10), "taskset -pc 1 812 (CPU 1 was 10 % busy)"),
        (
            Some(60),
            "no other CPU is idle (the least busy, CPU 1, was 60 % busy)",
        ),
        (None, "there is no other CPU"),
    ] {
        let one = |user, idle| format!("cpu1 {user} 0 0 {idle} 0 0 0 0 0 0\n");
        let [zero, busy] = [
            other.map(|_| one(0, 0)),
            other.map(|user| one(user, 100 - user)),
        ];
        let stat = |line: Option<String>, ticks| line.unwrap_or_default() + &three(ticks);
        scene.before.cpus = ProcStat::parse(&stat(zero, 0)).expect("lines");
        scene.after.cpus = ProcStat::parse(&stat(busy, 100)).expect("lines");
        let found = first(&scene);
        mentions(&found.what, "180.0 ms at a time");
        mentions(&found.why, "ran 10 %, waited for a CPU 18 % and slept 72 %");
        let holders = "CPU 3 was also used by unbound-spin (pid 7) 60 %";
        assert!(found.why.ends_with(holders), "{}", found.why);
        mentions(&found.remedy, words);
    }
}

/// In a group, the socket whose own reader or buffer differs is no matter of flows.
#[test]
fn one_socket_of_a_group_that_differs_is_told() {
    let mut scene = always_full(300, 0).both(|facts| {
        facts.sockets.push(socket("0.0.0.0:53", 2, 0));
        facts.owners.insert(2, vec![812]);
    });
    // A thread that hangs.
    let found = first(&scene);
    assert_eq!(found.check, "socket_buffer", "{found:#?}");
    let mates = "1 more at that address lost nothing, so this one's own reader differs";
    assert!(found.why.ends_with(mates), "{found:#?}");
    scene.before.sockets[0].queued_bytes = 0;
    scene.tells("reuseport_uneven");
    scene.after.sockets[0].buffer_bytes = 416;
    scene.tells("socket_buffer: have buffers of up to 212992 bytes");
    let mut scene = lossy(300, 0).both(|facts| {
        let child = Process {
            pid: 900,
            stopped: true,
            ..owner(1, 0)
        };
        has(facts, 4711, child);
        facts.sockets.push(socket("0.0.0.0:53", 2, 0));
    });
    scene.tells("socket_buffer: a process that has it is stopped | unbound1 (pid 900, stopped)");
    assert_eq!(first(&scene).remedy, "kill -CONT 900");
    // Unless another one reads: the counter shows it for one socket, the queue for several.
    let is_read = |facts: &mut Observation| facts.queues = course(&[(10, FULL), (10, 0)]);
    let alone = scene.clone().both(|facts| facts.sockets.truncate(1));
    mentions(&alone.text(), "is stopped");
    for read in [
        scene.clone().now(is_read),
        alone.counting("Udp.InDatagrams 300"),
    ] {
        mentions(&read.text(), "!is stopped");
    }
    // A reader at its limit has no socket to share with the stopped one.
    reader(&mut scene.after).threads = owner(SECOND, 0).threads;
    scene.tells("reuseport_uneven possible");
}
