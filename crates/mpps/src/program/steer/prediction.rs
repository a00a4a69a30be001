//! What a card makes of flows, and what would make it more even.

use super::card::Card;
use super::flows::Flows;
use mpps_host::rss::{self, Flow, Hashed, KEY_BYTES, Toeplitz};
use mpps_host::{CpuList, QueuePackets};
use mpps_report::{Block, Cell, Column, Quantity, Row, Style, Table, Text, grouped};
use schemars::JsonSchema;
use serde::Serialize;

/// Above it the busiest queue is worth a remedy; chance alone makes as much of a thousand flows.
const UNEVEN: f64 = 1.1;
/// Above this share of packets that are no flow's, counters say nothing of a prediction.
const UNKNOWN: f64 = 0.05;
/// Keys that are tried, and flows by which: what is worth a remedy shows in few.
const KEYS: u64 = 64;
const TRIED_FLOWS: usize = 10_000;
/// Characters of the longest bar.
const BAR: f64 = 24.0;
/// Flows that people are shown.
const SHOWN: usize = 16;

/// Result of `mpps steer --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SteerObject {
    /// [`SteerObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// The interface whose settings were taken; none where all was said.
    interface: Option<String>,
    /// The key, in hexadecimal.
    key: String,
    /// Where the key is from.
    key_from: String,
    /// What is hashed of UDP over IPv4 and over IPv6, by the letters of ethtool.
    fields: [&'static str; 2],
    /// The queue of each entry of the table.
    table: Vec<u32>,
    /// Where the flows are from.
    source: String,
    /// Each queue up to the last of the table.
    queues: Vec<QueueLoad>,
    /// How far the busiest of the queues in the table is above an even share: 1 is even.
    imbalance: f64,
    /// What makes it more even, the best first; empty where it is even.
    remedies: Vec<Remedy>,
    /// For each queue a source port by which the first flow gets there, where ports are hashed.
    ports: Vec<QueuePort>,
    /// With --verify: what the card's counters say.
    verified: Option<Verified>,
    /// What is to be known of it.
    notes: Vec<String>,
    /// Each flow.
    flows: Vec<Steered>,
}

/// What one queue gets.
#[derive(Debug, Serialize, JsonSchema)]
struct QueueLoad {
    /// The queue.
    queue: u32,
    /// Its entries in the table.
    entries: usize,
    /// Flows.
    flows: u64,
    /// Packets; one a flow where no traffic was counted.
    packets: u64,
    /// The number of its interrupt, where the host tells.
    interrupt: Option<u32>,
    /// The CPUs that take the interrupt.
    cpus: Vec<usize>,
    /// The NUMA node of the card.
    node: Option<usize>,
}

/// Something to be changed.
#[derive(Debug, Serialize, JsonSchema)]
struct Remedy {
    /// What changes.
    what: &'static str,
    /// The command that changes it.
    command: String,
    /// The imbalance that it would leave of these flows.
    imbalance: f64,
}

/// A source port that leads to a queue.
#[derive(Debug, Serialize, JsonSchema)]
struct QueuePort {
    /// The queue.
    queue: u32,
    /// The port.
    port: u16,
}

/// What the counters of the card's queues say beside the prediction.
#[derive(Debug, Serialize, JsonSchema)]
struct Verified {
    /// Each queue of which there is a counter.
    queues: Vec<VerifiedQueue>,
    /// Packets that were seen and are no UDP in question: they come by some queue, too.
    others: u64,
    /// Packets that the tap lost before they were seen.
    dropped: u64,
    /// Packets that the counters have besides: they came before the tap opened, or after it was emptied.
    unseen: u64,
    /// True where no queue got fewer packets than were predicted for it, and nearly all were seen.
    agrees: bool,
}

/// A queue by both.
#[derive(Debug, Serialize, JsonSchema)]
struct VerifiedQueue {
    /// The queue.
    queue: u32,
    /// Packets of the flows seen that lead there.
    predicted: u64,
    /// Packets by the counter.
    counted: u64,
    /// The driver's name of the counter.
    counter: String,
}

/// A flow, and where it goes.
#[derive(Debug, Serialize, JsonSchema)]
struct Steered {
    /// `SOURCE:PORT-DESTINATION:PORT`.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    flow: Flow,
    /// Its packets.
    packets: u64,
    /// Its hash.
    hash: u32,
    /// The queue.
    queue: u32,
}

