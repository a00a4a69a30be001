//! Properties that the command inherits: limits, and signals that are ignored or blocked.

use super::expect_refusal;
use crate::common::{Ended, Running, copy_for_all, full_pipe, kill, mpps, run};
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const RESULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lab.json");

/// A line of the shell. In it `$MPPS` is the command and `$RESULT` a result.
fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).env_remove("COLUMNS");
    command.env("MPPS", env!("CARGO_BIN_EXE_mpps"));
    command.env("RESULT", RESULT);
    command
}

fn shell_in(directory: &Path, line: &str) -> Ended {
    run(shell(line).current_dir(directory))
}

pub(crate) fn a_file_at_its_limit_is_told_and_removed() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let html = |limit| format!("ulimit -f {limit}; $MPPS report $RESULT --html out.html");
    let ended = shell_in(directory.path(), &html("4"));
    expect_refusal(&ended, &["cannot write out.html", "File too large"]);
    let left = || fs::read_dir(&directory).expect("it is there").count();
    assert_eq!(left(), 0, "{ended:#?}");
    shell_in(directory.path(), &html("unlimited")).fine();
    assert_eq!(left(), 1);
    // Of lines that come one by one, whole ones stay. They replace what was there only when there is one.
    let json = directory.path().join("out.json");
    let too_large = ["cannot write out.json", "File too large"];
    fs::write(&json, "an earlier result").expect("it can be written");
    let recv =
        |limit| format!("ulimit -f {limit}; $MPPS recv 127.0.0.1:0 --duration 2 --json=out.json");
    for line in [
        &recv("0")[..],
        "ulimit -f 0; $MPPS backends --json=out.json",
    ] {
        expect_refusal(&shell_in(directory.path(), line), &too_large);
        let kept = fs::read_to_string(&json).expect("it is there");
        assert_eq!(kept, "an earlier result", "{line}");
    }
    let kinds = || {
        let text = fs::read_to_string(&json).expect("it is there");
        let kind = |line| serde_json::from_str::<Value>(line).map(|object| object["type"].clone());
        let kinds: Result<Vec<Value>, _> = text.lines().map(kind).collect();
        kinds.expect("each line is whole")
    };
    // The totals are longer than this.
    expect_refusal(&shell_in(directory.path(), &recv("4")), &too_large);
    assert!(kinds().iter().all(|kind| kind == "interval") && !kinds().is_empty());
    shell_in(directory.path(), &recv("unlimited")).fine();
    assert_eq!(kinds().last().expect("there is one"), "total");
    assert_eq!(left(), 2);
}

/// A result is not lost to a slip of the pen.
pub(crate) fn an_input_is_not_written() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    for line in [
        "$MPPS compare a.json $RESULT --json=./a.json",
        "$MPPS report a.json --html ../$(basename $PWD)/a.json",
    ] {
        let ended = shell_in(directory.path(), &format!("cp $RESULT a.json; {line}"));
        expect_refusal(&ended, &["a.json itself, which is read"]);
        let kept = fs::read(directory.path().join("a.json")).expect("it is there");
        assert_eq!(kept, fs::read(RESULT).expect("it is there"), "{line}");
    }
    let other = "$MPPS compare a.json $RESULT --json=b.json";
    shell_in(directory.path(), other).fine();
}

/// The soft limit is raised, and a hard one is an error. With less than 32 KiB the dynamic linker may end before
/// `main` begins: it has what arguments, environment and a random offset leave.
pub(crate) fn a_small_stack_is_raised_or_told() {
    for limit in [64, 128, 256] {
        let ended = run(&mut shell(&format!(
            "ulimit -s {limit}; $MPPS report $RESULT"
        )));
        let told = format!("the stack may have {limit} KiB");
        expect_refusal(&ended, &[&told, "raise `ulimit -s`"]);
        run(&mut shell(&format!(
            "ulimit -S -s {limit}; $MPPS report $RESULT"
        )))
        .fine();
    }
    run(&mut shell("ulimit -s 512; $MPPS report $RESULT")).fine();
}

