//! Rungs beyond recvmmsg: io_uring, what takes packets before the stack does, and the ceiling, run by
//! the code of `mpps bench`.

use super::lesson::{Claim, Point};
use super::result::RungResult;
use super::sender::{SenderChoice, rung_sender};
use super::setup::PAYLOAD_BYTES;
use crate::experiment::receive_paths::result::BenchRow;
use crate::experiment::receive_paths::{self, NapiPlace, PathLab};
use crate::signal::EndSignal;
use crate::udp::TakenBy;
use crate::udp::limit::{self, Limit};
use crate::udp::path::{PATHS, Path};
use crate::udp::roles::{CpuLayout, Cpus};
use crate::udp::runs::Runs;
use crate::udp::sender::{GeneratorChoice, LabSender};
use anyhow::Result;
use mpps_lab::Delivery;
use mpps_report::Quantity;

/// One such rung.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beyond {
    pub(crate) number: &'static str,
    pub(crate) name: &'static str,
    pub(crate) lesson: &'static str,
    pub(super) point: Point,
    /// Rows of `mpps bench`: the fastest is the rung's.
    keys: &'static [&'static str],
    taken_by: TakenBy,
    /// Why no lab has it.
    pub(super) skipped: Option<&'static str>,
}

/// The rungs beyond recvmmsg, lowest first.
pub(crate) const BEYOND: [Beyond; 5] = [
    Beyond {
        taken_by: TakenBy::Socket,
        ..ring(
            "14",
            "io_uring",
            "packets come without a call for each batch",
            &["io_uring"],
        )
    },
    ring(
        "15",
        "packet_mmap, taken",
        "a ring shared with the kernel: one copy and no call per packet",
        &["packet_mmap/take"],
    ),
    ring(
        "16",
        "AF_XDP, copy",
        "packets leave the stack before it begins",
        &["af_xdp/poll", "af_xdp/spin", "af_xdp/busy-poll"],
    ),
    Beyond {
        skipped: Some(
            "a veth has no zero-copy; on a card whose driver has it: mpps recv --backend af_xdp \
             --copy zero",
        ),
        ..ring(
            "17",
            "AF_XDP, zero-copy",
            "the card writes into the memory of the program",
            &[],
        )
    },
    Beyond {
        taken_by: TakenBy::Rule,
        point: Point::Reference,
        ..ring(
            "18",
            "XDP drop, the ceiling",
            "what the driver delivers if no program receives it",
            &["xdp_drop/packet-untouched"],
        )
    },
];

const fn ring(
    number: &'static str,
    name: &'static str,
    lesson: &'static str,
    keys: &'static [&'static str],
) -> Beyond {
    Beyond {
        number,
        name,
        lesson,
        point: Point::Above("2"),
        keys,
        taken_by: TakenBy::Ring,
        skipped: None,
    }
}

impl Beyond {
    pub(super) fn paths(&self) -> impl Iterator<Item = &'static Path> {
        PATHS
            .iter()
            .filter(|path| self.keys.contains(&path.key().as_str()))
    }

    /// The claim of its lesson. Its packets come in the generator's soft interrupts.
    pub(super) fn claim(&self) -> Claim {
        Claim {
            number: self.number,
            point: self.point,
            flows: 1,
            delivery: Delivery::SoftInterrupt,
            is_placement: false,
        }
    }

    /// The rung as it is reported, of the rows that `mpps bench` has for it; none if it was not
    /// reached.
    pub(super) fn result(
        &self,
        rows: &[BenchRow],
        sender: &receive_paths::PathSender,
        choice: &SenderChoice,
    ) -> Option<RungResult> {
        let is_own = |row: &&BenchRow| {
            let mut paths = self.paths();
            paths.any(|path| path.name == row.path && path.variant == row.variant)
        };
        let own: Vec<&BenchRow> = rows.iter().filter(is_own).collect();
        let described = RungResult {
            rung: self.number.to_owned(),
            name: self.name.to_owned(),
            lesson: self.lesson.to_owned(),
            taken_by: self.taken_by,
            ..RungResult::default()
        };
        if let Some(why) = self.skipped {
            let runs = Runs::skipped(Some(why.to_owned()));
            return Some(RungResult { runs, ..described });
        }
        let rate = |row: &BenchRow| row.runs.mpps_median.unwrap_or(-1.0);
        let measured = own.iter().filter(|row| row.runs.skipped.is_none());
        let Some(best) = measured.max_by(|a, b| rate(a).total_cmp(&rate(b))) else {
            let runs = own.first()?.runs.clone();
            return Some(RungResult { runs, ..described });
        };
        let why = match sender.kind {
            LabSender::Generator if !choice.asked => "the strongest sender of this machine",
            _ => &sender.why,
        };
        Some(RungResult {
            runs: best.runs.clone(),
            sender: Some(rung_sender(
                sender.kind,
                why,
                choice,
                &best.runs.sample_ledgers,
            )),
            limited_by: Some(limited_by(best)),
            application_ns: best.cpu_ns_per_packet.as_ref().and_then(|cost| cost.app),
            notes: notes(best, &own, self.taken_by),
            ..described
        })
    }
}

/// The bottleneck of a row: its largest loss, or the sender and the receive queue.
fn limited_by(row: &BenchRow) -> Limit {
    let loss = row
        .runs
        .sample_ledgers
        .last()
        .and_then(limit::loss_that_counts);
    let limit = loss.map_or_else(
        || Limit {
            what: "sender and receive queue".to_owned(),
            evidence: format!("nearly nothing lost; NAPI: {}", row.napi),
        },
        limit::named,
    );
    limit::unless_held_back(limit, row.runs.quota.as_ref())
}

