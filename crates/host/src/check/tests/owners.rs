//! Sockets whose owner, partner or interface explains a loss.

use super::sockets::{course, starved};
use super::*;
use crate::CpuList;
use crate::facts::{JoinedGroup, ProcessLoad};

/// A socket that lost 500, and was asked for.
fn lossy(run_ms: u64, wait_ms: u64) -> Scene {
    Scene::of(starved(run_ms, wait_ms)).port(53)
}

/// Two sockets at one address, the last bound first: that of 1, and that of 2.
fn two(shares: Option<[bool; 2]>, groups: [u32; 2]) -> Scene {
    let scene = Scene::grown("Udp.InDatagrams 10").port(53);
    scene.both(|facts| {
        for (pid, group) in (1..).zip(groups) {
            facts.sockets.push(socket("0.0.0.0:53", pid, 0));
            let process = Process {
                pid,
                group,
                ..owner(1, 0)
            };
            has(facts, pid, process);
        }
        facts.port_sharing = (1..).zip(shares.into_iter().flatten()).collect();
    })
}

#[test]
fn the_last_of_two_sockets_gets_all_unless_they_share() {
    let starved = "unbound1 (pid 2) gets no datagram that comes to one address, because unbound1 (pid 1) bound";
    let (starves, remark) = (
        format!("port_owner: {starved}"),
        format!("port_owner remark: {starved}"),
    );
    let several = "port_owner remark: 2 programs have UDP 0.0.0.0:53";
    let apart = Some([false, false]);
    for (shares, groups, pid, joins, expected) in [
        // Also two programs that one script started.
        (apart, [7, 7], 0, false, &*remark),
        (Some([false, true]), [7, 7], 0, false, &remark),
        (apart, [7, 7], 2, false, &starves),
        // Copies of groups reach both.
        (apart, [7, 7], 2, true, &remark),
        (apart, [7, 7], 1, false, &remark),
        (Some([true, true]), [7, 7], 0, false, ""),
        (None, [7, 7], 0, false, ""),
        (Some([true, true]), [7, 8], 0, false, several),
        (None, [7, 8], 0, false, several),
    ] {
        let mut scene = two(shares, groups).now(|after| {
            after.groups.extend(joins.then(|| JoinedGroup {
                interface: "eth0".to_owned(),
                group: [239, 1, 1, 1].into(),
                only_from: Vec::new(),
            }));
        });
        if pid > 0 {
            (scene.asked.port, scene.asked.pid) = (None, Some(pid));
        }
        scene.tells(expected);
    }
}

#[test]
fn one_socket_that_two_processes_have_is_one() {
    let scene = two(None, [7, 8]).both(|facts| {
        facts.sockets.pop();
        facts.owners = [(1, vec![1, 2])].into();
    });
    scene.finds("");
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
    let (restart, partner) = ("restart the program", "a connected socket takes only");
    for (sockets, expected) in [
        (
            vec![gone.clone()],
            format!(
                "certain: interface number 3, which is gone | {restart} | !{bind} | !{partner}"
            ),
        ),
        (
            vec![connected.clone()],
            format!("likely: (only from 10.0.0.9:69) | {partner} | !{bind} | !{restart}"),
        ),
        (
            vec![here],
            format!("likely: only at eth0 | {bind} | !{restart} | !{partner}"),
        ),
        (
            vec![gone, connected],
            format!("likely: {restart} | {partner} | !{bind}"),
        ),
    ] {
        let scene = Scene::grown("Udp.NoPorts 40")
            .drops("NO_SOCKET 40")
            .port(53);
        let scene = scene.both(|facts| {
            let (name, index) = ("eth0".to_owned(), 2);
            facts.links = vec![NetlinkLink {
                name,
                index,
                ..NetlinkLink::default()
            }];
            facts.sockets.clone_from(&sockets);
        });
        scene.tells(&format!("listener_elsewhere {expected}"));
    }
}

/// Its server could not start, for the kernel gave a client that port.
#[test]
fn a_client_may_have_the_port_of_a_server() {
    let reserve = "of unbound1 (pid 812) | ip_local_reserved_ports=53";
    for (first, remote, expected) in [
        (50, Some("10.0.0.9:69"), reserve),
        (60, Some("10.0.0.9:69"), "!reserved_ports"),
        (50, None, "!reserved_ports"),
    ] {
        let scene = Scene::grown("Udp.NoPorts 40")
            .drops("NO_SOCKET 40")
            .port(53);
        let scene = scene.both(|facts| {
            facts.client_ports = Some(first..=99);
            facts.sockets = vec![socket("10.0.0.1:53", 1, 0)];
            facts.sockets[0].remote = remote.map(|one| one.parse().expect("an address"));
            has(facts, 1, owner(0, 0));
        });
        scene.tells(&format!("listener_elsewhere likely: {expected}"));
    }
}

