//! The common part of the examples: `ADDR:PORT [--backend NAME] [--interface IF] [--count N]`, and
//! a thread for each receive queue.

#![allow(dead_code, reason = "each example uses some of it")]
#![allow(clippy::print_stdout, reason = "programs speak")]

use mpps_io::{Rx, RxConfig, backend};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Where, how, and how much.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) address: SocketAddr,
    pub(crate) backend: String,
    pub(crate) interface: Option<String>,
    /// The interface that frames leave by, and the hardware addresses that they are for.
    pub(crate) out: Option<String>,
    pub(crate) to: Vec<[u8; 6]>,
    /// The only sender of a multicast group to take.
    pub(crate) from: Option<IpAddr>,
    /// Ports from the address's on.
    pub(crate) ports: u16,
    /// The number of packets to end after; none is never.
    pub(crate) count: Option<u64>,
}

/// How long a thread waits before it looks whether it is to end.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

impl Args {
    /// From the command line.
    pub(crate) fn parse(default_address: &str) -> Result<Self, Box<dyn Error>> {
        let mut args = Self {
            address: default_address.parse()?,
            backend: "recvmmsg".to_owned(),
            interface: None,
            out: None,
            to: Vec::new(),
            from: None,
            ports: 1,
            count: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--backend" => args.backend = value()?,
                "--interface" => args.interface = Some(value()?),
                "--out" => args.out = Some(value()?),
                "--to" => args.to.push(hardware_address(&value()?)?),
                "--from" => args.from = Some(value()?.parse()?),
                "--ports" => args.ports = value()?.parse()?,
                "--count" => args.count = Some(value()?.parse()?),
                _ => args.address = word.parse().map_err(|_| format!("{word}: no ADDR:PORT"))?,
            }
        }
        Ok(args)
    }

    /// A receiver for each queue, which may answer or not.
    pub(crate) fn open(&self, answers: bool) -> Result<Vec<Box<dyn Rx>>, Box<dyn Error>> {
        self.open_with(&self.config(answers))
    }

    pub(crate) fn config(&self, answers: bool) -> RxConfig {
        let mut config = RxConfig::new(self.address);
        config.answers = answers;
        config.ring.interface.clone_from(&self.interface);
        config
    }

    pub(crate) fn open_with(&self, config: &RxConfig) -> Result<Vec<Box<dyn Rx>>, Box<dyn Error>> {
        let receivers = backend::find(&self.backend)?.open_rx_queues(config)?;
        for rx in &receivers {
            let caps = rx.caps();
            println!("{} by {}: {}", caps.local_address, caps.backend, caps.mode);
        }
        Ok(receivers)
    }

    /// Calls `step` for each receiver again and again, in a thread of its own, until the packets that
    /// it says it dealt with are enough.
    pub(crate) fn run<S>(&self, receivers: Vec<Box<dyn Rx>>, step: S) -> Result<u64, Box<dyn Error>>
    where
        S: Fn(&mut dyn Rx) -> std::io::Result<u64> + Sync,
    {
        let done = AtomicU64::new(0);
        let enough = self.count.unwrap_or(u64::MAX);
        thread::scope(|scope| {
            let (done, step) = (&done, &step);
            let work = move |mut rx: Box<dyn Rx>| {
                while done.load(Ordering::Relaxed) < enough {
                    done.fetch_add(step(&mut *rx)?, Ordering::Relaxed);
                }
                Ok::<(), std::io::Error>(())
            };
            let threads: Vec<_> = receivers
                .into_iter()
                .map(|rx| scope.spawn(move || work(rx)))
                .collect();
            for thread in threads {
                let ended = thread.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<(), std::io::Error>(())
        })?;
        Ok(done.load(Ordering::Relaxed))
    }
}

/// `02:00:00:00:00:07`
fn hardware_address(text: &str) -> Result<[u8; 6], Box<dyn Error>> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes = bytes.collect::<Result<Vec<u8>, _>>().unwrap_or_default();
    let address = <[u8; 6]>::try_from(bytes);
    address.map_err(|_| format!("{text}: no hardware address, as 02:00:00:00:00:07").into())
}
