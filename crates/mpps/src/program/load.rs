//! `mpps load`: many connections a second to a web server, each accounted for.

pub(crate) mod ab;
pub(crate) mod document;

use super::connections::{LoadBody, LoadResult, LoadSecond};
use super::meter::Meter;
use crate::failure::flags::HTTP;
use crate::machine::{command_line, fingerprint_at, now};
use crate::measure::document::counted;
use crate::measure::samples::per_second;
use crate::output::{self, OutputStream, PrintableBar};
use crate::signal::EndSignal;
use anyhow::Result;
use document::manner;
use mpps_host::Quota;
use mpps_http::{Engine, HttpLoad, LoadConfig, LoadProgress};
use std::time::Duration;

/// How much time a rate on the progress line is of, at least.
const WINDOW: Duration = Duration::from_millis(500);

/// A load that can be run.
#[derive(Debug)]
pub(crate) struct LoadPlan {
    /// The engine that drives the sockets.
    pub(crate) engine: &'static Engine,
    /// The load that is asked for.
    pub(crate) config: LoadConfig,
    /// Why this engine, if the user named none.
    pub(crate) chosen: Option<String>,
}

impl LoadPlan {
    /// Loads the server until the end that the plan has, or Ctrl-C.
    pub(crate) fn run(&self) -> Result<LoadResult> {
        let started = now();
        let fingerprint = fingerprint_at(self.config.target.ip())?;
        let interrupt = EndSignal::listen()?;
        for line in self.introduction() {
            output::line(OutputStream::Err, &line)?;
        }
        let quotas = Quota::own();
        let mut live = ProgressLine::new(&self.config);
        let (mut meter, mut each_second) = (Meter::new(0, [0; 4]), Vec::new());
        let found = HttpLoad::run(self.engine, &self.config, interrupt.flag(), |now| {
            live.show(now);
            let counts = [
                now.connections_completed,
                now.connections_failed,
                now.requests_completed,
                now.requests_failed,
            ];
            let elapsed_ns = u64::try_from(now.elapsed.as_nanos()).unwrap_or(u64::MAX);
            each_second.extend(meter.tick(elapsed_ns, counts).map(LoadSecond::from));
        });
        live.bar.finish_and_clear();
        let mut found = found?;
        for note in &mut found.notes {
            *note = HTTP.translate(note);
        }
        let quota = Quota::worst_between(&quotas, &Quota::own());
        if quota.as_ref().is_some_and(Quota::is_limit) {
            found
                .notes
                .retain(|note| !note.ends_with("more --connections?"));
        }
        found
            .notes
            .extend(quota.map(|quota| match quota.is_limit() {
                true => format!(
                    "this side was the limit, more connections do not help: {}",
                    quota.said()
                ),
                false => quota.said(),
            }));
        let body = LoadBody {
            asked: self.config.clone(),
            found,
            each_second,
        };
        let mut result = LoadResult::new(fingerprint, command_line(), started, body);
        result.complete = !interrupt.came();
        Ok(result)
    }

    /// The lines that announce the load on standard error.
    fn introduction(&self) -> impl Iterator<Item = String> {
        let config = &self.config;
        let line = format!(
            "{} at {}: {} in flight, {}, by {} in {}",
            config.url,
            config.target,
            config.connections,
            manner(config.requests_per_connection, config.rate),
            self.engine.name,
            counted(config.threads, "thread")
        );
        std::iter::once(line).chain(self.chosen.clone())
    }
}

/// The line that shows how far the load is, on a terminal only.
struct ProgressLine {
    bar: PrintableBar,
    /// True if the bar counts requests, false for milliseconds.
    by_requests: bool,
    last: LoadProgress,
}

impl ProgressLine {
    fn new(config: &LoadConfig) -> Self {
        let by_requests = config.duration.is_none();
        let time_ms = config.duration.unwrap_or_default().as_millis();
        let length = match (by_requests, config.requests) {
            (true, Some(requests)) => requests,
            _ => u64::try_from(time_ms).unwrap_or(u64::MAX),
        };
        let bar = output::bar(length, "{bar:20} {percent}%  {wide_msg}");
        Self {
            bar,
            by_requests,
            last: LoadProgress::default(),
        }
    }

    fn show(&mut self, now: &LoadProgress) {
        let place = if self.by_requests {
            now.requests_completed + now.requests_failed
        } else {
            u64::try_from(now.elapsed.as_millis()).unwrap_or(u64::MAX)
        };
        self.bar.set_position(place);
        let time = now.elapsed.saturating_sub(self.last.elapsed);
        if time < WINDOW {
            return;
        }
        let rate = |now: u64, last: u64| per_second(now.saturating_sub(last), time.as_secs_f64());
        let connections = rate(now.connections_completed, self.last.connections_completed);
        let requests = rate(now.requests_completed, self.last.requests_completed);
        let failed = now.requests_failed;
        self.bar.set_message(format!(
            "{connections:.0} connections/s  {requests:.0} requests/s  {failed} failed"
        ));
        self.last = *now;
    }
}
