//! Whether the sender of a rung was fast enough.

use super::result::RungSender;
use crate::udp::limit::OUTRUN_MIN;
use crate::udp::sender::{LabSender, SenderChoice};
use mpps_host::{Ledger, Station};

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
