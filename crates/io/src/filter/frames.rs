//! Frames for tests: datagrams of one flow, and what is nearly one.

use proptest::prelude::*;
use proptest::sample::Index;

/// The flow that most of the frames belong to.
pub(crate) const ADDRESS_V4: [u8; 4] = [10, 200, 3, 7];
pub(crate) const ADDRESS_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0xff, 7];
pub(crate) const PORT: u16 = 54_321;

/// A valid datagram of the flow, and then one or two mistakes, or none.
pub(crate) fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    (valid_frame(), proptest::collection::vec(mistake(), 0..3)).prop_map(|(frame, mistakes)| {
        mistakes
            .iter()
            .fold(frame, |frame, mistake| mistake.make(frame))
    })
}

/// A datagram to [`ADDRESS_V4`] or [`ADDRESS_V6`] and [`PORT`], without check sums.
pub(crate) fn valid_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..80);
    (any::<bool>(), 5u8..=15, payload, 0..20usize).prop_map(|(v4, words, payload, padding)| {
        let mut frame = match v4 {
            true => frame_v4(words, &payload),
            false => frame_v6(&[], 17, &payload),
        };
        frame.resize(frame.len() + padding, 0xee);
        frame
    })
}

/// An IPv4 header of `words` words. With four, a datagram would follow at the place of the address.
pub(crate) fn frame_v4(words: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(0x0800);
    let header = usize::from(words) * 4;
    let total = (header + 8 + payload.len()) as u16;
    frame.extend([0x40 | words, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 200, 3, 9]);
    frame.extend(ADDRESS_V4);
    // Options that do nothing (RFC 791).
    frame.resize(14 + header, 1);
    udp(&mut frame, payload);
    frame
}

/// With these bytes between the IPv6 header and the UDP header.
pub(crate) fn frame_v6(extension: &[u8], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(0x86dd);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(((extension.len() + 8 + payload.len()) as u16).to_be_bytes());
    frame.extend([next_header, 64]);
    frame.extend([0xfd; 16]);
    frame.extend(ADDRESS_V6);
    frame.extend(extension);
    udp(&mut frame, payload);
    frame
}

fn ethernet(kind: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(kind.to_be_bytes());
    frame
}

fn udp(frame: &mut Vec<u8>, payload: &[u8]) {
    frame.extend(1234u16.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(((8 + payload.len()) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
}

/// Where lengths are: of IPv4, of IPv6, of UDP over IPv4 without options, of UDP over IPv6.
const LENGTHS: [usize; 4] = [16, 18, 38, 58];

/// A change that makes another frame of a frame.
#[derive(Clone, Debug)]
enum Mistake {
    Cut(Index),
    /// A VLAN tag.
    Tag(u16),
    /// The flags and the offset of an IPv4 packet.
    Fragment(u16),
    /// An IPv6 extension header of eight bytes: hop-by-hop, routing, fragment, destination.
    Extension(u8),
    /// A length, by this difference.
    Length(Index, i16),
    /// A length of zero.
    Nothing(Index),
    /// Any byte of the headers.
    Byte(Index, u8),
    /// Any bit of the headers.
    Bit(Index, u8),
}

fn mistake() -> impl Strategy<Value = Mistake> {
    let place = any::<Index>;
    prop_oneof![
        place().prop_map(Mistake::Cut),
        any::<u16>().prop_map(Mistake::Tag),
        prop_oneof![
            Just(0u16),
            Just(0x4000),
            Just(0x2000),
            Just(1),
            Just(0x8000),
            any::<u16>()
        ]
        .prop_map(Mistake::Fragment),
        prop_oneof![Just(0u8), Just(43), Just(44), Just(60)].prop_map(Mistake::Extension),
        (place(), -40i16..40).prop_map(|(place, by)| Mistake::Length(place, by)),
        place().prop_map(Mistake::Nothing),
        (place(), any::<u8>()).prop_map(|(place, byte)| Mistake::Byte(place, byte)),
        (place(), 0u8..8).prop_map(|(place, bit)| Mistake::Bit(place, bit)),
    ]
}

impl Mistake {
    fn make(&self, mut frame: Vec<u8>) -> Vec<u8> {
        let headers = frame.len().min(82);
        match self {
            Self::Cut(place) => frame.truncate(place.index(frame.len() + 1)),
            Self::Tag(tag) if frame.len() >= 14 => {
                let [high, low] = tag.to_be_bytes();
                frame.splice(12..12, [0x81, 0, high, low]);
            }
            Self::Fragment(flags) if is(&frame, 0x0800, 22) => {
                frame[20..22].copy_from_slice(&flags.to_be_bytes());
            }
            Self::Extension(kind) if is(&frame, 0x86dd, 54) => {
                let next = std::mem::replace(&mut frame[20], *kind);
                frame.splice(54..54, [next, 0, 0, 0, 0, 0, 0, 0]);
                let length = u16::from_be_bytes([frame[18], frame[19]]).wrapping_add(8);
                frame[18..20].copy_from_slice(&length.to_be_bytes());
            }
            Self::Length(place, by) => {
                let at = LENGTHS[place.index(4)];
                if let Some([high, low]) = frame.get_mut(at..at + 2) {
                    let length = u16::from_be_bytes([*high, *low]).wrapping_add_signed(*by);
                    [*high, *low] = length.to_be_bytes();
                }
            }
            Self::Nothing(place) => {
                let at = LENGTHS[place.index(4)];
                frame.iter_mut().skip(at).take(2).for_each(|byte| *byte = 0);
            }
            Self::Byte(place, byte) if headers > 0 => frame[place.index(headers)] = *byte,
            Self::Bit(place, bit) if headers > 0 => frame[place.index(headers)] ^= 1 << bit,
            _ => {}
        }
        frame
    }
}

fn is(frame: &[u8], kind: u16, bytes: usize) -> bool {
    frame.len() >= bytes && frame[12..14] == kind.to_be_bytes()
}
