//! The comparison as one HTML file: no network, no script, no font of its own.

mod bars;
mod curve;
mod row;
mod spread;

use super::{Group, balanced, balances, inexact, name, skipped};
use crate::bench::result::{BENCH_SCHEMA, BenchResult, BenchRow};
use crate::report::html::{document, fingerprint};
use maud::{Markup, html};

/// Renders the page; `data` is the name of the JSON file with the same run, if one was written.
pub(crate) fn page(result: &BenchResult, data: Option<&str>) -> String {
    let title = "mpps bench: every way to receive";
    let groups = Group::all(result);
    let body = html! {
        (head(result, title))
        main {
            @if !groups.is_empty() {
                h2 id="rates" { "Rates" }
                (bars::rates(&groups))
                h2 id="cost" { "CPU time per packet" }
                (bars::costs(&groups))
                h2 id="figures" { "Every figure" }
                @for group in &groups { (row::table(group)) }
            }
            (left_out(result))
            @if !result.overload.is_empty() {
                h2 id="overload" { "Goodput against offered load" }
                (curve::curves(&result.overload))
            }
            @if !result.spread.is_empty() {
                h2 id="spread" { "Early drops over more and more queues" }
                (spread::section(&result.spread))
            }
            @if !groups.is_empty() {
                h2 id="ledgers" { "Where the packets went" }
                p.faint {
                    "Shares are of all repeats behind the rate. The unit is the datagram."
                }
                @for group in &groups {
                    h3 { (capital(group.heading)) }
                    @for one in &group.rows { (row::section(one, group)) }
                }
            }
            h2 id="machine" { "Machine and settings" }
            (fingerprint(&result.fingerprint))
        }
        (foot(data))
    };
    document(title, &result.version, &body)
}

fn head(result: &BenchResult, title: &str) -> Markup {
    let good = balances(result);
    html! {
        header {
            h1 { (title) }
            p.faint { (result.started) " · mpps " (result.version) " · " code { (result.command) } }
            p.placement { (result.placement) }
            p { "Sender: " (result.sender) "." }
            @if result.quick { p { span.flag.bad { "quick run: not for comparison" } } }
            @if !result.complete { p { span.flag.bad { "ended before its last row" } } }
            @if !result.advice.is_empty() {
                ul.advice { @for sentence in &result.advice { li { (sentence) } } }
            }
            p {
                span.flag.good[good].bad[!good] { (balanced(result)) }
                @if let Some(inexact) = inexact(result) { " " (inexact) "." }
            }
            @for note in &result.notes { p { b { "Note: " } (note) } }
        }
    }
}

/// The paths that did not run.
fn left_out(result: &BenchResult) -> Markup {
    let skipped = skipped(result);
    html! {
        @if !skipped.is_empty() {
            h2 id="skipped" { "Skipped" }
            table.cards {
                thead { tr { th { "Path" } th { "Why, and what would help" } } }
                tbody { @for (name, why) in &skipped { tr { td { b { (name) } } td { (why) } } } }
            }
        }
    }
}

fn foot(data: Option<&str>) -> Markup {
    html! {
        footer {
            h2 { "About these figures" }
            p {
                "Two hosts on one machine, joined by a veth pair, share its CPUs: ratios between rows of one \
                 run mean more than the figures. The generator hands frames over inside the kernel, and no \
                 network card is involved: on one, the order of the paths may be another."
            }
            @if let Some(data) = data {
                p { "The same run as data: " code { (data) } " (schema " (BENCH_SCHEMA) ")." }
            }
        }
    }
}

