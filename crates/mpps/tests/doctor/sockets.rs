//! Servers that do not read their sockets, and sockets that do not get their packets.

use super::gallery;
use super::program::{Group, Way};
use super::scenario::{Found, PORT, PYTHON, SENT, Scenario, Traffic, at, expect, healthy};
use crate::common::{mpps, run};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            one_process_of_two,
            a_listener_on_loopback_alone,
            a_stopped_program,
            a_program_that_does_not_read,
            a_queue_that_no_program_reads,
            a_program_that_is_too_slow,
            a_buffer_too_small_for_bursts,
            one_flow_for_four_sockets,
            nobody_listens,
            nobody_listens_over_ipv6,
            a_listener_at_another_address,
            a_listener_of_the_other_family,
            a_connected_listener,
            a_connected_listener_of_any_port,
            ports_that_are_used_up,
            a_server_that_ends_unread;
        waits(Need::Root, PYTHON):
            a_socket_filter,
            a_socket_bound_to_an_interface,
            a_service_that_does_not_run,
            a_server_in_python_that_sleeps,
            a_server_in_python_that_answers,
            a_reader_that_sleeps_between_two_reads,
            a_reader_that_waits_for_an_event,
            a_reader_whose_output_is_not_read,
            a_reader_that_peeks,
            bursts_that_a_larger_buffer_holds,
            a_thread_of_four_that_hangs,
            a_child_that_inherited_a_socket,
            a_socket_for_each_read,
            a_frozen_program,
            a_wrapper_and_a_port_elsewhere;
        measures(Need::Root, Need::Cpus(2)): one_socket_for_two_threads;
    ]
}

/// The finding about a thread that lacks a CPU.
const NO_CPU: &str = "its reader lacked a CPU";

/// Of two threads at one socket. On a busy machine one of them may lack a CPU, and that finding then
/// replaces the expected one.
fn one_socket_for_two_threads() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Shared, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(1), 5 * SENT));
        // For shares of their time to mean something.
        thread::sleep(Duration::from_millis(500));
    });
    let dropped = found.kernels_drops(&group);
    let what = found.first()["what"].as_str().unwrap_or_default();
    let mut behind = [NO_CPU, "takes nothing"].into_iter();
    let expected = match behind.find(|words| what.contains(words)) {
        Some(words) => ("socket_buffer", dropped, words),
        None => (
            "shared_socket",
            dropped,
            "2 threads of the program are busy",
        ),
    };
    expect(&found, &[expected]);
    gallery::add(&["shared_socket"], &[(expected.0, dropped)]);
}

/// Ten clients, and as many ports.
fn ports_that_are_used_up() {
    let scenario = Scenario::new();
    let range = "/proc/sys/net/ipv4/ip_local_port_range";
    let clients = scenario.on_receiver(|| {
        fs::write(range, "40000 40009").expect("it is this namespace's");
        let client = || UdpSocket::bind("0.0.0.0:0");
        let clients: Vec<UdpSocket> = (0..10).map(|_| client().expect("it is free")).collect();
        client().expect_err("no port is left");
        clients
    });
    let found = scenario.doctor(None, || ());
    found.is("ports_used_up", 0, "have 10 of the 10 ports");
    drop(clients);
}

fn a_stopped_program() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    group.signal("STOP");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    found.is("socket_buffer", found.kernels_drops(&group), "stopped");
    assert!(
        found.first()["what"]
            .as_str()
            .is_some_and(|what| what.contains(&group.pid().to_string()))
    );
}

/// Of two programs in a namespace, only the selected one is reported.
fn one_process_of_two() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    let other = Group::start(&scenario, Way::Slow, 1, &at(2));
    group.signal("STOP");
    other.signal("STOP");
    let pid = group.pid().to_string();
    let found = scenario.doctor_asked(&["--pid", &pid], || {
        scenario.send(Traffic::to(&at(1), 5 * SENT));
        scenario.send(Traffic::to(&at(2), 5 * SENT));
    });
    let all = found.kernels_drops(&group);
    let dropped = found.first()["count"].as_u64().unwrap_or(0);
    assert!(dropped < all, "{dropped} of {all}");
    found.is("socket_buffer", dropped, &at(1));
}

