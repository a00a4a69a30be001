//! Who sends on a rung, and which senders a climb may turn to when one does not outrun a receiver.

use super::layout::{Layout, QUEUES};
use crate::args::GeneratorArg;
use anyhow::{Result, bail};
use mpps_host::{Ledger, Station};
use mpps_io::backend::{self, Support};
use mpps_lab::{address, steering};
use std::fmt;

/// Datagrams per train at first: on most rungs a CPU that sends so outruns the receiver's.
const TRAIN: u16 = 4;
/// Longer trains, for those that it does not outrun; 64 is the most before Linux 6.9.
const LONGER_TRAINS: [u16; 2] = [16, 64];
/// A sender outruns a receiver if it offers at least so many times what is received. With less, the
/// rate that is received is the rate that is offered, as far as two runs on one machine agree.
pub(super) const OUTRUN_MIN: f64 = 1.05;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A socket, `sendmmsg`, so many datagrams as one train, which is cut before the link.
    Socket {
        /// Datagrams in a train.
        train: u16,
    },
    /// The kernel's own generator, `xdp`.
    Generator,
}

impl Sender {
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

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { train: 1 } => f.write_str("sendmmsg, single datagrams"),
            Self::Socket { train } => write!(f, "sendmmsg, trains of {train}"),
            Self::Generator => f.write_str("xdp"),
        }
    }
}

/// Whom a climb may ask to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Who sends on every rung at first.
    pub(crate) first: Sender,
    /// True if a rung that it does not outrun gets a stronger one.
    pub(crate) goes_up: bool,
    /// Why there is no generator; none if there is one, or if nobody tried.
    missing: Option<String>,
}

impl Choice {
    /// What the options say. Trains alone are a wish for these trains and no others.
    pub(crate) fn new(asked: Option<GeneratorArg>, train: Option<u16>) -> Result<Self> {
        let socket = Sender::Socket {
            train: train.unwrap_or(TRAIN),
        };
        let (first, goes_up) = match asked {
            None => (socket, train.is_none()),
            Some(GeneratorArg::Auto) => (socket, true),
            Some(GeneratorArg::Sendmmsg) => (socket, false),
            Some(GeneratorArg::Xdp) if train.is_some() => {
                bail!(
                    "--train: the generator (--generator xdp) sends no trains; leave one of them out"
                )
            }
            Some(GeneratorArg::Xdp) => (Sender::Generator, false),
        };
        Ok(Self {
            first,
            goes_up,
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

    /// Senders stronger than this one, the plainest first.
    pub(super) fn beyond(&self, sender: Sender) -> Vec<Sender> {
        let Some(train) = sender.train() else {
            return Vec::new();
        };
        let longer = LONGER_TRAINS.into_iter().filter(|longer| *longer > train);
        let mut beyond: Vec<Sender> = longer.map(|train| Sender::Socket { train }).collect();
        if self.missing.is_none() {
            beyond.push(Sender::Generator);
        }
        beyond
    }

    /// Who sends, in one line.
    pub(crate) fn sentence(&self) -> String {
        let first = self.first;
        if !self.goes_up {
            return format!("{first} (as asked)");
        }
        let beyond: Vec<String> = self.beyond(first).iter().map(ToString::to_string).collect();
        let missing = self.missing.as_ref();
        let missing = missing.map_or(String::new(), |why| format!("; no xdp generator: {why}"));
        let beyond = match beyond.join("; ") {
            none if none.is_empty() => "there is no stronger one".to_owned(),
            some => {
                format!("where it does not outrun the receiver, the first that does of: {some}")
            }
        };
        format!("{first}; {beyond}{missing}")
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

#[cfg(test)]
mod tests {
    use super::super::layout::tests::two_cpus;
    use super::*;

    fn choice(asked: Option<GeneratorArg>, train: Option<u16>) -> Choice {
        Choice::new(asked, train).unwrap()
    }

    #[test]
    fn short_trains_come_first_and_the_generator_last() {
        let auto = choice(None, None);
        let socket = |train| Sender::Socket { train };
        assert_eq!((auto.first, auto.goes_up), (socket(4), true));
        assert_eq!(
            auto.beyond(auto.first),
            [socket(16), socket(64), Sender::Generator]
        );
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
        use GeneratorArg::{Auto, Sendmmsg, Xdp};
        let goes_up = |asked, train| choice(asked, train).goes_up;
        assert!(!goes_up(None, Some(1)) && !goes_up(Some(Sendmmsg), None));
        assert!(!goes_up(Some(Xdp), None) && goes_up(Some(Auto), Some(1)));
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
