//! The result of a run of a rung: figures, ledger, limit and path, from the counts of its workers and
//! hosts.

use super::result::{PathTaken, QueueShare, RungCpuBusy, RungResult, ThreadShare};
use super::rung::Rung;
use crate::udp::TakenBy;
use crate::udp::limit::{self, CpuTasks};
use crate::udp::run::UdpRun;
use crate::udp::sender::{LabSender, SEND_BUFFER_BYTES};
use crate::udp::trial::TrialSockets;
use mpps_io::RxReport;
use mpps_lab::{Delivery, Lab};

/// Enters the part of a rung's result that comes from its last run.
pub(super) fn enter(result: &mut RungResult, lab: &Lab, rung: &Rung, run: &UdpRun) {
    let layout = &rung.trial.layout;
    let places = CpuTasks {
        roles: &|cpu| rung.roles(cpu),
        is_unpinned: layout.applications.is_empty(),
        delivery: layout.delivery,
    };
    result.threads = thread_shares(rung, &run.rx);
    result.cpu_busy = cpu_busy(rung, &run.busy);
    result.limited_by = Some(limit::judge(run, &places));
    let is_socket = result.taken_by == TakenBy::Socket;
    result.path = is_socket.then(|| path(lab, rung, run));
}

/// Which way the packets took, by the counter that only that way moves.
fn path(lab: &Lab, rung: &Rung, run: &UdpRun) -> PathTaken {
    let delivery = rung.trial.layout.delivery;
    let interface = lab.receiver().interface();
    let receiver = &run.receiver;
    let queues: Vec<QueueShare> = run
        .queues
        .iter()
        .map(|queue| QueueShare {
            queue: u16::try_from(queue.queue).unwrap_or(u16::MAX),
            packets: u64::try_from(queue.packets).unwrap_or(0),
        })
        .collect();
    let polled: i64 = queues.iter().map(|queue| queue.packets as i64).sum();
    let wakes: i64 = receiver.softnet.iter().map(|row| row.received_rps).sum();
    let busy_polled = run.busy_polled() as i64;
    let from_ring = ("receiver rx_queue_N_xdp_packets", polled);
    let woken = (
        "softnet_stat received_rps (wake-ups by another CPU, host-wide)",
        wakes,
    );
    let (way, (counter, count)) = match delivery {
        _ if rung.trial.path.polls_itself() && busy_polled > 0 => (
            match delivery {
                Delivery::ThreadedNapi => {
                    "veth ring → NAPI, polled by the receiver or by its kernel thread"
                }
                Delivery::SoftInterrupt | Delivery::Rps => {
                    "veth ring → NAPI, polled by the receiver or in soft interrupt"
                }
            },
            (
                "receiver TcpExt.BusyPollRxPackets (polled by the receiver)",
                busy_polled,
            ),
        ),
        Delivery::Rps if !lab.has_rings() => ("veth → RPS → backlog of a CPU", woken),
        _ if !lab.has_rings() => {
            let packets = receiver.link(interface).map_or(0, |link| link.rx_packets);
            let counted = ("receiver rx_packets", packets);
            ("veth → backlog of the sender's CPU", counted)
        }
        Delivery::SoftInterrupt => (
            "veth ring → NAPI in soft interrupt on the sender's CPU",
            from_ring,
        ),
        Delivery::ThreadedNapi if lab.napi_threads().is_empty() => {
            ("veth ring → NAPI in soft interrupt, unplaced", from_ring)
        }
        Delivery::ThreadedNapi => ("veth ring → threaded NAPI", from_ring),
        Delivery::Rps => (
            "veth ring → NAPI on the sender's CPU → RPS → backlog",
            woken,
        ),
    };
    PathTaken {
        name: format!("{way} → IP → UDP → socket"),
        counter: counter.to_owned(),
        count: u64::try_from(count).unwrap_or(0),
        queues,
    }
}

fn cpu_busy(rung: &Rung, busy: &[mpps_host::CpuBusy]) -> Vec<RungCpuBusy> {
    let one = |cpu: &mpps_host::CpuBusy| RungCpuBusy {
        cpu: cpu.cpu,
        busy: cpu.busy,
        softirq: cpu.softirq,
        roles: rung.roles(cpu.cpu),
    };
    busy.iter().map(one).collect()
}

/// Notes on facts that the figures of a run do not show.
pub(super) fn notes(rung: &Rung, run: &UdpRun) -> Vec<String> {
    let mut notes = Vec::new();
    if rung.is_beyond() {
        notes.push(format!("works as: {}", run.mode));
    }
    if rung.trial.path.is_rule() {
        notes.push("no program receives: the rate is what the rule dropped and counted".to_owned());
    }
    if let Some(bytes) = run
        .send_buffer_bytes
        .filter(|bytes| *bytes < SEND_BUFFER_BYTES)
    {
        notes.push(format!(
            "send buffer {bytes} bytes instead of {SEND_BUFFER_BYTES} (net.core.wmem_max): a slow \
             receiver may slow the sender"
        ));
    }
    let blocked: u64 = run.tx.iter().map(|report| report.blocked).sum();
    if blocked > 0 {
        let full = match rung.trial.sender {
            LabSender::Socket { .. } => "the send buffer was full at times",
            LabSender::Generator => "the generator had to wait for pages at times",
        };
        notes.push(format!("{full}: the load was not quite open loop"));
    }
    notes
}

/// The part of the kernel that delivers packets that the receiver does not poll.
pub(super) fn other_than_polled(lab: &Lab) -> &'static str {
    if !lab.has_rings() {
        "the backlog of a CPU, which a socket cannot poll"
    } else if lab.napi_threads().is_empty() {
        "soft interrupts of the sender's CPU"
    } else {
        "the queue's kernel thread"
    }
}

fn thread_shares(rung: &Rung, reports: &[RxReport]) -> Vec<ThreadShare> {
    let shared = matches!(rung.trial.sockets, TrialSockets::Shared(_));
    let share = |(thread, report): (usize, &RxReport)| {
        let received = report.counters.datagrams;
        ThreadShare {
            cpu: report.cpu,
            received,
            socket_drops: (thread == 0 || !shared).then_some(report.counters.dropped),
            packets_per_call: received as f64 / report.counters.calls.max(1) as f64,
            cpu_ns_per_packet: report.cpu_ns as f64 / received.max(1) as f64,
        }
    };
    reports.iter().enumerate().map(share).collect()
}
