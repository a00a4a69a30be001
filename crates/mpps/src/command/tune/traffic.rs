//! Traffic of a port while settings are compared. It is datagrams, received by this program or by
//! another one, or connections to the program that listens there.

use crate::signal::{EndSignal, Interrupted};
use crate::udp::RATE_DEFINITION;
use crate::udp::arriving::{PATIENCE, PATIENCE_FIRST, PATIENCE_SOCKET, PortTraffic, offered_at};
use crate::udp::run::UdpRun;
use anyhow::{Context, Result, bail, ensure};
use mpps_host::setting::tune::TuneGoal;
use mpps_host::{Account, Delta, Ledger, Loss, PacketRoute, ProcStat, Snapshot, Station};
use mpps_io::parts::await_carrier;
use mpps_os::netlink::{address, link, sock_diag};
use mpps_os::text::ShellWord;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Drops of listeners (`tcp_listendrop`). It counts packets of handshakes, possibly several of one
/// connection, and handshakes that an error ends.
const LISTEN_DROPS: &str = "TcpExt.ListenDrops";

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
    /// The program that has the port.
    Other,
    /// The programs that listen at the TCP port.
    Listener,
}

/// The definition of a rate of connections.
const CONNECTION_RATE_DEFINITION: &str = "connections that the kernel made for the listeners of this \
     network namespace (Tcp.PassiveOpens), in millions, divided by the time of the run";

