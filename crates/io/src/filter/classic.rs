//! The rule as a filter of a packet socket.

use crate::wire::{
    ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, IPV4_BYTES, IPV4_FRAGMENT, IPV6_BYTES, UDP,
    UDP_BYTES,
};
use mpps_os::bpf::classic::ClassicCondition::{Above, AnyBit, AtLeast, Equal};
use mpps_os::bpf::classic::ClassicOperand::{Constant, Index};
use mpps_os::bpf::classic::{ClassicAssembler, ClassicInstruction};
use std::net::{IpAddr, SocketAddr};

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
/// IPv6 is checked likewise. No address is compared where every one will do.
pub(super) fn program(wanted: Option<SocketAddr>) -> Vec<ClassicInstruction> {
    let mut filter = ClassicAssembler::new();
    if let Some(wanted) = wanted {
        filter.load_tagged().reject_unless(Equal, Constant(0));
        match wanted.ip() {
            IpAddr::V4(address) => {
                let words = [u32::from(address)];
                let words = if address.is_unspecified() {
                    &[][..]
                } else {
                    &words
                };
                reject_others_v4(&mut filter, words, wanted.port());
            }
            IpAddr::V6(address) => {
                let words = address.octets();
                let words = words.as_chunks::<4>().0.iter();
                let words: Vec<u32> = words.map(|word| u32::from_be_bytes(*word)).collect();
                let words = if address.is_unspecified() {
                    &[][..]
                } else {
                    &words
                };
                reject_others_v6(&mut filter, words, wanted.port());
            }
        }
        // The length of the frame without padding is in `A`.
        filter.index_by_accumulator();
        filter.load_length().reject_unless(AtLeast, Index);
    }
    filter.finish()
}

fn reject_others_v4(filter: &mut ClassicAssembler, address: &[u32], port: u16) {
    reject_other_types(filter, ETHERNET_IPV4);
    filter.load_byte(IP);
    filter.reject_unless(AtLeast, Constant(0x40 + IPV4_BYTES as u32 / 4));
    filter.reject_if(Above, Constant(0x4f));
    filter.load_byte(IP + V4_PROTOCOL);
    filter.reject_unless(Equal, Constant(UDP.into()));
    filter.load_half(IP + V4_FRAGMENT);
    filter.reject_if(AnyBit, Constant(IPV4_FRAGMENT.into()));
    reject_other_words(filter, IP + V4_DESTINATION, address);

    filter.index_by_header(IP);
    filter.load_half_indexed(IP + UDP_PORT);
    filter.reject_unless(Equal, Constant(port.into()));
    filter.load_half_indexed(IP + UDP_LENGTH);
    filter.reject_unless(AtLeast, Constant(UDP_MIN));
    filter.add(Index).index_by_accumulator();
    filter.load_half(IP + V4_LENGTH);
    filter.reject_unless(AtLeast, Index);
    filter.add(Constant(IP));
}

fn reject_others_v6(filter: &mut ClassicAssembler, address: &[u32], port: u16) {
    reject_other_types(filter, ETHERNET_IPV6);
    filter.load_byte(IP);
    filter.reject_unless(AtLeast, Constant(0x60));
    filter.reject_if(Above, Constant(0x6f));
    filter.load_byte(IP + V6_NEXT);
    filter.reject_unless(Equal, Constant(UDP.into()));
    reject_other_words(filter, IP + V6_DESTINATION, address);

    filter.load_half(IP + V6_BYTES + UDP_PORT);
    filter.reject_unless(Equal, Constant(port.into()));
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

fn reject_other_words(filter: &mut ClassicAssembler, offset: u32, words: &[u32]) {
    for (word, place) in words.iter().zip((offset..).step_by(4)) {
        filter
            .load_word(place)
            .reject_unless(Equal, Constant(*word));
    }
}
