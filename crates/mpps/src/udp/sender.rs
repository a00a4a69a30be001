//! The sender of a lab: the choice and its reason, its CPUs, and how it is opened.

use super::roles::CpuLayout;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use mpps_io::backend::{self, Support};
use mpps_io::{Tx, TxConfig};
use mpps_lab::{Lab, address, steering};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The sender of a lab that the user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GeneratorChoice {
    /// Use xdp if available, otherwise sendmmsg
    Auto,
    /// The kernel's XDP generator: most packets per second. Needs root and Linux 6.1
    Xdp,
    /// A socket with sendmmsg(2)
    Sendmmsg,
}

/// The sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabSender {
    /// A socket and `sendmmsg`, with trains of this many datagrams. A train is cut before the link.
    Socket { train: u16 },
    /// The kernel's own generator, `xdp`, whose frames no socket counts.
    Generator,
}

impl LabSender {
    /// The backend that sends.
    pub(crate) fn backend(self) -> &'static str {
        match self {
            Self::Socket { .. } => "sendmmsg",
            Self::Generator => "xdp",
        }
    }

    /// Datagrams in a train; none if it has no trains.
    pub(crate) fn train(self) -> Option<u16> {
        match self {
            Self::Socket { train } => Some(train),
            Self::Generator => None,
        }
    }
}

impl fmt::Display for LabSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { train: 1 } => f.write_str("sendmmsg, single datagrams"),
            Self::Socket { train } => write!(f, "sendmmsg, trains of {train}"),
            Self::Generator => f.write_str("xdp"),
        }
    }
}

/// Datagrams in a train of a sending socket, which with them mostly outruns a receiver on a CPU of its
/// own.
pub(crate) const TRAIN: u16 = 4;
/// Datagrams in a train of a socket that is to outrun every path.
pub(crate) const LONG_TRAIN: u16 = 16;
/// The article's port.
pub(crate) const PORT: u16 = 4321;
/// The article's source port, the first of those that are used.
const SOURCE_PORT: u16 = 65_400;
/// The first source port of many flows; all 65 535 of them begin at 1.
const SOURCE_PORT_OF_MANY: u16 = 1024;
/// Large, so that a slow receiver does not slow the sender: in-flight packets stay charged to the
/// sending socket.
pub(crate) const SEND_BUFFER_BYTES: usize = 32 << 20;

/// The traffic of one sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SenderTraffic {
    /// To [`PORT`] of this address.
    pub(crate) target: IpAddr,
    pub(crate) source_port: u16,
    /// Flows, by source port.
    pub(crate) flows: usize,
    pub(crate) payload_bytes: usize,
    /// Datagrams in a train, of a sender that has trains.
    pub(crate) train: u16,
    /// Messages of one call, of a socket.
    pub(crate) batch: usize,
}

/// The source port of the nth of `all` flows.
pub(crate) fn source_port(all: usize, nth: usize) -> Result<u16> {
    let firsts = [SOURCE_PORT, SOURCE_PORT_OF_MANY].map(usize::from);
    let first = firsts.into_iter().find(|first| first + all <= 65_536);
    let port = u16::try_from(first.unwrap_or(1) + nth);
    port.with_context(|| format!("--flows: too few source ports for {all} flows; lower it"))
}

/// Opens a sender inside the sending host.
pub(crate) fn open(lab: &Lab, backend: &str, feed: &SenderTraffic) -> Result<Box<dyn Tx>> {
    let backend = backend::find(backend)?;
    let any: IpAddr = match feed.target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut config = TxConfig {
        source: Some(SocketAddr::new(any, feed.source_port)),
        flows: feed.flows,
        payload_bytes: feed.payload_bytes,
        ..TxConfig::new(SocketAddr::new(feed.target, PORT))
    };
    if backend.tx_fields.contains(&"send_buffer_bytes") {
        config.send_buffer_bytes = Some(SEND_BUFFER_BYTES);
        config.gso_segments = feed.train;
        config.batch = feed.batch;
    }
    let opened = lab.sender().run(|| backend.open_tx(&config))?;
    opened.with_context(|| format!("cannot send by {}", backend.name))
}

