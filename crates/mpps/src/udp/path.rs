//! The ways to receive: which backend or rule, opened how, and who polls the queue.

use crate::value;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_io::backend::{self, Support};
use mpps_io::{Attach, Layer, Rx, RxConfig, Wait};
use mpps_lab::EarlyDrop;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// One way to receive.
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
    pub(crate) takes: PathTaker,
    /// Frames of its ring, if a user fixed them.
    frames: Option<u32>,
}

/// The kind of receiver of a run's packets: sockets, a ring or a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TakenBy {
    /// Sockets.
    #[default]
    Socket,
    /// A ring that a program shares with the kernel.
    Ring,
    /// A rule that drops and counts them. No program receives. The rate is the ceiling for all
    /// programs that could.
    Rule,
}

impl TakenBy {
    /// True if sockets do.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands fields over by reference"
    )]
    pub(crate) fn is_socket(&self) -> bool {
        *self == Self::Socket
    }
}

/// The options that apply to every row.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Fixed {
    /// Set how to wait for packets, for variants without a method in their name (af_xdp/spin has one)
    /// [default: auto]
    #[arg(long, value_name = "HOW", value_parser = value::one_of(value::WAIT))]
    wait: Option<Wait>,
    /// Set the number of frames per ring, or of buffers of io_uring [default: set by each backend]
    #[arg(long, value_name = "FRAMES")]
    ring: Option<u32>,
}

/// The backend or the rule that takes the packets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PathTaker {
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
const AUTO: Wait = Wait::Auto(PATIENCE);
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
        takes: PathTaker::Backend { configure, wait },
        frames: None,
    }
}

