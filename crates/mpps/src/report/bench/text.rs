//! The comparison as a table for a terminal.

mod columns;
pub(crate) mod spread;

use super::{Group, balanced, inexact, ledgers, name, skipped, title};
use crate::bench::result::{BenchResult, BenchRow, OverloadCurve, OverloadPoint};
use crate::report::table::{Cell, Paint, paragraph, row, unbroken};
use crate::report::{disagreements, fault, hard_numbers, mpps, percent};
use columns::{Columns, Figures};
use mpps_host::Ledger;
use std::path::Path;

/// Where the words below a name begin.
const INDENT: usize = 6;

/// Renders the comparison for a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchText {
    width: usize,
    colour: bool,
}

impl BenchText {
    /// For a terminal of `width` columns; fewer than 40 are taken as 40.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Self {
            width: width.max(40),
            colour,
        }
    }

    /// The whole report; `files` are kinds and paths: `report`, `bench.html`.
    pub(crate) fn report(&self, result: &BenchResult, files: &[(&str, &Path)]) -> String {
        let mut text = self.words(&result.placement, Paint::Plain);
        text.push_str(&self.words(&format!("sender: {}", result.sender), Paint::Plain));
        for group in Group::all(result) {
            text.push_str(&self.group(&group));
        }
        let skipped = skipped(result);
        if !skipped.is_empty() {
            text.push_str(&self.heading("skipped"));
        }
        for (name, why) in skipped {
            let said = format!("{name}: {why}");
            text.push_str(&paragraph(
                &said,
                self.width,
                INDENT,
                Paint::Faint,
                self.colour,
            ));
        }
        if !result.overload.is_empty() {
            text.push_str(&self.heading("goodput in Mpps against offered load"));
            let key = "█ received   ░ what is missing to all of it, or to the path's peak";
            text.push_str(&self.words(key, Paint::Faint));
            let key =
                "load: asked for, in multiples of the peak; full: not paced, as fast as it goes";
            text.push_str(&self.words(key, Paint::Faint));
        }
        for curve in &result.overload {
            text.push_str(&self.curve(curve));
        }
        text.push_str(&self.spread(&result.spread));
        text.push('\n');
        text + &self.closing(result, files)
    }

    /// What is said below the figures.
    fn closing(&self, result: &BenchResult, files: &[(&str, &Path)]) -> String {
        let mut text = String::new();
        for sentence in &result.advice {
            text.push_str(&self.words(sentence, Paint::Strong));
        }
        text.push_str(&self.doubts(result));
        for note in &result.notes {
            text.push_str(&self.words(&format!("note: {note}"), Paint::Faint));
        }
        for row in &result.rows {
            for note in &row.notes {
                let said = format!("note on {}: {note}", name(row));
                text.push_str(&self.words(&said, Paint::Faint));
            }
        }
        text.push_str(&self.words(&summary(result), Paint::Plain));
        if result.quick {
            text.push_str(&self.words(
                "a quick run: too short to be compared with another",
                Paint::Bad,
            ));
        }
        if !result.complete {
            text.push_str(&self.words(
                "ended before its last row: this is what was known by then",
                Paint::Bad,
            ));
        }
        let written = files
            .iter()
            .map(|(what, path)| unbroken(&format!("{what} {}", path.display())));
        let written = written.collect::<Vec<_>>().join("   ");
        if !files.is_empty() {
            text.push_str(&self.words(&written, Paint::Plain));
        }
        text
    }

    fn heading(&self, said: &str) -> String {
        format!("\n{}", self.words(said, Paint::Strong))
    }

    fn group(&self, group: &Group<'_>) -> String {
        let mut text = self.heading(group.heading);
        if let Some(columns) = Columns::of(self.width) {
            text.push_str(&columns.header(self.colour));
        }
        for result in &group.rows {
            text.push_str(&self.row(group, result));
        }
        text
    }

    fn row(&self, group: &Group<'_>, result: &BenchRow) -> String {
        let figures = Figures::of(group, result);
        let words = format!("{}; NAPI: {}", result.mode, result.napi);
        let below = |words: String| {
            let below = Cell::left(words, self.width - INDENT - 1).paint(Paint::Faint);
            row(&[Cell::left("", INDENT - 2), below], self.colour)
        };
        let Some(columns) = Columns::of(self.width) else {
            let name = Cell::left(&figures.name, self.width - 2).paint(Paint::Strong);
            return row(&[name], self.colour) + &below(figures.sentence()) + &below(words);
        };
        let mut cells = columns.cells(&figures);
        match columns.mode {
            Some(width) => {
                cells.push(Cell::left(words, width).paint(Paint::Faint));
                row(&cells, self.colour)
            }
            None if columns.all => row(&cells, self.colour) + &below(words),
            None => {
                let words = format!("{}{words}", figures.rest());
                row(&cells, self.colour) + &below(words)
            }
        }
    }

    /// One overload curve, a bar per load.
    fn curve(&self, curve: &OverloadCurve) -> String {
        let of_peak = |point: &OverloadPoint| format!("{}x", multiple(point, curve.peak_mpps));
        let most = curve.points.last().map_or_else(String::new, of_peak);
        let title = format!(
            "{}: peak {}, keeps {} of it at {most} offered",
            title(&curve.path, &curve.variant),
            unbroken(&format!("{} Mpps", mpps(curve.peak_mpps))),
            unbroken(&percent(curve.kept)),
        );
        let mut text = self.heading(&title);
        let words = format!("{}; NAPI: {}", curve.mode, curve.napi);
        text.push_str(&self.words(&words, Paint::Faint));
        for note in &curve.notes {
            text.push_str(&self.words(&format!("note: {note}"), Paint::Plain));
        }
        let figures = [
            Cell::right("load", 5),
            Cell::right("offered", 7),
            Cell::right("of peak", 7),
            Cell::right("received", 8),
        ];
        text.push_str(&row(
            &figures.map(|cell| cell.paint(Paint::Faint)),
            self.colour,
        ));
        let room = self.width.saturating_sub(38).clamp(2, 60);
        for point in &curve.points {
            let cells = [
                Cell::right(load(point), 5),
                Cell::right(mpps(point.offered_mpps), 7),
                Cell::right(of_peak(point), 7),
                Cell::right(mpps(point.goodput_mpps), 8),
                Cell::left(bar(point, curve.peak_mpps, room), room),
            ];
            text.push_str(&row(&cells, self.colour));
        }
        text
    }

    /// Every ledger that does not balance and every witness that disagrees.
    fn doubts(&self, result: &BenchResult) -> String {
        let mut text = String::new();
        for row in &result.rows {
            let main = row.ledger.iter().map(|ledger| (String::new(), ledger));
            // The ledger of a row is mostly that of its last repeat, which need not be named twice.
            let repeats = row
                .sample_ledgers
                .iter()
                .enumerate()
                .filter(|(_, ledger)| row.ledger.as_ref() != Some(ledger))
                .map(|(at, ledger)| (format!(", repeat {},", at + 1), ledger));
            let repeats = repeats.filter(|(_, ledger)| ledger.is_exact());
            for (which, ledger) in main.chain(repeats) {
                text.push_str(&self.doubt(&name(row), &which, ledger));
            }
        }
        for curve in &result.overload {
            for point in curve.points.iter().filter(|point| point.ledger.is_exact()) {
                let which = format!(" at load {}", load(point));
                text.push_str(&self.doubt(&curve.path, &which, &point.ledger));
            }
        }
        for row in &result.spread {
            let name = title(&row.path, &row.variant);
            for (at, ledger) in row.ledgers.iter().enumerate() {
                let which = format!(" over {} queues, repeat {},", row.queues, at + 1);
                text.push_str(&self.doubt(&name, &which, ledger));
            }
        }
        text
    }

    fn doubt(&self, name: &str, which: &str, ledger: &Ledger) -> String {
        let mut text = String::new();
        let exact = ledger.is_exact();
        if let Some(fault) = fault(ledger) {
            let equation = hard_numbers(&ledger.to_string());
            let said = format!("ledger of {name}{which} {fault}: {equation}");
            let paint = if exact { Paint::Bad } else { Paint::Faint };
            text.push_str(&self.words(&said, paint));
        }
        // Who counts trains cannot agree with who counts datagrams.
        for said in disagreements(ledger).filter(|_| exact) {
            text.push_str(&self.words(&format!("{name}: {said}"), Paint::Bad));
        }
        text
    }

    fn words(&self, text: &str, paint: Paint) -> String {
        paragraph(text, self.width, 3, paint, self.colour)
    }
}