/// The way that mpps treats the signal is not inherited by its commands.
pub(crate) fn a_command_at_its_limit_has_the_signal() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let line = "$MPPS lab -- sh -c 'ulimit -f 1; exec head -c 9999 /dev/zero > file'";
    let ended = shell_in(directory.path(), line);
    assert_eq!(ended.code(), 128 + 25, "{ended:#?}");
}

pub(crate) fn nohup_keeps_it_running() {
    let mut receiver = Running::start(&mut shell("trap '' HUP; exec $MPPS recv 127.0.0.1:0"));
    receiver.address();
    receiver.signal("HUP");
    thread::sleep(Duration::from_millis(500));
    let status = fs::read_to_string(format!("/proc/{}/status", receiver.id()));
    let status = status.expect("it has not been waited for");
    assert!(!status.contains("State:\tZ"), "{status}");
    // The first signal that it hears: a second one would end it with status 130.
    receiver.interrupt().fine();
}

pub(crate) fn blocked_signals_end_it_all_the_same() {
    let blocked = |arguments: &[&str]| {
        let mut command = Command::new("env");
        command.arg("--block-signal=INT,TERM,HUP,QUIT");
        command.arg(mpps(&[]).get_program()).args(arguments);
        command
    };
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let mut receiver = Running::start(&mut blocked(&["recv", "127.0.0.1:0"]));
        receiver.address();
        receiver.signal(signal);
        receiver.end().fine();
    }
    let script = "echo ready; exec sleep 1000";
    let mut lab = Running::start(&mut blocked(&["lab", "--", "sh", "-c", script]));
    lab.line("ready");
    lab.signal("TERM");
    assert_eq!(lab.end().code(), 128 + 15);
}

/// A reader that has stopped, or a terminal after Ctrl-S, takes no output. A signal still ends the
/// run, and changed settings would be restored.
pub(crate) fn who_reads_nothing_keeps_no_run_from_ending() {
    let (reader, writer) = full_pipe();
    let mut command = mpps(&["recv", "127.0.0.1:0", "--json"]);
    let started = command.stdout(writer).stderr(Stdio::piped()).spawn();
    let mut receiver = started.expect("it starts");
    let mut said = BufReader::new(receiver.stderr.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.expect("text").contains("receiving at")));
    kill("TERM", &receiver.id().to_string());
    // Its totals are lost, which is an error.
    let status = receiver.wait().expect("it ends");
    assert_eq!(status.code(), Some(2));
    let last = said.last().expect("an error").expect("text");
    let error = "mpps: cannot write standard output: its reader did not read in time";
    assert_eq!(last, error);
    drop(reader);
}

/// The page goes to a named pipe, whose reader does not read, or does.
pub(crate) fn an_output_that_is_not_read_keeps_no_run_from_ending() {
    let mut server = Running::start(&mut mpps(&["serve", "127.0.0.1:0", "--json"]));
    let line = server.line("serving at ");
    let url = line.rsplit(' ').next().expect("a URL").to_owned();
    let directory = tempfile::tempdir().expect("a directory can be had");
    shell_in(directory.path(), "mkfifo pipe").fine();
    for is_read in [false, true] {
        let path = directory.path().join("pipe");
        // Opening it for both does not wait for another program (fifo(7)).
        let both = fs::File::options().read(true).write(true).open(&path);
        let mut both = both.expect("it is ours");
        let words = ["load", &url, "--duration", "10m", "--html", "pipe"];
        let mut running = Running::start(mpps(&words).current_dir(&directory));
        running.line("in flight");
        if !is_read {
            // The capacity of a pipe (pipe(7)).
            both.write_all(&[b' '; 1 << 16]).expect("it has room");
            let ended = running.interrupt();
            ended.fails(&["did not read in time"]);
            continue;
        }
        let mut reader = fs::File::open(&path).expect("it has a writer");
        drop(both);
        let page = thread::spawn(move || io::read_to_string(&mut reader));
        assert_eq!(running.interrupt().code(), 130);
        let page = page.join().expect("no panic").expect("it is text");
        assert!(page.trim_end().ends_with("</html>"), "{page}");
    }
    server.interrupt().fine();
}

