//! Both ends of a run in one ledger.

use super::{FlowTotal, RecvTotal, SendTotal};
use crate::udp::account::{ReceiverCounts, SenderCounts, account};
use mpps_host::ledger::account::SEQUENCE_NUMBERS;
use mpps_host::ledger::loss::{LOSSES, SEND_BUFFER};
use mpps_host::{Arrival, Delta, Ledger, PacketRoute, RingDrop, Station};
use mpps_io::{FlowKey, RxDrop, RxReport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

mod many;
#[cfg(test)]
mod tests;

pub use many::{Together, join_all};

/// Joins what a sender and a receiver wrote into one ledger, and says what it cannot see between
/// them.
pub fn join(send: &SendTotal, recv: &RecvTotal) -> Ledger {
    let stamps = Stamps::new(send, recv);
    // End markers are datagrams to every counter of the kernel, and so they are here.
    let all = recv.received.saturating_add(recv.end_markers);
    // Of stamped traffic only what is known to be of this run counts, and each once.
    let apart = stamps.is_none().then(|| is_apart(send, recv)).flatten();
    let came = match (&stamps, apart) {
        (Some(stamps), _) => stamps.came,
        (None, Some(_)) => 0,
        (None, None) => all,
    };
    let queued = recv.queued.min(came);
    let route = route(send, recv.interface.as_deref());
    let received = ReceiverCounts {
        delivered: came - queued,
        queued,
        drops: drops(recv),
        gro: recv.socket_drops_are_trains,
        arrival: arrival(recv),
        has_strangers: stamps.as_ref().is_some_and(Stamps::has_strangers),
    };
    let (mut sender, mut receiver) = (send.host.clone(), recv.host.clone());
    for host in sender.iter_mut().chain(&mut receiver) {
        take_other_family(host, send);
    }
    let strange = receiver
        .as_mut()
        .map_or_else(Vec::new, |host| take_strange(host, send, recv, came > 0));
    let hosts = (sender.as_ref(), receiver.as_ref());
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
    account.sequence_lost = stamps
        .as_ref()
        .map(|stamps| due.saturating_sub(stamps.came));
    let mut ledger = account.ledger();
    match (&stamps, apart) {
        (Some(stamps), _) => doubt(&mut ledger, stamps),
        (None, Some(why)) => {
            ledger.undecided.get_or_insert_default().arrivals = all.min(due);
            ledger.note(format!(
                "undecided: the {all} datagrams that came may be of another run: {why}"
            ));
        }
        (None, None) => ledger.note(
            "not stamped: other senders' datagrams or copies may stand for lost ones; use send --stamp",
        ),
    }
    note(&mut ledger, send, recv, stamps.as_ref());
    note_unseen(&mut ledger, route);
    note_elsewhere(&mut ledger, recv);
    strange.into_iter().for_each(|note| ledger.note(note));
    ledger
}

/// Why the two results seem to be of different runs, if they do.
fn is_apart(send: &SendTotal, recv: &RecvTotal) -> Option<&'static str> {
    let port = |address: &str| address.parse().map(|address: SocketAddr| address.port());
    let bound = port(&recv.address).ok();
    let mut ports = send.threads.iter().map(|thread| port(&thread.target).ok());
    if bound.is_some() && ports.all(|port| port.is_some() && port != bound) {
        return Some("the receiver's port is not the sender's target");
    }
    let is_one_clock = send.boot_id.is_some() && send.boot_id == recv.boot_id;
    let [sent, came] =
        [&send.host, &recv.host].map(|host| host.as_ref().map(|host| host.taken_unix_ns));
    let ([began, ended], [from, to]) = sent.zip(came).filter(|_| is_one_clock)?;
    let is_known = began > 0 && from > 0;
    (is_known && (ended < from || to < began)).then_some("one ended before the other began")
}

