//! The fault gallery: hosts of a lab with one fault made on purpose, with two, or with none. It
//! checks the output of `mpps doctor` for each. Counts are exact. Counts that only the kernel knows
//! are compared with another reader of it.

mod connections;
mod delivery;
mod gallery;
mod growth;
mod others;
mod outward;
mod packets;
mod pairs;
pub(crate) mod program;
mod reads;
mod refusals;
mod scenario;
mod server_table;
pub(crate) mod servers;
mod sockets;
mod tunnels;

use crate::common::{self, Entered, Running, mpps, run};
use mpps_os::netlink::link;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::os::fd::AsFd;

pub(crate) fn trials() -> Vec<Trial> {
    let scenarios = gallery::scenarios();
    let others = [growth::trials(), reads::trials(), of_this_file()];
    scenarios
        .into_iter()
        .chain(others.into_iter().flatten())
        .collect()
}

fn of_this_file() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            what_it_writes_is_shown_again,
            a_line_is_for_monitoring_systems,
            an_interface_that_goes_is_no_healthy_one;
        waits(Need::Root): an_ordinary_user_is_told_what_is_hidden;
        pure: gallery::the_gallery_is_of_these_scenarios;
    ]
}

fn what_it_writes_is_shown_again() {
    let namespace = common::quiet_namespace();
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("doctor.html");
    let doctor = |more: &[&str]| {
        let mut arguments = vec!["doctor", "--seconds", "1", "--port", "9"];
        arguments.extend(more);
        namespace.within(|| run(&mut mpps(&arguments)))
    };
    let file = directory.path().join("doctor.json");
    let told = doctor(&["--json", "--html", page.to_str().expect("a plain name")]);
    assert_eq!(told.code(), 1, "{told:#?}");
    fs::write(&file, &told.out).expect("it can be written");
    assert!(
        fs::read_to_string(page)
            .expect("a page")
            .contains("nothing arrived")
    );
    let again = run(&mut mpps(&["report", file.to_str().expect("a plain name")])).fine();
    let text = doctor(&[]);
    for told in [&again.out, &text.out] {
        for word in [
            "1. ",
            "nothing arrived",
            "proof  ",
            "do     ",
            "check  ",
            "mpps doctor --port 9",
            "UNACCOUNTED",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
    let markdown = doctor(&["--markdown"]);
    assert!(markdown.out.starts_with("# "), "{markdown:#?}");
}

/// The exit statuses are those of node-problem-detector: 0 is fine, 1 a problem, others unknown.
fn a_line_is_for_monitoring_systems() {
    let namespace = common::quiet_namespace();
    for (more, status, start, end) in [
        (
            "",
            0,
            "OK: nothing was lost",
            "| offered=0 delivered=0 lost=0",
        ),
        (
            "--port 9",
            1,
            "PROBLEM: nothing_arrives: ",
            "| offered=0 delivered=0 lost=0",
        ),
        ("nothere", 2, "UNKNOWN: ", ""),
        ("--port abc", 2, "UNKNOWN: invalid value 'abc'", ""),
    ] {
        let mut command = mpps(&["doctor", "--line", "--seconds", "1"]);
        let command = command.args(common::words(more));
        let ended = namespace.within(|| run(command));
        let line = ended.out.trim_end();
        assert_eq!(ended.code(), status, "{ended:#?}");
        assert!(line.starts_with(start) && line.ends_with(end), "{ended:#?}");
        assert!(!line.contains('\n') && !line.is_empty(), "{ended:#?}");
    }
}

fn an_ordinary_user_is_told_what_is_hidden() {
    let directory = tempfile::tempdir().expect("a directory");
    let ended = common::as_nobody(
        directory.path(),
        &["doctor", "lo", "--seconds", "1", "--json"],
    );
    let value: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
    let notes = value["notes"].to_string();
    assert!(notes.contains("drop reasons are not seen"), "{notes}");
}

fn an_interface_that_goes_is_no_healthy_one() {
    for goes in [true, false] {
        let namespace = common::quiet_namespace();
        let make = || link::create_veth("va", 1, "vb", 1, namespace.as_fd());
        let made = namespace.within(make);
        made.expect("there is room for it");
        let mut command = mpps(&["doctor", "vb", "--seconds", "2"]);
        let mut doctor = namespace.within(|| Running::start(&mut command));
        doctor.line("looking at vb");
        if goes {
            let end = || link::index("vb").and_then(link::delete);
            let ended = namespace.within(end);
            ended.expect("it is there");
        }
        let ended = doctor.end();
        let is_healthy = ended.out.contains("nothing was lost");
        assert_eq!((ended.code(), is_healthy), (2 * i32::from(goes), !goes));
        let said = "undecided: what was lost at vb is not known: it went";
        assert_eq!(ended.err.contains(said), goes, "{ended:#?}");
    }
}
