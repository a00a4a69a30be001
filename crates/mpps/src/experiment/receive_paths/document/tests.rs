//! Checks the report of a comparison, at every width and in every medium.

use super::*;
use crate::experiment::receive_paths::result::SpreadRow;
use mpps_report::Terminal;

const WIDTHS: [usize; 6] = [40, 60, 72, 100, 160, 250];

/// A made-up run with everything that a report has to cope with.
const FIXTURE: &str = include_str!("../../../../tests/fixtures/bench.json");

pub(super) fn fixture() -> BenchResult {
    BenchResult::parse(FIXTURE).expect("the fixture is a result file")
}

fn text(result: &BenchResult, width: usize) -> String {
    let files = [("data", Path::new("bench.json"))];
    Terminal::new(width, false).document(&document(result, &files))
}

/// Without line breaks, runs of blanks, and blanks that keep a line from breaking.
pub(super) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_was_read_is_written_back_byte_for_byte() {
    let text = crate::measure::session::json(&fixture()).unwrap();
    assert_eq!(text, FIXTURE);
}

#[test]
fn the_report_in_a_terminal() {
    insta::assert_snapshot!("terminal_100", text(&fixture(), 100));
}

#[test]
fn no_fact_is_lost_at_any_width() {
    let result = fixture();
    for width in WIDTHS {
        let text = flat(&text(&result, width));
        let mut facts: Vec<String> = ["data bench.json", "balance to zero", "article"]
            .map(str::to_owned)
            .into();
        for row in &result.rows {
            facts.push(row.title());
            facts.extend(row.notes.iter().cloned());
            facts.extend(
                row.runs
                    .mpps_median
                    .map(|rate| Quantity::Mpps(rate).figure()),
            );
            facts.extend(row.runs.spread());
            facts.extend(
                row.calls_per_packet
                    .map(|calls| Quantity::Each(calls).figure()),
            );
        }
        for row in &result.spread {
            facts.push(row.sender.clone());
            facts.extend(row.mpps_per_cpu.map(|rate| Quantity::Mpps(rate).figure()));
        }
        for curve in &result.overload {
            facts.extend(curve.notes.iter().cloned());
            let points = curve.points.iter();
            facts.extend(points.map(|point| Quantity::Mpps(point.goodput_mpps).figure()));
        }
        facts.extend(result.advice.iter().chain(&result.notes).cloned());
        for fact in facts {
            assert!(
                text.contains(&flat(&fact)),
                "{width}: {fact} is missing\n{text}"
            );
        }
    }
}

/// Words that wrap inside a column stand apart in lines, so that only where they have lines of their
/// own can they be looked for.
#[test]
fn words_are_kept_where_they_have_no_column() {
    let text = flat(&text(&fixture(), 60));
    for row in fixture()
        .rows
        .iter()
        .filter(|row| row.runs.skipped.is_none())
    {
        let words = format!("{}; NAPI: {}", row.mode, row.napi);
        assert!(text.contains(&words), "{words}\n{text}");
    }
}

#[test]
fn what_is_skipped_has_its_reason_once() {
    let mut result = fixture();
    result.rows.retain(|row| row.runs.skipped.is_some());
    result.rows.truncate(1);
    let mut other = result.rows[0].clone();
    other.shares_cpu = !other.shares_cpu;
    result.rows.push(other.clone());
    other.path = "pcap".to_owned();
    result.rows.push(other);
    let why = result.rows[0].runs.skipped.clone().expect("it was skipped");
    let text = flat(&text(&result, 400));
    assert_eq!(text.matches(&flat(&why)).count(), 1, "{text}");
    let (one, two) = (result.rows[0].title(), result.rows[2].title());
    assert!(text.contains(&format!("{one}, {two}")), "{text}");
    let spread = fixture().body.spread;
    let why = spread.iter().find_map(|row| row.runs.skipped.as_ref());
    let said = format!("skipped: {}", why.expect("the fixture has one"));
    assert!(text.contains(&said), "{text}");
}