/// A heading begins with a capital letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// What a link to a row is called: one path, one way, one group.
fn anchor(row: &BenchRow) -> String {
    let place = if row.shares_cpu { "shared" } else { "own" };
    let words = format!("row-{place}-{}", name(row));
    let plain = |letter: char| {
        if letter.is_alphanumeric() {
            letter
        } else {
            '-'
        }
    };
    words.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;

    #[test]
    fn nothing_in_a_result_becomes_markup() {
        let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
        let mut result = fixture();
        let text = |to: &mut String| evil.clone_into(to);
        for to in [
            &mut result.command,
            &mut result.version,
            &mut result.placement,
            &mut result.sender,
            &mut result.started,
        ] {
            text(to);
        }
        result.notes = vec![evil.to_owned()];
        result.advice = vec![evil.to_owned()];
        for row in &mut result.rows {
            text(&mut row.path);
            text(&mut row.variant);
            text(&mut row.mode);
            text(&mut row.napi);
            row.skipped.iter_mut().for_each(text);
            row.notes = vec![evil.to_owned()];
            if let Some(cost) = &mut row.cpu_ns_per_packet {
                text(&mut cost.method);
            }
            for ledger in row.ledger.iter_mut().chain(&mut row.sample_ledgers) {
                ledger.notes = vec![evil.to_owned()];
                for loss in &mut ledger.losses {
                    text(&mut loss.reason);
                    text(&mut loss.source);
                }
                for witness in &mut ledger.witnesses {
                    text(&mut witness.about);
                    text(&mut witness.source);
                }
            }
        }
        for row in &mut result.spread {
            text(&mut row.path);
            text(&mut row.variant);
            text(&mut row.mode);
            text(&mut row.sender);
            row.skipped.iter_mut().for_each(text);
        }
        for curve in &mut result.overload {
            text(&mut curve.path);
            text(&mut curve.variant);
            text(&mut curve.mode);
            curve.notes = vec![evil.to_owned()];
            text(&mut curve.napi);
        }
        let page = page(&result, Some(evil));
        assert!(!page.contains("<script"), "a script element came through");
        assert!(!page.contains("<img"), "an image element came through");
        assert!(page.matches("&lt;script&gt;").count() > 100);
    }

    #[test]
    fn the_page_needs_no_network_and_no_script() {
        let page = page(&fixture(), Some("bench.json"));
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    }

    #[test]
    fn every_row_has_a_bar_a_cost_a_line_and_a_section_or_its_reason() {
        let result = fixture();
        let page = page(&result, None);
        for row in &result.rows {
            if let Some(why) = &row.skipped {
                let why = why.split('`').next().unwrap_or_default();
                assert!(page.contains(why), "{why}");
                continue;
            }
            let links = page.matches(&format!("href=\"#{}\"", anchor(row))).count();
            assert_eq!(links, 3, "{}", anchor(row));
            let sections = page.matches(&format!("id=\"{}\"", anchor(row))).count();
            assert_eq!(sections, 1, "{}", anchor(row));
        }
        for sentence in &result.advice {
            let start = sentence.split(':').next().unwrap_or_default();
            assert!(page.contains(start), "{start}");
        }
        assert_eq!(page.matches("<figure").count(), result.overload.len());
    }

    #[test]
    fn every_axis_has_its_unit_and_many_columns_fold() {
        let result = fixture();
        let page = page(&result, None);
        for name in ["offered, Mpps</text>", "received, Mpps</text>"] {
            assert_eq!(page.matches(name).count(), result.overload.len(), "{name}");
        }
        let axes = page.matches("<li class=\"scale\"").count();
        let units =
            page.matches("<span>Mpps</span>").count() + page.matches("<span>ns</span>").count();
        assert!(axes > 0 && axes == units, "{axes} axes, {units} units");
        crate::report::html::tests::many_columns_fold(&page);
    }

    #[test]
    fn an_unbalanced_ledger_is_red() {
        let mut result = fixture();
        result.rows.truncate(1);
        result.overload.clear();
        result.spread.clear();
        assert!(!page(&result, None).contains("flag bad"));
        let ledger = result.rows[0].ledger.as_mut().expect("it was measured");
        ledger.offered += 5;
        ledger.unaccounted += 5;
        let page = page(&result, None);
        assert!(page.contains("UNACCOUNTED 5") && page.contains("flag bad"));
    }

    #[test]
    fn figures_out_of_any_range_make_a_page_too() {
        let mut result = fixture();
        let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
        for (row, rate) in result.rows.iter_mut().zip(odd.into_iter().cycle()) {
            row.mpps_median = Some(rate);
            row.mpps_samples = vec![rate, 1.0];
            row.delivered_ratio = Some(rate);
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
        let text = page(&result, None);
        for place in [
            "x", "y", "width", "x1", "x2", "y1", "y2", "cx", "cy", "points",
        ] {
            for bad in ["NaN", "inf", "-inf"] {
                assert!(
                    !text.contains(&format!(" {place}=\"{bad}")),
                    "{place} {bad}"
                );
            }
        }
        result.rows.clear();
        result
            .overload
            .iter_mut()
            .for_each(|one| one.points.clear());
        assert!(page(&result, None).contains("Machine and settings"));
    }
}
