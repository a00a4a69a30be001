//! `xdp`: the kernel's own generator. An XDP program writes each frame. The kernel runs it a given
//! number of times, with frames that go out for real (`BPF_PROG_TEST_RUN` with
//! `BPF_F_TEST_XDP_LIVE_FRAMES`, `Documentation/bpf/bpf_prog_run.rst`).

mod program;

use super::{Backend, Layer, Support};
use crate::link_path::LinkPath;
use crate::wire::{self, Template};
use crate::xdp_switch::XdpSwitch;
use crate::{Error, Frames, Mode, STAMP_BYTES, Sent, Stamp, Tx, TxCaps, TxConfig, TxCounters};
use mpps_os::bpf::asm::{Assembler, Helper, R0};
use mpps_os::bpf::{ArrayMap, BpfLink, DeviceMap, LiveFrames, Program, ProgramKind, XdpAttach};
use mpps_os::capability::{CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN, Rights};
use mpps_os::clock;
use mpps_os::ethtool;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::netdev;
use program::{Allowance, Clock, ProgramCounts, ProgramPace, Recipe};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const BACKEND: Backend = Backend {
    name: "xdp",
    summary: "the kernel's own generator: an XDP program writes each frame",
    needs: "root, Linux 6.1, and a driver that transmits XDP frames",
    layer: Layer::Frame,
    takes_nic: false,
    in_process: false,
    probe,
    rx_fields: &[],
    tx_fields: &["flows", "ring.interface", "ring.target_mac"],
    rx: None,
    tx: Some(open_tx),
};

/// Frames per send. For each send the kernel sets up a pool of pages and throws it away. That takes
/// 15 to 40 µs. This number of frames takes 3 to 30 ms; then a worker looks whether it is to stop.
const SEND_FRAMES: usize = 16_384;
/// Frames that the kernel handles at a time: `TEST_XDP_MAX_BATCH` of net/bpf/test_run.c.
const BATCH_MAX: usize = 256;
/// The longest frame in a page, behind the kernel's own record and the headroom and in front of
/// the tail that a socket buffer needs (net/bpf/test_run.c; found by trying on 6.18, x86-64).
const FRAME_BYTES_MAX: usize = 3_408;
/// The frames seem to have come from the loopback interface of the calling thread's namespace. It
/// does not matter which: the program redirects them to an interface that it holds.
const RECEIVED_NOWHERE: LiveFrames = LiveFrames {
    interface_index: 0,
    queue: 0,
};

/// Time between two sends at least. Each takes one of 65 534 numbers for pools of pages
/// (`MEM_ID_MAX`, net/core/xdp.c), which is free again when the pool's last page is: a second
/// later for pages that wait in a receiver's queue (`DEFER_TIME`, net/core/page_pool.c).
const SEND_INTERVAL: Duration = Duration::from_micros(50);
/// The slowest rate that the program keeps itself; it uses all of a CPU for it.
const PACED_RATE_MIN_PPS: f64 = 10_000.0;
/// The most runs of a paced send: 10 to 30 ms; then a worker looks whether it is to stop. Also the
/// most datagrams of such a send, so that it ends with its last datagram: each run after that would
/// send nothing.
const PACED_RUNS_MAX: usize = 131_072;
/// About the time of a run that finds nothing due, in nanoseconds.
const RUN_NS: f64 = 100.0;
/// How long a send waits for a number if there is none.
const NUMBER_WAIT: Duration = Duration::from_millis(5);

/// Of include/uapi/asm-generic/errno-base.h.
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;
/// Of include/uapi/asm-generic/errno.h.
const EOPNOTSUPP: i32 = 95;

/// The loopback interface of every namespace (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LOOPBACK_INDEX: u32 = 1;

/// Tries it with a program that drops the frame. It calls the clock of the stamps, which is the
/// newest of what a generator calls: a kernel without it would refuse a run that is stamped.
fn probe() -> Support {
    let try_out = || {
        let mut program = Assembler::new();
        program.call(Helper::ClockTaiNs);
        let instructions = program.set(R0, 1).exit().finish()?;
        let program = Program::load(ProgramKind::Xdp, "mpps_probe", &instructions)?;
        program.send_live(&[0; 64], RECEIVED_NOWHERE, 1, 1)?;
        NetNamespace::new()
    };
    let Err(error) = try_out() else {
        return Support::Yes;
    };
    let remedy = match error.source.kind() {
        io::ErrorKind::PermissionDenied => {
            Rights::own().remedy(&[CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN])
        }
        _ => "Linux 6.1 or later".to_owned(),
    };
    Support::refused(&error, remedy)
}

