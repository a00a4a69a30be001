//! Interrupt coalescing: how long a card waits, and for how many packets, before it interrupts.
//!
//! What `ethtool -c` shows and `ethtool -C` sets, which holds for all queues; and what `ethtool -Q` sets
//! for one of them, so that it can be put back.

use super::change::{self, What};
use super::{Device, channels, command, word};
use crate::Result;

/// `struct ethtool_coalesce` of include/uapi/linux/ethtool.h: the command and 22 words.
const LENGTH: usize = 92;
const WORDS: usize = 22;
/// `MAX_NUM_QUEUE`, and the bytes of `struct ethtool_per_queue_op` before its data: the command, that
/// for each queue, and a bit for each.
const QUEUES_MAX: usize = 4096;
const QUEUES_HEADER: usize = 8 + QUEUES_MAX / 8;
const RX_TIME_PLACE: usize = 4;
const RX_PACKETS_PLACE: usize = 8;
const ADAPTIVE_RX_PLACE: usize = 40;

/// `ETHTOOL_A_COALESCE_RX_USECS`. The attributes of include/uapi/linux/ethtool_netlink.h have the order
/// of the words, and two of them, `adaptive-rx` and `adaptive-tx`, are switches.
const FIRST_ATTRIBUTE: u16 = 2;
const SWITCHES: [usize; 2] = [9, 10];

