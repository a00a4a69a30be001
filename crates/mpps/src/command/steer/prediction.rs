//! Where a card sends flows, and how even that is.

use super::card::SteeringCard;
use super::flows::{Flows, room};
use super::remedy::{QueuePort, Remedy, ports, remedies};
use super::verified::Verified;
use anyhow::Result;
use mpps_host::CpuList;
use mpps_host::facts::rss::{self, Hashed, RssFlow, Symmetry};
use mpps_report::{Block, Cell, Column, Quantity, Row, Style, Table, Text, grouped};
use schemars::JsonSchema;
use serde::Serialize;

/// Above this, the busiest queue is worth a remedy. Chance makes a thousand flows this uneven.
const UNEVEN: f64 = 1.1;
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
    /// ethtool's names of the traffic over IPv4 and over IPv6: `udp4` and `udp6`, or `tcp4` and `tcp6`.
    kinds: [&'static str; 2],
    /// The hashed fields of each, by the letters of ethtool.
    fields: [&'static str; 2],
    /// The method that gives both directions of a flow one hash; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    symmetry: Option<Symmetry>,
    /// The queue of each entry of the table.
    table: Vec<u32>,
    /// Where the flows are from.
    source: String,
    /// Each queue up to the last of the table.
    queues: Vec<PredictedLoad>,
    /// How far the busiest of the queues in the table is above an even share: 1 is even.
    imbalance: f64,
    /// Changes that make it more even, the best first; empty if it is even.
    remedies: Vec<Remedy>,
    /// For each queue, a source port that leads the first flow there, if ports are hashed.
    ports: Vec<QueuePort>,
    /// With --verify: what the card's counters say.
    verified: Option<Verified>,
    /// Notes on the prediction.
    notes: Vec<String>,
    /// Each flow.
    flows: Vec<Steered>,
}

/// The load of one queue.
#[derive(Debug, Serialize, JsonSchema)]
struct PredictedLoad {
    /// The queue.
    queue: u32,
    /// Its entries in the table.
    entries: usize,
    /// Flows.
    flows: u64,
    /// Packets; one a flow where no traffic was counted.
    packets: u64,
    /// The number of its interrupt, if the host reports it.
    interrupt: Option<u32>,
    /// The CPUs that take the interrupt.
    cpus: Vec<usize>,
    /// The NUMA node of the card.
    node: Option<usize>,
}

/// A flow, and where it goes.
#[derive(Debug, Serialize, JsonSchema)]
struct Steered {
    /// `SOURCE:PORT-DESTINATION:PORT`.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    flow: RssFlow,
    /// Its packets.
    packets: u64,
    /// Its hash.
    hash: u32,
    /// The queue.
    queue: u32,
}

fn as_text<S: serde::Serializer>(flow: &RssFlow, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(flow)
}

impl SteerObject {
    /// The version of this form.
    pub const SCHEMA: &'static str = "mpps.steer.v1";

    /// Predicts for each flow where it goes.
    pub(super) fn predict(card: SteeringCard, flows: &Flows, is_verified: bool) -> Result<Self> {
        let entries = card.table.len();
        let mut by_entry = vec![0; entries];
        let idle = (0..).zip(card.entries());
        let mut loads: Vec<PredictedLoad> = idle
            .map(|(queue, entries)| card.idle(queue, entries))
            .collect();
        let each = flows.all.iter().map(|(flow, packets)| {
            let hash = card.hashing.hash(flow);
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
        let mut steered: Vec<Steered> = room(flows.all.len())?;
        steered.extend(each);
        let imbalance = imbalance(&loads);
        let remedies = match imbalance > UNEVEN {
            true => remedies(&card, flows, &by_entry, imbalance),
            false => Vec::new(),
        };
        Ok(Self {
            schema: Self::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            key: rss::hexadecimal(&card.hashing.key),
            kinds: card.kinds,
            fields: card.hashing.fields.map(Hashed::letters),
            symmetry: card.hashing.symmetry,
            source: flows.source.clone(),
            imbalance,
            remedies,
            ports: ports(&card, flows),
            verified: is_verified
                .then(|| Verified::of(loads.iter().map(|load| (load.queue, load.packets)), flows)),
            notes: notes(&card, flows),
            queues: loads,
            flows: steered,
            interface: card.interface.map(|interface| interface.name),
            key_from: card.hashing.key_from,
            table: card.table,
        })
    }

    /// Returns true if the card chose other queues, or if packets were not seen.
    pub(super) fn is_refuted(&self) -> bool {
        self.verified
            .as_ref()
            .is_some_and(|found| !found.is_whole())
    }

    /// The hashed fields, in words.
    fn hashed(&self) -> String {
        let [v4, v6] = self.fields;
        let other = (v4 != v6).then(|| format!(", of IPv6 {v6}"));
        let symmetry = self.symmetry.map(|how| format!(", {}", how.name()));
        format!(
            "{v4}{}{}",
            other.unwrap_or_default(),
            symmetry.unwrap_or_default()
        )
    }

    /// For people.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let at = self.interface.as_deref().unwrap_or("a card");
        let fields = self.hashed();
        let said = format!(
            "{} {} flows, {}, over the {} queues of {at}: the busiest has {:.2} times an even share",
            grouped(self.flows.len() as u128),
            self.kinds[0].trim_end_matches('4').to_uppercase(),
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
            blocks.push(Block::heading("Changes that make it more even"));
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

impl SteeringCard {
    fn idle(&self, queue: u32, entries: usize) -> PredictedLoad {
        let interface = self.interface.as_ref();
        let server = interface.and_then(|found| found.interrupt_of(queue as usize));
        PredictedLoad {
            queue,
            entries,
            flows: 0,
            packets: 0,
            interrupt: server.map(|server| server.number),
            cpus: server.map_or_else(Vec::new, |server| server.effective.clone()),
            node: interface.and_then(|found| found.node),
        }
    }
}

/// Of the queues that the table names.
fn imbalance(loads: &[PredictedLoad]) -> f64 {
    let used = loads.iter().filter(|load| load.entries > 0);
    rss::imbalance(&used.map(|load| load.packets).collect::<Vec<_>>())
}

fn notes(card: &SteeringCard, flows: &Flows) -> Vec<String> {
    let mut notes = flows.notes.clone();
    notes.extend(flows.others.told().filter(|_| flows.queues.is_empty()));
    if card.hashing.fields[0] != card.hashing.fields[1] {
        notes.push("IPv4 and IPv6 are hashed by different fields".to_owned());
    }
    if card.rules > 0 {
        let (rules, interface) = (card.rules, card.name());
        notes.push(format!(
            "{rules} steering rules come before the table, and are not looked at: `ethtool -n \
             {interface}` lists them"
        ));
    }
    notes.push(
        "which socket of a SO_REUSEPORT group gets a packet is chosen by another hash, with a secret of \
         the kernel's, unless a program chooses (mpps recv --steer cpu)"
            .to_owned(),
    );
    notes
}
