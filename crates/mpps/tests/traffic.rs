//! Real traffic through the real command: both ends' totals, joined, account for every datagram.

mod between;
mod replayed;
mod several;

use crate::common::{self, Ended, Entered, Running, mpps, quiet_namespace, run, words};
use mpps::udp::traffic::{RecvTotal, SendTotal};
use mpps_lab::Lab;
use mpps_os::namespace::NetNamespace;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            what_is_paced_arrives,
            stamps_agree_with_the_counters,
            trains_are_accounted_for,
            cut_trains_are_accounted_for,
            a_group_of_sockets_is_accounted_for,
            threads_on_one_socket_are_accounted_for,
            one_datagram_a_call_is_accounted_for,
            a_port_where_nobody_listens_is_accounted_for,
            replayed::what_comes_again_stands_for_nothing_that_was_lost,
            replayed::unicast_beside_a_group_has_no_copies,
            multicast_to_several_sockets_is_accounted_for,
            datagrams_of_others_are_left_out,
            what_is_missing_is_found,
            what_is_too_long_is_counted_as_cut;
        waits(Need::Namespace):
            overload_is_accounted_for,
            between::what_the_senders_queue_drops_has_a_row,
            between::what_is_lost_between_two_hosts_has_a_row,
            between::a_silent_host_keeps_no_sender_from_ending,
            between::ctrl_c_waits_for_no_silent_host;
        waits(Need::Namespace, Need::Program("ip", "iproute2")):
            several::several_senders_and_receivers_have_one_ledger;
        waits:
            replayed::clocks_that_differ_are_told_and_give_no_delay,
            the_mode_tells_how_it_waits,
            this_machines_own_loopback_works;
    ]
}

const LOOPBACK_V4: &str = "127.0.0.1:0";
const LOOPBACK_V6: &str = "[::1]:0";

/// A run: the totals of both ends, and the ledger that joins them.
#[derive(Debug)]
struct Told {
    send: SendTotal,
    recv: RecvTotal,
    ledger: Value,
    people: String,
}

impl Told {
    /// Zero unaccounted for, by the ledger and by plain addition of its own terms.
    fn balances(&self) {
        let Self { ledger, people, .. } = self;
        assert_eq!(ledger["unaccounted"], 0, "{people}");
        let count = |name: &str| ledger[name].as_i64().unwrap_or_else(|| panic!("{name}"));
        let losses = ledger["losses"].as_array().expect("a list");
        let lost: i64 = losses
            .iter()
            .filter_map(|loss| loss["count"].as_i64())
            .sum();
        assert_eq!(
            count("offered"),
            count("delivered") + count("queued") + lost,
            "{people}"
        );
        // End markers are datagrams like the others to every counter of the kernel.
        let offered = self.send.offered + self.send.end_markers;
        let received = self.recv.received + self.recv.end_markers;
        assert_eq!(count("offered"), offered as i64);
        assert_eq!(count("delivered") + count("queued"), received as i64);
        assert!(people.contains("UNACCOUNTED 0"), "{people}");
    }

    /// Every second opinion is the same.
    fn witnesses_agree(&self) {
        for witness in self.ledger["witnesses"].as_array().expect("a list") {
            assert_eq!(witness["ledger"], witness["witness"], "{}", self.people);
        }
        assert!(!self.people.contains("disagrees"), "{}", self.people);
    }

    /// Returns true if the ledger uses the stamps as a witness.
    fn has_sequence_witness(&self) -> bool {
        let witnesses = self.ledger["witnesses"].as_array().expect("a list");
        witnesses.iter().any(|witness| {
            witness["source"]
                .as_str()
                .is_some_and(|source| source.contains("sequence"))
        })
    }
}

/// Receives on one host and sends from another, or from the same, with these arguments.
fn exchange(
    (sender, receiver): (&NetNamespace, &NetNamespace),
    listen: &str,
    recv: &str,
    send: &str,
) -> Told {
    let mut command = mpps(&["recv", listen, "--json"]);
    command.args(words(recv));
    let mut running = receiver.within(|| Running::start(&mut command));
    let address = running.address();
    let mut command = mpps(&["send", &address, "--json"]);
    command.args(words(send));
    let sent = sender.within(|| run(&mut command));
    join(&sent.fine(), &running.interrupt().fine())
}

