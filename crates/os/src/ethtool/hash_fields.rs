//! Which fields of a packet a card hashes to choose its receive queue (`ethtool -n IF rx-flow-hash`).

use super::ntuple::{DATA_PLACE, LENGTH, request};
use super::{EthtoolDevice, command};
use crate::native::double_word;
use crate::{CallError, CallResult};
use std::io;

/// The place of the flow type in `struct ethtool_rxnfc`.
const FLOW_PLACE: usize = 4;

/// A kind of traffic that has fields of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashFlow {
    /// Its name, as `ethtool -N` takes it.
    pub name: &'static str,
    /// `TCP_V4_FLOW` and its like.
    number: u32,
}

/// UDP and TCP over both versions of IP.
pub const FLOWS: [HashFlow; 4] = [
    HashFlow {
        name: "udp4",
        number: 2,
    },
    HashFlow {
        name: "udp6",
        number: 6,
    },
    HashFlow {
        name: "tcp4",
        number: 1,
    },
    HashFlow {
        name: "tcp6",
        number: 5,
    },
];

/// The bits of `RXH_*`, with their letters in `ethtool -N`, and their meaning.
pub const FIELDS: [(u64, char, &str); 9] = [
    (1 << 1, 'm', "MAC destination"),
    (1 << 2, 'v', "VLAN"),
    (1 << 3, 't', "protocol"),
    (1 << 4, 's', "source address"),
    (1 << 5, 'd', "destination address"),
    (1 << 6, 'f', "source port"),
    (1 << 7, 'n', "destination port"),
    (1 << 8, 'e', "GTP tunnel"),
    (1 << 31, 'r', "none: they are dropped"),
];

/// The fields of this kind of traffic, as bits of [`FIELDS`] (`ETHTOOL_GRXFH`).
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver hashes nothing, or does not report it; `EINVAL` if it does not know
/// this kind; `ENODEV`.
pub fn read(interface: &str, flow: HashFlow) -> CallResult<u64> {
    const CALL: &str = "ioctl ETHTOOL_GRXFH";
    let device = EthtoolDevice::open(interface)?;
    let answer = device.ask(CALL, flow.name, &question(flow), LENGTH)?;
    double_word(&answer, DATA_PLACE).ok_or_else(|| device.malformed(CALL))
}

/// Sets the fields of this kind of traffic (`ETHTOOL_SRXFH`), and looks whether the driver took them:
/// some say yes and keep what they had.
///
/// # Errors
///
/// `EPERM`; `EINVAL` or `EOPNOTSUPP` where the card does not hash these fields; `ENODEV`.
pub fn set(interface: &str, flow: HashFlow, fields: u64) -> CallResult<()> {
    const CALL: &str = "ioctl ETHTOOL_SRXFH";
    let mut bytes = question(flow);
    bytes[..4].copy_from_slice(&command::SET_HASH_FIELDS.to_ne_bytes());
    bytes[DATA_PLACE..DATA_PLACE + 8].copy_from_slice(&fields.to_ne_bytes());
    let device = EthtoolDevice::open(interface)?;
    device.ask(CALL, flow.name, &bytes, LENGTH)?;
    if read(interface, flow)? == fields {
        return Ok(());
    }
    let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    Err(CallError::new(
        CALL,
        format!("{interface} {}", flow.name),
        source,
    ))
}

/// The fields of these letters; none if one of them is unknown.
pub fn fields(letters: &str) -> Option<u64> {
    let bit = |letter| {
        let mut known = FIELDS.iter();
        known
            .find(|(_, known, _)| *known == letter)
            .map(|(bit, ..)| *bit)
    };
    letters.chars().map(bit).sum()
}

/// The letters of these fields, in the order of their bits.
pub fn letters(fields: u64) -> String {
    let are_in = FIELDS.iter().filter(|(bit, ..)| fields & bit != 0);
    are_in.map(|(_, letter, _)| letter).collect()
}

fn question(flow: HashFlow) -> Vec<u8> {
    let mut bytes = request(command::GET_HASH_FIELDS);
    bytes[FLOW_PLACE..FLOW_PLACE + 4].copy_from_slice(&flow.number.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn a_question_and_an_answer_byte_by_byte() {
        let mut bytes = question(FLOWS[0]);
        assert_eq!(
            bytes[..16],
            [0x29, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(bytes.len(), 192, "struct ethtool_rxnfc");
        // igb and ixgbe of UDP: the two addresses. Of TCP, and virtio_net with RSS: the ports as well.
        for (data, said) in [(0x30, "sd"), (0xf0, "sdfn"), (0, ""), (0xfe, "mvtsdfn")] {
            bytes[DATA_PLACE] = data;
            assert_eq!(letters(double_word(&bytes, DATA_PLACE).unwrap()), said);
            assert_eq!(fields(said), Some(data.into()));
        }
        assert_eq!(fields("sdx"), None);
        bytes[DATA_PLACE..DATA_PLACE + 4].copy_from_slice(&[0, 0, 0, 0x80]);
        assert_eq!(letters(double_word(&bytes, DATA_PLACE).unwrap()), "r");
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = read("mpps-nowhere", FLOWS[0]).expect_err("no such interface");
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }
}
