//! `mpps fix`: programs that no one here wrote lose datagrams, and lose none after it; undo is identity.

pub(crate) mod faults;
mod served;

use crate::common::{
    Ended, Entered, Running, copy_for_all, directory, kill, mpps, quiet_namespace, run,
};
use mpps_os::netlink::sock_diag;
use mpps_os::sched;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use served::{SERVER, Served, bursts, fix, words};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const PYTHON: Need = Need::Program("python3", "python3");
const TOOLS: Need = Need::Program("taskset chrt", "util-linux");
const TC: Need = Need::Program("tc ip", "iproute2");
const PORT: u16 = 4400;

pub(crate) fn trials() -> Vec<Trial> {
    let repeated = trials![measures(Need::Root, PYTHON): stages_without_effect_go_back;];
    let all = trials![
        compares(Need::Root, PYTHON): one_flow_over_four_sockets, flows_of_one_socket_keep_their_order, a_group_of_four_processes, a_buffer_for_bursts, a_stopped_program, a_second_fix_says_that_there_is_one,
            a_program_that_comes_back_is_fixed_again,
            a_killed_fix_is_undone, a_longer_accept_queue, a_queue_of_a_slow_program_stays,
            a_buffer_of_a_slow_program_stays, a_socket_that_was_handed_over_is_undone, an_end_of_the_traffic_decides_nothing,
            a_user_fixes_a_program_of_his_own;
        // Their busy loops would starve others.
        measures(Need::Root, PYTHON, Need::Cpus(2), TOOLS): a_reader_gets_another_cpu, programs_that_could_be_moved_away,
            a_reader_gets_the_nice_value_of_others;
        compares(Need::Root, PYTHON, TC): a_larger_send_buffer;
        waits(Need::Root, PYTHON): a_healthy_program_is_left_alone, two_fixes_lock_each_other_out,
            a_program_that_ends_meanwhile, ctrl_c_ends_the_question, a_port_without_a_socket,
            the_proc_of_another_namespace_is_refused, a_right_that_is_missing_is_named_first,
            a_container_in_this_namespace_is_refused, a_program_of_another_user_needs_root;
        waits: what_is_not_named_is_refused;
    ];
    let repeated = repeated.into_iter().take(repeats().min(1));
    all.into_iter().chain(repeated).collect()
}

/// How often verdicts are counted, which takes 15 s each time: not at all, or as often as the environment says.
fn repeats() -> usize {
    let repeats = env::var("MPPS_FIX_REPEAT").ok();
    repeats.map_or(0, |repeats| repeats.parse().expect("a number"))
}

/// One flow at four slow sockets: a buffer only delays its losses, and another hash only gives it another
/// socket.
#[expect(clippy::print_stdout, reason = "the count is the result")]
fn stages_without_effect_go_back() {
    let mut kept: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..repeats() {
        let served = Served::start(["4", "0.0005", "one"]);
        let fixed = served.under(10, || run(&mut fix("5")));
        for stage in stages(&fixed) {
            *kept.entry(stage.to_owned()).or_default() += 1;
        }
    }
    println!("kept of {}: {kept:?}", repeats());
    let often = |stage| kept.get(stage).copied().unwrap_or(0);
    assert!(often("spread") * 2 >= repeats(), "{kept:?}");
    assert!(
        (often("spread-hash") + often("buffer")) * 10 <= repeats(),
        "{kept:?}"
    );
}

fn one_flow_over_four_sockets() {
    // Each thread can read 2000 a second, and 5000 come.
    let served = Served::start(["4", "0.0005", "one"]);
    let (of_one, fixed) = (served.queues(), served.under(10, || run(&mut fix("3"))));
    assert_eq!(
        of_one.iter().filter(|bytes| **bytes > 0).count(),
        1,
        "{of_one:?}"
    );
    fixed.shows(&["-> at random", ": kept"]);
    // Whatever it tried besides went back.
    assert_eq!(served.buffers(), [212_992; 4], "{}", fixed.out);
    let of_all = served.queues();
    assert!(of_all.iter().all(|bytes| *bytes > 0), "{of_all:?}");
    let undone = served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert!(undone.out.contains(" -> by hash"), "{}", undone.out);
    let of_one = served.queues();
    assert_eq!(
        of_one.iter().filter(|bytes| **bytes > 0).count(),
        1,
        "{of_one:?}"
    );
}

