//! One run of one rung: traffic from the one host to the other, and the counters around it.

use super::rung::{Rung, Sockets};
use super::sample::Sample;
use crate::signal::Interrupt;
use crate::udp;
use crate::udp::run::{Hosts, Purpose, Receivers, Senders, Taker};
use crate::udp::sender::{Feed, PORT, SOURCE_PORT};
use anyhow::{Context, Result};
use mpps_io::{Rx, RxConfig, Wait, backend};
use mpps_lab::{Delivery, Lab, address};
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

/// Where runs take place that have packets delivered in one way.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The two hosts.
    pub(crate) lab: &'a Lab,
    /// How packets reach the queue's CPU.
    pub(crate) delivery: Delivery,
    /// The CPU of the first sender.
    pub(crate) sender_cpu: usize,
    /// Ends a run early.
    pub(crate) interrupt: &'a Interrupt,
}

impl Setup<'_> {
    /// True if the queues were to have kernel threads and have none: their senders serve them.
    pub(crate) fn lacks_threads(&self) -> bool {
        self.delivery == Delivery::ThreadedNapi && self.lab.in_soft_interrupts()
    }

    /// True if each queue has a CPU that is known.
    pub(crate) fn is_placed(&self) -> bool {
        match self.delivery {
            Delivery::SoftInterrupt => self.lab.in_soft_interrupts(),
            Delivery::ThreadedNapi | Delivery::Rps => self.lab.queue_cpu(0).is_some(),
        }
    }

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
        let hosts = Hosts {
            lab: self.lab,
            interrupt: self.interrupt,
        };
        let taker = Taker::Program(Receivers {
            rx,
            cpus: rung.layout.applications.clone(),
            wait: Wait::Block(Duration::from_secs(1)),
            is_shared: matches!(rung.sockets, Sockets::Shared(_)),
        });
        let run = hosts.run(taker, tx, time, purpose)?;
        Ok(Sample::of(self.lab, self.delivery, rung, run))
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
                receivers[0].steer_by_cpu(&rung.steered_cpus())?;
            }
            Ok(receivers)
        })?;
        opened.context("cannot receive")
    }

    /// Opens the senders inside the sending host.
    fn open_tx(&self, rung: &Rung, purpose: Purpose<'_>) -> Result<Senders> {
        let cpus = rung.sender_cpus().map_err(anyhow::Error::msg)?;
        let open = |(thread, (target, cpu)): (usize, (&u8, usize))| {
            let feed = Feed {
                target: address::v4(*target).into(),
                source_port: rung.source_port(SOURCE_PORT, thread),
                flows: rung.flows,
                payload_bytes: PAYLOAD_BYTES,
                train: rung.sender.train().unwrap_or(1),
                batch: match purpose.stamped {
                    _ if rung.flows > 1 => FLOW_BATCH,
                    false => BATCH,
                    true => STAMPED_BATCH,
                },
            };
            Ok((
                udp::sender::open(self.lab, rung.sender.backend(), &feed)?,
                cpu,
            ))
        };
        let opened = rung.targets.iter().zip(cpus).enumerate().map(open);
        opened.collect()
    }
}
