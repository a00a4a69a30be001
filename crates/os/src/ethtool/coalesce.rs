//! Interrupt coalescing: how long a card waits, and for how many packets, before it interrupts.
//!
//! `ethtool -c` shows it and `ethtool -C` sets it for all queues. `ethtool -Q` does so for one, if
//! the driver keeps queues apart.

use super::change::{self, ChangeKind};
use super::{EthtoolDevice, QUEUES_MAX, command};
use crate::native::word;
use crate::{CallError, CallResult};
use std::io;

/// `struct ethtool_coalesce` of include/uapi/linux/ethtool.h: the command and 22 words.
const LENGTH: usize = 92;
const RX_TIME_PLACE: usize = 4;
const RX_PACKETS_PLACE: usize = 8;
const TX_TIME_PLACE: usize = 20;
const TX_PACKETS_PLACE: usize = 24;
const ADAPTIVE_RX_PLACE: usize = 40;
const ADAPTIVE_TX_PLACE: usize = 44;

/// The receiving and the sending side. Each has the switch that makes the driver choose, and the
/// time and number of packets that it chooses then.
const SIDES: [(usize, [usize; 2]); 2] = [
    (ADAPTIVE_RX_PLACE, [RX_TIME_PLACE, RX_PACKETS_PLACE]),
    (ADAPTIVE_TX_PLACE, [TX_TIME_PLACE, TX_PACKETS_PLACE]),
];

/// `struct ethtool_per_queue_op`: two words and a bit for each of `MAX_NUM_QUEUE` queues; behind it the
/// coalescing of each queue whose bit is set.
const QUEUE_MASK_PLACE: usize = 8;
const QUEUE_VALUES_PLACE: usize = QUEUE_MASK_PLACE + QUEUES_MAX as usize / 8;

/// `ETHTOOL_A_COALESCE_RX_USECS`. The attributes of include/uapi/linux/ethtool_netlink.h have the order
/// of the words, and two of them, `adaptive-rx` and `adaptive-tx`, are switches.
const FIRST_ATTRIBUTE: u16 = 2;
const SWITCHES: [u16; 2] = [11, 12];

/// The coalescing of an interface, as reported by its driver.
///
/// A setting that the driver does not have is zero. The fields without a method here are kept,
/// because all of them are written at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coalescing {
    bytes: [u8; LENGTH],
}

impl Coalescing {
    /// Microseconds from a received packet to the interrupt (`rx-usecs`).
    pub fn rx_time_us(&self) -> u32 {
        self.word(RX_TIME_PLACE)
    }

    /// Received packets that make the card interrupt at once (`rx-frames`); 0 for no such limit.
    pub fn rx_packets(&self) -> u32 {
        self.word(RX_PACKETS_PLACE)
    }

    /// Whether the driver chooses the receiving side's time itself (`adaptive-rx`).
    pub fn is_adaptive_rx(&self) -> bool {
        self.word(ADAPTIVE_RX_PLACE) != 0
    }

    /// A copy with a fixed time on the receiving side, in microseconds, not chosen by the driver.
    /// The limit by packets stays, even if the driver has just chosen it.
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

    /// The coalescing from the result of [`Coalescing::words`]; none for another number of words.
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

    /// A copy that takes over the times from `other` for each side that is adaptive in both. The
    /// driver changes these times from moment to moment.
    #[must_use]
    pub fn but_chosen(&self, other: &Self) -> Self {
        let mut changed = self.clone();
        for (switch, places) in SIDES {
            if self.word(switch) != 0 && other.word(switch) != 0 {
                for place in places {
                    changed.put(place, other.word(place));
                }
            }
        }
        changed
    }

    /// True if a queue has the setting of all queues. The sending side is left out if the queue
    /// only receives: some drivers (ice, stmmac) report nothing about it.
    pub fn is_of_all(&self, all: &Self, sends: bool) -> bool {
        let mut sides = SIDES.into_iter().take(1 + usize::from(sends));
        sides.all(|(switch, [time, packets])| {
            let words = |told: &Self| [switch, time, packets].map(|place| told.word(place));
            let (own, all) = (words(self), words(all));
            own == all || (own[0] != 0 && all[0] != 0)
        })
    }

    /// The steps that change `now` into this. A driver with adaptive times refuses other times
    /// (`i40e_set_rx_coalesce`), so the switch to adaptive comes last.
    fn steps(&self, now: &Self) -> Vec<Self> {
        let last = self.but_chosen(now);
        let mut first = last.clone();
        for (switch, _) in SIDES {
            first.put(switch, last.word(switch).min(now.word(switch)));
        }
        let mut steps = vec![now.clone(), first, last];
        steps.dedup();
        steps.split_off(1)
    }

