//! The cost of the interface: `dyn Rx` over the `memory` backend against a loop by hand that takes
//! the same bytes from under a lock. The difference per packet must stay under a nanosecond.
//!
//! `cargo bench -p mpps-io`

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mpps_io::{Rx, RxConfig, Tx, TxConfig, Wait, backend};
use std::hint::black_box;
use std::mem;
use std::sync::Mutex;

/// Packets per measurement: as many as a busy receiver gets in a tenth of a millisecond.
const PACKETS: usize = 1024;
const BYTES: usize = 32;

/// The work of a program on each packet here: it reads its first byte and its length.
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

/// The mailbox of the loop by hand: bytes, and where each packet begins and ends.
type Mailbox = Mutex<(Vec<u8>, Vec<(u32, u32)>)>;

fn post(mailbox: &Mailbox) {
    let mut mailbox = mailbox.lock().expect("no thread panics");
    for _ in 0..PACKETS {
        let from = mailbox.0.len() as u32;
        mailbox.0.extend_from_slice(&[7; BYTES]);
        mailbox.1.push((from, from + BYTES as u32));
    }
}

fn by_hand(mailbox: &Mailbox, (bytes, ends): &mut (Vec<u8>, Vec<(u32, u32)>)) -> u64 {
    bytes.clear();
    ends.clear();
    {
        let mut arrived = mailbox.lock().expect("no thread panics");
        mem::swap(&mut arrived.0, bytes);
        mem::swap(&mut arrived.1, ends);
    }
    let packets = ends
        .iter()
        .map(|(from, to)| &bytes[*from as usize..*to as usize]);
    packets.fold(0, look)
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
    let (mailbox, mut taken) = (Mailbox::default(), Default::default());
    group.bench_function("by hand", |bencher| {
        bencher.iter_batched(
            || post(&mailbox),
            |()| black_box(by_hand(black_box(&mailbox), &mut taken)),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
