//! From the plan of a climb to its result: the runs of each rung, and the results at any moment.

use super::lesson;
use super::live::{self, LiveTraffic};
use super::probe_cost::drop_probe_ns;
use super::result::{
    LabBody, LabResult, LadderAnswer, PathTaken, QueueShare, RungCpuBusy, RungNeed, RungPath,
    RungResult, RungSender, ThreadShare,
};
use super::rungs::{Rung, rungs, with_references};
use crate::measure::rounds::{Case, interleave};
use crate::measure::session::Session;
use crate::udp::arriving::{PortTraffic, any_of};
use crate::udp::limit::{self, CpuTasks, OUTRUN_MIN};
use crate::udp::path::SOCKET;
use crate::udp::roles::{CpuLayout, Labs, note_each};
use crate::udp::run::{Purpose, UdpRun, attach};
use crate::udp::runs::Runs;
use crate::udp::sender::{LabSender, SEND_BUFFER_BYTES, SenderChoice};
use crate::udp::trial::TrialSockets;
use crate::udp::{RATE_DEFINITION, TakenBy};
use crate::{failure, machine, output};
use anyhow::{Context, Result, bail, ensure};
use mpps_host::{Fingerprint, Grouped, Ledger, Station, Topology};
use mpps_io::{RxReport, Work};
use mpps_lab::{Delivery, Lab, LabError};
use mpps_os::capability::Rights;
use std::time::Duration;

/// The plan of a climb.
#[derive(Debug)]
pub(crate) struct LadderPlan<'a> {
    pub(crate) layout: CpuLayout,
    pub(crate) choice: SenderChoice,
    /// The rungs by number; all if it names none.
    pub(crate) only: &'a [String],
    /// True to run rungs even if this host has too few CPUs for them.
    pub(crate) all: bool,
    /// The interface and the port of live traffic, in place of the lab's.
    pub(crate) live: Option<(&'a str, u16)>,
    pub(crate) schedule: ClimbSchedule,
    /// The work for each datagram of a further run of each rung.
    pub(crate) work: Option<Work>,
    /// Show what the receiving host does while a rate is taken.
    pub(crate) has_screens: bool,
}

/// Climbs the ladder. `tell` gets the result before the first rung, and then each rung once it is
/// final. The session always keeps the results so far.
pub(crate) fn run(
    plan: &LadderPlan<'_>,
    session: &Session,
    mut tell: impl FnMut(&LabResult, Option<&RungResult>),
) -> Result<LabResult> {
    let mut labs = Labs::new(&session.interrupt);
    let live = match plan.live {
        None => None,
        Some((interface, port)) => Some(LiveTraffic {
            traffic: PortTraffic {
                interface,
                address: any_of(interface, port).context("--interface")?,
                backend: SOCKET.name,
                carrier: None,
                interrupt: &session.interrupt,
            },
            time: plan.schedule.time,
        }),
    };
    let (layout, served) = match &live {
        Some(live) => {
            let (cpu, known) = live.served_by()?;
            let layout = CpuLayout::served_by(Topology::read()?, Vec::new(), vec![cpu]);
            (layout, format!("{}   {known}", live.traffic))
        }
        None => (labs.usual(plan.layout.clone())?, String::new()),
    };
    let choice = plan.choice.clone().reaching(&layout);
    // Some rungs have their packets delivered in another way than most.
    let mut rungs = selected(&layout, &choice, plan.only, plan.all)?;
    let mut probed = None;
    let mut result = match &live {
        Some(live) => {
            let machine = Fingerprint::collect(&[live.traffic.interface])?;
            session.result(machine, live.beginning(&served))
        }
        None => {
            rungs = with_references(rungs);
            place(&mut rungs, &mut labs)?;
            let machine = machine::of_lab(labs.of(&layout)?)?;
            let mut result = session.result(
                machine,
                beginning(&choice, &layout, labs.is_placed(&layout)),
            );
            labs.note(&mut result.notes);
            result.work = plan.work.map(|work| work.to_string());
            // The drop probe's cost is measured with this CPU as the sender's.
            probed = note_probe(&mut result.notes).then_some(layout.senders[0]);
            result
        }
    };
    let climb = Climb {
        labs: &labs,
        live: live.as_ref(),
        schedule: plan.schedule,
        choice: &choice,
        work: plan.work,
        has_screens: plan.has_screens,
    };
    let mut cases: Vec<RungRuns> = rungs
        .into_iter()
        .map(|rung| Case::new(rung.clone(), rung.skipped))
        .collect();
    tell(&result, None);
    take_turns(&climb, probed, &mut cases, session, &mut result, tell)?;
    Ok(result)
}