/// A terminal after Ctrl-S takes nothing, and a bar is drawn there.
pub(crate) fn a_held_terminal_keeps_no_run_from_ending() {
    const HOLD: &[u8] = b"\x13";
    let mut server = Running::start(&mut mpps(&["serve", "127.0.0.1:0"]));
    let line = server.line("serving at ");
    let url = line
        .split_whitespace()
        .find(|word| word.starts_with("http"));
    let load = format!(
        "echo pid $$; exec $MPPS load {} --rate 20 --duration 600s",
        url.expect("an address").trim_end_matches([',', ';'])
    );
    for held in [HOLD, b""] {
        let mut terminal = shell("exec script -qec \"$LOAD\" /dev/null");
        terminal.env("LOAD", &load).env("TERM", "xterm");
        terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = terminal.spawn().expect("it starts");
        let mut keys = terminal.stdin.take().expect("a pipe");
        // A frame of the bar ends with blanks, and begins at the start of its line.
        let shown = terminal.stdout.take().expect("a pipe");
        let mut frames = BufReader::new(shown).split(b'\r').map_while(Result::ok);
        let texts = frames
            .by_ref()
            .map(|text| String::from_utf8_lossy(&text).into_owned());
        let mut pid = None;
        for text in texts {
            pid = pid.or_else(|| Some(text.split_once("pid ")?.1.trim().to_owned()));
            if text.contains("connections/s") {
                break;
            }
        }
        keys.write_all(held).expect("it reads");
        // Until nothing more is shown, what is held is written to again.
        thread::sleep(Duration::from_secs(1));
        let pid = pid.expect("it was said first");
        kill("TERM", &pid);
        let is_there = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let ended = (0..1500).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !is_there()
        });
        terminal.kill().expect("it was not waited for");
        terminal.wait().expect("it has ended");
        assert!(ended, "held: {held:?}");
    }
}

/// The error names the limit, and does not blame an old kernel.
pub(crate) fn a_limit_is_told_by_its_name() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    copy_for_all(directory.path());
    let user = "exec setpriv --reuid 65534 --regid 65534 --clear-groups prlimit --nproc=1 ./mpps";
    let url = "http://127.0.0.1:9/";
    let fds = "serve 127.0.0.1:0 --engine io_uring --with fds";
    let has_slots = mpps_os::uring::closes_slots().is_ok_and(|closes| closes);
    for (line, limit, is_of_rings) in [
        (
            format!("ulimit -n 6; exec $MPPS load --engine io_uring {url}"),
            "NOFILE",
            true,
        ),
        (format!("ulimit -n 6; exec $MPPS {fds}"), "NOFILE", true),
        (
            format!(
                "ulimit -l 16; exec setpriv --bounding-set -ipc_lock $MPPS load --engine io_uring {url}"
            ),
            "MEMLOCK",
            true,
        ),
        (format!("{user} top --listen 127.0.0.1:0"), "NPROC", false),
        (format!("{user} recv 127.0.0.1:0"), "NPROC", false),
        (
            "ulimit -n 6; exec $MPPS recv 127.0.0.1:0 --backend af_xdp".to_owned(),
            "NOFILE",
            false,
        ),
        (
            "ulimit -n 5; exec $MPPS report $RESULT --html x".to_owned(),
            "NOFILE",
            false,
        ),
        (
            format!("ulimit -d 4000; exec $MPPS load {url}"),
            "DATA",
            false,
        ),
        (
            "ulimit -d 4000; exec $MPPS serve 127.0.0.1:0".to_owned(),
            "DATA",
            false,
        ),
    ] {
        if is_of_rings && !has_slots {
            continue;
        }
        let ended = shell_in(directory.path(), &line);
        assert_eq!(ended.code(), 2, "{line}: {ended:#?}");
        let last = ended.err.lines().last().unwrap_or_default();
        assert!(
            last.contains(&format!("RLIMIT_{limit}")),
            "{line}: {ended:#?}"
        );
        for other in ["6.13", "name another", "verifier"] {
            assert!(!last.contains(other), "{line}: {ended:#?}");
        }
    }
    if has_slots {
        let mut server = Running::start(&mut shell(&format!("exec $MPPS {fds}")));
        server.line("serving at ");
    }
}

