//! `mpps load`: many connections a second to a web server, each accounted for.

use super::lab::files::OutputFile;
use super::{Outcome, command_line, engine, fingerprint_at};
use crate::args::{LoadArgs, LoadCloseArg};
use crate::connections::{LOAD_SCHEMA, LoadAccount, LoadLatency, LoadLedger, LoadResult, Times};
use crate::meter::per_second;
use crate::output::{self, Stream};
use crate::report::load::{LoadText, ab, html, manner};
use crate::signal::Interrupt;
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use mpps_host::{Fingerprint, Topology};
use mpps_http::{Distribution, Failure, Ledger, Load, LoadConfig, LoadReport, Progress, Task, Url};
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, SystemTime};

/// How long a load lasts that nobody bounded.
const DURATION: Duration = Duration::from_secs(10);
/// How much time a rate on the progress line is of, at least.
const WINDOW: Duration = Duration::from_millis(500);
/// Percentages of the distribution of times, those that `ab` prints among them.
const PERCENTAGES: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 99.999,
    100.0,
];

/// Runs the load, and tells what became of it.
pub(super) fn run(args: LoadArgs) -> Result<Outcome> {
    let plan = Plan::check(args)?;
    let page = plan.args.html.as_deref().map(OutputFile::try_out);
    let page = page.transpose()?;
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let fingerprint = fingerprint_at(plan.config.target.ip())?;
    let interrupt = Interrupt::listen()?;
    for line in plan.introduction() {
        output::line(Stream::Err, &output::printable(&line))?;
    }
    let mut live = Live::new(&plan);
    let report = Load::run(&plan.config, interrupt.flag(), |now| live.show(now));
    live.bar.finish_and_clear();
    let report = report?;
    let result = plan.result(&report, !interrupt.came(), started, fingerprint);
    if let Some(page) = page {
        page.write(html::page(&result).as_bytes())?;
    }
    tell(&plan, &result)?;
    Ok(match (result.complete, result.is_fine()) {
        (false, _) => Outcome::Interrupted,
        (true, false) => Outcome::Found,
        (true, true) => Outcome::Fine,
    })
}

/// The checked arguments.
struct Plan {
    args: LoadArgs,
    url: Url,
    config: LoadConfig,
    /// Why this engine, if nobody named it.
    chosen: Option<String>,
}

impl Plan {
    fn check(args: LoadArgs) -> Result<Self> {
        let binds = !args.source.is_empty();
        let (engine, chosen) = engine::choose(args.engine.as_deref(), Task::Load { binds })?;
        if let Some(pin) = &args.pin {
            Topology::read()?.check(pin).context("--pin")?;
        }
        let url = Url::parse(&args.url)?;
        let target = url.resolve()?;
        for source in &args.source {
            ensure!(
                source.is_ipv4() == target.is_ipv4(),
                "--source {source}: {} has an address of the other family, {}",
                url.host,
                target.ip()
            );
            // What cannot be bound to would fail for each connection.
            UdpSocket::bind((*source, 0)).map_err(|error| {
                anyhow::anyhow!("--source {source}: {error}; `ip address` lists this host's own")
            })?;
        }
        let bounded = args.duration.is_some() || args.requests.is_some();
        let config = LoadConfig {
            target,
            host: url.authority(),
            path: url.path.clone(),
            engine,
            connections: usize::try_from(args.connections).unwrap_or(usize::MAX),
            rate: args.rate,
            duration: args.duration.or((!bounded).then_some(DURATION)),
            requests: args.requests,
            requests_per_connection: match args.keep_alive {
                None => Some(1),
                Some(0) => None,
                count => count,
            },
            sources: args.source.clone(),
            reset: args.close == LoadCloseArg::Rst,
            closes_first: args.close == LoadCloseArg::Client,
            timeout: args.timeout,
            threads: usize::from(args.threads),
            cpus: args.pin.as_ref().map_or_else(Vec::new, |pin| pin.0.clone()),
        };
        Ok(Self {
            args,
            url,
            config,
            chosen,
        })
    }

    /// What is about to be done, on standard error.
    fn introduction(&self) -> Vec<String> {
        let config = &self.config;
        let manner = manner(config.requests_per_connection, config.rate);
        let plural = if config.threads == 1 { "" } else { "s" };
        let line = format!(
            "{} at {}: {} in flight, {manner}, by {} in {} thread{plural}",
            self.url, config.target, config.connections, config.engine.name, config.threads
        );
        std::iter::once(line).chain(self.chosen.clone()).collect()
    }

