//! The sending worker.

use super::pace::Pacer;
use super::{Published, Stop, Worker, WorkerThread, scheduled, spawn_all};
use crate::stamp::{GROUP_BIT, RUN_MASK, RUN_MIN};
use crate::{Refusals, Stamp, StampKind, Tx, TxCaps};
use mpps_os::clock;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a sleeping worker may take to notice a stop.
const NOTICE: Duration = Duration::from_millis(20);
/// A shorter wait is spun: the kernel's timer slack is 50 µs by itself (prctl(2),
/// PR_SET_TIMERSLACK).
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// End markers per flow: a lost marker must not leave the receiver without the totals.
const END_MARKERS: usize = 3;
/// Pause before each round of them: a receiver that is overrun needs a moment to have room again.
const END_MARKER_GAP: Duration = Duration::from_millis(20);

/// The task of a sending worker.
#[derive(Debug)]
pub struct TxTask {
    /// Whom it sends with.
    pub tx: Box<dyn Tx>,
    /// CPU to stay on; none leaves it to the scheduler.
    pub cpu: Option<usize>,
    /// Write stamps as this sender (0 to 127); the payload must hold 16 bytes.
    pub stamp: Option<u8>,
    /// The target is a multicast group, and the stamps show it.
    pub to_group: bool,
    /// Follow the last datagram of each flow with end markers, if stamped.
    pub end_markers: bool,
    /// Datagrams per second; none is as fast as it can.
    pub rate_pps: Option<f64>,
    /// Datagrams to offer; none is until stopped.
    pub count: Option<u64>,
    /// How long to send; none is until stopped.
    pub duration: Option<Duration>,
    /// The flag that stops it.
    pub stop: Stop,
}

/// Counters of a running worker.
#[derive(Debug, Default)]
pub struct SendCounts {
    accepted: Published,
    refused: Published,
}

/// The datagrams that a running worker has offered so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TxProgress {
    /// Datagrams that the kernel took.
    pub accepted: u64,
    /// Datagrams that it refused.
    pub refused: u64,
}

/// A running sender.
pub type TxWorker = Worker<SendCounts, TxCaps, TxReport>;

/// The report of a sender, from start to end.
#[derive(Debug, Default)]
pub struct TxReport {
    /// Datagrams that the kernel took.
    pub accepted: u64,
    /// Datagrams that it refused, by `errno`.
    pub refused: Refusals,
    /// The run that is in its stamps, a random number.
    pub run: u32,
    /// Datagrams offered by each flow, refused ones included.
    pub flows: Vec<u64>,
    /// End markers handed to the kernel, refused ones included; they are in none of the counts
    /// above.
    pub end_markers: u64,
    /// Refusals by the kernel while they were sent, by `errno`. They are markers, and with a sender
    /// whose frames wait in a ring also frames that were counted as accepted.
    pub end_refused: Refusals,
    /// System calls.
    pub calls: u64,
    /// Calls that found the send buffer full for 5 ms.
    pub blocked: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds before the first send.
    pub first_ns: u64,
    /// The same after the last.
    pub last_ns: u64,
    /// CPU time that the thread used, in nanoseconds, by the scheduler.
    pub cpu_ns: u64,
    /// Time that it was ready and waited for a CPU, in nanoseconds, by the scheduler.
    pub cpu_wait_ns: u64,
    /// The error that ended it early.
    pub error: Option<io::Error>,
}

impl TxReport {
    /// Datagrams handed to the kernel, refused ones included, end markers not.
    pub fn offered(&self) -> u64 {
        self.accepted + self.refused.values().sum::<u64>()
    }
}

impl TxWorker {
    /// Starts a thread for `task`.
    ///
    /// # Errors
    /// If the thread cannot be started, or cannot be pinned to its CPU.
    pub fn spawn(task: TxTask) -> io::Result<Self> {
        let live = Arc::new(SendCounts::default());
        let caps = task.tx.caps().clone();
        let (cpu, stop, shared) = (task.cpu, task.stop.clone(), Arc::clone(&live));
        let work = move || SendLoop::new(task, shared).run();
        Ok(Self {
            running: WorkerThread::start("mpps-tx", cpu, stop, work)?,
            live,
            caps,
        })
    }

    /// Starts a thread for each task. If one cannot be started, `stop`, which they share, is
    /// raised and those that run are waited for.
    ///
    /// # Errors
    /// As for [`TxWorker::spawn`].
    pub fn spawn_all(
        tasks: impl IntoIterator<Item = TxTask>,
        stop: &Stop,
    ) -> io::Result<Vec<Self>> {
        spawn_all(tasks, stop, Self::spawn, Self::join)
    }

    /// The datagrams offered so far.
    pub fn progress(&self) -> TxProgress {
        TxProgress {
            accepted: self.live.accepted.read(),
            refused: self.live.refused.read(),
        }
    }
}

/// The loop's own state.
struct SendLoop {
    task: TxTask,
    live: Arc<SendCounts>,
    pacer: Option<Pacer>,
    /// Distinguishes this run's stamps from those of another run.
    run: u32,
    /// Next sequence number of each flow, which is also what the flow has offered.
    sequences: Vec<u64>,
    offered: u64,
}

