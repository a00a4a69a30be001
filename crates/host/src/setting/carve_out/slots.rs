//! The entries of an RSS table into which flows fall.

#[cfg(test)]
mod tests;

use mpps_os::text::ShellWord;
use std::collections::BTreeSet;

use crate::facts::rss::{Hashed, RssFlow};
use crate::{Hashing, HostError, HostResult};

/// A flow, and the entry of the RSS table that its hash names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InSlot {
    /// The flow.
    pub flow: RssFlow,
    /// The hashed fields of the flow.
    pub hashed: Hashed,
    /// The entry.
    pub slot: usize,
}

/// Which entries of an RSS table some flows need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssSlots {
    /// The flows, each with its entry.
    pub flows: Vec<InSlot>,
    /// How many entries the table has.
    pub entries: usize,
    /// Where the key of the hash is from.
    pub key_from: String,
    /// Source ports that bring the first flow with hashed ports into these entries.
    pub ports: Vec<u16>,
}

impl RssSlots {
    pub(super) fn new(
        interface: &str,
        flows: &[RssFlow],
        entries: usize,
        hashing: &Hashing,
    ) -> HostResult<Self> {
        let in_slot = |flow: &RssFlow| InSlot {
            flow: *flow,
            hashed: hashing.hashed(flow),
            slot: hashing.entry(flow, entries),
        };
        let mut slots = Self {
            flows: flows.iter().map(in_slot).collect(),
            entries,
            key_from: hashing.key_from.clone(),
            ports: Vec::new(),
        };
        let taken = slots.taken();
        if taken.is_empty() {
            let why = "no flow says which entry of its RSS table is to be taken";
            let remedy = "name it: --flow SOURCE:PORT-DESTINATION:PORT";
            return Err(HostError::impossible(interface, why, remedy));
        }
        if taken.len() * 2 > entries {
            let why = format!(
                "the flows fall into {} of the {entries} entries of its RSS table, and a queue takes half \
                 of them at most",
                taken.len()
            );
            let remedy = format!(
                "name fewer, or those of source ports that share an entry: name one flow, and its other \
                 ports are told; `mpps steer --flow ... {}` shows the hash of each",
                ShellWord::operand(interface)
            );
            return Err(HostError::impossible(interface, why, remedy));
        }
        if let Some(first) = slots.by_ports() {
            let here = Hashing::by_ports(first)
                .filter(|flow| taken.contains(&hashing.entry(flow, entries)));
            slots.ports = here.map(|flow| flow.source.port()).collect();
        }
        Ok(slots)
    }

    /// The entries.
    pub fn taken(&self) -> BTreeSet<usize> {
        self.flows.iter().map(|flow| flow.slot).collect()
    }

    /// The part of all other traffic that falls into these entries, if its hashes are even.
    pub fn share(&self) -> f64 {
        self.taken().len() as f64 / self.entries as f64
    }

    /// The first flow whose ports are hashed.
    pub fn by_ports(&self) -> Option<RssFlow> {
        let mut flows = self.flows.iter();
        let first = flows.find(|flow| flow.hashed == Hashed::Ports)?;
        Some(first.flow)
    }
}
