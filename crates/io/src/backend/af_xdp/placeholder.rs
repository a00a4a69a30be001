//! An ordinary UDP socket at the address that an AF_XDP receiver takes its flow from.
//!
//! It holds the port, so that the kernel can choose one and nobody else takes it. Packets of the
//! flow that the XDP program passes on, because they came by a queue without a receiver, end at
//! it: without it they would be answered by ICMP, or reach somebody else. Its filter refuses every
//! packet, and the kernel counts each, so that not one waits in it uncounted.

use super::errno;
use crate::Error;
use crate::config::RxConfig;
use mpps_os::bpf::classic::{self, ClassicInstruction};
use mpps_os::socket::UdpSocket;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// `BPF_RET | BPF_K` of include/uapi/linux/bpf_common.h: keep so many bytes of the packet; with 0
/// it is dropped (sk_filter_trim_cap, net/core/filter.c) and counted (udp_queue_rcv_one_skb).
const DROP_ALL: ClassicInstruction = ClassicInstruction {
    code: 0x06,
    jump_true: 0,
    jump_false: 0,
    constant: 0,
};

/// The socket, and its drops widened to 64 bits.
#[derive(Debug)]
pub(super) struct Placeholder {
    socket: UdpSocket,
    dropped: Mutex<u64>,
}

impl Placeholder {
    /// Binds the address and joins the groups. None where nothing is to be held: all traffic is
    /// taken, or the address is another host's and the traffic is only passing by.
    pub(super) fn open(config: &RxConfig, interface_index: u32) -> Result<Option<Self>, Error> {
        if config.ring.all_traffic && config.groups.is_empty() {
            return Ok(None);
        }
        let socket = UdpSocket::new(&config.address)?;
        classic::attach(socket.as_fd(), &[DROP_ALL])?;
        match socket.bind(&config.address) {
            Err(error)
                // Nobody chooses a port at an address that is not ours.
                if error.errno() == Some(errno::EADDRNOTAVAIL)
                    && config.ring.interface.is_some()
                    && config.address.port() != 0 =>
            {
                return Ok(None);
            }
            bound => bound?,
        }
        for group in &config.groups {
            let index = match group.interface_index {
                0 => interface_index,
                index => index,
            };
            socket.join_group(group.address, index)?;
        }
        Ok(Some(Self {
            socket,
            dropped: Mutex::new(0),
        }))
    }

    /// The address; the port is the true one.
    pub(super) fn local_address(&self) -> Result<SocketAddr, Error> {
        Ok(self.socket.local_address()?)
    }

    /// Packets that ended here. The kernel's count has 32 bits; it is widened by its growth since
    /// the last look.
    pub(super) fn dropped(&self) -> u64 {
        // Held across the look, so that no thread widens by a count older than the known one.
        let mut known = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(memory) = self.socket.memory() {
            *known += u64::from(memory.drops.wrapping_sub(*known as u32));
        }
        *known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_ends_at_it_and_is_counted() {
        let config = RxConfig::new("127.0.0.1:0".parse().unwrap());
        let placeholder = Placeholder::open(&config, 1).unwrap().unwrap();
        let address = placeholder.local_address().unwrap();
        assert_ne!(address.port(), 0);
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in 0..100 {
            sender.send_to(&vec![0; bytes], address).unwrap();
        }
        assert_eq!(placeholder.dropped(), 100);
        assert_eq!(placeholder.dropped(), 100);
        assert_eq!(placeholder.socket.memory().unwrap().receive_queued_bytes, 0);
        let taken = Placeholder::open(&RxConfig::new(address), 1);
        assert!(taken.is_err(), "the port is free for others");
    }

    #[test]
    fn nothing_is_held_for_an_address_that_is_not_ours() {
        let mut config = RxConfig::new("192.0.2.1:4321".parse().unwrap());
        assert!(Placeholder::open(&config, 1).is_err());
        config.ring.interface = Some("lo".to_owned());
        assert!(Placeholder::open(&config, 1).unwrap().is_none());
        config.address.set_port(0);
        assert!(Placeholder::open(&config, 1).is_err());
    }
}
