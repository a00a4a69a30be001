//! Counts every packet that the kernel drops, by network namespace and reason, inside the kernel.
//!
//! A BPF program is attached to the tracepoint `skb:kfree_skb`, where every dropped packet passes.
//! It counts in a map and sends nothing to user space per packet. It is the second witness of the
//! ledger. It knows reasons without a counter, such as a firewall rule or a full veth ring. It
//! counts datagrams where counters count trains.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::{Mutex, PoisonError};

use mpps_os::bpf::btf::Btf;
use mpps_os::bpf::{BpfLink, PerCpuMap, PerCpuMapKind, Program, ProgramKind};
use mpps_os::capability::{CAP_BPF, CAP_PERFMON, CAP_SYSLOG, Rights};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DropReasons;
use fields::Fields;
use program::Details;

mod fields;
mod program;
mod symbols;

/// A socket's reasons for dropping a packet that does not fit (`include/net/dropreason-core.h`).
pub(crate) const SOCKET_REASONS: [&str; 2] = ["SOCKET_RCVBUFF", "PROTO_MEM"];

/// Drops counted by reason at `skb:kfree_skb`, for packets of the run, in the receiver's namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasonCount {
    /// The kernel's name of the reason: `SOCKET_RCVBUFF`.
    pub reason: String,
    /// Buffers dropped; a train is one.
    pub buffers: u64,
    /// Datagrams dropped; those of a train count each.
    pub datagrams: u64,
    /// As [`DropCount::place`].
    #[serde(skip)]
    pub(crate) place: String,
    /// As [`DropCount::marks`].
    #[serde(skip)]
    pub(crate) marks: u32,
}

/// The packet is IPv4 and its header has options.
pub(crate) const MARK_OPTIONS: u32 = 1;
/// It is IPv4 and was sent to a multicast group.
pub(crate) const MARK_GROUP: u32 = 2;
/// It is IGMP.
pub(crate) const MARK_IGMP: u32 = 4;
/// It is UDP over IPv6 with a checksum of zero.
pub(crate) const MARK_ZERO_CHECKSUM: u32 = 8;
/// Its Ethernet destination is the interface's own address, or that of a group.
pub(crate) const MARK_OWN_ADDRESS: u32 = 16;

/// A socket sent it, and a device already had it.
pub(crate) const MARK_EGRESS: u32 = 64;

/// It is an error message of ICMP, of IPv4 without options or IPv6.
pub(crate) const MARK_ICMP_ERROR: u32 = 32;

/// Counts drops on the whole machine for as long as it lives. The kernel takes it away with the
/// process, however that ends.
#[derive(Debug)]
pub struct DropProbe {
    counts: PerCpuMap<program::DropKey, program::DropTotal>,
    lost: PerCpuMap<[u32; 1], [u64; 1]>,
    reasons: DropReasons,
    /// The functions of places that were asked for.
    functions: Mutex<BTreeMap<u64, String>>,
    program: Program,
    _link: BpfLink,
}

/// The counts by the probe's own keys.
pub(crate) type DropSums = BTreeMap<program::DropKey, program::DropTotal>;

/// Which packets are ours: UDP datagrams to these ports, and what sockets of the namespace that dropped them sent
/// from these. All others are counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropFilter {
    /// The network namespace whose drops are counted by place and marks too; none for no namespace.
    pub details_of: Option<u32>,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

/// Packets of one kind that were dropped since the probe was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The inode number of the network namespace that dropped them (`ns.inum`), or
    /// [`UNKNOWN_NAMESPACE`].
    pub netns: u32,
    /// The reason as this kernel numbers it.
    pub reason: u32,
    /// The reason as this kernel names it, without its prefix: `SOCKET_RCVBUFF`.
    pub reason_name: String,
    /// Whether they were datagrams that the filter asked for. A fragment without a UDP header, or
    /// a packet too short to have one, is not.
    pub ours: bool,
    /// True if a socket of this namespace sent the packets, so they were on their way out.
    /// Forwarded packets do not count as sent.
    pub sent: bool,
    /// The kernel function that dropped them, if the reason is NOT_SPECIFIED; otherwise empty, as for other
    /// namespaces than that of [`DropFilter::details_of`].
    pub place: String,
    /// Marks that the packets have in common, as far as they decide between causes of their reason: a sum of
    /// `MARK_OPTIONS` and its like.
    pub marks: u32,
    /// Packets as the kernel handles them: a train of merged or unsplit datagrams is one.
    pub skbs: u64,
    /// Datagrams: each one of a train counts.
    pub datagrams: u64,
}

