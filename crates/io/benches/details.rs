//! The costs of the details of a datagram: the time to take it from a full socket, of one without any and with
//! each by itself; beside it a bare `recvmmsg(2)` into the same buffers. Medians of rounds
//! that alternate.
//!
//!     taskset -c 1 cargo bench -p mpps-io --bench details -- 300

#![allow(clippy::print_stdout, reason = "programs speak")]

use mpps_io::{Rx, RxConfig, TxConfig, Wait, WantedDetails, backend};
use mpps_os::messages::{Extras, ReceiveMessages, ReceiveWait};
use mpps_os::socket::UdpSocket;
use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

const DATAGRAMS: usize = 2048;
const BUFFER_BYTES: usize = 4 << 20;

/// A receiver: its name and address, and a function that takes all that is in its socket, and returns how
/// many datagrams that was.
type Kind = (&'static str, SocketAddr, Drain);
type Drain = Box<dyn FnMut() -> std::io::Result<u64>>;

fn main() -> Result<(), Box<dyn Error>> {
    let asked = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let rounds = asked.unwrap_or(100);
    let kind = |name, want: fn(&mut WantedDetails)| {
        let mut wanted = WantedDetails::default();
        want(&mut wanted);
        receiver(name, wanted)
    };
    let mut kinds = [
        bare()?,
        kind("none", |_| {})?,
        kind("source", |wanted| wanted.source = true)?,
        kind("local", |wanted| wanted.local = true)?,
        kind("traffic_class", |wanted| wanted.traffic_class = true)?,
        kind("hop_limit", |wanted| wanted.hop_limit = true)?,
        kind("time", |wanted| wanted.time = true)?,
        kind("hardware_time", |wanted| wanted.hardware_time = true)?,
    ];
    let mut times = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for ((_, address, drain), times) in kinds.iter_mut().zip(&mut times) {
            let mut tx = backend::find("sendmmsg")?.open_tx(&TxConfig::new(*address))?;
            let mut left = DATAGRAMS;
            while left > 0 {
                left -= tx.send(0, left.min(tx.caps().batch))?.accepted as usize;
            }
            let begun = Instant::now();
            let came = drain()?;
            let time = begun.elapsed();
            if came != DATAGRAMS as u64 {
                return Err(format!("{came} of {DATAGRAMS} came: net.core.rmem_max?").into());
            }
            times.push(time.as_nanos() as f64 / came as f64);
        }
    }
    for ((name, ..), times) in kinds.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[(times.len() as f64 * share) as usize];
        println!(
            "{name:14} {:6.1} ns ({:.1} to {:.1})",
            at(0.5),
            at(0.25),
            at(0.75)
        );
    }
    Ok(())
}

fn receiver(name: &'static str, wanted: WantedDetails) -> Result<Kind, Box<dyn Error>> {
    let mut config = RxConfig::new("127.0.0.1:0".parse()?);
    config.receive_buffer_bytes = Some(BUFFER_BYTES);
    config.details = wanted;
    let mut rx: Box<dyn Rx> = backend::find("recvmmsg")?.open_rx(&config)?;
    let address = rx.caps().local_address;
    let drain = move || {
        let mut came = 0;
        loop {
            let batch = rx.recv(Wait::Poll)?;
            if batch.is_empty() {
                return Ok(came);
            }
            for packet in &batch {
                came += u64::from(
                    packet
                        .details
                        .is_none_or(|details| black_box(details).ecn() != Some(3)),
                );
            }
        }
    };
    Ok((name, address, Box::new(drain)))
}

fn bare() -> Result<Kind, Box<dyn Error>> {
    let any = "127.0.0.1:0".parse()?;
    let socket = UdpSocket::new(&any)?;
    socket.set_receive_buffer(BUFFER_BYTES)?;
    socket.bind(&any)?;
    let address = socket.local_address()?;
    let mut messages = ReceiveMessages::new(1024, 2048, Extras::default());
    let drain = move || {
        let mut came = 0;
        loop {
            match messages.receive(socket.as_fd(), ReceiveWait::No) {
                Ok(more) => came += more as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(came),
                Err(error) => return Err(error),
            }
        }
    };
    Ok(("bare recvmmsg", address, Box::new(drain)))
}
