//! What a load found, for a terminal.

pub(crate) mod ab;
pub(crate) mod html;

use super::table::{Cell, Paint, paragraph, row};
use crate::connections::{LoadAccount, LoadResult, Times};
use mpps_host::Grouped;

/// The report for a terminal of some width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadText {
    width: usize,
    colour: bool,
}

impl LoadText {
    /// For a terminal of so many columns, with or without colours.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Self { width, colour }
    }

    /// The whole report.
    pub(crate) fn report(&self, result: &LoadResult) -> String {
        let mut text = self.line(&rates(result), Paint::Plain);
        if !result.complete {
            text.push_str(&self.line("interrupted: shorter than asked for", Paint::Bad));
        }
        text.push('\n');
        text.push_str(&self.latency(result));
        text.push('\n');
        let ledger = &result.ledger;
        for (what, account) in [
            ("connections", &ledger.connections),
            ("requests", &ledger.requests),
        ] {
            let balances = account.unaccounted == 0;
            let paint = if balances { Paint::Plain } else { Paint::Bad };
            text.push_str(&self.line(&equation(what, account), paint));
        }
        for sentence in sentences(result) {
            text.push_str(&self.line(&sentence, Paint::Plain));
        }
        for note in &result.notes {
            text.push_str(&self.line(&format!("note: {note}"), Paint::Bad));
        }
        text
    }

    fn line(&self, text: &str, paint: Paint) -> String {
        paragraph(text, self.width, 3, paint, self.colour)
    }

    /// A row for each of the three times, or, where the terminal has no room, a sentence.
    fn latency(&self, result: &LoadResult) -> String {
        const HEADS: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];
        const NAME: usize = 13;
        let latency = &result.latency_us;
        let rows = [
            ("connect", &latency.connect),
            ("first byte", &latency.first_byte),
            ("last byte", &latency.last_byte),
        ]
        .map(|(name, times)| {
            let figures = [times.p50, times.p90, times.p99, times.p999, times.max];
            (name, figures.map(|figure| time(times, figure)))
        });
        // A figure of six digits and the two blanks before it.
        let width = self.width.saturating_sub(NAME + 1) / HEADS.len();
        if width < 8 {
            let sentences = rows.map(|(name, figures)| {
                let figures = HEADS.iter().zip(figures);
                let figures = figures.map(|(head, figure)| format!("{head} {figure}"));
                let figures = figures.collect::<Vec<_>>().join(", ");
                self.line(&format!("{name}, µs: {figures}"), Paint::Plain)
            });
            return sentences.concat();
        }
        let cells = |name: &str, figures: [String; 5]| {
            let figures = figures
                .into_iter()
                .map(|figure| Cell::right(figure, (width - 2).min(12)));
            let cells = std::iter::once(Cell::left(name, NAME)).chain(figures);
            row(&cells.collect::<Vec<_>>(), self.colour)
        };
        let head = cells("latency, µs", HEADS.map(str::to_owned));
        let rows = rows.map(|(name, figures)| cells(name, figures));
        head + &rows.concat()
    }
}

