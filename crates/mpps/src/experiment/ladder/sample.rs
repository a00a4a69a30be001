//! The result of a run of a rung: figures, ledger, limit and path, from the counts of its workers and
//! hosts.

use super::result::{PathTaken, QueueShare, RungCpuBusy, RungResult, RungSender, ThreadShare};
use super::rung::Rung;
use crate::udp::TakenBy;
use crate::udp::limit::{self, CpuTasks, OUTRUN_MIN};
use crate::udp::run::UdpRun;
use crate::udp::sender::{LabSender, SEND_BUFFER_BYTES, SenderChoice};
use crate::udp::trial::TrialSockets;
use mpps_host::{Ledger, Station};
use mpps_io::RxReport;
use mpps_lab::{Delivery, Lab};

/// Enters the part of a rung's result that comes from its last run.
pub(super) fn enter(result: &mut RungResult, lab: &Lab, rung: &Rung, run: &UdpRun) {
    let layout = &rung.trial.layout;
    let places = CpuTasks {
        roles: &|cpu| rung.roles(cpu),
        layout,
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
            cpu_ns_per_packet: (received > 0).then(|| report.cpu_ns as f64 / received as f64),
        }
    };
    reports.iter().enumerate().map(share).collect()
}

/// Datagrams offered for each one received, over these runs; none if none was received. Datagrams
/// that the sender's host refused were not offered.
pub(super) fn offered_per_received<'a>(
    ledgers: impl IntoIterator<Item = &'a Ledger>,
) -> Option<f64> {
    let (mut sent, mut received) = (0.0, 0.0);
    for ledger in ledgers {
        let refused = ledger.losses.iter();
        let refused = refused.filter(|loss| loss.station == Station::Sender);
        let refused: u64 = refused.map(|loss| loss.count).sum();
        sent += ledger.offered.saturating_sub(refused) as f64;
        received += (ledger.delivered + ledger.queued) as f64;
    }
    (received > 0.0).then(|| sent / received)
}

/// The sender of a rung as in the result, over the repeats with these ledgers.
pub(super) fn rung_sender(
    sender: LabSender,
    why: &str,
    choice: &SenderChoice,
    ledgers: &[Ledger],
) -> RungSender {
    let offered_per_received = offered_per_received(ledgers);
    RungSender {
        name: sender.to_string(),
        backend: sender.backend().to_owned(),
        train: sender.train(),
        why: why.to_owned(),
        usual: sender == choice.sender,
        outran: outran(offered_per_received),
        offered_per_received,
    }
}

/// True if the receiver was the limit; a receiver that gets nothing at all is.
pub(super) fn outran(offered_per_received: Option<f64>) -> bool {
    offered_per_received.is_none_or(|ratio| ratio >= OUTRUN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_senders_own_host_refused_outran_nobody() {
        let mut ledger = Ledger::new(1000, 500, 0);
        assert_eq!(offered_per_received([&ledger]), Some(2.0));
        ledger.lose(mpps_host::Loss::new(
            Station::Sender,
            "refused",
            500,
            "errno",
        ));
        assert_eq!(offered_per_received([&ledger]), Some(1.0));
        assert_eq!(offered_per_received([&Ledger::new(9, 0, 0)]), None);
    }

    #[test]
    fn a_receiver_that_gets_nothing_is_outrun() {
        let ledger = Ledger::new;
        let of = |ledger| outran(offered_per_received([&ledger]));
        assert!(of(ledger(10, 0, 0)) && of(ledger(105, 100, 0)));
        assert!(!of(ledger(100, 96, 0)));
    }
}
