//! The receive ring on the loopback interface, and what it makes of hostile headers.

use super::*;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Longer than anything takes that works.
const LONG: Option<Duration> = Some(Duration::from_secs(30));

struct Fixture {
    receiver: UdpSocket,
    sender: UdpSocket,
}

impl Fixture {
    fn new() -> Self {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        Self { receiver, sender }
    }

    fn ring(&self, count: usize) -> Option<ReceiveRing> {
        // Where io_uring is forbidden there is nothing to test.
        super::super::probe().ok()?;
        Some(ReceiveRing::new(self.receiver.as_fd(), count, 256, Extras::default()).unwrap())
    }

    fn send(&self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.sender.send(&number.to_le_bytes()).unwrap();
        }
    }
}

/// Receives up to `most` and appends their numbers.
fn receive(ring: &mut ReceiveRing, most: usize, wait: Option<Duration>, into: &mut Vec<u32>) {
    let mut found = Vec::new();
    let received = ring.receive(most, wait, |at, _| found.push(at)).unwrap();
    assert_eq!(received, found.len());
    assert!(received <= most);
    into.extend(found.iter().map(|at| {
        assert_eq!((at.bytes, at.wire_bytes, at.segment_bytes), (4, 4, 0));
        let (memory, bytes) = ring.memory();
        assert!(at.offset + 4 <= bytes);
        // SAFETY: four bytes that the last receive reported.
        u32::from_le_bytes(unsafe { memory.add(at.offset).cast().read_unaligned() })
    }));
}

#[test]
fn buffers_run_out_and_nothing_is_lost() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(2));
    fixture.send(0..100);
    let mut numbers = Vec::new();
    while numbers.len() < 100 {
        receive(&mut ring, 64, LONG, &mut numbers);
    }
    assert!(numbers.iter().copied().eq(0..100));
    // Two at a time, and the request made anew each time but the first.
    assert!(ring.rearmed() >= 49, "{}", ring.rearmed());
    receive(&mut ring, 64, None, &mut numbers);
    assert_eq!(numbers.len(), 100);
}

/// As if a wake-up had been lost: the ring takes it that the kernel has its request, and it has none.
#[test]
fn a_request_that_was_forgotten_is_made_again() {
    const SHORT: Option<Duration> = Some(Duration::from_millis(1));
    let fixture = Fixture::new();
    for wait in [SHORT, None] {
        let mut ring = granted!(fixture.ring(8));
        ring.armed = true;
        let mut numbers = Vec::new();
        receive(&mut ring, 4, SHORT, &mut numbers);
        fixture.send(0..3);
        for _ in 0..2 * LOOKS {
            receive(&mut ring, 4, wait, &mut numbers);
            if !numbers.is_empty() {
                break;
            }
        }
        assert_eq!(numbers, [0, 1, 2]);
        fixture.send(3..4);
        receive(&mut ring, 4, LONG, &mut numbers);
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
}

/// A request that the kernel has is ended first, and nothing is lost or returned twice.
#[test]
fn a_request_is_ended_before_it_is_made_again() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(64));
    let mut numbers = Vec::new();
    for round in 0..50 {
        fixture.send(round * 10..round * 10 + 10);
        while numbers.len() < (round as usize + 1) * 10 {
            receive(&mut ring, 7, LONG, &mut numbers);
            ring.restart().unwrap();
        }
    }
    assert!(numbers.iter().copied().eq(0..500));
}

#[test]
fn enough_buffers_never_run_out() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(128));
    let mut numbers = Vec::new();
    for round in 0..200 {
        fixture.send(round * 20..(round + 1) * 20);
        while numbers.len() < (round as usize + 1) * 20 {
            receive(&mut ring, 7, LONG, &mut numbers);
        }
    }
    assert!(numbers.iter().copied().eq(0..4000));
    assert_eq!(ring.rearmed(), 0);
}

#[test]
fn an_empty_datagram_ends_the_request_and_the_next_one_comes_all_the_same() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(8));
    fixture.sender.send(&[]).unwrap();
    fixture.sender.send(&[]).unwrap();
    fixture.send([7]);
    let mut sizes = Vec::new();
    while sizes.len() < 3 {
        ring.receive(8, LONG, |at, _| sizes.push(at.bytes)).unwrap();
    }
    assert_eq!(sizes, [0, 0, 4]);
}

