//! Settings, and the values that they can have.

use super::of_program::OfProgram;
use super::untracked::{ALTERED, PortPackets};
use mpps_os::text::ShellWord;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use mpps_os::CpuList;
use mpps_os::ethtool::coalesce::Coalescing;
use mpps_os::ethtool::{QUEUES_MAX, hash_fields};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HostError;
use crate::facts::sysctl;

/// The features that a plan switches, by the kernel's names for them.
pub(crate) const FEATURES: [&str; 3] = ["rx-lro", "rx-gro-hw", "rx-gro"];

/// The name of [`Setting::SkbDefer`] (`sysctl(8)`).
pub(crate) const SKB_DEFER_MAX: &str = "net.core.skb_defer_max";

/// The settings of a receive queue, and of a transmit queue, as files of its directory
/// (Documentation/ABI/testing/sysfs-class-net-queues).
pub(super) const OF_QUEUES: [(&str, &[&str]); 2] = [
    ("rx", &["rps_cpus", "rps_flow_cnt"]),
    ("tx", &["xps_cpus", "xps_rxqs", "tx_maxrate"]),
];

/// One thing that can be read and written. A setting of an interface belongs to the interface of
/// the [`SettingChange`](super::SettingChange).
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
    /// For how long the interrupts of its queues stay off after epoll_wait(2) has found packets: the
    /// nanoseconds of each NAPI context, in the order of their numbers.
    IrqSuspend,
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
    /// A setting of a running program.
    OfProgram(OfProgram),
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// The text of a file, or a switch.
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

    pub(crate) fn coalescing(&self) -> Option<Coalescing> {
        let Self::Numbers(words) = self else {
            return None;
        };
        Coalescing::from_words(words)
    }
}

impl Setting {
    /// Why no plan sets it, or sets it to this value.
    pub(super) fn fault_of(&self, value: &Value) -> Option<String> {
        let noun = self.noun();
        match self.is_known() {
            false => Some(format!("{noun} is no setting that mpps changes")),
            true => (!self.takes(value)).then(|| format!("{noun} has no value {value:?}")),
        }
    }

    /// Whether the names and numbers in it are those that a plan can have.
    fn is_known(&self) -> bool {
        match self {
            Self::File { name } => form_of_file(name).is_some(),
            Self::Sysctl { name } => sysctl::CHANGED.contains(&&**name),
            Self::Feature { name } => FEATURES.contains(&&**name),
            Self::HashFields { flow } => hash_flow(flow).is_some(),
            Self::Untracked { protocol, .. } => matches!(&**protocol, "udp" | "tcp"),
            Self::Coalescing { queue: Some(queue) } | Self::Rule { queue, .. } => {
                *queue < QUEUES_MAX
            }
            _ => true,
        }
    }

    /// Whether a value is of its kind.
    fn takes(&self, value: &Value) -> bool {
        let text = match value {
            Value::Text(text) => text,
            Value::Numbers(_) => {
                return match self {
                    Self::Coalescing { .. } => value.coalescing().is_some(),
                    _ => matches!(self, Self::RssTable | Self::IrqSuspend | Self::Rule { .. }),
                };
            }
            Value::Rule { .. } => return matches!(self, Self::Rule { .. }),
        };
        match self {
            Self::File { name } => form_of_file(name).is_some_and(|form| form(text)),
            Self::SkbDefer | Self::Channels | Self::RxRing | Self::Sysctl { .. } => is_number(text),
            Self::RssKey => crate::facts::rss::key(text).is_ok(),
            Self::HashFields { .. } => hash_fields::fields(text).is_some(),
            Self::OfProgram(one) => one.takes(text),
            Self::Affinity { .. } => text.is_empty() || text.parse::<CpuList>().is_ok(),
            Self::Untracked { .. } if text == ALTERED => true,
            Self::Filters | Self::Feature { .. } | Self::Untracked { .. } => {
                matches!(&**text, "on" | "off")
            }
            _ => false,
        }
    }

