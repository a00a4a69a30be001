//! The program, run in a sandbox on made-up packets, against a model of what it should count.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;

use mpps_os::bpf::sandbox::Sandbox;
use proptest::prelude::*;

use super::fields::Fields;
use super::program::{self, Details, DropKey, Maps};
use super::{DropFilter, DropProbeError};

/// No kernel has these offsets, so none can have been compiled in.
const FIELDS: Fields = Fields {
    device: 24,
    socket: 32,
    came_by: 56,
    protocol: 42,
    network_header: 46,
    mac_header: 50,
    tail: 60,
    end: 64,
    head: 72,
    data: 80,
    skb_size: 88,
    train_length: 14,
    device_address: 200,
    device_net: 320,
    socket_net: 56,
    net_inode: 148,
    names_socket: true,
};
const PORTS: std::ops::RangeInclusive<u16> = 4321..=4330;
const RELEASE: Range<u64> = 0xffff_ffff_8100_1000..0xffff_ffff_8100_1400;
const ELSEWHERE: u64 = RELEASE.end;

/// Made-up addresses; all have the top bit, as kernel addresses have.
const SKB: u64 = 0xffff_8880_0001_0000;
const HEAD: u64 = 0xffff_8880_0002_0000;
/// A device, the packet's socket, the receiving socket, each in a namespace of its own; and a device in
/// that of the packet's socket.
const OWNERS: [(u64, i32, u32); 4] = [
    (0xffff_8880_0003_0000, FIELDS.device_net, 4_026_531_001),
    (0xffff_8880_0004_0000, FIELDS.socket_net, 4_026_531_002),
    (0xffff_8880_0005_0000, FIELDS.socket_net, 4_026_531_003),
    (0xffff_8880_0006_0000, FIELDS.device_net, 4_026_531_002),
];
/// The Ethernet address of both devices, and where it is.
const OWN_ADDRESS: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
const ADDRESS_AT: u64 = 0xffff_8880_0007_0000;
/// A network namespace is this far from its owner.
const NET_AFTER: u64 = 0x800;
/// The value that a UDP socket writes over the device of a queued packet: size, length, two flags.
const SCRATCHED: u64 = 0x0101_0020_0000_0300;

const HEADROOM: usize = 64;
const END: usize = 1024;
const ETHERNET: usize = 14;

/// A packet, described by what matters.
#[derive(Clone, Debug)]
struct Packet {
    ipv6: bool,
    options: usize,
    fragment_header: bool,
    fragment_offset: u16,
    more_fragments: bool,
    protocol: u8,
    source: u16,
    port: u16,
    /// Bytes that the buffer ends too early; the missing ones lie behind its end.
    cut: usize,
    /// The link type differs from the packet.
    mislabelled: bool,
    /// The network layer has seen it.
    header_known: bool,
}

/// A passage of the tracepoint.
#[derive(Clone, Debug)]
struct Drop {
    packet: Packet,
    reason: u32,
    location: u64,
    train: u16,
    device: u64,
    socket: bool,
    receiver: bool,
    /// The number of its incoming interface; 0 for none.
    came_by: u32,
}

