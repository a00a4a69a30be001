//! Arguments of `mpps serve`.

use crate::command::switches::SwitchArgs;
use crate::program::lines::{JSON_LINES, JsonArgs};
use crate::value::{self, Named, one_of};
use clap::Args;
use mpps_host::{CpuList, Throttle};
use mpps_http::Close;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `mpps serve`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |arg| arg.help(JSON_LINES)))]
pub(crate) struct ServeArgs {
    /// Listen at this address; port 0 chooses a free port
    #[arg(default_value = "0.0.0.0:8080", value_name = "ADDR:PORT", value_parser = value::listen)]
    pub(crate) address: SocketAddr,
    /// Serve a body of BYTES at every path
    #[arg(long, default_value = "1k", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) size: usize,
    /// Serve the files below DIR instead of a body
    #[arg(long, value_name = "DIR", conflicts_with = "size")]
    pub(crate) root: Option<PathBuf>,
    /// Use epoll or io_uring for the sockets [default: io_uring if the kernel supports it]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Set the number of worker threads [default: one per CPU of --pin, or of this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Pin the workers to these CPUs in order: 0,2 or 0-3 [default: with switch affinity all CPUs,
    /// otherwise none]
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Choose the side that closes a connection. Give `mpps load` the same value; for rst one side is
    /// enough
    #[arg(long, default_value = "server", value_name = "WHO", value_parser = one_of(CLOSE))]
    pub(crate) close: Close,
    /// As root: switch to this user once the port is open, and drop groups and capabilities. `root`
    /// keeps them [default: `nobody`]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) switches: SwitchArgs,
    /// Set the interface for --moderation [default: the interface that has the address; required with
    /// 0.0.0.0]
    #[arg(
        long,
        value_name = "IF",
        requires = "moderation",
        help_heading = "Moderation"
    )]
    pub(crate) interface: Option<String>,
    /// Set what delays interrupts, the card or the kernel [default: the card if its driver can]
    #[arg(
        long,
        value_name = "WHO",
        requires = "moderation",
        value_parser = one_of(THROTTLE),
        help_heading = "Moderation"
    )]
    pub(crate) moderation_by: Option<Throttle>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Limits against slow and hostile clients.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Limit the head of a request; a larger head gets status 431
    #[arg(long, default_value = "8k", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) head_bytes: usize,
    /// Limit the time for a whole head; a slower head gets status 408
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) head_time: Duration,
    /// Close a connection that sends no request for TIME
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) idle_time: Duration,
    /// Reset a connection if the client acknowledges no data for TIME; for 20 times TIME if its kernel
    /// still answers, but its program does not read
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) send_time: Duration,
    /// Limit open connections; further ones are closed at once and counted
    #[arg(long, default_value = "65536", value_name = "N", value_parser = value::some)]
    pub(crate) max_connections: u64,
    /// Wait TIME for open connections after Ctrl-C or SIGTERM
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) drain_time: Duration,
}

/// The side that closes a connection, and how.
pub(in crate::command) const CLOSE: &[Named<Close>] = &[
    (
        "server",
        "The server, after a reply that announces it; the server keeps TIME_WAIT",
        Close::Server,
    ),
    (
        "client",
        "The client, after the reply; it keeps TIME_WAIT. If it does not, `mpps serve` closes after 5 s",
        Close::Client,
    ),
    (
        "rst",
        "The side with this option, by a reset after the reply; no side keeps TIME_WAIT",
        Close::Rst,
    ),
];

const THROTTLE: &[Named<Throttle>] = &[
    ("nic", "The card (what `ethtool -C` sets)", Throttle::Nic),
    (
        "kernel",
        "The kernel, by a timer (napi_defer_hard_irqs, gro_flush_timeout)",
        Throttle::Kernel,
    ),
];
