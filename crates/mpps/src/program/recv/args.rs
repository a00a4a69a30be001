//! Arguments of `mpps recv`.

use crate::program::ring::RingArgs;
use crate::value::{self, Named, one_of};
use clap::{ArgAction, Args};
use mpps_host::CpuList;
use mpps_host::rss::Flow;
use mpps_io::{Fanout, Wait};
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments of `mpps recv`.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints the rate each second (packets, mebibytes and megabits of \
    payload, or of frames) and totals at the end; Ctrl-C ends it. Byte counts take k, M, G \
    (1024s), times s, ms, m."
)]
pub(crate) struct RecvArgs {
    /// Where to listen
    #[arg(default_value = "0.0.0.0:4321", value_name = "ADDR:PORT", value_parser = value::address)]
    pub(crate) address: SocketAddr,
    /// Receiving threads, as the article's receiver takes them
    #[arg(value_name = "THREADS", conflicts_with = "threads",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) positional_threads: Option<u16>,
    /// 1: a socket per thread (SO_REUSEPORT); 0: all threads on one socket
    #[arg(value_name = "REUSEPORT", conflicts_with_all = ["shared", "reuseport"],
          value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) positional_reuseport: Option<u8>,
    /// Receiving threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// All threads read one socket (the default)
    #[arg(long, conflicts_with = "reuseport")]
    pub(crate) shared: bool,
    /// Each thread has its own socket on the same port (SO_REUSEPORT)
    #[arg(long)]
    pub(crate) reuseport: bool,
    /// Which of the sockets a packet goes to: by its flow's hash, or by the CPU that received it
    #[arg(long = "steer", default_value = "none", value_name = "HOW",
          action = ArgAction::Set, value_parser = one_of(STEER))]
    pub(crate) steers_by_cpu: bool,
    /// CPUs for the threads, in their order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Datagrams (with --gro: trains) per system call, 1 to 1024 [default: 1024, with --gro 64]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Bytes kept of each datagram [default: 2048, with --gro 65536]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) buffer: Option<usize>,
    /// Socket receive buffer; says what was granted and what stands in the way
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) rcvbuf: Option<usize>,
    /// Poll the device queue for so many microseconds while waiting (SO_BUSY_POLL)
    #[arg(long, value_name = "MICROSECONDS")]
    pub(crate) busy_poll: Option<u32>,
    /// Keep the interrupts of the interface off while epoll_wait(2) finds packets, for so long at most
    /// (Linux 6.13); undone at the end, and after kill -9 by `mpps undo`
    #[arg(long, value_name = "TIME", value_parser = value::moderation)]
    pub(crate) suspend_irqs: Option<Duration>,
    /// Take trains of datagrams in one buffer (UDP_GRO); each datagram still counts
    #[arg(long)]
    pub(crate) gro: bool,
    /// How to receive; see `mpps backends`. best: the fastest that host, interface and user allow
    #[arg(long, default_value = "recvmmsg", value_name = "NAME")]
    pub(crate) backend: String,
    /// How a thread waits for packets
    #[arg(long, default_value = "auto", value_name = "HOW", value_parser = one_of(value::WAIT))]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    /// Take every frame of the interface and not only those of the address
    #[arg(long, help_heading = "Backends that read or write an interface")]
    pub(crate) all_traffic: bool,
    /// packet_mmap: drop the kernel's own copy of each packet behind the tap
    #[arg(long, help_heading = "Backends that read or write an interface")]
    pub(crate) take: bool,
    /// packet_mmap: how threads share the packets [default: hash]
    #[arg(long, value_name = "HOW", value_parser = one_of(FANOUT),
          help_heading = "Backends that read or write an interface")]
    pub(crate) fanout: Option<Fanout>,
    /// af_xdp: take a queue out of the NIC's spreading and steer the flow to it; undone at the end,
    /// and after kill -9 by `mpps undo` [default HOW: auto]
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true,
          default_missing_value = "auto", value_parser = one_of(CARVING),
          help_heading = "Backends that read or write an interface")]
    pub(crate) queue_carve_out: Option<Carving>,
    /// With a slot of the RSS table: a flow that is to come by the queue; may be given again
    #[arg(
        long,
        value_name = "SOURCE:PORT-DESTINATION:PORT",
        requires = "queue_carve_out",
        help_heading = "Backends that read or write an interface"
    )]
    pub(crate) flow: Vec<Flow>,
    /// Join a multicast group: 239.1.2.3, 239.1.2.3%eth1 or ff02::4321%eth1; may be repeated
    #[arg(long, value_name = "GROUP[%IF]")]
    pub(crate) join: Vec<String>,
    /// How long to receive [default: until stopped]
    #[arg(long, value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Stop once so many datagrams came, all threads together; the last batches may bring more
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) count: Option<u64>,
    /// Write one JSON object per second, with what -v shows of the host, and one with the totals, to
    /// standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Each second a line per thread (CPU, packets, drops of its socket, packets per call), and what
    /// the host did: packets of each receive queue, rates of UDP, what each CPU was busy with
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// How a queue is kept for some flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carving {
    Auto,
    Rule,
    Slot,
}

const CARVING: &[Named<Carving>] = &[
    (
        "auto",
        "A rule where the driver takes one and shows it, or else a slot for what --flow names",
        Carving::Auto,
    ),
    (
        "rule",
        "A rule (ntuple) sends all datagrams to the address there",
        Carving::Rule,
    ),
    (
        "slot",
        "The queue has those entries of the RSS table alone into which the flows fall",
        Carving::Slot,
    ),
];

const FANOUT: &[Named<Fanout>] = &[
    ("hash", "By the flow's hash", Fanout::Hash),
    ("cpu", "By the CPU that received them", Fanout::Cpu),
    (
        "ebpf",
        "By a program: the receive queue's number",
        Fanout::Ebpf,
    ),
];

/// Whether the CPU decides.
const STEER: &[Named<bool>] = &[
    ("none", "The one that its flow's hash points to", false),
    (
        "cpu",
        "The one of the CPU that received it (classic BPF)",
        true,
    ),
];
