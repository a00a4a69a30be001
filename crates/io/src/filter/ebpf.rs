//! The rule as programs for XDP and for the ingress of an interface.

use super::Destination;
use crate::wire::{
    ETHERNET_BYTES, ETHERNET_IPV4, ETHERNET_IPV6, IPV4_BYTES, IPV4_FRAGMENT, IPV6_BYTES, UDP,
    UDP_BYTES,
};
use mpps_os::bpf::Instruction;
use mpps_os::bpf::asm::{
    Assembler, AssemblyError, Condition, Helper, Label, Operation, R0, R1, R2, R3, R4, R5, R6, R7,
    R8, R9, R10, Size,
};
use std::os::fd::BorrowedFd;

/// The results of a program: `enum xdp_action` of `include/uapi/linux/bpf.h`.
const XDP_PASS: i32 = 2;
const XDP_REDIRECT: i32 = 4;
/// `TCX_NEXT` (ask the next program, or go on if there is none) and `TCX_DROP`.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;

/// Fields of `struct xdp_md`: `data`, `data_meta`, `rx_queue_index`.
const XDP_DATA: i16 = 0;
const XDP_METADATA: i16 = 8;
const XDP_QUEUE: i16 = 16;
/// Fields of `struct __sk_buff`: `len`, `vlan_present`, `data`.
const SKB_LENGTH: i16 = 0;
const SKB_TAGGED: i16 = 20;
const SKB_DATA: i16 = 76;

/// The places of the counters in their entry.
const TAKEN: i32 = 0;
const PASSED: i32 = 8;
const OTHER: i32 = 16;

/// The place of the counters' key on the stack.
const KEY: i16 = -4;
/// Where the IP header is, and fields in the headers of IP and UDP.
const IP: i16 = ETHERNET_BYTES as i16;
const ETHERNET_TYPE: i16 = 12;
const V4_LENGTH: i16 = IP + 2;
const V4_FRAGMENT: i16 = IP + 6;
const V4_PROTOCOL: i16 = IP + 9;
const V4_DESTINATION: i16 = IP + 16;
const V6_LENGTH: i16 = IP + 4;
const V6_NEXT: i16 = IP + 6;
const V6_DESTINATION: i16 = IP + 24;
const V6_UDP: i16 = IP + IPV6_BYTES as i16;
const UDP_PORT: i16 = 2;
const UDP_LENGTH: i16 = 4;
/// The least that a datagram's headers take, and the most that is looked at.
const V4_HEADERS_MIN: i32 = (ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES) as i32;
const V6_HEADERS: i32 = (ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES) as i32;
const HEADERS_MAX: i32 = (ETHERNET_BYTES + 60 + UDP_BYTES) as i32;

/// A driver's knowledge of a frame beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// When it came, in nanoseconds of the card's clock.
    Time,
    /// The hash that chose its queue.
    Hash,
    /// The tag that the card took off: protocol and TCI.
    Vlan,
}

impl Metadata {
    /// The function of the kernel that brings it (Linux 6.3, of the tag 6.8).
    pub(super) fn function(self) -> &'static str {
        match self {
            Self::Time => "bpf_xdp_metadata_rx_timestamp",
            Self::Hash => "bpf_xdp_metadata_rx_hash",
            Self::Vlan => "bpf_xdp_metadata_rx_vlan_tag",
        }
    }

    /// Where on the stack the function writes.
    fn places(self) -> &'static [i16] {
        match self {
            Self::Time => &[TIME],
            // The second is the kind of hash.
            Self::Hash => &[HASH, HASH + 4],
            Self::Vlan => &[VLAN, VLAN + 2],
        }
    }
}

/// Bytes of the metadata in front of a frame: time, hash, protocol and TCI; zeros are none.
pub(crate) const METADATA_BYTES: usize = 16;
const TIME: i16 = -16;
const HASH: i16 = -24;
const VLAN: i16 = -28;

/// Where a program finds the length of a frame whose first buffer is shorter.
#[derive(Clone, Copy)]
enum Whole {
    /// There are no such frames.
    InOneBuffer,
    /// `bpf_xdp_get_buff_len`
    XdpHelper,
    /// `skb->len`
    SkbLength,
}

