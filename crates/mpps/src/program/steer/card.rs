//! How a card chooses a queue: as it is set, or as the command line says.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_host::rss::{self, ENTRIES, Flow, Hashed, KEY_BYTES, MICROSOFT_KEY, Toeplitz};
use mpps_host::{Facts, Moment, Spreading, sysctl};
use mpps_os::netlink::link;
use std::collections::BTreeMap;

/// Which card, and what is to be assumed of it.
#[derive(Debug, Args)]
pub(super) struct CardArgs {
    /// The interface whose key, fields and table are to be taken
    #[arg(value_name = "IF")]
    pub(super) interface: Option<String>,
    /// The key in hexadecimal, with or without colons, at least 40 bytes [default: the card's, or
    /// that of Microsoft's specification]
    #[arg(long, value_name = "HEX", value_parser = key)]
    key: Option<Key>,
    /// The number of queues, dealt out by turns over the table [default: the card's table]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536),
          required_unless_present = "interface")]
    queues: Option<u32>,
    /// The length of the table
    #[arg(long, value_name = "N", default_value_t = ENTRIES as u32, requires = "queues",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    entries: u32,
    /// What is hashed of UDP, by the letters of `ethtool -N IF rx-flow-hash` [default: the card's, or
    /// sdfn]
    #[arg(long, value_name = "sd|sdfn", value_parser = hashed)]
    fields: Option<Hashed>,
}

/// A key as it was written, and its bytes.
#[derive(Debug, Clone)]
struct Key(Vec<u8>);

fn key(text: &str) -> Result<Key, String> {
    let digits: String = text.chars().filter(|letter| *letter != ':').collect();
    let byte = |at: usize| {
        let pair = digits.get(at..at + 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let bytes = bytes.ok_or("it is not hexadecimal, two digits a byte")?;
    match bytes.len() >= KEY_BYTES {
        true => Ok(Key(bytes)),
        false => Err(format!(
            "it has {} bytes of at least {KEY_BYTES}",
            bytes.len()
        )),
    }
}

fn hashed(text: &str) -> Result<Hashed, String> {
    Hashed::of_letters(text).ok_or_else(|| "it is sd or sdfn".to_owned())
}

/// Everything by which a queue is chosen.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// The interface; none where all was said.
    pub(super) interface: Option<String>,
    /// The key, and where it is from.
    pub(super) key: Vec<u8>,
    pub(super) key_from: String,
    /// What is hashed of UDP over IPv4, and over IPv6.
    pub(super) fields: [Hashed; 2],
    /// The queue of each entry.
    pub(super) table: Vec<u32>,
    /// Who serves the queues, as far as it is known.
    pub(super) servers: BTreeMap<u32, Server>,
    pub(super) node: Option<usize>,
    pub(super) toeplitz: Toeplitz,
}

/// Who serves a queue.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) interrupt: u32,
    pub(super) cpus: Vec<usize>,
}

impl Card {
    pub(super) fn of(args: &CardArgs) -> Result<Self> {
        let Some(interface) = &args.interface else {
            let (key, key_from) = match &args.key {
                Some(key) => (key.0.clone(), "--key"),
                None => (MICROSOFT_KEY.to_vec(), "Microsoft's specification"),
            };
            let fields = [args.fields.unwrap_or(Hashed::Ports); 2];
            let queues = args.queues.unwrap_or(1);
            let table = rss::table_of(args.entries as usize, queues);
            return Self::new(key, key_from.to_owned(), fields, table);
        };
        link::index(interface)?;
        let facts = Facts::take(Moment::Later(None), &[interface], None)?;
        let queues = facts.cards.get(interface).and_then(|card| card.queues);
        let spreading = Spreading::gather(interface, queues.unwrap_or(1) as u32);
        let table = match (args.queues, spreading.rss.value()) {
            (Some(queues), _) => rss::table_of(args.entries as usize, queues),
            (None, Some(rss)) if !rss.indirection.is_empty() => rss.indirection.clone(),
            _ => bail!(
                "{interface} has no RSS table: it does not choose queues by a hash; of a veth the \
                 sender's queue decides. Say --queues N to assume one"
            ),
        };
        let (key, key_from) = match (&args.key, args.queues) {
            (Some(key), _) => (key.0.clone(), "--key".to_owned()),
            (None, Some(_)) if spreading.rss.value().is_none() => (
                MICROSOFT_KEY.to_vec(),
                "Microsoft's specification".to_owned(),
            ),
            (None, _) => key_of(&spreading, interface)?,
        };
        let fields = |flow| match args.fields {
            None if spreading.rss.value().is_none() => Ok(Hashed::Ports),
            Some(fields) => Ok(fields),
            None => fields_of(&spreading, interface, flow),
        };
        // Many cards have no IPv6 fields of their own to tell.
        let v4 = fields("udp4")?;
        let v6 = fields("udp6").unwrap_or(v4);
        let mut card = Self::new(key, key_from, [v4, v6], table)?;
        if let Some(found) = facts.cards.get(interface) {
            card.node = found.node;
            card.servers = found
                .interrupts
                .iter()
                .filter_map(|interrupt| {
                    let server = Server {
                        interrupt: interrupt.number,
                        cpus: interrupt.effective.clone(),
                    };
                    Some((u32::try_from(interrupt.queue?).ok()?, server))
                })
                .collect();
        }
        card.interface = Some(interface.clone());
        Ok(card)
    }

