//! The lab that runs the cells: a server's host and a load's host, each with CPUs of its own.

use super::cpu_split::Deal;
use super::link_rate::LinkRate;
use super::plan::PlannedCell;
use super::process_tree::numbers;
use super::server::{RunningServer, Setup};
use anyhow::{Context, Result, ensure};
use mpps_host::{Applied, SkbDefer, UndoneStep};
use mpps_lab::{Delivery, Lab, LabConfig};
use mpps_os::sched;
use std::cell::{Cell as Mutable, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The port of every server. Servers of other projects use it by default.
const PORT: u16 = 80;
/// Addresses of the load. Each has 64 000 ports, so that no new connection looks for one among
/// those of connections that ended a moment ago.
const LOAD_ADDRESSES: u8 = 64;
/// Settings of the load's host: all ports but those that need a privilege.
const LOAD_SETTINGS: [(&str, &str); 1] = [("ipv4/ip_local_port_range", "1024 65535")];
/// Settings of the server's host. A busy server's table of connections in TIME_WAIT is full: 30 000
/// connections per second would need 1.8 million places for their 60 seconds. With a small table
/// it is so in every run, also in the first.
const SERVER_SETTINGS: [(&str, &str); 1] = [("ipv4/tcp_max_tw_buckets", "4096")];

/// A server's host and a load's host, and the queues between them: one for each CPU of the server.
#[derive(Debug)]
pub(crate) struct ConnectionLab {
    pub(super) lab: Lab,
    /// Why the queues have no kernel threads, if they have none.
    unthreaded: Option<String>,
    pub(super) deal: Deal,
    pub(super) connections: u64,
    pub(super) link_rate: Option<LinkRate>,
    /// The kernel threads that take over soft interrupts of the server's CPUs.
    ksoftirqd: Vec<u32>,
    /// Sizes of the bodies that are served.
    bodies: Vec<usize>,
    /// How long the server's queue waits between polls, as it is set now.
    moderation: Mutable<Option<Duration>>,
    /// Each server's rate at full load, for cells that offer less.
    pub(super) full_cps: RefCell<BTreeMap<&'static str, f64>>,
    /// How the kernel's reuse of packet buffers is switched off, where that may be done.
    skb_defer: Option<SkbDefer>,
    /// It is switched off while there is something here.
    without_skb_defer: RefCell<Option<Applied>>,
}

impl ConnectionLab {
    /// Switches the kernel's reuse of packet buffers off and on once, before anything is made. A
    /// refusal comes now, and lists that another program left asleep are awake.
    pub(crate) fn rehearse(skb_defer: &SkbDefer) -> Result<()> {
        switch_on(Applied::new(&skb_defer.change).context("--skb-defer")?)
    }

    /// Makes the two hosts. Every packet is then taken from a ring by the kernel thread of its
    /// queue: those to the server on a CPU of the server's, those to the load on one of the load's.
    /// The load's address chooses the queue on both. Where there are no such threads, soft
    /// interrupts of the same CPUs do it.
    pub(crate) fn new(
        deal: &Deal,
        connections: u64,
        link_rate: Option<LinkRate>,
        cells: &[PlannedCell],
        skb_defer: Option<SkbDefer>,
    ) -> Result<Self> {
        let config = LabConfig {
            queues: u16::try_from(deal.servers.len())?,
            queue_cpus: deal.servers.clone(),
            delivery: Delivery::ThreadedNapi,
            sender_queue_cpus: deal.load_queues(),
            sender_addresses: LOAD_ADDRESSES,
            back_pressure: true,
            ..LabConfig::default()
        };
        let mut lab = Lab::new(&config)?;
        let mut unthreaded = None;
        let threads = [lab.napi_threads(), lab.sender_napi_threads()];
        if threads
            .iter()
            .any(|threads| threads.len() != deal.servers.len())
        {
            // Notes on other things come after those on the queues.
            unthreaded = Some(lab.notes().first().cloned().unwrap_or_default());
            drop(lab);
            lab = Lab::new(&LabConfig {
                delivery: Delivery::Rps,
                ..config
            })?;
        }
        link_rate.map_or(Ok(()), |rate| rate.apply(&lab))?;
        for (host, settings) in [
            (lab.sender(), LOAD_SETTINGS),
            (lab.receiver(), SERVER_SETTINGS),
        ] {
            for (name, value) in settings {
                let path = format!("/proc/sys/net/{name}");
                host.run(|| fs::write(&path, value))?
                    .with_context(|| format!("cannot write {path}"))?;
            }
        }
        let bodies: BTreeSet<usize> = cells.iter().map(|cell| cell.row.body_bytes).collect();
        Ok(Self {
            ksoftirqd: ksoftirqd(&deal.servers),
            lab,
            unthreaded,
            deal: deal.clone(),
            connections,
            link_rate,
            bodies: bodies.into_iter().collect(),
            moderation: Mutable::new(None),
            full_cps: RefCell::default(),
            skb_defer,
            without_skb_defer: RefCell::new(None),
        })
    }

    /// The settings that differ from the kernel's own, a sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "both ends of the link have TSO and GSO off, otherwise packets would pass by the queues; \
             a card would cut large bodies for the server"
                .to_owned(),
            format!(
                "settings of the two hosts: {}",
                LOAD_SETTINGS
                    .iter()
                    .chain(&SERVER_SETTINGS)
                    .map(|(name, value)| format!("{} {value}", name.replace('/', ".")))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        ];
        notes.extend(self.link_rate.map(LinkRate::note));
        if let Some(why) = &self.unthreaded {
            notes.push(format!(
                "soft interrupts of the same CPUs take the packets (RPS), since the queues have no \
                 kernel threads: what interrupts a thread of the server is in its own time, and what \
                 runs while the CPU is idle in no figure of CPU time ({why})"
            ));
        }
        if self.ksoftirqd.is_empty() {
            notes.push(
                "this PID namespace does not show ksoftirqd: its time is in no figure".to_owned(),
            );
        }
        if let Some(plan) = &self.skb_defer {
            notes.push(format!(
                "net.core.skb_defer_max of this machine was 0 in the cells no-skb-defer, and {} in \
                 all others",
                plan.was
            ));
        }
        notes.extend(self.lab.notes().iter().cloned());
        notes
    }

    /// Whether the queues have kernel threads, whose polls can be held back and counted.
    pub(super) fn has_threads(&self) -> bool {
        self.unthreaded.is_none()
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        let first = self.lab.receiver().v4().first();
        let first = first.context("the receiving host has no address")?;
        Ok(SocketAddr::new(IpAddr::V4(*first), PORT))
    }

    /// Starts the server of a cell.
    pub(super) fn serve(&self, cell: &PlannedCell) -> Result<RunningServer> {
        let program = cell.server.find().map_err(anyhow::Error::msg)?;
        let setup = Setup {
            program: &program,
            address: self.address()?,
            switches: cell.switches(),
            body_bytes: cell.row.body_bytes,
            cpus: &self.deal.servers,
            bodies: &self.bodies,
        };
        RunningServer::start(cell.server, &setup, self.lab.receiver())
    }

    /// Sets how long the server's queue waits between polls.
    pub(super) fn moderate(&self, period: Option<Duration>) -> Result<()> {
        if self.moderation.get() != period {
            self.lab.defer_polling(period)?;
            self.moderation.set(period);
        }
        Ok(())
    }

    /// Switches the kernel's reuse of packet buffers off, on this whole machine, for a cell that
    /// wants a `net.core.skb_defer_max` of 0, and on again for any other.
    pub(super) fn defer_skbs(&self, wanted: Option<u32>) -> Result<()> {
        if wanted != Some(0) {
            return self.put_back();
        }
        let mut off = self.without_skb_defer.borrow_mut();
        if let (None, Some(plan)) = (&*off, &self.skb_defer) {
            *off = Some(Applied::new(&plan.change).context("--skb-defer")?);
        }
        Ok(())
    }

    /// Restores the settings of this machine.
    pub(crate) fn put_back(&self) -> Result<()> {
        self.without_skb_defer.take().map_or(Ok(()), switch_on)
    }

    /// The time that the kernel worked for the server outside of its threads so far, in
    /// nanoseconds.
    pub(super) fn softirq_ns(&self) -> u64 {
        let queue = self.lab.napi_threads().iter().map(|thread| thread.pid);
        queue
            .chain(self.ksoftirqd.iter().copied())
            .filter_map(|pid| sched::schedstat(pid, pid).ok())
            .map(|stat| stat.run_ns)
            .sum()
    }
}

fn switch_on(off: Applied) -> Result<()> {
    let outcomes = off.undo();
    let bad = outcomes.iter().filter(|outcome| !outcome.clean());
    let bad: Vec<String> = bad.map(UndoneStep::to_string).collect();
    ensure!(
        bad.is_empty(),
        "--skb-defer: {}; `mpps undo` tries again what was not undone",
        bad.join("; ")
    );
    Ok(())
}

/// The threads that soft interrupts of these CPUs go to when there are too many (kernel/softirq.c).
fn ksoftirqd(cpus: &[usize]) -> Vec<u32> {
    let names: Vec<String> = cpus.iter().map(|cpu| format!("ksoftirqd/{cpu}")).collect();
    let mut threads = numbers("/proc");
    threads.retain(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| names.iter().any(|name| name == comm.trim()))
    });
    threads
}
