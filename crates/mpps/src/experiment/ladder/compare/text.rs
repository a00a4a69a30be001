//! A comparison as a table for a terminal.

use super::{Comparison, RungChange, RungComparison};
use mpps_host::Difference;
use mpps_report::{Block, Column, Quantity, Row, Style, Table, Text, unbroken};

impl Comparison {
    /// The comparison as people read it.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let bad = |said: String| Block::Paragraph(Text::styled(Style::Bad, said));
        let said = self.summary();
        let is_bad = self.worse || !self.not_comparable.is_empty();
        let mut blocks = vec![match is_bad {
            true => bad(said),
            false => Block::paragraph(said),
        }];
        blocks.push(Block::paragraph(format!("A {}   B {}", self.a, self.b)));
        let differences = self.fingerprint_differences.iter();
        blocks.extend(differences.map(|one| bad(difference(one))));
        blocks.extend(self.notes.iter().map(|note| bad(format!("note: {note}"))));
        let unit = if self.is_load { " /s" } else { " Mpps" };
        let columns = [
            Column::figure("", 3),
            Column::words("row", 20).grow(20),
            Column::figure(format!("A{unit}"), 8).priority(2),
            Column::figure(format!("B{unit}"), 8).priority(2),
            Column::figure("B/A", 6),
            Column::figure("noise", 7).priority(1),
            Column::words("verdict", 12),
        ];
        let rungs = self.rungs.iter();
        blocks.push(
            Table::new(columns)
                .rows(rungs.map(|rung| row(rung, self.is_load)))
                .into(),
        );
        blocks
    }

    /// The verdict on all rows, or why there is none.
    fn summary(&self) -> String {
        if !self.not_comparable.is_empty() {
            return format!("not comparable: {}", self.not_comparable.join("; "));
        }
        let count = |verdict| {
            let rungs = self.rungs.iter();
            rungs.filter(|rung| rung.verdict == verdict).count()
        };
        let mut said = format!(
            "{} better, {} worse, {} the same within noise",
            count(RungChange::Better),
            count(RungChange::Worse),
            count(RungChange::Same)
        );
        if self.missing > 0 {
            said += &format!(", {} measured in A are not in B", self.missing);
        }
        said
    }
}

/// A fact of the machine that differs.
pub(super) fn difference(of: &Difference) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or("unknown".to_owned());
    format!(
        "{} differs: A {}, B {}",
        of.name,
        value(&of.a),
        value(&of.b)
    )
}

fn row(rung: &RungComparison, is_load: bool) -> Row {
    let quantity = |mpps: f64| match is_load {
        true => Quantity::PerSecond(mpps * 1e6),
        false => Quantity::Mpps(mpps),
    };
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| quantity(rate).figure());
    let noise = rung.detectable.map_or("-".to_owned(), |share| {
        unbroken(&format!("±{:.0} %", share * 100.0))
    });
    let ratio = rung.ratio;
    let style = match rung.verdict {
        RungChange::Worse => Style::Bad,
        RungChange::Better => Style::Good,
        RungChange::Same => Style::Plain,
        _ => Style::Faint,
    };
    let row = Row::new([
        (*rung.rung).into(),
        (*rung.name).into(),
        rate(rung.a_mpps_median).into(),
        rate(rung.b_mpps_median).into(),
        ratio
            .map_or("-".to_owned(), |ratio| Quantity::Times(ratio).figure())
            .into(),
        noise.into(),
        Text::styled(style, rung.verdict.name()).into(),
    ]);
    let notes = rung.notes.iter();
    notes.fold(row, |row, note| row.below(Text::styled(style, &**note)))
}
