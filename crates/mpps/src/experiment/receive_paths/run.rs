//! From the arguments of a comparison to its result.

use super::comparison::{choose, cpus, napi, sentence, usual};
use super::far_traffic::FarTraffic;
use super::ndr::{self, Hunt};
use super::overload;
use super::result::{BenchBody, BenchResult, BenchRow};
use super::spread;
use super::{advice, answer, balances, comparison, document};
use crate::failure;
use crate::machine::{self, become_able};
use crate::measure::outcome::CommandEnding;
use crate::measure::rounds::{Case, interleave};
use crate::measure::series::Series;
use crate::measure::session::{Session, progress};
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use crate::udp::RATE_DEFINITION;
use crate::udp::path::{Fixed, Path};
use crate::udp::roles::Labs;
use crate::udp::run::Purpose;
use crate::udp::sender::{GeneratorChoice, LONG_TRAIN, LabSender, SenderChoice};
use crate::udp::trial::{TrialRuns, UdpTrial};
use crate::value;
use anyhow::{Result, bail, ensure};
use clap::Args;
use mpps_host::{Fingerprint, Relation, Topology};
use mpps_io::Work;
use std::fmt::Display;
use std::net::SocketAddr;

/// Flows unless others are asked for: GRO's best case, and more than the 64 that it holds at a time
/// (`GRO_HASH_BUCKETS` lists of `MAX_GRO_SKBS`, 8 each, in the kernel's net/core/gro.c).
const FLOWS: [usize; 2] = [1, 256];

/// Trials of a `--loss-free` search. They are fewer than in `mpps ndr`, because searches are many.
const LOSS_FREE_TRIALS: usize = 3;
/// The longest that it takes, in trials of the full length.
const LOSS_FREE_LIMIT: u32 = 40;
const LOSS_FREE_MIN_PPS: f64 = 10_000.0;

/// Arguments of `mpps bench`.
#[derive(Debug, Args)]
#[command(
    mut_arg("quick", |arg| arg.help("Run each receive path once and briefly; too short for conclusions")),
    mut_arg("repeat", |arg| arg.help("Run each receive path N times, in N rounds over all paths")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./bench.json; without FILE, to standard \
    output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./bench.html"))
)]
pub(crate) struct BenchPlan {
    #[command(flatten)]
    series: Series<150>,
    /// Run only these receive paths (recvmmsg) or variants (af_xdp/spin); --list shows both
    #[arg(long, value_name = "PATH,...", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    fixed: Fixed,
    /// List the receive paths and variants of this host
    #[arg(long)]
    list: bool,
    /// Print all notes, modes and advice instead of the answer
    #[arg(short, long)]
    verbose: bool,
    /// Raise the load from 2 % to the sender's highest rate, instead of comparing at that rate. Packet
    /// processing and receiver share a CPU: shows which paths collapse (receive livelock)
    #[arg(long, conflicts_with = "sender")]
    overload: bool,
    /// Measure the early drops (paths named _drop) with 1, 2 and 4 receive queues, instead of comparing
    /// all paths
    #[arg(long, conflicts_with_all = ["overload", "sender"])]
    spread: bool,
    /// Send N flows (1 to 65535) with different source ports [default: 1, then 256; 1 with --overload and
    /// --sender; with --spread 1 per receive queue]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    flows: Option<u16>,
    /// Find also the highest rate without loss of each path, as `mpps ndr`
    #[arg(long, conflicts_with_all = ["overload", "spread", "sender"])]
    loss_free: bool,
    /// Make the receiving program use the CPU for TIME, such as 20us, per datagram; `parse`: read the
    /// bytes of each datagram. Without it, the program only counts
    #[arg(long, value_name = "TIME|parse", value_parser = value::work, conflicts_with = "spread")]
    work: Option<Work>,
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
    /// Measure traffic from another host at --address. mpps prints the command to start on HOST; it does
    /// not log in there
    #[arg(long, value_name = "HOST", requires = "address")]
    sender: Option<String>,
    /// Set the address of this host where the traffic of --sender arrives (required with --sender)
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address)]
    address: Option<SocketAddr>,
}

