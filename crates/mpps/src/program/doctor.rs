//! What is wrong with this host, whichever program it runs: looks twice, and names what was lost in
//! between, with the counter that proves it and what mends it.

mod document;

pub(crate) use document::document;

use crate::machine;
use crate::measure::envelope::{Body, Envelope};
use crate::measure::outcome::Outcome;
use crate::measure::session::json;
use crate::output::{self, Stream, file::OutputFile};
use crate::signal::Interrupt;
use anyhow::{Context, Result, ensure};
use clap::Args;
use mpps_host::check::{findings, ledger};
use mpps_host::{Asked, DropFilter, DropProbe, Facts, Finding, Fingerprint, Ledger, Moment, Seen};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_report::Terminal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// What is to be known of remedies for another namespace.
const ELSEWHERE: &str = "remedies are for that network namespace: nsenter --net=FILE COMMAND, where FILE \
                         is /proc/PID/ns/net or /run/netns/NAME; most of net.core is the machine's";

/// Arguments of `mpps doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "It reads counters twice and changes nothing. Without root it sees less: owners of \
    other users' sockets and drop reasons are hidden, and a note says so. Ctrl-C ends the look early \
    and tells what was seen until then. Exit status: 0 nothing is wrong, or so little that it may be \
    meant, 1 something is, 2 it could not be done."
)]
pub(crate) struct DoctorArgs {
    /// Look at this interface alone; UDP is still that of the whole network namespace
    #[arg(value_name = "IF")]
    interface: Option<String>,
    /// The UDP port in question: tells what is lost of it, and where nothing arrives
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// The process in question: looks at its network namespace, and of sockets at its own alone
    #[arg(long, value_name = "PID", conflicts_with = "netns", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Look at another network namespace: that of `ip netns`, of a process, or of a file
    #[arg(long, value_name = "NAME|PID|FILE")]
    netns: Option<String>,
    /// How long to look, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Write the result as JSON to standard output
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Write it as Markdown to standard output, for a ticket
    #[arg(long)]
    markdown: bool,
    /// Write it as a page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A look at one host.
pub(crate) type DoctorResult = Envelope<Diagnosis>;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// The interfaces that were looked at.
    interfaces: Vec<String>,
    /// The UDP port in question; none for all.
    port: Option<u16>,
    /// The process in question; none for all.
    pid: Option<u32>,
    /// The time between the two looks.
    seconds: f64,
    /// What is wrong, what cost most packets first.
    findings: Vec<Finding>,
    /// UDP of the network namespace, from the interfaces on.
    ledger: Ledger,
    /// What waited in the buffers of UDP sockets at the end, with the kernel's own overhead; how many
    /// datagrams that are no counter tells, and they are in UNACCOUNTED.
    queued_bytes: u64,
    /// What could not be seen, and why.
    notes: Vec<String>,
}

impl Body for Diagnosis {
    const SCHEMA: &'static str = "mpps.doctor.v1";
    const COMMAND: &'static str = "mpps doctor";

    fn unsound(&self) -> Option<String> {
        (!self.ledger.adds_up()).then(|| "the host".to_owned())
    }
}

impl DoctorArgs {
    /// Looks at the host, and tells what it found.
    pub(crate) fn run(&self) -> Result<Outcome> {
        let page = self.html.as_deref().map(OutputFile::try_out).transpose()?;
        let interrupt = Interrupt::listen()?;
        self.enter()?;
        let interfaces = self.interfaces()?;
        let ports = self.port.map_or(0..=u16::MAX, |port| port..=port);
        let mut notes = Vec::new();
        let probe = DropProbe::attach(&DropFilter { ports });
        let probe = probe.inspect_err(|error| {
            let remedy = error.remedy();
            notes.push(format!(
                "the kernel's drop reasons are not seen: {error}; {remedy}"
            ));
        });
        let (probe, started) = (probe.ok(), machine::now());
        let counts = || probe.as_ref().map(DropProbe::counts).transpose();
        let first = Facts::take(Moment::First, &interfaces, self.port)?;
        let drops_first = counts()?;
        self.wait(&interfaces, &interrupt)?;
        let drops_second = counts()?;
        let second = Facts::take(Moment::Second, &interfaces, self.port)?;
        notes.extend(first.notes.iter().chain(&second.notes).cloned());
        let missed = probe.as_ref().map(DropProbe::overflowed).transpose()?;
        notes.extend(missed.filter(|&missed| missed > 0).map(|missed| {
            format!("{missed} drops or more are missing in the kernel's drop reasons")
        }));
        let elsewhere = self.netns.is_some() || self.pid.is_some();
        notes.extend(elsewhere.then(|| ELSEWHERE.to_owned()));
        notes.dedup();
        let drops = drops_first.as_deref().zip(drops_second.as_deref());
        let here = NetNamespace::current()?.inode();
        let drops = drops.map(|(before, after)| (before, after, here));
        let seen = Seen::new(&first, &second, drops, self.asked());
        let diagnosis = Diagnosis {
            port: self.port,
            pid: self.pid,
            seconds: seen.seconds(),
            findings: findings(&seen),
            ledger: ledger(&seen),
            queued_bytes: seen.queued_bytes(),
            notes,
            interfaces: interfaces.clone(),
        };
        let there: Vec<&String> = second.snapshot.links.keys().collect();
        let machine = Fingerprint::collect(&there)?;
        let command = machine::command_line();
        let mut result = Envelope::new(machine, command, started, diagnosis);
        result.complete = true;
        self.tell(&result, page)
    }

