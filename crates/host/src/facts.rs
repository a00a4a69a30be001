//! What a host that runs somebody else's program says of itself at one moment: its counters, its UDP
//! sockets and who reads them, its CPUs.

mod card;
mod conntrack;
mod process;

pub use card::Card;
pub(crate) use card::virtio_feature;
pub use conntrack::Conntrack;
pub use mpps_os::interrupts::Interrupt;
pub use process::{Busy, Process, Quota, ThreadTime};

use crate::root::Root;
use crate::{CpuList, ProcStat, Result, Snapshot, Topology, sysctl};
use mpps_os::netlink::link::Link;
use mpps_os::netlink::sock_diag::{self, Listener, UdpEntry, XdpEntry};
use mpps_os::sysfs::Sysfs;
use process::Owners;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The settings whose value decides what mends a loss.
const SETTINGS: [&str; 7] = [
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.tcp_max_syn_backlog",
];

/// One moment. Two of them are what [`crate::check::Seen`] looks at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The counters.
    pub snapshot: Snapshot,
    /// The interfaces of the namespace, also those whose counters were not asked for.
    pub links: Vec<Link>,
    /// The UDP sockets of the namespace; none where the kernel does not list them.
    pub sockets: Vec<UdpEntry>,
    /// They could not be listed.
    pub are_sockets_unknown: bool,
    /// Its TCP sockets that listen.
    pub listeners: Vec<Listener>,
    /// Its sockets of AF_XDP; none where the kernel does not list them.
    pub xdp_sockets: Vec<XdpEntry>,
    /// Who has these sockets, by the sockets' inode numbers: a server that forks has one in several
    /// processes, and one of which this user may not see the owner in none.
    pub owners: BTreeMap<u32, Vec<u32>>,
    /// These processes.
    pub processes: BTreeMap<u32, Process>,
    /// Where the CPUs spent their time.
    pub cpus: ProcStat,
    /// The size of a CPU's last cache, in bytes, where the machine tells it.
    pub cache_bytes: Option<u64>,
    /// How these are joined.
    pub topology: Topology,
    /// What is behind the interfaces.
    pub cards: BTreeMap<String, Card>,
    /// Which CPUs each receive queue hands its packets to (RPS), by interface; empty where all CPUs are
    /// of one node, or this user may not see it.
    pub steering: BTreeMap<String, Vec<CpuList>>,
    /// The ports that programs get which ask for none (`net.ipv4.ip_local_port_range`).
    pub client_ports: Option<RangeInclusive<u16>>,
    /// The connection tracker; none where the kernel has none.
    pub conntrack: Option<Conntrack>,
    /// What some settings are that limit how much may wait.
    pub settings: BTreeMap<&'static str, u64>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

/// Which of several moments.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// The first: counters are read last.
    First,
    /// A later one: counters are read first, so that the time between two is the same for all of them,
    /// however long it takes to look for processes. With the facts of an earlier moment, owners of
    /// sockets are taken from there, and those of new ones are not known: to look for them reads all of
    /// `/proc`. So is what hardly changes of the machine.
    Later(Option<&'a Facts>),
}

impl Facts {
    /// Reads the calling thread's network namespace, these interfaces of it, and the machine; the
    /// owners of sockets with this port, or of all.
    ///
    /// # Errors
    /// As [`Snapshot::take`] and [`ProcStat::read`]. Sockets that cannot be listed are a note, and so
    /// is an interface that has gone.
    pub fn take(
        moment: Moment<'_>,
        interfaces: &[impl AsRef<str>],
        port: Option<u16>,
    ) -> Result<Self> {
        let root = Root::machine();
        let mut facts = Self::default();
        let (is_first, earlier) = match moment {
            Moment::First => (true, None),
            Moment::Later(earlier) => (false, earlier),
        };
        if is_first {
            facts.list_sockets();
            facts.find_owners(&root, port, None);
            facts.notes.clear();
        }
        facts.list_sockets();
        let asked: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        let taken = Snapshot::take_of(Some(&asked))?;
        (facts.snapshot, facts.links) = (taken.snapshot, taken.links);
        let refused = taken.refused.iter();
        let refused = refused.map(|error| format!("no counters: {error}"));
        facts.notes.extend(refused);
        facts.cpus = ProcStat::read()?;
        facts.conntrack = Conntrack::read_from(&root);
        if !is_first {
            facts.find_owners(&root, port, earlier);
        }
        let names = || interfaces.iter().map(AsRef::as_ref);
        facts.cards = card::of(&root, names(), earlier.map(|earlier| &earlier.cards));
        match earlier {
            Some(earlier) => {
                facts.topology = earlier.topology.clone();
                facts.steering = earlier.steering.clone();
            }
            None => {
                facts.topology = Topology::read_from(&root)?;
                if facts.topology.nodes().len() > 1 {
                    facts.steering = steering(names());
                }
            }
        }
        facts.cache_bytes = cache_bytes(&root);
        facts.client_ports = sysctl::value_from(&root, "net.ipv4.ip_local_port_range")
            .ok()
            .flatten()
            .and_then(|range| ports(&range));
        let settings = SETTINGS.into_iter().filter_map(|name| {
            let value = sysctl::value_from(&root, name).ok()??;
            Some((name, value.parse().ok()?))
        });
        facts.settings = settings.collect();
        Ok(facts)
    }

