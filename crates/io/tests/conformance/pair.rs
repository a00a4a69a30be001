//! A receiving and a sending row, and the few moves that scenarios are made of.

use super::place::{Place, Version};
use super::{frame, options};
use crate::paced_tx::PacedTx;
use mpps_io::{Backend, Batch, DatagramDetails, Layer, Rx, RxConfig, Tx, TxConfig, Wait};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a test waits for what must come, or end; only a failure takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the number that scenarios write into a payload.
pub(crate) const NUMBER_BYTES: usize = 8;

/// Most datagrams of one send. A queue of the lab holds 256, and IPv6 sends a few by itself.
const SEND_MAX: usize = 250;

/// Two rows and where they meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) rx: &'static Backend,
    pub(crate) tx: &'static Backend,
    pub(crate) place: Place,
}

impl Pair {
    /// A receiver's configuration at a free port, with a buffer that holds a few thousand packets.
    pub(crate) fn rx_config(&self) -> RxConfig {
        let address = SocketAddr::new(self.place.receiver(), self.place.port());
        let mut config = RxConfig::new(address);
        config.batch = 64;
        config.receive_buffer_bytes = self.rx_honours("receive_buffer_bytes").then_some(4 << 20);
        config
    }

    /// The same with as little room as the row can have.
    pub(crate) fn small_rx_config(&self) -> RxConfig {
        let mut config = self.rx_config();
        config.receive_buffer_bytes = self.rx_honours("receive_buffer_bytes").then_some(32 << 10);
        config.ring.frames = self.rx_honours("ring.frames").then_some(64);
        config
    }

    /// A sender's configuration, small batches, kernel-chosen source port.
    pub(crate) fn tx_config(&self, target: SocketAddr) -> TxConfig {
        let mut config = TxConfig::new(target);
        config.source = Some(SocketAddr::new(self.place.sender(), 0));
        config.batch = 64;
        config.send_buffer_bytes = self.tx_honours("send_buffer_bytes").then_some(8 << 20);
        config
    }

    pub(crate) fn open_rx(&self, config: &RxConfig) -> Box<dyn Rx> {
        let opened = self.try_open_rx(config);
        opened.unwrap_or_else(|error| panic!("{} {config:?}: {error}", self.rx.name))
    }

    pub(crate) fn try_open_rx(&self, config: &RxConfig) -> Result<Box<dyn Rx>, mpps_io::Error> {
        self.place.at_receiver(|| self.rx.open_rx(config))
    }

    /// A sender that loses nothing on the way.
    pub(crate) fn open_tx(&self, config: &TxConfig) -> Box<dyn Tx> {
        let tx = self.open_fast_tx(config);
        match self.place.lab() {
            Some(lab) => Box::new(PacedTx::new(tx, lab.receiver())),
            None => tx,
        }
    }

    /// A sender that may outrun the link.
    pub(crate) fn open_fast_tx(&self, config: &TxConfig) -> Box<dyn Tx> {
        let opened = self.place.at_sender(|| self.tx.open_tx(config));
        let tx = opened.unwrap_or_else(|error| panic!("{} {config:?}: {error}", self.tx.name));
        assert_eq!(tx.caps().template, options::is_template(self.tx.name));
        tx
    }

    /// Both ends with their default configuration.
    pub(crate) fn open(&self) -> (Box<dyn Rx>, Box<dyn Tx>) {
        let rx = self.open_rx(&self.rx_config());
        let tx = self.open_tx(&self.tx_config(rx.caps().local_address));
        (rx, tx)
    }

    /// A receiver, and another of the same traffic, which may have to be opened on the same host.
    pub(crate) fn share(
        &self,
        rx: Box<dyn Rx>,
    ) -> (Box<dyn Rx>, Result<Box<dyn Rx>, mpps_io::Error>) {
        self.place.at_receiver(move || {
            let shared = rx.share();
            (rx, shared)
        })
    }

    /// Receives the datagrams with these numbers, in order, and no others. If the sender cannot
    /// number them, only the count is checked.
    pub(crate) fn expect(&self, rx: &mut dyn Rx, numbers: Range<u64>) {
        let count = numbers.end - numbers.start;
        if self.numbers() {
            let expected: Vec<u64> = numbers.collect();
            assert_eq!(receive_numbers(rx, count), expected);
        } else {
            receive(rx, count, |_| {});
        }
    }

    /// True if the sender can write another payload into each datagram.
    pub(crate) fn numbers(&self) -> bool {
        !options::is_template(self.tx.name)
    }

