//! Reads and sets a driver: statistics, features, channels, which queue a packet goes to
//! ([`hash_fields`], [`rss`], [`ntuple`]), and how long it waits to interrupt ([`coalesce`]).
//!
//! By `ioctl` `SIOCETHTOOL` (`netdevice(7)`, include/uapi/linux/ethtool.h), or by netlink if the
//! kernel explains a refusal there. Both work on the interfaces of the calling thread's network
//! namespace.

mod buffer;
mod change;
pub mod coalesce;
pub mod hash_fields;
pub mod ntuple;
pub mod rss;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use self::buffer::GuardedBuffer;
use self::change::ChangeKind;
use crate::error::On;
use crate::netlink::link::to_ask;
use crate::{CallError, CallResult, text};

/// Command numbers of include/uapi/linux/ethtool.h.
mod command {
    pub(super) const GET_DRIVER_INFO: u32 = 0x03;
    pub(super) const GET_COALESCING: u32 = 0x0e;
    pub(super) const SET_COALESCING: u32 = 0x0f;
    pub(super) const GET_RINGS: u32 = 0x10;
    pub(super) const GET_STRINGS: u32 = 0x1b;
    pub(super) const GET_STATISTICS: u32 = 0x1d;
    pub(super) const GET_STRING_SET_INFO: u32 = 0x37;
    pub(super) const GET_FEATURES: u32 = 0x3a;
    pub(super) const SET_FEATURES: u32 = 0x3b;
    pub(super) const GET_CHANNELS: u32 = 0x3c;
    pub(super) const GET_HASH_FIELDS: u32 = 0x29;
    pub(super) const SET_HASH_FIELDS: u32 = 0x2a;
    pub(super) const GET_RX_RINGS: u32 = 0x2d;
    pub(super) const GET_RULE_COUNT: u32 = 0x2e;
    pub(super) const GET_RULE: u32 = 0x2f;
    pub(super) const GET_RULES: u32 = 0x30;
    pub(super) const DELETE_RULE: u32 = 0x31;
    pub(super) const INSERT_RULE: u32 = 0x32;
    pub(super) const SET_INDIRECTION: u32 = 0x39;
    pub(super) const GET_RSS: u32 = 0x46;
    pub(super) const SET_RSS: u32 = 0x47;
    pub(super) const OF_QUEUE: u32 = 0x4b;
}

/// `ETH_GSTRING_LEN`: every name takes this many bytes, padded with zeros.
const STRING_LENGTH: usize = 32;

/// How often a list is read again if its length changed while it was read. That happens if another
/// program changes the queues of the interface.
const ATTEMPTS: usize = 5;

/// No interface has more queues (`MAX_NUM_QUEUE` of include/linux/ethtool.h).
pub const QUEUES_MAX: u32 = 4096;

/// More names than this are no answer: the most queues with 64 counters each.
const STRINGS_MAX: u32 = QUEUES_MAX * 64;

/// `enum ethtool_stringset`.
#[derive(Debug, Clone, Copy)]
enum StringSet {
    Statistics = 1,
    Features = 4,
}

/// A feature of an interface, such as an offload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name for it, such as `tx-udp-segmentation`.
    pub name: String,
    /// It is on.
    pub active: bool,
    /// It was asked for.
    pub requested: bool,
    /// The driver lets it be changed.
    pub changeable: bool,
}

/// How many channels (queues with an interrupt) an interface has, and may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Channels {
    /// Most channels that only receive.
    pub rx_max: u32,
    /// Most channels that only transmit.
    pub tx_max: u32,
    /// Most channels that do both.
    pub combined_max: u32,
    /// Channels that only receive.
    pub rx: u32,
    /// Channels that only transmit.
    pub tx: u32,
    /// Channels that do both.
    pub combined: u32,
}

/// The size of receive rings, in descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Entries of each ring.
    pub size: u32,
    /// The most that the card can.
    pub size_max: u32,
}

/// Which driver runs an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// The name of the driver, such as `veth` or `mlx5_core`.
    pub name: String,
    /// Its version; most drivers repeat the kernel's.
    pub version: String,
    /// The version of the firmware; empty where there is none.
    pub firmware_version: String,
    /// The place on the bus, such as a PCI address; empty where there is none.
    pub bus: String,
}

