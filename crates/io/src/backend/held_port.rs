//! The common part of backends that listen at an interface beside the kernel: the interface, and
//! the owner of the port.

use super::shared_socket::SharedSocket;
use super::socket::{errors, join, transmit};
use crate::{Error, MulticastGroup, RxConfig, SendError, Sent, Transmit};
use mpps_os::bpf::classic::{self, NOTHING};
use mpps_os::netlink::{address, link};
use mpps_os::socket::UdpSocket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// An address and port held for a receiver beside the kernel. The kernel does not answer "port
/// unreachable" to its packets there, nor give them to another program.
///
/// Its socket lets nothing in, so that no packet waits in it uncounted. A filter drops the packets
/// that the kernel delivers there (`UdpInErrors`, drop reason `SOCKET_FILTER`).
#[derive(Debug)]
pub(super) struct HeldPort {
    /// The address with its true port.
    pub(super) address: SocketAddr,
    /// The owner of the port, for the mode.
    pub(super) owner: &'static str,
    socket: Option<SharedSocket>,
}

/// The treatment of another socket that has the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// It goes on receiving the kernel's own copies.
    Tolerated,
    /// It would no longer get what it is waiting for: opening fails.
    Refused,
}

/// The interface that is listened at.
#[derive(Debug)]
pub(super) struct ListenedInterface {
    /// Its number; 0 for all interfaces.
    pub(super) index: u32,
    pub(super) name: String,
}

impl HeldPort {
    /// Binds the port if no socket has it. At an address that is not this host's no socket can.
    ///
    /// # Errors
    /// The other errors of a bind: no free port, no right to a low one; with [`Neighbour::Refused`]
    /// a port that another socket has.
    pub(super) fn open(address: SocketAddr, neighbour: Neighbour) -> Result<Self, Error> {
        let socket = UdpSocket::new(&address)?;
        classic::attach(socket.as_fd(), &NOTHING)?;
        let owner = match socket.bind(&address) {
            Ok(()) => {
                return Ok(Self {
                    address: socket.local_address()?,
                    owner: "the port is held by a socket that drops the kernel's copies",
                    socket: Some(SharedSocket::new(socket)),
                });
            }
            Err(error) if address.port() == 0 => return Err(error.into()),
            Err(error) => match error.source.kind() {
                io::ErrorKind::AddrInUse if neighbour == Neighbour::Tolerated => {
                    "another socket has the port"
                }
                // An interface was named, and the packets are for another host.
                io::ErrorKind::AddrNotAvailable => "no socket can hold the port",
                _ => return Err(error.into()),
            },
        };
        Ok(Self {
            address,
            owner,
            socket: None,
        })
    }

    /// Joins the groups by the socket that holds the port, at this interface where they name none.
    ///
    /// # Errors
    /// The kernel's refusal; no socket holds the port.
    pub(super) fn join(
        &self,
        groups: &[MulticastGroup],
        interface_index: u32,
    ) -> Result<(), Error> {
        for group in groups {
            let Some(socket) = &self.socket else {
                let why = format!("{} at {}", self.owner, self.address);
                return Err(Error::invalid("groups", group.address, why));
            };
            join(socket.socket(), group, interface_index)?;
        }
        Ok(())
    }

    /// Has the socket keep the errors of what was sent from it.
    ///
    /// # Errors
    /// No socket holds the port.
    pub(super) fn keep_errors(&self) -> Result<(), Error> {
        match &self.socket {
            Some(socket) => Ok(socket.socket().keep_errors()?),
            None => Err(Error::invalid("errors", self.address, self.owner)),
        }
    }

    /// Sends by the kernel's stack ([`crate::Rx::transmit`]), from the port.
    pub(super) fn transmit(&self, transmits: &[Transmit<'_>]) -> io::Result<Sent> {
        transmit(self.sending()?, transmits)
    }

    /// The errors of what was sent from the port, also of frames past the stack.
    pub(super) fn errors(&self) -> io::Result<Vec<SendError>> {
        errors(self.sending()?)
    }

    fn sending(&self) -> io::Result<BorrowedFd<'_>> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, self.owner);
        Ok(self.socket.as_ref().ok_or_else(none)?.as_fd())
    }

    /// Packets that the kernel delivered here, where they ended; none if no socket of ours has the
    /// port.
    pub(super) fn dropped(&self) -> Option<u64> {
        Some(self.socket.as_ref()?.dropped())
    }
}

impl ListenedInterface {
    /// The interface that was named, or that owns the address, or all for a wildcard address.
    ///
    /// # Errors
    /// There is no such interface, or none with that address.
    pub(super) fn find(config: &RxConfig) -> Result<Self, Error> {
        if let Some(name) = &config.ring.interface {
            return Ok(Self {
                index: link::index(name)?,
                name: name.clone(),
            });
        }
        let ip = config.address.ip();
        if ip.is_unspecified() {
            return Ok(Self {
                index: 0,
                name: "all interfaces".to_owned(),
            });
        }
        let index = address::interface_of(ip)?.ok_or_else(|| Error::Invalid {
            field: "ring.interface",
            value: "none".to_owned(),
            why: format!("no interface has the address {ip}: name the one to listen at"),
        })?;
        let owner = link::find(index)?;
        Ok(Self {
            index,
            name: owner.map_or_else(|| format!("interface {index}"), |link| link.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_left_to_him() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let held = HeldPort::open(loopback, Neighbour::Refused).unwrap();
        assert_ne!(held.address.port(), 0);
        assert!(held.owner.starts_with("the port is held"));
        let second = HeldPort::open(held.address, Neighbour::Tolerated).unwrap();
        assert_eq!(second.address, held.address);
        assert_eq!(second.owner, "another socket has the port");
        assert_eq!(second.dropped(), None);
        assert!(HeldPort::open(held.address, Neighbour::Refused).is_err());
    }

    #[test]
    fn every_packet_ends_at_it_and_is_counted() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let held = HeldPort::open(loopback, Neighbour::Refused).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in 0..100 {
            sender.send_to(&vec![0; bytes], held.address).unwrap();
        }
        assert_eq!((held.dropped(), held.dropped()), (Some(100), Some(100)));
        let socket = held.socket.as_ref().unwrap().socket();
        assert_eq!(socket.memory().unwrap().receive_queued_bytes, 0);
    }

    #[test]
    fn an_address_of_another_host_is_held_by_no_socket() {
        // An address for documentation (RFC 5737).
        let mut foreign = SocketAddr::from(([192, 0, 2, 1], 4321));
        let held = HeldPort::open(foreign, Neighbour::Refused).unwrap();
        assert_eq!((held.address, held.dropped()), (foreign, None));
        let group = MulticastGroup::new([239, 1, 2, 3].into());
        let error = held.join(&[group], 1).unwrap_err().to_string();
        assert!(error.contains("groups"), "{error}");
        // Port 0 fails: without a socket the kernel chooses no port.
        foreign.set_port(0);
        assert!(HeldPort::open(foreign, Neighbour::Tolerated).is_err());
    }

    #[test]
    fn the_loopback_interface_is_found_and_a_foreign_address_is_not() {
        let find =
            |address: &str| ListenedInterface::find(&RxConfig::new(address.parse().unwrap()));
        assert_eq!(find("127.0.0.1:1").unwrap().name, "lo");
        assert_eq!(find("0.0.0.0:1").unwrap().index, 0);
        // An address for documentation (RFC 5737).
        let error = find("192.0.2.1:1").unwrap_err().to_string();
        assert!(error.contains("ring.interface"), "{error}");
    }
}
