//! Arguments about rings over an interface, which `recv` and `send` share.

use crate::value::{Named, one_of};
use anyhow::{Result, ensure};
use clap::Args;
use mpps_io::{Attach, CopyMode, Property, RingConfig};

/// The heading of the options that only rings over an interface have.
pub(crate) const RING_HEADING: &str = "Backends on an interface (recv: af_xdp, packet_mmap, dpdk, pcap; \
                                       send: af_xdp, packet_mmap, xdp)";

/// Arguments about rings over an interface.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = RING_HEADING)]
pub(crate) struct RingArgs {
    /// Receive on this interface [default: the interface that has ADDR; required with 0.0.0.0, where only
    /// packet_mmap can use all interfaces]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// af_xdp: read receive queue N; each further thread reads the next queue [default: 0, or a free one
    /// for --queue-carve-out]
    #[arg(long, value_name = "N")]
    pub(crate) queue: Option<u32>,
    /// af_xdp: set where the XDP program runs [default: native if the driver can, otherwise generic]
    #[arg(long, value_name = "WHERE", value_parser = one_of(XDP))]
    pub(crate) xdp: Option<Attach>,
    /// af_xdp: set whether the kernel copies packets [default: zero if the driver can, otherwise copy]
    #[arg(long, value_name = "HOW", value_parser = one_of(COPY))]
    pub(crate) copy: Option<CopyMode>,
    /// Set the number of packets that the backend's ring holds, any from 1 [default: 4096; pcap 8192;
    /// io_uring up to 1024; dpdk on a card: the driver's]
    #[arg(long, value_name = "FRAMES")]
    pub(crate) ring: Option<u32>,
    /// af_xdp, dpdk: keep packets in huge pages. Reserve some first: sysctl vm.nr_hugepages=64
    #[arg(long)]
    pub(crate) hugepages: bool,
    /// Pass arguments to DPDK's EAL: --dpdk-args "--vdev=net_af_packet0,iface=eth1"
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub(crate) dpdk_args: Option<String>,
    /// Fail unless all of WHAT is granted
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',', value_parser = one_of(REQUIRE))]
    pub(crate) require: Vec<Property>,
}

const XDP: &[Named<Attach>] = &[
    ("native", "In the driver", Attach::Native),
    (
        "generic",
        "In the network stack; any interface, slower",
        Attach::Generic,
    ),
];

const COPY: &[Named<CopyMode>] = &[
    ("copy", "Copy packets", CopyMode::Copy),
    (
        "zero",
        "Require zero-copy; fail otherwise",
        CopyMode::ZeroCopy,
    ),
];

const REQUIRE: &[Named<Property>] = &[
    ("zerocopy", "Packets are not copied", Property::ZeroCopy),
    (
        "native",
        "The XDP program runs in the driver",
        Property::Native,
    ),
    (
        "busy-poll",
        "The receiving thread polls the device: --busy-poll, or dpdk on a card",
        Property::BusyPoll,
    ),
    (
        "steered",
        "A queue is reserved, by --queue-carve-out",
        Property::Steered,
    ),
];

impl RingArgs {
    /// The configuration of the backend.
    pub(crate) fn config(&self) -> RingConfig {
        let words = self.dpdk_args.as_deref().unwrap_or_default();
        RingConfig {
            interface: self.interface.clone(),
            queue: self.queue,
            attach: self.xdp,
            copy: self.copy,
            frames: self.ring,
            hugepages: self.hugepages,
            arguments: words.split_whitespace().map(str::to_owned).collect(),
            ..RingConfig::default()
        }
    }

    /// Refuses what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        let is_generic = self.xdp == Some(Attach::Generic);
        ensure!(
            !is_generic || !self.require.contains(&Property::ZeroCopy),
            "--require zerocopy: a program of --xdp generic runs after the kernel has copied the packet; \
             leave one of the two out"
        );
        Ok(())
    }
}
