//! A sender's report of datagrams that it could not send.

use super::pair::{Pair, receive_numbers, send_numbers};
use mpps_io::TxConfig;
use std::io;
use std::net::{SocketAddr, UdpSocket};

scenarios! {
    Senders ["tx connect = false"]: naming_the_peer_in_each_packet_works_too;
    Senders []: sending_nothing_does_nothing;
    Senders ["numbers"]: what_is_not_written_keeps_what_it_had;
    Senders ["sending socket"]: refusals_are_counted_by_their_reason;
}

fn naming_the_peer_in_each_packet_works_too(pair: &Pair) {
    let mut rx = pair.open_rx(&pair.rx_config());
    let mut config = pair.tx_config(rx.caps().local_address);
    config.connect = false;
    let mut tx = pair.open_tx(&config);
    send_numbers(&mut *tx, 0, 0, 200);
    pair.expect(&mut *rx, 0..200);
}

fn sending_nothing_does_nothing(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    assert_eq!(tx.frames(0).count(), 0);
    assert_eq!(tx.send(0, 0).expect("nothing can be sent").offered(), 0);
    assert_eq!(
        (
            tx.counters().accepted,
            tx.counters().refused.values().sum::<u64>()
        ),
        (0, 0)
    );
    assert_eq!(receive_numbers(&mut *rx, 0), [0; 0]);
}

fn what_is_not_written_keeps_what_it_had(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    assert!(
        tx.frames(3)
            .all(|payload| payload.iter().all(|byte| *byte == 0))
    );
    send_numbers(&mut *tx, 0, 7, 3);
    assert_eq!(tx.send(0, 2).expect("sending works").accepted, 2);
    assert_eq!(receive_numbers(&mut *rx, 5), [7, 8, 9, 7, 8]);
}

/// A connected sender gets an error for a port without a listener; everything offered is accounted
/// for.
fn refusals_are_counted_by_their_reason(pair: &Pair) {
    const DATAGRAMS: u64 = 1000;
    if pair.tx.in_process {
        // Inside one process no kernel answers for a port without a receiver.
        let mut tx = pair.open_tx(&pair.tx_config(SocketAddr::new(pair.place.receiver(), 9)));
        assert_eq!(tx.send(0, 10).expect("sending works").refused, 0);
        return;
    }
    let mut tx = pair.open_fast_tx(&TxConfig {
        connect: true,
        ..pair.tx_config(free_address(pair))
    });
    let mut offered = 0;
    while offered < DATAGRAMS {
        let sent = tx.send(0, 50).expect("a refusal is no failure");
        assert!(sent.offered() > 0, "nothing was dealt with");
        offered += sent.offered();
    }
    let counters = tx.counters();
    assert_eq!(
        counters.accepted + counters.refused.values().sum::<u64>(),
        offered
    );
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused).kind();
    let errno = *counters.refused.keys().next().expect("a refusal");
    assert_eq!(io::Error::from_raw_os_error(errno).kind(), refused);
    assert_eq!(counters.refused.len(), 1, "{:?}", counters.refused);
    // Each answer is heard by the send after it, so that about every second one is refused.
    assert!(counters.accepted > 0 && counters.refused.values().sum::<u64>() > 0);
}

/// An address without a listener: it was free a moment ago.
fn free_address(pair: &Pair) -> SocketAddr {
    let address = (pair.place.receiver(), 0);
    let bound = pair.place.at_receiver(|| UdpSocket::bind(address));
    let socket = bound.expect("a port is free");
    socket.local_addr().expect("it has an address")
}
