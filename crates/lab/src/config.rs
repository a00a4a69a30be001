//! The configuration of a lab, and its limits.

use crate::{LabError, address};

/// The configuration of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabConfig {
    /// How many transmit and receive queues each link has, 1 to 4096.
    pub queues: u16,
    /// The CPU that serves each receive queue of the receiver, in the order of the queues. If
    /// empty, the scheduler chooses.
    pub queue_cpus: Vec<usize>,
    /// How packets get to that CPU.
    pub delivery: Delivery,
    /// The CPU that serves each receive queue of the sender, by one kernel thread per queue. With
    /// [`Delivery::Rps`], RPS does it. Answers then cost no CPU time of the receiver. Leave it
    /// empty for traffic in one direction: the sender then has no queues of its own.
    pub sender_queue_cpus: Vec<usize>,
    /// How many addresses the sender has in each family, 1 to 225. Many connections need many.
    pub sender_addresses: u8,
    /// Packets wait for room in the link's rings instead of being dropped (Linux 6.16). Up to 1000
    /// wait on each side, as in front of a network card. It suits TCP, but hides overload of UDP.
    pub back_pressure: bool,
    /// The largest IP packet in bytes, 1280 to 65535.
    pub mtu: u32,
}

impl Default for LabConfig {
    fn default() -> Self {
        Self {
            queues: 4,
            queue_cpus: Vec::new(),
            delivery: Delivery::default(),
            sender_queue_cpus: Vec::new(),
            sender_addresses: 1,
            back_pressure: false,
            mtu: 1500,
        }
    }
}

impl LabConfig {
    /// Refuses what no kernel can do.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if self.queues == 0 || self.queues > 4096 {
            return Err(LabError::Queues(self.queues));
        }
        for cpus in [&self.queue_cpus, &self.sender_queue_cpus] {
            if !cpus.is_empty() && cpus.len() != usize::from(self.queues) {
                return Err(LabError::QueueCpus {
                    cpus: cpus.len(),
                    queues: self.queues,
                });
            }
        }
        if address::sender(self.sender_addresses).is_none() {
            return Err(LabError::SenderAddresses(self.sender_addresses));
        }
        if !(1280..=65535).contains(&self.mtu) {
            return Err(LabError::Mtu(self.mtu));
        }
        Ok(())
    }
}

/// How a packet gets from the sender's CPU to the CPU of its receive queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    /// A kernel thread of its own polls each receive queue. As with a network card, packets wait in
    /// the queue's ring for the CPU that serves it.
    #[default]
    ThreadedNapi,
    /// The sender's CPU polls the ring in a soft interrupt, as soon as a packet is in it. No packet
    /// waits for a thread. The time counts as the sender's.
    SoftInterrupt,
    /// The sender's CPU polls the ring, too. It hands each packet on to the backlog of the queue's
    /// CPU (Receive Packet Steering). All queues of a CPU share its backlog, and queues 0 and 1
    /// share a CPU.
    Rps,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let good = LabConfig::default();
        assert!(good.check().is_ok());
        for queues in [0, 4097] {
            let config = LabConfig {
                queues,
                ..good.clone()
            };
            assert!(matches!(config.check(), Err(LabError::Queues(n)) if n == queues));
        }
        for mtu in [0, 1279, 65536] {
            let config = LabConfig {
                mtu,
                ..good.clone()
            };
            assert!(matches!(config.check(), Err(LabError::Mtu(n)) if n == mtu));
        }
        for sender_addresses in [0, 226] {
            let config = LabConfig {
                sender_addresses,
                ..good.clone()
            };
            assert!(matches!(config.check(), Err(LabError::SenderAddresses(_))));
        }
        let config = LabConfig {
            queue_cpus: vec![0; 3],
            ..good
        };
        assert!(matches!(
            config.check(),
            Err(LabError::QueueCpus { cpus: 3, queues: 4 })
        ));
    }
}
