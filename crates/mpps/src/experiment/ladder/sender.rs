//! Who sends on a rung, and which sender is the strongest where that does not outrun a receiver.

use super::result::RungSender;
use crate::udp::limit::OUTRUN_MIN;
use crate::udp::roles::{Layout, QUEUES};
use crate::udp::sender::{Generator, Sender};
use anyhow::{Result, bail};
use mpps_host::{Ledger, Station};
use mpps_io::backend::{self, Support};
use mpps_lab::{address, steering};

/// Datagrams per train: on most rungs a CPU that sends so outruns the receiver's.
const TRAIN: u16 = 4;
/// The longest train that kernels before 6.9 take.
const LONGEST_TRAIN: u16 = 64;

impl Sender {
    /// The CPUs of the threads that send to these addresses, one each.
    ///
    /// A socket's packets take the queue of their address from any CPU. A generated frame takes the
    /// queue of the number of the CPU that it is made on, modulo the queues (`veth_select_rxq` in
    /// drivers/net/veth.c), so that not every rung can have a generator.
    pub(super) fn cpus(self, layout: &Layout, targets: &[u8]) -> Result<Vec<usize>, String> {
        let senders = &layout.senders;
        match self {
            Self::Socket { .. } => {
                let cpus = senders.iter().copied().cycle();
                Ok(cpus.take(targets.len()).collect())
            }
            Self::Generator => {
                let queue = |target: &u8| steering::queue(address::v4(*target).into(), QUEUES);
                let of = |(nth, target): (usize, &u8)| {
                    let takes =
                        |cpu: &&usize| **cpu % usize::from(QUEUES) == usize::from(queue(target));
                    let cpus: Vec<usize> = senders.iter().filter(takes).copied().collect();
                    let earlier = targets[..nth]
                        .iter()
                        .filter(|one| queue(one) == queue(target));
                    let turn = earlier.count() % cpus.len().max(1);
                    cpus.get(turn).copied().ok_or_else(|| queue(target))
                };
                let cpus: Result<Vec<usize>, u16> = targets.iter().enumerate().map(of).collect();
                cpus.map_err(|queue| {
                    format!(
                        "a generated frame takes the queue of its CPU's number, and no CPU of the \
                         senders reaches queue {queue}; sockets do (--generator sendmmsg)"
                    )
                })
            }
        }
    }
}

/// Whom a climb may ask to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Who sends on every rung but those about another sender.
    pub(crate) first: Sender,
    /// True if a user asked for it.
    pub(crate) asked: bool,
    /// Why there is no generator; none if there is one, or if nobody tried.
    missing: Option<String>,
}

impl Choice {
    /// What the options say. Trains alone are a wish for these trains and no others.
    pub(crate) fn new(asked: Option<Generator>, train: Option<u16>) -> Result<Self> {
        let socket = Sender::Socket {
            train: train.unwrap_or(TRAIN),
        };
        let (first, asked) = match asked {
            None => (socket, train.is_some()),
            Some(Generator::Auto) => (socket, false),
            Some(Generator::Sendmmsg) => (socket, true),
            Some(Generator::Xdp) if train.is_some() => {
                bail!(
                    "--train: the generator (--generator xdp) sends no trains; leave one of them out"
                )
            }
            Some(Generator::Xdp) => (Sender::Generator, true),
        };
        Ok(Self {
            first,
            asked,
            missing: None,
        })
    }

    /// Looks whether this machine has a generator.
    ///
    /// # Errors
    /// If it has none, and one was asked for.
    pub(crate) fn probe(&mut self) -> Result<()> {
        let generator = backend::find(Sender::Generator.backend())?;
        if let Support::No { why, remedy } = (generator.probe)() {
            if self.first == Sender::Generator {
                bail!("--generator xdp: {why}; {remedy}");
            }
            self.missing = Some(why);
        }
        Ok(())
    }

    /// Senders stronger than this one, the strongest first.
    pub(super) fn beyond(&self, sender: Sender) -> Vec<Sender> {
        let Some(train) = sender.train() else {
            return Vec::new();
        };
        let generator = self.missing.is_none().then_some(Sender::Generator);
        let longest = (train < LONGEST_TRAIN).then_some(Sender::Socket {
            train: LONGEST_TRAIN,
        });
        generator.into_iter().chain(longest).collect()
    }

