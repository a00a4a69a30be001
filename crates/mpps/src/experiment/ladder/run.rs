//! From the plan of a climb to its result.

use super::climb::{Climb, ClimbSchedule, RungRuns};
use super::live::LiveTraffic;
use super::probe_cost::drop_probe_ns;
use super::result::{LabBody, LabResult, LadderAnswer, RungNeed, RungResult};
use super::rung::{Rung, with_references};
use super::rungs::rungs;
use crate::failure;
use crate::machine;
use crate::measure::rounds::{Case, interleave};
use crate::measure::session::Session;
use crate::udp::RATE_DEFINITION;
use crate::udp::arriving::any_of;
use crate::udp::labs::Labs;
use crate::udp::roles::CpuLayout;
use crate::udp::run::attach;
use crate::udp::sender::SenderChoice;
use anyhow::{Context, Result, bail, ensure};
use mpps_host::{Fingerprint, Topology};
use mpps_io::Work;
use mpps_lab::{Delivery, LabError};
use mpps_os::capability::Rights;

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
///
/// # Errors
/// If a run fails.
pub(crate) fn run(
    plan: &LadderPlan<'_>,
    session: &Session,
    mut tell: impl FnMut(&LabResult, Option<&RungResult>),
) -> Result<LabResult> {
    let mut labs = Labs::new(&session.interrupt);
    let live = match plan.live {
        None => None,
        Some((interface, port)) => Some(LiveTraffic {
            interface,
            address: any_of(interface, port).context("--interface")?,
            time: plan.schedule.time,
            session,
        }),
    };
    let (layout, served) = match &live {
        Some(live) => {
            let (cpu, known) = live.served_by()?;
            let layout = CpuLayout::served_by(Topology::read()?, Vec::new(), vec![cpu]);
            (layout, format!("{}   {known}", live.place()))
        }
        None => (labs.usual(plan.layout.clone())?, String::new()),
    };
    let choice = plan.choice.clone().reaching(&layout);
    // Some rungs have their packets delivered in another way than most.
    let mut rungs = selected(&layout, &choice, plan.only, plan.all)?;
    let mut probed = None;
    let mut result = match &live {
        Some(live) => {
            let machine = Fingerprint::collect(&[live.interface])?;
            session.result(machine, live.beginning(&served))
        }
        None => {
            rungs = with_references(rungs);
            place(&mut rungs, &mut labs)?;
            let machine = machine::of_lab(labs.of(&layout)?)?;
            let mut result = session.result(machine, beginning(&choice, &layout));
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
fn beginning(choice: &SenderChoice, layout: &CpuLayout) -> LabBody {
    LabBody {
        rate_definition: RATE_DEFINITION.to_owned(),
        placement: format!(
            "two hosts on this machine   {}",
            layout.sentence(&machine::kernel_release())
        ),
        delivery: delivery(layout).to_owned(),
        sender: Some(choice.sentence()),
        notes: layout.notes(),
        ..LabBody::default()
    }
}

/// How queues are tied to CPUs.
fn delivery(layout: &CpuLayout) -> &'static str {
    match layout.delivery {
        _ if !layout.is_placed => "no CPU of their own (unplaced)",
        Delivery::ThreadedNapi => "threaded NAPI",
        Delivery::SoftInterrupt => "soft interrupts of the sender's CPU",
        Delivery::Rps => "RPS",
    }
}

/// Selects the rungs that `--only` names, or all if it names none. `4` means 4a to 4e, because there
/// is no rung 4. Rungs that need more CPUs than this host has are skipped, unless `all` is set.
///
/// # Errors
/// If there is no such rung.
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
        rung.trial.layout = labs.add(rung.trial.layout.clone())?;
        let meter = rung.trial.meter.take().map(|layout| labs.add(layout));
        rung.trial.meter = meter.transpose()?;
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
}
