//! The ladder as one HTML file: no network, no script, no font of its own.
//!
//! `maud` escapes whatever it is given, so a name in a result file cannot become markup. Charts are
//! inline SVG in per cent of the width: they fit a phone, a screen and a sheet of paper alike.

pub(super) mod chart;
pub(super) mod ledger;
mod rung;

use super::{fastest, ledgers, mpps};
use crate::result::{LAB_SCHEMA, LabResult};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use mpps_host::Fingerprint;
use serde_json::Value;

/// The whole style sheet; it is part of the page.
const STYLE: &str = include_str!("html/style.css");

/// Renders the page; `data` is the name of the JSON file with the same run, if one was written.
pub(crate) fn page(result: &LabResult, data: Option<&str>) -> String {
    let title = "mpps lab: the million-packet ladder";
    let body = html! {
        (head(result, title))
        main {
            h2 id="ladder" { "The ladder" }
            (chart::ladder(&result.rungs))
            h2 id="rungs" { "Where the packets went" }
            p.faint {
                "Shares are of all repeats behind the rate, drop probe off; where those count dropped \
                 trains and not datagrams, of the exactness run. The ledger below each is \
                 of the exactness run, drop probe on. The unit is the datagram."
            }
            @for rung in &result.rungs { (rung::section(rung)) }
            h2 id="machine" { "Machine and settings" }
            (fingerprint(&result.fingerprint))
        }
        (foot(result, data))
    };
    document(title, &result.version, &body)
}

/// One file with everything in it; `version` is that of the mpps that measured.
pub(super) fn document(title: &str, version: &str, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "mpps " (version) };
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
    .into_string()
}

fn head(result: &LabResult, title: &str) -> Markup {
    let all: Vec<_> = result.rungs.iter().flat_map(ledgers).collect();
    let exact = all.iter().filter(|ledger| ledger.is_exact()).count();
    let balanced = all.iter().filter(|ledger| ledger.balances()).count();
    let skipped = result
        .rungs
        .iter()
        .filter(|rung| rung.skipped.is_some())
        .count();
    html! {
        header {
            h1 { (title) }
            p.faint { (result.started) " · mpps " (result.version) " · " code { (result.command) } }
            p.placement { (result.placement) }
            p { "Queues are tied to CPUs by " (result.delivery) "." }
            @if let Some(sender) = &result.sender { p { "Sender: " (sender) "." } }
            @if result.quick { p { span.flag.bad { "quick run: not for comparison" } } }
            @if !result.complete { p { span.flag.bad { "ended before its last rung" } } }
            p {
                span.flag.good[balanced == exact].bad[balanced != exact] {
                    (balanced) " of " (exact) " exact ledgers balance to zero"
                }
                @if exact < all.len() {
                    " " (all.len() - exact) " of rate runs are inexact: without the drop probe a dropped train counts as one."
                }
                " " (result.rungs.len() - skipped) " rungs measured, " (skipped) " skipped."
                @if let Some((rung, rate)) = fastest(&result.rungs).and_then(|rung| Some((rung, rung.mpps_median?))) {
                    " Fastest: rung " (rung.rung) ", " (rung.name) ", " b { (mpps(rate)) " Mpps" } "."
                }
            }
            @for note in &result.notes { p { b { "Note: " } (note) } }
        }
    }
}

/// The fingerprint as it is in the JSON file, one row a value, so that no field can be forgotten.
pub(super) fn fingerprint(fingerprint: &Fingerprint) -> Markup {
    let mut rows = Vec::new();
    if let Ok(value) = serde_json::to_value(fingerprint) {
        flatten(String::new(), &value, &mut rows);
    }
    html! {
        table.cards {
            thead { tr { th { "What" } th { "Value" } } }
            tbody { @for (name, value) in &rows { tr { td.faint { (name) } td { (value) } } } }
        }
    }
}

