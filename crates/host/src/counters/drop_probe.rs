//! Counts every packet that the kernel drops, by network namespace and reason, inside the kernel.
//!
//! A BPF program is attached to the tracepoint `skb:kfree_skb`, where every dropped packet passes.
//! It counts in a map and sends nothing to user space per packet. It is the second witness of the
//! ledger. It knows reasons without a counter, such as a firewall rule or a full veth ring. It
//! counts datagrams where counters count trains.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use mpps_os::bpf::btf::Btf;
use mpps_os::bpf::{BpfLink, PerCpuMap, PerCpuMapKind, Program, ProgramKind};
use mpps_os::capability::{CAP_BPF, CAP_PERFMON, CAP_SYSLOG, Rights};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DropReasons;
use fields::Fields;

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
}

/// Counts drops on the whole machine for as long as it lives. The kernel takes it away with the
/// process, however that ends.
#[derive(Debug)]
pub struct DropProbe {
    counts: PerCpuMap<program::DropKey, program::DropTotal>,
    lost: PerCpuMap<[u32; 1], [u64; 1]>,
    reasons: DropReasons,
    program: Program,
    _link: BpfLink,
}

/// Which packets are ours: UDP datagrams to these ports. All others are counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropFilter {
    /// Destination ports.
    pub ports: RangeInclusive<u16>,
}

/// Packets of one kind that were dropped since the probe was attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Room for this many kinds of drops (namespace, reason, ours or not, sent or not); more are counted as lost.
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

    /// The drops for this reason in other namespaces, in packets; a train is one.
    pub(crate) fn elsewhere_since(now: &[Self], then: &[Self], netns: u32, reason: &str) -> u64 {
        let is_elsewhere = |count: &&Self| {
            let is_known = ![netns, UNKNOWN_NAMESPACE].contains(&count.netns);
            is_known && count.reason_name == reason
        };
        let sum = |counts: &[Self]| -> u64 {
            let counts = counts.iter().filter(is_elsewhere);
            counts.map(|count| count.skbs).sum()
        };
        sum(now).saturating_sub(sum(then))
    }

    fn grown(now: &[Self], then: &[Self], asked: impl Fn(&&Self) -> bool) -> Vec<ReasonCount> {
        now.iter()
            .filter(&asked)
            .map(|now| {
                let then = then.iter().filter(&asked);
                let then = then
                    .filter(|then| (then.reason, then.netns) == (now.reason, now.netns))
                    .map(|then| (then.skbs, then.datagrams))
                    .next()
                    .unwrap_or_default();
                ReasonCount {
                    reason: now.reason_name.clone(),
                    buffers: now.skbs.saturating_sub(then.0),
                    datagrams: now.datagrams.saturating_sub(then.1),
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
        let instructions = program::assemble(&fields, &release, filter, &maps)
            .map_err(|mistake| DropProbeError::Kernel(mistake.into()))?;
        let program = Program::load(ProgramKind::RawTracepoint, "mpps_drops", &instructions)
            .map_err(DropProbeError::from_kernel)?;
        let link =
            BpfLink::raw_tracepoint(&program, c"kfree_skb").map_err(DropProbeError::from_kernel)?;
        Ok(Self {
            counts,
            lost,
            reasons,
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
        let mut sums = BTreeMap::new();
        for key in self.counts.keys().map_err(DropProbeError::Kernel)? {
            let values = self.counts.values(&key).map_err(DropProbeError::Kernel)?;
            sums.insert(key, values.into_iter().fold([0, 0], add));
        }
        let counts = sums.into_iter();
        Ok(counts
            .map(
                |([netns, reason, class, sent], [skbs, datagrams])| DropCount {
                    netns,
                    reason,
                    reason_name: self.reasons.name(reason),
                    ours: class == program::OURS,
                    sent: sent != 0,
                    skbs,
                    datagrams,
                },
            )
            .collect())
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
