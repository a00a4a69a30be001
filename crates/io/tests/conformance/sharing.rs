//! Several receivers of one traffic, and receivers of several traffics.

use super::pair::{Pair, datagrams, number, send_numbers};
use super::place::SHARED_QUEUES;
use mpps_io::{Error, Rx, Wait};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

scenarios! {
    Receivers ["receiving ring", "rx ring.interface", "sharers"]: sharers_of_a_link_divide_the_packets;
    Receivers ["receiving ring", "rx ring.interface"]: there_are_as_many_sharers_as_queues_or_more;
    Receivers []: two_ports_are_two_receivers_or_a_refusal;
}

/// A receiver of all addresses of a link with several queues.
fn open_wide(pair: &Pair) -> (Pair, Box<dyn Rx>) {
    let pair = Pair {
        place: pair.place.shared(),
        ..*pair
    };
    let mut config = pair.rx_config();
    let any = match config.address {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    config.address.set_ip(any);
    let lab = pair.place.lab().expect("rings are tried in a lab");
    config.ring.interface = Some(lab.receiver().interface().to_owned());
    let rx = pair.open_rx(&config);
    (pair, rx)
}

/// Datagrams to several addresses, which take all queues: each comes once, to one of the sharers.
fn sharers_of_a_link_divide_the_packets(pair: &Pair) {
    const TARGETS: usize = 4;
    const EACH: u64 = 5000;
    const TURN: u64 = 50;
    // Fewer than any ring holds.
    const AHEAD: u64 = 400;
    const PATIENCE: Duration = Duration::from_secs(10);
    let (pair, first) = open_wide(pair);
    let port = first.caps().local_address.port();
    let (first, second) = pair.share(first);
    let second = second.expect("there is a second queue");
    let taken = Arc::new(AtomicU64::new(0));
    let total = TARGETS as u64 * EACH;
    let threads = [first, second].map(|rx| {
        let taken = Arc::clone(&taken);
        thread::spawn(move || take_until(rx, &taken, total))
    });
    let targets = &pair.place.receivers()[..TARGETS];
    let mut senders: Vec<_> = targets
        .iter()
        .map(|target| pair.open_tx(&pair.tx_config(SocketAddr::new(*target, port))))
        .collect();
    for turn in 0..EACH / TURN {
        for (at, tx) in (0..).zip(&mut senders) {
            send_numbers(&mut **tx, 0, at * EACH + turn * TURN, TURN);
        }
        // A sharer without a CPU must not lose what its ring has no room for.
        let sent = (turn + 1) * TURN * TARGETS as u64;
        let end = Instant::now() + PATIENCE;
        while taken.load(Ordering::Acquire) + AHEAD < sent && Instant::now() < end {
            thread::yield_now();
        }
    }
    let mut seen = BTreeSet::new();
    for thread in threads {
        let (numbers, counted, dropped) = thread.join().expect("the receiver did not panic");
        assert_eq!((numbers.len() as u64, dropped), (counted, 0));
        for number in numbers {
            assert!(seen.insert(number), "{number} came twice");
        }
    }
    assert_eq!(seen.len() as u64, total);
    assert_eq!(seen.last(), Some(&(total - 1)));
}

/// Receives until all sharers together took `enough`; answers the numbers of this one, and what it
/// counted as received and as dropped.
pub(super) fn take_until(
    mut rx: Box<dyn Rx>,
    taken: &AtomicU64,
    enough: u64,
) -> (Vec<u64>, u64, u64) {
    let layer = rx.caps().layer;
    let mut numbers = Vec::new();
    let mut idle = 0;
    while taken.load(Ordering::Acquire) < enough && idle < 1000 {
        let wait = Wait::Block(Duration::from_millis(20));
        let batch = rx.recv(wait).expect("receiving works");
        numbers.extend(datagrams(layer, &batch).map(|packet| number(packet.data)));
        idle = if batch.is_empty() { idle + 1 } else { 0 };
        taken.fetch_add(batch.datagrams(), Ordering::AcqRel);
    }
    let counters = rx.counters();
    (numbers, counters.datagrams, counters.dropped)
}

/// A backend that reads queues has a receiver for each of them, and says so when they are used up.
/// A group of a tap has no such limit, and a library that knows one reader says that.
fn there_are_as_many_sharers_as_queues_or_more(pair: &Pair) {
    let (pair, mut last) = open_wide(pair);
    let mut sharers = Vec::new();
    for at in 1..=SHARED_QUEUES {
        let (rx, shared) = pair.share(last);
        sharers.push(rx);
        match shared {
            Ok(rx) => last = rx,
            Err(Error::Invalid { why, .. }) => {
                assert_eq!(at, SHARED_QUEUES, "refused too early: {why}");
                assert!(why.contains("queue"), "{why}");
                return;
            }
            Err(Error::Unsupported { field, .. }) if !pair.has(&["sharers"]) => {
                assert_eq!(field, "share");
                return;
            }
            Err(error) => panic!("sharer {at}: {error}"),
        }
    }
}

/// A second port at the same interface works beside the first, or is refused by a reason; the first
/// goes on either way.
fn two_ports_are_two_receivers_or_a_refusal(pair: &Pair) {
    let (mut first, mut tx) = pair.open();
    let second = pair.try_open_rx(&pair.rx_config());
    if let Err(error) = &second {
        assert!(pair.has(&["receiving ring"]), "{error}");
        let text = error.to_string();
        assert!(!matches!(error, Error::Unsupported { .. }), "{text}");
    }
    let mut second = second.ok();
    for round in 0..10 {
        send_numbers(&mut *tx, 0, round, 1);
        pair.expect(&mut *first, round..round + 1);
        if let Some(rx) = &mut second {
            let mut tx = pair.open_tx(&pair.tx_config(rx.caps().local_address));
            send_numbers(&mut *tx, 0, round, 1);
            pair.expect(&mut **rx, round..round + 1);
        }
    }
    // The end of the second is not the end of the first.
    drop(second);
    send_numbers(&mut *tx, 0, 99, 1);
    pair.expect(&mut *first, 99..100);
}