/// The kernel's hash gives one of four sockets all flows; another one does not, and each flow keeps its socket.
fn flows_of_one_socket_keep_their_order() {
    let served = Served::start(["4", "0.0005", "one"]);
    let socket_of = |flow: &UdpSocket| {
        let queues = served.queues_of(flow);
        assert_eq!(queues.iter().filter(|bytes| **bytes > 0).count(), 1);
        queues.iter().position(|bytes| *bytes > 0)
    };
    let mut flows = vec![served.flow()];
    let first = socket_of(&flows[0]);
    while flows.len() < 16 {
        let flow = served.flow();
        flows.extend((socket_of(&flow) == first).then_some(flow));
    }
    let fixed = served
        .under_flows(8, &flows, || run(&mut fix("3")))
        .without_error();
    assert_eq!(stages(&fixed), ["spread-hash"], "{}", fixed.out);
    let sockets: BTreeSet<_> = flows.iter().map(socket_of).collect();
    assert!(sockets.len() > 1, "{sockets:?}: {}", fixed.out);
    served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    let sockets: BTreeSet<_> = flows.iter().map(socket_of).collect();
    assert_eq!(sockets, [first].into());
}

fn a_group_of_four_processes() {
    let served = Served::start_program(SERVER, &["4", "0.0005", "one", "processes"], 0);
    let fixed = served.under(10, || run(&mut fix("3")));
    fixed.shows(&["-> at random", ": kept"]);
    let undone = served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    // Another hash may have been kept before it.
    undone.shows(&["at random -> ", "-> by hash\n"]);
}

/// A program that reads every 60 ms: the default buffer has no room for what comes meanwhile.
const BURSTS: [&str; 3] = ["1", "0.06", "all"];

fn a_buffer_for_bursts() {
    let served = Served::start(BURSTS);
    let before = served.buffers();
    let folder = directory();
    let json = folder.path().join("fix.json");
    let mut command = fix("3");
    command.arg(format!("--json={}", json.display()));
    let fixed = served.under(40, || run(&mut command)).without_error();
    let text = fs::read_to_string(json).expect("it was written");
    let object: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(object["steps"][0]["measured"]["kept"], true, "{object:#}");
    assert!(
        fixed.out.contains("receive buffer 212992 bytes -> "),
        "{}",
        fixed.out
    );
    assert!(fixed.out.contains(": kept"), "{}", fixed.out);
    assert!(served.buffers()[0] > before[0]);
    served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert_eq!(served.buffers(), before);
}

/// Reads in bursts. By SIGUSR1 a child gets the socket, and it closes it.
const HANDS_OVER: &str = r"
import os, signal, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 4400))
s.setblocking(False)
orders = []
signal.signal(signal.SIGUSR1, lambda *_: orders.append(1))
print('ready', flush=True)
parent = os.getpid()
while os.getpid() == parent or os.getppid() == parent:
    try:
        while True:
            s.recv(2048)
    except BlockingIOError:
        pass
    time.sleep(0.06)
    if orders and os.getpid() == parent and os.fork():
        s.close()
        print('closed', flush=True)
        signal.pause()
";

fn a_socket_that_was_handed_over_is_undone() {
    let mut served = Served::start_program(HANDS_OVER, &[], 0);
    let before = served.buffers();
    served.under(40, || run(&mut fix("3")));
    assert!(served.buffers()[0] > before[0]);
    served.server.signal("USR1");
    served.server.line("closed");
    let undone = served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert!(undone.out.contains("undone: receive buffer"), "{undone:?}");
    assert_eq!(served.buffers(), before);
}

/// It can read some 550 of 750 datagrams of each burst. Its old buffer empties between them; a larger one holds the
/// losses of a run, and would be full after some seconds.
fn a_buffer_of_a_slow_program_stays() {
    let served = Served::start(["1", "0.0005", "one"]);
    let before = served.buffers();
    let each = Duration::from_millis(300);
    let fixed = served.under_bursts(each, 750, || run(&mut fix("3")));
    assert_eq!(fixed.code(), 1, "{fixed:?}");
    assert!(fixed.out.contains("no queue empties"), "{}", fixed.out);
    assert_eq!(served.buffers(), before, "{}", fixed.out);
}

/// Nothing is lost of no traffic.
fn an_end_of_the_traffic_decides_nothing() {
    let served = Served::start(BURSTS);
    let before = served.buffers();
    let running = served.under(40, || {
        let mut running = Running::start(&mut fix("100"));
        running.line("receive buffer");
        while served.buffers() == before {
            thread::sleep(Duration::from_millis(1));
        }
        running
    });
    let fixed = running.end();
    assert_eq!(fixed.code(), 1, "{fixed:?}");
    assert!(
        fixed.out.contains("put back: the traffic ended"),
        "{fixed:?}"
    );
    assert_eq!(served.buffers(), before, "{}", fixed.out);
}