fn open_tx(config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let path = LinkPath::find(config.target, config.source, &config.ring)?;
    let path = path.with_flows(config.flows);
    let template = path.template(config.payload_bytes)?;
    let headers = template.header_bytes();
    if template.frame_bytes() > FRAME_BYTES_MAX {
        let why = format!(
            "a generated frame lives in one page: at most {} bytes of payload",
            FRAME_BYTES_MAX - headers
        );
        return Err(Error::invalid("payload_bytes", config.payload_bytes, why));
    }
    let switch = transmitting(&path)?;
    let devices = DeviceMap::create("mpps_devices", 1)?;
    devices.set(0, path.interface_index)?;
    let batch = config.batch.min(BATCH_MAX);
    let ports = 0..config.flows;
    // `with_flows` made room for all of them.
    let port = |flow| template.source_port(flow as u16);
    let caps = TxCaps {
        backend: BACKEND.name,
        layer: Layer::Frame,
        batch: SEND_FRAMES,
        train: 1,
        flows: 1,
        local_addresses: ports
            .map(|flow| SocketAddr::new(path.source.ip(), port(flow)))
            .collect(),
        send_buffer_bytes: None,
        template: true,
        mode: Mode::new(format!(
            "kernel generator on {}, {batch} frames at a time{}",
            path.interface,
            switch
                .as_ref()
                .map_or_else(String::new, |switch| format!(", {switch}"))
        )),
    };
    let mut tx = XdpTx {
        frame: vec![0; template.frame_bytes()],
        payload: vec![0; config.payload_bytes.max(1)],
        payload_bytes: config.payload_bytes,
        template,
        flows: config.flows as u32,
        batch: batch as u32,
        counts: ArrayMap::create("mpps_counts", 1)?,
        allowance: ArrayMap::create("mpps_allowance", 1)?,
        pace: None,
        devices,
        program: None,
        last: Instant::now(),
        counters: TxCounters::default(),
        caps,
        _switch: switch,
    };
    // Whatever the verifier has to say, it says it now.
    tx.prepare()?;
    Ok(Box::new(tx))
}

/// Makes the interface transmit generated frames, or refuses it: they would be lost without an
/// error. Most drivers have to be switched on. A veth need not be, because its other end decides.
fn transmitting(path: &LinkPath) -> Result<Option<XdpSwitch>, Error> {
    // Before Linux 6.3 the kernel does not report it.
    let transmits = || -> Option<bool> {
        let features = netdev::xdp_features(path.interface_index).ok().flatten()?;
        Some(features.names().contains(&"ndo-xmit"))
    };
    let refused = |why: String| Error::invalid("ring.interface", &path.interface, why);
    let is_veth = ethtool::driver(&path.interface).is_ok_and(|driver| driver.name == "veth");
    match transmits() {
        Some(true) => return Ok(None),
        None if is_veth => return Ok(None),
        Some(false) if is_veth => {
            let why = "it does not transmit XDP frames now. A veth does once its other end has GRO \
                       on (`ethtool -K PEER gro on`) or an XDP program";
            return Err(refused(why.to_owned()));
        }
        _ => {}
    }
    let switch = XdpSwitch::on(path.interface_index).map_err(|error| match error {
        Error::Kernel(error) if error.errno() == Some(EOPNOTSUPP) => refused(format!(
            "its driver transmits no XDP frames without an XDP program, and takes none: {error}; \
             send by sendmmsg or af_xdp"
        )),
        error => error,
    })?;
    if transmits() == Some(false) {
        let why = "its driver transmits no XDP frames, not even with an XDP program attached; send \
                   by sendmmsg or af_xdp";
        return Err(refused(why.to_owned()));
    }
    Ok(Some(switch))
}

/// A sender whose datagrams come into being in the kernel.
#[derive(Debug)]
struct XdpTx {
    template: Template,
    frame: Vec<u8>,
    payload: Vec<u8>,
    payload_bytes: usize,
    flows: u32,
    /// Frames that the kernel handles at a time.
    batch: u32,
    counts: ArrayMap<ProgramCounts>,
    allowance: ArrayMap<Allowance>,
    /// The rate that the program keeps, and its interval as the program has it.
    pace: Option<(f64, i32)>,
    devices: DeviceMap,
    /// The program for the present payload and rate, which are constants in it.
    program: Option<XdpGenerator>,
    /// When the last send ended.
    last: Instant,
    counters: TxCounters,
    caps: TxCaps,
    /// Held as long as it sends, if the driver needs it.
    _switch: Option<XdpSwitch>,
}

/// A loaded program, ready to be run often.
#[derive(Debug)]
struct XdpGenerator {
    variant: Variant,
    program: Program,
    _anchor: Anchor,
}

