//! The rows of the comparison: which path, opened how, and who polls the queue.

use crate::udp::TakenBy;
use anyhow::{Result, bail, ensure};
use mpps_io::{Attach, Layer, RxConfig, Wait, backend};
use mpps_lab::EarlyDrop;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Where NAPI runs: which CPU takes packets from the receive ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Napi {
    /// On the CPU that also generates the traffic, in its soft interrupts: the application has its
    /// CPU to itself.
    WithGenerator,
    /// On the same CPU in a thread of its own, whose time the scheduler knows. It competes with the
    /// generator, so this is for CPU time and not for rates.
    Metered,
    /// On the application's CPU, in a thread: they share it, as on a machine with one CPU per queue.
    WithApplication,
}

/// One way to receive, as the comparison runs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// The name in the result.
    pub(crate) name: &'static str,
    /// Which way of it, in few words; empty for the plain one.
    pub(crate) variant: &'static str,
    /// True if others are measured against it.
    pub(crate) reference: bool,
    /// Whether it also runs with NAPI on the application's CPU.
    pub(crate) shares_cpu: bool,
    pub(crate) takes: Takes,
}

/// What takes the packets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    /// A backend, configured, waiting in its way.
    Backend {
        configure: fn(&mut RxConfig),
        wait: Wait,
    },
    /// A rule that drops and counts them.
    Rule(EarlyDrop),
}

/// How long a receiver waits before it looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(100);
const BLOCK: Wait = Wait::Block(PATIENCE);
const SPIN: Wait = Wait::Spin(PATIENCE);
const EPOLL: Wait = Wait::Epoll(PATIENCE);
/// Microseconds that a busy-polling receiver polls for in one go: the figure of the kernel's
/// documentation of `net.core.busy_read`.
const BUSY_POLL_US: u32 = 50;

const fn receive(
    name: &'static str,
    variant: &'static str,
    wait: Wait,
    configure: fn(&mut RxConfig),
) -> Path {
    Path {
        name,
        variant,
        reference: false,
        shares_cpu: false,
        takes: Takes::Backend { configure, wait },
    }
}

const fn rule(name: &'static str, variant: &'static str, rule: EarlyDrop) -> Path {
    Path {
        takes: Takes::Rule(rule),
        ..receive(name, variant, BLOCK, plain)
    }
}

impl Path {
    const fn reference(mut self) -> Self {
        self.reference = true;
        self
    }

    const fn shared(mut self) -> Self {
        self.shares_cpu = true;
        self
    }
}

fn plain(_: &mut RxConfig) {}

fn gro(config: &mut RxConfig) {
    *config = config.clone().with_gro();
}

fn busy_poll(config: &mut RxConfig) {
    config.busy_poll_us = Some(BUSY_POLL_US);
}

fn take(config: &mut RxConfig) {
    config.ring.take = true;
}

fn generic(config: &mut RxConfig) {
    config.ring.attach = Some(Attach::Generic);
}

/// Every row, slowest kind first.
pub(crate) const PATHS: &[Path] = &[
    receive("recv", "", BLOCK, plain).reference().shared(),
    receive("recvmmsg", "", BLOCK, plain).reference().shared(),
    receive("recvmmsg", "epoll", EPOLL, plain),
    receive("recvmmsg", "spin", SPIN, plain),
    receive("recvmmsg", "busy poll", BLOCK, busy_poll).shared(),
    receive("recvmmsg", "GRO", BLOCK, gro),
    receive("io_uring", "", BLOCK, plain).shared(),
    receive("io_uring", "GRO", BLOCK, gro),
    receive("packet_mmap", "tap", BLOCK, plain),
    receive("packet_mmap", "take", BLOCK, take).shared(),
    receive("pcap", "", BLOCK, plain),
    receive("dpdk", "", SPIN, plain),
    receive("af_xdp", "generic", BLOCK, generic),
    receive("af_xdp", "poll", BLOCK, plain).shared(),
    receive("af_xdp", "spin", SPIN, plain).shared(),
    receive("af_xdp", "busy poll", BLOCK, busy_poll).shared(),
    rule("iptables_raw_drop", "", EarlyDrop::IptablesRaw),
    rule("nft_raw_drop", "", EarlyDrop::NftRaw),
    rule("nft_ingress_drop", "", EarlyDrop::NftIngress),
    rule("xdp_drop", "packet parsed", EarlyDrop::XdpParsed),
    rule("xdp_drop", "packet read", EarlyDrop::XdpRead),
    rule("xdp_drop", "packet untouched", EarlyDrop::XdpUntouched)
        .reference()
        .shared(),
];