/// What was received of a load, and after it what is missing to the ideal receiver, which takes
/// everything up to its peak and stays there.
fn bar(point: &OverloadPoint, peak_mpps: f64, room: usize) -> String {
    let place = |rate: f64| {
        let share = (rate / peak_mpps.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        (share * room as f64).round() as usize
    };
    let received = place(point.goodput_mpps);
    let missing = place(point.offered_mpps).saturating_sub(received);
    "█".repeat(received) + &"░".repeat(missing)
}

/// The load that was asked for, or that none was: `2x`, `full`.
fn load(point: &OverloadPoint) -> String {
    match point.unpaced {
        true => "full".to_owned(),
        false => format!("{}x", point.load),
    }
}

/// What was really offered over the path's peak.
pub(crate) fn multiple(point: &OverloadPoint, peak_mpps: f64) -> String {
    if peak_mpps > 0.0 {
        let ratio = point.offered_mpps / peak_mpps;
        let digits = if ratio < 9.95 { 2 } else { 0 };
        format!("{ratio:.digits$}")
    } else {
        "-".to_owned()
    }
}

/// What ran and how many ledgers balance, in one line.
fn summary(result: &BenchResult) -> String {
    let measured = result.rows.iter().filter(|row| row.skipped.is_none());
    let spread = result.spread.iter().filter(|row| row.skipped.is_none());
    let what = match (measured.count() + spread.count(), result.overload.len()) {
        (rows, 0) => format!("{rows} rows measured"),
        (0, curves) => format!("{curves} curves measured"),
        (rows, curves) => format!("{rows} rows and {curves} curves measured"),
    };
    let star = match result.rows.iter().any(|row| row.reference) {
        true => ", * marks references",
        false => "",
    };
    let mut said = format!("{what}{star}");
    if ledgers(result).next().is_some() {
        said.push_str(&format!("; {}", balanced(result)));
    }
    if let Some(inexact) = inexact(result) {
        said.push_str(&format!("; {inexact}"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::super::{spread, tests::fixture};
    use super::*;

    const WIDTHS: [usize; 11] = [40, 60, 71, 72, 80, 99, 100, 120, 149, 150, 250];

    fn whole(width: usize, colour: bool) -> String {
        let files = [("data", Path::new("bench.json"))];
        BenchText::new(width, colour).report(&fixture(), &files)
    }

    /// Without line breaks and runs of blanks.
    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_fact_is_lost() {
        let result = fixture();
        for width in WIDTHS {
            let text = whole(width, false);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
            let text = flat(&text);
            for row in result.rows.iter().filter(|row| row.skipped.is_none()) {
                let rate = mpps(row.mpps_median.expect("a measured row has a rate"));
                assert!(text.contains(&rate), "{width}: {rate} is missing\n{text}");
                if let Some(spread) = spread(row) {
                    assert!(text.contains(&spread), "{width}: {spread}\n{text}");
                }
            }
            for fact in ["UNACCOUNTED 0", "data bench.json", "skipped"] {
                assert!(text.contains(fact), "{width}: {fact}\n{text}");
            }
        }
    }

    #[test]
    fn words_are_kept_at_every_width_without_a_column_for_them() {
        for width in [40, 60, 80, 100] {
            let text = flat(&whole(width, false));
            for row in &fixture().rows {
                let words = match &row.skipped {
                    Some(why) => why.clone(),
                    None => format!("{}; NAPI: {}", row.mode, row.napi),
                };
                assert!(text.contains(&words), "{width}: {words}\n{text}");
            }
            for sentence in &fixture().advice {
                assert!(text.contains(&flat(sentence)), "{width}: {sentence}");
            }
        }
    }

    #[test]
    fn a_colour_code_comes_only_if_asked_for() {
        let (text, colour) = (whole(120, false), whole(120, true));
        assert!(!text.contains('\x1b'));
        let codes = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"];
        let bare = codes
            .iter()
            .fold(colour, |text, code| text.replace(code, ""));
        assert_eq!(bare, text);
    }

    #[test]
    fn what_does_not_balance_is_named() {
        let mut result = fixture();
        let report = |result: &BenchResult| BenchText::new(400, false).report(result, &[]);
        assert!(!report(&result).contains("DOES NOT BALANCE"));
        let measured = |row: &&mut BenchRow| row.sample_ledgers.len() > 1;
        let row = result.rows.iter_mut().find(measured).expect("repeats");
        let named = name(row);
        row.sample_ledgers[1].offered += 3;
        row.sample_ledgers[1].unaccounted += 3;
        let text = report(&result);
        let said = format!("ledger of {named}, repeat 2, DOES NOT BALANCE");
        assert!(text.contains(&said), "{text}");
    }

    #[test]
    fn a_bar_shows_what_is_missing_to_the_ideal() {
        let point = |offered_mpps, goodput_mpps| OverloadPoint {
            load: 1.0,
            offered_mpps,
            goodput_mpps,
            unpaced: false,
            ledger: Ledger::new(0, 0, 0),
        };
        assert_eq!(bar(&point(0.5, 0.5), 1.0, 8), "████");
        assert_eq!(bar(&point(4.0, 0.25), 1.0, 8), "██░░░░░░");
        assert_eq!(bar(&point(1.0, 0.0), 0.0, 8), "░░░░░░░░");
        assert_eq!(bar(&point(f64::NAN, f64::NAN), 1.0, 8), "");
    }

    #[test]
    fn a_quick_run_and_an_unfinished_one_say_so() {
        let mut result = fixture();
        (result.quick, result.complete) = (true, false);
        (result.rows, result.overload) = (Vec::new(), Vec::new());
        result.spread.clear();
        let text = BenchText::new(100, false).report(&result, &[]);
        assert!(text.contains("a quick run") && text.contains("ended before its last row"));
        assert!(!text.contains("UNACCOUNTED"), "{text}");
    }
}
