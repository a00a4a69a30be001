//! `mpps serve`: arguments → plan.

use super::{Outcome, engine};
use crate::args::ServeArgs;
use crate::machine::interface_at;
use crate::program::lines::Lines;
use crate::program::serve::Plan;
use anyhow::{Context, Result, ensure};
use mpps_host::{Moderation, Throttle, Topology};
use mpps_http::{Close, Content, Limits, ServeConfig, Switch, Task};

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(args: ServeArgs) -> Result<Outcome> {
    plan(&args)?.run()
}

fn plan(args: &ServeArgs) -> Result<Plan> {
    let reset = args.close == Close::Rst;
    let (engine, chosen) = engine::choose(args.engine.as_deref(), Task::Serve { reset })?;
    let topology = Topology::read()?;
    if let Some(pin) = &args.pin {
        topology.check(pin).context("--pin")?;
    }
    let switches = args.switches.choose(engine.default_switches())?;
    let pinned = args.pin.as_ref().map(|pin| pin.0.clone());
    let workers = pinned
        .as_ref()
        .map_or_else(|| topology.usable().len(), Vec::len);
    let cpus = pinned.unwrap_or_else(|| match switches.has(Switch::Affinity) {
        true => topology.usable(),
        false => Vec::new(),
    });
    let limits = &args.limits;
    let config = ServeConfig {
        address: args.address,
        engine,
        switches,
        content: match &args.root {
            Some(root) => Content::Root(root.clone()),
            None => Content::Size(args.size),
        },
        close: args.close,
        limits: Limits {
            head_bytes: limits.head_bytes,
            head_time: limits.head_time,
            idle_time: limits.idle_time,
            send_time: limits.send_time,
            connections: number(limits.max_connections),
            connections_per_address: limits.max_per_address.map(number),
        },
        workers: args.workers.map_or(workers.max(1), usize::from),
        cpus,
        drain_time: limits.drain_time,
        metrics: !args.no_metrics,
    };
    Ok(Plan {
        config,
        chosen,
        moderation: moderation(args)?,
        or_kernel: args.moderation_by.is_none(),
        lines: Lines { json: args.json },
    })
}

/// A count as the machine counts.
fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// What `--moderation` will change, if it was asked for.
fn moderation(args: &ServeArgs) -> Result<Option<Moderation>> {
    let Some(time) = args.switches.moderation else {
        return Ok(None);
    };
    let interface = interface(args)?;
    let plan = |throttle| Moderation::plan(&interface, time, throttle).context("--moderation");
    match args.moderation_by {
        Some(throttle) => plan(throttle).map(Some),
        // A driver without coalescing leaves it to the kernel, which the plan tells.
        None => plan(Throttle::Nic)
            .or_else(|_| plan(Throttle::Kernel))
            .map(Some),
    }
}

/// The interface that moderation changes.
fn interface(args: &ServeArgs) -> Result<String> {
    let ip = args.address.ip();
    ensure!(
        args.interface.is_some() || !ip.is_unspecified(),
        "--moderation: {ip} is every interface's address; name one by --interface"
    );
    interface_at(args.interface.as_deref(), ip).context("--moderation")
}