/// Accepts the connections that wait, at most N, and sleeps.
const ACCEPTS: &str = r"
import socket, sys, time
s = socket.create_server(('127.0.0.1', 4400), backlog=4)
s.setblocking(False)
print('ready', flush=True)
while True:
    try:
        for at in range(int(sys.argv[1])):
            s.accept()[0].close()
    except BlockingIOError:
        pass
    time.sleep(0.06)
";

/// 30 connections each 50 ms, which end without a trace.
const CONNECTS: &str = r"
import socket, struct, time
while True:
    all = [socket.socket() for at in range(30)]
    for one in all:
        one.setblocking(False)
        one.connect_ex(('127.0.0.1', 4400))
    time.sleep(0.05)
    for one in all:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        one.close()
";

/// A fix of a server that accepts at most N connections at a time; the backlogs before it, after it and after its
/// undo.
fn fixed_listener(at_most: &str) -> (Ended, [u32; 3]) {
    let host = quiet_namespace();
    let python = |arguments: &[&str]| {
        let mut python = Command::new("python3");
        python.arg("-c").args(arguments).process_group(0);
        host.within(|| Running::start(&mut python))
    };
    let mut server = python(&[ACCEPTS, at_most]);
    server.line("ready");
    let backlog = || {
        let all = host.within(sock_diag::listeners).expect("it can be asked");
        all[0].waiting_max
    };
    let before = backlog();
    let _client = python(&[CONNECTS]);
    let fixed = host.within(|| run(&mut fix("3")));
    let after = backlog();
    host.within(|| run(&mut mpps(&["undo"]))).fine();
    (fixed, [before, after, backlog()])
}

fn a_longer_accept_queue() {
    let (fixed, backlogs) = fixed_listener("9999");
    let fixed = fixed.without_error();
    assert!(
        fixed.out.contains("accept queue 4 -> 4096"),
        "{}",
        fixed.out
    );
    assert!(fixed.out.contains(": kept"), "{}", fixed.out);
    assert_eq!(backlogs, [4, 4096, 4], "{}", fixed.out);
}

/// It would only delay the loss.
fn a_queue_of_a_slow_program_stays() {
    let (fixed, backlogs) = fixed_listener("1");
    assert_eq!(fixed.code(), 1, "{fixed:?}");
    assert!(fixed.out.contains("no queue empties"), "{}", fixed.out);
    assert_eq!(backlogs, [4; 3], "{}", fixed.out);
}

/// 400 datagrams each 100 ms, without waiting for room.
const SENDS: &str = r"
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('192.0.2.1', 4400))
s.setblocking(False)
print('ready', flush=True)
while True:
    for at in range(400):
        try:
            s.sendto(bytes(1000), ('192.0.2.2', 9))
        except BlockingIOError:
            pass
    time.sleep(0.1)
";

fn a_larger_send_buffer() {
    let host = quiet_namespace();
    // It sends a burst in 32 ms, and has room for it.
    for command in [
        "ip link add out0 type veth peer name out1",
        "ip addr add 192.0.2.1/24 dev out0",
        "ip link set out0 up",
        "ip link set out1 up",
        "ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:09 dev out0",
        "tc qdisc add dev out0 root tbf rate 100mbit burst 32kb limit 10mb",
    ] {
        let mut words = command.split(' ');
        let mut made = Command::new(words.next().unwrap_or_default());
        host.within(|| run(made.args(words))).fine();
    }
    let mut python = Command::new("python3");
    python.args(["-c", SENDS]).process_group(0);
    let mut server = host.within(|| Running::start(&mut python));
    server.line("ready");
    let buffer = || host.within(sock_diag::udp).expect("it can be asked")[0].send_buffer_bytes;
    let before = buffer();
    let fixed = host.within(|| run(&mut fix("3"))).without_error();
    assert!(
        fixed.out.contains("send buffer 212992 bytes -> "),
        "{fixed:?}"
    );
    assert!(fixed.out.contains(": kept"), "{fixed:?}");
    assert!(buffer() > before);
    host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert_eq!(buffer(), before);
}

