//! The text that `mpps lab` prints, and what it does without a place for its files.

use super::{directory, result};
use crate::common::{copy_for_all, mpps, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The notes are those of `-v`, the reasons those of `--why`.
pub(crate) fn the_answer_comes_first_and_the_rest_if_asked_for() {
    const NOTES: [&str; 4] = ["sender: ", "limited by", "all rungs together", "\n note"];
    const REASON: &str = "skipped 17: a veth has no zero-copy";
    for (option, lines, here, not) in [
        ("--all", 5..=12, &["17 (--why)"][..], &NOTES[..]),
        ("--why", 5..=13, &[REASON], &NOTES),
        ("-v", 15..=99, &NOTES, &["next: mpps doctor"]),
    ] {
        let directory = directory();
        let mut command = mpps(&["lab", "--only", "1,17,18", "--seconds", "0.1"]);
        command.args(["--repeat=2", option]);
        let ended = run(command.current_dir(&directory)).fine();
        assert!(
            lines.contains(&ended.out.lines().count()),
            "{option}: {ended:#?}"
        );
        for part in here {
            assert!(ended.out.contains(part), "{option}, {part}: {ended:#?}");
        }
        for part in not {
            assert!(!ended.out.contains(part), "{option}, {part}: {ended:#?}");
        }
    }
}

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
    // The path takes two seconds, time enough for the key.
    python.args(["--only", "1,16", "--duration=1.5", "--json=data.json"]);
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

/// An ordinary user in root's folder.
pub(crate) fn an_unwritable_folder_costs_the_files_and_not_the_run() {
    let [directory, folder] = [(); 2].map(|()| directory());
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is ours");
    let binary = copy_for_all(directory.path());
    let page = directory.path().join("page.html");
    let named = [
        format!("--html={}", page.display()),
        "--json=data.json".to_owned(),
    ];
    let missing = |kind: &str| format!("cannot write lab.{kind}: Permission denied");
    for (options, is_run, said) in [
        (&[][..], true, vec![missing("html"), missing("json")]),
        (&named[..1], true, vec![missing("json")]),
        (
            &named[1..],
            false,
            vec!["cannot write data.json".to_owned()],
        ),
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&binary).args(["lab", "--quick", "--only", "1"]);
        let ended = run(command.args(options).current_dir(&folder));
        ended.refused(&said.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ended.out.contains("ledger"), is_run, "{ended:#?}");
    }
    assert!(page.is_file());
}