/// Keeps a program attached where it sees no packet, to the loopback interface of a namespace in
/// which nothing is up.
///
/// Before and after each test run of a program that is attached nowhere, the kernel changes its
/// list of XDP programs that are called directly, and waits for all CPUs to notice: 25 ms
/// (`bpf_prog_change_xdp`, `kernel/bpf/dispatcher.c`). A program that is on the list already, as an
/// attached one is, is only counted.
#[derive(Debug)]
struct Anchor {
    _link: BpfLink,
    _namespace: NetNamespace,
}

impl Anchor {
    fn new(program: &Program) -> Result<Self, mpps_os::CallError> {
        let namespace = NetNamespace::new()?;
        let link =
            namespace.run(|| BpfLink::xdp(program, LOOPBACK_INDEX, XdpAttach::Generic))??;
        Ok(Self {
            _link: link,
            _namespace: namespace,
        })
    }
}

/// The values that need another program: constants in the payload, and the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Variant {
    stamped: bool,
    interval: Option<i32>,
    payload_sum: u16,
}

impl XdpTx {
    fn payload(&self) -> &[u8] {
        &self.payload[..self.payload_bytes]
    }

    /// Loads the program for the present payload, unless it is loaded already.
    fn prepare(&mut self) -> Result<(), mpps_os::CallError> {
        let payload = self.payload();
        let stamped = Stamp::read(payload).is_some();
        let constant = payload.get(if stamped { STAMP_BYTES } else { 0 }..);
        let variant = Variant {
            stamped,
            interval: self.pace.map(|(_, interval)| interval),
            payload_sum: wire::sum(constant.unwrap_or_default()),
        };
        let loaded = self.program.as_ref().map(|loaded| loaded.variant);
        if loaded != Some(variant) {
            self.program = Some(self.load(variant)?);
        }
        Ok(())
    }

    fn load(&self, variant: Variant) -> Result<XdpGenerator, mpps_os::CallError> {
        let clock = || Clock {
            realtime_ahead_ns: clock::realtime_ahead_of_tai_seconds() * 1_000_000_000,
        };
        let recipe = Recipe {
            template: &self.template,
            flows: self.flows,
            payload_sum: variant.payload_sum,
            stamp: variant.stamped.then(clock),
            pace: variant.interval.map(|interval| ProgramPace {
                interval,
                allowance: self.allowance.as_fd(),
            }),
            counts: self.counts.as_fd(),
            devices: self.devices.as_fd(),
        };
        let program = Program::load(ProgramKind::Xdp, "mpps_generate", &recipe.program()?)?;
        Ok(XdpGenerator {
            variant,
            _anchor: Anchor::new(&program)?,
            program,
        })
    }

    /// Frames that the program has made so far, end markers included.
    fn made(&self) -> Result<u64, mpps_os::CallError> {
        let counts = self.counts.value(0)?.unwrap_or_default();
        let flows = u64::from(self.flows);
        Ok(counts.data.frames(flows) + counts.end.frames(flows))
    }

    /// How many runs are asked for by a send of `datagrams`: an end marker is one for each flow.
    fn runs(&self, datagrams: usize) -> u32 {
        match Stamp::read(self.payload()) {
            Some(stamp) if stamp.kind == crate::StampKind::End => self.flows,
            _ => match self.pace {
                // `SEND_FRAMES` is far below the limit.
                None => datagrams.min(SEND_FRAMES) as u32,
                Some((rate_pps, _)) => paced_runs(datagrams, rate_pps),
            },
        }
    }

    /// Lets the program send up to `datagrams`, if it keeps a rate: at first, from now on.
    fn allow(&self, datagrams: usize) -> Result<(), mpps_os::CallError> {
        if self.pace.is_none() {
            return Ok(());
        }
        let next = match self.allowance.value(0)?.unwrap_or_default().next {
            0 => clock::monotonic_ns() << program::FRACTION_BITS,
            next => next,
        };
        let left = datagrams as u64;
        self.allowance.set(0, &Allowance { next, left })
    }
}

/// How many runs a paced send of `datagrams` has: most runs find that nothing is due. The few
/// datagrams at the end of a count are not waited for longer than they take.
fn paced_runs(datagrams: usize, rate_pps: f64) -> u32 {
    let time_ns = datagrams as f64 * 1e9 / rate_pps;
    // `PACED_RUNS_MAX` is far below the limit.
    (time_ns / RUN_NS).clamp(1.0, PACED_RUNS_MAX as f64) as u32
}