/// Mostly in a container. The error names the missing capability, and no more.
pub(crate) fn a_root_who_lacks_a_capability_is_told_which() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let as_other = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let made = "mkdir -m 700 private && cp $RESULT private/r && chown -R 65534:65534 private";
    shell_in(directory.path(), made).fine();
    let other = Running::start(&mut shell(&format!("exec {as_other} sleep 1000")));
    let of_other = |command: &str| format!("$MPPS {command} --pid {}", other.id());
    let [doctor, top] = ["doctor --seconds 1", "top --once"].map(of_other);
    let dac = "-dac_override,-dac_read_search";
    for (lacks, line, names) in [
        ("-sys_ptrace", &*doctor, &["/ns/", "SYS_PTRACE"][..]),
        ("-sys_ptrace", &*top, &["/ns/", "SYS_PTRACE"]),
        ("-all", "$MPPS doctor --netns 1", &["SYS_PTRACE"]),
        (
            dac,
            "$MPPS serve 127.0.0.1:0 --root private",
            &["private", "DAC_OVERRIDE"],
        ),
        (
            dac,
            "$MPPS report private/r",
            &["private/r", "DAC_OVERRIDE"],
        ),
        (
            dac,
            "$MPPS report $RESULT --html private/h",
            &["private/h", "DAC_OVERRIDE"],
        ),
        (
            "-setuid",
            "$MPPS serve 127.0.0.1:0 --user nobody",
            &["nobody", "SETUID"],
        ),
        (
            "-setgid",
            "$MPPS serve 127.0.0.1:0 --user nobody",
            &["nobody", "SETGID"],
        ),
        ("-all", "$MPPS lab -- true", &["SYS_ADMIN", "NET_ADMIN"]),
        ("-all", "$MPPS bench --quick", &["SYS_ADMIN", "NET_ADMIN"]),
    ] {
        let ended = shell_in(
            directory.path(),
            &format!("exec setpriv --bounding-set {lacks} {line}"),
        );
        expect_refusal(&ended, names);
        expect_refusal(&ended, &["this process is root without CAP_"]);
        for wrong in ["run as root", "only root", "or root", "has the capability"] {
            assert!(!ended.err.contains(wrong), "{wrong}: {ended:#?}");
        }
    }
    let healthy = "$MPPS report private/r && $MPPS report $RESULT --html private/h";
    shell_in(directory.path(), healthy).fine();
    let seen = shell_in(directory.path(), &top);
    assert!(seen.code() < 2, "{seen:#?}");
}

/// A user can ask for more than the process gets.
pub(crate) fn without_memory_it_says_so() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let limited = |line: &str| {
        let line = format!("ulimit -v 120000; exec timeout 60 $MPPS {line}");
        shell_in(directory.path(), &line)
    };
    for (line, name) in [
        ("steer --queues 4 --flows 3000000", "3000000 flows"),
        ("serve 127.0.0.1:0 --size 500M", "--size 524288000"),
        (
            "recv 127.0.0.1:0 --batch 1024 --buffer 65535",
            "--batch 1024",
        ),
        ("send 127.0.0.1:9 --batch 1024 --size 65507", "--batch 1024"),
    ] {
        // Buffers for the first thread may still be there.
        let threads = if name.starts_with("--batch") {
            "--threads 8"
        } else {
            ""
        };
        let ended = limited(&format!("{line} {threads}"));
        expect_refusal(&ended, &[name, "no memory", "ulimit -v"]);
    }
    limited("steer --queues 4 --flows 300000").fine();
    limited("recv 127.0.0.1:0 --batch 64 --buffer 65535 --duration 0.1").fine();
}
