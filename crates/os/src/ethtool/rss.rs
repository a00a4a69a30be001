//! Receive-side scaling: the table that turns a card's hash of a packet into a queue.
//!
//! `ethtool -x` shows it and `ethtool -X` sets it. Only the main table is read and written; further
//! contexts (`ethtool -X IF context new`) are not touched.

use super::{ATTEMPTS, EthtoolDevice, command};
use crate::native::word;
use crate::{CallError, CallResult};
use std::io;

/// `struct ethtool_rxfh` without its list: command, context, size of the table, size of the key,
/// hash function, transformation, reserved.
const HEADER_LENGTH: usize = 24;
const TABLE_LENGTH_PLACE: usize = 8;
const KEY_LENGTH_PLACE: usize = 12;
const HASH_FUNCTION_PLACE: usize = 16;
const TRANSFORM_PLACE: usize = 17;
/// `ETH_RXFH_INDIR_NO_CHANGE`.
const TABLE_UNCHANGED: u32 = u32::MAX;

/// Larger tables and keys than this are no answer: tables of today's cards have up to 4096
/// entries and keys up to 52 bytes (include/linux/netdevice.h allows 256).
const TABLE_LENGTH_MAX: usize = 1 << 16;
const KEY_LENGTH_MAX: usize = 1 << 10;

/// How an interface spreads packets over its receive queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rss {
    /// The queue for each value of the hash, modulo the length; empty where the driver has a hash
    /// and no table.
    pub indirection: Vec<u32>,
    /// The secret key of the hash; empty where the driver does not show it.
    pub key: Vec<u8>,
    /// The function: one bit of `ETH_RSS_HASH_*` (1 Toeplitz, 2 XOR, 4 CRC32); 0 unknown.
    pub hash_function: u8,
    /// The change to addresses and ports before hashing, so that both directions of a flow have one
    /// hash: `RXH_XFRM_SYM_XOR` 1 (Linux 6.8), `RXH_XFRM_SYM_OR_XOR` 2 (6.15); 0 for none.
    pub transform: u8,
}

