//! The text that `mpps lab` prints, and what it does without a place for its files.

use super::{directory, result};
use crate::common::run;
use std::process::Command;

/// Ctrl-C at a terminal of 80 columns, while the first path of rung 16 is measured; its last path
/// cannot run.
pub(crate) fn ctrl_c_leaves_no_bar_and_skips_no_rung() {
    let directory = directory();
    let terminal = "import fcntl, os, pty, struct, sys, termios\n\
        pid, fd = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))\n\
        shown = b''\n\
        while b'rung 16' not in shown: shown += os.read(fd, 999)\n\
        os.write(fd, b'\\x03')\n\
        try:\n    while True: shown += os.read(fd, 999)\n\
        except OSError: pass\n\
        sys.stdout.buffer.write(shown)\n\
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let mut python = Command::new("python3");
    python.args(["-c", terminal, env!("CARGO_BIN_EXE_mpps"), "lab"]);
    python.args(["--only", "1,16", "--json=data.json"]);
    let ended = run(python.env("TERM", "xterm").current_dir(&directory));
    assert_eq!(ended.code(), 130, "{ended:#?}");
    // A frame and the echo of the key fit into a line, which is then cleared.
    let lines = ended.out.split(['\n', '\r']);
    let frames = lines.filter(|line| line.contains("ends in"));
    let letters = |frame: &str| frame.trim_start_matches("\x1b[2K").chars().count();
    let longest = frames.map(letters).max();
    assert!(longest.is_some_and(|length| length < 80), "{ended:#?}");
    let (_, last) = ended.out.rsplit_once("\r\x1b[2K").expect("a bar");
    assert!(!last.contains("ends in"), "{last}");
    let rungs = result(&directory).body.rungs;
    let rungs: Vec<&str> = rungs.iter().map(|rung| &*rung.rung).collect();
    assert_eq!(rungs, ["1"], "{ended:#?}");
}
