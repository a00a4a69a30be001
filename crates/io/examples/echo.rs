//! A UDP echo server (RFC 862) over any backend that answers:
//!
//!     cargo run --release --example echo -- 127.0.0.1:7777
//!     echo hello | nc -u -w1 127.0.0.1 7777
//!     cargo run --release --example echo -- 10.0.0.1:7777 --backend af_xdp

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::Wait;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:7777")?;
    let receivers = args.open(true)?;
    let answered = args.run(receivers, |rx| {
        let served = rx.serve(Wait::Auto(PATIENCE), &mut |requests| {
            for request in requests {
                request.reply_in_place(|_, bytes| Some(bytes));
            }
        })?;
        Ok(served.sent)
    })?;
    println!("answered {answered}");
    Ok(())
}