/// Beside other work any thread may lack a CPU. That finding then replaces the expected one.
fn starved(way: Way, said: &str) {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, way, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(1), 5 * SENT));
        // For shares of its time to mean something.
        thread::sleep(Duration::from_millis(300));
    });
    found.is("socket_buffer", found.kernels_drops(&group), "was full");
    let what = found.first()["what"].as_str().unwrap_or_default();
    assert!(what.contains(said) || what.contains(NO_CPU), "{what}");
}

fn a_program_that_does_not_read() {
    starved(Way::Sleep, "does not read it");
}

/// Nothing is lost yet.
fn a_queue_that_no_program_reads() {
    for way in [Way::Sleep, Way::Read] {
        let scenario = Scenario::new();
        let _group = Group::start(&scenario, way, 1, &at(1));
        let found = scenario.doctor(Some(PORT), || {
            scenario.send(Traffic::to(&at(1), 150));
            thread::sleep(Duration::from_secs(3));
        });
        match way {
            Way::Read => healthy(&found, 150),
            _ => {
                found.is("socket_buffer", 0, "does not read 192.168.254.1");
                found.says("what", &format!("{} of trials-", at(1)));
            }
        }
    }
}

fn a_program_that_is_too_slow() {
    starved(Way::Spin, "takes nothing from it");
}

fn a_buffer_too_small_for_bursts() {
    starved(Way::Slow, "slept in between");
}

/// A server in Python, with these lines about its socket `s` before it says that it is ready.
const SERVER: &str = "import ctypes, socket, struct, sys, time\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n";

/// The server of Python's own library, whose handler does this.
fn python_server(scenario: &Scenario, handler: &str) -> Group {
    scenario.server(&format!(
        "import socketserver, time\n\
         class Handler(socketserver.BaseRequestHandler):\n\
        \x20   def handle(self): {handler}\n\
         server = socketserver.UDPServer(('192.168.254.1', 4321), Handler)\n\
         print('ready', flush=True)\n\
         server.serve_forever()"
    ))
}

/// Its handler waits for another event.
fn a_server_in_python_that_sleeps() {
    let scenario = Scenario::new();
    let server = python_server(&scenario, "time.sleep(3600)");
    // It reads this datagram, and is in its handler before the doctor looks.
    scenario.send(Traffic::to(&at(1), 1));
    scenario.lab.settle().expect("it comes to rest");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    let said = "does not read it";
    found.is("socket_buffer", found.kernels_drops(&server), said);
    found.says("what", "python3");
}

/// One question at a time. It answers each.
fn a_server_in_python_that_answers() {
    let scenario = Scenario::new();
    let _server = python_server(
        &scenario,
        "self.request[1].sendto(b'x', self.client_address)",
    );
    let found = scenario.doctor(Some(PORT), || {
        scenario.python(
            "import socket\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.settimeout(60)\n\
             for _ in range(1000):\n\
            \x20   s.sendto(b'x', ('192.168.254.1', 4321)); s.recv(9)",
        );
    });
    healthy(&found, SENT);
}

/// A server in Python with this loop loses what comes. With the other one it gets all.
fn stuck(begin: &str, faulty: &str, sound: &str, words: &str) {
    let look = |body: &str, first, datagrams| {
        let scenario = Scenario::new();
        let server = scenario.server(&format!(
            "{SERVER}import os, select\n{begin}\n\
             s.bind(('192.168.254.1', 4321)); print('ready', flush=True)\n{body}"
        ));
        scenario.send(Traffic::to(&at(1), first));
        let found = scenario.doctor(Some(PORT), || {
            scenario.send(Traffic::to(&at(1), datagrams));
            // For shares of its time to mean something.
            thread::sleep(Duration::from_millis(500));
        });
        (found, server)
    };
    let (found, _server) = look(sound, 0, 100);
    healthy(&found, 100);
    let (found, server) = look(faulty, 2 * SENT, 5 * SENT);
    let lost = found.evidence();
    assert!(lost > SENT && lost <= server.drops(), "{found:#?}");
    found.is("socket_buffer", lost, words);
}

/// With EPOLLET the kernel reports only new datagrams, and none comes into a full buffer.
fn a_reader_that_waits_for_an_event() {
    stuck(
        "e = select.epoll(); e.register(s, select.EPOLLIN | select.EPOLLET); s.setblocking(False)",
        "while open('/proc/net/udp').read().split()[-1] == '0': time.sleep(0.01)\n\
         while e.poll(): s.recv(100)",
        "while e.poll():\n try:\n  while True: s.recv(100)\n except BlockingIOError: pass",
        "EPOLLET",
    );
}

