//! The command as its users meet it: help, mistakes, signals, pipes, and the forms of its output.

mod common;

use common::{Ended, Need, Running, Test, mpps, quiet_namespace, run};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let namespaces = common::become_able();
    let mut trials: Vec<Trial> = Vec::new();
    for mistake in MISTAKES {
        let name = format!("mistake::{}", mistake.name);
        trials.push(common::trial(name, None, || make(mistake)));
    }
    for (name, need, test) in TESTS {
        let obstacle = match need {
            Need::Nothing => None,
            Need::Namespace | Need::Root => namespaces.clone().err(),
        };
        let test = *test;
        let run = move || common::undisturbed(test);
        trials.push(common::trial((*name).to_owned(), obstacle, run));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const TESTS: &[Test] = &[
    (
        "help_fits_and_is_fine",
        Need::Nothing,
        help_fits_and_is_fine,
    ),
    (
        "the_table_of_backends_is_shown",
        Need::Nothing,
        the_table_of_backends_is_shown,
    ),
    (
        "a_taken_port_is_named",
        Need::Nothing,
        a_taken_port_is_named,
    ),
    (
        "a_file_that_is_no_result_is_named",
        Need::Nothing,
        a_file_that_is_no_result_is_named,
    ),
    (
        "a_file_that_is_no_total_is_named",
        Need::Nothing,
        a_file_that_is_no_total_is_named,
    ),
    (
        "an_output_that_cannot_be_written_is_named",
        Need::Nothing,
        an_output_that_cannot_be_written_is_named,
    ),
    (
        "a_low_port_without_the_right_is_named",
        Need::Namespace,
        a_low_port_without_the_right_is_named,
    ),
    (
        "without_proc_it_says_so",
        Need::Namespace,
        without_proc_it_says_so,
    ),
    (
        "without_ipv6_it_says_so",
        Need::Namespace,
        without_ipv6_it_says_so,
    ),
    (
        "without_a_route_it_says_so",
        Need::Namespace,
        without_a_route_it_says_so,
    ),
    (
        "signals_end_a_receiver_with_totals",
        Need::Nothing,
        signals_end_a_receiver_with_totals,
    ),
    (
        "signals_end_a_sender_with_totals",
        Need::Nothing,
        signals_end_a_sender_with_totals,
    ),
    (
        "a_closed_pipe_ends_it_quietly",
        Need::Nothing,
        a_closed_pipe_ends_it_quietly,
    ),
    (
        "the_articles_form_works",
        Need::Nothing,
        the_articles_form_works,
    ),
    (
        "each_thread_has_its_line",
        Need::Nothing,
        each_thread_has_its_line,
    ),
    (
        "a_count_ends_a_receiver",
        Need::Nothing,
        a_count_ends_a_receiver,
    ),
    ("a_duration_ends_both", Need::Nothing, a_duration_ends_both),
    (
        "json_is_alone_on_standard_output",
        Need::Nothing,
        json_is_alone_on_standard_output,
    ),
    (
        "without_traffic_the_totals_are_zero",
        Need::Nothing,
        without_traffic_the_totals_are_zero,
    ),
];

/// A command line that cannot work.
struct Mistake {
    name: &'static str,
    arguments: &'static [&'static str],
    /// What the error must name: the thing, and what helps.
    names: &'static [&'static str],
    /// The argument parser's own errors show the usage as well.
    usage: bool,
}

const fn mistake(
    name: &'static str,
    arguments: &'static [&'static str],
    names: &'static [&'static str],
) -> Mistake {
    Mistake {
        name,
        arguments,
        names,
        usage: false,
    }
}

const fn misuse(
    name: &'static str,
    arguments: &'static [&'static str],
    names: &'static [&'static str],
) -> Mistake {
    Mistake {
        name,
        arguments,
        names,
        usage: true,
    }
}

/// A port of RFC 863, to which nothing is ever sent by these.
const TO: &str = "127.0.0.1:9";
/// An address of a documentation range (RFC 5737), which no interface has.
const NOT_OURS: &str = "192.0.2.77:4321";

