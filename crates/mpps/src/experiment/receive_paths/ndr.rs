//! `mpps ndr`: the highest rate without loss, or with a given share of it, of each path.
//!
//! The trials that a search asks for are run here, each a run of a path.

mod document;
pub mod result;

pub(crate) use document::document;

use super::comparison::{choose, cpus, napi, sentence, usual};
use super::far_traffic::{FarTraffic, Remote};
use super::search::{MISSED, Search, SearchTrial};
use crate::machine::{self, become_able};
use crate::measure::document::Balanced;
use crate::measure::outcome::CommandEnding;
use crate::measure::series::Series;
use crate::measure::session::{Session, progress};
use crate::udp::path::{Fixed, Path};
use crate::udp::roles::{CpuLayout, Labs};
use crate::udp::run::{Purpose, UdpRun};
use crate::udp::sender::GeneratorChoice;
use crate::udp::trial::UdpTrial;
use crate::{failure, signal::EndSignal, value};
use anyhow::{Result, ensure};
use clap::Args;
use mpps_host::{Fingerprint, Station, Topology};
use mpps_io::Work;
use mpps_report::Quantity;
use result::{
    GoalBounds, LOAD_DEFINITION, NdrBody, NdrResult, NdrRow, NdrTrial, SearchGoal, Searched,
};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A sender may differ by this many frames more than [`MISSED`]. A paced generator sends that many at
/// once after a moment without its CPU.
const BURST: f64 = 128.0;
/// A paced sender falls behind by the gaps between its calls: it is asked for as much more as it fell
/// short of before, up to this.
const CORRECTION_MAX: f64 = 1.1;
/// How far apart the bounds may lie.
const WIDTH: f64 = 0.01;
/// The share of the time that may have more loss than the goal allows.
const EXCEED: f64 = 0.5;
/// The first trials are so much shorter than the last ones, but not shorter than this.
const GROWTH: u32 = 5;
const INITIAL_MIN: Duration = Duration::from_millis(50);
/// More than any sender brings, so that the search begins at what this one can.
pub(super) const MAX_PPS: f64 = 100e6;

/// Arguments of `mpps ndr`.
#[derive(Debug, Args)]
#[command(
    mut_arg("repeat", |arg| arg.help("Run N full trials per load; a load passes if loss keeps to \
    the goal for at least half of their total time")),
    mut_arg("duration", |arg| arg.help("Set the length of each trial [default: 500ms]")),
    mut_arg("quick", |arg| arg.help("Run one short trial per load; too short to compare")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./ndr.json; without FILE, to standard \
    output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./ndr.html")))]
pub(crate) struct NdrPlan {
    /// Search only these receive paths or variants of `mpps bench`: recvmmsg af_xdp/spin [default: all]
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    fixed: Fixed,
    #[command(flatten)]
    series: Series<150>,
    /// Search once per loss goal, as a share of the packets: 0, 0.5% or 0.005
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0,0.5%",
          value_parser = value::share)]
    loss: Vec<f64>,
    /// Set the lowest load, in packets per second
    #[arg(long, value_name = "RATE", default_value = "10k", value_parser = value::rate)]
    min: f64,
    /// Set the highest load, in packets per second [default: the sender's highest rate]
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    max: Option<f64>,
    /// Stop the search of each path after TIME, with the bounds so far
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = value::seconds)]
    limit: Duration,
    /// Send N flows (1 to 65535) with different source ports
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Set the UDP payload size
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = value::bytes)]
    size: usize,
    /// Set the traffic source in the lab
    #[arg(
        long,
        default_value = "auto",
        value_name = "NAME",
        conflicts_with = "sender"
    )]
    generator: GeneratorChoice,
    /// Run this shell command as the sender: "ssh HOST mpps send". Each trial appends address, rate,
    /// duration, size and --json
    #[arg(long, value_name = "COMMAND", requires = "address")]
    sender: Option<String>,
    /// Set the address of this host where the traffic of --sender arrives (required with --sender)
    #[arg(long, value_name = "ADDR:PORT", requires = "sender", value_parser = value::address)]
    address: Option<SocketAddr>,
    /// Make the receiving program use the CPU for TIME, such as 20us, per datagram; `parse`: read the
    /// bytes of each datagram. Without it, the program only counts
    #[arg(long, value_name = "TIME|parse", value_parser = value::work)]
    work: Option<Work>,
    /// Slow every receiver to RATE packets per second, to check that the search finds it
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    throttle: Option<f64>,
}

