//! What the interface costs: `dyn Rx` over the `memory` backend against a loop written by hand over
//! the same bytes. The difference per packet must stay under a nanosecond.
//!
//! `cargo bench -p mpps-io`

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mpps_io::{Rx, RxConfig, Tx, TxConfig, Wait, backend};
use std::hint::black_box;

/// Packets per measurement: as many as a busy receiver gets in a tenth of a millisecond.
const PACKETS: usize = 1024;
const BYTES: usize = 32;

/// What a program does with each packet here: reads its first byte and its length.
fn look(sum: u64, packet: &[u8]) -> u64 {
    sum.wrapping_add(u64::from(packet[0]))
        .wrapping_add(packet.len() as u64)
}

fn through_the_interface(rx: &mut dyn Rx) -> u64 {
    let batch = rx.recv(Wait::Poll).expect("memory does not fail");
    batch
        .packets()
        .fold(0, |sum, packet| look(sum, packet.data))
}

fn by_hand(bytes: &[u8], ends: &[(usize, usize)]) -> u64 {
    ends.iter()
        .fold(0, |sum, (from, to)| look(sum, &bytes[*from..*to]))
}

fn pair() -> (Box<dyn Rx>, Box<dyn Tx>) {
    let memory = backend::find("memory").expect("it is always there");
    let address = "127.0.0.1:0".parse().expect("an address");
    let rx = memory
        .open_rx(&RxConfig::new(address))
        .expect("a free port");
    let tx = memory
        .open_tx(&TxConfig::new(rx.caps().local_address))
        .expect("a receiver");
    (rx, tx)
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("receive from memory");
    group.throughput(Throughput::Elements(PACKETS as u64));
    let (mut rx, mut tx) = pair();
    group.bench_function("dyn Rx", |bencher| {
        bencher.iter_batched(
            || tx.send(0, PACKETS).expect("memory does not fail"),
            |_| black_box(through_the_interface(black_box(&mut *rx))),
            BatchSize::PerIteration,
        );
    });
    let bytes = vec![7_u8; PACKETS * BYTES];
    let ends: Vec<_> = (0..PACKETS)
        .map(|at| (at * BYTES, (at + 1) * BYTES))
        .collect();
    let (_rx, mut other) = pair();
    group.bench_function("by hand", |bencher| {
        bencher.iter_batched(
            // The same work before each measurement, so that the caches are alike.
            || other.send(0, PACKETS).expect("memory does not fail"),
            |_| black_box(by_hand(black_box(&bytes), black_box(&ends))),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