fn a_reader_whose_output_is_not_read() {
    stuck(
        "reader, log = os.pipe(); null = os.open('/dev/null', 1)",
        "while True: os.write(log, bytes(4096)); s.recv(100)",
        "while True: os.write(null, bytes(4096)); s.recv(100)",
        "a pipe that it writes to is full",
    );
}

fn a_reader_that_peeks() {
    let read = |flags: &str| format!("while True: s.recv(100{flags})");
    stuck("", &read(", socket.MSG_PEEK"), &read(""), "MSG_PEEK");
}

/// A server in Python that sleeps between two reads, with a buffer as it gets it.
fn sleeper(scenario: &Scenario, ms: f64, buffer: &str) -> Group {
    scenario.server(&format!(
        "{SERVER}{buffer}\n\
         s.bind(('192.168.254.1', 4321)); print('ready', flush=True)\n\
         while True: s.recv(2048); time.sleep({ms} / 1000)"
    ))
}

/// Sends `times` bursts of datagrams, with a pause of these milliseconds after each.
fn bursts(scenario: &Scenario, datagrams: u32, times: u32, pause_ms: u32) {
    let text = format!(
        "import socket, time\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         for _ in range({times}):\n\
        \x20   for _ in range({datagrams}): s.sendto(b'x' * 100, ('192.168.254.1', 4321))\n\
        \x20   time.sleep({pause_ms} / 1000)"
    );
    // The queue must not be emptied before the doctor looks again.
    scenario.on_sender(|| run(Command::new("python3").args(["-c", &text])).fine());
}

/// No buffer helps.
fn a_reader_that_sleeps_between_two_reads() {
    let scenario = Scenario::new();
    // It works a little, and reads so seldom that the buffer is full until the sender of the look begins.
    let server = scenario.server(&format!(
        "{SERVER}s.bind(('192.168.254.1', 4321)); print('ready', flush=True)\n\
         while True:\n\
        \x20   s.recv(2048); time.sleep(0.1); end = time.thread_time() + 0.005\n\
        \x20   while time.thread_time() < end: pass"
    ));
    bursts(&scenario, 400, 1, 0);
    let found = scenario.doctor(Some(PORT), || bursts(&scenario, 50, 300, 10));
    let said = "sleeps or waits while datagrams wait";
    let lost = found.kernels_drops(&server) - before_look(&found);
    found.is("socket_buffer", lost, said);
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(!remedy.contains("SO_RCVBUF"), "{remedy}");
}

/// The drops before the doctor looked.
fn before_look(found: &Found) -> u64 {
    let before = &found.first()["evidence"][0]["before"];
    before.as_u64().expect("a count")
}

/// The buffer that the remedy names holds the bursts.
fn bursts_that_a_larger_buffer_holds() {
    let scenario = Scenario::new();
    let server = sleeper(&scenario, 0.3, "");
    let found = scenario.doctor(Some(PORT), || bursts(&scenario, 400, 4, 600));
    found.is("socket_buffer", found.kernels_drops(&server), "was full");
    let what = found.first()["what"].as_str().unwrap_or_default();
    assert!(!what.contains("stayed full"), "{what}");
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    let (_, bytes) = remedy.split_once("SO_RCVBUF of ").expect("a buffer");
    let (bytes, _) = bytes.split_once(' ').expect("a number");
    let scenario = Scenario::new();
    let _server = sleeper(&scenario, 0.3, &format!("s.setsockopt(1, 8, {bytes})"));
    let found = scenario.doctor(Some(PORT), || bursts(&scenario, 400, 4, 600));
    healthy(&found, 1600);
}

/// The program that would start it has its socket.
fn a_service_that_does_not_run() {
    let scenario = Scenario::new();
    let activator = scenario.server(
        "import socket, time\n\
         open('/proc/self/comm', 'w').write('systemd')\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('192.168.254.1', 4321))\n\
         print('ready', flush=True)\n\
         time.sleep(600)",
    );
    let look = || scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    let found = look();
    let dropped = found.kernels_drops(&activator);
    let words = "the service does not run";
    found.is("socket_buffer", dropped, words);
    found.says("remedy", "systemctl list-sockets");
    drop(activator);
    let _service = Group::start(&scenario, Way::Read, 1, &at(1));
    healthy(&look(), SENT);
}

