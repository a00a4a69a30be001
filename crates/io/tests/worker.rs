//! The workers, with receivers and senders that do what a script says.

use mpps_io::{
    Batch, Error, Frames, Inspect, Layer, Mode, PacketDescriptor, Refusals, Rx, RxCaps, RxConfig,
    RxCounters, RxDrop, RxReport, RxTask, RxWorker, Sent, Stamp, StampKind, Stop, Tx, TxCaps,
    TxConfig, TxCounters, TxReport, TxTask, TxWorker, Wait, Work, backend,
};
use mpps_os::clock;
use mpps_trial::{Trial, trials};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// How long a test waits for what must end; only a failure takes that long.
const PATIENCE: Duration = Duration::from_secs(20);
/// A CPU that no machine of this kernel has: CONFIG_NR_CPUS goes up to 8192.
const NO_CPU: usize = 8191;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        pure:
            an_error_ends_a_receiver_and_is_told,
            an_error_while_draining_is_told,
            what_is_found_after_the_stop_is_queued,
            what_is_found_before_the_stop_is_not_queued,
            work_takes_its_time_for_each_datagram_until_the_stop,
            draining_ends_although_more_comes,
            a_limit_is_shared_and_ends_all,
            a_limit_that_is_not_reached_ends_nothing,
            a_cpu_that_is_not_there_is_refused_and_named,
            a_pinned_worker_says_where_it_is,
            stamps_are_looked_for_as_asked,
            a_count_is_offered_exactly_and_flows_take_turns,
            refused_datagrams_count_as_offered,
            a_failing_sender_ends_and_tells,
            a_stuck_sender_can_be_stopped,
            a_sleeping_sender_can_be_stopped,
            a_duration_ends_a_sender,
            end_markers_follow_each_flow_and_count_apart,
            what_is_refused_at_the_end_is_no_datagrams_refusal,
            end_markers_are_no_traffic_that_goes_on;
    ]
}

fn address() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// An answer of a scripted receiver.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Datagrams(u64),
    Nothing,
    Error(i32),
}

/// A receiver that answers by a script, and after it always the same.
#[derive(Debug)]
struct ScriptedRx {
    script: VecDeque<Answer>,
    then: Answer,
    asked: Arc<AtomicU64>,
    descriptors: Vec<PacketDescriptor>,
    counters: RxCounters,
    caps: RxCaps,
}

impl ScriptedRx {
    fn new(script: &[Answer]) -> (Self, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        let caps = RxCaps {
            queue: None,
            backend: "scripted",
            layer: Layer::Payload,
            local_address: address(),
            batch: 64,
            buffer_bytes: 64,
            receive_buffer_bytes: None,
            gro: false,
            mode: Mode::default(),
        };
        let rx = Self {
            script: script.iter().copied().collect(),
            then: Answer::Nothing,
            asked: Arc::clone(&asked),
            descriptors: Vec::new(),
            counters: RxCounters::default(),
            caps,
        };
        (rx, asked)
    }
}

impl Rx for ScriptedRx {
    fn recv(&mut self, _wait: Wait) -> io::Result<Batch<'_>> {
        self.asked.fetch_add(1, Ordering::Release);
        match self.script.pop_front().unwrap_or(self.then) {
            Answer::Nothing => Ok(Batch::new(&[], &[])),
            Answer::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
            Answer::Datagrams(count) => {
                self.counters.datagrams += count;
                self.counters.calls += 1;
                self.descriptors = vec![PacketDescriptor::default(); count as usize];
                Ok(Batch::new(&[], &self.descriptors))
            }
        }
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn drops(&self) -> Vec<RxDrop> {
        Vec::new()
    }

    fn caps(&self) -> &RxCaps {
        &self.caps
    }

    fn share(&self) -> Result<Box<dyn Rx>, Error> {
        Ok(Box::new(Self::new(&[]).0))
    }

    fn steer_by_cpu(&self, _cpus: &[usize]) -> Result<(), Error> {
        Ok(())
    }
}

fn rx_task(rx: Box<dyn Rx>, stop: &Stop) -> RxTask {
    RxTask {
        rx,
        cpu: None,
        wait: Wait::Poll,
        inspect: Inspect::Never,
        work: Work::None,
        limit: None,
        stop: stop.clone(),
    }
}

/// A sender that takes what a script says of each send, and then all of it, or nothing.
#[derive(Debug)]
struct ScriptedTx {
    is_stuck: bool,
    script: VecDeque<io::Result<Sent>>,
    sends: mpsc::Sender<(usize, usize)>,
    arena: Vec<u8>,
    counters: TxCounters,
    caps: TxCaps,
}