/// A program that runs all the time on these CPUs, with this priority.
fn busy(cpus: &str, priority: &str) -> Running {
    let mut command = Command::new("taskset");
    command.args(["-c", cpus]).args(priority.split(' '));
    let mut running = Running::start(command.args(["sh", "-c", "echo runs; while :; do :; done"]));
    // On a busy machine its start takes longer than a fix looks.
    running.line("runs");
    running
}

/// Runs before the busy loops and the sender. Otherwise it takes up to half a minute.
fn urgent(words: &[&str]) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-20", env!("CARGO_BIN_EXE_mpps")]);
    command.args(words);
    command
}

/// A server that reads as fast as it can on CPU 1.
fn on_one_cpu() -> Served {
    let served = Served::start(["1", "0", "one"]);
    run(Command::new("taskset").args(["-acp", "1", &served.pid()])).fine();
    served
}

/// The CPUs and the nice values of the threads of a process.
fn threads(pid: &str) -> (Vec<Vec<usize>>, Vec<i32>) {
    let all = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let all = all.map(|one| one.expect("a thread").file_name().into_string());
    let all = all.map(|name| name.expect("a number").parse().expect("a number"));
    let all: BTreeSet<u32> = all.collect();
    let cpus = all.iter().map(|thread| sched::affinity(*thread));
    let nice = all.iter().map(|thread| sched::nice(*thread));
    (
        cpus.collect::<Result<_, _>>().expect("it lives"),
        nice.collect::<Result<_, _>>().expect("it lives"),
    )
}

/// More in a burst than a small part of a CPU reads.
const CROWDED: usize = 100;

fn a_reader_gets_another_cpu() {
    // With priorities in real time, whatever runs on the other CPU does not matter.
    let (served, _busy) = (on_one_cpu(), [(); 2].map(|()| busy("1", "chrt -r 1")));
    run(Command::new("chrt").args(["-a", "-r", "-p", "1", &served.pid()])).fine();
    let before = threads(&served.pid());
    let fixed = served
        .under(CROWDED, || run(&mut urgent(&words("3"))))
        .without_error();
    assert!(fixed.out.contains(" 1 -> 0-1"), "{}", fixed.out);
    assert!(stages(&fixed).contains(&"affinity"), "{}", fixed.out);
    assert_ne!(threads(&served.pid()), before);
    served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert_eq!(threads(&served.pid()), before);
}

/// The kinds of the changes that stay.
fn stages(fixed: &Ended) -> Vec<&str> {
    let lines = fixed.out.lines().filter(|line| line.contains(": until "));
    lines.filter_map(|line| line.split(':').next()).collect()
}

/// A program that may leave the CPU by itself is left as it is.
fn programs_that_could_be_moved_away() {
    let (served, confined, free) = (
        on_one_cpu(),
        busy("1", "nice -n -15"),
        busy("0,1", "nice -n -15"),
    );
    let mut words = words("3");
    words.retain(|word| *word != "--yes");
    words.push("--dry-run");
    let shown = served.under(CROWDED, || run(&mut urgent(&words)));
    assert_eq!(shown.code(), 1, "{shown:?}");
    let moved = |one: &Running| shown.out.contains(&format!("taskset -pc 0 {}", one.id()));
    assert!(moved(&confined) && !moved(&free), "{}", shown.out);
    assert!(shown.out.contains("nice value of thread"), "{}", shown.out);
}

/// Whether it stays depends on what runs there besides.
fn a_reader_gets_the_nice_value_of_others() {
    let (served, _busy) = (on_one_cpu(), busy("1", "nice -n -10"));
    let before = threads(&served.pid());
    let fixed = served.under(CROWDED, || run(&mut urgent(&words("3"))));
    assert!(fixed.out.contains("nice value of thread"), "{}", fixed.out);
    served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert_eq!(threads(&served.pid()), before);
}

fn a_stopped_program() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    let fixed = served.under(40, || run(&mut fix("3")));
    assert!(fixed.out.contains("stopped -> running"), "{}", fixed.out);
    assert!(fixed.out.contains(": kept"), "{}", fixed.out);
    let undone = served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert!(undone.out.contains("running -> stopped"), "{}", undone.out);
}

