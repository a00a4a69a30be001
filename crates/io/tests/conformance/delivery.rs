//! Datagrams come as they were sent: counts, order, sizes, content, cuts and senders.

use super::pair::{PATIENCE, Pair, datagrams, flood_numbers, number, receive, send_numbers};
use super::place::header_bytes;
use mpps_io::{Batch, Layer, Rx, Wait, WantedDetails};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime};

scenarios! {
    Pairs []:
        every_datagram_comes_once_and_in_order,
        a_flood_is_received_or_counted_as_dropped,
        a_batch_is_never_larger_than_asked;
    Pairs ["numbers"]: every_size_comes_whole;
    Receivers ["rx buffer_bytes", "numbers"]: what_is_too_long_is_cut_and_told;
    Pairs ["tx flows"]: each_flow_has_its_own_source_and_order;
    Receivers ["receiving socket"]: details_are_told_only_if_asked_for;
    Receivers ["rx details.source"]: details_are_those_of_the_datagram;
}

/// In turn, so that nothing can overflow: nothing may be missing then.
fn every_datagram_comes_once_and_in_order(pair: &Pair) {
    const TURN: u64 = 500;
    // Each send of a generator sets up its memory anew, which takes it some 30 ms.
    let total = if pair.numbers() { 30_000 } else { 10_000 };
    let (mut rx, mut tx) = pair.open();
    for from in (0..total).step_by(TURN as usize) {
        send_numbers(&mut *tx, 0, from, TURN);
        pair.expect(&mut *rx, from..from + TURN);
    }
    let counters = rx.counters();
    assert_eq!((counters.datagrams, counters.dropped), (total, 0));
    assert_eq!(counters.buffers, total);
    assert_eq!(counters.wire_bytes, total * (32 + header_bytes(&*rx)));
    assert_eq!(counters.truncated, 0);
    assert_eq!(tx.counters().accepted, total);
}

/// No thread reads during the sending, and there is little room. Datagrams that do not fit must be
/// counted, by the receiver or by the link.
fn a_flood_is_received_or_counted_as_dropped(pair: &Pair) {
    const DATAGRAMS: u64 = 100_000;
    let mut rx = pair.open_rx(&pair.small_rx_config());
    let mut tx = pair.open_fast_tx(&pair.tx_config(rx.caps().local_address));
    let before = pair.place.lost_on_link();
    let refused = flood_numbers(&mut *tx, 0, DATAGRAMS);
    pair.place.settle();
    let lost = pair.place.lost_on_link() - before;
    // A ring hears of what the link had no room for, a socket does not; the link counts both.
    assert!(
        refused <= lost,
        "{refused} refused, {lost} lost on the link"
    );
    let deadline = Instant::now() + PATIENCE;
    let mut next = 0;
    loop {
        let wait = Wait::Block(PATIENCE / 1000);
        let layer = rx.caps().layer;
        let batch = rx.recv(wait).expect("receiving works");
        if pair.numbers() {
            next = in_order(next, layer, &batch);
        }
        // The kernel may have put the last of them off to a thread of its own.
        let came = !batch.is_empty();
        if !came && accounted_for(&*rx) + lost >= DATAGRAMS || Instant::now() > deadline {
            break;
        }
    }
    let counters = rx.counters();
    assert_eq!(
        counters.datagrams + counters.dropped + lost,
        DATAGRAMS,
        "{counters:?}, {lost} lost on the link"
    );
    let told: u64 = rx.drops().iter().map(|drop| drop.count).sum();
    assert_eq!(told, counters.dropped, "{:?}", rx.drops());
    assert!(counters.dropped + lost > 0, "there is no room for them");
    assert!(counters.datagrams > 0, "some must fit");
}

fn accounted_for(rx: &dyn Rx) -> u64 {
    let counters = rx.counters();
    counters.datagrams + counters.dropped
}