impl ScriptedTx {
    fn new(
        flows: usize,
        batch: usize,
        script: Vec<io::Result<Sent>>,
    ) -> (Self, mpsc::Receiver<(usize, usize)>) {
        let (sends, seen) = mpsc::channel();
        let caps = TxCaps {
            train: 1,
            backend: "scripted",
            layer: Layer::Payload,
            batch,
            flows,
            local_addresses: vec![address(); flows],
            send_buffer_bytes: None,
            template: false,
            mode: Mode::default(),
        };
        let tx = Self {
            is_stuck: false,
            script: script.into(),
            sends,
            arena: vec![0; 32 * batch],
            counters: TxCounters::default(),
            caps,
        };
        (tx, seen)
    }
}

impl Tx for ScriptedTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        Frames::new(&mut self.arena, 32, 32, 32, datagrams)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let then = Sent {
            accepted: if self.is_stuck { 0 } else { datagrams as u64 },
            refused: 0,
        };
        let sent = self.script.pop_front().unwrap_or(Ok(then))?;
        // The test may have seen enough.
        let _ = self.sends.send((flow, datagrams));
        self.counters.accepted += sent.accepted;
        if sent.refused > 0 {
            *self.counters.refused.entry(111).or_default() += sent.refused;
        }
        Ok(sent)
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

fn offered(accepted: u64, refused: u64) -> io::Result<Sent> {
    Ok(Sent { accepted, refused })
}

fn tx_task(tx: ScriptedTx) -> TxTask {
    TxTask {
        tx: Box::new(tx),
        cpu: None,
        stamp: None,
        to_group: false,
        end_markers: false,
        rate_pps: None,
        count: None,
        duration: None,
        stop: Stop::new(),
    }
}

/// Runs what must end, in a thread of its own, and fails if it does not.
fn within_patience<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    ended.recv_timeout(PATIENCE).expect("it did not end")
}

fn end(worker: RxWorker) -> RxReport {
    within_patience(move || worker.join())
}

fn received(task: RxTask) -> RxReport {
    end(RxWorker::spawn(task).unwrap())
}

fn sent(task: TxTask) -> TxReport {
    let worker = TxWorker::spawn(task).unwrap();
    within_patience(move || worker.join())
}

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} never happened");
}

fn an_error_ends_a_receiver_and_is_told() {
    let script = [Answer::Datagrams(3), Answer::Nothing, Answer::Error(5)];
    let (rx, asked) = ScriptedRx::new(&script);
    let stop = Stop::new();
    let worker = RxWorker::spawn(rx_task(Box::new(rx), &stop)).unwrap();
    // No code asks it to stop.
    let report = end(worker);
    assert_eq!(report.error.and_then(|error| error.raw_os_error()), Some(5));
    assert_eq!(report.counters.datagrams, 3, "what came before counts");
    assert_eq!(report.queued, 0);
    assert_eq!(
        asked.load(Ordering::Acquire),
        3,
        "it goes on asking after an error"
    );
    assert!(!stop.is_stopped(), "its failure is its own");
}

fn an_error_while_draining_is_told() {
    let script = [Answer::Datagrams(2), Answer::Datagrams(4), Answer::Error(5)];
    let (rx, _) = ScriptedRx::new(&script);
    let stop = Stop::new();
    stop.stop();
    let report = received(rx_task(Box::new(rx), &stop));
    assert!(report.error.is_some());
    assert_eq!((report.queued, report.counters.datagrams), (6, 6));
}

fn what_is_found_after_the_stop_is_queued() {
    let script = [
        Answer::Datagrams(10),
        Answer::Datagrams(20),
        Answer::Datagrams(30),
    ];
    let (rx, asked) = ScriptedRx::new(&script);
    let stop = Stop::new();
    stop.stop();
    let report = received(rx_task(Box::new(rx), &stop));
    assert_eq!((report.queued, report.counters.datagrams), (60, 60));
    assert!(report.error.is_none());
    assert_eq!(asked.load(Ordering::Acquire), 4, "until it finds nothing");
    assert!(report.first_ns > 0 && report.last_ns >= report.first_ns);
}

