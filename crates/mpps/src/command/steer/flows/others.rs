//! Frames that are of no such flow, and why.

use mpps_report::grouped;
use std::borrow::Cow;

/// Why a frame is of no such flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Of a flow, or to a port, that was not asked for.
    Unasked,
    Fragment,
    /// IPv6's, behind which no ports are looked for.
    ExtensionHeader,
    /// It ends too early, or its lengths contradict.
    Cut,
    OtherProtocol,
}

/// In words, by their numbers.
const WORDS: [&str; 5] = [
    "of other flows",
    "fragmented",
    "with IPv6 extension headers",
    "cut or damaged",
    "of other protocols",
];

impl Reason {
    /// Classifies a frame without VLAN tags whose ports were not found; RFC 791, RFC 8200.
    pub(super) fn of(frame: &[u8], tcp: bool) -> Self {
        const FRAGMENT: u8 = 44;
        let protocol = if tcp { 6 } else { 17 };
        let (is_v4, next_at) = match frame.get(12..14) {
            None => return Self::Cut,
            Some([0x08, 0x00]) => (true, 14 + 9),
            Some([0x86, 0xdd]) => (false, 14 + 6),
            Some(_) => return Self::OtherProtocol,
        };
        match frame.get(next_at) {
            None => Self::Cut,
            // The first two bits of the offset say other things.
            Some(next) if *next == protocol && is_v4 => match frame.get(20..22) {
                Some([high, low]) if high & 0x3f != 0 || *low != 0 => Self::Fragment,
                _ => Self::Cut,
            },
            Some(next) if *next == protocol => Self::Cut,
            Some(_) if is_v4 => Self::OtherProtocol,
            Some(&FRAGMENT) => Self::Fragment,
            // Options, routing, authentication, destination, mobility, host identity, shim.
            Some(0 | 43 | 51 | 60 | 135 | 139 | 140) => Self::ExtensionHeader,
            Some(_) => Self::OtherProtocol,
        }
    }
}

/// How many frames there were for each reason.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OtherFrames([u64; WORDS.len()]);

impl OtherFrames {
    pub(super) fn add(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// All of them.
    pub(crate) fn sum(self) -> u64 {
        self.0.iter().sum()
    }

    /// In words; none if there are none.
    pub(crate) fn told(self) -> Option<String> {
        let kinds = self.0.iter().zip(WORDS).filter(|(frames, _)| **frames > 0);
        let kinds = kinds.map(|(frames, word)| format!("{} {word}", grouped((*frames).into())));
        let kinds: Vec<String> = kinds.collect();
        let sum = grouped(self.sum().into());
        let told = format!("{sum} frames are of no such flow: {}", kinds.join(", "));
        (!kinds.is_empty()).then_some(told)
    }
}

/// The beginning of an untagged frame, with zeros in place of the rest, if it has the ports: they are read
/// from whole frames only. Otherwise it stays as it is.
pub(super) fn completed(frame: &[u8]) -> Cow<'_, [u8]> {
    const PORTS_BYTES: usize = 8;
    let length = |at: usize| {
        let bytes = frame.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| usize::from(u16::from_be_bytes(*bytes)))
    };
    let (ports_at, whole) = match (frame.get(12..14), frame.get(14)) {
        (Some([0x08, 0x00]), Some(first)) => (14 + usize::from(first & 15) * 4, 14 + length(16)),
        (Some([0x86, 0xdd]), Some(_)) => (14 + 40, 14 + 40 + length(18)),
        _ => return frame.into(),
    };
    if frame.len() < ports_at + PORTS_BYTES || whole <= frame.len() {
        return frame.into();
    }
    let mut completed = frame.to_vec();
    completed.resize(whole, 0);
    completed.into()
}

