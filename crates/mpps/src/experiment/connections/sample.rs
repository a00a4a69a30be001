//! One run of a cell: what the load, the scheduler and the two kernels counted.

use super::plan::PlannedCell;
use super::process_tree::{ProcessTree, Used};
use super::result::{ConnectionLedger, TcpCell, TcpFigures};
use super::server::RunningServer;
use super::stage::ConnectionLab;
use crate::measure::samples::median;
use crate::udp::roles::on;
use anyhow::Result;
use mpps_host::{CpuBusy, Delta, ProcStat, Snapshot, Witness};
use mpps_http::{Failure, LoadReport};
use mpps_lab::LabHost;
use std::time::Duration;

/// A CPU is full from this share of its time on, and a link of its rate. It is not full at the edges
/// of the run.
const FULL: f64 = 0.9;

/// The fewest connections that give a median, for a run at less than full load.
const FEWEST: u64 = 50;

/// A run may take this many times its intended length.
const PATIENCE: u32 = 5;

/// The result of one run of a cell.
#[derive(Debug)]
pub(super) struct CellSample {
    cps: f64,
    own_us: f64,
    softirq_us: f64,
    switches_per_second: f64,
    latency_us: [Option<f64>; 2],
    server_busy: f64,
    load_busy: f64,
    server_ring_share: Option<f64>,
    load_ring_share: Option<f64>,
    link_share: Option<f64>,
    pub(super) ledger: ConnectionLedger,
    pub(super) notes: Vec<String>,
}

/// How the CPU time of a connection was found, for the report.
pub(super) const CPU_METHOD: &str = "/proc/PID/task/TID/schedstat of all threads of the server \
    (own) and of the kernel threads of its receive queues and of its CPUs' soft interrupts (softirq), \
    from before the load to after it, over completed connections";

/// The counters around a run.
struct Counters {
    stat: ProcStat,
    load: Snapshot,
    server: Snapshot,
    softirq_ns: u64,
    threads: ProcessTree,
}

impl ConnectionLab {
    /// Loads the server of a cell for so long, and answers how many connections it served per
    /// second.
    pub(super) fn warm_up(&self, cell: &PlannedCell, time: Duration) -> Result<f64> {
        Ok(self.load(cell, time, None, None)?.cps)
    }

    /// Loads the server of a cell with as many connections as take about so long at this rate.
    ///
    /// A number of connections, and not a time, is what ends the load: it leaves none in flight,
    /// about which the two kernels and the load could be of different opinions.
    pub(super) fn run(
        &self,
        cell: &PlannedCell,
        server: &mut RunningServer,
        time: Duration,
        cps: f64,
    ) -> Result<CellSample> {
        let rate = self.offered(cell, cps);
        let requests = (rate.unwrap_or(cps) * time.as_secs_f64()) as u64;
        // Fewer than are in flight would never be all that many.
        let requests = requests.max(rate.map_or(self.connections, |_| FEWEST));
        self.lab.settle()?;
        let before = self.counters(server)?;
        let report = self.load(cell, time * PATIENCE, Some(requests), rate)?;
        let stat = ProcStat::read()?;
        self.lab.settle()?;
        let mut after = self.counters(server)?;
        // The CPUs are as busy as during the load, not as while waiting for silence.
        after.stat = stat;
        server.check()?;
        Ok(self.sample(&report, &before, &after))
    }

    /// How many connections a second a cell of less than full load begins. The share is of what the
    /// server did when it was first asked, for all settings of moderation: they get the same load.
    fn offered(&self, cell: &PlannedCell, cps: f64) -> Option<f64> {
        let share = cell.row.load_share?;
        let mut full = self.full_cps.borrow_mut();
        let full = full.entry(cell.server.name).or_insert(cps);
        Some((share * *full).max(1.0))
    }

    fn counters(&self, server: &RunningServer) -> Result<Counters> {
        let snapshot = |host: &LabHost| host.run(|| Snapshot::take(&[host.interface()]));
        Ok(Counters {
            load: snapshot(self.lab.sender())??,
            server: snapshot(self.lab.receiver())??,
            softirq_ns: self.softirq_ns(),
            threads: ProcessTree::read(server.id())?,
            stat: ProcStat::read()?,
        })
    }

