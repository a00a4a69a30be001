//! Fills the account of a run: the only place that does, so that arrival and departure are decided
//! in one way, by what the kernel granted.

use mpps_host::ledger::account::full_buffers;
use mpps_host::{Account, Arrival, Delta, Departure, PacketRoute, RingDrop};
use mpps_io::{Layer, Property, Refusals, RxCaps, RxDrop, RxReport, TxCaps, TxReport};
use std::collections::BTreeMap;

/// How packets reach a receiver.
pub(crate) fn arrival(caps: &RxCaps) -> Arrival {
    match caps.layer {
        Layer::Payload => Arrival::Socket,
        Layer::Frame if caps.mode.is_tap => Arrival::Tap,
        Layer::Frame => Arrival::Xdp {
            in_driver: caps.mode.properties.contains(&Property::Native),
        },
    }
}

/// The name of [`arrival`] in the totals of `recv`.
pub(crate) fn arrival_name(caps: &RxCaps) -> &'static str {
    match arrival(caps) {
        Arrival::Socket => "socket",
        Arrival::Tap => "tap",
        Arrival::Xdp { .. } | Arrival::Rule => "xdp",
    }
}

/// How packets leave a sender.
pub(crate) fn departure(caps: &TxCaps) -> Departure {
    match caps.layer {
        _ if caps.template => Departure::Redirect,
        Layer::Frame => Departure::Frames,
        Layer::Payload => Departure::Socket,
    }
}

/// A sender's counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SenderCounts {
    pub(crate) offered: u64,
    /// The refused ones by the kernel's answer.
    pub(crate) refused: BTreeMap<String, u64>,
    pub(crate) blocked: u64,
    /// True if it handed over trains.
    pub(crate) gso: bool,
    pub(crate) departure: Departure,
    pub(crate) threads: usize,
}

impl SenderCounts {
    /// By these threads, which are alike.
    pub(crate) fn by(threads: &[TxReport], caps: &TxCaps) -> Self {
        Self {
            offered: threads.iter().map(TxReport::offered).sum(),
            refused: refused(threads.iter().map(|report| &report.refused)),
            blocked: threads.iter().map(|report| report.blocked).sum(),
            gso: caps.train > 1,
            departure: departure(caps),
            threads: threads.len(),
        }
    }
}

/// The datagrams that the kernel refused to all threads, by its answer.
pub(crate) fn refused<'a>(threads: impl Iterator<Item = &'a Refusals>) -> BTreeMap<String, u64> {
    let mut refused = BTreeMap::new();
    for (errno, count) in threads.flatten() {
        let answer = std::io::Error::from_raw_os_error(*errno).to_string();
        *refused.entry(answer).or_default() += count;
    }
    refused
}

/// The counts of a receiver or of a rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceiverCounts {
    /// Before it was asked to stop.
    pub(crate) delivered: u64,
    /// After that.
    pub(crate) queued: u64,
    /// Of its sockets or rings, by reason.
    pub(crate) drops: Vec<RingDrop>,
    /// True if trains may have come.
    pub(crate) gro: bool,
    pub(crate) arrival: Arrival,
    /// True if others' datagrams or duplicates came, too.
    pub(crate) has_strangers: bool,
}

impl ReceiverCounts {
    /// Sums these threads, which are alike. If they share one socket, each of them reports its
    /// drops.
    pub(crate) fn by(threads: &[RxReport], caps: &RxCaps, is_shared: bool) -> Self {
        let queued = threads.iter().map(|report| report.queued).sum();
        let datagrams: u64 = threads.iter().map(|report| report.counters.datagrams).sum();
        Self {
            delivered: datagrams - queued,
            queued,
            drops: drops(threads, is_shared),
            gro: caps.gro,
            arrival: arrival(caps),
            has_strangers: false,
        }
    }

    /// By a rule, which counts what it drops.
    pub(crate) fn by_rule(dropped: u64) -> Self {
        Self {
            delivered: dropped,
            arrival: Arrival::Rule,
            ..Self::default()
        }
    }
}

/// Drops at sockets or rings by reason, summed over all threads.
pub(crate) fn drops(threads: &[RxReport], is_shared: bool) -> Vec<RingDrop> {
    let counted = if is_shared { 1 } else { threads.len() };
    let mut totals: Vec<RingDrop> = Vec::new();
    for drop in threads.iter().take(counted).flat_map(|one| &one.drops) {
        match totals.iter_mut().find(|total| total.reason == drop.reason) {
            Some(total) => total.count += drop.count,
            None => totals.push(RingDrop {
                reason: drop.reason.to_owned(),
                source: drop.source.to_owned(),
                count: drop.count,
            }),
        }
    }
    totals
}

/// The reason of what found no room in a socket's buffer.
pub(crate) const BUFFER_FULL: &str = "socket buffer full";
const REFUSED: &str =
    "refused by UDP: bad checksum, no memory, socket filter, cgroup or IPsec policy";

/// The drops of sockets by cause, as far as the host's counters tell: a socket counts all of them in one.
pub(crate) fn caused(drops: Vec<RingDrop>, host: Option<&Delta>) -> Vec<RingDrop> {
    let mut told = Vec::new();
    for drop in drops {
        let Some(host) = host.filter(|_| drop.reason == RxDrop::AT_SOCKET) else {
            told.push(drop);
            continue;
        };
        let full = full_buffers(drop.count, Some(host));
        let row = |reason: &str, count| RingDrop {
            reason: reason.to_owned(),
            source: drop.source.clone(),
            count,
        };
        told.extend([
            row(BUFFER_FULL, full.start),
            row(REFUSED, drop.count - full.end),
            row(RxDrop::AT_SOCKET, full.end - full.start),
        ]);
    }
    told.retain(|drop| drop.count > 0);
    told
}