const MISTAKES: &[Mistake] = &[
    mistake(
        "no_such_address",
        &["recv", NOT_OURS],
        &[NOT_OURS, "ip address"],
    ),
    mistake(
        "cpu_of_recv",
        &["recv", "127.0.0.1:0", "--pin", "8191"],
        &["--pin", "CPU 8191", "this host has 0"],
    ),
    mistake(
        "cpu_of_send",
        &["send", TO, "--pin", "0,8191"],
        &["--pin", "CPU 8191", "this host has 0"],
    ),
    mistake(
        "size_v4",
        &["send", TO, "--size", "65508"],
        &["--size 65508", "65507"],
    ),
    mistake(
        "size_v6",
        &["send", "[::1]:9", "--size", "65528"],
        &["--size 65528", "65527"],
    ),
    mistake(
        "gso_segments",
        &["send", TO, "--gso", "129"],
        &["--gso 129", "128"],
    ),
    mistake(
        "gso_none",
        &["send", TO, "--gso", "0"],
        &["--gso 0", "1 to 128"],
    ),
    mistake(
        "gso_bytes",
        &["send", TO, "--gso", "64", "--size", "1400"],
        &["--gso 64", "46 segments"],
    ),
    mistake(
        "batch_recv",
        &["recv", "127.0.0.1:0", "--batch", "0"],
        &["--batch 0", "1 to 1024"],
    ),
    mistake(
        "batch_send",
        &["send", TO, "--batch", "1025"],
        &["--batch 1025", "1 to 1024"],
    ),
    mistake(
        "buffer",
        &["recv", "127.0.0.1:0", "--buffer", "1M"],
        &["--buffer 1048576", "65536"],
    ),
    mistake(
        "flows",
        &["send", TO, "--flows", "0"],
        &["--flows 0", "1 to 65535"],
    ),
    mistake(
        "flows_beyond_the_last_port",
        &["send", TO, "--source-port", "65000", "--flows", "1000"],
        &["--flows 1000", "65000"],
    ),
    mistake(
        "port_zero",
        &["send", "127.0.0.1:0"],
        &["127.0.0.1:0", "ADDR:PORT"],
    ),
    mistake(
        "stamp_without_room",
        &["send", TO, "--stamp", "--size", "15"],
        &["--stamp", "--size 16"],
    ),
    mistake(
        "fewer_threads_than_targets",
        &["send", TO, "127.0.0.1:10", "--threads", "1"],
        &["--threads 1", "2 targets"],
    ),
    mistake(
        "backend_unknown_to_recv",
        &["recv", "--backend", "nosuch"],
        &["--backend", "`nosuch`", "recvmmsg"],
    ),
    mistake(
        "backend_unknown_to_send",
        &["send", TO, "--backend", "nosuch"],
        &["--backend", "`nosuch`", "sendmmsg"],
    ),
    mistake(
        "backend_that_sends",
        &["recv", "--backend", "sendmmsg"],
        &["--backend sendmmsg", "mpps backends"],
    ),
    mistake(
        "backend_that_receives",
        &["send", TO, "--backend", "recv"],
        &["--backend recv", "mpps backends"],
    ),
    mistake(
        "backend_inside_one_process",
        &["recv", "--backend", "memory"],
        &["--backend memory", "one process"],
    ),
    mistake(
        "steer_without_reuseport",
        &["recv", "--steer", "cpu"],
        &["--steer cpu", "--reuseport"],
    ),
    mistake(
        "steer_without_pin",
        &["recv", "--steer", "cpu", "--reuseport"],
        &["--steer cpu", "--pin"],
    ),
    mistake(
        "join_of_no_group",
        &["recv", "--join", "10.0.0.1"],
        &["--join 10.0.0.1", "224.0.0.0/4"],
    ),
    mistake(
        "join_of_no_address",
        &["recv", "--join", "eth0"],
        &["--join eth0", "239.1.2.3"],
    ),
    mistake(
        "join_at_no_interface",
        &["recv", "--join", "239.1.2.3%nosuch0"],
        &["nosuch0", "ip link"],
    ),
    mistake(
        "join_of_the_other_ip",
        &["recv", "--join", "ff02::1%lo"],
        &["--join ff02::1", "IP version"],
    ),
    mistake(
        "rung",
        &["lab", "--only", "1,99"],
        &["--only 99", "mpps lab --list"],
    ),
    mistake(
        "one_file_for_two",
        &["lab", "--json", "x", "--html", "x"],
        &["--json", "--html", "same file"],
    ),
    mistake(
        "no_such_program",
        &["lab", "--", "nosuch-program"],
        &["nosuch-program"],
    ),
    mistake(
        "no_such_result",
        &["compare", "/nosuch/a.json", "b.json"],
        &["/nosuch/a.json"],
    ),
    mistake(
        "no_such_total",
        &["ledger", "/nosuch/s.json", "r.json"],
        &["/nosuch/s.json"],
    ),
    misuse(
        "zero_threads",
        &["recv", "127.0.0.1:0", "--threads", "0"],
        &["--threads", "1..=1024"],
    ),
    misuse(
        "zero_threads_by_place",
        &["recv", "127.0.0.1:0", "0"],
        &["[THREADS]", "1..=1024"],
    ),
    misuse(
        "zero_sending_threads",
        &["send", TO, "--threads", "0"],
        &["--threads", "1..=127"],
    ),
    misuse(
        "threads_said_twice",
        &["recv", "127.0.0.1:0", "4", "--threads", "4"],
        &["[THREADS]", "--threads"],
    ),
    misuse(
        "reuseport_said_twice",
        &["recv", "127.0.0.1:0", "4", "1", "--shared"],
        &["[REUSEPORT]", "--shared"],
    ),
    misuse(
        "reuseport_of_two",
        &["recv", "127.0.0.1:0", "4", "2"],
        &["[REUSEPORT]", "0..=1"],
    ),
    misuse(
        "no_address",
        &["recv", "localhost"],
        &["localhost", "ADDR:PORT"],
    ),
    misuse("no_target", &["send"], &["ADDR:PORT"]),
    misuse(
        "rate_of_zero",
        &["send", TO, "--rate", "0"],
        &["--rate", "above zero"],
    ),
    misuse(
        "no_time",
        &["send", TO, "--duration", "soon"],
        &["--duration", "soon", "300ms"],
    ),
    misuse("no_cpus", &["recv", "--pin", "3-1"], &["--pin", "3-1"]),
    misuse("ladder", &["lab", "sctp"], &["sctp", "udp", "tcp"]),
    misuse(
        "no_repeats",
        &["lab", "--repeat", "0"],
        &["--repeat", "1..=1000"],
    ),
    misuse(
        "quick_and_slow",
        &["lab", "--quick", "--seconds", "2"],
        &["--quick", "--seconds"],
    ),
    misuse("no_subcommand", &[], &["Usage: mpps"]),
    misuse("subcommand", &["recieve"], &["recieve"]),
];

