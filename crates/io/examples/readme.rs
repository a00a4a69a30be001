//! The echo server of the README: a receiver for each queue of the interface that has the address.

use mpps_io::{Rx, RxConfig, Wait, backend};
use std::time::Duration;
use std::{env, error::Error, io, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let address = env::args().nth(1).ok_or("ADDRESS:PORT")?;
    let mut config = RxConfig::new(address.parse()?);
    config.answers = true;
    let receivers = backend::find("af_xdp")?.open_rx_queues(&config)?;
    let start = |rx| thread::spawn(|| echo(rx));
    for thread in receivers.into_iter().map(start).collect::<Vec<_>>() {
        thread.join().unwrap()?;
    }
    Ok(())
}

fn echo(mut rx: Box<dyn Rx>) -> io::Result<()> {
    loop {
        rx.serve(Wait::Auto(Duration::from_secs(1)), &mut |requests| {
            for request in requests {
                request.reply_in_place(|_room, bytes| Some(bytes));
            }
        })?;
    }
}