impl SendLoop {
    fn new(mut task: TxTask, live: Arc<SendCounts>) -> Self {
        let pacer = task
            .rate_pps
            .filter(|rate| !task.tx.pace(*rate))
            .map(|rate| {
                let TxCaps { train, batch, .. } = *task.tx.caps();
                Pacer::new(rate, train, batch, Instant::now())
            });
        let sequences = vec![0; task.tx.caps().flows];
        let group = if task.to_group { GROUP_BIT } else { 0 };
        Self {
            task,
            live,
            pacer,
            run: draw_run() | group,
            sequences,
            offered: 0,
        }
    }

    fn run(mut self) -> (TxReport, Box<dyn Tx>) {
        let before = scheduled();
        let first_ns = clock::monotonic_ns();
        let error = self.send_all(first_ns).err();
        let last_ns = clock::monotonic_ns();
        // The markers go through the same counters, so these are read before and after.
        let counters = self.task.tx.counters().clone();
        let end_markers = if error.is_none() { self.mark_end() } else { 0 };
        let mut end_refused = self.task.tx.counters().refused.clone();
        end_refused.retain(|errno, count| {
            *count -= counters.refused.get(errno).copied().unwrap_or(0);
            *count > 0
        });
        self.task.tx.flush();
        let after = scheduled();
        let report = TxReport {
            accepted: counters.accepted,
            refused: counters.refused,
            run: self.run,
            flows: self.sequences,
            end_markers,
            end_refused,
            calls: counters.calls,
            blocked: counters.blocked,
            first_ns,
            last_ns,
            cpu_ns: after.run_ns.saturating_sub(before.run_ns),
            cpu_wait_ns: after.wait_ns.saturating_sub(before.wait_ns),
            error,
        };
        (report, self.task.tx)
    }

    /// Sends batch after batch, each of the next flow, until the end.
    fn send_all(&mut self, first_ns: u64) -> io::Result<()> {
        let batch = self.task.tx.caps().batch as u64;
        let end_ns = self
            .task
            .duration
            .map(|time| first_ns.saturating_add(time.as_nanos() as u64));
        let train = self.task.tx.caps().train;
        let mut flow = 0;
        while !self.task.stop.is_stopped() {
            let left = self
                .task
                .count
                .map_or(u64::MAX, |count| count - self.offered.min(count));
            if left == 0 || end_ns.is_some_and(|end| clock::monotonic_ns() >= end) {
                break;
            }
            let mut want = left.min(batch) as usize;
            if let Some(pacer) = &mut self.pacer {
                let due = pacer.due(Instant::now());
                // Whole trains, but for the last one.
                want = if due >= want { want } else { due - due % train };
                if want == 0 {
                    pause(pacer.wait());
                    continue;
                }
            }
            self.send_batch(flow, want)?;
            flow = (flow + 1) % self.sequences.len();
        }
        Ok(())
    }

    #[inline]
    fn send_batch(&mut self, flow: usize, want: usize) -> io::Result<()> {
        if let Some(sender) = self.task.stamp {
            let time_ns = Stamp::now_ns();
            let first = self.sequences[flow];
            for (at, payload) in self.task.tx.frames(want).enumerate() {
                let sequence = first + at as u64;
                let kind = StampKind::Data;
                Stamp {
                    kind,
                    sender,
                    flow: flow as u16,
                    run: self.run,
                    sequence,
                    time_ns,
                }
                .write(payload);
            }
        }
        let sent = self.task.tx.send(flow, want)?;
        self.sequences[flow] += sent.offered();
        self.offered += sent.offered();
        if let Some(pacer) = &mut self.pacer {
            pacer.spend(sent.offered());
        }
        self.live
            .accepted
            .set(self.live.accepted.read() + sent.accepted);
        self.live
            .refused
            .set(self.live.refused.read() + sent.refused);
        Ok(())
    }

    /// Sends the receiver the number of datagrams that each flow offered; returns how many markers
    /// were handed over.
    fn mark_end(&mut self) -> u64 {
        let (Some(sender), true) = (self.task.stamp, self.task.end_markers) else {
            return 0;
        };
        let mut handed_over = 0;
        for _ in 0..END_MARKERS {
            thread::sleep(END_MARKER_GAP);
            for flow in 0..self.sequences.len() {
                let stamp = Stamp {
                    kind: StampKind::End,
                    sender,
                    flow: flow as u16,
                    run: self.run,
                    sequence: self.sequences[flow],
                    time_ns: Stamp::now_ns(),
                };
                self.task
                    .tx
                    .frames(1)
                    .for_each(|payload| stamp.write(payload));
                // A refused marker is like a lost one; the next may get through. But if there is no
                // room at all, thousands of flows would wait one after another.
                let sent = self.task.tx.send(flow, 1).unwrap_or_default();
                handed_over += sent.offered();
                if sent.offered() == 0 {
                    break;
                }
            }
        }
        handed_over
    }
}

/// The number of a run without its highest bit. The keys of a fresh hasher are the standard library's random numbers.
fn draw_run() -> u32 {
    let random = RandomState::new().build_hasher().finish() as u32;
    (random & RUN_MASK & !GROUP_BIT).max(RUN_MIN)
}

/// Waits until more is due: sleeps if it is worth it, spins otherwise.
fn pause(time: Duration) {
    if time >= SLEEP_MIN {
        thread::sleep(time.min(NOTICE));
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_do_not_collide() {
        let runs: BTreeSet<u32> = (0..1000).map(|_| draw_run()).collect();
        assert!(runs.len() > 990, "{}", runs.len());
        assert!(runs.iter().all(|run| (RUN_MIN..GROUP_BIT).contains(run)));
    }
}
