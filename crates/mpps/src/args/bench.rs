//! Arguments of `mpps bench`.

use crate::measure::series::Series;
use crate::udp::sender::Generator;
use crate::value;
use clap::Args;
use std::net::SocketAddr;

/// Arguments of `mpps bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything happens inside two network namespaces that vanish with the \
    program; with --sender it measures what really arrives at --address. Exit status: 0 every ledger \
    balances, 1 one does not, 2 it could not be done, 130 interrupted. With --sender the ledgers do not \
    decide, since what was lost on the way is nobody's count here: 0 all paths were measured, 2 it could \
    not be done or nothing arrived, 130 interrupted."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) series: Series<7>,
    /// Only these paths, or rows of them: recvmmsg,af_xdp/spin; --list names all
    #[arg(long, value_name = "PATH,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// List the paths of this host and end
    #[arg(long)]
    pub(crate) list: bool,
    /// Offer each path 2 to 100 % of what the sender can, queue and application on one CPU
    #[arg(long, conflicts_with = "sender")]
    pub(crate) overload: bool,
    /// Early drops of traffic over 1, 2 and 4 receive queues: what is left of a CPU's rate
    #[arg(long, conflicts_with_all = ["overload", "sender"])]
    pub(crate) spread: bool,
    /// Flows, by source port, 1 to 65535
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) flows: usize,
    /// UDP payload in bytes
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) size: usize,
    /// Who sends in the lab; auto is xdp where it can be had
    #[arg(
        long,
        default_value = "auto",
        value_name = "NAME",
        conflicts_with = "sender"
    )]
    pub(crate) generator: Generator,
    /// Measure traffic that HOST sends to --address; prints the command to run there
    #[arg(long, value_name = "HOST", requires = "address")]
    pub(crate) sender: Option<String>,
    /// Where the traffic of --sender arrives
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address)]
    pub(crate) address: Option<SocketAddr>,
}
