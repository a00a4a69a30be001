//! Checks of a host. They judge it by its counters at two moments.
//!
//! There is one file per check, and one table that lists them. A check is a pure function. Its
//! findings rest on counts, and name them with both values.

mod address;
mod allowance;
mod backlog;
mod bad_header;
mod bridge_port;
mod checksum;
mod closed_unread;
mod coalescing;
mod conntrack;
mod drop_reason;
mod drop_reasons;
mod far_end;
mod far_node;
mod filter_queue;
mod firewall;
mod fixes;
mod fragments;
mod frame_errors;
mod full_buffers;
mod handshake_queue;
mod interrupts_moved;
mod ip_discards;
mod ledger;
mod link_bounced;
mod link_fault;
mod listen_queue;
mod listener_elsewhere;
mod nic_no_memory;
pub(crate) mod nic_no_room;
mod nic_refused;
mod no_listener;
mod not_asked;
mod nothing_arrives;
mod one_queue;
mod other_way_back;
mod overrun;
pub mod overview;
mod packet_socket;
mod port_owner;
mod ports_used_up;
mod program_settings;
mod quota;
mod reader;
mod reading_times;
mod reason_counts;
mod refusal;
mod refused_sends;
mod reuseport_uneven;
mod reverse_path;
mod seen;
mod shared_core;
mod shared_cpu;
mod shared_socket;
mod socket_buffer;
mod socket_gone;
mod soft_interrupts;
mod steal;
mod time_squeeze;
mod truncated_reads;
mod udp_errors;
mod udp_memory;
mod unaccounted;
mod unhandled;
mod unrouted;
mod unspecified;
mod vanished;
mod virtual_device;
pub mod watch;
mod way_out;
mod xdp_drop;
mod xdp_socket;

pub use fixes::{Fix, FixKind, fixes};
pub use ledger::{between_reads, ledger, passed};
use mpps_os::text::Foreign;
pub use seen::{DoctorRequest, Observed, SeenSocket};
pub use way_out::WayOut;

use crate::Station;
use crate::ledger::loss::LossKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing that can be wrong.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its name, in files too: `socket_buffer`.
    pub name: &'static str,
    /// The counters and settings that it reads.
    pub reads: &'static str,
    /// When it reports something.
    pub speaks: &'static str,
    /// Runs the check.
    pub run: fn(&Observed) -> Vec<Finding>,
}

/// All checks. If two explain the same packets, the more specific one comes first.
pub const CHECKS: [Check; 53] = [
    bridge_port::CHECK,
    nothing_arrives::CHECK,
    link_bounced::CHECK,
    far_end::CHECK,
    allowance::CHECK,
    nic_no_room::CHECK,
    coalescing::CHECK,
    one_queue::CHECK,
    time_squeeze::CHECK,
    frame_errors::CHECK,
    nic_no_memory::CHECK,
    nic_refused::CHECK,
    virtual_device::CHECK,
    xdp_drop::CHECK,
    xdp_socket::CHECK,
    backlog::CHECK,
    soft_interrupts::CHECK,
    conntrack::CHECK,
    firewall::CHECK,
    bad_header::CHECK,
    ip_discards::CHECK,
    reverse_path::CHECK,
    address::CHECK,
    unrouted::CHECK,
    fragments::CHECK,
    checksum::CHECK,
    listener_elsewhere::CHECK,
    no_listener::CHECK,
    port_owner::CHECK,
    udp_memory::CHECK,
    udp_errors::CHECK,
    quota::CHECK,
    reuseport_uneven::CHECK,
    shared_cpu::CHECK,
    shared_socket::CHECK,
    socket_buffer::CHECK,
    shared_core::CHECK,
    socket_gone::CHECK,
    closed_unread::CHECK,
    truncated_reads::CHECK,
    packet_socket::CHECK,
    handshake_queue::CHECK,
    listen_queue::CHECK,
    ports_used_up::CHECK,
    drop_reason::CHECK,
    way_out::CHECK,
    other_way_back::CHECK,
    refused_sends::CHECK,
    unaccounted::CHECK,
    far_node::CHECK,
    interrupts_moved::CHECK,
    steal::CHECK,
    not_asked::CHECK,
];

/// A problem, and how to fix it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The check that found it.
    pub check: String,
    /// Where on a packet's way it is.
    pub station: Station,
    /// The problem, in a sentence.
    pub what: String,
    /// Observations that led to the cause; empty where the evidence says all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How many packets it cost meanwhile: what the first evidence grew by. 0 where it costs time.
    pub count: u64,
    /// The same per second.
    pub rate_pps: f64,
    /// The counters that say so.
    #[schemars(length(min = 1))]
    pub evidence: Vec<Evidence>,
    /// How to fix it: commands, or words if there is no command.
    pub remedy: String,
    /// How to check that it is fixed.
    pub verify: String,
    /// True if by itself it is nothing wrong: so little was lost, at a place where a host may drop on
    /// purpose or what is not for it, or it was to IPv6 groups that nothing here has joined.
    pub is_remark: bool,
    /// How sure it is.
    pub confidence: Confidence,
}

/// A counter at both moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Which: `Udp.RcvbufErrors`.
    pub source: String,
    /// Its value at first.
    pub before: i64,
    /// Its value afterwards.
    pub after: i64,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The kernel counts exactly this.
    Certain,
    /// The loss is counted. Its cause is inferred from other observations.
    Likely,
    /// Other causes would look the same.
    Possible,
}

