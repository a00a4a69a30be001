//! Paths over traffic that `mpps send` on another host sends: it is run anew for each trial, and its
//! totals are the other half of the ledger.

use super::far_traffic::FarTraffic;
use crate::machine;
use crate::udp::account::account;
use crate::udp::arriving::PATIENCE_FIRST;
use crate::udp::far_sender;
use crate::udp::path::Path;
use crate::udp::run::UdpRun;
use crate::udp::throttle::Throttled;
use crate::udp::traffic::{SendTotal, note_unseen, route, sent, without_copies};
use anyhow::{Context, Result};
use mpps_io::{Inspect, Rx, RxWorker, STAMP_BYTES};
use std::thread;
use std::time::{Duration, Instant};

/// How long it sends before the first trial, to see whether it can.
const TRY_OUT: Duration = Duration::from_millis(10);
/// How often it is looked whether more arrives.
const LOOK: Duration = Duration::from_millis(10);
/// Nothing more is on its way once nothing has come for so long after the sender's end.
const QUIET: Duration = Duration::from_millis(50);
/// So long that is waited for at most: others may send to the port as well.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// The note on a receiver that reads no stamps.
const ONLY_COUNTED: &str = "datagrams are only counted: a duplicate would stand for a lost one; with \
     --size 16 and more they carry stamps";

/// Receives what another host sends.
#[derive(Debug)]
pub(super) struct Remote<'a> {
    pub(super) live: FarTraffic<'a>,
    /// A command for a shell, which runs `mpps send` on the other host.
    pub(super) command: &'a str,
    pub(super) flows: u16,
    pub(super) payload_bytes: usize,
    /// The rate limit of a receiver; none without a limit.
    pub(super) throttle_pps: Option<f64>,
}

impl Remote<'_> {
    /// The command for a trial.
    pub(super) fn order(&self, time: &str, rate: &str) -> String {
        let flows = match self.flows {
            1 => String::new(),
            flows => format!(" --flows {flows}"),
        };
        // A flag is not said twice.
        let asks = self
            .command
            .split_whitespace()
            .any(|word| word == "--stamp");
        let stamp = if self.is_stamped() && !asks {
            " --stamp"
        } else {
            ""
        };
        format!(
            "{} {} --rate {rate} --duration {time} --size {}{flows}{stamp} --json",
            self.command, self.live.address, self.payload_bytes
        )
    }

    /// True if stamps identify each datagram. By numbers only, a duplicate would stand for a lost
    /// datagram.
    fn is_stamped(&self) -> bool {
        self.payload_bytes >= STAMP_BYTES
    }

    /// Makes the other host send for a moment, without a receiver.
    ///
    /// # Errors
    /// What is wrong with the command.
    pub(super) fn try_out(&self, pps: f64, patience: Duration) -> Result<()> {
        self.send(TRY_OUT, pps, patience).map(drop)
    }

    /// One trial.
    pub(super) fn run(
        &self,
        path: &Path,
        time: Duration,
        pps: f64,
        patience: Duration,
    ) -> Result<UdpRun> {
        let at = self.live.address.to_string();
        let (rx, mut arriving) = self.live.receiver(path, &at)?;
        let rx: Box<dyn Rx> = match self.throttle_pps {
            Some(pps) => Box::new(Throttled::new(rx, pps)),
            None => rx,
        };
        if !self.is_stamped() {
            arriving.inspect = Inspect::Never;
        }
        let (arrived, total) = arriving.until(rx, |worker| {
            let total = self.send(time, pps, patience);
            await_quiet(worker);
            total
        })?;
        let total = total?;
        let interface = machine::interface_at(None, self.live.address.ip()).ok();
        let route = route(&total, interface.as_deref());
        let hosts = (total.host.as_ref(), Some(&arrived.host));
        let received = arrived.received();
        let stamped = self.is_stamped().then_some(&total);
        let mut ledger = without_copies(&arrived.report, stamped, received, |received| {
            let mut account = account(sent(&total), received, route, hosts);
            account.one_machine = total.boot_id.is_some() && total.boot_id == machine::boot_id();
            account.ledger()
        });
        note_unseen(&mut ledger, route);
        if !self.is_stamped() {
            ledger.note(ONLY_COUNTED);
        }
        Ok(UdpRun {
            offered_mpps: total.offered as f64 / total.active_seconds.max(1e-9) / 1e6,
            ..arrived.with(ledger)
        })
    }

    /// Has the other host send, and waits for what it says of that, for so long beyond `time`.
    fn send(&self, time: Duration, pps: f64, patience: Duration) -> Result<SendTotal> {
        let order = self.order(&format!("{}ms", time.as_millis()), &format!("{pps:.0}"));
        let longest = time + patience.min(PATIENCE_FIRST);
        let text = far_sender::obey(&order, longest, self.live.interrupt)?;
        SendTotal::parse(&text).with_context(|| format!("--sender: `{order}`"))
    }
}

/// Waits until nothing more arrives.
fn await_quiet(worker: &RxWorker) {
    let came = || worker.progress().datagrams;
    let began = Instant::now();
    let (mut last, mut since) = (came(), began);
    while since.elapsed() < QUIET && began.elapsed() < QUIET_MAX {
        thread::sleep(LOOK);
        let now = came();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}
