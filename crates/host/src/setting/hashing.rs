//! How a card hashes UDP or TCP, as far as the card and Linux show it. The hash predicts the entry
//! of the RSS table for a flow, and so its queue.

use crate::facts::Interface;
use crate::facts::rss::{self, Hashed, RssFlow, Symmetry, Toeplitz};
use crate::facts::spreading::Spreading;
use crate::facts::sysctl;
use crate::{HostError, HostResult};
use mpps_os::text::ShellWord;

/// The key that Linux gives to drivers (`netdev_rss_key_fill` of net/ethtool/common.c). A driver
/// that shows no key usually has this one.
const SYSCTL: &str = "net.core.netdev_rss_key";
/// The remedy if a card does not show enough.
const REMEDY: &str =
    "without it the queue of a flow is unknown; give `mpps steer` --key and --fields";

/// The first source port that is looked at: those below are reserved.
pub const PORT_MIN: u16 = 1024;

/// The inputs of a card's hash.
#[derive(Debug, Clone)]
pub struct Hashing {
    /// The key.
    pub key: Vec<u8>,
    /// Where the key is from.
    pub key_from: String,
    /// The hashed fields of such traffic over IPv4, and over IPv6.
    pub fields: [Hashed; 2],
    /// How both directions of a flow get one hash, if they do.
    pub symmetry: Option<Symmetry>,
    /// The key, made ready.
    pub toeplitz: Toeplitz,
}

impl Hashing {
    /// With all said.
    ///
    /// # Errors
    /// As [`Toeplitz::new`].
    pub fn new(key: Vec<u8>, key_from: String, fields: [Hashed; 2]) -> HostResult<Self> {
        Ok(Self {
            toeplitz: Toeplitz::new(&key)?,
            key,
            key_from,
            fields,
            symmetry: None,
        })
    }

    /// The same, where both directions of a flow have one hash.
    pub fn with_symmetry(self, symmetry: Option<Symmetry>) -> Self {
        Self { symmetry, ..self }
    }

    /// Reads the hashing of an interface's card, for these flows.
    ///
    /// # Errors
    /// [`HostError::Impossible`] for a card whose key, function or fields are not known, or cannot be
    /// predicted.
    pub fn of_card(interface: &str, flows: &[RssFlow]) -> HostResult<Self> {
        let spreading = Spreading::gather(&Interface::read(interface), 1);
        let (key, key_from) = key_of_card(&spreading, interface)?;
        let fields = |kind, is_v6| match flows.iter().any(|flow| flow.source.is_ipv6() == is_v6) {
            true => fields_of_card(&spreading, interface, kind),
            false => Ok(Hashed::Ports),
        };
        let fields = [fields("udp4", false)?, fields("udp6", true)?];
        let hashing = Self::new(key, key_from, fields)?;
        Ok(hashing.with_symmetry(spreading.rss.value().and_then(|rss| rss.symmetry)))
    }

    /// The hashed fields of a flow.
    pub fn hashed(&self, flow: &RssFlow) -> Hashed {
        self.fields[usize::from(flow.source.is_ipv6())]
    }

    /// The hash of a flow.
    pub fn hash(&self, flow: &RssFlow) -> u32 {
        let hashed = self.hashed(flow);
        match self.symmetry {
            Some(symmetry) => self.toeplitz.hash(&symmetry.of(flow), hashed),
            None => self.toeplitz.hash(flow, hashed),
        }
    }

    /// The entry of a flow in a table of `entries` entries.
    pub fn entry(&self, flow: &RssFlow, entries: usize) -> usize {
        rss::entry_of(self.hash(flow), entries)
    }

    /// The flows that differ from this one only by their source port, from [`PORT_MIN`] on.
    pub fn by_ports(flow: RssFlow) -> impl Iterator<Item = RssFlow> {
        (PORT_MIN..=u16::MAX).map(move |port| {
            let mut other = flow;
            other.source.set_port(port);
            other
        })
    }
}

/// The key that the driver shows, or otherwise the key that Linux gives to drivers; and its origin.
///
/// # Errors
/// [`HostError::Impossible`] if neither is available, or the hash is no Toeplitz hash.
pub fn key_of_card(spreading: &Spreading, interface: &str) -> HostResult<(Vec<u8>, String)> {
    if let Some(rss) = spreading.rss.value() {
        if matches!(rss.function, "xor" | "crc32") {
            let why = format!(
                "it hashes by {}, and only toeplitz can be predicted",
                rss.function
            );
            let remedy = format!("ethtool -X {} hfunc toeplitz", ShellWord::new(interface));
            return Err(HostError::impossible(interface, why, remedy));
        }
        if !rss.key.is_empty() {
            let key =
                rss::key(&rss.key).map_err(|why| HostError::impossible(interface, why, REMEDY))?;
            return Ok((key, "the card".to_owned()));
        }
    }
    let unknown = |why: &str| {
        let why = format!("its driver shows no RSS key, and {why} ({SYSCTL})");
        HostError::impossible(interface, why, REMEDY)
    };
    let text = sysctl::value_of_machine(SYSCTL)?;
    let text = text.ok_or_else(|| unknown("Linux's may not be read"))?;
    let key = rss::key(&text).map_err(|why| unknown(&why))?;
    if key.iter().all(|byte| *byte == 0) {
        return Err(unknown("no driver asked Linux for one"));
    }
    let from = format!(
        "{SYSCTL}, because the driver shows none; what arrives says whether it is the card's"
    );
    Ok((key, from))
}

/// The fields that a card hashes of a kind of traffic, such as `udp4`.
///
/// # Errors
/// [`HostError::Impossible`] if the driver does not show them, or they cannot be predicted.
pub fn fields_of_card(spreading: &Spreading, interface: &str, kind: &str) -> HostResult<Hashed> {
    let told = spreading.fields.iter().find(|fields| fields.flow == kind);
    let letters = told.and_then(|told| told.fields.value());
    let hashed = letters.and_then(|letters| Hashed::of_letters(letters));
    hashed.ok_or_else(|| {
        let words = told.map_or_else(String::new, |told| told.words());
        let why = match letters {
            None => format!("its driver does not show which fields of {kind} it hashes"),
            Some(_) => format!("it hashes {words} of {kind}, which cannot be predicted"),
        };
        HostError::impossible(interface, why, REMEDY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_a_key_or_fields_is_refused_with_a_remedy() {
        // Loopback answers none of it.
        let spreading = Spreading::gather(&Interface::read("lo"), 1);
        let refused = fields_of_card(&spreading, "lo", "udp4").unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("does not show which fields of udp4 it hashes"),
            "{refused}"
        );
        assert!(refused.to_string().contains("--fields"), "{refused}");
    }

    proptest::proptest! {
        #[test]
        fn no_key_is_a_panic(text in "\\PC{0,120}") {
            let _ = rss::key(&text);
        }
    }
}