/// The account of a run on this route, whose sending and receiving hosts counted this.
pub(crate) fn account<'a>(
    sent: SenderCounts,
    received: ReceiverCounts,
    route: PacketRoute<'a>,
    (sender, receiver): (Option<&'a Delta>, Option<&'a Delta>),
) -> Account<'a> {
    let is_socket = received.arrival == Arrival::Socket;
    Account {
        offered: sent.offered,
        refused: sent.refused,
        blocked: sent.blocked,
        one_machine: matches!(
            route,
            PacketRoute::VethRing { .. } | PacketRoute::VethBacklog { .. }
        ),
        gso: sent.gso,
        delivered: received.delivered,
        queued: received.queued,
        copies: 0,
        socket_drops: Some(match is_socket {
            true => received.drops.iter().map(|drop| drop.count).sum(),
            false => 0,
        }),
        gro: received.gro,
        sender,
        receiver,
        route,
        departure: sent.departure,
        senders: sent.threads,
        arrival: received.arrival,
        ring_drops: match is_socket {
            true => Vec::new(),
            false => received.drops,
        },
        reasons: None,
        sequence_lost: None,
        has_strangers: received.has_strangers,
    }
}

/// Datagrams that came, each counted once, by their sequence numbers.
pub(crate) fn distinct(threads: &[RxReport]) -> u64 {
    let flows = threads.iter().flat_map(|report| report.flows.reports());
    flows.map(|(_, flow)| flow.received - flow.duplicates).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_io::{Mode, RxConfig, backend};

    fn caps(layer: Layer, mode: Mode) -> RxCaps {
        let config = RxConfig::new("127.0.0.1:0".parse().unwrap());
        let rx = backend::find("recvmmsg").unwrap().open_rx(&config).unwrap();
        RxCaps {
            queue: None,
            layer,
            mode,
            ..rx.caps().clone()
        }
    }

    #[test]
    fn arrival_is_what_the_kernel_granted() {
        let mode = || Mode::new("");
        let of = |layer, mode| arrival(&caps(layer, mode));
        assert_eq!(of(Layer::Payload, mode()), Arrival::Socket);
        assert_eq!(of(Layer::Frame, mode().tap()), Arrival::Tap);
        let native = mode().with(Property::Native, true);
        for (mode, in_driver) in [(native, true), (mode(), false)] {
            assert_eq!(of(Layer::Frame, mode), Arrival::Xdp { in_driver });
        }
    }

    fn report(dropped: u64) -> RxReport {
        let drop = mpps_io::RxDrop {
            reason: "full",
            source: "counter",
            count: dropped,
        };
        RxReport {
            counters: mpps_io::RxCounters {
                datagrams: 10,
                ..Default::default()
            },
            drops: vec![drop],
            queued: 3,
            first_ns: 0,
            last_ns: 0,
            cpu_ns: 0,
            cpu_wait_ns: 0,
            cpu: None,
            flows: mpps_io::FlowTable::new(),
            error: None,
        }
    }

    #[test]
    fn what_a_socket_refused_found_no_full_buffer() {
        let told = |counters: Option<[i64; 2]>| {
            let host = counters.map(|[errors, full]| {
                let mut host = Delta::default();
                host.snmp.insert("Udp.InErrors".to_owned(), errors);
                host.snmp.insert("Udp.RcvbufErrors".to_owned(), full);
                host
            });
            let drop = RingDrop {
                reason: RxDrop::AT_SOCKET.to_owned(),
                source: String::new(),
                count: 100,
            };
            let told = caused(vec![drop], host.as_ref()).into_iter();
            told.map(|drop| (drop.reason, drop.count))
                .collect::<Vec<_>>()
        };
        let is = |reason: &str, count| (reason.to_owned(), count);
        assert_eq!(told(Some([100, 100])), [is(BUFFER_FULL, 100)]);
        assert_eq!(told(Some([100, 0])), [is(REFUSED, 100)]);
        assert_eq!(
            told(Some([100, 60])),
            [is(BUFFER_FULL, 60), is(REFUSED, 40)]
        );
        // Others' drops are among the counters, or there are none.
        assert_eq!(
            told(Some([150, 80])),
            [
                is(BUFFER_FULL, 30),
                is(REFUSED, 20),
                is(RxDrop::AT_SOCKET, 50)
            ]
        );
        assert_eq!(told(None), [is(RxDrop::AT_SOCKET, 100)]);
    }

    #[test]
    fn drops_are_of_the_socket_or_of_rings_and_those_of_one_socket_count_once() {
        let threads = [report(5), report(7)];
        let entered = |mode: Mode, layer, is_shared| {
            let received = ReceiverCounts::by(&threads, &caps(layer, mode), is_shared);
            let account = account(
                SenderCounts::default(),
                received,
                PacketRoute::Hosts,
                (None, None),
            );
            let rings: u64 = account.ring_drops.iter().map(|drop| drop.count).sum();
            assert_eq!((account.delivered, account.queued), (14, 6));
            (account.socket_drops.unwrap(), rings)
        };
        assert_eq!(entered(Mode::new(""), Layer::Payload, false), (12, 0));
        assert_eq!(entered(Mode::new(""), Layer::Payload, true), (5, 0));
        assert_eq!(entered(Mode::new("").tap(), Layer::Frame, false), (0, 12));
    }
}
