//! One thread of a load: what it has, when it begins and when it ends.

use super::connections::{Flights, NextRequest};
use super::pace::StartPace;
use super::report::LoadProgress;
use super::tally::LoadTally;
use super::{LoadAccount, LoadConfig, request_text};
use crate::thread_counts::ThreadCounts;
use mpps_os::clock::monotonic_ns;
use mpps_os::sched;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The longest sleep of a thread; then it looks whether it is to stop.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// The state of one thread of a load.
#[derive(Debug)]
pub(crate) struct LoadWorker {
    pub(crate) config: Arc<LoadConfig>,
    pub(crate) flights: Flights,
    index: usize,
    /// System calls that the engine has made.
    pub(crate) system_calls: u64,
    /// Connections of this thread.
    pub(crate) count: usize,
    texts: [Arc<[u8]>; 2],
    /// The first of the own addresses that are this thread's, and which is next.
    first_source: usize,
    next_source: usize,
    run: Arc<LoadRun>,
    live: Arc<ThreadCounts<LoadProgress>>,
    end_ns: u64,
    cpu_ns: u64,
}

/// The common part of all threads of a load.
#[derive(Debug, Default)]
pub(crate) struct LoadRun {
    gate: Mutex<Gate>,
    changed: Condvar,
    stop: AtomicBool,
}

/// Threads begin together, when all are ready, and not at all if one cannot.
#[derive(Debug, Default)]
struct Gate {
    ready: usize,
    /// When it was opened; `Some(None)` if it never will be.
    opened: Option<Option<u64>>,
    granted: Option<String>,
    /// When each thread ended, what it counted, and which it is.
    finished: Vec<(u64, LoadTally, usize)>,
}

impl LoadWorker {
    /// The `index`th thread of a run.
    pub(crate) fn new(
        config: &Arc<LoadConfig>,
        index: usize,
        tickets: Option<Arc<AtomicU64>>,
        run: &Arc<LoadRun>,
        live: &Arc<ThreadCounts<LoadProgress>>,
    ) -> Self {
        let threads = config.threads;
        let more = usize::from(index < config.connections % threads);
        let count = config.connections / threads + more;
        let pace = config.rate.map(|rate| StartPace::new(rate, index, threads));
        let first_source = index % config.sources.len().max(1);
        Self {
            config: Arc::clone(config),
            flights: Flights::new(config, count, pace, tickets),
            index,
            system_calls: 0,
            count,
            texts: [false, true].map(|is_last| request_text(config, is_last).into()),
            first_source,
            next_source: first_source,
            run: Arc::clone(run),
            live: Arc::clone(live),
            end_ns: u64::MAX,
            cpu_ns: 0,
        }
    }

    /// Waits until every thread is ready. False if one could not be, and nothing is to be done.
    /// `granted` is what the engine got, in a line.
    pub(crate) fn begin(&mut self, granted: &str) -> bool {
        let mut gate = self.run.lock();
        gate.ready += 1;
        gate.granted.get_or_insert_with(|| granted.to_owned());
        self.run.changed.notify_all();
        let start_ns = loop {
            match gate.opened {
                Some(Some(start_ns)) => break start_ns,
                Some(None) => return false,
                None => gate = self.run.wait(gate, None),
            }
        };
        drop(gate);
        if let Some(duration) = self.config.duration {
            let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
            self.end_ns = start_ns.saturating_add(ns);
        }
        self.cpu_ns = own_cpu_ns();
        self.flights.begin(start_ns);
        true
    }

    /// False once the run is over. Shows others how far it is.
    #[inline]
    pub(crate) fn goes_on(&self, now_ns: u64) -> bool {
        self.publish();
        now_ns < self.end_ns && !self.flights.is_done() && !self.run.stop.load(Ordering::Relaxed)
    }

    /// How long the engine may sleep if nothing happens.
    #[inline]
    pub(crate) fn sleep(&self, now_ns: u64) -> Duration {
        let wake_ns = self.flights.wake_ns().min(self.end_ns);
        Duration::from_nanos(wake_ns.saturating_sub(now_ns).min(SLEEP_NS_MAX))
    }

    /// The bytes of a request.
    #[inline]
    pub(crate) fn text(&self, request: NextRequest) -> &Arc<[u8]> {
        match request {
            NextRequest::Ordinary => &self.texts[0],
            NextRequest::Last => &self.texts[1],
        }
    }

