//! The lists of packet buffers that a CPU is to free for another one (see [`crate::setting::skb_defer`]).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use mpps_os::{CallError, CallResult, sched};

use crate::facts::cpu::Topology;

/// The longest wait for a byte over loopback, which comes at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets every list get a packet and lose it again, so that its count begins anew unless it is full.
///
/// # Errors
/// A CPU that is kept from this process, or no loopback.
pub(super) fn wake() -> CallResult<()> {
    let topology = Topology::read().map_err(refusal)?;
    // The affinity of the calling thread is not ours to change.
    thread::scope(|scope| {
        let visitor = thread::Builder::new()
            .spawn_scoped(scope, || visits(&topology).iter().try_for_each(Visit::make))
            .map_err(|source| CallError::new("clone", "a thread", source))?;
        let panicked = |_| {
            let source = io::Error::other("the thread panicked");
            Err(CallError::new("send", "127.0.0.1", source))
        };
        visitor.join().unwrap_or_else(panicked)
    })
}

/// The kernel's answer in an error of this crate.
fn refusal(error: crate::HostError) -> CallError {
    match error {
        crate::HostError::Kernel(refusal) => refusal,
        other => {
            let source = io::Error::new(io::ErrorKind::InvalidData, other.to_string());
            CallError::new("read", "the CPUs of this machine", source)
        }
    }
}

/// A list, by who reaches it.
#[derive(Debug, PartialEq, Eq)]
struct Visit {
    /// The CPU whose packets are freed elsewhere.
    owner: usize,
    /// CPUs that can free them, all of one NUMA node.
    others: Vec<usize>,
}

/// One visit for each CPU and NUMA node, because there is a list for each (before Linux 6.18, for
/// each CPU). If a node has no CPU except the owner, no CPU puts anything on the list.
fn visits(topology: &Topology) -> Vec<Visit> {
    let mut visits = Vec::new();
    for owner in topology.cpus.iter().map(|cpu| cpu.id) {
        for node in topology.nodes() {
            let others = topology.cpus.iter();
            let others = others.filter(|other| other.node == node && other.id != owner);
            let others: Vec<usize> = others.map(|other| other.id).collect();
            if !others.is_empty() {
                visits.push(Visit { owner, others });
            }
        }
    }
    visits
}

impl Visit {
    /// Sends a byte from one CPU to another over loopback, twice. The first one's packet gets on
    /// the list; what the second one sets off on the sending CPU clears it (`net_rx_action` in
    /// net/core/dev.c).
    fn make(&self) -> CallResult<()> {
        // The list of a CPU that a cpuset keeps from us may be full of others' packets.
        pin(self.owner)?;
        let other = first_usable(&self.others, pin)?;
        let failed = |call| move |source: io::Error| CallError::new(call, "127.0.0.1", source);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("bind"))?;
        let address = listener.local_addr().map_err(failed("getsockname"))?;
        let mut from = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed("connect"))?;
        let (mut to, _) = listener.accept().map_err(failed("accept"))?;
        from.set_nodelay(true).map_err(failed("setsockopt"))?;
        to.set_read_timeout(Some(PATIENCE))
            .map_err(failed("setsockopt"))?;
        for _ in 0..2 {
            pin(self.owner)?;
            from.write_all(b"x").map_err(failed("send"))?;
            pin(other)?;
            to.read_exact(&mut [0]).map_err(failed("recv"))?;
        }
        Ok(())
    }
}

/// Confines this thread to a CPU.
fn pin(cpu: usize) -> CallResult<()> {
    sched::pin_current(&[cpu])
        .map_err(|error| CallError::new(error.call, format!("CPU {cpu}"), error.source))
}

/// Returns the first of these CPUs that this thread can be confined to. The error is that of the
/// last CPU.
fn first_usable(cpus: &[usize], pin: impl Fn(usize) -> CallResult<()>) -> CallResult<usize> {
    let mut refused = CallError::new(
        "sched_setaffinity",
        "no CPU",
        io::ErrorKind::NotFound.into(),
    );
    for &cpu in cpus {
        match pin(cpu) {
            Ok(()) => return Ok(cpu),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn every_list_is_visited_by_any_cpu_of_its_node() {
        let text = include_str!("../../tests/fixtures/cpu-2x6-ht.tree");
        let topology = Topology::read_from(&fixture::tree(text).root).expect("a whole tree");
        let visits = visits(&topology);
        assert_eq!(visits.len(), 24 * 2);
        let of_cpu_0: Vec<&[usize]> = visits
            .iter()
            .filter(|visit| visit.owner == 0)
            .map(|visit| &*visit.others)
            .collect();
        let nodes = topology.nodes();
        let on = |node: usize| {
            let cpus = topology.cpus.iter().filter(move |cpu| cpu.node == node);
            cpus.map(|cpu| cpu.id)
                .filter(|id| *id != 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(of_cpu_0, [on(nodes[0]), on(nodes[1])]);
    }

    #[test]
    fn one_cpu_has_no_list_to_visit() {
        let text = include_str!("../../tests/fixtures/cpu-1.tree");
        let topology = Topology::read_from(&fixture::tree(text).root).expect("a whole tree");
        assert!(visits(&topology).is_empty());
    }

    #[test]
    fn a_cpu_that_is_kept_from_us_is_passed_over_and_all_of_them_are_an_error() {
        let pin = |cpu: usize| match cpu {
            6.. => Ok(()),
            _ => {
                let source = io::Error::from_raw_os_error(22);
                Err(CallError::new(
                    "sched_setaffinity",
                    format!("CPU {cpu}"),
                    source,
                ))
            }
        };
        assert_eq!(first_usable(&[4, 5, 6, 7], pin).expect("there is one"), 6);
        let error = first_usable(&[4, 5], pin).expect_err("there is none");
        assert_eq!(error.object, "CPU 5");
    }

    #[test]
    fn packets_go_from_cpu_to_cpu() {
        // Under the machine's own limit this is ordinary traffic, and changes nothing.
        let woken = wake();
        let topology = Topology::read().expect("/proc and /sys are here");
        if let Err(refusal) = woken {
            // Only a cpuset forbids it.
            assert_eq!(refusal.call, "sched_setaffinity", "{refusal}");
            assert!(topology.usable().len() < topology.cpus.len(), "{refusal}");
        }
    }
}
