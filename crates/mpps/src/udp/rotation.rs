//! Several senders taken in turn as one, so that one thread feeds several receive queues.

use anyhow::{Context, Result};
use mpps_io::{Frames, Sent, Tx, TxCaps, TxCounters};
use std::io;

/// Trains per turn. A ring holds 256 packets: longer turns would leave all queues but one without
/// traffic for longer than their rings last.
const TRAINS_PER_TURN: usize = 4;

/// Senders with one target each. Each send is the next one's.
#[derive(Debug)]
pub(crate) struct Rotation {
    senders: Vec<Box<dyn Tx>>,
    /// Whose turn it is.
    turn: usize,
    counters: TxCounters,
    caps: TxCaps,
}

impl Rotation {
    /// Over these senders, which are alike but for their targets.
    pub(crate) fn new(senders: Vec<Box<dyn Tx>>) -> Result<Self> {
        let caps = senders.first().context("no sender")?.caps().clone();
        Ok(Self {
            caps: TxCaps {
                batch: (caps.train * TRAINS_PER_TURN).min(caps.batch),
                ..caps
            },
            senders,
            turn: 0,
            counters: TxCounters::default(),
        })
    }
}

impl Tx for Rotation {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        self.senders[self.turn].frames(datagrams)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let sent = self.senders[self.turn].send(flow, datagrams);
        self.turn = (self.turn + 1) % self.senders.len();
        self.counters = sum(self.senders.iter().map(|sender| sender.counters()));
        sent
    }

    fn counters(&self) -> &TxCounters {
        &self.counters
    }

    fn caps(&self) -> &TxCaps {
        &self.caps
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a TxCounters>) -> TxCounters {
    all.fold(TxCounters::default(), |mut sum, one| {
        for (errno, count) in &one.refused {
            *sum.refused.entry(*errno).or_default() += count;
        }
        sum.accepted += one.accepted;
        sum.calls += one.calls;
        sum.blocked += one.blocked;
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_io::{TxConfig, backend};

    #[test]
    fn each_send_is_the_next_ones_and_the_counts_are_of_all() {
        let sinks: Vec<_> = (0..3)
            .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let open = |sink: &std::net::UdpSocket| {
            let config = TxConfig::new(sink.local_addr().unwrap());
            backend::find("sendmmsg").unwrap().open_tx(&config).unwrap()
        };
        let mut rotation = Rotation::new(sinks.iter().map(open).collect()).unwrap();
        let batch = rotation.caps().batch;
        assert_eq!(batch, TRAINS_PER_TURN);
        for _ in 0..6 {
            assert_eq!(rotation.send(0, batch).unwrap().accepted, batch as u64);
        }
        assert_eq!(rotation.counters().accepted, 6 * batch as u64);
        for sink in sinks {
            sink.set_nonblocking(true).unwrap();
            let count = std::iter::from_fn(|| sink.recv(&mut [0; 64]).ok()).count();
            assert_eq!(count, 2 * batch);
        }
    }

    #[test]
    fn nobody_is_no_sender() {
        assert!(Rotation::new(Vec::new()).is_err());
    }
}