impl NdrPlan {
    /// Searches on every path, one after the other.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let paths = Path::named(&self.paths, "PATH", self.fixed)?;
        let max = self.max.unwrap_or(MAX_PPS);
        ensure!(
            self.min < max,
            "--min {}: the lowest load is below the highest, --max {max}",
            self.min
        );
        // In a user namespace, the owners of links on the way to a file are unknown.
        let session = self.series.begin("ndr", EndSignal::listen()?)?;
        let site = match (&self.sender, self.address) {
            (Some(command), Some(address)) => {
                self.between_hosts(command, address, &session.interrupt)?
            }
            _ => self.in_lab(&session.interrupt)?,
        };
        let (mut result, hunt) = self.result(&site, max, &session);
        let bar = progress(paths.len());
        for path in &paths {
            bar.set_message(path.to_string());
            let report = |said: String| bar.set_message(format!("{path}: {said}"));
            let row = self.row(&site, path, &hunt, &session.interrupt, report);
            if !row.searched.trials.is_empty() || row.skipped.is_some() {
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
        // Losses before this host have no counter here.
        let balances = self.sender.is_some() || result.ledgers().collect::<Balanced>().is_good();
        let document = document(&result, &session.files());
        let outcome = session.conclude(&result, &document, &document.blocks, balances)?;
        let mut skipped = result.rows.iter().map(|row| row.skipped.as_deref());
        ensure!(
            !result.complete || skipped.clone().any(|why| why.is_none()),
            "no path could be searched: {}",
            skipped.next().flatten().unwrap_or("none can run")
        );
        let mut bounds = result.rows.iter().flat_map(|row| &row.searched.found);
        ensure!(
            !result.complete || bounds.any(|found| found.lower_mpps.or(found.upper_mpps).is_some()),
            "no load was measured on any path; a note has the reason for each"
        );
        Ok(outcome)
    }

    /// Two hosts on this machine.
    fn in_lab(&self, interrupt: &EndSignal) -> Result<TrialSite<'static>> {
        become_able()?;
        let choice = choose(self.generator)?;
        let mut labs = Labs::new(interrupt);
        let usual = usual(choice.sender, self.flows.into(), self.size)?;
        let trial = UdpTrial {
            throttle_pps: self.throttle,
            work: self.work.unwrap_or_default(),
            ..usual
        };
        labs.add(&trial.layout)?;
        let mut notes = Vec::new();
        labs.note(&mut notes);
        let layout = trial.layout.clone();
        let lab = Rc::new((labs, trial));
        let tried = Rc::clone(&lab);
        Ok(TrialSite {
            placement: format!("two hosts on this machine   {}", cpus(&layout)),
            sender: sentence(&choice, &[self.flows.into()], self.size),
            napi: napi(&lab.0, &layout),
            machine: machine::of_lab(lab.0.of(&layout)?)?,
            notes,
            obstacle: Box::new(move |path| tried.1.on(path).obstacle(&tried.0)),
            run: Box::new(move |path, time, pps, _| {
                let (labs, trial) = &*lab;
                trial
                    .on(path)
                    .paced(pps)
                    .run(labs, time, Purpose::default())
            }),
        })
    }

