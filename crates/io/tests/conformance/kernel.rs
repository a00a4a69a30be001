//! A sender's counts are its kernel's counts, in a network namespace where no other program sends.

use mpps_io::{BACKENDS, Backend, Layer, Tx, TxConfig};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial};
use std::net::UdpSocket;

/// The trials of each row that sends through the kernel.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    // Frames pass by the kernel's count of datagrams.
    let senders = BACKENDS
        .iter()
        .filter(|row| row.sends() && !row.in_process && row.layer == Layer::Payload);
    for row in senders {
        let mut tests =
            named![fn(&Backend); agrees_with_the_kernel, agrees_with_the_kernel_when_refused]
                .to_vec();
        if row.tx_fields.contains(&"gso_segments") {
            tests.extend(named![fn(&Backend); agrees_with_the_kernel_on_trains]);
        }
        for (name, run) in tests {
            let test = move || -> Result<(), Failed> { Ok(NetNamespace::new()?.run(|| run(row))?) };
            let name = format!("conformance::{}::{name}", row.name);
            trials.push(Trial::waits(name, test).needs(Need::Namespace));
        }
    }
    trials
}

const DATAGRAMS: u64 = 10_000;

fn agrees_with_the_kernel(row: &Backend) {
    wake_loopback();
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let target = listener.local_addr().expect("it has an address");
    let before = datagrams_out();
    let mut tx = row.open_tx(&TxConfig::new(target)).expect("it opens");
    send(&mut *tx, DATAGRAMS);
    let counters = tx.counters();
    assert_eq!(
        (counters.accepted, counters.refused.values().sum::<u64>()),
        (DATAGRAMS, 0)
    );
    assert_eq!(datagrams_out() - before, DATAGRAMS);
}

/// A refused datagram never reached the kernel's count: the refusal is of an earlier one.
fn agrees_with_the_kernel_when_refused(row: &Backend) {
    wake_loopback();
    let before = datagrams_out();
    let target = "127.0.0.1:4321".parse().expect("an address by the book");
    let mut tx = row.open_tx(&TxConfig::new(target)).expect("it opens");
    send(&mut *tx, DATAGRAMS);
    let counters = tx.counters();
    assert!(counters.refused.values().sum::<u64>() > 0, "nobody listens");
    assert_eq!(
        counters.accepted + counters.refused.values().sum::<u64>(),
        DATAGRAMS
    );
    assert_eq!(datagrams_out() - before, counters.accepted);
}

/// The kernel counts trains, and the sender datagrams.
fn agrees_with_the_kernel_on_trains(row: &Backend) {
    const SEGMENTS: u16 = 16;
    wake_loopback();
    let listener = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let target = listener.local_addr().expect("it has an address");
    let before = datagrams_out();
    let mut config = TxConfig::new(target);
    config.gso_segments = SEGMENTS;
    config.batch = 10;
    let mut tx = row.open_tx(&config).expect("it opens");
    send(&mut *tx, DATAGRAMS);
    assert_eq!(tx.counters().accepted, DATAGRAMS);
    // 10 000 in calls of 160 are 62 calls of 10 trains, and one of 80 datagrams in 5 trains.
    assert_eq!(datagrams_out() - before, 625);
}

fn send(tx: &mut dyn Tx, datagrams: u64) {
    let mut left = datagrams;
    while left > 0 {
        let want = left.min(tx.caps().batch as u64) as usize;
        left -= tx.send(0, want).expect("sending works").offered();
    }
}

/// In a new namespace even the loopback interface sleeps.
pub(super) fn wake_loopback() {
    let index = link::index("lo").expect("every namespace has it");
    link::set_up(index).expect("it can be woken");
}

/// `OutDatagrams` and `SndbufErrors` of this thread's network namespace, /proc/net/snmp of proc(5).
pub(super) fn datagrams_out() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc is mounted");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next(), lines.next());
    let names = names.expect("a line of names").split(' ');
    let values = values.expect("a line of values").split(' ');
    // Those over IPv6 are not there without it.
    let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    let v6 = v6
        .lines()
        .filter_map(|line| line.strip_prefix("Udp6")?.split_once(' '));
    names
        .zip(values)
        .chain(v6)
        .filter(|(name, _)| ["OutDatagrams", "SndbufErrors"].contains(name))
        .map(|(_, value)| value.trim().parse::<u64>().expect("a number"))
        .sum()
}
