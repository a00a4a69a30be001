//! `mpps backends IF`: every technique, and whether this interface has it.

use super::SCHEMA;
use crate::output::{self, Stream};
use crate::report::table::{self, Cell, Paint};
use anyhow::Result;
use mpps_host::technique::{Facts, Usable};
use mpps_host::{TECHNIQUES, Technique, Verdict};
use mpps_io::backend::{self, Support};
use serde::Serialize;

/// The widths of all columns but the last.
const WIDTHS: [usize; 4] = [17, 6, 9, 13];

/// Below this width the last column would be too narrow to read: a technique is a paragraph then.
const TABLE_WIDTH_MIN: usize = 92;

/// Prints the table, or JSON.
pub(super) fn run(name: &str, json: bool) -> Result<()> {
    let facts = Facts::gather(name)?;
    let techniques: Vec<Row> = TECHNIQUES.iter().map(|t| Row::new(t, &facts)).collect();
    if json {
        let whole = Whole {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            interface: name,
            techniques,
            facts: &facts,
        };
        output::line(Stream::Out, &serde_json::to_string_pretty(&whole)?)?;
    } else {
        let text = text(&techniques, output::width(), output::colour());
        output::line(Stream::Out, text.trim_end())?;
    }
    Ok(())
}

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Whole<'a> {
    schema: &'static str,
    version: &'static str,
    interface: &'a str,
    techniques: Vec<Row>,
    facts: &'a Facts,
}

/// One technique.
#[derive(Debug, Serialize)]
struct Row {
    technique: &'static str,
    backend: Option<&'static str>,
    #[serde(flatten)]
    verdict: Verdict,
}

impl Row {
    fn new(technique: &Technique, facts: &Facts) -> Self {
        let verdict = technique.assess(facts);
        let verdict = match technique.backend {
            Some(name) => with_backend(verdict, name),
            None => verdict,
        };
        Self {
            technique: technique.name,
            backend: technique.backend,
            verdict,
        }
    }
}

/// The verdict of the host and that of this build together. What the build lacks comes first,
/// because nothing helps before that, unless nothing helps at all.
fn with_backend(verdict: Verdict, name: &str) -> Verdict {
    let never = verdict.usable == Usable::No && verdict.remedy.is_none();
    let (why, remedy) = match backend::find(name).map(|backend| (backend.probe)()) {
        _ if never => return verdict,
        Ok(Support::Yes) => return verdict,
        Ok(Support::No { why, remedy }) => (why, Some(remedy)),
        Err(_) => (format!("this build has no backend {name}"), None),
    };
    Verdict {
        usable: Usable::No,
        why,
        remedy,
        ..verdict
    }
}

fn text(rows: &[Row], width: usize, colour: bool) -> String {
    if width < TABLE_WIDTH_MIN {
        return rows.iter().map(|row| stacked(row, width, colour)).collect();
    }
    let room = width - WIDTHS.iter().sum::<usize>() - 2 * WIDTHS.len() - 2;
    let line = |texts: [String; 4], why: &str, usable: Paint| {
        let columns = texts.into_iter().zip(WIDTHS);
        let mut cells: Vec<Cell> = columns
            .map(|(text, width)| Cell::left(text, width))
            .collect();
        cells[1].paint = usable;
        cells.push(Cell::left(why, room));
        table::row(&cells, colour)
    };
    let headings = ["technique", "usable", "packets", "takes"].map(str::to_owned);
    let mut text = line(headings, "why", Paint::Plain);
    for row in rows {
        let verdict = &row.verdict;
        let cells = [
            row.technique.to_owned(),
            verdict.usable.to_string(),
            verdict.copies.to_string(),
            verdict.takes.to_string(),
        ];
        text += &line(cells, &verdict.why, paint(verdict.usable));
        text += &remedy(verdict, width, WIDTHS[0] + 3, colour);
    }
    text
}

/// One technique as a paragraph.
fn stacked(row: &Row, width: usize, colour: bool) -> String {
    let verdict = &row.verdict;
    let head = format!(
        "{}: {}; {}, takes {}",
        row.technique, verdict.usable, verdict.copies, verdict.takes
    );
    let mut text = table::paragraph(&head, width, 3, paint(verdict.usable), colour);
    for line in table::wrap(&verdict.why, width.saturating_sub(4)) {
        text += &format!("   {line}\n");
    }
    text + &remedy(verdict, width, 3, colour)
}

fn remedy(verdict: &Verdict, width: usize, indent: usize, colour: bool) -> String {
    let Some(remedy) = &verdict.remedy else {
        return String::new();
    };
    let lines = table::wrap(remedy, width.saturating_sub(indent + 3));
    let mark = |number| if number == 0 { "→" } else { " " };
    lines
        .iter()
        .enumerate()
        .map(|(number, line)| {
            let line = Paint::Strong.on(line, colour);
            format!("{}{} {line}\n", " ".repeat(indent), mark(number))
        })
        .collect()
}

fn paint(usable: Usable) -> Paint {
    match usable {
        Usable::Yes => Paint::Good,
        Usable::No => Paint::Bad,
        Usable::Unknown => Paint::Faint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::technique::{Copies, Takes};

    fn row(usable: Usable, remedy: Option<&str>) -> Row {
        Row {
            technique: "AF_XDP native",
            backend: Some("af_xdp"),
            verdict: Verdict {
                usable,
                why: "driver veth, xdp-features: basic, redirect; 4 receive queues".to_owned(),
                remedy: remedy.map(str::to_owned),
                takes: Takes::Flow,
                copies: Copies::Copy,
            },
        }
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let command = "mpps recv --backend af_xdp --xdp generic --interface near ADDR:PORT";
        let rows = [row(Usable::Yes, None), row(Usable::No, Some(command))];
        for width in [24, 40, 91, 92, 100, 200] {
            let text = text(&rows, width, false);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {widest:?}\n{text}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            let all: String = text.lines().collect();
            assert!(letters(&all).contains(&letters(command)), "{text}");
        }
    }

    #[test]
    fn what_the_build_lacks_comes_first_unless_nothing_helps() {
        let yes = row(Usable::Yes, None).verdict;
        let lacking = with_backend(yes.clone(), "no-such-backend");
        assert_eq!(lacking.usable, Usable::No);
        assert!(lacking.why.contains("no-such-backend"));
        assert_eq!(with_backend(yes.clone(), "recv"), yes);
        let never = row(Usable::No, None).verdict;
        assert_eq!(with_backend(never.clone(), "no-such-backend"), never);
    }
}
