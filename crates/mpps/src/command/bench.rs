//! `mpps bench`: every way to receive, over the same traffic.

use super::lab::{files::OutputFile, progress};
use super::{Outcome, command_line, kernel_release};
use crate::args::{BenchArgs, GeneratorArg};
use crate::bench::result::{BENCH_SCHEMA, BenchResult, OverloadCurve, SpreadRow};
use crate::bench::{
    Arrangement, Comparison, Cpus, Live, Loads, Napi, PATHS, Path, Schedule, Sender, Spread, Stage,
    advice, overload, spread_advice,
};
use crate::output::{self, Stream};
use crate::report::bench::text::BenchText;
use crate::report::bench::{balances, html};
use crate::signal::Interrupt;
use anyhow::{Context, Result, ensure};
use mpps_host::{Fingerprint, Topology};
use mpps_os::{capability, namespace};
use std::cmp::Ordering;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// Compares the paths, or lists them.
pub(super) fn run(args: BenchArgs) -> Result<Outcome> {
    let paths = choose(&args.only)?;
    ensure!(
        (1..=65_535).contains(&args.flows),
        "--flows {}: there are 1 to 65535 source ports",
        args.flows
    );
    ensure!(
        !args.spread || paths.iter().any(Path::is_rule),
        "--spread: it is of the paths that drop early, whose names end in _drop, and --only names none"
    );
    ensure!(
        !args.overload || paths.iter().any(|path| path.shares_cpu),
        "--overload: queue and application share a CPU, and --only names no path that can; name \
         recvmmsg, af_xdp or another receiver"
    );
    ensure!(
        args.json != args.html,
        "--json and --html name the same file"
    );
    let ordinary = !capability::effective(capability::CAP_SYS_ADMIN)
        || !capability::effective(capability::CAP_NET_ADMIN);
    if ordinary {
        namespace::become_root_in_user_namespace().context(
            "an ordinary user needs user namespaces for the lab (sysctl user.max_user_namespaces, \
             kernel.unprivileged_userns_clone or AppArmor may forbid them); run as root",
        )?;
    }
    let sender =
        Sender::choose(args.generator.backend(), args.flows, args.size).context("--generator")?;
    let topology = Topology::read()?;
    let cpus = Cpus::choose(&topology);
    let interrupt = Interrupt::listen()?;
    if let (Some(host), Some(address)) = (&args.sender, args.address) {
        return live(&args, &paths, host, address, cpus, &interrupt);
    }
    if args.list {
        return list(&paths, cpus, &sender, &interrupt);
    }
    if args.spread {
        return spread(&args, &paths, &topology.usable(), &sender, &interrupt);
    }
    measure(&args, &paths, cpus, &sender, &interrupt)
}

/// The paths that `--only` names.
fn choose(only: &[String]) -> Result<Vec<Path>> {
    for wanted in only {
        ensure!(
            PATHS.iter().any(|path| path.is_called(wanted.trim())),
            "--only {wanted}: no such path; `mpps bench --list` names them"
        );
    }
    let is_wanted = |path: &&Path| only.iter().any(|wanted| path.is_called(wanted.trim()));
    let keep = |path: &&Path| only.is_empty() || is_wanted(path);
    Ok(PATHS.iter().filter(keep).copied().collect())
}

fn list(paths: &[Path], cpus: Cpus, sender: &Sender, interrupt: &Interrupt) -> Result<Outcome> {
    let stage = Stage::new(cpus, Napi::WithGenerator, sender, interrupt)?;
    for path in paths {
        let rest = match stage.obstacle(path)? {
            Some(why) => format!("skipped: {why}"),
            None => "runs".to_owned(),
        };
        output::line(Stream::Out, &format!("{:<26} {rest}", path.key()))?;
    }
    Ok(Outcome::Fine)
}

