//! What arrives at a port while settings are compared: received by this program, or by the one that has
//! the port.

use crate::signal::{Interrupt, Interrupted};
use crate::udp::arriving::{Arriving, PATIENCE, PATIENCE_FIRST, offered_at};
use crate::udp::runs;
use anyhow::{Context, Result, bail, ensure};
use mpps_host::tune::Goal;
use mpps_host::{Account, Delta, ProcStat, Route, Snapshot};
use mpps_io::{Inspect, RxConfig, Wait, await_carrier, backend};
use mpps_os::netlink::{address, link, sock_diag};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a run was interrupted.
const LOOK: Duration = Duration::from_millis(10);
/// `USER_HZ`, in which /proc/stat counts (proc_stat(5)).
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// The traffic of a port.
#[derive(Debug)]
pub(super) struct Traffic {
    interface: String,
    index: u32,
    port: u16,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    /// This program, by a backend.
    Own(&'static str, SocketAddr),
    /// Whoever has the port.
    Other,
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) run: runs::Sample,
    /// How long all CPUs of the machine were busy, added up.
    pub(super) busy_seconds: f64,
}

impl Traffic {
    /// Finds out who reads the port.
    ///
    /// # Errors
    /// Where AF_XDP is asked for and a socket has the port, or the interface has no address.
    pub(super) fn new(interface: &str, port: u16, goal: Goal) -> Result<Self> {
        let index = link::index(interface)?;
        let is_taken = sock_diag::udp()?
            .iter()
            .any(|socket| socket.local.port() == port);
        let reader = match (goal, is_taken) {
            (Goal::Tcp, _) => bail!(
                "--for tcp: prove measures datagrams; apply one stage at a time, and `mpps load` tells \
                 what it brings"
            ),
            (Goal::Udp, true) => Reader::Other,
            (Goal::AfXdp, true) => bail!(
                "--port {port}: a socket of this host has it, and with AF_XDP this program would take its \
                 packets; end that program, or choose --for udp"
            ),
            (_, false) => {
                let addresses = address::list(index)?;
                let mut own = addresses.iter().map(|own| own.address);
                let own = own.clone().find(IpAddr::is_ipv4).or_else(|| own.next());
                let own = own.with_context(|| {
                    format!(
                        "{interface} has no address: `ip address add ADDR/LENGTH dev {interface}`"
                    )
                })?;
                let backend = match goal {
                    Goal::AfXdp => "af_xdp",
                    _ => "recvmmsg",
                };
                Reader::Own(backend, SocketAddr::new(own, port))
            }
        };
        Ok(Self {
            interface: interface.to_owned(),
            index,
            port,
            reader,
        })
    }

    /// One run of so long, once the interface has its carrier. For the first of all somebody has to
    /// start the sender.
    ///
    /// # Errors
    /// If nothing arrives, or nothing can be received.
    pub(super) fn run(
        &self,
        time: Duration,
        is_first: bool,
        interrupt: &Interrupt,
    ) -> Result<Measured> {
        await_carrier(self.index)?;
        let patience = match is_first {
            true => PATIENCE_FIRST,
            false => PATIENCE,
        };
        match self.reader {
            Reader::Own(backend, address) => {
                self.received(backend, address, time, patience, interrupt)
            }
            Reader::Other => self.watched(time, patience, interrupt),
        }
    }

    fn received(
        &self,
        backend: &str,
        address: SocketAddr,
        time: Duration,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Measured> {
        let opened = backend::find(backend)?.open_rx(&RxConfig::new(address));
        let rx = opened.with_context(|| format!("cannot receive at {address} by {backend}"))?;
        await_carrier(self.index)?;
        let arriving = Arriving {
            at: &self.to_string(),
            cpu: None,
            wait: Wait::Block(Duration::from_secs(1)),
            inspect: Inspect::Never,
            time,
            patience,
            interrupt,
            snapshot: &|| Ok(Snapshot::take(&[&self.interface])?),
        };
        let before = ProcStat::read()?;
        let arrived = arriving.run(rx)?;
        Ok(Measured {
            run: arrived.sample(&self.interface),
            busy_seconds: busy(&before, &ProcStat::read()?),
        })
    }

    /// What another program reads is counted by the kernel, of all sockets of the namespace together.
    fn watched(
        &self,
        time: Duration,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Measured> {
        let began = Instant::now();
        loop {
            let (before, ticks) = (Snapshot::take(&[&self.interface])?, ProcStat::read()?);
            let end = Instant::now() + time;
            while Instant::now() < end {
                ensure!(!interrupt.came(), Interrupted);
                thread::sleep(LOOK.min(time));
            }
            let host = Snapshot::take(&[&self.interface])?.since(&before);
            let run = counted(&host, &self.interface);
            if run.ledger.delivered > 0 {
                let busy_seconds = busy(&ticks, &ProcStat::read()?);
                return Ok(Measured { run, busy_seconds });
            }
            ensure!(
                began.elapsed() < patience,
                "nothing was read from sockets of this host within {} s; does somebody send to {self}?",
                patience.as_secs()
            );
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            interface, port, ..
        } = self;
        match self.reader {
            Reader::Own(backend, _) => write!(f, "port {port} of {interface}, read by {backend}"),
            Reader::Other => write!(
                f,
                "port {port} of {interface}, read by the program that has it"
            ),
        }
    }
}

fn counted(host: &Delta, interface: &str) -> runs::Sample {
    let account = Account::by_counters(offered_at(host, interface), Route::Hosts, host, host);
    let account = Account {
        sender: None,
        ..account
    };
    let ledger = account.ledger();
    let seconds = host.duration_ns.max(1) as f64 / 1e9;
    let mpps = |count: u64| count as f64 / seconds / 1e6;
    runs::Sample {
        mpps: mpps(ledger.delivered),
        offered_mpps: mpps(ledger.offered),
        ledger,
    }
}

fn busy(before: &ProcStat, after: &ProcStat) -> f64 {
    let cpus = after.busy_since(before).into_iter();
    cpus.map(|cpu| cpu.busy * cpu.ticks as f64).sum::<f64>() / TICKS_PER_SECOND
}
