//! One run of one rung: traffic from the one host to the other, and the counters around it.

use super::rung::{Rung, RungReceiver, RungTracking};
use super::sample::other_than_polled;
use crate::udp::run::{Hosts, Purpose, Receivers, Senders, Taker, UdpRun};
use crate::udp::sender::{PORT, SOURCE_PORT, SenderTraffic, open};
use anyhow::{Context, Result, bail, ensure};
use mpps_host::Grouped;
use mpps_io::{Rx, RxConfig, Wait, backend};
use mpps_lab::{Lab, address};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Bytes of each datagram: the article's.
pub(super) const PAYLOAD_BYTES: usize = 32;
/// Messages of one `sendmmsg`, as in the article.
const BATCH: usize = 1024;
/// The same where packets are stamped: 1024 at once would put a pause before each call.
const STAMPED_BATCH: usize = 64;
/// The same where flows take turns: a longer one would fill one receiver's socket and leave the
/// others without packets.
const FLOW_BATCH: usize = 16;

impl Rung {
    /// Runs it for so long, and accounts for every packet.
    pub(super) fn run(
        &self,
        hosts: Hosts<'_>,
        time: Duration,
        purpose: Purpose<'_>,
    ) -> Result<UdpRun> {
        let lab = hosts.lab;
        let targets = self.targets.iter();
        let queues = targets.filter_map(|to| lab.queue_of(address::v4(*to).into()));
        let queues: Vec<u16> = queues.collect();
        if lab.napi_threads().iter().any(|thread| thread.cpu.is_some()) {
            lab.share_weight(&queues)?;
        }
        let taker = Taker::Program(Receivers {
            rx: self.open_rx(lab)?,
            cpus: self.layout.applications.clone(),
            wait: Wait::Block(Duration::from_secs(1)),
            is_shared: matches!(self.sockets, RungReceiver::Shared(_)),
        });
        let tracking = self
            .tracking
            .map(|it| lab.track(PORT, it == RungTracking::On));
        let tracking = tracking.transpose()?;
        let run = hosts.run(taker, self.open_tx(lab, purpose)?, time, purpose)?;
        if let Some(tracking) = tracking {
            let (packets, wanted) = (tracking.packets()?, run.ledger.delivered);
            tracking.remove()?;
            ensure!(
                packets >= wanted,
                "the rule saw {packets} of {wanted} received packets"
            );
        }
        // Where others deliver most packets the figure is not one of busy polling.
        let polled = run.busy_polled();
        if self.busy_poll_us.is_some() && polled < run.ledger.delivered.div_ceil(2) {
            bail!(
                "the receiver polled {} of {} packets itself, and {} delivered the others",
                Grouped(polled),
                Grouped(run.ledger.delivered),
                other_than_polled(lab)
            );
        }
        Ok(run)
    }

    /// Opens the receivers inside the receiving host.
    fn open_rx(&self, lab: &Lab) -> Result<Vec<Box<dyn Rx>>> {
        let opened = lab.receiver().run(|| -> Result<Vec<Box<dyn Rx>>> {
            let backend = backend::find("recvmmsg")?;
            let mut receivers: Vec<Box<dyn Rx>> = Vec::new();
            for thread in 0..self.sockets.threads() {
                let address = match self.sockets {
                    RungReceiver::Addressed(_) => {
                        address::v4(self.targets[thread % self.targets.len()])
                    }
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                let mut config = RxConfig::new(SocketAddr::new(address.into(), PORT));
                if self.gro {
                    config = config.with_gro();
                }
                config.busy_poll_us = self.busy_poll_us;
                config.reuse_port = matches!(
                    self.sockets,
                    RungReceiver::ReusePort(_) | RungReceiver::Steered(_)
                );
                let shared = matches!(self.sockets, RungReceiver::Shared(_)) && thread > 0;
                let next = if shared {
                    receivers[0].share()
                } else {
                    backend.open_rx(&config)
                };
                receivers.push(next?);
            }
            if matches!(self.sockets, RungReceiver::Steered(_)) {
                receivers[0].steer_by_cpu(&self.steered_cpus())?;
            }
            Ok(receivers)
        })?;
        opened.context("cannot receive")
    }

    /// Opens the senders inside the sending host.
    fn open_tx(&self, lab: &Lab, purpose: Purpose<'_>) -> Result<Senders> {
        let cpus = self.sender_cpus().map_err(anyhow::Error::msg)?;
        let opened = |(thread, (target, cpu)): (usize, (&u8, usize))| {
            let feed = SenderTraffic {
                target: address::v4(*target).into(),
                source_port: self.source_port(SOURCE_PORT, thread),
                flows: self.flows,
                payload_bytes: PAYLOAD_BYTES,
                train: self.sender.train().unwrap_or(1),
                batch: match purpose.stamped {
                    _ if self.flows > 1 => FLOW_BATCH,
                    false => BATCH,
                    true => STAMPED_BATCH,
                },
            };
            Ok((open(lab, self.sender.backend(), &feed)?, cpu))
        };
        let targets = self.targets.iter().zip(cpus).enumerate();
        targets.map(opened).collect()
    }
}
