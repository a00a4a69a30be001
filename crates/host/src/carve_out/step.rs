//! One change of a setting: how it is done, and how it is undone.

use std::fmt;
use std::net::SocketAddr;

use mpps_os::ethtool::ntuple::{Rule, Shown};
use serde::{Deserialize, Serialize};

use super::{Steering, Undone};
use crate::{Error, Result};

/// One change, with what is needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// Switches steering rules on, which were off.
    Filters,
    /// Takes the queue out of the RSS table.
    Table {
        /// The table before.
        was: Vec<u32>,
        /// The table without the queue.
        will_be: Vec<u32>,
    },
    /// Steers the flow to the queue.
    Rule {
        /// Where the flow's datagrams are sent to.
        destination: SocketAddr,
        /// The queue.
        queue: u32,
        /// Places that had a rule before.
        others: Vec<u32>,
        /// The rule's place, once it is known.
        location: Option<u32>,
        /// The rule as the driver shows it, once it is there.
        shown: Option<String>,
    },
}

impl Step {
    /// Reads what is there just before the step is written down.
    ///
    /// # Errors
    /// [`Error::Impossible`] if it is not as it was when the step was planned.
    pub(super) fn prepare(&mut self, steering: &dyn Steering, interface: &str) -> Result<()> {
        let changed = |what: &str| {
            Error::impossible(
                interface,
                format!("somebody changed {what} just now"),
                "try again",
            )
        };
        match self {
            Self::Filters => match steering.filters(interface)? {
                Some(filters) if !filters.active => Ok(()),
                _ => Err(changed("its feature ntuple-filters")),
            },
            Self::Table { was, .. } => {
                let same = steering.indirection(interface)? == *was;
                same.then_some(()).ok_or_else(|| changed("its RSS table"))
            }
            Self::Rule {
                destination,
                others,
                location,
                ..
            } => {
                let table = steering.rules(interface)?;
                for &place in &table.locations {
                    let rule = steering.rule(interface, place)?.rule;
                    if rule.is_some_and(|rule| rule.destination == *destination) {
                        return Err(Error::impossible(
                            interface,
                            format!("there is a rule for {destination} already, at {place}"),
                            format!("`ethtool -N {interface} delete {place}` takes it away"),
                        ));
                    }
                }
                // A driver that tells neither a size nor that it chooses is asked to choose.
                if !table.driver_chooses && table.size > 0 {
                    *location = Some(table.free_location().ok_or_else(|| {
                        Error::impossible(
                            interface,
                            format!("all {} places for rules are taken", table.size),
                            format!("`ethtool -n {interface}` lists them"),
                        )
                    })?);
                }
                *others = table.locations;
                Ok(())
            }
        }
    }

    /// Makes the change.
    ///
    /// # Errors
    /// [`Error::Kernel`]; [`Error::Impossible`] where the driver accepts a table and has another.
    pub(super) fn take(&mut self, steering: &dyn Steering, interface: &str) -> Result<()> {
        match self {
            Self::Filters => steering.set_filters(interface, true)?,
            Self::Table { was, will_be } => {
                steering.set_indirection(interface, will_be)?;
                if steering.indirection(interface)? != *will_be {
                    steering.set_indirection(interface, was)?;
                    let why = "its driver accepted an RSS table and has another";
                    let remedy = "`ethtool -x` shows it";
                    return Err(Error::impossible(interface, why, remedy));
                }
            }
            Self::Rule {
                destination,
                queue,
                location,
                shown,
                ..
            } => {
                let rule = Rule {
                    destination: *destination,
                    queue: *queue,
                };
                let place = steering.insert(interface, &rule, *location)?;
                *location = Some(place);
                // A driver may show the rule in other words; undo compares with those.
                *shown = steering
                    .rule(interface, place)
                    .ok()
                    .map(|shown| shown.description);
            }
        }
        Ok(())
    }