    fn parse(answer: &[u8]) -> Option<Self> {
        let bytes = answer.get(..LENGTH)?.try_into().ok()?;
        let mut told = Self { bytes };
        // Two that say the same are equal, wherever they come from.
        told.put(0, 0);
        Some(told)
    }

    /// The attributes that change `now` into this. Settings that the driver does not have are equal
    /// in both. It would refuse to set them.
    fn changes(&self, now: &Self) -> Vec<(u16, Vec<u8>)> {
        let words = (FIRST_ATTRIBUTE..).zip(self.words().into_iter().zip(now.words()));
        let changed = words.filter(|(_, (wanted, now))| wanted != now);
        let value = |(attribute, (wanted, _)): (u16, (u32, u32))| {
            let value = match SWITCHES.contains(&attribute) {
                true => vec![u8::from(wanted != 0)],
                false => wanted.to_ne_bytes().to_vec(),
            };
            (attribute, value)
        };
        changed.map(value).collect()
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
pub fn read(interface: &str) -> CallResult<Coalescing> {
    const CALL: &str = "ioctl ETHTOOL_GCOALESCE";
    let device = EthtoolDevice::open(interface)?;
    let answer = device.ask(CALL, "", &read_request(), LENGTH)?;
    Coalescing::parse(&answer).ok_or_else(|| device.malformed(CALL))
}

/// Sets the coalescing (`ETHTOOL_MSG_COALESCE_SET`).
///
/// # Errors
///
/// `EINVAL` where the driver does not have one of the values that change, with the kernel's words
/// ([`mpps_os::CallError::said`](crate::CallError::said)); `EOPNOTSUPP` where it has none; `EINVAL` or `ERANGE`
/// for a value that the card cannot keep; `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`.
pub fn set(interface: &str, coalescing: &Coalescing) -> CallResult<()> {
    let mut now = read(interface)?;
    for step in coalescing.steps(&now) {
        change::set(interface, ChangeKind::Coalescing, step.changes(&now))?;
        now = step;
    }
    Ok(())
}

/// Reads the coalescing of one queue (`ETHTOOL_PERQUEUE` with `ETHTOOL_GCOALESCE`, Linux 4.6).
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver does not keep queues apart; `EINVAL` for a queue that no interface
/// has, and with most drivers for a queue beyond this interface's; `ENODEV`.
pub fn read_queue(interface: &str, queue: u32) -> CallResult<Coalescing> {
    const CALL: &str = "ioctl ETHTOOL_PERQUEUE ETHTOOL_GCOALESCE";
    let device = EthtoolDevice::open(interface)?;
    let request = queue_request(queue, &read_request()).ok_or_else(|| no_queue(CALL, interface))?;
    let answer = device.ask(CALL, &format!("queue {queue}"), &request, request.len())?;
    let told = answer.get(QUEUE_VALUES_PLACE..).and_then(Coalescing::parse);
    told.ok_or_else(|| device.malformed(CALL))
}

/// Sets the coalescing of one queue (`ETHTOOL_PERQUEUE` with `ETHTOOL_SCOALESCE`, Linux 4.6).
///
/// # Errors
///
/// Those of [`read_queue`]; `EINVAL` or `ERANGE` for a value that the card cannot keep; `EPERM` without
/// `CAP_NET_ADMIN` over the namespace.
pub fn set_queue(interface: &str, queue: u32, coalescing: &Coalescing) -> CallResult<()> {
    const CALL: &str = "ioctl ETHTOOL_PERQUEUE ETHTOOL_SCOALESCE";
    for mut step in coalescing.steps(&read_queue(interface, queue)?) {
        step.put(0, command::SET_COALESCING);
        let request = queue_request(queue, &step.bytes).ok_or_else(|| no_queue(CALL, interface))?;
        let device = EthtoolDevice::open(interface)?;
        device.ask(CALL, &format!("queue {queue}"), &request, request.len())?;
    }
    Ok(())
}

fn read_request() -> [u8; LENGTH] {
    let mut request = Coalescing { bytes: [0; LENGTH] };
    request.put(0, command::GET_COALESCING);
    request.bytes
}

/// The request that applies `request` to one queue only; none for a queue that no interface has.
fn queue_request(queue: u32, request: &[u8; LENGTH]) -> Option<Vec<u8>> {
    if queue >= QUEUES_MAX {
        return None;
    }
    let mut bytes = vec![0; QUEUE_VALUES_PLACE];
    let mut put = |place: usize, word: u32| {
        bytes[place..place + 4].copy_from_slice(&word.to_ne_bytes());
    };
    put(0, command::OF_QUEUE);
    put(4, word(request, 0)?);
    put(
        QUEUE_MASK_PLACE + (queue / 32 * 4) as usize,
        1 << (queue % 32),
    );
    bytes.extend(request);
    Some(bytes)
}

fn no_queue(call: &'static str, interface: &str) -> CallError {
    CallError::new(call, interface, io::Error::from_raw_os_error(libc::EINVAL))
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
        let set = [(2, vec![2, 1, 0, 0]), (11, vec![0])];
        assert_eq!(fixed.changes(&numbered()), set);
        assert_eq!(fixed.changes(&fixed), []);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn one_queue_has_its_bit_and_its_values_behind_all_bits() {
        let set = Coalescing { bytes: [9; LENGTH] };
        let bytes = queue_request(33, &set.bytes).expect("a queue");
        assert_eq!(bytes.len(), 8 + 512 + 92);
        // ETHTOOL_PERQUEUE, the command, and bit 1 of the second word.
        assert_eq!(bytes[..8], [0x4b, 0, 0, 0, 9, 9, 9, 9]);
        assert_eq!(bytes[8..16], [0, 0, 0, 0, 2, 0, 0, 0]);
        assert!(bytes[16..520].iter().all(|byte| *byte == 0));
        assert_eq!(bytes[520..], [9; 92]);
        assert_eq!(queue_request(4096, &set.bytes), None);
    }

    /// A driver that chooses refuses other times than it has, and no other times are sent then.
    #[test]
    fn a_driver_that_chooses_is_told_no_other_time() {
        let of = |rx_time_us, adaptive| {
            let mut made = numbered().with_rx_time_us(rx_time_us);
            made.put(ADAPTIVE_RX_PLACE, adaptive);
            made
        };
        // It chose 8, then 20: that is no change, and to switch it off comes with another time.
        assert_eq!(of(8, 1).but_chosen(&of(20, 1)), of(20, 1));
        for (one, other) in [
            (of(8, 0), of(20, 0)),
            (of(8, 1), of(8, 0)),
            (of(8, 0), of(8, 1)),
        ] {
            assert_eq!(one.but_chosen(&other), one);
        }
        assert_eq!(of(8, 1).steps(&of(20, 1)), []);
        assert_eq!(of(40, 0).steps(&of(20, 1)), [of(40, 0)]);
        // On the way back the old time comes before the switch.
        assert_eq!(of(8, 1).steps(&of(40, 0)), [of(8, 0), of(8, 1)]);
        assert_eq!(of(8, 1).steps(&of(8, 0)), [of(8, 1)]);
    }

    #[test]
    fn a_queue_is_as_all_or_apart() {
        let of = |words: [u32; 6]| {
            let mut made = vec![0; 22];
            let [
                rx_time,
                rx_packets,
                rx_switch,
                tx_time,
                tx_packets,
                tx_switch,
            ] = words;
            (made[0], made[1], made[9]) = (rx_time, rx_packets, rx_switch);
            (made[4], made[5], made[10]) = (tx_time, tx_packets, tx_switch);
            Coalescing::from_words(&made).expect("22 words")
        };
        let all = of([20, 0, 0, 64, 32, 1]);
        // For a queue that sends, then for a queue that only receives.
        for (words, is_of_all) in [
            ([20, 0, 0, 64, 32, 1], [true, true]),
            // Values that the driver chooses make no difference.
            ([20, 0, 0, 8, 128, 1], [true, true]),
            ([20, 0, 0, 0, 0, 0], [false, true]),
            ([0, 0, 0, 64, 32, 1], [false, false]),
            ([21, 0, 0, 64, 32, 1], [false, false]),
            ([20, 7, 0, 64, 32, 1], [false, false]),
            ([20, 0, 1, 64, 32, 1], [false, false]),
            ([20, 0, 0, 64, 32, 0], [false, true]),
        ] {
            let found = [true, false].map(|sends| of(words).is_of_all(&all, sends));
            assert_eq!(found, is_of_all, "{words:?}");
        }
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
        for refused in [read("lo"), read_queue("lo", 0)] {
            let error = refused.expect_err("loopback has no interrupts");
            assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
        }
        let error = read_queue("lo", 4096).expect_err("no such queue");
        assert_eq!(error.errno(), Some(libc::EINVAL));
    }
}