    /// Which of the own addresses the next connection has; none leaves the choice to the kernel.
    ///
    /// No thread has an address of another one, as far as there are enough: where addresses choose
    /// queues, the packets of a connection then keep to the queues of its thread.
    #[inline]
    pub(crate) fn next_source(&mut self) -> Option<usize> {
        let count = self.config.sources.len();
        if count == 0 {
            return None;
        }
        let source = self.next_source;
        let next = source + self.config.threads;
        self.next_source = if next < count {
            next
        } else {
            self.first_source
        };
        Some(source)
    }

    /// Ends the thread's part of the run. The sockets are the engine's to close, before or after.
    pub(crate) fn finish(mut self) {
        let now_ns = monotonic_ns();
        // Requests due after the end do not count.
        self.flights.finish(now_ns.min(self.end_ns));
        self.publish();
        let mut tally = std::mem::take(&mut self.flights.tally);
        tally.cpu_ns = own_cpu_ns().saturating_sub(self.cpu_ns);
        tally.system_calls = self.system_calls;
        let finished = (now_ns, tally, self.index);
        self.run.lock().finished.push(finished);
        self.run.changed.notify_all();
    }

    fn publish(&self) {
        let tally = &self.flights.tally;
        self.live.publish(LoadProgress {
            elapsed: Duration::ZERO,
            connections_completed: tally.connections.completed,
            connections_failed: tally.connections.failed_total(),
            requests_completed: tally.requests.completed,
            requests_failed: tally.requests.failed_total(),
        });
    }
}

impl LoadRun {
    /// Waits until `threads` are ready, or one of them has ended; answers when they began.
    pub(crate) fn open(&self, threads: usize, has_ended: impl Fn() -> bool) -> Option<u64> {
        let mut gate = self.lock();
        while gate.ready < threads && !has_ended() {
            gate = self.wait(gate, Some(Duration::from_millis(1)));
        }
        let start_ns = (gate.ready == threads).then(monotonic_ns);
        gate.opened = Some(start_ns);
        self.changed.notify_all();
        start_ns
    }

    /// Waits until `threads` have finished, for `time` at most.
    pub(crate) fn rest(&self, threads: usize, time: Duration) {
        let gate = self.lock();
        if gate.finished.len() < threads {
            drop(self.wait(gate, Some(time)));
        }
    }

    /// Lets every thread end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The engine's grant, the end of the last thread, the sum of all counts, and each thread's
    /// ledger of connections.
    pub(crate) fn results(&self) -> (String, u64, LoadTally, Vec<LoadAccount>) {
        let mut gate = self.lock();
        let mut sum = LoadTally::default();
        gate.finished.sort_by_key(|(.., index)| *index);
        let own = gate.finished.iter();
        let own = own.map(|(_, tally, _)| tally.connections.clone().close());
        let own = own.collect();
        let mut end_ns = 0;
        for (at_ns, tally, _) in &gate.finished {
            end_ns = end_ns.max(*at_ns);
            sum.add(tally);
        }
        (gate.granted.take().unwrap_or_default(), end_ns, sum, own)
    }

    // A thread that panicked has left nothing half done under the lock.
    fn lock(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        gate: std::sync::MutexGuard<'a, Gate>,
        time: Option<Duration>,
    ) -> std::sync::MutexGuard<'a, Gate> {
        // Longer than any wait that is not woken.
        let time = time.unwrap_or(Duration::from_secs(3600));
        let waited = self.changed.wait_timeout(gate, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Processor time of the calling thread, or 0 if the kernel does not report it.
fn own_cpu_ns() -> u64 {
    sched::schedstat(std::process::id(), sched::thread_id()).map_or(0, |stat| stat.run_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::endless;

    #[test]
    fn a_thread_has_addresses_that_no_other_has() {
        let config = |sources: u8| {
            Arc::new(LoadConfig {
                connections: 2,
                threads: 2,
                sources: (1..=sources).map(|last| [127, 0, 0, last].into()).collect(),
                ..endless()
            })
        };
        let (run, live) = (Arc::default(), Arc::default());
        let turns = |sources: u8, index: usize| {
            let mut worker = LoadWorker::new(&config(sources), index, None, &run, &live);
            [(); 4].map(|()| worker.next_source())
        };
        assert_eq!(turns(5, 0), [0, 2, 4, 0].map(Some));
        assert_eq!(turns(5, 1), [1, 3, 1, 3].map(Some));
        assert_eq!([turns(1, 0), turns(1, 1)], [[Some(0); 4]; 2]);
        assert_eq!(turns(0, 0), [None; 4]);
    }
}
