//! The results of `recv` and `send`, as `--json` writes them: one object a line, the last one with
//! the totals. `mpps ledger` reads both.

mod carved_out;
/// The same as people read it.
pub(crate) mod document;
mod join;

pub use carved_out::{CarveOutCounts, CarvedFlow, CarvedOut, RecvCarveOut};
pub use join::{Together, join, join_all};
pub(crate) use join::{note_unseen, route, sent, without_copies};

use super::screens::Screens;
use super::waited::{PollTotal, RingFillDepth};
use mpps_host::{Delta, Departure, RingDrop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `schema` of the receiver's objects.
pub const RECV_SCHEMA: &str = "mpps.recv.v1";
/// The `schema` of the sender's objects.
pub const SEND_SCHEMA: &str = "mpps.send.v1";

/// An object that `mpps recv --json` writes: with a carve-out one at the start, one a second, and one
/// with the totals at the end.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum RecvObject {
    /// The queue carve-out of the interface.
    CarveOut(Box<RecvCarveOut>),
    /// A second.
    Interval(Box<RecvInterval>),
    /// The totals.
    Total(Box<RecvTotal>),
}

/// An object that `mpps send --json` writes: one a second, and one with the totals at the end.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum SendObject {
    /// A second.
    Interval(SendInterval),
    /// The totals.
    Total(Box<SendTotal>),
}

/// One second of a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecvInterval {
    /// [`RECV_SCHEMA`].
    pub schema: String,
    /// `interval`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "interval"))]
    pub kind: String,
    /// Its measured length.
    pub seconds: f64,
    /// Datagrams in it.
    pub received: u64,
    /// Bytes in it, as [`RecvTotal::bytes`] counts them.
    pub bytes: u64,
    /// Datagrams per second in it.
    pub pps: f64,
    /// The host's screens over this second; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screens: Option<Screens>,
}

/// The totals of a receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecvTotal {
    /// [`RECV_SCHEMA`].
    pub schema: String,
    /// `total`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "total"))]
    pub kind: String,
    /// The version of mpps.
    pub version: String,
    /// The full command line.
    pub command: String,
    /// The kernel's release.
    pub kernel: String,
    /// The boot ID of this machine (`/proc/sys/kernel/random/boot_id`).
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The network namespace: a number that no other of this boot has (`SO_NETNS_COOKIE`); absent before
    /// Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// The backend.
    pub backend: String,
    /// The address that was listened on.
    pub address: String,
    /// Datagrams received; those of a GRO train count each. End markers are not among them.
    pub received: u64,
    /// Bytes of payload, or of whole frames where `arrival` is not `socket`.
    pub bytes: u64,
    /// From the first datagram to the last, over all threads.
    pub active_seconds: f64,
    /// The definition of `pps`.
    #[serde(default)]
    pub rate_definition: String,
    /// The rate over the whole run, `received / active_seconds`, in datagrams per second; 0 in
    /// files of versions that wrote only the median.
    #[serde(default)]
    pub pps: f64,
    /// Median over the full one-second intervals that had traffic, in datagrams per second. The
    /// first interval begins at the first datagram. Without a full interval it is `received /
    /// active_seconds`.
    pub pps_median: f64,
    /// The result of each thread.
    pub threads: Vec<RecvThread>,
    /// Packets that the kernel dropped at these sockets (`SO_MEMINFO`) or rings, `drops` in one;
    /// with GRO a train is one.
    pub socket_drops: u64,
    /// True if `socket_drops` counts trains.
    pub socket_drops_are_trains: bool,
    /// How packets reached the program: `socket`, `tap` or `xdp`.
    #[serde(default = "socket")]
    #[schemars(extend("enum" = ["socket", "tap", "xdp"]))]
    pub arrival: String,
    /// How the receiver worked, as far as the kernel granted it.
    #[serde(default)]
    pub mode: String,
    /// With `--backend best`, why this backend, and why none that is faster.
    #[serde(default)]
    pub backend_because: Vec<String>,
    /// How it waited for packets: `auto`, `block`, `epoll` or `spin`.
    #[serde(default = "block")]
    #[schemars(extend("enum" = ["auto", "block", "epoll", "spin"]))]
    pub wait: String,
    /// The interface of the traffic; absent if the address does not determine it.
    #[serde(default)]
    pub interface: Option<String>,
    /// How long its carrier was waited for before the counters were first read.
    #[serde(default)]
    pub carrier_seconds: f64,
    /// Settings of the interface that changed while its XDP program was attached, as `rx ring 512
    /// -> 256`. Some drivers reset their rings, queues or offloads for a program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attaching_set: Vec<String>,
    /// Drops at its sockets or rings, by reason; for sockets this is `socket_drops`.
    #[serde(default)]
    pub drops: Vec<RingDrop>,
    /// Of `received`, those found in the socket buffers after the end was asked for.
    pub queued: u64,
    /// Datagrams longer than the buffer.
    pub truncated: u64,
    /// End markers of stamped senders.
    pub end_markers: u64,
    /// Sockets that got each multicast datagram; 0 if no group was joined.
    pub multicast_sockets: u64,
    /// The multicast groups that were joined.
    #[serde(default)]
    pub groups: Vec<String>,
    /// The socket receive buffer granted, bytes without the kernel's doubling.
    pub receive_buffer_bytes: Option<usize>,
    /// The results of the stamps, one entry per flow; empty for unstamped traffic.
    pub flows: Vec<FlowTotal>,
    /// Datagrams of flows that were too many to follow.
    pub untracked: u64,
    /// Datagrams without a stamp, among stamped ones.
    #[serde(default)]
    pub unstamped: u64,
    /// The queue that was kept for some flows, and what came by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carve_out: Option<CarvedOut>,
    /// The receiving host's counters over the run.
    pub host: Option<Delta>,
}

