//! Which receive queue a card chooses for a flow: the Toeplitz hash of its addresses and ports, and
//! the entry of a table that the hash names (receive side scaling).
//!
//! The hash is that of Microsoft's "Verifying the RSS Hash Calculation", which cards and
//! virtio (`VIRTIO_NET_F_RSS`) have in common. The entry is the remainder of the hash by the length
//! of the table (Documentation/networking/scaling.rst); where that is a power of two, its lowest bits.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{HostError, HostResult};

/// Bytes of a key that are used: the longest input, two addresses of IPv6 and two ports, and a word.
pub const KEY_BYTES: usize = INPUT_BYTES + 4;
const INPUT_BYTES: usize = 36;

/// Entries of a table whose length is not known: as many as igb's and ixgbe's have.
pub const ENTRIES: usize = 128;

/// The key of Microsoft's specification. Many drivers start with it.
pub const MICROSOFT_KEY: [u8; KEY_BYTES] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// A key in hexadecimal, with or without colons.
///
/// # Errors
/// The fault of the text, as the end of a sentence.
pub fn key(text: &str) -> HostResult<Vec<u8>, String> {
    let digits: String = text.chars().filter(|letter| *letter != ':').collect();
    let byte = |at: usize| {
        let pair = digits.get(at..at + 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let bytes = bytes.ok_or("it is not hexadecimal, two digits a byte")?;
    match bytes.len() >= KEY_BYTES {
        true => Ok(bytes),
        false => Err(format!(
            "it has {} bytes of at least {KEY_BYTES}",
            bytes.len()
        )),
    }
}

/// A key as ethtool(8) writes it: `6d:5a:...`.
pub fn hexadecimal(key: &[u8]) -> String {
    let bytes: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// Packets from one address and port to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RssFlow {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver, of the same version of IP.
    pub destination: SocketAddr,
}

impl RssFlow {
    /// The flow between two sockets; none where they are of different versions of IP.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let flow = Self {
            source,
            destination,
        };
        (source.is_ipv4() == destination.is_ipv4()).then_some(flow)
    }
}

/// As it is read: `10.0.0.1:53-10.0.0.2:4321`.
impl fmt::Display for RssFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.source, self.destination)
    }
}

impl FromStr for RssFlow {
    type Err = &'static str;

    fn from_str(text: &str) -> HostResult<Self, Self::Err> {
        const FORM: &str = "a flow is SOURCE:PORT-DESTINATION:PORT, an address of IPv6 in brackets";
        let (source, destination) = text.split_once('-').ok_or(FORM)?;
        let end = |text: &str| text.trim().parse::<SocketAddr>().map_err(|_| FORM);
        Self::new(end(source)?, end(destination)?)
            .ok_or("both ends of a flow are of one version of IP")
    }
}

/// The hashed fields of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hashed {
    /// The addresses: `sd` of `ethtool -N IF rx-flow-hash`.
    Addresses,
    /// Addresses and ports: `sdfn`.
    Ports,
}

impl Hashed {
    /// ethtool's letters for it.
    pub fn letters(self) -> &'static str {
        match self {
            Self::Addresses => "sd",
            Self::Ports => "sdfn",
        }
    }

    /// Parses ethtool's letters; none for a card that hashes in another way.
    pub fn of_letters(letters: &str) -> Option<Self> {
        let mut sorted: Vec<char> = letters.chars().collect();
        sorted.sort_unstable();
        match sorted.as_slice() {
            ['d', 's'] => Some(Self::Addresses),
            ['d', 'f', 'n', 's'] => Some(Self::Ports),
            _ => None,
        }
    }
}

/// How the addresses and the ports of a packet are changed before they are hashed. Both directions
/// of a flow then have one hash (`ethtool -X IF xfrm`, Documentation/networking/scaling.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Symmetry {
    /// The exclusive or of both takes the place of each.
    SymmetricXor,
    /// The or of both takes the place of the source, the exclusive or that of the destination.
    SymmetricOrXor,
}

impl Symmetry {
    /// By the bits `RXH_XFRM_*` of include/uapi/linux/ethtool.h.
    pub(crate) fn of_transform(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::SymmetricXor),
            2 => Some(Self::SymmetricOrXor),
            _ => None,
        }
    }

    /// ethtool's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::SymmetricXor => "symmetric-xor",
            Self::SymmetricOrXor => "symmetric-or-xor",
        }
    }

    /// The flow that is hashed in the place of this one.
    pub fn of(self, flow: &RssFlow) -> RssFlow {
        let (from, to) = (flow.source, flow.destination);
        let [one, other] = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let pair = self.pair(u32::from(from).into(), u32::from(to).into());
                pair.map(|bits| IpAddr::from((bits as u32).to_be_bytes()))
            }
            (from, to) => {
                let [from, to] = [from, to].map(|ip| u128::from_be_bytes(wide(ip)));
                self.pair(from, to)
                    .map(|bits| IpAddr::from(bits.to_be_bytes()))
            }
        };
        let ports = self.pair(from.port().into(), to.port().into());
        let [source, destination] = ports.map(|bits| bits as u16);
        RssFlow {
            source: SocketAddr::new(one, source),
            destination: SocketAddr::new(other, destination),
        }
    }

    fn pair(self, source: u128, destination: u128) -> [u128; 2] {
        let xor = source ^ destination;
        match self {
            Self::SymmetricXor => [xor, xor],
            Self::SymmetricOrXor => [source | destination, xor],
        }
    }
}

