//! The descriptor that is readable when packets may be there: its level, and its edges.

use super::pair::{PATIENCE, Pair, send_numbers, within_patience};
use mio::Token;
use mio::unix::SourceFd;
use mpps_io::{Rx, Wait};
use mpps_os::epoll::{Epoll, Events, Interest};
use mpps_os::poll::Waiter;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

scenarios! {
    Receivers []:
        it_is_readable_as_long_as_something_is_left,
        an_edge_comes_after_an_empty_batch;
    Senders []: a_sender_with_room_is_writable;
}

/// Rows whose packets come without the kernel.
const WITHOUT: [&str; 2] = ["memory", "dpdk"];

fn readiness<'a>(pair: &Pair, rx: &'a dyn Rx) -> Option<BorrowedFd<'a>> {
    let readiness = rx.readiness();
    let has_none = WITHOUT.contains(&pair.rx.name);
    assert!(readiness.is_some() || has_none, "{}", pair.rx.name);
    readiness
}

/// Takes all that is there without waiting.
fn drain(rx: &mut dyn Rx) -> u64 {
    let mut came = 0;
    loop {
        let batch = rx.recv(Wait::Poll).expect("receiving works");
        if batch.is_empty() {
            return came;
        }
        came += batch.datagrams();
    }
}

fn it_is_readable_as_long_as_something_is_left(pair: &Pair) {
    let (mut rx, mut tx) = pair.open();
    let mut waiter = Waiter::new();
    drain(&mut *rx);
    let Some(fd) = readiness(pair, &*rx) else {
        return;
    };
    let now = Duration::ZERO;
    assert!(!waiter.poll(fd, now).expect("it can be polled"), "so early");
    send_numbers(&mut *tx, 0, 0, 100);
    let fd = rx.readiness().expect("as before");
    for _ in 0..2 {
        assert!(waiter.poll(fd, PATIENCE).expect("it can be polled"));
    }
    let mut came = 0;
    while came < 100 {
        let fd = rx.readiness().expect("as before");
        assert!(waiter.poll(fd, PATIENCE).expect("it can be polled"));
        came += rx.recv(Wait::Poll).expect("receiving works").datagrams();
    }
    assert_eq!((came, drain(&mut *rx)), (100, 0));
    let fd = rx.readiness().expect("as before");
    assert!(!waiter.poll(fd, now).expect("it can be polled"), "still");
}

fn a_sender_with_room_is_writable(pair: &Pair) {
    let (rx, mut tx) = pair.open();
    let epoll = Epoll::new().expect("a set can be had");
    let Some(fd) = tx.readiness(0) else {
        assert!(
            ["memory", "xdp"].contains(&pair.tx.name),
            "{}",
            pair.tx.name
        );
        return;
    };
    epoll
        .add(fd, 1, Interest::WRITE)
        .expect("it can be watched");
    for round in 0..50 {
        let mut events = Events::new(1);
        epoll
            .wait(&mut events, Some(PATIENCE))
            .expect("it can be waited for");
        assert!(
            events.at(0).is_some_and(|event| event.is_writable()),
            "round {round}"
        );
        send_numbers(&mut *tx, 0, round * 2, 2);
    }
    drop(rx);
}

fn an_edge_comes_after_an_empty_batch(pair: &Pair) {
    const ROUNDS: u64 = 50;
    let (mut rx, mut tx) = pair.open();
    drain(&mut *rx);
    let Some(fd) = readiness(pair, &*rx) else {
        return;
    };
    // mio waits for edges.
    let mut poll = mio::Poll::new().expect("a set can be had");
    let fd = fd.as_raw_fd();
    poll.registry()
        .register(&mut SourceFd(&fd), Token(0), mio::Interest::READABLE)
        .expect("it can be watched");
    let came = within_patience("all edges", move || {
        let mut events = mio::Events::with_capacity(1);
        let mut came = 0;
        for round in 0..ROUNDS {
            send_numbers(&mut *tx, 0, round * 3, 3);
            while came < (round + 1) * 3 {
                poll.poll(&mut events, Some(PATIENCE)).expect("it waits");
                let edges = events.iter().count();
                assert_eq!(edges, 1, "round {round}: no edge after {came}");
                came += drain(&mut *rx);
            }
        }
        came
    });
    assert_eq!(came, ROUNDS * 3);
}
