//! `mpps bench` from end to end: its rows, ledgers and files, interruption, a closed pipe, and an
//! ordinary user's rows.

use crate::common::{self, Ended, Entered, Running, directory, mpps, run};
use mpps::experiment::receive_paths::ndr::result::{NdrBody, NdrResult, NdrRow};
use mpps::experiment::receive_paths::result::{BenchBody, BenchResult, BenchRow, SpreadRow};
use mpps_host::Station;
use mpps_lab::{Lab, LabConfig};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits:
            a_path_that_is_none_is_refused,
            spread_is_of_early_drops,
            overload_is_of_receivers_that_share_a_cpu,
            a_sender_ends_with_the_program,
            a_sender_that_cannot_send_is_refused,
            a_sender_that_keeps_its_own_rate_measures_nothing;
        waits(Need::probe(common::lab)):
            the_paths_are_listed_with_their_obstacles;
        waits(Need::Root):
            every_path_is_measured_or_says_why_not,
            a_short_run_is_written_and_adds_up,
            work_limits_the_rate_of_each_receiver,
            a_row_that_fails_is_skipped_and_the_others_go_on,
            nothing_measured_is_a_failure,
            a_curve_is_written_and_adds_up,
            spread_traffic_uses_the_queues_it_names,
            a_row_is_searched_for_its_rate_without_loss,
            ndr_finds_the_rate_of_a_receiver_that_is_held_back,
            ndr_has_the_ledger_of_two_hosts,
            an_ordinary_user_has_the_sockets_rows;
        waits(Need::Root): a_path_to_which_nothing_comes_is_skipped;
        waits(Need::Root, Need::Program("iptables-legacy", "iptables")):
            spread_traffic_meets_a_rule_as_in_the_article;
        waits(Need::probe(common::lab)):
            interrupted_it_keeps_what_it_has,
            ndr_keeps_what_it_has_and_says_why_the_rest_did_not_run;
    ]
}

const FILES: [&str; 4] = ["bench", "--json=data.json", "--html", "page.html"];

/// Runs in a directory, with names of its own for the files.
fn bench(directory: &TempDir, arguments: &[&str]) -> Ended {
    run(mpps(&FILES).args(arguments).current_dir(directory))
}

/// The result in a directory, held to the schema and to its own arithmetic; and its page is there.
fn result(directory: &TempDir) -> BenchResult {
    let page = fs::read_to_string(directory.path().join("page.html")).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    let text = common::valid::<BenchBody>(&directory.path().join("data.json"));
    // This also refuses a ledger whose terms do not give its remainder.
    BenchResult::parse(&text).expect("it reads what it wrote")
}

/// Every datagram is accounted for where the counters are exact. Only trains have inexact ones.
fn accounted_for(result: &BenchResult) {
    let measured = result.rows.iter().filter(|row| row.runs.skipped.is_none());
    let of_rows =
        measured.flat_map(|row| row.runs.ledgers().map(move |ledger| (&row.variant, ledger)));
    let points = result.overload.iter().flat_map(|curve| {
        let ledgers = curve.points.iter().map(|point| &point.ledger);
        ledgers.map(move |ledger| (&curve.variant, ledger))
    });
    let spread = result.spread.iter().flat_map(|row| {
        let ledgers = row.runs.ledgers();
        ledgers.map(move |ledger| (&row.variant, ledger))
    });
    for (variant, ledger) in of_rows.chain(points).chain(spread) {
        assert!(ledger.offered > 0, "{variant}: nothing was sent");
        if ledger.is_exact() {
            assert_eq!(ledger.unaccounted, 0, "{variant}: {ledger}");
        } else {
            assert_eq!(variant, "GRO", "{ledger}");
        }
    }
}

/// Half of a quick run.
const SHORT: [&str; 4] = ["--seconds", "100ms", "--repeat", "1"];

fn names(rows: &[BenchRow]) -> Vec<&str> {
    rows.iter().map(|row| row.path.as_str()).collect()
}

fn a_path_that_is_none_is_refused() {
    let directory = directory();
    let ended = bench(&directory, &["--quick", "--only", "nosuch"]);
    ended.refused(&["nosuch"]);
    assert!(!directory.path().join("data.json").exists());
}