/// A resolver here asks port 53 of another host, which answers from another of its addresses.
#[test]
fn answers_for_connected_sockets_belong_to_the_port_that_was_asked() {
    let words = " for answers of 10.9.0.3:53 only";
    let (answers, none) = (
        format!("no_listener: {words}"),
        format!("not_asked remark: !{words}"),
    );
    for (partners, expected) in [
        (["10.9.0.3:53", "10.9.0.3:53"], &answers),
        (["10.9.0.3:99", "10.9.0.3:99"], &none),
        (["10.9.0.3:53", "10.9.0.4:53"], &none),
        (["10.9.0.3:53", "10.9.0.4:99"], &answers),
    ] {
        let scene = Scene::grown("Udp.NoPorts 40, Udp.InDatagrams 40").drops("");
        let scene = scene.port(53).both(|facts| {
            let asks = (2..).zip(partners).map(|(inode, partner)| UdpEntry {
                remote: partner.parse().ok(),
                ..socket("10.9.0.1:4000", inode, 0)
            });
            facts.sockets = vec![socket("10.9.0.1:53", 1, 0)];
            facts.sockets.extend(asks);
        });
        scene.tells(expected);
    }
}

#[test]
fn a_port_that_is_opened_again_and_again_has_its_program() {
    let words = "came and went meanwhile | open one socket, keep it";
    let never = "!came and went meanwhile | !open one socket, keep it";
    for (new, inode, parts) in [
        (25, 9, format!("{words} | !start the program that serves")),
        (2, 9, never.to_owned()),
        (25, 1, never.to_owned()),
    ] {
        let scene = Scene::grown("Udp.NoPorts 40, Ip.InDelivers 80").port(53);
        let mut scene = scene
            .drops("NO_SOCKET 40, QUEUE_PURGE 40 unknown")
            .both(|facts| {
                facts.sockets = vec![socket("0.0.0.0:53", 1, 0)];
                facts.new_sockets = new;
            });
        scene.after.sockets[0] = socket("0.0.0.0:53", inode, 0);
        scene.finds("no_listener 40, closed_unread 40");
        let found = scene.found();
        tells(&found, &format!("no_listener: {parts}"));
        tells(&found[1..], &format!("closed_unread: {parts}"));
    }
}

#[test]
fn a_program_that_does_not_read_has_a_reason() {
    // Its threads are known to be idle.
    let look = |change: &dyn Fn(&mut Observation)| {
        let scene = lossy(0, 0).counting("Udp.RcvbufErrors 500");
        scene.both(|facts| {
            let threads = &mut reader(facts).threads;
            threads.values_mut().for_each(|one| one.run_ns += 1);
            change(facts);
        })
    };
    let frozen = |thaw: &'static str| look(&|facts| reader(facts).frozen = Some(thaw.to_owned()));
    let thaw = "echo 0 > /sys/fs/cgroup/a/cgroup.freeze";
    let words = "the program is frozen | docker unpause";
    frozen(thaw).tells(&format!("socket_buffer: {words} | {thaw} | !wchan | !kill"));
    frozen("").tells("socket_buffer certain: cat /proc/812/cgroup | !echo");
    // Another program, or one with a parent, reads a socket at the same address.
    let left = "left over | kill 812 | SOCK_CLOEXEC";
    for (name, [own, other], parts) in [
        ("nsd", [1, 1], &*format!("{left} | !wchan")),
        ("unbound1", [1, 900], &format!("{left} | !wchan")),
        (
            "unbound1",
            [5, 5],
            "does not read it | !left over | !kill 812 | !SOCK_CLOEXEC",
        ),
    ] {
        let beside = look(&move |facts| {
            reader(facts).parent = own;
            facts.sockets.push(socket("0.0.0.0:53", 2, 0));
            let other = Process {
                pid: 900,
                name: name.to_owned(),
                parent: other,
                ..owner(1, 0)
            };
            has(facts, 2, other);
        });
        beside.tells(&format!("socket_buffer: {parts}"));
    }
    // It is connected to one client.
    let connected = look(&|facts| {
        facts.sockets[0].remote = Some("10.0.0.9:5555".parse().expect("an address"));
        reader(facts).waits = [(812, "ep_poll".to_owned())].into();
    });
    connected.tells(
        "socket_buffer: (connected to 10.0.0.9:5555) of unbound1 | gets all datagrams from 10.0.0.9:5555 | slept in \
         ep_poll | !left over | !kill 812 | !SOCK_CLOEXEC",
    );
}

#[test]
fn a_reader_that_waits_elsewhere_does_not_hold_its_socket_for_another() {
    let holds = "holds the socket for another";
    for (wait, parts) in [
        ("wait_woken", format!("Send-Q | !{holds}")),
        ("anon_pipe_write", format!("have that pipe read | !{holds}")),
        (
            "poll_schedule_timeout.constprop.0",
            format!("dst :53 | !{holds}"),
        ),
        ("hrtimer_nanosleep", holds.to_owned()),
    ] {
        let scene = lossy(0, 0).both(|facts| {
            let process = reader(facts);
            process.threads.values_mut().for_each(|one| one.run_ns += 1);
            process.waits = [(812, wait.to_owned())].into();
        });
        scene.tells(&format!("socket_buffer: {parts}"));
    }
}

