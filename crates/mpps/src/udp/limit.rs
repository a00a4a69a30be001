//! Finds the bottleneck of a run from its counters.

use super::roles::CpuLayout;
use super::run::UdpRun;
use mpps_host::{CpuList, Grouped, Ledger, Loss, Quota, Station};
use mpps_lab::Delivery;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The bottleneck of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// `application CPU 1`, `receive queue 0 on CPU 1`, `sender`.
    pub what: String,
    /// The counters that show it.
    pub evidence: String,
    /// True if it is not the run's own: other programs on a CPU, or a CPU quota.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_others: bool,
}

impl Limit {
    pub(crate) fn new(what: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            evidence: evidence.into(),
            by_others: false,
        }
    }
}

/// A sender outruns a receiver if it offers at least this multiple of the received rate. Below it,
/// the received rate equals the offered rate, within the agreement of two runs on one machine.
pub(crate) const OUTRUN_MIN: f64 = 1.05;
/// A loss below this share of the offered datagrams limits nothing.
const LOSS_MIN: f64 = 0.001;
/// A CPU that was busy for this share of the time was full; the rest is the tick's coarseness.
const FULL: f64 = 0.9;
/// A share of a CPU's time above this that is not the run's own belongs to other programs.
const FOREIGN: f64 = 0.2;

/// The tasks on each CPU in a run.
pub(crate) struct CpuTasks<'a> {
    /// The tasks that ran on a CPU.
    pub(crate) roles: &'a dyn Fn(usize) -> Vec<String>,
    pub(crate) layout: &'a CpuLayout,
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

/// Names the bottleneck. It is the sender if it did not outrun the receiver. Otherwise it is the
/// CPU that had to prevent the largest loss.
pub(crate) fn judge(run: &UdpRun, places: &CpuTasks<'_>) -> Limit {
    let ledger = &run.ledger;
    let received = ledger.delivered + ledger.queued;
    let outran = ledger.offered as f64 >= OUTRUN_MIN * received as f64;
    let limit = match loss_that_counts(ledger).filter(|_| outran) {
        Some(loss) => match loss.station {
            Station::Wire | Station::Backlog => judge_queue(run, places, loss),
            Station::Socket => judge_socket(run, places, loss),
            _ => return named(loss),
        },
        None => judge_sender(run, places),
    };
    unless_held_back(limit, run.quota.as_ref())
}

/// A limit, unless a CPU quota held the threads back: then they did not keep up because of that, however
/// full a CPU, a ring or a buffer was.
pub(crate) fn unless_held_back(limit: Limit, quota: Option<&Quota>) -> Limit {
    let Some(quota) = quota else {
        return limit;
    };
    let evidence = format!("{}; {}", quota.said(), limit.evidence);
    match held_back(Some(quota)) {
        Some(held_back) => Limit {
            evidence,
            ..held_back
        },
        None => Limit { evidence, ..limit },
    }
}

/// The CPU quota as the limit; none if none held the threads back often enough.
pub(crate) fn held_back(quota: Option<&Quota>) -> Option<Limit> {
    let quota = quota.filter(|quota| quota.is_limit())?;
    let what = format!("CPU quota of cgroup {}", quota.group);
    Some(Limit {
        by_others: true,
        ..Limit::new(what, quota.said())
    })
}

/// The largest loss, if it is large enough to limit anything.
pub(crate) fn loss_that_counts(ledger: &Ledger) -> Option<&Loss> {
    let offered = ledger.offered.max(1) as f64;
    let loss = ledger.largest_loss();
    loss.filter(|loss| loss.count as f64 / offered >= LOSS_MIN)
}

/// A loss as the limit, without a CPU to blame.
pub(crate) fn named(loss: &Loss) -> Limit {
    Limit::new(format!("{}: {}", loss.station, loss.reason), counted(loss))
}

fn counted(loss: &Loss) -> String {
    format!("{} {} ({})", loss.reason, Grouped(loss.count), loss.source)
}

/// Packets were lost before the stack took them: the CPU that serves the queue did not keep up.
fn judge_queue(run: &UdpRun, places: &CpuTasks<'_>, loss: &Loss) -> Limit {
    let threads = run.napi.iter().enumerate();
    let busiest = threads.max_by_key(|(_, (_, stat))| stat.run_ns + stat.wait_ns);
    let Some((queue, (cpu, stat))) = busiest else {
        return Limit::new("receive queue", counted(loss));
    };
    let used = Use::of(stat.run_ns, stat.wait_ns, run.seconds);
    let said = format!("{}; kernel thread of queue {queue}: {used}", counted(loss));
    let Some(cpu) = *cpu else {
        return Limit::new(format!("receive queue {queue}, unplaced"), said);
    };
    let alone = format!("receive queue {queue} on CPU {cpu}");
    blame(run, places, cpu, (alone, "receive ring, in bursts"), &said)
}

