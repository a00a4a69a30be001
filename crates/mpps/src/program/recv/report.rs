//! The receiver's lines and totals.

use super::{Finished, RecvPlan, carve_out};
use crate::machine::{boot_id, command_line, kernel_release};
use crate::measure::samples::per_second;
use crate::program::meter::{Meter, scaled};
use crate::udp::RATE_DEFINITION;
use crate::udp::account;
use crate::udp::run::Span;
use crate::udp::traffic::{DelayTotal, FlowTotal, RECV_SCHEMA, RecvThread, RecvTotal, document};
use crate::udp::waited::Waited;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use mpps_io::{FlowKey, FlowReport, Layer, RxCaps, RxProgress, RxReport};
use mpps_os::namespace::NetNamespace;
use mpps_report::Quantity;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Prints the totals for people, and for programs with `--json`.
pub(super) fn print(plan: &RecvPlan, mut finished: Finished, meter: &Meter<2>) -> Result<()> {
    let error = finished
        .reports
        .iter_mut()
        .find_map(|report| report.error.take());
    let total = total(plan, &finished, meter);
    plan.lines.tell(&document::received(&total))?;
    let is_hashed =
        plan.config.reuse_port && plan.config.groups.is_empty() && !plan.asked.steers_by_cpu;
    if let Some(said) = one_sided(&total.address, &total.threads).filter(|_| is_hashed) {
        plan.lines.say(&said)?;
    }
    plan.lines.object(&total)?;
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
        "  thread {thread:<3} CPU {:<3} {:>7}/s   dropped {dropped}   {:.1} packets a call",
        now.cpu,
        scaled(per_second(datagrams, seconds)),
        datagrams as f64 / calls.max(1) as f64,
    )
}

/// The losses of a second at the receivers: `  lost 56.4 % (60.8 k/s at the socket)`.
pub(super) fn lost(
    received: u64,
    lost: u64,
    seconds: f64,
    are_trains: bool,
    caps: &RxCaps,
) -> String {
    let rate = scaled(per_second(lost, seconds));
    let place = match caps.layer {
        Layer::Payload => "socket",
        Layer::Frame => "ring",
    };
    match (lost, are_trains) {
        (0, _) => String::new(),
        (_, true) => format!("  lost {rate}trains/s at the {place}"),
        (_, false) => {
            let share = Quantity::Share(lost as f64 / (received + lost) as f64);
            format!("  lost {share} ({rate}/s at the {place})")
        }
    }
}

fn total(plan: &RecvPlan, finished: &Finished, meter: &Meter<2>) -> RecvTotal {
    let reports = &finished.reports;
    let end_markers: u64 = reports
        .iter()
        .map(|report| report.flows.end_markers())
        .sum();
    let received = sum(reports, |report| report.counters.datagrams) - end_markers;
    let active_seconds = Span::of(reports).seconds();
    let threads = threads(plan, reports, received);
    let caps = &finished.caps;
    let drops = account::drops(reports, plan.is_shared());
    let drops = account::caused(drops, finished.host.as_ref());
    RecvTotal {
        schema: RECV_SCHEMA.to_owned(),
        kind: "total".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command_line(),
        kernel: kernel_release(),
        boot_id: boot_id(),
        namespace: NetNamespace::current_cookie().ok(),
        backend: plan.backend.name.to_owned(),
        address: caps.local_address.to_string(),
        received,
        bytes: sum(reports, |report| report.counters.wire_bytes),
        active_seconds,
        rate_definition: RATE_DEFINITION.to_owned(),
        pps: per_second(received, active_seconds),
        pps_median: meter.pps_median(received, active_seconds),
        socket_drops: drops.iter().map(|drop| drop.count).sum(),
        threads,
        socket_drops_are_trains: plan.config.gro,
        arrival: account::arrival_name(caps).to_owned(),
        mode: caps.mode.summary.clone(),
        backend_because: plan.because.clone(),
        wait: plan.asked.wait.name().to_owned(),
        interface: plan.interface().ok(),
        carrier_seconds: finished.carrier_wait.as_secs_f64(),
        attaching_set: finished.attaching_set.clone(),
        drops,
        queued: sum(reports, |report| report.queued),
        truncated: sum(reports, |report| report.counters.truncated),
        end_markers,
        multicast_sockets: match (plan.config.groups.is_empty(), plan.config.reuse_port) {
            (true, _) => 0,
            (false, true) => plan.threads as u64,
            (false, false) => 1,
        },
        receive_buffer_bytes: caps.receive_buffer_bytes,
        groups: plan
            .config
            .groups
            .iter()
            .map(|group| group.address.to_string())
            .collect(),
        flows: flows(reports, plan),
        untracked: sum(reports, |report| report.flows.untracked()),
        unstamped: sum(reports, |report| report.flows.unstamped()),
        carve_out: finished
            .carved
            .clone()
            .map(|carved| carve_out::counted(carved, plan, finished)),
        host: finished.host.clone(),
    }
}