fn what_is_found_before_the_stop_is_not_queued() {
    let (rx, asked) = ScriptedRx::new(&[Answer::Datagrams(10), Answer::Nothing]);
    let stop = Stop::new();
    let worker = RxWorker::spawn(rx_task(Box::new(rx), &stop)).unwrap();
    until("the second look", || asked.load(Ordering::Acquire) > 2);
    assert_eq!(worker.progress().datagrams, 10);
    assert!(worker.progress().first_ns > 0);
    stop.stop();
    let report = end(worker);
    assert_eq!((report.queued, report.counters.datagrams), (0, 10));
}

/// A sender that never ends must not keep a stopped receiver running.
fn work_takes_its_time_for_each_datagram_until_the_stop() {
    let (rx, asked) = ScriptedRx::new(&[Answer::Datagrams(10), Answer::Datagrams(20)]);
    let stop = Stop::new();
    let mut task = rx_task(Box::new(rx), &stop);
    task.work = Work::Time(Duration::from_millis(1));
    let worker = RxWorker::spawn(task).unwrap();
    until("the third look", || asked.load(Ordering::Acquire) > 2);
    stop.stop();
    let report = end(worker);
    assert_eq!((report.queued, report.counters.datagrams), (0, 30));
    assert!(report.last_ns - report.first_ns >= 30_000_000, "{report:?}");
    // It does not sleep meanwhile. On a busy machine it may wait for its CPU.
    assert!(
        report.cpu_ns + report.cpu_wait_ns >= 29_000_000,
        "{report:?}"
    );

    let (rx, _) = ScriptedRx::new(&[Answer::Datagrams(1000)]);
    let mut task = rx_task(Box::new(rx), &stop);
    task.work = Work::Time(Duration::from_secs(1));
    let report = received(task);
    assert_eq!((report.queued, report.counters.datagrams), (1000, 1000));
}

fn draining_ends_although_more_comes() {
    let (mut rx, asked) = ScriptedRx::new(&[]);
    rx.then = Answer::Datagrams(1);
    let stop = Stop::new();
    stop.stop();
    let report = received(rx_task(Box::new(rx), &stop));
    assert_eq!(report.queued, asked.load(Ordering::Acquire));
    assert_eq!(report.queued, report.counters.datagrams);
}

fn a_limit_is_shared_and_ends_all() {
    const LIMIT: u64 = 1000;
    const QUEUED: u64 = 1500;
    let memory = backend::find("memory").unwrap();
    let mut config = RxConfig::new(address());
    config.batch = 10;
    let first = memory.open_rx(&config).unwrap();
    let second = first.share().unwrap();
    let mut config = TxConfig::new(first.caps().local_address);
    config.batch = QUEUED as usize / 2;
    let mut tx = memory.open_tx(&config).unwrap();
    for _ in 0..2 {
        tx.send(0, QUEUED as usize / 2).unwrap();
    }
    let (stop, limit) = (Stop::new(), Arc::new(AtomicU64::new(LIMIT)));
    let workers = [first, second].map(|rx| {
        let mut task = rx_task(rx, &stop);
        task.limit = Some(Arc::clone(&limit));
        RxWorker::spawn(task).unwrap()
    });
    // Only the limit stops them.
    let reports = workers.map(end);
    assert!(stop.is_stopped());
    assert_eq!(limit.load(Ordering::Acquire), 0);
    let sum = |count: fn(&RxReport) -> u64| reports.iter().map(count).sum::<u64>();
    let taken = sum(|report| report.counters.datagrams - report.queued);
    assert!((LIMIT..QUEUED).contains(&taken), "{taken}");
    assert_eq!(
        sum(|report| report.counters.datagrams),
        QUEUED,
        "the rest is drained"
    );
}

fn a_limit_that_is_not_reached_ends_nothing() {
    let (rx, asked) = ScriptedRx::new(&[Answer::Datagrams(9)]);
    let stop = Stop::new();
    let mut task = rx_task(Box::new(rx), &stop);
    task.limit = Some(Arc::new(AtomicU64::new(10)));
    let worker = RxWorker::spawn(task).unwrap();
    until("the third look", || asked.load(Ordering::Acquire) > 3);
    assert!(!stop.is_stopped() && !worker.is_finished());
    stop.stop();
    assert_eq!(end(worker).queued, 0);
}

