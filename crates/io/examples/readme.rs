//! The echo server of the README: a receiver for each queue of the interface that has the address.
#![allow(clippy::print_stderr, reason = "programs speak")]

use mpps_io::{Rx, RxConfig, Wait, backend};
use std::time::Duration;
use std::{env, error::Error, process, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).ok_or("ADDRESS:PORT [BACKEND]")?;
    let backend = env::args().nth(2).unwrap_or("best".to_owned());
    let mut config = RxConfig::new(address.parse()?);
    config.answers = true;
    let receivers = backend::find(&backend)?.open_rx_queues(&config)?;
    thread::scope(|scope| {
        for rx in receivers {
            scope.spawn(|| echo(rx));
        }
    });
    Ok(())
}

fn echo(mut rx: Box<dyn Rx>) {
    loop {
        rx.serve(Wait::Auto(Duration::from_secs(1)), &mut |requests| {
            for request in requests {
                request.reply_in_place(|_room, bytes| Some(bytes));
            }
        })
        .unwrap_or_else(|error| {
            eprintln!("{error}");
            process::exit(1)
        });
    }
}
