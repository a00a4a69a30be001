//! `mpps load` as a process of its own on the load's host.

use super::result::{ABORTED_AT_END, Failure};
use crate::connections::{LoadAccount, LoadResult};
use anyhow::{Context, Result, bail};
use mpps_lab::Host;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is asked of `mpps load`.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) url: String,
    pub(super) connections: u64,
    /// The load ends after so long at the latest; what is then in flight is cut off.
    pub(super) time: Duration,
    /// It ends after so many connections, with none in flight.
    pub(super) requests: Option<u64>,
    pub(super) sources: Vec<Ipv4Addr>,
    pub(super) cpu: usize,
}

/// What it found, as far as a cell needs it.
#[derive(Debug)]
pub(super) struct LoadReport {
    pub(super) cps: f64,
    pub(super) seconds: f64,
    pub(super) started: u64,
    pub(super) completed: u64,
    pub(super) failures: Vec<Failure>,
    /// Time to the last byte: of the median connection, and of the slowest hundredth.
    pub(super) latency_us: [Option<f64>; 2],
}

impl Load {
    /// Loads, and waits for the end.
    pub(super) fn run(&self, host: &Host) -> Result<LoadReport> {
        let mut child = host
            .spawn(self.command()?)
            .context("cannot start mpps load")?;
        let (mut out, mut err) = (String::new(), String::new());
        // A load says nothing on standard error until it fails, so that neither pipe fills up while
        // the other is read.
        if let Some(mut pipe) = child.stdout() {
            pipe.read_to_string(&mut out).context("mpps load")?;
        }
        if let Some(mut pipe) = child.stderr() {
            pipe.read_to_string(&mut err).context("mpps load")?;
        }
        let status = child.wait()?;
        // Status 1 is a load that has found failures, which are in its account.
        if !matches!(status.code(), Some(0 | 1)) {
            let said = err.split_whitespace().collect::<Vec<_>>().join(" ");
            bail!("mpps load ended ({status}): {said}");
        }
        let result = LoadResult::parse(&out).context("what mpps load wrote")?;
        Ok(LoadReport::of(&result))
    }

    fn command(&self) -> Result<Command> {
        let program = std::env::current_exe().context("/proc/self/exe")?;
        let sources: Vec<String> = self.sources.iter().map(ToString::to_string).collect();
        let mut command = Command::new(program);
        command
            .args(["load", &self.url, "--json"])
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--duration={}", self.time.as_secs_f64()))
            .arg(format!("--source={}", sources.join(",")))
            .arg(format!("--pin={}", self.cpu))
            .args(self.requests.map(|count| format!("--requests={count}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

impl LoadReport {
    fn of(result: &LoadResult) -> Self {
        let LoadAccount {
            started,
            completed,
            failed,
            aborted_at_end,
            ..
        } = &result.ledger.connections;
        let failure = |(kind, count): (&str, u64)| Failure {
            kind: kind.to_owned(),
            count,
        };
        let kinds = failed.iter().map(|(kind, count)| (&**kind, *count));
        let kinds = kinds.chain([(ABORTED_AT_END, *aborted_at_end)]);
        let times = &result.latency_us.last_byte;
        Self {
            cps: result.cps,
            seconds: result.seconds,
            started: *started,
            completed: *completed,
            failures: kinds.filter(|(_, count)| *count > 0).map(failure).collect(),
            latency_us: [times.p50, times.p99].map(|us| (times.count > 0).then_some(us)),
        }
    }
}
