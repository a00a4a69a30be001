//! The page in a terminal that tmux keeps. It checks the page, the keys, and that the terminal is
//! as it was when the page has gone.

use crate::common;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const TMUX: Need = Need::Program("tmux pgrep", "tmux and procps");

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, TMUX):
            keys_and_sizes_change_the_page,
            the_terminal_is_put_back,
            a_terminal_that_goes_ends_it,
            a_terminal_that_takes_nothing_holds_up_no_signal,
            no_window_is_absurd;
    ]
}

/// The maximum number of looks at the screen.
const LOOKS_MAX: usize = 3000;
const MOMENT: Duration = Duration::from_millis(20);

fn until(what: &str, mut is_it: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_it() {
            return;
        }
        thread::sleep(MOMENT);
    }
    panic!("never: {what}");
}

/// A shell in a terminal.
struct Screen {
    directory: TempDir,
}

impl Screen {
    fn new() -> Self {
        let screen = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        let shell = "env PS1='ready> ' LC_ALL=C.UTF-8 sh";
        screen.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "80",
            "-y",
            "24",
            shell,
        ]);
        screen.shows("ready>");
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.directory.path().join("socket"))
            .args(arguments);
        common::run(command.env_remove("TMUX").env("LC_ALL", "C.UTF-8"))
            .fine()
            .out
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn until(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        until(what, || {
            text = self.text();
            is_it(&text)
        });
        text
    }

    fn shows(&self, part: &str) -> String {
        self.until(part, |text| text.contains(part))
    }

    fn hides(&self, part: &str) -> String {
        self.until(part, |text| !text.contains(part))
    }

    /// Starts the page; the shell says afterwards how it ended, and how the terminal is.
    fn start(&self) {
        let program = env!("CARGO_BIN_EXE_mpps");
        let command =
            format!("clear; {program} top; echo ended $?; stty -a | grep -o ' icanon\\| echo '");
        self.keys(&[&command, "Enter"]);
        self.shows("q end");
    }

    /// The process of the page, by its number.
    fn program(&self) -> String {
        let shell = self.tmux(&["list-panes", "-F", "#{pane_pid}"]);
        let found = common::run(Command::new("pgrep").args(["-P", shell.trim(), "mpps"]));
        found.out.trim().to_owned()
    }

    fn was_put_back(&self, status: &str) {
        // The lines come one after the other.
        let text = self.until(status, |text| {
            let echoes = text.contains(" echo ") || text.contains("\n echo");
            text.contains(status) && text.contains("icanon") && echoes
        });
        assert!(!text.contains("PACKETS/s"), "the page has gone: {text}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.directory.path().join("socket"));
        // It may have gone by itself.
        let _ = command.arg("kill-server").status();
    }
}

fn keys_and_sizes_change_the_page() {
    let screen = Screen::new();
    screen.start();
    let text = screen.shows("PROGRAMS%");
    for part in ["mpps top", "INTERFACE", "SOCKET", "UDP read", "in all"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    screen.keys(&["?"]);
    screen.shows("this help");
    screen.keys(&["x"]);
    screen.hides("this help");
    screen.keys(&["Tab", "z"]);
    let text = screen.hides("PROGRAMS%");
    assert!(text.contains(">INTERFACE"), "{text}");
    screen.keys(&["Right"]);
    screen.shows(">INTERFACEv");
    screen.keys(&["/", "nowhere", "Enter"]);
    screen.shows("no line has what");
    screen.keys(&["Escape"]);
    screen.hides("no line has what");
    screen.keys(&["z", "p"]);
    screen.shows("PAUSED");
    for (width, height) in [("132", "40"), ("40", "10"), ("80", "24")] {
        screen.tmux(&["resize-window", "-x", width, "-y", height]);
        let lines: usize = height.parse().expect("a number");
        let fits = |text: &str| {
            let all: Vec<&str> = text.lines().collect();
            all.len() == lines && all[lines - 1].starts_with("q end")
        };
        screen.until("the page has that size", fits);
    }
    screen.keys(&["q"]);
    screen.was_put_back("ended 0");
}

/// Its window is closed, or its connection ends. It then ends as after Ctrl-C, whether or not it
/// gets the signal, and whatever was typed last.
fn a_terminal_that_goes_ends_it() {
    let screen = Screen::new();
    let program = env!("CARGO_BIN_EXE_mpps");
    // An empty trap is inherited, and another one is not.
    let windows: Vec<(String, PathBuf)> = (1..=8)
        .map(|window| {
            let file = screen.directory.path().join(format!("status-{window}"));
            let trap = ["''", ":"][window % 2];
            let script = format!(
                "trap {trap} HUP; {program} top; echo $? > {}",
                file.display()
            );
            screen.tmux(&["new-window", "-d", "-t", &format!(":{window}"), &script]);
            (format!(":{window}"), file)
        })
        .collect();
    for (window, _) in &windows {
        let shown = || screen.tmux(&["capture-pane", "-p", "-t", window]);
        until("the page is there", || shown().contains("q end"));
    }
    for (window, _) in &windows[4..] {
        // Half of the bytes of a key.
        screen.tmux(&["send-keys", "-t", window, "-l", "\x1b["]);
    }
    screen.tmux(&["kill-server"]);
    let status = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default();
    for (_, file) in &windows {
        until("it has ended", || status(file).ends_with('\n'));
        assert_eq!(status(file), "0\n", "{}", file.display());
    }
}

/// Another process, stopped until this is dropped.
struct Stopped(String);

impl Stopped {
    fn new(process: &str) -> Self {
        common::kill("STOP", process);
        Self(process.to_owned())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        common::kill("CONT", &self.0);
    }
}

fn has_state(process: &str, state: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| stat.contains(&format!(") {state} ")))
}

