//! Generic netlink, as far as it is needed to ask (Documentation/userspace-api/netlink/intro.rst).
//!
//! The messages are made and read here byte by byte: two kinds of number and one kind of name are
//! all that is asked for.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket as RawSocket, SocketAddr};

use crate::Result;
use crate::error::On;

/// The family that knows the numbers of all others, and its command and attributes
/// (include/uapi/linux/genetlink.h).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `struct nlmsghdr` and, behind it, `struct genlmsghdr`.
const HEADER_LENGTH: usize = 16;
const GENERIC_HEADER_LENGTH: usize = 4;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The two upper bits of an attribute's type say how it is nested.
const TYPE_MASK: u16 = 0x3fff;

/// The attributes of one answer: type and value.
pub(super) type Attributes = Vec<(u16, Vec<u8>)>;

/// A question to one family, for all objects that match, or a command to it.
pub(super) struct Question<'a> {
    pub(super) call: &'static str,
    pub(super) object: &'a str,
    pub(super) family: &'a str,
    pub(super) command: u8,
    pub(super) attributes: &'a [(u16, Vec<u8>)],
}

impl Question<'_> {
    /// Asks, and returns the attributes of every object.
    pub(super) fn dump(&self) -> Result<Vec<Attributes>> {
        self.ask(NLM_F_REQUEST | NLM_F_DUMP)
            .on(self.call, self.object)
    }

    /// Commands, and waits until it is done.
    pub(super) fn execute(&self) -> Result<()> {
        let done = self.ask(NLM_F_REQUEST | NLM_F_ACK);
        done.map(drop).on(self.call, self.object)
    }

    fn ask(&self, flags: u16) -> io::Result<Vec<Attributes>> {
        let socket = RawSocket::new(NETLINK_GENERIC)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        let mut name = self.family.as_bytes().to_vec();
        name.push(0);
        let question = question(GET_FAMILY, &[(FAMILY_NAME, name)]);
        let asked = message(CONTROLLER, NLM_F_REQUEST | NLM_F_ACK, &question);
        let families = exchange(&socket, &asked)?;
        let number = families
            .first()
            .and_then(|family| u16_of(&objects(family), FAMILY_ID))
            .ok_or(io::ErrorKind::InvalidData)?;
        let question = self::question(self.command, self.attributes);
        let answers = exchange(&socket, &message(number, flags, &question))?;
        Ok(answers.iter().map(|answer| objects(answer)).collect())
    }
}

/// The attributes of a generic answer.
fn objects(body: &[u8]) -> Attributes {
    attributes(body.get(GENERIC_HEADER_LENGTH..).unwrap_or_default())
}

/// A generic question: `struct genlmsghdr` of this command, and attributes.
fn question(command: u8, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![command, 1, 0, 0];
    for (kind, value) in attributes {
        let length = 4 + value.len() as u16;
        bytes.extend(length.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// The value of an attribute that is a number of 32 bits.
pub(super) fn u32_of(attributes: &Attributes, kind: u16) -> Option<u32> {
    let (_, value) = attributes.iter().find(|(found, _)| *found == kind)?;
    Some(u32::from_ne_bytes(value.as_slice().try_into().ok()?))
}

/// The value of an attribute that is a number of 64 bits. The kernel shortens numbers of its kind
/// `uint` to 32 bits where they fit.
pub(super) fn u64_of(attributes: &Attributes, kind: u16) -> Option<u64> {
    let (_, value) = attributes.iter().find(|(found, _)| *found == kind)?;
    match value.len() {
        4 => u32_of(attributes, kind).map(u64::from),
        _ => Some(u64::from_ne_bytes(value.as_slice().try_into().ok()?)),
    }
}

fn u16_of(attributes: &Attributes, kind: u16) -> Option<u16> {
    let (_, value) = attributes.iter().find(|(found, _)| *found == kind)?;
    Some(u16::from_ne_bytes(value.as_slice().try_into().ok()?))
}

/// Sends one message, and reads the bodies up to the end of its answer: the kernel ends a list by
/// itself, and a single answer with the acknowledgement that was asked for.
pub(super) fn exchange(socket: &RawSocket, message: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    socket.send(message, 0)?;
    let mut answers = Vec::new();
    loop {
        match socket.recv_from_full() {
            Ok((datagram, _)) if take(&datagram, &mut answers)? => return Ok(answers),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A message of this kind.
pub(super) fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH];
    bytes.extend(body);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// Takes the messages of one datagram; true at the end of the answer.
fn take(mut datagram: &[u8], answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let (length, kind) = header(datagram).ok_or(io::ErrorKind::InvalidData)?;
        let body = datagram
            .get(HEADER_LENGTH..length)
            .ok_or(io::ErrorKind::InvalidData)?;
        match kind {
            // A list that could not be made, or not to its end, says so at its end.
            DONE => match word(body, 0).map(u32::cast_signed) {
                Some(errno) if errno < 0 => {
                    return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
                }
                _ => return Ok(true),
            },
            ERROR => match word(body, 0).ok_or(io::ErrorKind::InvalidData)? as i32 {
                0 => return Ok(true),
                errno => return Err(io::Error::from_raw_os_error(errno.saturating_neg())),
            },
            _ => answers.push(body.to_vec()),
        }
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(false)
}

/// Length and kind of a message whose length holds at least its header.
fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = word(bytes, 0)? as usize;
    let numbers = word(bytes, 4)?.to_ne_bytes();
    let kind = u16::from_ne_bytes([numbers[0], numbers[1]]);
    (length >= HEADER_LENGTH).then_some((length, kind))
}

/// All attributes up to the first that is damaged.
pub(super) fn attributes(mut bytes: &[u8]) -> Attributes {
    let mut found = Attributes::new();
    while let Some(numbers) = word(bytes, 0).map(u32::to_ne_bytes) {
        let length = usize::from(u16::from_ne_bytes([numbers[0], numbers[1]]));
        let kind = u16::from_ne_bytes([numbers[2], numbers[3]]) & TYPE_MASK;
        let Some(value) = bytes.get(4..length) else {
            break;
        };
        found.push((kind, value.to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = take(&bytes, &mut Vec::new());
            let _ = attributes(&bytes);
        }

        #[test]
        fn round_trip(
            kind in 4_u16..,
            sent in prop::collection::vec((0..=TYPE_MASK, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
        ) {
            let mut answers = Vec::new();
            let mut datagram = message(kind, 0, &question(7, &sent)).repeat(2);
            prop_assert!(!take(&datagram, &mut answers).expect("well formed"));
            datagram.extend(message(DONE, 0, &question(0, &[])));
            prop_assert!(take(&datagram, &mut answers).expect("well formed"));
            let answers: Vec<Attributes> = answers.iter().map(|answer| objects(answer)).collect();
            prop_assert_eq!(answers, vec![sent; 4]);
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        for kind in [ERROR, DONE] {
            let mut bytes = message(kind, 0, &question(0, &[]));
            bytes[HEADER_LENGTH..].copy_from_slice(&(-libc::ENOENT).to_ne_bytes());
            let error = take(&bytes, &mut Vec::new()).expect_err("refused");
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        }
    }
}