fn flatten(name: String, value: &Value, rows: &mut Vec<(String, String)>) {
    let inside = |key: &str| {
        let key = key.replace('_', " ");
        if name.is_empty() {
            key
        } else {
            format!("{name} {key}")
        }
    };
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(inside(key), value, rows);
            }
        }
        Value::Array(values)
            if values
                .iter()
                .any(|value| value.is_object() || value.is_array()) =>
        {
            for (at, value) in values.iter().enumerate() {
                flatten(inside(&at.to_string()), value, rows);
            }
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(scalar).collect();
            rows.push((name, values.join(", ")));
        }
        other => rows.push((name, scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

fn foot(result: &LabResult, data: Option<&str>) -> Markup {
    html! {
        footer {
            h2 { "About these figures" }
            p {
                "Two hosts on one machine share its CPUs: ratios between rungs of one run mean more than the \
                 figures. The article's figures of 2015 are of two servers with 24 CPUs each and a 10G NIC."
            }
            @if let Some(cost) = result.drop_probe_ns {
                p { "The drop probe costs " (format!("{cost:.0}")) " ns per dropped packet; rates were taken with it off." }
            }
            p {
                @if let Some(data) = data { "The same run as data: " code { (data) } " (schema " (LAB_SCHEMA) "). " }
                "Compare two runs with " code { "mpps compare A.json B.json" } "."
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::page;
    use crate::report::tests::fixture;

    #[test]
    fn nothing_in_a_result_becomes_markup() {
        let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
        let mut result = fixture();
        let text = |to: &mut String| evil.clone_into(to);
        for to in [
            &mut result.command,
            &mut result.version,
            &mut result.placement,
            &mut result.delivery,
        ] {
            text(to);
        }
        text(&mut result.started);
        result.notes = vec![evil.to_owned()];
        result.sender = Some(evil.to_owned());
        for rung in &mut result.rungs {
            text(&mut rung.rung);
            text(&mut rung.name);
            text(&mut rung.lesson);
            rung.skipped.iter_mut().for_each(text);
            rung.notes = vec![evil.to_owned()];
            rung.sender = Some(crate::result::RungSender {
                name: evil.to_owned(),
                why: evil.to_owned(),
                would_outrun: Some(evil.to_owned()),
                ..Default::default()
            });
            if let Some(limit) = &mut rung.limited_by {
                text(&mut limit.what);
                text(&mut limit.evidence);
            }
            if let Some(path) = &mut rung.path {
                text(&mut path.name);
                text(&mut path.counter);
            }
            rung.cpu_busy
                .iter_mut()
                .flat_map(|cpu| &mut cpu.roles)
                .for_each(text);
            for ledger in rung.ledger.iter_mut().chain(&mut rung.sample_ledgers) {
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
        let page = page(&result, Some(evil));
        assert!(!page.contains("<script"), "a script element came through");
        assert!(!page.contains("<img"), "an image element came through");
        assert!(page.matches("&lt;script&gt;").count() > 100);
    }

    /// Fails unless the style sheet folds each table that a screen of 800 pixels has no room for.
    pub(in crate::report) fn many_columns_fold(page: &str) {
        for table in page.split("<table class=\"").skip(1) {
            let (classes, rest) = table.split_once('"').unwrap();
            let head = rest.split("</thead>").next().unwrap();
            let columns = head.matches("<th").count() - head.matches("<thead").count();
            assert!(columns <= 6 || classes.contains("wide"), "{head}");
            assert!(classes.contains("cards"), "{head}");
        }
    }

    #[test]
    fn a_table_of_many_columns_folds() {
        many_columns_fold(&page(&fixture(), None));
    }

    #[test]
    fn the_page_needs_no_network_and_no_script() {
        let page = page(&fixture(), Some("lab.json"));
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
    }

    #[test]
    fn every_rung_has_a_bar_or_its_reason_and_a_section() {
        let result = fixture();
        let page = page(&result, None);
        for rung in &result.rungs {
            assert!(
                page.contains(&format!("href=\"#rung-{}\"", rung.rung)),
                "no row for {}",
                rung.rung
            );
            assert!(
                page.contains(&format!("id=\"rung-{}\"", rung.rung)),
                "no section for {}",
                rung.rung
            );
            assert!(page.contains(rung.skipped.as_deref().unwrap_or(&rung.name)));
        }
    }

    #[test]
    fn an_unbalanced_ledger_and_a_contradicting_witness_are_red() {
        let mut result = fixture();
        result.rungs.retain(|rung| rung.rung == "2");
        assert!(!page(&result, None).contains("flag bad"));
        let ledger = result.rungs[0].ledger.as_mut().unwrap();
        ledger.witnesses[0].witness += 1;
        assert_eq!(page(&result, None).matches("flag bad").count(), 1);
        let ledger = result.rungs[0].ledger.as_mut().unwrap();
        ledger.offered += 5;
        ledger.unaccounted += 5;
        assert!(page(&result, None).contains("UNACCOUNTED 5"));
        assert_eq!(page(&result, None).matches("flag bad").count(), 3);
    }

    #[test]
    fn figures_out_of_any_range_make_a_page_too() {
        let mut result = fixture();
        for (rung, rate) in
            result
                .rungs
                .iter_mut()
                .zip([0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY])
        {
            rung.mpps_median = Some(rate);
            rung.mpps_samples = vec![rate, 1.0];
            rung.article_mpps = Some([rate, -rate]);
        }
        assert!(!page(&result, None).contains("NaN%"));
        result.rungs.clear();
        assert!(page(&result, None).contains("0 rungs measured"));
    }
}