/// Its reader hangs, as ssh does when the network has gone. A write to it does not return.
fn a_terminal_that_takes_nothing_holds_up_no_signal() {
    let screen = Screen::new();
    screen.start();
    let own = screen.program();
    let terminal = screen.tmux(&["list-panes", "-F", "#{pane_tty}"]);
    let terminal = fs::File::options().write(true).open(terminal.trim());
    let server = screen.tmux(&["display-message", "-p", "#{pid}"]);
    let stopped = Stopped::new(server.trim());
    let mut fill = Command::new("head");
    fill.args(["-c", "1000000", "/dev/zero"]);
    let mut fill = fill.stdout(terminal.expect("it is there")).spawn();
    let fill = fill.as_mut().expect("head is everywhere");
    let filling = fill.id().to_string();
    until("the terminal is full", || has_state(&filling, "S"));
    common::kill("TERM", &own);
    let is_there = || fs::exists(format!("/proc/{own}")).expect("it can be asked");
    until("it has ended", || !is_there() || has_state(&own, "Z"));
    fill.kill().expect("it waits");
    fill.wait().expect("it has ended");
    drop(stopped);
    // No byte could be sent, and so the page is still there; the mode of the terminal is no byte.
    screen.until("143, canonical", |text| {
        text.contains("143\n") && text.contains("icanon") && text.contains("echo")
    });
}

/// Any program may give a terminal any size, before the page is drawn and under it.
fn no_window_is_absurd() {
    const SIZES: [[&str; 4]; 6] = [
        ["rows", "0", "cols", "0"],
        ["rows", "1", "cols", "1"],
        ["rows", "65535", "cols", "1"],
        ["rows", "1", "cols", "65535"],
        ["rows", "65535", "cols", "65535"],
        ["rows", "24", "cols", "80"],
    ];
    let screen = Screen::new();
    let program = env!("CARGO_BIN_EXE_mpps");
    let terminal = screen.tmux(&["list-panes", "-F", "#{pane_tty}"]);
    for (at, size) in SIZES.iter().enumerate() {
        let command = format!(
            "clear; stty {}; {program} top; echo ended $?-{at}",
            size.join(" ")
        );
        screen.keys(&[&command, "Enter"]);
        until("it runs", || !screen.program().is_empty());
        let mut stty = Command::new("stty");
        stty.args(["-F", terminal.trim()])
            .args(SIZES[(at + 1) % SIZES.len()]);
        common::run(&mut stty).fine();
        screen.keys(&["p"]);
        screen.keys(&["q"]);
        screen.shows(&format!("ended 0-{at}"));
    }
}

fn the_terminal_is_put_back() {
    let screen = Screen::new();
    screen.start();
    screen.keys(&["C-c"]);
    screen.was_put_back("ended 0");
    for signal in [
        "USR1", "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU", "TRAP", "SYS", "RTMIN", "RTMAX",
        "40",
    ] {
        screen.start();
        common::kill(signal, &screen.program());
        screen.was_put_back("ended 0");
    }
    // The C library lets no program handle these two. They do not end it.
    screen.start();
    for signal in ["32", "33"] {
        common::kill(signal, &screen.program());
    }
    screen.keys(&["q"]);
    screen.was_put_back("ended 0");
    // Faults of the program itself end it at once.
    for (signal, status) in [
        ("ILL", 132),
        ("ABRT", 134),
        ("BUS", 135),
        ("FPE", 136),
        ("SEGV", 139),
    ] {
        screen.start();
        common::kill(signal, &screen.program());
        screen.was_put_back(&format!("ended {status}"));
    }
    screen.start();
    common::kill("TSTP", &screen.program());
    // The shell goes on with 128 and SIGSTOP.
    screen.was_put_back("ended 147");
    screen.keys(&["clear; fg", "Enter"]);
    screen.shows("q end");
    screen.keys(&["q"]);
    screen.hides("q end");
    screen.start();
    let own = screen.program();
    // The second one must not end it before it has put the terminal back.
    common::kill(
        "TERM",
        &format!("{own}; kill -TERM {own} 2> /dev/null; true"),
    );
    screen.was_put_back("ended 0");
}