/// The coalescing of an interface, as its driver told it.
///
/// What a driver does not have is zero. The fields that have no method here are kept, because
/// all of them are written at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coalescing {
    bytes: [u8; LENGTH],
    /// That of each queue, where not all have the same.
    queues: Vec<[u8; LENGTH]>,
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

    /// The same, with a fixed receiving side of all queues: so many microseconds, chosen by nobody else.
    /// The limit by packets stays.
    #[must_use]
    pub fn with_rx_time_us(&self, time_us: u32) -> Self {
        let mut changed = Self::of(self.bytes);
        changed.put(RX_TIME_PLACE, time_us);
        changed.put(ADAPTIVE_RX_PLACE, 0);
        changed
    }

    /// Every word but the command, in the order of the kernel's header, to be written down; and behind
    /// these those of each queue, where not all have the same.
    pub fn words(&self) -> Vec<u32> {
        let all = std::iter::once(&self.bytes).chain(&self.queues);
        let words = all.flat_map(|bytes| bytes[RX_TIME_PLACE..].as_chunks().0);
        words.map(|word| u32::from_ne_bytes(*word)).collect()
    }

    /// What [`Coalescing::words`] gave; none for another number of words.
    pub fn from_words(words: &[u32]) -> Option<Self> {
        let (all, []) = words.as_chunks::<WORDS>() else {
            return None;
        };
        let mut all = all.iter().map(|words| {
            let mut made = Self::of([0; LENGTH]);
            for (word, place) in words.iter().zip((RX_TIME_PLACE..).step_by(4)) {
                made.put(place, *word);
            }
            made.bytes
        });
        let mut made = Self::of(all.next()?);
        made.queues = all.collect();
        Some(made)
    }

    fn parse(answer: &[u8]) -> Option<Self> {
        let mut told = Self::of(answer.get(..LENGTH)?.try_into().ok()?);
        // Two that say the same are equal, wherever they come from.
        told.put(0, 0);
        Some(told)
    }

    fn of(bytes: [u8; LENGTH]) -> Self {
        let queues = Vec::new();
        Self { bytes, queues }
    }

    /// The request that sets that of each queue.
    fn request_of_queues(&self) -> Vec<u8> {
        let mut request = queues_header(command::SET_COALESCING, self.queues.len());
        for bytes in &self.queues {
            let mut one = Self::of(*bytes);
            one.put(0, command::SET_COALESCING);
            request.extend(one.bytes);
        }
        request
    }

    /// The attributes that make it of another. A driver refuses what it does not have, also if that
    /// is zero.
    fn changes(&self, now: &Self) -> Vec<(u16, Vec<u8>)> {
        let words = self.words().into_iter().zip(now.words());
        let words = words.enumerate().take(WORDS);
        let changed = words.filter(|(_, (wanted, now))| wanted != now);
        let attribute = |(place, (wanted, _)): (usize, (u32, u32))| {
            let value = match SWITCHES.contains(&place) {
                true => vec![u8::from(wanted != 0)],
                false => wanted.to_ne_bytes().to_vec(),
            };
            (FIRST_ATTRIBUTE + place as u16, value)
        };
        changed.map(attribute).collect()
    }

    fn word(&self, place: usize) -> u32 {
        word(&self.bytes, place).unwrap_or(0)
    }

    fn put(&mut self, place: usize, value: u32) {
        self.bytes[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Reads the coalescing (`ETHTOOL_GCOALESCE`), and that of each queue where the driver has it
/// (`ETHTOOL_PERQUEUE`).
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver has none, such as veth's; `ENODEV`.
pub fn read(interface: &str) -> Result<Coalescing> {
    const CALL: &str = "ioctl ETHTOOL_GCOALESCE";
    let device = Device::open(interface)?;
    let answer = device.ask(CALL, "", &read_request(), LENGTH)?;
    let mut told = Coalescing::parse(&answer).ok_or_else(|| device.malformed(CALL))?;
    let count = channels(interface).map_or(0, |channels| channels.combined.max(channels.rx));
    let request = queues_header(command::GET_COALESCING, count as usize);
    let room = QUEUES_HEADER + LENGTH * count as usize;
    // A driver without it refuses.
    let of_queues = device.ask(QUEUES_CALL, "", &request, room);
    let of_queues = of_queues.unwrap_or_default();
    let each = of_queues.get(QUEUES_HEADER..).unwrap_or_default();
    let each = each.chunks_exact(LENGTH).filter_map(Coalescing::parse);
    let each: Vec<_> = each.map(|one| one.bytes).collect();
    if each.iter().any(|one| *one != told.bytes) {
        told.queues = each;
    }
    Ok(told)
}

/// Sets the coalescing (`ETHTOOL_MSG_COALESCE_SET`), and that of each queue where it has one.
///
/// # Errors
///
/// `EOPNOTSUPP` where the driver does not have one of the values that change; `EINVAL` or
/// `ERANGE` for a value that the card cannot keep; `EPERM` without `CAP_NET_ADMIN` over the
/// namespace; `ENODEV`.
pub fn set(interface: &str, coalescing: &Coalescing) -> Result<()> {
    let changes = coalescing.changes(&read(interface)?);
    change::set(interface, What::Coalescing, changes)?;
    if coalescing.queues.is_empty() {
        return Ok(());
    }
    let request = coalescing.request_of_queues();
    let asked = Device::open(interface)?.ask(QUEUES_CALL, "queues", &request, request.len());
    asked.map(drop)
}

const QUEUES_CALL: &str = "ioctl ETHTOOL_PERQUEUE";

/// `struct ethtool_per_queue_op` with a command for the first queues.
fn queues_header(command: u32, queues: usize) -> Vec<u8> {
    let mut header = vec![0; QUEUES_HEADER];
    header[..4].copy_from_slice(&command::OF_QUEUES.to_ne_bytes());
    header[4..8].copy_from_slice(&command.to_ne_bytes());
    for (number, word) in header[8..].chunks_exact_mut(4).enumerate() {
        let bits = queues.saturating_sub(32 * number).min(32);
        let mask = ((1_u64 << bits) - 1) as u32;
        word.copy_from_slice(&mask.to_ne_bytes());
    }
    header
}

fn read_request() -> [u8; LENGTH] {
    let mut request = Coalescing::of([0; LENGTH]);
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
        let set = [(2, vec![2, 1, 0, 0]), (11, vec![0])];
        assert_eq!(fixed.changes(&numbered()), set);
        assert_eq!(numbered().changes(&fixed)[1], (11, vec![1]));
        assert_eq!(fixed.changes(&fixed), []);
        // cmd 0x4b, sub_command 0x0f, the mask of 34 queues, and a structure for each.
        let mut of_queues = numbered();
        of_queues.queues = vec![numbered().bytes; 34];
        let set = of_queues.request_of_queues();
        assert_eq!(set.len(), 8 + 512 + 34 * 92);
        assert_eq!(
            set[..16],
            [0x4b, 0, 0, 0, 15, 0, 0, 0, 255, 255, 255, 255, 3, 0, 0, 0]
        );
        assert!(set[16..520].iter().all(|byte| *byte == 0));
        assert_eq!(set[520..532], [15, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn every_field_has_its_word() {
        let told = numbered();
        assert_eq!((told.rx_time_us(), told.rx_packets()), (1, 2));
        assert!(told.is_adaptive_rx());
        let fixed = told.with_rx_time_us(50);
        assert_eq!((fixed.rx_time_us(), fixed.rx_packets()), (50, 2));
        assert!(!fixed.is_adaptive_rx());
        assert_eq!(Coalescing::from_words(&told.words()), Some(told.clone()));
        for count in [0, 21, 23] {
            assert_eq!(Coalescing::from_words(&vec![1; count]), None);
        }
        // That of each queue is kept, and goes with a value for all.
        let mut apart = told;
        apart.queues = vec![apart.bytes, fixed.bytes];
        assert_eq!(Coalescing::from_words(&apart.words()), Some(apart.clone()));
        assert_eq!(apart.with_rx_time_us(50), fixed);
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