impl BenchPlan {
    /// Compares the paths, or lists them.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let paths = self.check()?;
        // In a user namespace, the owners of links on the way to a file are unknown.
        let begin = || self.series.begin("bench", EndSignal::listen()?);
        let session = (!self.list).then(begin).transpose()?;
        become_able()?;
        let choice = choose(self.generator)?;
        let mut labs = Labs::new(&match &session {
            Some(session) => session.interrupt.clone(),
            None => EndSignal::listen()?,
        });
        let mut trial = usual(choice.sender, self.flows()[0], self.size)?;
        trial.work = self.work.unwrap_or_default();
        if self.sender.is_none() {
            labs.add(&trial.layout)?;
        }
        let Some(session) = &session else {
            return list(&paths, &trial, &labs);
        };
        let bench = Bench {
            plan: self,
            paths,
            session,
            choice,
            trial,
        };
        let result = match (&self.sender, self.address) {
            (Some(host), Some(address)) => bench.live(host, address)?,
            _ if self.spread => bench.spread(labs)?,
            _ if self.overload => bench.overload(labs)?,
            _ => bench.rate(labs)?,
        };
        let files = session.files();
        let document = document(&result, &files);
        // A curve has no rows.
        let shown = match self.verbose || result.rows.iter().all(|row| row.runs.skipped.is_some()) {
            true => &document.blocks,
            false => &answer(&result, &files),
        };
        // Losses before this host have no counter here.
        let is_good = self.sender.is_some() || balances(&result);
        let outcome = session.conclude(&result, &document, shown, is_good)?;
        let skipped = result.rows.iter().map(|row| &row.runs.skipped);
        let mut skipped = skipped.chain(result.spread.iter().map(|row| &row.runs.skipped));
        let is_measured = !result.overload.is_empty() || skipped.clone().any(Option::is_none);
        ensure!(
            !result.complete || is_measured,
            "no path could be measured: {}",
            skipped
                .next()
                .and_then(Option::as_deref)
                .unwrap_or("none can run")
        );
        Ok(outcome)
    }

    /// The flows that are sent, one number after the other.
    fn flows(&self) -> Vec<usize> {
        match self.flows {
            Some(flows) => vec![flows.into()],
            None if self.overload || self.spread || self.sender.is_some() => vec![1],
            None => FLOWS.into(),
        }
    }

    /// The paths that `--only` names, if they can be asked what is asked.
    fn check(&self) -> Result<Vec<Path>> {
        let paths = Path::named(&self.only, "--only", self.fixed)?;
        ensure!(
            !self.spread || paths.iter().any(Path::is_rule),
            "--spread: it is of the paths that drop early, whose names end in _drop, and --only names \
             none"
        );
        ensure!(
            !self.overload || paths.iter().any(|path| path.shares_cpu),
            "--overload: queue and application share a CPU, and --only names no path that can; name \
             recvmmsg, af_xdp or another receiver"
        );
        Ok(paths)
    }
}

/// Lists each path, and whether it runs on this host.
fn list(paths: &[Path], trial: &UdpTrial, labs: &Labs) -> Result<CommandEnding> {
    for path in paths {
        let rest = match trial.on(path).obstacle(labs) {
            Some(why) => format!("skipped: {why}"),
            None => "runs".to_owned(),
        };
        output::line(OutputStream::People, &format!("{:<26} {rest}", path.key()))?;
    }
    Ok(CommandEnding::Fine)
}

/// A plan under way.
struct Bench<'a> {
    plan: &'a BenchPlan,
    paths: Vec<Path>,
    session: &'a Session,
    choice: SenderChoice,
    /// A trial of the usual layout.
    trial: UdpTrial,
}

