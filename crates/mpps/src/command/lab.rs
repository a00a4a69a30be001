//! `mpps lab`: the ladder on two hosts inside this machine, or a shell on one of them.

pub(super) mod files;
mod tcp;

use super::{Outcome, command_line, kernel_release};
use crate::args::{DeliveryArg, LabArgs, Ladder};
use crate::ladder::{Bench, Choice, Climb, Layout, Rung, Schedule, Step, rungs};
use crate::output::{self, Stream};
use crate::report::{html, text::Text};
use crate::result::{LAB_SCHEMA, LabResult};
use crate::signal::Interrupt;
use anyhow::{Context, Result, bail, ensure};
use files::OutputFile;
use indicatif::{ProgressBar, ProgressStyle};
use mpps_host::{Fingerprint, Ledger, Topology};
use mpps_lab::{Delivery, Lab, LabConfig};
use mpps_os::{capability, namespace};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Climbs the ladder, lists it, or opens a shell on the receiver host.
pub(super) fn run(args: LabArgs) -> Result<Outcome> {
    if let Some(option) = args.foreign() {
        bail!("{option} is not for this ladder; `mpps lab --help` tells which it is for");
    }
    if args.ladder == Ladder::Tcp {
        return tcp::run(&args);
    }
    // An ordinary user gets a user namespace of its own, which must happen while there is one
    // thread: unshare(2), CLONE_NEWUSER.
    let ordinary = !capability::effective(capability::CAP_SYS_ADMIN)
        || !capability::effective(capability::CAP_NET_ADMIN);
    let choice = Choice::new(args.generator, args.train)?;
    let layout = Layout::new(Topology::read()?);
    let chosen = choose(rungs(&layout, choice.first), &args.only)?;
    if args.list {
        return list(&chosen);
    }
    if ordinary {
        namespace::become_root_in_user_namespace().context(
            "an ordinary user needs user namespaces for the lab (sysctl user.max_user_namespaces, \
             kernel.unprivileged_userns_clone or AppArmor may forbid them); run as root",
        )?;
    }
    if args.shell || !args.command.is_empty() {
        return visit(&args, &layout);
    }
    climb(&args, layout, choice)
}

/// The rungs that `--only` names: `4` means 4a to 4d.
fn choose(rungs: Vec<Rung>, only: &[String]) -> Result<Vec<Rung>> {
    let names = |rung: &Rung, wanted: &str| {
        let wanted = wanted.trim();
        let number = rung
            .number
            .trim_end_matches(|c: char| c.is_ascii_alphabetic());
        rung.number == wanted || number == wanted
    };
    for wanted in only {
        ensure!(
            rungs.iter().any(|rung| names(rung, wanted)),
            "--only {wanted}: no such rung; `mpps lab --list` names them"
        );
    }
    let keep = |rung: &Rung| only.is_empty() || only.iter().any(|wanted| names(rung, wanted));
    Ok(rungs.into_iter().filter(keep).collect())
}

fn list(rungs: &[Rung]) -> Result<Outcome> {
    for rung in rungs {
        let (number, name) = (&rung.number, &rung.name);
        let rest = match &rung.skipped {
            Some(reason) => format!("skipped: {reason}"),
            None => rung.lesson.to_owned(),
        };
        output::line(Stream::Out, &format!("{number:>3}  {name:<32} {rest}"))?;
    }
    Ok(Outcome::Fine)
}

fn config(args: &LabArgs, layout: &Layout) -> LabConfig {
    LabConfig {
        queue_cpus: layout.queues.clone(),
        delivery: delivery(args),
        ..LabConfig::default()
    }
}

fn delivery(args: &LabArgs) -> Delivery {
    match args.delivery {
        None | Some(DeliveryArg::ThreadedNapi) => Delivery::ThreadedNapi,
        Some(DeliveryArg::Rps) => Delivery::Rps,
    }
}

/// Runs a shell or a command on the receiver host, and ends with its status.
fn visit(args: &LabArgs, layout: &Layout) -> Result<Outcome> {
    let lab = Lab::new(&config(args, layout))?;
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let mut command = match args.command.split_first() {
        Some((program, rest)) => {
            let mut command = Command::new(program);
            command.args(rest);
            command
        }
        None => {
            let last = receiver
                .v4()
                .last()
                .map(ToString::to_string)
                .unwrap_or_default();
            let addresses = |host: &mpps_lab::Host| {
                let v4 = host
                    .v4()
                    .first()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let v6 = host
                    .v6()
                    .first()
                    .map_or_else(String::new, |v6| format!(", {v6}"));
                format!("{v4}{v6}")
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
                output::line(Stream::Err, line)?;
            }
            Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into()))
        }
    };
    let namespace = sender.namespace().inheritable()?;
    let path = format!("/proc/self/fd/{}", namespace.as_raw_fd());
    command.env("MPPS_SENDER", path);
    let name = command.get_program().to_string_lossy().into_owned();
    // The command hears of Ctrl-C as well, and ends as it likes; so do we, after it.
    let _interrupt = Interrupt::listen()?;
    let mut child = receiver
        .spawn(command)
        .with_context(|| format!("cannot run {name}"))?;
    for note in child.notes() {
        output::line(Stream::Err, note)?;
    }
    let status = child.wait()?;
    // A program that a signal ended has no status; shells say 128 and the signal.
    let code = status.code().or_else(|| {
        use std::os::unix::process::ExitStatusExt;
        status.signal().map(|signal| 128 + signal)
    });
    Ok(Outcome::Status(
        u8::try_from(code.unwrap_or(1)).unwrap_or(1),
    ))
}