impl Evidence {
    /// Returns the growth of the counter, or 0 if it went back. The difference of the snapshots
    /// reports a counter that went back; it is no loss.
    pub fn grown(&self) -> u64 {
        u64::try_from(self.after.saturating_sub(self.before)).unwrap_or(0)
    }

    /// The total growth of disjoint counters.
    pub(crate) fn sum(counters: &[Self]) -> u64 {
        let grown = counters.iter().map(Self::grown);
        grown.fold(0, u64::saturating_add)
    }

    fn new(source: impl Into<String>, before: u64, after: u64) -> Self {
        let number = |value| i64::try_from(value).unwrap_or(i64::MAX);
        Self {
            source: Foreign(source.into()).to_string(),
            before: number(before),
            after: number(after),
        }
    }
}

impl Finding {
    /// Begins a finding whose loss is what these counters, disjoint, grew by; none if they did not.
    fn lost(
        seen: &Observed,
        check: &Check,
        station: Station,
        evidence: Vec<Evidence>,
    ) -> Option<Self> {
        let evidence: Vec<_> = evidence.into_iter().filter(|one| one.grown() > 0).collect();
        let count = Evidence::sum(&evidence);
        (count > 0).then(|| Self::noticed(seen, check, station, evidence).of(count, seen))
    }

    /// Begins a finding of a loss that counters of its own count, without packets that are known to be of other
    /// protocols or ports; none if that leaves none.
    fn counted(seen: &Observed, check: &Check, kind: &LossKind) -> Option<Self> {
        let mut found = Self::lost(seen, check, kind.station, seen.counters(kind.counters))?;
        let others = reason_counts::of_others(seen, kind);
        let count = found.count.saturating_sub(others.grown());
        found
            .evidence
            .extend(Some(others).filter(|one| one.grown() > 0));
        (count > 0).then(|| found.of(count, seen))
    }

    /// Begins a finding that costs time, or packets that nothing counts.
    fn noticed(seen: &Observed, check: &Check, station: Station, evidence: Vec<Evidence>) -> Self {
        Self {
            check: check.name.to_owned(),
            station,
            what: String::new(),
            why: String::new(),
            count: 0,
            rate_pps: 0.0,
            evidence,
            remedy: String::new(),
            verify: seen.asked.again.clone(),
            is_remark: false,
            confidence: Confidence::Certain,
        }
    }

    fn says(mut self, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        self.what = Foreign(what.into()).to_string();
        self.remedy = Foreign(remedy.into()).to_string();
        self
    }

    /// The same, with what was observed of its cause; empty parts are left out.
    fn because(mut self, observed: &[String]) -> Self {
        let parts: Vec<&str> = observed.iter().map(|part| &**part).collect();
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        self.why = Foreign(parts.collect::<Vec<_>>().join("; ")).to_string();
        self
    }

    /// The same, of fewer packets than its evidence counts.
    fn of(mut self, count: u64, seen: &Observed) -> Self {
        self.count = count;
        self.rate_pps = count as f64 / seen.seconds();
        self
    }

    fn with(mut self, confidence: Confidence) -> Self {
        self.confidence = confidence;
        self
    }
}

/// True if packets were lost that more CPU time, or a CPU nearer to them, could have saved.
fn lacks_time(seen: &Observed) -> bool {
    let lacks = |overrun: &overrun::Overrun| {
        let busy = overrun.socket.busy;
        let is_late = !overrun.late.is_idle();
        is_late && busy.is_some_and(|busy| reader::never_slept(&busy) || reader::lacks_cpu(&busy))
    };
    loses_early(seen) || overrun::overruns(seen).iter().any(lacks)
}

/// True if packets were lost before a CPU took them in.
fn loses_early(seen: &Observed) -> bool {
    nic_no_room::loses(seen) || backlog::lost(seen) > 0
}

/// Checks whose losses may be on purpose, or are packets that may not be for this host.
const MAY_BE_MEANT: [&str; 15] = [
    "address",
    "checksum",
    "closed_unread",
    "drop_reason",
    "firewall",
    "handshake_queue",
    "ip_discards",
    "listen_queue",
    "no_listener",
    "reverse_path",
    "truncated_reads",
    "udp_errors",
    "unrouted",
    "way_out",
    "xdp_drop",
];
/// Less than this a second, or less than this share of what came, is a remark there.
const REMARK_PPS: f64 = 1.0;
const REMARK_SHARE: f64 = 0.001;

/// Returns true if a loss of `count` packets may be on purpose.
fn is_little(seen: &Observed, count: u64) -> bool {
    let came = seen.grown(&["Ip.InReceives", "Ip6.InReceives"]) as f64;
    let count = count as f64;
    count / seen.seconds() < REMARK_PPS || count < REMARK_SHARE * came
}

/// All that is wrong, what cost most packets first; remarks last.
pub fn findings(seen: &Observed) -> Vec<Finding> {
    let mut findings: Vec<_> = CHECKS.iter().flat_map(|check| (check.run)(seen)).collect();
    findings.extend(not_asked::beside(seen, &findings));
    for finding in &mut findings {
        let may_be_meant = MAY_BE_MEANT.contains(&&*finding.check);
        // A finding of an unknown number of packets decides by itself.
        let is_counted = finding.count > 0;
        finding.is_remark |= may_be_meant && is_counted && is_little(seen, finding.count);
    }
    // Among equals the order of the table stays.
    findings.sort_by_key(|finding| (finding.is_remark, std::cmp::Reverse(finding.count)));
    findings
}

#[cfg(test)]
mod tests;
