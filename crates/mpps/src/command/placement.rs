//! `mpps placement`: the best CPU for the receiver, by the rungs of the ladder about it.

use super::CommandEnding;
use super::lab::{LadderText, climb, schedule};
use crate::experiment::ladder::run::LadderPlan;
use crate::machine::become_able;
use crate::measure::series::Series;
use crate::signal::EndSignal;
use crate::udp::roles::CpuLayout;
use crate::udp::sender::{GeneratorChoice, SenderChoice, TRAIN};
use anyhow::Result;
use clap::Args;
use mpps_host::Topology;

/// Arguments of `mpps placement`.
#[derive(Debug, Args)]
#[command(
    mut_arg("quick", |arg| arg.help("Run each placement once and briefly; too short for conclusions")),
    mut_arg("repeat", |arg| arg.help("Run each placement N times, in N rounds over all placements")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./placement.json; without FILE, to \
    standard output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./placement.html"))
)]
pub(crate) struct PlacementArgs {
    /// Receive live traffic at --port of this interface instead of the lab's. No other program may have
    /// the port
    #[arg(long, value_name = "IF", requires = "port")]
    interface: Option<String>,
    /// Set the UDP port of the live traffic (required with --interface)
    #[arg(long, value_name = "PORT", requires = "interface",
          value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[command(flatten)]
    series: Series,
}

/// Climbs the rungs about placement.
pub(super) fn run(args: &PlacementArgs) -> Result<CommandEnding> {
    // In a user namespace, the owners of links on the way to a file are unknown.
    let session = args.series.begin("placement", EndSignal::listen()?)?;
    if args.interface.is_none() {
        become_able()?;
    }
    let plan = LadderPlan {
        layout: CpuLayout::new(Topology::read()?, None),
        choice: SenderChoice::new(Some(GeneratorChoice::Sendmmsg), None, TRAIN)?,
        only: &["4a", "4b", "4c", "4d"].map(str::to_owned),
        all: false,
        live: args.interface.as_deref().zip(args.port),
        schedule: schedule(&args.series),
        work: None,
        has_screens: false,
    };
    climb(&plan, &session, LadderText::Whole)
}
