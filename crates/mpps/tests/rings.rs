//! The command over the backends that read or write an interface, between the two hosts of a lab.
//! Every sender meets every receiver, with a ledger that balances. Other trials cover what is
//! granted, what is refused, and leftovers of a killed generator.

mod beginning;
mod choosing;
mod comparing;
mod refusing;
mod suspending;

use crate::common::{self, Ended, Entered, Running, mpps, run, words};
use mpps::udp::traffic::{self, RecvTotal, SendTotal};
use mpps_host::{Departure, Ledger};
use mpps_lab::{Lab, LabConfig, LabHost};
use mpps_os::netlink::link::NetlinkLink;
use mpps_trial::{Need, Trial, trials};

/// Each sender meets each receiver once: in a flood, which each has over both versions of IP, or paced, by turns over
/// both versions and with each way of waiting. The conformance suite of `mpps-io` tests each row by itself.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, receiver) in RECEIVERS.into_iter().enumerate() {
        for (column, sender) in SENDERS.into_iter().enumerate() {
            if let Some(family) = [4, 6].get((5 + column - row) % 5) {
                let name = format!("rings::flood/{sender}/{receiver}/ipv{family}");
                trials.push(Trial::waits(name, move || flood(sender, receiver, *family)));
                continue;
            }
            let family = [4, 6][(row + column) % 2];
            let wait = WAITS[(2 * row + column) % WAITS.len()];
            let name = format!("rings::paced/{sender}/{receiver}/ipv{family}/{wait}");
            let test = move || paced(sender, receiver, family, wait);
            trials.push(Trial::waits(name, test));
        }
        let wait = WAITS[1 + row % 3];
        let name = format!("rings::waiting/{}/{wait}", receiver);
        trials.push(Trial::waits(name, move || waiting(receiver, wait)));
    }
    let pairs = trials.into_iter().map(|trial| trial.needs(Need::Root));
    let others = [
        refusing::trials(),
        trials![waits(Need::Root): a_killed_generator_leaves_nothing;],
        comparing::trials(),
        beginning::trials(),
        choosing::trials(),
        suspending::trials(),
    ];
    pairs.chain(others.into_iter().flatten()).collect()
}

const SENDERS: [&str; 5] = ["sendmmsg", "io_uring", "packet_mmap", "af_xdp", "xdp"];
const RECEIVERS: [&str; 5] = [
    "recvmmsg",
    "io_uring",
    "packet_mmap",
    "packet_mmap --take",
    "af_xdp",
];
const WAITS: [&str; 4] = ["auto", "block", "epoll", "spin"];
const PORT: u16 = 4321;

fn lab() -> Lab {
    Lab::new(&common::unhurried()).expect("root has a lab")
}

/// One whose queues are served by threads, as those of a card.
fn threaded() -> Lab {
    Lab::new(&LabConfig::default()).expect("root has a lab")
}

/// Where the receiver of a lab listens: an address of IP version 4 or 6, and a port.
fn address(lab: &Lab, family: u8, port: u16) -> String {
    match family {
        4 => format!("{}:{port}", lab.receiver().v4()[0]),
        _ => format!("[{}]:{port}", lab.receiver().v6()[0]),
    }
}

/// Runs the command on a host, to its end.
fn on(host: &LabHost, line: &str) -> Ended {
    host.within(|| run(&mut mpps(&words(line))))
}

/// Starts the command on a host.
fn start(host: &LabHost, line: &str) -> Running {
    host.within(|| Running::start(&mut mpps(&words(line))))
}

/// Starts a receiver by a backend, with its options, and waits until it receives.
fn receiver(lab: &Lab, listen: &str, backend: &str) -> Running {
    let line = format!("recv {listen} --json --backend {backend}");
    let mut running = start(lab.receiver(), &line);
    running.line("mode: ");
    running
}

/// Both ends of a run, and the ledger that joins them.
struct Told {
    send: SendTotal,
    recv: RecvTotal,
    ledger: Ledger,
    people: String,
}

impl Told {
    fn balances(&self) {
        let Self { ledger, people, .. } = self;
        assert_eq!(ledger.unaccounted_range(), [0, 0], "{people}");
        let offered = self.send.offered + self.send.end_markers;
        assert_eq!(ledger.offered, offered, "{people}");
        let received = self.recv.received + self.recv.end_markers;
        assert_eq!(ledger.delivered + ledger.queued, received, "{people}");
        assert!(received > 0, "{people}");
    }

    /// The stamps say the same as the counters.
    fn stamps_agree(&self) {
        let mut witnesses = self.ledger.witnesses.iter();
        let heard = witnesses.find(|witness| witness.source == "sequence numbers");
        let heard = heard.unwrap_or_else(|| panic!("no stamps: {}", self.people));
        assert!(heard.agrees(), "{}", self.people);
    }
}