    /// A value without the times that a driver chooses: those are replaced by the times of `other`.
    pub(super) fn but_chosen(&self, now: &Value, other: &Value) -> Value {
        match (self, now.coalescing(), other.coalescing()) {
            (Self::Coalescing { .. }, Some(now), Some(other)) => {
                Value::Numbers(now.but_chosen(&other).words())
            }
            _ => now.clone(),
        }
    }

    /// True if it is set to this value now.
    pub(super) fn is(&self, value: &Value, now: &Value) -> bool {
        let may_be =
            matches!((self, now), (Self::OfProgram(one), Value::Text(now)) if one.may_be(now));
        may_be || self.but_chosen(now, value) == *value
    }

    /// True if it is the machine's, and stays when an interface goes.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(
            self,
            Self::Sysctl { .. } | Self::Affinity { .. } | Self::Untracked { .. } | Self::SkbDefer
        )
    }

    /// True if a driver may make all queues anew for it, and forget what was set for each.
    pub(crate) fn remakes_queues(&self) -> bool {
        matches!(self, Self::Channels | Self::RxRing)
    }

    /// The right to set it and put it back (capabilities(7)): `CAP_NET_ADMIN` or root. The files of
    /// queues and interrupts belong to root.
    pub fn needs(&self) -> &'static str {
        match self {
            Self::Coalescing { .. }
            | Self::Filters
            | Self::RssTable
            | Self::RssKey
            | Self::Rule { .. }
            | Self::IrqSuspend
            | Self::HashFields { .. }
            | Self::Feature { .. } => "CAP_NET_ADMIN",
            Self::OfProgram(one) => one.needs(),
            _ => "root",
        }
    }

    /// Its name in a sentence.
    pub(super) fn noun(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::File { name } | Self::Feature { name } | Self::Sysctl { name } => name,
            Self::Channels => "combined channels",
            Self::RxRing => "rx ring",
            Self::HashFields { flow } => return format!("rx-flow-hash {flow}").into(),
            Self::Affinity { interrupt } => return format!("CPUs of interrupt {interrupt}").into(),
            Self::Untracked { protocol, port } => {
                return format!("notrack of {protocol} port {port}").into();
            }
            Self::Coalescing { queue: None } => "its coalescing",
            Self::Coalescing { queue: Some(queue) } => {
                return format!("the coalescing of queue {queue}").into();
            }
            Self::IrqSuspend => "its irq-suspend-timeout",
            Self::Filters => "its feature ntuple-filters",
            Self::RssTable => "its RSS table",
            Self::RssKey => "its RSS key",
            Self::Rule { .. } => "its rules",
            Self::SkbDefer => "it",
            Self::OfProgram(one) => return one.noun(),
        })
    }

    /// The plain command that sets it to this value on an interface, as root.
    pub fn command(&self, interface: &str, value: &Value) -> String {
        let interface = ShellWord::new(interface);
        match (self, value) {
            (Self::File { name }, Value::Text(text)) => {
                format!("echo {text} > /sys/class/net/{interface}/{name}")
            }
            (Self::Channels, Value::Text(text)) => {
                format!("ethtool -L {interface} combined {text}")
            }
            (Self::RxRing, Value::Text(text)) => format!("ethtool -G {interface} rx {text}"),
            (Self::HashFields { flow }, Value::Text(text)) => {
                format!("ethtool -N {interface} rx-flow-hash {flow} {text}")
            }
            (Self::Feature { name }, Value::Text(text)) => {
                format!("ethtool -K {interface} {name} {text}")
            }
            (Self::Filters, Value::Text(text)) => format!("ethtool -K {interface} ntuple {text}"),
            (Self::Affinity { interrupt }, Value::Text(text)) => {
                format!("echo {text} > /proc/irq/{interrupt}/smp_affinity_list")
            }
            (Self::Untracked { protocol, port }, Value::Text(text)) => {
                let port = *port;
                PortPackets { protocol, port }.command(text == "on")
            }
            (Self::Sysctl { name }, Value::Text(text)) => {
                format!("sysctl -w {name}={}", ShellWord::new(text))
            }
            (Self::OfProgram(one), Value::Text(text)) => one.command(text),
            (Self::SkbDefer, Value::Text(text)) => format!("sysctl -w {SKB_DEFER_MAX}={text}"),
            (Self::RssKey, Value::Text(key)) => format!("ethtool -X {interface} hkey {key}"),
            (Self::RssTable, Value::Numbers(table)) => {
                let queues = table.iter().max().map_or(1, |most| most.saturating_add(1));
                format!("ethtool -X {interface} equal {queues}")
            }
            (Self::Coalescing { queue }, value) => match value.coalescing() {
                Some(told) => {
                    let of = match queue {
                        None => format!("-C {interface}"),
                        Some(queue) => {
                            format!("-Q {interface} queue_mask {} --coalesce", mask(*queue))
                        }
                    };
                    let adaptive = ["off", "on"][usize::from(told.is_adaptive_rx())];
                    let time_us = told.rx_time_us();
                    format!("ethtool {of} adaptive-rx {adaptive} rx-usecs {time_us}")
                }
                None => String::new(),
            },
            (Self::IrqSuspend, Value::Numbers(times)) => {
                let time = times.iter().max().copied().unwrap_or(0);
                format!(
                    "ynl --family netdev --do napi-set --json '{{\"id\": ID, \"irq-suspend-timeout\": {time}}}'"
                )
            }
            (Self::Rule { destination, queue }, _) => {
                let (ip, port) = (destination.ip(), destination.port());
                let flow = if destination.is_ipv4() {
                    "udp4"
                } else {
                    "udp6"
                };
                format!(
                    "ethtool -N {interface} flow-type {flow} dst-ip {ip} dst-port {port} action {queue}"
                )
            }
            _ => String::new(),
        }
    }

    /// The value that another program set, in words.
    pub(super) fn told(&self, now: &Value) -> String {
        match (self, now, now.coalescing()) {
            (Self::Coalescing { queue }, _, Some(now)) => {
                let of = queue.map_or(String::new(), |queue| format!("queue {queue}: "));
                let (time_us, packets) = (now.rx_time_us(), now.rx_packets());
                format!("{of}{time_us} µs, {packets} packets")
            }
            (Self::IrqSuspend, Value::Numbers(times), _) => format!("it is {times:?} ns"),
            (_, Value::Numbers(queues), _) => {
                let queues: BTreeSet<&u32> = queues.iter().collect();
                format!("it now uses the queues {queues:?}")
            }
            (_, Value::Text(now), _) => format!("it is {now}"),
            (_, now, _) => format!("it is {now:?}"),
        }
    }

    /// Why what a driver made of a value is none of what was wanted, and what helps.
    pub(super) fn fault(&self, wanted: &Value, became: &Value) -> Option<(String, &str)> {
        match self {
            Self::RssTable if became != wanted => Some((
                "its driver accepted an RSS table and has another".to_owned(),
                "`ethtool -x` shows it",
            )),
            Self::Coalescing { .. } => {
                let time_us = |value: &Value| value.coalescing().map_or(0, |now| now.rx_time_us());
                (time_us(became) == 0 && time_us(wanted) > 0).then_some((
                    "its driver took the time and does not keep it".to_owned(),
                    "the kernel can wait instead of the card",
                ))
            }
            _ if matches!(wanted, Value::Text(_)) && !self.is(wanted, became) => {
                let (noun, told) = (self.noun(), self.told(became));
                let why = format!("{noun} was set and has another value: {told}");
                Some((why, "leave it as it is"))
            }
            _ => None,
        }
    }

    /// Returns a plain sentence if the driver lacks the setting, and the refusal itself otherwise.
    pub(crate) fn refused(&self, error: mpps_os::CallError, interface: &str) -> HostError {
        if *self == Self::Channels && error.source.kind() == std::io::ErrorKind::ResourceBusy {
            return HostError::impossible(
                interface,
                format!("its driver is busy ({error})"),
                "an XDP program or AF_XDP socket may hold its queues, and on ice RDMA (`rmmod irdma`)",
            );
        }
        let unsupported = error.source.kind() == std::io::ErrorKind::Unsupported
            || error.said.contains("unsupported parameter");
        if !matches!(self, Self::Coalescing { .. }) || !unsupported {
            return error.into();
        }
        HostError::impossible(
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
            (Self::RssKey, ..) => write!(f, "another RSS key"),
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
            (Self::IrqSuspend, Value::Numbers(old), Value::Numbers(new)) => {
                let most = |times: &[u32]| times.iter().max().copied().unwrap_or(0) / 1000;
                let (old, new) = (most(old), most(new));
                write!(f, "irq-suspend-timeout {old} -> {new} µs")
            }
            (Self::Coalescing { queue }, old, new) => {
                let time = |value: &Value| {
                    value.coalescing().map_or("?".to_owned(), |told| {
                        let adaptive = [" adaptive", ""][usize::from(!told.is_adaptive_rx())];
                        format!("{}{adaptive}", told.rx_time_us())
                    })
                };
                if let Some(queue) = queue {
                    write!(f, "queue {queue} ")?;
                }
                write!(f, "rx-usecs {} -> {}", time(old), time(new))
            }
            (_, Value::Text(old), Value::Text(new)) => {
                let name = match self {
                    Self::SkbDefer => SKB_DEFER_MAX.into(),
                    other => other.noun(),
                };
                write!(f, "{name} {old} -> {new}")
            }
            _ => write!(f, "{} from {old:?} to {new:?}", self.noun()),
        }
    }
}

