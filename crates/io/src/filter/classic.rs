//! The rule as a filter of a packet socket.

use super::Destination;
use crate::wire::{
    ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, IPV4_BYTES, IPV4_FRAGMENT, IPV6_BYTES, UDP,
    UDP_BYTES,
};
use mpps_os::bpf::classic::ClassicCondition::{Above, AnyBit, AtLeast, Equal};
use mpps_os::bpf::classic::ClassicOperand::{Constant, Index};
use mpps_os::bpf::classic::{ClassicAssembler, ClassicInstruction, NOTHING};
use std::net::IpAddr;

/// Where the IP header is, and the type in front of it.
const IP: u32 = ETHERNET_BYTES as u32;
const ETHERNET_TYPE: u32 = 12;
/// Fields in the headers of IP and UDP, from the start of each.
const V4_LENGTH: u32 = 2;
const V4_FRAGMENT: u32 = 6;
const V4_PROTOCOL: u32 = 9;
const V4_DESTINATION: u32 = 16;
const V6_LENGTH: u32 = 4;
const V6_NEXT: u32 = 6;
const V6_DESTINATION: u32 = 24;
const V6_BYTES: u32 = IPV6_BYTES as u32;
const UDP_PORT: u32 = 2;
const UDP_LENGTH: u32 = 4;
/// The smallest datagram.
const UDP_MIN: u32 = UDP_BYTES as u32;

/// The filter of [`super::FlowFilter::classic`]. In C, where a load behind the end of the packet
/// rejects it, and `load16` and `load32` turn from network order:
///
/// ```c
/// unsigned int filter(const __u8 *packet, unsigned int length, bool tagged)
/// {
///         const __u8 *ip = packet + 14;
///
///         if (tagged || load16(packet + 12) != ETH_P_IP)
///                 return 0;
///         if (ip[0] < 0x45 || ip[0] > 0x4f || ip[9] != IPPROTO_UDP)
///                 return 0;
///         if (load16(ip + 6) & 0x3fff || load32(ip + 16) != ADDRESS)
///                 return 0;
///         __u32 header = (ip[0] & 15) << 2, datagram = load16(ip + header + 4);
///         if (load16(ip + header + 2) != PORT || datagram < 8)
///                 return 0;
///         if (load16(ip + 2) < header + datagram || length < 14 + load16(ip + 2))
///                 return 0;
///         return 0x40000;
/// }
/// ```
///
/// IPv6 is checked likewise. No address is compared if every address will do. Packets that one
/// destination's filter rejects go on to the filter of the next.
pub(super) fn program(wanted: Option<&[Destination]>) -> Vec<ClassicInstruction> {
    let Some(wanted) = wanted else {
        return ClassicAssembler::new().finish();
    };
    let of = wanted.iter().rev().map(filter_of);
    of.fold(NOTHING.to_vec(), |rest, filter| filter.finish_or(&rest))
}

fn filter_of(wanted: &Destination) -> ClassicAssembler {
    let mut filter = ClassicAssembler::new();
    filter.load_tagged().reject_unless(Equal, Constant(0));
    match wanted.address {
        IpAddr::V4(_) => reject_others_v4(&mut filter, wanted),
        IpAddr::V6(_) => reject_others_v6(&mut filter, wanted),
    }
    // The length of the frame without padding is in `A`.
    filter.index_by_accumulator();
    filter.load_length().reject_unless(AtLeast, Index);
    filter
}

fn reject_others_v4(filter: &mut ClassicAssembler, wanted: &Destination) {
    reject_other_types(filter, ETHERNET_IPV4);
    filter.load_byte(IP);
    filter.reject_unless(AtLeast, Constant(0x40 + IPV4_BYTES as u32 / 4));
    filter.reject_if(Above, Constant(0x4f));
    filter.load_byte(IP + V4_PROTOCOL);
    filter.reject_unless(Equal, Constant(UDP.into()));
    filter.load_half(IP + V4_FRAGMENT);
    filter.reject_if(AnyBit, Constant(IPV4_FRAGMENT.into()));
    reject_other_addresses(filter, IP + V4_DESTINATION, wanted);

    filter.index_by_header(IP);
    filter.load_half_indexed(IP + UDP_PORT);
    reject_other_ports(filter, wanted);
    filter.load_half_indexed(IP + UDP_LENGTH);
    filter.reject_unless(AtLeast, Constant(UDP_MIN));
    filter.add(Index).index_by_accumulator();
    filter.load_half(IP + V4_LENGTH);
    filter.reject_unless(AtLeast, Index);
    filter.add(Constant(IP));
}

fn reject_others_v6(filter: &mut ClassicAssembler, wanted: &Destination) {
    reject_other_types(filter, ETHERNET_IPV6);
    filter.load_byte(IP);
    filter.reject_unless(AtLeast, Constant(0x60));
    filter.reject_if(Above, Constant(0x6f));
    filter.load_byte(IP + V6_NEXT);
    filter.reject_unless(Equal, Constant(UDP.into()));
    reject_other_addresses(filter, IP + V6_DESTINATION, wanted);

    filter.load_half(IP + V6_BYTES + UDP_PORT);
    reject_other_ports(filter, wanted);
    filter.load_half(IP + V6_BYTES + UDP_LENGTH);
    filter.reject_unless(AtLeast, Constant(UDP_MIN));
    filter.index_by_accumulator();
    filter.load_half(IP + V6_LENGTH);
    filter.reject_unless(AtLeast, Index);
    filter.add(Constant(IP + V6_BYTES));
}

fn reject_other_types(filter: &mut ClassicAssembler, kind: u16) {
    filter.load_half(ETHERNET_TYPE);
    filter.reject_unless(Equal, Constant(kind.into()));
}

fn reject_other_addresses(filter: &mut ClassicAssembler, offset: u32, wanted: &Destination) {
    for (word, place) in wanted.words().iter().zip((offset..).step_by(4)) {
        let word = Constant(u32::from_be_bytes(*word));
        filter.load_word(place).reject_unless(Equal, word);
    }
}

/// Of the port in `A`.
fn reject_other_ports(filter: &mut ClassicAssembler, wanted: &Destination) {
    let [first, last] = [wanted.ports.start(), wanted.ports.end()].map(|port| u32::from(*port));
    if first == last {
        filter.reject_unless(Equal, Constant(first));
    } else {
        filter.reject_unless(AtLeast, Constant(first));
        filter.reject_if(Above, Constant(last));
    }
}
