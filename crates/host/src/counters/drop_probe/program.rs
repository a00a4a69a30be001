//! The program that counts, run by the kernel for every dropped packet.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use mpps_os::bpf::asm::{
    Assembler, AssemblyError, Condition, Helper, Operation, R0, R1, R2, R3, R4, R7, R8, R9, R10,
    Register, Size,
};
use mpps_os::bpf::{Instruction, PerCpuMap};

use super::DropFilter;
use super::fields::{Fields, SKB_ROOM};
use super::{
    MARK_EGRESS, MARK_GROUP, MARK_ICMP_ERROR, MARK_IGMP, MARK_OPTIONS, MARK_OWN_ADDRESS,
    MARK_ZERO_CHECKSUM,
};

/// Network namespace, reason, class, 1 for what a socket of the namespace sent, the place in the code (two
/// words in the machine's order), and marks.
pub(super) type DropKey = [u32; 8];

/// Which drops are counted by place and marks, so that the map stays small.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Details {
    /// Drops of this network namespace only.
    pub(super) namespace: u32,
    /// The reason that is counted by place.
    pub(super) placed: u32,
    /// The reasons that are counted by marks.
    pub(super) marked: Vec<u32>,
    /// The reason that needs Ethernet addresses.
    pub(super) addressed: Option<u32>,
    /// The reason of packets that came by no interface and lost their socket before.
    pub(super) orphaned: Option<u32>,
}

/// Packets, datagrams.
pub(super) type DropTotal = [u64; 2];

/// The class of datagrams to the filter's ports, and the class of all other packets.
pub(super) const OURS: u32 = 0;
const OTHERS: i32 = 1;

/// The maps that the program counts in.
#[derive(Debug)]
pub(super) struct Maps<'a> {
    counts: BorrowedFd<'a>,
    lost: BorrowedFd<'a>,
}

impl<'a> Maps<'a> {
    pub(super) fn new(
        counts: &'a PerCpuMap<DropKey, DropTotal>,
        lost: &'a PerCpuMap<[u32; 1], [u64; 1]>,
    ) -> Self {
        Self::from_descriptors([counts.as_fd(), lost.as_fd()])
    }

