//! `mpps ledger SEND.json RECV.json`: both ends of a run in one ledger.

use super::CommandEnding;
use crate::input;
use crate::program::lines::JsonArgs;
use crate::udp::traffic::{RecvTotal, SendTotal, document, join};
use anyhow::{Context, Result};
use clap::Args;
use mpps_host::ledger::account::SEQUENCE_NUMBERS;
use std::path::PathBuf;

/// Arguments of `mpps ledger`.
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Check this result of `mpps send --stamp --json=FILE` against RECV. Without --stamp, datagrams of
    /// other senders count as received and can hide a loss
    pub(crate) send: PathBuf,
    /// Use this result of `mpps recv --json=FILE`
    pub(crate) recv: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Joins what a sender and a receiver wrote; status 1 if something is unaccounted for.
pub(super) fn run(args: &LedgerArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let send = SendTotal::parse(&input::text(&args.send)?);
    let send = send.with_context(|| args.send.display().to_string())?;
    let recv = RecvTotal::parse(&input::text(&args.recv)?);
    let recv = recv.with_context(|| args.recv.display().to_string())?;
    let ledger = join(&send, &recv);
    lines.found(&ledger, || document::joined(&ledger))?;
    let is_told_otherwise = ledger
        .witnesses
        .iter()
        .any(|witness| witness.source == SEQUENCE_NUMBERS && !witness.agrees());
    let is_zero = ledger.unaccounted_range() == [0, 0];
    Ok(if is_zero && !is_told_otherwise {
        CommandEnding::Fine
    } else {
        CommandEnding::Found
    })
}
