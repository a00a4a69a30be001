//! Where this host loses UDP datagrams while a command runs, whichever program receives them:
//!
//!     cargo build -p mpps-host --example ledger
//!     target/debug/examples/ledger sleep 10
//!     target/debug/examples/ledger dnsperf -s 127.0.0.1 -d questions
//!
//! It looks at its own network namespace. An ordinary user does not see the owners of other users'
//! sockets.
//!
//! Exit status: 0 nothing was lost, 1 datagrams were lost, 2 error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "programs speak")]

use mpps_host::{DoctorRequest, Overview, Watch};
use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};

/// The host between two looks: one before the command, one after it.
fn during(mut workload: Command) -> Result<Overview, Box<dyn Error>> {
    let mut watch = Watch::begin(None, DoctorRequest::default())?;
    let status = workload.status()?;
    if !status.success() {
        return Err(format!("{workload:?}: {status}").into());
    }
    watch.look()?;
    for note in watch.notes() {
        eprintln!("{note}");
    }
    Ok(Overview::of(&watch.seen()))
}

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("a command is needed: ledger PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    let mut workload = Command::new(program);
    workload.args(words);
    let page = match during(workload) {
        Ok(page) => page,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let ledger = &page.ledger;
    println!("{ledger}");
    for loss in &ledger.losses {
        println!(
            "lost {}: {} ({}, {})",
            loss.count, loss.reason, loss.station, loss.source
        );
    }
    for socket in page.sockets.iter().filter(|socket| socket.dropped > 0) {
        let owner = socket
            .process
            .as_deref()
            .unwrap_or("a program of another user");
        println!(
            "{} of {owner} dropped {}: its buffer has {} bytes",
            socket.local, socket.dropped, socket.buffer_bytes
        );
    }
    for note in &ledger.notes {
        println!("{note}");
    }
    ExitCode::from(u8::from(ledger.lost() > 0))
}