/// The program of [`super::FlowFilter::redirect`]. In C, with `ours` as below:
///
/// ```c
/// int redirect(struct xdp_md *ctx)
/// {
///         int answer = XDP_PASS, place = OTHER;
///
///         if (ours(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end) && has_metadata(ctx)) {
///                 answer = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
///                 place = answer == XDP_REDIRECT ? TAKEN : PASSED;
///         }
///         __u64 *counts = bpf_map_lookup_elem(&counters, &ctx->rx_queue_index);
///         if (counts)
///                 counts[place] += 1;
///         return answer;
/// }
/// ```
pub(super) fn redirect(
    wanted: Option<&[Destination]>,
    sockets: BorrowedFd<'_>,
    counters: BorrowedFd<'_>,
    fragments: bool,
    metadata: &[(Metadata, u32)],
) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    program.set(R6, R1);
    if let Some(wanted) = wanted {
        load_pointers(&mut program, XDP_DATA);
        let whole = match fragments {
            true => Whole::XdpHelper,
            false => Whole::InOneBuffer,
        };
        leave_others(&mut program, wanted, whole);
    }

    if !metadata.is_empty() {
        write_metadata(&mut program, metadata);
    }
    program.set_map(R1, sockets);
    program.load(Size::Word, R2, R6, XDP_QUEUE);
    program.set(R3, XDP_PASS).call(Helper::RedirectMap);
    program.set(R9, R0).set(R8, TAKEN);
    program.jump_if(Condition::Equal, R9, XDP_REDIRECT, "count");
    program.set(R8, PASSED);
    if wanted.is_some() || !metadata.is_empty() {
        program.jump("count");
        program.label("other").set(R9, XDP_PASS).set(R8, OTHER);
    }
    program.label("count");
    program.load(Size::Word, R1, R6, XDP_QUEUE);
    program.store(Size::Word, R10, KEY, R1);
    count_and_answer(&mut program, counters);
    program.finish()
}

/// The program of [`super::FlowFilter::tcx_drop`]. In C:
///
/// ```c
/// int tcx_drop(struct __sk_buff *skb)
/// {
///         int answer = TCX_NEXT, place = OTHER;
///
///         // Of a packet in several pieces the headers have to be in the first.
///         __u32 headers = skb->len < 82 ? skb->len : 82;
///         if ((void *)(long)skb->data + headers > (void *)(long)skb->data_end)
///                 bpf_skb_pull_data(skb, headers);
///         if (!skb->vlan_present &&
///             ours(skb, (void *)(long)skb->data, (void *)(long)skb->data_end)) {
///                 answer = TCX_DROP;
///                 place = TAKEN;
///         }
///         // count, as above, in entry 0
///         return answer;
/// }
/// ```
pub(super) fn tcx_drop(
    wanted: Option<&[Destination]>,
    counters: BorrowedFd<'_>,
) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    program.set(R6, R1);
    if let Some(wanted) = wanted {
        program.load(Size::Word, R2, R6, SKB_TAGGED);
        program.jump_if(Condition::NotEqual, R2, 0, "other");
        load_pointers(&mut program, SKB_DATA);
        program.load(Size::Word, R2, R6, SKB_LENGTH);
        program.jump_if(Condition::AtMost, R2, HEADERS_MAX, "headers");
        program.set(R2, HEADERS_MAX);
        program.label("headers").set(R3, R7);
        program.compute(Operation::Add, R3, R2);
        program.jump_if(Condition::AtMost, R3, R8, "linear");
        program.set(R1, R6).call(Helper::SkbPullData);
        load_pointers(&mut program, SKB_DATA);
        program.label("linear");
        leave_others(&mut program, wanted, Whole::SkbLength);
    }
    program.set(R9, TCX_DROP).set(R8, TAKEN);
    if wanted.is_some() {
        program.jump("count");
        program.label("other").set(R9, TCX_NEXT).set(R8, OTHER);
    }
    program.label("count").store(Size::Word, R10, KEY, 0);
    count_and_answer(&mut program, counters);
    program.finish()
}

/// Writes what the driver says in front of the frame, or jumps to `other` if there is no room. A function
/// that fails leaves its zeros.
///
/// ```c
/// static bool has_metadata(struct xdp_md *ctx)
/// {
///         struct { __u64 time; __u32 hash; __be16 protocol; __u16 tci; } *there, it = {};
///
///         bpf_xdp_metadata_rx_timestamp(ctx, &it.time); // and the others
///         if (bpf_xdp_adjust_meta(ctx, -16))
///                 return false;
///         there = (void *)(long)ctx->data_meta;
///         if (there + 1 > (void *)(long)ctx->data)
///                 return false;
///         *there = it;
///         return true;
/// }
/// ```
fn write_metadata(program: &mut Assembler, metadata: &[(Metadata, u32)]) {
    program.store(Size::Double, R10, TIME, 0);
    program.store(Size::Double, R10, HASH, 0);
    program.store(Size::Word, R10, VLAN, 0);
    for (one, function) in metadata {
        program.set(R1, R6);
        for (to, place) in [R2, R3].into_iter().zip(one.places()) {
            program.set(to, R10);
            program.compute(Operation::Add, to, i32::from(*place));
        }
        program.call_kernel(*function);
    }
    let bytes = METADATA_BYTES as i32;
    program.set(R1, R6).set(R2, -bytes);
    program.call(Helper::XdpAdjustMeta);
    program.jump_if(Condition::NotEqual, R0, 0, "other");
    program.load(Size::Word, R1, R6, XDP_METADATA);
    program.load(Size::Word, R2, R6, XDP_DATA);
    program.set(R3, R1).compute(Operation::Add, R3, bytes);
    program.jump_if(Condition::Above, R3, R2, "other");
    let parts = [
        (Size::Double, TIME, 0),
        (Size::Word, HASH, 8),
        (Size::Word, VLAN, 12),
    ];
    for (size, from, to) in parts {
        program.load(size, R4, R10, from).store(size, R1, to, R4);
    }
}