    fn sample(&self, load: &LoadReport, before: &Counters, after: &Counters) -> CellSample {
        let (sent, served) = (
            after.load.since(&before.load),
            after.server.since(&before.server),
        );
        let (Used { run_ns, switches }, gone) = after.threads.since(&before.threads);
        let softirq_ns = after.softirq_ns.saturating_sub(before.softirq_ns);
        let completed = load.ledger.connections.completed.max(1) as f64;
        let busy = after.stat.busy_since(&before.stat);
        let mut notes = Vec::new();
        if gone > 0 {
            notes.push(format!(
                "{gone} threads of the server ended during a run; what they used in it is not in \
                 its CPU time"
            ));
        }
        let times = &load.latency_us.last_byte;
        let [server_link, load_link] =
            [self.lab.receiver(), self.lab.sender()].map(LabHost::interface);
        CellSample {
            cps: load.cps,
            own_us: run_ns as f64 / 1e3 / completed,
            softirq_us: softirq_ns as f64 / 1e3 / completed,
            switches_per_second: switches as f64 / load.seconds.max(f64::MIN_POSITIVE),
            latency_us: [times.p50, times.p99].map(|us| (times.count > 0).then_some(us)),
            server_busy: busy_share(&busy, &self.deal.servers),
            load_busy: busy_share(&busy, &self.deal.loads),
            server_ring_share: self.ring_share(&served, server_link),
            load_ring_share: self.ring_share(&sent, load_link),
            link_share: served.link(server_link).and_then(|link| {
                let rate = self.link_rate?;
                Some(rate.share(link.tx_bytes, load.seconds))
            }),
            ledger: ledger(load, &sent, &served),
            notes,
        }
    }

    /// The medians of a cell's samples.
    pub(super) fn figures(&self, samples: &[CellSample], cell: &TcpCell) -> Option<TcpFigures> {
        let of =
            |value: fn(&CellSample) -> f64| -> Vec<f64> { samples.iter().map(value).collect() };
        let middle = |value: fn(&CellSample) -> f64| median(&of(value));
        let each = |value: fn(&CellSample) -> Option<f64>| -> Vec<f64> {
            samples.iter().filter_map(value).collect()
        };
        let some = |value: fn(&CellSample) -> Option<f64>| median(&each(value));
        let cps_samples = of(|sample| sample.cps);
        let cps_median = median(&cps_samples)?;
        let cpu = of(|sample| sample.own_us + sample.softirq_us);
        let server_busy = middle(|sample| sample.server_busy)?;
        let load_busy = middle(|sample| sample.load_busy)?;
        let link_share = some(|sample| sample.link_share);
        Some(TcpFigures {
            cps_median,
            cps_samples,
            throughput_mbit_median: cps_median * cell.body_bytes as f64 * 8.0 / 1e6,
            cpu_us_per_connection_median: median(&cpu)?,
            cpu_us_per_connection_samples: cpu,
            own_us_per_connection_median: middle(|sample| sample.own_us)?,
            softirq_us_per_connection_median: middle(|sample| sample.softirq_us)?,
            context_switches_per_second_median: middle(|sample| sample.switches_per_second)?,
            latency_p50_us_median: some(|sample| sample.latency_us[0]),
            latency_p99_us_median: some(|sample| sample.latency_us[1]),
            latency_p50_us_samples: each(|sample| sample.latency_us[0]),
            limited_by: match cell.load_share {
                Some(_) => "the rate that was offered".to_owned(),
                None => self.limited_by(server_busy, load_busy, link_share),
            },
            server_cpu_busy_median: server_busy,
            load_cpu_busy_median: load_busy,
            server_ring_share: some(|sample| sample.server_ring_share),
            load_ring_share: some(|sample| sample.load_ring_share),
            link_share,
        })
    }

    /// The share of the packets to an interface that the thread of its queue took, if there is one.
    /// Only that counter of veth has the packets that NAPI polled (veth_poll in
    /// drivers/net/veth.c).
    fn ring_share(&self, delta: &Delta, interface: &str) -> Option<f64> {
        let all = delta.link(interface)?.rx_packets;
        let queues = delta.queue_packets(interface);
        let polled: i64 = queues.iter().map(|queue| queue.packets).sum();
        (self.has_threads() && all > 0).then(|| polled as f64 / all as f64)
    }

