//! A monitor of RTP streams (RFC 3550), each at a port of its own: it reports for each stream the packets
//! lost and the jitter, as in a receiver report. Receive times are the kernel's, so that the jitter is that
//! of the network. One thread waits for all ports by epoll.
//!
//!     cargo run --release --example rtp -- 0.0.0.0:5004 --ports 100

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use mpps_io::{Rx, Wait};
use std::collections::BTreeMap;
use std::error::Error;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

/// Without contributing sources.
const HEADER_BYTES: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = Args::parse("0.0.0.0:5004")?;
    let mut poll = Poll::new()?;
    let mut receivers: Vec<Box<dyn Rx>> = Vec::new();
    for at in 0..args.ports {
        let mut config = args.config(false);
        // One stream has some packets at a time, and a receiver the memory for all of them.
        config.batch = 32;
        config.details.time = true;
        let rx = args.open_with(&config)?.remove(0);
        let descriptor = rx.readiness().ok_or("nothing to wait for")?.as_raw_fd();
        let token = Token(at.into());
        poll.registry()
            .register(&mut SourceFd(&descriptor), token, Interest::READABLE)?;
        args.address.set_port(rx.caps().local_address.port() + 1);
        receivers.push(rx);
    }
    let mut events = Events::with_capacity(receivers.len());
    let mut streams = BTreeMap::new();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        poll.poll(&mut events, Some(PATIENCE))?;
        for event in &events {
            let rx = &mut receivers[event.token().0];
            left = left.saturating_sub(drain(&mut **rx, &mut streams)?);
        }
    }
    for ((port, source), stream) in &streams {
        println!("port {port} source {source:08x}: {stream}");
    }
    let dropped: u64 = receivers.iter().map(|rx| rx.counters().dropped).sum();
    println!("{} streams, {dropped} packets dropped here", streams.len());
    Ok(())
}

/// Receives until nothing is left: the next event comes only behind that. Returns how many packets came.
fn drain(rx: &mut dyn Rx, streams: &mut BTreeMap<(u16, u32), Stream>) -> std::io::Result<u64> {
    let port = rx.caps().local_address.port();
    let mut came = 0;
    loop {
        let batch = rx.recv(Wait::Block(Duration::ZERO))?;
        if batch.is_empty() {
            return Ok(came);
        }
        for packet in &batch {
            came += 1;
            let time = packet.details.and_then(|details| details.time);
            let header = packet
                .payload()
                .and_then(<[u8]>::first_chunk::<HEADER_BYTES>);
            // Version 2; the marker is not part of the payload's type.
            let Some((header, time)) = header.zip(time).filter(|(header, _)| header[0] >> 6 == 2)
            else {
                continue;
            };
            let [_, kind, s0, s1, t0, t1, t2, t3, source @ ..] = *header;
            let stream = streams.entry((port, u32::from_be_bytes(source)));
            stream.or_insert(Stream::new(kind & 0x7f)).take(
                u16::from_be_bytes([s0, s1]),
                u32::from_be_bytes([t0, t1, t2, t3]),
                time,
            );
        }
    }
}

/// The variables of RFC 3550, appendices A.1, A.3 and A.8.
struct Stream {
    /// Ticks of a time stamp in a second (RFC 3551).
    clock_hz: f64,
    /// The first and the highest sequence number, with their cycles; the time of the last packet and
    /// its time stamp.
    seen: Option<(u64, u64, SystemTime, u32)>,
    received: u64,
    jitter: f64,
}

impl Stream {
    fn new(payload_type: u8) -> Self {
        let clock_hz = match payload_type {
            6 => 16_000.0,
            10 | 11 => 44_100.0,
            14 | 25..=34 => 90_000.0,
            16 => 11_025.0,
            17 => 22_050.0,
            // By the session's description; that of speech otherwise.
            _ => 8_000.0,
        };
        Self {
            clock_hz,
            seen: None,
            received: 0,
            jitter: 0.0,
        }
    }

    fn take(&mut self, sequence: u16, stamp: u32, time: SystemTime) {
        self.received += 1;
        let sequence = u64::from(sequence);
        let Some((first, highest, last, last_stamp)) = self.seen else {
            self.seen = Some((sequence, sequence, time, stamp));
            return;
        };
        // Less than half a cycle ahead is newer, the rest is late.
        let ahead = (sequence as u16).wrapping_sub(highest as u16);
        let highest = match ahead {
            0..0x8000 => highest + u64::from(ahead),
            _ => highest,
        };
        let passed = match time.duration_since(last) {
            Ok(after) => after.as_secs_f64(),
            Err(before) => -before.duration().as_secs_f64(),
        };
        let transit = passed * self.clock_hz - f64::from(stamp.wrapping_sub(last_stamp) as i32);
        self.jitter += (transit.abs() - self.jitter) / 16.0;
        self.seen = Some((first, highest, time, stamp));
    }
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, highest, ..) = self.seen.unwrap_or((0, 0, SystemTime::UNIX_EPOCH, 0));
        // Duplicates make it negative.
        let lost = (highest - first + 1).cast_signed() - self.received.cast_signed();
        let milliseconds = self.jitter / self.clock_hz * 1e3;
        let received = self.received;
        write!(
            f,
            "{received} received, {lost} lost, jitter {milliseconds:.1} ms"
        )
    }
}
