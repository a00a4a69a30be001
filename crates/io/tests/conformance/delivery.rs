//! What was sent is what comes: counts, order, sizes, content, cuts and senders.

use crate::Scenario;
use crate::pair::{Pair, number, receive, receive_numbers, send_numbers};
use mpps_io::Wait;
use std::collections::BTreeMap;

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "every_datagram_comes_once_and_in_order",
        needs: &[],
        run: every_datagram_comes_once_and_in_order,
    },
    Scenario {
        name: "a_flood_is_received_or_counted_as_dropped",
        needs: &[],
        run: a_flood_is_received_or_counted_as_dropped,
    },
    Scenario {
        name: "every_size_comes_whole",
        needs: &[],
        run: every_size_comes_whole,
    },
    Scenario {
        name: "what_is_too_long_is_cut_and_told",
        needs: &[],
        run: what_is_too_long_is_cut_and_told,
    },
    Scenario {
        name: "each_flow_has_its_own_source_and_order",
        needs: &[],
        run: each_flow_has_its_own_source_and_order,
    },
    Scenario {
        name: "sources_are_told_only_if_asked_for",
        needs: &[],
        run: sources_are_told_only_if_asked_for,
    },
    Scenario {
        name: "a_batch_is_never_larger_than_asked",
        needs: &[],
        run: a_batch_is_never_larger_than_asked,
    },
];

/// In turn, so that nothing can overflow: nothing may be missing then.
fn every_datagram_comes_once_and_in_order(pair: &Pair) {
    const DATAGRAMS: u64 = 100_000;
    const TURN: u64 = 500;
    let (mut rx, mut tx) = pair.open();
    for from in (0..DATAGRAMS).step_by(TURN as usize) {
        send_numbers(&mut *tx, 0, from, TURN);
        let numbers = receive_numbers(&mut *rx, TURN);
        let expected: Vec<u64> = (from..from + TURN).collect();
        assert_eq!(numbers, expected);
    }
    let counters = rx.counters();
    assert_eq!((counters.datagrams, counters.dropped), (DATAGRAMS, 0));
    assert_eq!(counters.buffers, DATAGRAMS);
    assert_eq!(counters.wire_bytes, DATAGRAMS * 32);
    assert_eq!(counters.truncated, 0);
    assert_eq!(tx.counters().accepted, DATAGRAMS);
}

/// Nobody reads while it is sent, and the buffer is small: what does not fit must be counted.
fn a_flood_is_received_or_counted_as_dropped(pair: &Pair) {
    const DATAGRAMS: u64 = 100_000;
    let mut config = pair.rx_config();
    config.receive_buffer_bytes = Some(64 << 10);
    let mut rx = pair.open_rx(&config);
    let mut tx = pair.open_tx(&pair.tx_config(rx.caps().local_address));
    send_numbers(&mut *tx, 0, 0, DATAGRAMS);
    let mut next = 0;
    loop {
        let batch = rx.recv(Wait::Poll).expect("receiving works");
        if batch.is_empty() {
            // The kernel may have put the last of them off to a thread of its own.
            let counters = rx.counters();
            if counters.datagrams + counters.dropped >= DATAGRAMS {
                break;
            }
            let batch = rx.recv(Wait::Block(crate::pair::PATIENCE));
            let batch = batch.expect("receiving works");
            assert!(!batch.is_empty(), "unaccounted for: {counters:?}");
            next = in_order(next, &batch);
            continue;
        }
        next = in_order(next, &batch);
    }
    let counters = rx.counters();
    assert_eq!(counters.datagrams + counters.dropped, DATAGRAMS);
    assert!(counters.dropped > 0, "64 KiB cannot hold them");
    assert!(counters.datagrams > 0, "some must fit");
}

/// Checks that numbers rise, gaps allowed, and answers the lowest that may come next.
fn in_order(mut next: u64, batch: &mpps_io::Batch<'_>) -> u64 {
    for packet in batch.packets() {
        let number = number(packet.data);
        assert!(number >= next, "{number} after {next}");
        next = number + 1;
    }
    next
}

/// From nothing over the MTU of Ethernet to the largest datagram that there is.
fn every_size_comes_whole(pair: &Pair) {
    const COPIES: u64 = 5;
    for size in [0, 1, 32, 1471, 1472, 1473, 9000, 65_507] {
        let mut config = pair.rx_config();
        config.buffer_bytes = 65_536;
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
        assert_eq!(counters.wire_bytes, COPIES * size as u64);
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
    config.sources = true;
    let mut rx = pair.open_rx(&config);
    let mut config = pair.tx_config(rx.caps().local_address);
    config.flows = FLOWS;
    config.batch = 7;
    let mut tx = pair.open_tx(&config);
    assert_eq!(tx.caps().flows, FLOWS);
    for from in (0..EACH).step_by(10) {
        for flow in 0..FLOWS {
            send_numbers(&mut *tx, flow, from, 10);
        }
    }
    let mut next = BTreeMap::new();
    receive(&mut *rx, EACH * FLOWS as u64, |packet| {
        let source = packet.source.expect("its source was asked for");
        let next = next.entry(source).or_insert(0);
        assert_eq!(number(packet.data), *next, "of {source}");
        *next += 1;
    });
    let mut expected = tx.caps().local_addresses.clone();
    expected.sort();
    assert_eq!(next.into_keys().collect::<Vec<_>>(), expected);
}

fn sources_are_told_only_if_asked_for(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    send_numbers(&mut *tx, 0, 0, 1);
    receive(&mut *rx, 1, |packet| assert_eq!(packet.source, None));
}

fn a_batch_is_never_larger_than_asked(pair: &Pair) {
    let mut config = pair.rx_config();
    config.batch = 8;
    let mut rx = pair.open_rx(&config);
    let most = rx.caps().batch;
    assert!(most <= 8, "it was granted more than it asked for");
    let mut tx = pair.open_tx(&pair.tx_config(rx.caps().local_address));
    // The sender is held to its own limit as well.
    let asked = tx.caps().batch + 10;
    assert_eq!(tx.frames(asked).count(), tx.caps().batch);
    let sent = tx.send(0, asked).expect("sending works");
    assert_eq!(sent.accepted, tx.caps().batch as u64);
    let (mut came, mut calls) = (0, 0);
    while came < sent.accepted {
        let batch = rx.recv(Wait::Block(crate::pair::PATIENCE));
        let batch = batch.expect("receiving works");
        assert!((1..=most).contains(&batch.len()), "{}", batch.len());
        came += batch.datagrams();
        calls += 1;
    }
    assert_eq!(came, sent.accepted);
    assert_eq!(rx.counters().calls, calls);
}
