//! `mpps lab`: the ladder on two hosts inside this machine, or a shell on one of them.

mod tcp;

use super::CommandEnding;
mod args;

use crate::experiment::ladder::ClimbSchedule;
use crate::experiment::ladder::document::{self, answer};
use crate::experiment::ladder::run::{LadderPlan, lines, run as run_ladder, selected};
use crate::machine::become_able;
use crate::measure::outcome::ended;
use crate::measure::series::Series;
use crate::measure::session::Session;
use crate::output::{self, OutputStream};
use crate::program::lines::LOOK;
use crate::signal::EndSignal;
use crate::udp::roles::{CpuLayout, config};
use crate::udp::sender::{SenderChoice, TRAIN};
use anyhow::{Context, Result};
pub(super) use args::LabArgs;
use args::{Ladder, UdpLadderArgs};
use mpps_host::Topology;
use mpps_lab::{Delivery, Lab};
use mpps_os::process::ContainedChild;
use mpps_report::Block;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Climbs the ladder, lists it, or opens a shell on the receiver host.
pub(super) fn run(args: LabArgs) -> Result<CommandEnding> {
    let args = match args.ladder {
        Some(Ladder::Tcp(args)) => return tcp::run(&args),
        Some(Ladder::Udp(args)) => args,
        None => args.udp,
    };
    SenderChoice::fits(args.generator, args.train)?;
    let asked = args.delivery;
    let topology = Topology::read()?;
    if args.list {
        let choice = SenderChoice::new(args.generator, args.train, TRAIN)?;
        let layout = CpuLayout::new(topology, asked);
        for line in lines(&selected(&layout, &choice, &args.only, args.all)?) {
            output::line(OutputStream::People, &line)?;
        }
        return Ok(CommandEnding::Fine);
    }
    if args.shell || !args.command.is_empty() {
        become_able()?;
        // The user's senders are not pinned to a CPU of the layout.
        let layout = CpuLayout::new(topology, asked.or(Some(Delivery::ThreadedNapi)));
        return visit(&args, &layout);
    }
    // In a user namespace, the owners of links on the way to a file are unknown.
    let session = args.series.begin("lab", EndSignal::listen()?)?;
    become_able()?;
    // The rights of this process decide whether there is a generator.
    let choice = SenderChoice::new(args.generator, args.train, TRAIN)?;
    let plan = LadderPlan {
        layout: CpuLayout::new(topology, asked),
        choice,
        only: &args.only,
        all: args.all,
        live: None,
        schedule: schedule(&args.series),
        work: args.work,
        has_screens: args.verbose,
    };
    let shown = match args.verbose {
        true => LadderText::Whole,
        false => LadderText::Answer {
            has_reasons: args.why,
        },
    };
    climb(&plan, &session, shown)
}

/// Runs a shell or a command on the receiver host, and ends with its status.
fn visit(args: &UdpLadderArgs, layout: &CpuLayout) -> Result<CommandEnding> {
    let lab = Lab::new(&config(layout))?;
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let mut command = match args.command.split_first() {
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(rest);
            command
        }
        None => {
            let last = receiver.v4().last();
            let last = last.map_or_else(String::new, ToString::to_string);
            let addresses = |host: &mpps_lab::LabHost| {
                let v4 = host.v4().first().map(ToString::to_string);
                let v6 = host.v6().first().map(ToString::to_string);
                v4.into_iter().chain(v6).collect::<Vec<_>>().join(", ")
            };
            let (to, from) = (addresses(receiver), addresses(sender));
            let (here, there) = (receiver.interface(), sender.interface());
            let lines = [
                format!("this shell is on the receiver: {here}, {to} (to {last})"),
                format!("the other host is `{}`: {there}, {from}", sender.name()),
                "commands there: nsenter --net=$MPPS_SENDER mpps send 192.168.254.1:4321"
                    .to_owned(),
                "both vanish when the shell ends".to_owned(),
            ];
            for line in lines.iter().chain(lab.notes()) {
                output::line(OutputStream::Err, line)?;
            }
            Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()))
        }
    };
    let namespace = sender.namespace().inheritable()?;
    let path = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    command.env("MPPS_SENDER", path);
    let name = command.get_program().to_string_lossy().into_owned();
    let interrupt = EndSignal::listen()?;
    let mut child = receiver
        .spawn(command)
        .with_context(|| format!("cannot run {name}"))?;
    for note in child.notes() {
        output::line(OutputStream::Err, note)?;
    }
    await_end(&mut child, &interrupt)
}

