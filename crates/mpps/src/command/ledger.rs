//! `mpps ledger FILE...`: both ends of a run in one ledger.

use super::CommandEnding;
use crate::input;
use crate::program::lines::JsonArgs;
use crate::udp::traffic::{RECV_SCHEMA, RecvTotal, SendTotal, document, join_all};
use anyhow::{Context, Result};
use clap::Args;
use mpps_host::ledger::account::SEQUENCE_NUMBERS;
use std::path::PathBuf;

/// Arguments of `mpps ledger`.
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Join these results of `mpps send --stamp --json=FILE` and `mpps recv --json=FILE`, at least one of each.
    /// Without --stamp, datagrams of other senders count as received and can hide a loss
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Joins what senders and receivers wrote; status 1 if something is unaccounted for.
pub(super) fn run(args: &LedgerArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for path in &args.files {
        let (file, text) = (path.display().to_string(), input::text(path)?);
        match text.contains(RECV_SCHEMA) {
            true => recvs.push((file.clone(), RecvTotal::parse(&text).context(file)?)),
            false => sends.push((file.clone(), SendTotal::parse(&text).context(file)?)),
        }
    }
    let together = join_all(&sends, &recvs)?;
    let ledger = &together.all;
    match args.files.len() {
        2 => lines.found(ledger, || document::joined(ledger))?,
        _ => lines.found(&together, || document::together(&together))?,
    }
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