/// Runs every case, as often as the schedule says, and enters what is known of them.
fn take_turns(
    climb: &Climb<'_>,
    probed: Option<usize>,
    cases: &mut [RungRuns],
    session: &Session,
    result: &mut LabResult,
    mut tell: impl FnMut(&LabResult, Option<&RungResult>),
) -> Result<()> {
    let schedule = climb.schedule;
    let can_run = cases.iter().any(|case| case.skipped.is_none());
    let mut told = 0;
    let interrupt = &session.interrupt;
    let complete = interleave(
        cases,
        schedule.repeats,
        interrupt,
        |case| climb.run(case),
        |cases| {
            result.rungs = climb.results(cases);
            result.answer = Some(LadderAnswer::of(&result.rungs));
            session.keep(result);
            let settled = climb.settled(cases);
            for rung in &result.rungs[told..settled] {
                tell(result, Some(rung));
            }
            told = settled;
            Ok(())
        },
    )?;
    result.rungs = climb.results(cases);
    result.answer = Some(LadderAnswer::of(&result.rungs));
    if complete && can_run && cases.iter().all(|case| case.samples.is_empty()) {
        let why = cases.iter().find_map(|case| case.skipped.clone());
        bail!("no rung could be measured: {}", why.unwrap_or_default());
    }
    if let (true, Some(cpu)) = (complete, probed) {
        let cost = drop_probe_ns(climb.labs, cpu, schedule.probe_cost)?;
        result.drop_probe_ns = cost.filter(|ns| *ns > 0.0);
        if cost.is_some() && result.drop_probe_ns.is_none() {
            let note = "the drop probe's cost was lost in the noise of this machine";
            result.notes.push(note.to_owned());
        }
    }
    result.complete = complete && !interrupt.came();
    for rung in &result.rungs[told..] {
        tell(result, Some(rung));
    }
    Ok(())
}

/// Tries the drop probe once, and notes why it cannot be had.
fn note_probe(notes: &mut Vec<String>) -> bool {
    let Err(error) = attach() else { return true };
    let remedy = error.remedy();
    notes.push(format!(
        "no drop reasons as second witness: {error}; {remedy}"
    ));
    false
}

/// The result before the first rung.
fn beginning(choice: &SenderChoice, layout: &CpuLayout, is_placed: bool) -> LabBody {
    LabBody {
        rate_definition: RATE_DEFINITION.to_owned(),
        placement: format!(
            "two hosts on this machine   {}",
            layout.sentence(is_placed, &machine::kernel_release())
        ),
        delivery: delivery(layout, is_placed).to_owned(),
        sender: Some(choice.sentence()),
        notes: layout.notes(is_placed),
        ..LabBody::default()
    }
}

/// How queues are tied to CPUs.
fn delivery(layout: &CpuLayout, is_placed: bool) -> &'static str {
    match layout.delivery {
        _ if !is_placed => "no CPU of their own (unplaced)",
        Delivery::ThreadedNapi => "threaded NAPI",
        Delivery::SoftInterrupt => "soft interrupts of the sender's CPU",
        Delivery::Rps => "RPS",
    }
}

/// Selects the rungs that `--only` names, or all if it names none. `4` means 4a to 4e, because there
/// is no rung 4. Rungs that need more CPUs than this host has are skipped, unless `all` is set.
pub(crate) fn selected(
    layout: &CpuLayout,
    choice: &SenderChoice,
    only: &[String],
    all: bool,
) -> Result<Vec<Rung>> {
    let mut rungs = rungs(layout, choice, all);
    let numbers: Vec<&str> = rungs.iter().map(|rung| rung.number).collect();
    let names = |number: &str, wanted: &str| {
        let wanted = wanted.trim();
        let plain = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        number == wanted || plain == wanted && !numbers.contains(&wanted)
    };
    for wanted in only {
        ensure!(
            numbers.iter().any(|number| names(number, wanted)),
            "--only {wanted}: no such rung; `mpps lab --list` names them"
        );
    }
    rungs.retain(|rung| only.is_empty() || only.iter().any(|wanted| names(rung.number, wanted)));
    Ok(rungs)
}

