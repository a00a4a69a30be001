//! Generic netlink, as far as it is needed to ask (Documentation/userspace-api/netlink/intro.rst).
//!
//! The messages are made and read here byte by byte: two kinds of number and one kind of name are
//! all that is asked for. A refusal comes with the kernel's own words, where it has some.

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket as RawSocket, SocketAddr};

use crate::native::{half_word, word};
use crate::{CallError, CallResult};

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
/// Flags of an `NLMSG_ERROR`: the question is not repeated in it but for its header, and attributes
/// follow; and the one of them that has words (include/uapi/linux/netlink.h).
const CAPPED: u16 = 0x100;
const WITH_ATTRIBUTES: u16 = 0x200;
const WORDS: u16 = 1;
/// An attribute that has attributes.
const NESTED: u16 = 1 << 15;
/// The two upper bits of an attribute's type say how it is nested.
const TYPE_MASK: u16 = 0x3fff;

/// The attributes of one answer: type and value.
pub(super) type Attributes = Vec<(u16, Vec<u8>)>;

/// A question to one family, for all objects that match, or a command to it.
pub(crate) struct Question<'a> {
    pub(crate) call: &'static str,
    pub(crate) object: &'a str,
    pub(crate) family: &'a str,
    pub(crate) command: u8,
    pub(crate) attributes: &'a [(u16, Vec<u8>)],
}

impl Question<'_> {
    /// Asks, and returns the attributes of every object.
    pub(super) fn dump(&self) -> CallResult<Vec<Attributes>> {
        self.ask(NLM_F_REQUEST | NLM_F_DUMP)
            .map_err(|refusal| self.error(refusal))
    }

    /// Commands, and waits until it is done.
    pub(crate) fn execute(&self) -> CallResult<()> {
        let done = self.ask(NLM_F_REQUEST | NLM_F_ACK);
        done.map(drop).map_err(|refusal| self.error(refusal))
    }

    fn error(&self, refusal: Refusal) -> CallError {
        let mut error = CallError::new(self.call, self.object, refusal.source);
        error.said = refusal.said;
        error
    }

    fn ask(&self, flags: u16) -> CallResult<Vec<Attributes>, Refusal> {
        let socket = RawSocket::new(NETLINK_GENERIC)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Since Linux 4.12; without it the number has to do.
        let _ = socket.set_ext_ack(true);
        let mut name = self.family.as_bytes().to_vec();
        name.push(0);
        let question = question(GET_FAMILY, &[(FAMILY_NAME, name)]);
        let asked = message(CONTROLLER, NLM_F_REQUEST | NLM_F_ACK, &question);
        let families = exchange(&socket, &asked)?;
        let number = families
            .first()
            .and_then(|family| u16_of(&objects(family), FAMILY_ID))
            .ok_or_else(malformed)?;
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
    bytes.extend(written(attributes));
    bytes
}

/// The attribute of this kind that has these attributes.
pub(crate) fn nested(kind: u16, attributes: &[(u16, Vec<u8>)]) -> (u16, Vec<u8>) {
    (kind | NESTED, written(attributes))
}