fn make(mistake: &Mistake) {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let ended = run(mpps(mistake.arguments).current_dir(&directory));
    if mistake.usage {
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.out.is_empty(), "{ended:#?}");
        expect_named(&ended, mistake.names);
    } else {
        expect_refusal(&ended, mistake.names);
    }
    let left = fs::read_dir(&directory).expect("it is still there").count();
    assert_eq!(left, 0, "files were left behind");
}

/// Status 2, and one line that names the thing and the remedy, each once.
fn expect_refusal(ended: &Ended, names: &[&str]) {
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    assert!(ended.err.starts_with("mpps: "), "{ended:#?}");
    assert!(
        ended.err.matches("(os error").count() <= 1,
        "said twice: {ended:#?}"
    );
    expect_named(ended, names);
}

fn expect_named(ended: &Ended, names: &[&str]) {
    for name in names {
        assert!(ended.err.contains(name), "`{name}` is not in {ended:#?}");
    }
}

fn help_fits_and_is_fine() {
    let commands = [
        "lab", "recv", "send", "ledger", "compare", "backends", "undo",
    ];
    let main = run(&mut mpps(&["--help"])).fine();
    for command in commands {
        assert!(main.out.contains(&format!("\n  {command}")), "{main:#?}");
        let help = run(&mut mpps(&[command, "--help"])).fine();
        assert!(
            help.out.contains(&format!("Usage: mpps {command}")),
            "{help:#?}"
        );
        assert!(help.err.is_empty());
        for line in main.out.lines().chain(help.out.lines()) {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
    let version = run(&mut mpps(&["--version"])).fine();
    assert_eq!(
        version.out.trim(),
        format!("mpps {}", env!("CARGO_PKG_VERSION"))
    );
}

fn the_table_of_backends_is_shown() {
    let shown = run(&mut mpps(&["backends"])).fine();
    // A line that begins in the first column names a backend; below the empty line is the host.
    let names: Vec<&str> = shown
        .out
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let rows: Vec<&str> = mpps_io::BACKENDS.iter().map(|row| row.name).collect();
    assert_eq!(names, rows);
}

fn a_taken_port_is_named() {
    let holder = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = holder.local_addr().expect("it has an address").to_string();
    let ended = run(&mut mpps(&["recv", &address]));
    expect_refusal(&ended, &[&address, "ss -ulpn", "--reuseport"]);
    // The holder does not share, so that asking to share helps nothing.
    let ended = run(&mut mpps(&["recv", &address, "4", "1"]));
    expect_refusal(&ended, &[&address, "ss -ulpn"]);
}

fn a_file_that_is_no_result_is_named() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let whole = include_str!("fixtures/lab.json");
    let forged = whole.replacen("\"offered\": ", "\"offered\": 1", 1);
    assert_ne!(whole, forged);
    for (name, text, says) in [
        ("empty.json", "", "not a result of `mpps lab`"),
        (
            "cut.json",
            &whole[..whole.len() / 2],
            "not a result of `mpps lab`",
        ),
        ("text.json", "hello", "not a result of `mpps lab`"),
        (
            "other.json",
            "{\"schema\":\"mpps.recv.v1\"}",
            "mpps.recv.v1",
        ),
        ("forged.json", &forged, "does not add up"),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("it can be written");
        let path = path.to_str().expect("a plain name");
        let ended = run(&mut mpps(&["compare", path, path]));
        expect_refusal(&ended, &[name, says]);
    }
}

fn a_file_that_is_no_total_is_named() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let interval = "{\"schema\":\"mpps.send.v1\",\"type\":\"interval\"}\n";
    let hollow = "{\"schema\":\"mpps.send.v1\",\"type\":\"total\"}\n";
    for (name, text, says) in [
        ("empty.json", "", "mpps send --json"),
        ("cut.json", interval, "cut short"),
        (
            "other.json",
            "{\"schema\":\"mpps.lab.v1\"}",
            "mpps send --json",
        ),
        ("hollow.json", hollow, "line 1"),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("it can be written");
        let path = path.to_str().expect("a plain name");
        let ended = run(&mut mpps(&["ledger", path, path]));
        expect_refusal(&ended, &[name, says]);
    }
}

