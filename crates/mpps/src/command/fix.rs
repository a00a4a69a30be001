//! Fixes a running program from outside: changes what the doctor's findings call for, one thing at a
//! time, on the live traffic, and keeps what helps.

mod traffic;
mod watch;

use super::tune::check_interface;
use super::tune::proof::Proof;
use crate::failure;
use crate::measure::outcome::{CommandEnding, ended, put_back};
use crate::output::{self, OutputStream};
use crate::program::host::PartArgs;
use crate::program::lines::{JsonArgs, LOOK, OutputLines};
use crate::signal::{EndSignal, Interrupted};
use crate::udp::run::UdpRun;
use crate::value;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_host::Watch;
use mpps_host::check::{Fix, FixKind, fixes};
use mpps_host::fixing::{self, claim};
use mpps_host::setting::{Applied, SettingChange, Value};
use mpps_os::user::is_root;
use mpps_report::Quantity;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{FixTraffic, SocketsChanged, lost, wait};

/// A program that reads empties its queue within this time.
const SETTLES: Duration = Duration::from_secs(3);

/// Without traffic in this many runs, it has ended.
const TRIES: usize = 3;

/// Why a change is put back.
const DELAYS: &str = "no queue empties, so that it only delays the loss";
const ENDED: &str = "the traffic ended";

const LINES: OutputLines = OutputLines::PEOPLE;

/// Arguments of `mpps fix`.
#[derive(Debug, Args)]
#[command(
    mut_arg("port", |arg| arg.help("Fix the programs at this local port of UDP or TCP [default: any port]")),
    mut_arg("pid", |arg| arg.help("Fix this process, or its children if it has no socket [default: any process]"))
)]
pub(crate) struct FixArgs {
    #[command(flatten)]
    part: PartArgs,
    /// Look for losses for TIME first
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = value::seconds)]
    duration: Duration,
    /// Set the length of each run of a measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::seconds)]
    run: Duration,
    /// Measure N times without and N times with each change, in turn
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(3..=100))]
    repeat: u16,
    /// Change without asking
    #[arg(long)]
    yes: bool,
    /// Show the changes and make none
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Look until something is lost, and then stay: change a restarted program at --port again, without a
    /// new measurement
    #[arg(long, conflicts_with = "dry_run", requires = "port")]
    watch: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// The losses of a program.
struct Look {
    /// The changes that they call for.
    fixes: Vec<Fix>,
    /// Its sockets, how much they lost, and how much came.
    sockets: BTreeMap<FixTraffic, (BTreeSet<u32>, [u64; 2])>,
}

/// A change that is to be made, and measured.
#[derive(Clone)]
struct Step {
    fix: Fix,
    change: SettingChange,
}

/// Result of `mpps fix --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FixObject {
    /// [`FixObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// Datagrams and requests for connections that the program's sockets lost in the first look.
    lost: u64,
    /// All traffic of that kind in it: those lost, and those that programs of the namespace read or accepted.
    came: u64,
    /// The changes that may help, in the order of making them.
    steps: Vec<FixStep>,
}

/// A change.
#[derive(Debug, Serialize, JsonSchema)]
struct FixStep {
    /// The process; 0 for a stage of `mpps tune`.
    pid: u32,
    /// Its name, or that of the interface.
    program: String,
    /// The kind of change, as in docs/fix.md.
    stage: &'static str,
    /// Why it may help.
    why: String,
    /// From what to what, for each setting.
    edits: Vec<String>,
    /// Its effect; absent if it was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Proof>,
}

impl FixObject {
    /// The version of this form.
    pub const SCHEMA: &'static str = "mpps.fix.v1";

