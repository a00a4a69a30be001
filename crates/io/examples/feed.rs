//! A receiver of market data by multicast, in packets of MoldUDP64. It joins the group for one sender
//! (RFC 4607), and reports the gaps in its sequence numbers, with the kernel's time of the
//! packet behind each.
//!
//!     cargo run --release --example feed -- 232.1.1.1:26477 --from 10.0.0.9 --interface eth1

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::{MulticastGroup, Wait};
use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

/// A session's name of ten letters, the number of the first message, and how many there are.
const HEADER_BYTES: usize = 20;
/// The count of messages that ends a session.
const END: u16 = 0xffff;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("232.1.1.1:26477")?;
    let mut config = args.config(false);
    config.groups = vec![MulticastGroup {
        source: args.from,
        interface: config.ring.interface.take(),
        ..MulticastGroup::new(args.address.ip())
    }];
    config.details.time = true;
    let mut rx = args.open_with(&config)?.remove(0);
    let mut feed = Feed::default();
    while !feed.has_ended && feed.packets < args.count.unwrap_or(u64::MAX) {
        for packet in &rx.recv(Wait::Auto(PATIENCE))? {
            let time = packet.details.and_then(|details| details.time);
            if let Some((payload, time)) = packet.payload().zip(time) {
                feed.take(payload, time);
            }
        }
    }
    let Feed {
        packets,
        messages,
        lost,
        ..
    } = feed;
    let dropped = rx.counters().dropped;
    println!("{packets} packets, {messages} messages, {lost} lost, {dropped} packets dropped here");
    Ok(())
}

#[derive(Default)]
struct Feed {
    /// The number of the next message, once there was one, and when the last packet came.
    next: Option<(u64, SystemTime)>,
    has_ended: bool,
    packets: u64,
    messages: u64,
    lost: u64,
}

impl Feed {
    fn take(&mut self, payload: &[u8], time: SystemTime) {
        let Some(header) = payload.first_chunk::<HEADER_BYTES>() else {
            return;
        };
        let first = u64::from_be_bytes(std::array::from_fn(|at| header[10 + at]));
        let count = u16::from_be_bytes([header[18], header[19]]);
        self.packets += 1;
        self.has_ended |= count == END;
        let messages = if count == END { 0 } else { u64::from(count) };
        let (next, before) = self.next.unwrap_or((first, time));
        if first > next {
            let silence = time.duration_since(before).unwrap_or_default();
            let at = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            self.lost += first - next;
            println!(
                "lost {next} to {}, seen at {}.{:09} after {silence:?}",
                first - 1,
                at.as_secs(),
                at.subsec_nanos()
            );
        }
        // Of a packet that came twice or late, nothing is new.
        let end = first.saturating_add(messages);
        self.messages += end.saturating_sub(next.max(first));
        self.next = Some((next.max(end), time));
    }
}
