//! Arguments of `mpps recv`.

use crate::program::lines::{JSON_LINES, JsonArgs};
use crate::program::ring::{RING_HEADING, RingArgs};
use crate::value::{self, Named, one_of};
use clap::{ArgAction, Args};
use mpps_host::CpuList;
use mpps_host::facts::rss::RssFlow;
use mpps_io::{Fanout, Wait};
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments of `mpps recv`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |arg| arg.help(JSON_LINES)))]
pub(crate) struct RecvArgs {
    /// Listen at this address: 10.0.0.2:4321, [::1]:4321, :4321 or 4321
    #[arg(default_value = "0.0.0.0:4321", value_name = "ADDR:PORT", value_parser = value::listen)]
    pub(crate) address: SocketAddr,
    /// Set the number of threads, as --threads
    #[arg(value_name = "THREADS", conflicts_with = "threads",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) positional_threads: Option<u16>,
    /// Set 1 as --reuseport, 0 as --shared
    #[arg(value_name = "REUSEPORT", conflicts_with_all = ["shared", "reuseport"],
          value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) positional_reuseport: Option<u8>,
    /// Set the number of receiving threads [default: 1; af_xdp: one per receive queue, but 1 with --queue
    /// or --queue-carve-out]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Read one socket with all threads (the default)
    #[arg(long, conflicts_with = "reuseport")]
    pub(crate) shared: bool,
    /// Open a socket per thread on the same port (SO_REUSEPORT)
    #[arg(long)]
    pub(crate) reuseport: bool,
    /// Set which socket of --reuseport gets a packet
    #[arg(long = "steer", default_value = "none", value_name = "HOW",
          action = ArgAction::Set, value_parser = one_of(STEER))]
    pub(crate) steers_by_cpu: bool,
    /// Pin the threads to these CPUs in order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Read up to N datagrams per system call, 1 to 1024; with --gro, N buffers of joined datagrams
    /// [default: 1024; with --gro 64]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Truncate datagrams longer than BYTES [default: 2048; with --gro 65536]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) buffer: Option<usize>,
    /// Set the socket receive buffer (SO_RCVBUF); prints the granted size and the limit [default: the
    /// sysctl net.core.rmem_default]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) rcvbuf: Option<usize>,
    /// Poll the device queue for MICROSECONDS while waiting (SO_BUSY_POLL)
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) busy_poll: Option<u32>,
    /// Keep interrupts off while epoll_wait(2) finds packets, for at most TIME after each call: those of its
    /// queues for af_xdp, otherwise all of the interface's. Start with 20ms; a plain number means
    /// microseconds. Needs --wait epoll, --busy-poll, Linux 6.13 and an ADDR of one interface. Restored at the end; `mpps undo` restores it after kill -9
    #[arg(long, value_name = "TIME", value_parser = value::moderation)]
    pub(crate) suspend_irqs: Option<Duration>,
    /// Receive several datagrams of a flow in one buffer (UDP_GRO); every datagram is counted
    #[arg(long)]
    pub(crate) gro: bool,
    /// Use this receive path; `mpps backends` lists them. `best` chooses the fastest that host,
    /// interface and user allow
    #[arg(long, default_value = "recvmmsg", value_name = "NAME")]
    pub(crate) backend: String,
    /// Set how a thread waits for packets
    #[arg(long, default_value = "auto", value_name = "HOW", value_parser = one_of(value::WAIT))]
    pub(crate) wait: Wait,
    /// Receive every frame of the interface, not only those to ADDR:PORT. packet_mmap and pcap copy them.
    /// af_xdp, and dpdk on a card, take them from the kernel: remote logins over the interface break
    #[arg(long, help_heading = RING_HEADING)]
    pub(crate) all_traffic: bool,
    /// packet_mmap: hide the received packets from the kernel's network stack [default: it gets them
    /// too]. Needs Linux 6.6; not with --all-traffic
    #[arg(long, help_heading = RING_HEADING)]
    pub(crate) take: bool,
    /// packet_mmap: set how threads share the packets [default: hash]
    #[arg(long, value_name = "HOW", value_parser = one_of(FANOUT),
          help_heading = RING_HEADING)]
    pub(crate) fanout: Option<Fanout>,
    /// af_xdp: reserve a receive queue for ADDR:PORT or for --flow; other traffic uses the other queues.
    /// Restored at the end; `mpps undo` restores it after kill -9 [default HOW: auto]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true,
          default_missing_value = "auto", value_parser = one_of(CARVING),
          help_heading = RING_HEADING)]
    pub(crate) queue_carve_out: Option<Carving>,
    /// Steer this flow to the queue of --queue-carve-out=slot or =auto; may be repeated
    #[arg(
        long,
        value_name = "SOURCE:PORT-DESTINATION:PORT",
        requires = "queue_carve_out",
        help_heading = RING_HEADING
    )]
    pub(crate) flow: Vec<RssFlow>,
    /// Join a multicast group: 239.1.2.3, 239.1.2.3%eth1 or ff02::4321%eth1; may be repeated
    #[arg(long, value_name = "GROUP[%IF]")]
    pub(crate) join: Vec<String>,
    /// Stop after TIME [default: until Ctrl-C]
    #[arg(long, alias = "seconds", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Stop after N datagrams, summed over all threads; the last batches may bring more
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Print each second's line in the units of the 2015 article: Mpps, MiB and Mb
    #[arg(long)]
    pub(crate) article: bool,
    /// Print more each second. Per thread: CPU, packets, socket drops, packets per call. Of the host:
    /// packets per receive queue, UDP rates, CPU use
    #[arg(short, long)]
    pub(crate) verbose: bool,
    // Last: its heading reaches over all that follows.
    #[command(flatten)]
    pub(crate) ring: RingArgs,
}

/// How a queue is reserved for some flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carving {
    Auto,
    Rule,
    Slot,
}

const CARVING: &[Named<Carving>] = &[
    (
        "auto",
        "Try rule. If the driver refuses the rule or does not show it afterwards, use slot with --flow",
        Carving::Auto,
    ),
    (
        "rule",
        "A rule (ntuple) steers all datagrams to ADDR:PORT to the queue; not with --flow",
        Carving::Rule,
    ),
    (
        "slot",
        "Reserve the RSS table entries of the --flow flows. The kernel gets other flows of these entries",
        Carving::Slot,
    ),
];

const FANOUT: &[Named<Fanout>] = &[
    ("hash", "By the hash of the flow", Fanout::Hash),
    ("cpu", "By the CPU that received them", Fanout::Cpu),
    ("ebpf", "By the number of the receive queue", Fanout::Ebpf),
];

/// Whether the CPU decides.
const STEER: &[Named<bool>] = &[
    ("none", "By the hash of the flow, as the kernel does", false),
    (
        "cpu",
        "By the CPU that received the packet (classic BPF)",
        true,
    ),
];