fn as_text<S: serde::Serializer>(flow: &Flow, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(flow)
}

impl SteerObject {
    /// The version of this form.
    pub const SCHEMA: &'static str = "mpps.steer.v1";

    /// Predicts for each flow where it goes.
    pub(super) fn predict(card: Card, flows: &Flows, is_verified: bool) -> Self {
        let entries = card.table.len();
        let mut by_entry = vec![0; entries];
        let mut loads: Vec<QueueLoad> = (0..card.queues()).map(|queue| card.idle(queue)).collect();
        let steered = flows.all.iter().map(|(flow, packets)| {
            let hash = card.hash(flow);
            let entry = rss::entry_of(hash, entries);
            let queue = card.table[entry];
            by_entry[entry] += packets;
            loads[queue as usize].flows += 1;
            loads[queue as usize].packets += packets;
            Steered {
                flow: *flow,
                packets: *packets,
                hash,
                queue,
            }
        });
        let steered: Vec<Steered> = steered.collect();
        let imbalance = imbalance(&loads);
        let remedies = match imbalance > UNEVEN {
            true => remedies(&card, flows, &by_entry, imbalance),
            false => Vec::new(),
        };
        Self {
            schema: Self::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            key: hexadecimal(&card.key),
            fields: card.fields.map(letters),
            source: flows.source.clone(),
            imbalance,
            remedies,
            ports: ports(&card, flows),
            verified: is_verified.then(|| Verified::of(&loads, flows)),
            notes: notes(&card, flows),
            queues: loads,
            flows: steered,
            interface: card.interface,
            key_from: card.key_from,
            table: card.table,
        }
    }

    /// True if the card did something else.
    pub(super) fn is_refuted(&self) -> bool {
        self.verified.as_ref().is_some_and(|found| !found.agrees)
    }

    /// For people.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let at = self.interface.as_deref().unwrap_or("a card");
        let [v4, v6] = self.fields;
        let fields = if v4 == v6 {
            v4.to_owned()
        } else {
            format!("{v4}, of IPv6 {v6}")
        };
        let said = format!(
            "{} UDP flows, {}, over the {} queues of {at}: the busiest has {:.2} times an even share",
            grouped(self.flows.len() as u128),
            self.source,
            self.queues.iter().filter(|load| load.entries > 0).count(),
            self.imbalance,
        );
        let style = if self.imbalance > UNEVEN {
            Style::Bad
        } else {
            Style::Good
        };
        let how = format!(
            "hashed: {fields}; table of {} entries; key {}... ({})",
            self.table.len(),
            &self.key[..11],
            self.key_from
        );
        let mut blocks = vec![
            Block::Sentences(vec![Text::styled(style, said)]),
            Block::paragraph(how),
            self.loads().into(),
        ];
        if let Some(verified) = &self.verified {
            blocks.push(verified.table().into());
            blocks.push(Block::Sentences(vec![verified.sentence()]));
        }
        if self.flows.len() <= SHOWN {
            blocks.push(self.few().into());
        }
        if !self.remedies.is_empty() {
            blocks.push(Block::heading("What makes it more even"));
            let columns = [
                Column::words("change", 6),
                Column::figure("then", 6),
                Column::words("command", 20).grow(400),
            ];
            let rows = self.remedies.iter().map(|remedy| {
                let then = format!("{:.2}", remedy.imbalance);
                Row::new([
                    remedy.what.into(),
                    then.into(),
                    remedy.command.clone().into(),
                ])
            });
            blocks.push(Table::new(columns).rows(rows).into());
        }
        if self.imbalance > UNEVEN && !self.ports.is_empty() {
            let ports = self.ports.iter().take(SHOWN);
            let ports: Vec<String> = ports
                .map(|at| format!("{} to queue {}", at.port, at.queue))
                .collect();
            let said = format!(
                "or by other source ports of the first flow: {}",
                ports.join(", ")
            );
            blocks.push(Block::paragraph(said));
        }
        blocks.extend(self.notes.iter().map(Block::note));
        blocks
    }

    fn loads(&self) -> Table {
        let columns = [
            Column::figure("queue", 5),
            Column::figure("flows", 9),
            Column::figure("packets", 9).priority(1),
            Column::figure("share", 7),
            Column::words("", BAR as usize).priority(1),
            Column::words("interrupt", 9).priority(2),
            Column::words("CPUs", 6).priority(2),
        ];
        let sum: u64 = self.queues.iter().map(|load| load.packets).sum();
        let most = self
            .queues
            .iter()
            .map(|load| load.packets)
            .max()
            .unwrap_or(0)
            .max(1);
        let rows = self.queues.iter().map(|load| {
            let bar = (load.packets as f64 / most as f64 * BAR).round() as usize;
            let interrupt = load
                .interrupt
                .map_or_else(|| "-".to_owned(), |number| number.to_string());
            let cpus = match load.cpus.is_empty() {
                true => "-".to_owned(),
                false => CpuList(load.cpus.clone()).to_string(),
            };
            let share = Quantity::Share(load.packets as f64 / sum.max(1) as f64);
            Row::new([
                load.queue.to_string().into(),
                grouped(load.flows.into()).into(),
                grouped(load.packets.into()).into(),
                Cell::from(share.to_string()),
                "#".repeat(bar).into(),
                interrupt.into(),
                cpus.into(),
            ])
        });
        Table::new(columns).rows(rows)
    }

    fn few(&self) -> Table {
        let columns = [
            Column::words("flow", 43),
            Column::figure("hash", 10),
            Column::figure("queue", 5),
        ];
        let rows = self.flows.iter().map(|steered| {
            Row::new([
                steered.flow.to_string().into(),
                format!("{:#010x}", steered.hash).into(),
                steered.queue.to_string().into(),
            ])
        });
        Table::new(columns).rows(rows)
    }
}

