//! Both ends of a run in one ledger.

use super::{FlowTotal, RecvTotal, SendTotal};
use crate::udp::account::{Received, Sent, account};
use mpps_host::{Arrival, Ledger, RingDrop, Route, Station};
use std::net::SocketAddr;

/// Joins what a sender and a receiver wrote into one ledger, and says what it cannot see between
/// them.
pub fn join(send: &SendTotal, recv: &RecvTotal) -> Ledger {
    let stamps = Stamps::new(send, recv);
    // End markers are datagrams to every counter of the kernel, and so they are here.
    let received = recv.received.saturating_add(recv.end_markers);
    let foreign = stamps.as_ref().map_or(0, |stamps| stamps.foreign);
    let delivered = received.saturating_sub(recv.queued).saturating_sub(foreign);
    let route = route(send, recv.interface.as_deref());
    let received = Received {
        delivered,
        queued: recv.queued,
        drops: drops(recv),
        gro: recv.socket_drops_are_trains,
        arrival: arrival(recv),
    };
    let hosts = (send.host.as_ref(), recv.host.as_ref());
    let mut account = account(sent(send), received, route, hosts);
    account.one_machine = send.boot_id.is_some() && send.boot_id == recv.boot_id;
    let copies_each = copies_each(send, recv);
    if copies_each > 0 {
        // Copies are made in front of the sockets: what was lost before that was lost once.
        let before = account.ledger();
        let lost: u64 = before
            .losses
            .iter()
            .filter(|loss| loss.station < Station::Socket)
            .fold(0, |sum, loss| sum.saturating_add(loss.count));
        account.copies = account
            .offered
            .saturating_sub(lost)
            .saturating_mul(copies_each);
    }
    let due = account.offered.saturating_add(account.copies);
    account.sequence_lost = stamps.as_ref().map(|stamps| {
        let came = stamps.distinct.saturating_add(stamps.end_markers);
        due.saturating_sub(came)
    });
    let mut ledger = account.ledger();
    note(&mut ledger, send, recv, stamps.as_ref());
    note_unseen(&mut ledger, route);
    ledger
}

/// What a sender wrote of itself.
pub(crate) fn sent(send: &SendTotal) -> Sent {
    let mut refused = send.refused_by.clone();
    for (answer, count) in &send.end_refused_by {
        let all = refused.entry(answer.clone()).or_default();
        *all = all.saturating_add(*count);
    }
    Sent {
        offered: send.offered.saturating_add(send.end_markers),
        refused,
        blocked: send.blocked,
        gso: send.gso > 1,
        departure: send.departure,
        threads: send.threads.len(),
    }
}

/// The way from a sender to the interface of a receiver, as far as it is known.
pub(crate) fn route<'a>(send: &'a SendTotal, receiver: Option<&'a str>) -> Route<'a> {
    match (&send.interface, receiver) {
        (Some(sender), Some(receiver)) => Route::Cards { sender, receiver },
        _ => Route::Hosts,
    }
}

fn arrival(recv: &RecvTotal) -> Arrival {
    match recv.arrival.as_str() {
        "tap" => Arrival::Tap,
        // Between two hosts there is no witness that would need to know where the program ran.
        "xdp" => Arrival::Xdp { in_driver: false },
        _ => Arrival::Socket,
    }
}

/// What its sockets or rings dropped; files of versions that gave no reasons have a sum of sockets.
fn drops(recv: &RecvTotal) -> Vec<RingDrop> {
    if recv.arrival == "socket" {
        return vec![RingDrop {
            reason: "socket buffer full".to_owned(),
            source: "SO_MEMINFO drops".to_owned(),
            count: recv.socket_drops,
        }];
    }
    recv.drops.clone()
}

/// How many deliveries of a datagram there were to be beyond the first: those of a multicast group
/// that several sockets joined.
fn copies_each(send: &SendTotal, recv: &RecvTotal) -> u64 {
    let group = |target: &str| {
        let address: Option<SocketAddr> = target.parse().ok();
        address.is_some_and(|address| recv.groups.contains(&address.ip().to_string()))
    };
    let all_joined = send.threads.iter().all(|thread| group(&thread.target));
    if all_joined {
        recv.multicast_sockets.saturating_sub(1)
    } else {
        0
    }
}

/// What the stamps tell of this run, apart from everything else that came to the receiver.
struct Stamps {
    /// Datagrams of this run, duplicates not counted.
    distinct: u64,
    /// End markers of this run.
    end_markers: u64,
    /// Datagrams and end markers of other runs, and unstamped datagrams.
    foreign: u64,
}

impl Stamps {
    /// None for unstamped traffic, and where flows were too many to follow.
    fn new(send: &SendTotal, recv: &RecvTotal) -> Option<Self> {
        if recv.flows.is_empty() || recv.untracked > 0 {
            return None;
        }
        let is_ours = |flow: &FlowTotal| {
            let thread = send.threads.get(usize::from(flow.sender));
            thread.is_some_and(|thread| thread.run == Some(flow.run))
        };
        let sum = |ours: bool, count: fn(&FlowTotal) -> u64| {
            let flows = recv.flows.iter().filter(|flow| is_ours(flow) == ours);
            flows.map(count).fold(0, u64::saturating_add)
        };
        Some(Self {
            distinct: sum(true, |flow| flow.received.saturating_sub(flow.duplicates)),
            end_markers: sum(true, |flow| flow.end_markers),
            foreign: sum(false, |flow| flow.received.saturating_add(flow.end_markers))
                .saturating_add(recv.unstamped),
        })
    }
}

/// Says what no counter knows of the way.
pub(crate) fn note_unseen(ledger: &mut Ledger, route: Route<'_>) {
    let unseen = match route {
        Route::Hosts => {
            "not seen between the two hosts: the sender's queueing discipline and NIC, the wire and \
             switches, and what the receiver's NIC drops without one of the counters above"
        }
        _ => {
            "lost between the two NICs is what one counts and the other does not: the wire, switches, \
             and what the receiver's NIC drops without a counter of its own"
        }
    };
    ledger.note(format!(
        "{unseen}; rows of an interface, a namespace or a host may include other programs' packets"
    ));
}

fn note(ledger: &mut Ledger, send: &SendTotal, recv: &RecvTotal, stamps: Option<&Stamps>) {
    for (missing, end) in [
        (send.host.is_none(), "sender"),
        (recv.host.is_none(), "receiver"),
    ] {
        if missing {
            ledger.note(format!("the {end} could not read its host's counters"));
        }
    }
    if send.end_markers > 0 {
        let came = stamps.map_or(recv.end_markers, |stamps| stamps.end_markers);
        let sent = send.end_markers;
        ledger.note(format!(
            "{sent} end markers are among the offered datagrams, {came} among the delivered ones"
        ));
    }
    let foreign = stamps.map_or(0, |stamps| stamps.foreign);
    if foreign > 0 {
        ledger.note(format!(
            "{foreign} datagrams that the receiver got are not of this run, by their stamps, and are \
             left out"
        ));
    }
}
