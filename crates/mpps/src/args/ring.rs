//! Arguments about rings over an interface, which `recv` and `send` share.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use mpps_io::{Attach, CopyMode, Property, RingConfig};

/// Arguments about rings over an interface.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Backends that read or write an interface")]
pub(crate) struct RingArgs {
    /// The interface [default: the one that owns the address, or that the route points to]
    #[arg(long, value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// The first queue; each further thread has the next
    #[arg(long, value_name = "N")]
    pub(crate) queue: Option<u32>,
    /// Where the XDP program runs [default: native where the driver can]
    #[arg(long, value_name = "WHERE")]
    pub(crate) xdp: Option<AttachArg>,
    /// Whether the kernel copies packets [default: zero where it can]
    #[arg(long, value_name = "HOW")]
    pub(crate) copy: Option<CopyArg>,
    /// Frames that the ring holds
    #[arg(long, value_name = "FRAMES")]
    pub(crate) ring: Option<u32>,
    /// Keep packets in huge pages
    #[arg(long)]
    pub(crate) hugepages: bool,
    /// Arguments for DPDK's EAL: --dpdk-args "--vdev=net_af_packet0,iface=eth1"
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub(crate) dpdk_args: Option<String>,
    /// Fail unless the kernel grants all of these
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',')]
    pub(crate) require: Vec<RequireArg>,
}

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachArg {
    /// In the driver
    Native,
    /// In the stack: any interface, slower
    Generic,
}

/// Whether the kernel copies packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CopyArg {
    /// It copies
    Copy,
    /// It does not, or it is an error
    Zero,
}

/// What the kernel must have granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequireArg {
    /// Packets are not copied
    Zerocopy,
    /// The XDP program runs in the driver
    Native,
    /// The receiver polls the device itself
    BusyPoll,
    /// The hardware steers the flow to the queue
    Steered,
}

impl RingArgs {
    /// What a backend is opened with.
    pub(crate) fn config(&self) -> RingConfig {
        let words = self.dpdk_args.as_deref().unwrap_or_default();
        RingConfig {
            interface: self.interface.clone(),
            queue: self.queue,
            attach: self.xdp.map(|attach| match attach {
                AttachArg::Native => Attach::Native,
                AttachArg::Generic => Attach::Generic,
            }),
            copy: self.copy.map(|copy| match copy {
                CopyArg::Copy => CopyMode::Copy,
                CopyArg::Zero => CopyMode::ZeroCopy,
            }),
            frames: self.ring,
            hugepages: self.hugepages,
            arguments: words.split_whitespace().map(str::to_owned).collect(),
            ..RingConfig::default()
        }
    }

    /// Refuses what contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        let is_generic = self.xdp == Some(AttachArg::Generic);
        ensure!(
            !is_generic || !self.require.contains(&RequireArg::Zerocopy),
            "--require zerocopy: a program of --xdp generic runs after the kernel has copied the packet; \
             leave one of the two out"
        );
        Ok(())
    }

    /// What the kernel must have granted.
    pub(crate) fn required(&self) -> Vec<Property> {
        let property = |wanted: &RequireArg| match wanted {
            RequireArg::Zerocopy => Property::ZeroCopy,
            RequireArg::Native => Property::Native,
            RequireArg::BusyPoll => Property::BusyPoll,
            RequireArg::Steered => Property::Steered,
        };
        self.require.iter().map(property).collect()
    }
}
