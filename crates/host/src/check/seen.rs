//! The input of the checks: a host at two moments.

use super::Evidence;
use super::drop_reasons::{self, Fate};
use crate::counters::driver_counters::{self, Meaning, VirtualLoss};
use crate::counters::drop_probe::DropCount;
use crate::facts::{Busy, Observation, Process, QueueCourse, is_full};
use crate::{CpuBusy, Delta, LinkSnapshot, ReasonCount, Snmp};
use mpps_os::netlink::sock_diag::{ListeningSocket, UdpEntry};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Drivers of interfaces that count again what others of the namespace have counted.
const AGGREGATES: [&str; 2] = ["bonding", "team"];

/// A datagram that waits is charged more than this, in bytes (`SKB_TRUESIZE` in linux/skbuff.h).
pub(super) const LEAST_CHARGE: u64 = 512;

/// The end of the name of a counter that is what a sum has beyond its parts.
const BEYOND: &str = " beyond its parts";
/// The parts of `InErrors` (net/ipv4/udp.c).
const UDP_ERRORS: [&str; 3] = ["RcvbufErrors", "MemErrors", "InCsumErrors"];

/// True if packets with this reason were on their way out. Forwarded packets have such reasons too,
/// and have counters of their own.
fn is_outward(reason: &str) -> bool {
    *drop_reasons::fate(reason) == Fate::Outward
}

/// The request: the port or process to look at.
#[derive(Debug, Clone, Default)]
pub struct DoctorRequest {
    /// The UDP port in question; none for all.
    pub port: Option<u16>,
    /// The process in question, whose sockets are looked at; none for all.
    pub pid: Option<u32>,
    /// Its main process and its children, if the process itself is a thread or has no UDP socket.
    pub family: Vec<u32>,
    /// The processes that have the port in another network namespace, if none has it here, in words.
    pub elsewhere: Option<String>,
    /// Why the kernel's drop reasons are not seen, and what helps; none if they are.
    pub no_reasons: Option<String>,
    /// The command that looks once more.
    pub again: String,
}

/// A host at two moments.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The first.
    pub before: &'a Observation,
    /// The second.
    pub after: &'a Observation,
    /// The request.
    pub asked: DoctorRequest,
    /// The difference of both snapshots.
    pub delta: Delta,
    /// UDP packets of this namespace that the kernel dropped on their way in, by reason. If a port
    /// was asked for, only packets of that port. None if drops cannot be watched.
    pub drops: Option<Vec<ReasonCount>>,
    /// The same on its way out, sent by sockets of this namespace.
    pub(super) drops_out: Vec<ReasonCount>,
    /// The same that no socket here sent: forwarded, of a tunnel, or at the queue of an ifb.
    pub(super) drops_forwarded: Vec<ReasonCount>,
    /// The same of sockets that were closed, in any namespace.
    pub(super) drops_closed: Vec<ReasonCount>,
    /// The same of all that [`Self::drops`] has not: other protocols, and other ports.
    pub(super) other_drops: Option<Vec<ReasonCount>>,
    /// The drops of all packets in other namespaces; none if drops are not watched.
    pub(super) drops_elsewhere: Vec<ReasonCount>,
    /// The drops of all packets that no longer know their namespace, as fragments that waited.
    pub(super) drops_unknown: Vec<ReasonCount>,
    /// The sockets in question.
    pub sockets: Vec<SeenSocket<'a>>,
    /// The load of each CPU.
    pub cpus: Vec<CpuBusy>,
}

/// A UDP socket that was there at the second moment.
#[derive(Debug)]
pub struct SeenSocket<'a> {
    /// The socket.
    pub entry: &'a UdpEntry,
    /// Its drops at both moments; a socket that is new had none.
    pub drops: Evidence,
    /// It was half full or more at the first moment.
    pub(super) was_full: bool,
    /// Its queue in between, if that was looked at.
    pub(super) course: Option<QueueCourse>,
    /// All visible processes that have the socket, with the activity of their threads.
    pub(super) holders: Vec<(&'a Process, Option<Busy>)>,
    /// The process that has the socket, if it is visible. Of several processes it is the busiest.
    pub owner: Option<&'a Process>,
    /// That process at the first moment, if it was there.
    pub earlier: Option<&'a Process>,
    /// The activity of that process's threads.
    pub busy: Option<Busy>,
}