    fn new([lost, came]: [u64; 2], steps: &[Step], mut rows: BTreeMap<usize, Proof>) -> Self {
        let steps = steps.iter().enumerate().map(|(at, step)| FixStep {
            pid: step.fix.pid,
            program: step.fix.program.clone(),
            stage: step.fix.kind.name(),
            why: step.fix.why.clone(),
            edits: step.change.steps(),
            measured: rows.remove(&at),
        });
        Self {
            schema: Self::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            lost,
            came,
            steps: steps.collect(),
        }
    }
}

impl FixArgs {
    /// Does what is asked.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        ensure!(
            self.part.is_narrow(),
            "which program? name it: --port PORT, --pid PID or --container NAME"
        );
        // A change that has begun is completed before a signal can end the process.
        let interrupt = EndSignal::listen_held()?;
        let lines = self.json.begin()?;
        let Some(port) = self.part.port.filter(|_| self.watch) else {
            return Ok(self.fixed(&lines, &interrupt)?.0);
        };
        LINES.say(&format!("watching port {port} until Ctrl-C"))?;
        interrupt.ends_during(|| self.part.enter())?;
        let (kept, known) = watch::adopt(port)?;
        if !kept.is_empty() {
            return watch::keep(port, kept, known, &interrupt);
        }
        loop {
            let pause = match self.fixed(&lines, &interrupt) {
                Ok((_, kept)) if !kept.is_empty() => {
                    return watch::keep(port, kept, watch::sockets(port)?, &interrupt);
                }
                Ok((CommandEnding::Fine, _)) => Duration::ZERO,
                // Something is lost, and no change helps as yet.
                Ok(_) => watch::AGAIN,
                Err(error) if error.is::<Interrupted>() => return Ok(CommandEnding::Fine),
                // It ends or begins.
                Err(error) if error.is::<SocketsChanged>() => {
                    LINES.say(&format!("{error}: looking again when it is there"))?;
                    watch::sockets_come(port, &interrupt)?;
                    Duration::ZERO
                }
                Err(error) => return Err(error),
            };
            if wait(pause, &interrupt).is_err() {
                return Ok(CommandEnding::Fine);
            }
        }
    }

    /// Looks, and fixes; the changes that are kept.
    fn fixed(
        &self,
        lines: &OutputLines,
        interrupt: &EndSignal,
    ) -> Result<(CommandEnding, Vec<Fix>)> {
        let look = self.look(interrupt)?;
        ensure!(
            look.sockets.values().any(|(inodes, _)| !inodes.is_empty()),
            "no UDP socket or TCP listener of that program or port is in this network namespace; `{}` says where",
            self.part.words("mpps doctor")
        );
        let losses = look.losses();
        if self.watch && losses[0] == 0 {
            return Ok((CommandEnding::Fine, Vec::new()));
        }
        let (mut steps, mut rows, mut made) = (Vec::new(), BTreeMap::new(), Vec::new());
        let fixed = self.decide(&look, &mut steps, &mut rows, &mut made, interrupt);
        // After an error all is put back.
        rows.values_mut().for_each(|row| row.kept &= fixed.is_ok());
        let kept = rows.iter().filter(|(_, row)| row.kept);
        let kept = kept.map(|(at, _)| steps[*at].fix.clone()).collect();
        let written = lines.object(&FixObject::new(losses, &steps, rows));
        let fixed = fixed.and_then(|ending| written.map(|()| ending));
        match fixed {
            Ok(ending) => {
                made.into_iter().try_for_each(Applied::keep)?;
                Ok((ending, kept))
            }
            Err(error) => {
                let back = made.into_iter().rev().map(back).fold(Ok(()), Result::and);
                if error.is::<Interrupted>() && back.is_ok() {
                    output::sentence(OutputStream::Err, "interrupted: all is as it was")?;
                }
                ended(Err(error), back)
            }
        }
    }

    /// Shows the changes, asks, and makes them.
    fn decide(
        &self,
        look: &Look,
        steps: &mut Vec<Step>,
        rows: &mut BTreeMap<usize, Proof>,
        made: &mut Vec<Applied>,
        interrupt: &EndSignal,
    ) -> Result<CommandEnding> {
        *steps = look.steps(self.dry_run)?;
        if steps.is_empty() {
            return nothing(look.losses());
        }
        for (number, step) in (1..).zip(&*steps) {
            step.lines(number)
                .iter()
                .try_for_each(|line| LINES.say(line))?;
        }
        if self.dry_run {
            return Ok(CommandEnding::Found);
        }
        if !self.yes && !agrees(interrupt)? {
            LINES.say("nothing was changed")?;
            return Ok(CommandEnding::Found);
        }
        let pids: BTreeSet<u32> = steps.iter().map(|step| step.fix.pid).collect();
        let claims = pids.into_iter().filter(|pid| *pid > 0);
        let claims = claims.map(|pid| Ok(Applied::new(&claim(pid)?)?));
        let claims: Vec<Applied> = claims.collect::<Result<_>>()?;
        if !self.watch {
            // Half a run goes before each.
            let time = self.run * u32::from(self.repeat) * 3;
            let time = Quantity::Seconds(time.as_secs_f64());
            let text = format!("measuring each change for about {time}; Ctrl-C puts all back");
            output::sentence(OutputStream::Err, &text)?;
        }
        let fixed = self.fix(steps, look, rows, made, interrupt);
        for claim in claims {
            // It changes nothing.
            let _ = claim.undo();
        }
        fixed
    }

    /// Looks for losses for a while.
    fn look(&self, interrupt: &EndSignal) -> Result<Look> {
        let only = self.part.processes()?;
        interrupt.ends_during(|| self.part.enter())?;
        let mut watch = interrupt.ends_during(|| Watch::begin(None, self.part.asked()))?;
        let time = Quantity::Seconds(self.duration.as_secs_f64());
        if !self.watch {
            output::sentence(OutputStream::Err, &format!("looking for {time}"))?;
        }
        let end = Instant::now() + self.duration;
        while Instant::now() < end {
            watch.look_at_queues();
            wait(
                LOOK.min(end.saturating_duration_since(Instant::now())),
                interrupt,
            )?;
        }
        watch.look_at_losses(&|| !interrupt.came())?;
        let seen = watch.seen();
        let mut fixes = fixes(&seen);
        fixes.retain(|fix| only.as_ref().is_none_or(|only| only.contains(&fix.pid)));
        let mut sockets = seen.sockets.iter();
        let is_hidden = sockets.any(|one| one.drops.grown() > 0 && one.owner.is_none());
        ensure!(
            !fixes.is_empty() || !is_hidden || is_root(),
            "cannot see which program has the sockets that lose: it is of another user; run this as root"
        );
        let interface = fixes.iter().find_map(interface);
        let all = [
            FixTraffic::Datagrams,
            FixTraffic::Connections,
            FixTraffic::Sent,
            FixTraffic::Passing,
        ];
        let sockets = all.map(|one| (one, one.seen(&seen, interface)));
        Ok(Look {
            sockets: sockets.into(),
            fixes,
        })
    }

    /// Makes and measures the changes; those that stay are added to `made`.
    fn fix(
        &self,
        steps: &[Step],
        look: &Look,
        rows: &mut BTreeMap<usize, Proof>,
        made: &mut Vec<Applied>,
        interrupt: &EndSignal,
    ) -> Result<CommandEnding> {
        let mut after: BTreeMap<FixTraffic, [u64; 2]> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let traffic = step.traffic();
            if after.get(&traffic).copied().is_some_and(is_lossless) {
                continue;
            }
            let (all, _) = &look.sockets[&traffic];
            let before = rows
                .iter()
                .filter(|(at, _)| steps[**at].traffic() == traffic);
            let before = before.map(|(_, row)| row);
            let kept = rows.iter().filter(|(_, row)| row.kept);
            let step = &step.on_top_of(kept.map(|(at, _)| &steps[*at]));
            let (row, applied) = self.prove(step, &step.sockets(all), before, interrupt)?;
            let verdict = match (&applied, &row.stopped) {
                (Some(_), _) => "kept".to_owned(),
                (None, Some(why)) => format!("put back: {why}"),
                (None, None) => "put back: it does not lose less beyond the noise".to_owned(),
            };
            made.extend(applied);
            let [without, with] = row.lost_shares().map(percent);
            LINES.say(&format!("{}. lost {without} -> {with}: {verdict}", at + 1))?;
            let is_kept = row.kept;
            rows.insert(at, row);
            if !is_kept {
                continue;
            }
            let on = interface(&step.fix);
            let now = lost(&traffic.measure(all, on, self.run, interrupt)?.ledger);
            after.insert(traffic, now);
            let mut rest = steps[at + 1..].iter();
            if is_lossless(now) && rest.any(|step| step.traffic() == traffic) {
                LINES.say("nothing is lost any more; the other changes are not made")?;
            }
        }
        if after.is_empty() {
            let mut tried = rows.keys().map(|at| &steps[*at].change);
            let rest = match tried.any(fixing::may_lose_program) {
                true => {
                    ", except a program that the server attached to its group itself: restart it if it does so"
                }
                false => "",
            };
            LINES.say(&format!("no change was kept; all is as it was{rest}"))?;
            return Ok(CommandEnding::Found);
        }
        let is_mended = |(traffic, (_, [lost, _])): (&FixTraffic, &(BTreeSet<u32>, [u64; 2]))| {
            // Traffic through an interface includes the losses of sockets.
            let is_of = |of| of == traffic || *traffic == FixTraffic::Passing;
            let mut after = after.iter().filter(|(of, _)| is_of(*of));
            *lost == 0 || after.any(|(_, now)| is_lossless(*now))
        };
        let ending = match look.sockets.iter().all(is_mended) {
            true => CommandEnding::Fine,
            false => CommandEnding::Found,
        };
        for (traffic, now) in after {
            let (_, losses) = look.sockets[&traffic];
            let noun = traffic.noun();
            LINES.say(&format!("{noun}lost {} -> {}", share(losses), share(now)))?;
        }
        let kept = rows.iter().filter(|(_, row)| row.kept);
        let kept: Vec<&Fix> = kept.map(|(at, _)| &steps[*at].fix).collect();
        for fix in &kept {
            LINES.say(&fix.stays())?;
        }
        // A stage of `mpps tune` says itself what restores it.
        if kept.iter().any(|fix| interface(fix).is_none()) {
            LINES.say("`mpps undo` takes it back")?;
        }
        Ok(ending)
    }

    /// Measures one change, without it and with it in turn; the change, if it stays.
    fn prove<'a>(
        &self,
        step: &Step,
        inodes: &BTreeSet<u32>,
        before: impl Iterator<Item = &'a Proof> + Clone,
        interrupt: &EndSignal,
    ) -> Result<(Proof, Option<Applied>)> {
        let mut sides: [Vec<UdpRun>; 2] = Default::default();
        let (mut edits, mut applied, mut stopped) = (Vec::new(), None, None);
        // A process that was stopped is not stopped again.
        let turns = match step.fix.kind {
            FixKind::Continue => 1,
            _ => self.repeat,
        };
        for _ in 0..turns {
            let turn = self.turn(step, inodes, &mut sides, &mut applied, interrupt);
            edits = applied.as_ref().map_or(edits, Applied::steps);
            stopped = match turn {
                Ok(stopped) => stopped,
                Err(error) => return ended(Err(error), applied.take().map_or(Ok(()), back)),
            };
            if stopped.is_some() {
                break;
            }
        }
        let mut row = Proof::new(step.fix.kind.name(), edits, &sides, before);
        row.stopped = stopped;
        row.kept = row.loses_less();
        if row.kept && matches!(step.fix.kind, FixKind::Size(..)) {
            // A queue may also fill up more slowly than in one run.
            let stays = wait(self.run * u32::from(self.repeat), interrupt)
                .and_then(|()| step.settles(2, interrupt));
            match stays {
                Ok(stays) => row.kept = stays,
                Err(error) => return ended(Err(error), applied.take().map_or(Ok(()), back)),
            }
            row.stopped = (!row.kept).then(|| DELAYS.to_owned());
        }
        if !row.kept {
            applied.take().map_or(Ok(()), back)?;
        }
        Ok((row, applied))
    }

    /// Measures without a change, makes it, and measures with it; why that is the last time, if it is.
    fn turn(
        &self,
        step: &Step,
        inodes: &BTreeSet<u32>,
        sides: &mut [Vec<UdpRun>; 2],
        applied: &mut Option<Applied>,
        interrupt: &EndSignal,
    ) -> Result<Option<String>> {
        let runs = match step.fix.kind {
            FixKind::Continue => self.repeat,
            _ => 1,
        };
        let on = interface(&step.fix);
        let one = || {
            // Queues that fill or empty after a change are of neither side.
            wait(self.run / 2, interrupt)?;
            step.traffic().measure(inodes, on, self.run, interrupt)
        };
        // A run with less than a tenth of the first one's traffic says nothing, and may lie between two bursts.
        let some = |first: u64| -> Result<Option<UdpRun>> {
            for _ in 0..TRIES {
                let run = one()?;
                if run.ledger.offered.saturating_mul(10) >= first {
                    return Ok(Some(run));
                }
            }
            Ok(None)
        };
        let measure =
            |first| -> Result<Option<Vec<_>>> { (0..runs).map(|_| some(first)).collect() };
        let first = |side: &[UdpRun]| side.first().map_or(1, |run| run.ledger.offered);
        if let Some(change) = applied.take() {
            back(change)?;
            // Datagrams that wait in a larger queue are not of the next run.
            if !step.settles(1, interrupt)? {
                return Ok(Some(DELAYS.to_owned()));
            }
        }
        let Some(without) = measure(first(&sides[0]))? else {
            return Ok(Some(ENDED.to_owned()));
        };
        sides[0].extend(without);
        match Applied::new_while(&step.change, &|| !interrupt.came()) {
            Ok(change) => *applied = Some(change),
            Err(error) => {
                one()?;
                return Ok(Some(failure::explain(&error.into())));
            }
        }
        if !step.settles(2, interrupt)? {
            return Ok(Some(DELAYS.to_owned()));
        }
        let Some(with) = measure(first(&sides[0]))? else {
            return Ok(Some(ENDED.to_owned()));
        };
        if !step.settles(2, interrupt)? {
            return Ok(Some(DELAYS.to_owned()));
        }
        sides[1].extend(with);
        Ok(None)
    }
}