/// The stack took them and the socket had no room: the program did not keep up, or was asleep.
fn judge_socket(run: &UdpRun, places: &CpuTasks<'_>, loss: &Loss) -> Limit {
    let losing = run.rx.iter().max_by_key(|report| report.counters.dropped);
    let Some(report) = losing else {
        return Limit::new("socket buffer", counted(loss));
    };
    let used = Use::of(report.cpu_ns, report.cpu_wait_ns, run.seconds);
    let said = format!("{}; receiving thread: {used}", counted(loss));
    let Some(cpu) = report.cpu else {
        // The scheduler moves the thread, so only the thread's own waiting counts.
        let what = if used.ran + used.waited < FULL / 2.0 {
            "socket buffer, in bursts"
        } else if used.waited > FOREIGN {
            "application, waiting for a CPU"
        } else {
            "application, unpinned"
        };
        return Limit::new(what, said);
    };
    let alone = format!("application CPU {cpu}");
    blame(run, places, cpu, (alone, "socket buffer, in bursts"), &said)
}

/// Names what filled a CPU, and how full it was. It is `alone` if this run had one task there. It
/// may also be several tasks of this run, or other programs. If the CPU was not full, the packets
/// were lost in bursts.
fn blame(
    run: &UdpRun,
    places: &CpuTasks<'_>,
    cpu: usize,
    (alone, bursts): (String, &str),
    known: &str,
) -> Limit {
    let busy = run.busy.iter().find(|busy| busy.cpu == cpu);
    let Some(busy) = busy.map(|busy| busy.busy) else {
        return Limit::new(alone, format!("{known}; CPU {cpu} is not in /proc/stat"));
    };
    let ours = own_share(run, cpu);
    let said = format!(
        "{known}; CPU {cpu} was {:.0} % busy, {:.0} % with threads of this run",
        busy * 100.0,
        ours.min(1.0) * 100.0
    );
    let roles = (places.roles)(cpu);
    let is_unpinned = places.layout.applications.is_empty();
    let by_others = busy >= FULL && busy - ours > FOREIGN;
    let what = if busy < FULL {
        bursts.to_owned()
    } else if by_others {
        format!("CPU {cpu}, busy with others")
    } else if roles.len() > 1 || is_unpinned {
        let unpinned = is_unpinned.then(|| "unpinned application".to_owned());
        let all: Vec<String> = roles.into_iter().chain(unpinned).collect();
        format!("CPU {cpu}, shared by {}", all.join(" and "))
    } else {
        alone
    };
    Limit {
        by_others,
        ..Limit::new(what, said)
    }
}

/// The share of a CPU's time that threads of this run, confined to it, ran. Senders are confined
/// to CPUs of the layout, receivers to the rung's; an unpinned receiver counts wherever it ran.
fn own_share(run: &UdpRun, cpu: usize) -> f64 {
    let napi = run.napi.iter().filter(|(on, _)| *on == Some(cpu));
    let rx = run
        .rx
        .iter()
        .filter(|report| report.cpu.is_none_or(|on| on == cpu));
    let tx = run.tx.iter().zip(&run.tx_cpus);
    let tx = tx.filter(|(_, on)| **on == cpu);
    let run_ns: u64 = napi.map(|(_, stat)| stat.run_ns).sum::<u64>()
        + rx.map(|report| report.cpu_ns).sum::<u64>()
        + tx.map(|(report, _)| report.cpu_ns).sum::<u64>();
    run_ns as f64 / 1e9 / run.seconds.max(1e-9)
}

