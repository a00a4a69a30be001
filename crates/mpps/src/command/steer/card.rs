//! How a card chooses a queue: as it is set, or as the command line says.

use anyhow::{Result, bail};
use clap::Args;
use mpps_host::facts::rss::{self, ENTRIES, Hashed, MICROSOFT_KEY, Symmetry};
use mpps_host::setting::hashing::{fields_of_card, key_of_card};
use mpps_host::{Hashing, Interface, Spreading};
use mpps_os::ethtool::ntuple;
use mpps_os::netlink::link;
use mpps_os::text::ShellWord;

/// Which card, and what is to be assumed of it.
#[derive(Debug, Args)]
pub(super) struct CardArgs {
    /// Use the RSS settings of this interface: hash key, fields and table
    #[arg(value_name = "IF")]
    pub(super) interface: Option<String>,
    /// Predict with this hash key; the card keeps its own. At least 40 bytes in hexadecimal, colons
    /// allowed [default: the card's; without IF, Microsoft's]
    #[arg(long, value_name = "HEX", value_parser = key)]
    key: Option<HashKey>,
    /// Predict with N queues, spread evenly over the RSS table [default: the card's table]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536),
          required_unless_present = "interface")]
    queues: Option<u32>,
    /// Predict with an RSS table of N entries; needs --queues
    #[arg(long, value_name = "N", default_value_t = ENTRIES as u32, requires = "queues",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    entries: u32,
    /// Predict with these hashed fields, in the letters of `ethtool -N IF rx-flow-hash` [default: the card's;
    /// without IF, sdfn]
    #[arg(long, value_name = "sd|sdfn", value_parser = hashed)]
    fields: Option<Hashed>,
    /// Give both directions of a flow one hash, as `ethtool -X IF xfrm` does [default: the card's, or
    /// none]
    #[arg(long, value_name = "symmetric-xor|symmetric-or-xor")]
    xfrm: Option<Symmetry>,
}

/// A key, so that the parser does not take it for a list.
#[derive(Debug, Clone)]
struct HashKey(Vec<u8>);

fn key(text: &str) -> Result<HashKey, String> {
    rss::key(text).map(HashKey)
}

fn hashed(text: &str) -> Result<Hashed, String> {
    Hashed::of_letters(text).ok_or_else(|| "it is sd or sdfn".to_owned())
}

/// All inputs of the card's choice of a queue.
#[derive(Debug, Clone)]
pub(super) struct SteeringCard {
    /// The interface; none where all was said.
    pub(super) interface: Option<Interface>,
    /// ethtool's names of the traffic, over IPv4 and over IPv6.
    pub(super) kinds: [&'static str; 2],
    /// By what it hashes.
    pub(super) hashing: Hashing,
    /// The queue of each entry.
    pub(super) table: Vec<u32>,
    /// Rules that steer past the table.
    pub(super) rules: usize,
}

impl SteeringCard {
    pub(super) fn of(args: &CardArgs, kinds: [&'static str; 2]) -> Result<Self> {
        let Some(interface) = &args.interface else {
            let (key, key_from) = match &args.key {
                Some(key) => (key.0.clone(), "--key"),
                None => (MICROSOFT_KEY.to_vec(), "Microsoft's specification"),
            };
            let fields = [args.fields.unwrap_or(Hashed::Ports); 2];
            let queues = args.queues.unwrap_or(1);
            let table = rss::table_of(args.entries as usize, queues);
            let hashing = Hashing::new(key, key_from.to_owned(), fields)?;
            return Ok(Self::new(hashing.with_symmetry(args.xfrm), table, kinds));
        };
        link::index(interface)?;
        let found = Interface::read(interface);
        let spreading = Spreading::gather(&found, found.rx_queues().unwrap_or(1));
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
            (None, _) => key_of_card(&spreading, interface)?,
        };
        let fields = |flow| match args.fields {
            None if spreading.rss.value().is_none() => Ok(Hashed::Ports),
            Some(fields) => Ok(fields),
            None => fields_of_card(&spreading, interface, flow),
        };
        // Many cards report no IPv6 fields of their own.
        let v4 = fields(kinds[0])?;
        let v6 = fields(kinds[1]).unwrap_or(v4);
        let told = spreading.rss.value().and_then(|rss| rss.symmetry);
        let hashing = Hashing::new(key, key_from, [v4, v6])?;
        let mut card = Self::new(hashing.with_symmetry(args.xfrm.or(told)), table, kinds);
        card.rules = ntuple::table(interface).map_or(0, |table| table.locations.len());
        card.interface = Some(found);
        Ok(card)
    }

    fn new(hashing: Hashing, table: Vec<u32>, kinds: [&'static str; 2]) -> Self {
        Self {
            interface: None,
            kinds,
            hashing,
            table,
            rules: 0,
        }
    }

    /// The name of the interface, to be pasted.
    pub(super) fn name(&self) -> ShellWord<'_> {
        ShellWord::new(self.interface.as_ref().map_or("IF", |found| &found.name))
    }

    /// The entries of each queue in the table.
    pub(super) fn entries(&self) -> Vec<usize> {
        let mut entries = vec![0; self.queues() as usize];
        for queue in &self.table {
            entries[*queue as usize] += 1;
        }
        entries
    }

    /// How many queues the table names, with those before the last that it leaves out.
    pub(super) fn queues(&self) -> u32 {
        self.table.iter().max().map_or(1, |queue| queue + 1)
    }
}
