//! What limited a run, from the counters that show it.

use super::{Layout, Rung};
use crate::result::Limit;
use mpps_host::{CpuBusy, CpuList, Grouped, Ledger, Loss, Station};
use mpps_io::{RxReport, TxReport};
use mpps_os::sched::Schedstat;
use std::fmt;

/// A loss below this share of the offered datagrams limits nothing.
const LOSS_MIN: f64 = 0.001;
/// A CPU that was busy for this share of the time was full; the rest is the tick's coarseness.
const FULL: f64 = 0.9;
/// So much of a CPU's time that is not the run's own is somebody else's.
const FOREIGN: f64 = 0.2;

/// What is known of a run.
pub(super) struct Evidence<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) layout: &'a Layout,
    pub(super) rung: &'a Rung,
    pub(super) rx: &'a [RxReport],
    pub(super) tx: &'a [TxReport],
    /// The CPU of each sending thread.
    pub(super) tx_cpus: &'a [usize],
    /// The kernel thread of each receive queue: its CPU, if it is confined to one, and what the
    /// scheduler says of it.
    pub(super) napi: &'a [(Option<usize>, Schedstat)],
    /// How busy each CPU was.
    pub(super) busy: &'a [CpuBusy],
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
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ran, waited) = (self.ran * 100.0, self.waited * 100.0);
        write!(
            f,
            "ran {ran:.0} % and waited for a CPU {waited:.0} % of the time"
        )
    }
}

/// Names what was full, by the largest loss and by the CPU that had to prevent it.
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
        .max_by_key(|(_, (_, stat))| stat.run_ns + stat.wait_ns);
    let Some((queue, (cpu, stat))) = busiest else {
        return Limit {
            what: "receive queue".to_owned(),
            evidence: counted(loss),
        };
    };
    let used = Use::of(stat.run_ns, stat.wait_ns, evidence.seconds);
    let said = format!("{}; kernel thread of queue {queue}: {used}", counted(loss));
    let Some(cpu) = *cpu else {
        return Limit {
            what: format!("receive queue {queue}, unplaced"),
            evidence: said,
        };
    };
    let alone = format!("receive queue {queue} on CPU {cpu}");
    let (what, busy) = blame(evidence, cpu, alone, "receive ring, in bursts");
    Limit {
        what,
        evidence: format!("{said}; {busy}"),
    }
}

/// The stack took them and the socket had no room: the program did not keep up, or was asleep.
fn judge_socket(evidence: &Evidence<'_>, loss: &Loss) -> Limit {
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
    let used = Use::of(report.cpu_ns, report.cpu_wait_ns, evidence.seconds);
    let said = format!("{}; receiving thread: {used}", counted(loss));
    let Some(cpu) = report.cpu else {
        // The scheduler moves it: only its own waiting tells.
        let what = if used.ran + used.waited < FULL / 2.0 {
            "socket buffer, in bursts"
        } else if used.waited > FOREIGN {
            "application, waiting for a CPU"
        } else {
            "application, unpinned"
        };
        return Limit {
            what: what.to_owned(),
            evidence: said,
        };
    };
    let alone = format!("application CPU {cpu}");
    let (what, busy) = blame(evidence, cpu, alone, "socket buffer, in bursts");
    Limit {
        what,
        evidence: format!("{said}; {busy}"),
    }
}

/// Who filled a CPU, and how full it was: `alone`, if this run did nothing else there; those who
/// share it; other programs; or nobody, and then what was lost was lost in bursts.
fn blame(evidence: &Evidence<'_>, cpu: usize, alone: String, bursts: &str) -> (String, String) {
    let busy = evidence.busy.iter().find(|busy| busy.cpu == cpu);
    let Some(busy) = busy.map(|busy| busy.busy) else {
        return (alone, format!("CPU {cpu} is not in /proc/stat"));
    };
    let ours = own_share(evidence, cpu);
    let said = format!(
        "CPU {cpu} was {:.0} % busy, {:.0} % with threads of this run",
        busy * 100.0,
        ours.min(1.0) * 100.0
    );
    let roles = evidence.layout.roles(cpu, &evidence.rung.cpus);
    let what = if busy < FULL {
        bursts.to_owned()
    } else if busy - ours > FOREIGN {
        format!("CPU {cpu}, busy with others")
    } else if roles.len() > 1 || evidence.rung.cpus.is_empty() {
        let unpinned = evidence
            .rung
            .cpus
            .is_empty()
            .then(|| "unpinned application".to_owned());
        let all: Vec<String> = roles.into_iter().chain(unpinned).collect();
        format!("CPU {cpu}, shared by {}", all.join(" and "))
    } else {
        alone
    };
    (what, said)
}

