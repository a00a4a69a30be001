//! Where a card sends a flow: its hash, the entry of the RSS table, the queue and who serves it; how
//! even that is for given flows, or for those that arrive, and what makes it more even.

mod card;
mod flows;
mod prediction;
mod remedy;
mod verified;

pub use flows::{CaptureRead, frames_of_capture};
pub use prediction::SteerObject;

use self::card::{Card, CardArgs};
use self::flows::FlowArgs;
use crate::measure::outcome::Outcome;
use crate::output::{self, Stream};
use crate::program::lines::Lines;
use anyhow::{Result, bail};
use clap::Args;

/// Arguments of `mpps steer`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without IF nothing of this host is asked: --queues says how many queues the card has. \
    With IF and without flows it counts what arrives there, with a packet socket, which needs \
    CAP_NET_RAW; it changes nothing. Flows are taken not to be fragmented. Exit status: 0 it \
    was told; with --verify 1 the card sent packets to other queues, or named flows did not come, or nothing \
    could be verified; 2 it could not be done."
)]
pub(crate) struct SteerArgs {
    #[command(flatten)]
    card: CardArgs,
    #[command(flatten)]
    flows: FlowArgs,
    /// Compare what arrived with the counters of the card's queues; of flows that are named, only those
    #[arg(long, requires = "interface", conflicts_with = "pcap")]
    verify: bool,
    /// Write the result as JSON to standard output, each flow with its hash and queue
    #[arg(long)]
    json: bool,
}

impl SteerArgs {
    /// Predicts, and tells.
    pub(crate) fn run(&self) -> Result<Outcome> {
        let card = Card::of(&self.card, self.flows.kinds())?;
        let flows = match (self.flows.given()?, &card.interface) {
            (Some(named), Some(interface)) if self.verify => {
                self.flows.arriving(interface, Some(&named))?
            }
            (Some(flows), _) => flows,
            (None, Some(interface)) => self.flows.arriving(interface, None)?,
            (None, None) => bail!(
                "no flows: name them by --flow, --flows, --file or --pcap, or an interface at which \
                 they arrive"
            ),
        };
        if flows.all.is_empty() && flows.missing.is_none() {
            let mut told = vec![flows.source.clone()];
            told.extend(flows.notes.iter().cloned().chain(flows.others.told()));
            bail!(
                "no {} flow was seen: {}",
                self.flows.protocol(),
                told.join("; ")
            );
        }
        let found = SteerObject::predict(card, &flows, self.verify)?;
        if self.json {
            output::line(Stream::Out, &output::json(&found)?)?;
        } else {
            Lines { json: false }.tell(&found.blocks())?;
        }
        Ok(match found.is_refuted() {
            true => Outcome::Found,
            false => Outcome::Fine,
        })
    }
}