/// A time in microseconds with the digits that mean something; a dash where there is none.
fn time(times: &Times, us: f64) -> String {
    match times.count {
        0 => "-".to_owned(),
        _ if us < 100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

fn rates(result: &LoadResult) -> String {
    format!(
        "{:.0} connections/s   {:.0} requests/s   {:.2} MiB/s   in {:.2} s",
        result.cps,
        result.requests_per_second,
        result.bytes_per_second / f64::from(1 << 20),
        result.seconds
    )
}

/// `requests: started 100 = completed 98 + refused 1 + cut off at the end 1   UNACCOUNTED 0`.
pub(crate) fn equation(what: &str, account: &LoadAccount) -> String {
    let mut terms = format!("completed {}", Grouped(account.completed));
    for (kind, count) in account.failed.iter().filter(|(_, count)| **count > 0) {
        terms.push_str(&format!(
            " + {} {}",
            kind.replace('_', " "),
            Grouped(*count)
        ));
    }
    if account.aborted_at_end > 0 {
        let cut = Grouped(account.aborted_at_end);
        terms.push_str(&format!(" + cut off at the end {cut}"));
    }
    let started = Grouped(account.started);
    let unaccounted = account.unaccounted;
    format!("{what}: started {started} = {terms}   UNACCOUNTED {unaccounted}")
}

/// How requests were shared out to connections, and how fast they were started.
pub(crate) fn manner(requests_per_connection: Option<u64>, rate: Option<f64>) -> String {
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

/// What else there is to say, one sentence each.
pub(crate) fn sentences(result: &LoadResult) -> Vec<String> {
    let mut sentences = Vec::new();
    let other: Vec<String> = result
        .statuses
        .iter()
        .filter(|(class, count)| *class != "2xx" && **count > 0)
        .map(|(class, count)| format!("{class} {}", Grouped(*count)))
        .collect();
    if !other.is_empty() {
        sentences.push(format!("replies of another status: {}", other.join(", ")));
    }
    for (kind, example) in &result.error_examples {
        sentences.push(format!("{}: {example}", kind.replace('_', " ")));
    }
    if result.closed_early > 0 {
        let early = Grouped(result.closed_early);
        sentences.push(format!(
            "the server closed {early} connections between two requests"
        ));
    }
    if let Some(rate) = result.rate {
        let late = result.lateness_us_max.unwrap_or(0.0) / 1e3;
        let mut text = format!(
            "open loop at {rate} requests/s: times count from when a request was to start; the \
             latest started {late:.1} ms late"
        );
        if let Some(missed) = result.not_started.filter(|count| *count > 0) {
            let missed = Grouped(missed);
            text.push_str(&format!(", and {missed} never did"));
        }
        sentences.push(text);
    }
    if let Some(cpu) = result.cpu_us_per_connection {
        let calls = result.system_calls as f64 / result.ledger.requests.completed.max(1) as f64;
        let each = if result.requests_per_connection == Some(1) {
            format!("{cpu:.2} µs a connection")
        } else {
            format!(
                "{:.2} µs a request",
                result.cpu_us_per_request.unwrap_or(cpu)
            )
        };
        sentences.push(format!(
            "this side's CPU: {each}, {calls:.2} system calls a request ({})",
            result.granted
        ));
    }
    sentences
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up run with everything that a report has to cope with.
    pub(crate) const FIXTURE: &str = include_str!("../../tests/fixtures/load.json");

    pub(crate) fn fixture() -> LoadResult {
        LoadResult::parse(FIXTURE).expect("the fixture is a result file")
    }

    #[test]
    fn every_line_fits_its_terminal() {
        let result = fixture();
        for width in [30, 40, 53, 54, 80, 120] {
            let text = LoadText::new(width, false).report(&result);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {text}");
        }
    }

    #[test]
    fn the_report_has_every_term_of_the_account() {
        let text = LoadText::new(400, false).report(&fixture());
        for part in [
            "requests: started 100 300 = completed 100 000",
            "bad status 200",
            "cut off at the end 64",
            "UNACCOUNTED 0",
            "p99.9",
            "and 7 never did",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_missing_is_set_off() {
        let mut result = fixture();
        result.ledger.requests.unaccounted = -3;
        let text = LoadText::new(100, false).report(&result);
        assert!(text.contains("UNACCOUNTED -3"), "{text}");
        assert!(!result.balances() && !result.is_fine());
    }

    #[test]
    fn times_of_nothing_are_dashes() {
        assert_eq!(time(&Times::default(), 0.0), "-");
        let some = Times {
            count: 1,
            ..Times::default()
        };
        assert_eq!(time(&some, 12.345), "12.3");
        assert_eq!(time(&some, 1234.5), "1234");
    }
}