impl Look {
    /// How much was lost, and how much came of that kind.
    fn losses(&self) -> [u64; 2] {
        let lossy = self.sockets.iter().map(|(one, (_, losses))| (one, losses));
        let mut lossy: Vec<_> = lossy.filter(|(_, [lost, _])| *lost > 0).collect();
        // It has those of sockets, too.
        if lossy.len() > 1 {
            lossy.retain(|(one, _)| **one != FixTraffic::Passing);
        }
        let add = |sum: [u64; 2], each: &[u64; 2]| [sum[0] + each[0], sum[1] + each[1]];
        lossy.iter().fold([0, 0], |sum, (_, each)| add(sum, each))
    }

    /// The changes that are possible; those that would be, if none is made. A kind that is kept on its process is
    /// not made once more.
    fn steps(&self, is_dry: bool) -> Result<Vec<Step>> {
        let (mut steps, mut refused) = (Vec::new(), Vec::new());
        let mut has_program = BTreeSet::new();
        for fix in self.fixes.iter().cloned() {
            let change = match (interface(&fix), fixing::change(&fix)) {
                // It cannot be tuned, as without /sys of its namespace.
                (Some(_), Err(_)) => continue,
                // It has ended, as programs beside the reader may.
                (None, Err(_)) if !fixing::lives(fix.pid) => continue,
                (_, change) => change.with_context(|| format!("cannot change {}", fix.whose()))?,
            };
            if change.edits.is_empty() {
                continue;
            }
            let risks = change.edits.iter().flat_map(|edit| edit.setting.risks());
            let risks: Vec<_> = risks.copied().collect();
            if let Some(interface) = interface(&fix)
                && check_interface(interface, &risks, false).is_err()
            {
                LINES.say(&format!(
                    "{}: left as it is: its link may go down, and the ssh session or the default route needs it",
                    change.heading
                ))?;
                continue;
            }
            if let Some(edits) = fixing::kept_before(&change, is_dry) {
                LINES.say(&format!(
                    "{}: fixed already: {}; to change it again, restore it by `mpps {}` first",
                    change.heading,
                    edits.join(", "),
                    interface(&fix).map_or("undo".to_owned(), |name| format!("tune undo {name}"))
                ))?;
                continue;
            }
            if fixing::replaces_program(&change) {
                if has_program.insert(fix.pid) {
                    LINES.say(&format!(
                        "{}: left as it is: a program chooses the sockets of its group, and could not be restored",
                        change.heading
                    ))?;
                }
                continue;
            }
            match fixing::obstacle(&change).filter(|_| !is_dry) {
                Some(why) => refused.push((fix.kind.name(), anyhow::Error::from(why))),
                None => steps.push(Step { fix, change }),
            }
        }
        if steps.is_empty()
            && let Some((name, why)) = refused.pop()
        {
            return Err(why.context(format!("{name} is not possible")));
        }
        for (name, why) in refused {
            LINES.say(&format!(
                "{name} is not possible: {}",
                failure::explain(&why)
            ))?;
        }
        Ok(steps)
    }
}