/// The meaning of files from versions that had only sockets.
fn socket() -> String {
    "socket".to_owned()
}

/// The meaning of files from versions whose only default was to block.
fn block() -> String {
    "block".to_owned()
}

/// The result of one receiving thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecvThread {
    /// The CPU that it was pinned to.
    pub cpu: Option<usize>,
    /// Datagrams.
    pub received: u64,
    /// Its share of all, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
    /// Drops of its own socket or ring; absent for the second and later threads of one shared socket.
    pub socket_drops: Option<u64>,
    /// Datagrams per receive call.
    pub packets_per_call: f64,
    /// CPU time per datagram in nanoseconds, by the scheduler's account of the thread; absent if it
    /// received none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns_per_packet: Option<f64>,
    /// How it polled before it slept; absent if the user set how to wait.
    #[serde(default)]
    pub polls: Option<PollTotal>,
    /// How many frames its ring gave the kernel; absent where the kernel has all of them always.
    #[serde(default)]
    pub fill_depth: Option<RingFillDepth>,
}

/// The results of the stamps of one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowTotal {
    /// Run of the sending thread, a random number.
    #[serde(default)]
    pub run: u32,
    /// Sending thread.
    pub sender: u8,
    /// Flow of that thread.
    pub flow: u16,
    /// Datagrams received, duplicates included.
    pub received: u64,
    /// Datagrams offered, if an end marker came.
    pub offered: Option<u64>,
    /// End markers received; they are in none of the other counts.
    #[serde(default)]
    pub end_markers: u64,
    /// Datagrams that are not known to have come, from sequence number 0 on; without an end marker, up to
    /// the highest number that came.
    pub lost: u64,
    /// Up to this many datagrams of `lost` may have come. As many late or duplicate datagrams were
    /// received, and the stamps do not show which of the two they are. In files of older versions
    /// the field is absent, and `lost` is without them.
    #[serde(default)]
    pub undecided: Option<u64>,
    /// Datagrams that came again, to whichever thread.
    pub duplicates: u64,
    /// Datagrams that came after a later one (RFC 4737).
    pub reordered: u64,
    /// Datagrams whose numbers are so far behind that they were forgotten, each late or a duplicate.
    pub too_late: u64,
    /// The lowest sequence number seen; 0 if only end markers were.
    pub first: u64,
    /// One-way delay, send time to receive call; absent for flows beyond the 256th, and where the
    /// clocks differ.
    pub delay_us: Option<DelayTotal>,
    /// How far the clocks of the two hosts differ at least, in microseconds: some datagrams came before
    /// they were sent, or a minute after. Absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks_apart_us: Option<f64>,
}

