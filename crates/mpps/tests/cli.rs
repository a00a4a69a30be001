//! The command as its users meet it: help, mistakes, signals, pipes, and the forms of its output.

mod files;
mod hostile;
mod mistakes;
mod report;
mod starting;

use crate::common::{self, Ended, Entered, Running, mpps, quiet_namespace, run, words};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// An address of a documentation range (RFC 5737), which no interface has.
const NOT_OURS: &str = "192.0.2.77:4321";

pub(crate) fn trials() -> Vec<Trial> {
    mistakes::trials().chain(of_functions()).collect()
}

fn of_functions() -> Vec<Trial> {
    trials![
        waits:
            help_fits_and_is_fine,
            the_table_of_backends_is_shown,
            a_taken_port_is_named,
            a_file_that_is_no_result_is_named,
            a_rung_that_b_lacks_is_found_unless_it_was_not_chosen,
            results_of_bench_and_ndr_are_compared,
            results_of_load_are_compared,
            a_file_that_is_no_total_is_named,
            report::a_result_is_shown_again_in_each_medium,
            report::a_report_of_many_rows_takes_no_time_for_each_pair,
            report::a_file_that_has_no_report_is_named,
            report::a_full_disk_leaves_what_was_there,
            files::inputs_that_may_never_end_are_refused,
            files::what_the_shell_has_opened_is_read,
            files::a_pipe_without_a_reader_is_refused_before_any_traffic,
            files::a_pipe_and_a_redirection_take_a_page,
            files::a_device_that_stands_for_nothing_is_no_pipe,
            an_output_that_cannot_be_written_is_named,
            signals_end_a_receiver_with_totals,
            signals_end_a_sender_with_totals,
            starting::a_file_at_its_limit_is_told_and_removed,
            starting::a_small_stack_is_raised_or_told,
            starting::an_input_is_not_written,
            starting::nohup_keeps_it_running,
            starting::who_reads_nothing_keeps_no_run_from_ending,
            starting::an_output_that_is_not_read_keeps_no_run_from_ending,
            starting::without_memory_it_says_so,
            a_closed_pipe_ends_it_quietly,
            lost_text_is_an_error_and_a_closed_pipe_is_none,
            the_articles_form_works,
            each_thread_has_its_line,
            a_second_has_its_own_losses,
            a_count_ends_a_receiver,
            a_duration_ends_both,
            json_is_alone_on_standard_output,
            without_traffic_the_totals_are_zero;
        waits(Need::Root):
            files::a_full_disk_takes_no_result,
            files::a_link_of_another_user_is_not_followed,
            files::a_link_of_root_is_followed_and_files_keep_their_owners,
            hostile::a_namespace_may_have_any_name,
            starting::a_root_who_lacks_a_capability_is_told_which,
            starting::a_limit_is_told_by_its_name;
        waits(Need::Namespace, Need::Program("bash", "bash")): hostile::a_completed_name_runs_nothing;
        waits(Need::Program("systemd-analyze", "systemd")): units_start_what_is_there;
        waits(Need::Program("script", "bsdutils")): starting::a_held_terminal_keeps_no_run_from_ending;
        waits(Need::Namespace):
            an_interface_without_traffic_is_named,
            hostile::names_of_interfaces_steer_nothing,
            hostile::names_of_programs_and_files_steer_nothing,
            a_low_port_without_the_right_is_named,
            without_proc_it_says_so,
            without_ipv6_it_says_so,
            without_a_route_it_says_so,
            starting::a_command_at_its_limit_has_the_signal,
            starting::blocked_signals_end_it_all_the_same;
        waits(Need::Root, Need::Program("ip", "iproute2")):
            hostile::a_name_that_is_no_text_is_a_name;
    ]
}

