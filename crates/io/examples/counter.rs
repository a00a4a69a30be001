//! A collector of counters in the form of statsd, `name:value|c`, one or several lines in a datagram.
//! It prints their sums at the end.
//!
//!     cargo run --release --example counter -- 127.0.0.1:8125 --count 3
//!     printf 'hits:1|c\nhits:2|c\nerrors:1|c\n' | nc -u -w1 127.0.0.1 8125

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::Wait;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:8125")?;
    let receivers = args.open(false)?;
    let sums = Mutex::new(BTreeMap::new());
    let lines = args.run(receivers, |rx| {
        let batch = rx.recv(Wait::Auto(PATIENCE))?;
        let mut counted = 0;
        // Once a batch, and not once a line.
        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
        for payload in batch.packets().filter_map(|packet| packet.payload()) {
            for line in payload.split(|byte| *byte == b'\n') {
                counted += u64::from(count(line, &mut sums));
            }
        }
        Ok(counted)
    })?;
    println!("{lines} lines");
    for (name, sum) in sums.into_inner().unwrap_or_else(PoisonError::into_inner) {
        println!("{name} {sum}");
    }
    Ok(())
}

/// Adds a line up; false if it is none of a counter.
fn count(line: &[u8], sums: &mut BTreeMap<String, i64>) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let parsed = text
        .strip_suffix("|c")
        .and_then(|text| text.rsplit_once(':'))
        .and_then(|(name, value)| Some((name, value.parse::<i64>().ok()?)));
    let Some((name, value)) = parsed else {
        return false;
    };
    let sum = sums.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(value);
    true
}
