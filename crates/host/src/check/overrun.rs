//! Sockets that dropped because their buffers were full, each with one cause.

use super::full_buffers::FullBuffers;
use super::reader::{FULL, Late, ahead, never_slept};
use super::{Evidence, Observed, SeenSocket};
use crate::facts::Quota;
use crate::{CpuBusy, ProcStat};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Below this share soft interrupts leave a program enough.
const SOFT_MIN: f64 = 0.2;
/// From this share on a thread may be one of several unequal ones.
const BUSY: f64 = 0.5;
/// Fewer ticks than a second has say little of shares.
const TICKS_MIN: u64 = 100;
/// Fewer drops than this say nothing of how flows are spread.
const DROPS_MIN: u64 = 100;

/// Why a buffer was not emptied in time, as seen outside of its reader.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cause {
    /// A CPU quota held its program back: what it did meanwhile.
    Quota(Quota),
    /// Its reader's CPU takes packets in, too.
    SharedCpu(CpuBusy),
    /// It is the only socket of its program, although this many of its threads are busy.
    SharedSocket(usize),
    /// It is of a group whose others lost nothing.
    Uneven,
    /// Nothing but the reader itself.
    Reader,
}

/// A socket that lost datagrams.
#[derive(Debug)]
pub(super) struct Overrun<'s, 'a> {
    pub(super) socket: &'s SeenSocket<'a>,
    /// How many a full buffer cost it.
    pub(super) lost: u64,
    /// Whether all its drops are of that kind, as far as is known.
    pub(super) is_sure: bool,
    pub(super) cause: Cause,
    /// Why its reader was late.
    pub(super) late: Late,
    /// How many sockets at its address lost nothing, which could have got its datagrams.
    pub(super) mates: usize,
}

/// The local address of a socket, and its interface.
type SocketPlace = (SocketAddr, u32);

/// All of them, in the order of the sockets.
pub(super) fn overruns<'s, 'a>(seen: &'s Observed<'a>) -> Vec<Overrun<'s, 'a>> {
    let is_lossy = |socket: &&SeenSocket| socket.drops.grown() > 0;
    let mut lossy = seen.sockets.iter().filter(is_lossy).peekable();
    if lossy.peek().is_none() {
        return Vec::new();
    }
    let full = FullBuffers::of(seen);
    let mut at = BTreeMap::new();
    for socket in &seen.sockets {
        *at.entry(place(socket)).or_default() += 1;
    }
    let mut groups: BTreeMap<_, Vec<&SeenSocket>> = BTreeMap::new();
    for socket in seen.sockets.iter().filter(|socket| may_share(socket)) {
        groups.entry(place(socket)).or_default().push(socket);
    }
    let groups = groups.into_iter().map(|(at, group)| {
        let mates = group.iter().filter(|one| one.drops.grown() == 0);
        let buffers = mates.map(|one| one.entry.buffer_bytes);
        let (mates, largest) = (buffers.clone().count(), buffers.max().unwrap_or(0));
        (at, (mates, largest, is_uneven(&group)))
    });
    let groups: BTreeMap<_, _> = groups.collect();
    let overruns = lossy.map(|socket| {
        let group = groups.get(&place(socket)).filter(|_| may_share(socket));
        let (mates, largest, is_uneven) = group.copied().unwrap_or_default();
        let late = Late::of(seen, socket, largest);
        let cause = match cause(seen, socket, late, &at) {
            Cause::Reader if is_uneven && may_be_flows(socket, late) => Cause::Uneven,
            cause => cause,
        };
        Overrun {
            socket,
            lost: full.lost(socket),
            is_sure: full.is_sure,
            cause,
            late,
            mates,
        }
    });
    overruns.filter(|overrun| overrun.lost > 0).collect()
}