/// systemd knows each line of the units, and mpps each option in them.
fn units_start_what_is_there() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let program = directory.path().join("mpps");
    symlink(env!("CARGO_BIN_EXE_mpps"), &program).expect("it is ours");
    let program = program.to_str().expect("a plain name");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for (unit, started) in [
        ("mpps-exporter.service", "mpps-exporter.service"),
        ("mpps-fix@.service", "mpps-fix@53.service"),
    ] {
        let text = fs::read_to_string(packaging.join(unit)).expect("it is there");
        let text = text.replace("/usr/local/bin/mpps", program);
        fs::write(directory.path().join(unit), &text).expect("it is ours");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]);
        let verified = run(verify.arg(directory.path().join(started))).fine();
        // Other units of this machine may have faults.
        assert!(!verified.err.contains("mpps"), "{verified:#?}");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let line = line.expect("it starts something").replace("%i", "53");
        let words = words(&line);
        run(Command::new(words[0]).args(&words[1..]).arg("--help")).fine();
    }
}

/// No program sends to it, and the error says so after some time.
fn an_interface_without_traffic_is_named() {
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a port is free").port().to_string();
    let arguments = ["placement", "--quick", "--interface", "lo", "--port", &port];
    let directory = tempfile::tempdir().expect("a directory can be had");
    let ended = run(mpps(&arguments).current_dir(&directory));
    let names = ["nothing arrived at port", &port, "of lo", "firewall"];
    assert_eq!(ended.code(), 2, "{ended:#?}");
    expect_named(&ended, &names);
    let left = fs::read_dir(&directory).expect("it is still there").count();
    assert_eq!(left, 0, "files were left behind");
    let mut running = Running::start(mpps(&arguments).current_dir(&directory));
    running.line("waiting for packets");
    let ended = running.interrupt();
    assert_eq!(ended.code(), 130, "{ended:#?}");
}

/// Status 2, and one line that names the thing and the remedy, each once.
fn expect_refusal(ended: &Ended, names: &[&str]) {
    ended.refused(names);
    assert!(ended.err.starts_with("mpps: "), "{ended:#?}");
    assert!(
        ended.err.matches("(os error").count() <= 1,
        "said twice: {ended:#?}"
    );
}

fn expect_named(ended: &Ended, names: &[&str]) {
    for name in names {
        assert!(ended.err.contains(name), "`{name}` is not in {ended:#?}");
    }
}