const fn rule(name: &'static str, variant: &'static str, rule: EarlyDrop) -> Path {
    Path {
        takes: PathTaker::Rule(rule),
        ..receive(name, variant, AUTO, plain)
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

/// A socket that sleeps, as the article's.
pub(crate) const SOCKET: Path = receive("recvmmsg", "block", BLOCK, plain);
/// The same, with trains.
pub(crate) const TRAINS: Path = receive("recvmmsg", "GRO", BLOCK, gro);
/// The same, that polls its queue.
pub(crate) const BUSY_POLLING: Path = receive("recvmmsg", "busy poll", BLOCK, busy_poll).shared();

/// Every row, slowest kind first.
pub(crate) const PATHS: &[Path] = &[
    receive("recv", "", AUTO, plain).reference().shared(),
    receive("recvmmsg", "", AUTO, plain).reference().shared(),
    SOCKET,
    receive("recvmmsg", "epoll", EPOLL, plain),
    receive("recvmmsg", "spin", SPIN, plain),
    BUSY_POLLING,
    receive("recvmmsg", "GRO", AUTO, gro),
    receive("io_uring", "", AUTO, plain).shared(),
    receive("io_uring", "GRO", AUTO, gro),
    receive("packet_mmap", "tap", AUTO, plain),
    receive("packet_mmap", "take", AUTO, take).shared(),
    receive("pcap", "", AUTO, plain),
    receive("dpdk", "", SPIN, plain),
    receive("af_xdp", "generic", AUTO, generic),
    receive("af_xdp", "auto", AUTO, plain).shared(),
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
    pub(crate) fn named(names: &[String], option: &str, fixed: Fixed) -> Result<Vec<Self>> {
        for wanted in names {
            ensure!(
                PATHS.iter().any(|path| path.is_called(wanted.trim())),
                "{option} {wanted}: no such path; `mpps bench --list` names them"
            );
        }
        let is_wanted = |path: &&Self| names.iter().any(|one| path.is_called(one.trim()));
        let keep = |path: &&Self| names.is_empty() || is_wanted(path);
        let mut paths: Vec<Self> = PATHS.iter().filter(keep).copied().collect();
        if let Some(how) = fixed.wait {
            let waits = paths.iter_mut().filter_map(Self::adapts);
            let waits: Vec<&mut Wait> = waits.collect();
            ensure!(
                !waits.is_empty(),
                "--wait {}: the rows that {option} names have each its own way of waiting",
                how.name()
            );
            waits.into_iter().for_each(|wait| *wait = how);
        }
        if let Some(frames) = fixed.ring {
            let rings = paths.iter_mut().filter(|path| path.honours("ring.frames"));
            let rings: Vec<&mut Self> = rings.collect();
            ensure!(
                !rings.is_empty(),
                "--ring {frames}: no row that {option} names has a ring; io_uring, packet_mmap and \
                 af_xdp do"
            );
            rings
                .into_iter()
                .for_each(|path| path.frames = Some(frames));
        }
        Ok(paths)
    }

    /// How it waits, if that is by what comes.
    fn adapts(&mut self) -> Option<&mut Wait> {
        match &mut self.takes {
            PathTaker::Backend { wait, .. }
                if matches!(wait, Wait::Auto(_)) && self.variant != "auto" =>
            {
                Some(wait)
            }
            _ => None,
        }
    }

    /// True if its backend honours the field.
    fn honours(&self, field: &str) -> bool {
        let backend = backend::find(self.name);
        !self.is_rule() && backend.is_ok_and(|backend| backend.rx_fields.contains(&field))
    }

    /// True if no program receives: a rule drops and counts the packets.
    pub(crate) fn is_rule(&self) -> bool {
        matches!(self.takes, PathTaker::Rule(_))
    }

    /// Whether sockets, a ring or a rule take the packets. A ring has frames, a socket has
    /// payloads.
    pub(crate) fn taken_by(&self) -> TakenBy {
        let layer = |name| backend::find(name).map(|backend| backend.layer);
        match self.takes {
            PathTaker::Rule(_) => TakenBy::Rule,
            PathTaker::Backend { .. }
                if layer(self.name).is_ok_and(|layer| layer == Layer::Frame) =>
            {
                TakenBy::Ring
            }
            PathTaker::Backend { .. } => TakenBy::Socket,
        }
    }

    /// How its receiver is opened at this address.
    pub(crate) fn config(&self, address: SocketAddr) -> Result<RxConfig> {
        let PathTaker::Backend { configure, .. } = self.takes else {
            bail!("{}: a rule receives nothing", self.name);
        };
        let mut config = RxConfig::new(address);
        configure(&mut config);
        config.ring.frames = self.frames;
        Ok(config)
    }

    /// Whether this process has the backend.
    ///
    /// # Errors
    /// Why not, and what would help.
    pub(crate) fn probe(&self) -> Result<()> {
        match (backend::find(self.name)?.probe)() {
            Support::Yes => Ok(()),
            Support::No { why, remedy } => bail!("{why}; {remedy}"),
        }
    }

    /// Opens its receiver with this configuration.
    pub(crate) fn open(&self, config: &RxConfig) -> Result<Box<dyn Rx>> {
        let opened = backend::find(self.name)?.open_rx(config);
        opened.with_context(|| format!("cannot receive by {}", self.name))
    }

    /// True if a rule drops the packets in the driver.
    pub(crate) fn is_in_driver(&self) -> bool {
        use EarlyDrop::{XdpParsed, XdpRead, XdpUntouched};
        matches!(
            self.takes,
            PathTaker::Rule(XdpParsed | XdpRead | XdpUntouched)
        )
    }

    /// True if the receiver asks again and again.
    pub(crate) fn spins(&self) -> bool {
        matches!(
            self.takes,
            PathTaker::Backend {
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

    #[test]
    fn what_is_fixed_holds_for_the_rows_that_have_it() {
        let named = |names: &[&str], fixed| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Path::named(&names, "--only", fixed).map_err(|error| error.to_string())
        };
        let fixed = Fixed {
            wait: Some(BLOCK),
            ring: Some(512),
        };
        let address = (Ipv4Addr::LOCALHOST, 1).into();
        let mut said = Vec::new();
        for path in named(&["recvmmsg", "af_xdp", "xdp_drop"], fixed).unwrap() {
            let PathTaker::Backend { wait, .. } = path.takes else {
                continue;
            };
            let frames = path.config(address).unwrap().ring.frames;
            said.push(format!("{} {} {frames:?}", path.key(), wait.name()));
        }
        let expected = [
            "recvmmsg block None",
            "recvmmsg/block block None",
            "recvmmsg/epoll epoll None",
            "recvmmsg/spin spin None",
            "recvmmsg/busy-poll block None",
            "recvmmsg/gro block None",
            "af_xdp/generic block Some(512)",
            "af_xdp/auto auto Some(512)",
            "af_xdp/poll block Some(512)",
            "af_xdp/spin spin Some(512)",
            "af_xdp/busy-poll block Some(512)",
        ];
        assert_eq!(said, expected);
        let refused = named(&["recvmmsg/spin"], fixed).unwrap_err();
        assert!(refused.contains("--wait block"), "{refused}");
        let (wait, ring) = (None, Some(7));
        let refused = named(&["recvmmsg", "xdp_drop"], Fixed { wait, ring }).unwrap_err();
        assert!(refused.contains("--ring 7"), "{refused}");
    }
}
