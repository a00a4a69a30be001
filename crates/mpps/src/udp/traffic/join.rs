//! Both ends of a run in one ledger.

use super::{FlowTotal, RecvTotal, SendTotal};
use crate::udp::account::{ReceiverCounts, SenderCounts, account};
use mpps_host::ledger::account::SEQUENCE_NUMBERS;
use mpps_host::{Arrival, Delta, Ledger, PacketRoute, RingDrop, Station};
use mpps_io::{RxDrop, RxReport};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Joins what a sender and a receiver wrote into one ledger, and says what it cannot see between
/// them.
pub fn join(send: &SendTotal, recv: &RecvTotal) -> Ledger {
    let stamps = Stamps::new(send, recv);
    // End markers are datagrams to every counter of the kernel, and so they are here.
    let all = recv.received.saturating_add(recv.end_markers);
    // Of stamped traffic only what is known to be of this run counts, and each once.
    let came = stamps.as_ref().map_or(all, |stamps| stamps.came);
    let queued = recv.queued.min(came);
    let route = route(send, recv.interface.as_deref());
    let received = ReceiverCounts {
        delivered: came - queued,
        queued,
        drops: drops(recv),
        gro: recv.socket_drops_are_trains,
        arrival: arrival(recv),
    };
    let mut receiver = recv.host.clone();
    let strange = receiver
        .as_mut()
        .map_or_else(Vec::new, |host| take_strange(host, send, recv, came > 0));
    let hosts = (send.host.as_ref(), receiver.as_ref());
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
    if let Some(stamps) = &stamps {
        doubt(&mut ledger, stamps);
    }
    note(&mut ledger, send, recv, stamps.as_ref());
    note_unseen(&mut ledger, route);
    note_elsewhere(&mut ledger, recv);
    strange.into_iter().for_each(|note| ledger.note(note));
    ledger
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
            let counts = names.map(|name| {
                let count = host.snmp.remove(*name).unwrap_or(0);
                // IP did not fail to hand these on.
                let layer = name.split('.').next().unwrap_or_default();
                if let Some(all) = host.snmp.get_mut(&format!("{layer}.InReceives")) {
                    *all = all.saturating_sub(count);
                }
                count
            });
            let count: u64 = counts.map(|count| u64::try_from(count).unwrap_or(0)).sum();
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
    /// They are of this run: it has more flows than are followed.
    has_many_flows: bool,
    /// Datagrams and end markers of other runs, and unstamped datagrams.
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
            for flow in by_run.remove(&(at, thread.run)).unwrap_or_default() {
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
        stamps.foreign = recv.unstamped;
        for flow in by_run.into_values().flatten() {
            add(&mut read, flow.received);
            add(
                &mut stamps.foreign,
                flow.received.saturating_add(flow.end_markers),
            );
        }
        // Those of flows beyond the 8192nd, and those before the first batch that began with a stamp.
        stamps.unread = recv.received.saturating_sub(read);
        stamps.has_many_flows = send.end_markers / END_MARKERS_EACH > FLOWS_MAX;
        if stamps.has_many_flows {
            add(&mut stamps.came, stamps.unread);
        }
        Some(stamps)
    }
}

/// Subtracts duplicates and datagrams too late to judge from a receiver's count, by the stamps of
/// all its flows. Then notes how far the ledger that `account` makes is undecided.
pub(crate) fn without_copies(
    report: &RxReport,
    mut received: ReceiverCounts,
    account: impl FnOnce(ReceiverCounts) -> Ledger,
) -> Ledger {
    let mut stamps = Stamps::default();
    for (_, flow) in report.flows.reports() {
        stamps.duplicates = stamps.duplicates.saturating_add(flow.duplicates);
        stamps.late = stamps.late.saturating_add(flow.too_late);
    }
    let again = stamps.duplicates.saturating_add(stamps.late);
    received.delivered = received.delivered.saturating_sub(again);
    let mut ledger = account(received);
    doubt(&mut ledger, &stamps);
    ledger
}

