//! The ladder as a table for a terminal.
//!
//! Rows are printed while the ladder runs, so the columns follow from the terminal's width alone.

use super::table::{Cell, Paint, paragraph, row, unbroken};
use super::{
    Shares, article, disagreements, fastest, fault, hard_numbers, ledgers, mpps, percent, sender,
};
use crate::result::{LabResult, RungResult};
use mpps_host::Grouped;
use std::fmt::Write as _;
use std::path::Path;

/// Below this many columns a rung takes a line of figures and a line of words.
const WIDE: usize = 120;

/// Width of the widest rate: `11.84 Mpps`.
const RATE: usize = 10;

/// Where the words below a figure line begin.
const INDENT: usize = 6;

/// Renders the ladder for a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text {
    width: usize,
    colour: bool,
}

impl Text {
    /// For a terminal of `width` columns; fewer than 40 are taken as 40.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Self {
            width: width.max(40),
            colour,
        }
    }

    /// What is printed before the first rung: the placement, and the names of the columns.
    pub(crate) fn header(&self, result: &LabResult) -> String {
        let mut text = self.words(&result.placement, Paint::Plain);
        if let Some(sender) = &result.sender {
            text.push_str(&self.words(&format!("sender: {sender}"), Paint::Plain));
        }
        let names = Names::of(self.width);
        let cells = match names {
            Names::Wide {
                name,
                lost,
                limited,
            } => vec![
                Cell::right("", 3),
                Cell::left("rung", name),
                Cell::right("received", RATE),
                Cell::right("of offered", 10),
                Cell::left("lost where", lost),
                Cell::left("article 2015", 12),
                Cell::left("limited by", limited),
            ],
            Names::Narrow { name } => vec![
                Cell::right("", 3),
                Cell::left("rung", name),
                Cell::right("received", RATE),
                Cell::right("of offered", 10),
            ],
        };
        let cells: Vec<_> = cells
            .into_iter()
            .map(|cell| cell.paint(Paint::Faint))
            .collect();
        text.push_str(&row(&cells, self.colour));
        text
    }

    /// One rung, measured or skipped.
    pub(crate) fn row(&self, rung: &RungResult) -> String {
        if let Some(reason) = &rung.skipped {
            return self.skipped(rung, reason);
        }
        let shares = Shares::of_rung(rung);
        let received = rung
            .mpps_median
            .map_or("-".to_owned(), |rate| format!("{} Mpps", mpps(rate)));
        let of_offered = shares.as_ref().map_or("-".to_owned(), |shares| {
            percent(shares.share(shares.delivered))
        });
        let lost = |width| {
            shares
                .as_ref()
                .map_or(String::new(), |shares| lost_where(shares, width))
        };
        let limit = limit(rung);
        let range = rung.article_mpps.map(article);
        let figures = |name| {
            vec![
                Cell::right(&rung.rung, 3),
                Cell::left(&rung.name, name),
                Cell::right(unbroken(&received), RATE).paint(Paint::Strong),
                Cell::right(unbroken(&of_offered), 10),
            ]
        };
        match Names::of(self.width) {
            Names::Wide {
                name,
                lost: room,
                limited,
            } => {
                let mut cells = figures(name);
                cells.push(Cell::left(lost(room), room));
                cells.push(Cell::left(range.unwrap_or_default(), 12).paint(Paint::Faint));
                cells.push(Cell::left(limit, limited));
                row(&cells, self.colour)
            }
            Names::Narrow { name } => {
                let mut words = Vec::new();
                let lost = lost(self.width - INDENT - 1);
                if !lost.is_empty() {
                    words.push(format!("lost: {lost}"));
                }
                if !limit.is_empty() {
                    words.push(format!("limited by {limit}"));
                }
                if let Some(range) = range {
                    words.push(unbroken(&format!("article 2015: {range}")));
                }
                let below =
                    Cell::left(words.join("; "), self.width - INDENT - 1).paint(Paint::Faint);
                row(&figures(name), self.colour)
                    + &row(&[Cell::left("", INDENT - 2), below], self.colour)
            }
        }
    }

    /// What is printed after the last rung; `files` are kinds and paths: `report`, `lab.html`.
    pub(crate) fn closing(&self, result: &LabResult, files: &[(&str, &Path)]) -> String {
        let mut text = String::from("\n");
        text.push_str(&self.fastest_ledger(result));
        text.push_str(&self.doubts(result));
        text.push_str(&self.words(&totals(result), Paint::Plain));
        for sentence in sender::sentences(&result.rungs) {
            text.push_str(&self.words(&sentence, Paint::Plain));
        }
        if let Some(cost) = result.drop_probe_ns {
            let said = format!(
                "the drop probe costs {cost:.0} ns per dropped packet: rates were taken with it off, \
                 the ledger of each rung with it on"
            );
            text.push_str(&self.words(&said, Paint::Plain));
        }
        text.push_str(&self.notes(result));
        if result.quick {
            text.push_str(&self.words(
                "a quick run: too short to be compared with another",
                Paint::Bad,
            ));
        }
        if !result.complete {
            text.push_str(&self.words(
                "ended before its last rung: this is what was known by then",
                Paint::Bad,
            ));
        }
        let mut written = String::new();
        for (kind, path) in files {
            // Writing to a string cannot fail.
            let _ = write!(written, "{kind} {}   ", path.display());
        }
        if !files.is_empty() {
            text.push_str(&format!(" {}\n", written.trim_end()));
        }
        text
    }

    fn skipped(&self, rung: &RungResult, reason: &str) -> String {
        let (Names::Wide { name, .. } | Names::Narrow { name }) = Names::of(self.width);
        let said = format!("skipped: {reason}");
        let rest = self.width.saturating_sub(8 + name);
        if matches!(Names::of(self.width), Names::Wide { .. }) {
            let cells = [
                Cell::right(&rung.rung, 3),
                Cell::left(&rung.name, name),
                Cell::left(said, rest),
            ];
            return row(&cells.map(|cell| cell.paint(Paint::Faint)), self.colour);
        }
        let first = [
            Cell::right(&rung.rung, 3),
            Cell::left(&rung.name, self.width - INDENT - 1),
        ];
        let below = [
            Cell::left("", INDENT - 2),
            Cell::left(said, self.width - INDENT - 1),
        ];
        row(&first.map(|cell| cell.paint(Paint::Faint)), self.colour)
            + &row(&below.map(|cell| cell.paint(Paint::Faint)), self.colour)
    }

    fn fastest_ledger(&self, result: &LabResult) -> String {
        let Some((rung, ledger)) =
            fastest(&result.rungs).and_then(|rung| Some((rung, rung.ledger.as_ref()?)))
        else {
            return String::new();
        };
        let paint = if ledger.balances() {
            Paint::Good
        } else {
            Paint::Bad
        };
        self.words(
            &format!(
                "ledger of rung {}: {}",
                rung.rung,
                hard_numbers(&ledger.to_string())
            ),
            paint,
        )
    }

    /// Every ledger that does not balance and every witness that disagrees.
    fn doubts(&self, result: &LabResult) -> String {
        let best = fastest(&result.rungs).map(|rung| &rung.rung);
        let mut text = String::new();
        for rung in &result.rungs {
            for (number, ledger) in ledgers(rung).enumerate() {
                let first = number == 0 && rung.ledger.is_some();
                let shown = first && best == Some(&rung.rung);
                let fault = fault(ledger).filter(|_| (first || ledger.is_exact()) && !shown);
                if let Some(fault) = fault {
                    let repeat = number + usize::from(rung.ledger.is_none());
                    let which = if first {
                        String::new()
                    } else {
                        format!(", repeat {repeat},")
                    };
                    let said = format!(
                        "ledger of rung {}{which} {fault}: {}",
                        rung.rung,
                        hard_numbers(&ledger.to_string())
                    );
                    text.push_str(&self.words(&said, Paint::Bad));
                }
                for said in disagreements(ledger) {
                    let said = format!("rung {}: {said}", rung.rung);
                    text.push_str(&self.words(&said, Paint::Bad));
                }
            }
        }
        text
    }

    /// The notes of the run, then those of its rungs: one that several rungs share is printed once.
    fn notes(&self, result: &LabResult) -> String {
        let mut text = String::new();
        for note in &result.notes {
            text.push_str(&self.words(&format!("note: {note}"), Paint::Faint));
        }
        let mut shared: Vec<(&str, Vec<&str>)> = Vec::new();
        for rung in &result.rungs {
            for note in &rung.notes {
                match shared.iter_mut().find(|(known, _)| known == note) {
                    Some((_, rungs)) => rungs.push(&rung.rung),
                    None => shared.push((note, vec![&rung.rung])),
                }
            }
        }
        for (note, rungs) in shared {
            let plural = if rungs.len() == 1 { "" } else { "s" };
            let said = format!("note on rung{plural} {}: {note}", rungs.join(", "));
            text.push_str(&self.words(&said, Paint::Faint));
        }
        text
    }

    fn words(&self, text: &str, paint: Paint) -> String {
        paragraph(text, self.width, 3, paint, self.colour)
    }
}

