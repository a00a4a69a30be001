//! The experiments as one HTML file: no network, no script, no font of its own.

mod bars;
mod tables;

use super::{Group, balanced, summary};
use crate::report::html::{document, fingerprint};
use crate::tcp_lab::result::{TCP_LAB_SCHEMA, TcpLabResult};
use maud::{Markup, html};

/// Renders the page; `data` is the name of the JSON file with the same run, if one was written.
pub(crate) fn page(result: &TcpLabResult, data: Option<&str>) -> String {
    let title = "mpps lab tcp: what short connections cost";
    let groups = Group::all(result);
    let body = html! {
        (head(result, title))
        main {
            @for experiment in [3, 1, 2] {
                @let of_experiment: Vec<&Group<'_>> = groups.iter().filter(|group| group.experiment == experiment).collect();
                @if let Some(first) = of_experiment.first() {
                    h2 id={ "experiment-" (experiment) } { (capital(&first.heading())) }
                    (bars::costs(first))
                    (bars::rates(first))
                    (tables::figures(first))
                    @if of_experiment.len() > 1 { (tables::bodies(&of_experiment)) }
                }
            }
            h2 id="ledgers" { "Where the connections went" }
            (tables::ledgers(result))
            h2 id="servers" { "The servers" }
            (tables::servers(result))
            h2 id="machine" { "Machine and settings" }
            (fingerprint(&result.fingerprint))
        }
        (foot(result, data))
    };
    document(title, &result.version, &body)
}

fn head(result: &TcpLabResult, title: &str) -> Markup {
    let good = result.balances();
    let summary = summary(result);
    html! {
        header {
            h1 { (title) }
            p.faint { (result.started) " · mpps " (result.version) " · " code { (result.command) } }
            p.placement { (result.placement) }
            p { "Load: " (result.load) "." }
            @if result.quick { p { span.flag.bad { "quick run: not for comparison" } } }
            @if !result.complete { p { span.flag.bad { "ended before its last cell" } } }
            @if !summary.is_empty() { ul.advice { @for sentence in &summary { li { (sentence) } } } }
            p { span.flag.good[good].bad[!good] { (balanced(result)) } }
            @for note in &result.notes { p { b { "Note: " } (note) } }
        }
    }
}

fn foot(result: &TcpLabResult, data: Option<&str>) -> Markup {
    html! {
        footer {
            h2 { "About these figures" }
            p { "Server CPU per connection: " (result.cpu_method) "." }
            p {
                "Two hosts on one machine share its caches and its memory, and no network card is involved: \
                 ratios between cells of one run mean more than the figures. The paper of 2014 had a server \
                 with a 10G card and Linux 3.4, and a load on another machine."
            }
            @if let Some(data) = data {
                p { "The same run as data: " code { (data) } " (schema " (TCP_LAB_SCHEMA) ")." }
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
            &mut result.started,
            &mut result.placement,
            &mut result.load,
            &mut result.cpu_method,
        ] {
            text(to);
        }
        result.notes = vec![evil.to_owned()];
        for server in &mut result.servers {
            text(&mut server.name);
            server.version.iter_mut().for_each(text);
            server.set_up = vec![evil.to_owned()];
            server.skipped.iter_mut().for_each(text);
        }
        for cell in &mut result.cells {
            text(&mut cell.step);
            cell.paper.iter_mut().for_each(text);
            cell.skipped.iter_mut().for_each(text);
            cell.notes = vec![evil.to_owned()];
            if let Some(figures) = &mut cell.figures {
                text(&mut figures.limited_by);
            }
            if let Some(ledger) = &mut cell.ledger {
                ledger.kernel.insert(evil.to_owned(), 1);
                for failure in &mut ledger.failures {
                    text(&mut failure.kind);
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

    #[test]
    fn the_page_needs_no_network_and_no_script() {
        let page = page(&fixture(), Some("lab-tcp.json"));
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
    }

    #[test]
    fn every_cell_has_its_units_and_its_ledger() {
        let result = fixture();
        let page = page(&result, None);
        for cell in &result.cells {
            let Some(figures) = &cell.figures else {
                continue;
            };
            // The first body of an experiment has bars, and the others a table.
            let rate = super::super::per_second(figures.cps_median);
            assert!(page.contains(&rate), "{rate}");
            let cpu = format!("{:.1}", figures.cpu_us_per_connection_median);
            assert!(page.contains(&cpu), "{cpu}");
        }
        let bars = page.matches("<rect class=\"napi\"").count()
            - page.matches("its queue and soft").count();
        assert!(bars > 0);
        assert_eq!(page.matches("µs</b>").count(), bars);
        assert_eq!(page.matches("/s</b>").count(), bars);
        let ledgers = result.cells.iter().filter(|cell| cell.ledger.is_some());
        let told = page.matches("<p class=\"equation\">").count();
        assert_eq!(told, ledgers.count());
        crate::report::html::tests::many_columns_fold(&page);
    }

    #[test]
    fn an_unbalanced_ledger_is_red() {
        let mut result = fixture();
        assert!(!page(&result, None).contains("flag bad"));
        let ledger = result.cells[0].ledger.as_mut().expect("it was measured");
        ledger.started += 5;
        ledger.unaccounted += 5;
        let page = page(&result, None);
        assert_eq!(page.matches("flag bad").count(), 2);
        assert!(page.contains("DOES NOT BALANCE"));
    }

    #[test]
    fn figures_out_of_any_range_make_a_page_too() {
        let mut result = fixture();
        let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
        for (cell, odd) in result.cells.iter_mut().zip(odd) {
            let figures = cell.figures.as_mut().expect("it was measured");
            figures.cps_median = odd;
            figures.cps_samples = vec![odd, 1.0];
            figures.own_us_per_connection_median = odd;
            figures.cpu_us_per_connection_median = odd;
        }
        assert!(!page(&result, None).contains("NaN%"));
        result.cells.clear();
        assert!(page(&result, None).contains("0 of 0 connection ledgers"));
    }
}
