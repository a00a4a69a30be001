//! The sender's choice of transmit queue, which on a veth is the receiver's choice of receive
//! queue.
//!
//! A network card hashes addresses to choose a queue. A veth has no hash: a frame arrives on the
//! queue of the number that it left on. By default the kernel picks that by a hash that is random
//! per connected socket. Then no two runs are alike. A small BPF program makes it a function of one
//! address only. Cards that hash addresses and not ports do the same.

use mpps_os::bpf::asm::{
    Assembler, AssemblyError, Condition, Helper, Operation, R0, R1, R2, R3, R4, R5, R6, R10, Size,
};
use mpps_os::bpf::{BpfLink, Instruction, Program, ProgramKind};
use mpps_os::{CallError, CallResult};

/// Steers an interface's frames until it is dropped. When the process ends, the kernel detaches it.
#[derive(Debug)]
pub struct LabSteering {
    _link: BpfLink,
    queues: u16,
}

/// The address of a frame that chooses its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// Steers the frames that leave an interface of the calling thread's network namespace. They take
/// the transmit queue `(last byte of the address - 1) % queues`, for IPv4 and IPv6. Other frames
/// are not changed.
///
/// Attach it before the traffic starts: a connected socket keeps the queue of its first frame.
/// Frames that bypass the traffic control layer choose their queue themselves. These are frames of
/// AF_XDP, and of AF_PACKET with `PACKET_QDISC_BYPASS`.
///
/// # Errors
///
/// * `EINVAL` for no queues and before Linux 6.6
/// * `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN` in the initial user namespace
/// * `ENODEV` without such an interface
pub fn attach(interface_index: u32, by: By, queues: u16) -> CallResult<LabSteering> {
    if queues == 0 {
        let none = std::io::Error::from_raw_os_error(22); // EINVAL of errno(3)
        return Err(CallError::new("steer", "0 queues", none));
    }
    let program = Program::load(
        ProgramKind::Classifier,
        "mpps_steering",
        &program(by, queues)?,
    )?;
    Ok(LabSteering {
        _link: BpfLink::tcx_egress(&program, interface_index)?,
        queues,
    })
}

impl LabSteering {
    /// The queue that frames with this address take.
    pub fn queue(&self, address: std::net::IpAddr) -> u16 {
        queue(address, self.queues)
    }
}

/// The rule itself, to compute a queue before anything is attached. `queues` must not be zero.
pub fn queue(address: std::net::IpAddr, queues: u16) -> u16 {
    let last = match address {
        std::net::IpAddr::V4(address) => address.octets()[3],
        std::net::IpAddr::V6(address) => address.octets()[15],
    };
    // Adding a full turn first keeps an address that ends in zero from going below zero.
    ((u32::from(last) + u32::from(queues) - 1) % u32::from(queues)) as u16
}

/// Offsets in `struct __sk_buff` of `include/uapi/linux/bpf.h`.
const QUEUE_MAPPING: i16 = 12;
const PROTOCOL: i16 = 16;
/// `ETH_P_IP` and `ETH_P_IPV6` of `include/uapi/linux/if_ether.h`, in network order as the context
/// has them.
const IPV4: i32 = 0x0800_u16.to_be() as i32;
const IPV6: i32 = 0x86dd_u16.to_be() as i32;
impl By {
    /// The place of the address's last byte in IPv4 and in IPv6. It counts from the network header
    /// (RFC 791, RFC 8200).
    fn last_byte(self) -> [i32; 2] {
        match self {
            Self::Source => [15, 23],
            Self::Destination => [19, 39],
        }
    }
}

/// Offsets count from the network header (`BPF_HDR_START_NET`).
const FROM_NETWORK_HEADER: i32 = 1;
/// The next program, and then the kernel, decide about the frame (`TCX_NEXT`).
const NEXT: i32 = -1;

