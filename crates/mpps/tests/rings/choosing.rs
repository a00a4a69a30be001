//! `--backend best`: its choice on each machine, its reasons, and that the chosen one receives.

use super::{PORT, Told, address, exchange, on, receiver};
use crate::common;
use crate::common::Entered;
use mpps_lab::{Lab, LabConfig};
use mpps_os::netlink::link;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            best_is_af_xdp_where_the_driver_can,
            best_is_a_socket_where_a_queue_would_be_left,
            best_is_a_socket_where_an_option_needs_one,
            best_is_not_a_taken_interface,
            a_ring_at_another_interface_is_told_the_right_one,
            what_af_xdp_will_be_is_foretold;
    ]
}

/// A lab whose receiver has `queues` queues.
fn lab(queues: u16) -> Lab {
    let config = LabConfig {
        queues,
        ..common::unhurried()
    };
    Lab::new(&config).expect("root has a lab")
}

/// Receives 2000 datagrams by the best backend.
fn received(lab: &Lab, rest: &str) -> Told {
    let at = address(lab, 4, PORT);
    let running = receiver(lab, &at, &format!("best {rest}"));
    let send = format!("send {at} --json --count 2000 --rate 20k");
    let told = exchange(lab, running, &send);
    told.balances();
    assert_eq!(told.send.offered, 2000);
    told
}

/// The chosen backend, and all reasons given for it.
fn chosen(told: &Told) -> (&str, String) {
    let because = told.recv.backend_because.join("\n");
    for line in because.lines() {
        assert!(told.people.contains(line), "{line}: {}", told.people);
    }
    (&told.recv.backend, because)
}

fn best_is_af_xdp_where_the_driver_can() {
    for queues in [1, 2] {
        let told = received(&lab(queues), "");
        let (backend, because) = chosen(&told);
        assert_eq!(backend, "af_xdp", "{because}");
        assert!(because.starts_with("af_xdp: driver veth"), "{because}");
        assert_eq!(told.recv.threads.len(), usize::from(queues));
    }
}

fn best_is_a_socket_where_a_queue_would_be_left() {
    let told = received(&lab(2), "--threads 1");
    let (backend, because) = chosen(&told);
    assert_eq!(backend, "recvmmsg", "{because}");
    assert!(because.contains("not af_xdp: "), "{because}");
    assert!(because.contains("--threads 2"), "{because}");
}

fn best_is_a_socket_where_an_option_needs_one() {
    let told = received(&lab(1), "--gro --rcvbuf 4M");
    let (backend, because) = chosen(&told);
    assert_eq!(backend, "recvmmsg", "{because}");
    assert!(because.contains("not af_xdp: it has no --gro"), "{because}");
}

/// A ring at loopback gets nothing of what comes by the link. The remedy does.
fn a_ring_at_another_interface_is_told_the_right_one() {
    let lab = lab(1);
    lab.receiver()
        .within(|| link::index("lo").and_then(link::set_up))
        .expect("it has a loopback interface");
    let right = lab.receiver().interface().to_owned();
    let at = address(&lab, 4, PORT);
    let send = format!("send {at} --count 15000 --rate 10k");
    for backend in ["af_xdp", "packet_mmap"] {
        let mut wrong = receiver(&lab, &at, &format!("{backend} --interface lo"));
        on(lab.sender(), &send).fine();
        let told = wrong.line("nothing has come to the ring");
        assert!(told.contains(&format!("use --interface {right}")), "{told}");
        wrong.interrupt().fine();
        let fine = receiver(&lab, &at, &format!("{backend} --interface {right}"));
        on(lab.sender(), &send).fine();
        let ended = fine.interrupt().fine();
        assert!(!ended.err.contains("nothing has come"), "{ended:#?}");
    }
}

fn best_is_not_a_taken_interface() {
    let lab = lab(1);
    let at = address(&lab, 4, PORT + 1);
    let first = receiver(&lab, &at, "af_xdp");
    let told = received(&lab, "");
    let (backend, because) = chosen(&told);
    assert_eq!(backend, "recvmmsg", "{because}");
    assert!(because.contains("has another XDP program"), "{because}");
    let near = &told.recv.interface.clone().expect("it is known");
    let asked = format!("recv {at} --backend best --interface {near}");
    let refused = on(lab.receiver(), &asked);
    refused.fails(&["it has no --interface"]);
    first.interrupt().fine();
}

/// Before a receiver comes, and while another one is there.
fn what_af_xdp_will_be_is_foretold() {
    let lab = lab(2);
    let name = super::link(lab.receiver()).name;
    let state = |status: i32, check: &str| {
        let line = format!("backends {name} --for af_xdp --json");
        let told = on(lab.receiver(), &line);
        assert_eq!(told.code(), status, "{told:#?}");
        let told: Value = serde_json::from_str(&told.out).expect("it is JSON");
        assert_eq!(told["ready"], status == 0, "{told:#}");
        let checks = told["checks"].as_array().expect("a list").iter();
        let mut checks = checks.filter(|row| row["check"] == check);
        checks.next().expect(check)["state"].clone()
    };
    assert_eq!(state(0, "native XDP"), "fine");
    assert_eq!(state(0, "zero-copy"), "note");
    assert_eq!(state(0, "link bounce"), "fine");
    let at = address(&lab, 4, PORT);
    let first = receiver(&lab, &at, "af_xdp --xdp native");
    assert_eq!(state(1, "other XDP program"), "refused");
    let second = on(lab.receiver(), &format!("recv {at} --backend af_xdp"));
    assert_eq!(second.code(), 2, "{second:#?}");
    let received = first.interrupt().fine().last_json();
    assert!(
        received["mode"]
            .as_str()
            .is_some_and(|mode| mode.starts_with("native"))
    );
    assert_eq!(state(0, "other XDP program"), "fine");
}