/// Joins the outputs of both ends.
fn join(sent: &Ended, received: &Ended) -> Told {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let path = |name: &str| {
        directory
            .path()
            .join(name)
            .to_str()
            .expect("a plain name")
            .to_owned()
    };
    let (send, recv) = (path("send.json"), path("recv.json"));
    fs::write(&send, &sent.out).expect("it can be written");
    fs::write(&recv, &received.out).expect("it can be written");
    let joined = run(&mut mpps(&["ledger", &send, &recv, "--json"]));
    let people = run(&mut mpps(&["ledger", &send, &recv]));
    let ledger: Value =
        serde_json::from_str(&joined.out).unwrap_or_else(|error| panic!("{error}: {joined:#?}"));
    // Both say the same, by their status as well.
    let is_open = ledger["unaccounted"] != 0 || !ledger["undecided"].is_null();
    let status = i32::from(is_open);
    assert_eq!(
        (joined.code(), people.code()),
        (status, status),
        "{people:#?}"
    );
    Told {
        send: SendTotal::parse(&sent.out).expect("totals"),
        recv: RecvTotal::parse(&received.out).expect("totals"),
        ledger,
        people: people.out,
    }
}

/// Both ends in one namespace without other traffic.
fn loopback(listen: &str, recv: &str, send: &str) -> Told {
    let namespace = quiet_namespace();
    exchange((&namespace, &namespace), listen, recv, send)
}

const COUNT: &str = "--count 100000";

fn what_is_paced_arrives() {
    for listen in [LOOPBACK_V4, LOOPBACK_V6] {
        let told = loopback(listen, "--rcvbuf 4M", "--count 100000 --rate 200k");
        assert_eq!((told.send.offered, told.send.sent), (100_000, 100_000));
        assert_eq!(told.recv.received + told.recv.socket_drops, 100_000);
        assert_eq!(told.recv.bytes, told.recv.received * 32);
        assert_eq!(told.recv.threads.len(), 1);
        told.balances();
        told.witnesses_agree();
    }
}

/// A receive buffer of a few packets cannot hold a batch of a thousand.
fn overload_is_accounted_for() {
    for listen in [LOOPBACK_V4, LOOPBACK_V6] {
        let told = loopback(listen, "--rcvbuf 4k", COUNT);
        let (recv, people) = (&told.recv, &told.people);
        assert_eq!(told.send.offered, 100_000);
        assert!(recv.socket_drops > 0, "{people}");
        assert_eq!(
            recv.received + recv.socket_drops,
            told.send.sent,
            "{people}"
        );
        told.balances();
        told.witnesses_agree();
    }
}

fn stamps_agree_with_the_counters() {
    for listen in [LOOPBACK_V4, LOOPBACK_V6] {
        let stamped = "--count 100000 --batch 100 --stamp --flows 4 --source-port 0";
        // A receiver may keep up even so. Each try must meet all other conditions.
        let mut dropped = 0;
        for _ in 0..10 {
            let told = loopback(listen, "--rcvbuf 4k", stamped);
            dropped += told.recv.socket_drops;
            told.balances();
            assert!(told.has_sequence_witness(), "{}", told.people);
            told.witnesses_agree();
            // An overrun receiver hears of the end all the same.
            for flow in &told.recv.flows {
                assert_eq!(flow.offered, Some(25_000), "{flow:?}");
            }
            let received: u64 = told.recv.flows.iter().map(|flow| flow.received).sum();
            assert_eq!(received, told.recv.received);
            if dropped > 0 {
                break;
            }
        }
        assert!(
            dropped > 0,
            "ten times nothing was lost in a buffer of 4 KiB"
        );
    }
}

fn trains_are_accounted_for() {
    let told = loopback(
        LOOPBACK_V4,
        "--gro --rcvbuf 4M",
        "--count 100000 --rate 200k --gso 16 --batch 16",
    );
    assert_eq!((told.send.offered, told.send.gso), (100_000, 16));
    // Drops would be of whole trains, and the socket does not report their length.
    assert_eq!(told.recv.socket_drops, 0, "{}", told.people);
    assert_eq!(told.recv.received, 100_000, "{}", told.people);
    assert!(told.recv.socket_drops_are_trains);
    told.balances();
    told.witnesses_agree();
}

/// The kernel cuts the trains for a receiver that takes single datagrams, and drops single ones.
fn cut_trains_are_accounted_for() {
    let told = loopback(
        LOOPBACK_V4,
        "--rcvbuf 16k",
        "--count 100000 --gso 16 --batch 16",
    );
    assert!(told.recv.socket_drops > 0, "{}", told.people);
    assert_eq!(
        told.recv.received + told.recv.socket_drops,
        100_000,
        "{}",
        told.people
    );
    told.balances();
    told.witnesses_agree();
}

