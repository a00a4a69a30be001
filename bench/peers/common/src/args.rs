//! The command line of every program.

use std::error::Error;
use std::net::SocketAddrV4;

/// The treatment of each datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It goes back to its sender.
    Echo,
    /// It is counted.
    Drop,
}

/// `echo|drop ADDR:PORT [--interface IF] [--backend NAME] [--wait HOW] [--seconds S] [--count N]
/// [--beside TID]`
#[derive(Debug)]
pub struct Args {
    pub mode: Mode,
    pub address: SocketAddrV4,
    pub interface: String,
    pub backend: String,
    pub wait: String,
    /// The measured time, from the first packet on.
    pub(crate) seconds: f64,
    /// The run ends earlier after this many packets.
    pub(crate) count: u64,
    /// A kernel thread. Its CPU time is reported as well.
    pub(crate) beside: Option<u32>,
}

impl Args {
    /// From the command line.
    pub fn parse() -> Result<Self, Box<dyn Error>> {
        let mut words = std::env::args().skip(1);
        let mode = match words.next().as_deref() {
            Some("echo") => Mode::Echo,
            Some("drop") => Mode::Drop,
            _ => return Err("echo or drop?".into()),
        };
        let mut args = Self {
            mode,
            address: words.next().ok_or("ADDR:PORT?")?.parse()?,
            interface: String::new(),
            backend: "af_xdp".to_owned(),
            wait: "auto".to_owned(),
            seconds: 2.0,
            count: u64::MAX,
            beside: None,
        };
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--interface" => args.interface = value,
                "--backend" => args.backend = value,
                "--wait" => args.wait = value,
                "--seconds" => args.seconds = value.parse()?,
                "--count" => args.count = value.parse()?,
                "--beside" => args.beside = Some(value.parse()?),
                _ => return Err(format!("{word}?").into()),
            }
        }
        Ok(args)
    }
}
