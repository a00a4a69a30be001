//! Rules that make a card send the packets of one flow to one queue (`ethtool -n`, `-N`).
//!
//! `struct ethtool_rxnfc` of include/uapi/linux/ethtool.h, as 64-bit machines lay it out. This
//! module makes only one kind of rule: UDP datagrams to this address and port, from any sender.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{ATTEMPTS, EthtoolDevice, command};
use crate::native::{double_word, word};
use crate::{CallError, CallResult};

/// `struct ethtool_rxnfc`: command, flow type, data, the rule, a count; then the list. 32-bit x86
/// has no padding before 64-bit numbers, and thus other places; it is not supported.
pub(super) const LENGTH: usize = 192;
pub(super) const DATA_PLACE: usize = 8;
const RULE_PLACE: usize = 16;
const COUNT_PLACE: usize = 184;
const LIST_PLACE: usize = 188;

/// `struct ethtool_rx_flow_spec`, from its own start: flow type, header, extension, mask of the
/// header, mask of the extension, queue, location.
const HEADER_PLACE: usize = 4;
const MASK_PLACE: usize = 76;
const QUEUE_PLACE: usize = 152;
const LOCATION_PLACE: usize = 160;

/// `UDP_V4_FLOW` and `UDP_V6_FLOW`.
const UDP_V4: u32 = 2;
const UDP_V6: u32 = 6;

/// The room for a header in the rule (`hdata` of `union ethtool_flow_union`).
const HEADER_LENGTH: usize = 52;

/// `RX_CLS_LOC_ANY`: the driver chooses the place.
const ANYWHERE: u32 = 0xffff_ffff;
/// `RX_CLS_LOC_SPECIAL`: the driver can choose.
const CHOOSES: u64 = 0x8000_0000;

/// More rules than this are no answer.
const RULES_MAX: usize = 1 << 20;

/// UDP datagrams to `destination` go to `queue`. An unspecified address stands for any, of its
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NtupleRule {
    /// Where the datagrams are sent to.
    pub destination: SocketAddr,
    /// The receive queue, from 0.
    pub queue: u32,
}

/// A rule as the driver shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The meaning, if this module makes rules of this kind.
    pub rule: Option<NtupleRule>,
    /// The driver's own description without the place, in hexadecimal. Two rules with the same
    /// description are the same. A driver may show a rule in another form than it was given.
    pub description: String,
}

/// The places of a card's rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NtupleTable {
    /// Places that there are; 0 where the driver does not say.
    pub size: u32,
    /// The driver can choose a place; otherwise the inserting program must.
    pub driver_chooses: bool,
    /// Places with a rule, ascending.
    pub locations: Vec<u32>,
}

impl NtupleTable {
    /// The last free place, where a rule does not come before those of others; none where the
    /// table is full or its size is unknown.
    pub fn free_location(&self) -> Option<u32> {
        let taken = |place: &u32| self.locations.binary_search(place).is_ok();
        (0..self.size).rev().find(|place| !taken(place))
    }
}

/// The receive queues that rules and the RSS table may name (`ETHTOOL_GRXRINGS`).
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver does not steer; `ENODEV`.
pub fn rings(interface: &str) -> CallResult<u32> {
    const CALL: &str = "ioctl ETHTOOL_GRXRINGS";
    let device = EthtoolDevice::open(interface)?;
    let answer = device.ask(CALL, "", &request(command::GET_RX_RINGS), LENGTH)?;
    let rings = double_word(&answer, DATA_PLACE).and_then(|rings| rings.try_into().ok());
    rings.ok_or_else(|| device.malformed(CALL))
}