/// Which columns there are room for, and how wide the ones with words are.
#[derive(Debug, Clone, Copy)]
enum Names {
    Wide {
        name: usize,
        lost: usize,
        limited: usize,
    },
    Narrow {
        name: usize,
    },
}

impl Names {
    fn of(width: usize) -> Self {
        // One blank, and the columns of figures with two blanks after each.
        let figures = 1 + 3 + 2 + 2 + RATE + 2 + 10 + 2;
        if width < WIDE {
            return Self::Narrow {
                name: width - figures,
            };
        }
        let rest = width - figures - 2 - 12 - 2;
        // Room for the names and for `socket buffer full 39.0 %,`; a third each of what is more.
        let more = (width - WIDE) / 3;
        let name = 25 + more.min(12);
        let lost = 26 + more.min(20);
        Self::Wide {
            name,
            lost,
            limited: (rest - name - lost).min(60),
        }
    }
}

/// What was full, and who sent if that is not who sends on every rung at first.
fn limit(rung: &RungResult) -> String {
    let limit = rung.limited_by.as_ref().map_or("", |limit| &limit.what);
    let sender = rung.sender.as_ref().filter(|sender| !sender.usual);
    match sender {
        Some(sender) => format!("{limit}; sent by {}", sender.name),
        None => limit.to_owned(),
    }
}

