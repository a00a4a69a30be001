//! The receiver's lines and totals.

use super::{Finished, Plan, say};
use crate::command::{boot_id, command_line, kernel_release};
use crate::meter::{Meter, per_second};
use crate::output::{self, Stream};
use crate::traffic::{DelayTotal, DropTotal, FlowTotal, RECV_SCHEMA, RecvThread, RecvTotal};
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use mpps_host::Grouped;
use mpps_io::{FlowKey, FlowReport, RxProgress, RxReport};
use std::collections::BTreeMap;

/// Flows that people are shown; programs get them all.
const FLOWS_SHOWN: usize = 8;

/// Prints the totals for people, and for programs with `--json`.
pub(super) fn print(plan: &Plan, mut finished: Finished, meter: &Meter) -> Result<()> {
    let error = finished
        .reports
        .iter_mut()
        .find_map(|report| report.error.take());
    let total = total(plan, &finished, meter);
    people(plan, &total)?;
    if plan.args.json {
        output::line(Stream::Out, &serde_json::to_string(&total)?)?;
    }
    error.map_or(Ok(()), |error| Err(error).context("receiving failed"))
}

/// One thread's second: CPU, packets, drops of its own socket, packets per call.
pub(super) fn thread_line(
    thread: usize,
    now: &RxProgress,
    last: &RxProgress,
    seconds: f64,
    owns_drops: bool,
) -> String {
    let datagrams = now.datagrams - last.datagrams;
    let calls = now.calls - last.calls;
    let dropped = if owns_drops {
        now.dropped.saturating_sub(last.dropped).to_string()
    } else {
        "as above".to_owned()
    };
    format!(
        "  thread {thread:<3} CPU {:<3} {:.3}M pps   dropped {dropped}   {:.1} packets a call",
        now.cpu,
        per_second(datagrams, seconds) / 1e6,
        datagrams as f64 / calls.max(1) as f64,
    )
}

fn total(plan: &Plan, finished: &Finished, meter: &Meter) -> RecvTotal {
    let reports = &finished.reports;
    let end_markers: u64 = reports
        .iter()
        .map(|report| report.flows.end_markers())
        .sum();
    let received = sum(reports, |report| report.counters.datagrams) - end_markers;
    let active_seconds = active_seconds(reports);
    let of = |report: &RxReport| report.counters.datagrams - report.flows.end_markers();
    let threads = reports
        .iter()
        .enumerate()
        .map(|(thread, report)| RecvThread {
            cpu: report.cpu,
            received: of(report),
            share: per(of(report), received),
            socket_drops: plan.owns_drops(thread).then_some(report.counters.dropped),
            packets_per_call: per(report.counters.datagrams, report.counters.calls),
            cpu_ns_per_packet: per(report.cpu_ns, report.counters.datagrams),
        });
    let threads: Vec<RecvThread> = threads.collect();
    RecvTotal {
        schema: RECV_SCHEMA.to_owned(),
        kind: "total".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        kernel: kernel_release(),
        boot_id: boot_id(),
        backend: plan.args.backend.clone(),
        address: finished.address.clone(),
        received,
        bytes: sum(reports, |report| report.counters.wire_bytes),
        active_seconds,
        pps_median: meter.pps_median(received, active_seconds),
        socket_drops: threads
            .iter()
            .filter_map(|thread| thread.socket_drops)
            .sum(),
        threads,
        socket_drops_are_trains: plan.args.gro,
        arrival: finished.arrival.to_owned(),
        mode: finished.mode.clone(),
        drops: drops(reports, plan.is_shared()),
        queued: sum(reports, |report| report.queued),
        truncated: sum(reports, |report| report.counters.truncated),
        end_markers,
        multicast_sockets: match (plan.groups.is_empty(), plan.reuse_port) {
            (true, _) => 0,
            (false, true) => plan.threads as u64,
            (false, false) => 1,
        },
        receive_buffer_bytes: finished.receive_buffer_bytes,
        groups: plan
            .groups
            .iter()
            .map(|group| group.address.to_string())
            .collect(),
        flows: flows(reports, plan.deliveries()),
        untracked: sum(reports, |report| report.flows.untracked()),
        unstamped: sum(reports, |report| report.flows.unstamped()),
        host: finished.host.clone(),
    }
}

/// From the first datagram to the last, all threads together.
fn active_seconds(reports: &[RxReport]) -> f64 {
    let firsts = reports.iter().map(|report| report.first_ns);
    let first_ns = firsts.filter(|at| *at > 0).min().unwrap_or(u64::MAX);
    let last_ns = reports.iter().map(|report| report.last_ns).max();
    last_ns.unwrap_or(0).saturating_sub(first_ns) as f64 / 1e9
}

/// So many for each; of nothing there is as much as of one.
fn per(count: u64, each: u64) -> f64 {
    count as f64 / each.max(1) as f64
}