#[test]
fn rows_are_grouped_by_who_has_the_cpu_and_measured_against_their_own_recvmmsg() {
    let mut result = fixture();
    let groups = PlacementGroup::all(&result);
    let rows: usize = groups.iter().map(|group| group.rows.len()).sum();
    let measured = result.rows.iter().filter(|row| row.runs.skipped.is_none());
    assert_eq!((groups.len(), rows), (3, measured.count()));
    let headings: Vec<&str> = groups.iter().map(|group| &*group.heading).collect();
    assert!(headings[0].ends_with("itself, 1 flow"), "{headings:?}");
    assert!(headings[1].ends_with("itself, 256 flows"), "{headings:?}");
    for group in &groups {
        let base = group.rows.iter().find(|row| name(row) == "recvmmsg *");
        let base = base.expect("the fixture has it in both groups");
        assert_eq!(group.times(base), Some(Quantity::Times(1.0)));
    }
    assert_ne!(groups[0].base_mpps, groups[2].base_mpps);
    // A group without recvmmsg, or without rows, is no fault.
    result.rows.retain(|row| row.path != "recvmmsg");
    for group in PlacementGroup::all(&result) {
        assert!(group.rows.iter().all(|row| group.times(row).is_none()));
    }
    result.rows.clear();
    assert!(PlacementGroup::all(&result).is_empty());
}

