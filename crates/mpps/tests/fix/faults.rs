//! `mpps fix` and `mpps undo` in the hands of programs, users and signals that do as they like.

use super::served::{SERVER, Served, bursts, fix, words};
use super::{BURSTS, CROWDED, PYTHON, TOOLS, as_user, busy, on_one_cpu, threads, urgent};
use crate::common::{Ended, Entered, Running, copy_for_all, directory, kill, mpps, run};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        compares(Need::Root, PYTHON): a_program_of_the_group_stays,
            a_user_hears_of_a_program_that_may_be_lost,
            a_stopped_helper_is_not_to_blame, a_stopped_reader_beside_a_helper_is,
            a_value_that_the_program_changed_ends_the_fix, a_dry_run_keeps_journals, sockets_with_the_same_change_share_a_line,
            a_watch_goes_on_after_its_restart, a_watch_restores_what_a_killed_one_left,
            a_watch_survives_a_restart_in_its_measurement;
        measures(Need::Root, PYTHON, Need::Cpus(2), TOOLS): programs_that_were_moved_come_back,
            a_killed_fix_brings_them_back;
        waits(Need::Root, PYTHON): every_end_has_its_json;
    ]
}

/// The server, which gives all datagrams of its group to the first socket by a program of its own.
fn attaching() -> String {
    let attach = "import struct\nprogram = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n\
        s.setsockopt(socket.SOL_SOCKET, 51, struct.pack('HL', 1, ctypes.addressof(program)))\nprint('ready'";
    SERVER.replace("print('ready'", attach)
}

/// The sockets of the server that a new flow reaches.
fn reached(served: &Served) -> Vec<usize> {
    let queues = served.queues().into_iter().enumerate();
    let reached = queues.filter(|(_, bytes)| *bytes > 0);
    reached.map(|(at, _)| at).collect()
}

fn undo(served: &Served) -> Ended {
    served.host.within(|| run(&mut mpps(&["undo"])))
}

fn a_program_of_the_group_stays() {
    let served = Served::start_program(&attaching(), &["4", "0.0005", "one"], 0);
    let fixed = served.under(10, || run(&mut fix("3")));
    assert_eq!(fixed.code(), 1, "{fixed:?}");
    fixed.shows(&["left as it is: a program chooses the sockets of its group"]);
    assert!(!fixed.out.contains("at random"), "{fixed:?}");
    // By the kernel's hash, five flows reach one socket once in 256 trials. Which one is the first is not known: inode
    // numbers come in lots, one for each CPU.
    let reached = [(); 5].map(|()| reached(&served));
    assert!(
        reached[0].len() == 1 && reached.iter().all(|one| *one == reached[0]),
        "{reached:?} {fixed:?}"
    );
}

/// A user does not see whether there is one.
fn a_user_hears_of_a_program_that_may_be_lost() {
    let served = Served::start_program(&attaching(), &["4", "0.0005", "one"], 65534);
    let (place, own) = (directory(), directory());
    let binary = copy_for_all(place.path());
    chown(own.path(), Some(65534), Some(65534)).expect("this is root");
    let by_user = |words: &[&str]| {
        let mut user = as_user();
        user.arg(&binary).args(words);
        run(user.env("XDG_RUNTIME_DIR", own.path()))
    };
    let fixed = served.under(10, || by_user(&words("3")));
    fixed.shows(&[
        "risk    a program that the server attached itself is replaced",
        "not shown -> at random",
    ]);
    if fixed.code() == 1 && !fixed.out.contains(": kept") {
        fixed.shows(&["all is as it was, except a program"]);
        return;
    }
    let undone = served.host.within(|| by_user(&["undo"]));
    assert_eq!(undone.code(), 1, "{undone:?}");
    undone.shows(&["is lost: restart the server"]);
}

/// A socket that two processes have, and another one: only the queue shows that it is read. In the child's place, or
/// in its parent's, the reader takes a datagram each half millisecond.
const INHERITED: &str = r"
import os, signal, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 4400))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.bind(('127.0.0.1', 4401))
parent = os.getpid()
child = os.fork()
if child:
    print('child', child, flush=True)
    print('ready', flush=True)
while (child == 0) == (sys.argv[1] == 'child'):
    s.recv(2048)
    time.sleep(0.0005)
while child or os.getppid() == parent:
    time.sleep(0.05)
";

/// The changes that are shown while this process of both is stopped.
fn shown_with_stopped(reader: &str, stopped: &str) -> Ended {
    let mut served = Served::start_program(INHERITED, &[reader], 0);
    let line = served.server.line("child");
    let child = line.split(' ').nth(1).expect("a number").to_owned();
    let which = match stopped {
        "child" => child.clone(),
        _ => served.pid(),
    };
    kill("STOP", &which);
    let mut words = words("3");
    words.retain(|word| *word != "--yes");
    words.push("--dry-run");
    let shown = served.under(10, || run(&mut mpps(&words)));
    kill("KILL", &child);
    shown
}

