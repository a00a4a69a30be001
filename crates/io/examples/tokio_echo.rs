//! An echo server in a tokio runtime, beside other tasks:
//!
//!     cargo run --release --features tokio --example tokio_echo -- 127.0.0.1:7777

#![allow(clippy::print_stdout, reason = "programs speak")]

#[path = "common/args.rs"]
mod args;

use args::Args;
use mpps_io::AsyncRx;
use std::error::Error;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse("127.0.0.1:7777")?;
    let receivers = args.open(true)?;
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let tasks = LocalSet::new();
    let answered = tasks.block_on(&runtime, async {
        let servers = receivers.into_iter().map(|rx| {
            let count = args.count.unwrap_or(u64::MAX);
            tokio::task::spawn_local(async move {
                let mut rx = AsyncRx::new(rx)?;
                let mut answered = 0;
                while answered < count {
                    let served = rx.serve(|requests| {
                        for request in requests {
                            request.reply_in_place(|_, bytes| Some(bytes));
                        }
                    });
                    answered += served.await?.sent;
                }
                Ok::<u64, std::io::Error>(answered)
            })
        });
        let mut answered = 0;
        for server in servers.collect::<Vec<_>>() {
            answered += server.await.map_err(std::io::Error::other)??;
        }
        Ok::<u64, std::io::Error>(answered)
    })?;
    println!("answered {answered}");
    Ok(())
}
