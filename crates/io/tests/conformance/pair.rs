//! A receiving and a sending row, and the few moves that scenarios are made of.

use crate::options;
use mpps_io::{Backend, Packet, Rx, RxConfig, Tx, TxConfig, Wait};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a test waits for what must come, or end; only a failure takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the number that scenarios write into a payload.
pub(crate) const NUMBER_BYTES: usize = 8;

/// Two rows and the address between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) rx: &'static Backend,
    pub(crate) tx: &'static Backend,
    pub(crate) loopback: IpAddr,
}

impl Pair {
    /// A receiver's configuration at a free port, with a buffer that holds a few thousand packets.
    pub(crate) fn rx_config(&self) -> RxConfig {
        let mut config = RxConfig::new(SocketAddr::new(self.loopback, 0));
        config.batch = 64;
        config.receive_buffer_bytes = Some(4 << 20);
        config
    }

    /// A sender's configuration, small batches, kernel-chosen source port.
    pub(crate) fn tx_config(&self, target: SocketAddr) -> TxConfig {
        let mut config = TxConfig::new(target);
        config.source = Some(SocketAddr::new(self.loopback, 0));
        config.batch = 64;
        config.send_buffer_bytes = Some(8 << 20);
        config
    }

    pub(crate) fn open_rx(&self, config: &RxConfig) -> Box<dyn Rx> {
        let opened = self.rx.open_rx(config);
        opened.unwrap_or_else(|error| panic!("{} {config:?}: {error}", self.rx.name))
    }

    pub(crate) fn open_tx(&self, config: &TxConfig) -> Box<dyn Tx> {
        let opened = self.tx.open_tx(config);
        opened.unwrap_or_else(|error| panic!("{} {config:?}: {error}", self.tx.name))
    }

    /// Both ends with their default configuration.
    pub(crate) fn open(&self) -> (Box<dyn Rx>, Box<dyn Tx>) {
        let rx = self.open_rx(&self.rx_config());
        let tx = self.open_tx(&self.tx_config(rx.caps().local_address));
        (rx, tx)
    }

    /// True if neither row refuses one of these options.
    pub(crate) fn honours(&self, needs: &[&str]) -> bool {
        needs.iter().all(|option| {
            !options::refuses(self.rx.name, option) && !options::refuses(self.tx.name, option)
        })
    }

    /// The IP version alone: there are as many addresses as versions.
    fn version(&self) -> &'static str {
        if self.loopback.is_ipv4() { "v4" } else { "v6" }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_to_{}_{}", self.tx.name, self.rx.name, self.version())
    }
}

/// Sends datagrams numbered `from..from + count` as one flow; all must be taken.
pub(crate) fn send_numbers(tx: &mut dyn Tx, flow: usize, from: u64, count: u64) {
    let batch = tx.caps().batch as u64;
    let mut at = 0;
    while at < count {
        let want = (count - at).min(batch) as usize;
        for (number, payload) in (from + at..).zip(tx.frames(want)) {
            write_number(payload, number);
        }
        let sent = tx.send(flow, want).expect("sending works");
        assert_eq!(sent.refused, 0, "{:?}", tx.counters().refused);
        at += sent.accepted;
    }
}

/// Writes a number into a payload that has room for it.
pub(crate) fn write_number(payload: &mut [u8], number: u64) {
    if let Some(room) = payload.first_chunk_mut::<NUMBER_BYTES>() {
        *room = number.to_le_bytes();
    }
}

/// The number in a payload.
pub(crate) fn number(payload: &[u8]) -> u64 {
    let bytes = payload.first_chunk().expect("a payload with a number");
    u64::from_le_bytes(*bytes)
}

/// Receives until `count` datagrams came, and hands each to `see`; then looks that no more comes.
pub(crate) fn receive(rx: &mut dyn Rx, count: u64, mut see: impl FnMut(Packet<'_>)) {
    let mut left = count;
    while left > 0 {
        let batch = rx.recv(Wait::Block(PATIENCE)).expect("receiving works");
        let came = batch.datagrams();
        assert_ne!(came, 0, "{left} of {count} datagrams did not come");
        assert_eq!(batch.packets().count() as u64, came);
        batch.packets().for_each(&mut see);
        left = left.checked_sub(came).expect("no more than were sent");
    }
    let more = rx.recv(Wait::Poll).expect("receiving works");
    assert_eq!(more.datagrams(), 0, "more came than were sent");
}

/// The numbers of the next `count` datagrams, in order of arrival.
pub(crate) fn receive_numbers(rx: &mut dyn Rx, count: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    receive(rx, count, |packet| numbers.push(number(packet.data)));
    numbers
}

/// Runs what must end, in a thread of its own, and fails if it does not.
pub(crate) fn within_patience<R: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, ended) = mpsc::channel();
    // Not joined: the thread of a test that failed may never end.
    thread::spawn(move || done.send(work()));
    match ended.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// How many descriptors this process has open.
pub(crate) fn open_descriptors() -> usize {
    let listed = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    listed.count()
}