fn an_output_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    for option in ["--json", "--html"] {
        let arguments = ["lab", "--quick", "--only", "1", option, "/nosuch/result"];
        let ended = run(mpps(&arguments).current_dir(&directory));
        expect_refusal(&ended, &["/nosuch/result"]);
        // Not the other one's either, which could be opened.
        let left = fs::read_dir(&directory).expect("it is still there").count();
        assert_eq!(left, 0, "{option}: files were left behind");
    }
}

fn a_low_port_without_the_right_is_named() {
    // In a namespace of its own, because some machines let everybody have low ports.
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set",
        "-net_bind_service",
        env!("CARGO_BIN_EXE_mpps"),
    ]);
    command.args(["recv", "127.0.0.1:80"]);
    let ended = quiet_namespace().run(|| run(&mut command));
    expect_refusal(
        &ended.expect("it can be entered"),
        &["127.0.0.1:80", "1024"],
    );
}

fn without_proc_it_says_so() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    for arguments in [
        "recv 127.0.0.1:0",
        "send 127.0.0.1:9 --count 1",
        "lab --quick --only 1",
    ] {
        let binary = env!("CARGO_BIN_EXE_mpps");
        let script = format!("mount -t tmpfs none /proc && exec '{binary}' {arguments}");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &script])
            .current_dir(&directory);
        let ended = run(&mut command);
        expect_refusal(&ended, &["/proc", "mount -t proc proc /proc"]);
        let left = fs::read_dir(&directory).expect("it is still there").count();
        assert_eq!(left, 0, "{arguments}: files were left behind");
    }
}