fn a_killed_fix_is_undone() {
    let served = Served::start(BURSTS);
    let before = served.buffers();
    let killed = served.under(40, || {
        // Before its first change, it only has a claim.
        let mut running = Running::start(&mut fix("100"));
        running.line("measuring each change");
        running.signal("KILL");
        running.end();
        run(&mut mpps(&["undo"])).shows(&["nothing to undo"]);
        let mut running = Running::start(&mut fix("100"));
        running.line("receive buffer");
        while served.buffers() == before && !running.has_said("1. lost") {
            thread::sleep(Duration::from_millis(1));
        }
        running.signal("KILL");
        running.end();
        run(&mut mpps(&["undo"]))
    });
    assert!(killed.fine().out.contains("undone: receive buffer"));
    assert_eq!(served.buffers(), before);
}

fn as_user() -> Command {
    let mut user = Command::new("setpriv");
    user.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    user
}

fn a_user_fixes_a_program_of_his_own() {
    // The user of `as_nobody`.
    let served = Served::start_as(["4", "0.0005", "one"], 65534);
    let place = directory();
    let binary = copy_for_all(place.path());
    let own = directory();
    chown(own.path(), Some(65534), Some(65534)).expect("this is root");
    let mut user = as_user();
    user.arg(binary)
        .args(words("3"))
        .env("XDG_RUNTIME_DIR", own.path());
    let fixed = served.under(10, || run(&mut user));
    assert!(fixed.out.contains(": kept"), "{}", fixed.out);
}

/// A forced buffer needs a right that the user lacks: nothing is asked or measured.
fn a_right_that_is_missing_is_named_first() {
    let served = Served::start_as(BURSTS, 65534);
    let place = directory();
    let mut user = as_user();
    user.arg(copy_for_all(place.path()));
    user.args(words("3").into_iter().filter(|word| *word != "--yes"));
    let refused = served.under(40, || run(&mut user));
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(refused.err.contains("CAP_NET_ADMIN"), "{refused:?}");
    assert!(!refused.out.contains("lost"), "{refused:?}");
}

/// A user sees no owner of another user's sockets, and what they lose.
fn a_program_of_another_user_needs_root() {
    let served = Served::start(BURSTS);
    let place = directory();
    let mut user = as_user();
    user.arg(copy_for_all(place.path())).args(words("3"));
    let refused = served.under(40, || run(&mut user));
    refused.fails(&["another user", "run this as root"]);
}

/// All programs of the host would be those of the container.
fn a_container_in_this_namespace_is_refused() {
    let served = Served::start(["1", "0", "one"]);
    let own = served.pid();
    let mut words = words("3");
    words.extend(["--container", &own]);
    let refused = served.host.within(|| run(&mut mpps(&words)));
    refused.refused(&["--container", "network namespace of this command"]);
}

fn a_healthy_program_is_left_alone() {
    let served = Served::start(["4", "0", "one"]);
    let found = served.under(1, || run(&mut fix("3"))).fine();
    assert!(found.out.contains("left as it is"), "{}", found.out);
    let list = served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert!(!list.out.contains(&served.pid()), "{}", list.out);
}

fn a_program_that_comes_back_is_fixed_again() {
    let mut served = Served::start(BURSTS);
    let before = served.buffers();
    let client = served.flow();
    let (end, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || bursts(Duration::from_millis(2), 40, &[client], &over));
        let _end = end;
        let mut words = words("3");
        words.push("--watch");
        let mut watch = served.host.within(|| Running::start(&mut mpps(&words)));
        watch.line("comes back");
        assert!(served.buffers()[0] > before[0]);
        served.server.signal("KILL");
        while !served.sockets().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        // Another user's program of the same name, at another address.
        let elsewhere = SERVER.replace("127.0.0.1", "127.0.0.2");
        let stranger = Served::program(&served.host, &elsewhere, &BURSTS, 65_534);
        served.server = Served::program(&served.host, SERVER, &BURSTS, 0);
        watch.line("again: receive buffer 212992 bytes -> ");
        let sockets = served.sockets().into_iter();
        let (own, others): (Vec<_>, Vec<_>) =
            sockets.partition(|one| one.local.ip() == Ipv4Addr::LOCALHOST);
        assert!(own[0].buffer_bytes > before[0]);
        assert_eq!(others[0].buffer_bytes, before[0]);
        stranger.signal("KILL");
        stranger.end();
        watch.signal("INT");
        watch.end().fine();
    });
    let list = served
        .host
        .within(|| run(&mut mpps(&["undo", "--list"])))
        .fine();
    assert_eq!(
        list.out.matches("receive buffer").count(),
        1,
        "{}",
        list.out
    );
    served.host.within(|| run(&mut mpps(&["undo"]))).fine();
    assert_eq!(served.buffers(), before);
}

