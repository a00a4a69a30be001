//! `mpps bench` over a few of its rows, in its own lab and with traffic of another host.

use super::{PORT, address, lab};
use crate::common::{Running, mpps, run};
use serde_json::Value;
use std::fs;
use std::path::Path;

pub(super) const TESTS: &[(&str, fn())] = &[
    ("rows_are_compared", rows_are_compared),
    ("overload_is_drawn", overload_is_drawn),
    ("traffic_of_another_host_is_measured", another_host),
];

fn written(directory: &Path) -> Value {
    let text = fs::read_to_string(directory.join("bench.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The rows that were measured; each has a rate, a mode and a ledger.
fn measured(result: &Value) -> Vec<&str> {
    let rows = result["rows"].as_array().expect("a list");
    let ran = rows.iter().filter(|row| row["skipped"].is_null());
    ran.map(|row| {
        assert!(row["mpps_median"].as_f64() > Some(0.0), "{row:#}");
        let ledger = &row["ledger"];
        assert!(ledger["offered"].as_u64() >= ledger["delivered"].as_u64());
        assert!(row["mode"].as_str().is_some_and(|mode| !mode.is_empty()));
        row["path"].as_str().expect("a name")
    })
    .collect()
}

fn rows_are_compared() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let mut command = mpps(&["bench", "--quick", "--only", "recvmmsg,af_xdp,xdp_drop"]);
    let ended = run(command.current_dir(&directory)).fine();
    let result = written(directory.path());
    let paths = measured(&result);
    for path in ["recvmmsg", "af_xdp", "xdp_drop"] {
        assert!(paths.contains(&path), "{path}: {ended:#?}");
    }
    for row in result["rows"].as_array().expect("a list") {
        let skipped = !row["skipped"].is_null();
        assert!(skipped || row["ledger"]["unaccounted"] == 0, "{row:#}");
    }
}

fn overload_is_drawn() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let arguments = [
        "bench",
        "--overload",
        "--quick",
        "--only",
        "recvmmsg,af_xdp",
    ];
    let ended = run(mpps(&arguments).current_dir(&directory)).fine();
    let result = written(directory.path());
    let curves = result["overload"].as_array().expect("a list");
    assert!(curves.len() >= 2, "{ended:#?}");
    for curve in curves {
        assert!(curve["path"].as_str().is_some(), "{curve:#}");
    }
}

/// The command that it prints is run as it stands. What is lost before the host that measures has
/// no counter there, so that the ledger has a remainder, and says why.
fn another_host() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let directory = tempfile::tempdir().expect("a directory can be had");
    let arguments = [
        "bench",
        "--quick",
        "--only",
        "recvmmsg,af_xdp",
        "--sender",
        "elsewhere",
        "--address",
        &at,
    ];
    let mut command = mpps(&arguments);
    command.current_dir(&directory);
    let started = lab.receiver().run(|| Running::start(&mut command));
    let mut measuring = started.expect("the receiver can be entered");
    let line = measuring.line("mpps send ");
    assert!(line.contains("elsewhere"), "{line}");
    let (_, words) = line.split_once("mpps ").expect("a command");
    let words: Vec<&str> = words.split_whitespace().collect();
    let started = lab.sender().run(|| Running::start(&mut mpps(&words)));
    let sending = started.expect("the sender can be entered");
    let ended = measuring.end();
    sending.interrupt().fine();
    assert_eq!(ended.code(), 0, "{ended:#?}");
    let result = written(directory.path());
    let paths = measured(&result);
    for path in ["recvmmsg", "af_xdp"] {
        assert!(paths.contains(&path), "{path}: {ended:#?}");
    }
    for row in result["rows"].as_array().expect("a list") {
        let notes = row["ledger"]["notes"].to_string();
        let skipped = !row["skipped"].is_null();
        assert!(
            skipped || notes.contains("lost before this host"),
            "{row:#}"
        );
    }
}