/// One-way delay in microseconds. Between two machines it is as true as their clocks are the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayTotal {
    /// Half were faster.
    pub p50: f64,
    /// 99 in 100 were faster.
    pub p99: f64,
    /// 999 in 1000 were faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

/// One second of a sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SendInterval {
    /// [`SEND_SCHEMA`].
    pub schema: String,
    /// `interval`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "interval"))]
    pub kind: String,
    /// Its measured length.
    pub seconds: f64,
    /// Datagrams handed to the kernel in it.
    pub offered: u64,
    /// Datagrams that the kernel took in it.
    pub sent: u64,
    /// Datagrams that it refused in it.
    pub refused: u64,
    /// Datagrams taken per second in it.
    pub pps: f64,
}

/// The totals of a sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SendTotal {
    /// [`SEND_SCHEMA`].
    pub schema: String,
    /// `total`.
    #[serde(rename = "type")]
    #[schemars(extend("const" = "total"))]
    pub kind: String,
    /// The version of mpps.
    pub version: String,
    /// The full command line.
    pub command: String,
    /// The kernel's release.
    pub kernel: String,
    /// The boot ID of this machine (`/proc/sys/kernel/random/boot_id`).
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The network namespace: a number that no other of this boot has (`SO_NETNS_COOKIE`); absent before
    /// Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// The backend.
    pub backend: String,
    /// The run that the user named; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Datagrams handed to the kernel, refused ones included, end markers not.
    pub offered: u64,
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams that it refused.
    pub refused: u64,
    /// The refused ones by the kernel's answer.
    pub refused_by: BTreeMap<String, u64>,
    /// End markers handed to the kernel, refused ones included; they are in none of the counts
    /// above.
    pub end_markers: u64,
    /// End markers that the kernel refused, by its answer.
    #[serde(default)]
    pub end_refused_by: BTreeMap<String, u64>,
    /// From before the first send to after the last.
    pub active_seconds: f64,
    /// Median over the full one-second intervals, or `sent / active_seconds`; datagrams per second.
    pub pps_median: f64,
    /// UDP payload of each datagram in bytes.
    pub size: usize,
    /// Datagrams per train.
    pub gso: u16,
    /// The socket send buffer granted, bytes without the kernel's doubling.
    pub send_buffer_bytes: Option<usize>,
    /// How packets left the program.
    #[serde(default)]
    pub departure: Departure,
    /// The interface that all of it left by; absent for more than one, and within this host.
    #[serde(default)]
    pub interface: Option<String>,
    /// Next hosts on the way to targets that did not answer ARP or neighbour discovery at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
    /// How the sender worked, as far as the kernel granted it.
    #[serde(default)]
    pub mode: String,
    /// Calls that found the send buffer full for 5 ms: the sender was not open loop.
    pub blocked: u64,
    /// The result of each thread.
    pub threads: Vec<SendThread>,
    /// The sending host's counters over the run.
    pub host: Option<Delta>,
}