/// A rate that the sender limits is a lower bound. A group without a search has no column for it.
#[test]
fn the_rate_without_loss_stands_beside_the_rate() {
    let said = flat(&text(&fixture(), 250));
    for part in [
        "af_xdp spin 2.67 ≥2.12 2.57-2.72",
        "recvmmsg * 0.98 0.61 0.97-1.00",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    assert_eq!(said.matches("loss-free").count(), 1, "{said}");
    let mut result = fixture();
    let searched = result
        .rows
        .iter_mut()
        .find_map(|row| row.loss_free.as_mut());
    searched.expect("the fixture has one").trials[0]
        .ledger
        .unaccounted += 1;
    assert!(crate::measure::envelope::EnvelopeBody::unsound(&result.body).is_some());
}

#[test]
fn what_does_not_balance_is_named() {
    let mut result = fixture();
    assert!(!text(&result, 400).contains("DOES NOT BALANCE"));
    let measured = |row: &&mut BenchRow| row.runs.sample_ledgers.len() > 1;
    let row = result.rows.iter_mut().find(measured).expect("repeats");
    let named = name(row);
    row.runs.sample_ledgers[1].offered += 3;
    row.runs.sample_ledgers[1].unaccounted += 3;
    let point = &mut result.overload[0].points[1];
    point.ledger.offered += 5;
    point.ledger.unaccounted += 5;
    let offered = Quantity::Mpps(point.offered_mpps);
    let text = flat(&text(&result, 400));
    let curve = result.overload[0].title();
    for said in [
        format!("ledger of {named} with 1 flow, repeat 2, DOES NOT BALANCE"),
        format!("ledger of {curve} at {offered} offered DOES NOT BALANCE"),
    ] {
        assert!(text.contains(&flat(&said)), "{said}\n{text}");
    }
    assert!(!balances(&result));
}

#[test]
fn a_quick_run_and_an_unfinished_one_say_so() {
    let mut result = fixture();
    (result.quick, result.complete) = (true, false);
    (result.rows, result.overload) = (Vec::new(), Vec::new());
    result.spread.clear();
    let text = text(&result, 100);
    assert!(text.contains("a quick run") && text.contains("ended before its last row"));
    assert!(!text.contains("ledgers"), "{text}");
}

#[test]
fn a_receiver_that_spins_does_not_press_the_others_against_the_edge() {
    let result = fixture();
    let group = &PlacementGroup::all(&result)[0];
    let costs = group.costs();
    let total = |row: &&&BenchRow| {
        let cost = row.cpu_ns_per_packet.as_ref()?;
        Some(cost.app.unwrap_or(0.0) + cost.softirq.unwrap_or(0.0))
    };
    let sleeping = group.rows.iter().filter(|row| !row.spins);
    let most = sleeping.filter_map(|row| total(&row)).fold(0.0, f64::max);
    assert_eq!(costs.break_at, Some(most));
    assert!(group.rows.iter().any(|row| row.spins));
}

#[test]
fn every_row_has_bars_and_a_section_that_they_lead_to() {
    let result = fixture();
    for group in PlacementGroup::all(&result) {
        let links: Vec<_> = group.rates().bars.into_iter().map(|bar| bar.link).collect();
        let costs: Vec<_> = group.costs().bars.into_iter().map(|bar| bar.link).collect();
        let sections = group.rows.iter().map(|row| group.section(row).anchor);
        assert_eq!(links, costs);
        assert_eq!(links, sections.collect::<Vec<_>>());
        assert!(links.iter().all(|link| !link.contains([' ', '*'])));
    }
}

#[test]
fn figures_out_of_any_range_make_a_report_too() {
    let mut result = fixture();
    let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
    for (row, rate) in result.rows.iter_mut().zip(odd.into_iter().cycle()) {
        row.runs.mpps_median = Some(rate);
        row.runs.mpps_samples = vec![rate, 1.0];
        row.runs.delivered_ratio = Some(rate);
        if let Some(cost) = &mut row.cpu_ns_per_packet {
            (cost.app, cost.softirq) = (Some(rate), Some(-rate));
        }
    }
    for (curve, rate) in result.overload.iter_mut().zip(odd.into_iter().cycle()) {
        curve.peak_mpps = rate;
        for (point, rate) in curve.points.iter_mut().zip(odd.into_iter().cycle()) {
            (point.offered_mpps, point.goodput_mpps) = (rate, rate);
        }
    }
    for (row, rate) in result.spread.iter_mut().zip(odd.into_iter().cycle()) {
        (row.mpps_per_cpu, row.runs.mpps_median) = (Some(rate), Some(rate));
        row.queue_mpps = vec![rate];
    }
    for width in WIDTHS {
        for line in text(&result, width).lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
    let page = mpps_report::page(&document(&result, &[]));
    for place in [
        "x", "y", "width", "x1", "x2", "y1", "y2", "cx", "cy", "points",
    ] {
        for bad in ["NaN", "inf", "-inf"] {
            assert!(
                !page.contains(&format!(" {place}=\"{bad}")),
                "{place} {bad}"
            );
        }
    }
    result
        .overload
        .iter_mut()
        .for_each(|one| one.points.clear());
    assert!(text(&result, 100).contains("keeps"));
}

#[test]
fn nothing_in_a_result_becomes_markup() {
    let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
    // Every text of the file but the names of what is one of several.
    let fixed = ["schema", "station", "scope", "taken_by"];
    fn spoil(value: &mut serde_json::Value, fixed: &[&str], evil: &str) {
        match value {
            serde_json::Value::String(text) => evil.clone_into(text),
            serde_json::Value::Array(all) => all.iter_mut().for_each(|one| spoil(one, fixed, evil)),
            serde_json::Value::Object(fields) => {
                let fields = fields
                    .iter_mut()
                    .filter(|(name, _)| !fixed.contains(&&***name));
                fields.for_each(|(_, value)| spoil(value, fixed, evil));
            }
            _ => {}
        }
    }
    let mut value = serde_json::from_str(FIXTURE).unwrap();
    spoil(&mut value, &fixed, evil);
    let result = BenchResult::parse(&value.to_string()).unwrap();
    let page = mpps_report::page(&document(&result, &[("data", Path::new(evil))]));
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(page.matches("&lt;script&gt;").count() > 100);
}

#[test]
fn queues_that_share_a_cpu_are_told_from_others() {
    let cpus = |queue_cpus: &[usize]| {
        let queue_cpus = queue_cpus.to_vec();
        SpreadRow {
            queue_cpus,
            ..SpreadRow::default()
        }
        .cpus()
    };
    assert_eq!(cpus(&[1, 1, 1, 1]), "CPU 1");
    assert_eq!(cpus(&[0, 1]), "CPUs 0,1");
    assert_eq!(cpus(&[]), "any CPU");
}