/// The share of a CPU's time that threads of this run, confined to it, ran. Senders are confined
/// to CPUs of the layout, receivers to the rung's; an unpinned receiver counts wherever it ran.
fn own_share(evidence: &Evidence<'_>, cpu: usize) -> f64 {
    let napi = evidence.napi.iter().filter(|(on, _)| *on == Some(cpu));
    let rx = evidence
        .rx
        .iter()
        .filter(|report| report.cpu.is_none_or(|on| on == cpu));
    let tx = evidence.tx.iter().zip(evidence.tx_cpus);
    let tx = tx.filter(|(_, on)| **on == cpu);
    let run_ns: u64 = napi.map(|(_, stat)| stat.run_ns).sum::<u64>()
        + rx.map(|report| report.cpu_ns).sum::<u64>()
        + tx.map(|(report, _)| report.cpu_ns).sum::<u64>();
    run_ns as f64 / 1e9 / evidence.seconds.max(1e-9)
}

/// Nothing was lost: more would have been received if more had been sent.
fn judge_sender(evidence: &Evidence<'_>) -> Limit {
    let ran: f64 = evidence
        .tx
        .iter()
        .map(|report| Use::of(report.cpu_ns, report.cpu_wait_ns, evidence.seconds).ran)
        .sum();
    let mut cpus = evidence.tx_cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = CpuList(cpus);
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

    /// CPU 1 as busy as told, of one second.
    fn busy(share: f64) -> Vec<CpuBusy> {
        vec![CpuBusy {
            cpu: 1,
            busy: share,
            user: 0.0,
            system: share,
            softirq: 0.0,
            steal: 0.0,
            ticks: 100,
        }]
    }

    /// What is said of a run whose only active thread is the kernel thread of queue 0 on CPU 1.
    fn judged(station: Station, run_ns: u64, cpu_busy: f64, rung: usize) -> Limit {
        let layout = crate::ladder::layout::tests::two_cpus();
        let sender = crate::ladder::Sender::Socket { train: 4 };
        let rung = crate::ladder::rungs(&layout, sender).remove(rung);
        let stat = Schedstat {
            run_ns,
            ..Schedstat::default()
        };
        judge(&Evidence {
            ledger: &lost(station, "lost"),
            layout: &layout,
            rung: &rung,
            rx: &[],
            tx: &[],
            tx_cpus: &[],
            napi: &[(Some(1), stat)],
            busy: &busy(cpu_busy),
            seconds: 1.0,
        })
    }

    #[test]
    fn a_loss_that_no_cpu_explains_names_its_station_and_counter() {
        let limit = judged(Station::Ip, 0, 0.0, 1);
        assert_eq!(limit.what, "IP: lost");
        assert!(limit.evidence.contains("400 (counter)"));
    }

    #[test]
    fn a_full_cpu_is_shared_by_those_who_are_on_it() {
        let limit = judged(Station::Wire, 950_000_000, 0.97, 1);
        assert_eq!(limit.what, "CPU 1, shared by queues 0-3 and application");
        // Rung 4c has its application on the sender's CPU.
        let elsewhere = judged(Station::Wire, 950_000_000, 0.97, 5);
        assert_eq!(elsewhere.what, "receive queue 0 on CPU 1");
    }

    #[test]
    fn a_cpu_that_others_fill_is_not_the_runs_own_limit() {
        let limit = judged(Station::Wire, 300_000_000, 0.97, 1);
        assert_eq!(limit.what, "CPU 1, busy with others");
        assert!(
            limit
                .evidence
                .contains("97 % busy, 30 % with threads of this run")
        );
    }

    #[test]
    fn a_cpu_with_time_to_spare_lost_in_bursts() {
        let limit = judged(Station::Wire, 300_000_000, 0.4, 1);
        assert_eq!(limit.what, "receive ring, in bursts");
    }
}