impl Card {
    fn idle(&self, queue: u32) -> QueueLoad {
        let server = self.servers.get(&queue);
        QueueLoad {
            queue,
            entries: self.table.iter().filter(|entry| **entry == queue).count(),
            flows: 0,
            packets: 0,
            interrupt: server.map(|server| server.interrupt),
            cpus: server.map(|server| server.cpus.clone()).unwrap_or_default(),
            node: self.node,
        }
    }
}

impl Verified {
    fn of(loads: &[QueueLoad], flows: &Flows) -> Self {
        let counter = |queue: u32| -> Option<&QueuePackets> {
            flows
                .queues
                .iter()
                .find(|counted| counted.queue == queue as usize)
        };
        let queues = loads.iter().filter_map(|load| {
            let counted = counter(load.queue)?;
            Some(VerifiedQueue {
                queue: load.queue,
                predicted: load.packets,
                counted: u64::try_from(counted.packets).unwrap_or(0),
                counter: counted.counter.clone(),
            })
        });
        let queues: Vec<VerifiedQueue> = queues.collect();
        let sum = |of: fn(&VerifiedQueue) -> u64| -> u64 { queues.iter().map(of).sum() };
        let (counted, predicted) = (sum(|one| one.counted), sum(|one| one.predicted));
        let is_less = queues.iter().any(|one| one.counted < one.predicted);
        let unknown = counted.saturating_sub(predicted);
        Self {
            agrees: predicted > 0 && !is_less && unknown as f64 <= counted as f64 * UNKNOWN,
            others: flows.others,
            dropped: flows.dropped,
            unseen: unknown.saturating_sub(flows.others + flows.dropped),
            queues,
        }
    }

    fn table(&self) -> Table {
        let columns = [
            Column::figure("queue", 5),
            Column::figure("predicted", 9),
            Column::figure("counted", 9),
            Column::words("counter", 12).grow(60),
        ];
        let rows = self.queues.iter().map(|one| {
            Row::new([
                one.queue.to_string().into(),
                grouped(one.predicted.into()).into(),
                grouped(one.counted.into()).into(),
                one.counter.clone().into(),
            ])
        });
        Table::new(columns).rows(rows)
    }

    fn sentence(&self) -> Text {
        let rest = format!(
            "{} packets were of no such flow, {} were lost by the tap, and {} came before or after it",
            grouped(self.others.into()),
            grouped(self.dropped.into()),
            grouped(self.unseen.into())
        );
        let is_less = self.queues.iter().any(|one| one.counted < one.predicted);
        let said = match (self.agrees, self.queues.is_empty(), is_less) {
            (true, ..) => format!("the card did as predicted; {rest}"),
            (_, true, _) => {
                "the driver counts no packets by queue: nothing was verified".to_owned()
            }
            (.., true) => {
                format!("the card did not do as predicted: another key, table or fields; {rest}")
            }
            _ => format!("too much is of no flow to say whether the card did as predicted: {rest}"),
        };
        let style = if self.agrees { Style::Good } else { Style::Bad };
        Text::styled(style, said)
    }
}

