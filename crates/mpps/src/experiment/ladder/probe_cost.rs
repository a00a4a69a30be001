//! The cost of the drop probe for one dropped packet.

use crate::measure::samples::median;
use crate::udp::roles::Labs;
use crate::udp::sender::PORT;
use anyhow::Result;
use mpps_host::counters::drop_probe::{DropFilter, DropProbe};
use mpps_io::{Stop, TxConfig, TxTask, TxWorker, backend};
use mpps_lab::{Lab, address};
use mpps_os::sched;
use std::net::SocketAddr;

/// A port without a listener, so that every packet is dropped.
const CLOSED: u16 = PORT + 1;

/// Measures the time of the kernel threads that drop packets for lack of a socket. The probe is on
/// and off in turn. Returns the difference of the medians in nanoseconds per packet. Returns none
/// if no kernel threads serve the queues on CPUs of their own. Their time would include other work
/// then. The sender has this CPU.
pub(super) fn drop_probe_ns(
    labs: &Labs,
    cpu: usize,
    (packets, turns): (u64, usize),
) -> Result<Option<f64>> {
    // A thread beside the sender would be late, and its ring full.
    let threaded = |lab: &&Lab| {
        let mut threads = lab.napi_threads().iter();
        !lab.napi_threads().is_empty() && threads.all(|thread| thread.cpu != Some(cpu))
    };
    let Some(lab) = labs.iter().find(threaded) else {
        return Ok(None);
    };
    let ns_per_drop = || ns_per_drop(lab, cpu, packets);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        without.push(ns_per_drop()?);
        let probe = DropProbe::attach(&DropFilter {
            details_of: None,
            ports: CLOSED..=CLOSED,
        })?;
        with.push(ns_per_drop()?);
        drop(probe);
        if labs.interrupt.came() {
            return Ok(None);
        }
    }
    let medians = median(&with).zip(median(&without));
    Ok(medians.map(|(with, without)| with - without))
}

fn ns_per_drop(lab: &Lab, cpu: usize, packets: u64) -> Result<f64> {
    let target = SocketAddr::new(address::v4(1).into(), CLOSED);
    let config = TxConfig {
        connect: false,
        ..TxConfig::new(target)
    };
    let open = || backend::find("sendmmsg")?.open_tx(&config);
    let tx = lab.sender().run(open)??;
    let run_ns = || -> u64 {
        let threads = lab.napi_threads().iter();
        let stat = |pid| sched::schedstat(pid, pid).unwrap_or_default().run_ns;
        threads.map(|thread| stat(thread.pid)).sum()
    };
    let before = run_ns();
    let worker = TxWorker::spawn(TxTask {
        tx,
        cpu: Some(cpu),
        stamp: None,
        to_group: false,
        end_markers: false,
        // Slow enough for a ring of 256 to take them all.
        rate_pps: Some(400_000.0),
        count: Some(packets),
        duration: None,
        stop: Stop::new(),
    })?;
    let report = worker.join();
    lab.settle()?;
    Ok((run_ns() - before) as f64 / report.offered().max(1) as f64)
}
