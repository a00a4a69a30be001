//! Changes that would spread flows more evenly.

use super::card::SteeringCard;
use super::flows::Flows;
use mpps_host::facts::rss::{self, Hashed, KEY_BYTES, RssFlow, Toeplitz};
use schemars::JsonSchema;
use serde::Serialize;

/// Keys to try, and flows to try them with. A gain that is worth a remedy shows in few flows.
const KEYS: u64 = 64;
const TRIED_FLOWS: usize = 10_000;

/// Something to be changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Remedy {
    /// The thing to change.
    pub(super) what: &'static str,
    /// The command that changes it.
    pub(super) command: String,
    /// The imbalance that it would leave of these flows.
    pub(super) imbalance: f64,
}

/// A source port that leads to a queue.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct QueuePort {
    /// The queue.
    pub(super) queue: u32,
    /// The port.
    pub(super) port: u16,
}

/// Changes that would make these flows more even than `now`, the best first.
pub(super) fn remedies(
    card: &SteeringCard,
    flows: &Flows,
    by_entry: &[u64],
    now: f64,
) -> Vec<Remedy> {
    let interface = card.name();
    let queues = card.queues();
    let mut found = Vec::new();
    let weights = rss::even_weights(by_entry, queues);
    let words: Vec<String> = weights.iter().map(u32::to_string).collect();
    found.push(Remedy {
        what: "table",
        command: format!("ethtool -X {interface} weight {}", words.join(" ")),
        imbalance: with(card, flows, |card| {
            card.table = rss::table_of_weights(&weights);
        }),
    });
    for (at, flow) in card.kinds.into_iter().enumerate() {
        let concerns = |flow: &RssFlow| usize::from(flow.source.is_ipv6()) == at;
        let is_seen = flows.all.iter().any(|(flow, _)| concerns(flow));
        if is_seen && card.hashing.fields[at] == Hashed::Addresses {
            found.push(Remedy {
                what: "fields",
                command: format!("ethtool -N {interface} rx-flow-hash {flow} sdfn"),
                imbalance: with(card, flows, |card| card.hashing.fields[at] = Hashed::Ports),
            });
        }
    }
    let tried = (0..KEYS).filter_map(|seed| {
        let key = key_of(seed, card.hashing.key.len());
        let toeplitz = Toeplitz::new(&key).ok()?;
        let imbalance = with(card, flows, |card| card.hashing.toeplitz = toeplitz);
        Some((key, imbalance))
    });
    if let Some((key, imbalance)) = tried.min_by(|a, b| a.1.total_cmp(&b.1)) {
        found.push(Remedy {
            what: "key",
            command: format!("ethtool -X {interface} hkey {}", rss::hexadecimal(&key)),
            imbalance,
        });
    }
    found.retain(|remedy| remedy.imbalance < now);
    found.sort_by(|a, b| a.imbalance.total_cmp(&b.imbalance));
    found
}

/// The imbalance of another card, which differs by `change`.
fn with(card: &SteeringCard, flows: &Flows, change: impl FnOnce(&mut SteeringCard)) -> f64 {
    let mut other = card.clone();
    change(&mut other);
    let mut loads = vec![0; card.queues() as usize];
    let entries = card.entries();
    for (flow, packets) in flows.all.iter().take(TRIED_FLOWS) {
        let entry = other.hashing.entry(flow, other.table.len());
        loads[other.table[entry] as usize] += packets;
    }
    let used = loads.into_iter().zip(entries);
    let used = used.filter_map(|(load, entries)| (entries > 0).then_some(load));
    rss::imbalance(&used.collect::<Vec<u64>>())
}

/// A key that the same seed makes again (splitmix64).
fn key_of(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |at: u64| {
        let mut z = (seed << 32 | at)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31).to_be_bytes()
    };
    let words = (0..bytes.max(KEY_BYTES).div_ceil(8) as u64).flat_map(word);
    words.take(bytes.max(KEY_BYTES)).collect()
}

/// The first source port, from the flow's own on, that leads to each queue.
pub(super) fn ports(card: &SteeringCard, flows: &Flows) -> Vec<QueuePort> {
    let Some((first, _)) = flows.all.first() else {
        return Vec::new();
    };
    if card.hashing.hashed(first) != Hashed::Ports {
        return Vec::new();
    }
    let mut found: Vec<Option<u16>> = vec![None; card.queues() as usize];
    let mut wanted = card.entries().iter().filter(|count| **count > 0).count();
    for port in first.source.port().max(1)..=u16::MAX {
        let mut flow = *first;
        flow.source.set_port(port);
        let queue = card.table[card.hashing.entry(&flow, card.table.len())];
        let place = &mut found[queue as usize];
        wanted -= usize::from(place.is_none());
        place.get_or_insert(port);
        if wanted == 0 {
            break;
        }
    }
    let found = (0..).zip(found);
    let found = found.filter_map(|(queue, port)| Some(QueuePort { queue, port: port? }));
    found.collect()
}
