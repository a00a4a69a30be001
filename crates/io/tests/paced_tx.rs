//! A sender that never sends more than the link of a lab holds.

use mpps_io::{Frames, Sent, Tx, TxCaps, TxCounters};
use mpps_lab::LabHost;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long packets may take from one end of a link to the other.
const TRAVEL_MAX: Duration = Duration::from_millis(500);

/// A sender that waits after each send until the link has carried it, so that nothing is lost there:
/// the queue of a veth holds 256 packets.
#[derive(Debug)]
pub(crate) struct PacedTx {
    tx: Box<dyn Tx>,
    /// The receiver's `/proc/net/dev`. Reading it takes no lock, and no thread on that host.
    links: File,
    interface: &'static str,
}

impl PacedTx {
    pub(crate) fn new(tx: Box<dyn Tx>, host: &LabHost) -> Self {
        let links = host.run(|| File::open("/proc/thread-self/net/dev"));
        Self {
            tx,
            links: links
                .expect("the host can be entered")
                .expect("/proc is mounted"),
            interface: host.interface(),
        }
    }

    /// Packets that came to the receiver's end of the link: the second column (proc(5)).
    fn arrived(&mut self) -> io::Result<u64> {
        let mut text = String::new();
        self.links.rewind()?;
        self.links.read_to_string(&mut text)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(name, _)| name.trim() == self.interface);
        let packets = line.and_then(|(_, counts)| counts.split_ascii_whitespace().nth(1));
        let packets = packets.ok_or(io::ErrorKind::NotFound)?;
        packets.parse().map_err(io::Error::other)
    }
}

impl Tx for PacedTx {
    fn frames(&mut self, datagrams: usize) -> Frames<'_> {
        self.tx.frames(datagrams)
    }

    fn readiness(&self, flow: usize) -> Option<BorrowedFd<'_>> {
        self.tx.readiness(flow)
    }

    fn send(&mut self, flow: usize, datagrams: usize) -> io::Result<Sent> {
        let before = self.arrived()?;
        let sent = self.tx.send(flow, datagrams)?;
        let deadline = Instant::now() + TRAVEL_MAX;
        while self.arrived()? < before + sent.accepted && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(50));
        }
        Ok(sent)
    }

    fn counters(&self) -> &TxCounters {
        self.tx.counters()
    }

    fn caps(&self) -> &TxCaps {
        self.tx.caps()
    }
}
