//! `mpps ledger`: of this host, or `mpps ledger SEND.json RECV.json`: both ends of a run in one.

use super::CommandEnding;
use crate::input;
use crate::program::ledger::LiveLedgerArgs;
use crate::program::lines::JsonArgs;
use crate::udp::traffic::{RecvTotal, SendTotal, document, join};
use anyhow::{Context, Result};
use clap::Args;
use mpps_host::ledger::account::SEQUENCE_NUMBERS;
use std::path::PathBuf;

/// Arguments of `mpps ledger`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |arg| arg.help("Write JSON to FILE, in addition to the text; without FILE, to \
standard output instead of the text. Without SEND: one object per line, each --interval")))]
pub(crate) struct LedgerArgs {
    /// Check this result of `mpps send --stamp --json=FILE` against RECV. Without --stamp, datagrams of
    /// other senders count as received and can hide a loss [default: show this host]
    #[arg(requires = "recv", conflicts_with_all = ["port", "pid", "netns", "container", "interval", "count"])]
    pub(crate) send: Option<PathBuf>,
    /// Use this result of `mpps recv --json=FILE`; required with SEND
    pub(crate) recv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) live: LiveLedgerArgs,
}

/// Joins what a sender and a receiver wrote; status 1 if something is unaccounted for.
pub(super) fn run(args: &LedgerArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let (Some(send_file), Some(recv_file)) = (&args.send, &args.recv) else {
        return args.live.run(lines);
    };
    let send = SendTotal::parse(&input::text(send_file)?);
    let send = send.with_context(|| send_file.display().to_string())?;
    let recv = RecvTotal::parse(&input::text(recv_file)?);
    let recv = recv.with_context(|| recv_file.display().to_string())?;
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