impl<'a> Observed<'a> {
    /// A host at two moments; `drops` are the counts of a probe at both, and the namespace's number.
    pub fn new(
        before: &'a Observation,
        after: &'a Observation,
        drops: Option<(&[DropCount], &[DropCount], u32)>,
        asked: DoctorRequest,
    ) -> Self {
        let of = |facts: &'a Observation| {
            let entries = facts.sockets.iter().map(|entry| (entry.inode, entry));
            entries.collect::<BTreeMap<u32, &UdpEntry>>()
        };
        let earlier = of(before);
        // The kernel lists a socket twice where others come and go meanwhile.
        let now = of(after);
        let now = after.sockets.iter().filter(|entry| {
            now.get(&entry.inode)
                .is_some_and(|one| std::ptr::eq(*one, *entry))
        });
        let is_asked = |entry: &&UdpEntry| {
            let has = |asked_pid| {
                let mut pids = after.owners.get(&entry.inode).into_iter().flatten();
                pids.any(|pid| *pid == asked_pid || asked.family.contains(pid))
            };
            asked.port.is_none_or(|port| entry.local.port() == port) && asked.pid.is_none_or(has)
        };
        let sockets = now.filter(is_asked);
        let sockets = sockets.map(|entry| {
            // Where none was listed, none is new.
            let new = match before.are_sockets_unknown {
                true => entry.drops,
                false => 0,
            };
            let drops = earlier.get(&entry.inode).map_or(new, |before| before.drops);
            let was_full = earlier.get(&entry.inode).is_some_and(|one| is_full(one));
            SeenSocket {
                was_full,
                ..SeenSocket::new(entry, drops, before, after)
            }
        });
        let [mut ours, mut others, mut out, mut closed] = [const { Vec::new() }; 4];
        let [mut drops_elsewhere, mut drops_unknown] = [const { Vec::new() }; 2];
        if let Some((then, now, netns)) = drops {
            ours = DropCount::since(now, then, netns);
            others = DropCount::others_since(now, then, netns);
            out = DropCount::sent_since(now, then, netns);
            closed = DropCount::closed_since(now, then);
            drops_elsewhere = DropCount::elsewhere_since(now, then, netns);
            drops_unknown = DropCount::unknown_since(now, then);
            for all in [&mut ours, &mut others, &mut out] {
                drop_reasons::refine(all);
            }
        }
        out.retain(|drop| *drop_reasons::fate(&drop.reason) != Fate::Harmless);
        let forwarded = ours.extract_if(.., |drop| is_outward(&drop.reason));
        let forwarded = forwarded.collect();
        others.retain(|drop| !is_outward(&drop.reason));
        Self {
            sockets: sockets.collect(),
            delta: after.snapshot.since(&before.snapshot),
            drops: drops.map(|_| ours),
            other_drops: drops.map(|_| others),
            drops_elsewhere,
            drops_unknown,
            drops_out: out,
            drops_forwarded: forwarded,
            drops_closed: closed,
            cpus: after.cpus.busy_since(&before.cpus),
            before,
            after,
            asked,
        }
    }

    /// The listening TCP sockets in question.
    pub fn listeners(&self) -> Vec<&'a ListeningSocket> {
        let DoctorRequest {
            port, pid, family, ..
        } = &self.asked;
        let is_asked = |one: &&ListeningSocket| {
            let mut pids = self.after.owners.get(&one.inode).into_iter().flatten();
            port.is_none_or(|port| one.local.port() == port)
                && pid.is_none_or(|pid| pids.any(|own| *own == pid || family.contains(own)))
        };
        let listeners: &'a [ListeningSocket] = &self.after.listeners;
        listeners.iter().filter(is_asked).collect()
    }

    /// The time between the two moments.
    pub fn seconds(&self) -> f64 {
        self.delta.duration_ns.max(1) as f64 / 1e9
    }

    /// A protocol counter, where the kernel has it at both moments.
    pub fn counter(&self, name: &str) -> Option<Evidence> {
        let value = |facts: &Observation| match name.strip_suffix(BEYOND) {
            Some(all) => beyond_parts(&facts.snapshot.snmp, all),
            None => facts.snapshot.snmp.value(name),
        };
        Some(Evidence {
            source: name.to_owned(),
            before: value(self.before)?,
            after: value(self.after)?,
        })
    }

    /// Those of these counters that the kernel has.
    pub fn counters(&self, names: &[&str]) -> Vec<Evidence> {
        names.iter().filter_map(|name| self.counter(name)).collect()
    }

    /// The total growth of these counters.
    pub fn grown(&self, names: &[&str]) -> u64 {
        Evidence::sum(&self.counters(names))
    }

    /// The counters of an interface's driver that `is_asked` accepts. Their names include the
    /// interface: `eth0 rx_missed`.
    pub fn driver(&self, interface: &str, is_asked: impl Fn(&str) -> bool) -> Vec<Evidence> {
        let Some((before, now)) = self.both(interface) else {
            return Vec::new();
        };
        let asked = now.driver.iter().filter(|(counter, _)| is_asked(counter));
        let asked = asked.filter_map(|(counter, now)| {
            let before = before.driver.get(counter)?;
            Some(Evidence::new(
                format!("{interface} {counter}"),
                *before,
                *now,
            ))
        });
        asked.collect()
    }

    /// The name of the interface with this number.
    pub(crate) fn interface_name(&self, index: u32) -> Option<&'a str> {
        let links: &'a [mpps_os::netlink::link::NetlinkLink] = &self.after.links;
        let link = links.iter().find(|link| link.index == index);
        link.map(|link| &*link.name)
    }

    /// The interfaces that were looked at.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &'a str> {
        let links: &'a BTreeMap<String, LinkSnapshot> = &self.after.snapshot.links;
        links.keys().map(String::as_str)
    }

    /// Those of them that counted something meanwhile: of a thousand interfaces hardly one does.
    pub(crate) fn counting_interfaces(&self) -> impl Iterator<Item = &'a str> {
        self.interfaces().filter(|name| {
            let both = self.both(name);
            both.is_some_and(|(before, now)| {
                before.counters != now.counters || before.driver != now.driver
            })
        })
    }

    /// The counters with this meaning of all those interfaces' drivers, which count different packets.
    pub(crate) fn losses(&self, meaning: Meaning) -> Vec<Evidence> {
        let names = self.counting_interfaces();
        names
            .flat_map(|name| self.losses_of(name, meaning))
            .collect()
    }

    /// The same of one interface.
    pub(crate) fn losses_of(&self, interface: &str, meaning: Meaning) -> Vec<Evidence> {
        let Some((_, now)) = self.both(interface) else {
            return Vec::new();
        };
        let names = now.driver.keys().map(String::as_str);
        let names = driver_counters::of(self.driver_of(interface), meaning, names);
        self.driver(interface, |name| names.contains(&name))
    }

    /// The driver of an interface, or the kind of a virtual device; empty if neither is known.
    pub(crate) fn driver_of(&self, interface: &str) -> &str {
        let kind = || Some(&*self.after.snapshot.links.get(interface)?.driver_name);
        let card = self.after.cards.get(interface);
        card.map_or_else(|| kind().unwrap_or(""), |card| &*card.driver)
    }

    /// True if an interface's error counters are those of a virtual device, and not of a cable or a ring.
    pub(crate) fn is_virtual(&self, interface: &str) -> bool {
        driver_counters::is_virtual(self.driver_of(interface))
    }

    /// The losses of a virtual device, by cause.
    pub(crate) fn virtual_losses(
        &self,
        interface: &'a str,
    ) -> impl Iterator<Item = (&'static VirtualLoss, Evidence)> {
        let both = self.both(interface);
        let losses = driver_counters::of_virtual(self.driver_of(interface));
        losses.filter_map(move |loss| {
            let value = |link: &LinkSnapshot| match loss.counter.strip_suffix(BEYOND) {
                Some(_) => Some(link.counters.rx_errors_beyond_parts()),
                None => link.counters.value(loss.counter),
            };
            let (before, now) = both?;
            let source = format!("{interface} {}", loss.counter);
            Some((loss, Evidence::new(source, value(before)?, value(now)?)))
        })
    }

    /// A counter that every interface has, of one: `eth0 rx_missed_errors`.
    pub(crate) fn link(&self, interface: &str, counter: &str) -> Option<Evidence> {
        let (before, now) = self.both(interface)?;
        let [before, now] = [before, now].map(|link| link.counters.value(counter));
        let source = format!("{interface} {counter}");
        Some(Evidence::new(source, before?, now?))
    }

    /// An interface at both moments. None if another interface has taken its name meanwhile. None
    /// for a bond, because it adds up the counters of others.
    fn both(&self, interface: &str) -> Option<(&LinkSnapshot, &LinkSnapshot)> {
        let of = |facts: &'a Observation| facts.snapshot.links.get(interface);
        let (before, now) = (of(self.before)?, of(self.after)?);
        let card = self.after.cards.get(interface);
        let adds_up = card.is_some_and(|card| AGGREGATES.contains(&&*card.driver));
        (before.index == now.index && !adds_up).then_some((before, now))
    }

    /// How to see the kernel's drop reasons, in front of another remedy; empty if they are seen.
    pub(super) fn reasons_hint(&self) -> String {
        match (&self.drops, &self.asked.no_reasons) {
            (Some(_), _) => String::new(),
            (None, Some(remedy)) => {
                format!("mpps doctor reads the kernel's drop reasons, if you {remedy}; ")
            }
            (None, None) => "as root, mpps doctor reads the kernel's drop reasons; ".to_owned(),
        }
    }

    /// Where a rule of NAT sends datagrams for the port in question, by a tracked flow; none if a socket
    /// has the port.
    pub(crate) fn translated(&self) -> Option<SocketAddr> {
        let port = self.asked.port?;
        let mut sockets = self.after.sockets.iter();
        if sockets.any(|one| one.local.port() == port) {
            return None;
        }
        let mut flows = self.after.packet_filter.flows.iter();
        let flow = flows.find(|flow| flow.to.port() == port && flow.is_translated())?;
        Some(flow.answers)
    }

    /// The drops for this reason, if drops could be watched.
    pub fn reason(&self, name: &str) -> Option<Evidence> {
        let count = datagrams(self.drops.as_ref()?, name);
        Some(Evidence::new(
            format!("drop reason {}", drop_reasons::words(name)),
            0,
            count,
        ))
    }

    /// The same without the parts of a reason that have names of their own.
    pub(super) fn exact(&self, name: &str) -> Option<Evidence> {
        let drops = self.drops.iter().flatten();
        let drops = drops.filter(|drop| drop.reason == name);
        let count = drops.fold(0, |sum: u64, drop| sum.saturating_add(drop.datagrams));
        Some(Evidence::new(
            format!("drop reason {}", drop_reasons::words(name)),
            0,
            count,
        ))
        .filter(|_| self.drops.is_some())
    }

    /// How many buffers were dropped for this reason: a train is one.
    pub(super) fn buffers(&self, reason: &str) -> u64 {
        let drops = self.drops.iter().flatten();
        let drops = drops.filter(|drop| is_of(drop, reason));
        drops.fold(0, |sum, drop| sum.saturating_add(drop.buffers))
    }

    /// How many buffers were dropped for this reason in other namespaces.
    pub(super) fn elsewhere(&self, reason: &str) -> u64 {
        let drops = self.drops_elsewhere.iter();
        let drops = drops.filter(|drop| drop.reason == reason);
        drops.fold(0, |sum, drop| sum.saturating_add(drop.buffers))
    }

    /// How many packets that [`Self::drops`] has not were dropped for any reason.
    pub(super) fn all_others(&self) -> u64 {
        let drops = self.other_drops.iter().flatten();
        drops.fold(0, |sum, drop| sum.saturating_add(drop.datagrams))
    }

    /// How many other packets were dropped for this reason; none where that cannot be watched.
    pub(super) fn others(&self, reason: &str) -> u64 {
        let drops = self.other_drops.as_ref();
        drops.map_or(0, |drops| datagrams(drops, reason))
    }

    /// The bytes in the buffers of all UDP sockets, with the kernel's own overhead. It is the
    /// larger value of both moments.
    pub fn queued_bytes(&self) -> u64 {
        let queued = |facts: &Observation| -> u64 {
            let sockets = facts.sockets.iter();
            sockets.map(|socket| u64::from(socket.queued_bytes)).sum()
        };
        queued(self.before).max(queued(self.after))
    }

    /// The largest number of datagrams that can wait in these buffers.
    pub(super) fn waiting_max(&self) -> u64 {
        self.queued_bytes().div_ceil(LEAST_CHARGE)
    }

    /// The largest number of datagrams that wait at one of the moments and not at the other, of each
    /// socket.
    pub(super) fn waiting_change(&self) -> u64 {
        let of = |facts: &Observation| -> BTreeMap<u32, u32> {
            let sockets = facts.sockets.iter();
            sockets.map(|one| (one.inode, one.queued_bytes)).collect()
        };
        let (mut then, now) = (of(self.before), of(self.after));
        let now = now.into_iter();
        let changes = now.map(|(inode, bytes)| bytes.abs_diff(then.remove(&inode).unwrap_or(0)));
        let changes: u64 = changes.map(u64::from).sum();
        let closed: u64 = then.into_values().map(u64::from).sum();
        changes.saturating_add(closed).div_ceil(LEAST_CHARGE)
    }

    /// The command that raises a limit to at least `wanted`. If the limit is that high already, it
    /// says that the program has to ask.
    pub fn raise(&self, setting: &str, wanted: u64) -> String {
        match self.after.settings.get(setting) {
            Some(&now) if now >= wanted => {
                format!("({setting} is {now} already: it is for the program to ask for it)")
            }
            Some(now) => format!("sysctl -w {setting}={wanted} (it is {now})"),
            None => format!("{setting}, which this namespace does not show, at {wanted} or more"),
        }
    }
}