    pub(super) fn from_descriptors([counts, lost]: [BorrowedFd<'a>; 2]) -> Self {
        Self { counts, lost }
    }
}

/// The stack, as offsets from its end. Each place is aligned for what is read from it.
const SKB: i16 = -SKB_ROOM;
/// The network header, of at most 60 bytes, and the ports behind it. Copying what may not be there
/// is harmless: a buffer ends with at least 300 bytes of `struct skb_shared_info`.
const PACKET_ROOM: i16 = 64;
const PACKET: i16 = SKB - PACKET_ROOM;
const COUNT: i16 = PACKET - 16;
const KEY: i16 = COUNT - 32;
const KEY_REASON: i16 = KEY + 4;
const KEY_CLASS: i16 = KEY + 8;
const KEY_SENT: i16 = KEY + 12;
const KEY_PLACE: i16 = KEY + 16;
const KEY_MARKS: i16 = KEY + 24;
/// A place for what is read in passing.
const SCRATCH: i16 = KEY - 8;
/// The index of the only entry of the array of lost counts; before that, an Ethernet address.
const INDEX: i16 = SCRATCH - 8;

/// `ETH_P_IP` and `ETH_P_IPV6` of `include/uapi/linux/if_ether.h`, as loaded from network order.
const IPV4: i32 = 0x0800_u16.to_be() as i32;
const IPV6: i32 = 0x86dd_u16.to_be() as i32;
/// Protocol numbers of the IANA: UDP and the IPv6 fragment header.
const UDP: i32 = 17;
const FRAGMENT: i32 = 44;
const IGMP: i32 = 2;
const ICMP: i32 = 1;
const ICMPV6: i32 = 58;
/// The types of ICMP that are errors (RFC 792): unreachable, time exceeded, parameter problem. Those of ICMPv6 are below
/// 128 (RFC 4443).
const ICMP_ERRORS: [i32; 3] = [3, 11, 12];
const ICMPV6_ANSWERS: i32 = 128;
/// The length of an Ethernet address.
const ETHERNET_ADDRESS: i32 = 6;
/// `mac_header` of a packet that has none yet (`skb_mac_header_was_set`).
const NO_MAC_HEADER: i32 = 0xffff;
/// Update only what is not there (`BPF_NOEXIST`).
const ONLY_NEW: i32 = 1;

/// Puts the program together for this kernel's fields. In C, with `copy` for
/// `bpf_probe_read_kernel`, which yields zeros where it may not read:
///
/// ```c
/// int count_drop(__u64 *arguments)
/// {
///         struct sk_buff skb;
///         struct sock *sk = (void *)arguments[3];
///         struct key key = { .netns = 0, .reason = arguments[2], .class = OTHERS };
///         struct count count = { .skbs = 1, .datagrams = 1 }, *known;
///
///         // The members of a merged train and of a reassembled datagram are freed one by one by
///         // the function that frees their head. They are not drops: a head that was dropped has
///         // been counted for all of them, and those of a delivered head come by here too.
///         if (arguments[1] - START < LENGTH)
///                 return 0;
///         skb = copy(arguments[0]);
///
///         // A packet queued in a UDP socket has other things where its device was; they never
///         // have the top bit of a kernel address.
///         struct net *net = NULL;
///         if (sk)
///                 net = copy(&sk->sk_net);
///         else if ((__u64)skb.dev >> 63)
///                 net = copy(&skb.dev->nd_net);
///         else if (skb.sk)
///                 net = copy(&skb.sk->sk_net);
///         if (net)
///                 key.netns = copy(&net->ns.inum);
///
///         // What a socket sent came by no interface. A veth gives it on with the socket of the
///         // other namespace.
///         if (!skb.skb_iif && skb.sk && copy(&copy(&skb.sk->sk_net)->ns.inum) == key.netns)
///                 key.sent = 1;
///         // A tun takes the socket away before it drops (`tun_net_xmit`).
///         if (!skb.skb_iif && !skb.sk && key.reason == ORPHANED)
///                 key.sent = 1;
///
///         // Only where they decide between causes.
///         if (key.netns == NAMESPACE && key.reason == PLACED)
///                 key.place = arguments[1];
///
///         struct skb_shared_info shared = copy(skb.head + skb.end);
///         if (shared.gso_segs)
///                 count.datagrams = shared.gso_segs;
///
///         // Before the network layer has seen a packet its data starts with the network header.
///         __u64 at = skb.network_header;
///         if (skb.mac_header != 0xffff && at < skb.mac_header)
///                 at = skb.data - skb.head;
///         if (key.netns == NAMESPACE && is_marked(key.reason))
///                 key.marks = marks(&skb, skb.head + at, skb.tail - at);
///         if (at <= skb.tail && is_our_datagram(skb.head + at, skb.tail - at, skb.protocol, key.sent))
///                 key.class = OURS;
///
///         known = bpf_map_lookup_elem(&counts, &key);
///         if (!known) {
///                 if (!bpf_map_update_elem(&counts, &key, &count, BPF_NOEXIST))
///                         return 0;
///                 known = bpf_map_lookup_elem(&counts, &key); // another CPU was first
///         }
///         if (known) {
///                 known->skbs += 1;
///                 known->datagrams += count.datagrams;
///         } else {
///                 *(__u64 *)bpf_map_lookup_elem(&lost, &(__u32){ 0 }) += 1;
///         }
///         return 0;
/// }
/// ```
///
/// The counts need no atomic operations: each CPU has its own, and the kernel does not start the
/// program on a CPU where it is running already (`prog->active`), but counts that it did not.
pub(super) fn assemble(
    fields: &Fields,
    release: &[Range<u64>],
    filter: &DropFilter,
    details: Option<&Details>,
    maps: &Maps<'_>,
) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    skip_members(&mut program, release);
    start(&mut program, fields);
    find_namespace(&mut program, fields);
    keep_place(&mut program, details);
    find_direction(&mut program, fields, details);
    measure_train(&mut program, fields);
    find_network_header(&mut program, fields);
    read_packet(&mut program);
    if let Some(details) = details {
        mark(&mut program, fields, details);
    }
    classify(&mut program, fields, filter);
    count(&mut program, maps);
    program.finish()
}