fn a_group_of_sockets_is_accounted_for() {
    let told = loopback(
        LOOPBACK_V4,
        "--threads 4 --reuseport --rcvbuf 4k",
        "--count 100000 --flows 32 --source-port 0",
    );
    assert_eq!(told.recv.threads.len(), 4);
    let received: u64 = told.recv.threads.iter().map(|thread| thread.received).sum();
    assert_eq!(received, told.recv.received);
    let drops: Option<u64> = told
        .recv
        .threads
        .iter()
        .map(|thread| thread.socket_drops)
        .sum();
    assert_eq!(
        drops,
        Some(told.recv.socket_drops),
        "each socket has its own"
    );
    assert!(told.recv.socket_drops > 0, "{}", told.people);
    told.balances();
    told.witnesses_agree();
}

fn threads_on_one_socket_are_accounted_for() {
    let told = loopback(LOOPBACK_V4, "--threads 3 --rcvbuf 8k", COUNT);
    let received: u64 = told.recv.threads.iter().map(|thread| thread.received).sum();
    assert_eq!(received, told.recv.received);
    let drops: Vec<Option<u64>> = told
        .recv
        .threads
        .iter()
        .map(|thread| thread.socket_drops)
        .collect();
    assert_eq!(
        drops,
        [Some(told.recv.socket_drops), None, None],
        "one socket, counted once"
    );
    told.balances();
    told.witnesses_agree();
}

fn one_datagram_a_call_is_accounted_for() {
    let told = loopback(
        LOOPBACK_V4,
        "--backend recv --rcvbuf 4k",
        "--backend send --count 100000",
    );
    assert_eq!(
        (told.recv.backend.as_str(), told.send.backend.as_str()),
        ("recv", "send")
    );
    told.balances();
    told.witnesses_agree();
}

/// Half of the datagrams go to a port without a listener. The sender hears of some refusals, and
/// the receiving host counts the rest.
fn a_port_where_nobody_listens_is_accounted_for() {
    let namespace = quiet_namespace();
    let free =
        namespace.run(|| UdpSocket::bind(LOOPBACK_V4).and_then(|socket| socket.local_addr()));
    let free = free
        .expect("it can be entered")
        .expect("a port is free")
        .to_string();
    let told = exchange(
        (&namespace, &namespace),
        LOOPBACK_V4,
        "--rcvbuf 4M",
        &format!("{free} --count 20000 --rate 100k"),
    );
    assert_eq!(told.send.offered, 20_000);
    assert_eq!(told.send.sent + told.send.refused, 20_000);
    assert!(told.send.refused > 0, "{}", told.people);
    assert_eq!(told.recv.received + told.recv.socket_drops, 10_000);
    told.balances();
    told.witnesses_agree();
}

/// A ledger that could not fail would prove nothing: datagrams that vanish are found, and so are
/// those that come from nowhere.
fn what_is_missing_is_found() {
    let namespace = quiet_namespace();
    let mut running =
        namespace.within(|| Running::start(&mut mpps(&["recv", LOOPBACK_V4, "--json"])));
    let address = running.address();
    let arguments = format!("send {address} --json --count 1000 --rate 100k");
    let sent = namespace
        .within(|| run(&mut mpps(&words(&arguments))))
        .fine();
    let mut received = running.interrupt().fine();
    join(&sent, &received).balances();
    let total = RecvTotal::parse(&received.out).expect("totals");
    let true_text = format!("\"received\":{},\"bytes\"", total.received);
    for (difference, unaccounted) in [(-7, 7), (7, -7)] {
        let forged = format!(
            "\"received\":{},\"bytes\"",
            total.received.saturating_add_signed(difference)
        );
        let before = received.out.clone();
        received.out = before.replace(&true_text, &forged);
        assert_ne!(received.out, before, "the totals have another form");
        let told = join(&sent, &received);
        assert_eq!(told.ledger["unaccounted"], unaccounted, "{}", told.people);
        received.out = before;
    }
}

fn what_is_too_long_is_counted_as_cut() {
    let told = loopback(
        LOOPBACK_V4,
        "--buffer 100 --rcvbuf 4M",
        "--size 1000 --count 1000 --rate 50k",
    );
    assert_eq!(told.recv.truncated, told.recv.received);
    assert_eq!(
        told.recv.bytes,
        told.recv.received * 1000,
        "bytes on the wire"
    );
    told.balances();
}

