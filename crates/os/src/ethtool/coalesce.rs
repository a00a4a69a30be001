//! Interrupt coalescing: how long a card waits, and for how many packets, before it interrupts.
//!
//! What `ethtool -c` shows and `ethtool -C` sets. The values are those of all queues; what is set
//! for a single queue (`ethtool -Q`) is not read.

use super::change::{self, What};
use super::{Device, command, word};
use crate::Result;

/// `struct ethtool_coalesce` of include/uapi/linux/ethtool.h: the command and 22 words.
const LENGTH: usize = 92;
const RX_TIME_PLACE: usize = 4;
const RX_PACKETS_PLACE: usize = 8;
const ADAPTIVE_RX_PLACE: usize = 40;

/// `ETHTOOL_A_COALESCE_RX_USECS`. The attributes of include/uapi/linux/ethtool_netlink.h have the order
/// of the words, and two of them, `adaptive-rx` and `adaptive-tx`, are switches.
const FIRST_ATTRIBUTE: u16 = 2;
const SWITCHES: [u16; 2] = [11, 12];

/// The coalescing of an interface, as its driver told it.
///
/// What a driver does not have is zero. The fields that have no method here are kept, because
/// all of them are written at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coalescing {
    bytes: [u8; LENGTH],
}

impl Coalescing {
    /// Microseconds from a received packet to the interrupt (`rx-usecs`).
    pub fn rx_time_us(&self) -> u32 {
        self.word(RX_TIME_PLACE)
    }

    /// Received packets after which the card interrupts at once (`rx-frames`); 0 is no such limit.
    pub fn rx_packets(&self) -> u32 {
        self.word(RX_PACKETS_PLACE)
    }

    /// Whether the driver chooses the receiving side's time itself (`adaptive-rx`).
    pub fn is_adaptive_rx(&self) -> bool {
        self.word(ADAPTIVE_RX_PLACE) != 0
    }

    /// The same, with a fixed receiving side: so many microseconds, chosen by nobody else. The
    /// limit by packets stays.
    #[must_use]
    pub fn with_rx_time_us(&self, time_us: u32) -> Self {
        let mut changed = self.clone();
        changed.put(RX_TIME_PLACE, time_us);
        changed.put(ADAPTIVE_RX_PLACE, 0);
        changed
    }

    /// Every word but the command, in the order of the kernel's header, to be written down.
    pub fn words(&self) -> Vec<u32> {
        let places = (RX_TIME_PLACE..LENGTH).step_by(4);
        places.map(|place| self.word(place)).collect()
    }

    /// What [`Coalescing::words`] gave; none for another number of words.
    pub fn from_words(words: &[u32]) -> Option<Self> {
        if 4 * words.len() != LENGTH - RX_TIME_PLACE {
            return None;
        }
        let mut made = Self { bytes: [0; LENGTH] };
        for (word, place) in words.iter().zip((RX_TIME_PLACE..).step_by(4)) {
            made.put(place, *word);
        }
        Some(made)
    }

    fn parse(answer: &[u8]) -> Option<Self> {
        let bytes = answer.get(..LENGTH)?.try_into().ok()?;
        let mut told = Self { bytes };
        // Two that say the same are equal, wherever they come from.
        told.put(0, 0);
        Some(told)
    }

    /// The attributes that make it of another, in two messages. What the driver does not have is the
    /// same in both, and it would refuse to be told so; and one that chooses the time itself refuses
    /// another time (`i40e_set_rx_coalesce` and others), so what switches that on comes last.
    fn changes(&self, now: &Self) -> [Vec<(u16, Vec<u8>)>; 2] {
        let words = (FIRST_ATTRIBUTE..).zip(self.words().into_iter().zip(now.words()));
        let changed = words.filter(|(_, (wanted, now))| wanted != now);
        let mut messages = [Vec::new(), Vec::new()];
        for (attribute, (wanted, _)) in changed {
            let is_switch = SWITCHES.contains(&attribute);
            let value = match is_switch {
                true => vec![u8::from(wanted != 0)],
                false => wanted.to_ne_bytes().to_vec(),
            };
            messages[usize::from(is_switch && wanted != 0)].push((attribute, value));
        }
        messages
    }