    fn list_sockets(&mut self) {
        match sock_diag::udp() {
            Ok(sockets) => self.sockets = sockets,
            Err(error) => {
                self.are_sockets_unknown = true;
                self.notes.push(format!("sockets are not known: {error}"));
            }
        }
        // Few have these, so that a kernel without a list of them is no news.
        self.listeners = sock_diag::listeners().unwrap_or_default();
        self.xdp_sockets = sock_diag::xdp().unwrap_or_default();
    }

    fn find_owners(&mut self, root: &Root, port: Option<u16>, earlier: Option<&Self>) {
        let asked = self.sockets.iter();
        let asked = asked.filter(|socket| port.is_none_or(|port| socket.local.port() == port));
        let asked = asked.map(|socket| socket.inode);
        let xdp = self.xdp_sockets.iter().map(|socket| socket.inode);
        let inodes: BTreeSet<u32> = asked.chain(xdp).collect();
        let owners = match earlier {
            // One that is new has no owner yet.
            Some(earlier) => {
                let known = earlier.owners.iter();
                let known = known.filter(|(inode, _)| inodes.contains(inode));
                Owners::again(
                    root,
                    known.map(|(&inode, pids)| (inode, pids.clone())).collect(),
                )
            }
            None => Owners::find(root, &inodes),
        };
        let is_hidden = |inode| owners.pids.get(inode).is_some_and(Vec::is_empty);
        let hidden = inodes.iter().filter(|inode| is_hidden(inode)).count();
        if hidden > 0 {
            self.notes.push(format!(
                "whose {hidden} of {} sockets are is not seen: the kernel's own, or another user's, which \
                 root sees",
                inodes.len()
            ));
        }
        (self.owners, self.processes) = (owners.pids, owners.processes);
    }
}

/// The largest cache of the first CPU.
fn cache_bytes(root: &Root) -> Option<u64> {
    let folder = "sys/devices/system/cpu/cpu0/cache";
    let sizes = root.names(folder).into_iter().filter_map(|name| {
        let size = root.read_if_possible(&format!("{folder}/{name}/size"))?;
        size.strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map(|size| size.saturating_mul(1024))
}

/// The two ports of a range.
fn ports(range: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = range.split_ascii_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// The CPUs to which each receive queue of these interfaces hands its packets (`rps_cpus`,
/// Documentation/networking/scaling.rst); only of those that do so.
fn steering<'a>(interfaces: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<CpuList>> {
    let Ok(sysfs) = Sysfs::mount() else {
        return BTreeMap::new();
    };
    let all = interfaces.map(|name| {
        let of = |queue| sysfs.read(&format!("class/net/{name}/queues/rx-{queue}/rps_cpus"));
        let masks = (0_usize..).map_while(|queue| of(queue).ok());
        let lists = masks.map(|mask| CpuList::from_mask(&mask).unwrap_or_default());
        (name.to_owned(), lists.collect::<Vec<_>>())
    });
    all.filter(|(_, lists)| lists.iter().any(|list| !list.0.is_empty()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn the_last_cache_is_the_largest() {
        let cache =
            |at, size| format!("sys/devices/system/cpu/cpu0/cache/index{at}/size = {size}\n");
        let tree = cache(0, "32K") + &cache(3, "16384K") + &cache(2, "512K") + &cache(4, "x");
        assert_eq!(cache_bytes(&fixture::tree(&tree).root), Some(16 << 20));
        assert_eq!(cache_bytes(&fixture::tree("").root), None);
    }

    #[test]
    fn a_range_is_two_ports() {
        assert_eq!(ports("32768\t60999"), Some(32768..=60999));
        for damaged in ["", "1", "a b", "1 65536"] {
            assert_eq!(ports(damaged), None, "{damaged}");
        }
    }
}
