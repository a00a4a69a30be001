//! The answer of a run: a line for each rung that ran, and the few lines that must be read with them.

use super::{Files, about, balanced, ledgers, with_work, work_column};
use crate::experiment::ladder::result::{LabResult, RungNeed, RungResult, TakenBy};
use crate::measure::document::together;
use crate::udp::runs::Runs;
use mpps_os::text::ShellWord;
use mpps_report::{Block, Column, Quantity, Row, Style, Table, Text};

/// The columns, for 80 characters.
pub(crate) fn columns(has_work: bool) -> Table {
    let columns = [
        Column::figure("", 3),
        Column::words("rung", 20).grow(13),
        Column::figure("Mpps", 6),
        Column::figure("min-max", 11).priority(1),
        Column::words("lost at", 18).priority(2),
    ];
    Table::new(columns.into_iter().chain(work_column(has_work)))
}

/// The row of a rung; none if it was skipped.
pub(crate) fn row(result: &LabResult, rung: &RungResult) -> Option<Row> {
    let rate = rung.runs.rate().filter(|_| rung.runs.skipped.is_none())?;
    let lost = rung.runs.totals().map(|totals| totals.lost_most());
    let cells = [
        (*rung.rung).into(),
        (*rung.name).into(),
        Text::new().strong(rate.figure()).into(),
        rung.runs.spread().unwrap_or_default().into(),
        lost.unwrap_or_default().into(),
    ];
    Some(Row::new(cells.into_iter().chain(with_work(result, rung))))
}

/// The lines below the table. `has_reasons` gives each skipped rung its reason.
pub(crate) fn closing(result: &LabResult, written: Files<'_>, has_reasons: bool) -> Vec<Block> {
    let skipped = match has_reasons {
        true => reasons(result),
        false => lacks(result).into_iter().collect(),
    };
    let mut blocks: Vec<Block> = skipped.into_iter().map(Block::paragraph).collect();
    let has_ledgers = ledgers(result).next().is_some();
    blocks.extend(has_ledgers.then(|| Block::Paragraph(ledgers_line(result))));
    blocks.extend(doubts(result));
    blocks.extend(about(result).flags());
    let worked = result.work.iter().filter_map(|work| {
        let rates = highest(result, |rung| rung.with_work.as_ref());
        Some(format!("with {work} of work: {}", rates?))
    });
    let said = here(result).into_iter().chain(worked);
    blocks.extend(said.map(|text| Block::Sentences(vec![text.into()])));
    blocks.push(Block::paragraph(next(written)));
    blocks
}

/// The skipped rungs by what they need.
fn lacks(result: &LabResult) -> Option<String> {
    let kinds = [
        (Some(RungNeed::Cpus), " need more CPUs"),
        (None, " (--why)"),
        (Some(RungNeed::Nft), " need nft"),
        (Some(RungNeed::Root), " need root"),
    ];
    let groups = kinds.into_iter().filter_map(|(needs, words)| {
        let is_it = |rung: &RungResult| rung.runs.skipped.is_some() && rung.needs == needs;
        Some(numbers(result, is_it)? + words)
    });
    let groups: Vec<String> = groups.collect();
    (!groups.is_empty()).then(|| format!("skipped: {}", groups.join("; ")))
}

/// Why rungs were skipped, a line for each reason.
fn reasons(result: &LabResult) -> Vec<String> {
    let rungs = result.rungs.iter();
    let skipped = rungs.filter_map(|rung| Some((&*rung.rung, rung.runs.skipped.as_ref()?)));
    let reasons = together(skipped).into_iter();
    reasons
        .map(|(why, rungs)| format!("skipped {}: {why}", rungs.join(", ")))
        .collect()
}