/// Makes the lab of each rung, and finds out which rungs cannot run there.
fn place(rungs: &mut [Rung], labs: &mut Labs) -> Result<()> {
    for rung in rungs.iter_mut().filter(|rung| rung.skipped.is_none()) {
        for layout in [&rung.trial.layout].into_iter().chain(&rung.trial.meter) {
            labs.add(layout)?;
        }
        rung.skipped = labs.lacks_threads(&rung.trial.layout).map(str::to_owned);
        let is_tried = rung.is_beyond() || rung.trial.tracking.is_some();
        let tried = match rung.skipped {
            None if is_tried => rung.trial.tried(labs),
            _ => Ok(()),
        };
        if let Err(error) = tried {
            rung.needs = RungNeed::of(&error, rung.trial.path.is_rule());
            rung.skipped = Some(failure::explain(&error));
        }
    }
    Ok(())
}

impl RungNeed {
    /// The lack that is behind an obstacle, if one word says it.
    fn of(obstacle: &anyhow::Error, is_rule: bool) -> Option<Self> {
        let is_missing = |error: &LabError| matches!(error, LabError::NoProgram(_));
        // The obstacle of a rule has its words only.
        let is_forbidden = is_rule && !Rights::own().is_initial;
        match obstacle.downcast_ref() {
            Some(error) if is_missing(error) => Some(Self::Nft),
            _ => (is_forbidden || failure::is_forbidden(obstacle)).then_some(Self::Root),
        }
    }
}

/// The rungs as `--list` has them: number, name, and lesson or why it is skipped.
pub(crate) fn lines(rungs: &[Rung]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for rung in rungs {
        let Rung { number, name, .. } = rung;
        let rest = match &rung.skipped {
            Some(reason) => format!("skipped: {reason}"),
            None => rung.lesson.to_owned(),
        };
        lines.push(format!("{number:>3}  {name:<32} {rest}"));
    }
    lines.dedup();
    lines
}

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
type RungRuns = Case<Rung, UdpRun>;

/// A climb under way.
#[derive(Debug)]
struct Climb<'a> {
    labs: &'a Labs,
    /// The traffic, if it is not the lab's.
    live: Option<&'a LiveTraffic<'a>>,
    schedule: ClimbSchedule,
    choice: &'a SenderChoice,
    /// The work for each datagram of a further run.
    work: Option<Work>,
    /// True if what the receiving host does is shown while a rate is taken.
    has_screens: bool,
}

