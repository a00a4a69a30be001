//! Checks the report of a search, at every width and in every medium.

use super::*;
use crate::measure::session::json;
use mpps_report::Terminal;

/// A made-up run with everything that a report has to cope with.
const FIXTURE: &str = include_str!("../../../../../tests/fixtures/ndr.json");

fn fixture() -> NdrResult {
    NdrResult::parse(FIXTURE).expect("the fixture is a result file")
}

fn text(result: &NdrResult, width: usize) -> String {
    Terminal::new(width, false).document(&document(result, &[("data", Path::new("ndr.json"))]))
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_was_read_is_written_back_byte_for_byte() {
    let text = json(&fixture()).unwrap();
    assert_eq!(text, FIXTURE);
}

#[test]
fn the_report_in_a_terminal() {
    insta::assert_snapshot!("terminal_100", text(&fixture(), 100));
}

#[test]
fn what_ended_a_search_is_told_and_what_loses_first() {
    let said = flat(&text(&fixture(), 250));
    for part in [
        "af_xdp spin nothing 2 125 000 - 2 125 000 the sender or its CPU 3 1",
        "recvmmsg nothing 612 000 618 000 612 000 socket: socket buffer full 0.3 % 5 1",
        "0.5 % 630 000 636 000 628 100 socket: socket buffer full 1.1 %",
        "recvmmsg GRO nothing - - - ended before",
        "recv nothing - 10 000 - socket: socket buffer full 20.0 %",
        "dpdk this program was built without DPDK",
        "note on recvmmsg GRO: ended by --limit after 9.00 s",
        "held back to 2.50 Mpps",
        "ended before its last search",
        "10 of 10 exact ledgers balance to zero; 1 other is inexact",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    assert!(!said.contains("DOES NOT BALANCE"));
}

#[test]
fn a_quota_that_held_the_sender_back_is_the_limit() {
    let quota = |throttled| mpps_host::Quota {
        group: "/box".to_owned(),
        periods: 10,
        throttled,
        throttled_ns: 7_000_000,
        ..mpps_host::Quota::default()
    };
    for (throttled, is_told) in [(9, true), (0, false)] {
        let mut result = fixture();
        let searched = &mut result.rows[1].searched;
        for trial in &mut searched.trials {
            trial.void = true;
            trial.quota = Some(quota(throttled));
        }
        let held_back = searched.held_back(None);
        searched.found[0].held_back = held_back;
        let said = flat(&text(&result, 250));
        assert_eq!(said.contains("CPU quota of cgroup /box"), is_told, "{said}");
        // It is in the file, and so in what is read of it.
        let kept = NdrResult::parse(&json(&result).unwrap()).expect("it is a result");
        let found = &kept.rows[1].searched.found[0];
        assert_eq!(found.held_back, result.rows[1].searched.found[0].held_back);
    }
}

#[test]
fn void_trials_have_their_kinds_and_remedies_if_bounds_are_missing() {
    let mut searched = fixture().body.rows.remove(1).searched;
    let trial = searched.trials.remove(0);
    type Change = fn(&mut NdrTrial);
    let kinds: [(Change, &str); 6] = [
        (|trial| trial.offered_mpps = 0.0, "1 sender too slow (end"),
        (|trial| trial.offered_mpps = 99.0, "1 sender too fast (use"),
        (
            |trial| trial.ledger.delivered = trial.ledger.offered + 1,
            "1 more arrived than was sent (end other",
        ),
        (
            |trial| trial.ledger.delivered = 0,
            "1 nothing arrived (look",
        ),
        (
            |trial| trial.ledger.offered = 0,
            "1 the sender sent nothing (run",
        ),
        (
            |trial| {
                let ledger = &mut trial.ledger;
                (ledger.delivered, ledger.losses[0].count) = (1, ledger.offered - 1);
                ledger.losses[0].station = mpps_host::Station::Sender;
            },
            "1 the sender's own host refused packets (lower --max)",
        ),
    ];
    let losing = searched
        .trials
        .iter()
        .find(|trial| !trial.ledger.losses.is_empty());
    let losing = losing.expect("one lost").clone();
    searched.trials = kinds
        .map(|(change, _)| {
            let mut void = losing.clone();
            (void.void, void.offered_mpps) = (true, 0.9 * void.load_mpps);
            change(&mut void);
            void
        })
        .into();
    assert_eq!(searched.void_note(), None, "it has both bounds");
    searched.found[0].upper_mpps = None;
    let said = searched.void_note().expect("six are void");
    assert!(said.starts_with("6 of 6 trials void: "), "{said}");
    for (_, part) in kinds {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    searched.trials.truncate(5);
    searched.trials[0] = trial;
    searched.trials[0].void = false;
    assert_eq!(searched.void_note(), None, "four are void");
    searched
        .found
        .iter_mut()
        .for_each(|found| found.lower_mpps = None);
    searched.found.truncate(1);
    assert!(
        searched.void_note().is_some(),
        "without a bound, one is enough"
    );
}

#[test]
fn the_first_station_behind_the_sender_is_named() {
    let result = fixture();
    let recvmmsg = &result.rows[1].searched;
    let loses = recvmmsg.loses(0.618, 0.0).expect("a trial lost there");
    assert_eq!(loses.station, mpps_host::Station::Socket);
    assert!((loses.share - 0.003).abs() < 1e-5);
    // Neither a trial that kept to the goal nor a void one is meant.
    assert_eq!(recvmmsg.loses(0.618, 0.005), None);
    assert_eq!(recvmmsg.loses(0.612, 0.0), None);
    assert_eq!(result.rows[0].searched.loses(100.0, 0.0), None);
}
