//! `mpps ledger SEND.json RECV.json`: both ends of a run in one ledger.

use super::{Outcome, read};
use crate::args::LedgerArgs;
use crate::output::{self, Stream};
use crate::traffic::{RecvTotal, SendTotal, join};
use anyhow::{Context, Result};
use mpps_host::Ledger;
use mpps_host::account::SEQUENCE_NUMBERS;

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
    let is_told_otherwise = ledger
        .witnesses
        .iter()
        .any(|witness| witness.source == SEQUENCE_NUMBERS && !witness.agrees());
    Ok(if ledger.unaccounted == 0 && !is_told_otherwise {
        Outcome::Fine
    } else {
        Outcome::Found
    })
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
