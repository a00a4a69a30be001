//! One run of datagrams that arrive from another host. The sender does not start or stop with the
//! run. Losses before and after it belong to no run.

use super::account::{ReceiverCounts, SenderCounts, account};
use super::run::{self, LOOK, UdpRun};
use super::waited::Waited;
use crate::signal::{EndSignal, Interrupted};
use anyhow::{Context, Result, bail};
use mpps_host::{Delta, Ledger, PacketRoute, Snapshot};
use mpps_io::{
    Inspect, Rx, RxCaps, RxConfig, RxDrop, RxReport, RxTask, RxWorker, Stop, Wait, Work, backend,
    parts::await_carrier,
};
use mpps_os::clock::monotonic_ns;
use mpps_os::netlink::{address, link};
use mpps_report::Quantity;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

/// How long the first run waits for its first packet: the user has to start the sender.
pub(crate) const PATIENCE_FIRST: Duration = Duration::from_secs(60);
/// How long the others do: attaching an XDP program takes the link of some cards down, and a switch
/// may then need its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a socket waits for traffic that is said to arrive.
pub(crate) const PATIENCE_SOCKET: Duration = Duration::from_secs(5);
/// How long it waits for packets of its own while others come that do not reach it.
const PATIENCE_ELSEWHERE: Duration = Duration::from_secs(3);
/// The share of all packets that one CPU takes in where no other one serves queues to speak of.
const ALONE_MIN: f64 = 0.9;

/// Traffic of any sender at a port of an interface, as this program receives it.
#[derive(Debug)]
pub(crate) struct PortTraffic<'a> {
    pub(crate) interface: &'a str,
    pub(crate) address: SocketAddr,
    pub(crate) backend: &'a str,
    /// The interface's number, if opening the receiver may take its carrier away.
    pub(crate) carrier: Option<u32>,
    pub(crate) interrupt: &'a EndSignal,
}

/// `port 4321 of eth0`.
impl fmt::Display for PortTraffic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of {}", self.address.port(), self.interface)
    }
}

impl PortTraffic<'_> {
    /// One run, on this CPU if one is named; `at` is where the traffic arrives, in words.
    pub(crate) fn receive(
        &self,
        at: &str,
        cpu: Option<usize>,
        time: Duration,
        patience: Duration,
    ) -> Result<Arrived> {
        let (address, backend) = (self.address, self.backend);
        let opened = backend::find(backend)?.open_rx(&RxConfig::new(address));
        let rx = opened.with_context(|| format!("cannot receive at {address} by {backend}"))?;
        self.carrier.map(await_carrier).transpose()?;
        let arriving = Arriving {
            at,
            cpu,
            wait: Wait::Block(Duration::from_secs(1)),
            inspect: Inspect::Never,
            work: Work::None,
            time,
            patience,
            interrupt: self.interrupt,
            snapshot: &|| Ok(Snapshot::take(&[self.interface])?),
        };
        arriving.run(rx)
    }
}

/// How to receive what arrives.
pub(crate) struct Arriving<'a> {
    /// Where it arrives, in words.
    pub(crate) at: &'a str,
    /// The receiving thread's CPU; none leaves it to the scheduler.
    pub(crate) cpu: Option<usize>,
    pub(crate) wait: Wait,
    /// Whether it reads stamps.
    pub(crate) inspect: Inspect,
    /// The work for each datagram.
    pub(crate) work: Work,
    /// The length of the run, from its first packet on.
    pub(crate) time: Duration,
    /// How long the first packet is waited for.
    pub(crate) patience: Duration,
    pub(crate) interrupt: &'a EndSignal,
    /// Reads the counters of this host.
    pub(crate) snapshot: &'a dyn Fn() -> Result<Snapshot>,
}

/// The result of one run.
pub(crate) struct Arrived {
    /// Million datagrams per second.
    pub(crate) mpps: f64,
    pub(crate) report: RxReport,
    pub(crate) caps: RxCaps,
    wait: Wait,
    /// This host's counters over the run.
    pub(crate) host: Delta,
}

