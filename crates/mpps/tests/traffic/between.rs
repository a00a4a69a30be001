//! Losses before and behind the sender's interface, where no socket sees them.

use super::{Told, join};
use crate::common::{self, Entered, Running, mpps, run, words};
use mpps_lab::Lab;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link, neighbour, qdisc};
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

/// The losses in a ledger for this reason: their number, and whether it is a difference.
fn lost(told: &Told, reason: &str) -> (u64, bool) {
    let losses = told.ledger["losses"].as_array().expect("a list");
    let rows = losses.iter().filter(|loss| loss["reason"] == reason);
    let counts = rows.map(|loss| {
        let count = loss["count"].as_u64().expect("a count");
        (count, loss["by_difference"] == true)
    });
    counts.fold((0, false), |sum, one| (sum.0 + one.0, sum.1 || one.1))
}

/// Sends 4000 stamped datagrams in 2 s. After half of that time, `drop_the_rest` makes something
/// drop the rest.
fn exchange(
    sender: &NetNamespace,
    receiver: &NetNamespace,
    listen: &str,
    drop_the_rest: impl FnOnce(),
) -> Told {
    let mut command = mpps(&["recv", listen, "--json", "--rcvbuf", "4M"]);
    let mut receiving = receiver.within(|| Running::start(&mut command));
    let at = receiving.address();
    let arguments = [
        "send", &at, "--json", "--stamp", "--count", "4000", "--rate", "2000",
    ];
    let mut sending = sender.within(|| Running::start(&mut mpps(&arguments)));
    sending.line("pps");
    drop_the_rest();
    join(&sending.end().fine(), &receiving.interrupt().fine())
}

pub(crate) fn what_the_senders_queue_drops_has_a_row() {
    let lab = Lab::new(&common::unhurried()).expect("the probe made namespaces");
    let listen = format!("{}:0", lab.receiver().v4()[0]);
    let hosts = (lab.sender().namespace(), lab.receiver().namespace());
    let told = exchange(hosts.0, hosts.1, &listen, || {
        let index = lab.sender().interface_index();
        lab.sender()
            .within(|| qdisc::set_black_hole(index))
            .expect("a black hole");
    });
    let (dropped, by_difference) = lost(&told, "dropped by the sender's queueing discipline");
    assert!(dropped > 0 && !by_difference, "{}", told.people);
    assert!(told.recv.received > 0, "{}", told.people);
    told.balances();
}

pub(crate) fn what_is_lost_between_two_hosts_has_a_row() {
    let road = Road::new();
    let told = exchange(&road.sender, &road.receiver, "10.9.0.2:0", || {
        let index = index(&road.router, "right");
        road.router
            .within(|| qdisc::set_black_hole(index))
            .expect("a black hole");
    });
    let (missing, by_difference) = lost(&told, "lost between the two NICs");
    assert!(missing > 0 && by_difference, "{}", told.people);
    assert!(told.recv.received > 0, "{}", told.people);
    told.balances();
}

/// A sender of frames asks for the Ethernet address of its target, and waits.
pub(crate) fn a_silent_host_keeps_no_sender_from_ending() {
    let road = Road::new();
    let silent = IpAddr::from([10, 9, 0, 77]);
    let asks = || {
        let all = road.sender.within(neighbour::unanswered).expect("a list");
        all.iter().any(|((_, address), _)| *address == silent)
    };
    let words = words("send 10.9.0.77:4321 --backend packet_mmap --count 10");
    let sending = road.sender.within(|| Running::start(&mut mpps(&words)));
    for _ in 0..2000 {
        if asks() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert!(asks(), "it asks for the address");
    let ended = sending.interrupt();
    assert_eq!(ended.code(), 130, "{ended:#?}");
}

/// At its end, a sender waits until the kernel has its answer, and after Ctrl-C it does not.
pub(crate) fn ctrl_c_waits_for_no_silent_host() {
    let road = Road::new();
    let asks = |last: u8| {
        let all = road.sender.within(neighbour::unanswered).expect("a list");
        let silent = IpAddr::from([10, 9, 0, last]);
        all.iter()
            .any(|((_, address), is_asked)| *address == silent && *is_asked)
    };
    let send = ["send", "10.9.0.78:4321", "--rate", "10"];
    let sending = road.sender.within(|| Running::start(&mut mpps(&send)));
    while !asks(78) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(sending.interrupt().code(), 1);
    assert!(asks(78), "the kernel asks for 3 s");
    let send = ["send", "10.9.0.79:4321", "--count", "1"];
    let ended = road.sender.within(|| run(&mut mpps(&send)));
    let said = format!("{ended:?}");
    assert!(
        said.contains("10.9.0.79 does not answer") && !asks(79),
        "{said}"
    );
}

/// A sender, a router in the middle and a receiver, which never have to ask for each other.
struct Road {
    sender: NetNamespace,
    router: NetNamespace,
    receiver: NetNamespace,
}

impl Road {
    fn new() -> Self {
        let space = || {
            let made = NetNamespace::new().expect("the probe made one");
            // Neighbour discovery would be counted at one end and not at the other.
            set(&made, "net/ipv6/conf/default/disable_ipv6", "1");
            set(&made, "net/ipv4/conf/all/rp_filter", "0");
            set(&made, "net/ipv4/conf/default/rp_filter", "0");
            made
        };
        let road = Self {
            sender: space(),
            router: space(),
            receiver: space(),
        };
        let Self {
            sender,
            router,
            receiver,
        } = &road;
        set(router, "net/ipv4/ip_forward", "1");
        pair(sender, "here", router, "left");
        pair(router, "right", receiver, "there");
        for (namespace, name, own) in [
            (sender, "here", [10, 9, 0, 1]),
            (router, "left", [10, 8, 0, 1]),
            (router, "right", [10, 9, 0, 254]),
            (receiver, "there", [10, 9, 0, 2]),
        ] {
            let index = index(namespace, name);
            namespace
                .within(|| {
                    address::add(index, IpAddr::from(own), 24)?;
                    link::set_up(index)
                })
                .expect("an address");
        }
        // The sender takes the router for the receiver.
        know(sender, "here", hardware(router, "left"));
        know(router, "right", hardware(receiver, "there"));
        road
    }
}

fn pair(one: &NetNamespace, name: &str, other: &NetNamespace, other_name: &str) {
    one.within(|| link::create_veth(name, 1, other_name, 1, other.as_fd()))
        .expect("a pair");
}

fn index(namespace: &NetNamespace, name: &str) -> u32 {
    namespace.within(|| link::index(name)).expect("it was made")
}

fn hardware(namespace: &NetNamespace, name: &str) -> Vec<u8> {
    let links = namespace.within(link::list).expect("a list");
    let found = links.into_iter().find(|link| link.name == name);
    found.expect("it was made").address
}

fn know(namespace: &NetNamespace, name: &str, hardware: Vec<u8>) {
    let index = index(namespace, name);
    let receiver = IpAddr::from([10, 9, 0, 2]);
    namespace
        .within(|| neighbour::add_permanent(index, receiver, &hardware))
        .expect("a neighbour");
}

fn set(namespace: &NetNamespace, name: &str, value: &str) {
    namespace
        .within(|| fs::write(format!("/proc/sys/{name}"), value))
        .expect("it is ours");
}
