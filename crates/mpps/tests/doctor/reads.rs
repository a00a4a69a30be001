//! Servers that read with too small a buffer, in each way to read, and their healthy twins. On a kernel
//! whose functions cannot be watched the doctor says so, and nothing more. So these have no line
//! in the gallery.

use super::scenario::{Found, PORT, PYTHON, SENT, Scenario, Traffic, at};
use crate::common::run;
use mpps_lab::address;
use mpps_trial::{Need, Trial, trials};
use std::ops::RangeInclusive;
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, PYTHON):
            reads_that_cut,
            reads_that_cut_nothing,
            trains_that_are_cut;
    ]
}

/// The note where the doctor cannot watch reads.
const UNKNOWN: &str = "whether programs read with too small a buffer is not known";
/// The bytes of each datagram.
const BYTES: usize = 1000;
/// Trains, and their datagrams.
const TRAINS: u64 = 100;

/// Reads two datagrams with one call of recvmmsg(2).
const RECVMMSG: &str = "libc.recvmmsg(s.fileno(), headers, 2, 64, None)";

/// A socket of the server: its family, address, options, and the way it is read.
struct Reader<'a> {
    family: &'a str,
    local: String,
    option: &'a str,
    read: &'a str,
}

impl<'a> Reader<'a> {
    /// Of IPv4, with the receiver's address of that number.
    fn at(last: u8, read: &'a str) -> Self {
        Self {
            family: "AF_INET",
            local: address::v4(last).to_string(),
            option: "pass",
            read,
        }
    }
}

/// A server that waits before it reads: a call that has begun is not watched.
fn server(sockets: &[Reader<'_>]) -> String {
    let mut text = "import ctypes, select, socket, struct\n\
         libc = ctypes.CDLL(None)\n\
         room = ctypes.create_string_buffer(512)\n\
         vector = ctypes.create_string_buffer(struct.pack('PN', ctypes.addressof(room), 512))\n\
         header = struct.pack('PIPNPNiI', 0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0).ljust(64)\n\
         headers = ctypes.create_string_buffer(header * 2)\n\
         readers = {}\n"
        .to_owned();
    for socket in sockets {
        text += &format!(
            "s = socket.socket(socket.{}, socket.SOCK_DGRAM)\n\
             s.setsockopt(1, 33, 8 << 20)\n\
             {}\n\
             s.bind(('{}', {PORT}))\n\
             readers[s] = lambda s: ({})\n",
            socket.family, socket.option, socket.local, socket.read
        );
    }
    text + "print('ready', flush=True)\n\
            while True:\n    for s in select.select(readers, [], [])[0]: readers[s](s)"
}

/// The findings about such a server while the traffic comes; none where reads cannot be watched.
fn look(server: &str, traffic: impl FnOnce(&Scenario)) -> Option<Found> {
    let scenario = Scenario::new();
    scenario.wake_loopback();
    let group = scenario.server(server);
    let found = scenario.doctor(Some(PORT), || {
        traffic(&scenario);
        group.await_read();
    });
    if found.notes().contains(UNKNOWN) {
        assert_eq!(found.told(), [], "{found:#?}");
        // Root in the machine has all rights, and no filter.
        assert!(!found.notes().contains("seccomp"), "{found:#?}");
        return None;
    }
    found.balances();
    Some(found)
}

/// As many datagrams to each of the receiver's addresses with these numbers.
fn datagrams(to: RangeInclusive<u8>) -> impl FnOnce(&Scenario) {
    move |scenario| {
        for last in to {
            let traffic = Traffic::to(&at(last), SENT);
            scenario.send(Traffic {
                bytes: BYTES,
                ..traffic
            });
        }
    }
}

/// Trains of 40 datagrams over loopback, which does not take them apart (`UDP_SEGMENT`).
fn trains_to_loopback(scenario: &Scenario) {
    let text = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(17, 103, {BYTES})\n\
         for to in ('127.0.0.1', '127.0.0.2'):\n    \
             for _ in range({TRAINS}): s.sendto(bytes(40 * {BYTES}), (to, {PORT}))"
    );
    scenario.on_receiver(|| run(Command::new("python3").args(["-c", &text])).fine());
}

/// All that is found: as many sockets as this cut `count` reads each, with these words.
fn cuts(found: &Found, sockets: usize, count: u64, words: &str, remedy: &str) {
    let expected = vec![("truncated_reads", count); sockets];
    assert_eq!(found.told(), expected, "{found:#?}");
    for one in found.findings() {
        let said = |key: &str| one[key].as_str().unwrap_or_default();
        assert!(said("what").contains(words), "{words}: {found:#?}");
        assert!(said("remedy").contains(remedy), "{found:#?}");
        assert_eq!(said("confidence"), "certain");
    }
}

fn reads_that_cut() {
    let of_both = Reader {
        family: "AF_INET6",
        local: format!("::ffff:{}", address::v4(4)),
        ..Reader::at(4, "s.recvfrom(512)")
    };
    let sockets = [
        Reader::at(1, "s.recv(512)"),
        Reader::at(2, "s.recvmsg(512)"),
        Reader::at(3, RECVMMSG),
        of_both,
    ];
    if let Some(found) = look(&server(&sockets), datagrams(1..=4)) {
        let words = "cut datagrams: its buffer of 512 bytes";
        cuts(&found, sockets.len(), SENT, words, "1472 bytes");
    }
}

fn reads_that_cut_nothing() {
    let sockets = [
        Reader::at(1, "s.recv(1000)"),
        Reader::at(2, "s.recv(16, socket.MSG_PEEK), s.recv(1000)"),
        // It asks for the length, or discards the datagram.
        Reader::at(3, "s.recv(512, socket.MSG_TRUNC)"),
        Reader::at(4, "libc.recv(s.fileno(), None, 0, 0)"),
    ];
    if let Some(found) = look(&server(&sockets), datagrams(1..=4)) {
        assert_eq!(found.told(), [], "{found:#?}");
    }
}

/// One of two sockets cuts.
fn trains_that_are_cut() {
    let sockets = [
        ("127.0.0.1", "s.recv(24000)"),
        ("127.0.0.2", "s.recv(65535)"),
    ];
    let sockets = sockets.map(|(local, read)| Reader {
        local: local.to_owned(),
        option: "s.setsockopt(17, 104, 1)",
        ..Reader::at(1, read)
    });
    if let Some(found) = look(&server(&sockets), trains_to_loopback) {
        cuts(
            &found,
            1,
            TRAINS,
            "its buffer of 24000 bytes",
            "65535 bytes",
        );
        assert!(
            found.first()["what"]
                .as_str()
                .is_some_and(|what| what.contains("127.0.0.1"))
        );
    }
}
