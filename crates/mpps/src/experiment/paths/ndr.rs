//! `mpps ndr`: the highest rate without loss, or with a given share of it, of each path.
//!
//! `classify` and `search` are MLRsearch without I/O; here its trials are run, each a run of a path
//! on a stage at the load that the search asks for.

mod classify;
mod document;
pub mod result;
mod search;

pub(crate) use document::document;

use super::path::{Napi, Path};
use super::sender::Sender;
use super::stage::Stage;
use crate::machine::{self, become_able};
use crate::measure::document::Balanced;
use crate::measure::outcome::Outcome;
use crate::measure::series::Series;
use crate::measure::session::{Session, progress};
use crate::udp::labs::note_each;
use crate::udp::roles::Cpus;
use crate::udp::run::Purpose;
use crate::udp::runs::Sample;
use crate::udp::sender::Generator;
use crate::{failure, signal::Interrupt, value};
use anyhow::{Context, Result, ensure};
use clap::Args;
use mpps_host::{Station, Topology};
use mpps_report::Quantity;
use result::{Found, Goal, LOAD_DEFINITION, NdrBody, NdrResult, NdrRow, NdrTrial};
use search::{Search, Trial};
use std::time::{Duration, Instant};

/// A sender that brings a greater share less than it was asked for has missed the load.
const MISSED: f64 = 0.01;
/// How far apart the bounds may lie.
const WIDTH: f64 = 0.01;
/// The share of the time in which more may be lost than the goal says.
const EXCEED: f64 = 0.5;
/// The first trials are so much shorter than the last ones, but not shorter than this.
const GROWTH: u32 = 5;
const INITIAL_MIN: Duration = Duration::from_millis(50);
/// More than any sender brings, so that the search begins at what this one can.
const MAX_PPS: f64 = 100e6;

/// Arguments of `mpps ndr`.
#[derive(Debug, Args)]
#[command(
    mut_arg("repeat", |arg| arg.help("Such trials, added up, that decide of a load")),
    mut_arg("seconds", |arg| arg.help("Length of the trials that decide [default: 0.5]")),
    mut_arg("quick", |arg| arg.help("One short trial decides; not for comparison")),
    after_help = "The search is MLRsearch (RFC 9971): a load keeps to a goal if no more than half of \
    the time of its trials loses more than the goal says. Everything happens inside two network \
    namespaces that vanish with the program. Exit status: 0 every ledger balances, 1 one does not, 2 it \
    could not be done, 130 interrupted; what was found by then is written."
)]
pub(crate) struct Plan {
    /// Paths of `mpps bench`, or rows of them: recvmmsg af_xdp/spin [default: all]
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    series: Series<5, 150>,
    /// What may be lost, a goal each
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0,0.5%",
          value_parser = value::share)]
    loss: Vec<f64>,
    /// Lowest load, in packets per second
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = value::rate)]
    min: f64,
    /// Highest load [default: what the sender can]
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    max: Option<f64>,
    /// Longest search of one path
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = value::seconds)]
    limit: Duration,
    /// Flows, by source port, 1 to 65535
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// UDP payload in bytes
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = value::bytes)]
    size: usize,
    /// Who sends; auto is xdp where it can be had
    #[arg(long, default_value = "auto", value_name = "NAME")]
    generator: Generator,
    /// Hold every receiver back to this rate: to see whether the search finds it
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    throttle: Option<f64>,
}

impl Plan {
    /// Searches on every path, one after the other.
    pub(crate) fn run(&self) -> Result<Outcome> {
        let paths = Path::named(&self.paths, "PATH")?;
        let max = self.max.unwrap_or(MAX_PPS);
        ensure!(
            self.min < max,
            "--min {}: the lowest load is below the highest, --max {max}",
            self.min
        );
        become_able()?;
        let sender = Sender::choose(self.generator, self.flows.into(), self.size);
        let sender = sender.context("--generator")?;
        let session = self.series.begin("ndr", Interrupt::listen()?)?;
        let cpus = Cpus::choose(&Topology::read()?);
        let napi = match cpus.generator == cpus.application {
            true => Napi::WithApplication,
            false => Napi::WithGenerator,
        };
        let mut stage = Stage::new(cpus, napi, &sender, &session.interrupt)?;
        stage.throttle_pps = self.throttle;
        let mut result = self.result(&stage, &session)?;
        let bar = progress(paths.len());
        for path in &paths {
            bar.set_message(path.to_string());
            let report = |said: String| bar.set_message(format!("{path}: {said}"));
            let row = self.search(&stage, path, max, report);
            if !row.trials.is_empty() || row.skipped.is_some() {
                result.rows.push(row);
            }
            bar.inc(1);
            bar.suspend(|| session.keep(&result));
            if session.interrupt.came() {
                break;
            }
        }
        bar.finish_and_clear();
        result.complete = !session.interrupt.came();
        result.rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        let balances = result.ledgers().collect::<Balanced>().is_good();
        let document = document(&result, &session.files());
        let outcome = session.conclude(&result, &document, balances)?;
        let mut skipped = result.rows.iter().map(|row| row.skipped.as_deref());
        ensure!(
            !result.complete || skipped.clone().any(|why| why.is_none()),
            "no path could be searched: {}",
            skipped.next().flatten().unwrap_or("none can run")
        );
        Ok(outcome)
    }

