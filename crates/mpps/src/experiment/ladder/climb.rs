//! The climb: the runs of each rung, and the results at any moment.

use super::lesson;
use super::live::{self, LiveTraffic};
use super::result::{RungPath, RungResult};
use super::rung::Rung;
use super::sample::{enter, notes, other_than_polled, rung_sender};
use crate::measure::rounds::Case;
use crate::output;
use crate::udp::labs::{Labs, note_each};
use crate::udp::run::{Purpose, UdpRun};
use crate::udp::runs::Runs;
use crate::udp::sender::SenderChoice;
use anyhow::{Result, ensure};
use mpps_host::Grouped;
use mpps_io::Work;
use std::time::Duration;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClimbSchedule {
    /// Length of each rate run.
    pub(crate) time: Duration,
    /// Rate runs per rung.
    pub(crate) repeats: usize,
    /// Length of the exactness run.
    pub(crate) exact_time: Duration,
    /// Packets per turn, and turns, of the measurement of the drop probe's cost.
    pub(crate) probe_cost: (u64, usize),
}

/// A rung, or one of its paths, and its runs.
pub(super) type RungRuns = Case<Rung, UdpRun>;

/// A climb under way.
#[derive(Debug)]
pub(super) struct Climb<'a> {
    pub(super) labs: &'a Labs,
    /// The traffic, if it is not the lab's.
    pub(super) live: Option<&'a LiveTraffic<'a>>,
    pub(super) schedule: ClimbSchedule,
    pub(super) choice: &'a SenderChoice,
    /// The work for each datagram of a further run.
    pub(super) work: Option<Work>,
    /// True if what the receiving host does is shown while a rate is taken.
    pub(super) has_screens: bool,
}

impl Climb<'_> {
    /// The runs of a rung in one round.
    pub(super) fn run(&self, case: &RungRuns) -> Result<UdpRun> {
        if self.has_screens {
            output::above_bar(&case.plan.to_string())?;
        }
        let trial = &case.plan.trial;
        if let Some(live) = self.live {
            return live.run(&trial.layout);
        }
        let purpose = Purpose {
            has_screens: self.has_screens,
            ..Purpose::default()
        };
        let times = (self.schedule.time, self.schedule.exact_time);
        let mut run = trial.round(self.labs, times, case.samples.is_empty(), purpose)?;
        // Where others deliver most packets the figure is not one of busy polling.
        let polled = run.busy_polled();
        ensure!(
            !trial.path.polls_itself() || polled >= run.ledger.delivered.div_ceil(2),
            "the receiver polled {} of {} packets itself, and {} delivered the others",
            Grouped(polled),
            Grouped(run.ledger.delivered),
            other_than_polled(self.labs.of(&trial.layout)?)
        );
        let is_worked = !case.plan.again && !trial.path.is_rule() && !self.labs.interrupt.came();
        if let Some(work) = self.work.filter(|_| is_worked) {
            let mut trial = trial.clone();
            trial.work = work;
            let worked = trial.run(self.labs, self.schedule.time, Purpose::default())?;
            run.worked = Some(Box::new(worked));
        }
        Ok(run)
    }

    /// The results so far. Rungs that did not run yet are left out.
    pub(super) fn results(&self, cases: &[RungRuns]) -> Vec<RungResult> {
        let known = of_rungs(cases).filter_map(|one| Some((&one[0].plan, self.fastest(one)?)));
        lesson::judge(known.collect())
    }

    /// The result of the fastest path of a rung, with the others beside it. None if one of them was
    /// not reached and no other was measured.
    fn fastest(&self, paths: &[RungRuns]) -> Option<RungResult> {
        let rate = |found: &RungResult| found.runs.mpps_median.unwrap_or(-1.0);
        let found = paths.iter().filter_map(|case| self.result(case));
        let mut best = found.rev().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let is_unreached = |case: &RungRuns| case.skipped.is_none() && case.samples.is_empty();
        if best.runs.skipped.is_some() && paths.iter().any(is_unreached) {
            return None;
        }
        if best.runs.skipped.is_none() {
            best.paths = paths.iter().map(rung_path).collect();
        }
        Some(best)
    }

    /// The result of a path of a rung and its repeats so far; none if it was not reached.
    fn result(&self, case: &RungRuns) -> Option<RungResult> {
        let (rung, trial) = (&case.plan, &case.plan.trial);
        let mut result = RungResult {
            rung: rung.number.to_owned(),
            name: rung.name.to_owned(),
            lesson: rung.lesson.to_owned(),
            article_mpps: rung.article_mpps,
            taken_by: trial.path.taken_by(),
            runs: Runs::skipped(case.unmeasured()),
            notes: rung.notes.clone(),
            ..RungResult::default()
        };
        if result.runs.skipped.is_some() {
            result.needs = rung.needs;
            return Some(result);
        }
        let last = case.samples.last()?;
        result.runs = Runs::of(&case.samples).or_last();
        let at_a_load = case.samples.iter().filter(|_| trial.load.is_some());
        let pair = |run: &UdpRun| Some([run.own_app_ns()?, run.app_ns()?]);
        result.same_load_ns = at_a_load.filter_map(pair).collect();
        result.lock_waits_per_packet = case.samples.iter().find_map(|run| run.lock_waits);
        let worked = case.samples.iter().filter_map(|run| run.worked.as_deref());
        let worked: Vec<&UdpRun> = worked.collect();
        result.with_work = (!worked.is_empty()).then(|| Runs::of(&worked));
        match self.live {
            Some(_) => live::enter(&mut result, last),
            None => {
                enter(&mut result, self.labs.of(&trial.layout).ok()?, rung, last);
                let why = rung
                    .own_sender
                    .unwrap_or_else(|| self.choice.why(trial.sender));
                let ledgers = &result.runs.sample_ledgers;
                result.sender = Some(rung_sender(trial.sender, why, self.choice, ledgers));
            }
        }
        let layout = &trial.layout;
        result.unplaced = !layout.is_placed;
        if rung.place.is_some() {
            let [queue, receiver] = [&layout.queues, &layout.applications];
            result.queue_cpu = queue.first().copied();
            result.receiver_cpu = receiver.first().copied();
        }
        let of_samples = case.samples.iter().flat_map(|run| notes(rung, run));
        let all: Vec<String> = rung.sharing().into_iter().chain(of_samples).collect();
        note_each(&mut result.notes, &all);
        result.notes.extend(case.stopped());
        Some(result)
    }

    /// Of how many rungs, from the first, nothing will change any more.
    pub(super) fn settled(&self, cases: &[RungRuns]) -> usize {
        let is_done =
            |case: &RungRuns| case.skipped.is_some() || case.samples.len() == self.schedule.repeats;
        let settled = of_rungs(cases).take_while(|one| one.iter().all(is_done));
        settled.filter(|one| !one[0].plan.again).count()
    }
}

fn rung_path(case: &RungRuns) -> RungPath {
    let path = &case.plan.trial.path;
    RungPath {
        name: path.name.to_owned(),
        variant: path.variant.to_owned(),
        mpps_median: Runs::of(&case.samples).mpps_median,
        skipped: case.unmeasured(),
    }
}

/// The cases of each rung.
fn of_rungs(cases: &[RungRuns]) -> impl Iterator<Item = &[RungRuns]> {
    let key = |case: &RungRuns| (case.plan.number, case.plan.again);
    cases.chunk_by(move |a, b| key(a) == key(b))
}