fn sum(reports: &[RxReport], of: impl Fn(&RxReport) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

/// What was dropped, by reason, all threads together; threads of one socket each tell its drops.
fn drops(reports: &[RxReport], is_shared: bool) -> Vec<DropTotal> {
    let counted = if is_shared { 1 } else { reports.len() };
    let mut totals: Vec<DropTotal> = Vec::new();
    for drop in reports
        .iter()
        .take(counted)
        .flat_map(|report| &report.drops)
    {
        match totals.iter_mut().find(|total| total.reason == drop.reason) {
            Some(total) => total.count += drop.count,
            None => totals.push(DropTotal {
                reason: drop.reason.to_owned(),
                source: drop.source.to_owned(),
                count: drop.count,
            }),
        }
    }
    totals.retain(|total| total.count > 0);
    totals
}

/// What the stamps said, all threads together, where each datagram was to come so many times.
fn flows(reports: &[RxReport], deliveries: u64) -> Vec<FlowTotal> {
    let mut merged: BTreeMap<FlowKey, FlowReport> = BTreeMap::new();
    for (key, report) in reports.iter().flat_map(|report| report.flows.reports()) {
        merged
            .entry(key)
            .and_modify(|sum| sum.merge(report))
            .or_insert_with(|| report.clone());
    }
    let total = |(key, flow): (FlowKey, FlowReport)| FlowTotal {
        run: key.run,
        sender: key.sender,
        flow: key.flow,
        received: flow.received,
        offered: flow.offered,
        end_markers: flow.end_markers,
        lost: flow.lost_of(deliveries),
        duplicates: flow.duplicates,
        reordered: flow.reordered,
        too_late: flow.too_late,
        first: flow.first,
        delay_us: (!flow.delay_ns.is_empty()).then(|| delay(&flow.delay_ns)),
    };
    merged.into_iter().map(total).collect()
}

fn delay(histogram: &Histogram<u32>) -> DelayTotal {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    DelayTotal {
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / 1000.0,
    }
}

/// The totals as people read them.
fn people(plan: &Plan, total: &RecvTotal) -> Result<()> {
    say(
        plan,
        &format!(
            "received {} in {:.3} s, median {:.3}M pps",
            Grouped(total.received),
            total.active_seconds,
            total.pps_median / 1e6
        ),
    )?;
    let unit = if total.socket_drops_are_trains {
        " (trains)"
    } else {
        ""
    };
    let place = match (total.arrival.as_str(), plan.threads) {
        ("socket", _) => "socket",
        (_, 1) => "ring",
        _ => "rings",
    };
    let mut facts = format!(
        "dropped at the {place} {}{unit}",
        Grouped(total.socket_drops)
    );
    for (count, what) in [
        (total.queued, "still queued at the end"),
        (total.truncated, "longer than the buffer"),
        (total.end_markers, "end markers"),
    ] {
        if count > 0 {
            facts.push_str(&format!(", {what} {}", Grouped(count)));
        }
    }
    say(plan, &facts)?;
    for drop in total.drops.iter().filter(|_| total.arrival != "socket") {
        let (count, reason, source) = (Grouped(drop.count), &drop.reason, &drop.source);
        say(plan, &format!("  {count} {reason} ({source})"))?;
    }
    if total.threads.len() > 1 {
        for (at, thread) in total.threads.iter().enumerate() {
            let received = Grouped(thread.received);
            let (share, per_call) = (thread.share * 100.0, thread.packets_per_call);
            let drops = thread
                .socket_drops
                .map_or_else(String::new, |drops| format!(", dropped {drops}"));
            let line = format!(
                "  thread {at:<3} received {received} ({share:.1} %), {per_call:.1} packets a call{drops}"
            );
            say(plan, &line)?;
        }
    }
    people_flows(plan, total)
}

fn people_flows(plan: &Plan, total: &RecvTotal) -> Result<()> {
    for flow in total.flows.iter().take(FLOWS_SHOWN) {
        let of = flow
            .offered
            .map_or_else(String::new, |offered| format!(" of {}", Grouped(offered)));
        let mut line = format!(
            "  flow {}.{} received {}{of}, lost {}, duplicates {}, reordered {}",
            flow.sender,
            flow.flow,
            Grouped(flow.received),
            Grouped(flow.lost),
            Grouped(flow.duplicates),
            Grouped(flow.reordered)
        );
        if flow.too_late > 0 {
            line.push_str(&format!(", too late to tell {}", Grouped(flow.too_late)));
        }
        if let Some(delay) = flow.delay_us {
            line.push_str(&format!(
                ", delay µs p50 {:.0} p99 {:.0} p99.9 {:.0} max {:.0}",
                delay.p50, delay.p99, delay.p999, delay.max
            ));
        }
        if flow.first > 0 {
            line.push_str(&format!(" (the first one seen was number {})", flow.first));
        }
        say(plan, &line)?;
    }
    if total.flows.len() > FLOWS_SHOWN {
        let rest = &total.flows[FLOWS_SHOWN..];
        let lost = Grouped(rest.iter().map(|flow| flow.lost).sum());
        let received = Grouped(rest.iter().map(|flow| flow.received).sum());
        let more = rest.len();
        say(
            plan,
            &format!("  {more} more flows received {received}, lost {lost}; --json has each"),
        )?;
    }
    if total.untracked > 0 {
        let untracked = Grouped(total.untracked);
        say(
            plan,
            &format!("  {untracked} datagrams of flows beyond the 8192nd were not followed"),
        )?;
    }
    Ok(())
}
