//! A DNS server that knows one answer (RFC 1035, RFC 3596): every name has the addresses 192.0.2.1 and
//! 2001:db8::1, for a minute. Other types have no record, and what is no question is refused.
//!
//!     cargo run --release --example dns -- 127.0.0.1:5353
//!     dig @127.0.0.1 -p 5353 www.example.org

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::Wait;
use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};

const HEADER_BYTES: usize = 12;
const TTL_SECONDS: u32 = 60;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
/// Response codes.
const FORMAT_ERROR: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:5353")?;
    let receivers = args.open(true)?;
    let answered = args.run(receivers, |rx| {
        let served = rx.serve(Wait::Auto(PATIENCE), &mut |requests| {
            for request in requests {
                request.reply_in_place(answer);
            }
        })?;
        Ok(served.sent)
    })?;
    println!("answered {answered}");
    Ok(())
}

/// Makes an answer of the question in the first `bytes` of the message; none to what is an answer
/// itself, or too short for one.
fn answer(message: &mut [u8], bytes: usize) -> Option<usize> {
    if bytes < HEADER_BYTES || message[2] & 0x80 != 0 {
        return None;
    }
    let is_query = message[2] & 0x78 == 0;
    // A response, authoritative; "recursion desired" is repeated.
    message[2] = 0x84 | (message[2] & 0x79);
    message[3] = 0;
    let question = question(&message[..bytes]).filter(|_| is_query);
    let Some((kind, class, end)) = question else {
        message[3] = if is_query {
            FORMAT_ERROR
        } else {
            NOT_IMPLEMENTED
        };
        message[4..HEADER_BYTES].fill(0);
        return Some(HEADER_BYTES);
    };
    // One question and its answers; nothing that came behind it, such as EDNS.
    message[4..HEADER_BYTES].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
    let (v4, v6) = (
        Ipv4Addr::new(192, 0, 2, 1).octets(),
        Ipv6Addr::from(0x2001_0db8 << 96 | 1).octets(),
    );
    let address: &[u8] = match (kind, class) {
        (TYPE_A, CLASS_IN) => &v4,
        (TYPE_AAAA, CLASS_IN) => &v6,
        _ => return Some(end),
    };
    // The name is that of the question, at its place in the message.
    let mut record = vec![0xc0, HEADER_BYTES as u8];
    record.extend(kind.to_be_bytes());
    record.extend(class.to_be_bytes());
    record.extend(TTL_SECONDS.to_be_bytes());
    record.extend((address.len() as u16).to_be_bytes());
    record.extend(address);
    message
        .get_mut(end..end + record.len())?
        .copy_from_slice(&record);
    message[7] = 1;
    Some(end + record.len())
}

/// Type and class of the only question, and where it ends.
fn question(message: &[u8]) -> Option<(u16, u16, usize)> {
    let (header, rest) = message.split_at_checked(HEADER_BYTES)?;
    if header[4..6] != [0, 1] {
        return None;
    }
    let mut at = 0;
    loop {
        // A question's name has no pointers; a label has up to 63 bytes.
        match *rest.get(at)? {
            0 => break,
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
    let fixed = rest.get(at + 1..at + 5)?;
    let number = |at| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    Some((number(0), number(2), HEADER_BYTES + at + 5))
}