/// Whether the receiver had a socket for all that was sent, from its first look at the host's counters to its
/// last.
fn is_bound(send: &SendTotal, recv: &RecvTotal) -> bool {
    let Ok(bound) = recv.address.parse::<SocketAddr>() else {
        return false;
    };
    let takes = |target: SocketAddr| {
        let ip = target.ip() == bound.ip() || bound.ip().is_unspecified();
        ip && target.port() == bound.port() && target.is_ipv4() == bound.is_ipv4()
    };
    let mut targets = send.threads.iter().map(|thread| thread.target.parse());
    // An AF_XDP receiver holds the port with a socket, too; a tap is none.
    recv.arrival != "tap" && targets.all(|target| target.is_ok_and(takes))
}

/// Whether each address that was sent to is of one host, as far as an address shows that.
fn is_unicast(send: &SendTotal) -> bool {
    let mut targets = send.threads.iter().map(|thread| thread.target.parse());
    targets.all(|target| match target {
        Ok(SocketAddr::V4(to)) => !to.ip().is_multicast() && to.ip().octets()[3] != u8::MAX,
        Ok(SocketAddr::V6(to)) => !to.ip().is_multicast(),
        Err(_) => false,
    })
}

/// Takes this counter out of those of a host.
fn take(host: &mut Delta, name: &str) -> u64 {
    let count = host.snmp.remove(name).unwrap_or(0);
    // IP did not fail to hand these on.
    let layer = name.split('.').next().unwrap_or_default();
    if let Some(all) = host.snmp.get_mut(&format!("{layer}.InReceives")) {
        *all = all.saturating_sub(count);
    }
    u64::try_from(count).unwrap_or(0)
}

/// Takes out what a host counted of IPv6 if the run is of IPv4, and the reverse.
fn take_other_family(host: &mut Delta, send: &SendTotal) {
    let targets = send.threads.iter().map(|thread| thread.target.parse());
    let families = targets
        .flatten()
        .map(|to: SocketAddr| to.ip().to_canonical().is_ipv6());
    let families: BTreeSet<bool> = families.collect();
    let kinds = LOSSES.iter().chain(&[&SEND_BUFFER]);
    let beside =
        ["OutDatagrams", "InErrors"].map(|name| [format!("Udp.{name}"), format!("Udp6.{name}")]);
    let names = kinds.flat_map(|kind| kind.counters).copied();
    let names = names.chain(beside.iter().flatten().map(String::as_str));
    for name in names {
        let is_v6 = name
            .split('.')
            .next()
            .is_some_and(|layer| layer.ends_with('6'));
        if families.len() == 1 && !families.contains(&is_v6) {
            take(host, name);
        }
    }
}

/// Takes out of a host's counters what cannot be of this run. Datagrams of it `came`, or none did. Returns notes.
fn take_strange(host: &mut Delta, send: &SendTotal, recv: &RecvTotal, came: bool) -> Vec<String> {
    let targets = send.threads.iter().map(|thread| thread.target.parse());
    let targets: BTreeSet<_> = targets
        .map(|to| to.map(|to: SocketAddr| to.ip()).ok())
        .collect();
    let kinds: [(bool, &[&str], &str, &str); 4] = [
        (
            came && targets.len() == 1 && is_unicast(send),
            &["Ip.InAddrErrors", "Ip6.InAddrErrors"],
            "packets to addresses that the receiver does not have (Ip.InAddrErrors)",
            "this run came to its address",
        ),
        (
            is_bound(send, recv),
            &[
                "Udp.NoPorts",
                "Udp6.NoPorts",
                "UdpLite.NoPorts",
                "UdpLite6.NoPorts",
            ],
            "datagrams on ports without a socket (Udp.NoPorts)",
            "the receiver's socket was open while the kernel counted them",
        ),
        (
            is_unicast(send),
            &["Udp.IgnoredMulti", "Udp6.IgnoredMulti"],
            "broadcasts or multicasts without a socket (Udp.IgnoredMulti)",
            "this run sent none",
        ),
        (
            true,
            &["Ip.InUnknownProtos", "Ip6.InUnknownProtos"],
            "packets of protocols that no program takes (Ip.InUnknownProtos)",
            "UDP is none",
        ),
    ];
    let taken = kinds
        .into_iter()
        .filter_map(|(is_strange, names, what, why)| {
            let names = names.iter().filter(|_| is_strange);
            let count: u64 = names.map(|name| take(host, name)).sum();
            let note = || format!("{count} {what} are other programs' and left out: {why}");
            (count > 0).then(note)
        });
    taken.collect()
}