fn help_fits_and_is_fine() {
    let commands = [
        "lab", "bench", "ndr", "recv", "send", "ledger", "compare", "report", "backends", "undo",
    ];
    let main = run(&mut mpps(&["--help"])).fine();
    for command in commands {
        assert!(main.out.contains(&format!("\n  {command}")), "{main:#?}");
        let help = run(&mut mpps(&[command, "--help"])).fine();
        help.shows(&[&format!("Usage: mpps {command}")]);
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
    // A sender has another option.
    let port = address.rsplit(':').next().expect("a port");
    let send = ["send", "127.0.0.1:9", "--source-port", port];
    let ended = run(&mut mpps(&send));
    expect_refusal(&ended, &["ss -ulpn", "another --source-port"]);
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = holder.local_addr().expect("it has an address").to_string();
    let ended = run(&mut mpps(&["top", "--listen", &address]));
    expect_refusal(&ended, &["--listen", &address, "ss -tlpn"]);
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
            "a result of `mpps recv`, not of `mpps lab`",
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

fn a_rung_that_b_lacks_is_found_unless_it_was_not_chosen() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let whole = include_str!("fixtures/lab.json");
    let write = |name: &str, result: &serde_json::Value| {
        let path = directory.path().join(name);
        fs::write(&path, result.to_string()).expect("it can be written");
        path.to_str().expect("a plain name").to_owned()
    };
    let mut result: serde_json::Value = serde_json::from_str(whole).expect("JSON");
    let a = write("a.json", &result);
    let same = run(&mut mpps(&["compare", &a, &a])).fine();
    assert!(!same.out.contains("are not in B"), "{same:#?}");
    let rungs = result["rungs"].as_array_mut().expect("rungs");
    rungs.truncate(3);
    let short = write("short.json", &result);
    let found = run(&mut mpps(&["compare", &a, &short]));
    assert_eq!(found.code(), 1, "{found:#?}");
    found.shows(&["measured in A are not in B"]);
    result["command"] = "mpps lab --only 1,2,3".into();
    let chosen = write("chosen.json", &result);
    let noted = run(&mut mpps(&["compare", &a, &chosen])).fine();
    assert!(noted.out.contains("--only did not name"), "{noted:#?}");
}

/// The status of `mpps compare`, and its first line.
fn compared(a: &str, b: &str) -> (i32, String) {
    let ended = run(&mut mpps(&["compare", a, b]));
    let first = ended.out.lines().next().unwrap_or_default().to_owned();
    (ended.code(), first)
}

fn results_of_bench_and_ndr_are_compared() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let write = |name: &str, result: &serde_json::Value| {
        let path = directory.path().join(name);
        fs::write(&path, result.to_string()).expect("it can be written");
        path.to_str().expect("a plain name").to_owned()
    };
    let mut bench: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/bench.json")).expect("JSON");
    // A row with one repeat says nothing about noise.
    let rows = bench["rows"].as_array_mut().expect("rows");
    rows.retain(|row| {
        row["mpps_samples"]
            .as_array()
            .is_none_or(|all| all.len() >= 3)
    });
    bench["spread"] = serde_json::json!([]);
    let a = write("bench.json", &bench);
    let (code, first) = compared(&a, &a);
    assert!(
        code == 0 && first.ends_with("the same within noise"),
        "{first}"
    );
    bench["rows"][1]["mpps_samples"] = serde_json::json!([0.5, 0.51, 0.52]);
    let (code, first) = compared(&a, &write("slow.json", &bench));
    assert!(code == 1 && first.contains("1 worse"), "{first}");
    bench["sender"] = "sendmmsg (as asked): 1 flow".into();
    let (code, first) = compared(&a, &write("other.json", &bench));
    let why = " not comparable: sender differs: A xdp, 32 bytes, B sendmmsg, 32 bytes";
    assert_eq!((code, first.as_str()), (2, why));
    let mut ndr: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/ndr.json")).expect("JSON");
    for row in ndr["rows"].as_array_mut().expect("rows") {
        if let Some(trials) = row.get_mut("trials").and_then(|all| all.as_array_mut()) {
            *trials = [&trials[..]; 3].concat();
        }
    }
    let b = write("ndr.json", &ndr);
    let (code, first) = compared(&b, &b);
    assert!(
        code == 0 && first.contains(" 5 the same within noise"),
        "{first}"
    );
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lab.json");
    let ended = run(&mut mpps(&["compare", lab, &a]));
    expect_refusal(
        &ended,
        &["of `mpps lab`", "of `mpps bench`", "of one command"],
    );
}