fn measure(
    args: &BenchArgs,
    paths: &[Path],
    cpus: Cpus,
    sender: &Sender,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let json = OutputFile::try_out(&args.json)?;
    let page = OutputFile::try_out(&args.html)?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    // The curves are of a queue and an application that share a CPU; the table has both.
    let places: &[Napi] = if args.overload || cpus.generator == cpus.application {
        &[Napi::WithApplication]
    } else {
        &[Napi::WithGenerator, Napi::Metered, Napi::WithApplication]
    };
    let stages = places
        .iter()
        .map(|napi| Stage::new(cpus, *napi, sender, interrupt))
        .collect::<Result<Vec<_>>>()?;
    let first = stages.first().context("no stage to run on")?;
    let fingerprint = fingerprint(first)?;
    let mut result = BenchResult {
        schema: BENCH_SCHEMA.to_owned(),
        fingerprint,
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        quick: args.quick,
        complete: true,
        placement: format!(
            "two hosts on this machine   generator: CPU {}   application: CPU {}   Linux {}",
            cpus.generator,
            cpus.application,
            kernel_release()
        ),
        sender: sender.sentence(),
        flows: args.flows,
        payload_bytes: args.size,
        notes: notes(&stages),
        rows: Vec::new(),
        overload: Vec::new(),
        spread: Vec::new(),
        advice: Vec::new(),
    };
    if args.overload {
        (result.overload, result.complete) = curves(args, first, paths)?;
    } else {
        let mut comparison = Comparison::new(&stages, paths, schedule(args))?;
        let bar = progress(comparison.steps());
        let ran = comparison.run(|path| {
            bar.set_message(path.title());
            bar.inc(1);
        });
        bar.finish_and_clear();
        result.complete = ran?;
        result.rows = comparison.results();
        result.advice = advice(&result.rows);
    }
    drop(stages);
    report(&result, json, page)?;
    Ok(outcome(&result))
}

fn outcome(result: &BenchResult) -> Outcome {
    match (result.complete, balances(result)) {
        (false, _) => Outcome::Interrupted,
        (true, false) => Outcome::Found,
        (true, true) => Outcome::Fine,
    }
}