fn the_paths_are_listed_with_their_obstacles() {
    let list = run(&mut mpps(&["bench", "--list"])).fine();
    for path in ["recv ", "recvmmsg", "af_xdp", "xdp_drop", "nft_raw_drop"] {
        let line = list.out.lines().find(|line| line.starts_with(path));
        let line = line.unwrap_or_else(|| panic!("no {path}: {list:#?}"));
        assert!(
            line.contains("runs") || line.contains("skipped: "),
            "{line}"
        );
    }
}

/// The sender brings far more than the 0.01 Mpps that 100 us leave.
fn work_limits_the_rate_of_each_receiver() {
    let directory = directory();
    let only = "recvmmsg/gro,af_xdp/spin,xdp_drop/packet-untouched";
    let ended = bench(
        &directory,
        &[&SHORT[..], &["--flows=1", "--work=100us", "--only", only]].concat(),
    );
    assert!(ended.fine().out.contains("100us of work per datagram"));
    let result = result(&directory);
    accounted_for(&result);
    assert_eq!(result.work.as_deref(), Some("100us"));
    for row in result.rows.iter().filter(|row| row.runs.skipped.is_none()) {
        let rate = row.runs.mpps_median.expect("it ran");
        match row.path == "xdp_drop" {
            true => assert!(rate > 0.05, "{row:?}"),
            false => assert!(rate > 0.0 && rate <= 0.01, "{row:?}"),
        }
    }
}

fn a_short_run_is_written_and_adds_up() {
    let directory = directory();
    let only = "recv,xdp_drop/packet-untouched";
    let ended = bench(&directory, &["--quick", "--only", only]).fine();
    let result = result(&directory);
    assert!(result.rows.iter().all(|row| row.loss_free.is_none()));
    assert!(result.quick && result.complete);
    assert!(
        result.command.starts_with("mpps bench"),
        "{}",
        result.command
    );
    accounted_for(&result);
    for (path, flows) in [
        ("recv", 1),
        ("recv", 256),
        ("xdp_drop", 1),
        ("xdp_drop", 256),
    ] {
        let of_path = |row: &&BenchRow| row.path == path && row.flows == Some(flows);
        let rows: Vec<&BenchRow> = result.rows.iter().filter(of_path).collect();
        assert!(!rows.is_empty(), "{:?}", names(&result.rows));
        for row in rows {
            assert!(row.reference);
            assert_eq!(row.runs.skipped, None, "{path}");
            assert_eq!(row.runs.mpps_samples.len(), row.runs.sample_ledgers.len());
            assert!(row.runs.ledger.is_some() && !row.mode.is_empty() && !row.napi.is_empty());
        }
        assert!(ended.out.contains(path), "{ended:#?}");
        let heading = format!("itself, {flows} flow");
        assert!(ended.out.contains(&heading), "{ended:#?}");
    }
    ended.shows(&["exact ledgers balance to zero"]);
    assert_eq!(
        fs::read_dir(&directory).expect("it is there").count(),
        2,
        "two files"
    );
}

fn every_path_is_measured_or_says_why_not() {
    let directory = directory();
    // Of a quick run is `a_short_run_is_written_and_adds_up`.
    bench(&directory, &[&SHORT[..], &["--flows", "1"]].concat()).fine();
    let result = result(&directory);
    accounted_for(&result);
    for path in ["recv", "recvmmsg", "packet_mmap", "af_xdp", "xdp_drop"] {
        let measured = |row: &BenchRow| row.path == path && row.runs.skipped.is_none();
        assert!(
            result.rows.iter().any(measured),
            "{path}: {:?}",
            result.rows
        );
    }
    for row in result.rows.iter().filter(|row| row.runs.skipped.is_some()) {
        assert!(
            row.runs.ledger.is_none() && row.runs.mpps_median.is_none(),
            "{row:?}"
        );
    }
    for row in result.rows.iter().filter(|row| row.runs.skipped.is_none()) {
        assert!(row.runs.mpps_median > Some(0.0), "{row:?}");
        assert!(!row.mode.is_empty(), "{row:?}");
        let ledger = row
            .runs
            .ledger
            .as_ref()
            .expect("a measured row has a ledger");
        // A rule delivers to no program. Its ledger counts the packets that it dropped as
        // delivered.
        assert!(
            ledger.delivered > 0 && ledger.offered >= ledger.delivered,
            "{row:?}"
        );
    }
    // Fastest first, and skipped rows last.
    let rates: Vec<f64> = result
        .rows
        .iter()
        .map(|row| row.runs.mpps_median.unwrap_or(-1.0))
        .collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
}

