//! `mpps bench`: every way to receive, over the same traffic.

use super::Outcome;
use crate::args::BenchArgs;
use crate::experiment::paths::run::{self, Plan, Question};
use crate::experiment::paths::{PATHS, Path, document};
use crate::machine::become_able;
use crate::output::{self, Stream};
use crate::signal::Interrupt;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Compares the paths, or lists them.
pub(super) fn run(args: BenchArgs) -> Result<Outcome> {
    let plan = plan(&args)?;
    become_able()?;
    if args.list {
        for line in run::list(&plan, &Interrupt::listen()?)? {
            output::line(Stream::Out, &line)?;
        }
        return Ok(Outcome::Fine);
    }
    let session = args.series.begin("bench", Interrupt::listen()?)?;
    if let Question::Live { host, address } = &plan.question {
        let command = plan.command_of(*address);
        let said = format!("on {host}, now and until this ends: {command}");
        output::line(Stream::Err, &said)?;
    }
    let result = run::run(&plan, &session)?;
    let document = document(&result, &session.files());
    let is_good = run::is_good(&plan, &result);
    let outcome = session.conclude(&result, &document, *is_good.as_ref().unwrap_or(&false))?;
    is_good.map(|_| outcome)
}

fn plan(args: &BenchArgs) -> Result<Plan> {
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
    Ok(Plan {
        question: match (&args.sender, args.address) {
            (Some(host), Some(address)) => Question::Live {
                host: host.clone(),
                address,
            },
            _ if args.spread => Question::Spread,
            _ if args.overload => Question::Overload,
            _ => Question::Rate,
        },
        paths,
        generator: args.generator,
        flows: args.flows,
        payload_bytes: args.size,
        time: match args.series.quick {
            true => Duration::from_millis(150),
            false => args.series.time(),
        },
        repeats: args.series.repeats(),
    })
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
