//! The rungs about placement over traffic that arrives at an interface.

use super::result::{LabBody, Limit, RungResult};
use crate::machine;
use crate::output::{self, OutputStream};
use crate::udp::RATE_DEFINITION;
use crate::udp::arriving::{Arrived, PATIENCE_SOCKET, PortTraffic};
use crate::udp::limit::{loss_that_counts, named};
use crate::udp::roles::CpuLayout;
use crate::udp::run::UdpRun;
use anyhow::Result;
use std::time::Duration;

/// Traffic of any sender, and how long a run of it is.
#[derive(Debug)]
pub(super) struct LiveTraffic<'a> {
    pub(super) traffic: PortTraffic<'a>,
    pub(super) time: Duration,
}

impl LiveTraffic<'_> {
    /// The result before the first rung.
    pub(super) fn beginning(&self, served: &str) -> LabBody {
        LabBody {
            rate_definition: RATE_DEFINITION.to_owned(),
            placement: format!("{served}   Linux {}", machine::kernel_release()),
            delivery: "their interrupts".to_owned(),
            sender: Some("any program that sends to this address".to_owned()),
            interface: Some(self.traffic.interface.to_owned()),
            ..LabBody::default()
        }
    }

    /// The CPU that serves its queue, and how that is known.
    pub(super) fn served_by(&self) -> Result<(usize, String)> {
        let waiting = format!("waiting for packets at {}", self.traffic);
        output::line(OutputStream::Err, &waiting)?;
        self.receive(None)?.serving(self.traffic.interface)
    }

    /// A run in this layout. The ledger notes if its queue has moved.
    pub(super) fn run(&self, layout: &CpuLayout) -> Result<UdpRun> {
        let arrived = self.receive(layout.applications.first().copied())?;
        let (now, known) = arrived.serving(self.traffic.interface)?;
        let mut run = arrived.sample(self.traffic.interface);
        if !layout.queues.contains(&now) {
            run.ledger.note(format!("the queue has moved: {known}"));
        }
        Ok(run)
    }

    fn receive(&self, cpu: Option<usize>) -> Result<Arrived> {
        let at = self.traffic.to_string();
        self.traffic.receive(&at, cpu, self.time, PATIENCE_SOCKET)
    }
}

/// Enters the part of a rung's result that comes from its last run.
pub(super) fn enter(result: &mut RungResult, run: &UdpRun) {
    result.application_ns = run.app_ns();
    let lost = loss_that_counts(&run.ledger).map(named);
    let sender = || Limit::new("sender", "nearly nothing was lost on this host");
    result.limited_by = Some(lost.unwrap_or_else(sender));
}