/// Ends the program for what is freed with its head: the tracepoint's second argument is the place
/// in the code from where the packet was freed.
fn skip_members(program: &mut Assembler, release: &[Range<u64>]) {
    program.load(Size::Double, R2, R1, 8);
    for code in release {
        program.set(R3, R2).set64(R4, code.start);
        program.compute(Operation::Subtract, R3, R4);
        program.set64(R4, code.end - code.start);
        program.jump_if(Condition::Below, R3, R4, "done");
    }
}

/// Leaves the socket in `R7` and a copy of the packet in `SKB`.
fn start(program: &mut Assembler, fields: &Fields) {
    match fields.names_socket {
        true => program.load(Size::Double, R7, R1, 24),
        false => program.set(R7, 0),
    };
    program.load(Size::Double, R8, R1, 16);
    program.store(Size::Word, R10, KEY, 0);
    program.store(Size::Word, R10, KEY_REASON, R8);
    program.store(Size::Word, R10, KEY_CLASS, OTHERS);
    program.store(Size::Word, R10, KEY_SENT, 0);
    program.load(Size::Double, R8, R1, 8);
    program.store(Size::Double, R10, KEY_PLACE, R8);
    program.store(Size::Double, R10, KEY_MARKS, 0);
    program.store(Size::Double, R10, COUNT, 1);
    program.store(Size::Double, R10, COUNT + 8, 1);
    program.load(Size::Double, R3, R1, 0);
    copy(program, SKB, fields.skb_size);
}

/// Writes the namespace to the key; uses up the socket in `R7`.
fn find_namespace(program: &mut Assembler, fields: &Fields) {
    program.jump_if(Condition::NotEqual, R7, 0, "by socket");
    program.load(Size::Double, R3, R10, SKB + fields.device);
    program.set(R1, R3).compute(Operation::ShiftRight, R1, 63);
    program.jump_if(Condition::Equal, R1, 0, "no device");
    program.compute(Operation::Add, R3, fields.device_net);
    program.jump("read namespace");

    program.label("no device");
    program.load(Size::Double, R7, R10, SKB + fields.socket);
    program.jump_if(Condition::Equal, R7, 0, "namespace done");
    program.label("by socket").set(R3, R7);
    program.compute(Operation::Add, R3, fields.socket_net);

    program.label("read namespace");
    copy(program, SCRATCH, 8);
    program.load(Size::Double, R3, R10, SCRATCH);
    program.jump_if(Condition::Equal, R3, 0, "namespace done");
    program.compute(Operation::Add, R3, fields.net_inode);
    copy(program, KEY, 4);
    program.label("namespace done");
}

/// Jumps to `away` if the packet was not dropped in the namespace of the details.
fn leave_others(program: &mut Assembler, details: &Details, away: &'static str) {
    program.load(Size::Word, R1, R10, KEY);
    program.set64(R2, details.namespace.into());
    program.jump_if(Condition::NotEqual, R1, R2, away);
    program.load(Size::Word, R1, R10, KEY_REASON);
}

/// A number of the kernel's enumeration, which is small: the cast keeps its value.
const fn number(reason: u32) -> i32 {
    reason as i32
}

/// Leaves the place in the key only where it is wanted.
fn keep_place(program: &mut Assembler, details: Option<&Details>) {
    if let Some(details) = details {
        leave_others(program, details, "no place");
        program.jump_if(Condition::Equal, R1, number(details.placed), "placed");
    }
    program.label("no place");
    program.store(Size::Double, R10, KEY_PLACE, 0);
    program.label("placed");
}