fn a_cpu_that_is_not_there_is_refused_and_named() {
    let (rx, asked) = ScriptedRx::new(&[]);
    let mut task = rx_task(Box::new(rx), &Stop::new());
    task.cpu = Some(NO_CPU);
    // The thread may have begun before its pinning failed, and must end by itself.
    task.stop = Stop::new();
    let error = RxWorker::spawn(task).unwrap_err().to_string();
    assert!(error.contains(&NO_CPU.to_string()), "{error}");
    let after = asked.load(Ordering::Acquire);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(
        asked.load(Ordering::Acquire),
        after,
        "a refused receiver runs on"
    );

    let (tx, sends) = ScriptedTx::new(1, 8, Vec::new());
    let mut task = tx_task(tx);
    task.cpu = Some(NO_CPU);
    let error = TxWorker::spawn(task).unwrap_err().to_string();
    assert!(error.contains(&NO_CPU.to_string()), "{error}");
    let ended = sends.recv_timeout(PATIENCE);
    assert_eq!(
        ended,
        Err(mpsc::RecvTimeoutError::Disconnected),
        "it sent all the same"
    );
}

fn a_pinned_worker_says_where_it_is() {
    let cpu = mpps_os::sched::affinity(mpps_os::sched::thread_id()).unwrap()[0];
    let (rx, asked) = ScriptedRx::new(&[]);
    let stop = Stop::new();
    let mut task = rx_task(Box::new(rx), &stop);
    task.cpu = Some(cpu);
    let worker = RxWorker::spawn(task).unwrap();
    worker.refresh();
    let before = asked.load(Ordering::Acquire);
    until("a fresh look", || {
        asked.load(Ordering::Acquire) > before + 2
    });
    assert_eq!(worker.progress().cpu, cpu);
    stop.stop();
    assert_eq!(end(worker).cpu, Some(cpu));
}

fn stamp(kind: StampKind, sequence: u64) -> Stamp {
    Stamp {
        kind,
        sender: 0,
        flow: 0,
        run: 0,
        sequence,
        time_ns: Stamp::now_ns(),
    }
}

fn stamps_are_looked_for_as_asked() {
    for (inspect, stamped, followed, unstamped) in [
        (Inspect::Never, true, 0, 0),
        (Inspect::Auto, true, 5, 0),
        (Inspect::Auto, false, 0, 0),
        (Inspect::Always, true, 5, 0),
        (Inspect::Always, false, 0, 5),
    ] {
        let memory = backend::find("memory").unwrap();
        let rx = memory.open_rx(&RxConfig::new(address())).unwrap();
        let config = TxConfig::new(rx.caps().local_address);
        let mut tx = memory.open_tx(&config).unwrap();
        for (sequence, payload) in (0..).zip(tx.frames(5)) {
            if stamped {
                stamp(StampKind::Data, sequence).write(payload);
            }
        }
        tx.send(0, 5).unwrap();
        let stop = Stop::new();
        stop.stop();
        let mut task = rx_task(rx, &stop);
        task.inspect = inspect;
        let report = received(task);
        let seen: u64 = report.flows.reports().map(|(_, flow)| flow.received).sum();
        let found = (seen, report.flows.unstamped());
        assert_eq!(found, (followed, unstamped), "{inspect:?} {stamped}");
        assert_eq!(report.counters.datagrams, 5);
    }
}

fn a_count_is_offered_exactly_and_flows_take_turns() {
    let (tx, sends) = ScriptedTx::new(3, 8, Vec::new());
    let mut task = tx_task(tx);
    task.count = Some(50);
    let report = sent(task);
    let sends: Vec<(usize, usize)> = sends.iter().collect();
    assert_eq!(
        sends,
        [(0, 8), (1, 8), (2, 8), (0, 8), (1, 8), (2, 8), (0, 2)]
    );
    assert_eq!((report.accepted, report.offered()), (50, 50));
    assert_eq!(report.flows, [18, 16, 16]);
    assert_eq!(report.end_markers, 0);
}

fn refused_datagrams_count_as_offered() {
    let half = |_| offered(4, 4);
    let (tx, _sends) = ScriptedTx::new(1, 8, [0, 1].map(half).into());
    let mut task = tx_task(tx);
    task.count = Some(20);
    let report = sent(task);
    assert_eq!((report.accepted, report.offered()), (12, 20));
    assert_eq!(report.refused, [(111, 8)].into());
}

fn a_failing_sender_ends_and_tells() {
    let error = io::Error::from_raw_os_error(90);
    let (tx, _sends) = ScriptedTx::new(1, 8, vec![offered(8, 0), Err(error)]);
    let mut task = tx_task(tx);
    task.stamp = Some(0);
    task.end_markers = true;
    let report = sent(task);
    assert_eq!(
        report.error.and_then(|error| error.raw_os_error()),
        Some(90)
    );
    assert_eq!((report.accepted, report.flows), (8, vec![8]));
    assert_eq!(report.end_markers, 0, "the end is not known to be true");
}

