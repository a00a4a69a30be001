//! Drops of sockets, and their causes.

use super::{Account, sum, total, udp};
use crate::counters::drop_probe::SOCKET_REASONS;
use crate::ledger::loss::{BUFFER_FULL, REFUSED_BY_UDP};
use crate::{Delta, Ledger, Loss, ReasonCount, Scope};
use std::ops::Range;

impl Account<'_> {
    /// Datagrams that did not fit into the sockets' buffers, and those that the sockets refused.
    pub(super) fn enter_socket(&self, ledger: &mut Ledger) {
        let (drops, counter, scope) = self.at_sockets();
        let Range { start, end: full } = match self.socket_drops {
            Some(drops) => full_buffers(drops, self.receiver),
            None => drops..drops,
        };
        self.enter_refused(ledger, drops - full);
        if start < full {
            ledger.note(format!(
                "UDP of the receiver also refused datagrams: {} of the {full} that found a full buffer may be \
                 such ones",
                full - start
            ));
        }
        let mut row = Loss {
            scope,
            ..BUFFER_FULL.row(full, counter)
        };
        match &self.reasons {
            Some(_) if self.gro => {
                let seen = self.dropped_by_sockets();
                // Now and then the probe misses a train that the socket has counted. No counter shows
                // how long that one was.
                row.exact = seen.buffers == full;
                row.count = seen.datagrams;
                row.source = "drop reason SOCKET_RCVBUFF, segments of each train".to_owned();
                row.scope = Scope::Namespace;
            }
            _ if self.gro => {
                row.exact = false;
                row.source += ", in trains";
            }
            _ if full < drops => {
                row.source = "receiver Udp.RcvbufErrors".to_owned();
                row.scope = Scope::Namespace;
                ledger.note(
                    "the socket's own drops also have what it refused, bad checksums and memory pressure, so \
                     the full buffer was counted by the namespace's RcvbufErrors",
                );
            }
            _ => {}
        }
        ledger.lose(row);
    }

    /// Enters refusals of UDP without a counter of their own; `drops` are those of the sockets that found no full
    /// buffer. The rest may be other programs' datagrams.
    fn enter_refused(&self, ledger: &mut Ledger, drops: u64) {
        let [memory, checksum, refused] = refusals(self.receiver);
        let (ours, source) = match self.socket_drops {
            Some(_) => (
                drops.saturating_sub(total([memory, checksum])).min(refused),
                "SO_MEMINFO drops less receiver Udp.RcvbufErrors, MemErrors, InCsumErrors",
            ),
            None => (
                refused,
                "receiver Udp.InErrors less RcvbufErrors, MemErrors, InCsumErrors",
            ),
        };
        ledger.lose(Loss {
            by_difference: true,
            exact: !self.gro,
            ..REFUSED_BY_UDP.row(ours, source)
        });
        // The socket that holds a ring's port refuses all, and the ring's own rows have that.
        let at_port = self.ring_drops.iter();
        let at_port = at_port.filter(|drop| drop.source.starts_with("SO_MEMINFO"));
        let told = total(at_port.map(|drop| drop.count).chain([ours]));
        if refused > told {
            ledger.note(format!(
                "UDP of the receiver refused {} other datagrams (Udp.InErrors), of this run or not: such as for \
                 a wrong length in the UDP header, a socket filter, a BPF program of a cgroup or an IPsec policy",
                refused - told
            ));
        }
    }

    /// Drops of the sockets in datagrams or trains, their counter, and its scope.
    pub(super) fn at_sockets(&self) -> (u64, &'static str, Scope) {
        match self.socket_drops {
            Some(drops) => (drops, "SO_MEMINFO drops", Scope::Socket),
            None => (
                udp(self.receiver, "RcvbufErrors"),
                "receiver Udp.RcvbufErrors",
                Scope::Namespace,
            ),
        }
    }

    pub(super) fn dropped_by_sockets(&self) -> ReasonCount {
        // Drops by memory pressure have a row of its own where the kernel counted it.
        let memory = udp(self.receiver, "MemErrors") > 0;
        let ours = |one: &&ReasonCount| match &*one.reason {
            "PROTO_MEM" => !memory,
            name => SOCKET_REASONS.contains(&name),
        };
        sum(self.reasons.iter().flatten().filter(ours))
    }
}

/// How many of a socket's drops a full buffer cost, at least and at most; the end is what the namespace
/// counts, if that can be. A socket counts all its drops in one (`SO_MEMINFO`): a filter, a policy, a bad
/// checksum and memory pressure, too.
pub fn full_buffers(drops: u64, receiver: Option<&Delta>) -> Range<u64> {
    let least = drops.saturating_sub(total(refusals(receiver)));
    least..udp(receiver, "RcvbufErrors").clamp(least, drops)
}

/// Datagrams that UDP refused for other causes than a full buffer: for want of memory, for a bad checksum,
/// and those of which only `InErrors` knows.
fn refusals(receiver: Option<&Delta>) -> [u64; 3] {
    let [memory, checksum, full, all] =
        ["MemErrors", "InCsumErrors", "RcvbufErrors", "InErrors"].map(|name| udp(receiver, name));
    let known = total([memory, checksum, full]);
    [memory, checksum, all.saturating_sub(known)]
}
