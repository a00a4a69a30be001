//! A comparison as a table for a terminal.

use super::{Comparison, Verdict};
use crate::report::mpps;
use crate::report::table::{Cell, Paint, paragraph, row};

impl Comparison {
    /// The comparison for a terminal of `width` columns.
    pub(crate) fn text(&self, width: usize, colour: bool) -> String {
        let width = width.max(40);
        let words = |text: &str, paint| paragraph(text, width, 3, paint, colour);
        let mut text = words(&format!("A {}   B {}", self.a, self.b), Paint::Plain);
        for difference in &self.fingerprint_differences {
            let value = |value: &Option<String>| value.clone().unwrap_or("unknown".to_owned());
            let said = format!(
                "{} differs: A {}, B {}",
                difference.name,
                value(&difference.a),
                value(&difference.b)
            );
            text.push_str(&words(&said, Paint::Bad));
        }
        for note in &self.notes {
            text.push_str(&words(&format!("note: {note}"), Paint::Bad));
        }
        let table = Table { width, colour };
        let heads = ["A Mpps", "B Mpps", "B/A", "noise", "verdict"];
        text.push_str(&table.line(["", "rung"], heads, Paint::Faint));
        for rung in &self.rungs {
            let figure = |rate: Option<f64>| rate.map_or("-".to_owned(), mpps);
            let noise = rung.detectable.map_or("-".to_owned(), |share| {
                format!("±{:.0}\u{a0}%", share * 100.0)
            });
            let cells = [
                figure(rung.a_mpps_median),
                figure(rung.b_mpps_median),
                rung.ratio
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                noise,
                rung.verdict.name().to_owned(),
            ];
            let paint = match rung.verdict {
                Verdict::Worse => Paint::Bad,
                Verdict::Better => Paint::Good,
                Verdict::Same => Paint::Plain,
                _ => Paint::Faint,
            };
            let cells = cells.each_ref().map(String::as_str);
            text.push_str(&table.line([&rung.rung, &rung.name], cells, paint));
            for note in &rung.notes {
                let cells = [Cell::left("", 3), Cell::left(note, width - 6).paint(paint)];
                text.push_str(&row(&cells, colour));
            }
        }
        let count = |verdict| {
            self.rungs
                .iter()
                .filter(|rung| rung.verdict == verdict)
                .count()
        };
        let said = format!(
            "{} better, {} worse, {} the same within noise",
            count(Verdict::Better),
            count(Verdict::Worse),
            count(Verdict::Same)
        );
        text.push_str(&words(
            &said,
            if self.worse { Paint::Bad } else { Paint::Plain },
        ));
        text
    }
}

/// The columns of a comparison.
#[derive(Debug, Clone, Copy)]
struct Table {
    width: usize,
    colour: bool,
}

impl Table {
    /// One row; where there is no room for the name beside the figures, it gets a line of its own.
    fn line(&self, [number, name]: [&str; 2], figures: [&str; 5], paint: Paint) -> String {
        let [a, b, ratio, noise, verdict] = figures;
        let figures = [
            Cell::right(a, 8),
            Cell::right(b, 8),
            Cell::right(ratio, 6),
            Cell::right(noise, 7),
            Cell::left(verdict, 12).paint(paint),
        ];
        // The widths of the figures and of the number, and two blanks after each column.
        let room = self
            .width
            .saturating_sub(1 + 3 + 2 + 2 + 8 + 2 + 8 + 2 + 6 + 2 + 7 + 2 + 12);
        if room < 20 {
            let head = [Cell::right(number, 3), Cell::left(name, self.width - 6)];
            let indent = [Cell::left("", 1)];
            let figures: Vec<_> = indent.into_iter().chain(figures).collect();
            return row(&head, self.colour) + &row(&figures, self.colour);
        }
        let head = [Cell::right(number, 3), Cell::left(name, room.min(40))];
        let cells: Vec<_> = head.into_iter().chain(figures).collect();
        row(&cells, self.colour)
    }
}
