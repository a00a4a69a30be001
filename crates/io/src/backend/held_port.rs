//! What backends share that listen at an interface beside the kernel: which interface, and whose the
//! port is.

use crate::{Error, RxConfig};
use mpps_os::bpf::classic::{self, ClassicInstruction};
use mpps_os::netlink::{address, link};
use mpps_os::socket::UdpSocket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// An address and port at which the kernel does not answer "port unreachable" to each packet that
/// it handles beside us.
#[derive(Debug)]
pub(super) struct HeldPort {
    /// The address with its true port.
    pub(super) address: SocketAddr,
    /// Who has the port, for the mode.
    pub(super) owner: &'static str,
    _socket: Option<UdpSocket>,
}

/// The interface that is listened at.
#[derive(Debug)]
pub(super) struct Interface {
    /// Its number; 0 for all interfaces.
    pub(super) index: u32,
    pub(super) name: String,
}

/// Classic BPF that lets nothing in: `BPF_RET | BPF_K` of 0 (include/uapi/linux/bpf_common.h).
pub(super) const NOTHING: [ClassicInstruction; 1] = [ClassicInstruction {
    code: 0x06,
    jump_true: 0,
    jump_false: 0,
    constant: 0,
}];

impl HeldPort {
    /// Binds the port if nobody has it, with a filter that drops what the kernel delivers there
    /// (counted as `UdpInErrors`, drop reason `SOCKET_FILTER`). Where an application has the port,
    /// it goes on receiving.
    ///
    /// # Errors
    /// What a bind can meet besides: no free port, no right to a low one.
    pub(super) fn open(address: SocketAddr) -> Result<Self, Error> {
        let socket = UdpSocket::new(&address)?;
        classic::attach(socket.as_fd(), &NOTHING)?;
        let owner = match socket.bind(&address) {
            Ok(()) => {
                return Ok(Self {
                    address: socket.local_address()?,
                    owner: "the port is held by a socket that drops the kernel's copies",
                    _socket: Some(socket),
                });
            }
            Err(error) if address.port() == 0 => return Err(error.into()),
            Err(error) => match error.source.kind() {
                io::ErrorKind::AddrInUse => "another socket has the port",
                // An interface was named, and the packets are for another host.
                io::ErrorKind::AddrNotAvailable => "no socket can hold the port",
                _ => return Err(error.into()),
            },
        };
        Ok(Self {
            address,
            owner,
            _socket: None,
        })
    }
}

impl Interface {
    /// The one that was named, or that owns the address, or all for a wildcard address.
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
            option: "--interface",
            value: "none".to_owned(),
            why: format!("no interface has the address {ip}: name the one to listen at"),
        })?;
        let links = link::list()?;
        let owner = links.into_iter().find(|link| link.index == index);
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
        let held = HeldPort::open(loopback).unwrap();
        assert_ne!(held.address.port(), 0);
        assert!(held.owner.starts_with("the port is held"));
        let second = HeldPort::open(held.address).unwrap();
        assert_eq!(second.address, held.address);
        assert_eq!(second.owner, "another socket has the port");
    }

    #[test]
    fn the_loopback_interface_is_found_and_a_foreign_address_is_not() {
        let find = |address: &str| Interface::find(&RxConfig::new(address.parse().unwrap()));
        assert_eq!(find("127.0.0.1:1").unwrap().name, "lo");
        assert_eq!(find("0.0.0.0:1").unwrap().index, 0);
        // An address for documentation (RFC 5737).
        let error = find("192.0.2.1:1").unwrap_err().to_string();
        assert!(error.contains("--interface"), "{error}");
    }
}
