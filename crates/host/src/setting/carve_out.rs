//! Takes one receive queue of a card for some flows, and gives it back.
//!
//! A card spreads packets over its queues by a hash (RSS). A carve-out takes a queue out of the RSS
//! table, so no other traffic comes there. It adds a rule (ntuple) that sends one flow to the
//! queue. AF_XDP on that queue then sees only the flow, and the kernel keeps the rest of the card.
//! On a card without such rules, the queue keeps only the flows' entries of the table ([`RssSlots`]).

mod slots;
#[cfg(test)]
mod tests;

use mpps_os::text::ShellWord;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::facts::rss::RssFlow;
use crate::setting::{Edit, LiveKernel, Place, Setting, SettingChange, SettingHost, Value};
use crate::{Hashing, HostError, HostResult};

pub use slots::{InSlot, RssSlots};

/// The change that takes a queue for some flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarveOut {
    /// The queue, from 0.
    pub queue: u32,
    /// How the card's settings are changed.
    pub change: SettingChange,
    /// The queue's entries of the RSS table; none if a rule steers.
    pub slots: Option<RssSlots>,
}

impl CarveOut {
    /// Plans the rule that brings UDP datagrams to `flow`, and only these, to `queue`. Without a
    /// named queue it is the last one. Changes nothing.
    ///
    /// # Errors
    /// [`HostError::Impossible`] where the driver cannot do it, with what helps; [`HostError::Kernel`].
    pub fn by_rule(interface: &str, flow: SocketAddr, queue: Option<u32>) -> HostResult<Self> {
        Self::by_rule_on(&LiveKernel::default(), interface, flow, queue)
    }

    /// Plans the change of the RSS table that brings these flows to `queue`. Without a named queue
    /// it is the last one. Other traffic comes only if it shares the flows' entries. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`HostError::Impossible`] where the card cannot do it, where its hash cannot be predicted, or where
    /// the flows fall into more than half of the entries; [`HostError::Kernel`].
    pub fn by_slots(interface: &str, flows: &[RssFlow], queue: Option<u32>) -> HostResult<Self> {
        let hashing = || Hashing::of_card(interface, flows);
        Self::by_slots_on(&LiveKernel::default(), interface, flows, queue, hashing)
    }

    fn by_rule_on(
        host: &dyn SettingHost,
        interface: &str,
        flow: SocketAddr,
        queue: Option<u32>,
    ) -> HostResult<Self> {
        if flow.port() == 0 {
            return Err(HostError::impossible(
                interface,
                "port 0 is no flow",
                "name a port",
            ));
        }
        let queue = queue_of(host, interface, queue)?;
        let mut edits = Vec::new();
        let place = host.interface(interface)?;
        edits.extend(filters(host, &place)?);
        edits.extend(edit(
            interface,
            queue,
            table(host, &place)?,
            &BTreeSet::new(),
        )?);
        let destination = SocketAddr::new(flow.ip().to_canonical(), flow.port());
        let rule = Value::Rule {
            location: None,
            shown: None,
        };
        edits.push(Edit::new(
            Setting::Rule { destination, queue },
            Value::Numbers(Vec::new()),
            rule,
        ));
        Self::of(host, place, queue, edits, None)
    }

    fn by_slots_on(
        host: &dyn SettingHost,
        interface: &str,
        flows: &[RssFlow],
        queue: Option<u32>,
        hashing: impl FnOnce() -> HostResult<Hashing>,
    ) -> HostResult<Self> {
        let queue = queue_of(host, interface, queue)?;
        let place = host.interface(interface)?;
        let old = table(host, &place)?;
        let slots = RssSlots::new(interface, flows, old.len(), &hashing()?)?;
        let edits = edit(interface, queue, old, &slots.taken())?;
        Self::of(host, place, queue, Vec::from_iter(edits), Some(slots))
    }

    fn of(
        host: &dyn SettingHost,
        place: Place,
        queue: u32,
        edits: Vec<Edit>,
        slots: Option<RssSlots>,
    ) -> HostResult<Self> {
        let heading = format!("{}, queue {queue}", place.name());
        let change = SettingChange::new(host, place, "carve-out", heading, edits)?;
        Ok(Self {
            queue,
            change,
            slots,
        })
    }
}