/// Sends, waits until nothing is under way, ends the receiver, and joins both outputs.
fn exchange(lab: &Lab, running: Running, send: &str) -> Told {
    let sent = on(lab.sender(), send).fine();
    lab.settle().expect("silence comes");
    join(&sent, &running.interrupt().fine())
}

fn join(sent: &Ended, received: &Ended) -> Told {
    let send = SendTotal::parse(&sent.out).expect("totals");
    let recv = RecvTotal::parse(&received.out).expect("totals");
    let ledger = traffic::join(&send, &recv);
    Told {
        people: format!("{}{}{ledger}", sent.err, received.err),
        send,
        recv,
        ledger,
    }
}

fn paced(sender: &str, backend: &str, family: u8, wait: &str) {
    let lab = lab();
    let address = address(&lab, family, PORT);
    let running = receiver(&lab, &address, &format!("{backend} --wait {wait}"));
    let send = format!("send {address} --json --backend {sender} --stamp --flows 4");
    let told = exchange(&lab, running, &format!("{send} --count 20000 --rate 50k"));
    assert_eq!(told.send.offered, 20_000, "{}", told.people);
    assert_eq!(
        (told.send.backend.as_str(), told.recv.backend.as_str()),
        (sender, words(backend)[0])
    );
    assert!(!told.send.mode.is_empty() && !told.recv.mode.is_empty());
    // Frames pass the sender's UDP uncounted.
    let is_socket = ["sendmmsg", "io_uring"].contains(&sender);
    let departure = told.send.departure;
    assert_eq!(departure == Departure::Socket, is_socket, "{departure:?}");
    told.balances();
    told.stamps_agree();
    // Each drop of a ring or a socket is reported once, by reason.
    let drops: u64 = told.recv.drops.iter().map(|drop| drop.count).sum();
    assert_eq!(drops, told.recv.socket_drops, "{:?}", told.recv.drops);
    for flow in &told.recv.flows {
        // A sender that the scheduler moves goes on in the queue of its new CPU. It overtakes the
        // packets in the old queue. So there may be disorder, but nothing comes twice.
        assert_eq!(flow.duplicates, 0, "{flow:?}");
        match flow.offered {
            Some(offered) => assert_eq!(flow.received + flow.lost, offered, "{flow:?}"),
            // On a machine that stood still the end markers died in a full ring with the rest: the
            // receiver's, or that of the link, and the ledger says which.
            None => assert!(told.ledger.lost() > 0, "{flow:?}"),
        }
    }
    assert_eq!(told.recv.flows.len(), 4, "{}", told.people);
}

fn flood(sender: &str, backend: &str, family: u8) {
    let lab = threaded();
    let address = address(&lab, family, PORT);
    let running = receiver(&lab, &address, backend);
    let send = format!("send {address} --json --backend {sender} --duration 300ms");
    let told = exchange(&lab, running, &send);
    told.balances();
}

/// With each way of waiting, slow traffic arrives at once, and all of it.
fn waiting(backend: &str, wait: &str) {
    let lab = lab();
    let address = address(&lab, 4, PORT);
    let running = receiver(&lab, &address, &format!("{backend} --wait {wait} -v"));
    let send = format!("send {address} --json --count 2400 --rate 2k --stamp");
    let told = exchange(&lab, running, &send);
    told.balances();
    assert_eq!(told.send.offered, 2400);
    // A worker looks every 0.1 s whether it must stop. A receiver that sleeps through its packets
    // finds all that came in that time. Losses are not checked: spinning threads on few CPUs leave
    // little time to the thread that serves the queue.
    let received = told.recv.threads.iter().find(|thread| thread.received > 0);
    let each = received.map_or(0.0, |thread| thread.packets_per_call);
    assert!(each < 100.0, "{each} a call: {}", told.people);
    assert!(told.people.contains("thread 0 "), "{}", told.people);
}

fn a_killed_generator_leaves_nothing() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let mut running = start(lab.sender(), &format!("send {at} --backend xdp"));
    running.line("pps");
    running.signal("KILL");
    assert!(running.end().status.code().is_none(), "it was killed");
    for host in [lab.sender(), lab.receiver()] {
        assert!(link(host).native_xdp.is_none(), "{}", host.name());
    }
    lab.settle().expect("silence comes");
    let running = receiver(&lab, &at, "af_xdp");
    let send = format!("send {at} --json --backend xdp --count 1000 --rate 10k");
    let told = exchange(&lab, running, &send);
    told.balances();
}

/// A host's interface, as the kernel reports it.
fn link(host: &LabHost) -> NetlinkLink {
    let links = host.within(mpps_os::netlink::link::list);
    let links = links.expect("netlink");
    let ours = |link: &NetlinkLink| link.index == host.interface_index();
    links.into_iter().find(ours).expect("it has an interface")
}
