//! The traffic that a fix is about: what a program's sockets lost of it, and what was not lost.

use crate::command::tune::traffic::counted;
use crate::program::lines::LOOK;
use crate::signal::{EndSignal, Interrupted};
use crate::udp::run::UdpRun;
use anyhow::{Result, ensure};
use mpps_host::check::{FixKind, Observed};
use mpps_host::setting::SocketSize;
use mpps_host::{Ledger, Loss, ProcStat, Scope, Snapshot, Station};
use mpps_os::CallResult;
use mpps_os::netlink::sock_diag;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

/// A measurement had an end.
#[derive(Debug, thiserror::Error)]
#[error("the program opened or closed sockets meanwhile")]
pub(super) struct SocketsChanged;

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FixTraffic {
    /// Datagrams that come.
    Datagrams,
    /// Connections that come.
    Connections,
    /// Datagrams that are sent.
    Sent,
    /// Datagrams on their way from an interface to any socket.
    Passing,
}

/// Facts of a kind.
struct TrafficRow {
    /// In front of a share that was lost.
    noun: &'static str,
    /// The drops of all sockets that have it, and how much waits in their queues, by inode number.
    sockets: fn() -> CallResult<BTreeMap<u32, [u32; 2]>>,
    /// Counters of the network namespace for what was not lost (net/ipv4/udp.c, net/ipv4/tcp_minisocks.c).
    read: &'static [&'static str],
    /// The same for what was lost, if sockets do not count it.
    lost: &'static [&'static str],
}

impl FixTraffic {
    /// The kind whose losses a change is to lessen.
    pub(super) fn of(kind: &FixKind) -> Self {
        match kind {
            FixKind::Size(SocketSize::AcceptQueue, ..) => Self::Connections,
            FixKind::Size(SocketSize::SendBuffer, ..) => Self::Sent,
            FixKind::Tune(..) => Self::Passing,
            _ => Self::Datagrams,
        }
    }

    fn row(self) -> TrafficRow {
        match self {
            Self::Datagrams => TrafficRow {
                noun: "",
                sockets: || {
                    let all = sock_diag::udp()?.into_iter();
                    Ok(all
                        .map(|one| (one.inode, [one.drops, one.queued_bytes]))
                        .collect())
                },
                read: &["Udp.InDatagrams", "Udp6.InDatagrams"],
                lost: &[],
            },
            Self::Connections => TrafficRow {
                noun: "connections ",
                sockets: || {
                    let all = sock_diag::listeners()?.into_iter();
                    Ok(all
                        .map(|one| (one.inode, [one.drops, one.waiting]))
                        .collect())
                },
                read: &["Tcp.PassiveOpens"],
                lost: &[],
            },
            Self::Passing => TrafficRow {
                noun: "of all datagrams ",
                sockets: || Ok(BTreeMap::new()),
                read: &[],
                lost: &[],
            },
            Self::Sent => TrafficRow {
                noun: "sending ",
                sockets: || {
                    let all = sock_diag::udp()?.into_iter();
                    Ok(all.map(|one| (one.inode, [0, one.unsent_bytes])).collect())
                },
                read: &["Udp.OutDatagrams", "Udp6.OutDatagrams"],
                lost: &["Udp.SndbufErrors", "Udp6.SndbufErrors"],
            },
        }
    }

    /// In front of a share that was lost.
    pub(super) fn noun(self) -> &'static str {
        self.row().noun
    }

    /// How much waits in the queue of each socket.
    pub(super) fn queues(self) -> CallResult<BTreeMap<u32, u32>> {
        let sockets = (self.row().sockets)()?.into_iter();
        Ok(sockets.map(|(inode, [_, waits])| (inode, waits)).collect())
    }

    /// The sockets in question, how many were lost, and how many came.
    pub(super) fn seen(
        self,
        seen: &Observed,
        interface: Option<&str>,
    ) -> (BTreeSet<u32>, [u64; 2]) {
        let read = seen.grown(self.row().read);
        let (inodes, lost): (BTreeSet<u32>, u64) = match self {
            Self::Datagrams | Self::Sent => (
                seen.sockets.iter().map(|one| one.entry.inode).collect(),
                match self {
                    Self::Sent => seen.grown(self.row().lost),
                    _ => seen.sockets.iter().map(|one| one.drops.grown()).sum(),
                },
            ),
            Self::Passing => {
                let run = interface.map(|interface| counted(&seen.delta, interface));
                let losses = run.map_or([0, 0], |run| lost(&run.ledger));
                return (BTreeSet::new(), losses);
            }
            Self::Connections => {
                let before = seen.before.listeners.iter();
                let before: BTreeMap<u32, u32> = before.map(|one| (one.inode, one.drops)).collect();
                let own = seen.listeners();
                let lost = own.iter().map(|one| {
                    let then = before.get(&one.inode).copied().unwrap_or(0);
                    u64::from(one.drops.wrapping_sub(then))
                });
                (own.iter().map(|one| one.inode).collect(), lost.sum())
            }
        };
        (inodes, [lost, lost + read])
    }

    /// One run: what these sockets lost, and what programs of the namespace read or accepted; or what was lost on
    /// the way from this interface.
    pub(super) fn measure(
        self,
        inodes: &BTreeSet<u32>,
        interface: Option<&str>,
        time: Duration,
        interrupt: &EndSignal,
    ) -> Result<UdpRun> {
        let row = self.row();
        let took = || {
            let mut sockets = (row.sockets)()?;
            sockets.retain(|inode, _| inodes.contains(inode));
            Ok::<_, anyhow::Error>((
                sockets,
                Snapshot::take(interface.as_slice())?,
                ProcStat::read()?,
            ))
        };
        let (then, before, ticks) = took()?;
        wait(time, interrupt)?;
        let (now, after, ticks_after) = took()?;
        ensure!(
            inodes.len() == now.len() && then.len() == now.len(),
            SocketsChanged
        );
        let each = now.values().zip(then.values());
        let dropped = each.map(|([now, _], [then, _])| u64::from(now.wrapping_sub(*then)));
        let delta = after.since(&before);
        let busy = ticks_after.busy_since(&ticks);
        if let Some(interface) = interface {
            let run = counted(&delta, interface);
            return Ok(UdpRun { busy, ..run });
        }
        let counted = |names: &[&str]| {
            let counted: i64 = names.iter().filter_map(|name| delta.snmp(name)).sum();
            u64::try_from(counted).unwrap_or(0)
        };
        let lost = dropped.sum::<u64>() + counted(row.lost);
        let read = counted(row.read);
        let mut ledger = Ledger::new(read + lost, read, 0);
        ledger.lose(Loss {
            station: Station::Socket,
            reason: "socket".to_owned(),
            count: lost,
            source: row.lost.first().unwrap_or(&"sk_drops").to_string(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: false,
        });
        let seconds = delta.duration_ns.max(1) as f64 / 1e9;
        Ok(UdpRun {
            mpps: read as f64 / seconds / 1e6,
            offered_mpps: (read + lost) as f64 / seconds / 1e6,
            ledger,
            busy,
            ..UdpRun::default()
        })
    }
}

/// How much was lost, and how much came.
pub(super) fn lost(ledger: &Ledger) -> [u64; 2] {
    let lost = ledger.losses.iter().map(|loss| loss.count);
    [lost.sum(), ledger.offered]
}

/// Waits, unless a signal comes.
pub(super) fn wait(time: Duration, interrupt: &EndSignal) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        ensure!(!interrupt.came(), Interrupted);
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