impl Packet {
    fn udp_offset(&self) -> usize {
        match (self.ipv6, self.fragment_header) {
            (false, _) => 20 + 4 * self.options,
            (true, false) => 40,
            (true, true) => 48,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let flags = u16::from(self.more_fragments);
        let mut bytes = vec![0xaa; self.udp_offset()];
        if self.ipv6 {
            bytes[0] = 0x60;
            bytes[6] = if self.fragment_header {
                44
            } else {
                self.protocol
            };
            if self.fragment_header {
                bytes[40] = self.protocol;
                let field = self.fragment_offset << 3 | flags;
                bytes[42..44].copy_from_slice(&field.to_be_bytes());
            }
        } else {
            bytes[0] = 0x45 + self.options as u8;
            let field = flags << 13 | self.fragment_offset;
            bytes[6..8].copy_from_slice(&field.to_be_bytes());
            bytes[9] = self.protocol;
        }
        bytes.extend(self.source.to_be_bytes());
        bytes.extend(self.port.to_be_bytes());
        bytes.extend([0xbb; 8]);
        bytes
    }

    /// The model: what makes a datagram ours.
    fn is_ours(&self, sent: bool) -> bool {
        let fragmented = self.fragment_header || !self.ipv6;
        let starts = !fragmented || self.fragment_offset == 0;
        let whole = self.bytes().len() - self.cut >= self.udp_offset() + 4;
        let udp = self.protocol == 17 && !self.mislabelled;
        let port = PORTS.contains(&self.port) || sent && PORTS.contains(&self.source);
        udp && starts && whole && port
    }
}

impl Drop {
    /// The model: namespace, reason, class, direction, and datagrams; nothing for a member of a train.
    fn expected(&self) -> Option<(DropKey, u64)> {
        if RELEASE.contains(&self.location) {
            return None;
        }
        let netns = match (self.receiver, self.device, self.socket) {
            (true, _, _) => OWNERS[2].2,
            (false, device, _) if device == OWNERS[0].0 => OWNERS[0].2,
            (false, device, _) if device == OWNERS[3].0 => OWNERS[3].2,
            (false, _, true) => OWNERS[1].2,
            (false, _, false) => super::UNKNOWN_NAMESPACE,
        };
        let sent = self.came_by == 0 && self.socket && netns == OWNERS[1].2;
        let class = u32::from(!self.packet.is_ours(sent));
        let key = plain_key(netns, self.reason, class, u32::from(sent));
        Some((key, u64::from(self.train.max(1))))
    }