/// How many ledgers balance, and the rungs whose ledgers do not or cannot.
fn ledgers_line(result: &LabResult) -> Text {
    let balanced = balanced(result);
    let mut text = Text::new().flag(balanced.is_good(), balanced.exact_said());
    let is_wrong = |rung: &RungResult| {
        let mut ledgers = rung.ledgers();
        ledgers.any(|ledger| ledger.is_exact() && !ledger.balances())
    };
    if let Some(rungs) = numbers(result, is_wrong) {
        text = text.flag(false, format!("; UNACCOUNTED on {rungs}"));
    }
    let inexact = ledgers(result).filter(|ledger| !ledger.is_exact()).count();
    let is_inexact = |rung: &RungResult| rung.ledgers().any(|ledger| !ledger.is_exact());
    match numbers(result, is_inexact) {
        Some(rungs) => text.plain(format!(
            "; {inexact} inexact ({rungs}): dropped trains count as one"
        )),
        None => text,
    }
}

/// Facts without which the figures would mislead, a line each.
pub(super) fn doubts(result: &LabResult) -> Vec<Block> {
    let repeats = |rung: &RungResult| rung.runs.mpps_samples.len();
    let most = result.rungs.iter().map(repeats).max();
    let disagrees = |rung: &RungResult| {
        let exact = rung.runs.ledgers().filter(|ledger| ledger.is_exact());
        let mut witnesses = exact.flat_map(|ledger| &ledger.witnesses);
        witnesses.any(|witness| !witness.agrees())
    };
    let is_slow = |rung: &RungResult| {
        let sender = rung.sender.as_ref();
        rung.taken_by != TakenBy::Rule && sender.is_some_and(|sender| !sender.outran)
    };
    let is_anothers = |rung: &RungResult| rung.limited_by.as_ref().is_some_and(|it| it.by_others);
    let has_failed = |rung: &RungResult| {
        let verdict = rung.verdict.as_ref();
        verdict.is_some_and(|verdict| verdict.holds == Some(false))
    };
    let is_shorter = |rung: &RungResult| {
        result.complete && rung.runs.skipped.is_none() && Some(repeats(rung)) != most
    };
    type Doubt<'a> = (&'a dyn Fn(&RungResult) -> bool, &'a str);
    let kinds: [Doubt<'_>; 6] = [
        (&disagrees, "a second count disagrees with the ledger on"),
        (
            &is_slow,
            "the sender was the limit, a receiver may do more:",
        ),
        (&is_anothers, "slowed by other programs or a CPU quota:"),
        (&|rung| rung.unplaced, "queues without a CPU of their own:"),
        (&has_failed, "lesson not seen here:"),
        (&is_shorter, "ended early, with fewer repeats:"),
    ];
    let kinds = kinds.into_iter();
    kinds
        .filter_map(|(is_it, words)| Some(format!("{words} {}", numbers(result, is_it)?)))
        .map(|text| Block::Paragraph(Text::styled(Style::Bad, text)))
        .collect()
}

/// The highest rates of the best known ways to receive, and the ceiling.
fn here(result: &LabResult) -> Option<String> {
    let rates = highest(result, |rung| Some(&rung.runs));
    let ceiling = result.answer.as_ref().and_then(|it| it.ceiling.as_ref());
    let ceiling = ceiling.map(|top| format!("ceiling {}", Quantity::Mpps(top.mpps).figure()));
    let parts: Vec<String> = rates.into_iter().chain(ceiling).collect();
    (!parts.is_empty()).then(|| format!("here: {}", parts.join("; ")))
}

/// The highest rates of the best known ways to receive, in these runs of each rung.
fn highest(result: &LabResult, runs: impl Fn(&RungResult) -> Option<&Runs>) -> Option<String> {
    let rate = |name: &str| {
        let is_it = |rung: &&RungResult| way(rung) == Some(name);
        let rates = result.rungs.iter().filter(is_it);
        let rates = rates.filter_map(|rung| runs(rung)?.mpps_median);
        let highest = rates.max_by(f64::total_cmp)?;
        Some(format!("{name} {}", Quantity::Mpps(highest).figure()))
    };
    let rates = ["recvmmsg", "GRO", "AF_XDP"].into_iter().filter_map(rate);
    let rates: Vec<String> = rates.collect();
    (!rates.is_empty()).then(|| format!("{} Mpps", rates.join(", ")))
}

