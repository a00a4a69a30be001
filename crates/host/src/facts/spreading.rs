//! How a card spreads packets over its receive queues, and the commands that change it.

use crate::facts::rss::{Symmetry, hexadecimal};
use crate::facts::{Interface, KernelAnswer};
use mpps_os::ethtool::hash_fields::{self, FIELDS, FLOWS};
use mpps_os::ethtool::rss::Rss;
use mpps_os::text::ShellWord;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// How an interface spreads packets over its receive queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spreading {
    /// The hashed fields of UDP and TCP.
    pub fields: Vec<HashFields>,
    /// The table that maps the hash to a queue, its key and its function. It is refused if the
    /// driver does not show it.
    pub rss: KernelAnswer<RssTable>,
    /// Commands that change the table: to N queues equally, to queue 0 only, or to the driver's
    /// own. There are none without a table.
    pub table_commands: Vec<String>,
    /// Commands that change the key, with as many bytes as it has; none if there is no key.
    pub key_commands: Vec<String>,
}

/// The hashed fields of one kind of traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HashFields {
    /// The kind: `udp4`, `udp6`, `tcp4` or `tcp6`.
    pub flow: &'static str,
    /// The fields by the letters of `ethtool -N`, such as `sdfn`; empty for none.
    pub fields: KernelAnswer<String>,
    /// Commands that add the ports to the addresses, or take them out. There are none if nothing is
    /// hashed and no table exists.
    pub commands: Vec<String>,
}

/// The RSS table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RssTable {
    /// The queue for each value of the hash; empty where the driver has no table.
    pub indirection: Vec<u32>,
    /// The key, in hexadecimal; empty where the driver does not show it.
    pub key: String,
    /// The function: `toeplitz`, `xor`, `crc32`, or `unknown`.
    pub function: &'static str,
    /// How both directions of a flow get one hash: `symmetric-xor` or `symmetric-or-xor`; absent if
    /// they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symmetry: Option<Symmetry>,
}

impl Spreading {
    /// The spreading of an interface of the calling thread's network namespace, which receives on
    /// `queues` queues.
    pub fn gather(interface: &Interface, queues: u32) -> Self {
        let name = &interface.name;
        let fields = FLOWS.map(|flow| (flow.name, KernelAnswer::of(hash_fields::read(name, flow))));
        Self::of(name, queues, fields.into(), interface.rss.clone())
    }

    fn of(
        interface: &str,
        queues: u32,
        fields: Vec<(&'static str, KernelAnswer<u64>)>,
        rss: KernelAnswer<Rss>,
    ) -> Self {
        let rss = rss.map(RssTable::of);
        let has = |part: fn(&RssTable) -> bool| rss.value().is_some_and(part);
        let has_table = has(|rss| !rss.indirection.is_empty());
        let has_key = has(|rss| !rss.key.is_empty());
        let name = ShellWord::new(interface);
        let all = |is: bool, commands: &[String]| if is { commands.to_vec() } else { Vec::new() };
        let fields = fields.into_iter().map(|(flow, fields)| {
            let fields = fields.map(hash_fields::letters);
            let letters = fields.value().map_or("", String::as_str);
            let wanted = if letters.contains("fn") { "sd" } else { "sdfn" };
            let command = format!("ethtool -N {name} rx-flow-hash {flow} {wanted}");
            let can_change = fields.value().is_some() && (has_table || !letters.is_empty());
            HashFields {
                flow,
                commands: all(can_change, &[command]),
                fields,
            }
        });
        let change = |how: &str| format!("ethtool -X {name} {how}");
        // A weight for each queue, and none for those that are not named.
        let table = [&format!("equal {}", queues.max(1)), "weight 1", "default"].map(change);
        Self {
            fields: fields.collect(),
            table_commands: all(has_table, &table),
            key_commands: all(has_key, &[change("hkey XX:XX:...")]),
            rss,
        }
    }

    /// The table and the key in words.
    pub fn words(&self) -> [String; 2] {
        match self.rss.value() {
            Some(rss) => [rss.words(), rss.key_words()],
            None => [NOT_TOLD, NOT_TOLD].map(str::to_owned),
        }
    }
}

impl HashFields {
    /// The fields in words.
    pub fn words(&self) -> String {
        match &self.fields {
            KernelAnswer::Refused(_) => NOT_TOLD.to_owned(),
            KernelAnswer::Is(letters) if letters.is_empty() => "nothing".to_owned(),
            KernelAnswer::Is(letters) => {
                let known = FIELDS
                    .iter()
                    .filter(|(_, letter, _)| letters.contains(*letter));
                let words: Vec<&str> = known.map(|(.., words)| *words).collect();
                format!("{} ({letters})", words.join(", "))
            }
        }
    }
}

/// The words for a driver that shows nothing.
const NOT_TOLD: &str = "not shown by the driver";

impl RssTable {
    fn of(rss: Rss) -> Self {
        Self {
            key: hexadecimal(&rss.key),
            function: match rss.hash_function {
                1 => "toeplitz",
                2 => "xor",
                4 => "crc32",
                _ => "unknown",
            },
            symmetry: Symmetry::of_transform(rss.transform),
            indirection: rss.indirection,
        }
    }

