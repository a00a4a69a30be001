//! The experiments as tables for a terminal.

use super::{
    Group, balanced, base, body, disagreements, equation, passed_by, per_second, skipped, spread,
    summary, times,
};
use crate::report::percent;
use crate::report::table::{Cell, Paint, paragraph, row, unbroken};
use crate::tcp_lab::result::{TcpCell, TcpFigures, TcpLabResult};
use std::path::Path;

/// Where the words below a name begin.
const INDENT: usize = 6;
/// From this many columns on what the paper says stands beside the figures.
const WIDE: usize = 132;
/// From this many on all figures stand in columns.
const NORMAL: usize = 100;
/// From this many on the main figures do. On less, a step is a name and a sentence.
const COMPACT: usize = 64;

/// Renders the experiments for a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpLabText {
    width: usize,
    colour: bool,
}

impl TcpLabText {
    /// For a terminal of `width` columns; fewer than 40 are taken as 40.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Self {
            width: width.max(40),
            colour,
        }
    }

    /// The whole report; `files` are kinds and paths: `report`, `lab-tcp.html`.
    pub(crate) fn report(&self, result: &TcpLabResult, files: &[(&str, &Path)]) -> String {
        let mut text = self.words(&result.placement, Paint::Plain);
        text.push_str(&self.words(&format!("load: {}", result.load), Paint::Plain));
        let groups = Group::all(result);
        for group in &groups {
            // Of the third experiment the smallest body is told in full, the others side by side.
            let is_first = groups
                .iter()
                .find(|other| other.experiment == group.experiment);
            if is_first.is_some_and(|first| first.body_bytes == group.body_bytes) {
                text.push_str(&self.group(group));
            }
        }
        for experiment in [1, 2, 3] {
            let same = groups.iter().filter(|group| group.experiment == experiment);
            text.push_str(&self.bodies(&same.collect::<Vec<_>>()));
        }
        text.push('\n');
        text + &self.closing(result, files)
    }

    fn group(&self, group: &Group<'_>) -> String {
        let mut text = format!("\n{}", self.words(&group.heading(), Paint::Strong));
        let heads = Figures::HEADS.map(str::to_owned);
        if self.width >= COMPACT {
            text.push_str(&self.line("", &heads, Paint::Faint, None));
        }
        for (name, cells) in &group.servers {
            text.push_str(&self.words(name, Paint::Strong));
            let base = base(cells);
            for cell in cells {
                if let Some(figures) = &cell.figures {
                    text.push_str(&self.step(cell, figures, base));
                }
            }
            for (steps, why) in skipped(cells) {
                text.push_str(&self.below(&format!("{steps}: {why}")));
            }
        }
        text
    }

    fn step(&self, cell: &TcpCell, figures: &TcpFigures, base: Option<&TcpFigures>) -> String {
        let columns = Figures::of(figures, base);
        let paper = cell.paper.as_deref();
        if self.width < COMPACT {
            let said = columns.sentence();
            let said = match paper {
                Some(paper) => format!("{}: {said}; 2014: {paper}", cell.step),
                None => format!("{}: {said}", cell.step),
            };
            return self.below(&said);
        }
        let mut text = self.line(&cell.step, &columns.0, Paint::Plain, paper);
        if let Some(paper) = paper.filter(|_| self.width < WIDE) {
            text.push_str(&self.below(&format!("2014: {paper}")));
        }
        text
    }

    /// A row of figures, as many as the width has room for.
    fn line(&self, name: &str, all: &[String; 9], paint: Paint, paper: Option<&str>) -> String {
        let is_normal = self.width >= NORMAL;
        let mut cells = vec![Cell::left(format!(" {name}"), 13).paint(paint)];
        for (at, (text, width)) in all.iter().zip(Figures::WIDTHS).enumerate() {
            if is_normal || Figures::MAIN.contains(&at) {
                cells.push(Cell::right(text.as_str(), width).paint(paint));
            }
        }
        if self.width >= WIDE {
            let used: usize = cells.iter().map(|cell| cell.width + 2).sum();
            let said = paper.unwrap_or(if name.is_empty() { "2014" } else { "" });
            cells.push(Cell::left(said, self.width - used - 2).paint(Paint::Faint));
        }
        row(&cells, self.colour)
    }

    /// What is told of every body side by side, where there are several.
    fn bodies(&self, groups: &[&Group<'_>]) -> String {
        if groups.len() < 2 {
            return String::new();
        }
        type Show = fn(&TcpFigures) -> String;
        let tables: [(&str, Show); 3] = [
            ("connections per second", |f| per_second(f.cps_median)),
            ("server CPU per connection, µs", |f| {
                format!("{:.1}", f.cpu_us_per_connection_median)
            }),
            ("throughput of bodies, Mbit/s", |f| {
                per_second(f.throughput_mbit_median)
            }),
        ];
        let mut text = String::new();
        for (heading, show) in tables {
            let said = format!("experiment {}, by body: {heading}", groups[0].experiment);
            text.push_str(&format!("\n{}", self.words(&said, Paint::Strong)));
            // A narrow terminal takes the columns in several turns.
            let room = (self.width.saturating_sub(32) / 9).max(1);
            for part in groups.chunks(room) {
                text.push_str(&self.side_by_side(part, show));
            }
        }
        text
    }

    fn side_by_side(&self, groups: &[&Group<'_>], show: fn(&TcpFigures) -> String) -> String {
        let mut heads = vec![Cell::left("", 28)];
        heads.extend(
            groups
                .iter()
                .map(|group| Cell::right(body(group.body_bytes), 7)),
        );
        let heads: Vec<Cell> = heads
            .into_iter()
            .map(|cell| cell.paint(Paint::Faint))
            .collect();
        let mut text = row(&heads, self.colour);
        let Some(first) = groups.first() else {
            return text;
        };
        let names = first.servers.iter().flat_map(|(name, cells)| {
            let measured = cells.iter().filter(|cell| cell.skipped.is_none());
            measured.map(move |cell| (*name, &*cell.step))
        });
        for (name, step) in names {
            let mut cells = vec![Cell::left(format!("{name} {step}"), 28)];
            for group in groups {
                let of_server = group.servers.iter().find(|(server, _)| *server == name);
                let cell =
                    of_server.and_then(|(_, cells)| cells.iter().find(|cell| cell.step == step));
                let figures = cell.and_then(|cell| cell.figures.as_ref());
                cells.push(Cell::right(figures.map_or("-".to_owned(), show), 7));
            }
            text.push_str(&row(&cells, self.colour));
        }
        text
    }

    /// What is said below the figures.
    fn closing(&self, result: &TcpLabResult, files: &[(&str, &Path)]) -> String {
        let mut text = String::new();
        for sentence in summary(result) {
            text.push_str(&self.words(&sentence, Paint::Strong));
        }
        text.push_str(&self.doubts(result));
        for server in &result.servers {
            if let Some(why) = &server.skipped {
                let said = format!("skipped {}: {why}", server.name);
                text.push_str(&self.words(&said, Paint::Faint));
            }
        }
        for note in &result.notes {
            text.push_str(&self.words(&format!("note: {note}"), Paint::Faint));
        }
        let method = format!("CPU per connection: {}", result.cpu_method);
        text.push_str(&self.words(&method, Paint::Faint));
        let measured = result.cells.iter().filter(|cell| cell.figures.is_some());
        let said = format!("{} cells measured; {}", measured.count(), balanced(result));
        text.push_str(&self.words(&said, Paint::Plain));
        for (applies, said) in [
            (
                result.quick,
                "a quick run: too short to be compared with another",
            ),
            (
                !result.complete,
                "ended before its last cell: this is what was known by then",
            ),
        ] {
            if applies {
                text.push_str(&self.words(said, Paint::Bad));
            }
        }
        let written = files
            .iter()
            .map(|(what, path)| unbroken(&format!("{what} {}", path.display())));
        if !files.is_empty() {
            let written = written.collect::<Vec<_>>().join("   ");
            text.push_str(&self.words(&written, Paint::Plain));
        }
        text
    }

    /// Every ledger that does not balance, every witness that disagrees, every connection that
    /// failed, and every figure that is not of what it should be.
    fn doubts(&self, result: &TcpLabResult) -> String {
        let mut text = String::new();
        for cell in &result.cells {
            let name = key(cell);
            for note in &cell.notes {
                text.push_str(&self.words(&format!("note on {name}: {note}"), Paint::Faint));
            }
            if let Some(figures) = cell.figures.as_ref().filter(|figures| passed_by(figures)) {
                let share = |share: Option<f64>| share.map_or("-".to_owned(), percent);
                let said = format!(
                    "{name}: packets passed by the queues; they took {} of those to the server and \
                     {} of those to the load",
                    share(figures.server_ring_share),
                    share(figures.load_ring_share)
                );
                text.push_str(&self.words(&said, Paint::Bad));
            }
            let Some(ledger) = &cell.ledger else { continue };
            if ledger.unaccounted != 0 {
                let said = format!("ledger of {name} DOES NOT BALANCE: {}", equation(ledger));
                text.push_str(&self.words(&said, Paint::Bad));
            } else if ledger.failed_in_use() > 0 {
                text.push_str(&self.words(&format!("{name}: {}", equation(ledger)), Paint::Plain));
            }
            for said in disagreements(ledger) {
                text.push_str(&self.words(&format!("{name}: {said}"), Paint::Bad));
            }
        }
        text
    }

    fn below(&self, words: &str) -> String {
        let below = Cell::left(words, self.width - INDENT - 1).paint(Paint::Faint);
        row(&[Cell::left("", INDENT - 2), below], self.colour)
    }

    fn words(&self, text: &str, paint: Paint) -> String {
        paragraph(text, self.width, 3, paint, self.colour)
    }
}

/// The name by which `--only` finds a cell.
fn key(cell: &TcpCell) -> String {
    format!(
        "{}/{}/{}/{}",
        cell.experiment,
        cell.server,
        cell.step,
        body(cell.body_bytes)
    )
}

/// The figures of a step as they are printed.
struct Figures([String; 9]);

impl Figures {
    const HEADS: [&'static str; 9] = [
        "CPS", "low-high", "to base", "CPU µs", "own", "softirq", "to base", "switches", "limit",
    ];
    const WIDTHS: [usize; 9] = [7, 13, 7, 6, 5, 7, 7, 8, 7];
    /// Those that a terminal of little width still shows.
    const MAIN: [usize; 5] = [0, 2, 3, 6, 7];

    fn of(figures: &TcpFigures, base: Option<&TcpFigures>) -> Self {
        let cpu = figures.cpu_us_per_connection_median;
        let ratio = |own: f64, of: fn(&TcpFigures) -> f64| {
            base.map_or("-".to_owned(), |base| times(own, of(base)))
        };
        let limit = figures
            .limited_by
            .split_once(' ')
            .map_or("", |(first, _)| first);
        Self([
            per_second(figures.cps_median),
            spread(&figures.cps_samples, per_second).unwrap_or_else(|| "-".to_owned()),
            ratio(figures.cps_median, |base| base.cps_median),
            format!("{cpu:.1}"),
            format!("{:.1}", figures.own_us_per_connection_median),
            format!("{:.1}", figures.softirq_us_per_connection_median),
            ratio(cpu, |base| base.cpu_us_per_connection_median),
            per_second(figures.context_switches_per_second_median),
            limit.trim_end_matches(',').to_owned(),
        ])
    }

    fn sentence(&self) -> String {
        let [
            cps,
            _,
            cps_ratio,
            cpu,
            own,
            softirq,
            cpu_ratio,
            switches,
            limit,
        ] = &self.0;
        format!(
            "{cps} CPS ({cps_ratio} base), {cpu} µs per connection ({cpu_ratio} base; own {own}, \
             softirq {softirq}), {switches} context switches/s, limited by {limit}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;

    fn whole(result: &TcpLabResult, width: usize) -> String {
        let files = [("data", Path::new("lab-tcp.json"))];
        TcpLabText::new(width, false).report(result, &files)
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_fact_is_lost() {
        let result = fixture();
        for width in [40, 63, 64, 80, 99, 100, 131, 132, 200] {
            let text = whole(&result, width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for cell in &result.cells {
                if let Some(figures) = &cell.figures {
                    let cps = per_second(figures.cps_median);
                    assert!(
                        flat.contains(&cps),
                        "{width}: {cps} of {}\n{text}",
                        key(cell)
                    );
                }
                if let Some(why) = &cell.skipped {
                    assert!(flat.contains(why), "{width}: {why}\n{text}");
                }
            }
            for fact in ["UNACCOUNTED 0", "data lab-tcp.json", "timed out 1"] {
                assert!(flat.contains(fact), "{width}: {fact}\n{text}");
            }
        }
    }

    #[test]
    fn what_does_not_balance_or_agree_or_passed_by_is_named() {
        let mut result = fixture();
        let text = whole(&result, 400);
        for fault in ["DOES NOT BALANCE", "says 7", "passed by"] {
            assert!(!text.contains(fault), "{text}");
        }
        let cell = &mut result.cells[0];
        let ledger = cell.ledger.as_mut().expect("it was measured");
        ledger.started += 5;
        ledger.unaccounted += 5;
        ledger.witnesses[0].witness = 7;
        let figures = cell.figures.as_mut().expect("it was measured");
        figures.load_ring_share = Some(0.5);
        let text = whole(&result, 400);
        for fault in ["DOES NOT BALANCE", "says 7", "passed by"] {
            assert!(text.contains(fault), "{fault}: {text}");
        }
    }

    #[test]
    fn figures_out_of_any_range_make_a_report_too() {
        let mut result = fixture();
        let odd = [0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY];
        for (cell, odd) in result.cells.iter_mut().zip(odd) {
            let figures = cell.figures.as_mut().expect("it was measured");
            figures.cps_median = odd;
            figures.cps_samples = vec![odd, 1.0];
            figures.server_ring_share = Some(odd);
        }
        assert!(!whole(&result, 100).contains("NaNx"));
        result.cells.clear();
        assert!(whole(&result, 100).contains("0 cells measured"));
    }
}