/// Early drops of traffic that comes by more and more queues.
fn spread(
    args: &BenchArgs,
    paths: &[Path],
    usable: &[usize],
    sender: &Sender,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let json = OutputFile::try_out(&args.json)?;
    let page = OutputFile::try_out(&args.html)?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let sockets = Sender::choose(Some("sendmmsg"), args.flows, args.size)?;
    let mut arrangements = Arrangement::all(sender, usable, interrupt)?;
    // The generator reaches as many queues as there are CPUs. A socket reaches all, and is slower:
    // both are shown, unless one was asked for.
    let may_add = args.generator == GeneratorArg::Auto && sender.redirects();
    if may_add && !Arrangement::is_complete(&arrangements) {
        arrangements.extend(Arrangement::all(&sockets, usable, interrupt)?);
    }
    let stages: Vec<&Stage<'_>> = arrangements.iter().filter_map(Arrangement::stage).collect();
    let first = stages.first().context("no stage to run on")?;
    let fingerprint = fingerprint(first)?;
    let notes = notes(stages.iter().copied());
    let mut experiment = Spread::new(&arrangements, paths, schedule(args))?;
    let bar = progress(experiment.steps());
    let ran = experiment.run(|path| {
        bar.set_message(path.title());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let complete = ran?;
    let rows: Vec<SpreadRow> = experiment.results();
    let result = BenchResult {
        schema: BENCH_SCHEMA.to_owned(),
        fingerprint,
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        quick: args.quick,
        complete,
        placement: format!(
            "two hosts on this machine   {} usable CPUs   Linux {}",
            usable.len(),
            kernel_release()
        ),
        sender: sender.sentence(),
        flows: args.flows,
        payload_bytes: args.size,
        notes,
        rows: Vec::new(),
        overload: Vec::new(),
        advice: spread_advice(&rows),
        spread: rows,
    };
    drop(arrangements);
    report(&result, json, page)?;
    Ok(outcome(&result))
}

/// Measures what another host sends here.
fn live(
    args: &BenchArgs,
    paths: &[Path],
    host: &str,
    address: SocketAddr,
    cpus: Cpus,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let json = OutputFile::try_out(&args.json)?;
    let page = OutputFile::try_out(&args.html)?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let command = format!(
        "mpps send {address} --stamp --size {} --flows {} --gso 16",
        args.size, args.flows
    );
    output::line(
        Stream::Err,
        &format!("on {host}, now and until this ends: {command}"),
    )?;
    let schedule = schedule(args);
    let bench = Live {
        address,
        cpu: cpus.application,
        time: schedule.time,
        interrupt,
        snapshot: super::snapshot,
    };
    let bar = progress(schedule.repeats * paths.len());
    let compared = bench.compare(paths, schedule.repeats, |path| {
        bar.set_message(path.title());
        bar.inc(1);
    });
    bar.finish_and_clear();
    let (mut rows, complete) = compared?;
    rows.sort_by(|a, b| {
        b.mpps_median
            .partial_cmp(&a.mpps_median)
            .unwrap_or(Ordering::Equal)
    });
    let result = BenchResult {
        schema: BENCH_SCHEMA.to_owned(),
        fingerprint: own_fingerprint()?,
        command: command_line(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started,
        quick: args.quick,
        complete,
        placement: format!(
            "traffic from {host} to {address}   application: CPU {}   Linux {}",
            cpus.application,
            kernel_release()
        ),
        sender: format!("{host}: {command}"),
        flows: args.flows,
        payload_bytes: args.size,
        notes: vec![
            "early drops are the lab's: on this host they would be its firewall's rules".to_owned(),
        ],
        advice: advice(&rows),
        rows,
        overload: Vec::new(),
        spread: Vec::new(),
    };
    report(&result, json, page)?;
    Ok(if complete {
        Outcome::Fine
    } else {
        Outcome::Interrupted
    })
}

fn schedule(args: &BenchArgs) -> Schedule {
    if args.quick {
        return Schedule {
            time: Duration::from_millis(150),
            repeats: 1,
        };
    }
    Schedule {
        time: args.seconds,
        repeats: usize::from(args.repeat),
    }
}

/// The curve of each path that can run; false if Ctrl-C ended it.
fn curves(
    args: &BenchArgs,
    stage: &Stage<'_>,
    paths: &[Path],
) -> Result<(Vec<OverloadCurve>, bool)> {
    let mut loads = Loads::default();
    if args.quick {
        loads.time = Duration::from_millis(100);
        loads.repeats = 1;
    }
    let mut curves = Vec::new();
    for path in paths.iter().filter(|path| path.shares_cpu) {
        if stage.obstacle(path)?.is_some() {
            continue;
        }
        let bar = progress(loads.factors.len() * loads.repeats);
        let drawn = overload(stage, path, &loads, |factor| {
            if factor > 0.0 {
                bar.inc(1);
            }
            bar.set_message(path.title());
        });
        bar.finish_and_clear();
        match drawn? {
            Some(curve) => curves.push(curve),
            None => return Ok((curves, false)),
        }
    }
    Ok((curves, true))
}

fn notes<'a>(stages: impl IntoIterator<Item = &'a Stage<'a>>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in stages.into_iter().flat_map(|stage| stage.lab.notes()) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    notes
}

/// The machine, with all its interfaces.
fn own_fingerprint() -> Result<Fingerprint> {
    let links = mpps_os::netlink::link::list()?;
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    Ok(Fingerprint::collect(&names)?)
}

/// The machine, with both ends of the link.
fn fingerprint(stage: &Stage<'_>) -> Result<Fingerprint> {
    let (sender, receiver) = (stage.lab.sender(), stage.lab.receiver());
    let mut fingerprint = receiver.run(|| Fingerprint::collect(&[receiver.interface()]))??;
    let other = sender.run(|| Fingerprint::collect(&[sender.interface()]))??;
    fingerprint.interfaces.extend(other.interfaces);
    Ok(fingerprint)
}

fn report(result: &BenchResult, json: OutputFile, page: OutputFile) -> Result<()> {
    let text = BenchText::new(output::width(), output::colour());
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
    let files: Vec<_> = files
        .iter()
        .map(|(what, path)| (*what, path.as_path()))
        .collect();
    Ok(output::line(
        Stream::Out,
        text.report(result, &files).trim_end(),
    )?)
}
