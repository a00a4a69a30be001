//! Names that are no UTF-8: the kernel takes any bytes, and the parser of messages takes text only
//! ([`crate::text::of_bytes`]).

use crate::native::{half_word, word};
use crate::text;
use libc::{IFA_LABEL, IFLA_IFALIAS, IFLA_IFNAME, IFLA_PROP_LIST, RTM_NEWADDR, RTM_NEWLINK};

/// The bytes of `struct nlmsghdr`, and of what follows it in the two kinds of messages that have
/// names: `struct ifinfomsg` and `struct ifaddrmsg` (rtnetlink(7)).
const HEADER: usize = 16;
const OF_LINK: usize = 16;
const OF_ADDRESS: usize = 8;

/// The first message again, with the interface's name as text, so that a name that is none hides no
/// other interface. Its alias and its other names, which are not read, are
/// left out. None for a message of another kind.
pub(super) fn with_text_names(datagram: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| half_word(datagram, at);
    let (name, unread, begin) = match number(4)? {
        RTM_NEWLINK => (
            IFLA_IFNAME,
            &[IFLA_IFALIAS, IFLA_PROP_LIST][..],
            HEADER + OF_LINK,
        ),
        RTM_NEWADDR => (IFA_LABEL, &[][..], HEADER + OF_ADDRESS),
        _ => return None,
    };
    let end = length_of(datagram).filter(|end| (begin..=datagram.len()).contains(end))?;
    let mut message = datagram.get(..begin)?.to_vec();
    let mut at = begin;
    while at + 4 <= end {
        let (length, kind) = (usize::from(number(at)?), number(at + 2)?);
        let value = datagram.get(at + 4..at + length)?;
        at += length.next_multiple_of(super::ALIGNMENT);
        if unread.contains(&(kind & libc::NLA_TYPE_MASK as u16)) {
            continue;
        }
        let text = text::of_bytes(value);
        let value = if kind == name { text.as_bytes() } else { value };
        message.extend(u16::try_from(4 + value.len()).ok()?.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
        message.resize(message.len().next_multiple_of(super::ALIGNMENT), 0);
    }
    let length = u32::try_from(message.len()).ok()?;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    Some(message)
}

/// True if these bytes may have a character that stands for a byte ([`text::of_bytes`]): such a name is
/// text, and differs from the name with that byte all the same.
pub(super) fn has_bytes_as_text(message: &[u8]) -> bool {
    let mut characters = message.windows(3);
    characters.any(|bytes| bytes[..2] == [0xf4, 0x8f] && bytes[2] >= 0xbe)
}

/// The length of the first message, as its header has it.
pub(super) fn length_of(datagram: &[u8]) -> Option<usize> {
    usize::try_from(word(datagram, 0)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::address::{AddressAttribute, AddressMessage};
    use netlink_packet_route::link::{LinkAttribute, LinkMessage, Prop};
    use proptest::prelude::*;

    fn bytes_of(message: RouteNetlinkMessage) -> Vec<u8> {
        let payload = NetlinkPayload::from(message);
        let mut packet = NetlinkMessage::new(NetlinkHeader::default(), payload);
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        // Each name of these messages has one such letter.
        let letters = bytes.iter_mut().filter(|byte| **byte == b'!');
        letters.for_each(|byte| *byte = 0xff);
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<NetlinkPayload<RouteNetlinkMessage>> {
        NetlinkMessage::deserialize(bytes)
            .ok()
            .map(|parsed| parsed.payload)
    }

    #[test]
    fn a_name_that_is_no_text_becomes_text() {
        let mut link = LinkMessage::default();
        link.header.index = 7;
        link.attributes = vec![
            LinkAttribute::IfName("eth!".into()),
            LinkAttribute::Mtu(1500),
            LinkAttribute::IfAlias("alias!".into()),
            LinkAttribute::PropList(vec![Prop::AltIfName("other!".into())]),
        ];
        let bytes = bytes_of(RouteNetlinkMessage::NewLink(link.clone()));
        assert_eq!(parse(&bytes), None, "as the kernel sends it");
        link.attributes.truncate(2);
        link.attributes[0] = LinkAttribute::IfName("eth\u{10ffff}".into());
        let told = with_text_names(&bytes).expect("it is about a link");
        let link = NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link));
        assert_eq!(parse(&told), Some(link));

        let mut address = AddressMessage::default();
        address.attributes = vec![AddressAttribute::Label("!0".into())];
        let bytes = bytes_of(RouteNetlinkMessage::NewAddress(address.clone()));
        assert_eq!(parse(&bytes), None, "as the kernel sends it");
        address.attributes = vec![AddressAttribute::Label("\u{10ffff}0".into())];
        let told = with_text_names(&bytes).expect("it is about an address");
        let address = NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address));
        assert_eq!(parse(&told), Some(address));
    }

    #[test]
    fn a_name_of_a_character_for_a_byte_is_known() {
        for (name, expected) in [
            ("eth0", false),
            ("x\u{10ffff}", true),
            ("x\u{10ff80}", true),
        ] {
            let mut link = LinkMessage::default();
            link.attributes = vec![LinkAttribute::IfName(name.into())];
            let bytes = bytes_of(RouteNetlinkMessage::NewLink(link));
            assert_eq!(has_bytes_as_text(&bytes), expected, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(mut bytes: Vec<u8>, is_link: bool) {
            if let Some(kind) = bytes.get_mut(4..6) {
                let known = if is_link { RTM_NEWLINK } else { RTM_NEWADDR };
                kind.copy_from_slice(&known.to_ne_bytes());
            }
            let _ = with_text_names(&bytes);
        }
    }
}
