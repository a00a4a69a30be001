//! Fields that a row does not support are refused before anything is opened, and never ignored.

use super::pair::{Pair, open_descriptors};
use super::place::Version;
use super::{able, is_built, place_of};
use mpps_io::{
    Attach, BACKENDS, Backend, CopyMode, Destination, Error, Fanout, MulticastGroup, OutQueue,
    RingConfig, RxConfig, SocketMap, TransmitClock, TxConfig,
};
use mpps_os::bpf::XskMap;
use mpps_trial::{Trial, trials};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

/// Senders with one payload for all datagrams of a send, by name: a trial must know before it opens
/// one.
const TEMPLATES: &[&str] = &["xdp"];

/// Receivers that can deal packets out to the members of a group by CPU.
const STEERERS: &[&str] = &["recv", "recvmmsg", "io_uring"];

/// Receivers that know no second one of the same traffic.
const ALONE: &[&str] = &["pcap", "dpdk"];

/// Options that a row may honour and this machine not: a right, Linux 6.3, huge pages, a driver's memory, a
/// library, an XDP program that is there, an interface beside. The row then says what is missing.
const UP_TO_THE_MACHINE: &[&str] = &[
    "busy_poll_us",
    "details.hardware_time",
    "details.hash",
    "details.vlan",
    "ring.copy",
    "ring.arguments",
    "ring.hugepages",
    "ring.interface",
    "ring.forward_to",
    "ring.sockets",
];

/// True if a sender has one payload for all datagrams of a send.
pub(crate) fn is_template(backend: &str) -> bool {
    TEMPLATES.contains(&backend)
}

/// True if a receiver cannot be shared.
pub(crate) fn is_alone(backend: &str) -> bool {
    ALONE.contains(&backend)
}

/// The trials that need no pair.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        pure:
            the_lists_of_this_suite_are_of_rows,
            names_are_found_and_others_are_not,
            a_direction_that_is_not_there_is_refused;
        waits: no_row_takes_nonsense;
    ];
    for row in BACKENDS.iter().filter(|row| is_built(row)) {
        let receiving = named![fn(&Pair); receive_options_work_or_are_refused];
        let sending = named![fn(&Pair); send_options_work_or_are_refused];
        let receiving = receiving.into_iter().filter(|_| row.receives());
        let sending = sending.into_iter().filter(|_| row.sends());
        trials.extend(receiving.chain(sending).map(|test| of_row(row, test)));
    }
    trials
}

/// A test of one row where it can be opened, unless this machine cannot run it.
fn of_row(row: &'static Backend, (name, test): (&str, fn(&Pair))) -> Trial {
    let pair = Pair {
        rx: row,
        tx: row,
        place: place_of(row, row, Version::V4),
    };
    let name = format!("conformance::{}::{name}", row.name);
    Trial::waits(name, move || test(&pair)).needs(able(pair))
}

fn the_lists_of_this_suite_are_of_rows() {
    for name in TEMPLATES.iter().chain(STEERERS).chain(ALONE) {
        assert!(BACKENDS.iter().any(|row| row.name == *name), "{name}");
    }
}

fn names_are_found_and_others_are_not() {
    for row in BACKENDS {
        let found = mpps_io::backend::find(row.name).expect("a name of the table");
        assert_eq!(found.name, row.name);
        assert!(row.receives() || row.sends(), "{} does nothing", row.name);
        assert!(!row.summary.is_empty() && !row.needs.is_empty());
    }
    let error = mpps_io::backend::find("recvmmsg2").expect_err("no such name");
    let text = error.to_string();
    assert!(BACKENDS.iter().all(|row| text.contains(row.name)), "{text}");
}

fn a_direction_that_is_not_there_is_refused() {
    for row in BACKENDS {
        if !row.receives() {
            let error = row.open_rx(&RxConfig::new(loopback())).err();
            expect_refusal(row, "receiving", error);
        }
        if !row.sends() {
            let error = row.open_tx(&TxConfig::new(target())).err();
            expect_refusal(row, "sending", error);
        }
    }
}

