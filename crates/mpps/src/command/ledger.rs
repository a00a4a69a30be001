//! `mpps ledger SEND.json RECV.json`: both ends of a run in one ledger.

use super::{Outcome, read};
use crate::args::LedgerArgs;
use crate::output::{self, Stream};
use crate::traffic::{RecvTotal, SendTotal};
use anyhow::{Context, Result};
use mpps_host::{Account, Ledger, Route};

/// Joins what a sender and a receiver wrote; status 1 if something is unaccounted for.
pub(super) fn run(args: &LedgerArgs) -> Result<Outcome> {
    let send = SendTotal::parse(&read(&args.send)?);
    let send = send.with_context(|| args.send.display().to_string())?;
    let recv = RecvTotal::parse(&read(&args.recv)?);
    let recv = recv.with_context(|| args.recv.display().to_string())?;
    let ledger = join(&send, &recv);
    if args.json {
        output::line(Stream::Out, &serde_json::to_string_pretty(&ledger)?)?;
    } else {
        people(&ledger)?;
    }
    Ok(if ledger.unaccounted == 0 {
        Outcome::Fine
    } else {
        Outcome::Found
    })
}

fn join(send: &SendTotal, recv: &RecvTotal) -> Ledger {
    // End markers are datagrams to every counter of the kernel, and so they are here.
    let received = recv.received.saturating_add(recv.end_markers);
    let delivered = received.saturating_sub(recv.queued);
    let taken = send.sent.saturating_add(send.end_markers);
    let copies_each = recv.multicast_sockets.saturating_sub(1);
    let account = Account {
        offered: send.offered.saturating_add(send.end_markers),
        refused: send.refused_by.clone(),
        gso: send.gso > 1,
        delivered,
        queued: recv.queued,
        copies: taken.saturating_mul(copies_each),
        socket_drops: recv.socket_drops,
        gro: recv.socket_drops_are_trains,
        sender: send.host.as_ref(),
        receiver: recv.host.as_ref(),
        route: Route::Hosts,
        reasons: None,
        sequence_lost: sequence_lost(send, recv),
    };
    let mut ledger = account.ledger();
    for (missing, end) in [
        (send.host.is_none(), "sender"),
        (recv.host.is_none(), "receiver"),
    ] {
        if missing {
            ledger.note(format!("the {end} could not read its host's counters"));
        }
    }
    if send.end_markers > 0 {
        let (sent, came) = (send.end_markers, recv.end_markers);
        ledger.note(format!(
            "{sent} end markers are among the offered datagrams, {came} among the delivered ones"
        ));
    }
    ledger.note(
        "not seen between the two hosts: the sender's queueing discipline and NIC, the wire and \
         switches, and what the receiver's NIC drops without one of the counters above; rows of an \
         interface, a namespace or a host may include other programs' packets",
    );
    ledger
}

/// What the stamps say was lost: against the sender's own totals, so that a flow of which nothing
/// came is lost whole. None for unstamped traffic.
fn sequence_lost(send: &SendTotal, recv: &RecvTotal) -> Option<u64> {
    if recv.flows.is_empty() {
        return None;
    }
    let distinct = recv
        .flows
        .iter()
        .map(|flow| flow.received.saturating_sub(flow.duplicates));
    let markers = send.end_markers.saturating_sub(recv.end_markers);
    let lost = send
        .offered
        .saturating_sub(distinct.fold(0, u64::saturating_add));
    Some(lost.saturating_add(markers))
}

fn people(ledger: &Ledger) -> Result<()> {
    // The files may come from anywhere: what they say must not steer the terminal.
    let say = |text: &str| output::line(Stream::Out, &output::printable(text));
    say(&ledger.to_string())?;
    for loss in &ledger.losses {
        let (count, source) = (mpps_host::Grouped(loss.count), &loss.source);
        let (station, reason) = (loss.station, &loss.reason);
        say(&format!(
            "  {station:<12} {reason:<36} {count:>14}   {source}"
        ))?;
    }
    for witness in &ledger.witnesses {
        let verdict = if witness.agrees() {
            "agrees"
        } else {
            "DISAGREES"
        };
        let (about, source) = (&witness.about, &witness.source);
        let (ours, theirs) = (witness.ledger, witness.witness);
        say(&format!("  {verdict}: {about} {ours}, {source} {theirs}"))?;
    }
    for note in &ledger.notes {
        say(&format!("  note: {note}"))?;
    }
    Ok(())
}