/// The counts in a sender's totals.
pub(crate) fn sent(send: &SendTotal) -> SenderCounts {
    let mut refused = send.refused_by.clone();
    for (answer, count) in &send.end_refused_by {
        let all = refused.entry(answer.clone()).or_default();
        *all = all.saturating_add(*count);
    }
    SenderCounts {
        offered: send.offered.saturating_add(send.end_markers),
        refused,
        blocked: send.blocked,
        gso: send.gso > 1,
        departure: send.departure,
        threads: send.threads.len(),
    }
}

/// The way from a sender to the interface of a receiver, as far as it is known.
pub(crate) fn route<'a>(send: &'a SendTotal, receiver: Option<&'a str>) -> PacketRoute<'a> {
    match (&send.interface, receiver) {
        (Some(sender), Some(receiver)) => PacketRoute::Cards { sender, receiver },
        _ => PacketRoute::Hosts,
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

/// Drops of its sockets or rings; files of versions that gave no reasons have a sum of sockets.
fn drops(recv: &RecvTotal) -> Vec<RingDrop> {
    if recv.arrival == "socket" {
        return vec![RingDrop {
            reason: RxDrop::AT_SOCKET.to_owned(),
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

/// End markers of a flow, and flows that a receiver follows.
const END_MARKERS_EACH: u64 = 3;
const FLOWS_MAX: u64 = 8192;

/// The counts that the stamps give for this run, without other traffic to the receiver.
#[derive(Default)]
struct Stamps {
    /// Datagrams and end markers that are known to be of this run, each once.
    came: u64,
    /// End markers among them.
    end_markers: u64,
    /// Datagrams of this run that came again.
    duplicates: u64,
    /// Datagrams that are late ones of this run, or duplicates.
    late: u64,
    /// Sequence numbers beyond what was sent: as many datagrams, or fewer, are forged.
    beyond: u64,
    /// Datagrams whose stamps the receiver did not follow.
    unread: u64,
    /// Datagrams without a stamp, or with a damaged one.
    unstamped: u64,
    /// They are of this run: it has more flows than are followed.
    has_many_flows: bool,
    /// Datagrams and end markers of other runs.
    foreign: u64,
}

impl Stamps {
    /// None for a sender that wrote no stamps.
    fn new(send: &SendTotal, recv: &RecvTotal) -> Option<Self> {
        send.threads.iter().find_map(|thread| thread.run)?;
        let copies = copies_each(send, recv) + 1;
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        let mut stamps = Self::default();
        let mut read = recv.unstamped;
        let mut by_run: BTreeMap<(usize, Option<u32>), Vec<&FlowTotal>> = BTreeMap::new();
        for flow in &recv.flows {
            let run = (usize::from(flow.sender), Some(flow.run));
            by_run.entry(run).or_default().push(flow);
        }
        for (at, thread) in send.threads.iter().enumerate() {
            let (mut data, mut due) = (0, 0);
            for flow in by_run
                .remove(&(thread.number(at), thread.run))
                .unwrap_or_default()
            {
                let told = flow.undecided.unwrap_or(0);
                let once = flow.received.saturating_sub(flow.duplicates);
                // Files of older versions have those that came too late among the others.
                let late = flow.undecided.unwrap_or(flow.too_late).min(once);
                let known = once.saturating_sub(told).saturating_add(flow.lost);
                add(&mut due, known / copies);
                add(&mut data, once - late);
                add(&mut stamps.late, late);
                add(&mut stamps.duplicates, flow.duplicates);
                add(&mut stamps.end_markers, flow.end_markers);
                add(&mut read, flow.received);
            }
            // The sender's own count bounds what its stamps can say.
            let beyond = due.saturating_sub(thread.offered).saturating_mul(copies);
            add(&mut stamps.beyond, beyond.min(data));
            add(&mut stamps.came, data - beyond.min(data));
        }
        stamps.end_markers = stamps
            .end_markers
            .min(send.end_markers.saturating_mul(copies));
        add(&mut stamps.came, stamps.end_markers);
        stamps.unstamped = recv.unstamped;
        for flow in by_run.into_values().flatten() {
            add(&mut read, flow.received);
            add(
                &mut stamps.foreign,
                flow.received.saturating_add(flow.end_markers),
            );
        }
        // Those of flows beyond the 8192nd, and those before the first batch that began with a stamp.
        stamps.unread = recv.received.saturating_sub(read);
        stamps.has_many_flows = has_many_flows(send);
        if stamps.has_many_flows {
            add(&mut stamps.came, stamps.unread);
        }
        Some(stamps)
    }

    /// Datagrams that may be of this run, and may not.
    fn doubtful(&self) -> u64 {
        let unread = if self.has_many_flows { 0 } else { self.unread };
        let kinds = [self.late, self.beyond, self.unstamped, unread];
        kinds.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether datagrams came that are not known to be of this run, each once.
    fn has_strangers(&self) -> bool {
        [self.duplicates, self.foreign, self.doubtful()] != [0; 3]
    }
}

/// Subtracts from a receiver's count, by the stamps of all its flows, duplicates, datagrams too late to
/// judge, and datagrams that are not of this sender's runs; no sender has all runs. Then notes how far
/// the ledger that `account` makes is undecided.
pub(crate) fn without_copies(
    report: &RxReport,
    sender: Option<&SendTotal>,
    mut received: ReceiverCounts,
    account: impl FnOnce(ReceiverCounts) -> Ledger,
) -> Ledger {
    let mut stamps = Stamps::default();
    let is_ours = |key: FlowKey| {
        let runs = sender.map(|sender| &sender.threads);
        runs.is_none_or(|runs| {
            let mut runs = runs.iter().enumerate();
            runs.any(|(at, thread)| {
                thread.number(at) == usize::from(key.sender) && thread.run == Some(key.run)
            })
        })
    };
    let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
    for (key, flow) in report.flows.reports() {
        if is_ours(key) {
            add(&mut stamps.duplicates, flow.duplicates);
            add(&mut stamps.late, flow.too_late);
        } else {
            add(&mut stamps.foreign, flow.received + flow.end_markers);
        }
    }
    if let Some(sender) = sender {
        stamps.unstamped = report.flows.unstamped();
        stamps.unread = report.flows.untracked();
        stamps.has_many_flows = has_many_flows(sender);
    }
    let beside = [stamps.duplicates, stamps.foreign, stamps.doubtful()];
    let beside = beside.into_iter().fold(0, u64::saturating_add);
    received.delivered = received.delivered.saturating_sub(beside);
    received.has_strangers = stamps.has_strangers();
    let mut ledger = account(received);
    doubt(&mut ledger, &stamps);
    note_foreign(&mut ledger, stamps.foreign);
    ledger
}

/// Whether a sender has more flows than a receiver follows.
fn has_many_flows(send: &SendTotal) -> bool {
    send.end_markers / END_MARKERS_EACH > FLOWS_MAX
}

/// Says how far the ledger is undecided by the stamps, which then are no witness of it.
fn doubt(ledger: &mut Ledger, stamps: &Stamps) {
    let Stamps {
        duplicates,
        late,
        beyond,
        unread,
        unstamped,
        ..
    } = *stamps;
    ledger.duplicates = duplicates;
    let due = ledger.offered.saturating_add(ledger.copies);
    let missing = due
        .saturating_sub(ledger.delivered)
        .saturating_sub(ledger.queued);
    let arrivals = stamps.doubtful().min(missing);
    for (count, what) in [
        (duplicates, "came again, by their stamps: each counts once"),
        (
            late,
            "came late or again, and their stamps do not show which",
        ),
        (
            beyond,
            "have sequence numbers beyond what was sent: their stamps are forged, or others' are",
        ),
        (unread, "came whose stamps the receiver did not read"),
        (
            unstamped,
            "came without a stamp, or with a damaged one, and are not among the delivered ones",
        ),
    ] {
        if count > 0 {
            ledger.note(format!("{count} datagrams {what}"));
        }
    }
    if stamps.has_many_flows {
        ledger.note(format!(
            "sequence numbers are no witness: a receiver follows {FLOWS_MAX} flows, and this run has more"
        ));
    }
    // Numbers of a run whose datagrams came again are no witness of rows that may have the duplicates.
    let is_replayed = duplicates > 0 || late > 0 || beyond > 0;
    let is_doubted = arrivals > 0 || (is_replayed && ledger.undecided.is_some());
    if is_doubted || stamps.has_many_flows {
        let witnesses = &mut ledger.witnesses;
        witnesses.retain(|witness| witness.source != SEQUENCE_NUMBERS);
    }
    if arrivals > 0 {
        ledger.undecided.get_or_insert_default().arrivals = arrivals;
        ledger.note(format!(
            "undecided: {arrivals} of these datagrams may be of this run, and may not: they are not \
             among the delivered ones, and sequence numbers say that {} to {missing} were lost",
            missing - arrivals
        ));
    }
}

/// Says what no counter knows of the way.
pub(crate) fn note_unseen(ledger: &mut Ledger, route: PacketRoute<'_>) {
    let unseen = match route {
        PacketRoute::Hosts => {
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

/// Says where the receiving host had packets that no row has, if any are missing.
fn note_elsewhere(ledger: &mut Ledger, recv: &RecvTotal) {
    // A train counts once behind IP.
    let is_told = recv.arrival == "socket" && !recv.socket_drops_are_trains;
    let Some(host) = recv.host.as_ref().filter(|_| is_told) else {
        return;
    };
    if ledger.unaccounted_range()[1] <= 0 {
        return;
    }
    let read = i128::from(recv.received) + i128::from(recv.end_markers);
    let others = i128::from(host.udp("InDatagrams").unwrap_or(0)) - read;
    if others > 0 {
        ledger.note(format!(
            "{others} datagrams were delivered to other sockets (Udp.InDatagrams), of this run or not: mpps \
             doctor --port names the programs at its port"
        ));
    }
    let links = host.links.iter();
    let busiest = links.max_by_key(|(_, link)| link.counters.rx_packets);
    let names = ["Ip.InReceives", "Ip6.InReceives"];
    let ip = names.map(|name| i128::from(host.snmp(name).unwrap_or(0)));
    if let Some((name, link)) = busiest {
        let gap = i128::from(link.counters.rx_packets) - ip.iter().sum::<i128>();
        if gap > 0 {
            ledger.note(format!(
                "{gap} packets that {name} received (rx_packets) did not reach IP (Ip.InReceives), of this run \
                 or not: such as for a rule at its ingress, a filter of tc or an XDP program, or because they \
                 are not IP or were merged"
            ));
        }
    }
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
    note_foreign(ledger, stamps.map_or(0, |stamps| stamps.foreign));
}

fn note_foreign(ledger: &mut Ledger, foreign: u64) {
    if foreign > 0 {
        ledger.note(format!(
            "{foreign} datagrams that the receiver got are not of this run, by their stamps, and are \
             left out"
        ));
    }
}