    fn new(key: Vec<u8>, key_from: String, fields: [Hashed; 2], table: Vec<u32>) -> Result<Self> {
        Ok(Self {
            interface: None,
            toeplitz: Toeplitz::new(&key)?,
            key,
            key_from,
            fields,
            table,
            servers: BTreeMap::new(),
            node: None,
        })
    }

    /// What is hashed of a flow.
    pub(super) fn hashed(&self, flow: &Flow) -> Hashed {
        self.fields[usize::from(flow.source.is_ipv6())]
    }

    /// The hash of a flow.
    pub(super) fn hash(&self, flow: &Flow) -> u32 {
        self.toeplitz.hash(flow, self.hashed(flow))
    }

    /// How many queues the table names, with those before the last that it leaves out.
    pub(super) fn queues(&self) -> u32 {
        self.table.iter().max().map_or(1, |queue| queue + 1)
    }
}

/// A key as ethtool writes it.
pub(super) fn hexadecimal(key: &[u8]) -> String {
    let bytes: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// The key that the driver shows, or else the one that Linux gives to drivers.
fn key_of(spreading: &Spreading, interface: &str) -> Result<(Vec<u8>, String)> {
    let rss = spreading.rss.value();
    if let Some(rss) = rss {
        ensure!(
            !matches!(rss.function, "xor" | "crc32"),
            "{interface} hashes by {}, and only toeplitz can be predicted: ethtool -X {interface} \
             hfunc toeplitz",
            rss.function
        );
        if !rss.key.is_empty() {
            let key =
                key(&rss.key).map_err(|why| anyhow::anyhow!("the key of {interface}: {why}"))?;
            return Ok((key.0, "the card".to_owned()));
        }
    }
    // netdev_rss_key_fill() of net/ethtool/common.c: a driver that shows none has that one as a rule.
    const SYSCTL: &str = "net.core.netdev_rss_key";
    let text = sysctl::value_of_machine(SYSCTL)?.with_context(|| {
        format!(
            "the driver of {interface} shows no RSS key, and {SYSCTL} may not be read: say --key"
        )
    })?;
    let key = key(&text).map_err(|why| anyhow::anyhow!("{SYSCTL}: {why}"))?;
    ensure!(
        key.0.iter().any(|byte| *byte != 0),
        "the driver of {interface} shows no RSS key, and no driver asked Linux for one ({SYSCTL} is 0): \
         say --key"
    );
    Ok((
        key.0,
        format!("{SYSCTL}, because the driver shows none; --verify says whether it is the card's"),
    ))
}

/// What a card hashes of a kind of traffic.
fn fields_of(spreading: &Spreading, interface: &str, flow: &str) -> Result<Hashed> {
    let told = spreading.fields.iter().find(|fields| fields.flow == flow);
    let letters = told.and_then(|told| told.fields.value());
    let Some(letters) = letters else {
        bail!("the driver of {interface} does not tell what it hashes of {flow}: say --fields");
    };
    Hashed::of_letters(letters).with_context(|| {
        let fields = told.map_or_else(String::new, |told| told.words());
        format!("{interface} hashes {fields} of {flow}, which cannot be predicted: say --fields")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        let long = "6d:5A".to_owned() + &":00".repeat(38);
        assert_eq!(key(&long).unwrap().0[..2], [0x6d, 0x5a]);
        assert_eq!(key(&"ab".repeat(52)).unwrap().0.len(), 52);
        for (text, why) in [
            ("", "0 bytes"),
            ("6d", "1 bytes"),
            ("6", "hexadecimal"),
            ("zz", "hexadecimal"),
            ("äö", "hexadecimal"),
        ] {
            let refused = key(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_key_is_a_panic(text in "\\PC{0,120}") {
            let _ = key(&text);
        }
    }
}
