//! Servers that read with too small a buffer, in each way to read, and their healthy twins. On a kernel
//! whose functions cannot be watched the doctor says so, and nothing more. So these have no line
//! in the gallery.

use super::scenario::{Found, PORT, PYTHON, SENT, Scenario, Traffic, at};
use crate::common::run;
use mpps_trial::{Need, Trial, trials};
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

/// A server that waits before it reads: a call that has begun is not watched.
fn server(family: &str, option: &str, read: &str) -> String {
    format!(
        "import ctypes, select, socket, struct\n\
         s = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n\
         s.setsockopt(1, 33, 8 << 20)\n\
         {option}\n\
         s.bind(('', {PORT}))\n\
         libc = ctypes.CDLL(None)\n\
         room = ctypes.create_string_buffer(512)\n\
         vector = ctypes.create_string_buffer(struct.pack('PN', ctypes.addressof(room), 512))\n\
         header = struct.pack('PIPNPNiI', 0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0).ljust(64)\n\
         headers = ctypes.create_string_buffer(header * 2)\n\
         print('ready', flush=True)\n\
         while True:\n    select.select([s], [], [])\n    {read}"
    )
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
        return None;
    }
    found.balances();
    Some(found)
}

fn datagrams(scenario: &Scenario) {
    let traffic = Traffic::to(&at(1), SENT);
    scenario.send(Traffic {
        bytes: BYTES,
        ..traffic
    });
}

/// Trains of 40 datagrams over loopback, which does not take them apart (`UDP_SEGMENT`).
fn trains_to_loopback(scenario: &Scenario) {
    let text = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(17, 103, {BYTES})\n\
         for _ in range({TRAINS}): s.sendto(bytes(40 * {BYTES}), ('127.0.0.1', {PORT}))"
    );
    scenario.on_receiver(|| run(Command::new("python3").args(["-c", &text])).fine());
}

/// The one finding: all these reads cut, and its further words.
fn cuts(found: &Found, count: u64, words: &str, remedy: &str) {
    assert_eq!(found.told(), [("truncated_reads", count)], "{found:#?}");
    let said = |key: &str| found.first()[key].as_str().unwrap_or_default().to_owned();
    assert!(said("what").contains(words), "{words}: {found:#?}");
    assert!(said("remedy").contains(remedy), "{found:#?}");
    assert_eq!(said("confidence"), "certain");
}

fn reads_that_cut() {
    for (family, read) in [
        ("AF_INET", "s.recv(512)"),
        ("AF_INET", "s.recvmsg(512)"),
        ("AF_INET", RECVMMSG),
        ("AF_INET6", "s.recvfrom(512)"),
    ] {
        if let Some(found) = look(&server(family, "", read), datagrams) {
            cuts(
                &found,
                SENT,
                "cut datagrams: its buffer of 512 bytes",
                "1472 bytes",
            );
        }
    }
}

fn reads_that_cut_nothing() {
    for read in [
        "s.recv(1000)",
        "s.recv(16, socket.MSG_PEEK); s.recv(1000)",
        // It asks for the length, or discards the datagram.
        "s.recv(512, socket.MSG_TRUNC)",
        "libc.recv(s.fileno(), None, 0, 0)",
    ] {
        if let Some(found) = look(&server("AF_INET", "", read), datagrams) {
            assert_eq!(found.told(), [], "{read}: {found:#?}");
        }
    }
}

fn trains_that_are_cut() {
    let takes_trains = "s.setsockopt(17, 104, 1)";
    for (buffer, is_cut) in [(24_000, true), (65_535, false)] {
        let server = server("AF_INET", takes_trains, &format!("s.recv({buffer})"));
        match look(&server, trains_to_loopback) {
            Some(found) if is_cut => {
                cuts(&found, TRAINS, "its buffer of 24000 bytes", "65535 bytes");
            }
            Some(found) => assert_eq!(found.told(), [], "{found:#?}"),
            None => {}
        }
    }
}