/// One of a program's four threads does not read its socket. The flows are not to blame.
fn a_thread_of_four_that_hangs() {
    let scenario = Scenario::new();
    let server = scenario.server(
        "import socket, threading, time\n\
         def mine():\n\
        \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        \x20   s.setsockopt(1, 15, 1); s.setsockopt(1, 8, 1 << 21)\n\
        \x20   s.bind(('192.168.254.1', 4321)); return s\n\
         def read(s):\n\
        \x20   while True: s.recv(2048)\n\
         all = [mine() for _ in range(4)]\n\
         for s in all[1:]: threading.Thread(target=read, args=[s]).start()\n\
         print('ready', flush=True)\n\
         time.sleep(600)",
    );
    let traffic = Traffic {
        flows: 64,
        ..Traffic::to(&at(1), 30 * SENT)
    };
    one_of_several(&scenario, &server, traffic, "this one's own reader differs");
}

/// One socket of a group was full before the look, and stays so.
fn one_of_several(scenario: &Scenario, server: &Group, traffic: Traffic, words: &str) {
    scenario.send(traffic.clone());
    let found = scenario.doctor(Some(PORT), || {
        for _ in 0..5 {
            scenario.send(traffic.clone());
            thread::sleep(Duration::from_millis(100));
        }
    });
    let dropped = found.kernels_drops(server) - before_look(&found);
    found.is("socket_buffer", dropped, words);
}

/// The server opened its socket anew, and a helper still has the old one.
fn a_child_that_inherited_a_socket() {
    let scenario = Scenario::new();
    let server = scenario.server(
        "import os, socket, subprocess\n\
         def mine():\n\
        \x20   s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        \x20   s.setsockopt(1, 15, 1); s.setsockopt(1, 8, 1 << 21)\n\
        \x20   s.bind(('192.168.254.1', 4321)); s.set_inheritable(True); return s\n\
         old = mine(); subprocess.Popen(['sleep', '600'], close_fds=False); old.close()\n\
         s = mine(); print('ready', flush=True)\n\
         while True: s.recv(2048)",
    );
    let traffic = Traffic {
        flows: 64,
        ..Traffic::to(&at(1), 10 * SENT)
    };
    one_of_several(
        &scenario,
        &server,
        traffic,
        "sleep does not read it, while python3",
    );
}

/// Most datagrams find no socket, or wait in a socket that is closed unread.
fn a_socket_for_each_read() {
    let scenario = Scenario::new();
    let _server = scenario.server(
        "import socket, time\n\
         print('ready', flush=True)\n\
         while True:\n\
        \x20   with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n\
        \x20       s.bind(('192.168.254.1', 4321)); s.recv(2048); time.sleep(0.005)\n\
        \x20   time.sleep(0.005)",
    );
    let found = scenario.doctor(Some(PORT), || bursts(&scenario, 10, 200, 10));
    for one in found.findings() {
        let text = format!("{} {}", one["what"], one["remedy"]);
        assert!(text.contains("open one socket, keep it"), "{found:#?}");
        assert!(!text.contains("start the program that"), "{found:#?}");
    }
    super::gallery::add(&["no_listener", "closed_unread"], &found.told());
    let checks = found.told().into_iter().map(|(check, _)| check);
    let checks: std::collections::BTreeSet<&str> = checks.collect();
    assert_eq!(
        checks,
        ["closed_unread", "no_listener"].into(),
        "{found:#?}"
    );
}

/// As `docker pause` does it, with cgroups of version 1 or 2. Without either there is nothing to try.
fn a_frozen_program() {
    let kinds = [
        [
            "/sys/fs/cgroup/freezer",
            "freezer.state",
            "FROZEN",
            "THAWED",
        ],
        ["/sys/fs/cgroup", "cgroup.freeze", "1", "0"],
        ["/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"],
    ];
    for [root, file, freeze, thaw] in kinds {
        let procs = format!("{root}/cgroup.procs");
        let folder = format!("{root}/mpps-frozen-{}", std::process::id());
        if !std::path::Path::new(&procs).exists() || fs::create_dir(&folder).is_err() {
            continue;
        }
        let scenario = Scenario::new();
        let group = Group::start(&scenario, Way::Slow, 1, &at(1));
        let file = format!("{folder}/{file}");
        let pid = group.pid().to_string();
        fs::write(format!("{folder}/cgroup.procs"), &pid).expect("it lives");
        fs::write(&file, freeze).expect("it is this group's");
        let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
        fs::write(&file, thaw).expect("it is this group's");
        fs::write(&procs, &pid).expect("it lives");
        fs::remove_dir(&folder).expect("it is empty");
        let dropped = found.kernels_drops(&group);
        found.is("socket_buffer", dropped, "the program is frozen");
        let remedy = found.first()["remedy"].as_str().unwrap_or_default();
        assert!(
            remedy.ends_with(&format!("echo {thaw} > {file}")),
            "{remedy}"
        );
    }
}

