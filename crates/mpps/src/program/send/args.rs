//! Arguments of `mpps send`.

use crate::program::lines::{JSON_LINES, JsonArgs};
use crate::program::ring::{RING_HEADING, RingArgs};
use crate::value;
use clap::Args;
use mpps_host::CpuList;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// The source port where none is given: one flow per target, as the article's sender has it.
pub(crate) const SOURCE_PORT: u16 = 4320;

/// Arguments of `mpps send`.
#[derive(Debug, Args)]
#[command(
    mut_arg("json", |arg| arg.help(JSON_LINES)),
    mut_arg("interface", |arg| arg.help("Send through this interface [default: the interface of the route \
    to ADDR]")),
    mut_arg("queue", |arg| arg.help("af_xdp: use transmit queue N; each further thread uses the next queue \
    [default: 0]")),
    // No sender reads these two; each refuses them.
    mut_arg("xdp", |arg| arg.hide(true)),
    mut_arg("dpdk_args", |arg| arg.hide(true)),
    mut_arg("copy", |arg| arg.help("af_xdp, io_uring: set whether the kernel copies packets [default: zero \
    if the driver can, otherwise copy]")),
    mut_arg("ring", |arg| arg.help("af_xdp, packet_mmap: set the number of packets that the ring holds, \
    any from 1 [default: af_xdp 4096, packet_mmap 2048]")),
    mut_arg("hugepages", |arg| arg.help("af_xdp: keep packets in huge pages. Reserve some first: sysctl \
    vm.nr_hugepages=64")),
    mut_arg("require", |arg| arg.hide_possible_values(true).help("Fail unless the kernel grants WHAT: \
    zerocopy, which is all that a sender can be granted"))
)]
pub(crate) struct SendArgs {
    /// Send to these addresses, one thread each: 192.168.254.1:4321, [fd00::1]:4321 or localhost:4321
    #[arg(required = true, value_name = "ADDR:PORT", value_parser = value::target)]
    pub(crate) targets: Vec<SocketAddr>,
    /// Set the number of threads, spread over the targets [default: one per target]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=127))]
    pub(crate) threads: Option<u16>,
    /// Pin the threads to these CPUs in order: 0,2 or 0-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Set the UDP payload size
    #[arg(long, default_value = "32", value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) size: usize,
    /// Send up to N datagrams per system call, 1 to 1024; with --gso, N buffers of joined datagrams
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub(crate) batch: usize,
    /// Set the hardware address of the next hop [default: from the neighbour table, or by ARP or ND]
    #[arg(long, value_name = "MAC", value_parser = value::mac,
          help_heading = RING_HEADING)]
    pub(crate) target_mac: Option<[u8; 6]>,
    /// Set the first source port; with 0 the kernel chooses
    #[arg(long, default_value_t = SOURCE_PORT, value_name = "PORT")]
    pub(crate) source_port: u16,
    /// Use N source ports per thread, counting up from --source-port over all threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) flows: usize,
    /// Send PPS datagrams per second, summed over all threads [default: as fast as possible]
    #[arg(long, value_name = "PPS", value_parser = value::rate)]
    pub(crate) rate: Option<f64>,
    /// Stop after N datagrams, summed over all threads [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = value::count)]
    pub(crate) count: Option<u64>,
    /// Stop after TIME [default: until Ctrl-C]
    #[arg(long, alias = "seconds", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Send N datagrams as one buffer that the kernel splits (UDP_SEGMENT)
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) gso: u16,
    /// Connect the socket, which saves a route look-up per packet (the default)
    #[arg(long, overrides_with = "no_connect")]
    pub(crate) connect: bool,
    /// Leave the socket unconnected; each system call names the destination
    #[arg(long, overrides_with = "connect")]
    pub(crate) no_connect: bool,
    /// Set the socket send buffer [default: 32M]
    #[arg(long, value_name = "BYTES", value_parser = value::bytes)]
    pub(crate) sndbuf: Option<usize>,
    /// Write flow, sequence number and send time into each payload (16 bytes)
    #[arg(long)]
    pub(crate) stamp: bool,
    /// Start when this host's clock has TIME, in seconds since 1970, to start several senders together:
    /// $(date -d '10 sec' +%s). Ctrl-C ends the wait
    #[arg(long, value_name = "TIME", value_parser = value::unix_time)]
    pub(crate) start_at: Option<SystemTime>,
    /// Write ID into the result: `mpps ledger` joins only files of one run
    #[arg(long, value_name = "ID", requires = "stamp")]
    pub(crate) run: Option<String>,
    /// Write N and the numbers after it into the stamps of the threads; each sender of a run needs its own
    #[arg(long, value_name = "N", default_value_t = 0, requires = "stamp",
          value_parser = clap::value_parser!(u8).range(..=127))]
    pub(crate) sender: u8,
    /// Print each second's line in the units of the 2015 article: Mpps, MiB and Mb
    #[arg(long)]
    pub(crate) article: bool,
    /// Use this send path; `mpps backends` lists them
    #[arg(long, default_value = "sendmmsg", value_name = "NAME")]
    pub(crate) backend: String,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    // Last: its heading reaches over all that follows.
    #[command(flatten)]
    pub(crate) ring: RingArgs,
}
