//! The result of a load, as a document.

use crate::measure::connection_ledger::equation;
use crate::measure::document::{RunHead, counted, document_of};
use crate::measure::seconds::second_rates;
use crate::program::connections::LoadResult;
use mpps_http::{Close, LoadReport, Times};
use mpps_report::{
    Axis, Block, ChartLine, Column, Curve, Document, Hue, Quantity, Row, Scale, Table, Text,
    grouped,
};
use std::collections::BTreeMap;

/// The report.
pub(crate) fn document(result: &LoadResult) -> Document {
    let (found, placement) = (&result.found, asked(result));
    let head = RunHead::of(result, &placement, "request", &found.notes);
    let (ledger, latency) = (&found.ledger, &found.latency_us);
    let all = [
        ("connect", &latency.connect, Hue::Reference),
        ("first byte", &latency.first_byte, Hue::Second),
        ("last byte", &latency.last_byte, Hue::Main),
    ];
    let said = Block::Paragraph(verdict(found));
    // The equations of a run say what failed, and not what never came.
    let is_unanswered = ledger.requests.completed == 0 || found.unanswered_us().is_some();
    let said = match is_unanswered {
        true => said,
        false => Block::on_page([said]),
    };
    let mut blocks = vec![said, Block::Paragraph(rates(found))];
    blocks.extend(second_rates(result.unit(), seconds(result)));
    blocks.extend(head.first([]));
    blocks.push(Block::heading("Latency"));
    blocks.push(Block::Curves(vec![curve(&all)]));
    blocks.push(table(&all).into());
    blocks.push(Block::heading("Where the connections and requests went"));
    blocks.push(equation("connections", &ledger.connections, &BTreeMap::new()).into());
    blocks.push(equation("requests", &ledger.requests, &found.error_examples).into());
    blocks.extend(sentences(result).into_iter().map(Block::paragraph));
    blocks.push(head.last());
    let about = Text::from("Times are kept to three digits. ").code("--json");
    let about = about.plain(format!(
        " writes this run as data (schema {}).",
        result.schema
    ));
    let title = "mpps load: every connection accounted for";
    document_of(title, result, blocks, [about], &[])
}

/// The completed and the failed of each second.
fn seconds(result: &LoadResult) -> [ChartLine; 2] {
    let mut at = 0.0;
    let rates = result.rates().map(|[seconds, completed, failed]| {
        at += seconds;
        ((at, completed), (at, failed))
    });
    let (completed, failed) = rates.unzip();
    let line = |name: &str, hue, points| ChartLine {
        name: name.to_owned(),
        hue,
        points,
    };
    [
        line("completed", Hue::Main, completed),
        line("failed", Hue::Second, failed),
    ]
}

/// The load that was asked for, with its server.
fn asked(result: &LoadResult) -> String {
    let asked = &result.asked;
    format!("{} at {}: {}", asked.url, asked.target, shape(result))
}

/// The load that was asked for. Rates can only be compared with it.
pub(crate) fn shape(result: &LoadResult) -> String {
    let (asked, engine) = (&result.asked, &result.found.engine);
    let closed = match asked.close {
        Close::Server => "closed by the server",
        Close::Client => "closed by this side",
        Close::Rst => "closed by this side with a RST",
    };
    format!(
        "{} in flight, {}, {closed}, by {engine} in {}",
        asked.connections,
        manner(asked.requests_per_connection, asked.rate),
        counted(asked.threads, "thread"),
    )
}

/// How requests are shared out to connections, and how fast they are started.
pub(super) fn manner(requests_per_connection: Option<u64>, rate: Option<f64>) -> String {
    let requests = match requests_per_connection {
        Some(1) => "a connection per request".to_owned(),
        Some(count) => format!("{count} requests per connection"),
        None => "connections that stay".to_owned(),
    };
    let rate = match rate {
        Some(rate) => format!("{rate} requests/s"),
        None => "as fast as it goes".to_owned(),
    };
    format!("{requests}, {rate}")
}

