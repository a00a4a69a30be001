//! Checks the document of the ladder on the fixture. It is a made-up run with everything that a
//! report has to cope with.

use super::*;
use crate::experiment::ladder::result::tests::fixture;
use crate::udp::runs::Runs;
use mpps_host::{Ledger, Station};
use mpps_report::{Terminal, page};

/// The text on a terminal of this width.
fn text(result: &LabResult, width: usize) -> String {
    let document = document(result, &[("data", Path::new("lab.json"))]);
    Terminal::new(width, false).document(&document)
}

#[test]
fn a_terminal_shows_the_fixture() {
    insta::assert_snapshot!("terminal_100", text(&fixture(), 100));
}

#[test]
fn rows_that_are_printed_one_by_one_are_those_of_the_document() {
    let result = fixture();
    for width in [60, 100, 160] {
        let terminal = Terminal::new(width, false);
        let columns = columns(false);
        let rows = result.rungs.iter().map(|rung| row(&result, rung));
        let rows = rows.map(|row| terminal.row(&columns, &row));
        let parts = [
            terminal.blocks(&head(&result)),
            terminal.head(&columns),
            rows.collect(),
            terminal.blocks(&closing(&result, &[("data", Path::new("lab.json"))])),
        ];
        assert_eq!(parts.concat(), text(&result, width));
    }
}

#[test]
fn no_fact_is_lost_at_any_width() {
    let result = fixture();
    for width in [60, 72, 99, 100, 119, 120, 140, 250] {
        let text = text(&result, width);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for fact in [
            "0.00-0.43",
            "0.22 Mpps",
            "24.0 %",
            "68.4 %",
            "+1 more",
            "UNACCOUNTED 37",
            "skipped: this host has one NUMA node",
            "data lab.json",
        ] {
            assert!(text.contains(fact), "{width}: {fact} is missing in\n{text}");
        }
    }
}

#[test]
fn a_row_says_who_sent_unless_it_is_the_usual_one() {
    let mut rung = fixture().rungs.remove(1);
    rung.sender = Some(super::super::result::RungSender {
        name: "xdp".to_owned(),
        ..Default::default()
    });
    assert_eq!(limit(&rung), "application CPU 1; sent by xdp");
    if let Some(sender) = &mut rung.sender {
        sender.usual = true;
    }
    assert_eq!(limit(&rung), "application CPU 1");
}

#[test]
fn the_closing_lines_name_what_does_not_balance() {
    let mut result = fixture();
    let said = text(&result, 250);
    assert!(said.contains("ledger of rung 12: offered"), "{said}");
    assert!(said.contains("ledger of rung 4b DOES NOT BALANCE: offered"));
    let witness = "rung 4b: drop reason SOCKET_RCVBUFF disagrees about socket buffer full";
    assert!(said.contains(witness));
    assert_eq!(said.matches("DOES NOT BALANCE").count(), 1);
    assert!(said.contains("10 rungs measured, 2 skipped; 12 of 13 exact ledgers balance to zero"));
    assert!(!said.contains("quick") && !balanced(&result).is_good());
    let ledger = &mut result.rungs[1].runs.sample_ledgers[2];
    ledger.offered += 3;
    ledger.unaccounted += 3;
    assert!(text(&result, 250).contains("ledger of rung 2, repeat 3, DOES NOT BALANCE"));
}

#[test]
fn a_ledger_that_does_not_balance_is_in_the_last_lines() {
    let mut result = fixture();
    let best = result.rungs.iter_mut().find(|rung| rung.rung == "12");
    let ledger = best
        .and_then(|rung| rung.runs.ledger.as_mut())
        .expect("it has a ledger");
    ledger.offered += 3;
    ledger.unaccounted += 3;
    ledger.witness("all", "a second count", 1, 2);
    let said = text(&result, 250);
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    let [_, witness, equation] = last[..] else {
        panic!("{said}");
    };
    let doubt = "rung 12: a second count disagrees about all";
    assert!(witness.contains(doubt), "{said}");
    let unbalanced = " ledger of rung 12 DOES NOT BALANCE: ";
    assert!(equation.starts_with(unbalanced), "{said}");
}

#[test]
fn the_last_line_answers_the_article() {
    let said = text(&fixture(), 250);
    let last = said.lines().last().unwrap_or_default();
    let start = " a million packets a second: from rung 11, ";
    assert!(last.starts_with(start), "{last}");
}

#[test]
fn a_quick_run_and_an_unfinished_one_say_so_in_both_media() {
    let mut result = fixture();
    (result.quick, result.complete) = (true, false);
    result.rungs.clear();
    for said in [text(&result, 100), page(&document(&result, &[]))] {
        assert!(said.contains("a quick run") && said.contains("ended before its last rung"));
        assert!(!said.contains("ledger of rung"));
    }
}

