//! `mpps bench` from end to end: its rows, ledgers and files, interruption, a closed pipe, and an
//! ordinary user's rows.

mod common;

use common::{Ended, Need, Running, Test, mpps, run};
use mpps::bench::result::{BenchResult, BenchRow, SpreadRow};
use std::fs;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

fn main() -> ExitCode {
    // This process stays who it is: the command makes itself able, and the probe asks it to.
    let probe = run(&mut mpps(&["lab", "--", "true"]));
    let able = match probe.status.code() {
        Some(0) => Ok(()),
        _ => Err(probe.err.trim().to_owned()),
    };
    common::run_tests(TESTS, &able, 1).exit_code()
}

const TESTS: &[Test] = &[
    (
        "a_path_that_is_none_is_refused",
        Need::Nothing,
        a_path_that_is_none_is_refused,
    ),
    (
        "the_paths_are_listed_with_their_obstacles",
        Need::Namespace,
        the_paths_are_listed_with_their_obstacles,
    ),
    (
        "a_short_run_is_written_and_adds_up",
        Need::Root,
        a_short_run_is_written_and_adds_up,
    ),
    (
        "every_path_is_measured_or_says_why_not",
        Need::Root,
        every_path_is_measured_or_says_why_not,
    ),
    (
        "a_curve_is_written_and_adds_up",
        Need::Root,
        a_curve_is_written_and_adds_up,
    ),
    (
        "spread_traffic_uses_the_queues_it_names",
        Need::Root,
        spread_traffic_uses_the_queues_it_names,
    ),
    (
        "spread_is_of_early_drops",
        Need::Nothing,
        spread_is_of_early_drops,
    ),
    (
        "overload_is_of_receivers_that_share_a_cpu",
        Need::Nothing,
        overload_is_of_receivers_that_share_a_cpu,
    ),
    (
        "interrupted_it_keeps_what_it_has",
        Need::Namespace,
        interrupted_it_keeps_what_it_has,
    ),
    (
        "a_closed_pipe_ends_it_quietly",
        Need::Namespace,
        a_closed_pipe_ends_it_quietly,
    ),
    (
        "an_ordinary_user_has_the_sockets_rows",
        Need::Root,
        an_ordinary_user_has_the_sockets_rows,
    ),
];

const FILES: [&str; 5] = ["bench", "--json", "data.json", "--html", "page.html"];

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory can be had")
}

/// Runs in a directory, with names of its own for the files.
fn bench(directory: &TempDir, arguments: &[&str]) -> Ended {
    run(mpps(&FILES).args(arguments).current_dir(directory))
}

/// The result in a directory, held to the schema and to its own arithmetic; and its page is there.
fn result(directory: &TempDir) -> BenchResult {
    let page = fs::read_to_string(directory.path().join("page.html")).expect("it was written");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    let text = common::valid(&directory.path().join("data.json"), "bench");
    // This also refuses a ledger whose terms do not give its remainder.
    BenchResult::parse(&text).expect("it reads what it wrote")
}

