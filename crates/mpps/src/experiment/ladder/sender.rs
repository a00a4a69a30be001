//! The sender of the ladder, and whether it was fast enough.

use super::result::RungSender;
use crate::udp::limit::OUTRUN_MIN;
use crate::udp::roles::{CpuLayout, QUEUES};
use crate::udp::sender::{GeneratorChoice, LabSender, TRAIN};
use anyhow::{Result, bail, ensure};
use mpps_host::{Ledger, Station};
use mpps_io::backend::{self, Support};
use mpps_lab::{address, steering};

impl LabSender {
    /// The CPUs of the threads that send to these addresses, one each.
    ///
    /// A socket's packets take the queue of their address from any CPU. A generated frame takes the
    /// queue of the number of the CPU that it is made on, modulo the queues (`veth_select_rxq` in
    /// drivers/net/veth.c), so that not every rung can have a generator.
    pub(super) fn cpus(self, layout: &CpuLayout, targets: &[u8]) -> Result<Vec<usize>, String> {
        let senders = &layout.senders;
        match self {
            Self::Socket { .. } => {
                let cpus = senders.iter().copied().cycle();
                Ok(cpus.take(targets.len()).collect())
            }
            Self::Generator => {
                let mut cpus = Vec::new();
                for target in targets {
                    let queue = steering::queue(address::v4(*target).into(), QUEUES);
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

/// The sender of every rung, except those about another sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SenderChoice {
    pub(crate) sender: LabSender,
    /// True if a user asked for it.
    pub(crate) asked: bool,
    /// Why there is no generator, if one was looked for.
    missing: Option<String>,
}

impl SenderChoice {
    /// Follows the options. If they name no sender, it is the kernel's generator if this machine
    /// has it, and a sending socket otherwise. `--train` by itself asks for a socket.
    ///
    /// # Errors
    /// If the user asked for a generator that is missing, or that should send trains.
    pub(crate) fn new(asked: Option<GeneratorChoice>, train: Option<u16>) -> Result<Self> {
        let probe = || Ok((backend::find(LabSender::Generator.backend())?.probe)());
        Self::with(asked, train, probe)
    }

    /// Whether these options go together, whatever this machine has.
    ///
    /// # Errors
    /// If they do not.
    pub(crate) fn fits(asked: Option<GeneratorChoice>, train: Option<u16>) -> Result<()> {
        ensure!(
            asked != Some(GeneratorChoice::Xdp) || train.is_none(),
            "--train: the generator (--generator xdp) sends no trains; leave one of them out"
        );
        Ok(())
    }

    fn with(
        asked: Option<GeneratorChoice>,
        train: Option<u16>,
        probe: impl FnOnce() -> Result<Support>,
    ) -> Result<Self> {
        Self::fits(asked, train)?;
        let socket = LabSender::Socket {
            train: train.unwrap_or(TRAIN),
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
        })
    }

    /// Replaces the default generator by a socket if it does not reach the first queue, which most
    /// rungs use. A generator that the user asked for stays.
    pub(super) fn reaching(self, layout: &CpuLayout) -> Self {
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
    pub(super) fn otherwise(&self) -> Option<LabSender> {
        let is_free = !self.asked && self.sender == LabSender::Generator;
        is_free.then_some(LabSender::Socket { train: TRAIN })
    }

    /// Why a rung has this sender.
    pub(super) fn why(&self, sender: LabSender) -> &'static str {
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

/// Datagrams offered for each one received, over these runs; none if none was received. Datagrams
/// that the sender's host refused were not offered.
pub(super) fn offered_per_received<'a>(
    ledgers: impl IntoIterator<Item = &'a Ledger>,
) -> Option<f64> {
    let (mut sent, mut received) = (0.0, 0.0);
    for ledger in ledgers {
        let refused = ledger.losses.iter();
        let refused = refused.filter(|loss| loss.station == Station::Sender);
        let refused: u64 = refused.map(|loss| loss.count).sum();
        sent += ledger.offered.saturating_sub(refused) as f64;
        received += (ledger.delivered + ledger.queued) as f64;
    }
    (received > 0.0).then(|| sent / received)
}

/// The sender of a rung as in the result, over the repeats with these ledgers.
pub(super) fn rung_sender(
    sender: LabSender,
    why: &str,
    choice: &SenderChoice,
    ledgers: &[Ledger],
) -> RungSender {
    let offered_per_received = offered_per_received(ledgers);
    RungSender {
        name: sender.to_string(),
        backend: sender.backend().to_owned(),
        train: sender.train(),
        why: why.to_owned(),
        usual: sender == choice.sender,
        outran: outran(offered_per_received),
        offered_per_received,
    }
}

/// True if the receiver was the limit; a receiver that gets nothing at all is.
pub(super) fn outran(offered_per_received: Option<f64>) -> bool {
    offered_per_received.is_none_or(|ratio| ratio >= OUTRUN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::{two_by_four_by_two, two_cpus};

    fn choice(asked: Option<GeneratorChoice>, train: Option<u16>) -> SenderChoice {
        SenderChoice::with(asked, train, || Ok(Support::Yes)).unwrap()
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
        let without = SenderChoice::with(None, None, none).unwrap();
        assert_eq!((without.sender, without.otherwise()), (fours, None));
        assert!(without.sentence().ends_with("no xdp generator: no root"));
        let error = SenderChoice::with(Some(GeneratorChoice::Xdp), None, none).unwrap_err();
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
        let error = SenderChoice::new(Some(Xdp), Some(4))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--train") && error.contains("--generator xdp"),
            "{error}"
        );
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

    #[test]
    fn what_the_senders_own_host_refused_outran_nobody() {
        let mut ledger = Ledger::new(1000, 500, 0);
        assert_eq!(offered_per_received([&ledger]), Some(2.0));
        ledger.lose(mpps_host::Loss {
            station: Station::Sender,
            reason: "refused".to_owned(),
            count: 500,
            source: "errno".to_owned(),
            scope: mpps_host::Scope::Namespace,
            by_difference: false,
            exact: true,
        });
        assert_eq!(offered_per_received([&ledger]), Some(1.0));
        assert_eq!(offered_per_received([&Ledger::new(9, 0, 0)]), None);
    }

    #[test]
    fn a_receiver_that_gets_nothing_is_outrun() {
        let ledger = Ledger::new;
        let of = |ledger| outran(offered_per_received([&ledger]));
        assert!(of(ledger(10, 0, 0)) && of(ledger(105, 100, 0)));
        assert!(!of(ledger(100, 96, 0)));
    }
}
