//! The host to look at, for commands that inspect a host with any programs.

use super::container;
use crate::signal::EndSignal;
use crate::value;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_host::facts::{namespace_of_sockets, numbered_elsewhere};
use mpps_host::{DoctorRequest, Watch};
use mpps_os::namespace::NetNamespace;
use mpps_os::text::{Foreign, ShellWord};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The note on remedies for another namespace.
const ELSEWHERE: &str = "remedies are for that network namespace: nsenter --net=FILE COMMAND, where FILE \
                         is /proc/PID/ns/net or /run/netns/NAME; most of net.core is the machine's";

/// The host in question, or a part of it.
#[derive(Debug, Args)]
pub(crate) struct HostArgs {
    /// Show only this interface; UDP counters still cover the whole network namespace
    #[arg(value_name = "IF")]
    interface: Option<String>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
}

/// How often a host is looked at.
#[derive(Debug, Args)]
pub(crate) struct PaceArgs {
    /// Read the counters every TIME, from 100ms to 60m: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = value::pace)]
    interval: Duration,
}

/// A part of a host.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Show only sockets and kernel drop reasons of this local UDP port. Counters of NIC, IP and UDP
    /// still cover all ports [default: all ports]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Show only sockets of this process, in its network namespace; those of its children if it has
    /// none [default: all processes]
    #[arg(long, value_name = "PID", conflicts_with = "netns", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Use another network namespace: a name of `ip netns`, a process, or a file [default: this one]
    #[arg(long, value_name = "NAME|PID|FILE")]
    netns: Option<String>,
    /// Use the network namespace of a container of docker, podman, CRI-O or containerd: its name, the
    /// beginning of its ID, or a process in it. Names need root [default: this namespace]
    #[arg(long, value_name = "NAME|ID|PID", conflicts_with_all = ["netns", "pid"])]
    container: Option<String>,
}

impl HostArgs {
    /// Enters the network namespace in question and looks for the first time.
    pub(crate) fn watch(&self, interrupt: &EndSignal) -> Result<Watch> {
        interrupt.ends_during(|| self.part.enter())?;
        let mut asked = self.part.asked();
        asked.again.extend(
            self.interface
                .as_ref()
                .map(|name| format!(" {}", ShellWord::operand(name))),
        );
        Ok(interrupt.ends_during(|| Watch::begin(self.interface.clone(), asked))?)
    }
}

impl PartArgs {
    /// True if a port, a process or a container was named.
    pub(crate) fn is_narrow(&self) -> bool {
        self.port.is_some() || self.pid.is_some() || self.container.is_some()
    }

    /// The note on results from another namespace, if one was named.
    pub(crate) fn note(&self) -> Option<String> {
        let moved = self
            .pid
            .and_then(|pid| namespace_of_sockets(pid, self.port));
        if let Some(file) = moved {
            return Some(format!(
                "the UDP sockets of this process are in another network namespace than its main thread: remedies are \
                 for that one: nsenter --net={file} COMMAND"
            ));
        }
        let is_elsewhere = self.netns.is_some() || self.pid.is_some() || self.container.is_some();
        is_elsewhere.then(|| ELSEWHERE.to_owned())
    }

    pub(crate) fn enter(&self) -> Result<()> {
        if let Some(pid) = self.pid {
            is_there("--pid", pid)?;
            let file = namespace_of_sockets(pid, self.port);
            let file = file.unwrap_or_else(|| format!("/proc/{pid}/ns/net"));
            let namespace = NetNamespace::open(&file);
            let namespace = namespace
                .with_context(|| format!("--pid {pid}: its network namespace may not be seen"))?;
            // An ordinary user may look at its own.
            if namespace.inode() != NetNamespace::current()?.inode() {
                namespace.enter().context("--pid")?;
            }
        }
        if let Some(name) = &self.container {
            let process = container::process_of(Path::new("/"), name)?;
            let namespace = NetNamespace::open(&format!("/proc/{process}/ns/net"));
            namespace.and_then(|it| it.enter()).context("--container")?;
        }
        if let Some(name) = &self.netns {
            namespace(name)?.enter().context("--netns")?;
        }
        Ok(())
    }

    /// The processes that may be changed, if a container was named.
    ///
    /// # Errors
    /// It has the network namespace of this command, so that its sockets are among those of other programs.
    pub(crate) fn processes(&self) -> Result<Option<Vec<u32>>> {
        let Some(name) = &self.container else {
            return Ok(None);
        };
        let all = container::processes_of(Path::new("/"), name)?;
        let namespace = NetNamespace::open(&format!("/proc/{}/ns/net", all[0]));
        ensure!(
            namespace.context("--container")?.inode() != NetNamespace::current()?.inode(),
            "--container {}: it has the network namespace of this command; use --pid PID or --port PORT",
            Foreign(name)
        );
        Ok(Some(all))
    }

    /// The part of the host to look at.
    pub(crate) fn asked(&self) -> DoctorRequest {
        DoctorRequest {
            port: self.port,
            pid: self.pid,
            again: self.words("mpps doctor"),
            ..DoctorRequest::default()
        }
    }

    /// A command about the same part of the host.
    pub(crate) fn words(&self, command: &str) -> String {
        let mut all = command.to_owned();
        let pid = self.pid.map(|pid| pid.to_string());
        let port = self.port.map(|port| port.to_string());
        let words = [
            ("--pid", pid.as_ref()),
            ("--netns", self.netns.as_ref()),
            ("--container", self.container.as_ref()),
            ("--port", port.as_ref()),
        ];
        for (option, value) in words {
            all.extend(value.map(|value| format!(" {option} {}", ShellWord::new(value))));
        }
        all
    }
}

impl PaceArgs {
    /// The time from one look to the next.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Waits for the next look; false if it is to end.
    pub(crate) fn wait(&self, interrupt: &EndSignal) -> bool {
        interrupt.is_quiet_for(self.interval())
    }
}

/// Fails with the remedy for a process that has ended, or whose number is that of a container.
fn is_there(option: &str, pid: u32) -> Result<()> {
    let is_dead = |stat: String| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    let has_ended = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => is_dead(stat),
        // Without /proc nothing is known.
        Err(_) => Path::new("/proc/self").exists(),
    };
    let inside = match has_ended {
        true => numbered_elsewhere(pid),
        false => return Ok(()),
    };
    let inside = match inside.first() {
        Some(first) => format!("; in a container that number is {first}"),
        None => String::new(),
    };
    bail!("{option} {pid}: no such process, or it has ended{inside}; pgrep -a NAME lists numbers")
}

/// The network namespace that a user names.
fn namespace(name: &str) -> Result<NetNamespace> {
    ensure!(!name.is_empty(), "--netns: no name, process or file");
    let named = format!("/run/netns/{name}");
    let path = match name.parse::<u32>() {
        Ok(pid) => {
            ensure!(
                !Path::new(&named).exists(),
                "--netns {pid}: it may be a process or a name; use /proc/{pid}/ns/net or {named}"
            );
            is_there("--netns", pid)?;
            format!("/proc/{pid}/ns/net")
        }
        Err(_) if name.contains('/') => name.to_owned(),
        Err(_) => named,
    };
    NetNamespace::open(&path).with_context(|| {
        format!(
            "--netns {name}: no such namespace, or it may not be seen; `ip netns` lists names, and a \
             container's process is in `lsns -t net`"
        )
    })
}