#[test]
fn looking_at_an_empty_ring_costs_no_call() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(8));
    let mut numbers = Vec::new();
    receive(&mut ring, 8, None, &mut numbers);
    let before = ring.calls();
    for _ in 0..100 {
        receive(&mut ring, 8, None, &mut numbers);
    }
    assert_eq!(ring.calls(), before);
    fixture.send([1]);
    // Loopback delivers before the send returns, or a moment later in a kernel thread.
    while numbers.is_empty() {
        receive(&mut ring, 8, None, &mut numbers);
    }
    assert_eq!(numbers, [1]);
}

#[test]
fn a_batch_costs_a_sleeping_receiver_two_calls_at_most() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(256));
    let mut numbers = Vec::new();
    fixture.send([0]);
    receive(&mut ring, 128, LONG, &mut numbers);
    let (before, mut batches) = (ring.calls(), 0);
    for round in 0..100 {
        // More than the kernel receives in a run.
        fixture.send(round * 50..(round + 1) * 50);
        while numbers.len() < (round as usize + 1) * 50 + 1 {
            receive(&mut ring, 128, LONG, &mut numbers);
            batches += 1;
        }
    }
    let calls = ring.calls() - before;
    assert!(calls <= 2 * batches, "{calls} calls, {batches} batches");
}

#[test]
fn another_thread_takes_over_and_nothing_is_lost() {
    let fixture = Fixture::new();
    let mut ring = granted!(fixture.ring(64));
    let mut numbers = Vec::new();
    for round in 0..10 {
        // No more than the socket holds.
        fixture.send(round * 20..(round + 1) * 20);
        // Some are in the socket, some in the ring, some are being read.
        (ring, numbers) = thread::spawn(move || {
            receive(&mut ring, 5, LONG, &mut numbers);
            receive(&mut ring, 5, LONG, &mut numbers);
            (ring, numbers)
        })
        .join()
        .unwrap();
    }
    while numbers.len() < 200 {
        receive(&mut ring, 64, LONG, &mut numbers);
    }
    assert!(numbers.iter().copied().eq(0..200));
}

#[test]
fn two_rings_share_a_socket() {
    let fixture = Fixture::new();
    let (Some(first), Some(second)) = (fixture.ring(64), fixture.ring(64)) else {
        return;
    };
    let taken = AtomicU32::new(0);
    let take = |mut ring: ReceiveRing| {
        let mut numbers = Vec::new();
        let mut idle = 0;
        while taken.load(Ordering::Acquire) < 2000 && idle < 1000 {
            let before = numbers.len();
            let wait = Some(Duration::from_millis(20));
            receive(&mut ring, 16, wait, &mut numbers);
            let came = numbers.len() - before;
            idle = if came == 0 { idle + 1 } else { 0 };
            taken.fetch_add(came as u32, Ordering::AcqRel);
        }
        numbers
    };
    let mut numbers: Vec<u32> = thread::scope(|scope| {
        let threads = [first, second].map(|ring| scope.spawn(|| take(ring)));
        // In turns of what the socket holds, so that it drops nothing.
        for from in (0..2000).step_by(100) {
            fixture.send(from..from + 100);
            while taken.load(Ordering::Acquire) < from + 100 {
                assert!(!threads.iter().all(|thread| thread.is_finished()));
                thread::yield_now();
            }
        }
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..2000), "{}", numbers.len());
}

#[test]
fn a_dropped_ring_lets_go_of_the_socket() {
    for used in [false, true] {
        let fixture = Fixture::new();
        let address = fixture.receiver.local_addr().unwrap();
        let mut ring = granted!(fixture.ring(8));
        if used {
            receive(&mut ring, 8, None, &mut Vec::new());
        }
        drop(ring);
        drop(fixture.receiver);
        let again = UdpSocket::bind(address);
        assert!(again.is_ok(), "used: {used}: {again:?}");
    }
}