fn results_of_load_are_compared() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let write = |name: &str, result: &serde_json::Value| {
        let path = directory.path().join(name);
        fs::write(&path, result.to_string()).expect("it can be written");
        path.to_str().expect("a plain name").to_owned()
    };
    let mut load: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/load.json")).expect("JSON");
    let second = |completed: u64| {
        serde_json::json!({"seconds": 1.0, "connections_completed": completed, "connections_failed": 0,
            "requests_completed": completed, "requests_failed": 0})
    };
    let seconds = |rate: u64| serde_json::json!([second(rate), second(rate + 50), second(rate)]);
    let old = write("old.json", &load);
    let ended = run(&mut mpps(&["compare", &old, &old]));
    expect_refusal(&ended, &["0 times", "mpps load --duration 10s"]);
    load["each_second"] = seconds(10_000);
    let a_load = write("load.json", &load);
    let (code, first) = compared(&a_load, &a_load);
    assert!(code == 0 && first.contains(" 1 the same"), "{first}");
    load["each_second"] = seconds(2000);
    let (code, first) = compared(&a_load, &write("slow.json", &load));
    assert!(code == 1 && first.contains("1 worse"), "{first}");
    load["connections"] = 8.into();
    let (code, first) = compared(&a_load, &write("other.json", &load));
    let is_said = first.contains("not comparable: sender differs: A 64 in flight");
    assert!(code == 2 && is_said, "{first}");
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
            "{\"schema\":\"mpps.lab.v2\"}",
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
        let option = format!("{option}=/nosuch/result");
        let arguments = ["lab", "--quick", "--only", "1", &option];
        let ended = run(mpps(&arguments).current_dir(&directory));
        expect_refusal(&ended, &["/nosuch/result"]);
        // Not the other one's either, which could be opened.
        let left = fs::read_dir(&directory).expect("it is still there").count();
        assert_eq!(left, 0, "{option}: files were left behind");
    }
}

fn a_low_port_without_the_right_is_named() {
    // In a namespace of its own, because some machines let any user have low ports.
    for words in [&["recv"][..], &["top", "--listen"]] {
        let mut command = Command::new("setpriv");
        command.args([
            "--bounding-set",
            "-net_bind_service",
            env!("CARGO_BIN_EXE_mpps"),
        ]);
        command.args(words).arg("127.0.0.1:80");
        let ended = quiet_namespace().run(|| run(&mut command));
        expect_refusal(
            &ended.expect("it can be entered"),
            &["127.0.0.1:80", "1024", "root without CAP_NET_BIND_SERVICE"],
        );
    }
    let namespace = quiet_namespace();
    let refused = namespace.run(|| {
        fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "6000")?;
        let low = run(Command::new("setpriv").args([
            "--bounding-set",
            "-net_bind_service",
            env!("CARGO_BIN_EXE_mpps"),
            "recv",
            "127.0.0.1:5555",
        ]));
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40000")?;
        let _holder = UdpSocket::bind("127.0.0.1:0")?;
        let none = run(&mut mpps(&["recv", "127.0.0.1:0"]));
        Ok::<_, std::io::Error>((low, none))
    });
    let (low, none) = refused.expect("it can be entered").expect("its sysctls");
    expect_refusal(&low, &["below 6000", "ip_unprivileged_port_start"]);
    expect_refusal(&none, &["ip_local_port_range"]);
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
    namespace
        .within(|| fs::write(switch, "1"))
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
        assert!(ended.out.contains("\n offered "), "{signal}: {ended:#?}");
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