/// Leaves `data` in `R7` and `data_end` in `R8`, from the context in `R6`.
fn load_pointers(program: &mut Assembler, data: i16) {
    program.load(Size::Word, R7, R6, data);
    program.load(Size::Word, R8, R6, data + 4);
}

/// Jumps to `other` unless the frame is wanted: `ours`, with addresses and ports as constants. No
/// address is compared where every one will do.
///
/// ```c
/// static bool ours(void *ctx, __u8 *data, __u8 *data_end)
/// {
///         if (data + HEADERS > data_end || *(__be16 *)(data + 12) != htons(ETH_P_IP))
///                 return false;
///         __u8 *ip = data + 14;
///         __u32 header = (ip[0] & 15) << 2;
///         if (ip[0] >> 4 != 4 || header < 20 || ip[9] != IPPROTO_UDP)
///                 return false;
///         if (*(__be16 *)(ip + 6) & htons(0x3fff)) // a fragment
///                 return false;
///         __u32 length = ntohs(*(__be16 *)(ip + 2));
///         // Over IPv6: ip[0] >> 4 == 6, ip[6] == IPPROTO_UDP, header and length without the 40 bytes
///         // of the IPv6 header.
///
///         __u8 *udp = ip + header;
///         if (udp + 8 > data_end)
///                 return false;
///         __u32 datagram = ntohs(*(__be16 *)(udp + 4));
///         if (datagram < 8 || header + datagram > length)
///                 return false;
///         __u32 port = ntohs(*(__be16 *)(udp + 2)), address = *(__be32 *)(ip + 16);
///         if (!(address == ADDRESS && port >= FIRST && port <= LAST) && !(...)) // each destination
///                 return false;
///         return data + 14 + length <= data_end || 14 + length <= bpf_xdp_get_buff_len(ctx);
/// }
/// ```
fn leave_others(program: &mut Assembler, wanted: &[Destination], whole: Whole) {
    let (v4, v6): (Vec<_>, Vec<_>) = wanted.iter().partition(|wanted| wanted.address.is_ipv4());
    if !v4.is_empty() {
        let not_v4 = if v6.is_empty() { "other" } else { "v6" };
        leave_others_v4(program, &v4, not_v4);
        program.jump("whole");
    }
    if !v6.is_empty() {
        program.label("v6");
        leave_others_v6(program, &v6);
    }
    program.label("whole");
    // The length of the frame without padding is in `R9`.
    program.set(R2, R7).compute(Operation::Add, R2, R9);
    match whole {
        Whole::InOneBuffer => {
            program.jump_if(Condition::Above, R2, R8, "other");
        }
        Whole::XdpHelper => {
            // The helper is a call, and seldom needed.
            program.jump_if(Condition::AtMost, R2, R8, "ours");
            program.set(R1, R6).call(Helper::XdpBufferLength);
            program.jump_if(Condition::Above, R9, R0, "other");
            program.label("ours");
        }
        Whole::SkbLength => {
            program.load(Size::Word, R2, R6, SKB_LENGTH);
            program.jump_if(Condition::Above, R9, R2, "other");
        }
    }
}