impl Path {
    /// The rows of these names, all of them if there are none; `option` is where they were named.
    ///
    /// # Errors
    /// If there is no such path.
    pub(crate) fn named(names: &[String], option: &str) -> Result<Vec<Self>> {
        for wanted in names {
            ensure!(
                PATHS.iter().any(|path| path.is_called(wanted.trim())),
                "{option} {wanted}: no such path; `mpps bench --list` names them"
            );
        }
        let is_wanted = |path: &&Self| names.iter().any(|one| path.is_called(one.trim()));
        let keep = |path: &&Self| names.is_empty() || is_wanted(path);
        Ok(PATHS.iter().filter(keep).copied().collect())
    }

    /// True if nobody receives: a rule drops and counts the packets.
    pub(crate) fn is_rule(&self) -> bool {
        matches!(self.takes, Takes::Rule(_))
    }

    /// What takes the packets: a ring has frames, a socket has payloads.
    pub(crate) fn taken_by(&self) -> TakenBy {
        let layer = |name| backend::find(name).map(|backend| backend.layer);
        match self.takes {
            Takes::Rule(_) => TakenBy::Rule,
            Takes::Backend { .. } if layer(self.name).is_ok_and(|layer| layer == Layer::Frame) => {
                TakenBy::Ring
            }
            Takes::Backend { .. } => TakenBy::Socket,
        }
    }

    /// How its receiver is opened at this address.
    ///
    /// # Errors
    /// If it is a rule, which receives nothing.
    pub(crate) fn config(&self, address: SocketAddr) -> Result<RxConfig> {
        let Takes::Backend { configure, .. } = self.takes else {
            bail!("{}: a rule receives nothing", self.name);
        };
        let mut config = RxConfig::new(address);
        configure(&mut config);
        Ok(config)
    }

    /// True if a rule drops the packets in the driver.
    pub(crate) fn is_in_driver(&self) -> bool {
        use EarlyDrop::{XdpParsed, XdpRead, XdpUntouched};
        matches!(self.takes, Takes::Rule(XdpParsed | XdpRead | XdpUntouched))
    }

    /// True if the receiver asks again and again.
    pub(crate) fn spins(&self) -> bool {
        matches!(
            self.takes,
            Takes::Backend {
                wait: Wait::Spin(_),
                ..
            }
        )
    }

    /// True if the receiver polls the queue itself, on its own CPU.
    pub(crate) fn polls_itself(&self) -> bool {
        let config = self.config((Ipv4Addr::UNSPECIFIED, 0).into());
        config.is_ok_and(|config| config.busy_poll_us.is_some())
    }

    /// True if a user means this row: `af_xdp` are all rows of that path, `af_xdp/busy-poll` is one.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        wanted == self.name || wanted == self.key()
    }

    /// How a user writes this row: `af_xdp/busy-poll`.
    pub(crate) fn key(&self) -> String {
        match self.variant {
            "" => self.name.to_owned(),
            variant => format!("{}/{}", self.name, variant.to_lowercase().replace(' ', "-")),
        }
    }

    /// True if the kernel is to leave the queue to the receiver. A socket that busy polls without
    /// being preferred gets nothing from a queue that is left to it.
    pub(crate) fn is_preferred(&self) -> bool {
        self.polls_itself() && self.taken_by() == TakenBy::Ring
    }
}

/// `af_xdp, busy poll`.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variant {
            "" => f.write_str(self.name),
            variant => write!(f, "{}, {variant}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_does_follows_from_its_plan() {
        let keys = |does: fn(&Path) -> bool| {
            let rows = PATHS.iter().filter(|path| does(path));
            rows.map(Path::key).collect::<Vec<_>>()
        };
        assert_eq!(keys(Path::spins), ["recvmmsg/spin", "dpdk", "af_xdp/spin"]);
        assert_eq!(
            keys(Path::polls_itself),
            ["recvmmsg/busy-poll", "af_xdp/busy-poll"]
        );
        assert_eq!(keys(Path::is_preferred), ["af_xdp/busy-poll"]);
        assert_eq!(keys(|path| path.taken_by() == TakenBy::Rule).len(), 6);
        let sockets = PATHS
            .iter()
            .filter(|path| path.taken_by() == TakenBy::Socket);
        let mut sockets: Vec<_> = sockets.map(|path| path.name).collect();
        sockets.dedup();
        assert_eq!(sockets, ["recv", "recvmmsg", "io_uring"]);
        assert_eq!(keys(Path::is_in_driver).len(), 3);
    }
}