impl Step {
    /// The same after these others, which may have changed the same setting.
    fn on_top_of<'a>(&self, kept: impl Iterator<Item = &'a Self>) -> Self {
        let mut step = self.clone();
        for made in kept.flat_map(|step| &step.change.edits) {
            let mut edits = step.change.edits.iter_mut();
            if let Some(edit) = edits.find(|edit| edit.setting == made.setting) {
                edit.old = made.new.clone();
            }
        }
        step
    }

    fn traffic(&self) -> FixTraffic {
        FixTraffic::of(&self.fix.kind)
    }

    /// The sockets that it changes, of all these.
    fn sockets(&self, all: &BTreeSet<u32>) -> BTreeSet<u32> {
        match &self.fix.kind {
            FixKind::Size(_, inodes, _) => inodes.iter().copied().collect(),
            _ => all.clone(),
        }
    }

    /// Waits until each queue that got more room has once held no more than this part of what it had before;
    /// false if one never does. A longer queue that fills up only delays the loss, and looks like a cure until
    /// then.
    fn settles(&self, part: u32, interrupt: &EndSignal) -> Result<bool> {
        let FixKind::Size(_, inodes, _) = &self.fix.kind else {
            return Ok(true);
        };
        let old = self.change.edits.iter().map(|edit| &edit.old);
        let old = old.filter_map(|value| match value {
            Value::Number(size) => u32::try_from(*size).ok(),
            _ => None,
        });
        let most = old.max().unwrap_or(0) / part;
        let mut full: BTreeSet<u32> = inodes.iter().copied().collect();
        let end = Instant::now() + SETTLES;
        while !full.is_empty() && Instant::now() < end {
            ensure!(!interrupt.came(), Interrupted);
            let queues = self.traffic().queues()?;
            full.retain(|inode| queues.get(inode).is_some_and(|waits| *waits > most));
            thread::sleep(Duration::from_millis(2));
        }
        Ok(full.is_empty())
    }

    fn lines(&self, number: usize) -> Vec<String> {
        let Fix { pid, why, .. } = &self.fix;
        let object = interface(&self.fix).map_or_else(|| pid.to_string(), str::to_owned);
        let mut lines = vec![format!("{number}. {}: {why}", self.fix.whose())];
        let edits = self.change.edits.iter().map(|edit| {
            let command = edit.setting.command(&object, &edit.new);
            (edit.to_string(), command)
        });
        let edits: Vec<_> = edits.collect();
        for same in edits.chunk_by(|one, next| one == next) {
            let (edit, command) = &same[0];
            let often = match same.len() {
                1 => String::new(),
                sockets => format!(" for each of {sockets} sockets"),
            };
            lines.push(format!("   change  {edit}{often}"));
            lines.extend((!command.is_empty()).then(|| format!("   as      {command}")));
        }
        let class = "each socket gets the traffic class (net_cls, net_prio) of mpps, and keeps it";
        let class = fixing::gives_class(&self.fix).then(|| class.to_owned());
        let program = "a program that the server attached itself is replaced, and does not come back: whether there is \
                       one only root sees (Linux 5.10)";
        let program = fixing::may_lose_program(&self.change).then(|| program.to_owned());
        let own = self.fix.kind.risk().map(str::to_owned);
        let edits = self.change.edits.iter();
        let settings: BTreeSet<_> = edits.flat_map(|edit| edit.setting.risks()).collect();
        let settings = settings.iter().map(ToString::to_string);
        let risks = own.into_iter().chain(program).chain(class).chain(settings);
        lines.extend(risks.map(|risk| format!("   risk    {risk}")));
        lines
    }
}

