//! What limited a run, from the counters that show it.

use super::{Layout, Rung};
use crate::result::Limit;
use mpps_host::{CpuList, Grouped, Ledger, Loss, Station};
use mpps_io::{RxReport, TxReport};
use mpps_os::sched::Schedstat;

/// A loss below this share of the offered datagrams limits nothing.
const LOSS_MIN: f64 = 0.001;
/// A thread that ran or waited for its CPU for this share of the time was never idle for long.
const BUSY: f64 = 0.85;
/// A thread that waited for its CPU for this share of the time had to share it.
const SHARED: f64 = 0.10;

/// What is known of a run.
pub(super) struct Evidence<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) layout: &'a Layout,
    pub(super) rung: &'a Rung,
    pub(super) rx: &'a [RxReport],
    pub(super) tx: &'a [TxReport],
    /// The kernel thread of each receive queue: its CPU and what the scheduler says of it.
    pub(super) napi: &'a [(usize, Schedstat)],
    /// Length of the run.
    pub(super) seconds: f64,
}

/// How a thread spent the run: shares of its time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Use {
    ran: f64,
    waited: f64,
}

impl Use {
    fn of(run_ns: u64, wait_ns: u64, seconds: f64) -> Self {
        let share = |ns: u64| ns as f64 / 1e9 / seconds.max(1e-9);
        Self {
            ran: share(run_ns),
            waited: share(wait_ns),
        }
    }

    fn wanted(self) -> f64 {
        self.ran + self.waited
    }
}

/// Names what was full, by the largest loss and by who was busy there.
pub(super) fn judge(evidence: &Evidence<'_>) -> Limit {
    let offered = evidence.ledger.offered.max(1) as f64;
    match evidence.ledger.largest_loss() {
        Some(loss) if loss.count as f64 / offered >= LOSS_MIN => match loss.station {
            Station::Wire | Station::Backlog => judge_queue(evidence, loss),
            Station::Socket => judge_socket(evidence, loss),
            station => Limit {
                what: format!("{station}: {}", loss.reason),
                evidence: counted(loss),
            },
        },
        _ => judge_sender(evidence),
    }
}

fn counted(loss: &Loss) -> String {
    format!("{} {} ({})", loss.reason, Grouped(loss.count), loss.source)
}

/// Packets were lost before the stack took them: the CPU that serves the queue did not keep up.
fn judge_queue(evidence: &Evidence<'_>, loss: &Loss) -> Limit {
    let busiest = evidence
        .napi
        .iter()
        .enumerate()
        .map(|(queue, (cpu, stat))| {
            (
                queue,
                *cpu,
                Use::of(stat.run_ns, stat.wait_ns, evidence.seconds),
            )
        })
        .max_by(|a, b| a.2.wanted().total_cmp(&b.2.wanted()));
    let Some((queue, cpu, used)) = busiest else {
        return Limit {
            what: "receive queue".to_owned(),
            evidence: counted(loss),
        };
    };
    let busy = format!(
        "its kernel thread ran {:.0} % and waited for the CPU {:.0} % of the time",
        used.ran * 100.0,
        used.waited * 100.0
    );
    let what = if used.waited >= SHARED {
        format!("CPU {cpu}, {}", sharers(evidence, cpu))
    } else {
        format!("receive queue {queue} on CPU {cpu}")
    };
    Limit {
        what,
        evidence: format!("{}; queue {queue}: {busy}", counted(loss)),
    }
}

