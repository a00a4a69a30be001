//! The stage `notrack`: a port that is left out of connection tracking.

use super::Place;
use crate::common::{Entered, run};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

const FLOWS: u16 = 100;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, Need::Program("nft", "nftables")):
            a_port_is_left_out_of_tracking,
            a_table_that_another_program_changed_is_left;
    ]
}

/// A place that tracks connections, and a receiver.
struct Tracking {
    place: Place,
    receiver: UdpSocket,
}

impl Tracking {
    fn new() -> Self {
        let place = Place::new();
        place.meet();
        let receiver = place.near.within(|| UdpSocket::bind(("10.9.0.1", 4321)));
        let receiver = receiver.expect("it is free");
        let new = Self { place, receiver };
        // It tracks once a rule asks for states.
        new.nft(
            "table inet firewall { chain input { type filter hook input priority 0; \
             ct state established counter; }; }",
        );
        new
    }

    fn nft(&self, statement: &str) -> String {
        let nft = || run(Command::new("nft").arg(statement));
        self.place.near.within(nft).fine().out
    }

    fn rules(&self) -> String {
        self.nft("list ruleset")
    }

    fn entries(&self) -> u64 {
        let file = "/proc/sys/net/netfilter/nf_conntrack_count";
        let count = self.place.near.within(|| fs::read_to_string(file));
        let count = count.expect("it is told");
        count.trim().parse().expect("a number")
    }

    /// Sends and receives a datagram from each of some ports.
    fn send(&self, first: u16) {
        let sent = self.place.far.within(|| {
            (first..first + FLOWS).try_for_each(|port| {
                let socket = UdpSocket::bind(("10.9.0.2", port))?;
                socket.send_to(b"hello", ("10.9.0.1", 4321)).map(drop)
            })
        });
        sent.expect("it is sent");
        (0..FLOWS).for_each(|_| assert_eq!(self.receiver.recv(&mut [0; 8]).expect("it comes"), 5));
    }
}

const APPLY: &str = "apply near --only notrack --port 4321";

/// With the rules in place, no flow to the port makes an entry in the table of connections. After
/// undo each does. By nft, the host is then what it was.
fn a_port_is_left_out_of_tracking() {
    let tracking = Tracking::new();
    let Tracking { place, .. } = &tracking;
    tracking.send(20_000);
    let (tracked, before) = (tracking.entries(), tracking.rules());
    assert!(tracked >= u64::from(FLOWS), "{tracked}");
    let applied = place.tune(APPLY);
    assert!(applied.fine().out.contains("off -> on"));
    let rules = tracking.rules();
    assert!(rules.contains("udp dport 4321 notrack"), "{rules}");
    let status = place.tune("status near").fine();
    assert!(!status.out.contains("not any more"), "{status:#?}");
    tracking.send(21_000);
    assert_eq!(tracking.entries(), tracked);
    place.tune("undo near").fine();
    assert_eq!(tracking.rules(), before);
    tracking.send(22_000);
    assert_eq!(tracking.entries(), tracked + u64::from(FLOWS));
}

/// Its name says nothing of its rules.
fn a_table_that_another_program_changed_is_left() {
    const TABLE: &str = "table inet mpps_untracked_udp_4321";
    let tracking = Tracking::new();
    let Tracking { place, .. } = &tracking;
    tracking.send(20_000);
    let before = tracking.rules();
    tracking.nft(&format!("add {TABLE}"));
    let applied = place.tune(APPLY).fine();
    let said = applied.out.contains("impossible: another program made");
    assert!(said && !applied.out.contains("fine"), "{applied:#?}");
    tracking.nft(&format!("delete {TABLE}"));
    place.tune(APPLY).fine();
    tracking.nft(&format!("{TABLE} {{ chain foreign {{ counter; }}; }}"));
    let changed = tracking.rules();
    for line in ["status near", "undo near"] {
        let ended = place.tune(line);
        let said = ended.out.contains("it is altered") && !ended.out.contains("undone");
        assert_eq!((ended.code(), said), (1, true), "{ended:#?}");
        assert_eq!(tracking.rules(), changed);
    }
    place.tune("undo near --force").fine();
    assert_eq!(tracking.rules(), before);
}
