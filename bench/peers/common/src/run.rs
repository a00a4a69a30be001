//! The end of a program, and its counts until then.

use crate::Args;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a program waits for packets before it checks whether it must end.
pub const PATIENCE: Duration = Duration::from_millis(50);
/// The receive buffer of a socket: 4 MiB, the most that Linux here lets any user have. The default
/// would hold 50 frames of the generator, because each fills a page.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// A program that gets no packet ends after this time.
const FIRST_PACKET: Duration = Duration::from_secs(10);
/// How often the watching thread looks for the first packet.
const LOOK: Duration = Duration::from_millis(1);
/// How often it looks for the end: it uses the CPU that is measured.
const LOOK_ON: Duration = Duration::from_millis(10);

/// The receiving thread writes these, the watching thread reads them.
#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    sent: AtomicU64,
}

/// The counts and the CPU times at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    received: u64,
    sent: u64,
    /// User and system time of the whole process.
    cpu_ns: u64,
    /// CPU time of the kernel thread beside the process.
    beside_ns: u64,
}

impl Moment {
    fn now(counts: &Counts, beside: Option<u32>) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            at: Instant::now(),
            received: counts.received.load(Relaxed),
            sent: counts.sent.load(Relaxed),
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            beside_ns: beside.and_then(thread_cpu_ns).unwrap_or_default(),
        }
    }
}

/// CPU time of a thread, in Documentation/scheduler/sched-stats.rst the first number.
fn thread_cpu_ns(thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// A program that receives.
#[derive(Debug)]
pub struct Run {
    name: String,
    counts: Arc<Counts>,
    over: Arc<AtomicBool>,
    watching: JoinHandle<(Moment, Moment)>,
}

impl Run {
    /// Says that the program is ready. It ends by SIGINT or SIGTERM, or as the command line has it.
    pub fn start(name: &str, args: &Args) -> Result<Self, Box<dyn Error>> {
        let counts = Arc::<Counts>::default();
        let over = Arc::<AtomicBool>::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&over))?;
        }
        let (seconds, count, beside) = (args.seconds, args.count, args.beside);
        let watching = {
            let (counts, over) = (Arc::clone(&counts), Arc::clone(&over));
            let time = Duration::try_from_secs_f64(seconds)?;
            thread::spawn(move || watch(&counts, &over, time, count, beside))
        };
        println!("ready");
        Ok(Self {
            name: name.to_owned(),
            counts,
            over,
            watching,
        })
    }

    /// Returns true if the program must go on receiving.
    #[inline]
    pub fn goes_on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// Adds received and sent packets. Only one thread may call it: no count is locked.
    #[inline]
    pub fn add(&self, received: u64, sent: u64) {
        let add = |count: &AtomicU64, by| count.store(count.load(Relaxed) + by, Relaxed);
        add(&self.counts.sent, sent);
        add(&self.counts.received, received);
    }

    /// Prints all counts, and those between the first packet and the end of the time.
    pub fn finish(self) -> Result<(), Box<dyn Error>> {
        self.over.store(true, Relaxed);
        let (from, to) = self.watching.join().map_err(|_| "the watching thread")?;
        println!(
            "{{\"program\":\"{}\",\"received\":{},\"sent\":{},\"window\":{{\"seconds\":{:.6},\
             \"received\":{},\"sent\":{},\"cpu_ns\":{},\"beside_ns\":{}}}}}",
            self.name,
            self.counts.received.load(Relaxed),
            self.counts.sent.load(Relaxed),
            (to.at - from.at).as_secs_f64(),
            to.received - from.received,
            to.sent - from.sent,
            to.cpu_ns - from.cpu_ns,
            to.beside_ns - from.beside_ns,
        );
        Ok(())
    }
}

/// Ends the run in time. The two moments are those of the first packet and of the end.
fn watch(
    counts: &Counts,
    over: &AtomicBool,
    time: Duration,
    count: u64,
    beside: Option<u32>,
) -> (Moment, Moment) {
    let started = Instant::now();
    while counts.received.load(Relaxed) == 0
        && started.elapsed() < FIRST_PACKET
        && !over.load(Relaxed)
    {
        thread::sleep(LOOK);
    }
    let from = Moment::now(counts, beside);
    while from.at.elapsed() < time && counts.received.load(Relaxed) < count && !over.load(Relaxed) {
        thread::sleep(LOOK_ON);
    }
    let to = Moment::now(counts, beside);
    over.store(true, Relaxed);
    (from, to)
}
