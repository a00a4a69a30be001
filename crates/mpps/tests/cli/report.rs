//! `mpps report`: a result file shown again.

use super::expect_refusal;
use crate::common::{mpps, run};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

pub(crate) fn a_result_is_shown_again_in_each_medium() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let page = directory.path().join("page.html");
    let page = page.to_str().expect("a plain name");
    let picture = directory.path().join("picture.svg");
    let picture = picture.to_str().expect("a plain name");
    for (file, fact) in [
        ("lab.json", "GSO sender to GRO receiver"),
        ("lab_tcp.json", "mpps-epoll"),
        ("load.json", "last byte"),
        ("serve.json", "UNACCOUNTED"),
        ("bench.json", "recvmmsg"),
        ("ndr.json", "af_xdp spin"),
        ("placement.json", "sibling hyper-thread"),
    ] {
        let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        let report = |more: &[&str]| {
            let mut command = mpps(&[&["report", &*path], more].concat());
            run(command.env("COLUMNS", "60")).fine()
        };
        let text = report(&[]).out;
        assert!(text.contains(fact), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        let markdown = report(&["--markdown"]).out;
        assert!(
            markdown.starts_with("# mpps ") && markdown.contains("| --- |"),
            "{markdown}"
        );
        assert!(markdown.contains(fact), "{markdown}");
        assert_eq!(report(&["--html", page]).out, "");
        let written = fs::read_to_string(page).expect("it was written");
        assert!(written.starts_with("<!DOCTYPE html>") && written.contains(fact));
        assert_eq!(report(&["--markdown", "--html", page]).out, markdown);
        let mut drawn = mpps(&["report", &path, "--svg", picture]);
        if ["load.json", "serve.json"].contains(&file) {
            let ended = run(&mut drawn);
            ended.fails(&["no bar chart"]);
        } else {
            assert_eq!(run(&mut drawn).fine().out, "");
            let written = fs::read_to_string(picture).expect("it was written");
            assert!(written.starts_with("<svg xmlns="), "{written}");
        }

        let mut child = mpps(&["report", &path])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(ended.stderr.is_empty(), "{ended:?}");
    }
}

/// A report takes time for each row, and none for each pair of rows. In 20 seconds of CPU time
/// (RLIMIT_CPU) a report of 16 MiB is done six times.
pub(crate) fn a_report_of_many_rows_takes_no_time_for_each_pair() {
    let whole = include_str!("../fixtures/lab_tcp.json");
    let mut result: Value = serde_json::from_str(whole).expect("it is JSON");
    let cells = result["cells"].as_array().expect("cells").clone();
    let few = cells.len();
    let many = (0..16 * (1 << 20) / whole.len()).flat_map(|turn| {
        let renamed = move |mut cell: Value| {
            let step = cell["step"].as_str().expect("it has a step");
            cell["step"] = format!("{step} {turn}").into();
            cell
        };
        cells.iter().cloned().map(renamed)
    });
    result["cells"] = many.collect();
    assert!(result["cells"].as_array().map(Vec::len) > Some(50 * few));
    let directory = tempfile::tempdir().expect("a directory can be had");
    let path = directory.path().join("many.json");
    fs::write(&path, result.to_string()).expect("it can be written");
    let script = "ulimit -t 20; exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_mpps"), "report"]);
    run(shell.arg(path)).fine();
}

pub(crate) fn a_file_that_has_no_report_is_named() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let page = directory.path().join("page.html");
    let page = page.to_str().expect("a plain name");
    let whole = include_str!("../fixtures/bench.json");
    for (name, text, says) in [
        ("empty.json", "", "empty"),
        ("text.json", "hello", "not a result of mpps"),
        ("list.json", "[1]", "not a result of mpps"),
        ("cut.json", &whole[..whole.len() / 2], "cut.json"),
        ("old.json", "{\"schema\":\"mpps.lab.v1\"}", "mpps.lab.v1"),
        ("steer.json", "{\"schema\":\"\\u001b[2J\"}", "mpps.lab.v2"),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("it can be written");
        let path = path.to_str().expect("a plain name");
        let ended = run(&mut mpps(&["report", path, "--html", page]));
        expect_refusal(&ended, &[name, says]);
        assert!(!ended.err.contains('\u{1b}'), "{ended:#?}");
        assert!(!fs::exists(page).expect("it can be looked for"), "{name}");
    }
}

/// No file may be longer than 512 bytes, and a longer write fails (setrlimit(2), RLIMIT_FSIZE). As
/// on a full disk, it fails in the middle.
pub(crate) fn a_full_disk_leaves_what_was_there() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let page = directory.path().join("page.html");
    fs::write(&page, "an earlier result").expect("it can be written");
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let fixture = format!("{}/tests/fixtures/lab.json", env!("CARGO_MANIFEST_DIR"));
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_mpps"), "report"]);
    let ended = run(shell.arg(fixture).arg("--html").arg(&page));
    expect_refusal(&ended, &["page.html", "too large"]);
    let kept = fs::read_to_string(&page).expect("it is there");
    assert_eq!(kept, "an earlier result");
    let files = fs::read_dir(&directory).expect("it is there").count();
    assert_eq!(files, 1, "a half of the new one was left");
}
