//! One of the two hosts.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::sock_diag;
use mpps_os::process::{ContainedChild, spawn_contained};

use crate::{LabError, address};

/// The time between two looks for a socket. The kernel does not announce new ones.
const INTERVAL: Duration = Duration::from_millis(1);

/// A host of the lab: a network namespace with one link to the other host.
#[derive(Debug)]
pub struct LabHost {
    name: &'static str,
    interface: &'static str,
    interface_index: u32,
    namespace: NetNamespace,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
}

impl LabHost {
    /// A host whose namespace has its link already. It has IPv6 addresses if `has_v6`.
    pub(crate) fn new(
        name: &'static str,
        interface: &'static str,
        interface_index: u32,
        namespace: NetNamespace,
        numbers: RangeInclusive<u8>,
        has_v6: bool,
    ) -> Self {
        let twins = numbers.clone().take_while(|_| has_v6);
        Self {
            name,
            interface,
            interface_index,
            namespace,
            v4: numbers.map(address::v4).collect(),
            v6: twins.map(address::v6).collect(),
        }
    }

    /// `sender` or `receiver`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The name of its link.
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// The number of its link.
    pub fn interface_index(&self) -> u32 {
        self.interface_index
    }

    /// Its IPv4 addresses, ascending.
    pub fn v4(&self) -> &[Ipv4Addr] {
        &self.v4
    }

    /// Its IPv6 addresses, ascending; none where this machine has IPv6 switched off.
    pub fn v6(&self) -> &[Ipv6Addr] {
        &self.v6
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &NetNamespace {
        &self.namespace
    }

    /// The inode number of its network namespace.
    pub fn inode(&self) -> u32 {
        self.namespace.inode()
    }

    /// Runs `work` on this host, in a thread of its own, and waits for it. Sockets that it makes
    /// stay on this host.
    ///
    /// # Errors
    ///
    /// The kernel has no thread left.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, LabError> {
        Ok(self.namespace.run(work)?)
    }

    /// Starts a command on this host, which dies with the value returned and with this program.
    ///
    /// # Errors
    ///
    /// There is no such program, or no process can be had.
    pub fn spawn(&self, command: Command) -> Result<ContainedChild, LabError> {
        Ok(spawn_contained(command, &self.namespace)?)
    }

    /// Waits until a program of this host receives at this UDP port, at any address
    /// (`sock_diag(7)`). Returns false if none does after `patience`.
    ///
    /// # Errors
    ///
    /// The kernel lists no sockets: it has no `CONFIG_INET_UDP_DIAG`.
    pub fn await_udp(&self, port: u16, patience: Duration) -> Result<bool, LabError> {
        let is_bound = || {
            let sockets = sock_diag::udp()?;
            Ok::<_, LabError>(sockets.iter().any(|socket| socket.local.port() == port))
        };
        self.run(|| {
            let deadline = Instant::now() + patience;
            while !is_bound()? {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                thread::sleep(INTERVAL);
            }
            Ok(true)
        })?
    }
}