impl Bench<'_> {
    /// A result without figures.
    fn result(&self, placement: &str, machine: Fingerprint, notes: Vec<String>) -> BenchResult {
        let body = BenchBody {
            rate_definition: RATE_DEFINITION.to_owned(),
            placement: format!("{placement}   Linux {}", machine::kernel_release()),
            sender: sentence(&self.choice, &self.plan.flows(), self.plan.size),
            flows: self.plan.flows()[0],
            payload_bytes: self.plan.size,
            work: self.plan.work.map(|work| work.to_string()),
            loss_free_goal: None,
            notes,
            rows: Vec::new(),
            overload: Vec::new(),
            spread: Vec::new(),
            advice: Vec::new(),
        };
        self.session.result(machine, body)
    }

    /// A result of two hosts on this machine.
    fn of_lab(&self, labs: &Labs, placement: &str) -> Result<BenchResult> {
        let mut notes = Vec::new();
        labs.note(&mut notes);
        let placement = format!("two hosts on this machine   {placement}");
        let machine = machine::of_lab(labs.of(&self.trial.layout)?)?;
        Ok(self.result(&placement, machine, notes))
    }

    /// Runs these cases; `find` enters what is known of them.
    fn measure<P: Display, S>(
        &self,
        result: &mut BenchResult,
        cases: &mut [Case<P, S>],
        run: impl FnMut(&Case<P, S>) -> Result<S>,
        find: impl Fn(&mut BenchResult, &[Case<P, S>]),
    ) -> Result<()> {
        let interrupt = &self.session.interrupt;
        result.complete = interleave(cases, self.plan.series.repeats(), interrupt, run, |cases| {
            find(result, cases);
            self.session.keep(result);
            Ok(())
        })?;
        find(result, cases);
        Ok(())
    }

    fn rate(&self, mut labs: Labs) -> Result<BenchResult> {
        let flows = self.plan.flows();
        let mut cases = comparison::cases(&mut labs, &self.trial, &self.paths, &flows)?;
        let mut result = self.of_lab(&labs, &cpus(&self.trial.layout))?;
        let (time, purpose) = (self.plan.series.time(), Purpose::default());
        self.measure(
            &mut result,
            &mut cases,
            |case| {
                let is_first = case.samples.is_empty();
                case.plan.round(&labs, (time, time), is_first, purpose)
            },
            |result, cases| {
                let rows = cases.iter().filter_map(|case| comparison::row(&labs, case));
                result.rows = fastest_first(rows);
            },
        )?;
        if self.plan.loss_free && result.complete {
            self.loss_free(&mut result, &labs);
        }
        result.advice = advice(&result.rows);
        Ok(result)
    }

    /// Searches each path that ran in the usual layout for the highest rate without loss.
    fn loss_free(&self, result: &mut BenchResult, labs: &Labs) {
        let (time, repeats) = (self.plan.series.time(), self.plan.series.repeats());
        let goals = ndr::goals(&[0.0], time, repeats.min(LOSS_FREE_TRIALS));
        result.loss_free_goal = goals.first().copied();
        let bar = progress(result.rows.len());
        for at in 0..result.rows.len() {
            let row = &mut result.rows[at];
            bar.inc(1);
            let is_of = |path: &&Path| path.name == row.path && path.variant == row.variant;
            let is_here = row.shares_cpu == self.trial.layout.shares_cpu();
            let path = self.paths.iter().find(is_of);
            let Some(path) = path.filter(|_| is_here && row.runs.skipped.is_none()) else {
                continue;
            };
            let hunt = Hunt {
                goals: goals.clone(),
                min: LOSS_FREE_MIN_PPS,
                max: ndr::MAX_PPS,
                limit: time * LOSS_FREE_LIMIT,
            };
            let report = |said: String| bar.set_message(format!("{path}: {said}"));
            let mut trial = self.trial.on(path);
            trial.flows = row.flows.unwrap_or(trial.flows);
            let run = |time, pps, _| trial.paced(pps).run(labs, time, Purpose::default());
            match hunt.search(&labs.interrupt, report, run) {
                Ok((found, _)) => row.loss_free = Some(found).filter(|one| !one.trials.is_empty()),
                Err(error) => {
                    let why = failure::explain(&error);
                    row.notes
                        .push(format!("no search for the rate without loss: {why}"));
                }
            }
            bar.suspend(|| self.session.keep(result));
            if self.session.interrupt.came() {
                result.complete = false;
                break;
            }
        }
        bar.finish_and_clear();
    }

    fn overload(&self, mut labs: Labs) -> Result<BenchResult> {
        let layout = self.trial.layout.place(Relation::SameCpu);
        let layout = layout.map_err(anyhow::Error::msg)?;
        labs.add(&layout)?;
        if let Some(why) = comparison::misplaced(&labs, &layout) {
            bail!("--overload: queue and application are to share a CPU, and cannot here: {why}");
        }
        let mut result = self.of_lab(&labs, &cpus(&layout))?;
        let napi = napi(&labs, &layout);
        let shared = UdpTrial {
            layout,
            ..self.trial.clone()
        };
        let time = self.plan.series.time();
        let run = |case: &TrialRuns| case.plan.run(&labs, time, Purpose::default());
        let paths = self.paths.iter().filter(|path| path.shares_cpu);
        let floods = paths.map(|path| {
            let trial = shared.on(path);
            let obstacle = trial.obstacle(&labs);
            Case::new(trial, obstacle)
        });
        let mut floods: Vec<_> = floods.collect();
        self.measure(&mut result, &mut floods, run, |result, floods| {
            result.overload = overload::curves(&napi, floods, &[])
        })?;
        result.rows = floods
            .iter()
            .filter(|flood| flood.skipped.is_some())
            .map(|flood| BenchRow {
                shares_cpu: true,
                ..BenchRow::new(&flood.plan.path, napi.clone(), flood.skipped.clone())
            })
            .collect();
        if result.complete {
            self.measure(
                &mut result,
                &mut overload::loads(&floods),
                run,
                |result, loads| result.overload = overload::curves(&napi, &floods, loads),
            )?;
        }
        Ok(result)
    }

    fn spread(&self, mut labs: Labs) -> Result<BenchResult> {
        let topology = Topology::read()?;
        let mut all = spread::arrangements(&mut labs, &topology, &self.trial)?;
        // The generator reaches as many queues as there are CPUs. A socket reaches all, and is
        // slower: both are shown, unless one was asked for.
        let may_add = !self.choice.asked && self.trial.sender == LabSender::Generator;
        if may_add && all.iter().any(|one| one.skipped.is_some()) {
            let sockets = UdpTrial {
                sender: LabSender::Socket { train: LONG_TRAIN },
                ..self.trial.clone()
            };
            all.extend(spread::arrangements(&mut labs, &topology, &sockets)?);
        }
        if all.iter().all(|one| one.skipped.is_some()) {
            bail!(
                "--spread: {}",
                all[0].skipped.as_deref().unwrap_or_default()
            );
        }
        let placement = format!("{} usable CPUs", topology.usable().len());
        let mut result = self.of_lab(&labs, &placement)?;
        let mut cases = spread::cases(&labs, &all, &self.paths);
        let time = self.plan.series.time();
        let run = |case: &TrialRuns| case.plan.run(&labs, time, Purpose::default());
        self.measure(&mut result, &mut cases, run, |result, cases| {
            result.spread = spread::rows(&labs, cases);
        })?;
        result.advice = spread::advice(&result.spread);
        Ok(result)
    }

    fn live(&self, host: &str, address: SocketAddr) -> Result<BenchResult> {
        let cpu = self.trial.layout.applications[0];
        let (size, flows) = (self.plan.size, self.plan.flows()[0]);
        let command = format!("mpps send {address} --stamp --size {size} --flows {flows} --gso 16");
        let said = format!("on {host}, now and until this ends: {command}");
        output::line(OutputStream::Err, &said)?;
        let placement = format!("traffic from {host} to {address}   application: CPU {cpu}");
        let note = "early drops are the lab's: on this host they would be its firewall's rules";
        let mut result = self.result(&placement, machine::of_all()?, vec![note.to_owned()]);
        result.sender = format!("{host}: {command}");
        let live = FarTraffic {
            address,
            cpu,
            time: self.plan.series.time(),
            work: self.trial.work,
            interrupt: &self.session.interrupt,
        };
        let paths = self.paths.iter().filter(|path| !path.is_rule());
        let cases = paths.map(|path| Case::new(*path, live.obstacle(path)));
        let mut cases: Vec<_> = cases.collect();
        let mut is_first = true;
        self.measure(
            &mut result,
            &mut cases,
            |case| live.run(&case.plan, std::mem::take(&mut is_first)),
            |result, cases| result.rows = fastest_first(cases.iter().filter_map(FarTraffic::row)),
        )?;
        result.advice = advice(&result.rows);
        Ok(result)
    }
}

fn fastest_first(rows: impl Iterator<Item = BenchRow>) -> Vec<BenchRow> {
    let mut rows: Vec<BenchRow> = rows.collect();
    let rate = |row: &BenchRow| row.runs.mpps_median.unwrap_or(-1.0);
    rows.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    rows
}
