//! The backends that listen at an interface, `packet_mmap` and `pcap`, in the lab: every packet that
//! reached the interface was delivered or counted as dropped, and nothing foreign comes in.

use crate::paced_tx::PacedTx;
use crate::{has_lab, lab};
use mpps_io::{Backend, Fanout, Rx, RxConfig, Tx, TxConfig, Wait, backend, wire};
use mpps_lab::{Lab, LabHost};
use mpps_os::netlink::link::{self, LinkStatistics};
use mpps_trial::{Failed, Need, Trial};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Datagrams of a test that counts them all.
const DATAGRAMS: u64 = 100_000;
/// How long a test waits for what must come; only a failure takes that long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a block of the ring is held back.
const SILENCE: Duration = Duration::from_millis(100);
const PORT: u16 = 4321;

/// A test of a row, in a lab.
type Test = fn(&'static Backend, &Lab);

pub(crate) fn trials() -> Vec<Trial> {
    let of_both = named![Test;
        a_slow_reader_loses_what_is_counted,
        only_the_flow_comes_in,
        nobody_hears_of_a_closed_port,
    ];
    let of_packet_mmap = named![Test;
        members_share_by_hash,
        members_share_by_cpu,
        members_share_by_program,
        a_program_gives_each_member_a_queue,
        what_is_taken_goes_to_nobody_else,
        all_traffic_is_all,
        a_full_device_is_a_refusal,
        a_slot_is_not_used_twice,
    ];
    let mut rows = vec![
        ("packet_mmap", &of_both[..]),
        ("packet_mmap", &of_packet_mmap),
    ];
    // A feature that was not built is no fault of the machine.
    if cfg!(feature = "pcap") {
        rows.push(("pcap", &of_both));
    }
    let rows = rows.into_iter();
    let rows = rows.flat_map(|(row, tests)| tests.iter().map(move |test| (row, *test)));
    rows.map(|(row, (name, test))| of_row(row, name, test))
        .collect()
}

fn of_row(row: &'static str, name: &str, test: Test) -> Trial {
    let run = move || -> Result<(), Failed> {
        test(backend::find(row)?, lab()?);
        Ok(())
    };
    Trial::waits(format!("tap::{row}::{name}"), run).needs(Need::probe(has_lab))
}

/// A reader that is slower than the sender: the ring freezes and thaws.
fn a_slow_reader_loses_what_is_counted(row: &Backend, lab: &Lab) {
    for address in addresses(lab) {
        let mut config = RxConfig::new(address);
        config.batch = 64;
        config.ring.frames = Some(512);
        let mut rx = open_rx(row, lab, &config);
        let before = statistics(lab.sender());
        let mut tx = sender(lab, address);
        let mut delivered = thread::scope(|scope| {
            let sending = scope.spawn(|| send(&mut *tx, DATAGRAMS));
            let mut delivered = 0;
            while rx.counters().dropped == 0 && !sending.is_finished() {
                thread::sleep(Duration::from_millis(2));
            }
            while !sending.is_finished() {
                delivered += rx.recv(Wait::Block(SILENCE)).unwrap().datagrams();
                thread::sleep(Duration::from_millis(2));
            }
            delivered
        });
        lab.settle().unwrap();
        delivered += drain(&mut *rx);
        let dropped = dropped(&*rx);
        assert!(dropped > 0, "the reader was not slow");
        assert_eq!(delivered + dropped, DATAGRAMS - refused(lab, &before));
        assert_eq!(rx.counters().datagrams, delivered);
    }
}

fn members_share_by_hash(row: &Backend, lab: &Lab) {
    share(row, lab, None);
}

fn members_share_by_cpu(row: &Backend, lab: &Lab) {
    share(row, lab, Some(Fanout::Cpu));
}

fn members_share_by_program(row: &Backend, lab: &Lab) {
    share(row, lab, Some(Fanout::Ebpf));
}

/// Each datagram comes to one member.
fn share(row: &Backend, lab: &Lab, fanout: Option<Fanout>) {
    const EACH: u64 = 200;
    for address in addresses(lab) {
        let mut config = RxConfig::new(address);
        config.ring.fanout = fanout;
        // With a block for each packet that is not read yet.
        config.ring.frames = Some(16_384);
        let mut members = vec![open_rx(row, lab, &config)];
        for _ in 0..3 {
            // A member opens a socket of its own, so it must be on the host.
            let joined = lab.receiver().run(|| {
                let next = members[members.len() - 1].share();
                next.map(|next| members.push(next))
            });
            joined.unwrap().unwrap();
        }
        let mut config = TxConfig::new(address);
        config.flows = 64;
        config.send_buffer_bytes = Some(8 << 20);
        let mut tx = PacedTx::new(open_tx("sendmmsg", lab, &config), lab.receiver());
        let mut seen = BTreeSet::new();
        let mut received = vec![0; members.len()];
        let mut take = |wait| {
            for (member, received) in members.iter_mut().zip(&mut received) {
                drain_into(&mut **member, wait, |payload| {
                    assert!(seen.insert(number(payload)), "one came twice");
                    *received += 1;
                });
            }
        };
        for flow in 0..64 {
            numbered(&mut tx, flow, flow as u64 * EACH, EACH);
            take(Wait::Poll);
        }
        lab.settle().unwrap();
        take(Wait::Block(SILENCE));
        members
            .iter()
            .for_each(|member| assert_eq!(dropped(&**member), 0));
        assert_eq!(seen.len() as u64, 64 * EACH, "{received:?}");
        if fanout.is_none() {
            // 64 flows and 4 members: that one gets none is a chance of one in 25 million.
            assert!(received.iter().all(|count| *count > 0), "{received:?}");
        }
    }
}

/// The program of a group chooses by receive queue, which the lab chooses by address.
fn a_program_gives_each_member_a_queue(row: &Backend, lab: &Lab) {
    let mut config = RxConfig::new(SocketAddr::from(([0, 0, 0, 0], PORT)));
    config.ring.interface = Some(lab.receiver().interface().to_owned());
    config.ring.fanout = Some(Fanout::Ebpf);
    let mut members = vec![open_rx(row, lab, &config)];
    let joined = lab.receiver().run(|| {
        let next = members[0].share();
        next.map(|next| members.push(next))
    });
    joined.unwrap().unwrap();
    let mut expected = [0, 0];
    for (count, ip) in (10..).zip(&lab.receiver().v4()[..8]) {
        // Where the lab could not choose, all packets take one queue: nothing to be seen.
        let Some(queue) = lab.queue_of(IpAddr::V4(*ip)) else {
            return;
        };
        send(&mut *sender(lab, SocketAddr::from((*ip, PORT))), count);
        expected[usize::from(queue) % 2] += count;
    }
    lab.settle().unwrap();
    let [first, second] = &mut members[..] else {
        unreachable!("two members");
    };
    assert_eq!([drain(&mut **first), drain(&mut **second)], expected);
}

/// An application on the port gets nothing while the receiver lives, and its packets afterwards;
/// its neighbour gets all of them.
fn what_is_taken_goes_to_nobody_else(row: &Backend, lab: &Lab) {
    for address in addresses(lab) {
        let neighbour = SocketAddr::new(address.ip(), PORT + 1);
        let bind = |address: SocketAddr| {
            let socket = lab.receiver().run(|| UdpSocket::bind(address)).unwrap();
            let socket = socket.unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let (application, neighbour_socket) = (bind(address), bind(neighbour));
        let mut config = RxConfig::new(address);
        config.ring.take = true;
        let mut rx = open_rx(row, lab, &config);
        let summary = rx.caps().mode.summary.clone();
        assert!(summary.contains("taken"), "{summary}");
        assert!(summary.contains("another socket"), "{summary}");

        send(&mut *sender(lab, address), 100);
        send(&mut *sender(lab, neighbour), 100);
        lab.settle().unwrap();
        assert_eq!(drain(&mut *rx), 100);
        assert_eq!((queued(&application), queued(&neighbour_socket)), (0, 100));

        drop(rx);
        send(&mut *sender(lab, address), 100);
        lab.settle().unwrap();
        assert_eq!(queued(&application), 100);
    }
}

/// Neither other ports and addresses nor what the host sends itself.
fn only_the_flow_comes_in(row: &Backend, lab: &Lab) {
    let [v4, _] = addresses(lab);
    let other = SocketAddr::new(IpAddr::V4(lab.receiver().v4()[1]), PORT);
    let mut exact = open_rx(row, lab, &RxConfig::new(v4));
    let mut any = RxConfig::new(SocketAddr::from(([0, 0, 0, 0], PORT + 1)));
    any.ring.interface = Some(lab.receiver().interface().to_owned());
    let mut any = open_rx(row, lab, &any);

    let sockets = |host: &LabHost, port| {
        let socket = host.run(|| UdpSocket::bind(("0.0.0.0", port))).unwrap();
        socket.unwrap()
    };
    let sender = sockets(lab.sender(), PORT + 1);
    for target in [v4, other, SocketAddr::new(v4.ip(), PORT + 1)] {
        for _ in 0..50 {
            sender.send_to(b"in", target).unwrap();
        }
    }
    // From the receiver to the same port of the sender: it leaves by the interface that is listened
    // at.
    let back = SocketAddr::new(IpAddr::V4(lab.sender().v4()[0]), PORT + 1);
    let receiver = sockets(lab.receiver(), 0);
    for _ in 0..50 {
        receiver.send_to(b"out", back).unwrap();
    }
    lab.settle().unwrap();
    assert_eq!(drain(&mut *exact), 50);
    let mut payloads = 0;
    drain_into(&mut *any, Wait::Block(SILENCE), |payload| {
        assert_eq!(payload, b"in");
        payloads += 1;
    });
    assert_eq!(payloads, 50);
}

/// Every frame that arrives, whatever is in it.
fn all_traffic_is_all(row: &Backend, lab: &Lab) {
    let [v4, v6] = addresses(lab);
    let mut config = RxConfig::new(v4);
    config.ring.all_traffic = true;
    let mut rx = open_rx(row, lab, &config);
    for port in [PORT, PORT + 1] {
        for ip in [v4.ip(), v6.ip()] {
            send(&mut *sender(lab, SocketAddr::new(ip, port)), 10);
        }
    }
    lab.settle().unwrap();
    assert!(drain(&mut *rx) >= 40);
}

/// At a port without a listener the kernel would answer with an ICMP message. It would show as an
/// error on the sender's socket.
fn nobody_hears_of_a_closed_port(row: &Backend, lab: &Lab) {
    for address in addresses(lab) {
        let rx = open_rx(row, lab, &RxConfig::new(address));
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = lab.sender().run(|| UdpSocket::bind(any)).unwrap().unwrap();
        socket.connect(address).unwrap();
        for _ in 0..10 {
            socket.send(b"x").unwrap();
            lab.settle().unwrap();
        }
        assert!(socket.take_error().unwrap().is_none());
        drop(rx);
    }
}

/// Frames that the veth's ring cannot take are reported to the sender, one by one, and counted at
/// the interface: both counts are the same.
fn a_full_device_is_a_refusal(row: &Backend, lab: &Lab) {
    for address in addresses(lab) {
        let mut rx = open_rx(row, lab, &RxConfig::new(address));
        let mut config = TxConfig::new(address);
        config.batch = 256;
        let mut tx = open_tx(row.name, lab, &config);
        let before = statistics(lab.sender());
        thread::scope(|scope| {
            let sending = scope.spawn(|| send(&mut *tx, DATAGRAMS));
            while !sending.is_finished() {
                rx.recv(Wait::Block(SILENCE)).unwrap();
            }
        });
        lab.settle().unwrap();
        drain(&mut *rx);
        let counters = tx.counters();
        let lost = refused(lab, &before);
        assert_eq!(counters.refused.values().sum::<u64>(), lost);
        assert_eq!(
            counters.accepted + counters.refused.values().sum::<u64>(),
            DATAGRAMS
        );
        assert_eq!(rx.counters().datagrams + dropped(&*rx), counters.accepted);
    }
}

/// Datagrams that wait in a socket keep their payload, though their slots were filled many times
/// since.
fn a_slot_is_not_used_twice(row: &Backend, lab: &Lab) {
    const COUNT: u64 = 1_000;
    for address in addresses(lab) {
        let mut config = RxConfig::new(address);
        config.receive_buffer_bytes = Some(8 << 20);
        let recvmmsg = backend::find("recvmmsg").unwrap();
        let mut rx = open_rx(recvmmsg, lab, &config);
        let mut config = TxConfig::new(address);
        config.batch = 32;
        config.ring.frames = Some(1);
        let mut tx = PacedTx::new(open_tx(row.name, lab, &config), lab.receiver());
        numbered(&mut tx, 0, 0, COUNT);
        let mut numbers = Vec::new();
        while (numbers.len() as u64) < COUNT {
            let batch = rx.recv(Wait::Block(PATIENCE)).unwrap();
            assert!(!batch.is_empty(), "{} of {COUNT} came", numbers.len());
            numbers.extend(batch.packets().map(|packet| number(packet.data)));
        }
        assert!(numbers.into_iter().eq(0..COUNT));
    }
}

/// The receiver's first address of each version of IP; their packets take queue 0.
fn addresses(lab: &Lab) -> [SocketAddr; 2] {
    let host = lab.receiver();
    [IpAddr::V4(host.v4()[0]), IpAddr::V6(host.v6()[0])].map(|ip| SocketAddr::new(ip, PORT))
}

fn open_rx(row: &Backend, lab: &Lab, config: &RxConfig) -> Box<dyn Rx> {
    let opened = lab.receiver().run(|| row.open_rx(config)).unwrap();
    opened.unwrap_or_else(|error| panic!("{}: {error}", row.name))
}

fn open_tx(name: &str, lab: &Lab, config: &TxConfig) -> Box<dyn Tx> {
    let row = backend::find(name).unwrap();
    let opened = lab.sender().run(|| row.open_tx(config)).unwrap();
    opened.unwrap_or_else(|error| panic!("{}: {error}", row.name))
}

/// A sender that a slow receiver does not slow down.
fn sender(lab: &Lab, target: SocketAddr) -> Box<dyn Tx> {
    let mut config = TxConfig::new(target);
    config.batch = 64;
    config.send_buffer_bytes = Some(64 << 20);
    open_tx("sendmmsg", lab, &config)
}

/// Sends `count` datagrams, refused ones included.
fn send(tx: &mut dyn Tx, count: u64) {
    let mut left = count;
    while left > 0 {
        let want = left.min(tx.caps().batch as u64) as usize;
        left -= tx.send(0, want).unwrap().offered();
    }
}

/// Sends datagrams with the numbers `from..from + count`; all must be taken.
fn numbered(tx: &mut dyn Tx, flow: usize, from: u64, count: u64) {
    let mut at = 0;
    while at < count {
        let want = (count - at).min(tx.caps().batch as u64).min(100) as usize;
        for (number, payload) in (from + at..).zip(tx.frames(want)) {
            payload[..8].copy_from_slice(&number.to_le_bytes());
        }
        let sent = tx.send(flow, want).unwrap();
        assert_eq!(sent.refused, 0, "{:?}", tx.counters());
        at += sent.accepted;
    }
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().expect("a payload with a number"))
}

/// Receives the datagrams that are there, and those that still come.
fn drain(rx: &mut dyn Rx) -> u64 {
    let mut datagrams = 0;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let batch = rx.recv(Wait::Block(SILENCE)).unwrap();
        if batch.is_empty() {
            return datagrams;
        }
        datagrams += batch.datagrams();
        assert!(Instant::now() < deadline, "it never ends");
    }
}