/// The part of a UDP sum that none of its parts counts.
fn beyond_parts(snmp: &Snmp, all: &str) -> Option<i64> {
    let (protocol, _) = all.split_once('.')?;
    let parts = UDP_ERRORS.iter();
    let parts = parts.filter_map(|part| snmp.value(&format!("{protocol}.{part}")));
    let rest = parts.fold(snmp.value(all)?, i64::saturating_sub);
    Some(rest.max(0))
}

/// True if a drop is of this reason; `UDP_CSUM` includes `UDP_CSUM+zero`.
fn is_of(drop: &ReasonCount, reason: &str) -> bool {
    let rest = drop.reason.strip_prefix(reason);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(drop_reasons::MARK))
}

fn datagrams(drops: &[ReasonCount], reason: &str) -> u64 {
    let drops = drops.iter().filter(|drop| is_of(drop, reason));
    drops.fold(0, |sum, drop| sum.saturating_add(drop.datagrams))
}

/// True if the socket takes all that comes to its port, of its address families.
pub(super) fn takes_all(entry: &UdpEntry) -> bool {
    entry.local.ip().is_unspecified() && entry.remote.is_none() && entry.interface == 0
}

impl<'a> SeenSocket<'a> {
    fn new(
        entry: &'a UdpEntry,
        drops: u32,
        before: &'a Observation,
        after: &'a Observation,
    ) -> Self {
        let (local, inode) = (entry.local, entry.inode);
        let source = format!("drops of socket {local} (sock_diag, inode {inode})");
        let pids = after.owners.get(&inode).into_iter().flatten();
        let holders = pids.filter_map(|pid| {
            let owner = after.processes.get(pid)?;
            let earlier = before.processes.get(pid);
            Some((owner, earlier.and_then(|earlier| owner.busy_since(earlier))))
        });
        let holders: Vec<(&Process, Option<Busy>)> = holders.collect();
        // A stopped, frozen or activating process is reported only if no other process
        // has the socket.
        let busiest = holders.iter().max_by(|(a, busy_a), (b, busy_b)| {
            let ready = |busy: &Option<Busy>| busy.map_or(-1.0, |busy| busy.ready());
            let order = ready(busy_a).total_cmp(&ready(busy_b));
            let halted = b.is_halted().cmp(&a.is_halted());
            let activator = b.is_activator().cmp(&a.is_activator());
            halted.then(activator).then(order)
        });
        let (owner, busy) = busiest.map_or((None, None), |&(owner, busy)| (Some(owner), busy));
        let earlier = owner.and_then(|owner| before.processes.get(&owner.pid));
        // 32 bits: a counter that wrapped went on.
        let grown = entry.drops.wrapping_sub(drops);
        let dropped = u64::from(drops) + u64::from(grown);
        Self {
            entry,
            drops: Evidence::new(source, drops.into(), dropped),
            was_full: false,
            course: after.queues.get(&inode).copied(),
            holders,
            owner,
            earlier,
            busy,
        }
    }

    /// `0.0.0.0:53 of unbound (pid 812)`, with its partner if it is connected.
    pub fn name(&self) -> String {
        let UdpEntry { local, remote, .. } = self.entry;
        let local = match remote {
            Some(remote) => format!("{local} (connected to {remote})"),
            None => local.to_string(),
        };
        match self.owner {
            Some(Process { name, pid, .. }) => format!("{local} of {name} (pid {pid})"),
            None => format!("{local} of a process that is not seen"),
        }
    }

    /// True if its buffer is still half full or more.
    pub fn is_full(&self) -> bool {
        is_full(self.entry)
    }
}
