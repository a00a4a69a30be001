//! The counters of two network namespaces of one machine since a moment.

use crate::{Account, HostResult, Ledger, PacketRoute, Snapshot};
use mpps_os::namespace::NetNamespace;
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks at the counters.
const INTERVAL: Duration = Duration::from_millis(20);

/// Two network namespaces joined by a veth pair, with their counters when this was made. Only the
/// programs under test may send in them meanwhile.
///
/// The guide to the library has a test of a UDP server with it, `docs/library.md`.
#[derive(Debug)]
pub struct Between<'a> {
    ends: [PairEnd<'a>; 2],
    has_rings: bool,
    before: [Snapshot; 2],
}

/// A namespace, and its interface of the pair.
pub type PairEnd<'a> = (&'a NetNamespace, &'a str);

impl<'a> Between<'a> {
    /// Starts counting from `sender` to `receiver`. `has_rings` is true if NAPI polls the
    /// receiver's end. It does so with GRO since Linux 5.13, or with an XDP program
    /// (`veth_napi_enable`, drivers/net/veth.c).
    ///
    /// # Errors
    /// As [`Snapshot::take`].
    pub fn begin(sender: PairEnd<'a>, receiver: PairEnd<'a>, has_rings: bool) -> HostResult<Self> {
        let ends = [sender, receiver];
        let before = count(ends)?;
        Ok(Self {
            ends,
            has_rings,
            before,
        })
    }

    /// Shows where `offered` datagrams went that were sent since it began. While some are
    /// unaccounted for, it looks again, for at most `patience`. A datagram that a server has not
    /// read yet is in no counter.
    ///
    /// # Errors
    /// As [`Snapshot::take`].
    pub fn ledger(&self, offered: u64, patience: Duration) -> HostResult<Ledger> {
        // A time that the clock cannot hold has no end.
        let deadline = Instant::now().checked_add(patience);
        let mut before = None;
        let [(_, sender), (_, receiver)] = self.ends;
        let route = PacketRoute::veth(sender, receiver, self.has_rings);
        loop {
            let [sent, came] = count(self.ends)?;
            let (sent, came) = (sent.since(&self.before[0]), came.since(&self.before[1]));
            let ledger = Account::by_counters(offered, route, &sent, &came).ledger();
            // A packet between two counters looks like a loss, once.
            let is_final =
                ledger.balances() && (ledger.lost() == 0 || before.as_ref() == Some(&ledger));
            if is_final || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(ledger);
            }
            before = Some(ledger);
            thread::sleep(INTERVAL);
        }
    }
}

fn count(ends: [PairEnd<'_>; 2]) -> HostResult<[Snapshot; 2]> {
    let [sender, receiver] = ends.map(|(namespace, interface)| {
        let taken = namespace.run(|| Snapshot::take(&[interface]));
        taken
            .map_err(crate::HostError::from)
            .and_then(|taken| taken)
    });
    Ok([sender?, receiver?])
}
