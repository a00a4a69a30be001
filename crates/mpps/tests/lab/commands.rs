//! Commands on the receiver host, and how they end.

use crate::common::{Running, marked, mpps, run};
use std::collections::BTreeSet;
use std::process::Command;

pub(super) fn commands_run_on_the_receiver() {
    let lab = |command: &[&str]| {
        let mut arguments = vec!["lab", "--"];
        arguments.extend(command);
        run(&mut mpps(&arguments))
    };
    assert_eq!(lab(&["true"]).code(), 0);
    assert_eq!(lab(&["sh", "-c", "exit 7"]).code(), 7);
    // 128 and the signal's number, as shells have it.
    assert_eq!(lab(&["sh", "-c", "kill -TERM $$"]).code(), 128 + 15);
    // A table with two lines of heads, then an interface a line.
    let links = lab(&["cat", "/proc/net/dev"]).fine();
    let lines = links.out.lines().skip(2);
    let names: BTreeSet<&str> = lines
        .filter_map(|line| Some(line.split_once(':')?.0.trim()))
        .collect();
    assert_eq!(names, ["lo", "mpps-rx"].into(), "{links:#?}");
    // The routing table of IPv4 as a tree, which has each address of the host.
    let addresses = lab(&["cat", "/proc/net/fib_trie"]).fine();
    for address in ["-- 192.168.254.1\n", "-- 192.168.254.20\n"] {
        assert!(addresses.out.contains(address), "{addresses:#?}");
    }
    // Commands may send from the other host.
    let enter = "nsenter --net=$MPPS_SENDER cat /proc/net/fib_trie";
    let sender = lab(&["sh", "-c", enter]).fine();
    assert!(sender.out.contains("-- 192.168.254.30\n"), "{sender:#?}");
}

/// A lab whose command prints `ready`, and the marker of its processes.
fn visited(name: &str, script: &str) -> (Running, String) {
    let value = format!("{name}-{}", std::process::id());
    let mut command = mpps(&["lab", "--", "sh", "-c", script]);
    let mut running = Running::start(command.env("MPPS_TEST_MARKER", &value));
    running.line("ready");
    (running, format!("MPPS_TEST_MARKER={value}"))
}

pub(super) fn a_signal_ends_the_command_and_the_lab() {
    for (signal, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        // One child, in the background, has a session of its own.
        let script = "setsid sleep 1000 & echo ready; sleep 1000";
        let (running, marker) = visited(signal, script);
        assert!(!marked(&marker).is_empty());
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code(), 128 + number, "{signal}: {ended:#?}");
        assert_eq!(marked(&marker), [""; 0], "{signal}");
    }
}

/// A stopped command hears Ctrl-C, with and without a terminal. Otherwise it would be killed after
/// seconds, and not end with 7, or stay.
pub(super) fn a_stopped_command_hears_ctrl_c() {
    let script = "trap 'exit 7' INT
        (until grep -q ') T ' /proc/$$/stat; do :; done; echo ready) &
        kill -STOP $$";
    let (running, _) = visited("stopped", script);
    assert_eq!(running.interrupt().code(), 7);
    let terminal = "import os, pty, sys\n\
        pid, fd = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        while b'ready' not in os.read(fd, 99): pass\n\
        os.write(fd, b'\\x03')\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let mut python = Command::new("python3");
    let program = env!("CARGO_BIN_EXE_mpps");
    python.args(["-c", terminal, program, "lab", "--", "sh", "-c", script]);
    assert_eq!(run(&mut python).code(), 7);
}

/// A shell that edits its line has the terminal in a mode of its own, and leaves it so if it is killed. A
/// command that ends by itself may have set the mode for the user.
pub(super) fn a_killed_command_leaves_the_terminal_as_it_was() {
    let terminal = "import os, pty, sys, termios\n\
        pid, fd = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        while b'ready' not in os.read(fd, 99): pass\n\
        if sys.argv[-1] == 'TERM': os.kill(pid, 15)\n\
        os.waitpid(pid, 0)\n\
        sys.exit(bool(termios.tcgetattr(fd)[3] & termios.ECHO))";
    for (end, rest, echoes) in [
        ("TERM", "trap '' TERM; echo ready; sleep 1000", 1),
        ("itself", "echo ready; kill -9 $$", 1),
        ("fine", "echo ready; exit 3", 0),
    ] {
        let script = format!("stty -echo; {rest}");
        let mut python = Command::new("python3");
        let program = env!("CARGO_BIN_EXE_mpps");
        python.args([
            "-c", terminal, program, "lab", "--", "sh", "-c", &script, end,
        ]);
        assert_eq!(run(&mut python).code(), echoes, "{end}");
    }
}

/// It gets one signal, and its own status counts. A command that ignores the signal is killed.
pub(super) fn a_command_ends_as_it_likes() {
    let listens = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let (running, _) = visited("listens", listens);
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.code(), 7, "{ended:#?}");
    assert_eq!(ended.out, "ready\ntold\n");
    let (running, marker) = visited("deaf", "trap '' TERM; echo ready; sleep 1000; sleep 1000");
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.code(), 128 + 15, "{ended:#?}");
    assert_eq!(marked(&marker), [""; 0]);
}
