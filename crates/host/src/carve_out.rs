//! Takes one receive queue of a card for one flow, and gives it back.
//!
//! A card spreads packets over its queues by a hash (RSS). A carve-out takes a queue out of that
//! table, so that no other traffic comes there, and adds a rule (ntuple) that sends one flow to
//! it. AF_XDP on that queue then sees the flow and nothing else, while the kernel keeps the rest
//! of the card.
//!
//! These settings stay when a process dies, and are journalled for that ([`crate::change`]):
//! [`CarveOut`] takes the steps back when it goes.

mod steering;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use steering::FILTERS;
pub use steering::{KernelSteering, Steering};
pub use step::Step;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Made, Outcome, Undone};
use crate::journal;
use crate::{Error, Result};

/// A queue that is kept for one flow. Dropping it puts the card's settings back.
#[derive(Debug)]
pub struct CarveOut(Made<Plan>);

/// What a carve-out will do, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The network namespace of the interface, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// The interface's name.
    pub interface: String,
    /// The number by which the kernel knows it, which stays if it is renamed.
    pub interface_index: u32,
    /// The queue, from 0.
    pub queue: u32,
    /// Where the flow's datagrams are sent to.
    pub flow: SocketAddr,
    /// The steps in order; what is already so needs none.
    pub steps: Vec<Step>,
}

impl Change for Plan {
    const WHAT: &'static str = "a carve-out";
    const FILES: &'static str = "carve-out";
    type Host = dyn Steering;

    fn kernel() -> Box<dyn Steering> {
        Box::new(KernelSteering)
    }

    fn namespace_of(steering: &dyn Steering) -> Result<u32, mpps_os::Error> {
        steering.namespace()
    }

    fn namespace(&self) -> u32 {
        self.namespace
    }

    fn object(&self) -> &str {
        &self.interface
    }

    fn place(&self) -> String {
        format!("{}-{}", self.namespace, self.interface_index)
    }

    fn heading(&self) -> String {
        format!("{}, queue {}", self.interface, self.queue)
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(ToString::to_string).collect()
    }

    fn present(&self, steering: &dyn Steering) -> Result<Option<String>, mpps_os::Error> {
        steering.name(self.interface_index)
    }

    fn prepare(&mut self, step: usize, steering: &dyn Steering) -> Result<()> {
        self.steps[step].prepare(steering, &self.interface)
    }

    fn take(&mut self, step: usize, steering: &dyn Steering) -> Result<()> {
        self.steps[step].take(steering, &self.interface)
    }

    fn undo(
        &self,
        step: usize,
        interface: &str,
        steering: &dyn Steering,
    ) -> Result<Undone, mpps_os::Error> {
        self.steps[step].undo(steering, interface)
    }
}

impl CarveOut {
    /// Finds out what must be changed so that UDP datagrams to `flow`, and they alone, come to
    /// `queue` (the last one, if none is named). Changes nothing.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the driver cannot do it, with what helps; [`Error::Kernel`].
    pub fn plan(interface: &str, flow: SocketAddr, queue: Option<u32>) -> Result<Plan> {
        Plan::make(&KernelSteering, interface, flow, queue)
    }

    /// Carries a plan out, in the network namespace of the calling thread, where it must also end.
    ///
    /// # Errors
    /// [`Error::Impossible`] where another carve-out is on this interface, or a setting has
    /// changed since it was planned; [`Error::Kernel`] for a refusal, also of the journal's file.
    /// What was changed before the error is put back; [`Error::PutBack`] says where that failed.
    pub fn apply(plan: &Plan) -> Result<Self> {
        Made::apply(plan, Box::new(KernelSteering), &journal::directories()).map(Self)
    }

    /// The queue that is kept.
    pub fn queue(&self) -> u32 {
        self.0.record.plan.queue
    }

    /// What was done, one sentence a step.
    pub fn steps(&self) -> Vec<String> {
        self.0.record.plan.steps()
    }

    /// Puts the settings back, the last step first, and says of each step what came of it. After
    /// a failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub fn undo(self) -> Vec<Outcome> {
        self.0.undo()
    }
}

impl Plan {
    /// As [`CarveOut::plan`], with anything that steers.
    ///
    /// # Errors
    /// As [`CarveOut::plan`].
    pub fn make(
        steering: &dyn Steering,
        interface: &str,
        flow: SocketAddr,
        queue: Option<u32>,
    ) -> Result<Self> {
        let impossible = |why: &str, remedy: &str| Error::impossible(interface, why, remedy);
        if flow.port() == 0 {
            return Err(impossible("port 0 is no flow", "name a port"));
        }
        let interface_index = steering.index(interface)?;
        let rings = steering.rings(interface).map_err(|error| {
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
        let mut steps = Vec::new();
        steps.extend(filters_step(steering, interface)?);
        steps.extend(table_step(steering, interface, queue)?);
        steps.push(Step::Rule {
            destination: SocketAddr::new(flow.ip().to_canonical(), flow.port()),
            queue,
            others: Vec::new(),
            location: None,
            shown: None,
        });
        Ok(Self {
            namespace: steering.namespace()?,
            interface: interface.to_owned(),
            interface_index,
            queue,
            flow,
            steps,
        })
    }
}

/// Rules must be switched on, unless they are.
fn filters_step(steering: &dyn Steering, interface: &str) -> Result<Option<Step>> {
    match steering.filters(interface)? {
        Some(filters) if filters.active => Ok(None),
        Some(filters) if filters.changeable => Ok(Some(Step::Filters)),
        _ => Err(Error::impossible(
            interface,
            "its driver has no steering rules (ntuple-filters: off [fixed])",
            "this needs a card whose driver has them",
        )),
    }
}

/// The queue must leave the table, unless it is not in it.
fn table_step(steering: &dyn Steering, interface: &str, queue: u32) -> Result<Option<Step>> {
    const WHY: &str = "its driver shows no RSS table from which a queue could be taken";
    const REMEDY: &str = "this needs a card whose driver has one";
    let was = steering
        .indirection(interface)
        .map_err(|error| unless_unsupported(error, interface, WHY, REMEDY))?;
    if was.is_empty() {
        return Err(Error::impossible(interface, WHY, REMEDY));
    }
    if !was.contains(&queue) {
        return Ok(None);
    }
    let will_be = without(&was, queue).ok_or_else(|| {
        let why = format!("queue {queue} is the only one in its RSS table");
        let remedy = format!("`ethtool -X {interface} default`, or name another queue");
        Error::impossible(interface, why, remedy)
    })?;
    Ok(Some(Step::Table { was, will_be }))
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