/// Writes to the key whether a socket of the same namespace sent the packet.
fn find_direction(program: &mut Assembler, fields: &Fields, details: Option<&Details>) {
    program.load(Size::Word, R1, R10, SKB + fields.came_by);
    program.jump_if(Condition::NotEqual, R1, 0, "direction done");
    program.load(Size::Double, R3, R10, SKB + fields.socket);
    program.jump_if(Condition::NotEqual, R3, 0, "has socket");
    if let Some(reason) = details.and_then(|details| details.orphaned) {
        program.load(Size::Word, R1, R10, KEY_REASON);
        program.jump_if(Condition::Equal, R1, number(reason), "sent");
    }
    program.jump("direction done");
    program.label("has socket");
    program.compute(Operation::Add, R3, fields.socket_net);
    copy(program, SCRATCH, 8);
    program.load(Size::Double, R3, R10, SCRATCH);
    program.compute(Operation::Add, R3, fields.net_inode);
    copy(program, SCRATCH, 4);
    program.load(Size::Word, R1, R10, SCRATCH);
    program.load(Size::Word, R2, R10, KEY);
    program.jump_if(Condition::NotEqual, R1, R2, "direction done");
    program.label("sent");
    program.store(Size::Word, R10, KEY_SENT, 1);
    program.label("direction done");
}

/// Writes the number of datagrams to the count. Leaves the buffer in `R9`.
fn measure_train(program: &mut Assembler, fields: &Fields) {
    program.load(Size::Double, R9, R10, SKB + fields.head);
    program.load(Size::Word, R3, R10, SKB + fields.end);
    program.compute(Operation::Add, R3, R9);
    program.compute(Operation::Add, R3, fields.train_length);
    copy(program, SCRATCH, 2);
    program.load(Size::Half, R1, R10, SCRATCH);
    program.jump_if(Condition::Equal, R1, 0, "single");
    program.store(Size::Double, R10, COUNT + 8, R1);
    program.label("single");
}

/// Leaves the address of the network header in `R9` and the bytes from there in `R8`; both may be
/// nonsense for a packet without one, and are checked before use.
fn find_network_header(program: &mut Assembler, fields: &Fields) {
    program.load(Size::Half, R1, R10, SKB + fields.network_header);
    program.load(Size::Half, R2, R10, SKB + fields.mac_header);
    program.jump_if(Condition::Equal, R2, NO_MAC_HEADER, "header found");
    program.jump_if(Condition::AtLeast, R1, R2, "header found");
    program.load(Size::Double, R1, R10, SKB + fields.data);
    program.compute(Operation::Subtract, R1, R9);

    program.label("header found");
    program.load(Size::Word, R8, R10, SKB + fields.tail);
    program.jump_if(Condition::Above, R1, R8, "count");
    program.compute(Operation::Subtract, R8, R1);
    program.compute(Operation::Add, R9, R1);
}

/// Leaves a copy of the network header in `PACKET`.
fn read_packet(program: &mut Assembler) {
    program.jump_if(Condition::Below, R8, 20, "count");
    program.set(R3, R9);
    copy(program, PACKET, i32::from(PACKET_ROOM));
}

