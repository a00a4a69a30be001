//! A balancer of datagrams, with direct return: what comes to the address leaves by another interface
//! for one of several servers, that of its client, and without a copy. The servers have the address
//! too, and answer by themselves.
//!
//!     cargo run --release --example balancer -- 10.0.0.1:53 --backend af_xdp --out eth2 \
//!         --to 02:00:00:00:00:07 --to 02:00:00:00:00:08

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::{Args, PATIENCE};
use mpps_io::{OutQueue, Wait, wire};
use std::error::Error;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:7777")?;
    let (servers, mut config) = (args.to.clone(), args.config(true));
    let out = args.out.clone().ok_or("--out IF: where are the servers?")?;
    if servers.is_empty() {
        return Err("--to MAC: which servers?".into());
    }
    config.ring.forward_to = Some(OutQueue {
        interface: out,
        queue: 0,
    });
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let forwarded = args.run(args.open_with(&config)?, |rx| {
        let served = rx.serve(Wait::Auto(PATIENCE), &mut |requests| {
            for mut request in requests {
                let frame = request.packet_mut();
                // A client's datagrams all go to the same server.
                let client = wire::datagram(frame).map(|datagram| datagram.source);
                let server = hasher.hash_one(client) as usize % servers.len();
                // The frame's destination hardware address becomes its source.
                frame.copy_within(..6, 6);
                frame[..6].copy_from_slice(&servers[server]);
                // A client in a container of this machine leaves the sum to a card that never comes.
                request.renew_check_sum();
                request.forward();
            }
        })?;
        Ok(served.sent)
    })?;
    println!("forwarded {forwarded}");
    Ok(())
}