    /// Enters the network namespace in question.
    fn enter(&self) -> Result<()> {
        if let Some(pid) = self.pid {
            let namespace = NetNamespace::open(&format!("/proc/{pid}/ns/net"));
            let namespace = namespace.with_context(|| {
                format!("--pid {pid}: no such process, or it may not be seen; as root all may")
            })?;
            // An ordinary user may look at its own.
            if namespace.inode() != NetNamespace::current()?.inode() {
                namespace.enter().context("--pid")?;
            }
        }
        if let Some(name) = &self.netns {
            namespace(name)?.enter().context("--netns")?;
        }
        Ok(())
    }

    /// What the checks are to look at.
    fn asked(&self) -> Asked {
        let mut again = "mpps doctor".to_owned();
        let pid = self.pid.map(|pid| pid.to_string());
        let port = self.port.map(|port| port.to_string());
        let words = [
            ("--pid", pid.as_ref()),
            ("--netns", self.netns.as_ref()),
            ("--port", port.as_ref()),
        ];
        for (option, value) in words {
            again.extend(value.map(|value| format!(" {option} {value}")));
        }
        again.extend(self.interface.as_ref().map(|name| format!(" {name}")));
        Asked {
            port: self.port,
            pid: self.pid,
            again,
        }
    }

    /// The interfaces in question.
    fn interfaces(&self) -> Result<Vec<String>> {
        if let Some(name) = &self.interface {
            link::index(name)?;
            return Ok(vec![name.clone()]);
        }
        let links = link::list()?.into_iter();
        Ok(links.map(|link| link.name).collect())
    }

    fn wait(&self, interfaces: &[String], interrupt: &Interrupt) -> Result<()> {
        let at = interfaces.join(", ");
        let seconds = self.seconds;
        output::line(
            Stream::Err,
            &format!("looking at {at} for {seconds} s; Ctrl-C ends that early"),
        )?;
        let end = Instant::now() + Duration::from_secs(seconds);
        while !interrupt.came() && Instant::now() < end {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn tell(&self, result: &DoctorResult, page: Option<OutputFile>) -> Result<Outcome> {
        let files = page.as_ref().map(|page| ("report", page.path()));
        let document = document(result, files.as_slice());
        if self.json {
            output::bytes(Stream::Out, &json(result)?)?;
        } else if self.markdown {
            output::bytes(Stream::Out, mpps_report::markdown(&document).as_bytes())?;
        } else {
            let terminal = Terminal::new(output::width(), output::colour());
            output::line(Stream::Out, terminal.document(&document).trim_end())?;
        }
        if let Some(page) = page {
            page.write(mpps_report::page(&document).as_bytes())?;
        }
        Ok(
            match result.findings.iter().all(|finding| finding.is_remark) {
                true => Outcome::Fine,
                false => Outcome::Found,
            },
        )
    }
}

/// The network namespace that a user names.
fn namespace(name: &str) -> Result<NetNamespace> {
    ensure!(!name.is_empty(), "--netns: no name, process or file");
    let path = match name.parse::<u32>() {
        Ok(pid) => format!("/proc/{pid}/ns/net"),
        Err(_) if name.contains('/') => name.to_owned(),
        Err(_) => format!("/run/netns/{name}"),
    };
    NetNamespace::open(&path).with_context(|| {
        format!(
            "--netns {name}: no such namespace, or it may not be seen; `ip netns` lists names, and a \
             container's process is in `lsns -t net`"
        )
    })
}
