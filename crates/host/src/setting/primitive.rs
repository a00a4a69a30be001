//! What can be set, and what it can be set to.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use mpps_os::ethtool::coalesce::Coalescing;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The kernel's name for the switch that `ethtool -K` calls `ntuple` (net/ethtool/common.c).
pub(crate) const FILTERS: &str = "rx-ntuple-filter";

/// The name of [`Setting::SkbDefer`] (`sysctl(8)`).
pub(crate) const SKB_DEFER_MAX: &str = "net.core.skb_defer_max";

/// One thing that can be read and written. Those of an interface are of the one that the
/// [`Change`](super::Change) is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setting {
    /// A file of the interface in `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net).
    File {
        /// Its name.
        name: String,
    },
    /// How long the card waits before it interrupts: all words, in the order of the kernel's
    /// structure.
    Coalescing,
    /// Whether rules steer packets to queues: `on` or `off`.
    Filters,
    /// The queue of each entry of the RSS table.
    RssTable,
    /// A rule (ntuple) that steers a flow of UDP datagrams to a queue.
    Rule {
        /// Where the datagrams are sent to.
        destination: SocketAddr,
        /// The queue.
        queue: u32,
    },
    /// `net.core.skb_defer_max` of the machine, in packets.
    SkbDefer,
}

/// What a setting is set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// What a file says, or a switch.
    Text(String),
    /// Words, entries of a table, or, before a rule is added, the places of the others.
    Numbers(Vec<u32>),
    /// A rule that was added.
    Rule {
        /// Its place, once it is known.
        location: Option<u32>,
        /// The rule as the driver shows it, once it is there.
        shown: Option<String>,
    },
}

impl Value {
    pub(crate) fn text<T: fmt::Display>(text: T) -> Self {
        Self::Text(text.to_string())
    }

    fn coalescing(&self) -> Option<Coalescing> {
        let Self::Numbers(words) = self else {
            return None;
        };
        Coalescing::from_words(words)
    }
}

impl Setting {
    /// Whether a value is of its kind: a damaged journal must not be obeyed.
    pub(super) fn takes(&self, value: &Value) -> bool {
        match self {
            Self::File { .. } | Self::Filters | Self::SkbDefer => matches!(value, Value::Text(_)),
            Self::Coalescing => value.coalescing().is_some(),
            Self::RssTable => matches!(value, Value::Numbers(_)),
            Self::Rule { .. } => !matches!(value, Value::Text(_)),
        }
    }

    /// What a sentence calls it.
    pub(super) fn noun(&self) -> &str {
        match self {
            Self::File { name } => name,
            Self::Coalescing => "its coalescing",
            Self::Filters => "its feature ntuple-filters",
            Self::RssTable => "its RSS table",
            Self::Rule { .. } => "its rules",
            Self::SkbDefer => "it",
        }
    }

    /// What somebody else set it to.
    pub(super) fn told(&self, now: &Value) -> String {
        match (now, now.coalescing()) {
            (_, Some(now)) if *self == Self::Coalescing => {
                format!("{} µs, {} packets", now.rx_time_us(), now.rx_packets())
            }
            (Value::Numbers(queues), _) => {
                let queues: BTreeSet<&u32> = queues.iter().collect();
                format!("it now uses the queues {queues:?}")
            }
            (Value::Text(now), _) => format!("it is {now}"),
            (now, _) => format!("it is {now:?}"),
        }
    }

    /// Why what a driver made of a value is none of what was wanted, and what helps.
    pub(super) fn fault(&self, wanted: &Value, became: &Value) -> Option<(&str, &str)> {
        match self {
            Self::RssTable if became != wanted => Some((
                "its driver accepted an RSS table and has another",
                "`ethtool -x` shows it",
            )),
            Self::Coalescing => {
                let time_us = |value: &Value| value.coalescing().map_or(0, |now| now.rx_time_us());
                (time_us(became) == 0 && time_us(wanted) > 0).then_some((
                    "its driver took the time and does not keep it",
                    "the kernel can wait instead of the card",
                ))
            }
            _ => None,
        }
    }

    /// A plain sentence for what the driver does not have, and the refusal itself for all else.
    pub(crate) fn refused(&self, error: mpps_os::Error, interface: &str) -> Error {
        if *self != Self::Coalescing || error.source.kind() != std::io::ErrorKind::Unsupported {
            return error.into();
        }
        Error::impossible(
            interface,
            "its driver does not let a card wait before it interrupts",
            "the kernel can wait instead of the card",
        )
    }

    /// How an edit of it is shown: what it does, or from what to what.
    pub(super) fn show(&self, old: &Value, new: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, old, new) {
            (Self::Filters, _, Value::Text(new)) => write!(f, "ntuple-filters {new}"),
            (Self::RssTable, Value::Numbers(old), Value::Numbers(new)) => {
                match old.iter().find(|queue| !new.contains(queue)) {
                    Some(queue) => write!(f, "queue {queue} out of the RSS table"),
                    None => write!(f, "another RSS table"),
                }
            }
            (Self::Rule { destination, queue }, _, new) => {
                write!(f, "UDP to {destination} steered to queue {queue}")?;
                match new {
                    Value::Rule {
                        location: Some(place),
                        ..
                    } => write!(f, " (rule {place})"),
                    _ => Ok(()),
                }
            }
            (Self::Coalescing, old, new) => {
                let time = |value: &Value| {
                    value.coalescing().map_or("?".to_owned(), |told| {
                        let adaptive = [" adaptive", ""][usize::from(!told.is_adaptive_rx())];
                        format!("{}{adaptive}", told.rx_time_us())
                    })
                };
                write!(f, "rx-usecs {} -> {}", time(old), time(new))
            }
            (_, Value::Text(old), Value::Text(new)) => {
                let name = match self {
                    Self::SkbDefer => SKB_DEFER_MAX,
                    other => other.noun(),
                };
                write!(f, "{name} {old} -> {new}")
            }
            _ => write!(f, "{} from {old:?} to {new:?}", self.noun()),
        }
    }
}
