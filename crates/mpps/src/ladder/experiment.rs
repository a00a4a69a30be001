//! One run of one rung: traffic from the one host to the other, and the counters around it.

use super::rung::{Rung, Sockets};
use super::sample::Sample;
use super::{Layout, Sender};
use crate::signal::Interrupt;
use anyhow::{Context, Result};
use mpps_host::drop_probe::{DropCount, DropProbe};
use mpps_host::{ReasonCount, Snapshot};
use mpps_io::{Rx, RxConfig, Tx, TxConfig, backend};
use mpps_lab::{Delivery, Lab, address};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The article's port.
pub(crate) const PORT: u16 = 4321;
/// All senders use one source port, as the article's do.
const SOURCE_PORT: u16 = 4320;
/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
const SEND_BUFFER_BYTES: usize = 32 << 20;
/// What a run is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The rate: no probe, no stamps.
    Rate,
    /// Exactness: every packet stamped, drops counted by reason if there is a probe.
    Exactness(Option<&'a DropProbe>),
}

/// Where runs take place.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// The two hosts.
    pub(crate) lab: &'a Lab,
    /// The CPUs.
    pub(crate) layout: &'a Layout,
    /// How packets reach the queue's CPU.
    pub(crate) delivery: Delivery,
    /// Ends a run early.
    pub(crate) interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Runs a rung for so long, and accounts for every packet.
    pub(crate) fn run(&self, rung: &Rung, time: Duration, purpose: Purpose<'_>) -> Result<Sample> {
        let queues = rung
            .targets
            .iter()
            .filter_map(|to| self.lab.queue_of(address::v4(*to).into()));
        let queues: Vec<u16> = queues.collect();
        if self
            .lab
            .napi_threads()
            .iter()
            .any(|thread| thread.cpu.is_some())
        {
            self.lab.share_weight(&queues)?;
        }
        let rx = self.open_rx(rung)?;
        let tx = self.open_tx(rung, purpose)?;
        let granted = tx.first().and_then(|tx| tx.caps().send_buffer_bytes);
        self.lab.settle()?;
        let before = self.snapshots()?;
        let probe = match purpose {
            Purpose::Exactness(probe) => probe,
            Purpose::Rate => None,
        };
        let drops = probe.map(DropProbe::counts).transpose()?;
        let traffic = self.drive(rung, rx, tx, time, purpose)?;
        let after = self.snapshots()?;
        let deltas = (after.0.since(&before.0), after.1.since(&before.1));
        let reasons = match (probe, drops) {
            (Some(probe), Some(drops)) => Some(self.reasons(probe, &drops)?),
            _ => None,
        };
        let mut sample = self.sample(rung, traffic, deltas, reasons, purpose)?;
        if let Some(bytes) = granted.filter(|bytes| *bytes < SEND_BUFFER_BYTES) {
            sample.notes.push(format!(
                "send buffer {bytes} bytes instead of {SEND_BUFFER_BYTES} (net.core.wmem_max): a slow \
                 receiver may slow the sender"
            ));
        }
        Ok(sample)
    }

    /// Opens the receivers inside the receiving host.
    fn open_rx(&self, rung: &Rung) -> Result<Vec<Box<dyn Rx>>> {
        let opened = self.lab.receiver().run(|| -> Result<Vec<Box<dyn Rx>>> {
            let backend = backend::find("recvmmsg")?;
            let mut receivers: Vec<Box<dyn Rx>> = Vec::new();
            for thread in 0..rung.sockets.threads() {
                let address = match rung.sockets {
                    Sockets::Addressed(_) => address::v4(rung.targets[thread % rung.targets.len()]),
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                let mut config = RxConfig::new(SocketAddr::new(address.into(), PORT));
                if rung.gro {
                    config = config.with_gro();
                }
                config.busy_poll_us = rung.busy_poll_us;
                config.reuse_port =
                    matches!(rung.sockets, Sockets::ReusePort(_) | Sockets::Steered(_));
                let shared = matches!(rung.sockets, Sockets::Shared(_)) && thread > 0;
                let next = if shared {
                    receivers[0].share()
                } else {
                    backend.open_rx(&config)
                };
                receivers.push(next?);
            }
            if matches!(rung.sockets, Sockets::Steered(_)) {
                receivers[0].steer_by_cpu(&rung.cpus)?;
            }
            Ok(receivers)
        })?;
        opened.with_context(|| format!("rung {}: cannot receive", rung.number))
    }

    /// Opens the senders inside the sending host.
    fn open_tx(&self, rung: &Rung, purpose: Purpose<'_>) -> Result<Vec<Box<dyn Tx>>> {
        let opened = self.lab.sender().run(|| -> Result<Vec<Box<dyn Tx>>> {
            let backend = backend::find(rung.sender.backend())?;
            let open = |target: &u8| {
                let target = SocketAddr::new(address::v4(*target).into(), PORT);
                let mut config = TxConfig {
                    source: Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), SOURCE_PORT)),
                    ..TxConfig::new(target)
                };
                if let Sender::Socket { train } = rung.sender {
                    config.gso_segments = train;
                    config.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
                    // Stamping 1024 payloads at once would put a pause before each call.
                    let is_rate = matches!(purpose, Purpose::Rate);
                    config.batch = if is_rate { 1024 } else { 64 };
                }
                Ok(backend.open_tx(&config)?)
            };
            rung.targets.iter().map(open).collect()
        })?;
        opened.with_context(|| format!("rung {}: cannot send by {}", rung.number, rung.sender))
    }

    fn snapshots(&self) -> Result<(Snapshot, Snapshot)> {
        let take = |host: &mpps_lab::Host| -> Result<Snapshot> {
            Ok(host.run(|| Snapshot::take(&[host.interface()]))??)
        };
        Ok((take(self.lab.sender())?, take(self.lab.receiver())?))
    }

    /// Drops of this run by reason, in the receiver's namespace.
    fn reasons(&self, probe: &DropProbe, before: &[DropCount]) -> Result<Vec<ReasonCount>> {
        let namespace = self.lab.receiver().inode();
        Ok(DropCount::since(&probe.counts()?, before, namespace))
    }
}
