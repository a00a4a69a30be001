//! Both ends of a run in one ledger.

use super::{FlowTotal, RecvTotal, SendTotal};
use crate::udp::account::{Received, Sent, account};
use mpps_host::account::SEQUENCE_NUMBERS;
use mpps_host::{Arrival, Ledger, RingDrop, Route, Station, Undecided};
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
    let received = Received {
        delivered: came - queued,
        queued,
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
    account.sequence_lost = stamps
        .as_ref()
        .map(|stamps| due.saturating_sub(stamps.came));
    let mut ledger = account.ledger();
    if let Some(stamps) = &stamps {
        doubt(&mut ledger, stamps);
    }
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
    /// Datagrams and end markers of other runs, and unstamped datagrams.
    foreign: u64,
}

impl Stamps {
    /// None for a sender that wrote no stamps.
    fn new(send: &SendTotal, recv: &RecvTotal) -> Option<Self> {
        send.threads.iter().find_map(|thread| thread.run)?;
        let copies = recv.multicast_sockets.max(1);
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        let mut stamps = Self::default();
        let mut read = recv.unstamped;
        for (at, thread) in send.threads.iter().enumerate() {
            let is_ours =
                |flow: &&FlowTotal| usize::from(flow.sender) == at && thread.run == Some(flow.run);
            let (mut data, mut due) = (0, 0);
            for flow in recv.flows.iter().filter(is_ours) {
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
        let is_foreign = |flow: &&FlowTotal| {
            let thread = send.threads.get(usize::from(flow.sender));
            thread.is_none_or(|thread| thread.run != Some(flow.run))
        };
        stamps.foreign = recv.unstamped;
        for flow in recv.flows.iter().filter(is_foreign) {
            add(&mut read, flow.received);
            add(
                &mut stamps.foreign,
                flow.received.saturating_add(flow.end_markers),
            );
        }
        // Those of flows beyond the 8192nd, and those before the first batch that began with a stamp.
        stamps.unread = recv.received.saturating_sub(read);
        Some(stamps)
    }
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
    let doubtful = late.saturating_add(beyond).saturating_add(unread);
    let arrivals = doubtful.min(missing);
    // What is sent again is dropped like anything else. The difference of two cards is without it.
    let behind = ledger.losses.iter().filter(|loss| match loss.station {
        Station::Sender => false,
        Station::Wire => !loss.by_difference,
        _ => true,
    });
    let is_replayed = duplicates > 0 || late > 0 || beyond > 0;
    let drops = match is_replayed {
        true => behind.fold(0, |sum: u64, loss| sum.saturating_add(loss.count)),
        false => 0,
    };
    for (count, what) in [
        (duplicates, "came again, by their stamps: each counts once"),
        (
            late,
            "came late or again, and their stamps do not tell which",
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
    if arrivals == 0 && drops == 0 {
        return;
    }
    ledger.undecided = Some(Undecided { arrivals, drops });
    let witnesses = &mut ledger.witnesses;
    witnesses.retain(|witness| witness.source != SEQUENCE_NUMBERS);
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

#[cfg(test)]
mod tests {
    use super::*;

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