/// The two largest losses with their shares, each unbroken if it fits, and how many more there are.
fn lost_where(shares: &Shares, width: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for loss in shares.losses.iter().take(2) {
        let share = unbroken(&percent(shares.share(loss.count)));
        let whole = format!("{} {share}", loss.reason);
        let fits = whole.chars().count() < width;
        parts.push(if fits { unbroken(&whole) } else { whole });
    }
    if shares.losses.len() > 2 {
        parts.push(unbroken(&format!("+{} more", shares.losses.len() - 2)));
    }
    if shares.unaccounted != 0 {
        parts.push(unbroken(&format!("UNACCOUNTED {}", shares.unaccounted)));
    }
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    parts.join(", ")
}

/// How many rungs ran and how many of their ledgers balance.
fn totals(result: &LabResult) -> String {
    let skipped = result
        .rungs
        .iter()
        .filter(|rung| rung.skipped.is_some())
        .count();
    let all: Vec<_> = result.rungs.iter().flat_map(ledgers).collect();
    let exact = all.iter().filter(|ledger| ledger.is_exact()).count();
    let balanced = all.iter().filter(|ledger| ledger.balances()).count();
    let inexact = match all.len() - exact {
        0 => String::new(),
        count => format!(
            "; {count} of rate runs are inexact: without the drop probe a dropped train counts as one"
        ),
    };
    format!(
        "{} rungs measured, {skipped} skipped; {balanced} of {exact} exact ledgers balance to zero, \
         {} datagrams offered in all{inexact}",
        result.rungs.len() - skipped,
        unbroken(&grouped(Shares::sum(all.iter().copied()).offered)),
    )
}