    /// This host, and another host that sends. That is tried at the lowest load: what is wrong with
    /// the command is wrong for every path.
    fn between_hosts<'a>(
        &self,
        command: &'a str,
        address: SocketAddr,
        interrupt: &'a EndSignal,
    ) -> Result<TrialSite<'a>> {
        let cpu = CpuLayout::new(Topology::read()?, None).applications[0];
        let live = FarTraffic {
            address,
            cpu,
            time: self.series.time(),
            work: self.work.unwrap_or_default(),
            interrupt,
        };
        let remote = Rc::new(Remote {
            live,
            command,
            flows: self.flows,
            payload_bytes: self.size,
            throttle_pps: self.throttle,
        });
        remote.try_out(self.min, self.limit)?;
        let (tried, rule) = (
            Rc::clone(&remote),
            "on this host it would be a rule of its firewall; the lab has it",
        );
        Ok(TrialSite {
            placement: format!("traffic from another host to {address}   application: CPU {cpu}"),
            sender: remote.order("TIME", "LOAD"),
            napi: FarTraffic::NAPI_PLACE.to_owned(),
            machine: machine::fingerprint_at(address.ip())?,
            notes: Vec::new(),
            obstacle: Box::new(move |path| match path.is_rule() {
                true => Some(rule.to_owned()),
                false => tried.live.obstacle(path),
            }),
            run: Box::new(move |path, time, pps, left| remote.run(path, time, pps, left)),
        })
    }

    /// The row of a path: what was found on it, or why it did not run.
    fn row(
        &self,
        site: &TrialSite<'_>,
        path: &Path,
        hunt: &Hunt,
        interrupt: &EndSignal,
        report: impl Fn(String),
    ) -> NdrRow {
        let mut row = NdrRow {
            path: path.name.to_owned(),
            variant: path.variant.to_owned(),
            napi: site.napi.clone(),
            taken_by: path.taken_by(),
            ..NdrRow::default()
        };
        let why = "--throttle: a rule cannot be held back; name a receiver".to_owned();
        let held = (self.throttle.is_some() && path.is_rule()).then_some(why);
        let ran = match (site.obstacle)(path).or(held) {
            Some(why) => Err(why),
            None => hunt
                .search(interrupt, report, |time, pps, left| {
                    (site.run)(path, time, pps, left)
                })
                .map_err(|error| failure::explain(&error)),
        };
        match ran {
            Ok((searched, last)) => {
                row.searched = searched;
                (row.mode, row.waited) = (last.mode, last.waited);
            }
            Err(why) => row.skipped = Some(why),
        }
        row
    }

    /// A result without rows, and the search on each path.
    fn result(&self, site: &TrialSite<'_>, max: f64, session: &Session) -> (NdrResult, Hunt) {
        let kernel = machine::kernel_release();
        let goals = goals(&self.loss, self.series.time(), self.series.repeats());
        let body = NdrBody {
            load_definition: LOAD_DEFINITION.to_owned(),
            placement: format!("{}   Linux {kernel}", site.placement),
            sender: site.sender.clone(),
            flows: self.flows.into(),
            payload_bytes: self.size,
            work: self.work.map(|work| work.to_string()),
            address: self.address.map(|address| address.to_string()),
            throttle_mpps: self.throttle.map(|rate| rate / 1e6),
            notes: site.notes.clone(),
            goals: goals.clone(),
            rows: Vec::new(),
        };
        let hunt = Hunt {
            goals,
            min: self.min,
            max,
            limit: self.limit,
        };
        (session.result(site.machine.clone(), body), hunt)
    }
}

type PathObstacle<'a> = Box<dyn Fn(&Path) -> Option<String> + 'a>;
type PathRun<'a> = Box<dyn Fn(&Path, Duration, f64, Duration) -> Result<UdpRun> + 'a>;

/// Where the trials of a search are run: in a lab, or between this host and another one.
struct TrialSite<'a> {
    placement: String,
    sender: String,
    /// Where NAPI runs.
    napi: String,
    machine: Fingerprint,
    notes: Vec<String>,
    /// Why a path cannot run, if it cannot.
    obstacle: PathObstacle<'a>,
    /// Runs a path for a time, at a rate in packets per second; this much time is left.
    run: PathRun<'a>,
}

/// The goals of the search, the least loss first. Trials take up to `time`; `repeats` of them
/// decide.
pub(super) fn goals(loss: &[f64], time: Duration, repeats: usize) -> Vec<SearchGoal> {
    let goal = |loss_ratio: &f64| SearchGoal {
        loss_ratio: *loss_ratio,
        exceed_ratio: EXCEED,
        width: WIDTH,
        initial_seconds: (time / GROWTH).max(INITIAL_MIN).min(time).as_secs_f64(),
        final_seconds: time.as_secs_f64(),
        sum_seconds: time.as_secs_f64() * repeats as f64,
    };
    let mut goals: Vec<SearchGoal> = loss.iter().map(goal).collect();
    goals.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
    goals.dedup();
    goals
}

/// The search on each path: its goals and limits.
#[derive(Debug)]
pub(super) struct Hunt {
    pub(super) goals: Vec<SearchGoal>,
    /// The lowest and the highest load, in packets per second.
    pub(super) min: f64,
    pub(super) max: f64,
    /// The longest that it may take.
    pub(super) limit: Duration,
}