fn written(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
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

/// Why a question was not answered.
#[derive(Debug)]
pub(super) struct Refusal {
    source: io::Error,
    said: String,
}

impl From<io::Error> for Refusal {
    fn from(source: io::Error) -> Self {
        let said = String::new();
        Self { source, said }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        refusal.source
    }
}

fn malformed() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Sends one message, and reads the bodies up to the end of its answer: the kernel ends a list by
/// itself, and a single answer with the acknowledgement that was asked for.
pub(super) fn exchange(socket: &RawSocket, message: &[u8]) -> CallResult<Vec<Vec<u8>>, Refusal> {
    exchange_while(socket, message, &|| true)
}

/// The same, as long as `goes_on`: otherwise `EINTR`, if that was not the end.
pub(super) fn exchange_while(
    socket: &RawSocket,
    message: &[u8],
    goes_on: &dyn Fn() -> bool,
) -> CallResult<Vec<Vec<u8>>, Refusal> {
    socket.send(message, 0)?;
    let mut answers = Vec::new();
    while !take(&super::receive(socket)?, &mut answers)? {
        if !goes_on() {
            return Err(io::Error::from_raw_os_error(libc::EINTR).into());
        }
    }
    Ok(answers)
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
fn take(mut datagram: &[u8], answers: &mut Vec<Vec<u8>>) -> CallResult<bool, Refusal> {
    while !datagram.is_empty() {
        let (length, kind, flags) = header(datagram).ok_or_else(malformed)?;
        let body = datagram.get(HEADER_LENGTH..length).ok_or_else(malformed)?;
        match kind {
            // A list that could not be made, or not to its end, says so at its end.
            DONE => match word(body, 0).map(u32::cast_signed) {
                Some(errno) if errno < 0 => {
                    return Err(io::Error::from_raw_os_error(errno.saturating_neg()).into());
                }
                _ => return Ok(true),
            },
            ERROR => match word(body, 0).ok_or_else(malformed)? as i32 {
                0 => return Ok(true),
                errno => {
                    let source = io::Error::from_raw_os_error(errno.saturating_neg());
                    let said = words(body, flags).unwrap_or_default();
                    return Err(Refusal { source, said });
                }
            },
            _ => answers.push(body.to_vec()),
        }
        datagram = datagram
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(false)
}

/// The kernel's words in the body of a refusal: behind the errno and the question's header, and the
/// rest of the question if it is repeated.
fn words(body: &[u8], flags: u16) -> Option<String> {
    if flags & WITH_ATTRIBUTES == 0 {
        return None;
    }
    let question = match flags & CAPPED {
        0 => word(body, 4)? as usize,
        _ => HEADER_LENGTH,
    };
    let attributes = attributes(body.get(question.checked_next_multiple_of(4)?.checked_add(4)?..)?);
    let (_, words) = attributes.iter().find(|(kind, _)| *kind == WORDS)?;
    let words = words.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(words).into_owned())
}

/// Length, kind and flags of a message whose length holds at least its header.
fn header(bytes: &[u8]) -> Option<(usize, u16, u16)> {
    let length = word(bytes, 0)? as usize;
    let (kind, flags) = (half_word(bytes, 4)?, half_word(bytes, 6)?);
    (length >= HEADER_LENGTH).then_some((length, kind, flags))
}

/// All attributes up to the first that is damaged.
pub(super) fn attributes(mut bytes: &[u8]) -> Attributes {
    let mut found = Attributes::new();
    while let Some((length, kind)) = half_word(bytes, 0).zip(half_word(bytes, 2)) {
        let length = usize::from(length);
        let Some(value) = bytes.get(4..length) else {
            break;
        };
        found.push((kind & TYPE_MASK, value.to_vec()));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>, flags: u16) {
            let _ = take(&bytes, &mut Vec::new());
            let _ = take(&message(ERROR, flags, &bytes), &mut Vec::new());
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
            let refusal = take(&bytes, &mut Vec::new()).expect_err("refused");
            assert_eq!(refusal.source.raw_os_error(), Some(libc::ENOENT));
            assert_eq!(refusal.said, "");
        }
    }

    #[test]
    fn a_refusal_has_the_words_of_the_kernel() {
        const NOTHING: &[u8] = &[];
        let question = message(20, 0, &question(16, &[(6, vec![1, 0, 0, 0])]));
        for (flags, repeated) in [(CAPPED, NOTHING), (0, &question[HEADER_LENGTH..])] {
            let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
            body.extend(&question[..HEADER_LENGTH]);
            body.extend(repeated);
            // NLMSGERR_ATTR_OFFS, and then the words with their zero.
            body.extend(written(&[
                (2, vec![16, 0, 0, 0]),
                (WORDS, b"too large\0".to_vec()),
            ]));
            let bytes = message(ERROR, flags | WITH_ATTRIBUTES, &body);
            let refusal = take(&bytes, &mut Vec::new()).expect_err("refused");
            assert_eq!(refusal.said, "too large");
        }
    }
}