impl Arriving<'_> {
    /// Receives for so long, or until Ctrl-C.
    pub(crate) fn run(&self, rx: Box<dyn Rx>) -> Result<Arrived> {
        let waited = Instant::now();
        let (arrived, first) = self.until(rx, |worker| {
            let came = self.await_first(worker);
            let waited = waited.elapsed();
            let age = || monotonic_ns().saturating_sub(worker.progress().first_ns);
            while came && !self.interrupt.came() && u128::from(age()) < self.time.as_nanos() {
                thread::sleep(LOOK);
            }
            came.then_some(()).ok_or(waited)
        })?;
        match first {
            Err(_) if self.interrupt.came() => bail!(Interrupted),
            Err(waited) => bail!(
                "nothing arrived at {} within {} s{}; does a program send there, and does no firewall \
                 drop the packets?",
                self.at,
                waited.as_secs(),
                missed(&arrived.report)
            ),
            Ok(()) => Ok(arrived),
        }
    }

    /// Receives until `end` returns; answers with what that said.
    pub(crate) fn until<T>(
        &self,
        rx: Box<dyn Rx>,
        end: impl FnOnce(&RxWorker) -> T,
    ) -> Result<(Arrived, T)> {
        let caps = rx.caps().clone();
        let before = (self.snapshot)()?;
        let drops_before = rx.drops();
        let stop = Stop::new();
        let task = RxTask {
            rx,
            cpu: self.cpu,
            wait: self.wait,
            inspect: self.inspect,
            work: self.work,
            limit: None,
            stop: stop.clone(),
        };
        let worker = RxWorker::spawn(task).context("cannot start the receiving thread")?;
        let said = end(&worker);
        stop.stop();
        let (mut report, open) = worker.join_open();
        // As soon as the receiver is closed the kernel counts its packets as lost.
        let after = (self.snapshot)()?;
        drop(open);
        if let Some(error) = report.error.take() {
            return Err(error).with_context(|| format!("receiving by {}", caps.backend));
        }
        for drop in report.drops.iter_mut().filter(|drop| is_elsewhere(drop)) {
            let mut before = drops_before.iter();
            let before = before.find(|before| before.reason == drop.reason);
            drop.count = drop
                .count
                .saturating_sub(before.map_or(0, |before| before.count));
        }
        let mut host = after.since(&before);
        // The port was bound all the time, and the other protocol is not UDP: these are other programs' packets.
        host.snmp
            .retain(|name, _| !name.ends_with(".NoPorts") && name != "Ip.InUnknownProtos");
        let arrived = Arrived {
            mpps: run::rate(slice::from_ref(&report)),
            report,
            caps,
            wait: self.wait,
            host,
        };
        Ok((arrived, said))
    }

    fn await_first(&self, worker: &RxWorker) -> bool {
        let began = Instant::now();
        let mut patience = self.patience;
        while worker.progress().first_ns == 0 {
            if began.elapsed() > patience || self.interrupt.came() || worker.is_finished() {
                return false;
            }
            worker.refresh();
            if worker.progress().dropped > 0 {
                patience = patience.min(PATIENCE_ELSEWHERE);
            }
            thread::sleep(LOOK);
        }
        true
    }
}