impl Hunt {
    /// Searches until the end, Ctrl-C, or the time limit. A trial that fails ends the search, and
    /// earlier trials are kept. `report` gets a line about each trial. `run` runs it for a time, at a
    /// rate in packets per second, and knows how much time is left. Returns the results and the last
    /// trial that ran.
    pub(super) fn search(
        &self,
        interrupt: &EndSignal,
        report: impl Fn(String),
        run: impl Fn(Duration, f64, Duration) -> Result<UdpRun>,
    ) -> Result<(Searched, UdpRun)> {
        let mut search = Search::new(&self.goals, self.min, self.max);
        let (mut found, mut last) = (Searched::default(), UdpRun::default());
        let (began, mut correction) = (Instant::now(), 1.0);
        while let Some(trial) = search.next() {
            let left = self.limit.saturating_sub(began.elapsed());
            let limit = Quantity::Seconds(self.limit.as_secs_f64());
            let at_limit = format!("the search was ended at its limit of {limit}");
            if left.is_zero() {
                found.notes.push(at_limit);
                break;
            }
            let load = Quantity::Mpps(trial.pps / 1e6);
            report(format!("{load} for {}", Quantity::Seconds(trial.seconds)));
            let time = Duration::from_secs_f64(trial.seconds);
            let ran = run(time, trial.pps * correction, left);
            if interrupt.came() {
                break;
            }
            match ran {
                Ok(sample) => {
                    found
                        .trials
                        .push(tell(&mut search, trial, &sample, &mut correction));
                    last = sample;
                }
                Err(error) if found.trials.is_empty() => return Err(error),
                // It had no more time than that.
                Err(_) if began.elapsed() >= self.limit => {
                    found.notes.push(at_limit);
                    break;
                }
                Err(error) => {
                    let (done, why) = (found.trials.len(), failure::explain(&error));
                    found
                        .notes
                        .push(format!("stopped after {done} trials: {why}"));
                    break;
                }
            }
        }
        Ok((found.with(&mut search, self), last))
    }
}

/// Passes the result of a trial to the search, and corrects the rate asked of the sender next time.
fn tell(search: &mut Search, trial: SearchTrial, run: &UdpRun, correction: &mut f64) -> NdrTrial {
    let ledger = &run.ledger;
    // Packets that the sender's own host refused were never on their way.
    let brought = ledger
        .offered
        .saturating_sub(ledger.lost_at(Station::Sender));
    let share = brought as f64 / ledger.offered.max(1) as f64;
    let brought_pps = run.offered_mpps * 1e6 * share;
    let came = ledger.delivered.saturating_add(ledger.queued);
    let lost = brought.saturating_sub(came);
    let of_load = brought_pps / trial.pps;
    let may_miss = MISSED + BURST / (trial.pps * trial.seconds);
    let is_too_much = of_load > 1.0 + may_miss;
    // Others' datagrams would stand for lost ones.
    let void = of_load < 1.0 - may_miss || is_too_much || came > brought;
    match void {
        false => search.take(trial, brought, lost),
        // It was asked for too much.
        true if is_too_much && *correction > 1.0 => {}
        true => search.miss(trial, brought_pps),
    }
    // More missing packets are no gap: the sender can send no more, or lost its CPU for a moment.
    if of_load * CORRECTION_MAX > 1.0 {
        *correction = (*correction / of_load).clamp(1.0, CORRECTION_MAX);
    }
    NdrTrial {
        load_mpps: trial.pps / 1e6,
        seconds: trial.seconds,
        offered_mpps: brought_pps / 1e6,
        loss_ratio: lost as f64 / brought.max(1) as f64,
        void,
        ledger: ledger.clone(),
        quota: run.quota.clone(),
    }
}

impl Searched {
    /// With what the search knows by now.
    fn with(mut self, search: &mut Search, hunt: &Hunt) -> Self {
        let mpps = |pps: Option<f64>| pps.map(|pps| pps / 1e6);
        let answers = search.answers();
        let found = answers.iter().zip(&hunt.goals).map(|(answer, goal)| {
            let upper_mpps = mpps(answer.upper);
            GoalBounds {
                lower_mpps: mpps(answer.lower),
                upper_mpps,
                conditional_mpps: mpps(answer.conditional),
                settled: answer.is_settled,
                loses: upper_mpps.and_then(|load| self.loses(load, goal.loss_ratio)),
                held_back: self.held_back(upper_mpps),
            }
        });
        self.found = found.collect();
        self.notes.extend(self.void_note());
        self.sender_mpps = (search.max() < hunt.max).then(|| search.max() / 1e6);
        self
    }
}