/// A reader that waited for its CPU, where another process ran for 0.6 s.
fn outrun(priority: i32, before: &str, after: &str) -> Scene {
    let mut scene = lossy(20, 960);
    let load = |ticks| ProcessLoad {
        name: "hog".to_owned(),
        ticks,
        priority,
        cpus: [3].into(),
    };
    scene.before.loads = [(7, load(0))].into();
    scene.after.loads = [(7, load(60))].into();
    scene.before.cpus = ProcStat::parse(before).expect("lines");
    scene.after.cpus = ProcStat::parse(after).expect("lines");
    scene
}

/// A real-time program took most of the CPU that soft interrupts used, too.
#[test]
fn a_program_that_goes_first_is_told_before_soft_interrupts() {
    let [zero, full] = ["cpu3 0 0 0 0 0 0 0 0 0 0", "cpu3 74 0 0 0 0 0 26 0 0 0"];
    outrun(-51, zero, full).tells("socket_buffer");
    outrun(20, zero, full).tells("shared_cpu");
}

/// The thread may use only one CPU, or another goes before it there.
#[test]
fn a_thread_that_lacks_a_cpu_by_its_settings_has_them_as_remedy() {
    for (allowed, own, rival, parts) in [
        (
            vec![0, 1, 3],
            20,
            20,
            "no other CPU is idle | add CPUs | !taskset | !renice | !chrt",
        ),
        (
            vec![3],
            20,
            20,
            "it may use only CPU 3 | taskset -pc 0-1,3 812 | !add CPUs | !renice",
        ),
        (
            vec![0, 1, 3],
            25,
            10,
            "its nice value is 5, that of hog (pid 7) is -10 | renice -n -10 -p 812 | !add CPUs | !taskset",
        ),
        (
            vec![0, 3],
            25,
            10,
            "CPUs 0,3, and its nice value is 5 | ; or renice | !add CPUs",
        ),
        (
            vec![0, 1, 3],
            20,
            -51,
            "real-time priority | chrt -o -p 0 7 | !add CPUs | !renice",
        ),
        // A hog that goes behind it is not to blame.
        (vec![0, 1, 3], 20, 39, "add CPUs | !renice"),
    ] {
        let cpus = |busy: u32| {
            [0, 1, 3]
                .map(|cpu| format!("cpu{cpu} {busy} 0 0 0 0 0 0 0 0 0\n"))
                .concat()
        };
        let mut scene = outrun(rival, &cpus(0), &cpus(100));
        let process = reader(&mut scene.after);
        process.allowed = [(812, CpuList(allowed))].into();
        let threads = &mut process.threads;
        threads
            .values_mut()
            .for_each(|one| one.priority = Some(own));
        scene.tells(&format!("socket_buffer: {parts}"));
    }
}

/// Steady traffic, and a reader that waits for two seconds at a time.
#[test]
fn a_reader_that_waits_for_something_besides_its_socket_has_no_bursts() {
    let mut scene = lossy(30, 20);
    let full = 212_992;
    let one = [(10, 0), (10, 150_000), (135, full), (260, full)];
    let two = [(260, 0), (260, 150_000), (385, full), (510, full)];
    scene.after.queues = course(&[one, two].concat());
    scene.tells(
        "socket_buffer: waited for something besides this socket | at 6 of 8 looks | DNS | SO_RCVBUF | !bursts | \
         !lacked a CPU",
    );
}

#[test]
fn a_socket_that_waits_for_its_service_has_no_slow_reader() {
    let said = |holders: &[&str]| {
        let mut scene = Scene::of(starved(0, 0)).both(|facts| {
            facts.owners.clear();
            facts.processes.clear();
        });
        for (pid, name) in (1..).zip(holders) {
            let of = |run_ns, read_ns| Process {
                pid,
                name: (*name).to_owned(),
                read_ns,
                ..owner(run_ns, 0)
            };
            // The first of them is the busiest.
            let run_ns = if pid == 1 { SECOND / 2 } else { 0 };
            has(&mut scene.before, 4711, of(0, 0));
            has(&mut scene.after, 4711, of(run_ns, SECOND));
        }
        scene
    };
    for name in ["systemd", "systemd-socket-", "xinetd"] {
        said(&[name]).tells("socket_buffer: the service does not run | !slow | !SO_RCVBUF");
    }
    let running = said(&["systemd", "tftpd"]);
    running.tells("socket_buffer: of tftpd (pid 2) | !socket activation)");
}

/// Each datagram costs a query of DNS, and at the end it waits for the next event.
#[test]
fn a_reader_that_often_wakes_is_slow() {
    for (turns, parts) in [
        (0, "does not read it | EAGAIN"),
        (20, "reads less than comes | no sleep | !EAGAIN"),
    ] {
        let mut scene = lossy(4, 0).counting("Udp.InDatagrams 30");
        scene.before.sockets[0].queued_bytes = 212_992;
        let process = reader(&mut scene.after);
        process.waits = [(812, "do_epoll_wait".to_owned())].into();
        let threads = process.threads.values_mut();
        threads.for_each(|time| time.turns += turns);
        let other = |facts: &mut Observation| facts.sockets.push(socket("0.0.0.0:67", 9, 0));
        scene.both(other).tells(&format!("socket_buffer: {parts}"));
    }
}
