//! Arguments of `mpps serve`.

use super::SwitchArgs;
use crate::value::{self, Named, one_of};
use clap::Args;
use mpps_host::{CpuList, Throttle};
use mpps_http::Close;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `mpps serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints what was granted, then a line a second, and totals at the end. Ctrl-C or \
    SIGTERM lets open connections end; a second one ends at once. Byte counts take k, M, G (1024s), \
    times s, ms, us, m.\n\n\
    Examples:\n  \
    mpps serve                                 1 KiB at every path of http://0.0.0.0:8080/\n  \
    mpps serve 127.0.0.1:8000 --root public    the files below a directory\n  \
    mpps serve --engine epoll --no-switches    the baseline of the 2014 paper\n  \
    mpps serve --only fds                      one technique alone\n\n\
    Exit status: 0 fine, 1 the account of connections does not balance, 2 it could not be done."
)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(default_value = "0.0.0.0:8080", value_name = "ADDR:PORT", value_parser = value::address)]
    pub(crate) address: SocketAddr,
    /// Serve a body of so many bytes at every path
    #[arg(long, default_value = "1k", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) size: usize,
    /// Serve the files below a directory
    #[arg(long, value_name = "DIR", conflicts_with = "size")]
    pub(crate) root: Option<PathBuf>,
    /// What drives the sockets: epoll or io_uring [default: io_uring where this kernel has it]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Worker threads [default: one for each CPU of --pin, or that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// CPUs for the workers, in their order: 0,2 or 0-3 [default: with affinity all of them]
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Who ends a connection, and how; it changes every figure
    #[arg(long, default_value = "server", value_name = "WHO", value_parser = one_of(CLOSE))]
    pub(crate) close: Close,
    /// No page of counters at /metrics
    #[arg(long)]
    pub(crate) no_metrics: bool,
    /// As root: go on as this user once it listens, without other groups and capabilities; root keeps
    /// them [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Write one JSON object per second, and one with the totals, to standard output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) switches: SwitchArgs,
    /// The interface that --moderation changes [default: the one that owns the address]
    #[arg(
        long,
        value_name = "IF",
        requires = "moderation",
        help_heading = "Moderation"
    )]
    pub(crate) interface: Option<String>,
    /// Who waits: the card, or the kernel [default: the card where its driver can]
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
    /// Largest head of a request; a larger one is answered with 431
    #[arg(long, default_value = "8k", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) head_bytes: usize,
    /// Time for a whole head; a slower one is answered with 408
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) head_time: Duration,
    /// Time between two requests of a connection
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) idle_time: Duration,
    /// Time for a reply of which the client acknowledges nothing; 20 times as long while its kernel
    /// answers, as that of a slow reader does
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) send_time: Duration,
    /// Connections at a time; further ones are closed at once, and counted
    #[arg(long, default_value = "65536", value_name = "N", value_parser = value::some)]
    pub(crate) max_connections: u64,
    /// Connections at a time from one address [default: no limit]
    #[arg(long, value_name = "N", value_parser = value::some)]
    pub(crate) max_per_address: Option<u64>,
    /// How long open connections have to end after Ctrl-C or SIGTERM
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) drain_time: Duration,
}

/// Who ends a connection, and how.
pub(super) const CLOSE: &[Named<Close>] = &[
    (
        "server",
        "The server, after a reply that announces it: TIME_WAIT is the server's",
        Close::Server,
    ),
    (
        "client",
        "The client, after it has read the reply: TIME_WAIT is the client's; `mpps serve` gives it 5 s",
        Close::Client,
    ),
    (
        "rst",
        "This side, with a reset: no side keeps a socket in TIME_WAIT",
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