impl LabSender {
    /// The CPUs of the threads that send to these addresses, one each.
    ///
    /// A socket's packets take the queue of their address from any CPU. A generated frame takes the
    /// queue of the number of the CPU that it is made on, modulo the queues (`veth_select_rxq` in
    /// drivers/net/veth.c), so that not every rung can have a generator.
    pub(crate) fn cpus(self, layout: &CpuLayout, targets: &[u8]) -> Result<Vec<usize>, String> {
        let senders = &layout.senders;
        match self {
            Self::Socket { .. } => {
                let cpus = senders.iter().copied().cycle();
                Ok(cpus.take(targets.len()).collect())
            }
            Self::Generator => {
                let mut cpus = Vec::new();
                for target in targets {
                    let queue = steering::queue(address::v4(*target).into(), layout.queue_count());
                    let found = layout.sender_for(queue, &cpus).ok_or_else(|| {
                        format!(
                            "a generated frame takes the queue of its CPU's number, and no CPU of \
                             the senders reaches queue {queue}; sockets do (--generator sendmmsg)"
                        )
                    })?;
                    cpus.push(found);
                }
                Ok(cpus)
            }
        }
    }
}

/// The sender of every run, except those about another sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SenderChoice {
    pub(crate) sender: LabSender,
    /// True if a user asked for it.
    pub(crate) asked: bool,
    /// Why there is no generator, if one was looked for.
    pub(crate) missing: Option<String>,
    has_generator: bool,
}

impl SenderChoice {
    /// Follows the options. If they name no sender, it is the kernel's generator if this machine
    /// has it, and a sending socket with trains of `usual` otherwise. `--train` by itself asks for a
    /// socket.
    pub(crate) fn new(
        asked: Option<GeneratorChoice>,
        train: Option<u16>,
        usual: u16,
    ) -> Result<Self> {
        let probe = || Ok((backend::find(LabSender::Generator.backend())?.probe)());
        Self::with(asked, train, usual, probe)
    }

    /// Whether these options go together, whatever this machine has.
    pub(crate) fn fits(asked: Option<GeneratorChoice>, train: Option<u16>) -> Result<()> {
        ensure!(
            asked != Some(GeneratorChoice::Xdp) || train.is_none(),
            "--train: the generator (--generator xdp) sends no trains; leave one of them out"
        );
        Ok(())
    }

    pub(crate) fn with(
        asked: Option<GeneratorChoice>,
        train: Option<u16>,
        usual: u16,
        probe: impl FnOnce() -> Result<Support>,
    ) -> Result<Self> {
        Self::fits(asked, train)?;
        let socket = LabSender::Socket {
            train: train.unwrap_or(usual),
        };
        let (sender, missing) = match (asked, train) {
            (Some(GeneratorChoice::Sendmmsg), _) | (None, Some(_)) => (socket, None),
            (Some(GeneratorChoice::Xdp), _) => match probe()? {
                Support::Yes => (LabSender::Generator, None),
                Support::No { why, remedy } => bail!("--generator xdp: {why}; {remedy}"),
            },
            (None | Some(GeneratorChoice::Auto), _) => match probe()? {
                Support::Yes => (LabSender::Generator, None),
                Support::No { why, .. } => (socket, Some(why)),
            },
        };
        Ok(Self {
            sender,
            asked: !matches!(
                (asked, train),
                (None, None) | (Some(GeneratorChoice::Auto), _)
            ),
            missing,
            has_generator: sender == LabSender::Generator,
        })
    }

    /// Replaces the default generator by a socket if it does not reach the first queue, which most
    /// rungs use. A generator that the user asked for stays.
    pub(crate) fn reaching(self, layout: &CpuLayout) -> Self {
        match self.otherwise() {
            Some(sender) if layout.sender_for(0, &[]).is_none() => Self {
                sender,
                missing: Some("no CPU of the senders has the number of the first queue".to_owned()),
                ..self
            },
            _ => self,
        }
    }

    /// The sender if this one does not reach the queues; none if the user asked for this one.
    pub(crate) fn otherwise(&self) -> Option<LabSender> {
        let is_free = !self.asked && self.sender == LabSender::Generator;
        is_free.then_some(LabSender::Socket { train: TRAIN })
    }