    /// What is searched for, the least loss first.
    fn goals(&self) -> Vec<Goal> {
        let time = self.series.time();
        let goal = |loss_ratio: &f64| Goal {
            loss_ratio: *loss_ratio,
            exceed_ratio: EXCEED,
            width: WIDTH,
            initial_seconds: (time / GROWTH).max(INITIAL_MIN).min(time).as_secs_f64(),
            final_seconds: time.as_secs_f64(),
            sum_seconds: time.as_secs_f64() * self.series.repeats() as f64,
        };
        let mut goals: Vec<Goal> = self.loss.iter().map(goal).collect();
        goals.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        goals.dedup();
        goals
    }

    /// A result without rows.
    fn result(&self, stage: &Stage<'_>, session: &Session) -> Result<NdrResult> {
        let mut notes = Vec::new();
        note_each(&mut notes, stage.lab.notes());
        let (place, kernel) = (stage.cpus, machine::kernel_release());
        let body = NdrBody {
            load_definition: LOAD_DEFINITION.to_owned(),
            placement: format!("two hosts on this machine   {place}   Linux {kernel}"),
            sender: stage.sender.sentence(&[self.flows.into()]),
            flows: self.flows.into(),
            payload_bytes: self.size,
            throttle_mpps: self.throttle.map(|rate| rate / 1e6),
            notes,
            goals: self.goals(),
            rows: Vec::new(),
        };
        Ok(session.result(machine::of_lab(&stage.lab)?, body))
    }

    /// Searches on one path until the end, Ctrl-C, or until it takes too long. A trial that fails ends
    /// it, and what was found before stays.
    fn search(&self, stage: &Stage<'_>, path: &Path, max: f64, report: impl Fn(String)) -> NdrRow {
        let mut row = NdrRow {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            napi: stage.napi_place(),
            taken_by: path.taken_by(),
            skipped: stage.obstacle(path),
            ..NdrRow::default()
        };
        if self.throttle.is_some() && path.is_rule() {
            row.skipped =
                Some("--throttle: a rule cannot be held back; name a receiver".to_owned());
        }
        if row.skipped.is_some() {
            return row;
        }
        let goals = self.goals();
        let mut search = Search::new(&goals, self.min, max);
        let began = Instant::now();
        while let Some(trial) = search.next() {
            if began.elapsed() >= self.limit {
                let limit = Quantity::Seconds(self.limit.as_secs_f64());
                row.notes.push(format!("ended by --limit after {limit}"));
                break;
            }
            let load = Quantity::Mpps(trial.pps / 1e6);
            report(format!("{load} for {}", Quantity::Seconds(trial.seconds)));
            let purpose = Purpose {
                rate_pps: Some(trial.pps),
                ..Purpose::default()
            };
            let ran = stage.run(path, Duration::from_secs_f64(trial.seconds), purpose);
            if stage.interrupt.came() {
                break;
            }
            match ran {
                Ok(sample) => {
                    row.mode = sample.mode;
                    row.trials.push(tell(&mut search, trial, &sample.run));
                }
                Err(error) => {
                    let why = failure::explain(&error);
                    match row.trials.len() {
                        0 => row.skipped = Some(why),
                        done => row
                            .notes
                            .push(format!("stopped after {done} trials: {why}")),
                    }
                    return row.with(&mut search, &goals, max);
                }
            }
        }
        row.with(&mut search, &goals, max)
    }
}

/// Tells the search what a trial found.
fn tell(search: &mut Search, trial: Trial, run: &Sample) -> NdrTrial {
    let ledger = &run.ledger;
    // What the sender's own host refused was never on its way.
    let brought = ledger
        .offered
        .saturating_sub(ledger.lost_at(Station::Sender));
    let share = brought as f64 / ledger.offered.max(1) as f64;
    let brought_pps = run.offered_mpps * 1e6 * share;
    let lost = brought.saturating_sub(ledger.delivered + ledger.queued);
    let void = brought_pps < (1.0 - MISSED) * trial.pps;
    if void {
        search.miss(trial, brought_pps);
    } else {
        search.take(trial, brought, lost);
    }
    NdrTrial {
        load_mpps: trial.pps / 1e6,
        seconds: trial.seconds,
        offered_mpps: brought_pps / 1e6,
        loss_ratio: lost as f64 / brought.max(1) as f64,
        void,
        ledger: ledger.clone(),
    }
}

impl NdrRow {
    /// The row with what the search knows by now.
    fn with(mut self, search: &mut Search, goals: &[Goal], max: f64) -> Self {
        if self.skipped.is_some() || self.trials.is_empty() {
            return self;
        }
        let mpps = |pps: Option<f64>| pps.map(|pps| pps / 1e6);
        let answers = search.answers();
        let found = answers.iter().zip(goals).map(|(answer, goal)| {
            let upper_mpps = mpps(answer.upper);
            Found {
                lower_mpps: mpps(answer.lower),
                upper_mpps,
                conditional_mpps: mpps(answer.conditional),
                settled: answer.is_settled,
                loses: upper_mpps.and_then(|load| self.loses(load, goal.loss_ratio)),
            }
        });
        self.found = found.collect();
        self.sender_mpps = (search.max() < max).then(|| search.max() / 1e6);
        self
    }
}

/// What rows are sorted by: the highest load that keeps to the first goal.
fn rate(row: &NdrRow) -> f64 {
    let found = row.found.first();
    match row.skipped {
        Some(_) => -1.0,
        None => found.and_then(|found| found.lower_mpps).unwrap_or(0.0),
    }
}