    fn limited_by(&self, server: f64, load: f64, link: Option<f64>) -> String {
        if let Some(rate) = self.link_rate.filter(|_| link >= Some(FULL)) {
            return format!("link, of {rate}");
        }
        let [server_cpus, load_cpus] = [on(&self.deal.servers), on(&self.deal.loads)];
        match (server >= FULL, load >= FULL) {
            (true, true) => format!("both, server {server_cpus} and load {load_cpus}"),
            (true, false) => format!("server {server_cpus}"),
            (false, true) => format!("load {load_cpus}"),
            (false, false) => format!("waiting, with {} connections", self.connections),
        }
    }
}

/// The mean over these CPUs.
fn busy_share(busy: &[CpuBusy], cpus: &[usize]) -> f64 {
    let own = busy.iter().filter(|busy| cpus.contains(&busy.cpu));
    own.map(|busy| busy.busy).sum::<f64>() / cpus.len() as f64
}

/// Failures before `connect(2)` has sent anything.
const NOT_BEGUN: [Failure; 3] = [Failure::NoPort, Failure::NoDescriptor, Failure::Unreachable];
/// Failures before the server's kernel had a connection.
const NOT_MADE: [Failure; 3] = [
    Failure::Refused,
    Failure::ResetConnecting,
    Failure::TimedOutConnecting,
];

/// Connections that the server's host took, less those that it made to itself: Apache connects to
/// its own port once for each process that is to end.
fn taken_from_the_load(taken: Option<i64>, own: i64) -> (Option<i64>, &'static str) {
    match own {
        0 => (taken, "server's host Tcp.PassiveOpens"),
        own => (
            taken.map(|taken| taken - own),
            "server's host Tcp.PassiveOpens - Tcp.ActiveOpens",
        ),
    }
}

/// Where the connections went, with what the two kernels counted of them.
fn ledger(load: &LoadReport, sent: &Delta, served: &Delta) -> ConnectionLedger {
    let account = &load.ledger.connections;
    let mut ledger = ConnectionLedger {
        account: account.clone(),
        loads: load.by_thread.clone(),
        examples: load.error_examples.clone(),
        ..ConnectionLedger::default()
    };
    for account in ledger.loads.iter_mut().chain([&mut ledger.account]) {
        account.failed.retain(|_, count| *count > 0);
    }
    let failed = |kinds: [Failure; 3]| kinds.map(|kind| account.failed(kind)).iter().sum();
    let begun = account.started.saturating_sub(failed(NOT_BEGUN));
    let made = begun.saturating_sub(failed(NOT_MADE));
    // It is unknown how far a connection had come that the end of the load cut off.
    let is_known = account.aborted_at_end == 0;
    let mut bears_witness = |about: &str, source: &str, expected, count: Option<i64>| {
        ledger.witnesses.extend(count.map(|count| Witness {
            about: about.to_owned(),
            source: source.to_owned(),
            ledger: expected,
            witness: u64::try_from(count).unwrap_or(0),
        }));
    };
    if is_known {
        let count = sent.snmp("Tcp.ActiveOpens");
        let source = "load's host Tcp.ActiveOpens";
        bears_witness("connections begun", source, begun, count);
        let own = served.snmp("Tcp.ActiveOpens").unwrap_or(0);
        let (count, source) = taken_from_the_load(served.snmp("Tcp.PassiveOpens"), own);
        bears_witness("connections made", source, made, count);
    }
    for (host, delta) in [("load", sent), ("server", served)] {
        for (name, count) in delta.tcp_trouble() {
            ledger.kernel.insert(format!("{host} {name}"), count);
        }
    }
    ledger
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_makes_to_itself_is_not_of_the_load() {
        let plain = "server's host Tcp.PassiveOpens";
        assert_eq!(taken_from_the_load(Some(6000), 0), (Some(6000), plain));
        assert_eq!(taken_from_the_load(Some(6014), 14).0, Some(6000));
        assert_ne!(taken_from_the_load(Some(6014), 14).1, plain);
        assert_eq!(taken_from_the_load(None, 14).0, None);
    }
}