    /// True if the pair has all of this: fields that its rows honour (`rx buffer_bytes`,
    /// `tx gso_segments`), and what the other names say.
    pub(crate) fn has(&self, needs: &[&str]) -> bool {
        needs.iter().all(|need| match need.split_once(' ') {
            Some(("rx", field)) => self.rx_honours(field),
            Some(("tx", field)) => self.tx_honours(field),
            _ => match *need {
                "numbers" => self.numbers(),
                "sharers" => !options::is_alone(self.rx.name),
                "loopback" => self.place.is_loopback(),
                "kernel" => !self.rx.in_process,
                "lab" => !self.place.is_loopback(),
                "receiving socket" => self.rx.layer == Layer::Payload,
                "receiving ring" => self.rx.layer == Layer::Frame,
                "sending socket" => self.tx.layer == Layer::Payload,
                other => panic!("a need without a meaning: {other}"),
            },
        })
    }

    pub(crate) fn rx_honours(&self, field: &str) -> bool {
        self.rx.rx_fields.contains(&field)
    }

    pub(crate) fn tx_honours(&self, field: &str) -> bool {
        self.tx.tx_fields.contains(&field)
    }

    /// The largest payload of a single frame, if frames are what one of the rows knows.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        let headers = match self.place.version() {
            Version::V4 => 28,
            Version::V6 => 48,
        };
        match (self.rx.layer, self.tx.layer) {
            (Layer::Payload, Layer::Payload) => 65_507,
            // The MTU of the lab.
            _ => 1500 - headers,
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Loopback(_) => "",
            Place::Lab(_) => "lab_",
            Place::SharedLab(_) => "shared_lab_",
        };
        let version = match self.place.version() {
            Version::V4 => "v4",
            Version::V6 => "v6",
        };
        write!(f, "{}_to_{}_{place}{version}", self.tx.name, self.rx.name)
    }
}

/// Sends datagrams numbered `from..from + count` as one flow; all must be taken.
pub(crate) fn send_numbers(tx: &mut dyn Tx, flow: usize, from: u64, count: u64) {
    let refused = offer_numbers(tx, flow, from, count);
    assert_eq!(refused, 0, "{:?}", tx.counters().refused);
}

/// The same for a sender that may be refused some; answers how many.
fn offer_numbers(tx: &mut dyn Tx, flow: usize, from: u64, count: u64) -> u64 {
    // A generator's own batch would fill the link at once.
    let batch = tx.caps().batch.min(SEND_MAX);
    offer(tx, flow, from, count, batch)
}

/// The same as fast as the sender can.
pub(crate) fn flood_numbers(tx: &mut dyn Tx, from: u64, count: u64) -> u64 {
    let batch = tx.caps().batch;
    offer(tx, 0, from, count, batch)
}

fn offer(tx: &mut dyn Tx, flow: usize, from: u64, count: u64, batch: usize) -> u64 {
    let (mut at, mut refused) = (0, 0);
    while at < count {
        let want = (count - at).min(batch as u64) as usize;
        for (number, payload) in (from + at..).zip(tx.frames(want)) {
            write_number(payload, number);
        }
        let sent = tx.send(flow, want).expect("sending works");
        at += sent.offered();
        refused += sent.refused;
    }
    refused
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

/// A datagram that came, whatever the layer of its packet.
pub(crate) struct Came<'a> {
    /// Its payload.
    pub(crate) data: &'a [u8],
    pub(crate) wire_bytes: usize,
    /// A frame always has it.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) details: Option<DatagramDetails>,
}

/// The datagrams of a batch, whatever their layer: a frame is opened.
pub(crate) fn datagrams<'a>(
    layer: Layer,
    batch: &Batch<'a>,
) -> impl Iterator<Item = Came<'a>> + use<'a> {
    batch.into_iter().map(move |packet| {
        let data = packet.payload().expect("a datagram");
        let details = packet.details.copied();
        let source = match layer {
            Layer::Payload => packet.source(),
            Layer::Frame => {
                assert!(!packet.is_truncated(), "a cut frame");
                let (source, payload) = frame::datagram(packet.data);
                assert_eq!(data, payload);
                assert!(packet.source().is_none_or(|told| told == source));
                Some(source)
            }
        };
        Came {
            data,
            wire_bytes: packet.payload_bytes().expect("a datagram"),
            source,
            details,
        }
    })
}

/// Receives until `count` datagrams came, and hands each to `see`; then looks that no more comes.
pub(crate) fn receive(rx: &mut dyn Rx, count: u64, mut see: impl FnMut(Came<'_>)) {
    let layer = rx.caps().layer;
    let mut left = count;
    while left > 0 {
        let batch = rx.recv(Wait::Auto(PATIENCE)).expect("receiving works");
        let came = batch.datagrams();
        assert_ne!(came, 0, "{left} of {count} datagrams did not come");
        assert_eq!(batch.packets().count() as u64, came);
        datagrams(layer, &batch).for_each(&mut see);
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