fn a_stopped_helper_is_not_to_blame() {
    for (reader, stopped) in [("parent", "child"), ("child", "parent")] {
        let shown = shown_with_stopped(reader, stopped);
        assert_eq!(shown.code(), 1, "{shown:?}");
        shown.shows(&["receive buffer"]);
        assert!(!shown.out.contains("stopped"), "{shown:?}");
    }
}

fn a_stopped_reader_beside_a_helper_is() {
    for reader in ["parent", "child"] {
        shown_with_stopped(reader, reader).shows(&["stopped -> running"]);
    }
}

/// Sets the receive buffer of a server from outside, as if it did so itself.
fn set_buffer(served: &Served, bytes: u32) {
    let code = format!(
        "import ctypes, os, socket\npidfd = os.pidfd_open({})\nfor fd in range(3, 9):\n  \
         got = ctypes.CDLL(None).syscall(438, pidfd, fd, 0)\n  \
         if got >= 0 and os.readlink(f'/proc/self/fd/{{got}}').startswith('socket'):\n    \
         socket.socket(fileno=got).setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, {})",
        served.pid(),
        bytes / 2
    );
    run(Command::new("python3").args(["-c", &code])).fine();
    assert_eq!(served.buffers(), [bytes]);
}

/// It is left as it is, and the next fix begins anew.
fn a_value_that_the_program_changed_ends_the_fix() {
    let served = Served::start(BURSTS);
    served.under(40, || run(&mut fix("3"))).without_error();
    set_buffer(&served, 100_000);
    let undone = undo(&served);
    assert_eq!(undone.code(), 1, "{undone:?}");
    undone.shows(&["left as it is: receive buffer", "it is 100000"]);
    assert_eq!(served.buffers(), [100_000]);
    undo(&served).fine().shows(&["nothing to undo"]);
    let fixed = served.under(40, || run(&mut fix("3"))).without_error();
    fixed.shows(&["receive buffer 100000 bytes -> ", ": kept"]);
    undo(&served).fine();
    assert_eq!(served.buffers(), [100_000]);
}

/// The journals of this trial.
fn journals() -> Vec<PathBuf> {
    let all = fs::read_dir("/run/mpps").expect("there was a change");
    all.map(|one| one.expect("a file").path()).collect()
}

/// Also one of an earlier process of the number.
fn a_dry_run_keeps_journals() {
    let served = Served::start(BURSTS);
    served.under(40, || run(&mut fix("3"))).without_error();
    let kept = journals();
    let text = fs::read_to_string(&kept[0]).expect("it is ours");
    let mut journal: Value = serde_json::from_str(&text).expect("it is JSON");
    let start = &mut journal["change"]["place"]["process"]["process"]["start_time_ticks"];
    *start = (start.as_u64().expect("a number") - 1).into();
    fs::write(&kept[0], journal.to_string()).expect("it is ours");
    set_buffer(&served, 100_000);
    let shown = served.under(40, || run(mpps(&dry()).env("COLUMNS", "40")));
    let text: Vec<&str> = shown.out.split_whitespace().collect();
    assert!(
        text.join(" ").contains("receive buffer 100000 bytes -> "),
        "{shown:?}"
    );
    let mut lines = shown.out.lines();
    assert!(lines.all(|line| line.chars().count() <= 40), "{shown:?}");
    assert_eq!(journals(), kept, "{shown:?}");
    assert_eq!(served.buffers(), [100_000]);
}

/// The words of a fix that changes nothing.
fn dry() -> Vec<&'static str> {
    let mut words = words("3");
    words.retain(|word| *word != "--yes");
    words.push("--dry-run");
    words
}

fn sockets_with_the_same_change_share_a_line() {
    let served = Served::start(["2", "0.06", "all"]);
    // The kernel's hash gives each of both some of them.
    let flows: Vec<_> = (0..16).map(|_| served.flow()).collect();
    let shown = served.under_flows(200, &flows, || run(&mut mpps(&dry())));
    shown.shows(&["-> ", " bytes for each of 2 sockets"]);
}

/// A watch of the server's port.
fn watching(served: &Served) -> Running {
    let mut words = words("3");
    words.push("--watch");
    served.host.within(|| Running::start(&mut mpps(&words)))
}

/// Does this while bursts come to the port, whichever process has it.
fn while_bursts_come(served: &mut Served, work: impl FnOnce(&mut Served)) {
    let client = served.flow();
    let (end, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || bursts(Duration::from_millis(2), 40, &[client], &over));
        let _end = end;
        work(served);
    });
}

/// Kills the server, and starts another one.
fn restart(served: &mut Served) {
    served.server.signal("KILL");
    while !served.sockets().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    served.server = Served::program(&served.host, SERVER, &BURSTS, 0);
}