    fn result(
        &self,
        report: &LoadReport,
        complete: bool,
        started: String,
        fingerprint: Fingerprint,
    ) -> LoadResult {
        let config = &self.config;
        let open_loop = config.rate.is_some();
        let latency = &report.latency;
        LoadResult {
            schema: LOAD_SCHEMA.to_owned(),
            fingerprint,
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            complete,
            url: self.url.to_string(),
            target: config.target.to_string(),
            engine: report.engine.to_owned(),
            granted: report.granted.clone(),
            threads: config.threads,
            cpus: config.cpus.clone(),
            connections: config.connections,
            requests_per_connection: config.requests_per_connection,
            rate: config.rate,
            sources: config.sources.iter().map(IpAddr::to_string).collect(),
            close: self.args.close.name().to_owned(),
            timeout_seconds: config.timeout.as_secs_f64(),
            seconds: report.elapsed.as_secs_f64(),
            cps: report.connections_per_second(),
            requests_per_second: report.requests_per_second(),
            bytes_sent: report.bytes_sent,
            bytes_received: report.bytes_received,
            body_bytes: report.body_bytes,
            bytes_per_second: report.bytes_per_second(),
            errors: failed(&report.requests),
            error_examples: examples(report),
            statuses: statuses(report),
            latency_us: LoadLatency {
                connect: times(&latency.connect),
                first_byte: times(&latency.first_byte),
                last_byte: times(&latency.last_byte),
            },
            lateness_us_max: open_loop.then_some(report.lateness_max.as_secs_f64() * 1e6),
            not_started: open_loop.then_some(report.not_started),
            closed_early: report.closed_early,
            ledger: LoadLedger {
                connections: account(&report.connections),
                requests: account(&report.requests),
            },
            cpu_seconds: report.cpu.as_secs_f64(),
            cpu_us_per_connection: report.cpu_us_per_connection(),
            cpu_us_per_request: report.cpu_us_per_request(),
            system_calls: report.system_calls,
            notes: notes(report),
        }
    }
}

fn failed(ledger: &Ledger) -> BTreeMap<String, u64> {
    let named = |(failure, count): (Failure, u64)| (failure.name().to_owned(), count);
    ledger.failures().map(named).collect()
}

fn account(ledger: &Ledger) -> LoadAccount {
    LoadAccount {
        started: ledger.started,
        completed: ledger.completed,
        failed: failed(ledger),
        aborted_at_end: ledger.aborted_at_end,
        unaccounted: ledger.unaccounted(),
    }
}

fn examples(report: &LoadReport) -> BTreeMap<String, String> {
    let example = |failure: &Failure| {
        let text = output::printable(report.example(*failure)?);
        Some((failure.name().to_owned(), text))
    };
    Failure::ALL.iter().filter_map(example).collect()
}

fn statuses(report: &LoadReport) -> BTreeMap<String, u64> {
    let class = |(digit, count): (usize, &u64)| {
        let name = if digit == 0 {
            "other".to_owned()
        } else {
            format!("{digit}xx")
        };
        (name, *count)
    };
    report.statuses.iter().enumerate().map(class).collect()
}

fn times(times: &Distribution) -> Times {
    let at = |percentage: f64| [percentage, times.quantile_us(percentage / 100.0)];
    Times {
        count: times.count(),
        min: times.min_us(),
        mean: times.mean_us(),
        deviation: times.deviation_us(),
        p50: times.quantile_us(0.5),
        p90: times.quantile_us(0.9),
        p99: times.quantile_us(0.99),
        p999: times.quantile_us(0.999),
        max: times.max_us(),
        percentiles: PERCENTAGES.into_iter().map(at).collect(),
    }
}

/// What helps against failures, and late starts, whose cause is on this side.
fn notes(report: &LoadReport) -> Vec<String> {
    let ledgers = [&report.connections, &report.requests];
    let note = |failure: &Failure| {
        let count = ledgers.iter().map(|ledger| ledger.failed(*failure)).max()?;
        let remedy = failure.remedy().filter(|_| count > 0)?;
        Some(format!("{}: {remedy}", failure.name()))
    };
    let busy = report.was_busy && report.not_started > 0;
    let busy = busy.then(|| {
        "requests were not started while all connections were busy: more --connections?".to_owned()
    });
    Failure::ALL.iter().filter_map(note).chain(busy).collect()
}

/// The line that shows how far the load is, on a terminal only.
struct Live {
    bar: ProgressBar,
    /// What the bar counts: milliseconds, or requests.
    by_requests: bool,
    last: Progress,
}

impl Live {
    fn new(plan: &Plan) -> Self {
        let config = &plan.config;
        let by_requests = config.duration.is_none();
        let time_ms = config.duration.unwrap_or_default().as_millis();
        let length = match (by_requests, config.requests) {
            (true, Some(requests)) => requests,
            _ => u64::try_from(time_ms).unwrap_or(u64::MAX),
        };
        let bar = ProgressBar::new(length);
        let style = ProgressStyle::with_template("{bar:20} {percent}%  {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            by_requests,
            last: Progress::default(),
        }
    }

    fn show(&mut self, now: &Progress) {
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

/// The result, in the form that was asked for.
fn tell(plan: &Plan, result: &LoadResult) -> Result<()> {
    let text = LoadText::new(output::width(), output::colour());
    if plan.args.json {
        output::line(Stream::Err, text.report(result).trim_end())?;
        output::line(Stream::Out, &serde_json::to_string(result)?)?;
    } else if plan.args.ab {
        output::line(Stream::Out, ab::report(result, &plan.url).trim_end())?;
    } else {
        output::line(Stream::Out, text.report(result).trim_end())?;
    }
    Ok(())
}
