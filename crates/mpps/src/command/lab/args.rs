//! Arguments of `mpps lab`.

use crate::measure::series::Series;
use crate::udp::sender::GeneratorChoice;
use crate::value::{self, Named, one_of};
use clap::{Args, Subcommand};
use mpps_io::Work;
use mpps_lab::Delivery;
use std::ffi::OsString;
use std::time::Duration;

/// Arguments of `mpps lab`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) ladder: Option<Ladder>,
    #[command(flatten)]
    pub(crate) udp: UdpLadderArgs,
}

/// The ladders.
#[derive(Debug, Subcommand)]
pub(crate) enum Ladder {
    /// Climb the ladder of UDP packets; the default
    #[command(hide = true)]
    Udp(UdpLadderArgs),
    /// Measure short TCP connections: the 2014 paper's experiments, on mpps and other servers
    Tcp(TcpLadderArgs),
}

/// Arguments of the ladder of UDP packets.
#[derive(Debug, Args)]
#[command(
    mut_arg("quick", |quick| quick.help("Run one short repeat per rung, under 20 s; too short for conclusions")),
    mut_arg("duration", |arg| arg.help("Set the length of each repeat [default: 500ms]")),
    mut_arg("repeat", |arg| arg.help("Run each rung N times, in N rounds over all rungs")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./lab.json; without FILE, to standard output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./lab.html"))
)]
pub(crate) struct UdpLadderArgs {
    #[command(flatten)]
    pub(crate) series: Series,
    /// Run only these rungs (ways to receive): 1,2,4a; --list shows all
    #[arg(long, value_name = "RUNG,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Run also the rungs that need more CPUs than this host has; CPUs are then shared
    #[arg(long)]
    pub(crate) all: bool,
    /// List the rungs of this host
    #[arg(long)]
    pub(crate) list: bool,
    /// Set the traffic source. Rung 12, about long trains, always uses sendmmsg [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(crate) generator: Option<GeneratorChoice>,
    /// Send N datagrams as one buffer (a train) that the kernel splits before the link (UDP_SEGMENT); 1
    /// as in the article of 2015. Selects --generator sendmmsg [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) train: Option<u16>,
    /// Set the kernel context that processes received packets. Use rps to measure this setting of a host
    /// [default: threaded-napi; soft-interrupt with exactly 2 CPUs]
    #[arg(long, value_name = "HOW", value_parser = one_of(DELIVERY))]
    pub(crate) delivery: Option<Delivery>,
    /// Measure each rung once more with a program that uses the CPU for TIME, such as 20us, per datagram;
    /// `parse`: that reads the bytes of each datagram
    #[arg(long, value_name = "TIME|parse", value_parser = value::work)]
    pub(crate) work: Option<Work>,
    /// Print why each skipped rung was skipped
    #[arg(long)]
    pub(crate) why: bool,
    /// Print all notes, limits and lessons instead of the answer. Print each second to standard error
    /// what the receiving host does: packets per receive queue, UDP rates, CPU use
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Open a shell on the receiving host; nothing is sent or measured
    #[arg(long, conflicts_with_all = ["quick", "list", "only"])]
    pub(crate) shell: bool,
    /// Run a command on the receiving host; nothing is sent or measured
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["shell", "quick", "list", "only"])]
    pub(crate) command: Vec<OsString>,
}

/// Arguments of the ladder of TCP connections.
#[derive(Debug, Args)]
#[command(
    mut_arg("quick", |quick| quick.help("Run only small bodies, once each, under 30 s; too short for \
    conclusions")),
    mut_arg("duration", |arg| arg.help("Set the length of each repeat [default: 700ms]")),
    mut_arg("repeat", |arg| arg.help("Run each cell N times, in N rounds over all cells")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./lab-tcp.json; without FILE, to \
    standard output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./lab-tcp.html"))
)]
pub(crate) struct TcpLadderArgs {
    #[command(flatten)]
    pub(crate) series: Series,
    /// Run only these cells (one server in one state): 1,3/nginx,3/mpps/base/16k; --list shows all
    #[arg(long, value_name = "CELL,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the cells of this host
    #[arg(long)]
    pub(crate) list: bool,
    /// Set the connections in flight [default: 256 per CPU of the server]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) connections: Option<u64>,
    /// Limit each direction of the link to RATE, such as 100mbit or 1gbit, Ethernet headers included
    /// [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = value::link_rate)]
    pub(crate) link_rate: Option<u64>,
    /// Set the time between interrupts of the server's queues in experiments 2 and 3, from step
    /// moderation on. A plain number means microseconds [default: the fixed time with most connections
    /// per second in experiment 1; 500us if it does not run]
    #[arg(long, value_name = "TIME", value_parser = value::moderation)]
    pub(crate) moderation: Option<Duration>,
    /// Run also the cells no-skb-defer (net.core.skb_defer_max=0: each CPU frees its own packet buffers)
    /// and skb-defer of experiment 2. Restored after each cell; `mpps undo` restores it after a kill.
    /// Needs root in the initial network namespace
    #[arg(long)]
    pub(crate) skb_defer: bool,
}

const DELIVERY: &[Named<Delivery>] = &[
    (
        "threaded-napi",
        "A kernel thread per receive queue, pinned to its CPU",
        Delivery::ThreadedNapi,
    ),
    (
        "soft-interrupt",
        "The sender's CPU, in its soft interrupts",
        Delivery::SoftInterrupt,
    ),
    (
        "rps",
        "Receive Packet Steering into the backlog of the queue's CPU",
        Delivery::Rps,
    ),
];