/// Waits for the command, and ends with its status. A signal for mpps is passed on to the command,
/// which may end as it likes; what is still there after [`GRACE`] is killed.
fn await_end(child: &mut ContainedChild, interrupt: &EndSignal) -> Result<CommandEnding> {
    let mut passed_on: Option<(i32, Instant)> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            // A program that a signal ended has no status; shells say 128 and the signal.
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            return Ok(status_of(code.unwrap_or(1)));
        }
        match (passed_on, interrupt.signal()) {
            (Some((signal, at)), _) if at.elapsed() > GRACE => {
                child.kill()?;
                child.wait()?;
                return Ok(status_of(128 + signal));
            }
            (None, Some(signal)) => {
                child.signal(signal)?;
                passed_on = Some((signal, Instant::now()));
            }
            _ => {}
        }
        thread::sleep(LOOK);
    }
}

fn status_of(code: i32) -> CommandEnding {
    CommandEnding::Status(u8::try_from(code).unwrap_or(1))
}

/// How long a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

/// How much is printed of a climb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LadderText {
    /// The answer; true with the reason for each skipped rung.
    Answer { has_reasons: bool },
    /// All of it.
    Whole,
}

/// Climbs, prints each rung when it is known, and says whether every ledger balances. Of live traffic
/// they need not: losses before this host have no counter here.
pub(super) fn climb(
    plan: &LadderPlan<'_>,
    session: &Session,
    shown: LadderText,
) -> Result<CommandEnding> {
    let is_whole = shown == LadderText::Whole;
    let columns = match is_whole {
        true => document::columns(plan.work.is_some()),
        false => answer::columns(plan.work.is_some()),
    };
    let blocks = |blocks: &[Block]| output::blocks(OutputStream::People, blocks);
    // A closed output ends the printing, not the measurement.
    let mut printed = Ok(());
    let result = run_ladder(plan, session, |result, rung| {
        let row = match rung {
            Some(rung) if is_whole => Some(document::row(result, rung)),
            Some(rung) => answer::row(result, rung),
            None => None,
        };
        if printed.is_ok() {
            printed = match (rung, row) {
                (_, Some(row)) => output::row(OutputStream::People, &columns, &row),
                (Some(_), None) => Ok(()),
                (None, None) => {
                    let head = is_whole.then(|| blocks(&document::head(result)));
                    head.unwrap_or(Ok(()))
                        .and_then(|()| output::head(OutputStream::People, &columns))
                }
            };
        }
    })?;
    let files = session.files();
    let written = session.write(&result, &document::document(&result, &files));
    let closing = match shown {
        LadderText::Answer { has_reasons } => answer::closing(&result, &files, has_reasons),
        LadderText::Whole => document::closing(&result, &files),
    };
    let printed = printed.and_then(|()| blocks(&closing));
    ended(printed.map_err(Into::into), written)?;
    let balances = plan.live.is_some() || document::balanced(&result).is_good();
    Ok(CommandEnding::of(result.complete, balances))
}

/// How long and how often a rung runs.
pub(super) fn schedule(series: &Series) -> ClimbSchedule {
    let (time, repeats) = (series.time(), series.repeats());
    let (exact_time_max, packets) = match series.quick {
        true => (Duration::from_millis(150), 30_000),
        false => (Duration::from_millis(500), 100_000),
    };
    ClimbSchedule {
        time,
        repeats,
        exact_time: time.min(exact_time_max),
        probe_cost: (packets, 3),
    }
}