/// The number of a wrapper, and a port of another namespace.
fn a_wrapper_and_a_port_elsewhere() {
    let scenario = Scenario::new();
    let server = scenario.server(
        "import os, socket, time\n\
         if os.fork(): time.sleep(600)\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('192.168.254.1', 4321)); print('ready', flush=True); time.sleep(600)",
    );
    let pid = server.pid().to_string();
    let found = scenario.doctor_asked(&["--pid", &pid], || {
        scenario.send(Traffic::to(&at(1), 5 * SENT));
    });
    let dropped = found.kernels_drops(&server);
    found.is("socket_buffer", dropped, "does not read it");
    assert!(
        found
            .notes()
            .contains("sockets of its children are shown: python3"),
        "{found:#?}"
    );
    let ended =
        scenario.on_sender(|| run(&mut mpps(&["doctor", "--port", "4321", "--seconds", "0.1"])));
    let said = "has port 4321 in another network namespace: mpps doctor --pid";
    let words: Vec<&str> = ended.out.split_whitespace().collect();
    assert!(words.join(" ").contains(said), "{ended:#?}");
    let ended = run(&mut mpps(&["doctor", "--pid", "999999999"]));
    assert!(ended.err.contains("no such process"), "{ended:#?}");
}

fn a_socket_filter() {
    let scenario = Scenario::new();
    // `ret #0` for all packets (SO_ATTACH_FILTER of socket(7)).
    let _server = scenario.server(&format!(
        "{SERVER}code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n\
         s.setsockopt(1, 26, struct.pack('HL', 1, ctypes.addressof(code)))\n\
         s.bind(('192.168.254.1', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)"
    ));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("drop_reason", SENT, "SOCKET_FILTER");
}

fn one_flow_for_four_sockets() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 4, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    expect(
        &found,
        &[(
            "reuseport_uneven",
            found.kernels_drops(&group),
            "1 lost all that was lost, and 3 lost nothing",
        )],
    );
}

fn a_server_that_ends_unread() {
    for port in [None, Some(PORT)] {
        let scenario = Scenario::new();
        let found = scenario.doctor(port, || scenario.end_unread(150));
        found.is("closed_unread", 150, "no program had read");
        found.balances();
        found.came(150);
    }
}

fn nobody_listens() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(1), SENT));
        // Another port is another story.
        scenario.send(Traffic::to("192.168.254.1:9", 7));
    });
    found.is("no_listener", SENT, "no socket has it");
}

fn nobody_listens_over_ipv6() {
    let scenario = Scenario::new();
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    found.is("no_listener", SENT, "no socket took them");
    found.balances();
}

fn a_listener_at_another_address() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(2));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("listener_elsewhere", SENT, &at(2));
}

fn a_listener_of_the_other_family() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    found.is("listener_elsewhere", SENT, "0.0.0.0");
}

fn a_connected_listener() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Connected, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("listener_elsewhere", SENT, "only from");
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(
        remedy.contains("not connected") && !remedy.contains("bind"),
        "{remedy}"
    );
}

fn a_connected_listener_of_any_port() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Connected, 1, &at(1));
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("no_listener", SENT, &format!("some: {}", at(1)));
}

fn a_listener_on_loopback_alone() {
    let scenario = Scenario::new();
    scenario.wake_loopback();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("127.0.0.1:{PORT}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("listener_elsewhere", SENT, "127.0.0.1");
}

fn a_socket_bound_to_an_interface() {
    let scenario = Scenario::new();
    let _server = scenario.server(&format!(
        "{SERVER}s.setsockopt(1, 25, b'lo')\n\
         s.bind(('0.0.0.0', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)"
    ));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("listener_elsewhere", SENT, "0.0.0.0:4321 (only at lo)");
}