/// Checks that numbers rise, gaps allowed, and answers the lowest that may come next.
fn in_order(mut next: u64, layer: Layer, batch: &Batch<'_>) -> u64 {
    for packet in datagrams(layer, batch) {
        let number = number(packet.data);
        assert!(number >= next, "{number} after {next}");
        next = number + 1;
    }
    next
}

/// From nothing over the MTU of Ethernet to the largest datagram that there is.
fn every_size_comes_whole(pair: &Pair) {
    const COPIES: u64 = 5;
    let most = pair.payload_bytes_max();
    let sizes = [
        0, 1, 17, 18, 19, 32, 1451, 1452, 1453, 1471, 1472, 1473, 9000, 65_507,
    ];
    for size in sizes.into_iter().filter(|size| *size <= most) {
        let mut config = pair.rx_config();
        if pair.rx_honours("buffer_bytes") {
            config.buffer_bytes = 65_536;
        }
        config.batch = 4;
        let mut rx = pair.open_rx(&config);
        let mut config = pair.tx_config(rx.caps().local_address);
        config.payload_bytes = size;
        config.batch = 2;
        let mut tx = pair.open_tx(&config);
        let payload: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        for _ in 0..COPIES {
            tx.frames(1)
                .for_each(|frame| frame.copy_from_slice(&payload));
            assert_eq!(tx.send(0, 1).expect("sending works").accepted, 1);
        }
        receive(&mut *rx, COPIES, |packet| {
            assert_eq!(packet.wire_bytes, size);
            assert!(packet.data == payload, "{size} bytes came changed");
        });
        let counters = rx.counters();
        assert_eq!(counters.truncated, 0, "{size} bytes");
        let bytes = size as u64 + header_bytes(&*rx);
        assert!(counters.wire_bytes >= COPIES * bytes, "{size} bytes");
    }
}

fn what_is_too_long_is_cut_and_told(pair: &Pair) {
    const ROOM: usize = 100;
    for size in [ROOM - 1, ROOM, ROOM + 1, 1000, 65_507] {
        let mut config = pair.rx_config();
        config.buffer_bytes = ROOM;
        let mut rx = pair.open_rx(&config);
        let mut config = pair.tx_config(rx.caps().local_address);
        config.payload_bytes = size;
        config.batch = 3;
        let mut tx = pair.open_tx(&config);
        for (at, frame) in tx.frames(3).enumerate() {
            frame.fill(at as u8 + 1);
        }
        assert_eq!(tx.send(0, 3).expect("sending works").accepted, 3);
        let mut fill = 1;
        receive(&mut *rx, 3, |packet| {
            assert_eq!(packet.data.len(), size.min(ROOM));
            assert_eq!(packet.wire_bytes, size, "the true length");
            assert!(packet.data.iter().all(|byte| *byte == fill));
            fill += 1;
        });
        let counters = rx.counters();
        assert_eq!(counters.truncated, if size > ROOM { 3 } else { 0 });
        assert_eq!(counters.wire_bytes, 3 * size as u64);
        assert_eq!(counters.datagrams, 3);
    }
}

fn each_flow_has_its_own_source_and_order(pair: &Pair) {
    const FLOWS: usize = 3;
    const EACH: u64 = 300;
    let mut config = pair.rx_config();
    config.details.source = pair.rx_honours("details.source");
    let mut rx = pair.open_rx(&config);
    let mut config = pair.tx_config(rx.caps().local_address);
    config.flows = FLOWS;
    config.batch = 7;
    let mut tx = pair.open_tx(&config);
    // A generator goes through its flows by itself.
    let flows = if pair.numbers() { FLOWS } else { 1 };
    assert_eq!(tx.caps().flows, flows);
    let turn = 10 * (FLOWS / flows) as u64;
    let mut next = BTreeMap::new();
    for turns in 0..EACH / 10 {
        for flow in 0..flows {
            send_numbers(&mut *tx, flow, turns * turn, turn);
        }
        receive(&mut *rx, 10 * FLOWS as u64, |packet| {
            let source = packet.source.expect("its source was asked for");
            let next = next.entry(source).or_insert(0);
            if pair.numbers() {
                assert_eq!(number(packet.data), *next, "of {source}");
            }
            *next += 1;
        });
    }
    let mut expected = tx.caps().local_addresses.clone();
    expected.sort();
    assert!(next.values().all(|count| *count == EACH), "{next:?}");
    assert_eq!(next.into_keys().collect::<Vec<_>>(), expected);
}