/// The payloads of what is there, and still comes.
fn drain_into(rx: &mut dyn Rx, wait: Wait, mut see: impl FnMut(&[u8])) {
    loop {
        let batch = rx.recv(wait).unwrap();
        if batch.is_empty() {
            return;
        }
        for packet in batch.packets() {
            let datagram = wire::datagram(packet.data).expect("a datagram");
            see(datagram.payload);
        }
    }
}

/// The packets dropped: all views of them agree.
fn dropped(rx: &dyn Rx) -> u64 {
    let dropped = rx.counters().dropped;
    let reasons: u64 = rx.drops().iter().map(|drop| drop.count).sum();
    assert_eq!(reasons, dropped);
    assert_eq!(rx.counters().dropped, dropped, "to look changes it");
    dropped
}

/// Datagrams that wait in a socket, which takes them out.
fn queued(socket: &UdpSocket) -> u64 {
    let mut count = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        count += 1;
    }
    count
}

/// Packets that the link has refused since. All others of the sender arrive; so do a few of its kernel's
/// own, which is why arrivals are not counted: multicast listener reports (RFC 3810).
fn refused(lab: &Lab, before: &LinkStatistics) -> u64 {
    statistics(lab.sender()).tx_dropped - before.tx_dropped
}

fn statistics(host: &LabHost) -> LinkStatistics {
    let read = host.run(|| link::statistics(host.interface_index()));
    read.unwrap().unwrap()
}
