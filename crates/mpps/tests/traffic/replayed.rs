//! A network that loses some datagrams and brings others again, or late.

use super::{Told, join};
use crate::common::{Ended, Entered, Running, mpps, quiet_namespace, run};
use mpps::udp::traffic::RecvTotal;
use mpps_io::{Stamp, StampKind};
use mpps_os::namespace::NetNamespace;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

const COUNT: u64 = 6_000;
/// Those that are lost, or come late: more than a window of 4096 before the last.
const SOME: std::ops::Range<u64> = 300..1_000;

/// Datagrams of a stamped sender, kept by a socket in between: the first one, and the end markers.
struct Captured {
    namespace: NetNamespace,
    sent: Ended,
    first: Stamp,
    ends: Vec<Vec<u8>>,
}

impl Captured {
    fn new() -> Self {
        let namespace = quiet_namespace();
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let middle = namespace.within(bind);
        let at = middle.local_addr().expect("it has one").to_string();
        let reading = thread::spawn(move || {
            let (mut data, mut ends) = (Vec::new(), Vec::new());
            while ends.len() < 3 {
                let mut payload = vec![0; 64];
                let bytes = middle.recv(&mut payload).expect("a datagram");
                payload.truncate(bytes);
                let stamp = Stamp::read(&payload).expect("a stamp");
                match stamp.kind {
                    StampKind::Data => data.push(stamp),
                    StampKind::End => ends.push(payload),
                }
            }
            (data[0], ends)
        });
        let count = COUNT.to_string();
        let mut command = mpps(&["send", &at, "--json", "--stamp", "--count", &count]);
        command.args(["--rate", "30k"]);
        let sent = namespace.within(|| run(&mut command)).fine();
        let (first, ends) = reading.join().expect("it has read the end");
        Self {
            namespace,
            sent,
            first,
            ends,
        }
    }

    /// Forwards these datagrams in this order, and then the end markers.
    fn forward(&self, order: impl IntoIterator<Item = u64> + Send) -> Told {
        self.forward_to(&[], [order])
    }

    /// Forwards these datagrams, each order from a port of its own, and then the end markers.
    fn forward_to<O: IntoIterator<Item = u64>>(
        &self,
        options: &[&str],
        orders: impl IntoIterator<Item = O> + Send,
    ) -> Told {
        let mut command = mpps(&["recv", "127.0.0.1:0", "--json"]);
        command.args(options);
        let mut receiving = self.namespace.within(|| Running::start(&mut command));
        let at = receiving.address();
        let mut at_once = 0;
        let mut send = |payloads: &mut dyn Iterator<Item = Vec<u8>>| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            for payload in payloads {
                socket.send_to(&payload, &at).expect("it is sent");
                at_once += 1;
                // Less than the smallest buffer holds, from all ports together.
                if at_once % 128 == 0 {
                    until_read(&at);
                }
            }
        };
        let forward = || {
            for order in orders {
                send(&mut order.into_iter().map(|sequence| {
                    let mut payload = vec![0; 32];
                    let first = self.first;
                    Stamp { sequence, ..first }.write(&mut payload);
                    payload
                }));
            }
            send(&mut self.ends.clone().into_iter());
        };
        self.namespace.within(forward);
        join(&self.sent, &receiving.interrupt().fine())
    }
}

/// Waits until the sockets of this address have nothing left to read.
fn until_read(address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let port = format!(":{:04X}", address.port());
    loop {
        let sockets = fs::read_to_string("/proc/thread-self/net/udp").expect("procfs");
        let fields = sockets
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut ours = fields.filter(|fields| fields[1].ends_with(&port));
        if ours.all(|fields| fields[4].ends_with(":00000000")) {
            return;
        }
        thread::yield_now();
    }
}

/// The least and the most that is unaccounted for, and how many came again.
fn decided(told: &Told) -> (i64, i64, u64) {
    let count = |value: &serde_json::Value| value.as_i64().unwrap_or(0);
    let ledger = &told.ledger;
    let most = count(&ledger["unaccounted"]);
    let arrivals = count(&ledger["undecided"]["arrivals"]);
    let duplicates = ledger["duplicates"].as_u64().unwrap_or(0);
    (most - arrivals, most, duplicates)
}