/// A full disk is an error, also for help. A reader that has gone is none.
fn lost_text_is_an_error_and_a_closed_pipe_is_none() {
    for line in [
        "--help",
        "-h",
        "--version",
        "recv -h",
        "help recv",
        "completions bash",
        "backends",
    ] {
        let words = words(line);
        let full = File::options().write(true).open("/dev/full");
        let full = full.expect("it is everywhere");
        let ended = mpps(&words).stdout(full).output().expect("it starts");
        let text = String::from_utf8_lossy(&ended.stderr);
        let told = "mpps: cannot write standard output: No space left on device (os error 28)\n";
        assert_eq!((ended.status.code(), &*text), (Some(2), told), "{line}");
        let (reader, closed) = io::pipe().expect("a pipe can be had");
        drop(reader);
        let ended = mpps(&words).stdout(closed).output().expect("it starts");
        let is_quiet = ended.status.success() && ended.stderr.is_empty();
        assert!(is_quiet, "{line}: {ended:?}");
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
            .filter(|line| line.starts_with(" thread "));
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
    let mut receiver = Running::start(&mut mpps(&words(
        "recv 127.0.0.1:0 --threads 3 --reuseport -v",
    )));
    let address = receiver.address();
    send(&address, &["--count", "10"]);
    receiver.line("bit/s");
    for thread in 0..3 {
        let line = receiver.line(&format!("  thread {thread}"));
        for part in ["CPU ", "/s", "dropped ", "packets a call"] {
            assert!(line.contains(part), "{line}");
        }
    }
    receiver.interrupt().fine();
}

/// The line of a second has the losses of that second, and none if there were none.
fn a_second_has_its_own_losses() {
    let mut receiver = Running::start(&mut mpps(&["recv", "127.0.0.1:0", "--rcvbuf", "4096"]));
    let address = receiver.address();
    let process = receiver.id().to_string();
    common::kill("STOP", &process);
    send(&address, &["--count", "1000"]);
    common::kill("CONT", &process);
    let lost = receiver.line("/s at the socket)");
    send(&address, &["--count", "1"]);
    receiver.line("     1 /s");
    let ended = receiver.interrupt().fine();
    let seconds = ended.out.lines().filter(|line| line.contains("bit/s"));
    let busy: Vec<_> = seconds
        .filter(|line| !line.starts_with("     0 /s"))
        .collect();
    assert!(busy[0] == lost && lost.contains("lost 9"), "{ended:#?}");
    assert!(busy.len() == 2 && !busy[1].contains("lost"), "{ended:#?}");
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
    let ended = run(&mut mpps(&words(&format!(
        "send {address} --duration 50ms --rate 1000"
    ))))
    .fine();
    assert!(ended.out.contains("\n offered "), "{ended:#?}");
}

fn json_is_alone_on_standard_output() {
    let mut receiver = Running::start(&mut mpps(&["recv", "127.0.0.1:0", "2", "1", "--json"]));
    let address = receiver.address();
    // Longer than a second, so that both ends report an interval.
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
            ended.err.contains("bit/s"),
            "people are told beside it: {ended:#?}"
        );
    }
    let file = tempfile::NamedTempFile::new().expect("a file can be had");
    for (ended, says) in [
        (&sent, "offered 2 600 = sent"),
        (&received, "received 2 600 in"),
    ] {
        fs::write(&file, &ended.out).expect("it can be written");
        let path = file.path().to_str().expect("a plain name");
        let shown = run(&mut mpps(&["report", path])).fine().out;
        assert!(shown.contains(says), "{shown}");
        assert!(ended.err.contains(says), "it is what people were told");
    }
    has_screens(&received);
    let total = received.last_json();
    assert_eq!(total["received"], 2600);
    assert_eq!(total["socket_drops"], 0);
    assert_eq!(total["threads"].as_array().map(Vec::len), Some(2));
    assert!(total["active_seconds"].as_f64() > Some(1.0), "{total}");
    assert!(total["pps_median"].as_f64() > Some(0.0), "{total}");
    let seconds = total["active_seconds"].as_f64().expect("a time");
    assert_eq!(total["pps"].as_f64(), Some(2600.0 / seconds));
    let definition = total["rate_definition"].as_str().expect("a sentence");
    assert!(
        definition.contains("from the first to the last"),
        "{definition}"
    );
    let total = sent.last_json();
    assert_eq!(
        (&total["offered"], &total["sent"], &total["refused"]),
        (&2600.into(), &2600.into(), &0.into())
    );
}

fn has_screens(received: &Ended) {
    let first = received.out.lines().next().expect("a second");
    let interval: Value = serde_json::from_str(first).expect("one object a line");
    let screens = &interval["screens"];
    let came = screens["udp"]["InDatagrams"].as_f64();
    assert!(
        screens["interface"] == "lo" && came > Some(0.0),
        "{screens}"
    );
    assert!(screens["cpus"][0]["busy"].is_number(), "{screens}");
}

fn without_traffic_the_totals_are_zero() {
    let ended = run(&mut mpps(&words("recv 127.0.0.1:0 --duration 50ms --json"))).fine();
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