fn without_ipv6_it_says_so() {
    let namespace = quiet_namespace();
    let switch = "/proc/sys/net/ipv6/conf/all/disable_ipv6";
    let off = namespace.run(|| fs::write(switch, "1"));
    off.expect("it can be entered")
        .expect("a namespace has its own switch");
    for arguments in [["recv", "[::1]:4321"], ["send", "[::1]:4321"]] {
        let ended = namespace.run(|| run(&mut mpps(&arguments)));
        expect_refusal(&ended.expect("it can be entered"), &["[::1]:4321", "IPv6"]);
    }
}

fn without_a_route_it_says_so() {
    let ended = quiet_namespace().run(|| run(&mut mpps(&["send", NOT_OURS, "--count", "1"])));
    expect_refusal(&ended.expect("it can be entered"), &[NOT_OURS, "no route"]);
}

fn signals_end_a_receiver_with_totals() {
    for signal in ["INT", "TERM", "HUP"] {
        let mut receiver = Running::start(&mut mpps(&["recv", "127.0.0.1:0"]));
        let address = receiver.address();
        send(&address, &["--count", "100"]);
        receiver.signal(signal);
        let ended = receiver.end().fine();
        assert!(ended.out.contains("received 100 "), "{signal}: {ended:#?}");
        assert!(ended.err.is_empty(), "{signal}: {ended:#?}");
    }
}

fn signals_end_a_sender_with_totals() {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = sink.local_addr().expect("it has an address").to_string();
    for signal in ["INT", "TERM", "HUP"] {
        let mut sender = Running::start(&mut mpps(&["send", &address, "--rate", "1000"]));
        sender.line("sending 32 bytes");
        sender.signal(signal);
        let ended = sender.end().fine();
        assert!(ended.out.contains("\noffered "), "{signal}: {ended:#?}");
        assert!(ended.err.is_empty(), "{signal}: {ended:#?}");
    }
}

fn a_closed_pipe_ends_it_quietly() {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let target = sink.local_addr().expect("it has an address").to_string();
    for arguments in [
        ["recv", "127.0.0.1:0", "--duration", "60"],
        ["send", &target, "--rate", "1000"],
    ] {
        let mut child = mpps(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut first).expect("it can be read");
        assert!(!first.is_empty());
        // As `head -1` does; the next line has nowhere to go.
        drop(out);
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(ended.stderr.is_empty(), "{ended:?}");
    }
}

fn the_articles_form_works() {
    for (threads, reuseport, says) in [
        ("4", "1", "4 threads, a socket each"),
        ("2", "0", "2 threads on one socket"),
    ] {
        let form = ["recv", "127.0.0.1:0", threads, reuseport];
        let mut receiver = Running::start(mpps(&form).args(["--rcvbuf", "2M"]));
        let address = receiver.address();
        let flows = ["--flows", "32", "--source-port", "0", "--batch", "10"];
        send(&address, &[&flows[..], &["--count", "1000"]].concat());
        let ended = receiver.interrupt().fine();
        assert!(ended.out.contains(says), "{ended:#?}");
        let lines = ended
            .out
            .lines()
            .filter(|line| line.starts_with("  thread "));
        assert_eq!(lines.count().to_string(), threads, "{ended:#?}");
        assert!(ended.out.contains("received 1 000 "), "{ended:#?}");
    }
    // The article's default, which a machine that runs these tests may be using.
    let ended = run(&mut mpps(&["recv", "--duration", "10ms"]));
    match ended.code() {
        0 => assert!(ended.out.contains("0.0.0.0:4321"), "{ended:#?}"),
        _ => expect_refusal(&ended, &["0.0.0.0:4321", "ss -ulpn"]),
    }
}

