//! What a row cannot honour is refused before anything is opened, and never ignored.

use crate::pair::open_descriptors;
use libtest_mimic::Trial;
use mpps_io::{BACKENDS, Backend, Error, Group, RxConfig, TxConfig};
use std::net::SocketAddr;

/// Everything that each row refuses. What is not here must work, and there is no row without an
/// entry.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "memory",
        &[
            "--gro",
            "--busy-poll",
            "--reuseport",
            "--join",
            "--gso",
            "--steer cpu",
        ],
    ),
    ("recv", &["sending"]),
    ("recvmmsg", &["sending"]),
    ("send", &["receiving"]),
    ("sendmmsg", &["receiving"]),
];

/// True if a row refuses an option. A row without an entry refuses nothing until it has one.
pub(crate) fn refuses(backend: &str, option: &str) -> bool {
    let entry = REFUSED.iter().find(|(name, _)| *name == backend);
    entry.is_some_and(|(_, options)| options.contains(&option))
}

/// The tests that need no pair.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 6] = [
        ("every_row_has_its_refusals", every_row_has_its_refusals),
        (
            "names_are_found_and_others_are_not",
            names_are_found_and_others_are_not,
        ),
        (
            "a_direction_that_is_not_there_is_refused",
            a_direction_that_is_not_there_is_refused,
        ),
        (
            "receive_options_work_or_are_refused",
            receive_options_work_or_are_refused,
        ),
        (
            "send_options_work_or_are_refused",
            send_options_work_or_are_refused,
        ),
        ("no_row_takes_nonsense", no_row_takes_nonsense),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}

fn every_row_has_its_refusals() {
    let mut rows: Vec<&str> = BACKENDS.iter().map(|row| row.name).collect();
    let mut entries: Vec<&str> = REFUSED.iter().map(|(name, _)| *name).collect();
    rows.sort_unstable();
    entries.sort_unstable();
    assert_eq!(entries, rows);
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
        let rx = row.open_rx(&RxConfig::new(loopback())).err();
        expect_refusal(row, "receiving", !row.receives(), rx);
        let tx = row.open_tx(&TxConfig::new(target())).err();
        expect_refusal(row, "sending", !row.sends(), tx);
    }
}

/// An option's name, and how it is asked for.
type RxOption = (&'static str, fn(&mut RxConfig));

fn receive_options_work_or_are_refused() {
    let options: [RxOption; 4] = [
        ("--gro", |config| config.gro = true),
        // Zero turns it off, which an ordinary user may.
        ("--busy-poll", |config| config.busy_poll_us = Some(0)),
        ("--reuseport", |config| config.reuse_port = true),
        ("--join", |config| {
            config.groups = vec![Group {
                address: "239.255.43.21".parse().expect("an address by the book"),
                interface_index: 1,
            }];
        }),
    ];
    for row in BACKENDS.iter().filter(|row| row.receives()) {
        for (option, set) in options {
            let mut config = RxConfig::new(loopback());
            set(&mut config);
            let before = open_descriptors();
            let error = row.open_rx(&config).err();
            expect_refusal(row, option, refuses(row.name, option), error);
            assert_eq!(open_descriptors(), before, "{} {option}", row.name);
        }
        let mut config = RxConfig::new(loopback());
        config.reuse_port = !refuses(row.name, "--reuseport");
        let rx = row.open_rx(&config).expect("it opens");
        let error = rx.steer_by_cpu(&[0]).err();
        expect_refusal(row, "--steer cpu", refuses(row.name, "--steer cpu"), error);
    }
}

fn send_options_work_or_are_refused() {
    for row in BACKENDS.iter().filter(|row| row.sends()) {
        let mut config = TxConfig::new(target());
        config.gso_segments = 2;
        let before = open_descriptors();
        let error = row.open_tx(&config).err();
        expect_refusal(row, "--gso", refuses(row.name, "--gso"), error);
        assert_eq!(open_descriptors(), before, "{}", row.name);
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
    ("--batch", |config| config.batch = 0),
    ("--batch", |config| config.batch = 1025),
    ("--buffer", |config| config.buffer_bytes = 0),
    ("--buffer", |config| config.buffer_bytes = 65_537),
    ("--join", |config| config.groups = vec![group("10.0.0.1")]),
    ("--join", |config| config.groups = vec![group("ff02::1")]),
];

/// The same for senders.
const TX_NONSENSE: &[TxOption] = &[
    ("--batch", |config| config.batch = 0),
    ("--batch", |config| config.batch = 1025),
    ("--size", |config| config.payload_bytes = 65_508),
    ("--size", |config| {
        config.target = address("[::1]:4321");
        config.payload_bytes = 65_528;
    }),
    ("--gso", |config| config.gso_segments = 0),
    ("--gso", |config| config.gso_segments = 129),
    ("--gso", |config| {
        config.gso_segments = 2;
        config.payload_bytes = 0;
    }),
    ("--gso", |config| {
        config.gso_segments = 64;
        config.payload_bytes = 1024;
    }),
    ("--flows", |config| config.flows = 0),
    ("--flows", |config| config.flows = 65_536),
    ("--flows", |config| {
        config.flows = 2;
        config.source = Some(address("0.0.0.0:65535"));
    }),
    ("source", |config| config.source = Some(address("[::]:0"))),
    ("target", |config| config.target = loopback()),
];

type TxOption = (&'static str, fn(&mut TxConfig));

fn group(address: &str) -> Group {
    Group {
        address: address.parse().expect("an address by the book"),
        interface_index: 0,
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address by the book")
}

fn expect_refusal(row: &Backend, what: &str, refused: bool, error: Option<Error>) {
    match error {
        None => assert!(
            !refused,
            "{} takes {what}, and is said to refuse it",
            row.name
        ),
        Some(Error::Unsupported { backend, option }) if refused => {
            assert_eq!((backend, option), (row.name, what));
        }
        Some(error) => panic!("{} {what}: {error}", row.name),
    }
}

/// Nonsense names the option that it was given to, whatever the row can do.
fn expect_invalid(row: &Backend, what: &str, error: Option<Error>) {
    match error {
        Some(Error::Invalid { option, why, .. }) => {
            assert_eq!(option, what, "{}: {why}", row.name);
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
