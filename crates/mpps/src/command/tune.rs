//! Settings that suit what an interface receives: planned, made, kept and put back.

mod apply;
mod document;
mod guard;
pub(crate) mod proof;
mod prove;
mod shown;
pub(crate) mod traffic;
mod undo;

pub(crate) use document::document;
pub(crate) use guard::guard;
pub(crate) use proof::ProofResult;
pub use proof::Proofs;
pub use shown::{TuneObject, TuneStep};

use crate::measure::outcome::CommandEnding;
use crate::program::lines::JsonArgs;
use crate::value::{self, Named, one_of};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use mpps_host::carries;
use mpps_host::setting::tune::{Aim, Risk, Tunables, TuneGoal, TunePlan, stages};
use mpps_os::netlink::link;
use mpps_os::netlink::route;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

/// Arguments of `mpps tune`.
#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the settings of IF to change, with reasons, risks and commands
    Plan(PlanArgs),
    /// Change the settings that `mpps tune plan` shows
    Apply(ApplyArgs),
    /// Measure each stage on live traffic, and leave the helpful ones applied
    Prove(prove::ProveArgs),
    /// Keep the settings that `tune apply --confirm-within` changed
    Confirm(Which),
    /// Restore the settings that `tune apply` or `tune prove` changed
    Undo(TuneUndoArgs),
    /// Show tuned settings, and those that another program has changed since
    Status(Which),
}

/// Which interface.
#[derive(Debug, Args)]
struct Which {
    /// Use this interface [default: every tuned interface]
    #[arg(value_name = "IF")]
    interface: Option<String>,
}

#[derive(Debug, Args)]
struct TuneUndoArgs {
    #[command(flatten)]
    which: Which,
    /// Restore also settings that another program has changed since
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct PlanArgs {
    #[command(flatten)]
    what: TuneWhat,
    #[command(flatten)]
    json: JsonArgs,
}

/// The arguments of a plan.
#[derive(Debug, Clone, Args)]
struct TuneWhat {
    /// Use this interface [default: the interface of the default route]
    #[arg(value_name = "IF")]
    interface: Option<String>,
    /// Tune for this traffic
    #[arg(long = "for", default_value = "udp", value_name = "WHAT", value_parser = one_of(GOALS))]
    goal: TuneGoal,
    /// Set the local port of the traffic [default: none, which leaves out the stage `notrack`: no
    /// connection tracking for the port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Use only these stages (groups of settings); `mpps tune plan` lists them
    #[arg(long, value_name = "STAGE,...", value_delimiter = ',')]
    only: Vec<String>,
}

#[derive(Debug, Args)]
struct ApplyArgs {
    #[command(flatten)]
    what: TuneWhat,
    /// Continue if the kernel or driver refuses a setting, instead of restoring every setting
    #[arg(long)]
    keep_going: bool,
    /// Allow resets of the link of this SSH session or the default route. Otherwise, a plan with a reset
    /// fails before any change
    #[arg(long)]
    allow_link_bounce: bool,
    /// Wait up to TIME for `mpps tune confirm` from another shell; otherwise restore every setting
    #[arg(long, value_name = "TIME", value_parser = value::seconds)]
    confirm_within: Option<Duration>,
}

const GOALS: &[Named<TuneGoal>] = &[
    ("udp", "UDP by sockets", TuneGoal::Udp),
    ("tcp", "TCP by sockets", TuneGoal::Tcp),
    ("af_xdp", "Frames by AF_XDP", TuneGoal::AfXdp),
];

impl TuneArgs {
    /// Does what is asked.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        match &self.action {
            Action::Plan(args) => args.run(),
            Action::Apply(args) => apply::run(args),
            Action::Prove(args) => prove::run(args),
            Action::Confirm(which) => undo::confirm(which.interface.as_deref()),
            Action::Undo(args) => undo::run(args.which.interface.as_deref(), args.force),
            Action::Status(which) => undo::status(which.interface.as_deref()),
        }
    }
}

impl PlanArgs {
    fn run(&self) -> Result<CommandEnding> {
        let lines = self.json.begin()?;
        let (tunables, plan) = self.what.asked()?.plan()?;
        let found = TuneObject::new(&tunables, &plan, self.what.port);
        lines.object(&found)?;
        if lines.text {
            found.lines().iter().try_for_each(|line| lines.say(line))?;
        }
        Ok(CommandEnding::Fine)
    }
}

/// The arguments of a plan, checked.
struct TuneRequest {
    interface: String,
    aim: Aim,
    /// No name is all stages.
    only: Vec<String>,
    /// Whether what only may help is changed, too.
    tries: bool,
}