/// A buffer that was kept has the same kind of change no second time.
fn a_second_fix_says_that_there_is_one() {
    let served = Served::start(BURSTS);
    let second = served.under(40, || {
        run(&mut fix("3")).without_error();
        let buffer = served.buffers();
        // Smaller again, so that it loses.
        let python = "import os, socket, sys\npidfd = os.pidfd_open(int(sys.argv[1]))\nimport ctypes\n\
            for fd in range(3, 9):\n  got = ctypes.CDLL(None).syscall(438, pidfd, fd, 0)\n  \
            if got >= 0 and os.readlink(f'/proc/self/fd/{got}').startswith('socket'):\n    \
            socket.socket(fileno=got).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 106496)";
        run(Command::new("python3").args(["-c", python, &served.pid()])).fine();
        assert_ne!(served.buffers(), buffer);
        run(&mut fix("3"))
    });
    assert_eq!(second.code(), 1, "{second:?}");
    let said = "buffer: fixed already: receive buffer 212992 bytes -> ";
    assert!(second.out.contains(said), "{}", second.out);
    // A value that another program has set stays.
    let undone = served.host.within(|| run(&mut mpps(&["undo"])));
    assert_eq!(served.buffers(), [212_992], "{undone:?}");
}

fn two_fixes_lock_each_other_out() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    served.under(40, || {
        let mut first = Running::start(&mut fix("100"));
        first.line("stopped -> running");
        let second = run(&mut fix("3"));
        assert_eq!(second.code(), 2, "{second:?}");
        let holder = format!("process {} has", first.id());
        assert!(second.err.contains(&holder), "{second:?}");
        first.signal("INT");
        let ended = first.end();
        assert_eq!(ended.code(), 130, "{ended:?}");
        ended.warns(&["interrupted: all is as it was"]);
    });
    let stat = fs::read_to_string(format!("/proc/{}/stat", served.pid())).expect("it lives");
    assert!(stat.contains(") T "), "{stat}");
}

fn a_program_that_ends_meanwhile() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    let folder = directory();
    let json = folder.path().join("fix.json");
    let mut command = fix("100");
    command.arg(format!("--json={}", json.display()));
    let ended = served.under(40, || {
        let mut running = Running::start(&mut command);
        running.line("stopped -> running");
        served.server.signal("KILL");
        running.end()
    });
    let text = fs::read_to_string(json).expect("it was written");
    assert!(text.contains(r#""stage":"continue""#), "{text}");
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.err.contains("sockets meanwhile"), "{ended:?}");
    let undone = served
        .host
        .within(|| run(&mut mpps(&["undo", "--list"])))
        .fine();
    assert!(!undone.out.contains("fix"), "{}", undone.out);
}

fn what_is_not_named_is_refused() {
    run(&mut mpps(&["fix"])).refused(&["--port PORT", "--pid PID"]);
    run(&mut mpps(&["fix", "--port", "9", "--yes", "--dry-run"])).refused(&["--dry-run", "--yes"]);
}

/// Signals are held while something may change, and nothing does at the question.
fn ctrl_c_ends_the_question() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    let terminal = "import os, pty, sys\npid, fd = pty.fork()\nif pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        out = b''\n\
        while b'[y/N]' not in out: out += os.read(fd, 999)\n\
        os.write(fd, b'\\x03')\nsys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let mut python = Command::new("python3");
    python.args(["-c", terminal, env!("CARGO_BIN_EXE_mpps")]);
    python.args(words("3").into_iter().filter(|word| *word != "--yes"));
    let ended = served.under(40, || run(&mut python));
    assert_eq!(ended.code(), 130, "{ended:?}");
    let stat = fs::read_to_string(format!("/proc/{}/stat", served.pid())).expect("it lives");
    assert!(stat.contains(") T "), "{stat}");
}

/// A number of another process namespace is that of any process here.
fn the_proc_of_another_namespace_is_refused() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", env!("CARGO_BIN_EXE_mpps")]);
    inside.args(words("3"));
    let refused = served.under(40, || run(&mut inside));
    assert_eq!(refused.code(), 2, "{refused:?}");
    let why = "/proc: it is of another process namespace";
    assert!(refused.err.contains(why), "{refused:?}");
}

fn a_port_without_a_socket() {
    let ended = quiet_namespace().within(|| run(&mut fix("3")));
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.err.contains("mpps doctor --port 4400"), "{ended:?}");
    assert!(!ended.out.contains("left as it is"), "{ended:?}");
}
