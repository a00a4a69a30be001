//! Work on received datagrams, as a program does that uses them.

use crate::{Batch, Layer, wire};
use mpps_os::clock;
use std::fmt;
use std::hint;
use std::time::Duration;

/// The longest step of the clock, in nanoseconds, that counts as work. The worker was without its CPU
/// for the rest of a longer step.
const STEP_MAX: u64 = 2_000;

/// The work that a receiving worker does for each datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Work {
    /// None.
    #[default]
    None,
    /// Use the CPU this long.
    Time(Duration),
    /// Read the headers of a frame and each byte of the payload, as a hash of a DNS name does.
    Parse,
}

/// `20us`, `parse`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Time(time) => f.pad(&format!("{time:?}").replace('µ', "u")),
            Self::Parse => f.pad("parse"),
        }
    }
}

impl Work {
    /// Does it for all datagrams of a batch.
    pub(super) fn run(self, layer: Layer, batch: &Batch<'_>) {
        match self {
            Self::None => {}
            Self::Time(each) => spin(each.as_nanos() as u64 * batch.datagrams()),
            Self::Parse => {
                hint::black_box(parse(layer, batch));
            }
        }
    }
}

/// Uses the CPU for this many nanoseconds.
fn spin(mut left: u64) {
    let mut last = clock::monotonic_ns();
    while left > 0 {
        hint::spin_loop();
        let now = clock::monotonic_ns();
        left = left.saturating_sub((now - last).min(STEP_MAX));
        last = now;
    }
}

/// The sum of a hash of each payload (FNV-1a), without regard to case.
fn parse(layer: Layer, batch: &Batch<'_>) -> u64 {
    let hash = |sum: u64, byte: &u8| {
        (sum ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x100_0000_01b3)
    };
    batch.packets().fold(0, |sum: u64, packet| {
        let bytes = payload(layer, packet.data).iter();
        sum.wrapping_add(bytes.fold(0xcbf2_9ce4_8422_2325, hash))
    })
}

/// The UDP payload of a packet: itself, or what the frame carries; nothing of a foreign frame.
#[inline]
pub(super) fn payload(layer: Layer, packet: &[u8]) -> &[u8] {
    match layer {
        Layer::Payload => packet,
        Layer::Frame => wire::datagram(packet).map_or(&[], |datagram| datagram.payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketDescriptor;

    #[test]
    fn each_datagram_of_a_train_is_read() {
        let of = |bytes: &[u8], segment_bytes| {
            let train = PacketDescriptor {
                bytes: bytes.len() as u32,
                wire_bytes: bytes.len() as u32,
                segment_bytes,
                ..PacketDescriptor::default()
            };
            parse(Layer::Payload, &Batch::new(bytes, &[train]))
        };
        let single = ["ab", "cd", "e"].map(|datagram| of(datagram.as_bytes(), 0));
        let sum = single.into_iter().fold(0, u64::wrapping_add);
        assert_eq!(of(b"abcDe", 2), sum);
        assert_ne!(of(b"abcde", 0), sum);
    }

    #[test]
    fn it_is_said_as_it_is_asked_for() {
        let times = [100, 20_000, 1_500_000].map(Duration::from_nanos);
        let said = times.map(|time| Work::Time(time).to_string());
        assert_eq!(said, ["100ns", "20us", "1.5ms"]);
    }
}
