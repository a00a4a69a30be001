//! Trains: cut by the sending kernel, kept whole by a receiver that asks for it, taken apart here.

use super::pair::{PATIENCE, Pair, number, receive_numbers, send_numbers};
use super::place::header_bytes;
use mpps_io::{RxConfig, Wait};
use mpps_os::messages::SendMessages;
use mpps_os::socket::UdpSocket;
use std::net::SocketAddr;
use std::os::fd::AsFd;

scenarios! {
    Pairs ["rx gro", "tx gso_segments", "loopback"]: trains_come_as_their_datagrams;
    Receivers ["rx gro", "loopback"]:
        a_short_last_segment_stays_short,
        a_train_that_does_not_fit_is_cut_and_told;
    Pairs ["tx gso_segments"]: a_receiver_without_gro_gets_the_same_datagrams;
    Pairs ["rx gro"]: single_datagrams_reach_a_receiver_of_trains;
}

const SEGMENTS: u16 = 10;
const BYTES: usize = 100;

fn gro_config(pair: &Pair) -> RxConfig {
    let mut config = pair.rx_config().with_gro();
    config.batch = 8;
    config
}

/// Whole trains and a part of one, in one call and in several.
fn trains_come_as_their_datagrams(pair: &Pair) {
    let mut rx = pair.open_rx(&gro_config(pair));
    assert!(rx.caps().gro);
    let mut config = pair.tx_config(rx.caps().local_address);
    config.payload_bytes = BYTES;
    config.gso_segments = SEGMENTS;
    config.batch = 4;
    let mut tx = pair.open_tx(&config);
    assert_eq!(tx.caps().batch, 4 * usize::from(SEGMENTS));
    let mut next = 0;
    for datagrams in [1, 9, 10, 11, 39, 40, 3] {
        send_numbers(&mut *tx, 0, next, datagrams);
        let expected: Vec<u64> = (next..next + datagrams).collect();
        assert_eq!(receive_numbers(&mut *rx, datagrams), expected);
        next += datagrams;
    }
    let counters = rx.counters();
    assert_eq!((counters.datagrams, counters.dropped), (next, 0));
    assert_eq!(counters.wire_bytes, next * BYTES as u64);
    // Loopback keeps trains whole: 1, 1, 1, 2, 4, 4 and 1.
    assert_eq!(counters.buffers, 14);
    assert_eq!(counters.truncated, 0);
    assert_eq!(tx.counters().accepted, next);
}

/// A train whose last datagram is shorter: `Tx` never sends one, but other programs do.
fn a_short_last_segment_stays_short(pair: &Pair) {
    let mut rx = pair.open_rx(&gro_config(pair));
    for last in [1, 37, BYTES - 1, BYTES] {
        send_train(rx.caps().local_address, 9 * BYTES + last);
        let batch = rx.recv(Wait::Block(PATIENCE)).expect("receiving works");
        assert_eq!((batch.len(), batch.datagrams()), (1, 10));
        let sizes: Vec<usize> = batch.packets().map(|packet| packet.data.len()).collect();
        let mut expected = [BYTES; 10];
        expected[9] = last;
        assert_eq!(sizes, expected);
        let first: Vec<u8> = batch.packets().map(|packet| packet.data[0]).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}

/// Every datagram of a cut train still counts, with its true length.
fn a_train_that_does_not_fit_is_cut_and_told(pair: &Pair) {
    let mut config = gro_config(pair);
    config.buffer_bytes = 4 * BYTES + 50;
    let mut rx = pair.open_rx(&config);
    send_train(rx.caps().local_address, 10 * BYTES);
    let batch = rx.recv(Wait::Block(PATIENCE)).expect("receiving works");
    let sizes: Vec<(usize, usize)> = batch
        .packets()
        .map(|packet| (packet.data.len(), packet.wire_bytes))
        .collect();
    let mut expected = [(0, BYTES); 10];
    expected[..4].fill((BYTES, BYTES));
    expected[4] = (50, BYTES);
    assert_eq!(sizes, expected);
    let counters = rx.counters();
    assert_eq!((counters.datagrams, counters.truncated), (10, 1));
    assert_eq!(counters.wire_bytes, 10 * BYTES as u64);
}

fn a_receiver_without_gro_gets_the_same_datagrams(pair: &Pair) {
    const DATAGRAMS: u64 = 1000;
    let mut rx = pair.open_rx(&pair.rx_config());
    let mut config = pair.tx_config(rx.caps().local_address);
    config.gso_segments = SEGMENTS;
    let mut tx = pair.open_tx(&config);
    for from in (0..DATAGRAMS).step_by(100) {
        send_numbers(&mut *tx, 0, from, 100);
        pair.expect(&mut *rx, from..from + 100);
    }
    let counters = rx.counters();
    assert_eq!(counters.buffers, DATAGRAMS);
    let bytes = 32 + header_bytes(&*rx);
    assert_eq!(counters.wire_bytes, DATAGRAMS * bytes);
}

fn single_datagrams_reach_a_receiver_of_trains(pair: &Pair) {
    const DATAGRAMS: u64 = 100;
    let mut rx = pair.open_rx(&gro_config(pair));
    let mut tx = pair.open_tx(&pair.tx_config(rx.caps().local_address));
    send_numbers(&mut *tx, 0, 0, DATAGRAMS);
    let mut numbers = Vec::new();
    super::pair::receive(&mut *rx, DATAGRAMS, |packet| {
        assert_eq!(packet.data.len(), 32);
        numbers.push(number(packet.data));
    });
    if pair.numbers() {
        let expected: Vec<u64> = (0..DATAGRAMS).collect();
        assert_eq!(numbers, expected);
    }
}

/// Sends one train of `bytes`, cut every [`BYTES`]; the datagrams are filled with their number.
fn send_train(target: SocketAddr, bytes: usize) {
    let socket = UdpSocket::new(&target).expect("a socket can be had");
    socket.set_segment(BYTES as u16).expect("UDP_SEGMENT works");
    let mut messages = SendMessages::new(1, bytes, Some(target));
    for (at, byte) in messages.arena_mut()[..bytes].iter_mut().enumerate() {
        *byte = (at / BYTES) as u8;
    }
    let sent = messages.send(socket.as_fd(), 0..1, true);
    assert_eq!(sent.expect("sending works"), 1);
}
