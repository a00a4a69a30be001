//! The traffic of the comparison: the same for every path, from a sender that outruns them all.

use crate::udp::path::PATHS;
use crate::udp::roles::CpuLayout;
use crate::udp::sender::{GeneratorChoice, LONG_TRAIN, LabSender, SenderChoice};
use crate::udp::trial::UdpTrial;
use anyhow::{Context, Result};
use mpps_host::Topology;

/// Chooses the sender.
pub(super) fn choose(asked: GeneratorChoice) -> Result<SenderChoice> {
    SenderChoice::new(Some(asked), None, LONG_TRAIN).context("--generator")
}

/// A trial of the usual layout: the application has its CPU to itself, if there are two.
pub(super) fn usual(sender: LabSender, flows: usize, payload_bytes: usize) -> Result<UdpTrial> {
    let layout = CpuLayout::new(Topology::read()?, None).one_queue();
    Ok(UdpTrial {
        flows,
        payload_bytes,
        ..UdpTrial::new(layout, PATHS[0], sender)
    })
}

/// The CPUs, in one line.
pub(super) fn cpus(layout: &CpuLayout) -> String {
    let (generator, application) = (layout.senders[0], layout.applications[0]);
    format!("generator: CPU {generator}   application: CPU {application}")
}

/// The sender and its reason, in one line; `flows` are its numbers of flows, in turn.
pub(super) fn sentence(choice: &SenderChoice, flows: &[usize], payload_bytes: usize) -> String {
    let plural = if flows == [1] { "flow" } else { "flows" };
    let flows: Vec<String> = flows.iter().map(usize::to_string).collect();
    let why = match &choice.missing {
        _ if choice.asked => "as asked".to_owned(),
        Some(why) => format!("no xdp generator: {why}; fast paths may outrun this sender"),
        None => "the kernel's own generator, the cheapest packets there are".to_owned(),
    };
    let trains = choice.sender.train().map_or_else(String::new, |train| {
        format!(", trains of {train} cut before the link")
    });
    format!(
        "{} ({why}): {} {plural}, {payload_bytes} bytes{trains}",
        choice.sender.backend(),
        flows.join(" and ")
    )
}