/// Which places of the table have a rule (`ETHTOOL_GRXCLSRLCNT`, `ETHTOOL_GRXCLSRLALL`).
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has no such rules, some drivers only as long as the feature
/// `rx-ntuple-filter` is off; `ENODEV`; `EAGAIN` where the table never held still.
pub fn table(interface: &str) -> CallResult<NtupleTable> {
    const COUNT: &str = "ioctl ETHTOOL_GRXCLSRLCNT";
    const LIST: &str = "ioctl ETHTOOL_GRXCLSRLALL";
    let device = EthtoolDevice::open(interface)?;
    for _ in 0..ATTEMPTS {
        let answer = device.ask(COUNT, "", &request(command::GET_RULE_COUNT), LENGTH)?;
        let (count, chooses) = parse_count(&answer).ok_or_else(|| device.malformed(COUNT))?;
        if count > RULES_MAX {
            let source = io::Error::from_raw_os_error(libc::EMSGSIZE);
            return Err(CallError::new(COUNT, interface, source));
        }
        let room = LIST_PLACE + 4 * count;
        match device.ask(LIST, "", &list_request(count as u32), room.max(LENGTH)) {
            Ok(answer) => {
                return parse_list(&answer, count, chooses).ok_or_else(|| device.malformed(LIST));
            }
            // A rule was added since they were counted.
            Err(error) if error.errno() == Some(libc::EMSGSIZE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(device.changing(LIST))
}

/// The rule at a place (`ETHTOOL_GRXCLSRULE`).
///
/// # Errors
///
/// `ENOENT` or `EINVAL`, as the driver likes, where no rule is there; `EOPNOTSUPP`; `ENODEV`.
pub fn rule(interface: &str, location: u32) -> CallResult<Shown> {
    const CALL: &str = "ioctl ETHTOOL_GRXCLSRULE";
    let device = EthtoolDevice::open(interface)?;
    let request = at(command::GET_RULE, location);
    let answer = device.ask(CALL, &name(location), &request, LENGTH)?;
    shown(&answer).ok_or_else(|| device.malformed(CALL))
}

/// Adds a rule, at a place or, without one, where the driver likes; returns the place
/// (`ETHTOOL_SRXCLSRLINS`). A rule that is already at that place is replaced.
///
/// # Errors
///
/// `EINVAL`, `ENOSPC` or another answer of the driver that cannot have this rule; `EOPNOTSUPP`
/// where it has no rules, or the feature `rx-ntuple-filter` is off; `EPERM` without
/// `CAP_NET_ADMIN` over the namespace; `ENODEV`.
pub fn insert(interface: &str, rule: &NtupleRule, location: Option<u32>) -> CallResult<u32> {
    const CALL: &str = "ioctl ETHTOOL_SRXCLSRLINS";
    let device = EthtoolDevice::open(interface)?;
    let what = format!("rule {} to queue {}", rule.destination, rule.queue);
    let answer = device.ask(CALL, &what, &insert_request(rule, location), LENGTH)?;
    word(&answer, RULE_PLACE + LOCATION_PLACE).ok_or_else(|| device.malformed(CALL))
}

/// Takes the rule at a place away (`ETHTOOL_SRXCLSRLDEL`).
///
/// # Errors
///
/// As for [`rule`]; `EPERM` without `CAP_NET_ADMIN` over the namespace.
pub fn remove(interface: &str, location: u32) -> CallResult<()> {
    let device = EthtoolDevice::open(interface)?;
    let request = at(command::DELETE_RULE, location);
    device.ask(
        "ioctl ETHTOOL_SRXCLSRLDEL",
        &name(location),
        &request,
        LENGTH,
    )?;
    Ok(())
}

fn name(location: u32) -> String {
    format!("rule at {location}")
}

pub(super) fn request(command: u32) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    bytes[..4].copy_from_slice(&command.to_ne_bytes());
    bytes
}

fn list_request(count: u32) -> Vec<u8> {
    let mut bytes = request(command::GET_RULES);
    bytes[COUNT_PLACE..COUNT_PLACE + 4].copy_from_slice(&count.to_ne_bytes());
    bytes
}

/// A request about the rule at one place.
fn at(command: u32, location: u32) -> Vec<u8> {
    let mut bytes = request(command);
    let place = RULE_PLACE + LOCATION_PLACE;
    bytes[place..place + 4].copy_from_slice(&location.to_ne_bytes());
    bytes
}

fn insert_request(rule: &NtupleRule, location: Option<u32>) -> Vec<u8> {
    let mut bytes = at(command::INSERT_RULE, location.unwrap_or(ANYWHERE));
    let (kind, header, mask) = headers(rule);
    let mut put = |place: usize, value: &[u8]| {
        bytes[RULE_PLACE + place..][..value.len()].copy_from_slice(value);
    };
    put(0, &kind.to_ne_bytes());
    put(HEADER_PLACE, &header);
    put(MASK_PLACE, &mask);
    put(QUEUE_PLACE, &u64::from(rule.queue).to_ne_bytes());
    bytes
}

/// The flow type, the header to compare with, and its mask: a bit that is set is compared.
fn headers(rule: &NtupleRule) -> (u32, [u8; HEADER_LENGTH], [u8; HEADER_LENGTH]) {
    let (mut header, mut mask) = ([0; HEADER_LENGTH], [0; HEADER_LENGTH]);
    let mut put = |place: usize, value: &[u8]| {
        header[place..place + value.len()].copy_from_slice(value);
        mask[place..place + value.len()].fill(0xff);
    };
    let address = rule.destination.ip();
    let port = rule.destination.port().to_be_bytes();
    let places = SpecOffsets::of(address.is_ipv4());
    match address {
        address if address.is_unspecified() => {}
        IpAddr::V4(address) => put(places.address, &address.octets()),
        IpAddr::V6(address) => put(places.address, &address.octets()),
    }
    put(places.port, &port);
    (places.kind, header, mask)
}

/// Where things are in `struct ethtool_tcpip4_spec` and `struct ethtool_tcpip6_spec`: source and
/// destination address, source and destination port, traffic class.
struct SpecOffsets {
    kind: u32,
    address: usize,
    address_length: usize,
    port: usize,
}

impl SpecOffsets {
    fn of(v4: bool) -> Self {
        let (kind, address_length) = if v4 { (UDP_V4, 4) } else { (UDP_V6, 16) };
        Self {
            kind,
            address: address_length,
            address_length,
            port: 2 * address_length + 2,
        }
    }
}

/// How many rules there are, and whether the driver chooses places.
fn parse_count(answer: &[u8]) -> Option<(usize, bool)> {
    let count = word(answer, COUNT_PLACE)?.try_into().ok()?;
    Some((count, double_word(answer, DATA_PLACE)? & CHOOSES != 0))
}

/// The list. `asked` is how many places there was room for.
fn parse_list(answer: &[u8], asked: usize, driver_chooses: bool) -> Option<NtupleTable> {
    let count: usize = word(answer, COUNT_PLACE)?.try_into().ok()?;
    // Some drivers leave the count as it was asked for; none can have written more than fits.
    let count = count.min(asked);
    let list = answer.get(LIST_PLACE..LIST_PLACE + 4 * count)?;
    let mut locations: Vec<u32> = list.chunks_exact(4).filter_map(|at| word(at, 0)).collect();
    locations.sort_unstable();
    locations.dedup();
    let size = double_word(answer, DATA_PLACE)? & !CHOOSES;
    Some(NtupleTable {
        size: size.try_into().unwrap_or(0),
        driver_chooses,
        locations,
    })
}

fn shown(answer: &[u8]) -> Option<Shown> {
    let rule = answer.get(RULE_PLACE..RULE_PLACE + LOCATION_PLACE)?;
    Some(Shown {
        rule: meaning(rule),
        description: rule.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// The meaning of these bytes; none if the rule compares anything more.
fn meaning(rule: &[u8]) -> Option<NtupleRule> {
    let kind = word(rule, 0)?;
    let v4 = kind == UDP_V4;
    if !v4 && kind != UDP_V6 {
        return None;
    }
    let places = SpecOffsets::of(v4);
    let header = rule.get(HEADER_PLACE..HEADER_PLACE + HEADER_LENGTH)?;
    let address = header.get(places.address..places.address + places.address_length)?;
    let address = if v4 {
        IpAddr::from(<[u8; 4]>::try_from(address).ok()?)
    } else {
        IpAddr::from(<[u8; 16]>::try_from(address).ok()?)
    };
    let port = header.get(places.port..places.port + 2)?;
    let port = u16::from_be_bytes(port.try_into().ok()?);
    let any = if v4 {
        IpAddr::from(Ipv4Addr::UNSPECIFIED)
    } else {
        IpAddr::from(Ipv6Addr::UNSPECIFIED)
    };
    let queue = double_word(rule, QUEUE_PLACE)?.try_into().ok()?;
    let mask = rule.get(MASK_PLACE..MASK_PLACE + HEADER_LENGTH)?;
    // Bytes that the mask leaves out may be anything, so the whole mask is compared.
    [address, any].into_iter().find_map(|address| {
        let rule = NtupleRule {
            destination: SocketAddr::new(address, port),
            queue,
        };
        (headers(&rule).2 == mask).then_some(rule)
    })
}

#[cfg(test)]
mod tests;
