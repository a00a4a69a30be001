//! Paths over traffic that another host sends. A real card shows things that a lab cannot.
//!
//! The sender stamps its packets. The sequence numbers show how many were offered while a path was
//! measured. Losses before this host have no counter here. They are unaccounted, and the report
//! says so.

use super::result::BenchRow;
use crate::measure::rounds::Case;
use crate::signal::EndSignal;
use crate::udp::account::{SenderCounts, account};
use crate::udp::arriving::{Arrived, Arriving, PATIENCE, PATIENCE_FIRST, elsewhere};
use crate::udp::path::{Path, PathTaker};
use crate::udp::run::UdpRun;
use crate::udp::traffic::without_copies;
use crate::{failure, machine};
use anyhow::Result;
use mpps_host::{Ledger, PacketRoute};
use mpps_io::{Inspect, Work};
use mpps_os::netlink::address;
use std::net::SocketAddr;
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

    fn open(&self, path: &Path) -> Result<Box<dyn mpps_io::Rx>> {
        path.probe()?;
        path.open(&path.config(self.address)?)
    }

    /// Opens the receiver of a path, and says how to receive. The end of the last path may have reset
    /// the card, and so may the beginning of this one.
    pub(super) fn receiver<'b>(
        &'b self,
        path: &Path,
        at: &'b str,
    ) -> Result<(Box<dyn mpps_io::Rx>, Arriving<'b>)> {
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
            mpps_io::await_carrier(index)?;
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