#[test]
fn every_rung_has_a_bar_or_its_reason_and_a_section() {
    let result = fixture();
    let page = page(&document(&result, &[]));
    let answer = page.find("a million packets a second").expect("an answer");
    assert!(page.find(&result.started).is_some_and(|at| answer < at));
    assert!(page.contains("lost: queue"));
    let folded = page.find("<details>").expect("skipped rungs");
    for rung in &result.rungs {
        let anchor = rung::anchor(rung);
        for is_there in [format!("href=\"#{anchor}\""), format!("id=\"{anchor}\"")] {
            let is_measured = rung.runs.skipped.is_none();
            assert_eq!(page.contains(&is_there), is_measured, "{is_there}");
        }
        let why = rung.runs.skipped.as_ref().and_then(|why| page.find(why));
        assert_eq!(why.is_some(), rung.runs.skipped.is_some());
        assert!(why.is_none_or(|at| at > folded), "{anchor}");
    }
}

/// The lost rest of an offered rate is part of its bar, by station.
#[test]
fn a_bar_reaches_to_what_was_offered() {
    let mut ledger = Ledger::new(1000, 250, 0);
    for (station, count) in [(Station::Wire, 500), (Station::Socket, 250)] {
        let loss = serde_json::json!({"station": station, "reason": "full", "count": count,
            "source": "counter", "scope": "namespace", "by_difference": false, "exact": true});
        ledger.lose(serde_json::from_value(loss).expect("a loss"));
    }
    let mut runs = runs(Some(0.5));
    (runs.offered_mpps_median, runs.sample_ledgers) = (Some(2.0), vec![ledger]);
    let lost = [(Hue::Lost("wire"), 1.0), (Hue::Lost("socket"), 0.5)];
    let expected = [&[(Hue::Main, 0.5)], &lost[..]].concat();
    assert_eq!(runs.measured(Hue::Main).parts, expected);
    runs.offered_mpps_median = None;
    assert_eq!(runs.measured(Hue::Main).parts, expected[..1]);
}

fn runs(mpps_median: Option<f64>) -> Runs {
    Runs {
        mpps_median,
        ..Runs::default()
    }
}

#[test]
fn a_rung_far_above_the_article_does_not_set_the_scale() {
    let rung = |rate: f64, article: Option<f64>| RungResult {
        runs: runs(Some(rate)),
        article_mpps: article.map(|rate| [rate, rate]),
        ..RungResult::default()
    };
    let end = |new| bars(&[rung(0.7, Some(1.4)), rung(new, None)]).break_at;
    assert_eq!([end(30.0), end(2.4)], [Some(1.4), None]);
    assert_eq!(bars(&[rung(30.0, None)]).break_at, None);
}

#[test]
fn figures_out_of_any_range_make_a_document_too() {
    let mut result = fixture();
    let wild = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
    for (rung, rate) in result.rungs.iter_mut().zip(wild) {
        rung.runs.mpps_median = Some(rate);
        rung.runs.mpps_samples = vec![rate, 1.0];
        rung.article_mpps = Some([rate, -rate]);
    }
    assert!(!page(&document(&result, &[])).contains("NaN%"));
    assert!(text(&result, 80).contains("10 rungs measured"));
}

fn said(rungs: &[(&str, Option<f64>)]) -> String {
    let rungs = rungs.iter().map(|(number, mpps_median)| RungResult {
        rung: (*number).to_owned(),
        name: format!("name {number}"),
        runs: runs(*mpps_median),
        taken_by: match *number {
            "16" => TakenBy::Rule,
            _ => TakenBy::Socket,
        },
        ..RungResult::default()
    });
    sentence(&LadderAnswer::of(&rungs.collect::<Vec<_>>())).replace('\u{a0}', " ")
}

#[test]
fn the_lowest_rung_of_a_million_and_the_highest_of_all_are_told() {
    let rungs = [
        ("2", Some(0.62)),
        ("4a", None),
        ("8", Some(1.0)),
        ("10", Some(0.9)),
        ("15", Some(4.71)),
        ("16", Some(5.3)),
    ];
    assert_eq!(
        said(&rungs),
        "a million packets a second: from rung 8, name 8, 1.00 Mpps on; most here: rung 15, name \
         15, 4.71 Mpps; ceiling 5.30 Mpps (rung 16)"
    );
}

#[test]
fn the_ceiling_is_not_received() {
    assert_eq!(
        said(&[("2", Some(0.62)), ("15", None), ("16", Some(5.3))]),
        "a million packets a second: received on none of these rungs; most here: rung 2, name 2, \
         0.62 Mpps; ceiling 5.30 Mpps (rung 16)"
    );
    assert_eq!(
        said(&[("16", None)]),
        "a million packets a second: received on none of these rungs; no rung was measured that \
         receives; the ceiling was not measured"
    );
}