/// Little was lost: more would have been received if more had been sent.
fn judge_sender(run: &UdpRun, places: &CpuTasks<'_>) -> Limit {
    let ran: f64 = run
        .tx
        .iter()
        .map(|report| Use::of(report.cpu_ns, report.cpu_wait_ns, run.seconds).ran)
        .sum();
    let mut cpus = run.tx_cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = CpuList(cpus);
    let what = match places.layout.delivery {
        Delivery::SoftInterrupt => "sender, with the receive queues on its CPU",
        Delivery::ThreadedNapi | Delivery::Rps => "sender",
    };
    let evidence = format!(
        "lost {} of {}; sending threads ran {:.0} % of the time on CPU {cpus}",
        Grouped(run.ledger.lost()),
        Grouped(run.ledger.offered),
        ran * 100.0
    );
    Limit::new(what, evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::{two_cpus, two_cpus_tied};
    use mpps_host::CpuBusy;
    use mpps_os::sched::Schedstat;

    fn lost(station: Station, reason: &str) -> Ledger {
        let mut ledger = Ledger::new(1000, 600, 0);
        ledger.lose(Loss::new(station, reason, 400, "counter"));
        ledger
    }

    /// CPU 1, busy for this share of one second.
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

    /// The judgement of a run whose only active thread is the kernel thread of queue 0 on CPU 1.
    fn judged(station: Station, run_ns: u64, cpu_busy: f64, roles: &[&str]) -> Limit {
        let stat = Schedstat {
            run_ns,
            ..Schedstat::default()
        };
        let run = UdpRun {
            ledger: lost(station, "lost"),
            napi: vec![(Some(1), stat)],
            busy: busy(cpu_busy),
            seconds: 1.0,
            ..UdpRun::default()
        };
        let places = CpuTasks {
            roles: &|_| roles.iter().map(ToString::to_string).collect(),
            layout: &two_cpus_tied(),
        };
        judge(&run, &places)
    }

    /// The judgement of a run without tasks on its CPUs.
    fn idle(run: &UdpRun, layout: &CpuLayout) -> Limit {
        let roles = &|_| Vec::new();
        judge(run, &CpuTasks { roles, layout })
    }

    #[test]
    fn a_quota_that_held_back_is_the_limit_wherever_it_was_lost() {
        let judged = |station, delivered, quota| {
            let mut ledger = lost(station, "lost");
            ledger.delivered = delivered;
            let run = UdpRun {
                ledger,
                quota,
                busy: busy(0.4),
                seconds: 1.0,
                ..UdpRun::default()
            };
            idle(&run, &two_cpus_tied())
        };
        let quota = |throttled| {
            Some(Quota {
                group: "/box".to_owned(),
                periods: 10,
                throttled,
                throttled_ns: 7_000_000,
                ..Quota::default()
            })
        };
        // Of a ring, of a socket, and of a sender that did not outrun.
        for (station, delivered) in [
            (Station::Wire, 600),
            (Station::Backlog, 600),
            (Station::Socket, 600),
            (Station::Wire, 1000),
        ] {
            let limit = judged(station, delivered, quota(3));
            assert_eq!(limit.what, "CPU quota of cgroup /box", "{station}");
            assert!(
                limit.evidence.contains("in 3 of 10 periods, for 7 ms"),
                "{limit:?}"
            );
            let free = judged(station, delivered, None);
            assert!(
                !free.what.contains("quota") && !free.evidence.contains("quota"),
                "{free:?}"
            );
            // A quota that held nothing back is reported and is not the limit.
            let rare = judged(station, delivered, quota(0));
            assert_eq!(rare.what, free.what);
            assert!(rare.evidence.contains("in 0 of 10"), "{rare:?}");
        }
        // A filter's drops are not a matter of CPU time.
        assert_eq!(judged(Station::Ip, 600, quota(3)).what, "IP: lost");
    }

    const BOTH: &[&str] = &["queue 0", "application"];

    #[test]
    fn a_loss_that_no_cpu_explains_names_its_station_and_counter() {
        let limit = judged(Station::Ip, 0, 0.0, BOTH);
        assert_eq!(limit.what, "IP: lost");
        assert!(limit.evidence.contains("400 (counter)"));
    }

    #[test]
    fn a_full_cpu_is_shared_by_those_who_are_on_it() {
        let limit = judged(Station::Wire, 950_000_000, 0.97, BOTH);
        assert_eq!(limit.what, "CPU 1, shared by queue 0 and application");
        let elsewhere = judged(Station::Wire, 950_000_000, 0.97, &BOTH[..1]);
        assert_eq!(elsewhere.what, "receive queue 0 on CPU 1");
    }

    #[test]
    fn a_cpu_that_others_fill_is_not_the_runs_own_limit() {
        let limit = judged(Station::Wire, 300_000_000, 0.97, BOTH);
        assert_eq!(limit.what, "CPU 1, busy with others");
        assert!(limit.by_others && !judged(Station::Wire, 970_000_000, 0.97, BOTH).by_others);
        assert!(
            limit
                .evidence
                .contains("97 % busy, 30 % with threads of this run")
        );
    }

    #[test]
    fn a_sender_that_does_not_outrun_is_the_limit_whatever_was_lost() {
        let judged = |delivered| {
            let mut ledger = lost(Station::Ip, "lost");
            ledger.delivered = delivered;
            let run = UdpRun {
                ledger,
                ..UdpRun::default()
            };
            idle(&run, &two_cpus()).what
        };
        assert_eq!(judged(952), "IP: lost");
        assert_eq!(judged(953), "sender, with the receive queues on its CPU");
    }

    #[test]
    fn a_cpu_with_time_to_spare_lost_in_bursts() {
        let limit = judged(Station::Wire, 300_000_000, 0.4, BOTH);
        assert_eq!(limit.what, "receive ring, in bursts");
    }
}
