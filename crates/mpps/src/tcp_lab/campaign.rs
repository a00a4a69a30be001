//! All runs of all cells, interleaved, and what they give together.

use super::plan::Cell;
use super::result::{ConnectionLedger, ServerFacts, TcpCell};
use super::sample::Sample;
use super::server::{Running, SERVERS};
use super::stage::Stage;
use crate::failure;
use anyhow::{Context, Result};
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    /// Length of each run.
    pub(crate) time: Duration,
    /// Length of the run before it, unmeasured but for its rate.
    pub(crate) warm_up: Duration,
    /// Runs per cell.
    pub(crate) repeats: usize,
}

/// A campaign under way.
#[derive(Debug)]
pub(crate) struct Campaign<'a> {
    stage: &'a Stage<'a>,
    schedule: Schedule,
    cells: Vec<(Cell, Vec<Sample>)>,
}

impl<'a> Campaign<'a> {
    /// Leaves out, with the reason, the cells whose server is not on this machine.
    pub(crate) fn new(stage: &'a Stage<'a>, schedule: Schedule, mut cells: Vec<Cell>) -> Self {
        for cell in &mut cells {
            if let Err(why) = cell.server.find() {
                cell.skipped = Some(why);
            }
        }
        let cells = cells.into_iter().map(|cell| (cell, Vec::new())).collect();
        Self {
            stage,
            schedule,
            cells,
        }
    }

    /// How many runs there will be.
    pub(crate) fn steps(&self) -> usize {
        let measured = self.cells.iter().filter(|(cell, _)| cell.skipped.is_none());
        measured.count() * self.schedule.repeats
    }

    /// Runs all cells in turn, as often as the schedule says, so that a machine that slows down
    /// slows them all; `step` hears of each run before it begins. Answers false if Ctrl-C ended it.
    pub(crate) fn run(&mut self, mut step: impl FnMut(&Cell)) -> Result<bool> {
        let (stage, schedule) = (self.stage, self.schedule);
        for _ in 0..schedule.repeats {
            let mut running: Option<(Cell, Running)> = None;
            for (cell, samples) in &mut self.cells {
                if cell.skipped.is_some() {
                    continue;
                }
                step(cell);
                let (_, server) = match running.take() {
                    Some(old) if is_alike(&old.0, cell) => running.insert(old),
                    // The old server ends before the new one begins: they have one address.
                    old => {
                        drop(old);
                        match stage.serve(cell) {
                            Ok(server) => running.insert((cell.clone(), server)),
                            // One server that does not start does not cost the figures of the others.
                            Err(error) if samples.is_empty() && !stage.interrupt.came() => {
                                cell.skipped = Some(failure::explain(&error));
                                continue;
                            }
                            Err(error) => return Err(error),
                        }
                    }
                };
                let cell = &*cell;
                let failed = || format!("{} failed", cell.key());
                stage.moderate(cell.moderation)?;
                stage.defer_skbs(cell.skb_defer_max)?;
                let cps = stage.warm_up(cell, schedule.warm_up);
                let sample = cps.and_then(|cps| stage.run(cell, server, schedule.time, cps));
                if stage.interrupt.came() {
                    return Ok(false);
                }
                samples.push(sample.with_context(failed)?);
            }
        }
        Ok(true)
    }

    /// What is known of each cell; those that did not run yet are left out.
    pub(crate) fn results(self) -> Vec<TcpCell> {
        let stage = self.stage;
        let cells = self.cells.into_iter();
        cells
            .filter_map(|(cell, samples)| result(stage, cell, &samples))
            .collect()
    }

    /// The servers that have cells.
    pub(crate) fn servers(&self) -> Vec<ServerFacts> {
        let has_cells = |name: &str| self.cells.iter().any(|(cell, _)| cell.server.name == name);
        let servers = SERVERS.iter().filter(|server| has_cells(server.name));
        servers
            .map(|server| ServerFacts {
                name: server.name.to_owned(),
                version: server.version(),
                set_up: server.set_up.iter().map(|&said| said.to_owned()).collect(),
                skipped: server.find().err(),
            })
            .collect()
    }
}

/// Whether the server of one cell can go on to serve another.
fn is_alike(a: &Cell, b: &Cell) -> bool {
    let setting = |cell: &Cell| (cell.switches, cell.body_bytes);
    std::ptr::eq(a.server, b.server) && a.server.is_alike(setting(a), setting(b))
}

/// The result of one cell; none if it was not reached.
fn result(stage: &Stage<'_>, cell: Cell, samples: &[Sample]) -> Option<TcpCell> {
    let switches = cell.switches.iter().map(|switch| switch.name().to_owned());
    let described = TcpCell {
        experiment: cell.experiment,
        server: cell.server.name.to_owned(),
        step: cell.step,
        body_bytes: cell.body_bytes,
        switches: switches.collect(),
        moderation_us: cell.moderation.map(|period| period.as_secs_f64() * 1e6),
        skb_defer_max: cell.skb_defer_max,
        paper: cell.paper,
        ..TcpCell::default()
    };
    if cell.skipped.is_some() {
        return Some(TcpCell {
            skipped: cell.skipped,
            ..described
        });
    }
    let figures = stage.figures(samples, cell.body_bytes)?;
    let mut ledger = ConnectionLedger::default();
    let mut notes = Vec::new();
    for sample in samples {
        ledger.add(&sample.ledger);
        for note in &sample.notes {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
    }
    Some(TcpCell {
        figures: Some(figures),
        ledger: Some(ledger),
        notes,
        ..described
    })
}
