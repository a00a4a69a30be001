//! Arguments of `mpps send`.

use crate::program::ring::RingArgs;
use crate::value;
use clap::Args;
use mpps_host::CpuList;
use std::net::SocketAddr;
use std::time::Duration;

/// The source port where none is given: one flow per target, as the article's sender has it.
pub(crate) const SOURCE_PORT: u16 = 4320;

/// Arguments of `mpps send`.
#[derive(Debug, Args)]
#[command(
    after_help = "One thread sends to each target. Prints its rate each second and totals at \
    the end; Ctrl-C ends it. Rates take k, M, G (thousands), byte counts k, M, G (1024s), times s, \
    ms, m."
)]
pub(crate) struct SendArgs {
    /// Where to send, one thread each: 192.168.254.1:4321 or [fd00::1]:4321
    #[arg(required = true, value_name = "ADDR:PORT", value_parser = value::address)]
    pub(crate) targets: Vec<SocketAddr>,
    /// Threads, dealt out over the targets [default: one per target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=127))]
    pub(crate) threads: Option<u16>,
    /// CPUs for the threads, in their order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// UDP payload in bytes
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) size: usize,
    /// Datagrams (with --gso: trains) per system call, 1 to 1024
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    /// Hardware address of the next hop [default: the neighbour table's, or
    /// what the neighbour answers]
    #[arg(long, value_name = "MAC", value_parser = value::mac,
          help_heading = "Backends that read or write an interface")]
    pub(crate) target_mac: Option<[u8; 6]>,
    /// First source port; 0 lets the kernel choose
    #[arg(long, default_value_t = SOURCE_PORT, value_name = "PORT")]
    pub(crate) source_port: u16,
    /// Source ports per thread, one flow each, taken in turn
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) flows: usize,
    /// Datagrams per second, all threads together [default: as fast as possible]
    #[arg(long, value_name = "PPS", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// Datagrams to offer, all threads together [default: until stopped]
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) count: Option<u64>,
    /// How long to send [default: until stopped]
    #[arg(long, value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Datagrams per train that the kernel cuts (UDP_SEGMENT)
    #[arg(long, default_value_t = 1, value_name = "SEGMENTS")]
    pub(crate) gso: u16,
    /// Fix the peer with connect(2), which saves a route look-up per packet (the default)
    #[arg(long, overrides_with = "no_connect")]
    pub(crate) connect: bool,
    /// Name the peer in each packet instead
    #[arg(long, overrides_with = "connect")]
    pub(crate) no_connect: bool,
    /// Socket send buffer; large, so that a slow receiver does not slow the sender [default: 32M]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) sndbuf: Option<usize>,
    /// Write a 16-byte header (flow, sequence number, send time) into each payload
    #[arg(long)]
    pub(crate) stamp: bool,
    /// How to send; see `mpps backends`
    #[arg(long, default_value = "sendmmsg", value_name = "NAME")]
    pub(crate) backend: String,
    /// Write one JSON object per second, and one with the totals, to standard output
    #[arg(long)]
    pub(crate) json: bool,
}
