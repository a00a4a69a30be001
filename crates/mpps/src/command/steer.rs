//! Where a card sends a flow: its hash, the entry of the RSS table, the queue and who serves it; how
//! even that is for given flows, or for those that arrive, and what makes it more even.

mod card;
mod flows;
mod prediction;
mod remedy;
mod verified;

pub use flows::{CaptureRead, frames_of_capture};
pub use prediction::SteerObject;

use self::card::{CardArgs, SteeringCard};
use self::flows::FlowArgs;
use crate::measure::outcome::CommandEnding;
use crate::program::lines::JsonArgs;
use anyhow::{Result, bail};
use clap::Args;

/// Arguments of `mpps steer`.
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    #[command(flatten)]
    card: CardArgs,
    #[command(flatten)]
    flows: FlowArgs,
    /// Compare predicted queues with the card's counters; needs IF and traffic, of --sender or others
    #[arg(long, requires = "interface", conflicts_with = "pcap")]
    verify: bool,
    #[command(flatten)]
    json: JsonArgs,
}

impl SteerArgs {
    /// Predicts the queues of the flows and shows them.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let lines = self.json.begin()?;
        let card = SteeringCard::of(&self.card, self.flows.kinds())?;
        let flows = match (self.flows.given()?, &card.interface) {
            (Some(named), Some(interface)) if self.verify => {
                self.flows.arriving(&interface.name, Some(&named))?
            }
            (Some(flows), _) => flows,
            (None, Some(interface)) => self.flows.arriving(&interface.name, None)?,
            (None, None) => bail!(
                "no flows: name them by --flow, --flows, --file or --pcap, or name the interface \
                 that they arrive at"
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
        lines.object(&found)?;
        if lines.text {
            lines.tell(&found.blocks())?;
        }
        Ok(match found.is_refuted() {
            true => CommandEnding::Found,
            false => CommandEnding::Fine,
        })
    }
}