/// How a text in a file of an interface must look, if mpps changes that file.
fn form_of_file(name: &str) -> Option<fn(&str) -> bool> {
    match name {
        "gro_flush_timeout" | "napi_defer_hard_irqs" | "threaded" => return Some(is_number),
        _ => {}
    }
    let (directory, file) = name.strip_prefix("queues/")?.split_once('/')?;
    let (direction, queue) = directory.split_once('-')?;
    let number: u32 = queue.parse().ok()?;
    let (_, files) = OF_QUEUES.iter().find(|(known, _)| *known == direction)?;
    let is_known = number < QUEUES_MAX && number.to_string() == queue && files.contains(&file);
    let form = match file {
        "rps_flow_cnt" | "tx_maxrate" => is_number,
        _ => is_mask,
    };
    is_known.then_some(form as fn(&str) -> bool)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=20).contains(&digits.len()) && digits.bytes().all(|letter| letter.is_ascii_digit())
}

/// A set of CPUs or queues as the kernel writes it, hexadecimal, a comma every eight digits.
fn is_mask(text: &str) -> bool {
    let is_digit = |letter: u8| letter == b',' || letter.is_ascii_hexdigit();
    !text.is_empty() && text.bytes().all(is_digit)
}

/// The kind of traffic that `ethtool -N` gives this name.
pub(super) fn hash_flow(name: &str) -> Option<hash_fields::HashFlow> {
    let mut flows = hash_fields::FLOWS.into_iter();
    flows.find(|flow| flow.name == name)
}