/// Removes up to two VLAN tags (IEEE 802.1Q, 802.1ad, and the older 0x9100). The type is then where an untagged frame has
/// it. The bytes before it are no longer the addresses and must not be read.
pub(super) fn untagged(mut frame: &[u8]) -> &[u8] {
    for _ in 0..2 {
        if let Some([0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]) = frame.get(12..14) {
            frame = &frame[4..];
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_io::wire;

    #[test]
    fn each_frame_has_its_reason() {
        let frame = |kind: [u8; 2], at: usize, next: u8, bytes: usize| {
            let mut frame = vec![0; bytes];
            frame[12..14].copy_from_slice(&kind);
            frame[at] = next;
            frame
        };
        let [v4, v6] = [([8, 0], 23), ([0x86, 0xdd], 20)];
        let of = |(kind, at): ([u8; 2], usize), next| Reason::of(&frame(kind, at, next, 60), false);
        assert_eq!([of(v4, 17), of(v6, 17)], [Reason::Cut; 2]);
        assert_eq!([of(v4, 6), of(v6, 58)], [Reason::OtherProtocol; 2]);
        assert_eq!([of(v4, 0), of(v4, 44)], [Reason::OtherProtocol; 2]);
        assert_eq!([of(v6, 0), of(v6, 60)], [Reason::ExtensionHeader; 2]);
        assert_eq!(of(v6, 44), Reason::Fragment);
        let mut fragment = frame(v4.0, v4.1, 17, 60);
        for (bits, reason) in [
            ([0x20, 0], Reason::Fragment),
            ([0, 1], Reason::Fragment),
            // "Do not fragment" does not make it one.
            ([0x40, 0], Reason::Cut),
        ] {
            fragment[20..22].copy_from_slice(&bits);
            assert_eq!(Reason::of(&fragment, false), reason, "{bits:?}");
        }
        assert_eq!(Reason::of(&fragment, true), Reason::OtherProtocol);
        let cut = [0, 13, 14, 20].map(|bytes| Reason::of(&frame(v4.0, 0, 0, 24)[..bytes], false));
        assert_eq!(cut, [Reason::Cut; 4]);
        let arp = frame([8, 6], 20, 0, 60);
        assert_eq!(Reason::of(&arp, false), Reason::OtherProtocol);
    }

    #[test]
    fn two_tags_are_looked_behind_and_no_third() {
        let tag = [0x81, 0, 0, 7];
        let tagged = |tags: usize| [&[2; 12][..], &tag.repeat(tags), &[8, 0, 69]].concat();
        for tags in 0..=2 {
            assert_eq!(untagged(&tagged(tags))[12..], [8, 0, 69], "{tags}");
        }
        assert_eq!(untagged(&tagged(3))[12..14], [0x81, 0]);
        for bytes in 0..20 {
            let _ = untagged(&tagged(2)[..bytes]);
        }
    }

    #[test]
    fn a_frame_that_was_cut_has_its_ports_or_stays_cut() {
        for (from, to) in [
            ("10.0.0.1:1000", "10.0.0.2:53"),
            ("[fd00::1]:1000", "[fd00::2]:53"),
        ] {
            let [from, to] = [from, to].map(|end| end.parse().expect("an address"));
            let template = wire::Template::new([2; 6], [4; 6], from, to, 400);
            let mut frame = vec![0; template.frame_bytes()];
            template.write(&mut frame, 0, &[7; 400]);
            let ports = frame.len() - 400;
            for held in 0..frame.len() {
                let completed = completed(&frame[..held]);
                let ends =
                    wire::datagram(&completed).map(|found| (found.source, found.destination));
                assert_eq!(ends, (held >= ports).then_some((from, to)), "{held}");
            }
            assert_eq!(*completed(&frame), frame[..]);
        }
    }

    #[test]
    fn reasons_have_their_words_in_the_same_order() {
        let mut others = OtherFrames::default();
        assert_eq!(others.told(), None);
        for reason in [Reason::OtherProtocol, Reason::Fragment, Reason::Fragment] {
            others.add(reason);
        }
        let told = "3 frames are of no such flow: 2 fragmented, 1 of other protocols";
        assert_eq!(others.told().as_deref(), Some(told));
    }
}