/// Reads table, key and function (`ETHTOOL_GRSSH`).
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver spreads nothing, or does not report it; `ENODEV`; `EAGAIN` if the
/// sizes changed at every attempt.
pub fn read(interface: &str) -> CallResult<Rss> {
    const CALL: &str = "ioctl ETHTOOL_GRSSH";
    let device = EthtoolDevice::open(interface)?;
    for _ in 0..ATTEMPTS {
        let sizes = device.ask(CALL, "", &read_request(0, 0), HEADER_LENGTH)?;
        let (table, key) = sizes_of(&sizes).ok_or_else(|| device.malformed(CALL))?;
        if table > TABLE_LENGTH_MAX || key > KEY_LENGTH_MAX {
            let source = io::Error::from_raw_os_error(libc::EMSGSIZE);
            return Err(CallError::new(CALL, interface, source));
        }
        let room = HEADER_LENGTH + 4 * table + key;
        match device.ask(CALL, "", &read_request(table as u32, key as u32), room) {
            Ok(answer) => return parse(&answer).ok_or_else(|| device.malformed(CALL)),
            // Another program changed the table's size after it was read.
            Err(error) if error.errno() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Err(device.changing(CALL))
}

/// Sets only the table (`ETHTOOL_SRXFHINDIR`).
///
/// From then on the kernel knows that a user has chosen the table. It keeps it when the number of
/// queues changes, or refuses that change; [`reset_indirection`] ends it.
///
/// # Errors
///
/// `EINVAL` for a table of another length than the driver's, or with a queue that is not there;
/// `EOPNOTSUPP`; `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`.
pub fn set_indirection(interface: &str, table: &[u32]) -> CallResult<()> {
    set(interface, &set_request(table))
}

/// Sets only the key (`ETHTOOL_SRSSH`).
///
/// # Errors
///
/// `EINVAL` for a key of another length than the driver's; `EOPNOTSUPP` if the driver takes none;
/// `EPERM`; `ENODEV`.
pub fn set_key(interface: &str, key: &[u8]) -> CallResult<()> {
    // Linux before 6.8 knows no transformation and wants a zero there. Later ones take back the
    // value that they reported.
    let transform = read(interface)?.transform;
    let request = set_key_request(key, transform);
    let device = EthtoolDevice::open(interface)?;
    device.ask("ioctl ETHTOOL_SRSSH", "RSS key", &request, request.len())?;
    Ok(())
}

/// Lets the kernel choose the table again: all queues in turn.
///
/// # Errors
///
/// As for [`set_indirection`]; `EBUSY` where further contexts are in the way.
pub fn reset_indirection(interface: &str) -> CallResult<()> {
    set(interface, &set_request(&[]))
}

fn set(interface: &str, request: &[u8]) -> CallResult<()> {
    let device = EthtoolDevice::open(interface)?;
    device.ask(
        "ioctl ETHTOOL_SRXFHINDIR",
        "RSS table",
        request,
        request.len(),
    )?;
    Ok(())
}

/// `struct ethtool_rxfh`. Sizes of zero ask for the sizes.
fn read_request(table: u32, key: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH);
    for word in [command::GET_RSS, 0, table, key, 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

/// `struct ethtool_rxfh_indir`, which, unlike `struct ethtool_rxfh`, leaves key, function and
/// transformation as they are on every kernel. No entry stands for the kernel's own choice.
fn set_request(table: &[u32]) -> Vec<u8> {
    let header = [command::SET_INDIRECTION, table.len() as u32];
    let words = header.iter().chain(table);
    words.flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct ethtool_rxfh` with a key, no function and no table.
fn set_key_request(key: &[u8], transform: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LENGTH + key.len());
    for word in [command::SET_RSS, 0, TABLE_UNCHANGED, key.len() as u32, 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes[TRANSFORM_PLACE] = transform;
    bytes.extend(key);
    bytes
}

/// How many entries and how many bytes of key an answer speaks of.
fn sizes_of(answer: &[u8]) -> Option<(usize, usize)> {
    let size = |place| word(answer, place)?.try_into().ok();
    Some((size(TABLE_LENGTH_PLACE)?, size(KEY_LENGTH_PLACE)?))
}

fn parse(answer: &[u8]) -> Option<Rss> {
    let (table, key) = sizes_of(answer)?;
    let table_end = HEADER_LENGTH.checked_add(table.checked_mul(4)?)?;
    let entries = answer.get(HEADER_LENGTH..table_end)?.chunks_exact(4);
    Some(Rss {
        indirection: entries.filter_map(|entry| word(entry, 0)).collect(),
        key: answer.get(table_end..table_end.checked_add(key)?)?.to_vec(),
        hash_function: *answer.get(HASH_FUNCTION_PLACE)?,
        transform: *answer.get(TRANSFORM_PLACE)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn requests_byte_by_byte() {
        // cmd 0x46, rss_context 0, indir_size 128, key_size 40, hfunc and reserved 0.
        let read = [
            0x46, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(read_request(128, 40), read);
        // cmd 0x39, size 3, ring_index 0, 1, 258.
        let set = [
            0x39, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0,
        ];
        assert_eq!(set_request(&[0, 1, 258]), set);
        assert_eq!(set_request(&[]), [0x39, 0, 0, 0, 0, 0, 0, 0]);
        // cmd 0x47, rss_context 0, indir_size ETH_RXFH_INDIR_NO_CHANGE, key_size 2, hfunc 0, input_xfrm 1.
        let set = [
            0x47, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
            8, 9,
        ];
        assert_eq!(set_key_request(&[8, 9], 1), set);
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let mut answer = read_request(2, 3);
        answer[HASH_FUNCTION_PLACE] = 1;
        answer[TRANSFORM_PLACE] = 2;
        answer.extend([7_u32, 9].iter().flat_map(|queue| queue.to_ne_bytes()));
        answer.extend([1, 2, 3, 0]);
        let rss = Rss {
            indirection: vec![7, 9],
            key: vec![1, 2, 3],
            hash_function: 1,
            transform: 2,
        };
        assert_eq!(parse(&answer), Some(rss));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>, table: u32, key: u32) {
            let _ = parse(&bytes);
            let mut lying = read_request(table, key);
            lying.extend(&bytes);
            if let Some(rss) = parse(&lying) {
                prop_assert_eq!((rss.indirection.len(), rss.key.len()), (table as usize, key as usize));
                prop_assert!(4 * rss.indirection.len() + rss.key.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = read("mpps-nowhere").expect_err("no such interface");
        assert_eq!(error.errno(), Some(libc::ENODEV));
        let error = set_indirection("mpps-nowhere", &[0]).expect_err("no such interface");
        assert!(error.to_string().contains("mpps-nowhere"), "{error}");
    }
}