/// The driver's own counters, in its order: what `ethtool -S` prints.
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has none; `ENODEV`.
pub fn statistics(interface: &str) -> CallResult<Vec<(String, u64)>> {
    let device = EthtoolDevice::open(interface)?;
    for _ in 0..ATTEMPTS {
        let names = device.strings(StringSet::Statistics)?;
        let mut buffer = device.buffer(8 + 8 * names.len())?;
        buffer.put_u32(0, command::GET_STATISTICS);
        buffer.put_u32(4, names.len() as u32);
        device.call("ioctl ETHTOOL_GSTATS", &mut buffer)?;
        if buffer.u32_at(4) as usize == names.len() {
            let values = (0..names.len()).map(|index| buffer.u64_at(8 + 8 * index));
            return Ok(names.into_iter().zip(values).collect());
        }
    }
    Err(device.changing("ioctl ETHTOOL_GSTATS"))
}

/// All features, in the kernel's order: what `ethtool -k` prints.
///
/// # Errors
///
/// `ENODEV`; an answer that contradicts itself.
pub fn features(interface: &str) -> CallResult<Vec<Feature>> {
    let device = EthtoolDevice::open(interface)?;
    let names = device.feature_names()?;
    let blocks = names.len().div_ceil(32);
    let mut buffer = device.buffer(8 + 16 * blocks)?;
    buffer.put_u32(0, command::GET_FEATURES);
    buffer.put_u32(4, blocks as u32);
    device.call("ioctl ETHTOOL_GFEATURES", &mut buffer)?;
    let bit = |index: usize, word: usize| {
        let block = 8 + 16 * (index / 32);
        buffer.u32_at(block + 4 * word) >> (index % 32) & 1 == 1
    };
    // A feature without a name is a hole in the kernel's numbering.
    let named = names.iter().enumerate().filter(|(_, n)| !n.is_empty());
    Ok(named
        .map(|(index, name)| Feature {
            name: name.clone(),
            // The words of struct ethtool_get_features_block: available, requested, active,
            // never changed.
            changeable: bit(index, 0) && !bit(index, 3),
            requested: bit(index, 1),
            active: bit(index, 2),
        })
        .collect())
}

/// Switches one feature on or off: what `ethtool -K` does.
///
/// # Errors
///
/// `EOPNOTSUPP` where the kernel does not know the feature or the driver does not let it be
/// changed, or where it took another state than the wanted one; `EPERM` without `CAP_NET_ADMIN`
/// over the namespace; `ENODEV`.
pub fn set_feature(interface: &str, name: &str, wanted: bool) -> CallResult<()> {
    const CALL: &str = "ioctl ETHTOOL_SFEATURES";
    let device = EthtoolDevice::open(interface)?;
    let names = device.feature_names()?;
    let object = || format!("{interface} {name}");
    let refused = || {
        CallError::new(
            CALL,
            object(),
            io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        )
    };
    let index = names
        .iter()
        .position(|known| known == name)
        .ok_or_else(refused)?;
    let blocks = names.len().div_ceil(32);
    let mut buffer = device.buffer(8 + 8 * blocks)?;
    buffer.put_u32(0, command::SET_FEATURES);
    buffer.put_u32(4, blocks as u32);
    let block = 8 + 8 * (index / 32);
    let mask = 1 << (index % 32);
    buffer.put_u32(block, mask);
    buffer.put_u32(block + 4, if wanted { mask } else { 0 });
    // A positive answer holds ETHTOOL_F_UNSUPPORTED and ETHTOOL_F_WISH: accepted, but not done.
    let answer = device
        .call(CALL, &mut buffer)
        .map_err(|error| CallError::new(CALL, object(), error.source))?;
    if answer == 0 { Ok(()) } else { Err(refused()) }
}

