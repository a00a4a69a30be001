//! Senders tried against the receiver of a rung, and which of them is taken.

use super::sample::Sample;
use super::sender::{self, Choice, OUTRUN_MIN, Sender};
use crate::result::{RungSender, SenderTrial};
use mpps_host::Ledger;

/// One run of a sender against a receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    pub(super) sender: Sender,
    offered_mpps: f64,
    mpps: f64,
    pub(super) outran: bool,
}

impl Trial {
    pub(super) fn of(sender: Sender, sample: &Sample) -> Self {
        Self {
            sender,
            offered_mpps: sample.offered_mpps,
            mpps: sample.mpps,
            outran: outran(sender::offered_per_received([&sample.ledger])),
        }
    }

    /// True if this sender is to take the place of a plainer one that did not outrun the receiver:
    /// more was received, or it outran the receiver and not less was. A sender whose packets cost
    /// the receiver more than the plainer one's does outrun it, and shows less of it.
    pub(super) fn is_better_than(self, plainer: Self) -> bool {
        self.mpps >= plainer.mpps * OUTRUN_MIN
            || self.outran && self.mpps * OUTRUN_MIN >= plainer.mpps
    }

    fn result(self) -> SenderTrial {
        SenderTrial {
            name: self.sender.to_string(),
            offered_mpps: self.offered_mpps,
            mpps: self.mpps,
            outran: self.outran,
        }
    }
}

/// True if the receiver was the limit; a receiver that gets nothing at all is.
fn outran(offered_per_received: Option<f64>) -> bool {
    offered_per_received.is_none_or(|ratio| ratio >= OUTRUN_MIN)
}

/// True if the sender of these runs outran the receiver, over all of them.
pub(super) fn outran_over<'a>(ledgers: impl IntoIterator<Item = &'a Ledger>) -> bool {
    outran(sender::offered_per_received(ledgers))
}

/// What is told of a rung's sender: from the trials, and whether they came to their end.
pub(super) fn rung_sender(
    sender: Sender,
    keeps_sender: bool,
    choice: &Choice,
    (trials, searched): (&[Trial], bool),
    ledgers: &[Ledger],
) -> RungSender {
    let offered_per_received = sender::offered_per_received(ledgers);
    let outran = outran(offered_per_received);
    let mut stronger = trials.iter().filter(|trial| trial.sender != sender);
    let would_outrun = stronger
        .find(|trial| trial.outran && !outran)
        .map(|trial| trial.sender.to_string());
    let why = if keeps_sender {
        "the rung is about this sender".to_owned()
    } else if !choice.goes_up {
        "as asked".to_owned()
    } else if sender == choice.first {
        "the plainest".to_owned()
    } else {
        format!("{} did not outrun this receiver", choice.first)
    };
    RungSender {
        name: sender.to_string(),
        backend: sender.backend().to_owned(),
        train: sender.train(),
        why,
        usual: sender == choice.first,
        outran,
        offered_per_received,
        // Who is strong enough has been found.
        search_complete: searched || outran || would_outrun.is_some(),
        would_outrun,
        tried: trials.iter().map(|trial| trial.result()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Sender = Sender::Socket { train: 4 };
    const SIXTEEN: Sender = Sender::Socket { train: 16 };

    fn trial(sender: Sender, offered_mpps: f64, mpps: f64) -> Trial {
        Trial {
            sender,
            offered_mpps,
            mpps,
            outran: outran(Some(offered_mpps / mpps)),
        }
    }

    #[test]
    fn a_stronger_sender_is_taken_if_it_shows_more_of_the_receiver() {
        let plain = trial(FOUR, 1.0, 0.99);
        assert!(!plain.outran);
        assert!(trial(SIXTEEN, 2.0, 1.3).is_better_than(plain));
        // It outran the receiver, which got as much as before, and could not take more.
        assert!(trial(SIXTEEN, 2.0, 0.97).is_better_than(plain));
        // Its packets cost the receiver more.
        assert!(!trial(Sender::Generator, 2.0, 0.6).is_better_than(plain));
        // No sender outruns it, and this one is no faster.
        assert!(!trial(SIXTEEN, 1.01, 1.0).is_better_than(plain));
        assert!(trial(SIXTEEN, 1.4, 1.39).is_better_than(plain));
    }

    #[test]
    fn a_sender_that_was_enough_needs_no_other() {
        let choice = Choice::new(None, None).unwrap();
        let trials = [trial(FOUR, 1.0, 1.0), trial(SIXTEEN, 2.0, 1.3)];
        let enough = rung_sender(
            SIXTEEN,
            false,
            &choice,
            (&trials, false),
            &[Ledger::new(20, 13, 0)],
        );
        assert!(enough.search_complete);
        assert!(enough.outran && !enough.usual && enough.would_outrun.is_none());
        assert_eq!(
            enough.why,
            "sendmmsg, trains of 4 did not outrun this receiver"
        );
        let names: Vec<&str> = enough.tried.iter().map(|trial| &*trial.name).collect();
        assert_eq!(names, ["sendmmsg, trains of 4", "sendmmsg, trains of 16"]);
    }

    #[test]
    fn a_sender_that_was_not_enough_names_the_one_that_would_be() {
        let choice = Choice::new(None, Some(4)).unwrap();
        let trials = [
            trial(SIXTEEN, 1.2, 1.19),
            trial(Sender::Generator, 3.0, 1.2),
        ];
        let ledgers = [Ledger::new(100, 99, 0), Ledger::new(100, 90, 9)];
        let slow = rung_sender(FOUR, false, &choice, (&trials, false), &ledgers);
        assert!(slow.search_complete);
        assert!(!slow.outran && slow.usual);
        assert_eq!(slow.would_outrun.as_deref(), Some("xdp"));
        assert_eq!(slow.why, "as asked");
        let own = rung_sender(SIXTEEN, true, &choice, (&[], true), &ledgers);
        assert_eq!(
            (own.why.as_str(), own.usual),
            ("the rung is about this sender", false)
        );
        assert_eq!((own.would_outrun, own.search_complete), (None, true));
        let cut_short = rung_sender(FOUR, false, &choice, (&trials[..1], false), &ledgers);
        assert!(!cut_short.search_complete, "{cut_short:?}");
    }

    #[test]
    fn a_receiver_that_gets_nothing_is_outrun() {
        assert!(outran_over([&Ledger::new(10, 0, 0)]));
        assert!(!outran_over([&Ledger::new(100, 96, 0)]));
        assert!(outran_over([&Ledger::new(105, 100, 0)]));
    }
}