fn each_thread_has_its_line() {
    let mut receiver = Running::start(&mut mpps(&[
        "recv",
        "127.0.0.1:0",
        "--threads",
        "3",
        "--reuseport",
        "-v",
    ]));
    let address = receiver.address();
    send(&address, &["--count", "10"]);
    receiver.line("M pps");
    for thread in 0..3 {
        let line = receiver.line(&format!("  thread {thread}"));
        for part in ["CPU ", "M pps", "dropped ", "packets a call"] {
            assert!(line.contains(part), "{line}");
        }
    }
    receiver.interrupt().fine();
}

fn a_count_ends_a_receiver() {
    let mut receiver = Running::start(&mut mpps(&["recv", "127.0.0.1:0", "--count", "100"]));
    let address = receiver.address();
    send(&address, &["--count", "100"]);
    let ended = receiver.end().fine();
    assert!(ended.out.contains("received 100 "), "{ended:#?}");
}

fn a_duration_ends_both() {
    let ended = run(&mut mpps(&["recv", "127.0.0.1:0", "--duration", "50ms"])).fine();
    assert!(ended.out.contains("received 0 "), "{ended:#?}");
    let sink = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = sink.local_addr().expect("it has an address").to_string();
    let ended = run(&mut mpps(&[
        "send",
        &address,
        "--duration",
        "50ms",
        "--rate",
        "1000",
    ]))
    .fine();
    assert!(ended.out.contains("\noffered "), "{ended:#?}");
}

fn json_is_alone_on_standard_output() {
    let mut receiver = Running::start(&mut mpps(&["recv", "127.0.0.1:0", "2", "1", "--json"]));
    let address = receiver.address();
    // Longer than a second, so that both ends have an interval to tell of.
    let sent = send(&address, &["--rate", "2000", "--count", "2600", "--json"]);
    let received = receiver.interrupt().fine();
    for (ended, schema) in [(&sent, "mpps.send.v1"), (&received, "mpps.recv.v1")] {
        let objects: Vec<Value> = ended
            .out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect();
        assert!(objects.iter().all(|object| object["schema"] == schema));
        let kinds: Vec<&str> = objects
            .iter()
            .filter_map(|object| object["type"].as_str())
            .collect();
        let (last, rest) = kinds.split_last().expect("an object");
        assert_eq!(*last, "total");
        assert!(
            !rest.is_empty() && rest.iter().all(|kind| *kind == "interval"),
            "{kinds:?}"
        );
        assert!(
            ended.err.contains("M pps"),
            "people are told beside it: {ended:#?}"
        );
    }
    let total = received.last_json();
    assert_eq!(total["received"], 2600);
    assert_eq!(total["socket_drops"], 0);
    assert_eq!(total["threads"].as_array().map(Vec::len), Some(2));
    assert!(total["active_seconds"].as_f64() > Some(1.0), "{total}");
    assert!(total["pps_median"].as_f64() > Some(0.0), "{total}");
    let total = sent.last_json();
    assert_eq!(
        (&total["offered"], &total["sent"], &total["refused"]),
        (&2600.into(), &2600.into(), &0.into())
    );
}

fn without_traffic_the_totals_are_zero() {
    let ended = run(&mut mpps(&[
        "recv",
        "127.0.0.1:0",
        "--duration",
        "50ms",
        "--json",
    ]))
    .fine();
    let total = ended.last_json();
    for field in [
        "received",
        "bytes",
        "socket_drops",
        "queued",
        "truncated",
        "end_markers",
    ] {
        assert_eq!(total[field], 0, "{field}");
    }
    assert_eq!(total["active_seconds"].as_f64(), Some(0.0));
    assert_eq!(total["pps_median"].as_f64(), Some(0.0));
    assert_eq!(total["flows"].as_array().map(Vec::len), Some(0));
}

/// Sends to an address and expects that to work.
fn send(address: &str, arguments: &[&str]) -> Ended {
    let mut command = mpps(&["send", address]);
    run(command.args(arguments)).fine()
}
