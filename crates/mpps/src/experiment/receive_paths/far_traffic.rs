//! Paths over traffic that another host sends. A real card shows things that a lab cannot.
//!
//! The sender stamps its packets. The sequence numbers show how many were offered while a path was
//! measured. Losses before this host have no counter here. They are unaccounted, and the report
//! says so. A [`Remote`] runs `mpps send` on the other host anew for each trial: its totals are the other
//! half of the ledger.

use super::result::BenchRow;
use crate::measure::rounds::Case;
use crate::signal::EndSignal;
use crate::udp::account::{SenderCounts, account};
use crate::udp::arriving::{Arrived, Arriving, PATIENCE, PATIENCE_FIRST, elsewhere};
use crate::udp::far_sender;
use crate::udp::path::{Path, PathTaker};
use crate::udp::run::{UdpRun, await_quiet};
use crate::udp::throttle::Throttled;
use crate::udp::traffic::{SendTotal, note_unseen, route, sent, without_copies};
use crate::{failure, machine};
use anyhow::{Context, Result};
use mpps_host::{Ledger, PacketRoute};
use mpps_io::{Inspect, Rx, STAMP_BYTES, Work};
use mpps_os::netlink::address;
use std::net::SocketAddr;
use std::slice;
use std::time::Duration;

/// Measures traffic that arrives at an address of this host.
#[derive(Debug)]
pub(crate) struct FarTraffic<'a> {
    /// Where it arrives.
    pub(crate) address: SocketAddr,
    pub(crate) cpu: usize,
    pub(crate) time: Duration,
    /// The work for each datagram.
    pub(crate) work: Work,
    pub(crate) interrupt: &'a EndSignal,
}

impl FarTraffic<'_> {
    /// Where NAPI runs.
    pub(super) const NAPI_PLACE: &'static str = "where the card's interrupts go";

    /// Why this path cannot run here, if it cannot.
    pub(super) fn obstacle(&self, path: &Path) -> Option<String> {
        self.open(path).err().map(|error| failure::explain(&error))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Rx>> {
        path.probe()?;
        path.open(&path.config(self.address)?)
    }

    /// Opens the receiver of a path, and says how to receive. The end of the last path may have reset
    /// the card, and so may the beginning of this one.
    pub(super) fn receiver<'b>(
        &'b self,
        path: &Path,
        at: &'b str,
    ) -> Result<(Box<dyn Rx>, Arriving<'b>)> {
        let PathTaker::Backend { wait, .. } = path.takes else {
            anyhow::bail!("{}: a rule receives nothing", path.name);
        };
        self.await_carrier()?;
        let rx = self.open(path)?;
        self.await_carrier()?;
        let arriving = Arriving {
            at,
            cpu: Some(self.cpu),
            wait,
            inspect: Inspect::Always,
            work: self.work,
            time: self.time,
            patience: PATIENCE_FIRST,
            interrupt: self.interrupt,
            snapshot: &machine::snapshot,
        };
        Ok((rx, arriving))
    }

    /// One run. The first run waits longer, because the user has to start the sender.
    pub(super) fn run(&self, path: &Path, is_first: bool) -> Result<UdpRun> {
        let at = self.address.to_string();
        let (rx, mut arriving) = self.receiver(path, &at)?;
        if !is_first {
            arriving.patience = PATIENCE;
        }
        let arrived = arriving.run(rx)?;
        let ledger = ledger(&arrived);
        Ok(arrived.with(ledger))
    }

    fn await_carrier(&self) -> Result<()> {
        if let Some(index) = address::interface_of(self.address.ip())? {
            mpps_io::parts::await_carrier(index)?;
        }
        Ok(())
    }

    /// The row of a path as it is reported; none if it was not reached.
    pub(super) fn row(case: &Case<Path, UdpRun>) -> Option<BenchRow> {
        let row = BenchRow::new(&case.plan, Self::NAPI_PLACE.to_owned(), case.unmeasured());
        let method = "approximate: schedstat of the application; interrupts are not known";
        let mut row = row.measured(&case.plan, &case.samples, method.to_owned())?;
        row.notes.extend(case.stopped());
        Some(row)
    }
}

/// The ledger of a run whose sender is known by its stamps only.
fn ledger(arrived: &Arrived) -> Ledger {
    let report = &arrived.report;
    let flows = report.flows.reports().map(|(_, flow)| flow);
    let seen: u64 = flows.map(|flow| flow.next.saturating_sub(flow.first)).sum();
    let sent = SenderCounts {
        // The flows of other queues are offered too. No program reads their sequence numbers.
        offered: seen + elsewhere(&report.drops),
        ..SenderCounts::default()
    };
    let hosts = (None, Some(&arrived.host));
    let mut ledger = without_copies(report, None, arrived.received(), |received| {
        account(sent, received, PacketRoute::Hosts, hosts).ledger()
    });
    if report.flows.unstamped() > 0 {
        ledger.note(format!(
            "{} packets had no stamp: add --stamp to the sender's command",
            report.flows.unstamped()
        ));
    }
    if ledger.unaccounted != 0 {
        ledger.note(
            "offered is by sequence numbers between the first and the last packet seen; what is \
             unaccounted was lost before this host, or its counters are of other traffic too",
        );
    }
    ledger
}

/// How long it sends before the first trial, to see whether it can.
const TRY_OUT: Duration = Duration::from_millis(10);
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
            await_quiet(slice::from_ref(worker), QUIET, QUIET_MAX);
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