/// The named queue, or the last one, of an interface that has several.
fn queue_of(host: &dyn SettingHost, interface: &str, queue: Option<u32>) -> HostResult<u32> {
    let impossible = |why: &str, remedy: &str| HostError::impossible(interface, why, remedy);
    host.index(interface)?;
    let rings = host.rings(interface).map_err(|error| {
        let why = format!("its driver steers nothing to queues ({error})");
        let remedy = format!(
            "`mpps backends {}` tells what it can do",
            ShellWord::operand(interface)
        );
        unless_unsupported(error, interface, &why, &remedy)
    })?;
    let queue = queue.unwrap_or(rings.saturating_sub(1));
    if rings < 2 {
        let remedy = format!(
            "`ethtool -L {} combined 2`, if the driver has more",
            ShellWord::new(interface)
        );
        return Err(impossible(
            "it has one receive queue, and the kernel needs that",
            &remedy,
        ));
    }
    if queue >= rings {
        let why = format!("it has no queue {queue}");
        return Err(impossible(&why, &format!("take one of 0 to {}", rings - 1)));
    }
    Ok(queue)
}

/// Rules must be switched on, unless they are.
fn filters(host: &dyn SettingHost, place: &Place) -> HostResult<Option<Edit>> {
    let on = Value::Switch(true);
    match host.read(&Setting::Filters, place)? {
        Some(now) if now == on => Ok(None),
        Some(off) => Ok(Some(Edit::new(Setting::Filters, off, on))),
        None => Err(HostError::impossible(
            place.name(),
            "its driver has no steering rules (ntuple-filters: off [fixed])",
            "this needs a card whose driver has them",
        )),
    }
}

/// The queue of each entry of the RSS table.
fn table(host: &dyn SettingHost, place: &Place) -> HostResult<Vec<u32>> {
    const WHY: &str = "its driver shows no RSS table from which a queue could be taken";
    const REMEDY: &str = "this needs a card whose driver has one";
    let table = host
        .read(&Setting::RssTable, place)
        .map_err(|error| unless_unsupported(error, place.name(), WHY, REMEDY))?;
    match table {
        Some(Value::Numbers(table)) if !table.is_empty() => Ok(table),
        _ => Err(HostError::impossible(place.name(), WHY, REMEDY)),
    }
}

/// The queue must leave the table, but for these entries, unless that is so.
fn edit(
    interface: &str,
    queue: u32,
    old: Vec<u32>,
    slots: &BTreeSet<usize>,
) -> HostResult<Option<Edit>> {
    let new = only_in(&old, queue, slots).ok_or_else(|| {
        let why = format!("queue {queue} is the only one in its RSS table");
        let remedy = format!(
            "`ethtool -X {} default`, or name another queue",
            ShellWord::new(interface)
        );
        HostError::impossible(interface, why, remedy)
    })?;
    let is_new = new != old;
    let [old, new] = [old, new].map(Value::Numbers);
    Ok(is_new.then(|| Edit::new(Setting::RssTable, old, new)))
}

/// The table with `queue` at these entries only. Its other entries go to the queues that have the
/// fewest, so all other flows stay where they are. None if no other queue is in the table.
fn only_in(table: &[u32], queue: u32, slots: &BTreeSet<usize>) -> Option<Vec<u32>> {
    let mut entries: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, &other) in table
        .iter()
        .enumerate()
        .filter(|(_, other)| **other != queue)
    {
        *entries.entry(other).or_default() += usize::from(!slots.contains(&at));
    }
    let mut next = || {
        let (&other, count) = entries.iter_mut().min_by_key(|(_, count)| **count)?;
        *count += 1;
        Some(other)
    };
    let replaced = |(at, &entry): (usize, &u32)| match (slots.contains(&at), entry == queue) {
        (true, _) => Some(queue),
        (false, true) => next(),
        (false, false) => Some(entry),
    };
    table.iter().enumerate().map(replaced).collect()
}

/// Returns a plain sentence if the driver lacks the feature, and the original error otherwise.
fn unless_unsupported(
    error: mpps_os::CallError,
    interface: &str,
    why: &str,
    remedy: &str,
) -> HostError {
    if error.source.kind() == std::io::ErrorKind::Unsupported {
        HostError::impossible(interface, why, remedy)
    } else {
        error.into()
    }
}
