//! What checks look at.

use super::Evidence;
use crate::drop_probe::DropCount;
use crate::facts::{Busy, Facts, Process};
use crate::{CpuBusy, Delta, LinkCounters, ReasonCount};
use mpps_os::netlink::sock_diag::UdpEntry;

/// A host at two moments.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The first.
    pub before: &'a Facts,
    /// The second.
    pub after: &'a Facts,
    /// What both snapshots say together.
    pub delta: Delta,
    /// What the kernel dropped of UDP in this namespace meanwhile, by reason, and of `port` alone if
    /// one was asked for; none where it cannot be watched.
    pub drops: Option<Vec<ReasonCount>>,
    /// The UDP port in question; none for all.
    pub port: Option<u16>,
    /// The process in question, whose sockets are looked at; none for all.
    pub pid: Option<u32>,
}

/// A UDP socket that was there at the second moment.
#[derive(Debug)]
pub struct SeenSocket<'a> {
    /// The socket.
    pub entry: &'a UdpEntry,
    /// Its drops at both moments; a socket that is new had none.
    pub drops: Evidence,
    /// Who has it, as far as that may be seen; of several processes the busiest.
    pub owner: Option<&'a Process>,
    /// What that process was at the first moment, if it was there.
    pub earlier: Option<&'a Process>,
    /// What the threads of that process did.
    pub busy: Option<Busy>,
}

impl<'a> Seen<'a> {
    /// A host at two moments; `drops` are the counts of a probe at both, and the namespace's number.
    pub fn new(
        before: &'a Facts,
        after: &'a Facts,
        drops: Option<(&[DropCount], &[DropCount], u32)>,
        port: Option<u16>,
    ) -> Self {
        Self {
            before,
            after,
            delta: after.snapshot.since(&before.snapshot),
            drops: drops.map(|(then, now, netns)| DropCount::since(now, then, netns)),
            port,
            pid: None,
        }
    }

    /// The time between the two moments.
    pub fn seconds(&self) -> f64 {
        self.delta.duration_ns.max(1) as f64 / 1e9
    }

    /// The command that looks once more.
    pub fn again(&self) -> String {
        let mut command = "mpps doctor".to_owned();
        if let Some(port) = self.port {
            command.push_str(&format!(" --port {port}"));
        }
        if let Some(pid) = self.pid {
            command.push_str(&format!(" --pid {pid}"));
        }
        command
    }

    /// A protocol counter, where the kernel has it at both moments.
    pub fn counter(&self, name: &str) -> Option<Evidence> {
        let value = |facts: &Facts| facts.snapshot.snmp.value(name);
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

    /// What these counters grew by.
    pub fn grown(&self, names: &[&str]) -> u64 {
        Evidence::sum(&self.counters(names))
    }

    /// The counters of drivers for which `is_asked` says so, with their interface: `eth0 rx_missed`.
    pub fn driver(&self, is_asked: impl Fn(&str) -> bool) -> Vec<Evidence> {
        let links = self.after.snapshot.links.iter();
        let links = links.filter_map(|(name, now)| {
            let before = self.before.snapshot.links.get(name)?;
            Some((name, before, now))
        });
        let counters = links.flat_map(|(name, before, now)| {
            let both = now.driver.iter().filter(|(counter, _)| is_asked(counter));
            both.filter_map(move |(counter, now)| {
                let before = before.driver.get(counter)?;
                Some(Evidence::new(format!("{name} {counter}"), *before, *now))
            })
        });
        counters.collect()
    }

    /// The counters that every interface has, of all of them: `eth0 rx_missed_errors`.
    pub fn links(&self, counter: &str, value: fn(&LinkCounters<u64>) -> u64) -> Vec<Evidence> {
        let links = self.after.snapshot.links.iter();
        let both = links.filter_map(|(name, now)| {
            let before = self.before.snapshot.links.get(name)?;
            let (before, now) = (value(&before.counters), value(&now.counters));
            Some(Evidence::new(format!("{name} {counter}"), before, now))
        });
        both.collect()
    }

    /// What was dropped for this reason, if drops could be watched.
    pub fn reason(&self, name: &str) -> Option<Evidence> {
        let drops = self.drops.as_ref()?.iter();
        let count = drops
            .filter(|drop| drop.reason == name)
            .fold(0, |sum: u64, drop| sum.saturating_add(drop.datagrams));
        Some(Evidence::new(format!("drop reason {name}"), 0, count))
    }

    /// The sockets in question.
    pub fn sockets(&self) -> Vec<SeenSocket<'a>> {
        let asked = self.after.sockets.iter();
        let asked = asked.filter(|entry| self.port.is_none_or(|port| entry.local.port() == port));
        let has = |pid, inode| {
            let mut owners = self.after.owners.get(inode).into_iter().flatten();
            owners.any(|owner| owner.pid == pid)
        };
        let asked = asked.filter(|entry| self.pid.is_none_or(|pid| has(pid, &entry.inode)));
        asked.map(|entry| self.socket(entry)).collect()
    }

    fn socket(&self, entry: &'a UdpEntry) -> SeenSocket<'a> {
        let mut before = self.before.sockets.iter();
        let before = before.find(|before| before.inode == entry.inode);
        let drops = Evidence::new(
            format!(
                "drops of socket {} (sock_diag, inode {})",
                entry.local, entry.inode
            ),
            before.map_or(0, |before| u64::from(before.drops)),
            u64::from(entry.drops),
        );
        let time_ns = u64::try_from(self.delta.duration_ns).unwrap_or(0);
        let of = |facts: &'a Facts| facts.owners.get(&entry.inode).into_iter().flatten();
        let owners = of(self.after).map(|owner| {
            let earlier = of(self.before).find(|one| one.pid == owner.pid);
            let busy = earlier.map(|earlier| owner.busy_since(earlier, time_ns));
            (owner, earlier, busy)
        });
        // One that is stopped is the one to be told only if nobody else is there.
        let busiest = owners.max_by(|(a, _, ran_a), (b, _, ran_b)| {
            let ran = |busy: &Option<Busy>| busy.map_or(-1.0, |busy| busy.ran);
            b.stopped
                .cmp(&a.stopped)
                .then(ran(ran_a).total_cmp(&ran(ran_b)))
        });
        let (owner, earlier, busy) = match busiest {
            Some((owner, earlier, busy)) => (Some(owner), earlier, busy),
            None => (None, None, None),
        };
        SeenSocket {
            entry,
            drops,
            owner,
            earlier,
            busy,
        }
    }

    /// What waits in the buffers of all UDP sockets at the second moment, with the kernel's overhead.
    pub fn queued_bytes(&self) -> u64 {
        let sockets = self.after.sockets.iter();
        sockets.map(|socket| u64::from(socket.queued_bytes)).sum()
    }

    /// What each CPU did.
    pub fn cpus(&self) -> Vec<CpuBusy> {
        self.after.cpus.busy_since(&self.before.cpus)
    }
}

impl SeenSocket<'_> {
    /// `0.0.0.0:53 of unbound (pid 812)`.
    pub fn name(&self) -> String {
        match self.owner {
            Some(owner) => format!("{} of {} (pid {})", self.entry.local, owner.name, owner.pid),
            None => format!("{} of a process that is not seen", self.entry.local),
        }
    }
}