/// Notes on the fastest row, and on the others.
fn notes(best: &BenchRow, own: &[&BenchRow], taken_by: TakenBy) -> Vec<String> {
    let mut notes = vec![format!("works as: {}; NAPI: {}", best.mode, best.napi)];
    if taken_by == TakenBy::Rule {
        notes.push("no program receives: the rate is what the rule dropped and counted".to_owned());
    }
    notes.extend(best.notes.iter().cloned());
    if own.len() < 2 {
        return notes;
    }
    let said = own
        .iter()
        .map(|row| match (&row.runs.skipped, row.runs.mpps_median) {
            (None, Some(rate)) => format!("{} {}", row.variant, Quantity::Mpps(rate)),
            (why, _) => {
                let why = why.as_deref().unwrap_or("not run");
                format!("{} skipped: {why}", row.variant)
            }
        });
    let said: Vec<String> = said.collect();
    notes.push(format!(
        "ways to wait, the fastest is shown: {}",
        said.join("; ")
    ));
    notes
}

/// The sender of these rungs: as asked for, or otherwise the kernel's generator if available.
pub(super) fn sender(choice: &SenderChoice) -> Result<receive_paths::PathSender> {
    match choice.asked {
        true => Ok(receive_paths::PathSender::asked(
            choice.sender,
            1,
            PAYLOAD_BYTES,
        )),
        false => receive_paths::PathSender::choose(GeneratorChoice::Auto, 1, PAYLOAD_BYTES),
    }
}

/// The two hosts of these rungs: the generator on the queue's CPU, which takes the packets in soft
/// interrupts there, and the application on its own.
pub(super) fn stage<'a>(
    sender: &'a receive_paths::PathSender,
    layout: &CpuLayout,
    interrupt: &'a EndSignal,
) -> Result<PathLab<'a>> {
    let cpus = Cpus {
        generator: layout.queues[0],
        application: layout.applications[0],
    };
    let napi = if cpus.generator == cpus.application {
        NapiPlace::WithApplication
    } else {
        NapiPlace::WithGenerator
    };
    PathLab::new(cpus, napi, sender, interrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::Ledger;

    fn row(variant: &str, mpps: Option<f64>) -> BenchRow {
        let path = if variant.contains("packet") {
            "xdp_drop"
        } else {
            "af_xdp"
        };
        BenchRow {
            path: path.to_owned(),
            variant: variant.to_owned(),
            mode: "native XDP, copy".to_owned(),
            runs: Runs {
                skipped: mpps.is_none().then(|| format!("no {variant}")),
                mpps_median: mpps,
                mpps_samples: mpps.into_iter().collect(),
                sample_ledgers: vec![Ledger::new(200, 150, 0)],
                ..Runs::default()
            },
            ..BenchRow::default()
        }
    }

    fn result(number: &str, rows: &[BenchRow]) -> Option<RungResult> {
        let choice =
            SenderChoice::new(Some(crate::udp::sender::GeneratorChoice::Sendmmsg), Some(8))
                .unwrap();
        let sender = sender(&choice).unwrap();
        let beyond = BEYOND.iter().find(|rung| rung.number == number).unwrap();
        beyond.result(rows, &sender, &choice)
    }

    #[test]
    fn each_rung_has_rows_of_the_comparison() {
        for beyond in BEYOND {
            assert_eq!(beyond.paths().count(), beyond.keys.len(), "{}", beyond.name);
            assert_eq!(beyond.keys.is_empty(), beyond.skipped.is_some());
            let rules = beyond.paths().filter(|path| path.is_rule());
            assert_eq!(
                rules.count(),
                usize::from(beyond.taken_by == TakenBy::Rule),
                "{}",
                beyond.name
            );
        }
    }

    #[test]
    fn the_fastest_way_to_wait_is_the_rungs() {
        let rows = [
            row("spin", Some(2.0)),
            row("poll", Some(3.0)),
            row("busy poll", None),
        ];
        let rung = result("16", &rows).unwrap();
        assert_eq!(
            (rung.runs.mpps_median, rung.taken_by),
            (Some(3.0), TakenBy::Ring)
        );
        let said = rung.notes.last().unwrap().replace('\u{a0}', " ");
        for part in [
            "spin 2.00 Mpps",
            "poll 3.00 Mpps",
            "busy poll skipped: no busy poll",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let sender = rung.sender.unwrap();
        assert_eq!((sender.train, sender.outran), (Some(8), true));
        assert!(rung.limited_by.is_some());
    }

    #[test]
    fn a_rung_that_cannot_run_says_why_and_one_that_was_not_reached_says_nothing() {
        let skipped = result("16", &[row("spin", None), row("poll", None)]).unwrap();
        assert_eq!(skipped.runs.skipped.as_deref(), Some("no spin"));
        assert_eq!(skipped.limited_by, None);
        assert_eq!(result("16", &[row("packet untouched", Some(4.0))]), None);
        let never = result("17", &[]).unwrap();
        assert!(
            never
                .runs
                .skipped
                .unwrap()
                .contains("a veth has no zero-copy")
        );
    }

    #[test]
    fn the_ceiling_is_marked_as_such() {
        let rung = result("18", &[row("packet untouched", Some(4.0))]).unwrap();
        assert_eq!(rung.taken_by, TakenBy::Rule);
        assert!(
            rung.notes
                .iter()
                .any(|note| note.contains("no program receives"))
        );
    }
}