/// Of the queues that the table names.
fn imbalance(loads: &[QueueLoad]) -> f64 {
    let used = loads.iter().filter(|load| load.entries > 0);
    rss::imbalance(&used.map(|load| load.packets).collect::<Vec<_>>())
}

fn letters(hashed: Hashed) -> &'static str {
    match hashed {
        Hashed::Addresses => "sd",
        Hashed::Ports => "sdfn",
    }
}

fn hexadecimal(key: &[u8]) -> String {
    let bytes: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn remedies(card: &Card, flows: &Flows, by_entry: &[u64], now: f64) -> Vec<Remedy> {
    let interface = card.interface.as_deref().unwrap_or("IF");
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
    for (at, flow) in ["udp4", "udp6"].into_iter().enumerate() {
        let concerns = |flow: &Flow| usize::from(flow.source.is_ipv6()) == at;
        let is_seen = flows.all.iter().any(|(flow, _)| concerns(flow));
        if is_seen && card.fields[at] == Hashed::Addresses {
            found.push(Remedy {
                what: "fields",
                command: format!("ethtool -N {interface} rx-flow-hash {flow} sdfn"),
                imbalance: with(card, flows, |card| card.fields[at] = Hashed::Ports),
            });
        }
    }
    let tried = (0..KEYS).filter_map(|seed| {
        let key = key_of(seed, card.key.len());
        let toeplitz = Toeplitz::new(&key).ok()?;
        let imbalance = with(card, flows, |card| card.toeplitz = toeplitz);
        Some((key, imbalance))
    });
    if let Some((key, imbalance)) = tried.min_by(|a, b| a.1.total_cmp(&b.1)) {
        found.push(Remedy {
            what: "key",
            command: format!("ethtool -X {interface} hkey {}", hexadecimal(&key)),
            imbalance,
        });
    }
    found.retain(|remedy| remedy.imbalance < now);
    found.sort_by(|a, b| a.imbalance.total_cmp(&b.imbalance));
    found
}

/// The imbalance of another card, which differs by `change`.
fn with(card: &Card, flows: &Flows, change: impl FnOnce(&mut Card)) -> f64 {
    let mut other = card.clone();
    change(&mut other);
    let mut loads = vec![0; card.queues() as usize];
    for (flow, packets) in flows.all.iter().take(TRIED_FLOWS) {
        let entry = rss::entry_of(other.hash(flow), other.table.len());
        loads[other.table[entry] as usize] += packets;
    }
    let is_used = |queue: &usize| card.table.contains(&(*queue as u32));
    let used: Vec<u64> = (0..loads.len())
        .filter(is_used)
        .map(|queue| loads[queue])
        .collect();
    rss::imbalance(&used)
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
fn ports(card: &Card, flows: &Flows) -> Vec<QueuePort> {
    let Some((first, _)) = flows.all.first() else {
        return Vec::new();
    };
    if card.hashed(first) != Hashed::Ports {
        return Vec::new();
    }
    let mut found: Vec<Option<u16>> = vec![None; card.queues() as usize];
    let mut wanted = (0..card.queues())
        .filter(|queue| card.table.contains(queue))
        .count();
    for port in first.source.port().max(1)..=u16::MAX {
        let mut flow = *first;
        flow.source.set_port(port);
        let queue = card.table[rss::entry_of(card.hash(&flow), card.table.len())];
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

fn notes(card: &Card, flows: &Flows) -> Vec<String> {
    let mut notes = Vec::new();
    if flows.others > 0 && flows.queues.is_empty() {
        notes.push(format!(
            "{} frames are of no such flow",
            grouped(flows.others.into())
        ));
    }
    if card.fields[0] != card.fields[1] {
        notes.push("IPv4 and IPv6 are hashed by different fields".to_owned());
    }
    notes.push(
        "which socket of a SO_REUSEPORT group gets a packet is chosen by another hash, with a secret of \
         the kernel's, unless a program chooses (mpps recv --steer cpu)"
            .to_owned(),
    );
    notes
}