/// How the card waits, to be changed: one setting for all queues, or one per queue if they differ.
/// One value for all would end another program's setting of one queue. Undo would not know of it.
/// `sends` returns true if there is a transmit queue of this number.
pub(crate) fn coalescings<E>(
    read: impl Fn(&Setting) -> Result<Option<Coalescing>, E>,
    sends: impl Fn(u32) -> bool,
) -> Result<Vec<(Setting, Coalescing)>, E> {
    let mut queues = Vec::new();
    for queue in 0..QUEUES_MAX {
        let setting = Setting::Coalescing { queue: Some(queue) };
        match read(&setting)? {
            Some(told) => queues.push((setting, told)),
            None => break,
        }
    }
    let setting = Setting::Coalescing { queue: None };
    let all = read(&setting)?;
    let differs = |all: &Coalescing| {
        let mut queues = (0..).zip(&queues);
        queues.any(|(queue, (_, told))| !told.is_of_all(all, sends(queue)))
    };
    Ok(match all {
        Some(all) if differs(&all) => queues,
        all => all.into_iter().map(|all| (setting.clone(), all)).collect(),
    })
}

/// The bit of a queue, as `ethtool -Q` wants it.
fn mask(queue: u32) -> String {
    format!("0x{:x}{}", 1 << (queue % 4), "0".repeat(queue as usize / 4))
}