fn verdict(found: &LoadReport) -> Text {
    let requests = &found.ledger.requests;
    let failed = match requests.failed_total() {
        0 => None,
        count => Some(format!("{} requests failed", grouped(count.into()))),
    };
    let said = match (requests.completed, failed, found.unanswered_us()) {
        _ if !found.balances() => "the account does not balance".to_owned(),
        (0, failed, _) => {
            let why = failed.unwrap_or_else(|| unanswered(found));
            format!("no request was completed: {why}")
        }
        (_, Some(failed), _) => failed,
        (_, None, Some(waited)) => format!(
            "the server stopped answering: at the end a request had waited {}, and the slowest answer \
             took {}{}",
            Quantity::Seconds(waited / 1e6),
            Quantity::Seconds(found.latency_us.last_byte.max / 1e6),
            found.silent_us.map_or_else(String::new, |silent| {
                let silent = Quantity::Seconds(silent / 1e6);
                format!("; nothing was completed in the last {silent}")
            })
        ),
        _ if !found.is_clean() => "connections failed".to_owned(),
        _ => "every request was completed".to_owned(),
    };
    Text::new().flag(found.is_clean(), said)
}

/// How far the requests came, if none failed and none was completed.
fn unanswered(found: &LoadReport) -> String {
    let waited = Quantity::Seconds(found.cut_off_us_max.unwrap_or(0.0) / 1e6);
    let latency = &found.latency_us;
    let made = counted(
        usize::try_from(latency.connect.count).unwrap_or(usize::MAX),
        "connection",
    );
    match (found.ledger.requests.started, latency.first_byte.count) {
        (0, _) => "none was started".to_owned(),
        _ if latency.connect.count == 0 => format!("no connection was made within {waited}"),
        (_, 0) => format!("{made} made, and not a byte of a reply within {waited}"),
        _ => format!("{made} made, and no whole reply within {waited}"),
    }
}

fn rates(found: &LoadReport) -> Text {
    let rate = |rate: f64| Quantity::PerSecond(rate).figure();
    Text::new()
        .strong(format!("{} connections/s", rate(found.cps)))
        .plain(format!(
            "   {} requests/s   {}/s   in {}",
            rate(found.requests_per_second),
            Quantity::Mebibytes(found.bytes_per_second),
            Quantity::Seconds(found.seconds)
        ))
}

fn table(all: &[(&str, &Times, Hue)]) -> Table {
    let heads = ["p50", "p90", "p99", "p99.9", "max"];
    let figures = heads.into_iter().zip([0, 1, 0, 1, 0]);
    let figures = figures.map(|(head, priority)| Column::figure(head, 9).priority(priority));
    let columns = [Column::words("latency, µs", 11)]
        .into_iter()
        .chain(figures);
    let rows = all.iter().map(|(name, times, _)| {
        let figures = [times.p50, times.p90, times.p99, times.p999, times.max];
        let figures = figures.map(|us| match times.count {
            0 => "-".to_owned(),
            _ => Quantity::Microseconds(us).figure(),
        });
        Row::new([(*name).into()].into_iter().chain(figures.map(Into::into)))
    });
    Table::new(columns).rows(rows)
}

fn curve(all: &[(&str, &Times, Hue)]) -> Curve {
    let lines = all.iter().filter(|(_, times, _)| times.count > 0);
    let lines = lines.map(|(name, times, hue)| ChartLine {
        name: (*name).to_owned(),
        hue: *hue,
        points: times
            .percentiles
            .iter()
            .map(|[at, us]| (*at, *us))
            .collect(),
    });
    let axis = |name: &str, scale| Axis {
        name: name.to_owned(),
        scale,
    };
    Curve {
        title: "Latency by percentage of the requests".into(),
        x: axis("% of the requests took no longer", Scale::Nines),
        y: axis("µs", Scale::Logarithmic),
        lines: lines.collect(),
    }
}

