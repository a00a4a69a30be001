//! Two programs on two hosts of one machine. As root, or as an ordinary user by
//! `unshare --map-root-user`:
//!
//!     cargo build -p mpps-lab --example two_hosts
//!     target/debug/examples/two_hosts 5353 'nsd -d -p 5353' 'dig -p 5353 @$SERVER . NS'
//!
//! The first program runs on the receiver. The second starts on the sender when a socket of the
//! first has the UDP port. It starts anyway after five seconds. When it ends, the first is stopped.
//! Each finds the other's address in SERVER or CLIENT. The exit status is that of the second
//! program, 2 if there is no lab.

#![allow(clippy::print_stderr, reason = "programs speak")]

use mpps_lab::{Lab, LabConfig, LabHost};
use std::env;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How long the server may take to begin.
const PATIENCE: Duration = Duration::from_secs(5);

fn run(port: u16, server: &str, client: &str) -> Result<ExitCode, Box<dyn Error>> {
    let lab = Lab::new(&LabConfig::default())?;
    let address = |host: &LabHost| host.v4()[0].to_string();
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command.env("SERVER", address(lab.receiver()));
        command.env("CLIENT", address(lab.sender()));
        command
    };
    let _server = lab.receiver().spawn(shell(server))?;
    if !lab.receiver().await_udp(port, PATIENCE)? {
        eprintln!("no program receives at UDP port {port} of the server yet");
    }
    let status = lab.sender().run(|| shell(client).status())??;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let outcome = match &words[..] {
        [port, server, client] => port
            .parse()
            .map_err(Into::into)
            .and_then(|port| run(port, server, client)),
        _ => Err("two_hosts PORT SERVER CLIENT".into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}