impl Climb<'_> {
    /// The runs of a rung in one round.
    fn run(&self, case: &RungRuns) -> Result<UdpRun> {
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
    fn results(&self, cases: &[RungRuns]) -> Vec<RungResult> {
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
        result.unplaced = self.live.is_none() && !self.labs.is_placed(&trial.layout);
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
        if rung.place.is_some() {
            let [queue, receiver] = [&layout.queues, &layout.applications];
            result.queue_cpu = queue.first().copied();
            result.receiver_cpu = receiver.first().copied();
        }
        let of_samples = case.samples.iter().flat_map(|run| notes(rung, run));
        let all: Vec<String> = rung
            .sharing(!result.unplaced)
            .into_iter()
            .chain(of_samples)
            .collect();
        note_each(&mut result.notes, &all);
        result.notes.extend(case.stopped());
        Some(result)
    }

    /// Of how many rungs, from the first, nothing will change any more.
    fn settled(&self, cases: &[RungRuns]) -> usize {
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

/// Enters the part of a rung's result that comes from its last run.
fn enter(result: &mut RungResult, lab: &Lab, rung: &Rung, run: &UdpRun) {
    let is_placed = !result.unplaced;
    let roles = |cpu| rung.roles(cpu, is_placed);
    let layout = &rung.trial.layout;
    let places = CpuTasks {
        roles: &roles,
        layout,
    };
    result.threads = thread_shares(rung, &run.rx);
    result.cpu_busy = cpu_busy(&run.busy, roles);
    result.limited_by = Some(limit::judge(run, &places));
    let is_socket = result.taken_by == TakenBy::Socket;
    result.path = is_socket.then(|| path(lab, rung, run));
}

/// Which way the packets took, by the counter that only that way moves.
fn path(lab: &Lab, rung: &Rung, run: &UdpRun) -> PathTaken {
    let delivery = rung.trial.layout.delivery;
    let interface = lab.receiver().interface();
    let receiver = &run.receiver;
    let queues: Vec<QueueShare> = run
        .queues
        .iter()
        .map(|queue| QueueShare {
            queue: u16::try_from(queue.queue).unwrap_or(u16::MAX),
            packets: u64::try_from(queue.packets).unwrap_or(0),
        })
        .collect();
    let polled: i64 = queues.iter().map(|queue| queue.packets as i64).sum();
    let wakes: i64 = receiver.softnet.iter().map(|row| row.received_rps).sum();
    let busy_polled = run.busy_polled() as i64;
    let from_ring = ("receiver rx_queue_N_xdp_packets", polled);
    let woken = (
        "softnet_stat received_rps (wake-ups by another CPU, host-wide)",
        wakes,
    );
    let (way, (counter, count)) = match delivery {
        _ if rung.trial.path.polls_itself() && busy_polled > 0 => (
            match delivery {
                Delivery::ThreadedNapi => {
                    "veth ring → NAPI, polled by the receiver or by its kernel thread"
                }
                Delivery::SoftInterrupt | Delivery::Rps => {
                    "veth ring → NAPI, polled by the receiver or in soft interrupt"
                }
            },
            (
                "receiver TcpExt.BusyPollRxPackets (polled by the receiver)",
                busy_polled,
            ),
        ),
        Delivery::Rps if !lab.has_rings() => ("veth → RPS → backlog of a CPU", woken),
        _ if !lab.has_rings() => {
            let packets = receiver.link(interface).map_or(0, |link| link.rx_packets);
            let counted = ("receiver rx_packets", packets);
            ("veth → backlog of the sender's CPU", counted)
        }
        Delivery::SoftInterrupt => (
            "veth ring → NAPI in soft interrupt on the sender's CPU",
            from_ring,
        ),
        Delivery::ThreadedNapi if lab.napi_threads().is_empty() => {
            ("veth ring → NAPI in soft interrupt, unplaced", from_ring)
        }
        Delivery::ThreadedNapi => ("veth ring → threaded NAPI", from_ring),
        Delivery::Rps => (
            "veth ring → NAPI on the sender's CPU → RPS → backlog",
            woken,
        ),
    };
    PathTaken {
        name: format!("{way} → IP → UDP → socket"),
        counter: counter.to_owned(),
        count: u64::try_from(count).unwrap_or(0),
        queues,
    }
}

fn cpu_busy(busy: &[mpps_host::CpuBusy], roles: impl Fn(usize) -> Vec<String>) -> Vec<RungCpuBusy> {
    let one = |cpu: &mpps_host::CpuBusy| RungCpuBusy {
        cpu: cpu.cpu,
        busy: cpu.busy,
        softirq: cpu.softirq,
        roles: roles(cpu.cpu),
    };
    busy.iter().map(one).collect()
}

/// Notes on facts that the figures of a run do not show.
fn notes(rung: &Rung, run: &UdpRun) -> Vec<String> {
    let mut notes = Vec::new();
    if rung.is_beyond() {
        notes.push(format!("works as: {}", run.mode));
    }
    if rung.trial.path.is_rule() {
        notes.push("no program receives: the rate is what the rule dropped and counted".to_owned());
    }
    if let Some(bytes) = run
        .send_buffer_bytes
        .filter(|bytes| *bytes < SEND_BUFFER_BYTES)
    {
        notes.push(format!(
            "send buffer {bytes} bytes instead of {SEND_BUFFER_BYTES} (net.core.wmem_max): a slow \
             receiver may slow the sender"
        ));
    }
    let blocked: u64 = run.tx.iter().map(|report| report.blocked).sum();
    if blocked > 0 {
        let full = match rung.trial.sender {
            LabSender::Socket { .. } => "the send buffer was full at times",
            LabSender::Generator => "the generator had to wait for pages at times",
        };
        notes.push(format!("{full}: the load was not quite open loop"));
    }
    notes
}

/// The part of the kernel that delivers packets that the receiver does not poll.
fn other_than_polled(lab: &Lab) -> &'static str {
    if !lab.has_rings() {
        "the backlog of a CPU, which a socket cannot poll"
    } else if lab.napi_threads().is_empty() {
        "soft interrupts of the sender's CPU"
    } else {
        "the queue's kernel thread"
    }
}

fn thread_shares(rung: &Rung, reports: &[RxReport]) -> Vec<ThreadShare> {
    let shared = matches!(rung.trial.sockets, TrialSockets::Shared(_));
    let share = |(thread, report): (usize, &RxReport)| {
        let received = report.counters.datagrams;
        ThreadShare {
            cpu: report.cpu,
            received,
            socket_drops: (thread == 0 || !shared).then_some(report.counters.dropped),
            packets_per_call: received as f64 / report.counters.calls.max(1) as f64,
            cpu_ns_per_packet: (received > 0).then(|| report.cpu_ns as f64 / received as f64),
        }
    };
    reports.iter().enumerate().map(share).collect()
}

/// Datagrams offered for each one received, over these runs; none if none was received. Datagrams
/// that the sender's host refused were not offered.
fn offered_per_received<'a>(ledgers: impl IntoIterator<Item = &'a Ledger>) -> Option<f64> {
    let (mut sent, mut received) = (0.0, 0.0);
    for ledger in ledgers {
        let refused = ledger.losses.iter();
        let refused = refused.filter(|loss| loss.station == Station::Sender);
        let refused: u64 = refused.map(|loss| loss.count).sum();
        sent += ledger.offered.saturating_sub(refused) as f64;
        received += (ledger.delivered + ledger.queued) as f64;
    }
    (received > 0.0).then(|| sent / received)
}