/// A peer whose buffer stays full: nothing is dealt with, and a stop is noticed all the same.
fn a_stuck_sender_can_be_stopped() {
    let (mut tx, sends) = ScriptedTx::new(1, 8, Vec::new());
    tx.is_stuck = true;
    let task = tx_task(tx);
    let stop = task.stop.clone();
    let worker = TxWorker::spawn(task).unwrap();
    sends.recv_timeout(PATIENCE).expect("it tries");
    stop.stop();
    let report = within_patience(move || worker.join());
    assert_eq!(report.offered(), 0);
}

/// A rate so low that its next datagram is due in an hour.
fn a_sleeping_sender_can_be_stopped() {
    let (tx, sends) = ScriptedTx::new(1, 8, Vec::new());
    let mut task = tx_task(tx);
    task.rate_pps = Some(1.0 / 3600.0);
    let stop = task.stop.clone();
    let worker = TxWorker::spawn(task).unwrap();
    assert_eq!(
        sends.recv_timeout(PATIENCE),
        Ok((0, 1)),
        "the first is due at once"
    );
    stop.stop();
    let report = within_patience(move || worker.join());
    assert_eq!(report.offered(), 1);
}

fn a_duration_ends_a_sender() {
    let (tx, _sends) = ScriptedTx::new(1, 8, Vec::new());
    let mut task = tx_task(tx);
    task.duration = Some(Duration::from_millis(30));
    task.rate_pps = Some(1000.0);
    let report = sent(task);
    let ran_ns = report.last_ns - report.first_ns;
    assert!(ran_ns >= 30_000_000, "{ran_ns} ns is too early");
    assert!(report.error.is_none() && report.offered() > 0);
}

fn end_markers_follow_each_flow_and_count_apart() {
    let (tx, sends) = ScriptedTx::new(2, 8, Vec::new());
    let mut task = tx_task(tx);
    task.stamp = Some(1);
    task.end_markers = true;
    task.count = Some(16);
    let report = sent(task);
    let sends: Vec<(usize, usize)> = sends.iter().collect();
    assert_eq!(sends[..2], [(0, 8), (1, 8)]);
    assert_eq!(sends[2..], [(0, 1), (1, 1), (0, 1), (1, 1), (0, 1), (1, 1)]);
    assert_eq!((report.accepted, report.end_markers), (16, 6));
    assert_eq!(report.flows, [8, 8]);
}

/// A frame that an AF_XDP socket counted as accepted may be dropped while the markers are sent.
fn what_is_refused_at_the_end_is_no_datagrams_refusal() {
    let script =
        [(6, 2), (1, 0), (0, 1), (1, 0)].map(|(accepted, refused)| offered(accepted, refused));
    let script = Vec::from(script);
    let (tx, _sends) = ScriptedTx::new(1, 8, script);
    let mut task = tx_task(tx);
    task.stamp = Some(1);
    task.end_markers = true;
    task.count = Some(8);
    let report = sent(task);
    assert_eq!((report.accepted, report.offered()), (6, 8));
    assert_eq!(report.refused, Refusals::from([(111, 2)]));
    assert_eq!(report.end_markers, 3);
    assert_eq!(report.end_refused, Refusals::from([(111, 1)]));
}

fn end_markers_are_no_traffic_that_goes_on() {
    let memory = backend::find("memory").unwrap();
    let rx = memory.open_rx(&RxConfig::new(address())).unwrap();
    let config = TxConfig::new(rx.caps().local_address);
    let mut tx = memory.open_tx(&config).unwrap();
    let mut send = |kind, sequence| {
        let stamp = stamp(kind, sequence);
        tx.frames(1).for_each(|payload| stamp.write(payload));
        tx.send(0, 1).unwrap();
    };
    let stop = Stop::new();
    let mut task = rx_task(rx, &stop);
    task.inspect = Inspect::Always;
    let worker = RxWorker::spawn(task).unwrap();
    let came = |datagrams| {
        while worker.progress().datagrams < datagrams {
            thread::yield_now();
        }
    };
    send(StampKind::Data, 0);
    came(1);
    let marked_ns = clock::monotonic_ns();
    send(StampKind::End, 1);
    came(2);
    stop.stop();
    let report = end(worker);
    assert_eq!(report.flows.end_markers(), 1);
    assert!(report.first_ns > 0 && (report.first_ns..=marked_ns).contains(&report.last_ns));
}