    fn word(&self, place: usize) -> u32 {
        word(&self.bytes, place).unwrap_or(0)
    }

    fn put(&mut self, place: usize, value: u32) {
        self.bytes[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Reads the coalescing (`ETHTOOL_GCOALESCE`).
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has none, such as veth's; `ENODEV`.
pub fn read(interface: &str) -> Result<Coalescing> {
    const CALL: &str = "ioctl ETHTOOL_GCOALESCE";
    let device = Device::open(interface)?;
    let answer = device.ask(CALL, "", &read_request(), LENGTH)?;
    Coalescing::parse(&answer).ok_or_else(|| device.malformed(CALL))
}

/// Sets the coalescing (`ETHTOOL_MSG_COALESCE_SET`).
///
/// # Errors
///
/// `EINVAL` where the driver does not have one of the values that change, with the kernel's words
/// ([`mpps_os::Error::said`](crate::Error::said)); `EOPNOTSUPP` where it has none; `EINVAL` or `ERANGE`
/// for a value that the card cannot keep; `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`.
pub fn set(interface: &str, coalescing: &Coalescing) -> Result<()> {
    for message in coalescing.changes(&read(interface)?) {
        if !message.is_empty() {
            change::set(interface, What::Coalescing, message)?;
        }
    }
    Ok(())
}

fn read_request() -> [u8; LENGTH] {
    let mut request = Coalescing { bytes: [0; LENGTH] };
    request.put(0, command::GET_COALESCING);
    request.bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The words of the kernel's structure are numbered from 1, so that each is found in its place.
    fn numbered() -> Coalescing {
        let words: Vec<u32> = (1..=22).collect();
        Coalescing::from_words(&words).expect("22 words")
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn requests_byte_by_byte() {
        let mut read = [0; 92];
        read[0] = 0x0e;
        assert_eq!(read_request(), read);
        // ETHTOOL_A_COALESCE_RX_USECS 258, ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX 0; the rest stays.
        let fixed = numbered().with_rx_time_us(258);
        let set = [vec![(2, vec![2, 1, 0, 0]), (11, vec![0])], vec![]];
        assert_eq!(fixed.changes(&numbered()), set);
        assert_eq!(fixed.changes(&fixed), [vec![], vec![]]);
        // On the way back the driver has the old time before it may change that.
        let back = [vec![(2, vec![1, 0, 0, 0])], vec![(11, vec![1])]];
        assert_eq!(numbered().changes(&fixed), back);
    }

    #[test]
    fn every_field_has_its_word() {
        let told = numbered();
        assert_eq!((told.rx_time_us(), told.rx_packets()), (1, 2));
        assert!(told.is_adaptive_rx());
        let fixed = told.with_rx_time_us(50);
        assert_eq!((fixed.rx_time_us(), fixed.rx_packets()), (50, 2));
        assert!(!fixed.is_adaptive_rx());
        assert_eq!(Coalescing::from_words(&told.words()), Some(told));
        assert_eq!(Coalescing::from_words(&[1; 21]), None);
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let told = Coalescing::parse(&bytes);
            prop_assert_eq!(told.is_some(), bytes.len() >= LENGTH);
        }
    }

    #[test]
    fn an_interface_without_it_is_named() {
        let error = read("mpps-nowhere").expect_err("no such interface");
        assert_eq!(error.errno(), Some(libc::ENODEV));
        let error = set("mpps-nowhere", &numbered()).expect_err("no such interface");
        assert!(error.to_string().contains("mpps-nowhere"), "{error}");
        let error = read("lo").expect_err("loopback has no interrupts");
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
    }
}