/// The sender of a rung as in the result, over the repeats with these ledgers.
fn rung_sender(
    sender: LabSender,
    why: &str,
    choice: &SenderChoice,
    ledgers: &[Ledger],
) -> RungSender {
    let offered_per_received = offered_per_received(ledgers);
    RungSender {
        name: sender.to_string(),
        backend: sender.backend().to_owned(),
        train: sender.train(),
        why: why.to_owned(),
        usual: sender == choice.sender,
        outran: outran(offered_per_received),
        offered_per_received,
    }
}

/// True if the receiver was the limit; a receiver that gets nothing at all is.
fn outran(offered_per_received: Option<f64>) -> bool {
    offered_per_received.is_none_or(|ratio| ratio >= OUTRUN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;
    use mpps_os::CallError;

    fn numbers(only: &[&str]) -> Result<Vec<String>> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let choice = SenderChoice::new(None, Some(4), 4)?;
        let chosen = selected(&two_cpus(), &choice, &only, false)?;
        let first = |line: String| line.split_whitespace().next().map(ToOwned::to_owned);
        Ok(lines(&chosen).into_iter().filter_map(first).collect())
    }

    #[test]
    fn a_lack_has_a_kind_if_one_word_says_it() {
        let program = || LabError::NoProgram("nft".to_owned()).into();
        let errno = std::io::Error::from_raw_os_error;
        let refused = |number| CallError::new("bpf", "map", errno(number)).into();
        for (obstacle, needs) in [
            (program(), Some(RungNeed::Nft)),
            (refused(1), Some(RungNeed::Root)),
            (refused(22), None),
        ] {
            assert_eq!(RungNeed::of(&obstacle, false), needs, "{obstacle:#}");
        }
    }

    #[test]
    fn the_rungs_beyond_sockets_come_last() {
        let all = numbers(&[]).unwrap();
        assert_eq!(all.len(), 27);
        assert_eq!(all[all.len() - 3..], ["16", "17", "18"]);
        assert_eq!(
            numbers(&["4", "15"]).unwrap(),
            ["4a", "4b", "4c", "4d", "4e", "15"]
        );
        assert_eq!(numbers(&["2"]).unwrap(), ["2"]);
        let error = numbers(&["19"]).unwrap_err().to_string();
        assert!(error.contains("--only 19"), "{error}");
    }

    #[test]
    fn what_the_senders_own_host_refused_outran_nobody() {
        let mut ledger = Ledger::new(1000, 500, 0);
        assert_eq!(offered_per_received([&ledger]), Some(2.0));
        ledger.lose(mpps_host::Loss::new(
            Station::Sender,
            "refused",
            500,
            "errno",
        ));
        assert_eq!(offered_per_received([&ledger]), Some(1.0));
        assert_eq!(offered_per_received([&Ledger::new(9, 0, 0)]), None);
    }

    #[test]
    fn a_receiver_that_gets_nothing_is_outrun() {
        let ledger = Ledger::new;
        let of = |ledger| outran(offered_per_received([&ledger]));
        assert!(of(ledger(10, 0, 0)) && of(ledger(105, 100, 0)));
        assert!(!of(ledger(100, 96, 0)));
    }
}