/// An option's name, and how it is asked for.
type RxOption = (&'static str, fn(&mut RxConfig));

/// Every option of receivers.
const RX_OPTIONS: &[RxOption] = &[
    ("gro", |config| config.gro = true),
    ("busy_poll_us", |config| config.busy_poll_us = Some(20)),
    ("reuse_port", |config| config.reuse_port = true),
    ("groups", |config| config.groups = vec![group_on_loopback()]),
    ("groups.source", |config| {
        config.groups = vec![MulticastGroup {
            source: Some([127, 0, 0, 9].into()),
            ..group_on_loopback()
        }];
    }),
    ("receive_buffer_bytes", |config| {
        config.receive_buffer_bytes = Some(1 << 16);
    }),
    ("buffer_bytes", |config| config.buffer_bytes = 1000),
    ("details.source", |config| config.details.source = true),
    ("details.local", |config| config.details.local = true),
    ("details.traffic_class", |config| {
        config.details.traffic_class = true
    }),
    ("details.hop_limit", |config| {
        config.details.hop_limit = true
    }),
    ("details.time", |config| config.details.time = true),
    ("details.hardware_time", |config| {
        config.details.hardware_time = true
    }),
    ("details.hash", |config| config.details.hash = true),
    ("details.vlan", |config| config.details.vlan = true),
    ("errors", |config| config.errors = true),
    ("transmit_clock", |config| {
        config.transmit_clock = Some(TransmitClock::Monotonic);
    }),
    ("answers", |config| config.answers = true),
];

fn group_on_loopback() -> MulticastGroup {
    MulticastGroup {
        interface: Some("lo".to_owned()),
        ..group("239.255.43.21")
    }
}

/// An option of rings, and how it is asked for.
type RingOption = (&'static str, fn(&mut RingConfig));

/// Every option of rings, in either direction.
const RING_OPTIONS: &[RingOption] = &[
    ("ring.interface", |ring| {
        ring.interface = Some("lo".to_owned())
    }),
    ("ring.queue", |ring| ring.queue = Some(0)),
    ("ring.attach", |ring| ring.attach = Some(Attach::Generic)),
    ("ring.copy", |ring| ring.copy = Some(CopyMode::ZeroCopy)),
    ("ring.frames", |ring| ring.frames = Some(512)),
    ("ring.all_traffic", |ring| ring.all_traffic = true),
    ("ring.destinations", |ring| {
        ring.destinations = vec![loopback().into()];
    }),
    ("ring.sockets", |ring| ring.sockets = socket_map()),
    ("ring.forward_to", |ring| {
        ring.forward_to = Some(OutQueue {
            interface: "lo".to_owned(),
            queue: 0,
        });
    }),
    ("ring.take", |ring| ring.take = true),
    ("ring.fanout", |ring| ring.fanout = Some(Fanout::Hash)),
    ("ring.hugepages", |ring| ring.hugepages = true),
    ("ring.target_mac", |ring| {
        ring.target_mac = Some([2, 0, 0, 0, 0, 1]);
    }),
    ("ring.arguments", |ring| {
        ring.arguments = vec!["--no-telemetry".to_owned()];
    }),
];

/// A map that no program uses; none without the right to make one.
fn socket_map() -> Option<SocketMap> {
    let map = XskMap::create("options", 64).ok()?;
    SocketMap::new(map.as_fd().try_clone_to_owned().ok()?).ok()
}

fn receive_options_work_or_are_refused(pair: &Pair) {
    let row = pair.rx;
    let known: Vec<&str> = RX_OPTIONS.iter().map(|(option, _)| *option).collect();
    expect_known(row.rx_fields, &known);
    // A library may open what the process keeps for good.
    drop(pair.open_rx(&pair.rx_config()));
    for (option, set) in RX_OPTIONS {
        try_rx_option(pair, option, set);
    }
    for (option, set) in RING_OPTIONS {
        try_rx_option(pair, option, |config| set(&mut config.ring));
    }
    let mut config = pair.rx_config();
    let steers = STEERERS.contains(&row.name);
    config.reuse_port = steers;
    let rx = pair.open_rx(&config);
    let error = rx.steer_by_cpu(&[0]).err();
    match error {
        None => assert!(steers, "{} steers unexpectedly", row.name),
        Some(error) if !steers => expect_refusal(row, "steer_by_cpu", Some(error)),
        Some(error) => panic!("{}: {error}", row.name),
    }
}

fn try_rx_option(pair: &Pair, option: &'static str, set: impl Fn(&mut RxConfig)) {
    let address = SocketAddr::new(pair.place.receiver(), pair.place.port());
    let mut config = RxConfig::new(address);
    set(&mut config);
    if !config.asked().contains(&option) {
        return;
    }
    let before = open_descriptors();
    let error = pair.try_open_rx(&config).err();
    expect_answer(pair.rx, option, pair.rx_honours(option), error);
    assert_eq!(open_descriptors(), before, "{} {option}", pair.rx.name);
}

/// An option of senders, and how it is asked for.
type TxOption = (&'static str, fn(&mut TxConfig));

/// Every option of senders.
const TX_OPTIONS: &[TxOption] = &[
    ("gso_segments", |config| config.gso_segments = 2),
    ("send_buffer_bytes", |config| {
        config.send_buffer_bytes = Some(1 << 16);
    }),
    ("connect = false", |config| config.connect = false),
    ("flows", |config| config.flows = 2),
];

fn send_options_work_or_are_refused(pair: &Pair) {
    let known: Vec<&str> = TX_OPTIONS.iter().map(|(option, _)| *option).collect();
    expect_known(pair.tx.tx_fields, &known);
    for (option, set) in TX_OPTIONS {
        try_tx_option(pair, option, set);
    }
    for (option, set) in RING_OPTIONS {
        try_tx_option(pair, option, |config| set(&mut config.ring));
    }
}

fn try_tx_option(pair: &Pair, option: &'static str, set: impl Fn(&mut TxConfig)) {
    let mut config = TxConfig::new(SocketAddr::new(pair.place.receiver(), 9));
    set(&mut config);
    if !config.asked().contains(&option) {
        return;
    }
    // No neighbour answers on another interface, which takes all the time that one may take.
    if let (Some(interface), Some(lab)) = (&mut config.ring.interface, pair.place.lab()) {
        *interface = lab.sender().interface().to_owned();
    }
    let before = open_descriptors();
    let error = pair.place.at_sender(|| pair.tx.open_tx(&config)).err();
    expect_answer(pair.tx, option, pair.tx_honours(option), error);
    assert_eq!(open_descriptors(), before, "{} {option}", pair.tx.name);
}

/// A row honours nothing that this suite would not try.
fn expect_known(honoured: &[&str], known: &[&str]) {
    let rings = RING_OPTIONS.iter().map(|(option, _)| option);
    for option in honoured {
        let is_known = known.contains(option) || rings.clone().any(|ring| ring == option);
        assert!(is_known, "{option} is not tried");
    }
}

/// An honoured option works; another is refused by its name.
fn expect_answer(row: &Backend, option: &'static str, honoured: bool, error: Option<Error>) {
    match error {
        None => assert!(
            honoured,
            "{} takes {option}, and does not list it",
            row.name
        ),
        Some(Error::Unsupported {
            backend,
            field: refused,
        }) => {
            assert!(!honoured, "{} lists {option}, and refuses it", row.name);
            assert_eq!((backend, refused), (row.name, option));
        }
        Some(error) => assert!(
            honoured && UP_TO_THE_MACHINE.contains(&option),
            "{} {option}: {error}",
            row.name
        ),
    }
}

fn no_row_takes_nonsense() {
    let before = open_descriptors();
    for row in BACKENDS {
        for (option, set) in RX_NONSENSE {
            let mut config = RxConfig::new(loopback());
            set(&mut config);
            expect_invalid(row, option, row.open_rx(&config).err());
        }
        for (option, set) in TX_NONSENSE {
            let mut config = TxConfig::new(target());
            set(&mut config);
            expect_invalid(row, option, row.open_tx(&config).err());
        }
    }
    assert_eq!(open_descriptors(), before);
}

/// An option, and a setting of it that no backend takes.
const RX_NONSENSE: &[RxOption] = &[
    ("batch", |config| config.batch = 0),
    ("batch", |config| config.batch = 1025),
    ("buffer_bytes", |config| config.buffer_bytes = 0),
    ("buffer_bytes", |config| config.buffer_bytes = 65_537),
    ("groups", |config| config.groups = vec![group("10.0.0.1")]),
    ("groups", |config| config.groups = vec![group("ff02::1")]),
    ("groups", |config| {
        config.groups = vec![MulticastGroup {
            source: Some([0xfd00, 0, 0, 0, 0, 0, 0, 1].into()),
            ..group("232.1.2.3")
        }];
    }),
    ("ring.destinations", |config| {
        config.ring.destinations = vec![Destination {
            ports: RangeInclusive::new(9, 3),
            ..loopback().into()
        }];
    }),
    ("ring.destinations", |config| {
        config.ring.destinations = vec![loopback().into(); 257];
    }),
];

/// The same for senders.
const TX_NONSENSE: &[TxOption] = &[
    ("batch", |config| config.batch = 0),
    ("batch", |config| config.batch = 1025),
    ("payload_bytes", |config| config.payload_bytes = 65_508),
    ("payload_bytes", |config| {
        config.target = address("[::1]:4321");
        config.payload_bytes = 65_528;
    }),
    ("gso_segments", |config| config.gso_segments = 0),
    ("gso_segments", |config| config.gso_segments = 129),
    ("gso_segments", |config| {
        config.gso_segments = 2;
        config.payload_bytes = 0;
    }),
    ("gso_segments", |config| {
        config.gso_segments = 64;
        config.payload_bytes = 1024;
    }),
    ("flows", |config| config.flows = 0),
    ("flows", |config| config.flows = 65_536),
    ("flows", |config| {
        config.flows = 2;
        config.source = Some(address("0.0.0.0:65535"));
    }),
    ("source", |config| config.source = Some(address("[::]:0"))),
    ("target", |config| config.target = loopback()),
];

fn group(address: &str) -> MulticastGroup {
    MulticastGroup::new(address.parse().expect("an address by the book"))
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address by the book")
}

fn expect_refusal(row: &Backend, what: &str, error: Option<Error>) {
    match error {
        Some(Error::Unsupported { backend, field }) => {
            assert_eq!((backend, field), (row.name, what));
        }
        other => panic!("{} {what}: {other:?}", row.name),
    }
}

/// Nonsense names the option that it was given to, whatever the row can do.
fn expect_invalid(row: &Backend, what: &str, error: Option<Error>) {
    match error {
        Some(Error::Invalid { field, why, .. }) => {
            assert_eq!(field, what, "{}: {why}", row.name);
            assert!(!why.is_empty());
        }
        other => panic!("{} {what}: {other:?}", row.name),
    }
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address by the book")
}

/// Somewhere to send, though nothing is sent: the discard port of RFC 863.
fn target() -> SocketAddr {
    "127.0.0.1:9".parse().expect("an address by the book")
}
