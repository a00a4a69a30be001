//! Headers before the IP packet of a record (<https://www.tcpdump.org/linktypes.html>).

/// The bytes of Ethernet's addresses, and of its whole header.
const ADDRESS_BYTES: usize = 12;
const ETHERNET_BYTES: usize = 14;

/// A link type that is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkType {
    number: u32,
    /// The bytes of its header.
    header_bytes: usize,
    /// Where the header has the type of Ethernet; none if only the packet shows its version of IP.
    type_at: Option<usize>,
}

const fn row(number: u32, header_bytes: usize, type_at: Option<usize>) -> LinkType {
    LinkType {
        number,
        header_bytes,
        type_at,
    }
}

const ETHERNET: u32 = 1;
/// Of `tcpdump -i any`: "Linux cooked", in two versions.
const COOKED: [u32; 2] = [113, 276];

const KNOWN: [LinkType; 10] = [
    row(ETHERNET, ETHERNET_BYTES, Some(ADDRESS_BYTES)),
    row(COOKED[0], 16, Some(14)),
    row(COOKED[1], 20, Some(0)),
    // LINKTYPE_RAW, and what libpcap of some systems writes for it: tunnels of Linux.
    row(101, 0, None),
    row(12, 0, None),
    row(14, 0, None),
    row(228, 0, None),
    row(229, 0, None),
    // The loopback interfaces of BSD: four bytes have the family.
    row(0, 4, None),
    row(108, 4, None),
];

impl LinkType {
    pub(super) fn of(number: u32) -> Option<Self> {
        KNOWN.into_iter().find(|known| known.number == number)
    }

    /// True if the capture is of all interfaces.
    pub(super) fn is_of_all(self) -> bool {
        COOKED.contains(&self.number)
    }

    /// The same frame with a header of Ethernet. It is empty if it is shorter than its own header.
    pub(super) fn as_ethernet<'a>(self, frame: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
        if self.number == ETHERNET {
            return frame;
        }
        room.clear();
        let Some((header, packet)) = frame.split_at_checked(self.header_bytes) else {
            return room;
        };
        let kind = match self.type_at {
            Some(at) => header.get(at..at + 2).unwrap_or(&[0, 0]),
            None if packet.first().is_some_and(|first| first >> 4 == 6) => &[0x86, 0xdd],
            None => &[0x08, 0x00],
        };
        room.extend([0; ADDRESS_BYTES]);
        room.extend(kind);
        room.extend(packet);
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_type_gives_its_packet_and_its_kind() {
        let ethernet = |kind: [u8; 2], packet: &[u8]| [&[0; 12], &kind[..], packet].concat();
        let cases: [(u32, &[u8], Vec<u8>); 6] = [
            (
                113,
                &[&[9; 14][..], &[8, 6], b"arp"].concat(),
                ethernet([8, 6], b"arp"),
            ),
            (
                276,
                &[&[0x81, 0][..], &[9; 18], b"tag"].concat(),
                ethernet([0x81, 0], b"tag"),
            ),
            (101, b"\x45four", ethernet([8, 0], b"\x45four")),
            (229, b"\x60six", ethernet([0x86, 0xdd], b"\x60six")),
            (0, b"\x1e\0\0\0\x60six", ethernet([0x86, 0xdd], b"\x60six")),
            (276, &[0; 19], Vec::new()),
        ];
        for (number, frame, expected) in cases {
            let link = LinkType::of(number).expect("it is known");
            assert_eq!(
                link.as_ethernet(frame, &mut Vec::new()),
                expected,
                "{number}"
            );
        }
        assert_eq!(
            LinkType::of(1).map(|link| link.as_ethernet(b"x", &mut Vec::new()) == b"x"),
            Some(true)
        );
        assert_eq!(LinkType::of(105), None, "Wi-Fi");
    }
}
