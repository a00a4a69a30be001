//! Takes one receive queue of a card for one flow, and gives it back.
//!
//! A card spreads packets over its queues by a hash (RSS). A carve-out takes a queue out of that
//! table, so that no other traffic comes there, and adds a rule (ntuple) that sends one flow to
//! it. AF_XDP on that queue then sees the flow and nothing else, while the kernel keeps the rest
//! of the card.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::setting::{Change, Edit, Host, Kernel, Setting, Value};
use crate::{Error, Result};

/// What takes a queue for a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarveOut {
    /// The queue, from 0.
    pub queue: u32,
    /// How the card's settings are changed.
    pub change: Change,
}

impl CarveOut {
    /// Finds out what must be changed so that UDP datagrams to `flow`, and they alone, come to
    /// `queue` (the last one, if none is named). Changes nothing.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the driver cannot do it, with what helps; [`Error::Kernel`].
    pub fn plan(interface: &str, flow: SocketAddr, queue: Option<u32>) -> Result<Self> {
        Self::plan_on(&Kernel::default(), interface, flow, queue)
    }

    fn plan_on(
        host: &dyn Host,
        interface: &str,
        flow: SocketAddr,
        queue: Option<u32>,
    ) -> Result<Self> {
        let impossible = |why: &str, remedy: &str| Error::impossible(interface, why, remedy);
        if flow.port() == 0 {
            return Err(impossible("port 0 is no flow", "name a port"));
        }
        let interface_index = host.index(interface)?;
        let rings = host.rings(interface).map_err(|error| {
            let why = format!("its driver steers nothing to queues ({error})");
            let remedy = format!("`mpps backends {interface}` tells what it can do");
            unless_unsupported(error, interface, &why, &remedy)
        })?;
        let queue = queue.unwrap_or(rings.saturating_sub(1));
        if rings < 2 {
            let remedy = format!("`ethtool -L {interface} combined 2`, if the driver has more");
            return Err(impossible(
                "it has one receive queue, and the kernel needs that",
                &remedy,
            ));
        }
        if queue >= rings {
            let why = format!("it has no queue {queue}");
            return Err(impossible(&why, &format!("take one of 0 to {}", rings - 1)));
        }
        let mut edits = Vec::new();
        edits.extend(filters(host, interface)?);
        edits.extend(table(host, interface, queue)?);
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
        let change = Change {
            name: "carve-out".to_owned(),
            object: interface.to_owned(),
            interface_index: Some(interface_index),
            namespace: host.namespace()?,
            heading: format!("{interface}, queue {queue}"),
            edits,
        };
        Ok(Self { queue, change })
    }
}

/// Rules must be switched on, unless they are.
fn filters(host: &dyn Host, interface: &str) -> Result<Option<Edit>> {
    let on = Value::text("on");
    match host.read(&Setting::Filters, interface)? {
        Some(now) if now == on => Ok(None),
        Some(off) => Ok(Some(Edit::new(Setting::Filters, off, on))),
        None => Err(Error::impossible(
            interface,
            "its driver has no steering rules (ntuple-filters: off [fixed])",
            "this needs a card whose driver has them",
        )),
    }
}

/// The queue must leave the table, unless it is not in it.
fn table(host: &dyn Host, interface: &str, queue: u32) -> Result<Option<Edit>> {
    const WHY: &str = "its driver shows no RSS table from which a queue could be taken";
    const REMEDY: &str = "this needs a card whose driver has one";
    let old = host
        .read(&Setting::RssTable, interface)
        .map_err(|error| unless_unsupported(error, interface, WHY, REMEDY))?;
    let old = match old {
        Some(Value::Numbers(table)) if !table.is_empty() => table,
        _ => return Err(Error::impossible(interface, WHY, REMEDY)),
    };
    if !old.contains(&queue) {
        return Ok(None);
    }
    let new = without(&old, queue).ok_or_else(|| {
        let why = format!("queue {queue} is the only one in its RSS table");
        let remedy = format!("`ethtool -X {interface} default`, or name another queue");
        Error::impossible(interface, why, remedy)
    })?;
    let [old, new] = [old, new].map(Value::Numbers);
    Ok(Some(Edit::new(Setting::RssTable, old, new)))
}

/// The table without a queue; its entries go to the queues that have the fewest, so that all
/// other flows stay where they are. None if no other queue is in the table.
fn without(table: &[u32], queue: u32) -> Option<Vec<u32>> {
    let mut entries: BTreeMap<u32, usize> = BTreeMap::new();
    for &other in table.iter().filter(|other| **other != queue) {
        *entries.entry(other).or_default() += 1;
    }
    let mut next = || {
        let (&other, count) = entries.iter_mut().min_by_key(|(_, count)| **count)?;
        *count += 1;
        Some(other)
    };
    let replaced = |&entry: &u32| if entry == queue { next() } else { Some(entry) };
    table.iter().map(replaced).collect()
}

/// A plain sentence for what the driver does not have, and the refusal itself for all else.
fn unless_unsupported(error: mpps_os::Error, interface: &str, why: &str, remedy: &str) -> Error {
    if error.source.kind() == std::io::ErrorKind::Unsupported {
        Error::impossible(interface, why, remedy)
    } else {
        error.into()
    }
}