/// Writes the marks to the key: `marks`.
///
/// ```c
/// static __u32 marks(struct sk_buff *skb, void *header, __u64 length)
/// {
///         __u8 ip[64] = copy(header);
///         __u32 marks = 0;
///
///         if (reason == ADDRESSED && skb->mac_header != 0xffff && (__u64)skb->dev >> 63) {
///                 __u64 to = copy(skb->head + skb->mac_header);
///                 if (to == copy(copy(&skb->dev->dev_addr)) || *(__u8 *)&to & 1)
///                         marks |= MARK_OWN_ADDRESS;
///         }
///         // Devices get packets with the place of their header; an outer IP header is before that of the inner one.
///         if (sent && skb->mac_header != 0xffff && skb->mac_header <= skb->network_header)
///                 marks |= MARK_EGRESS;
///         if (skb->protocol == htons(ETH_P_IPV6)) {
///                 if (length >= 48 && ip[6] == IPPROTO_ICMPV6 && ip[40] < 128)
///                         marks |= MARK_ICMP_ERROR;
///                 if (length >= 48 && ip[6] == IPPROTO_UDP && !*(__be16 *)(ip + 46))
///                         marks |= MARK_ZERO_CHECKSUM;
///         } else if (skb->protocol == htons(ETH_P_IP)) {
///                 if ((ip[0] & 15) > 5)
///                         marks |= MARK_OPTIONS;
///                 if ((ip[0] & 15) == 5 && ip[9] == IPPROTO_ICMP && (ip[20] == 3 || ip[20] == 11 || ip[20] == 12))
///                         marks |= MARK_ICMP_ERROR;
///                 if (ip[9] == IPPROTO_IGMP)
///                         marks |= MARK_IGMP;
///                 if (ip[16] >> 4 == 14)
///                         marks |= MARK_GROUP;
///         }
///         return marks;
/// }
/// ```
fn mark(program: &mut Assembler, fields: &Fields, details: &Details) {
    leave_others(program, details, "marked");
    for reason in &details.marked {
        program.jump_if(Condition::Equal, R1, number(*reason), "mark packet");
    }
    let Some(addressed) = details.addressed else {
        program.jump("marked");
        mark_packet(program, fields);
        return;
    };
    program.jump_if(Condition::NotEqual, R1, number(addressed), "marked");
    program.load(Size::Half, R2, R10, SKB + fields.mac_header);
    program.jump_if(Condition::Equal, R2, NO_MAC_HEADER, "mark packet");
    program.load(Size::Double, R7, R10, SKB + fields.device);
    program.set(R1, R7).compute(Operation::ShiftRight, R1, 63);
    program.jump_if(Condition::Equal, R1, 0, "mark packet");
    program.load(Size::Double, R3, R10, SKB + fields.head);
    program.compute(Operation::Add, R3, R2);
    program.store(Size::Double, R10, INDEX, 0);
    copy(program, INDEX, ETHERNET_ADDRESS);
    program
        .set(R3, R7)
        .compute(Operation::Add, R3, fields.device_address);
    copy(program, SCRATCH, 8);
    program.load(Size::Double, R3, R10, SCRATCH);
    program.store(Size::Double, R10, SCRATCH, 0);
    copy(program, SCRATCH, ETHERNET_ADDRESS);
    program.load(Size::Byte, R1, R10, INDEX);
    program.compute(Operation::And, R1, 1);
    program.jump_if(Condition::NotEqual, R1, 0, "own address");
    program.load(Size::Double, R1, R10, INDEX);
    program.load(Size::Double, R2, R10, SCRATCH);
    program.jump_if(Condition::NotEqual, R1, R2, "mark packet");
    program.label("own address");
    program.store(Size::Word, R10, KEY_MARKS, number(MARK_OWN_ADDRESS));
    mark_packet(program, fields);
}