/// The result of one sending thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SendThread {
    /// The CPU that it was pinned to.
    pub cpu: Option<usize>,
    /// Where it sent.
    pub target: String,
    /// The sender's number that is in its stamps; if absent, its place in the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u8>,
    /// The run that is in its stamps; absent without stamps.
    #[serde(default)]
    pub run: Option<u32>,
    /// Datagrams handed to the kernel.
    pub offered: u64,
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// CPU time per datagram in nanoseconds, by the scheduler's account of the thread.
    pub cpu_ns_per_packet: f64,
}

/// Why a text is not what `--json` wrote.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// There is no object with the totals: the run was killed, or the file is of another kind.
    #[error("no totals in it: not written by `mpps {command} --json`, or cut short")]
    NoTotal {
        /// `send` or `recv`.
        command: &'static str,
    },
    /// The results of several runs were written to one file, such as by `>>`.
    #[error("two totals in it: more than one run")]
    TwoTotals,
    /// The totals have another shape.
    #[error("line {line}: {source}")]
    Shape {
        /// The line, from 1.
        line: usize,
        /// The error.
        source: serde_json::Error,
    },
}

impl RecvTotal {
    /// Finds the totals in what `mpps recv --json` wrote.
    ///
    /// # Errors
    /// If there are none, or they have another shape.
    pub fn parse(text: &str) -> Result<Self, TrafficError> {
        total(text, RECV_SCHEMA, "recv")
    }
}

impl SendThread {
    /// The number in its stamps; `at` is its place in the list.
    fn number(&self, at: usize) -> usize {
        self.sender.map_or(at, usize::from)
    }
}

impl SendTotal {
    /// Finds the totals in what `mpps send --json` wrote.
    ///
    /// # Errors
    /// If there are none, or they have another shape.
    pub fn parse(text: &str) -> Result<Self, TrafficError> {
        total(text, SEND_SCHEMA, "send")
    }
}

/// The head of a line, without the rest.
#[derive(Deserialize)]
struct LineHead {
    schema: String,
    #[serde(rename = "type")]
    kind: String,
}

fn total<T: for<'de> Deserialize<'de>>(
    text: &str,
    schema: &str,
    command: &'static str,
) -> Result<T, TrafficError> {
    let is_it = |head: LineHead| head.schema == schema && head.kind == "total";
    let lines = text.lines().enumerate();
    let mut totals = lines.filter(|(_, line)| serde_json::from_str(line).is_ok_and(is_it));
    let Some((at, total)) = totals.next() else {
        return Err(TrafficError::NoTotal { command });
    };
    if totals.next().is_some() {
        return Err(TrafficError::TwoTotals);
    }
    let line = at + 1;
    serde_json::from_str(total).map_err(|source| TrafficError::Shape { line, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_of_the_other_kind_is_named() {
        let error =
            SendTotal::parse("{\"schema\":\"mpps.recv.v1\",\"type\":\"total\"}").unwrap_err();
        assert!(error.to_string().contains("mpps send --json"), "{error}");
    }

    #[test]
    fn the_results_of_two_runs_are_not_judged_by_the_first() {
        let run = include_str!("../../tests/fixtures/recv.json");
        let run: RecvTotal = serde_json::from_str(run).expect("totals");
        let run = &*serde_json::to_string(&run).expect("totals");
        let interval = r#"{"schema":"mpps.recv.v1","type":"interval"}"#;
        let parse = |runs: &[&str]| RecvTotal::parse(&runs.join("\n"));
        parse(&[interval, run, interval]).expect("one run");
        let error = parse(&[interval, run, interval, run]).expect_err("two runs");
        assert!(error.to_string().contains("more than one run"), "{error}");
    }

    #[test]
    fn totals_of_another_shape_are_pointed_to() {
        let text = "\n{\"schema\":\"mpps.recv.v1\",\"type\":\"total\"}";
        assert!(
            RecvTotal::parse(text)
                .unwrap_err()
                .to_string()
                .starts_with("line 2:")
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,200}") {
            let _ = (RecvTotal::parse(&text), SendTotal::parse(&text));
        }
    }
}