impl FromStr for Symmetry {
    type Err = &'static str;

    fn from_str(text: &str) -> HostResult<Self, Self::Err> {
        let all = [Self::SymmetricXor, Self::SymmetricOrXor];
        let found = all.into_iter().find(|one| one.name() == text);
        found.ok_or("it is symmetric-xor or symmetric-or-xor")
    }
}

/// A key, made ready: what each byte of the input adds to the hash, by its place and value.
#[derive(Clone)]
pub struct Toeplitz(Box<[[u32; 256]; INPUT_BYTES]>);

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

impl Toeplitz {
    /// A key of [`KEY_BYTES`] or more; what is more hashes nothing.
    ///
    /// # Errors
    /// [`HostError::Impossible`] for a shorter one.
    pub fn new(key: &[u8]) -> HostResult<Self> {
        let Some(key) = key.first_chunk::<KEY_BYTES>() else {
            return Err(HostError::impossible(
                "the RSS key",
                format!("it has {} bytes", key.len()),
                format!("one of {KEY_BYTES} or more is needed for IPv6 and ports"),
            ));
        };
        let mut parts = Box::new([[0; 256]; INPUT_BYTES]);
        for (at, part) in parts.iter_mut().enumerate() {
            // The 32 bits of the key from each of the byte's eight bits on.
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|ahead| u64::from(key[at + ahead]));
            let window = a << 32 | b << 24 | c << 16 | d << 8 | e;
            for (value, sum) in part.iter_mut().enumerate() {
                let set = (0..8).filter(|bit| value & (0x80 >> bit) != 0);
                *sum = set.fold(0, |sum, bit| sum ^ (window >> (8 - bit)) as u32);
            }
        }
        Ok(Self(parts))
    }

    /// The hash of a flow.
    #[inline]
    pub fn hash(&self, flow: &RssFlow, hashed: Hashed) -> u32 {
        let mut input = [0; INPUT_BYTES];
        let mut length = 0;
        let mut add = |bytes: &[u8]| {
            input[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        match (flow.source.ip(), flow.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                add(&source.octets());
                add(&destination.octets());
            }
            (source, destination) => {
                add(&wide(source));
                add(&wide(destination));
            }
        }
        if hashed == Hashed::Ports {
            add(&flow.source.port().to_be_bytes());
            add(&flow.destination.port().to_be_bytes());
        }
        let parts = self.0.iter().zip(&input[..length]);
        parts.fold(0, |sum, (part, byte)| sum ^ part[usize::from(*byte)])
    }
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The kernel's default table for a card (`ethtool_rxfh_indir_default`, include/linux/ethtool.h).
pub fn table_of(entries: usize, queues: u32) -> Vec<u32> {
    (0..queues.max(1)).cycle().take(entries).collect()
}

/// The entry for a hash in a table of `entries` entries.
#[inline]
pub fn entry_of(hash: u32, entries: usize) -> usize {
    hash as usize % entries.max(1)
}

/// How far the busiest queue is above an even share: 1 is even, 4 of four queues is all in one.
/// `loads` are of all queues that could have some.
pub fn imbalance(loads: &[u64]) -> f64 {
    let sum: u64 = loads.iter().sum();
    let most = loads.iter().max().copied().unwrap_or(0);
    if sum == 0 {
        return 1.0;
    }
    most as f64 * loads.len() as f64 / sum as f64
}

/// Weights for `ethtool -X IF weight ...` that give the busiest of `queues` the least possible
/// load. Each queue takes as many consecutive entries as its weight. `by_entry` is the load of each
/// entry.
pub fn even_weights(by_entry: &[u64], queues: u32) -> Vec<u32> {
    let queues = queues.max(1) as usize;
    let heaviest = by_entry.iter().max().copied().unwrap_or(0);
    // The least bound that `queues` runs of entries can keep.
    let (mut low, mut high) = (heaviest, by_entry.iter().sum::<u64>());
    while low < high {
        let bound = low + (high - low) / 2;
        match runs(by_entry, bound).len() <= queues {
            true => high = bound,
            false => low = bound + 1,
        }
    }
    let mut weights = runs(by_entry, low);
    weights.resize(queues, 0);
    weights
}

/// The lengths of the longest runs of entries, one after the other, whose load is within a bound.
fn runs(by_entry: &[u64], bound: u64) -> Vec<u32> {
    let mut runs = Vec::new();
    let (mut length, mut load) = (0, 0);
    for entry in by_entry {
        if length > 0 && load + entry > bound {
            runs.push(length);
            (length, load) = (0, 0);
        }
        length += 1;
        load += entry;
    }
    runs.push(length);
    runs
}

/// The table that ethtool makes of weights whose sum is its length.
pub fn table_of_weights(weights: &[u32]) -> Vec<u32> {
    let each = (0..).zip(weights);
    each.flat_map(|(queue, weight)| std::iter::repeat_n(queue, *weight as usize))
        .collect()
}
