//! Shows where this host loses packets, whichever program it runs. It looks twice and names the
//! losses in between. Each loss has the counter that proves it, and a remedy.

mod document;

pub(crate) use document::{document, of_finding};

use crate::machine;
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::measure::outcome::CommandEnding;
use crate::measure::session::json;
use crate::output::{self, OutputStream, file::OutputFile};
use crate::program::host::HostArgs;
use crate::program::lines::{JsonArgs, LOOK, OutputLines};
use crate::signal::EndSignal;
use crate::value;
use anyhow::{Result, ensure};
use clap::Args;
use mpps_host::check::{findings, fixes, ledger, passed};
use mpps_host::{Finding, Fingerprint, Ledger, Watch, WayOut};
use mpps_report::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `mpps doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    host: HostArgs,
    /// Watch the counters for TIME (500ms, 90s, 1m), then report
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "5s", value_parser = value::seconds)]
    duration: Duration,
    #[command(flatten)]
    json: JsonArgs,
    /// Print Markdown, for a ticket
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print one line, for Nagios, Icinga or the custom plugin monitor of node-problem-detector
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    line: bool,
    /// Write a page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A look at one host.
pub(crate) type DoctorResult = Envelope<Diagnosis>;

/// The diagnosis of a host.
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
    /// The problems. The problem with most lost packets is first.
    findings: Vec<Finding>,
    /// UDP of the network namespace, from the interfaces on.
    ledger: Ledger,
    /// UDP of the network namespace on its way out.
    #[serde(default)]
    out: WayOut,
    /// Bytes that waited in the buffers of UDP sockets at the end, with the kernel's own overhead.
    /// No counter has the number of their datagrams. They are in UNACCOUNTED.
    queued_bytes: u64,
    /// True if no UDP socket of the namespace has another port than the port in question.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_only_this_port: bool,
    /// Packets of any kind that the namespace forwarded or bridged; they are not in the ledger.
    #[serde(default)]
    passed: u64,
    /// The command that changes the program from outside; empty if no change would help.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    fix: String,
    /// Facts that could not be read, and why.
    notes: Vec<String>,
}

impl EnvelopeBody for Diagnosis {
    const SCHEMA: &'static str = "mpps.doctor.v1";
    const COMMAND: &'static str = "mpps doctor";

    fn unsound(&self) -> Option<String> {
        (!self.ledger.adds_up()).then(|| "the host".to_owned())
    }
}

impl DoctorArgs {
    /// Looks at the host and shows the result.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let ending = self.look();
        if let (true, Err(error)) = (self.line, &ending) {
            output::line(OutputStream::Out, &format!("UNKNOWN: {error:#}"))?;
        }
        ending
    }

    fn look(&self) -> Result<CommandEnding> {
        let page = output::file::optional("--html", self.html.as_deref())?;
        let lines = self.json.begin()?;
        let interrupt = EndSignal::listen()?;
        let mut watch = self.host.watch(&interrupt)?;
        // Each read costs a seventh more then, which a whole host is spared.
        let part = &self.host.part;
        if part.port.is_some() || part.pid.is_some() {
            watch.count_reads();
        }
        let end = Instant::now() + self.duration;
        let (interfaces, started) = (watch.interfaces(), machine::now());
        // Before the wait, so that Ctrl-C need not wait for it.
        let machine = interrupt.ends_during(|| Fingerprint::collect(&interfaces))?;
        self.wait(&mut watch, end, &interrupt)?;
        watch.look_at_losses(&|| !interrupt.came())?;
        let mut notes = watch.notes();
        notes.extend(self.host.part.note());
        let seen = watch.seen();
        let findings = findings(&seen);
        if let Some(why) = watch.undecided() {
            ensure!(!is_fine(&findings), "undecided: {why}");
            notes.push(why);
        }
        let fixes = fixes(&seen);
        let fix = match fixes.first() {
            None => String::new(),
            Some(_) if part.is_narrow() => part.words("mpps fix"),
            Some(first) => format!("mpps fix --pid {}", first.pid),
        };
        let diagnosis = Diagnosis {
            fix,
            port: self.host.part.port,
            pid: self.host.part.pid,
            seconds: seen.seconds(),
            findings,
            ledger: ledger(&seen),
            out: WayOut::of(&seen),
            queued_bytes: seen.queued_bytes(),
            has_only_this_port: self.host.part.port.is_some_and(|port| {
                let facts = [seen.before, seen.after];
                let mut all = facts.into_iter().flat_map(|one| &one.sockets);
                !seen.sockets.is_empty() && all.all(|one| one.local.port() == port)
            }),
            passed: passed(&seen),
            notes,
            interfaces,
        };
        let command = machine::command_line();
        let mut result = Envelope::new(machine, command, started, diagnosis);
        result.complete = true;
        self.tell(&result, lines, page)
    }

    fn wait(&self, watch: &mut Watch, end: Instant, interrupt: &EndSignal) -> Result<()> {
        let at = watch.interfaces().join(", ");
        let time = Quantity::Seconds(self.duration.as_secs_f64());
        if !self.line {
            output::line(
                OutputStream::Err,
                &format!("looking at {at} for {time}; Ctrl-C ends the look early"),
            )?;
        }
        while !interrupt.came() && Instant::now() < end {
            watch.look_at_queues();
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn tell(
        &self,
        result: &DoctorResult,
        lines: OutputLines,
        page: Option<OutputFile>,
    ) -> Result<CommandEnding> {
        let files = page.as_ref().map(|page| ("report", page.path()));
        let document =
            (self.markdown || page.is_some()).then(|| document(result, files.as_slice()));
        if lines.json {
            output::text(OutputStream::Json, &json(result)?)?;
        }
        match &document {
            _ if self.line => output::line(OutputStream::Out, &document::one_line(result))?,
            _ if !lines.text => {}
            Some(document) if self.markdown => {
                output::text(OutputStream::People, &mpps_report::markdown(document))?;
            }
            Some(document) => output::blocks(OutputStream::People, &document.blocks)?,
            None => output::blocks(OutputStream::People, &document::blocks(result))?,
        }
        if let (Some(page), Some(document)) = (page, &document) {
            page.write(mpps_report::page(document).as_bytes())?;
        }
        Ok(match is_fine(&result.findings) {
            true => CommandEnding::Fine,
            false => CommandEnding::Found,
        })
    }
}

fn is_fine(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.is_remark)
}
