//! A reflector of frames. It sends each frame for the address back to the station that it came
//! from. It swaps the hardware addresses and changes nothing more, so that a generator can count
//! the frames. Frames never leave the memory that the driver, or the kernel, put them into.
//!
//!     cargo run --release --example reflector -- 10.0.0.1:7777 --backend af_xdp

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::{Layer, Wait};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:7777")?;
    let receivers = args.open(true)?;
    if receivers.iter().any(|rx| rx.caps().layer != Layer::Frame) {
        return Err(format!("{} has no frames; use --backend af_xdp", args.backend).into());
    }
    let reflected = args.run(receivers, |rx| {
        let served = rx.serve(Wait::Auto(PATIENCE), &mut |requests| {
            for mut request in requests {
                let frame = request.packet_mut();
                let (target, source) = frame[..12].split_at_mut(6);
                target.swap_with_slice(source);
                request.send_back();
            }
        })?;
        Ok(served.sent)
    })?;
    println!("reflected {reflected}");
    Ok(())
}
