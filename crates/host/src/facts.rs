//! What a host that runs somebody else's program says of itself at one moment: its counters, its UDP
//! sockets and who reads them, its CPUs.

mod conntrack;
mod interrupts;
mod process;

pub use conntrack::Conntrack;
pub use interrupts::{Card, Interrupt};
pub use process::{Busy, Process, Quota, ThreadTime};

use crate::root::Root;
use crate::{ProcStat, Result, Snapshot, sysctl};
use mpps_os::netlink::link::{self, Link};
use mpps_os::netlink::sock_diag::{self, UdpEntry};
use process::Owners;
use std::collections::{BTreeMap, BTreeSet};

/// The settings whose value decides what mends a loss.
const SETTINGS: [&str; 5] = [
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
    /// Interfaces that count again what others of the namespace have counted: bonds.
    pub aggregates: BTreeSet<String>,
    /// The UDP sockets of the namespace; none where the kernel does not list them.
    pub sockets: Vec<UdpEntry>,
    /// Who has these sockets, by the sockets' inode numbers: a server that forks has one in several
    /// processes, and one of which this user may not see the owner in none.
    pub owners: BTreeMap<u32, Vec<u32>>,
    /// These processes.
    pub processes: BTreeMap<u32, Process>,
    /// Where the CPUs spent their time.
    pub cpus: ProcStat,
    /// The cards behind the interfaces.
    pub cards: BTreeMap<String, Card>,
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
    /// sockets that were known then are taken from there: to look for them reads all of `/proc`.
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
        if matches!(moment, Moment::First) {
            facts.list_sockets();
            facts.find_owners(&root, port, None);
            facts.notes.clear();
        }
        facts.list_sockets();
        facts.read_counters(interfaces)?;
        facts.cpus = ProcStat::read()?;
        facts.conntrack = Conntrack::read_from(&root);
        if let Moment::Later(earlier) = moment {
            facts.find_owners(&root, port, earlier);
        }
        let names = interfaces.iter().map(AsRef::as_ref);
        facts.cards = interrupts::of(&root, names);
        facts.links = link::list()?;
        let is_bond = |link: &&Link| root.exists(&format!("sys/class/net/{}/bonding", link.name));
        let bonds = facts.links.iter().filter(is_bond);
        facts.aggregates = bonds.map(|link| link.name.clone()).collect();
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
            Err(error) => self.notes.push(format!("sockets are not known: {error}")),
        }
    }

    fn find_owners(&mut self, root: &Root, port: Option<u16>, earlier: Option<&Self>) {
        let asked = self.sockets.iter();
        let asked = asked.filter(|socket| port.is_none_or(|port| socket.local.port() == port));
        let inodes: BTreeSet<u32> = asked.map(|socket| socket.inode).collect();
        let known = earlier.map(|earlier| &earlier.owners);
        let is_known = |inode| known.is_some_and(|known| known.contains_key(inode));
        let owners = match known {
            Some(known) if inodes.iter().all(is_known) => {
                let known = known.iter().filter(|(inode, _)| inodes.contains(inode));
                Owners::again(
                    root,
                    known.map(|(&inode, pids)| (inode, pids.clone())).collect(),
                )
            }
            _ => Owners::find(root, &inodes),
        };
        (self.owners, self.processes) = (owners.pids, owners.processes);
    }

    /// An interface may go while its counters are read, as that of a container does that ends.
    fn read_counters(&mut self, interfaces: &[impl AsRef<str>]) -> Result<()> {
        let Err(error) = Snapshot::take(interfaces).map(|all| self.snapshot = all) else {
            return Ok(());
        };
        let names = interfaces.iter().map(AsRef::as_ref);
        let (there, gone): (Vec<&str>, Vec<&str>) =
            names.partition(|name| Snapshot::take(&[name]).is_ok());
        if there.is_empty() || gone.is_empty() {
            return Err(error);
        }
        self.snapshot = Snapshot::take(&there)?;
        self.notes
            .push(format!("no counters of {}: {error}", gone.join(", ")));
        Ok(())
    }
}
