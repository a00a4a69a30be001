//! Early drops over more and more queues, as tables for a terminal: one per sender.

use super::BenchText;
use crate::bench::result::SpreadRow;
use crate::report::bench::title;
use crate::report::table::{Cell, Paint, row, unbroken};
use crate::report::{mpps, percent};

/// From this many columns on a row is a line; on less it is a name and a sentence.
const WIDE: usize = 98;

/// What has to be known to read the tables.
const KEY: &str = "Mpps per CPU: packets over the CPU time of the queues' kernel threads, what a CPU \
                   handles that does nothing else. Where nearly all that was offered was dropped, the \
                   sender was the slower one, and Mpps is the sender's.";

impl BenchText {
    /// The tables; nothing if the experiment was not made.
    pub(super) fn spread(&self, rows: &[SpreadRow]) -> String {
        let mut text = String::new();
        if !rows.is_empty() {
            text.push_str(&self.heading("early drops over more and more receive queues"));
            text.push_str(&self.words(KEY, Paint::Faint));
        }
        for of_sender in rows.chunk_by(|one, next| one.sender == next.sender) {
            text.push_str(&self.heading(&of_sender[0].sender));
            if self.width >= WIDE {
                text.push_str(&self.line(headings(), Paint::Faint));
            }
            for one in of_sender.iter().filter(|one| one.skipped.is_none()) {
                text.push_str(&self.spread_row(one));
            }
            for said in skipped(of_sender) {
                text.push_str(&self.words(&said, Paint::Faint));
            }
        }
        text
    }

    fn spread_row(&self, one: &SpreadRow) -> String {
        let name = title(&one.path, &one.variant);
        if self.width >= WIDE {
            return self.line(figures(one, name), Paint::Plain);
        }
        let [_, _, cpus, rate, offered, each, napi, per_cpu, article] = figures(one, String::new());
        let article = match article.as_str() {
            "-" => String::new(),
            article => format!(" (article {article})"),
        };
        let said = format!(
            "{name}, {} on CPUs {cpus}: {} Mpps, {} of offered, each queue {}, NAPI {}, per CPU {}{article}",
            unbroken(&queues(one)),
            unbroken(&rate),
            unbroken(&offered),
            unbroken(&each),
            unbroken(&format!("{napi} ns")),
            unbroken(&format!("{per_cpu} Mpps")),
        );
        self.words(&said, Paint::Plain)
    }

    fn line(&self, texts: [String; 9], paint: Paint) -> String {
        let [
            name,
            queues,
            cpus,
            rate,
            offered,
            each,
            napi,
            per_cpu,
            article,
        ] = texts;
        let cells = [
            Cell::left(name, 25),
            Cell::right(queues, 6),
            Cell::left(cpus, 7),
            Cell::right(rate, 6),
            Cell::right(offered, 7),
            Cell::right(each, 11),
            Cell::right(napi, 4),
            Cell::right(per_cpu, 7),
            Cell::right(article, 7),
        ];
        row(&cells.map(|cell| cell.paint(paint)), self.colour)
    }
}

fn headings() -> [String; 9] {
    let names = [
        "path",
        "queues",
        "CPUs",
        "Mpps",
        "of offered",
        "each queue",
        "NAPI ns",
        "Mpps per CPU",
        "article per CPU",
    ];
    names.map(str::to_owned)
}

/// The figures of a measured row; a dash is one that it does not have.
fn figures(one: &SpreadRow, name: String) -> [String; 9] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        name,
        one.queues.to_string(),
        cpus(one),
        or_dash(one.mpps_median.map(mpps)),
        unbroken(&or_dash(one.delivered_ratio.map(percent))),
        each_queue(one),
        or_dash(one.napi_ns_per_packet.map(|ns| format!("{ns:.0}"))),
        or_dash(one.mpps_per_cpu.map(mpps)),
        or_dash(one.article_mpps_per_cpu.map(mpps)),
    ]
}

fn queues(one: &SpreadRow) -> String {
    match one.queues {
        1 => "1 queue".to_owned(),
        queues => format!("{queues} queues"),
    }
}

/// The rows that did not run, those of one reason in one sentence.
fn skipped(rows: &[SpreadRow]) -> Vec<String> {
    let mut all: Vec<(String, &str, Vec<String>)> = Vec::new();
    for one in rows {
        let Some(why) = &one.skipped else { continue };
        let (queues, name) = (queues(one), title(&one.path, &one.variant));
        let same = |known: &&mut (String, &str, Vec<String>)| (&known.0, known.1) == (&queues, why);
        match all.iter_mut().find(same) {
            Some((_, _, names)) => names.push(name),
            None => all.push((queues, why, vec![name])),
        }
    }
    let said = all
        .into_iter()
        .map(|(queues, why, names)| format!("{queues}, skipped: {why} ({})", names.join(", ")));
    said.collect()
}

/// The CPUs that serve the queues, in the order of the queues: `0,1`; all on one is `1`.
pub(crate) fn cpus(one: &SpreadRow) -> String {
    let mut all = one.queue_cpus.clone();
    all.dedup();
    match all.as_slice() {
        [] => "any".to_owned(),
        all => {
            let names: Vec<String> = all.iter().map(usize::to_string).collect();
            names.join(",")
        }
    }
}

/// The slowest and the fastest queue: `0.48-0.51`.
pub(crate) fn each_queue(one: &SpreadRow) -> String {
    let shown = crate::report::extremes(&one.queue_mpps);
    match shown.map(|[low, high]| (mpps(low), mpps(high))) {
        None => "-".to_owned(),
        Some((low, high)) if low == high => low,
        Some((low, high)) => format!("{low}-{high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::bench::tests::fixture;

    #[test]
    fn every_row_is_there_and_fits_at_every_width() {
        let rows = fixture().spread;
        assert!(rows.iter().any(|row| row.skipped.is_some()));
        for width in [40, 60, 97, 98, 120, 200] {
            let text = BenchText::new(width, false).spread(&rows);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for row in &rows {
                let rate = row.mpps_per_cpu.map(mpps);
                let known = rate.or_else(|| row.skipped.clone());
                let known = known.expect("a row is measured or skipped");
                assert!(flat.contains(&known), "{width}: {known}\n{text}");
                assert!(
                    flat.contains(&row.sender),
                    "{width}: {}\n{text}",
                    row.sender
                );
            }
            assert!(
                flat.contains("1.40"),
                "{width}: the article's figure\n{text}"
            );
        }
        assert_eq!(BenchText::new(100, false).spread(&[]), "");
    }

    #[test]
    fn queues_that_share_a_cpu_are_told_from_others() {
        let row = |queue_cpus: &[usize]| SpreadRow {
            queue_cpus: queue_cpus.to_vec(),
            ..SpreadRow::default()
        };
        assert_eq!(cpus(&row(&[1, 1, 1, 1])), "1");
        assert_eq!(cpus(&row(&[0, 1])), "0,1");
        assert_eq!(cpus(&row(&[])), "any");
        assert_eq!(each_queue(&row(&[])), "-");
    }
}