impl TuneRequest {
    /// Reads the host and plans its changes.
    fn plan(&self) -> Result<(Tunables, TunePlan)> {
        self.plan_of(&self.only)
    }

    /// Does the same for these stages only.
    fn plan_of(&self, only: &[String]) -> Result<(Tunables, TunePlan)> {
        let tunables = Tunables::read(&self.interface, self.aim.port)?;
        let plan = TunePlan::new(&tunables, self.aim, only);
        let plan = match self.tries {
            true => plan.trying(),
            false => plan,
        };
        Ok((tunables, plan))
    }
}

impl TuneWhat {
    fn asked(&self) -> Result<TuneRequest> {
        let unknown = self
            .only
            .iter()
            .find(|name| !stages().any(|stage| stage == *name));
        if let Some(name) = unknown {
            let all: Vec<&str> = stages().collect();
            bail!(
                "--only {name}: there is no such stage; there are {}",
                all.join(", ")
            );
        }
        let interface = self.interface()?;
        ensure!(
            interface != "lo",
            "lo: it receives from this host only, by the CPU that sends; name another interface"
        );
        let aim = Aim {
            goal: self.goal,
            port: self.port,
        };
        Ok(TuneRequest {
            interface,
            aim,
            only: self.only.clone(),
            tries: !self.only.is_empty(),
        })
    }

    fn interface(&self) -> Result<String> {
        if let Some(name) = &self.interface {
            return Ok(name.clone());
        }
        let mut found = default_interfaces()?.into_iter();
        found
            .next()
            .context("no interface has the default route; name one: mpps tune plan IF")
    }
}

/// The interfaces of the default routes of IPv4 and IPv6.
fn default_interfaces() -> Result<Vec<String>> {
    // TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849). No host has these addresses, so
    // they take the default route. Nothing is sent.
    let anywhere = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>());
    let found = anywhere.into_iter().flatten();
    let found = found.filter_map(|address| route::find(address, None, None).ok());
    let links = found.map(|found| link::find(found.interface_index));
    let names = links.filter_map(|link| Some(link.transpose()?.map(|link| link.name)));
    Ok(names.collect::<Result<_, _>>()?)
}

/// The interface of the ssh session that runs this program, if there is one.
fn session_interface() -> Option<String> {
    // CLIENT-IP CLIENT-PORT SERVER-IP SERVER-PORT (ssh(1)).
    let connection = std::env::var("SSH_CONNECTION").ok().or_else(inherited)?;
    let client: IpAddr = connection.split_whitespace().next()?.parse().ok()?;
    let found = route::find(client, None, None).ok()?;
    Some(link::find(found.interface_index).ok()??.name)
}

/// SSH_CONNECTION from the environment of a parent process, because sudo(8) does not pass it on.
fn inherited() -> Option<String> {
    let mut process = std::process::id();
    for _ in 0..64 {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut words = environment.split(|byte| *byte == 0);
        if let Some(found) = words.find_map(|word| word.strip_prefix(b"SSH_CONNECTION=")) {
            return String::from_utf8(found.to_vec()).ok();
        }
        // PID (COMM) STATE PPID, and COMM may have anything in it (proc_pid_stat(5)).
        let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (_, behind) = stat.rsplit_once(')')?;
        process = behind.split_whitespace().nth(1)?.parse().ok()?;
        if process < 2 {
            return None;
        }
    }
    None
}

/// Refuses what would cut the session that runs it, unless that is allowed.
fn check_link(plan: &TunePlan, is_allowed: bool) -> Result<()> {
    check_interface(&plan.interface, &plan.risks(), is_allowed)
}

/// The same for settings of this interface with these risks.
pub(crate) fn check_interface(interface: &str, risks: &[Risk], is_allowed: bool) -> Result<()> {
    let bounces = risks.contains(&Risk::LinkBounce);
    if is_allowed || !bounces {
        return Ok(());
    }
    let is_below = |upper: &String| carries(interface, upper);
    let by_session = session_interface().as_ref().is_some_and(is_below);
    let by_route = default_interfaces()?.iter().any(is_below);
    ensure!(
        !by_session && !by_route,
        "{}: a step may take its link down, and {} by it; add --allow-link-bounce, with \
         --confirm-within 60s to have all put back if you do not return, or choose other steps by --only",
        interface,
        if by_session {
            "the ssh session came"
        } else {
            "the default route goes"
        },
    );
    Ok(())
}
