//! Settings, and the table of what is known of each kind.
//!
//! To add a setting, add a variant of [`Setting`] and its row. A setting at a new kind of place also
//! needs a variant of [`Place`]: its key in the journal's name, its rule in [`Place::is_known`] and how
//! [`SettingHost::present`] finds it again.

mod card;
mod coalescing;
mod files;
mod group_program;
mod of_queue;
pub(crate) mod program;
mod row;
mod untracked;

use std::fmt;
use std::net::SocketAddr;

use mpps_os::CallResult;
use mpps_os::ethtool::ntuple;
use mpps_os::text::ShellWord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::Place;
use super::value::Value;
use crate::facts::sysctl::CHANGED;

pub(crate) use card::FEATURES;
pub(crate) use coalescing::{coalescings, coalescings_of};
pub(crate) use files::{FILES, interface_file};
pub(crate) use of_queue::OfQueue;
use program::{ProgramSocket, SocketSize};
pub use row::Risk;
pub(crate) use row::{Attempt, is_unknown, known, unfit};
pub(crate) use untracked::ALTERED;

use row::SettingRow;
/// The name of a thing that can be read and written. A setting of an interface belongs to the interface
/// of the [`SettingChange`](super::SettingChange).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setting {
    /// A file of the interface in `/sys/class/net` (Documentation/ABI/testing/sysfs-class-net).
    File {
        /// Its name.
        name: String,
    },
    /// How long the card waits before it interrupts: all words, in the order of the kernel's
    /// structure.
    Coalescing {
        /// The queue, where the driver keeps queues apart; none is all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<u32>,
    },
    /// A number of the NAPI context of a receive queue.
    Napi {
        /// The kernel's name for it: `irq-suspend-timeout`.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// Whether rules steer packets to queues: `on` or `off`.
    Filters,
    /// The queue of each entry of the RSS table.
    RssTable,
    /// The key of the card's hash, as ethtool writes it: `6d:5a:...`.
    RssKey,
    /// A rule (ntuple) that steers a flow of UDP datagrams to a queue.
    Rule {
        /// Where the datagrams are sent to.
        destination: SocketAddr,
        /// The queue.
        queue: u32,
    },
    /// `net.core.skb_defer_max` of the machine, in packets.
    SkbDefer,
    /// How many combined channels the card has.
    Channels,
    /// How many descriptors each receive ring of the card has.
    RxRing,
    /// Which fields of this kind of traffic the card hashes, as the letters of `ethtool -N`.
    HashFields {
        /// The kind: `udp4`.
        flow: String,
    },
    /// A feature, by the kernel's name for it: `on` or `off`.
    Feature {
        /// Its name: `rx-gro`.
        name: String,
    },
    /// The CPUs that may take an interrupt of the machine.
    Affinity {
        /// Its number.
        interrupt: u32,
    },
    /// Whether the packets of a port are left out of connection tracking: `on` or `off`, or `altered` if
    /// another program has changed the table of nftables.
    Untracked {
        /// `udp` or `tcp`.
        protocol: String,
        /// The port.
        port: u16,
    },
    /// A setting of `sysctl(8)`.
    Sysctl {
        /// Its name: `net.core.netdev_max_backlog`.
        name: String,
    },
    /// How much may wait at a socket of a program.
    SocketSize {
        /// The kind of size.
        size: SocketSize,
        /// The socket.
        socket: ProgramSocket,
    },
    /// How datagrams are spread over a group of sockets (`SO_REUSEPORT`): `by hash` as the kernel does, `by
    /// another hash`, `by CPU` or `at random`.
    Spreading {
        /// One of the group.
        socket: ProgramSocket,
        /// How many the group has.
        sockets: u32,
    },
    /// The CPUs that a thread of a program may run on.
    ThreadCpus {
        /// Its number.
        thread: u32,
        /// When it started, in clock ticks after the machine: another may get its number.
        start_time_ticks: u64,
    },
    /// The nice value of a thread of a program.
    ThreadNice {
        /// Its number.
        thread: u32,
        /// When it started, as of [`Setting::ThreadCpus`].
        start_time_ticks: u64,
    },
    /// Whether a signal has stopped the program: `stopped` or `running`.
    Stopped,
}