/// Further remarks, one sentence each.
fn sentences(result: &LoadResult) -> Vec<String> {
    let found = &result.found;
    let mut sentences = Vec::new();
    let other = found.statuses.iter();
    let other = other.filter(|(class, count)| *class != "2xx" && **count > 0);
    let other = other.map(|(class, count)| format!("{class} {}", grouped((*count).into())));
    let other: Vec<String> = other.collect();
    if !other.is_empty() {
        sentences.push(format!("replies of another status: {}", other.join(", ")));
    }
    if found.closed_early > 0 {
        let early = grouped(found.closed_early.into());
        sentences.push(format!(
            "the server closed {early} connections between two requests"
        ));
    }
    if let Some(rate) = result.asked.rate {
        let late = Quantity::Microseconds(found.lateness_us_max.unwrap_or(0.0));
        let missed = found.not_started.filter(|count| *count > 0);
        let missed = missed.map_or_else(String::new, |count| {
            format!(", and {} never did", grouped(count.into()))
        });
        sentences.push(format!(
            "open loop at {rate} requests/s: times count from when a request was to start; the \
             latest started {late} late{missed}"
        ));
    }
    if let Some(cpu) = found.cpu_us_per_connection {
        let calls = found.system_calls as f64 / found.ledger.requests.completed.max(1) as f64;
        let (cpu, each) = match (
            result.asked.requests_per_connection,
            found.cpu_us_per_request,
        ) {
            (Some(1), _) | (_, None) => (cpu, "connection"),
            (_, Some(cpu)) => (cpu, "request"),
        };
        sentences.push(format!(
            "this side's CPU: {} a {each}, {} system calls a request ({})",
            Quantity::Microseconds(cpu),
            Quantity::Each(calls),
            found.granted
        ));
    }
    sentences
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::program::connections::LoadSecond;
    use mpps_http::Failure;
    use mpps_report::{Terminal, page};

    pub(crate) fn fixture() -> LoadResult {
        let text = include_str!("../../../tests/fixtures/load.json");
        LoadResult::parse(text).expect("the fixture is a result file")
    }

    fn text(result: &LoadResult, width: usize) -> String {
        Terminal::new(width, false).document(&document(result))
    }

    #[test]
    fn the_report_is_what_it_was() {
        let shots = [60, 100, 160].map(|width| text(&fixture(), width));
        insta::assert_snapshot!("text", shots.join("\n----\n"));
    }

    #[test]
    fn the_report_has_every_term_of_the_account() {
        let text = text(&fixture(), 400);
        for part in [
            "requests: started 100 300 = completed 100 000",
            "bad status 200",
            "cut off at the end 64 + UNACCOUNTED 0",
            "p99.9",
            "and 7 never did",
            "503 Service Unavailable",
        ] {
            assert!(text.replace('\u{a0}', " ").contains(part), "{part}: {text}");
        }
    }

    /// Old files have no seconds, and no drawing of them.
    #[test]
    fn the_seconds_are_drawn_in_the_unit_of_the_load() {
        let drawn = |result: &LoadResult| page(&document(result)).contains("Rate of each second");
        let mut result = fixture();
        assert!(!drawn(&result));
        let second = |completed, failed| LoadSecond {
            seconds: 2.0,
            connections_completed: completed,
            connections_failed: failed,
            requests_completed: 10 * completed,
            requests_failed: 0,
        };
        result.each_second = vec![second(400, 2), second(200, 0)];
        assert!(drawn(&result));
        assert_eq!(
            seconds(&result).map(|line| line.points),
            [[(2.0, 200.0), (4.0, 100.0)], [(2.0, 1.0), (4.0, 0.0)]]
        );
        result.asked.requests_per_connection = None;
        assert_eq!(seconds(&result)[0].points[0], (2.0, 2000.0));
    }

    #[test]
    fn what_is_missing_is_set_off() {
        let mut result = fixture();
        result.found.ledger.requests.unaccounted = -3;
        assert!(text(&result, 100).contains("UNACCOUNTED -3"));
        assert!(!result.found.balances() && !result.found.is_clean());
        assert!(page(&document(&result)).contains("the account does not balance"));
    }

    #[test]
    fn a_run_without_a_completed_request_says_how_far_it_came() {
        let said_of = |change: fn(&mut LoadReport)| {
            let mut found = fixture().body.found;
            found.ledger.requests = mpps_http::LoadAccount {
                started: 64,
                aborted_at_end: 64,
                ..Default::default()
            };
            found.ledger.connections = found.ledger.requests.clone();
            (found.seconds, found.cut_off_us_max) = (2.0, Some(1.5e6));
            found.latency_us.connect.count = 0;
            found.latency_us.first_byte.count = 0;
            change(&mut found);
            assert!(found.balances() && !found.is_clean());
            verdict(&found).words().replace('\u{a0}', " ")
        };
        let told = |change: fn(&mut LoadReport), words: &str| {
            let said = said_of(change);
            assert_eq!(said, format!("no request was completed: {words}"));
        };
        told(|_| {}, "no connection was made within 1.50 s");
        let made = |found: &mut LoadReport| found.latency_us.connect.count = 64;
        told(
            made,
            "64 connections made, and not a byte of a reply within 1.50 s",
        );
        let began = |found: &mut LoadReport| {
            (
                found.latency_us.connect.count,
                found.latency_us.first_byte.count,
            ) = (1, 1);
        };
        told(began, "1 connection made, and no whole reply within 1.50 s");
        let none = |found: &mut LoadReport| found.ledger.requests = Default::default();
        told(none, "none was started");
        let failed = |found: &mut LoadReport| {
            let requests = &mut found.ledger.requests;
            (requests.started, requests.failed) = (65, [(Failure::Reset, 1)].into());
        };
        told(failed, "1 requests failed");
    }

    #[test]
    fn a_server_that_stops_answering_is_told_from_requests_in_flight() {
        let of = |seconds: f64, slowest_us: f64, waited_us: f64| {
            let mut found = fixture().body.found;
            found.ledger.requests.failed.clear();
            found.ledger.connections.failed.clear();
            for ledger in [&mut found.ledger.requests, &mut found.ledger.connections] {
                ledger.started = ledger.completed + ledger.aborted_at_end;
            }
            found.latency_us.last_byte.max = slowest_us;
            (found.seconds, found.cut_off_us_max) = (seconds, Some(waited_us));
            assert_eq!(found.is_clean(), found.unanswered_us().is_none());
            (found.is_clean(), verdict(&found).words())
        };
        for stopped in [(2.0, 5e3, 1.5e6), (10.0, 5e3, 4e6), (10.0, 0.4e6, 9e6)] {
            let (is_clean, said) = of(stopped.0, stopped.1, stopped.2);
            assert!(!is_clean && said.contains("stopped answering"), "{said}");
        }
        for healthy in [
            // In flight for as long as others; one lost SYN, in a short run, too; slow, and alike; no
            // whole turn of it.
            (10.0, 5e3, 6e3),
            (10.0, 5e3, 1.01e6),
            (1.0, 5e3, 0.99e6),
            (2.0, 5e3, 1.1e6),
            (10.0, 1e6, 3.9e6),
            (5.9, 3e6, 2.9e6),
        ] {
            let (is_clean, said) = of(healthy.0, healthy.1, healthy.2);
            assert!(is_clean && !said.contains("stopped"), "{healthy:?}: {said}");
        }
    }

    #[test]
    fn a_changed_ledger_is_refused() {
        let mut result = fixture();
        result.found.ledger.requests.completed -= 1;
        let text = serde_json::to_string(&result).expect("it is JSON");
        let error = LoadResult::parse(&text).expect_err("it does not add up");
        assert!(error.to_string().contains("requests"), "{error}");
    }

    #[test]
    fn times_of_nothing_are_dashes() {
        let mut result = fixture();
        result.found.latency_us.connect = Times::default();
        let line = text(&result, 100);
        let line = line.lines().find(|line| line.starts_with(" connect "));
        let cells = line.unwrap_or_default().split_whitespace();
        assert_eq!(
            cells.collect::<Vec<_>>(),
            ["connect", "-", "-", "-", "-", "-"]
        );
    }

    #[test]
    fn what_was_asked_is_told() {
        let mut result = fixture();
        (result.asked.requests_per_connection, result.asked.rate) = (Some(1), None);
        (result.asked.close, result.asked.threads) = (Close::Rst, 1);
        let told =
            "a connection per request, as fast as it goes, closed by this side with a RST, by";
        assert!(text(&result, 400).contains(told));
        assert!(text(&result, 400).contains(" in 1 thread\n"));
        (result.asked.requests_per_connection, result.asked.rate) = (Some(5), Some(1000.0));
        let told = "5 requests per connection, 1000 requests/s, closed by";
        assert!(text(&result, 400).contains(told));
    }

    #[test]
    fn nothing_in_a_result_becomes_markup() {
        let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>";
        let mut result = fixture();
        for to in [
            &mut result.body.asked.url.path,
            &mut result.command,
            &mut result.body.found.engine,
            &mut result.body.found.granted,
            &mut result.version,
            &mut result.started,
        ] {
            evil.clone_into(to);
        }
        result.found.notes = vec![evil.to_owned()];
        result.found.error_examples = [(Failure::Other, evil.to_owned())].into();
        let page = page(&document(&result));
        assert!(!page.contains("<script"), "a script element came through");
        assert!(!page.contains("<img"), "an image element came through");
        assert!(page.matches("&lt;script&gt;").count() > 7);
    }

    #[test]
    fn figures_out_of_any_range_make_a_page_too() {
        let mut result = fixture();
        let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
        for (point, us) in result
            .found
            .latency_us
            .last_byte
            .percentiles
            .iter_mut()
            .zip(odd)
        {
            *point = [us, us];
        }
        result.found.latency_us.connect.percentiles.clear();
        let page = page(&document(&result));
        for bad in ["NaN,", ",NaN", "inf,", ",inf"] {
            assert!(!page.contains(bad), "{bad}");
        }
    }
}