/// The program, for destinations, in C:
///
/// ```c
/// int steer(struct __sk_buff *skb)
/// {
///         __u8 last;
///         int offset;
///
///         if (skb->protocol == htons(ETH_P_IP))
///                 offset = 19;
///         else if (skb->protocol == htons(ETH_P_IPV6))
///                 offset = 39;
///         else
///                 return TCX_NEXT;
///         if (bpf_skb_load_bytes_relative(skb, offset, &last, 1, BPF_HDR_START_NET))
///                 return TCX_NEXT;
///         skb->queue_mapping = (last + QUEUES - 1) % QUEUES + 1;
///         return TCX_NEXT;
/// }
/// ```
///
/// The kernel reads `queue_mapping` as "received on queue n - 1". It sends such frames on that
/// queue (`skb_tx_hash` in `net/core/dev.c`). Zero means "not known", hence the one added.
fn program(by: By, queues: u16) -> CallResult<Vec<Instruction>, AssemblyError> {
    let [in_v4, in_v6] = by.last_byte();
    let mut program = Assembler::new();
    program.set(R6, R1);
    program.load(Size::Word, R3, R6, PROTOCOL);
    program.set(R2, in_v4);
    program.jump_if(Condition::Equal, R3, IPV4, "load");
    program.set(R2, in_v6);
    program.jump_if(Condition::NotEqual, R3, IPV6, "out");

    program.label("load").set(R1, R6);
    program.set(R3, R10).compute(Operation::Add, R3, -1);
    program.set(R4, 1).set(R5, FROM_NETWORK_HEADER);
    program.call(Helper::SkbLoadBytesRelative);
    program.jump_if(Condition::NotEqual, R0, 0, "out");

    program.load(Size::Byte, R1, R10, -1);
    program.compute(Operation::Add, R1, i32::from(queues) - 1);
    program.compute(Operation::Modulo, R1, i32::from(queues));
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Word, R6, QUEUE_MAPPING, R1);

    program.label("out").set(R0, NEXT).exit();
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_os::bpf::sandbox::Sandbox;
    use std::net::IpAddr;

    /// Runs the program on a packet, and returns the queue mapping it leaves behind.
    fn mapping(by: By, protocol: u16, network: Vec<u8>, queues: u16) -> u32 {
        let mut context = [0u8; 192];
        context[12..16].copy_from_slice(&77u32.to_ne_bytes());
        let protocol = u32::from(protocol.to_be());
        context[16..20].copy_from_slice(&protocol.to_ne_bytes());
        let answer = Sandbox::new()
            .set_network(network)
            .run(
                &program(by, queues).expect("the program assembles"),
                &mut context,
            )
            .expect("the program runs");
        assert_eq!(answer as i32, NEXT);
        u32::from_ne_bytes(
            context[12..16]
                .try_into()
                .expect("four bytes are four bytes"),
        )
    }

    /// A header that has the address in its place, and others around it.
    fn header(by: By, address: IpAddr) -> (u16, Vec<u8>) {
        let (protocol, length, octets) = match address {
            IpAddr::V4(address) => (0x0800, 20, address.octets().to_vec()),
            IpAddr::V6(address) => (0x86dd, 40, address.octets().to_vec()),
        };
        let mut header = vec![0x60; length];
        let from_end = if by == By::Source { octets.len() } else { 0 };
        let end = length - from_end;
        header[end - octets.len()..end].copy_from_slice(&octets);
        (protocol, header)
    }

    #[test]
    fn every_last_byte_goes_to_the_queue_of_the_rule() {
        for queues in [1, 2, 4, 7, 64] {
            for last in 0..=255 {
                for address in [
                    IpAddr::from([192, 168, 254, last]),
                    IpAddr::from([0xfd, 0, 2, 0x54, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, last]),
                ] {
                    let expected = u32::from(queue(address, queues)) + 1;
                    for by in [By::Source, By::Destination] {
                        let (protocol, packet) = header(by, address);
                        assert_eq!(mapping(by, protocol, packet, queues), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn the_rule_counts_from_one() {
        let queues: Vec<u16> = (0..6)
            .map(|last| queue(IpAddr::from([10, 0, 0, last]), 4))
            .collect();
        assert_eq!(queues, [3, 0, 1, 2, 3, 0]);
    }

    #[test]
    fn other_frames_and_stumps_are_left_alone() {
        let mapping = |protocol, packet| mapping(By::Destination, protocol, packet, 4);
        assert_eq!(mapping(0x0806, vec![1; 60]), 77);
        assert_eq!(mapping(0x0800, vec![0x45; 19]), 77);
        assert_eq!(mapping(0x86dd, vec![0x60; 39]), 77);
    }
}
