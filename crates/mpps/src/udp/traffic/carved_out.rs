//! A queue that was kept for some flows, as `recv` writes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The object that `mpps recv --queue-carve-out` writes before the first second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecvCarveOut {
    /// [`super::RECV_SCHEMA`].
    pub schema: String,
    /// `carve_out`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "carve_out"))]
    pub kind: String,
    /// The queue.
    pub carve_out: CarvedOut,
}

/// A queue that was kept for some flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarvedOut {
    /// How: `rule` or `slot`.
    #[schemars(extend("enum" = ["rule", "slot"]))]
    pub how: String,
    /// Why in this way.
    pub because: String,
    /// The queue.
    pub queue: u32,
    /// The entries of the RSS table that the queue has; none with a rule.
    pub slots: Vec<usize>,
    /// How many entries the table has; 0 with a rule.
    pub entries: usize,
    /// The part of all other traffic that falls into these entries, if its hashes are even.
    #[schemars(range(min = 0.0, max = 0.5))]
    pub share: f64,
    /// Where the key of the hash is from; absent with a rule.
    pub key_from: Option<String>,
    /// The flows that were named, each with its entry.
    pub flows: Vec<CarvedFlow>,
    /// Source ports that put the first flow with hashed ports into these entries.
    pub ports: Vec<u16>,
    /// Packets by the queue and past it; absent before the end.
    pub counted: Option<CarveOutCounts>,
}

/// A flow that was named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarvedFlow {
    /// `SOURCE:PORT-DESTINATION:PORT`.
    pub flow: String,
    /// The hashed fields, by the letters of ethtool: `sd` or `sdfn`.
    #[schemars(extend("enum" = ["sd", "sdfn"]))]
    pub fields: String,
    /// Its entry of the RSS table.
    pub slot: usize,
}

/// Packets that came by the queue, and past it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarveOutCounts {
    /// Packets that came by the queue, by the card's counter; absent where its driver has none.
    pub queue_packets: Option<u64>,
    /// The driver's name of that counter.
    pub counter: Option<String>,
    /// Of these, what the receiver did not want and left to the kernel, by its XDP program's counter.
    pub passed_on: Option<u64>,
    /// Datagrams to the receiver's address that came by other queues, and were dropped: of flows that
    /// were not named, or that the card does not send where it was predicted.
    pub elsewhere: u64,
    /// True if the receiver got packets by the queue, and the card's counter, where there is one, has
    /// some as well.
    pub is_proved: bool,
}