/// Every datagram is accounted for where the counters are exact, which they are but for trains.
fn accounted_for(result: &BenchResult) {
    let measured = result.rows.iter().filter(|row| row.skipped.is_none());
    let of_rows = measured.flat_map(|row| row.ledgers().map(move |ledger| (&row.variant, ledger)));
    let points = result.overload.iter().flat_map(|curve| {
        let ledgers = curve.points.iter().map(|point| &point.ledger);
        ledgers.map(move |ledger| (&curve.variant, ledger))
    });
    let spread = result.spread.iter().flat_map(|row| {
        let ledgers = row.ledgers.iter();
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

fn names(rows: &[BenchRow]) -> Vec<&str> {
    rows.iter().map(|row| row.path.as_str()).collect()
}

fn a_path_that_is_none_is_refused() {
    let directory = directory();
    let ended = bench(&directory, &["--quick", "--only", "nosuch"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    assert!(ended.err.contains("nosuch"), "{ended:#?}");
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

fn a_short_run_is_written_and_adds_up() {
    let directory = directory();
    let ended = bench(&directory, &["--quick", "--only", "recvmmsg,xdp_drop"]).fine();
    let result = result(&directory);
    assert!(result.quick && result.complete);
    assert!(
        result.command.starts_with("mpps bench"),
        "{}",
        result.command
    );
    accounted_for(&result);
    for path in ["recvmmsg", "xdp_drop"] {
        let of_path = |row: &&BenchRow| row.path == path && row.reference;
        let rows: Vec<&BenchRow> = result.rows.iter().filter(of_path).collect();
        assert!(!rows.is_empty(), "{:?}", names(&result.rows));
        for row in rows {
            assert_eq!(row.skipped, None, "{path}");
            assert_eq!(row.mpps_samples.len(), row.sample_ledgers.len());
            assert!(row.ledger.is_some() && !row.mode.is_empty() && !row.napi.is_empty());
        }
        assert!(ended.out.contains(path), "{ended:#?}");
    }
    assert!(ended.out.contains("UNACCOUNTED 0"), "{ended:#?}");
    assert_eq!(
        fs::read_dir(&directory).expect("it is there").count(),
        2,
        "two files"
    );
}

fn every_path_is_measured_or_says_why_not() {
    let directory = directory();
    bench(&directory, &["--quick"]).fine();
    let result = result(&directory);
    accounted_for(&result);
    for path in ["recv", "recvmmsg", "packet_mmap", "af_xdp", "xdp_drop"] {
        let measured = |row: &BenchRow| row.path == path && row.skipped.is_none();
        assert!(
            result.rows.iter().any(measured),
            "{path}: {:?}",
            result.rows
        );
    }
    for row in result.rows.iter().filter(|row| row.skipped.is_some()) {
        assert!(row.ledger.is_none() && row.mpps_median.is_none(), "{row:?}");
    }
    // Fastest first, and what did not run last.
    let rates: Vec<f64> = result
        .rows
        .iter()
        .map(|row| row.mpps_median.unwrap_or(-1.0))
        .collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
}

fn a_curve_is_written_and_adds_up() {
    let directory = directory();
    let ended = bench(&directory, &["--quick", "--overload", "--only", "recvmmsg"]).fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(result.rows.is_empty() && !result.overload.is_empty());
    for curve in &result.overload {
        assert!(curve.points.is_sorted_by(|a, b| a.load < b.load));
        let best = curve.points.iter().map(|point| point.goodput_mpps);
        assert_eq!(best.fold(0.0, f64::max), curve.peak_mpps);
    }
    for curve in &result.overload {
        let last = curve.points.last().expect("a curve has points");
        assert!(last.unpaced || last.load == 4.0, "{last:?}");
        // A plain socket's peak is far below what any sender brings.
        assert!(last.offered_mpps > 2.0 * curve.peak_mpps, "{last:?}");
    }
    assert!(ended.out.contains("x offered"), "{ended:#?}");
}

fn spread_traffic_uses_the_queues_it_names() {
    let directory = directory();
    let only = "xdp_drop/packet-untouched,iptables_raw_drop";
    let ended = bench(&directory, &["--quick", "--spread", "--only", only]).fine();
    let result = result(&directory);
    accounted_for(&result);
    assert!(result.rows.is_empty() && result.overload.is_empty());
    for queues in [1, 2, 4] {
        let of_both = |row: &&SpreadRow| row.queues == queues && row.skipped.is_none();
        let rows: Vec<&SpreadRow> = result.spread.iter().filter(of_both).collect();
        assert!(rows.len() >= 2, "{queues} queues: {:?}", result.spread);
        for row in rows {
            // Each of them carried packets, and no other did.
            assert_eq!(row.queue_mpps.len(), usize::from(queues), "{row:?}");
            assert!(row.queue_mpps.iter().all(|rate| *rate > 0.0), "{row:?}");
            assert_eq!(row.queue_cpus.len(), usize::from(queues), "{row:?}");
            assert!(row.mpps_per_cpu.is_some(), "{row:?}");
        }
    }
    let article: Vec<f64> = result
        .spread
        .iter()
        .filter_map(|row| row.article_mpps_per_cpu)
        .collect();
    assert!(article.contains(&1.4) && article.contains(&0.48));
    for said in ["Mpps per CPU", "UNACCOUNTED 0", "xdp:"] {
        assert!(ended.out.contains(said), "{said}: {ended:#?}");
    }
}

fn spread_is_of_early_drops() {
    let directory = directory();
    let ended = bench(&directory, &["--spread", "--only", "recvmmsg"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.err.contains("_drop"), "{ended:#?}");
    assert!(!directory.path().join("data.json").exists());
}

fn overload_is_of_receivers_that_share_a_cpu() {
    let directory = directory();
    let ended = bench(&directory, &["--overload", "--only", "nft_raw_drop"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.err.contains("name recvmmsg"), "{ended:#?}");
    assert!(!directory.path().join("data.json").exists());
}

fn interrupted_it_keeps_what_it_has() {
    let directory = directory();
    let mut command = mpps(&FILES);
    command.args(["--seconds", "100ms", "--repeat", "1000"]);
    command.args(["--only", "recv"]).current_dir(&directory);
    let running = Running::start(&mut command);
    // Long enough for the first round on any machine; the thousand take minutes.
    thread::sleep(Duration::from_secs(6));
    let ended = running.interrupt();
    assert_eq!(ended.code(), 130, "{ended:#?}");
    let result = result(&directory);
    assert!(!result.complete);
    assert!(
        result.rows.iter().any(|row| row.ledger.is_some()),
        "{ended:#?}"
    );
    accounted_for(&result);
}

fn a_closed_pipe_ends_it_quietly() {
    let directory = directory();
    let (reader, writer) = io::pipe().expect("a pipe can be had");
    drop(reader);
    let mut command = mpps(&FILES);
    command.args(["--quick", "--only", "recv"]).stdout(writer);
    let ended = command.current_dir(&directory).output().expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*said), (Some(0), ""));
    assert!(!result(&directory).rows.is_empty());
}

fn an_ordinary_user_has_the_sockets_rows() {
    let directory = directory();
    let mut arguments = FILES.to_vec();
    arguments.extend(["--quick", "--only", "recv,recvmmsg,af_xdp,xdp_drop"]);
    let ended = common::as_nobody(directory.path(), &arguments).fine();
    assert!(!ended.err.contains("panicked"), "{ended:#?}");
    let result = result(&directory);
    accounted_for(&result);
    for row in &result.rows {
        let is_socket = row.path.starts_with("recv");
        if row.path == "xdp_drop" {
            assert!(row.skipped.is_some(), "{row:?}");
        }
        if is_socket && row.variant != "busy poll" {
            assert_eq!(row.skipped, None, "{}", row.path);
        }
        if let Some(why) = &row.skipped {
            assert!(ended.out.contains("skipped") && !why.is_empty(), "{row:?}");
        }
    }
    assert!(!result.sender.starts_with("xdp"), "{}", result.sender);
}