    /// Why the rungs have the first one.
    pub(super) fn why(&self) -> &'static str {
        if self.asked {
            "as asked"
        } else {
            "the usual one"
        }
    }

    /// Who sends, in one line.
    pub(crate) fn sentence(&self) -> String {
        let first = self.first;
        let asked = if self.asked { " (as asked)" } else { "" };
        let beyond = match self.beyond(first).first() {
            Some(strongest) => format!(
                "a rung whose receiver it does not outrun is run once more by the strongest sender \
                 that reaches it, {strongest} if possible"
            ),
            None => "there is no stronger one".to_owned(),
        };
        let missing = self.missing.as_ref();
        let missing = missing.map_or(String::new(), |why| format!("; no xdp generator: {why}"));
        format!("{first}{asked}; {beyond}{missing}")
    }
}

/// What a sender offered for each datagram that was received, over these runs; none if nothing was.
/// What its own host refused was not offered to the receiver.
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

/// What is told of a rung's sender, of the repeats with these ledgers.
pub(super) fn rung_sender(
    sender: Sender,
    why: &str,
    choice: &Choice,
    ledgers: &[Ledger],
) -> RungSender {
    let offered_per_received = offered_per_received(ledgers);
    RungSender {
        name: sender.to_string(),
        backend: sender.backend().to_owned(),
        train: sender.train(),
        why: why.to_owned(),
        usual: sender == choice.first,
        outran: outran(offered_per_received),
        offered_per_received,
        tried: Vec::new(),
    }
}

/// True if the receiver was the limit; a receiver that gets nothing at all is.
pub(super) fn outran(offered_per_received: Option<f64>) -> bool {
    offered_per_received.is_none_or(|ratio| ratio >= OUTRUN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;

    fn choice(asked: Option<Generator>, train: Option<u16>) -> Choice {
        Choice::new(asked, train).unwrap()
    }

    #[test]
    fn the_generator_is_the_strongest_and_long_trains_come_next() {
        let auto = choice(None, None);
        let socket = |train| Sender::Socket { train };
        assert_eq!((auto.first, auto.asked), (socket(4), false));
        assert_eq!(auto.beyond(auto.first), [Sender::Generator, socket(64)]);
        assert_eq!(auto.beyond(socket(64)), [Sender::Generator]);
        assert_eq!(auto.beyond(Sender::Generator), []);
        let missing = Choice {
            missing: Some("no root".to_owned()),
            ..auto
        };
        assert_eq!(missing.beyond(socket(16)), [socket(64)]);
        assert!(missing.sentence().contains("no xdp generator: no root"));
    }

    #[test]
    fn a_wish_is_kept() {
        use Generator::{Auto, Sendmmsg, Xdp};
        let asked = |asked, train| choice(asked, train).asked;
        assert!(asked(None, Some(1)) && asked(Some(Sendmmsg), None));
        assert!(asked(Some(Xdp), None) && !asked(Some(Auto), Some(1)));
        assert_eq!(choice(Some(Xdp), None).first, Sender::Generator);
        let error = Choice::new(Some(Xdp), Some(4)).unwrap_err().to_string();
        assert!(
            error.contains("--train") && error.contains("--generator xdp"),
            "{error}"
        );
    }

    #[test]
    fn a_generator_sends_from_the_cpu_of_the_queues_number() {
        let mut layout = two_cpus();
        let cpus = |layout: &Layout, targets: &[u8]| Sender::Generator.cpus(layout, targets);
        assert_eq!(cpus(&layout, &[1, 1]), Ok(vec![0, 0]));
        let why = cpus(&layout, &[1, 2]).unwrap_err();
        assert!(why.contains("queue 1"), "{why}");
        layout.senders = vec![8, 4, 9, 10, 11];
        assert_eq!(cpus(&layout, &[1, 2, 3, 4]), Ok(vec![8, 9, 10, 11]));
        assert_eq!(cpus(&layout, &[1, 1, 1]), Ok(vec![8, 4, 8]));
        let socket = Sender::Socket { train: 4 };
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
}
