//! `mpps load` as a process of its own on the load's host.

use super::plan::PlannedCell;
use super::server::body_path;
use super::stage::ConnectionLab;
use crate::program::connections::LoadResult;
use anyhow::{Context, Result, bail};
use mpps_http::LoadReport;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

impl ConnectionLab {
    /// How many threads the load has.
    pub(super) fn threads(&self) -> usize {
        self.deal.threads(self.connections)
    }

    /// The CPU of each of them, each with addresses of its own, which choose its queue.
    fn thread_cpus(&self) -> String {
        let cpu = |(thread, source): (usize, &Ipv4Addr)| {
            let queue = self
                .lab
                .queue_of((*source).into())
                .map_or(thread, usize::from);
            self.deal.thread_cpu(thread, queue).to_string()
        };
        let sources = self.lab.sender().v4().iter();
        let cpus = sources.take(self.threads()).enumerate().map(cpu);
        cpus.collect::<Vec<_>>().join(",")
    }

    /// Loads the server of a cell, and waits for the end. After `time` the load ends and cuts off
    /// the connections in flight. With `connections` it ends after that many, with none in flight.
    /// Connections begin as fast as possible, or at a steady rate.
    pub(super) fn load(
        &self,
        cell: &PlannedCell,
        time: Duration,
        connections: Option<u64>,
        rate: Option<f64>,
    ) -> Result<LoadReport> {
        let host = self.lab.sender();
        let sources: Vec<String> = host.v4().iter().map(ToString::to_string).collect();
        let path = body_path(cell.row.body_bytes);
        let mut command = Command::new(std::env::current_exe().context("/proc/self/exe")?);
        command
            .args(["load", "--json"])
            .arg(format!("http://{}{path}", self.address()?))
            .arg(format!("--connections={}", self.connections))
            .arg(format!("--duration={}", time.as_secs_f64()))
            .arg(format!("--source={}", sources.join(",")))
            .arg(format!("--threads={}", self.threads()))
            .arg(format!("--pin={}", self.thread_cpus()))
            .args(connections.map(|count| format!("--requests={count}")))
            .args(rate.map(|rate| format!("--rate={rate:.0}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = host.spawn(command).context("cannot start mpps load")?;
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
        Ok(result.body.found)
    }
}
