//! An interface whose carrier went while it was looked at.

use super::{Check, Evidence, Finding, Observed};
use crate::Station;
use mpps_os::text::ShellWord;
use std::collections::BTreeMap;

pub(super) const CHECK: Check = Check {
    name: "link_bounced",
    reads: "how often the carrier of each interface changed (`IFLA_CARRIER_CHANGES`)",
    speaks: "the carrier of a card or veth came or went while the interface was up",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    // The carrier of a bridge or a tap comes with the first that uses it and goes with the last.
    let is_line = |name: &str| {
        let card = seen.after.cards.get(name);
        card.is_some_and(|card| card.device.is_some() || card.driver == "veth")
    };
    let links = seen.after.links.iter().filter(|link| is_line(&link.name));
    let before = seen
        .before
        .links
        .iter()
        .map(|before| (before.index, before));
    let before: BTreeMap<_, _> = before.collect();
    let found = links.filter_map(|now| {
        let before = before.get(&now.index)
            // An interface that is taken down loses its carrier, too.
            .filter(|before| before.up && now.up)?;
        let (from, to) = (before.carrier_changes, now.carrier_changes);
        let evidence = Evidence::new(format!("{} carrier_changes", now.name), from.into(), to.into());
        let what = match evidence.grown() {
            0 => return None,
            1 if now.carrier => format!("the carrier of {} came back", now.name),
            1 => format!("the carrier of {} went, and it is not back", now.name),
            times => format!("the carrier of {} went and came: {times} changes", now.name),
        };
        let remedy = format!(
            "what came meanwhile is lost without a counter. Some drivers take the link down when an XDP \
             program is attached, or rings, queues or the MTU change: do that once, when no traffic is on; \
             else a cable or the other end: dmesg, ethtool {}",
            ShellWord::operand(&now.name)
        );
        let found = Finding::noticed(seen, &CHECK, Station::Wire, vec![evidence]);
        Some(found.says(what, remedy))
    });
    found.collect()
}