/// Says how far the ledger is undecided by the stamps, which then are no witness of it.
fn doubt(ledger: &mut Ledger, stamps: &Stamps) {
    let Stamps {
        duplicates,
        late,
        beyond,
        unread,
        ..
    } = *stamps;
    ledger.duplicates = duplicates;
    let due = ledger.offered.saturating_add(ledger.copies);
    let missing = due
        .saturating_sub(ledger.delivered)
        .saturating_sub(ledger.queued);
    let doubtful = match stamps.has_many_flows {
        true => late.saturating_add(beyond),
        false => late.saturating_add(beyond).saturating_add(unread),
    };
    let arrivals = doubtful.min(missing);
    // Duplicates are dropped like other datagrams. The difference of two cards does not include
    // them.
    let behind = ledger.losses.iter().filter(|loss| match loss.station {
        Station::Sender => false,
        Station::Wire => !loss.by_difference,
        _ => true,
    });
    let is_replayed = duplicates > 0 || late > 0 || beyond > 0;
    let behind = behind.filter(|_| is_replayed);
    let drops = behind.fold(0, |sum: u64, loss| sum.saturating_add(loss.count));
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
    let is_decided = arrivals == 0 && drops == 0;
    if !is_decided || stamps.has_many_flows {
        let witnesses = &mut ledger.witnesses;
        witnesses.retain(|witness| witness.source != SEQUENCE_NUMBERS);
    }
    if is_decided {
        return;
    }
    let undecided = ledger.undecided.get_or_insert_default();
    undecided.arrivals = arrivals;
    undecided.drops = undecided.drops.max(drops);
    if arrivals > 0 {
        ledger.note(format!(
            "undecided: {arrivals} of these datagrams may be of this run, and may not: they are not \
             among the delivered ones, and sequence numbers say that {} to {missing} were lost",
            missing - arrivals
        ));
    }
    if drops > 0 {
        ledger.note(format!(
            "undecided: datagrams came again, and some of the {drops} that were dropped may be such \
             duplicates: as many of this run may be unaccounted for"
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
    let foreign = stamps.map_or(0, |stamps| stamps.foreign);
    if foreign > 0 {
        ledger.note(format!(
            "{foreign} datagrams that the receiver got are not of this run, by their stamps, and are \
             left out"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::LinkCounters;
    use mpps_host::counters::delta::LinkDelta;

    /// 20 000 datagrams in ten flows, and 30 end markers: all of it came.
    fn run() -> (SendTotal, RecvTotal) {
        let send = include_str!("../../../tests/fixtures/send.json");
        let recv = include_str!("../../../tests/fixtures/recv.json");
        let mut send: SendTotal = serde_json::from_str(send).expect("totals");
        let mut recv: RecvTotal = serde_json::from_str(recv).expect("totals");
        (send.host, recv.host) = (None, None);
        (send, recv)
    }

    /// Joins the run after this happened to its first flow.
    fn joined(change: impl Fn(&mut RecvTotal, &mut FlowTotal)) -> Ledger {
        let (send, mut recv) = run();
        let mut flow = recv.flows[0].clone();
        change(&mut recv, &mut flow);
        recv.flows[0] = flow;
        join(&send, &recv)
    }

    fn range(ledger: &Ledger) -> [i64; 2] {
        assert!(ledger.adds_up(), "{ledger}");
        ledger.unaccounted_range()
    }

    fn has_stamps_as_witness(ledger: &Ledger) -> bool {
        let mut witnesses = ledger.witnesses.iter();
        witnesses.any(|witness| witness.source == SEQUENCE_NUMBERS && witness.agrees())
    }

    fn notes(ledger: &Ledger) -> String {
        ledger.notes.join("\n")
    }

    #[test]
    fn a_run_of_which_everything_came_is_zero_and_its_stamps_agree() {
        let ledger = joined(|_, _| {});
        assert_eq!((ledger.delivered, range(&ledger)), (20_030, [0, 0]));
        assert!(ledger.balances() && has_stamps_as_witness(&ledger));
        assert!(!notes(&ledger).contains("undecided"), "{ledger:?}");
    }

    #[test]
    fn duplicates_fill_no_hole_and_make_none() {
        // As many lost as replayed: the receiver got 20 000 datagrams.
        let ledger = joined(|_, flow| (flow.lost, flow.duplicates) = (700, 700));
        assert_eq!((ledger.duplicates, range(&ledger)), (700, [700, 700]));
        assert!(notes(&ledger).contains("700 datagrams came again"));
        // A network that makes duplicates and loses nothing.
        let ledger = joined(|recv, flow| {
            recv.received += 700;
            (flow.received, flow.duplicates) = (flow.received + 700, 700);
        });
        assert_eq!((ledger.duplicates, range(&ledger)), (700, [0, 0]));
        assert!(ledger.balances() && has_stamps_as_witness(&ledger));
        assert!(!notes(&ledger).contains("undecided"), "{ledger:?}");
    }

    #[test]
    fn other_hosts_packets_fill_no_hole() {
        let (mut send, mut recv) = run();
        (send.host, recv.host) = (Some(Delta::default()), Some(Delta::default()));
        recv.received -= 40;
        (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - 40, 40);
        for (target, counter, words) in [
            (
                "10.0.0.2:4321",
                "Udp.IgnoredMulti",
                "40 broadcasts or multicasts without",
            ),
            (
                "10.0.0.2:4321",
                "Ip.InUnknownProtos",
                "40 packets of protocols that",
            ),
            (
                "10.0.0.2:4321",
                "Ip.InAddrErrors",
                "40 packets to addresses",
            ),
            // These may be the ones.
            ("10.0.0.255:4321", "Ip.InAddrErrors", ""),
            ("10.0.0.255:4321", "Udp.IgnoredMulti", ""),
            ("239.1.1.1:4321", "Udp.IgnoredMulti", ""),
        ] {
            let delivers = if counter.starts_with("Udp") { 40 } else { 0 };
            let counters = [
                (counter, 40),
                ("Ip.InReceives", 40),
                ("Ip.InDelivers", delivers),
            ];
            let counters = counters.map(|(name, count)| (name.to_owned(), count));
            recv.host.as_mut().expect("counters").snmp = counters.into();
            send.threads[0].target = target.to_owned();
            let ledger = join(&send, &recv);
            let left = if words.is_empty() { [0, 0] } else { [40, 40] };
            assert_eq!(range(&ledger), left, "{target} {counter}: {ledger}");
            assert!(notes(&ledger).contains(words), "{ledger:?}");
            assert_eq!(notes(&ledger).contains("left out"), !words.is_empty());
            assert!(!notes(&ledger).contains("handed on"), "{ledger:?}");
        }
    }

    #[test]
    fn a_hole_is_shown_with_the_counters_that_know_of_it() {
        let (send, mut recv) = run();
        let link = |rx_packets| LinkDelta {
            counters: LinkCounters {
                rx_packets,
                ..LinkCounters::default()
            },
            ..LinkDelta::default()
        };
        let whole = send.offered + send.end_markers;
        for (lost, in_datagrams, in_receives, words) in [
            (
                300,
                whole,
                whole,
                "300 datagrams were delivered to other sockets",
            ),
            (
                300,
                whole - 300,
                whole - 300,
                "300 packets that eth0 received",
            ),
            // All came, and others' datagrams, too.
            (0, whole + 300, whole - 300, ""),
        ] {
            let counters = [
                ("Udp.InDatagrams", in_datagrams),
                ("Ip.InReceives", in_receives),
            ];
            recv.host = Some(Delta {
                snmp: counters
                    .map(|(name, count)| (name.to_owned(), count as i64))
                    .into(),
                links: [("eth0", whole), ("lo", 9)]
                    .map(|(name, rx)| (name.to_owned(), link(rx as i64)))
                    .into(),
                ..Delta::default()
            });
            let mut recv = recv.clone();
            recv.received -= lost;
            (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - lost, lost);
            let ledger = join(&send, &recv);
            assert_eq!(range(&ledger), [lost as i64; 2], "{ledger}");
            let told = notes(&ledger);
            assert!(told.contains(words), "{told}");
            let is_told = ["other sockets", "reach IP"].map(|words| told.contains(words));
            assert_eq!(
                is_told,
                [words.contains("sockets"), words.contains("eth0")],
                "{told}"
            );
        }
    }

    #[test]
    fn other_programs_ports_fill_no_hole() {
        let (mut send, mut recv) = run();
        (send.host, recv.host) = (Some(Delta::default()), Some(Delta::default()));
        recv.received -= 500;
        (recv.flows[0].received, recv.flows[0].lost) = (recv.flows[0].received - 500, 500);
        let counters = [("Udp.NoPorts".to_owned(), 500)];
        recv.host.as_mut().expect("counters").snmp = counters.into();
        // The receiver's socket was open all the time.
        recv.address = "0.0.0.0:4321".to_owned();
        send.threads[0].target = "10.0.0.2:4321".to_owned();
        for arrival in ["xdp", "socket"] {
            recv.arrival = arrival.to_owned();
            let ledger = join(&send, &recv);
            assert_eq!(range(&ledger), [500, 500], "{ledger}");
            assert!(notes(&ledger).contains("500 datagrams on ports without a socket"));
        }
        // It listened elsewhere: these may be the ones.
        for address in ["0.0.0.0:4322", "10.0.0.3:4321", "[::1]:4321"] {
            recv.address = address.to_owned();
            let ledger = join(&send, &recv);
            assert_eq!(range(&ledger), [0, 0], "{address}: {ledger}");
            assert!(!notes(&ledger).contains("ports without a socket"));
        }
    }

    #[test]
    fn a_receiver_alone_counts_no_copy_for_a_lost_one() {
        let ledger = |sequences: &[u64]| {
            let mut report = RxReport::default();
            for &sequence in sequences {
                let stamp = mpps_io::Stamp {
                    kind: mpps_io::StampKind::Data,
                    sender: 0,
                    flow: 0,
                    run: 1,
                    sequence,
                    time_ns: 0,
                };
                let mut payload = [0; 16];
                stamp.write(&mut payload);
                report.flows.record(&payload, 0);
            }
            let received = ReceiverCounts {
                delivered: sequences.len() as u64,
                queued: 0,
                drops: Vec::new(),
                gro: false,
                arrival: Arrival::Socket,
            };
            let sent = SenderCounts {
                offered: 5,
                ..SenderCounts::default()
            };
            without_copies(&report, received, |received| {
                account(sent, received, PacketRoute::Hosts, (None, None)).ledger()
            })
        };
        let healthy = ledger(&[0, 1, 2, 3, 4]);
        assert_eq!((range(&healthy), healthy.duplicates), ([0, 0], 0));
        let replayed = ledger(&[0, 1, 1, 1, 4]);
        assert_eq!((range(&replayed), replayed.duplicates), ([2, 2], 2));
        let late = ledger(&[0, 1, 2, 9000, 2]);
        assert_eq!((range(&late), late.duplicates), ([1, 1], 1));
    }

    #[test]
    fn more_flows_than_are_followed_are_no_doubt() {
        let (mut send, mut recv) = run();
        recv.received += 500;
        assert_eq!(join(&send, &recv).undecided, None, "they fill no hole");
        (send.offered, send.threads[0].offered) = (send.offered + 500, 20_500);
        send.end_markers = 3 * 8193;
        let missing = i64::try_from(send.end_markers).expect("few") - 30;
        let ledger = join(&send, &recv);
        assert_eq!(range(&ledger), [missing, missing], "{ledger}");
        assert!(!has_stamps_as_witness(&ledger));
        assert!(notes(&ledger).contains("follows 8192 flows"));
    }

    #[test]
    fn fragments_of_a_namespace_are_no_loss_of_a_run() {
        let (send, mut recv) = run();
        let whole = [
            ("Ip.ReasmReqds".to_owned(), 1500),
            ("Ip.ReasmOKs".to_owned(), 500),
        ];
        let snmp = whole.into();
        recv.host = Some(Delta {
            snmp,
            ..Delta::default()
        });
        for (arrival, is_told) in [("tap", true), ("xdp", true), ("socket", false)] {
            recv.arrival = arrival.to_owned();
            let ledger = join(&send, &recv);
            assert_eq!((ledger.lost(), range(&ledger)), (0, [0, 0]), "{ledger}");
            let said = notes(&ledger).contains("up to 500 datagrams may have been for this port");
            assert_eq!(said, is_told, "{ledger:?}");
        }
    }

    #[test]
    fn what_came_too_late_to_tell_is_undecided_and_not_zero() {
        let late = |undecided, lost| {
            move |_: &mut RecvTotal, flow: &mut FlowTotal| {
                (flow.too_late, flow.lost, flow.undecided) = (700, lost, undecided);
            }
        };
        // A file of an older version took them for late ones.
        for ledger in [joined(late(Some(700), 700)), joined(late(None, 0))] {
            assert_eq!(range(&ledger), [0, 700]);
            assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
            let notes = notes(&ledger);
            assert!(notes.contains("undecided: 700 of these"), "{notes}");
            assert!(notes.contains("0 to 700 were lost"), "{notes}");
        }
        // The receiver has decided that they were late ones.
        let ledger = joined(late(Some(0), 0));
        assert!(ledger.balances() && has_stamps_as_witness(&ledger));
    }

    #[test]
    fn of_duplicates_some_may_have_been_dropped() {
        let ledger = joined(|recv, flow| {
            (recv.received, recv.socket_drops) = (recv.received - 400, 500);
            (flow.received, flow.lost, flow.duplicates) = (flow.received - 400, 500, 100);
        });
        assert_eq!(range(&ledger), [0, 500]);
        assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
        // The same without duplicates.
        let ledger = joined(|recv, flow| {
            (recv.received, recv.socket_drops) = (recv.received - 500, 500);
            (flow.received, flow.lost) = (flow.received - 500, 500);
        });
        assert!(ledger.balances() && has_stamps_as_witness(&ledger));
    }

    #[test]
    fn pairs_of_threads_and_flows_take_no_time() {
        let ((mut send, mut recv), began) = (run(), std::time::Instant::now());
        send.threads = vec![send.threads[0].clone(); 100_000];
        recv.flows = vec![recv.flows[0].clone(); 100_000];
        join(&send, &recv);
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn stamps_beyond_what_was_sent_fill_no_hole() {
        // Ten of the last were lost, and ten are forged behind them, or far behind.
        for far in [0, 1 << 35] {
            let ledger = joined(|_, flow| flow.lost = far + 10);
            let [least, most] = range(&ledger);
            assert!(least <= 10 && most >= 10, "{least} to {most}");
            assert!(!ledger.balances() && !has_stamps_as_witness(&ledger));
            assert!(notes(&ledger).contains("beyond what was sent"));
        }
    }

    #[test]
    fn end_markers_and_datagrams_of_others_fill_no_hole() {
        let ledger = joined(|recv, flow| {
            (recv.received, flow.received) = (recv.received - 10, flow.received - 10);
            (recv.end_markers, flow.end_markers) = (recv.end_markers + 10, 13);
            flow.lost = 10;
        });
        assert_eq!(range(&ledger), [10, 10]);
        // Another run, no stamps, and nothing of this run's: none of it was delivered.
        let ledger = joined(|recv, flow| {
            (flow.run, recv.unstamped) = (flow.run.wrapping_add(1), 5);
            recv.received += 5;
        });
        assert_eq!(range(&ledger), [1652 + 3; 2]);
        // Nothing began with a stamp, so that the receiver read none.
        let ledger = joined(|recv, _| recv.flows.truncate(1));
        let lost = 20_000 - 1652;
        assert_eq!(range(&ledger), [27, lost + 27]);
        assert!(notes(&ledger).contains("did not read"), "{ledger:?}");
    }
}