/// The channels: what `ethtool -l` prints.
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has no such notion; `ENODEV`.
pub fn channels(interface: &str) -> CallResult<Channels> {
    let device = EthtoolDevice::open(interface)?;
    // struct ethtool_channels: the command and eight counts.
    let mut buffer = device.buffer(36)?;
    buffer.put_u32(0, command::GET_CHANNELS);
    device.call("ioctl ETHTOOL_GCHANNELS", &mut buffer)?;
    Ok(Channels {
        rx_max: buffer.u32_at(4),
        tx_max: buffer.u32_at(8),
        combined_max: buffer.u32_at(16),
        rx: buffer.u32_at(20),
        tx: buffer.u32_at(24),
        combined: buffer.u32_at(32),
    })
}

/// Sets how many combined channels there are: what `ethtool -L IF combined N` does. Most drivers reset
/// the card for it.
///
/// # Errors
///
/// `EPERM`; `EINVAL` for a number that the driver does not take, or while an RSS table or an AF_XDP
/// socket uses a queue that would go; `EOPNOTSUPP`; `ENODEV`.
pub fn set_channels(interface: &str, combined: u32) -> CallResult<()> {
    let value = (change::COMBINED, combined.to_ne_bytes().to_vec());
    change::set(interface, ChangeKind::Channels, vec![value])
}

/// Sets how many descriptors each receive ring has: what `ethtool -G IF rx N` does. Most drivers reset
/// the card for it.
///
/// # Errors
///
/// `EPERM`; `EINVAL` for a size that the driver does not take; `EOPNOTSUPP`; `ENODEV`.
pub fn set_rx_ring(interface: &str, size: u32) -> CallResult<()> {
    let value = (change::RX_RING, size.to_ne_bytes().to_vec());
    change::set(interface, ChangeKind::Rings, vec![value])
}

/// How many descriptors each receive ring has, and may have: what `ethtool -g` prints first.
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has no such notion; `ENODEV`.
pub fn rx_ring(interface: &str) -> CallResult<RingSizes> {
    let device = EthtoolDevice::open(interface)?;
    // struct ethtool_ringparam: the command, four most sizes and four sizes.
    let mut buffer = device.buffer(36)?;
    buffer.put_u32(0, command::GET_RINGS);
    device.call("ioctl ETHTOOL_GRINGPARAM", &mut buffer)?;
    Ok(RingSizes {
        size: buffer.u32_at(20),
        size_max: buffer.u32_at(4),
    })
}

/// The driver: what `ethtool -i` prints.
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver does not say; `ENODEV`.
pub fn driver(interface: &str) -> CallResult<Driver> {
    let device = EthtoolDevice::open(interface)?;
    // struct ethtool_drvinfo is 196 bytes long.
    let mut buffer = device.buffer(196)?;
    buffer.put_u32(0, command::GET_DRIVER_INFO);
    device.call("ioctl ETHTOOL_GDRVINFO", &mut buffer)?;
    Ok(Driver {
        name: buffer.string_at(4),
        version: buffer.string_at(36),
        firmware_version: buffer.string_at(68),
        bus: buffer.string_at(100),
    })
}