/// The interface of a stage of `mpps tune`.
fn interface(fix: &Fix) -> Option<&str> {
    match &fix.kind {
        FixKind::Tune(_, interface) => Some(interface),
        _ => None,
    }
}

/// Where nothing can be changed from outside.
fn nothing([lost, came]: [u64; 2]) -> Result<CommandEnding> {
    if lost == 0 {
        LINES.say("its sockets lost nothing; it is left as it is")?;
        return Ok(CommandEnding::Fine);
    }
    let share = share([lost, came]);
    LINES.say(&format!(
        "its sockets lost {share}: {lost} of {came}; no change from outside would help: `mpps doctor` says why"
    ))?;
    Ok(CommandEnding::Found)
}

/// Puts a change back.
fn back(applied: Applied) -> Result<()> {
    let outcomes = applied.undo();
    for outcome in outcomes.iter().filter(|outcome| !outcome.clean()) {
        let _ = output::sentence(OutputStream::Err, &outcome.to_string());
    }
    put_back(&outcomes, "fix")
}

/// Whether the user agrees to the changes. Signals are held, so that the read goes on after Ctrl-C: it is
/// left to a thread.
fn agrees(interrupt: &EndSignal) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!(
            "no terminal to ask on; add --yes to make these changes, or --dry-run to only see them"
        );
    }
    output::sentence(
        OutputStream::Err,
        "make these changes, one at a time, and keep those that help? [y/N]",
    )?;
    let (said, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut answer = String::new();
        let read = io::stdin().read_line(&mut answer);
        said.send(read.map(|_| answer))
    });
    loop {
        ensure!(!interrupt.came(), Interrupted);
        if let Ok(answer) = heard.recv_timeout(LOOK) {
            return Ok(matches!(answer?.trim(), "y" | "Y" | "yes"));
        }
    }
}

/// True if something came, and nothing was lost of it.
fn is_lossless([lost, came]: [u64; 2]) -> bool {
    lost == 0 && came > 0
}

/// The share lost of those that came.
fn share([lost, came]: [u64; 2]) -> String {
    percent((came > 0).then(|| lost as f64 / came as f64))
}

fn percent(share: Option<f64>) -> String {
    share.map_or("not measured".to_owned(), |share| {
        Quantity::Share(share).to_string()
    })
}
