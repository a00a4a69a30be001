//! Where the UDP of this host goes, whichever program receives it: a ledger at each look, and one of all.

use super::host::{PaceArgs, PartArgs};
use super::lines::OutputLines;
use crate::measure::outcome::CommandEnding;
use crate::signal::EndSignal;
use crate::udp::traffic::document;
use anyhow::Result;
use clap::Args;
use mpps_host::check::ledger;
use mpps_host::{Ledger, Observed, ReasonCount};
use mpps_report::{Block, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The schema name in each object of `mpps ledger --json` without files.
pub const SCHEMA: &str = "mpps.ledger.v1";

/// Arguments of `mpps ledger` without files.
#[derive(Debug, Args)]
pub(crate) struct LiveLedgerArgs {
    #[command(flatten)]
    part: PartArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Stop after N times --interval [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// A look, as `mpps ledger --json` writes it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LedgerObject {
    /// [`SCHEMA`].
    schema: String,
    /// When it was looked, in nanoseconds since 1970.
    unix_ns: u64,
    /// The time since the look before.
    seconds: f64,
    /// UDP of the network namespace, from the interfaces on.
    ledger: Ledger,
    /// The sockets in question that dropped meanwhile.
    sockets: Vec<DropsOfSocket>,
    /// Packets that the kernel dropped meanwhile by its own reasons, of this port or of all of UDP;
    /// none if they cannot be seen.
    drop_reasons: Option<Vec<ReasonCount>>,
    /// Facts that could not be read, and why.
    notes: Vec<String>,
}

/// The drops of one socket.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DropsOfSocket {
    /// Where it receives.
    local: SocketAddr,
    /// The program that has it; none where this user may not see it.
    process: Option<String>,
    /// Its process; of several the busiest.
    pid: Option<u32>,
    /// How many datagrams (`sk_drops`): a full buffer, its filter, a wrong checksum, no memory.
    dropped: u64,
}

impl LiveLedgerArgs {
    /// Looks until it is ended.
    pub(crate) fn run(&self, lines: OutputLines) -> Result<CommandEnding> {
        let interrupt = EndSignal::listen()?;
        let mut watch = self.part.watch(&interrupt)?;
        let mut left = self.count;
        // The last look is at the end, so that nothing is missing.
        loop {
            let goes_on = self.pace.wait(&interrupt);
            watch.look_while(&|| !interrupt.came())?;
            left = left.map(|left| left - 1);
            let seen = watch.seen();
            let object = LedgerObject {
                schema: SCHEMA.to_owned(),
                unix_ns: seen.after.snapshot.unix_ns,
                seconds: seen.seconds(),
                ledger: ledger(&seen),
                sockets: sockets(&seen),
                drop_reasons: seen.drops.clone(),
                notes: watch.notes(),
            };
            lines.object(&object)?;
            if lines.text {
                lines.say(&said(&object))?;
            }
            if left == Some(0) || !goes_on {
                break;
            }
        }
        if lines.text {
            let mut blocks = document::joined(&ledger(&watch.seen_in_all()));
            let seen = watch.seen_in_all();
            let sockets = sockets(&seen).into_iter().map(|socket| socket.said());
            let reasons = seen.drops.iter().flatten();
            let reasons = reasons.map(|drop| {
                let count = Quantity::Count(drop.datagrams.into());
                format!("the kernel dropped {count} for {}", drop.reason)
            });
            blocks.extend(sockets.chain(reasons).map(Block::paragraph));
            let notes = watch.notes();
            blocks.extend(notes.iter().map(|note| Block::note(&**note)));
            lines.tell(&blocks)?;
        }
        Ok(CommandEnding::Fine)
    }
}

fn sockets(seen: &Observed) -> Vec<DropsOfSocket> {
    let sockets = seen
        .sockets
        .iter()
        .filter(|socket| socket.drops.grown() > 0);
    let sockets = sockets.map(|socket| DropsOfSocket {
        local: socket.entry.local,
        process: socket.owner.map(|owner| owner.name.clone()),
        pid: socket.owner.map(|owner| owner.pid),
        dropped: socket.drops.grown(),
    });
    sockets.collect()
}

/// A look in a line.
fn said(object: &LedgerObject) -> String {
    let ledger = &object.ledger;
    let count = |count: u64| Quantity::Count(count.into());
    let lost = ledger.losses.iter().map(|loss| {
        let station = loss.station;
        format!("{station}: {} {}", loss.reason, count(loss.count))
    });
    let lost: Vec<String> = lost.collect();
    let lost = match lost.is_empty() {
        true => "0 lost".to_owned(),
        false => format!("{} lost ({})", count(ledger.lost()), lost.join(", ")),
    };
    format!(
        "{}: {} came, {} read, {lost}, UNACCOUNTED {}",
        Quantity::Seconds(object.seconds),
        count(ledger.offered),
        count(ledger.delivered),
        Quantity::Signed(ledger.unaccounted.into()),
    )
}

impl DropsOfSocket {
    fn said(&self) -> String {
        let owner = match (&self.process, self.pid) {
            (Some(name), Some(pid)) => format!("{name} (pid {pid})"),
            _ => "a process that is not seen".to_owned(),
        };
        let dropped = Quantity::Count(self.dropped.into());
        format!("socket {} of {owner} dropped {dropped}", self.local)
    }
}