/// The wildcard address and this port, of IPv4 if the interface has an address of that.
pub(crate) fn any_of(interface: &str, port: u16) -> Result<SocketAddr> {
    let addresses = address::list(link::index(interface)?)?;
    let any: IpAddr = match addresses.iter().any(|own| own.address.is_ipv4()) {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    Ok(SocketAddr::new(any, port))
}

/// The receiver's count of packets that came and did not reach it.
fn missed(report: &RxReport) -> String {
    let drops = report.drops.iter().filter(|drop| drop.count > 0);
    drops
        .map(|drop| format!(", but {} packets were lost: {}", drop.count, drop.reason))
        .collect()
}

fn is_elsewhere(drop: &RxDrop) -> bool {
    [RxDrop::OTHER_QUEUE, RxDrop::PAST_RING].contains(&drop.reason)
}

/// All frames that an interface received or lost.
pub(crate) fn offered_at(host: &Delta, interface: &str) -> u64 {
    let came = host.links.get(interface).map_or(0, |link| {
        let counters = &link.counters;
        let no_room = link.no_room().into_iter().map(|(_, count)| count);
        let lost = no_room.chain([counters.rx_crc_errors]);
        lost.fold(counters.rx_packets, i64::saturating_add)
    });
    u64::try_from(came).unwrap_or(0)
}

/// Packets that came by queues which this receiver does not read, or past its ring.
pub(crate) fn elsewhere(drops: &[RxDrop]) -> u64 {
    let drops = drops.iter().filter(|drop| is_elsewhere(drop));
    drops.map(|drop| drop.count).sum()
}

impl Arrived {
    /// The CPU that took in most packets meanwhile, and how that is known: by the driver's counters
    /// which queue they came by, if it has such, and by the kernel's who took them from there.
    pub(crate) fn serving(&self, interface: &str) -> Result<(usize, String)> {
        let share = |part: i64, all: i64| Quantity::Share(part as f64 / all.max(1) as f64);
        let softnet = &self.host.softnet;
        let most = softnet.iter().max_by_key(|row| row.processed);
        let most = most.filter(|row| row.processed > 0);
        let most = most.context("/proc/net/softnet_stat: packets came, and no CPU took any in")?;
        let (cpu, all) = (most.cpu, softnet.iter().map(|row| row.processed).sum());
        let queues = self.host.queue_packets(interface);
        let busiest = queues.iter().max_by_key(|queue| queue.packets);
        let queue = busiest.filter(|queue| queue.packets > 0).map(|busiest| {
            let part = share(
                busiest.packets,
                queues.iter().map(|queue| queue.packets).sum(),
            );
            let (queue, counter) = (busiest.queue, &busiest.counter);
            format!("queue {queue} got {part} of its packets ({counter}), ")
        });
        let others = match (most.processed as f64) < ALONE_MIN * all as f64 {
            true => "; other CPUs serve queues too, of this traffic or another",
            false => "",
        };
        let (queue, part) = (queue.unwrap_or_default(), share(most.processed, all));
        let known =
            format!("{queue}CPU {cpu} took in {part} of this host's (softnet_stat){others}");
        Ok((cpu, known))
    }

    /// The receiver's packets and losses.
    pub(crate) fn received(&self) -> ReceiverCounts {
        ReceiverCounts::by(slice::from_ref(&self.report), &self.caps, false)
    }

    /// The run with this ledger, which has the number of offered datagrams.
    pub(crate) fn with(self, ledger: Ledger) -> UdpRun {
        UdpRun {
            mpps: self.mpps,
            offered_mpps: self.mpps * ledger.offered as f64 / ledger.delivered.max(1) as f64,
            ledger,
            mode: self.caps.mode.summary,
            waited: Some(Waited::of(self.wait, &self.report.counters)),
            rx: vec![self.report],
            receiver: self.host,
            ..UdpRun::default()
        }
    }

    /// The run with the ledger of this host only. The interface's counters give the offered
    /// datagrams.
    pub(crate) fn sample(self, interface: &str) -> UdpRun {
        let sent = SenderCounts {
            offered: offered_at(&self.host, interface),
            ..SenderCounts::default()
        };
        let host = (None, Some(&self.host));
        let mut ledger = account(sent, self.received(), PacketRoute::Hosts, host).ledger();
        if ledger.unaccounted != 0 {
            let tcp = self.host.snmp("Tcp.InSegs").unwrap_or(0);
            ledger.note(format!(
                "offered are all frames that {interface} received or lost: what is unaccounted is of \
                 its other traffic ({tcp} TCP segments came meanwhile), or came while counters were read"
            ));
        }
        self.with(ledger)
    }
}
