//! `mpps serve`: arguments → plan.

use super::{CommandEnding, engine};
mod args;

use crate::machine::interface_at;
use crate::program::serve::ServePlan;
use anyhow::{Context, Result, bail, ensure};
pub(super) use args::{CLOSE, ServeArgs};
use mpps_host::facts::sysctl;
use mpps_host::{Moderation, Throttle, Topology};
use mpps_http::{Close, Engine, Limits, ServeConfig, ServedContent, Switch, Task};
use mpps_os::user::{self, User};

/// Serves until Ctrl-C or SIGTERM.
pub(super) fn run(args: ServeArgs) -> Result<CommandEnding> {
    plan(&args)?.run()
}

fn plan(args: &ServeArgs) -> Result<ServePlan> {
    let user = user(args.user.as_deref())?;
    let (engine, chosen) = engine(args, user.is_some())?;
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
            Some(root) => ServedContent::Root(root.clone()),
            None => ServedContent::Size(args.size),
        },
        close: args.close,
        limits: Limits {
            head_bytes: limits.head_bytes,
            head_time: limits.head_time,
            idle_time: limits.idle_time,
            send_time: limits.send_time,
            connections: number(limits.max_connections),
        },
        workers: args.workers.map_or(workers.max(1), usize::from),
        cpus,
        drain_time: limits.drain_time,
    };
    Ok(ServePlan {
        config,
        chosen,
        user,
        moderation: moderation(args)?,
        lines: args.json.begin()?,
    })
}

/// A count as the machine counts.
fn number(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The engine, and why, if the user named none. If the kernel leaves io_uring to root, a server
/// that gives up root does not use it.
fn engine(args: &ServeArgs, leaves_root: bool) -> Result<(&'static Engine, Option<String>)> {
    let reset = args.close == Close::Rst;
    let task = Task::Serve { reset };
    let name = args.engine.as_deref();
    let forbidden =
        || sysctl::value("kernel.io_uring_disabled").is_ok_and(|is| is.as_deref() == Some("1"));
    if name.is_none() && leaves_root && forbidden() {
        let why =
            "engine epoll, because kernel.io_uring_disabled is 1 and the server does not stay root";
        let (engine, _) = engine::choose(Some("epoll"), task)?;
        return Ok((engine, Some(why.to_owned())));
    }
    engine::choose(name, task)
}

/// As whom root goes on; none where nothing changes.
fn user(asked: Option<&str>) -> Result<Option<User>> {
    let Some(name) = asked else {
        if !user::is_root() {
            return Ok(None);
        }
        let Some(nobody) = User::find("nobody") else {
            bail!("/etc/passwd has no user nobody: name another by --user, or --user root");
        };
        // In a user namespace or a container, root may be unable to become `nobody`. It stays root
        // then.
        return Ok(Some(nobody).filter(|nobody| nobody.obstacle().is_none()));
    };
    let user = User::find(name).with_context(|| {
        format!("--user {name}: no such user; /etc/passwd lists those that there are")
    })?;
    if user.is_own() {
        return Ok(None);
    }
    if let Some(why) = user.obstacle() {
        let or_root = if user::is_root() { "" } else { " or root" };
        bail!("--user {name}: {why}; leave it out, or start the server as {name}{or_root}");
    }
    Ok(Some(user))
}

/// The changes that `--moderation` may make, the best first, if it was asked for. If one turns out
/// to be impossible, the next is tried.
fn moderation(args: &ServeArgs) -> Result<Vec<Moderation>> {
    let Some(time) = args.switches.moderation else {
        return Ok(Vec::new());
    };
    let interface = interface(args)?;
    let plan = |throttle| Moderation::plan(&interface, time, throttle).context("--moderation");
    match args.moderation_by {
        Some(throttle) => Ok(vec![plan(throttle)?]),
        // A driver without coalescing leaves it to the kernel. The plan shows which one it is.
        None => match (plan(Throttle::Nic), plan(Throttle::Kernel)) {
            (Err(_), Err(why)) => Err(why),
            (nic, kernel) => Ok(nic.into_iter().chain(kernel).collect()),
        },
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