/// The part of [`mark`] that needs only the packet.
fn mark_packet(program: &mut Assembler, fields: &Fields) {
    program.label("mark packet");
    program.load(Size::Word, R3, R10, KEY_MARKS);
    program.load(Size::Word, R1, R10, KEY_SENT);
    program.jump_if(Condition::Equal, R1, 0, "not at device");
    program.load(Size::Half, R1, R10, SKB + fields.mac_header);
    program.load(Size::Half, R2, R10, SKB + fields.network_header);
    // That of a packet without a place is above all.
    program.jump_if(Condition::Above, R1, R2, "not at device");
    program.compute(Operation::Or, R3, number(MARK_EGRESS));
    program.store(Size::Word, R10, KEY_MARKS, R3);
    program.label("not at device");
    program.load(Size::Half, R1, R10, SKB + fields.protocol);
    program.jump_if(Condition::Equal, R1, IPV6, "mark ipv6");
    program.jump_if(Condition::NotEqual, R1, IPV4, "marked");
    program.load(Size::Byte, R1, R10, PACKET);
    program.compute(Operation::And, R1, 15);
    program.jump_if(Condition::Below, R1, 6, "no options");
    program.compute(Operation::Or, R3, number(MARK_OPTIONS));
    program.jump("no icmp");
    program.label("no options");
    program.load(Size::Byte, R1, R10, PACKET + 9);
    program.jump_if(Condition::NotEqual, R1, ICMP, "no icmp");
    program.load(Size::Byte, R1, R10, PACKET + 20);
    for kind in ICMP_ERRORS {
        program.jump_if(Condition::Equal, R1, kind, "icmp error");
    }
    program.label("no icmp");
    program.load(Size::Byte, R1, R10, PACKET + 9);
    program.jump_if(Condition::NotEqual, R1, IGMP, "no igmp");
    program.compute(Operation::Or, R3, number(MARK_IGMP));
    program.label("no igmp");
    program.load(Size::Byte, R1, R10, PACKET + 16);
    program.compute(Operation::ShiftRight, R1, 4);
    program.jump_if(Condition::NotEqual, R1, 14, "write marks");
    program.compute(Operation::Or, R3, number(MARK_GROUP));
    program.jump("write marks");

    program.label("mark ipv6");
    program.jump_if(Condition::Below, R8, 48, "marked");
    program.load(Size::Byte, R1, R10, PACKET + 6);
    program.jump_if(Condition::Equal, R1, ICMPV6, "mark icmpv6");
    program.jump_if(Condition::NotEqual, R1, UDP, "marked");
    program.load(Size::Half, R1, R10, PACKET + 46);
    program.jump_if(Condition::NotEqual, R1, 0, "marked");
    program.compute(Operation::Or, R3, number(MARK_ZERO_CHECKSUM));
    program.jump("write marks");
    program.label("mark icmpv6");
    program.load(Size::Byte, R1, R10, PACKET + 40);
    program.jump_if(Condition::AtLeast, R1, ICMPV6_ANSWERS, "marked");
    program.label("icmp error");
    program.compute(Operation::Or, R3, number(MARK_ICMP_ERROR));
    program.label("write marks");
    program.store(Size::Word, R10, KEY_MARKS, R3);
    program.label("marked");
}

/// Writes the class to the key if this is a datagram for the filter's ports: `is_our_datagram`.
///
/// ```c
/// static bool is_our_datagram(void *header, __u64 length, __be16 protocol, bool sent)
/// {
///         __u8 ip[64] = copy(header);
///         __u64 udp;
///
///         if (length < 20)
///                 return false;
///         if (protocol == htons(ETH_P_IP)) {
///                 udp = (ip[0] & 15) << 2;
///                 if (ip[0] >> 4 != 4 || udp < 20 || ip[9] != IPPROTO_UDP)
///                         return false;
///                 if (ntohs(*(__be16 *)(ip + 6)) & 0x1fff) // not the first fragment
///                         return false;
///         } else if (protocol == htons(ETH_P_IPV6)) {
///                 if (ip[0] >> 4 != 6)
///                         return false;
///                 udp = 40;
///                 if (ip[6] == IPPROTO_FRAGMENT) {
///                         udp = 48;
///                         if (length < udp || ip[40] != IPPROTO_UDP ||
///                             ntohs(*(__be16 *)(ip + 42)) & 0xfff8)
///                                 return false;
///                 } else if (ip[6] != IPPROTO_UDP) {
///                         return false;
///                 }
///         } else {
///                 return false;
///         }
///         if (udp + 4 > length)
///                 return false;
///         __u16 from = ntohs(*(__be16 *)(ip + udp)), to = ntohs(*(__be16 *)(ip + udp + 2));
///         return to >= FIRST && to <= LAST || sent && from >= FIRST && from <= LAST;
/// }
/// ```
fn classify(program: &mut Assembler, fields: &Fields, filter: &DropFilter) {
    program.load(Size::Half, R1, R10, SKB + fields.protocol);
    program.load(Size::Byte, R2, R10, PACKET);
    program.set(R3, R2).compute(Operation::ShiftRight, R3, 4);
    program.jump_if(Condition::Equal, R1, IPV6, "ipv6");
    program.jump_if(Condition::NotEqual, R1, IPV4, "count");

    program.jump_if(Condition::NotEqual, R3, 4, "count");
    program.compute(Operation::And, R2, 15);
    program.compute(Operation::ShiftLeft, R2, 2);
    program.jump_if(Condition::Below, R2, 20, "count");
    program.load(Size::Byte, R1, R10, PACKET + 9);
    program.jump_if(Condition::NotEqual, R1, UDP, "count");
    program.load(Size::Half, R1, R10, PACKET + 6);
    program.swap_network16(R1);
    program.compute(Operation::And, R1, 0x1fff);
    program.jump_if(Condition::NotEqual, R1, 0, "count");
    program.jump("port");

    program.label("ipv6");
    program.jump_if(Condition::NotEqual, R3, 6, "count");
    program.set(R2, 40);
    program.load(Size::Byte, R1, R10, PACKET + 6);
    program.jump_if(Condition::Equal, R1, UDP, "port");
    program.jump_if(Condition::NotEqual, R1, FRAGMENT, "count");
    program.set(R2, 48);
    program.jump_if(Condition::Below, R8, 48, "count");
    program.load(Size::Byte, R1, R10, PACKET + 40);
    program.jump_if(Condition::NotEqual, R1, UDP, "count");
    program.load(Size::Half, R1, R10, PACKET + 42);
    program.swap_network16(R1);
    program.compute(Operation::And, R1, 0xfff8);
    program.jump_if(Condition::NotEqual, R1, 0, "count");

    program.label("port");
    program.set(R1, R2).compute(Operation::Add, R1, 4);
    program.jump_if(Condition::Above, R1, R8, "count");
    program.set(R3, R10).compute(Operation::Add, R3, R2);
    program.load(Size::Half, R1, R3, PACKET + 2);
    let ports = [filter.ports.start(), filter.ports.end()].map(|&port| i32::from(port));
    leave_ports(program, ports, "of an answer");
    program.jump("ours");
    program.label("of an answer");
    program.load(Size::Word, R1, R10, KEY_SENT);
    program.jump_if(Condition::Equal, R1, 0, "count");
    program.load(Size::Half, R1, R3, PACKET);
    leave_ports(program, ports, "count");
    program.label("ours");
    // Zero to two: a constant in C, and a cast that keeps its value.
    program.store(Size::Word, R10, KEY_CLASS, OURS as i32);
}