fn a_watch_goes_on_after_its_restart() {
    let mut served = Served::start(BURSTS);
    let before = served.buffers();
    while_bursts_come(&mut served, |served| {
        let mut watch = watching(served);
        watch.line("comes back");
        watch.signal("KILL");
        watch.end();
        let fixed = served.buffers();
        let pid = served.pid();
        let kept = format!("kept by an earlier `mpps fix`: buffer of python3 ({pid})");
        let mut watch = watching(served);
        watch.line(&kept);
        watch.line("comes back");
        // Both come back while none watches.
        watch.signal("KILL");
        let ended = watch.end();
        assert!(!ended.out.contains(": again"), "{ended:?}");
        assert_eq!(served.buffers(), fixed);
        restart(served);
        assert_eq!(served.buffers(), before);
        let mut watch = watching(served);
        watch.line(&kept);
        watch.line("again: receive buffer 212992 bytes -> ");
        assert_eq!(served.buffers(), fixed);
        watch.signal("INT");
        watch.end().fine();
    });
    let undone = undo(&served).fine();
    assert_eq!(
        undone.out.matches("receive buffer").count(),
        1,
        "{undone:?}"
    );
    assert_eq!(served.buffers(), before);
}

fn a_watch_restores_what_a_killed_one_left() {
    let mut served = Served::start(BURSTS);
    let before = served.buffers();
    while_bursts_come(&mut served, |served| {
        let mut watch = watching(served);
        watch.line("receive buffer");
        while served.buffers() == before && !watch.has_said("1. lost") {
            thread::sleep(Duration::from_millis(1));
        }
        watch.signal("KILL");
        watch.end();
        let mut watch = watching(served);
        watch.line("undone: receive buffer");
        watch.line("comes back");
        watch.signal("INT");
        watch.end().fine();
    });
    undo(&served).fine();
    assert_eq!(served.buffers(), before);
}

fn a_watch_survives_a_restart_in_its_measurement() {
    let mut served = Served::start(BURSTS);
    while_bursts_come(&mut served, |served| {
        let mut watch = watching(served);
        watch.line("receive buffer");
        restart(served);
        watch.line("the program opened or closed sockets meanwhile");
        watch.line("comes back");
        watch.signal("INT");
        watch.end().fine();
    });
    undo(&served).fine();
}

/// A server that cannot read all of it even on a CPU of its own, beside a program that is moved away.
fn crowded() -> (Served, Running) {
    (on_one_cpu(), busy("1", "nice -n -15"))
}

/// The CPUs of a process, as its status shows them.
fn cpus(of: &Running) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", of.id())).expect("it lives");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("the kernel shows it").trim().to_owned()
}

fn programs_that_were_moved_come_back() {
    let (served, moved) = crowded();
    let before = threads(&served.pid());
    let fixed = served.under(20 * CROWDED, || run(&mut urgent(&words("3"))));
    fixed.without_error().shows(&["1 -> 0"]);
    undo(&served).fine();
    assert_eq!(cpus(&moved), "1");
    assert_eq!(threads(&served.pid()), before);
}

fn a_killed_fix_brings_them_back() {
    let (served, moved) = crowded();
    let before = threads(&served.pid());
    let undone = served.under(20 * CROWDED, || {
        let mut running = Running::start(&mut urgent(&words("3")));
        running.line("CPUs of thread");
        while cpus(&moved) == "1" && !running.has_said("lost nothing") {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(cpus(&moved), "0");
        running.signal("KILL");
        running.end();
        run(&mut mpps(&["undo"]))
    });
    undone.fine().shows(&["0 -> 1"]);
    assert_eq!(cpus(&moved), "1");
    assert_eq!(threads(&served.pid()), before);
}

/// Without a terminal nothing is asked, and two fixes keep off each other.
fn every_end_has_its_json() {
    let served = Served::start(["1", "0", "one"]);
    kill("STOP", &served.pid());
    let folder = directory();
    let json = folder.path().join("fix.json");
    let option = format!("--json={}", json.display());
    let object = |ended: &Ended| {
        let text = fs::read_to_string(&json).expect("it was written");
        let object: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{ended:?}"));
        assert!(object["lost"].as_u64() > Some(0), "{object:#}");
        object
    };
    let mut silent = words("3");
    silent.retain(|word| *word != "--yes");
    silent.push(&option);
    served.under(40, || {
        let asked = run(&mut mpps(&silent));
        asked.fails(&["no terminal to ask on"]);
        assert_eq!(object(&asked)["steps"][0]["stage"], "continue");
        let mut first = Running::start(&mut fix("100"));
        first.line("stopped -> running");
        let second = run(fix("3").arg(&option));
        second.fails(&["is not possible"]);
        object(&second);
        first.signal("INT");
        first.end();
    });
}
