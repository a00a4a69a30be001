//! Does a UDP server lose datagrams, and where? It runs on one host of a lab, and the other host sends it
//! 100 000. As root, or as an ordinary user by `unshare --map-root-user`:
//!
//!     cargo build -p mpps-host --example udp_losses
//!     target/debug/examples/udp_losses                      # a server of its own
//!     target/debug/examples/udp_losses 5353 nsd -d -p 5353  # the port, and any server
//!
//! Exit status: 0 nothing was lost, 1 datagrams were lost or are unaccounted for, 2 error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "programs speak")]

use mpps_host::{Between, Ledger};
use mpps_lab::{Lab, LabConfig};
use std::env;
use std::error::Error;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

const DATAGRAMS: u64 = 100_000;
/// The rate, at most.
const A_MILLISECOND: u64 = 100;
/// How long a server may take to begin, and then to read what waits for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the datagrams went that were sent to this server.
fn losses(server: Command, port: u16) -> Result<Ledger, Box<dyn Error>> {
    let lab = Lab::new(&LabConfig {
        // A sender waits for room on the link, so that what is lost was lost by the server. One queue
        // goes on after it was full without any privilege.
        queues: 1,
        back_pressure: true,
        ..LabConfig::default()
    })?;
    let (from, to) = (lab.sender(), lab.receiver());
    let _server = to.spawn(server)?;
    to.await_udp(port, PATIENCE)?;
    let [sender, receiver] = [from, to].map(|host| (host.namespace(), host.interface()));
    let between = Between::begin(sender, receiver, lab.has_rings())?;
    let socket = from.run(|| UdpSocket::bind("0.0.0.0:0"))??;
    for sent in 0..DATAGRAMS {
        if sent % A_MILLISECOND == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        socket.send_to(&[7; 32], (to.v4()[0], port))?;
    }
    Ok(between.ledger(DATAGRAMS, PATIENCE)?)
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["serve"] => serve(),
        [] => own_server().and_then(|server| losses(server, OWN_PORT)),
        [port, program, ref arguments @ ..] => port.parse().map_err(Into::into).and_then(|port| {
            let mut server = Command::new(program);
            server.args(arguments);
            losses(server, port)
        }),
        [_] => Err("a port needs a server: udp_losses PORT PROGRAM [ARGUMENT...]".into()),
    };
    let ledger = match outcome {
        Ok(ledger) => ledger,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!("{ledger}");
    for loss in &ledger.losses {
        println!(
            "lost {}: {} ({}, {})",
            loss.count, loss.reason, loss.station, loss.source
        );
    }
    if ledger.unaccounted > 0 {
        println!(
            "{} wait in the server's buffer, or are in no counter",
            ledger.unaccounted
        );
    }
    ExitCode::from(u8::from(ledger.lost() > 0 || ledger.unaccounted != 0))
}

const OWN_PORT: u16 = 4321;

/// This program, as a server.
fn own_server() -> Result<Command, Box<dyn Error>> {
    let mut server = Command::new(env::current_exe()?);
    server.arg("serve");
    Ok(server)
}

/// Reads and forgets, with a buffer that has room for all that come: a datagram takes less than 1 kB of it.
fn serve() -> Result<Ledger, Box<dyn Error>> {
    let address = format!("0.0.0.0:{OWN_PORT}").parse()?;
    let socket = mpps_os::socket::UdpSocket::new(&address)?;
    socket.set_receive_buffer(1000 * DATAGRAMS as usize)?;
    socket.bind(&address)?;
    let socket = UdpSocket::from(socket.as_fd().try_clone_to_owned()?);
    loop {
        socket.recv(&mut [0; 2048])?;
    }
}