    /// The sender that offers the most.
    pub(crate) fn strongest(&self) -> LabSender {
        match (self.asked, self.has_generator) {
            (true, _) => self.sender,
            (false, true) => LabSender::Generator,
            (false, false) => LabSender::Socket { train: LONG_TRAIN },
        }
    }

    /// Why a rung has this sender.
    pub(crate) fn why(&self, sender: LabSender) -> &'static str {
        match self.asked {
            _ if sender != self.sender => "the generator does not reach the queues",
            true => "as asked",
            false => "the usual one",
        }
    }

    /// The sender, in one line.
    pub(crate) fn sentence(&self) -> String {
        let name = match self.sender {
            LabSender::Generator => "xdp, the kernel's generator".to_owned(),
            socket => socket.to_string(),
        };
        let asked = if self.asked { " (as asked)" } else { "" };
        let missing = self.missing.as_ref();
        let missing = missing.map_or(String::new(), |why| format!("; no xdp generator: {why}"));
        format!("{name}{asked}{missing}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::{two_by_four_by_two, two_cpus};
    use mpps_trial::mentions;

    fn choice(asked: Option<GeneratorChoice>, train: Option<u16>) -> SenderChoice {
        SenderChoice::with(asked, train, TRAIN, || Ok(Support::Yes)).unwrap()
    }

    #[test]
    fn the_generator_sends_where_there_is_one_and_a_socket_otherwise() {
        let auto = choice(None, None);
        let fours = LabSender::Socket { train: 4 };
        assert_eq!((auto.sender, auto.asked), (LabSender::Generator, false));
        assert_eq!(auto.otherwise(), Some(fours));
        let none = || {
            Ok(Support::No {
                why: "no root".to_owned(),
                remedy: "become root".to_owned(),
            })
        };
        let without = SenderChoice::with(None, None, TRAIN, none).unwrap();
        assert_eq!((without.sender, without.otherwise()), (fours, None));
        assert!(without.sentence().ends_with("no xdp generator: no root"));
        let error = SenderChoice::with(Some(GeneratorChoice::Xdp), None, TRAIN, none).unwrap_err();
        assert_eq!(error.to_string(), "--generator xdp: no root; become root");
    }

    #[test]
    fn a_wish_is_kept() {
        use GeneratorChoice::{Auto, Sendmmsg, Xdp};
        let asked = |asked, train| choice(asked, train).asked;
        assert!(asked(None, Some(1)) && asked(Some(Sendmmsg), None));
        assert!(asked(Some(Xdp), None) && !asked(Some(Auto), Some(1)));
        assert_eq!(choice(None, Some(1)).sender, LabSender::Socket { train: 1 });
        assert_eq!(choice(Some(Xdp), None).otherwise(), None);
        let error = SenderChoice::new(Some(Xdp), Some(4), TRAIN)
            .unwrap_err()
            .to_string();
        mentions(&error, "--train | --generator xdp");
    }

    #[test]
    fn a_generator_sends_from_the_cpu_of_the_queues_number() {
        let mut layout = two_cpus();
        let cpus = |layout: &CpuLayout, targets: &[u8]| LabSender::Generator.cpus(layout, targets);
        assert_eq!(cpus(&layout, &[1, 1]), Ok(vec![0, 0]));
        let why = cpus(&layout, &[1, 2]).unwrap_err();
        assert!(why.contains("queue 1"), "{why}");
        layout.senders = vec![8, 4, 9, 10, 11];
        assert_eq!(cpus(&layout, &[1, 2, 3, 4]), Ok(vec![8, 9, 10, 11]));
        assert_eq!(cpus(&layout, &[1, 1, 1]), Ok(vec![8, 4, 8]));
        // A core's other hyper-thread reaches what the senders' own numbers do not.
        let layout = CpuLayout::new(two_by_four_by_two(), None);
        assert_eq!(layout.senders, [8, 10, 12, 14]);
        assert_eq!(cpus(&layout, &[1, 2, 3, 4]), Ok(vec![8, 13, 10, 15]));
        let socket = LabSender::Socket { train: 4 };
        assert_eq!(socket.cpus(&two_cpus(), &[1, 2]), Ok(vec![0, 0]));
    }
}