/// One interface, and the socket for requests about it.
struct EthtoolDevice<'a> {
    socket: OwnedFd,
    interface: &'a str,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl<'a> EthtoolDevice<'a> {
    fn open(interface: &'a str) -> CallResult<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        let bytes = text::to_bytes(interface);
        // The last place stays zero. A longer name cannot be that of an interface.
        if bytes.len() >= name.len() {
            let source = io::Error::from_raw_os_error(libc::ENODEV);
            return Err(CallError::new("ioctl SIOCETHTOOL", interface, source));
        }
        for (place, byte) in name.iter_mut().zip(bytes.as_bytes()) {
            *place = *byte as libc::c_char;
        }
        let socket = to_ask().on("socket", interface)?;
        Ok(Self {
            socket,
            interface,
            name,
        })
    }

    /// All names of a set, holes included: their places are the numbers of what they name.
    fn strings(&self, set: StringSet) -> CallResult<Vec<String>> {
        const CALL: &str = "ioctl ETHTOOL_GSTRINGS";
        for _ in 0..ATTEMPTS {
            let count = self.string_count(set)?;
            let mut buffer = self.buffer(12 + STRING_LENGTH * count as usize)?;
            buffer.put_u32(0, command::GET_STRINGS);
            buffer.put_u32(4, set as u32);
            buffer.put_u32(8, count);
            self.call(CALL, &mut buffer)?;
            if buffer.u32_at(8) == count {
                let places = (0..count as usize).map(|index| 12 + STRING_LENGTH * index);
                return Ok(places.map(|place| buffer.string_at(place)).collect());
            }
        }
        Err(self.changing(CALL))
    }

    /// The names of features, which are the kernel's own and the same for all interfaces
    /// (`netdev_features_strings` in net/ethtool/common.c).
    fn feature_names(&self) -> CallResult<&'static [String]> {
        static NAMES: OnceLock<Vec<String>> = OnceLock::new();
        if let Some(names) = NAMES.get() {
            return Ok(names);
        }
        let names = self.strings(StringSet::Features)?;
        Ok(NAMES.get_or_init(|| names))
    }

    fn string_count(&self, set: StringSet) -> CallResult<u32> {
        const CALL: &str = "ioctl ETHTOOL_GSSET_INFO";
        // struct ethtool_sset_info with one count.
        let mut buffer = self.buffer(20)?;
        buffer.put_u32(0, command::GET_STRING_SET_INFO);
        buffer.put_u64(8, 1 << set as u32);
        self.call(CALL, &mut buffer)?;
        // The kernel clears the bit of a set that this driver has not.
        let errno = if buffer.u64_at(8) == 0 {
            libc::EOPNOTSUPP
        } else if buffer.u32_at(16) > STRINGS_MAX {
            libc::EMSGSIZE
        } else {
            return Ok(buffer.u32_at(16));
        };
        let source = io::Error::from_raw_os_error(errno);
        Err(CallError::new(CALL, self.interface, source))
    }

    /// Hands over a request, and returns what the buffer of `room` bytes holds after the call.
    ///
    /// `what` is the part of the interface that it is about, for the error; empty for all of it.
    fn ask(
        &self,
        call: &'static str,
        what: &str,
        request: &[u8],
        room: usize,
    ) -> CallResult<Vec<u8>> {
        let mut buffer =
            GuardedBuffer::holding(request, room).on("mmap", format!("{room} bytes"))?;
        self.call(call, &mut buffer).map_err(|error| {
            let object = format!("{} {what}", self.interface);
            CallError::new(error.call, object.trim_end(), error.source)
        })?;
        Ok(buffer.bytes().to_vec())
    }

    /// The error for an answer that makes no sense.
    fn malformed(&self, call: &'static str) -> CallError {
        CallError::new(call, self.interface, io::ErrorKind::InvalidData.into())
    }

    fn buffer(&self, length: usize) -> CallResult<GuardedBuffer> {
        GuardedBuffer::new(length).on("mmap", format!("{length} bytes"))
    }

    /// Gives the buffer to the driver, and returns the answer of the call itself.
    fn call(&self, call: &'static str, buffer: &mut GuardedBuffer) -> CallResult<libc::c_int> {
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_data: buffer.start(),
            },
        };
        // SAFETY: `request` is a valid ifreq for the whole call. The kernel reads and writes from
        // `start()` on. It may write more than the buffer holds, if queues were added after its
        // length was read. But the page behind the buffer is not writable: the call then fails with
        // EFAULT.
        let answer =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
        if answer < 0 {
            return Err(CallError::last(call, self.interface));
        }
        Ok(answer)
    }

    /// The error for a list that never held still.
    fn changing(&self, call: &'static str) -> CallError {
        let source = io::Error::from_raw_os_error(libc::EAGAIN);
        CallError::new(call, self.interface, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_is_no_device() {
        for name in ["", "a-name-too-long-for-linux", "none"] {
            let error = statistics(name).expect_err("no such interface");
            assert_eq!(error.errno(), Some(libc::ENODEV), "{name}");
        }
    }

    #[test]
    fn an_unknown_feature_is_refused() {
        let error = set_feature("lo", "no-such-feature", true).expect_err("unknown");
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
        assert!(error.to_string().contains("no-such-feature"));
    }
}