    fn arguments(&self) -> [u8; 32] {
        let receiver = if self.receiver { OWNERS[2].0 } else { 0 };
        let words = [SKB, self.location, u64::from(self.reason), receiver];
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn place(&self, world: &mut Sandbox) {
        let packet = self.packet.bytes();
        let network = HEADROOM + ETHERNET;
        let mut buffer = vec![0x45; END + 64];
        buffer[network..][..packet.len()].copy_from_slice(&packet);
        let train = END + FIELDS.train_length as usize;
        buffer[train..train + 2].copy_from_slice(&self.train.to_ne_bytes());
        world.place(HEAD, buffer);

        let mut skb = vec![0xcc; FIELDS.skb_size as usize];
        let mut write = |at: i16, bytes: &[u8]| {
            skb[at as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        let ipv6 = self.packet.ipv6 != self.packet.mislabelled;
        let protocol: u16 = if ipv6 { 0x86dd } else { 0x0800 };
        let header = if self.packet.header_known { network } else { 0 };
        let tail = network + packet.len() - self.packet.cut;
        let socket = if self.socket { OWNERS[1].0 } else { 0 };
        write(FIELDS.device, &self.device.to_ne_bytes());
        write(FIELDS.socket, &socket.to_ne_bytes());
        write(FIELDS.came_by, &self.came_by.to_ne_bytes());
        write(FIELDS.protocol, &protocol.to_be_bytes());
        write(FIELDS.network_header, &(header as u16).to_ne_bytes());
        write(FIELDS.mac_header, &(HEADROOM as u16).to_ne_bytes());
        write(FIELDS.tail, &(tail as u32).to_ne_bytes());
        write(FIELDS.end, &(END as u32).to_ne_bytes());
        write(FIELDS.head, &HEAD.to_ne_bytes());
        // Above the network layer the data starts behind its header, and must not be taken for it.
        let data = if self.packet.header_known {
            network + 28
        } else {
            network
        };
        write(FIELDS.data, &(HEAD + data as u64).to_ne_bytes());
        world.place(SKB, skb);
    }
}

/// The program with its maps, in a world with devices, sockets and namespaces.
struct Bench {
    world: Sandbox,
    counts: File,
    lost: File,
    fields: Fields,
    details: Option<Details>,
}

/// A key without details.
fn plain_key(netns: u32, reason: u32, class: u32, sent: u32) -> DropKey {
    [netns, reason, class, sent, 0, 0, 0, 0]
}

impl Bench {
    fn new(room: usize) -> Self {
        let open = || File::open("/dev/null").expect("/dev/null is everywhere");
        let (counts, lost) = (open(), open());
        let mut world = Sandbox::new();
        world.add_map(counts.as_fd(), 32, 16, room);
        world.add_map(lost.as_fd(), 4, 8, 1);
        world.insert(lost.as_fd(), &[0; 4], &[0; 8]);
        for (owner, offset, inode) in OWNERS {
            let mut bytes = vec![0; offset as usize];
            // A device's pointer to its address is before its namespace.
            if offset == FIELDS.device_net {
                let at = FIELDS.device_address as usize;
                bytes[at..at + 8].copy_from_slice(&ADDRESS_AT.to_ne_bytes());
            }
            bytes.extend((owner + NET_AFTER).to_ne_bytes());
            world.place(owner, bytes);
            let mut bytes = vec![0; FIELDS.net_inode as usize];
            bytes.extend(inode.to_ne_bytes());
            world.place(owner + NET_AFTER, bytes);
        }
        world.place(ADDRESS_AT, OWN_ADDRESS.to_vec());
        Self {
            world,
            counts,
            lost,
            fields: FIELDS,
            details: None,
        }
    }

    fn run(&mut self, drop: &Drop) {
        drop.place(&mut self.world);
        self.run_placed(drop);
    }

    /// Runs the program with a packet that is there already.
    fn run_placed(&mut self, drop: &Drop) {
        let filter = DropFilter {
            details_of: None,
            ports: PORTS,
        };
        let maps = Maps::from_descriptors([self.counts.as_fd(), self.lost.as_fd()]);
        let program = program::assemble(
            &self.fields,
            &[RELEASE],
            &filter,
            self.details.as_ref(),
            &maps,
        )
        .expect("the program assembles");
        let answer = self.world.run(&program, &mut drop.arguments());
        assert_eq!(answer.expect("the program runs"), 0);
    }

    fn counted(&self) -> Vec<(DropKey, [u64; 2])> {
        use mpps_os::bpf::Plain;
        let entries = self.world.entries(self.counts.as_fd());
        let mut entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| (Plain::read(key), Plain::read(value)))
            .collect();
        entries.sort();
        entries
    }

    fn lost(&self) -> u8 {
        self.world.entries(self.lost.as_fd())[0].1[0]
    }
}

fn packets() -> impl Strategy<Value = Packet> {
    let shape = (any::<bool>(), 0..=10usize, any::<bool>(), any::<bool>());
    let offset = prop_oneof![3 => Just(0), 1 => 1..0x1fff_u16];
    let protocol = prop_oneof![4 => Just(17), 1 => Just(6), 1 => Just(44), 1 => any::<u8>()];
    let port = prop_oneof![4 => 4319..=4332_u16, 1 => any::<u16>()];
    let cut = prop_oneof![3 => Just(0), 1 => 0..=14usize];
    let rare = prop::bool::weighted(0.1);
    (
        shape,
        offset,
        protocol,
        (port.clone(), port),
        cut,
        rare,
        any::<bool>(),
    )
        .prop_map(
            |(shape, fragment_offset, protocol, (source, port), cut, mislabelled, header_known)| {
                let (ipv6, options, fragment_header, more_fragments) = shape;
                // An IPv6 packet whose next header is 44 has a fragment header, whatever we meant.
                let fragment_header = fragment_header && ipv6;
                let protocol = if ipv6 && protocol == 44 { 43 } else { protocol };
                Packet {
                    ipv6,
                    options,
                    fragment_header,
                    fragment_offset,
                    more_fragments,
                    protocol,
                    source,
                    port,
                    cut,
                    mislabelled,
                    header_known,
                }
            },
        )
}

fn drops() -> impl Strategy<Value = Drop> {
    let location = prop_oneof![4 => Just(ELSEWHERE), 1 => RELEASE, 1 => any::<u64>()];
    let train = prop_oneof![2 => Just(0), 1 => Just(1), 2 => any::<u16>()];
    let device = prop_oneof![
        3 => Just(OWNERS[0].0),
        2 => Just(OWNERS[3].0),
        1 => Just(0),
        1 => Just(SCRATCHED),
    ];
    let sockets = (any::<bool>(), any::<bool>(), 0..3u32);
    (packets(), 0..200u32, location, train, device, sockets).prop_map(
        |(packet, reason, location, train, device, (socket, receiver, came_by))| Drop {
            packet,
            reason,
            location,
            train,
            device,
            socket,
            receiver,
            came_by,
        },
    )
}

/// A datagram for one of our ports, dropped at a device.
fn plain() -> Drop {
    Drop {
        packet: Packet {
            ipv6: false,
            options: 0,
            fragment_header: false,
            fragment_offset: 0,
            more_fragments: false,
            protocol: 17,
            source: 9999,
            port: 4321,
            cut: 0,
            mislabelled: false,
            header_known: true,
        },
        reason: 2,
        location: ELSEWHERE,
        train: 0,
        device: OWNERS[0].0,
        socket: false,
        receiver: false,
        came_by: 2,
    }
}

proptest! {
    #[test]
    fn one_drop_is_counted_as_the_model_says(drop in drops()) {
        let mut bench = Bench::new(4);
        bench.run(&drop);
        let expected = drop.expected().map(|(key, datagrams)| (key, [1, datagrams]));
        prop_assert_eq!(bench.counted(), Vec::from_iter(expected));
        prop_assert_eq!(bench.lost(), 0);
    }

    #[test]
    fn many_drops_add_up(drops in proptest::collection::vec(drops(), 0..30)) {
        let mut bench = Bench::new(100);
        let mut expected = std::collections::BTreeMap::new();
        for drop in &drops {
            bench.run(drop);
            if let Some((key, datagrams)) = drop.expected() {
                let sum = expected.entry(key).or_insert([0, 0]);
                *sum = super::add(*sum, [1, datagrams]);
            }
        }
        prop_assert_eq!(bench.counted(), Vec::from_iter(expected));
    }
}

#[test]
fn a_full_map_is_counted_and_keeps_what_it_has() {
    let mut bench = Bench::new(1);
    let (first, second) = (
        plain(),
        Drop {
            reason: 3,
            ..plain()
        },
    );
    for drop in [&first, &second, &first, &second, &second] {
        bench.run(drop);
    }
    assert_eq!(bench.counted(), [(plain_key(OWNERS[0].2, 2, 0, 0), [2, 2])]);
    assert_eq!(bench.lost(), 3);
}

#[test]
fn a_kernel_that_names_no_socket_is_not_asked_for_one() {
    let mut bench = Bench::new(1);
    bench.fields.names_socket = false;
    bench.run(&Drop {
        receiver: true,
        ..plain()
    });
    assert_eq!(bench.counted(), [(plain_key(OWNERS[0].2, 2, 0, 0), [1, 1])]);
}

#[test]
fn the_port_range_includes_both_ends() {
    for (port, class) in [(4320, 1), (4321, 0), (4330, 0), (4331, 1)] {
        let mut bench = Bench::new(1);
        let packet = Packet {
            port,
            ..plain().packet
        };
        bench.run(&Drop { packet, ..plain() });
        assert_eq!(
            bench.counted(),
            [(plain_key(OWNERS[0].2, 2, class, 0), [1, 1])]
        );
    }
}

#[test]
fn a_limit_of_the_process_is_not_told_as_an_old_kernel() {
    for (errno, helps) in [(24, "RLIMIT_NOFILE"), (22, "Linux 5.17")] {
        let source = std::io::Error::from_raw_os_error(errno);
        let refusal = mpps_os::CallError::new("bpf BPF_MAP_CREATE", "x", source);
        let remedy = DropProbeError::from_kernel(refusal).remedy();
        assert!(remedy.contains(helps), "{remedy}");
    }
}

/// Namespace, reason, three bytes of the packet, its Ethernet destination, and the marks.
type DetailRow = (u32, u32, [u8; 3], [u8; 6], u32);

const PLACED: u32 = 2;
const MARKED: u32 = 3;
const ADDRESSED: u32 = 4;
const PLAIN: u32 = 5;
const ORPHANED: u32 = 6;

fn detail_rows() -> Vec<DetailRow> {
    use super::{
        MARK_GROUP, MARK_ICMP_ERROR, MARK_IGMP, MARK_OPTIONS, MARK_OWN_ADDRESS, MARK_ZERO_CHECKSUM,
    };
    let (here, away) = (OWNERS[0].2, OWNERS[3].2);
    let (mut other, mut own, mut group) = (OWN_ADDRESS, OWN_ADDRESS, OWN_ADDRESS);
    (other[5], own[5], group[0]) = (2, 1, 3);
    let v4 = [0x45_u8, 17, 10];
    let report = MARK_OPTIONS | MARK_IGMP | MARK_GROUP;
    vec![
        (here, PLACED, v4, other, 0),
        (here, PLACED, [0x46, 17, 10], other, MARK_OPTIONS),
        (here, PLACED, [0x45, 17, 224], other, MARK_GROUP),
        (here, PLACED, [0x45, 17, 240], other, 0),
        (here, MARKED, [0x46, 2, 239], other, report),
        (here, MARKED, [0x60, 17, 0], other, MARK_ZERO_CHECKSUM),
        (here, MARKED, [0x60, 17, 1], other, 0),
        (here, ADDRESSED, v4, other, 0),
        (here, ADDRESSED, v4, own, MARK_OWN_ADDRESS),
        (here, ADDRESSED, v4, group, MARK_OWN_ADDRESS),
        (here, PLAIN, [0x46, 2, 239], own, 0),
        (away, PLACED, [0x46, 2, 239], own, 0),
        (away, ADDRESSED, v4, own, 0),
        // Of messages of ICMP errors are marked.
        (here, MARKED, [0x45, 1, 3], own, MARK_ICMP_ERROR),
        (here, MARKED, [0x45, 1, 8], own, 0),
        (here, MARKED, [0x46, 1, 3], own, MARK_OPTIONS),
        (here, MARKED, [0x60, 58, 2], own, MARK_ICMP_ERROR),
        (here, MARKED, [0x60, 58, 128], own, 0),
    ]
}

/// Packets that a socket sent and a device had, or that a tun took from their socket.
#[test]
fn what_is_sent_is_known_by_its_device() {
    use super::MARK_EGRESS;
    let here = OWNERS[3].2;
    for (reason, socket, came_by, header_known, sent, marks) in [
        (MARKED, true, 0, true, 1, MARK_EGRESS),
        // The header of IP is before the place of the device's.
        (MARKED, true, 0, false, 1, 0),
        (MARKED, true, 2, true, 0, 0),
        (PLAIN, true, 0, true, 1, 0),
        (ORPHANED, false, 0, true, 1, 0),
        (ORPHANED, false, 2, true, 0, 0),
        (PLAIN, false, 0, true, 0, 0),
    ] {
        let mut bench = Bench::new(1);
        bench.details = Some(Details {
            namespace: here,
            placed: PLACED,
            marked: vec![MARKED],
            addressed: None,
            orphaned: Some(ORPHANED),
        });
        let mut drop = Drop {
            reason,
            socket,
            came_by,
            device: OWNERS[3].0,
            ..plain()
        };
        drop.packet.header_known = header_known;
        bench.run(&drop);
        let key = [here, reason, 0, sent, 0, 0, marks, 0];
        assert_eq!(bench.counted(), [(key, [1, 1])], "{reason} {came_by}");
    }
}

/// The key of a packet of this namespace, by what decides between causes.
#[test]
fn details_are_kept_only_where_they_decide() {
    let here = OWNERS[0].2;
    let details = |namespace| Details {
        namespace,
        placed: PLACED,
        marked: vec![PLACED, MARKED],
        addressed: Some(ADDRESSED),
        orphaned: Some(ORPHANED),
    };
    for (namespace, reason, [first, protocol, last], address, marks) in detail_rows() {
        let is_placed = (namespace, reason) == (here, PLACED);
        let ipv6 = first >> 4 == 6;
        let mut bench = Bench::new(1);
        bench.details = Some(details(here));
        let device = if namespace == here {
            OWNERS[0].0
        } else {
            OWNERS[3].0
        };
        let mut drop = Drop {
            reason,
            device,
            ..plain()
        };
        drop.packet.ipv6 = ipv6;
        drop.place(&mut bench.world);
        let network = HEADROOM + ETHERNET;
        let mut packet = drop.packet.bytes();
        match ipv6 {
            true => {
                (packet[6], packet[40]) = (protocol, last);
                packet[46..48].copy_from_slice(&[0, last]);
            }
            false => {
                (packet[0], packet[9], packet[16], packet[20]) = (first, protocol, last, last);
            }
        }
        let mut buffer = vec![0; END + 64];
        buffer[HEADROOM..HEADROOM + 6].copy_from_slice(&address);
        buffer[network..][..packet.len()].copy_from_slice(&packet);
        bench.world.place(HEAD, buffer);
        bench.run_placed(&drop);
        let counted = bench.counted();
        let [(key, [1, 1])] = counted[..] else {
            panic!("{counted:?}")
        };
        let place = super::place(&key);
        assert_eq!(
            (key[0], key[1], key[6], key[7]),
            (namespace, reason, marks, 0)
        );
        assert_eq!(place, if is_placed { ELSEWHERE } else { 0 });
    }
}