    /// `128 entries: queues 0-3 equally`.
    fn words(&self) -> String {
        let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
        for queue in &self.indirection {
            *shares.entry(*queue).or_default() += 1;
        }
        let entries = self.indirection.len();
        let (Some(least), Some(most)) = (shares.values().min(), shares.values().max()) else {
            return "no table".to_owned();
        };
        let queues = crate::CpuList(shares.keys().map(|queue| *queue as usize).collect());
        // If the division has a remainder, some queues have one entry more.
        if most - least <= 1 {
            return match shares.len() {
                1 => format!("{entries} entries: all to queue {queues}"),
                _ => format!("{entries} entries: queues {queues} equally"),
            };
        }
        let first = shares.iter().take(8);
        let first = first.map(|(queue, share)| format!("{share} to queue {queue}"));
        let more = match shares.len().saturating_sub(8) {
            0 => String::new(),
            more => format!(" and {more} more queues"),
        };
        format!(
            "{entries} entries: {}{more}",
            first.collect::<Vec<_>>().join(", ")
        )
    }

    /// How it begins, how long it is, and the function.
    fn key_words(&self) -> String {
        let key = match self.key.len() {
            0 => NOT_TOLD.to_owned(),
            length if length > 24 => {
                format!("{}:... ({} bytes)", &self.key[..11], length.div_ceil(3))
            }
            _ => self.key.clone(),
        };
        match self.symmetry {
            Some(symmetry) => format!("{key}, {}, {}", self.function, symmetry.name()),
            None => format!("{key}, {}", self.function),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rss(indirection: impl IntoIterator<Item = u32>, key: usize) -> KernelAnswer<Rss> {
        KernelAnswer::Is(Rss {
            indirection: indirection.into_iter().collect(),
            key: (0..key).map(|at| at as u8 * 6).collect(),
            hash_function: 1,
            transform: 0,
        })
    }

    fn words(rss: KernelAnswer<Rss>) -> [String; 2] {
        Spreading::of("eth2", 4, Vec::new(), rss).words()
    }

    /// igb has 128 entries and shows no key; ixgbe has a key of 40 bytes; virtio_net may have neither.
    #[test]
    fn tables_and_keys_in_words() {
        let hidden = "not shown by the driver, toeplitz";
        let igb = words(rss((0..128).map(|at| at * 4 / 128), 0));
        assert_eq!(igb, ["128 entries: queues 0-3 equally", hidden]);
        let ixgbe = words(rss((0..128).map(|at| at % 11), 40));
        let key = "00:06:0c:12:... (40 bytes), toeplitz";
        assert_eq!(ixgbe, ["128 entries: queues 0-10 equally", key]);
        assert_eq!(words(rss([], 0)), ["no table", hidden]);
        let one = words(rss([2; 128], 4));
        let key = "00:06:0c:12, toeplitz";
        assert_eq!(one, ["128 entries: all to queue 2", key]);
        let uneven = words(rss((0..128).map(|at| u32::from(at % 4 == 3)), 0));
        assert_eq!(uneven[0], "128 entries: 96 to queue 0, 32 to queue 1");
        let many = words(rss((0..20).chain([0, 0]), 0));
        assert!(
            many[0].ends_with("1 to queue 7 and 12 more queues"),
            "{many:?}"
        );
    }

    #[test]
    fn each_has_the_command_that_changes_it() {
        let fields = vec![
            ("udp4", KernelAnswer::Is(0x30)),
            ("tcp4", KernelAnswer::Is(0xf0)),
            ("tcp6", KernelAnswer::Is(0)),
            (
                "udp6",
                KernelAnswer::Refused("Operation not supported".to_owned()),
            ),
        ];
        let spreading = Spreading::of("eth2", 4, fields, rss([0], 4));
        let said = spreading.fields.iter();
        let said = said.map(|one| (one.words(), one.commands.concat()));
        let change = |how| format!("ethtool -N eth2 rx-flow-hash {how}");
        let ports = "source address, destination address, source port, destination port (sdfn)";
        let expected = [
            (
                "source address, destination address (sd)",
                change("udp4 sdfn"),
            ),
            (ports, change("tcp4 sd")),
            ("nothing", change("tcp6 sdfn")),
            (NOT_TOLD, String::new()),
        ];
        let expected = expected.map(|(words, command)| (words.to_owned(), command));
        assert_eq!(said.collect::<Vec<_>>(), expected);
        let commands =
            ["equal 4", "weight 1", "default"].map(|how| format!("ethtool -X eth2 {how}"));
        assert_eq!(spreading.table_commands, commands);
        assert_eq!(spreading.key_commands, ["ethtool -X eth2 hkey XX:XX:..."]);
        let hostile = Spreading::of(
            "a;$(id)",
            4,
            vec![("udp4", KernelAnswer::Is(0x30))],
            rss([0], 4),
        );
        let fields = hostile.fields.iter().flat_map(|one| &one.commands);
        let all = fields
            .chain(&hostile.table_commands)
            .chain(&hostile.key_commands);
        let all: Vec<&String> = all.collect();
        assert!(
            all.len() == 5 && all.iter().all(|one| one.contains(" 'a;$(id)' ")),
            "{all:?}"
        );
        // virtio_net with one queue hashes nothing and has no table: there is nothing to change.
        let none = vec![("udp4", KernelAnswer::Is(0))];
        let none = Spreading::of("eth0", 1, none, rss([], 0));
        assert_eq!(none.fields[0].commands.len() + none.table_commands.len(), 0);
        assert_eq!(none.key_commands, [""; 0]);
    }
}
