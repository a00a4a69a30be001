//! What is asked of the lists of packet buffers to be freed, so that a test can answer instead.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use mpps_os::namespace::NetNamespace;
use mpps_os::{Error, Result, sched};

use super::SKB_DEFER_MAX;
use crate::cpu::Topology;
use crate::root::Root;
use crate::sysctl;

/// The longest wait for a byte over loopback, which comes at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// The lists of all CPUs. Every method fails as the call does that it stands for.
pub trait DeferLists: fmt::Debug {
    /// The network namespace in which the others work.
    fn namespace(&self) -> Result<u32>;
    /// What the setting says; none where there is none.
    fn limit(&self) -> Result<Option<String>>;
    /// Makes it say something else.
    fn set_limit(&self, packets: u32) -> Result<()>;
    /// Lets every list get a packet and lose it again, so that its count begins anew. To be called
    /// while no list is full.
    fn wake(&self) -> Result<()>;
}

/// The kernel.
#[derive(Debug, Clone)]
pub struct KernelLists {
    root: Root,
}

impl Default for KernelLists {
    fn default() -> Self {
        Self {
            root: Root::machine(),
        }
    }
}

impl KernelLists {
    /// The setting of a recorded tree.
    #[cfg(test)]
    pub(super) fn at(root: Root) -> Self {
        Self { root }
    }
}

impl DeferLists for KernelLists {
    fn namespace(&self) -> Result<u32> {
        NetNamespace::current().map(|namespace| namespace.inode())
    }

    fn limit(&self) -> Result<Option<String>> {
        self.root.read_if_present(&sysctl::path(SKB_DEFER_MAX))
    }

    fn set_limit(&self, packets: u32) -> Result<()> {
        let path = sysctl::path(SKB_DEFER_MAX);
        self.root.write(&path, &packets.to_string())
    }

    fn wake(&self) -> Result<()> {
        let pairs = pairs();
        // The affinity of the calling thread is not ours to change.
        thread::scope(|scope| {
            let visitor = scope.spawn(|| pairs.iter().try_for_each(|pair| visit(*pair)));
            visitor
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Each CPU whose packets are freed elsewhere, with one CPU that frees them, of each NUMA node: there
/// is a list for each CPU and node (Linux 6.18; before, for each CPU).
fn pairs() -> Vec<[usize; 2]> {
    let Ok(topology) = Topology::read() else {
        return Vec::new();
    };
    let owners = topology.cpus.iter().map(|cpu| cpu.id);
    let pair = |owner: usize, node: usize| {
        let mut others = topology.cpus.iter();
        let other = others.find(|other| other.node == node && other.id != owner)?;
        Some([owner, other.id])
    };
    let nodes = topology.nodes();
    owners
        .flat_map(|owner| nodes.iter().filter_map(move |node| pair(owner, *node)))
        .collect()
}

/// Sends a byte from one CPU to another over loopback, twice. The first one's packet gets on the
/// list; what the second one sets off on the sending CPU clears the list (`net_rx_action` in
/// net/core/dev.c).
fn visit([owner, other]: [usize; 2]) -> Result<()> {
    if sched::pin_current(&[owner]).is_err() || sched::pin_current(&[other]).is_err() {
        // A CPU that a cpuset keeps from us has had none of our packets.
        return Ok(());
    }
    let failed = |call| move |source: io::Error| Error::new(call, "127.0.0.1", source);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("bind"))?;
    let address = listener.local_addr().map_err(failed("getsockname"))?;
    let mut from = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed("connect"))?;
    let (mut to, _) = listener.accept().map_err(failed("accept"))?;
    from.set_nodelay(true).map_err(failed("setsockopt"))?;
    to.set_read_timeout(Some(PATIENCE))
        .map_err(failed("setsockopt"))?;
    for _ in 0..2 {
        sched::pin_current(&[owner])?;
        from.write_all(b"x").map_err(failed("send"))?;
        sched::pin_current(&[other])?;
        to.read_exact(&mut [0]).map_err(failed("recv"))?;
    }
    Ok(())
}