/// The data file and the report file, tried before anything is measured.
fn output_files(args: &LabArgs) -> Result<(OutputFile, OutputFile)> {
    let (json, html) = args.files();
    ensure!(json != html, "--json and --html name the same file");
    Ok((OutputFile::try_out(&json)?, OutputFile::try_out(&html)?))
}

/// Measures, reports as far as it came, and says whether every ledger balances.
fn climb(args: &LabArgs, mut layout: Layout, mut choice: Choice) -> Result<Outcome> {
    choice.probe()?;
    let (json, page) = output_files(args)?;
    let interrupt = Interrupt::listen()?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let lab = Lab::new(&config(args, &layout))?;
    layout.is_placed = lab.queue_cpu(0).is_some();
    let layout = &layout;
    let chosen = choose(rungs(layout, choice.first), &args.only)?;
    let sender = choice.sentence();
    let fingerprint = fingerprint(&lab)?;
    let bench = Bench {
        lab: &lab,
        layout,
        delivery: delivery(args),
        interrupt: &interrupt,
    };
    let mut climb = Climb::new(bench, schedule(args), choice, chosen);
    let bar = progress(climb.steps());
    let climbed = climb.climb(|rung, step| {
        if step == Step::Trial {
            bar.inc_length(1);
        }
        bar.set_message(format!("rung {} {}", rung.number, rung.name));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let complete = climbed?;
    let mut notes = lab.notes().to_vec();
    notes.append(&mut climb.notes);
    let drop_probe_ns = climb.drop_probe_ns;
    let result = LabResult {
        schema: LAB_SCHEMA.to_owned(),
        fingerprint,
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        quick: args.quick,
        complete,
        placement: format!(
            "two hosts on this machine   {}",
            layout.sentence(&kernel_release())
        ),
        delivery: match args.delivery {
            _ if lab.queue_cpu(0).is_none() => "no CPU of their own (unplaced)".to_owned(),
            None | Some(DeliveryArg::ThreadedNapi) => "threaded NAPI".to_owned(),
            Some(DeliveryArg::Rps) => "RPS".to_owned(),
        },
        sender: Some(sender),
        notes,
        drop_probe_ns,
        rungs: climb.results(),
    };
    drop(lab);
    report(&result, json, page)?;
    Ok(match (complete, balances(&result)) {
        (false, _) => Outcome::Interrupted,
        (true, false) => Outcome::Found,
        (true, true) => Outcome::Fine,
    })
}

fn schedule(args: &LabArgs) -> Schedule {
    if args.quick {
        return Schedule {
            time: Duration::from_millis(350),
            repeats: 1,
            exact_time: Duration::from_millis(150),
            probe_cost: (30_000, 3),
        };
    }
    Schedule {
        time: args.seconds,
        repeats: usize::from(args.repeat),
        exact_time: args.seconds.min(Duration::from_millis(500)),
        probe_cost: (100_000, 3),
    }
}

/// The machine, with both ends of the link.
fn fingerprint(lab: &Lab) -> Result<Fingerprint> {
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let mut fingerprint = receiver.run(|| Fingerprint::collect(&[receiver.interface()]))??;
    let other = sender.run(|| Fingerprint::collect(&[sender.interface()]))??;
    fingerprint.interfaces.extend(other.interfaces);
    Ok(fingerprint)
}

/// Draws nothing unless standard error is a terminal.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let template = "{bar:20} {pos}/{len} ends in {eta}  {wide_msg}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn report(result: &LabResult, json: OutputFile, page: OutputFile) -> Result<()> {
    let text = Text::new(output::width(), output::colour());
    let files = [
        ("report", page.path().to_owned()),
        ("data", json.path().to_owned()),
    ];
    let name = json
        .path()
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut data = Vec::new();
    crate::report::json::write(result, &mut data)?;
    json.write(&data)?;
    page.write(html::page(result, name.as_deref()).as_bytes())?;
    output::line(Stream::Out, text.header(result).trim_end())?;
    for rung in &result.rungs {
        output::line(Stream::Out, text.row(rung).trim_end())?;
    }
    let files: Vec<_> = files
        .iter()
        .map(|(what, path)| (*what, path.as_path()))
        .collect();
    Ok(output::line(
        Stream::Out,
        text.closing(result, &files).trim_end(),
    )?)
}

/// True if no datagram is unaccounted for where the counters are exact.
fn balances(result: &LabResult) -> bool {
    let exact = |ledger: &&Ledger| ledger.is_exact();
    result.rungs.iter().all(|rung| {
        let mut ledgers = rung.ledger.iter().chain(&rung.sample_ledgers).filter(exact);
        ledgers.all(|ledger| ledger.unaccounted == 0)
    })
}