/// The name of the way to receive that a rung shows.
fn way(rung: &RungResult) -> Option<&'static str> {
    let path = rung.paths.first()?;
    match (&*path.name, &*path.variant) {
        ("recvmmsg", "GRO") => Some("GRO"),
        ("recvmmsg", _) => Some("recvmmsg"),
        ("af_xdp", _) => Some("AF_XDP"),
        _ => None,
    }
}

fn next(written: Files<'_>) -> String {
    let notes = written.iter().map(|(kind, path)| {
        let path = path.display().to_string();
        let path = ShellWord::operand(&path);
        match *kind {
            "data" => format!("mpps report {path}"),
            _ => path.to_string(),
        }
    });
    let notes: Vec<String> = notes.collect();
    let all = if notes.is_empty() {
        "-v"
    } else {
        &notes.join(", ")
    };
    format!("next: mpps doctor --port P (your server); notes: {all}")
}

/// The numbers of these rungs, three or more in a row as a range; none if there are none.
fn numbers(result: &LabResult, is_it: impl Fn(&RungResult) -> bool) -> Option<String> {
    let rows = result.rungs.chunk_by(|a, b| is_it(a) == is_it(b));
    let rows = rows.filter(|rungs| is_it(&rungs[0]));
    let said = rows.map(|rungs| match rungs {
        [first, _, .., last] => format!("{}-{}", first.rung, last.rung),
        rungs => {
            let each: Vec<&str> = rungs.iter().map(|rung| &*rung.rung).collect();
            each.join(", ")
        }
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ladder::evidence::{LessonEvidence, LessonVerdict};
    use crate::experiment::ladder::result::tests::fixture;
    use crate::experiment::ladder::result::{LabBody, LadderAnswer, RungPath, RungSender};
    use crate::udp::limit::Limit;
    use mpps_host::{Ledger, Loss, Station};
    use mpps_report::Terminal;
    use std::path::Path;

    fn skipped(number: &str, needs: Option<RungNeed>) -> RungResult {
        RungResult {
            rung: number.to_owned(),
            runs: Runs::skipped(Some("not here".to_owned())),
            needs,
            ..RungResult::default()
        }
    }

    fn measured(number: &str, path: (&str, &str), mpps: f64) -> RungResult {
        let mut ledger = Ledger::new(1000, 600, 0);
        ledger.lose(Loss::new(
            Station::Wire,
            "receive ring full",
            400,
            "counter",
        ));
        RungResult {
            rung: number.to_owned(),
            name: "connections not tracked (notrack)".to_owned(),
            runs: Runs {
                mpps_median: Some(mpps),
                mpps_samples: vec![mpps - 0.1, mpps, mpps + 0.1],
                sample_ledgers: vec![ledger],
                ..Runs::default()
            },
            paths: vec![RungPath {
                name: path.0.to_owned(),
                variant: path.1.to_owned(),
                mpps_median: Some(mpps),
                skipped: None,
            }],
            ..RungResult::default()
        }
    }

    fn ladder() -> LabResult {
        let cpus = Some(RungNeed::Cpus);
        let mut ceiling = measured("18", ("xdp_drop", ""), 14.44);
        ceiling.taken_by = TakenBy::Rule;
        let rungs = vec![
            measured("2", ("recvmmsg", "block"), 0.51),
            skipped("4b", None),
            skipped("5", cpus),
            skipped("6", cpus),
            skipped("7", cpus),
            skipped("8b", cpus),
            measured("11", ("recvmmsg", "GRO"), 1.07),
            skipped("15", Some(RungNeed::Root)),
            measured("16", ("af_xdp", "spin"), 2.9),
            ceiling,
        ];
        let answer = Some(LadderAnswer::of(&rungs));
        let mut result = fixture();
        result.body = LabBody {
            rungs,
            answer,
            ..LabBody::default()
        };
        result
    }

    fn lines(result: &LabResult, width: usize) -> String {
        let terminal = Terminal::new(width, false);
        let rows = result.rungs.iter().filter_map(|rung| row(result, rung));
        let rows: String = rows
            .map(|row| terminal.row(&columns(result.work.is_some()), &row))
            .collect();
        let files = [("report", "lab.html"), ("data", "lab.json")];
        let files = files.map(|(kind, path)| (kind, Path::new(path)));
        let closing = terminal.blocks(&closing(result, &files, false));
        (terminal.head(&columns(result.work.is_some())) + &rows + &closing).replace('\u{a0}', " ")
    }

    #[test]
    fn a_line_a_rung_and_four_lines_below() {
        assert_eq!(
            lines(&ladder(), 80),
            "      rung                                 Mpps      min-max  lost at
   2  connections not tracked (notrack)    0.51    0.41-0.61  40.0 % queue
  11  connections not tracked (notrack)    1.07    0.97-1.17  40.0 % queue
  16  connections not tracked (notrack)    2.90    2.80-3.00  40.0 % queue
  18  connections not tracked (notrack)   14.44  14.34-14.54  40.0 % queue
 skipped: 5-8b need more CPUs; 4b (--why); 15 need root
 4 of 4 exact ledgers balance
 here: recvmmsg 0.51, GRO 1.07, AF_XDP 2.90 Mpps; ceiling 14.44
 next: mpps doctor --port P (your server); notes: lab.html, mpps report lab.json
"
        );
    }

    #[test]
    fn a_narrow_terminal_has_each_rungs_figures_too() {
        for (width, row) in [
            (60, "14.44  14.34-14.54\n      lost at 40.0 % queue\n"),
            (
                40,
                "14.44\n      (notrack)\n      min-max 14.34-14.54; lost at\n",
            ),
        ] {
            let said = lines(&ladder(), width);
            assert!(said.contains(row), "{said}");
        }
    }

    /// Each doubt has a line, and a run without it has none.
    #[test]
    fn what_makes_figures_doubtful_has_a_line() {
        type Change = fn(&mut RungResult);
        let cases: [(Change, &str); 8] = [
            (
                |rung| rung.runs.sample_ledgers[0].unaccounted = 1,
                "; UNACCOUNTED on 2",
            ),
            (
                |rung| rung.runs.sample_ledgers[0].losses[0].exact = false,
                "; 1 inexact (2): dropped trains count as one",
            ),
            (
                |rung| rung.runs.sample_ledgers[0].witness("all", "a counter", 1, 2),
                "\n a second count disagrees with the ledger on 2\n",
            ),
            (
                |rung| rung.sender = Some(RungSender::default()),
                "\n the sender was the limit, a receiver may do more: 2\n",
            ),
            (
                |rung| {
                    rung.limited_by = Some(Limit {
                        by_others: true,
                        ..Limit::new("CPU 1, busy with others", "")
                    });
                },
                "\n slowed by other programs or a CPU quota: 2\n",
            ),
            (
                |rung| rung.unplaced = true,
                "\n queues without a CPU of their own: 2\n",
            ),
            (
                |rung| {
                    rung.verdict = Some(LessonVerdict {
                        holds: Some(false),
                        evidence: LessonEvidence::Facts(Vec::new()),
                    });
                },
                "\n lesson not seen here: 2\n",
            ),
            (
                |rung| rung.runs.mpps_samples.truncate(2),
                "\n ended early, with fewer repeats: 2\n",
            ),
        ];
        for (change, line) in cases {
            let mut result = ladder();
            assert!(!lines(&result, 80).contains(line), "{line}");
            change(&mut result.rungs[0]);
            assert!(
                lines(&result, 80).contains(line),
                "{line}{}",
                lines(&result, 80)
            );
        }
    }
}