fn leave_others_v4(program: &mut Assembler, wanted: &[&Destination], not_v4: &'static str) {
    leave_other_types(program, V4_HEADERS_MIN, ETHERNET_IPV4, not_v4);
    program.load(Size::Byte, R2, R7, IP).set(R3, R2);
    program.compute(Operation::ShiftRight, R3, 4);
    program.jump_if(Condition::NotEqual, R3, 4, "other");
    program.compute(Operation::And, R2, 15);
    program.compute(Operation::ShiftLeft, R2, 2);
    program.jump_if(Condition::Below, R2, IPV4_BYTES as i32, "other");
    program.load(Size::Byte, R3, R7, V4_PROTOCOL);
    program.jump_if(Condition::NotEqual, R3, i32::from(UDP), "other");
    program.load(Size::Half, R3, R7, V4_FRAGMENT);
    program.jump_if(
        Condition::AnyBit,
        R3,
        i32::from(IPV4_FRAGMENT.to_be()),
        "other",
    );

    // The IP packet's length in R9, the UDP header in R4.
    program.load(Size::Half, R9, R7, V4_LENGTH);
    program.swap_network16(R9);
    program
        .set(R4, R7)
        .compute(Operation::Add, R4, i32::from(IP));
    program.compute(Operation::Add, R4, R2);
    program.set(R3, R4);
    program.compute(Operation::Add, R3, UDP_BYTES as i32);
    program.jump_if(Condition::Above, R3, R8, "other");
    program.load(Size::Half, R5, R4, UDP_LENGTH);
    program.swap_network16(R5);
    program.jump_if(Condition::Below, R5, UDP_BYTES as i32, "other");
    program.compute(Operation::Add, R5, R2);
    program.jump_if(Condition::Above, R5, R9, "other");
    program.compute(Operation::Add, R9, ETHERNET_BYTES as i32);
    program.load(Size::Half, R5, R4, UDP_PORT);
    leave_other_destinations(program, "v4", V4_DESTINATION, wanted);
}

fn leave_others_v6(program: &mut Assembler, wanted: &[&Destination]) {
    leave_other_types(program, V6_HEADERS, ETHERNET_IPV6, "other");
    program.load(Size::Byte, R2, R7, IP);
    program.compute(Operation::ShiftRight, R2, 4);
    program.jump_if(Condition::NotEqual, R2, 6, "other");
    program.load(Size::Byte, R2, R7, V6_NEXT);
    program.jump_if(Condition::NotEqual, R2, i32::from(UDP), "other");
    program.load(Size::Half, R9, R7, V6_LENGTH);
    program.swap_network16(R9);
    program.load(Size::Half, R2, R7, V6_UDP + UDP_LENGTH);
    program.swap_network16(R2);
    program.jump_if(Condition::Below, R2, UDP_BYTES as i32, "other");
    program.jump_if(Condition::Above, R2, R9, "other");
    program.compute(Operation::Add, R9, (ETHERNET_BYTES + IPV6_BYTES) as i32);
    program.load(Size::Half, R5, R7, V6_UDP + UDP_PORT);
    leave_other_destinations(program, "v6", V6_DESTINATION, wanted);
}

/// The first checks: the headers are there, and Ethernet carries the IP version `kind`. For another
/// type it jumps to `else_to`.
fn leave_other_types(program: &mut Assembler, headers: i32, kind: u16, else_to: &'static str) {
    program.set(R2, R7).compute(Operation::Add, R2, headers);
    program.jump_if(Condition::Above, R2, R8, "other");
    program.load(Size::Half, R2, R7, ETHERNET_TYPE);
    program.jump_if(Condition::NotEqual, R2, i32::from(kind.to_be()), else_to);
}

/// Compares the port in `R5`, in network order, and the address with each destination of a version
/// of IP.
fn leave_other_destinations(
    program: &mut Assembler,
    version: &str,
    offset: i16,
    wanted: &[&Destination],
) {
    let found = format!("found {version}");
    program.swap_network16(R5);
    for (at, destination) in wanted.iter().enumerate() {
        let is_last = at + 1 == wanted.len();
        let next = match is_last {
            true => Label::from("other"),
            false => Label::from(format!("behind {version} {at}")),
        };
        let [first, last] = [destination.ports.start(), destination.ports.end()];
        program.jump_if(Condition::Below, R5, i32::from(*first), next.clone());
        program.jump_if(Condition::Above, R5, i32::from(*last), next.clone());
        for (word, place) in destination.words().iter().zip((offset..).step_by(4)) {
            program.load(Size::Word, R3, R7, place);
            let word = i32::from_ne_bytes(*word);
            program.jump_if32(Condition::NotEqual, R3, word, next.clone());
        }
        if !is_last {
            program.jump(found.clone()).label(next);
        }
    }
    program.label(found);
}

/// Adds one at the place in `R8` of the entry that the key on the stack names, and ends with the answer
/// in `R9`.
fn count_and_answer(program: &mut Assembler, counters: BorrowedFd<'_>) {
    program.set_map(R1, counters).set(R2, R10);
    program.compute(Operation::Add, R2, i32::from(KEY));
    program.call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "answer");
    program.compute(Operation::Add, R0, R8);
    program.load(Size::Double, R1, R0, 0);
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Double, R0, 0, R1);
    program.label("answer").set(R0, R9).exit();
}