/// The namespace of packets that no longer know theirs: those that were still queued in a UDP
/// socket when it was closed, and those that failed their checksum only when they were read.
pub const UNKNOWN_NAMESPACE: u32 = 0;

/// The reasons of drops from a closed socket's queue: UDP names none (`udp_destruct_common`).
const CLOSED_REASONS: [&str; 3] = ["NOT_SPECIFIED", "QUEUE_PURGE", "SOCKET_CLOSE"];

/// The reason that says nothing: the function that drops decides.
const PLACED: &str = "NOT_SPECIFIED";
/// Reasons whose packets decide between causes, and the one whose Ethernet addresses do.
const MARKED: [&str; 3] = [PLACED, "NETFILTER_DROP", "UDP_CSUM"];
const ADDRESSED: &str = "OTHERHOST";
/// The reason of a tun's full queue.
const ORPHANED: &str = "FULL_RING";

/// Why there is no probe.
#[derive(Debug, thiserror::Error)]
pub enum DropProbeError {
    /// The kernel does not let this user watch it.
    #[error("not permitted to watch the kernel's drops ({0})")]
    NotPermitted(#[source] mpps_os::CallError),
    /// The kernel does not describe its types, or not those that the probe needs.
    #[error("the kernel's type information does not serve ({0})")]
    Types(#[source] mpps_os::CallError),
    /// The kernel hides where its functions are, so trains could not be counted right.
    #[error("{} does not say where {RELEASE} is", symbols::KALLSYMS)]
    Symbols,
    /// The kernel gives no reasons for its drops.
    #[error("the kernel's tracepoint skb:kfree_skb gives no drop reason")]
    NoReasons,
    /// Any other refusal.
    #[error("{0}")]
    Kernel(#[source] mpps_os::CallError),
}

/// Room for this many kinds of drops (namespace, reason, ours or not, sent or not, and in one namespace
/// place and marks); more are counted as lost.
const KINDS_MAX: u32 = 2048;
/// "Operation not permitted", errno(3); the same number on all machines.
const EPERM: i32 = 1;
/// The function of the kernel that frees the members of a train with their head.
const RELEASE: &str = "skb_release_data";

impl DropCount {
    /// The watched packets that one namespace dropped between two readings, by reason. Packets that
    /// its own sockets sent are left out. A packet dropped from a socket's queue no longer knows
    /// its namespace. It counts for this one, because no other namespace has sockets with the
    /// watched ports.
    pub fn since(now: &[Self], then: &[Self], netns: u32) -> Vec<ReasonCount> {
        let is_here = |count: &&Self| {
            let is_socket = SOCKET_REASONS.contains(&count.reason_name.as_str());
            count.netns == netns || count.netns == UNKNOWN_NAMESPACE && is_socket
        };
        Self::grown(now, then, |count| {
            count.ours && !count.sent && is_here(count)
        })
    }

    /// The same of all other packets, as far as they know their namespace.
    pub(crate) fn others_since(now: &[Self], then: &[Self], netns: u32) -> Vec<ReasonCount> {
        Self::grown(now, then, |count| {
            !count.ours && !count.sent && count.netns == netns
        })
    }

    /// The watched packets that its own sockets sent and that it dropped.
    pub(crate) fn sent_since(now: &[Self], then: &[Self], netns: u32) -> Vec<ReasonCount> {
        Self::grown(now, then, |count| {
            count.ours && count.sent && count.netns == netns
        })
    }

    /// The watched packets that any namespace's UDP sockets took along when they were closed: in their
    /// queues packets no longer know a namespace. Other sockets' copies do.
    pub(crate) fn closed_since(now: &[Self], then: &[Self]) -> Vec<ReasonCount> {
        Self::grown(now, then, |count| {
            let is_closed = CLOSED_REASONS.contains(&count.reason_name.as_str());
            count.ours && count.netns == UNKNOWN_NAMESPACE && is_closed
        })
    }

    /// All drops in other namespaces, as far as they are known.
    pub(crate) fn elsewhere_since(now: &[Self], then: &[Self], netns: u32) -> Vec<ReasonCount> {
        Self::all_since(now, then, |of| ![netns, UNKNOWN_NAMESPACE].contains(&of))
    }

    /// All drops in namespaces that are not known.
    pub(crate) fn unknown_since(now: &[Self], then: &[Self]) -> Vec<ReasonCount> {
        Self::all_since(now, then, |of| of == UNKNOWN_NAMESPACE)
    }

    fn all_since(now: &[Self], then: &[Self], is_asked: impl Fn(u32) -> bool) -> Vec<ReasonCount> {
        let parts = [true, false].map(|ours| {
            [true, false].map(|sent| {
                Self::grown(now, then, |count| {
                    is_asked(count.netns) && (count.ours, count.sent) == (ours, sent)
                })
            })
        });
        parts.into_iter().flatten().flatten().collect()
    }

    fn kind(&self) -> (u32, u32, &str, u32) {
        (self.netns, self.reason, &self.place, self.marks)
    }

    fn grown(now: &[Self], then: &[Self], asked: impl Fn(&&Self) -> bool) -> Vec<ReasonCount> {
        now.iter()
            .filter(&asked)
            .map(|now| {
                let then = then.iter().filter(&asked);
                let then = then
                    .filter(|then| then.kind() == now.kind())
                    .map(|then| (then.skbs, then.datagrams))
                    .next()
                    .unwrap_or_default();
                ReasonCount {
                    reason: now.reason_name.clone(),
                    buffers: now.skbs.saturating_sub(then.0),
                    datagrams: now.datagrams.saturating_sub(then.1),
                    place: now.place.clone(),
                    marks: now.marks,
                }
            })
            .filter(|count| count.buffers > 0)
            .collect()
    }
}

impl DropProbe {
    /// Starts to count.
    ///
    /// # Errors
    ///
    /// See [`DropProbeError`]; [`DropProbeError::remedy`] says what helps.
    pub fn attach(filter: &DropFilter) -> Result<Self, DropProbeError> {
        let btf = Btf::kernel().map_err(DropProbeError::Types)?;
        let fields = Fields::read(&btf)?;
        let reasons = DropReasons::read(&btf).map_err(|_| DropProbeError::NoReasons)?;
        // The type information is several megabytes, and is not needed again.
        drop(btf);

        let counts = PerCpuMap::create(PerCpuMapKind::Hash, "mpps_drops", KINDS_MAX)
            .map_err(DropProbeError::from_kernel)?;
        let lost = PerCpuMap::create(PerCpuMapKind::Array, "mpps_lost", 1)
            .map_err(DropProbeError::from_kernel)?;
        let release = release_code()?;
        let maps = program::Maps::new(&counts, &lost);
        let details = filter.details_of.map(|namespace| Details {
            namespace,
            placed: reasons.number(PLACED).unwrap_or_default(),
            marked: MARKED
                .iter()
                .filter_map(|name| reasons.number(name))
                .collect(),
            addressed: reasons.number(ADDRESSED),
            orphaned: reasons.number(ORPHANED),
        });
        let instructions = program::assemble(&fields, &release, filter, details.as_ref(), &maps)
            .map_err(|mistake| DropProbeError::Kernel(mistake.into()))?;
        let program = Program::load(ProgramKind::RawTracepoint, "mpps_drops", &instructions)
            .map_err(DropProbeError::from_kernel)?;
        let link =
            BpfLink::raw_tracepoint(&program, c"kfree_skb").map_err(DropProbeError::from_kernel)?;
        Ok(Self {
            counts,
            lost,
            reasons,
            functions: Mutex::default(),
            program,
            _link: link,
        })
    }

    /// Everything counted since the probe was attached, by namespace and reason. The counts only
    /// grow: who wants those of a period subtracts.
    ///
    /// # Errors
    ///
    /// The kernel's refusal to read its maps.
    pub fn counts(&self) -> Result<Vec<DropCount>, DropProbeError> {
        Ok(self.named(self.sums()?))
    }

    /// The same without names, which take long to find: counters that are read next are of the same time.
    pub(crate) fn sums(&self) -> Result<DropSums, DropProbeError> {
        let mut sums = BTreeMap::new();
        for key in self.counts.keys().map_err(DropProbeError::Kernel)? {
            let values = self.counts.values(&key).map_err(DropProbeError::Kernel)?;
            sums.insert(key, values.into_iter().fold([0, 0], add));
        }
        Ok(sums)
    }

    /// With the names.
    pub(crate) fn named(&self, sums: DropSums) -> Vec<DropCount> {
        let functions = self.functions(sums.keys().map(place));
        let counts = sums.into_iter().map(|(key, [skbs, datagrams])| {
            let [netns, reason, class, sent, _, _, marks, _] = key;
            DropCount {
                netns,
                reason,
                reason_name: self.reasons.name(reason),
                ours: class == program::OURS,
                sent: sent != 0,
                place: functions.get(&place(&key)).cloned().unwrap_or_default(),
                marks,
                skbs,
                datagrams,
            }
        });
        counts.collect()
    }

    /// The functions of these places and of those before. The kernel's table is read only for new ones.
    fn functions(&self, places: impl Iterator<Item = u64>) -> BTreeMap<u64, String> {
        let mut known = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new: Vec<u64> = places
            .filter(|at| *at != 0 && !known.contains_key(at))
            .collect();
        if !new.is_empty() {
            // Without the table the places stay without names.
            let table = std::fs::read_to_string(symbols::KALLSYMS).unwrap_or_default();
            known.extend(symbols::functions_at(&new, &table));
        }
        known.clone()
    }

    /// How many drops may be missing from the counts: the map had no room, or
    /// the kernel left the probe out because it was already running on that CPU. Zero means that
    /// the counts are exact.
    ///
    /// # Errors
    ///
    /// The kernel's refusal to read its maps.
    pub fn overflowed(&self) -> Result<u64, DropProbeError> {
        let lost = self.lost.values(&[0]).map_err(DropProbeError::Kernel)?;
        let left_out = self.program.recursion_misses();
        Ok(lost.iter().map(|[count]| count).sum::<u64>()
            + left_out.map_err(DropProbeError::Kernel)?)
    }
}

impl DropProbeError {
    /// The remedy for the user, in one sentence.
    pub fn remedy(&self) -> String {
        let text = match self {
            Self::NotPermitted(_) => {
                return Rights::own().remedy(&[CAP_BPF, CAP_PERFMON, CAP_SYSLOG]);
            }
            Self::Types(_) => {
                "use a kernel built with CONFIG_DEBUG_INFO_BTF, and with /sys mounted"
            }
            Self::Symbols => "run as root with sysctl kernel.kptr_restrict at 1 or 0",
            Self::NoReasons => "use Linux 5.17 or newer",
            Self::Kernel(refusal) => match Rights::own().limit_remedy(refusal) {
                Some(limit) => return limit,
                None => "use Linux 5.17 or newer with CONFIG_BPF_SYSCALL and tracepoints",
            },
        };
        text.to_owned()
    }

    fn from_kernel(refusal: mpps_os::CallError) -> Self {
        // The verifier refuses a program with EACCES, which is not about permission.
        match refusal.errno() {
            Some(EPERM) => Self::NotPermitted(refusal),
            _ => Self::Kernel(refusal),
        }
    }
}

/// The place in the code of a key.
fn place(key: &program::DropKey) -> u64 {
    let [.., high, low, _, _] = key.map(u32::to_ne_bytes);
    u64::from_ne_bytes([high, low].concat().try_into().unwrap_or_default())
}

fn release_code() -> Result<Vec<Range<u64>>, DropProbeError> {
    let table = std::fs::read_to_string(symbols::KALLSYMS).map_err(|refusal| {
        let refusal = mpps_os::CallError::new("read", symbols::KALLSYMS, refusal);
        DropProbeError::from_kernel(refusal)
    })?;
    match symbols::code_of(RELEASE, &table) {
        code if code.is_empty() => Err(DropProbeError::Symbols),
        code => Ok(code),
    }
}

fn add(a: program::DropTotal, b: program::DropTotal) -> program::DropTotal {
    [a[0] + b[0], a[1] + b[1]]
}

#[cfg(test)]
mod tests;
