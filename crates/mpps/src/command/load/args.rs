//! Arguments of `mpps load`.

use crate::command::serve::CLOSE;
use crate::program::lines::JsonArgs;
use crate::value::{self, one_of};
use clap::Args;
use mpps_host::CpuList;
use mpps_http::Close;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `mpps load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Request this address: http://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Set the connections in flight
    #[arg(short, long, default_value = "64", value_name = "N", value_parser = value::some)]
    pub(crate) connections: u64,
    /// Start RATE requests per second without waiting for replies (open loop). If all --connections are
    /// busy, a request starts late; its latency counts from the planned start [default: start one when a
    /// reply ends]
    #[arg(long, value_name = "RATE", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// Stop after TIME [default: 10s; no limit with --requests]
    #[arg(short, long, alias = "seconds", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Stop after N requests, summed over all connections
    #[arg(short = 'n', long, value_name = "N", value_parser = value::some)]
    pub(crate) requests: Option<u64>,
    /// Send N requests per connection; without N, until the server closes [default: 1]
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "0",
          require_equals = true, value_parser = value::count)]
    pub(crate) keep_alive: Option<u64>,
    /// Connect from these local addresses in turn; threads share them out [default: the kernel's choice]
    #[arg(long, value_name = "IP,...", value_delimiter = ',')]
    pub(crate) source: Vec<IpAddr>,
    /// Choose the side that closes a connection. Give `mpps serve` the same value; for rst one side is
    /// enough
    #[arg(long, default_value = "server", value_name = "WHO", value_parser = one_of(CLOSE))]
    pub(crate) close: Close,
    /// Set the number of threads
    #[arg(short, long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Pin the threads to these CPUs in order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Use epoll or io_uring for the sockets [default: io_uring if the kernel supports it]
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// Fail a request after TIME, including the connect
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) timeout: Duration,
    /// Print the summary of ab (ApacheBench) instead of the report
    #[arg(long, conflicts_with = "json")]
    pub(crate) ab: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Write a page to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}