/// The sort key of rows: the highest load that keeps to the first goal.
fn rate(row: &NdrRow) -> f64 {
    let found = row.searched.found.first();
    match row.skipped {
        Some(_) => -1.0,
        None => found.and_then(|found| found.lower_mpps).unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;
    use mpps_host::{Ledger, Loss};
    use std::cell::Cell;

    /// A run to which another program sent one datagram.
    fn replaced(offered_mpps: f64) -> UdpRun {
        UdpRun {
            offered_mpps,
            ledger: Ledger::new(1000, 1001, 0),
            ..UdpRun::default()
        }
    }

    /// A run at this offered rate. The sender's host refused some datagrams, and a socket lost
    /// some.
    fn run(offered_mpps: f64, refused: u64, lost: u64) -> UdpRun {
        let mut ledger = Ledger::new(1000, 1000 - refused - lost, 0);
        for (station, count) in [(Station::Sender, refused), (Station::Socket, lost)] {
            ledger.lose(Loss::new(station, "full", count, "a counter"));
        }
        UdpRun {
            offered_mpps,
            ledger,
            ..UdpRun::default()
        }
    }

    #[test]
    fn the_end_of_the_time_is_not_blamed_on_the_sender() {
        for (limit, waits, why) in [
            (50, true, "the search was ended at its limit of"),
            (600_000, false, "stopped after 1 trials: no totals"),
        ] {
            let hunt = Hunt {
                goals: goals(&[0.0], Duration::from_secs(1), 5),
                min: 1e4,
                max: 1e6,
                limit: Duration::from_millis(limit),
            };
            let (began, trials) = (Instant::now(), Cell::new(0));
            let trial = |_, _, _| {
                trials.set(trials.get() + 1);
                ensure!(trials.get() == 1 || waits, "no totals");
                // A sender that is given no more time than the limit fails behind it.
                while trials.get() == 2 && began.elapsed() < 2 * hunt.limit {}
                ensure!(trials.get() == 1, "it has not ended");
                Ok(run(1.0, 0, 0))
            };
            let found = hunt.search(&EndSignal::default(), |_| (), trial);
            let notes = found.expect("one trial").0.notes.join(" ");
            assert!(notes.starts_with(why), "{notes}");
        }
    }

    #[test]
    fn a_trial_that_missed_its_load_is_void_and_the_next_asks_for_what_was_missing() {
        let goals = goals(&[0.005, 0.0, 0.0], Duration::from_millis(500), 5);
        assert_eq!((goals.len(), goals[0].loss_ratio), (2, 0.0));
        let mut search = Search::new(&goals, 1e4, 1e6);
        let trial = search.next().expect("it begins");
        let mut correction = 1.0;
        for (run, void, loss_ratio, then) in [
            // 2 % short: ask for that much more.
            (run(0.98, 0, 0), true, 0.0, 1.0 / 0.98),
            // Now it is too much, and what was asked for is taken back.
            (run(1.025, 0, 0), true, 0.0, 1.0),
            // Refused by the sender's own host is not brought.
            (run(1.0, 500, 0), true, 0.0, 1.0),
            // Nor does it say of the load what more than it did; a burst more is none.
            (run(1.02, 0, 0), true, 0.0, 1.0),
            (run(1.01, 0, 0), false, 0.0, 1.0),
            // More came than the sender brought.
            (replaced(1.0), true, 0.0, 1.0),
            (run(0.995, 0, 100), false, 0.1, 1.0 / 0.995),
        ] {
            let told = tell(&mut search, trial, &run, &mut correction);
            assert_eq!((told.void, told.loss_ratio), (void, loss_ratio), "{run:?}");
            assert!((correction - then).abs() < 1e-9, "{run:?}: {correction}");
            assert_eq!(told.load_mpps, 1.0);
        }
        assert_eq!(search.max(), 1e6);
    }
}