/// A number of any size with its digits in groups of three.
fn grouped(number: u128) -> String {
    match u64::try_from(number) {
        Ok(number) => Grouped(number).to_string(),
        Err(_) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::fixture;

    fn whole(text: Text, result: &LabResult) -> String {
        let rows: String = result.rungs.iter().map(|rung| text.row(rung)).collect();
        text.header(result) + &rows + &text.closing(result, &[("data", Path::new("lab.json"))])
    }

    fn row_of(number: &str, width: usize) -> String {
        let result = fixture();
        let rung = result.rungs.iter().find(|rung| rung.rung == number);
        Text::new(width, false).row(rung.expect("the fixture has it"))
    }

    #[test]
    fn a_row_says_who_sent_unless_it_is_the_usual_one() {
        let mut rung = fixture().rungs.remove(1);
        rung.sender = Some(crate::result::RungSender {
            name: "xdp".to_owned(),
            ..Default::default()
        });
        for width in [80, 200] {
            let row = Text::new(width, false).row(&rung);
            let words: Vec<&str> = row.split_whitespace().collect();
            let said = words.join(" ");
            assert!(said.contains("application CPU 1; sent by xdp"), "{row}");
        }
        if let Some(sender) = &mut rung.sender {
            sender.usual = true;
        }
        assert!(!Text::new(200, false).row(&rung).contains("sent by"));
    }

    #[test]
    fn a_wide_row_has_all_columns() {
        assert_eq!(
            row_of("2", 120),
            "   2  one socket, pinned          0.38 Mpps      66.0 %  socket buffer full 34.0 %   0.36-0.37     \
             application CPU 1\n"
        );
    }

    #[test]
    fn a_narrow_row_says_the_same_in_two_lines() {
        assert_eq!(
            row_of("12", 80),
            "  12  GSO sender to GRO receiver                        11.87 Mpps     100.0 %\n       \
             lost: nothing; limited by sender\n"
        );
    }

    #[test]
    fn a_third_loss_is_counted_and_a_skipped_rung_says_why() {
        assert!(row_of("9", 160).contains("+1 more"), "{}", row_of("9", 160));
        for width in [60, 120] {
            assert!(row_of("4d", width).contains("skipped: this host has one NUMA node"));
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_fact_is_lost() {
        let result = fixture();
        for width in [60, 72, 99, 100, 119, 120, 140, 250] {
            let text = whole(Text::new(width, false), &result);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
            for fact in [
                "0.00-0.43",
                "0.22 Mpps",
                "24.0 %",
                "68.4 %",
                "UNACCOUNTED 37",
                "data lab.json",
            ] {
                assert!(text.contains(fact), "{width}: {fact} is missing in\n{text}");
            }
        }
    }

    #[test]
    fn a_colour_code_comes_only_if_asked_for() {
        let result = fixture();
        let (plain, colour) = (
            whole(Text::new(120, false), &result),
            whole(Text::new(120, true), &result),
        );
        assert!(!plain.contains('\x1b'));
        let codes = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"];
        assert!(codes.iter().all(|code| colour.contains(code)));
        assert_eq!(
            codes
                .iter()
                .fold(colour, |text, code| text.replace(code, "")),
            plain
        );
    }

    #[test]
    fn the_closing_lines_name_what_does_not_balance() {
        let text = Text::new(250, false).closing(&fixture(), &[]);
        assert!(text.contains("ledger of rung 12: offered"));
        assert!(text.contains("ledger of rung 4b DOES NOT BALANCE: offered"));
        assert!(
            text.contains("rung 4b: drop reason SOCKET_RCVBUFF disagrees about socket buffer full")
        );
        assert_eq!(text.matches("DOES NOT BALANCE").count(), 1);
        assert!(
            text.contains("13 rungs measured, 2 skipped; 77 of 78 exact ledgers balance to zero")
        );
        assert!(!text.contains("quick"));
    }

    #[test]
    fn a_quick_run_and_an_unfinished_one_say_so() {
        let mut result = fixture();
        (result.quick, result.complete) = (true, false);
        result.rungs.clear();
        let text = Text::new(100, false).closing(&result, &[]);
        assert!(text.contains("a quick run") && text.contains("ended before its last rung"));
        assert!(!text.contains("ledger of rung"));
    }

    #[test]
    fn a_repeat_that_does_not_balance_is_named_by_its_number() {
        let mut result = fixture();
        let ledger = &mut result.rungs[1].sample_ledgers[2];
        ledger.offered += 3;
        ledger.unaccounted += 3;
        let text = Text::new(250, false).closing(&result, &[]);
        assert!(
            text.contains("ledger of rung 2, repeat 3, DOES NOT BALANCE"),
            "{text}"
        );
    }
}
