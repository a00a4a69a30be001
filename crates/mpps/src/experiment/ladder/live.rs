//! The rungs about placement over traffic that arrives at an interface.

use super::result::{LabBody, Limit, RungResult};
use crate::machine;
use crate::measure::session::Session;
use crate::output::{self, OutputStream};
use crate::udp::RATE_DEFINITION;
use crate::udp::arriving::{Arrived, Arriving, PATIENCE_SOCKET};
use crate::udp::limit::{loss_that_counts, named};
use crate::udp::path::SOCKET;
use crate::udp::roles::CpuLayout;
use crate::udp::run::UdpRun;
use anyhow::{Context, Result};
use mpps_host::Snapshot;
use mpps_io::{Inspect, RxConfig, Wait, Work};
use std::net::SocketAddr;
use std::time::Duration;

/// Traffic that arrives at a port of an interface.
#[derive(Debug)]
pub(super) struct LiveTraffic<'a> {
    pub(super) interface: &'a str,
    pub(super) address: SocketAddr,
    pub(super) time: Duration,
    pub(super) session: &'a Session,
}

impl LiveTraffic<'_> {
    /// Where it arrives, in words.
    pub(super) fn place(&self) -> String {
        format!("port {} of {}", self.address.port(), self.interface)
    }

    /// The result before the first rung.
    pub(super) fn beginning(&self, served: &str) -> LabBody {
        LabBody {
            rate_definition: RATE_DEFINITION.to_owned(),
            placement: format!("{served}   Linux {}", machine::kernel_release()),
            delivery: "their interrupts".to_owned(),
            sender: Some("any program that sends to this address".to_owned()),
            interface: Some(self.interface.to_owned()),
            ..LabBody::default()
        }
    }

    /// The CPU that serves its queue, and how that is known.
    pub(super) fn served_by(&self) -> Result<(usize, String)> {
        let waiting = format!("waiting for packets at {}", self.place());
        output::line(OutputStream::Err, &waiting)?;
        self.receive(None)?.serving(self.interface)
    }

    /// A run in this layout. The ledger notes if its queue has moved.
    pub(super) fn run(&self, layout: &CpuLayout) -> Result<UdpRun> {
        let arrived = self.receive(layout.applications.first().copied())?;
        let (now, known) = arrived.serving(self.interface)?;
        let mut run = arrived.sample(self.interface);
        if !layout.queues.contains(&now) {
            run.ledger.note(format!("the queue has moved: {known}"));
        }
        Ok(run)
    }

    fn receive(&self, cpu: Option<usize>) -> Result<Arrived> {
        let address = self.address;
        let arriving = Arriving {
            at: &self.place(),
            cpu,
            wait: Wait::Block(Duration::from_secs(1)),
            inspect: Inspect::Never,
            work: Work::None,
            time: self.time,
            patience: PATIENCE_SOCKET,
            interrupt: &self.session.interrupt,
            snapshot: &|| Ok(Snapshot::take(&[self.interface])?),
        };
        let rx = SOCKET.open(&RxConfig::new(address));
        arriving.run(rx.with_context(|| format!("cannot receive at {address}"))?)
    }
}

/// Enters the part of a rung's result that comes from its last run.
pub(super) fn enter(result: &mut RungResult, run: &UdpRun) {
    result.application_ns = run.app_ns();
    let lost = loss_that_counts(&run.ledger).map(named);
    let sender = || Limit::new("sender", "nearly nothing was lost on this host");
    result.limited_by = Some(lost.unwrap_or_else(sender));
}