/// A directory for `PATH`, with an `nft` that succeeds twice (the rule is tried once), and then
/// refuses.
fn refusing_nft() -> TempDir {
    let folder = directory();
    let nft = folder.path().join("nft");
    let script = "#!/bin/sh\n\
                  echo call >> \"$0.calls\"\n\
                  test $(wc -l < \"$0.calls\") -le 2 && exit 0\n\
                  echo the rule is refused >&2\nexit 1\n";
    fs::write(&nft, script).expect("it is ours");
    fs::set_permissions(&nft, fs::Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

/// Runs with that `nft`.
fn bench_with_refusing_nft(directory: &TempDir, only: &str) -> Ended {
    let folder = refusing_nft();
    let old = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{old}", folder.path().display());
    let mut command = mpps(&FILES);
    command.args(["--quick", "-v", "--flows", "1", "--only", only]);
    command.env("PATH", path);
    run(command.current_dir(directory))
}

fn a_row_that_fails_is_skipped_and_the_others_go_on() {
    let directory = directory();
    let ended = bench_with_refusing_nft(&directory, "nft_raw_drop,recvmmsg/epoll").fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(result.complete);
    let of_path = |path: &str| result.rows.iter().find(|row| row.path == path);
    let rule = of_path("nft_raw_drop").expect("it is told of");
    let why = rule.runs.skipped.as_deref().unwrap_or_default();
    assert!(why.contains("the rule is refused"), "{rule:?}");
    assert!(rule.runs.ledger.is_none() && rule.runs.mpps_samples.is_empty());
    let other = of_path("recvmmsg").expect("it is told of");
    assert!(other.runs.skipped.is_none() && other.runs.ledger.is_some());
    let said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the rule is refused"), "{ended:#?}");
}

fn nothing_measured_is_a_failure() {
    let directory = directory();
    let ended = bench_with_refusing_nft(&directory, "nft_raw_drop");
    ended.fails(&["the rule is refused"]);
    assert!(result(&directory).complete, "the files are written");
}

/// The traffic comes by queue 1: a socket gets it, and a ring on queue 0 does not.
fn a_path_to_which_nothing_comes_is_skipped() {
    let lab = Lab::new(&LabConfig::default()).expect("root has a lab");
    let address = format!("{}:4321", lab.receiver().v4()[0]);
    let mut send = mpps(&["send", &address, "--stamp", "--backend", "af_xdp"]);
    send.args(["--queue", "1", "--rate", "20000"]);
    let sender = lab.sender().within(|| Running::start(&mut send));
    let directory = directory();
    let arguments = ["--quick", "--only", "recvmmsg/spin,af_xdp/poll"];
    let arguments = [&arguments[..], &["--sender", "lab", "--address", &address]].concat();
    let ended = lab.receiver().within(|| bench(&directory, &arguments));
    let ended = ended.fine();
    drop(sender);
    let result = result(&directory);
    assert!(result.complete, "{ended:#?}");
    let [socket, ring] = &result.rows[..] else {
        panic!("{:?}", result.rows)
    };
    assert!(socket.runs.ledger.is_some() && socket.runs.skipped.is_none());
    let why = ring.runs.skipped.as_deref().unwrap_or_default();
    let other_queue = "came by a queue without a receiver";
    assert!(
        ring.path == "af_xdp" && why.contains("nothing arrived") && why.contains(other_queue),
        "{ring:?}"
    );
}

fn a_curve_is_written_and_adds_up() {
    let directory = directory();
    let only = ["--overload", "--only", "recv,af_xdp/poll,af_xdp/busy-poll"];
    let ended = bench(&directory, &[&SHORT[..], &only].concat()).fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(result.overload.len() >= 2, "{ended:#?}");
    // A path that cannot share a CPU has a reason in place of a curve.
    for row in &result.rows {
        assert!(
            row.path == "af_xdp" && row.runs.skipped.is_some(),
            "{row:?}"
        );
    }
    for curve in &result.overload {
        assert!(
            curve
                .points
                .is_sorted_by(|a, b| a.offered_mpps <= b.offered_mpps)
        );
        let asked = curve.points.iter().filter_map(|point| point.asked_mpps);
        assert_eq!((curve.points.len(), asked.count()), (10, 9), "{curve:?}");
        let best = curve.points.iter().map(|point| point.goodput_mpps);
        assert_eq!(best.fold(0.0, f64::max), curve.peak_mpps);
    }
    for curve in result.overload.iter().filter(|curve| curve.path == "recv") {
        let last = curve.points.last().expect("a curve has points");
        // The last load has no bound, and is more than a socket takes.
        assert!(last.offered_mpps > curve.peak_mpps, "{last:?}");
        assert!(last.ledger.lost_at(Station::Socket) > 0, "{last:?}");
    }
    assert!(ended.out.contains("x offered"), "{ended:#?}");
}

fn spread_traffic_uses_the_queues_it_names() {
    let (result, said) = spread("xdp_drop/packet-untouched");
    let article = |row: &SpreadRow| row.article_mpps_per_cpu;
    assert!(result.spread.iter().all(|row| article(row).is_none()));
    for part in ["Mpps per CPU", "balance to zero", "xdp:"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

fn spread_traffic_meets_a_rule_as_in_the_article() {
    let (result, _) = spread("iptables_raw_drop");
    let article = result.spread.iter().map(|row| row.article_mpps_per_cpu);
    let article: Vec<f64> = article.flatten().collect();
    assert!(article.contains(&1.4) && article.contains(&0.48));
}

/// Runs one drop with traffic on more and more queues. Returns its result and its output.
fn spread(only: &str) -> (BenchResult, String) {
    let directory = directory();
    let ended = bench(&directory, &["--quick", "--spread", "--only", only]).fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(result.rows.is_empty() && result.overload.is_empty());
    for queues in [1, 2, 4] {
        let measured = |row: &&SpreadRow| row.queues == queues && row.runs.skipped.is_none();
        let rows: Vec<&SpreadRow> = result.spread.iter().filter(measured).collect();
        assert!(!rows.is_empty(), "{queues} queues: {:?}", result.spread);
        for row in rows {
            // Each of them carried packets, and no other did.
            assert_eq!(row.queue_mpps.len(), usize::from(queues), "{row:?}");
            assert!(row.queue_mpps.iter().all(|rate| *rate > 0.0), "{row:?}");
            assert_eq!(row.queue_cpus.len(), usize::from(queues), "{row:?}");
            assert!(row.mpps_per_cpu.is_some(), "{row:?}");
        }
    }
    (result, ended.out)
}

fn spread_is_of_early_drops() {
    let directory = directory();
    let ended = bench(&directory, &["--spread", "--only", "recvmmsg"]);
    ended.fails(&["_drop"]);
    assert!(!directory.path().join("data.json").exists());
}

fn overload_is_of_receivers_that_share_a_cpu() {
    let directory = directory();
    let ended = bench(&directory, &["--overload", "--only", "nft_raw_drop"]);
    ended.fails(&["name recvmmsg"]);
    assert!(!directory.path().join("data.json").exists());
}

fn interrupted_it_keeps_what_it_has() {
    let directory = directory();
    let mut command = mpps(&FILES);
    command.args(["--seconds", "100ms", "--repeat", "1000"]);
    command.args(["--flows", "1", "--only", "recv"]);
    command.current_dir(&directory);
    common::interrupted(&mut command, || {
        if !directory.path().join("data.json").exists() {
            return false;
        }
        let result = result(&directory);
        assert!(!result.complete);
        // Interrupted in its first run, it may have sent nothing.
        let mut ledgers = result
            .rows
            .iter()
            .filter_map(|row| row.runs.ledger.as_ref());
        if !ledgers.any(|ledger| ledger.offered > 0) {
            return false;
        }
        accounted_for(&result);
        true
    });
}

fn a_row_is_searched_for_its_rate_without_loss() {
    let directory = directory();
    let only = ["--flows", "2", "--loss-free", "--only", "recv"];
    let ended = bench(&directory, &[&SHORT[..], &only].concat()).fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(ended.out.contains("loss-free"), "{ended:#?}");
    assert!(
        result
            .loss_free_goal
            .is_some_and(|goal| goal.loss_ratio == 0.0)
    );
    for row in &result.rows {
        // Only where the application has its CPU to itself.
        assert_eq!(row.loss_free.is_some(), !row.shares_cpu, "{row:?}");
        for trial in row.loss_free.iter().flat_map(|searched| &searched.trials) {
            assert!(trial.ledger.balances(), "{}", trial.ledger);
        }
    }
}

/// The result of `mpps ndr` in a directory, held to the schema and to its own arithmetic.
fn ndr_result(directory: &TempDir) -> NdrResult {
    let text = common::valid::<NdrBody>(&directory.path().join("data.json"));
    let result = NdrResult::parse(&text).expect("it reads what it wrote");
    for trial in result.rows.iter().flat_map(|row| &row.searched.trials) {
        assert!(trial.ledger.balances(), "{}", trial.ledger);
    }
    result
}

/// The rate limit of a receiver that is held back.
const HELD_BACK_MPPS: f64 = 0.1;

/// The loss goal is a fifth, so the bound is 1.25 times the receiver's rate. The rate delivered at
/// that bound is the receiver's rate.
fn ndr_finds_the_rate_of_a_receiver_that_is_held_back() {
    let row = searched(&["--repeat", "2", "--limit", "12s"], run);
    assert!(row.searched.trials.len() > 3, "{row:?}");
}

/// With a sender that is a command in a host of its own: each trial has the ledger of both ends.
fn ndr_has_the_ledger_of_two_hosts() {
    let lab = Lab::new(&common::unhurried()).expect("root has a lab");
    let namespace = lab.sender().namespace().as_fd().as_raw_fd();
    let sender = format!(
        "nsenter --net=/proc/{}/fd/{namespace} {} send",
        std::process::id(),
        env!("CARGO_BIN_EXE_mpps")
    );
    let address = format!("{}:4321", lab.receiver().v4()[0]);
    let options = ["--quick", "--sender", &sender, "--address", &address];
    let row = searched(&options, |command| lab.receiver().within(|| run(command)));
    let mut trials = row.searched.trials.iter();
    assert!(trials.any(|trial| trial.ledger.offered > 0), "{row:?}");
}

fn a_sender_that_cannot_send_is_refused() {
    let address = ["--address", "127.0.0.1:4321"];
    for (sender, why) in [
        ("echo >&2 no such host; false", "no such host"),
        ("echo", "no totals in it"),
        ("sleep 706 #", "has not ended after 1.01"),
    ] {
        let directory = directory();
        let mut command = mpps(&["ndr", "recv", "--limit", "1s", "--sender", sender]);
        let ended = run(command.args(address).current_dir(&directory));
        ended.fails(&["--sender: `", why]);
        let left = fs::read_dir(&directory).expect("it is ours").count();
        assert_eq!(left, 0, "files of nothing");
    }
}

/// The result is written, and says why.
fn a_sender_that_keeps_its_own_rate_measures_nothing() {
    let directory = directory();
    let own =
        "f() { set -- $(echo \"$@\" | sed 's/--rate [^ ]*/--rate 1000/'); $MPPS send \"$@\"; }; f";
    let mut command = mpps(&["ndr", "recvmmsg", "--quick", "--loss", "0", "--min", "10k"]);
    command.args(["--max", "20k", "--limit", "5s", "--sender", own]);
    command
        .args(["--address", "127.0.0.1:4327"])
        .env("MPPS", env!("CARGO_BIN_EXE_mpps"));
    let ended = run(command.current_dir(&directory));
    ended.fails(&["no load was measured on any path"]);
    let said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["the sender, which missed", "void: 2 sender too slow"] {
        assert!(said.contains(part), "{ended:#?}");
    }
    assert!(directory.path().join("ndr.json").exists());
}

/// Nothing of its process group stays, also if this program is killed.
fn a_sender_ends_with_the_program() {
    for (signal, status) in [("INT", Some(130)), ("KILL", None)] {
        let directory = directory();
        let file = directory.path().join("process");
        let named = file.display();
        // It makes a process group of its own, and leaves the shell's.
        let script = format!("echo $$ > {named}.part; mv {named}.part {named}; exec sleep 1000");
        let order = format!("f() {{ timeout 1000 sh -c '{script}' & wait; }}; f");
        let mut command = mpps(&[
            "ndr",
            "recv",
            "--address",
            "127.0.0.1:4321",
            "--sender",
            &order,
        ]);
        let running = Running::start(command.current_dir(&directory));
        let process = until("the sender runs", || fs::read_to_string(&file).ok());
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status.code(), status, "{ended:#?}");
        let stat = format!("/proc/{}/stat", process.trim());
        // An orphan is waited for by another process, if at all.
        until("it has ended", || match fs::read_to_string(&stat) {
            Ok(stat) => stat.contains(") Z").then_some(()),
            Err(_) => Some(()),
        });
    }
}

/// Waits until `look` finds something, and returns it.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}
/// Searches the rate of a receiver that cannot take more than [`HELD_BACK_MPPS`]. A busy machine
/// may find less, but none finds more: only that is checked. The search itself is tested on models,
/// in `mpps::experiment::paths::search`.
fn searched(options: &[&str], run: impl Fn(&mut Command) -> Ended) -> NdrRow {
    let directory = directory();
    let mut command = mpps(&["ndr", "recv", "--throttle", "100k", "--max", "200k"]);
    command.args(["--loss", "20%", "--json=data.json", "--html", "page.html"]);
    let ended = run(command.args(options).current_dir(&directory));
    let mut result = ndr_result(&directory);
    assert!(result.complete, "{result:?}");
    let row = result.rows.pop().expect("one path");
    assert!(!row.searched.found.is_empty(), "{row:?}");
    let mut found = row.searched.found.iter();
    let is_measured = found.any(|found| found.lower_mpps.or(found.upper_mpps).is_some());
    assert_eq!(ended.code(), if is_measured { 0 } else { 2 }, "{ended:#?}");
    let bound = 1.02 * 1.25 * HELD_BACK_MPPS;
    for found in &row.searched.found {
        assert!(found.lower_mpps.unwrap_or(0.0) <= bound, "{row:?}");
        let taken = found.conditional_mpps.unwrap_or(0.0);
        assert!(taken <= 1.02 * HELD_BACK_MPPS, "{row:?}");
        let station = found.loses.as_ref().map(|loses| loses.station);
        assert!(
            station.is_none_or(|station| station == Station::Socket),
            "{row:?}"
        );
    }
    // Nor does any load above its rate lose nothing.
    let trials = row.searched.trials.iter().filter(|trial| !trial.void);
    for trial in trials.filter(|trial| trial.loss_ratio == 0.0) {
        assert!(trial.load_mpps <= 1.02 * HELD_BACK_MPPS, "{trial:?}");
    }
    row
}

fn ndr_keeps_what_it_has_and_says_why_the_rest_did_not_run() {
    let directory = directory();
    let mut command = mpps(&["ndr", "recv", "xdp_drop/packet-untouched"]);
    // Rules are refused at once, and the receiver's search does not end.
    command.args(["--throttle", "20k", "--repeat", "1000", "--limit", "60m"]);
    command.args(["--json=data.json", "--html", "page.html"]);
    common::interrupted(command.current_dir(&directory), || {
        if !directory.path().join("data.json").exists() {
            return false;
        }
        let result = ndr_result(&directory);
        assert!(!result.complete);
        result
            .rows
            .iter()
            .map(|row| &row.searched.found)
            .any(|found| found.len() == 2 && found.iter().all(|found| !found.settled))
    });
}

fn an_ordinary_user_has_the_sockets_rows() {
    let directory = directory();
    let mut arguments = FILES.to_vec();
    let only = "recv,recvmmsg/epoll,af_xdp/poll,xdp_drop/packet-untouched";
    arguments.extend(["--quick", "--flows", "1", "--only", only]);
    let ended = common::as_nobody(directory.path(), &arguments).fine();
    assert!(!ended.err.contains("panicked"), "{ended:#?}");
    let result = result(&directory);
    accounted_for(&result);
    for row in &result.rows {
        let is_socket = row.path.starts_with("recv");
        if row.path == "xdp_drop" {
            assert!(row.runs.skipped.is_some(), "{row:?}");
        }
        if is_socket && row.variant != "busy poll" && !row.shares_cpu {
            assert_eq!(row.runs.skipped, None, "{}", row.path);
        }
        // Its queue's thread is wherever the scheduler puts it.
        if row.shares_cpu {
            let why = row.runs.skipped.as_deref().unwrap_or_default();
            assert!(why.contains("cannot share a CPU here"), "{row:?}");
        }
        if let Some(why) = &row.runs.skipped {
            assert!(
                ended.out.contains("skipped: ") && !why.is_empty(),
                "{row:?}"
            );
        }
    }
    assert!(!result.sender.starts_with("xdp"), "{}", result.sender);
}