    /// Undoes the change, if things are as the step left them.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn undo(
        &self,
        steering: &dyn Steering,
        interface: &str,
    ) -> Result<Undone, mpps_os::Error> {
        match self {
            Self::Filters => undo_filters(steering, interface),
            Self::Table { was, will_be } => undo_table(steering, interface, was, will_be),
            Self::Rule { location, .. } => {
                let locations = steering.rules(interface)?.locations;
                let Some(place) = location else {
                    return self.undo_lost_rule(steering, interface, &locations);
                };
                if !locations.contains(place) {
                    return Ok(Undone::Nothing);
                }
                if !self.is(&steering.rule(interface, *place)?) {
                    return Ok(Undone::Changed(format!("another rule is at {place}")));
                }
                steering.remove(interface, *place)?;
                Ok(Undone::Restored)
            }
        }
    }

    /// Finds a rule whose place never came to be written down: the process died in between.
    fn undo_lost_rule(
        &self,
        steering: &dyn Steering,
        interface: &str,
        locations: &[u32],
    ) -> Result<Undone, mpps_os::Error> {
        let Self::Rule { others, .. } = self else {
            return Ok(Undone::Nothing);
        };
        for place in locations.iter().filter(|place| !others.contains(place)) {
            if self.is(&steering.rule(interface, *place)?) {
                steering.remove(interface, *place)?;
                return Ok(Undone::Restored);
            }
        }
        Ok(Undone::Nothing)
    }

    /// Whether a rule is the one that this step made.
    fn is(&self, found: &Shown) -> bool {
        let Self::Rule {
            destination,
            queue,
            shown,
            ..
        } = self
        else {
            return false;
        };
        let ours = Rule {
            destination: *destination,
            queue: *queue,
        };
        found.rule == Some(ours) || shown.as_ref() == Some(&found.description)
    }
}

/// Rules are switched off again only if nobody else has made some: a driver forgets them then.
fn undo_filters(steering: &dyn Steering, interface: &str) -> Result<Undone, mpps_os::Error> {
    match steering.filters(interface)? {
        Some(filters) if filters.active => {}
        _ => return Ok(Undone::Nothing),
    }
    let rules = steering.rules(interface)?.locations.len();
    if rules > 0 {
        return Ok(Undone::Changed(format!("{rules} other rules need it")));
    }
    steering.set_filters(interface, false)?;
    Ok(Undone::Restored)
}

fn undo_table(
    steering: &dyn Steering,
    interface: &str,
    was: &[u32],
    will_be: &[u32],
) -> Result<Undone, mpps_os::Error> {
    let now = steering.indirection(interface)?;
    if now == was {
        return Ok(Undone::Nothing);
    }
    if now != will_be {
        let now: std::collections::BTreeSet<u32> = now.into_iter().collect();
        return Ok(Undone::Changed(format!("it now uses the queues {now:?}")));
    }
    // A table that the kernel had chosen is left to the kernel again, which will then also adapt
    // it to a change of the number of queues (ethtool_rxfh_indir_default() is the remainder).
    let rings = steering.rings(interface)?.max(1);
    let chosen = (0..rings)
        .cycle()
        .zip(was)
        .all(|(queue, was)| queue == *was);
    let reset = chosen && steering.set_indirection(interface, &[]).is_ok();
    if !reset || steering.indirection(interface)? != was {
        steering.set_indirection(interface, was)?;
    }
    Ok(Undone::Restored)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filters => write!(f, "ntuple-filters on"),
            Self::Table { was, will_be } => {
                let gone = was.iter().find(|queue| !will_be.contains(queue));
                match gone {
                    Some(queue) => write!(f, "queue {queue} out of the RSS table"),
                    None => write!(f, "another RSS table"),
                }
            }
            Self::Rule {
                destination,
                queue,
                location,
                ..
            } => {
                write!(f, "UDP to {destination} steered to queue {queue}")?;
                match location {
                    Some(place) => write!(f, " (rule {place})"),
                    None => Ok(()),
                }
            }
        }
    }
}