/// Returns true if a reader may have got too many of the flows: it is busy, or had bursts. A program
/// with several threads, for several sockets, lacks a CPU for all of them.
fn may_be_flows(socket: &SeenSocket, late: Late) -> bool {
    match late {
        Late::Rate => socket.busy.is_some_and(|busy| busy.ready() >= BUSY),
        Late::NoCpu => socket.owner.is_some_and(|owner| owner.threads.len() > 1),
        _ => !late.is_own(),
    }
}

pub(super) fn place(socket: &SeenSocket) -> SocketPlace {
    (socket.entry.local, socket.entry.interface)
}

/// Returns true if it may be of a group that the kernel spreads flows over (`SO_REUSEPORT`). The
/// kernel does not show that option.
pub(super) fn may_share(socket: &SeenSocket) -> bool {
    socket.entry.remote.is_none() && !socket.entry.local.ip().is_multicast()
}

/// One lost at least twice the mean and another nothing.
fn is_uneven(group: &[&SeenSocket]) -> bool {
    let drops = || group.iter().map(|socket| socket.drops.grown());
    let sum = drops().fold(0, u64::saturating_add);
    let most = drops().max().unwrap_or(0);
    let twice_the_mean = most.saturating_mul(group.len() as u64) >= sum.saturating_mul(2);
    sum >= DROPS_MIN && twice_the_mean && drops().any(|drops| drops == 0)
}

fn cause(
    seen: &Observed,
    socket: &SeenSocket,
    late: Late,
    at: &BTreeMap<SocketPlace, usize>,
) -> Cause {
    match (quota(socket), shared_cpu(seen, socket)) {
        _ if matches!(late, Late::Stopped(_)) => Cause::Reader,
        (Some(grown), _) => Cause::Quota(grown),
        _ if late.is_idle() => Cause::Reader,
        // A program of a higher priority took more of it.
        (None, Some(cpu)) if is_behind(seen, socket, &cpu) => Cause::Reader,
        (None, Some(cpu)) => Cause::SharedCpu(cpu),
        (None, None) => shared_socket(socket, at).map_or(Cause::Reader, Cause::SharedSocket),
    }
}

fn is_behind(seen: &Observed, socket: &SeenSocket, cpu: &CpuBusy) -> bool {
    let own = socket.owner.map_or(0, |owner| owner.pid);
    socket
        .busy
        .is_some_and(|busy| ahead(seen, &busy, own) > cpu.softirq)
}

/// How many threads of its program are busy, if the busiest always had work, and no other socket takes
/// what comes there.
fn shared_socket(socket: &SeenSocket, at: &BTreeMap<SocketPlace, usize>) -> Option<usize> {
    let busy = socket.busy.filter(never_slept)?;
    let is_alone = at.get(&place(socket)) == Some(&1);
    (busy.threads > 1 && is_alone).then_some(busy.threads)
}

/// The worst of the quotas that it was under at both moments.
fn quota(socket: &SeenSocket) -> Option<Quota> {
    let (before, now) = (&socket.earlier?.quotas, &socket.owner?.quotas);
    let was_there = |one: &&Quota| before.iter().any(|earlier| earlier.group == one.group);
    let both: Vec<Quota> = now.iter().filter(was_there).cloned().collect();
    Quota::worst_between(before, &both).filter(Quota::is_limit)
}

fn shared_cpu(seen: &Observed, socket: &SeenSocket) -> Option<CpuBusy> {
    let cpu = socket.busy?.cpu?;
    let shares = seen.cpus.iter().find(|one| one.cpu == cpu)?;
    let is_shared = shares.busy >= FULL && shares.softirq >= SOFT_MIN;
    (is_shared && shares.ticks >= TICKS_MIN).then_some(*shares)
}

/// A CPU's time in soft interrupts at both moments.
pub(super) fn soft_interrupts(seen: &Observed, cpu: usize) -> Evidence {
    let ticks = |stat: &ProcStat| stat.cpus.get(&cpu).map_or(0, |ticks| ticks.softirq);
    Evidence::new(
        format!("soft interrupts of CPU {cpu} (/proc/stat, ticks)"),
        ticks(&seen.before.cpus),
        ticks(&seen.after.cpus),
    )
}
