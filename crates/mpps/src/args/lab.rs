//! Arguments of `mpps lab`.

use crate::measure::series::Series;
use crate::udp::sender::Generator;
use crate::value::{self, Named, one_of};
use clap::{Args, ValueEnum};
use mpps_lab::Delivery;
use std::ffi::OsString;
use std::time::Duration;

/// Arguments of `mpps lab`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything happens inside two network namespaces that vanish with the \
    program: no interface, sysctl or socket of this machine is touched, but for one sysctl by \
    --skb-defer. Exit status: 0 every ledger balances, 1 one does not (of tcp also: a kernel's count \
    contradicts one), 2 it could not be done, 130 interrupted.",
    mut_arg("quick", |quick| quick.help("One short repeat per rung, under 20 s (tcp: small bodies \
    only, under 30 s); not for comparison")),
    mut_arg("seconds", |seconds| seconds.help("Length of each repeat [default: 0.5; tcp: 0.7]"))
)]
pub(crate) struct LabArgs {
    /// Which ladder
    #[arg(default_value = "udp", value_name = "LADDER")]
    pub(crate) ladder: Ladder,
    #[command(flatten)]
    pub(crate) series: Series,
    /// Only these rungs: 1,2,4a; of tcp these cells: 1,3/nginx,3/mpps/base/16k
    #[arg(long, value_name = "RUNG,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Run also the rungs for which this host has too few CPUs, with CPUs shared [udp only]
    #[arg(long)]
    pub(crate) all: bool,
    /// List the rungs, or the cells of tcp, of this host and end
    #[arg(long)]
    pub(crate) list: bool,
    /// Who sends on every rung but 12: auto is xdp, the kernel's generator, where it can be had, and
    /// else sendmmsg, trains of 4, as on a rung whose queues the generator does not reach [default:
    /// auto; udp only]
    #[arg(long, value_name = "NAME")]
    pub(crate) generator: Option<Generator>,
    /// Datagrams that sendmmsg hands over as one train, cut before the link; alone it asks for
    /// sendmmsg; 1 sends as the article did [default: 4; udp only]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) train: Option<u16>,
    /// Who takes packets from their receive queue [default: threaded-napi, and soft-interrupt with two
    /// CPUs; udp only]
    #[arg(long, value_name = "HOW", value_parser = one_of(DELIVERY))]
    pub(crate) delivery: Option<Delivery>,
    /// Connections in flight [default: 256 for each CPU of the server; tcp only]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) connections: Option<u64>,
    /// How long the server's queues wait between polls in the step of moderation [default: the best
    /// of experiment 1, 500us where that does not run; tcp only]
    #[arg(long, value_name = "TIME", value_parser = value::moderation)]
    pub(crate) moderation: Option<Duration>,
    /// Measure also without the kernel's reuse of packet buffers across CPUs. This changes a setting
    /// of this machine, not of the lab: net.core.skb_defer_max is 0 while those cells run, and put
    /// back after each, by `mpps undo` if the lab is killed. Needs root in the initial network
    /// namespace [tcp only]
    #[arg(long)]
    pub(crate) skb_defer: bool,
    /// Show what the receiving host does while a rate is taken, on standard error: packets of each
    /// receive queue, rates of UDP, what each CPU was busy with, each second and at the end [udp only]
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Open a shell on the receiver host instead of measuring
    #[arg(long, conflicts_with_all = ["quick", "list", "only"])]
    pub(crate) shell: bool,
    /// Run a command on the receiver host instead of measuring
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["shell", "quick", "list", "only"])]
    pub(crate) command: Vec<OsString>,
}

/// The ladders that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ladder {
    /// One million UDP packets per second
    Udp,
    /// Short TCP connections: the experiments of the 2014 paper, on our server and on others
    Tcp,
}

impl LabArgs {
    /// Names an option that the ladder does not have, if one was given.
    pub(crate) fn foreign(&self) -> Option<&'static str> {
        let given: &[(&'static str, bool)] = match self.ladder {
            Ladder::Udp => &[
                ("--connections", self.connections.is_some()),
                ("--moderation", self.moderation.is_some()),
                ("--skb-defer", self.skb_defer),
            ],
            Ladder::Tcp => &[
                ("--generator", self.generator.is_some()),
                ("--train", self.train.is_some()),
                ("--delivery", self.delivery.is_some()),
                ("--verbose", self.verbose),
                ("--all", self.all),
                ("--shell", self.shell),
                ("a command", !self.command.is_empty()),
            ],
        };
        let given = given.iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| *name)
    }
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
        "Receive Packet Steering into the backlog of that CPU",
        Delivery::Rps,
    ),
];