/// As every user has it, without a namespace: other programs may send as well, but not here.
fn this_machines_own_loopback_works() {
    let mut running = Running::start(&mut mpps(&["recv", LOOPBACK_V4, "--json"]));
    let address = running.address();
    let send = format!("send {address} --json --count 1000 --rate 20k");
    let sent = run(&mut mpps(&words(&send))).fine();
    let received = running.interrupt().fine();
    let send = SendTotal::parse(&sent.out).expect("totals");
    let recv = RecvTotal::parse(&received.out).expect("totals");
    assert_eq!((send.offered, send.sent), (1000, 1000));
    assert_eq!(recv.received + recv.socket_drops, 1000);
    assert!(
        !Path::new("send.json").exists(),
        "it writes where it is told"
    );
}

/// The default is `auto`; an option selects another way to wait. Both outputs show it.
fn the_mode_tells_how_it_waits() {
    for way in ["auto", "block", "spin", "epoll"] {
        let mut receiving = mpps(&["recv", LOOPBACK_V4, "--json", "--duration", "10ms"]);
        if way != "auto" {
            receiving.args(["--wait", way]);
        }
        let ended = run(&mut receiving).fine();
        let total = RecvTotal::parse(&ended.out).expect("totals");
        assert_eq!((&*total.wait, total.threads.len()), (way, 1));
        assert_eq!(total.threads[0].polls.is_some(), way == "auto");
        let said = format!(", waits by {way}\n");
        assert!(ended.err.contains(&said), "{}", ended.err);
    }
}

/// Each of two sockets is due every datagram, and both are too small for a batch.
fn multicast_to_several_sockets_is_accounted_for() {
    let lab = Lab::new(&common::unhurried()).expect("a lab");
    let mut command = mpps(&["recv", "[::]:0", "2", "1", "--json", "--rcvbuf", "32k"]);
    command.args(["--join", "ff02::4321%mpps-rx"]);
    let mut running = lab.receiver().within(|| Running::start(&mut command));
    let port = running
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    let target = format!("[ff02::4321%mpps-tx]:{port}");
    let mut command = mpps(&["send", &target, "--json", "--stamp", "--count", "20000"]);
    command.args(["--batch", "100"]);
    let sent = lab.sender().within(|| run(&mut command));
    let told = join(&sent.fine(), &running.interrupt().fine());
    assert_eq!(told.ledger["unaccounted"], 0, "{}", told.people);
    assert!(told.recv.received > 0, "{}", told.people);
    assert!(
        told.ledger["copies"]
            .as_u64()
            .is_some_and(|copies| copies > 0)
    );
    assert!(told.has_sequence_witness(), "{}", told.people);
    told.witnesses_agree();
    let flow = &told.recv.flows[0];
    let known = flow.received + flow.lost;
    // If a full socket took none of the end markers, the last datagram is not known.
    match flow.offered {
        Some(_) => assert_eq!(known, 2 * told.send.offered, "{flow:?}"),
        None => assert!(known < 2 * told.send.offered, "{flow:?}"),
    }
}

/// Another run of the same sender, and a program that knows no stamps, send to the same socket.
fn datagrams_of_others_are_left_out() {
    let namespace = quiet_namespace();
    let mut command = mpps(&["recv", LOOPBACK_V4, "--json", "--rcvbuf", "4M"]);
    let mut running = namespace.within(|| Running::start(&mut command));
    let address = running.address();
    let send = |count: &str| {
        let mut command = mpps(&["send", &address, "--json", "--stamp", "--count", count]);
        let sent = namespace.within(|| run(&mut command));
        sent.fine()
    };
    let ours = send("1000");
    let run_of = |ended: &Ended| SendTotal::parse(&ended.out).expect("totals").threads[0].run;
    // One run in 256 draws the same number as another.
    let mut others = 0;
    for _ in 0..8 {
        let other = send("500");
        others += 500;
        if run_of(&other) != run_of(&ours) {
            break;
        }
    }
    namespace.within(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        (0..100).for_each(|_| drop(socket.send_to(b"no stamp", &address)));
    });
    let told = join(&ours, &running.interrupt().fine());
    assert_eq!(told.recv.received, 1000 + others + 100);
    assert!(
        told.people.contains("are not of this run"),
        "{}",
        told.people
    );
    if others == 500 {
        assert_eq!(told.ledger["unaccounted"], 0, "{}", told.people);
        assert_eq!(told.ledger["delivered"], 1000 + told.send.end_markers);
        told.witnesses_agree();
    }
}