/// The result of each thread, with its share of all received datagrams.
fn threads(plan: &RecvPlan, reports: &[RxReport], received: u64) -> Vec<RecvThread> {
    let thread = |(thread, report): (usize, &RxReport)| {
        let counters = &report.counters;
        let got = counters.datagrams - report.flows.end_markers();
        let waited = Waited::of(plan.asked.wait, counters);
        RecvThread {
            cpu: report.cpu,
            received: got,
            share: per(got, received),
            socket_drops: plan.owns_drops(thread).then_some(counters.dropped),
            packets_per_call: per(counters.datagrams, counters.calls),
            cpu_ns_per_packet: (counters.datagrams > 0)
                .then(|| per(report.cpu_ns, counters.datagrams)),
            polls: waited.polls,
            fill_depth: waited.fill_depth,
        }
    };
    reports.iter().enumerate().map(thread).collect()
}

/// So many for each; of nothing there is as much as of one.
fn per(count: u64, each: u64) -> f64 {
    count as f64 / each.max(1) as f64
}

fn sum(reports: &[RxReport], of: impl Fn(&RxReport) -> u64) -> u64 {
    reports.iter().map(of).sum()
}

/// The results of the stamps over all threads. Datagrams to a group are expected several times.
fn flows(reports: &[RxReport], plan: &RecvPlan) -> Vec<FlowTotal> {
    let mut merged: BTreeMap<FlowKey, FlowReport> = BTreeMap::new();
    for (key, report) in reports.iter().flat_map(|report| report.flows.reports()) {
        merged
            .entry(key)
            .and_modify(|sum| sum.merge(report))
            .or_insert_with(|| report.clone());
    }
    let total = |(key, flow): (FlowKey, FlowReport)| {
        let deliveries = if key.may_be_copied() {
            plan.deliveries()
        } else {
            1
        };
        let decided = flow.decide(deliveries);
        let apart_us = flow.clocks_apart_ns as f64 / 1000.0;
        let is_timed = apart_us == 0.0 && !flow.delay_ns.is_empty();
        FlowTotal {
            run: key.run,
            sender: key.sender,
            flow: key.flow,
            received: flow.received,
            offered: flow.offered,
            end_markers: flow.end_markers_once(deliveries),
            lost: decided.lost,
            undecided: Some(decided.undecided),
            duplicates: decided.duplicates,
            reordered: flow.reordered,
            too_late: flow.too_late,
            first: if flow.next > 0 { flow.first } else { 0 },
            delay_us: is_timed.then(|| delay(&flow.delay_ns)),
            clocks_apart_us: (apart_us > 0.0).then_some(apart_us),
        }
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

/// Says so if one socket of a group of several, over which the kernel spreads flows by a hash, got
/// all there was, and what to do about it.
///
/// Where no socket is bound to the address that a datagram was sent to, the kernel looks the group
/// up with the wildcard address in its place (`__udp4_lib_lookup` in net/ipv4/udp.c): the
/// destination is then not in the hash.
fn one_sided(address: &str, threads: &[RecvThread]) -> Option<String> {
    let came = threads
        .iter()
        .map(|one| one.received + one.socket_drops.unwrap_or(0));
    let came: Vec<u64> = came.collect();
    let reached = came.iter().filter(|count| **count > 0).count();
    // Fewer datagrams than sockets do not reach all of them.
    if came.len() < 2 || reached != 1 || came.iter().sum::<u64>() < came.len() as u64 {
        return None;
    }
    let address: Option<SocketAddr> = address.parse().ok();
    let wildcard = if address.is_some_and(|address| address.ip().is_unspecified()) {
        ", and not by the address that it was sent to"
    } else {
        ""
    };
    Some(format!(
        "one socket of {} got everything: the kernel chooses the socket of a datagram by its source \
         address and port{wildcard}; send from more ports (mpps send --flows 64), or choose by CPU \
         (--steer cpu)",
        came.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_which_one_socket_gets_everything_says_so() {
        let said = |address, counts: &[(u64, u64)]| {
            let thread = |(received, drops): &(u64, u64)| RecvThread {
                cpu: None,
                received: *received,
                share: 0.0,
                socket_drops: Some(*drops),
                packets_per_call: 1.0,
                cpu_ns_per_packet: Some(1.0),
                polls: None,
                fill_depth: None,
            };
            let threads: Vec<RecvThread> = counts.iter().map(thread).collect();
            one_sided(address, &threads)
        };
        let wildcard = said("0.0.0.0:4321", &[(0, 0), (104_124, 9), (0, 0), (0, 0)]).unwrap();
        assert!(wildcard.starts_with("one socket of 4 got everything"));
        assert!(wildcard.contains("not by the address that it was sent to"));
        assert!(wildcard.contains("mpps send --flows 64"));
        let bound = said("192.168.254.1:4321", &[(9, 0), (0, 0)]).unwrap();
        assert!(!bound.contains("sent to"), "{bound}");
        for fine in [
            &[(50, 0), (0, 0), (1, 0)][..],
            &[(50, 0)],
            &[(0, 0), (0, 0)],
            &[(50, 0), (0, 3)],
            &[(1, 0), (0, 0)],
        ] {
            assert_eq!(said("0.0.0.0:4321", fine), None, "{fine:?}");
        }
    }
}