impl Setting {
    /// The table of all kinds: a row each.
    pub(super) fn row(&self) -> SettingRow<'_> {
        match self {
            Self::File { name } => files::of_interface(name),
            Self::Sysctl { name } => files::sysctl(name, CHANGED.contains(&&**name)),
            Self::SkbDefer => files::skb_defer(),
            Self::Affinity { interrupt } => files::affinity(*interrupt),
            Self::Coalescing { queue } => coalescing::row(*queue),
            Self::Napi { name, queue } => card::napi(name, *queue),
            Self::Channels => card::channels(),
            Self::RxRing => card::rx_ring(),
            Self::Feature { name } => card::feature(name),
            Self::Filters => card::filters(),
            Self::HashFields { flow } => card::hash_fields(flow),
            Self::RssTable => card::rss_table(),
            Self::RssKey => card::rss_key(),
            Self::Rule { destination, queue } => card::rule(*destination, *queue),
            Self::Untracked { protocol, port } => untracked::row(protocol, *port),
            Self::SocketSize { size, socket } => program::size(*size, socket),
            Self::Spreading { socket, sockets } => program::spreading(socket, *sockets),
            Self::ThreadCpus {
                thread,
                start_time_ticks,
            } => program::thread_cpus(*thread, *start_time_ticks),
            Self::ThreadNice {
                thread,
                start_time_ticks,
            } => program::thread_nice(*thread, *start_time_ticks),
            Self::Stopped => program::stopped(),
        }
    }

    /// A file of the interface.
    pub(crate) fn file(name: impl Into<String>) -> Self {
        Self::File { name: name.into() }
    }

    /// A setting of `sysctl(8)`.
    pub(crate) fn sysctl(name: impl Into<String>) -> Self {
        Self::Sysctl { name: name.into() }
    }

    /// A feature, by the kernel's name for it.
    pub(crate) fn feature(name: impl Into<String>) -> Self {
        Self::Feature { name: name.into() }
    }

    /// The hashed fields of both kinds of UDP.
    pub(crate) fn fields_of_udp() -> [Self; 2] {
        ["udp4", "udp6"].map(|flow| Self::HashFields { flow: flow.into() })
    }

    /// Why no plan sets it, or sets it to this value.
    pub(super) fn fault_of(&self, value: &Value) -> Option<String> {
        let SettingRow { noun, form, .. } = self.row();
        match form {
            None => Some(format!("{noun} is no setting that mpps changes")),
            Some(form) => (!form.takes(value)).then(|| format!("{noun} has no value {value:?}")),
        }
    }

    /// Gives a text from a journal of an earlier form its type.
    pub(super) fn type_text(&self, value: &mut Value) {
        if let (Value::Word(text), Some(form)) = (&*value, self.row().form) {
            *value = form.parse(text).unwrap_or_else(|| value.clone());
        }
    }

    /// True if it is set to this value now.
    pub(super) fn is(&self, value: &Value, now: &Value) -> bool {
        (self.row().settled)(now, value) == *value
    }

    /// The right to set it and put it back (capabilities(7)): `CAP_NET_ADMIN` or root.
    pub fn needs(&self) -> &'static str {
        self.row().needs
    }

    /// The risks of setting it.
    pub fn risks(&self) -> &'static [Risk] {
        self.row().risks
    }

    /// The plain command that sets it to this value on an interface, as root.
    pub fn command(&self, interface: &str, value: &Value) -> String {
        self.row()
            .command(&ShellWord::new(interface).to_string(), value)
    }
}

/// A host whose settings are changed. Every method fails as the call of `mpps-os` does that it
/// stands for.
pub(crate) trait SettingHost: fmt::Debug {
    /// The network namespace of the other methods, by its inode number (`ns.inum`).
    fn namespace(&self) -> CallResult<u32>;
    /// The number of that namespace that no other of this boot has; none before Linux 5.14.
    fn namespace_cookie(&self) -> Option<u64> {
        None
    }
    /// The number of an interface.
    fn index(&self, interface: &str) -> CallResult<u32>;
    /// The present name of an interface; none where it is gone.
    fn name(&self, index: u32) -> CallResult<Option<String>>;
    /// An interface as a place.
    fn interface(&self, name: &str) -> CallResult<Place> {
        let (index, name) = (self.index(name)?, name.to_owned());
        Ok(Place::Interface { name, index })
    }
    /// A place by its present name; none where it is gone.
    fn present(&self, place: &Place) -> CallResult<Option<Place>> {
        let Place::Interface { index, .. } = *place else {
            return Ok(Some(place.clone()));
        };
        let name = self.name(index)?;
        Ok(name.map(|name| Place::Interface { name, index }))
    }
    /// Another network namespace with an interface of this name.
    fn elsewhere(&self, _interface: &str) -> Option<u32> {
        None
    }
    /// How many receive queues rules and the RSS table may name.
    fn rings(&self, interface: &str) -> CallResult<u32>;
    /// How many queues of an interface the kernel polls; none if it does not show them.
    fn polled_queues(&self, place: &Place) -> Option<usize>;
    /// The value of a setting other than a rule; none if there is no such setting.
    fn read(&self, setting: &Setting, place: &Place) -> CallResult<Option<Value>>;
    /// Sets it. An RSS table without entries lets the kernel choose.
    fn write(&self, setting: &Setting, place: &Place, value: &Value) -> CallResult<()>;
    /// The settings of each of its queues, and those that spread packets by their hash.
    fn of_queues(&self, place: &Place) -> CallResult<Vec<OfQueue>>;
    /// The places of the rules.
    fn rules(&self, interface: &str) -> CallResult<ntuple::NtupleTable>;
    /// The rule at a place.
    fn rule(&self, interface: &str, location: u32) -> CallResult<ntuple::Shown>;
    /// Adds a rule and returns its place.
    fn insert(
        &self,
        interface: &str,
        rule: &ntuple::NtupleRule,
        location: Option<u32>,
    ) -> CallResult<u32>;
    /// Takes a rule away.
    fn remove(&self, interface: &str, location: u32) -> CallResult<()>;
    /// Lets every list of packet buffers to be freed get a packet and lose it again, so that its
    /// count begins anew unless it is full.
    fn wake(&self) -> CallResult<()>;
}
