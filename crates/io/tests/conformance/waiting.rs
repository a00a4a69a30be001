//! Waiting, stopping, sharing, and opening again and again.

use super::pair::{
    PATIENCE, Pair, datagrams, number, open_descriptors, receive, send_numbers, within_patience,
};
use super::sharing::take_until;
use mpps_io::{Inspect, RxTask, RxWorker, Stop, Wait, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

scenarios! {
    Receivers []:
        nothing_there_is_an_empty_batch,
        every_way_of_waiting_finds_what_is_there,
        every_way_of_waiting_finds_what_comes_later,
        a_waiting_worker_stops;
    Receivers ["receiving socket"]:
        sharers_divide_the_packets,
        sharers_wait_each_for_its_own_time,
        a_taken_address_is_refused;
    Receivers ["rx reuse_port"]: a_group_divides_the_flows;
    Pairs []:
        an_address_is_free_again_after_use,
        no_descriptor_is_left_open;
}

/// The shortest times possible, zero among them, which must not mean "no limit".
const SHORT: [Wait; 12] = [
    Wait::Poll,
    Wait::Block(Duration::ZERO),
    Wait::Block(Duration::from_nanos(1)),
    Wait::Block(Duration::from_millis(1)),
    Wait::Auto(Duration::ZERO),
    Wait::Auto(Duration::from_nanos(1)),
    Wait::Auto(Duration::from_millis(1)),
    Wait::Spin(Duration::ZERO),
    Wait::Spin(Duration::from_millis(1)),
    Wait::Epoll(Duration::ZERO),
    Wait::Epoll(Duration::from_nanos(1)),
    Wait::Epoll(Duration::from_millis(1)),
];

fn nothing_there_is_an_empty_batch(pair: &Pair) {
    let mut rx = pair.open_rx(&pair.rx_config());
    let counters = within_patience("an empty receiver", move || {
        for wait in SHORT {
            let batch = rx.recv(wait).expect("nothing there is no error");
            assert!(batch.is_empty(), "{wait:?}");
            assert_eq!((batch.len(), batch.datagrams()), (0, 0));
            assert_eq!(batch.packets().count(), 0);
        }
        rx.counters()
    });
    assert_eq!((counters.calls, counters.datagrams), (0, 0));
}

fn every_way_of_waiting_finds_what_is_there(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    let layer = rx.caps().layer;
    for (number, wait) in SHORT.into_iter().enumerate() {
        send_numbers(&mut *tx, 0, number as u64, 1);
        let mut looks = 0;
        // Loopback delivers before the send returns, or a moment later in a kernel thread.
        let found = loop {
            let batch = rx.recv(wait).expect("receiving works");
            if let Some(packet) = datagrams(layer, &batch).next() {
                break super::pair::number(packet.data);
            }
            looks += 1;
            assert!(looks < 1_000_000, "{wait:?} finds nothing");
            thread::yield_now();
        };
        assert_eq!(found, number as u64, "{wait:?}");
    }
}

fn every_way_of_waiting_finds_what_comes_later(pair: &Pair) {
    // A wait that missed the packet would end only when the test has given up.
    let long = 3 * PATIENCE;
    let waits = [Wait::Block, Wait::Auto, Wait::Spin, Wait::Epoll].map(|wait| wait(long));
    for wait in waits {
        let (mut rx, mut tx) = pair.open();
        let waiting = thread::spawn(move || {
            let layer = rx.caps().layer;
            let batch = rx.recv(wait).expect("receiving works");
            let mut numbers = datagrams(layer, &batch).map(|packet| number(packet.data));
            numbers.next()
        });
        thread::sleep(Duration::from_millis(20));
        send_numbers(&mut *tx, 0, 42, 1);
        let came = within_patience(&format!("{wait:?}"), move || waiting.join());
        let came = came.expect("the receiver did not panic");
        assert_eq!(came, Some(42), "{wait:?}");
    }
}

fn a_waiting_worker_stops(pair: &Pair) {
    let for_ever = Duration::from_secs(1 << 20);
    let waits = [
        Wait::Poll,
        Wait::Block(for_ever),
        Wait::Auto(for_ever),
        Wait::Spin(for_ever),
        Wait::Epoll(for_ever),
    ];
    for wait in waits {
        let stop = Stop::new();
        let worker = RxWorker::spawn(RxTask {
            rx: pair.open_rx(&pair.rx_config()),
            cpu: None,
            wait,
            inspect: Inspect::Never,
            work: Work::None,
            limit: None,
            stop: stop.clone(),
        });
        let worker = worker.expect("a thread can be had");
        thread::sleep(Duration::from_millis(20));
        assert!(!worker.is_finished(), "{wait:?}: it ended unasked");
        stop.stop();
        let report = within_patience("a stopped worker", move || worker.join());
        assert!(report.error.is_none(), "{:?}", report.error);
        assert_eq!((report.counters.datagrams, report.first_ns), (0, 0));
    }
}

fn sharers_divide_the_packets(pair: &Pair) {
    const DATAGRAMS: u64 = 20_000;
    let mut config = pair.rx_config();
    config.batch = 8;
    let first = pair.open_rx(&config);
    let second = first.share().expect("a receiver can be shared");
    assert_eq!(first.caps(), second.caps());
    let mut tx = pair.open_tx(&pair.tx_config(first.caps().local_address));
    let taken = Arc::new(AtomicU64::new(0));
    let threads = [first, second].map(|rx| {
        let taken = Arc::clone(&taken);
        thread::spawn(move || take_until(rx, &taken, DATAGRAMS))
    });
    // In turns of what the buffer holds, so that nothing is dropped.
    for from in (0..DATAGRAMS).step_by(1000) {
        send_numbers(&mut *tx, 0, from, 1000);
        while taken.load(Ordering::Acquire) < from + 1000 {
            let alive = threads.iter().any(|thread| !thread.is_finished());
            assert!(alive, "the receivers gave up");
            thread::yield_now();
        }
    }
    let mut seen = BTreeSet::new();
    let mut received = 0;
    for thread in threads {
        let (numbers, counted, _) = thread.join().expect("the receiver did not panic");
        assert_eq!(numbers.len() as u64, counted, "each counts its own");
        received += counted;
        for number in numbers {
            assert!(seen.insert(number), "{number} went to both");
        }
    }
    assert_eq!((received, seen.len() as u64), (DATAGRAMS, DATAGRAMS));
}

/// One of them waiting long must not make the other wait as long.
fn sharers_wait_each_for_its_own_time(pair: &Pair) {
    let mut patient = pair.open_rx(&pair.rx_config());
    let mut hasty = patient.share().expect("a receiver can be shared");
    let mut tx = pair.open_tx(&pair.tx_config(patient.caps().local_address));
    let short = Wait::Block(Duration::from_millis(5));
    // Both have waited before, in case the time is remembered.
    assert!(hasty.recv(short).expect("receiving works").is_empty());
    let waiting = thread::spawn(move || {
        let batch = patient.recv(Wait::Block(3 * PATIENCE));
        batch.expect("receiving works").datagrams()
    });
    thread::sleep(Duration::from_millis(50));
    within_patience("the hasty sharer", move || {
        for _ in 0..3 {
            assert!(hasty.recv(short).expect("receiving works").is_empty());
        }
    });
    send_numbers(&mut *tx, 0, 0, 1);
    let came = within_patience("the patient sharer", move || waiting.join());
    assert_eq!(came.expect("the receiver did not panic"), 1);
}

fn a_group_divides_the_flows(pair: &Pair) {
    const FLOWS: usize = 32;
    const EACH: u64 = 20;
    let mut config = pair.rx_config();
    config.reuse_port = true;
    config.details.source = true;
    let mut first = pair.open_rx(&config);
    config.address = first.caps().local_address;
    let mut second = pair.open_rx(&config);
    let mut sending = pair.tx_config(config.address);
    sending.flows = FLOWS;
    let mut tx = pair.open_tx(&sending);
    for flow in 0..FLOWS {
        send_numbers(&mut *tx, flow, 0, EACH);
    }
    let total = EACH * FLOWS as u64;
    let mut owner: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    let mut came = 0;
    let mut idle = 0;
    while came < total && idle < 1000 {
        idle += 1;
        for (at, rx) in [&mut first, &mut second].into_iter().enumerate() {
            let batch = rx.recv(Wait::Block(Duration::from_millis(5)));
            let batch = batch.expect("receiving works");
            came += batch.datagrams();
            for packet in batch.packets() {
                let source = packet.source().expect("its source was asked for");
                assert_eq!(
                    *owner.entry(source).or_insert(at),
                    at,
                    "{source} went to both"
                );
                idle = 0;
            }
        }
    }
    assert_eq!(came, total);
    assert_eq!(owner.len(), FLOWS);
    // The chance that one socket gets all 32 flows by hash is one in two thousand million.
    assert!(first.counters().datagrams > 0 && second.counters().datagrams > 0);
}

fn a_taken_address_is_refused(pair: &Pair) {
    let rx = pair.open_rx(&pair.rx_config());
    let mut config = pair.rx_config();
    config.address = rx.caps().local_address;
    match pair.try_open_rx(&config) {
        Err(mpps_io::Error::Kernel(error)) => {
            assert_eq!(error.source.kind(), std::io::ErrorKind::AddrInUse);
            let text = error.to_string();
            assert!(text.contains(&config.address.to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

fn an_address_is_free_again_after_use(pair: &Pair) {
    const ROUNDS: u64 = 20;
    let mut config = pair.rx_config();
    for round in 0..ROUNDS {
        let mut rx = pair.open_rx(&config);
        // The first one chooses the port.
        config.address = rx.caps().local_address;
        let mut tx = pair.open_tx(&pair.tx_config(config.address));
        send_numbers(&mut *tx, 0, round, 1);
        pair.expect(&mut *rx, round..round + 1);
        // A datagram left unread must not turn up at the next receiver.
        send_numbers(&mut *tx, 0, 1000, 1);
    }
}

fn no_descriptor_is_left_open(pair: &Pair) {
    let round = || {
        let (rx, mut tx) = pair.open();
        // Rings over a link with one queue have nothing to share, and say so.
        let (mut rx, shared) = pair.share(rx);
        send_numbers(&mut *tx, 0, 0, 1);
        if shared.is_err() {
            receive(&mut *rx, 1, |_| {});
        }
        drop(shared);
        // A refusal half-way must not leave one open either.
        let mut taken = pair.rx_config();
        taken.address = rx.caps().local_address;
        let second = pair.try_open_rx(&taken);
        assert!(second.is_err() || pair.has(&["receiving ring"]));
    };
    // The first round may open what the process keeps for good.
    round();
    let before = open_descriptors();
    (0..20).for_each(|_| round());
    assert_eq!(open_descriptors(), before);
}
