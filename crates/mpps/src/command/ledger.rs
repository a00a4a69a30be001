//! `mpps ledger SEND.json RECV.json`: both ends of a run in one ledger.

use super::{Outcome, read, tell};
use crate::args::LedgerArgs;
use crate::udp::traffic::{RecvTotal, SendTotal, document, join};
use anyhow::{Context, Result};
use mpps_host::account::SEQUENCE_NUMBERS;

/// Joins what a sender and a receiver wrote; status 1 if something is unaccounted for.
pub(super) fn run(args: &LedgerArgs) -> Result<Outcome> {
    let send = SendTotal::parse(&read(&args.send)?);
    let send = send.with_context(|| args.send.display().to_string())?;
    let recv = RecvTotal::parse(&read(&args.recv)?);
    let recv = recv.with_context(|| args.recv.display().to_string())?;
    let ledger = join(&send, &recv);
    tell(&ledger, args.json, || document::joined(&ledger))?;
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