pub(crate) fn what_comes_again_stands_for_nothing_that_was_lost() {
    let captured = Captured::new();
    let others = || (0..COUNT).filter(|index| !SOME.contains(index));
    let lost = (SOME.end - SOME.start) as i64;

    // Nothing wrong; and a network that brings some twice, or very late, and loses none.
    for (order, duplicates) in [
        ((0..COUNT).collect::<Vec<_>>(), 0),
        ((0..COUNT).chain(COUNT - 700..COUNT).collect(), 700),
        ((0..COUNT).chain(SOME).collect(), 700),
        (others().chain(SOME).collect(), 0),
    ] {
        let told = captured.forward(order);
        assert_eq!(decided(&told), (0, 0, duplicates), "{}", told.people);
        told.witnesses_agree();
        assert!(told.has_sequence_witness(), "{}", told.people);
        assert!(!told.people.contains("ndecided"), "{}", told.people);
        let flow = &told.recv.flows[0];
        assert_eq!((flow.lost, flow.duplicates), (0, duplicates), "{flow:?}");
    }

    // As many are lost as come again, at once or very late.
    for again in [COUNT - 700..COUNT, 1_000..1_700] {
        let told = captured.forward(others().chain(again));
        assert_eq!(decided(&told), (lost, lost, 700), "{}", told.people);
        assert!(!told.people.contains("ndecided"), "{}", told.people);
        let flow = &told.recv.flows[0];
        assert_eq!((flow.lost, flow.undecided), (700, Some(0)), "{flow:?}");
    }
}

/// Unicast comes to one socket, also if all of them joined a group: there are no copies.
pub(crate) fn unicast_beside_a_group_has_no_copies() {
    let captured = Captured::new();
    let group = ["--threads", "2", "--reuseport", "--join", "239.1.1.1%lo"];
    let told = captured.forward_to(&group, Some(0..COUNT));
    assert_eq!(decided(&told), (0, 0, 0), "{}", told.people);
    assert_eq!(told.recv.flows[0].lost, 0);
    // 700 are lost. As many come again from many ports, so to the other socket, too.
    let lossy = (0..COUNT).filter(|sequence| !SOME.contains(sequence));
    let lossy: Vec<u64> = lossy.collect();
    let again = lossy[1_000..1_704].chunks(44).map(<[u64]>::to_vec);
    let orders: Vec<Vec<u64>> = [lossy.clone()].into_iter().chain(again).collect();
    let told = captured.forward_to(&group, orders);
    assert_eq!(decided(&told), (700, 700, 704), "{}", told.people);
    assert_eq!(told.recv.flows[0].lost, 700);
}

/// Delays are those of the clocks, or there are none.
pub(crate) fn clocks_that_differ_are_told_and_give_no_delay() {
    // The sender's clock: as the receiver's, 5 s ahead of it, and 5 minutes behind.
    for (ahead_s, is_told) in [(0, false), (5, true), (-300, true)] {
        let mut receiving = Running::start(&mut mpps(&["recv", "127.0.0.1:0", "--json"]));
        let at = receiving.address();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        for sequence in 0..100 {
            let mut payload = [0; 16];
            let stamp = Stamp {
                kind: StampKind::Data,
                sender: 0,
                flow: 0,
                run: 1,
                sequence,
                time_ns: Stamp::now_ns().wrapping_add_signed(ahead_s * 1_000_000_000),
            };
            stamp.write(&mut payload);
            socket.send_to(&payload, &at).expect("it is sent");
        }
        let ended = receiving.interrupt().fine();
        let total = RecvTotal::parse(&ended.out).expect("totals");
        let flow = &total.flows[0];
        assert_eq!(ended.err.contains("clocks"), is_told, "{}", ended.err);
        assert_eq!(flow.delay_us.is_none(), is_told, "{flow:?}");
        // 5 s less the delay itself; 4 min more than a minute.
        let apart_us = flow.clocks_apart_us;
        assert_eq!(apart_us.is_some_and(|us| us > 1e6), is_told, "{flow:?}");
        let delay = flow.delay_us.iter();
        for us in delay.flat_map(|delay| [delay.p50, delay.p99, delay.p999]) {
            assert!(
                us <= flow.delay_us.map_or(0.0, |delay| delay.max),
                "{flow:?}"
            );
        }
    }
}