/// The stack took them and the socket had no room: the program did not keep up, or was asleep.
fn judge_socket(evidence: &Evidence<'_>, loss: &Loss) -> Limit {
    let used = |report: &RxReport| Use::of(report.cpu_ns, report.cpu_wait_ns, evidence.seconds);
    let losing = evidence
        .rx
        .iter()
        .max_by_key(|report| report.counters.dropped);
    let Some(report) = losing else {
        return Limit {
            what: "socket buffer".to_owned(),
            evidence: counted(loss),
        };
    };
    let used = used(report);
    let place = report
        .cpu
        .map_or_else(|| "unpinned".to_owned(), |cpu| format!("CPU {cpu}"));
    let what = if used.wanted() < BUSY {
        "socket buffer, in bursts".to_owned()
    } else if used.waited >= SHARED {
        match report.cpu {
            Some(cpu) => format!("CPU {cpu}, {}", sharers(evidence, cpu)),
            None => "application, waiting for a CPU".to_owned(),
        }
    } else {
        format!("application {place}")
    };
    let busy = format!(
        "receiving thread on {place}: ran {:.0} % and waited for the CPU {:.0} % of the time",
        used.ran * 100.0,
        used.waited * 100.0
    );
    Limit {
        what,
        evidence: format!("{}; {busy}", counted(loss)),
    }
}

/// Nothing was lost: more would have been received if more had been sent.
fn judge_sender(evidence: &Evidence<'_>) -> Limit {
    let ran: f64 = evidence
        .tx
        .iter()
        .map(|report| Use::of(report.cpu_ns, report.cpu_wait_ns, evidence.seconds).ran)
        .sum();
    let cpus = CpuList(evidence.layout.senders.clone());
    Limit {
        what: "sender".to_owned(),
        evidence: format!(
            "nearly nothing lost ({} of {}); sending threads ran {:.0} % of the time on CPU {cpus}",
            Grouped(evidence.ledger.lost()),
            Grouped(evidence.ledger.offered),
            ran * 100.0
        ),
    }
}

/// `shared by queues 0-3 and application`.
fn sharers(evidence: &Evidence<'_>, cpu: usize) -> String {
    let mut roles = evidence.layout.roles(cpu, &evidence.rung.cpus);
    if evidence.rung.cpus.is_empty() {
        roles.push("unpinned application".to_owned());
    }
    format!("shared by {}", roles.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::Scope;

    fn lost(station: Station, reason: &str) -> Ledger {
        let mut ledger = Ledger::new(1000, 600, 0);
        ledger.lose(Loss {
            station,
            reason: reason.to_owned(),
            count: 400,
            source: "counter".to_owned(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: true,
        });
        ledger
    }

    #[test]
    fn shares_of_time_are_of_the_run() {
        let used = Use::of(500_000_000, 250_000_000, 1.0);
        assert_eq!((used.ran, used.waited, used.wanted()), (0.5, 0.25, 0.75));
    }

    #[test]
    fn a_loss_that_no_cpu_explains_names_its_station_and_counter() {
        let layout = crate::ladder::layout::tests::two_cpus();
        let rung = crate::ladder::rungs(&layout).remove(1);
        let ledger = lost(Station::Ip, "packet filter");
        let evidence = Evidence {
            ledger: &ledger,
            layout: &layout,
            rung: &rung,
            rx: &[],
            tx: &[],
            napi: &[],
            seconds: 1.0,
        };
        let limit = judge(&evidence);
        assert_eq!(limit.what, "IP: packet filter");
        assert!(limit.evidence.contains("400 (counter)"));
    }

    #[test]
    fn a_queue_that_waits_for_its_cpu_shares_it() {
        let layout = crate::ladder::layout::tests::two_cpus();
        let rung = crate::ladder::rungs(&layout).remove(1);
        let ledger = lost(Station::Wire, "receive ring full");
        let stat = |run_ns, wait_ns| Schedstat {
            run_ns,
            wait_ns,
            ..Schedstat::default()
        };
        let shared = [(1, stat(500_000_000, 450_000_000)), (1, stat(0, 0))];
        let alone = [(1, stat(0, 0)), (1, stat(990_000_000, 1_000_000))];
        let evidence = |napi| Evidence {
            ledger: &ledger,
            layout: &layout,
            rung: &rung,
            rx: &[],
            tx: &[],
            napi,
            seconds: 1.0,
        };
        assert_eq!(
            judge(&evidence(&shared)).what,
            "CPU 1, shared by queues 0-3 and application"
        );
        assert_eq!(judge(&evidence(&alone)).what, "receive queue 1 on CPU 1");
    }
}
