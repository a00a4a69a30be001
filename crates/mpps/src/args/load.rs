//! Arguments of `mpps load`.

use super::serve::CLOSE;
use crate::value::{self, one_of};
use clap::Args;
use mpps_host::CpuList;
use mpps_http::Close;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `mpps load`.
#[derive(Debug, Args)]
#[command(
    after_help = "Sends to the host that URL names, and nowhere else. Byte counts take k, M, G \
    (1024s), numbers and rates k, M, G (thousands), times s, ms, us, m.\n\n\
    Examples:\n  \
    mpps load http://127.0.0.1:8080/                     a connection per request, for 10 s\n  \
    mpps load http://127.0.0.1:8080/ --keep-alive        connections that stay\n  \
    mpps load http://10.0.0.2/ --rate 20k                20000 requests a second, come what may\n  \
    mpps load http://10.0.0.2/ -n 100k -c 100 --ab       what ab prints\n\n\
    Exit status: 0 all requests were completed, but for those in flight at the end, 1 some failed, \
    none was completed, the server stopped answering, or the account does not balance, 2 it could not \
    be done, 130 interrupted."
)]
pub(crate) struct LoadArgs {
    /// What to ask for: http://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Connections in flight
    #[arg(short, long, default_value = "64", value_name = "N", value_parser = value::some)]
    pub(crate) connections: u64,
    /// Start so many requests a second, whatever the server does [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// How long [default: 10s, or until --requests]
    #[arg(short, long, value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// How many requests, all connections together
    #[arg(short = 'n', long, value_name = "N", value_parser = value::some)]
    pub(crate) requests: Option<u64>,
    /// Requests per connection; without a number as many as the server allows [default: 1]
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "0",
          require_equals = true, value_parser = value::count)]
    pub(crate) keep_alive: Option<u64>,
    /// Own addresses, in turn, each of one thread only: 10.0.0.1,10.0.0.2 [default: the kernel's choice]
    #[arg(long, value_name = "IP,...", value_delimiter = ',')]
    pub(crate) source: Vec<IpAddr>,
    /// Who ends a connection, and how; it changes every figure
    #[arg(long, default_value = "server", value_name = "WHO", value_parser = one_of(CLOSE))]
    pub(crate) close: Close,
    /// Threads
    #[arg(short, long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// CPUs for the threads, in their order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// What drives the sockets: epoll or io_uring [default: io_uring where this kernel has it]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Time for one request, connecting included
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) timeout: Duration,
    /// Print the summary lines that users of ab know
    #[arg(long, conflicts_with = "json")]
    pub(crate) ab: bool,
    /// Write the result as JSON to standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a report to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