impl Traffic {
    /// Finds out who reads the port.
    ///
    /// # Errors
    /// Where AF_XDP is asked for and a socket has the port, or the interface has no address.
    pub(super) fn new(interface: &str, port: u16, goal: TuneGoal) -> Result<Self> {
        let index = link::index(interface)?;
        let own: Vec<IpAddr> = address::list(index)?
            .iter()
            .map(|own| own.address)
            .collect();
        let is_taken = match goal {
            TuneGoal::Tcp => sock_diag::listeners()?.iter().any(|listener| {
                let at = listener.local;
                at.port() == port && (at.ip().is_unspecified() || own.contains(&at.ip()))
            }),
            TuneGoal::Udp | TuneGoal::AfXdp => sock_diag::udp()?
                .iter()
                .any(|socket| socket.local.port() == port),
        };
        let reader = match (goal, is_taken) {
            (TuneGoal::Tcp, true) => Reader::Listener,
            (TuneGoal::Tcp, false) => bail!(
                "--port {port}: no program listens there at an address of {interface}; start the server, or try \
                 one: `mpps serve 0.0.0.0:{port}`"
            ),
            (TuneGoal::Udp, true) => Reader::Other,
            (TuneGoal::AfXdp, true) => bail!(
                "--port {port}: a socket of this host has it, and with AF_XDP this program would take its \
                 packets; end that program, or choose --for udp"
            ),
            (_, false) => {
                let first = own.iter().find(|own| own.is_ipv4()).or(own.first());
                let own = *first.with_context(|| {
                    format!(
                        "{interface} has no address: `ip address add ADDR/LENGTH dev {}`",
                        ShellWord::new(interface)
                    )
                })?;
                let backend = match goal {
                    TuneGoal::AfXdp => "af_xdp",
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

    /// Measures one run of this length, once the interface has its carrier. The first run waits
    /// longer, because the user has to start the sender.
    ///
    /// # Errors
    /// If nothing arrives, or nothing can be received.
    pub(super) fn run(
        &self,
        time: Duration,
        is_first: bool,
        interrupt: &EndSignal,
    ) -> Result<UdpRun> {
        await_carrier(self.index)?;
        let patience = match is_first {
            true => PATIENCE_FIRST,
            false => PATIENCE,
        };
        match self.reader {
            Reader::Own(backend, address) => {
                self.received(backend, address, time, patience, interrupt)
            }
            Reader::Other | Reader::Listener => self.watched(time, is_first, patience, interrupt),
        }
    }

    /// The definition of its rates.
    pub(super) fn rate_definition(&self) -> &'static str {
        match self.reader {
            Reader::Own(..) | Reader::Other => RATE_DEFINITION,
            Reader::Listener => CONNECTION_RATE_DEFINITION,
        }
    }

    fn received(
        &self,
        backend: &str,
        address: SocketAddr,
        time: Duration,
        patience: Duration,
        interrupt: &EndSignal,
    ) -> Result<UdpRun> {
        let traffic = PortTraffic {
            interface: &self.interface,
            address,
            backend,
            carrier: Some(self.index),
            interrupt,
        };
        let before = ProcStat::read()?;
        let arrived = traffic.receive(&self.to_string(), None, time, patience)?;
        let busy = ProcStat::read()?.busy_since(&before);
        let run = arrived.sample(&self.interface);
        Ok(UdpRun { busy, ..run })
    }

    /// Measures the traffic of another program. The kernel counts it for all sockets of the
    /// namespace together. A run without traffic goes on until some comes. The first run then
    /// begins anew.
    fn watched(
        &self,
        time: Duration,
        is_first: bool,
        patience: Duration,
        interrupt: &EndSignal,
    ) -> Result<UdpRun> {
        let took =
            || Ok::<_, anyhow::Error>((Snapshot::take(&[&self.interface])?, ProcStat::read()?));
        let began = Instant::now();
        let (mut before, mut ticks) = took()?;
        let mut unread: Option<Instant> = None;
        loop {
            ensure!(interrupt.is_quiet_for(time), Interrupted);
            let (after, ticks_after) = took()?;
            let host = after.since(&before);
            let run = match self.reader {
                Reader::Listener => connections(&host)?,
                _ => counted(&host, &self.interface),
            };
            if run.ledger.delivered > 0 {
                let busy = ticks_after.busy_since(&ticks);
                return Ok(UdpRun { busy, ..run });
            }
            unread = match self.has_unread()? {
                true => unread.or_else(|| Some(Instant::now())),
                false => None,
            };
            ensure!(
                unread.is_none_or(|since| since.elapsed() < PATIENCE_SOCKET),
                "datagrams wait at {self}, but it reads none for {} s; is it stuck?",
                PATIENCE_SOCKET.as_secs()
            );
            ensure!(
                began.elapsed() < patience,
                "{} within {} s; does a program send to {self}?",
                match self.reader {
                    Reader::Listener => "no connection was made to this host",
                    _ => "nothing was read from sockets of this host",
                },
                patience.as_secs()
            );
            if is_first {
                (before, ticks) = (after, ticks_after);
            }
        }
    }

    /// True if datagrams wait for the program that has the port.
    fn has_unread(&self) -> Result<bool> {
        let sockets = sock_diag::udp()?;
        let mut own = sockets.iter().filter(|one| one.local.port() == self.port);
        Ok(matches!(self.reader, Reader::Other) && own.any(|one| one.queued_bytes > 0))
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
            Reader::Listener => write!(
                f,
                "TCP port {port} of {interface}, connections to the listeners of this host"
            ),
        }
    }
}

/// Datagrams of an interface by all counters of a host.
pub(crate) fn counted(host: &Delta, interface: &str) -> UdpRun {
    let account = Account::by_counters(offered_at(host, interface), PacketRoute::Hosts, host, host);
    let account = Account {
        sender: None,
        ..account
    };
    sample(host, account.ledger())
}

/// Connections made for listeners, those of this host to itself included, and drops of listeners.
/// No counter has the attempts of clients. So offered is the sum of both, and the ledger says so.
///
/// # Errors
/// If the kernel lacks a counter.
fn connections(host: &Delta) -> Result<UdpRun> {
    let count = |name| {
        let count = host.snmp(name);
        let count = count.with_context(|| format!("this kernel does not count {name}"))?;
        Ok::<_, anyhow::Error>(u64::try_from(count).unwrap_or(0))
    };
    let (made, dropped) = (count("Tcp.PassiveOpens")?, count(LISTEN_DROPS)?);
    let mut ledger = Ledger::new(made + dropped, made, 0);
    let note =
        "no counter shows the attempts of clients: offered is the sum of those made and dropped";
    ledger.notes.push(note.to_owned());
    let row = Loss::new(
        Station::Socket,
        "dropped by a listener",
        dropped,
        LISTEN_DROPS,
    );
    ledger.lose(Loss {
        exact: false,
        ..row
    });
    Ok(sample(host, ledger))
}

fn sample(host: &Delta, ledger: Ledger) -> UdpRun {
    let seconds = host.duration_ns.max(1) as f64 / 1e9;
    let mpps = |count: u64| count as f64 / seconds / 1e6;
    UdpRun {
        mpps: mpps(ledger.delivered),
        offered_mpps: mpps(ledger.offered),
        ledger,
        ..UdpRun::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_those_made_and_those_dropped() {
        let mut host = Delta {
            duration_ns: 500_000_000,
            ..Delta::default()
        };
        host.snmp.insert("Tcp.PassiveOpens".to_owned(), 3000);
        assert!(connections(&host).is_err());
        host.snmp.insert("TcpExt.ListenDrops".to_owned(), 1000);
        host.snmp.insert("TcpExt.ListenOverflows".to_owned(), 600);
        let run = connections(&host).expect("both are counted");
        assert_eq!((run.mpps, run.offered_mpps), (0.006, 0.008));
        assert_eq!((run.ledger.delivered, run.ledger.unaccounted), (3000, 0));
        assert_eq!(run.ledger.losses[0].count, 1000);
        // It balances by itself, and does not keep that from its readers.
        assert!(run.ledger.notes[0].contains("sum"), "{:?}", run.ledger);
    }
}