impl Tx for XdpTx {
    /// Lends one payload, that of all datagrams. If it holds a [`Stamp`] when it is sent, the
    /// program completes the stamp in each datagram: flow, sequence number, time and check byte.
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        let bytes = self.payload_bytes;
        let stride = self.payload.len();
        Frames::new(&mut self.payload, stride, bytes, bytes, datagrams.min(1))
    }

    /// Sends `datagrams` over all flows in turn. If the payload is the stamp of an end marker, one
    /// is sent for each flow.
    fn send(&mut self, _flow: usize, datagrams: usize) -> io::Result<Sent> {
        if datagrams == 0 {
            return Ok(Sent::default());
        }
        self.template
            .write(&mut self.frame, 0, &self.payload[..self.payload_bytes]);
        self.prepare().map_err(|error| error.source)?;
        // Otherwise the program would still make frames, and no counter would count their end.
        if !self.devices.holds(0).map_err(|error| error.source)? {
            return Err(io::Error::from_raw_os_error(ENODEV));
        }
        while self.last.elapsed() < SEND_INTERVAL {
            std::hint::spin_loop();
        }
        self.allow(datagrams).map_err(|error| error.source)?;
        let before = self.made().map_err(|error| error.source)?;
        let (runs, batch) = (self.runs(datagrams), self.batch);
        let ran = match &self.program {
            Some(loaded) => {
                let program = &loaded.program;
                program.send_live(&self.frame, RECEIVED_NOWHERE, runs, batch)
            }
            None => Ok(()),
        };
        self.last = Instant::now();
        self.counters.calls += 1;
        let made = self.made().map_err(|error| error.source)?;
        let accepted = made.wrapping_sub(before);
        self.counters.accepted += accepted;
        match ran {
            Err(error) if accepted == 0 && error.errno() == Some(ENOSPC) => {
                // No number for the pool: those of earlier sends come back with their last page.
                self.counters.blocked += 1;
                thread::sleep(NUMBER_WAIT);
                Ok(Sent::default())
            }
            // A signal, or a moment without memory: what was made until then is out.
            Err(error) if accepted == 0 && error.source.kind() != io::ErrorKind::Interrupted => {
                Err(error.source)
            }
            _ => Ok(Sent {
                accepted,
                refused: 0,
            }),
        }
    }

    /// The program itself keeps the rate, frame by frame: it drops what is not due yet, which is
    /// cheap. A rate of few datagrams a second is left to the caller, who sleeps meanwhile.
    fn pace(&mut self, rate_pps: f64) -> bool {
        let interval = program::interval(rate_pps).filter(|_| rate_pps >= PACED_RATE_MIN_PPS);
        self.pace = interval.map(|interval| (rate_pps, interval));
        self.caps.batch = match self.pace {
            Some(_) => PACED_RUNS_MAX,
            None => SEND_FRAMES,
        };
        // Loading the program takes milliseconds, which must not be missing in the rate. The first
        // send returns an error of it.
        if interval.is_some() {
            let _ = self.prepare();
        }
        interval.is_some()
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About the times of a run with nothing due, of a run that sends, and of a send besides its
    /// runs. Nanoseconds; docs/backends/xdp.md.
    const IDLE_NS: i64 = 30;
    const SENDING_NS: i64 = 170;
    const SEND_GAP_NS: i64 = 150_000;

    /// Which share of a rate is kept over a fifth of a second of sends, by the rules of the program,
    /// on a clock that only they move.
    fn kept(rate_pps: f64, datagrams_per_send: usize) -> f64 {
        let interval_ns = (1e9 / rate_pps) as i64;
        let behind_ns = (interval_ns * program::BEHIND_MAX).min(program::BEHIND_NS_MAX);
        let (mut now, mut next, mut sent) = (0_i64, 0_i64, 0_u64);
        while now < 200_000_000 {
            let mut left = datagrams_per_send;
            for _ in 0..paced_runs(datagrams_per_send, rate_pps) {
                if left == 0 || next > now {
                    now += IDLE_NS;
                    continue;
                }
                next = next.max(now - behind_ns);
                next += interval_ns;
                now += SENDING_NS;
                (left, sent) = (left - 1, sent + 1);
            }
            now += SEND_GAP_NS;
        }
        sent as f64 * 1e9 / now as f64 / rate_pps
    }

    #[test]
    fn a_rate_that_can_be_reached_is_kept_over_many_sends() {
        for mega in [0.05, 1.0, 2.0, 3.0, 4.0, 5.0] {
            let share = kept(mega * 1e6, PACED_RUNS_MAX);
            assert!((0.98..=1.001).contains(&share), "{mega} Mpps: {share}");
        }
    }

    #[test]
    fn no_send_has_had_all_its_datagrams_while_it_still_runs() {
        for rate_pps in [PACED_RATE_MIN_PPS, 1e6, 1e7, 1e9] {
            assert!(paced_runs(PACED_RUNS_MAX, rate_pps) as usize <= PACED_RUNS_MAX);
        }
        assert_eq!(paced_runs(1, 1e9), 1);
    }
}
