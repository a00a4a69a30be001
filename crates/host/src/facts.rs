//! What a host that runs somebody else's program says of itself at one moment: its counters, its UDP
//! sockets and who reads them, its CPUs.

mod conntrack;
mod process;

pub use conntrack::Conntrack;
pub use process::{Busy, Process, ThreadTime};

use crate::root::Root;
use crate::{ProcStat, Result, Snapshot};
use mpps_os::netlink::link::{self, Link};
use mpps_os::netlink::sock_diag::{self, UdpEntry};
use std::collections::BTreeMap;

/// One moment. Two of them are what [`crate::check::Seen`] looks at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The counters.
    pub snapshot: Snapshot,
    /// The interfaces of the namespace, also those whose counters were not asked for.
    pub links: Vec<Link>,
    /// The UDP sockets of the namespace; none where the kernel does not list them.
    pub sockets: Vec<UdpEntry>,
    /// Who has these sockets, by the sockets' inode numbers, as far as this user may see: a server
    /// that forks has one in several processes.
    pub owners: BTreeMap<u32, Vec<Process>>,
    /// Where the CPUs spent their time.
    pub cpus: ProcStat,
    /// The connection tracker; none where the kernel has none.
    pub conntrack: Option<Conntrack>,
    /// What could not be read, and why.
    pub notes: Vec<String>,
}

impl Facts {
    /// Reads the calling thread's network namespace, these interfaces of it, and the machine.
    ///
    /// # Errors
    /// As [`Snapshot::take`] and [`ProcStat::read`]. Sockets that cannot be listed are a note.
    pub fn take(interfaces: &[impl AsRef<str>]) -> Result<Self> {
        let root = Root::machine();
        let mut notes = Vec::new();
        let sockets = sock_diag::udp().unwrap_or_else(|error| {
            notes.push(format!("sockets are not known: {error}"));
            Vec::new()
        });
        let inodes = sockets.iter().map(|socket| socket.inode).collect();
        Ok(Self {
            owners: process::owners(&root, &inodes),
            cpus: ProcStat::read()?,
            links: link::list()?,
            conntrack: Conntrack::read_from(&root),
            snapshot: Snapshot::take(interfaces)?,
            sockets,
            notes,
        })
    }
}