fn details_are_told_only_if_asked_for(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    send_numbers(&mut *tx, 0, 0, 1);
    receive(&mut *rx, 1, |came| assert_eq!(came.details, None));
}

/// Each detail that the receiver honours, and no other one.
fn details_are_those_of_the_datagram(pair: &Pair) {
    let mut config = pair.rx_config();
    let wanted = WantedDetails {
        source: pair.rx_honours("details.source"),
        local: pair.rx_honours("details.local"),
        traffic_class: pair.rx_honours("details.traffic_class"),
        hop_limit: pair.rx_honours("details.hop_limit"),
        time: pair.rx_honours("details.time"),
        hardware_time: pair.rx_honours("details.hardware_time"),
        hash: pair.rx_honours("details.hash"),
        vlan: pair.rx_honours("details.vlan"),
    };
    config.details = wanted;
    let mut rx = pair.open_rx(&config);
    let local = rx.caps().local_address;
    let mut tx = pair.open_tx(&pair.tx_config(local));
    let before = SystemTime::now();
    send_numbers(&mut *tx, 0, 0, 3);
    receive(&mut *rx, 3, |came| {
        let details = came.details.unwrap_or_default();
        let source = Some(tx.caps().local_addresses[0]);
        assert_eq!(details.source, source.filter(|_| wanted.source));
        assert_eq!(details.local, Some(local.ip()).filter(|_| wanted.local));
        assert_eq!(details.interface.is_some(), wanted.local);
        assert_eq!(details.ecn(), Some(0).filter(|_| wanted.traffic_class));
        assert_eq!(details.dscp(), Some(0).filter(|_| wanted.traffic_class));
        assert_eq!(details.hop_limit, Some(64).filter(|_| wanted.hop_limit));
        assert_eq!(details.time.is_some(), wanted.time);
        let is_now = |time| (before..=SystemTime::now()).contains(&time);
        assert!(details.time.is_none_or(is_now), "{details:?}");
        // No card is between the two.
        assert_eq!((details.hardware_time, details.vlan), (None, None));
        assert_eq!(details.hash.is_some(), wanted.hash);
    });
}

fn a_batch_is_never_larger_than_asked(pair: &Pair) {
    let mut config = pair.rx_config();
    config.batch = 8;
    let mut rx = pair.open_rx(&config);
    let most = rx.caps().batch;
    assert!(most <= 8, "it was granted more than it asked for");
    let mut tx = pair.open_tx(&pair.tx_config(rx.caps().local_address));
    // The sender is held to its own limit as well; a generator's is more than a link can hold.
    let most_sent = tx.caps().batch;
    let asked = if pair.numbers() { most_sent + 10 } else { 64 };
    let lent = if pair.numbers() { most_sent } else { 1 };
    assert_eq!(tx.frames(asked).count(), lent);
    let sent = tx.send(0, asked).expect("sending works");
    assert_eq!(sent.accepted, asked.min(most_sent) as u64);
    let (mut came, mut calls) = (0, 0);
    while came < sent.accepted {
        let batch = rx.recv(Wait::Block(PATIENCE));
        let batch = batch.expect("receiving works");
        assert!((1..=most).contains(&batch.len()), "{}", batch.len());
        came += batch.datagrams();
        calls += 1;
    }
    assert_eq!(came, sent.accepted);
    assert_eq!(rx.counters().calls, calls);
}