/// Jumps to `away` if the port in `R1` is none of these.
fn leave_ports(program: &mut Assembler, [first, last]: [i32; 2], away: &'static str) {
    program.swap_network16(R1);
    program.jump_if(Condition::Below, R1, first, away);
    program.jump_if(Condition::Above, R1, last, away);
}

/// Adds the count under the key, and ends the program.
fn count(program: &mut Assembler, maps: &Maps<'_>) {
    program.label("count");
    map_and_key(program, maps.counts, KEY);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::NotEqual, R0, 0, "add");
    map_and_key(program, maps.counts, KEY);
    stack_address(program, R3, COUNT);
    program.set(R4, ONLY_NEW).call(Helper::MapUpdate);
    program.jump_if(Condition::Equal, R0, 0, "done");
    map_and_key(program, maps.counts, KEY);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "lost");

    program.label("add");
    program.load(Size::Double, R1, R0, 0);
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Double, R0, 0, R1);
    program.load(Size::Double, R1, R0, 8);
    program.load(Size::Double, R2, R10, COUNT + 8);
    program.compute(Operation::Add, R1, R2);
    program.store(Size::Double, R0, 8, R1);
    program.jump("done");

    program.label("lost");
    program.store(Size::Word, R10, INDEX, 0);
    map_and_key(program, maps.lost, INDEX);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "done");
    program.load(Size::Double, R1, R0, 0);
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Double, R0, 0, R1);
    program.label("done").set(R0, 0).exit();
}

/// Copies kernel memory at the address in `R3` to the stack.
fn copy(program: &mut Assembler, to: i16, size: i32) {
    stack_address(program, R1, to);
    program.set(R2, size).call(Helper::ProbeReadKernel);
}

fn map_and_key(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.set_map(R1, map);
    stack_address(program, R2, key);
}

fn stack_address(program: &mut Assembler, to: Register, offset: i16) {
    program.set(to, R10);
    program.compute(Operation::Add, to, i32::from(offset));
}
