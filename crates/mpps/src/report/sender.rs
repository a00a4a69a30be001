//! Who sent on each rung of the ladder, and whether that outran the receiver, in words.

use super::mpps;
use crate::result::{RungResult, RungSender};

/// Whether a rung's sender was enough, as a sentence: `It offered 3.24 times what was received and
/// outran the receiver`.
pub(crate) fn verdict(sender: &RungSender) -> String {
    let offered = match sender.offered_per_received {
        Some(ratio) => format!("offered {ratio:.2} times what was received"),
        None => "offered packets of which none was received".to_owned(),
    };
    if sender.outran {
        return format!("it {offered} and outran the receiver");
    }
    let others = sender.tried.iter().any(|trial| trial.name != sender.name);
    let nobody = match (others, sender.search_complete) {
        (true, true) => "nor did any other sender of this machine",
        (true, false) => "nor did the others that were tried, which may not be all",
        (false, true) => "and there is no stronger sender for it on this machine",
        (false, false) => "and no stronger one was tried",
    };
    let other = match &sender.would_outrun {
        Some(other) => format!("{other} would have outrun it"),
        None => nobody.to_owned(),
    };
    format!(
        "it {offered} and did not outrun the receiver; {other}{}",
        tried(sender)
    )
}

/// The trials, as the end of a sentence.
fn tried(sender: &RungSender) -> String {
    if sender.tried.is_empty() {
        return String::new();
    }
    let one = |trial: &crate::result::SenderTrial| {
        let (offered, received) = (mpps(trial.offered_mpps), mpps(trial.mpps));
        format!("{} offered {offered} Mpps, received {received}", trial.name)
    };
    let all: Vec<String> = sender.tried.iter().map(one).collect();
    format!(" (tried: {})", all.join("; "))
}

/// Who sent on which rungs, a sentence each: those of the usual sender in one, every other rung and
/// every receiver that was not outrun in one of its own.
pub(crate) fn sentences(rungs: &[RungResult]) -> Vec<String> {
    let known = rungs
        .iter()
        .filter_map(|rung| Some((rung, rung.sender.as_ref()?)));
    let (usual, other): (Vec<_>, Vec<_>) =
        known.partition(|(_, sender)| sender.usual && sender.outran);
    let mut sentences = Vec::new();
    if let Some((_, sender)) = usual.first() {
        let numbers: Vec<&str> = usual.iter().map(|(rung, _)| &*rung.rung).collect();
        let plural = if numbers.len() == 1 { "" } else { "s" };
        let ratios = usual
            .iter()
            .filter_map(|(_, sender)| sender.offered_per_received);
        let least = ratios.reduce(f64::min);
        let least = least.map_or(String::new(), |least| {
            format!("; it offered {least:.2} times what was received, or more")
        });
        sentences.push(format!(
            "sender {} outran the receiver of rung{plural} {}{least}",
            sender.name,
            numbers.join(", ")
        ));
    }
    for (rung, sender) in other {
        let why = if sender.usual {
            String::new()
        } else {
            format!(" ({})", sender.why)
        };
        sentences.push(format!(
            "rung {} was sent by {}{why}: {}",
            rung.rung,
            sender.name,
            verdict(sender)
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SenderTrial;

    fn rung(number: &str, sender: RungSender) -> RungResult {
        RungResult {
            rung: number.to_owned(),
            sender: Some(sender),
            ..RungResult::default()
        }
    }

    fn fours(ratio: f64) -> RungSender {
        RungSender {
            name: "sendmmsg, trains of 4".to_owned(),
            backend: "sendmmsg".to_owned(),
            train: Some(4),
            why: "the plainest".to_owned(),
            usual: true,
            outran: ratio >= 1.05,
            offered_per_received: Some(ratio),
            ..RungSender::default()
        }
    }

    #[test]
    fn the_usual_sender_is_told_once_and_each_other_one_by_itself() {
        let xdp = RungSender {
            name: "xdp".to_owned(),
            usual: false,
            why: "sendmmsg, trains of 4 did not outrun this receiver".to_owned(),
            ..fours(2.0)
        };
        let rungs = [
            rung("1", fours(3.0)),
            rung("2", fours(2.5)),
            rung("11", xdp),
        ];
        assert_eq!(
            sentences(&rungs),
            [
                "sender sendmmsg, trains of 4 outran the receiver of rungs 1, 2; it offered 2.50 \
                 times what was received, or more",
                "rung 11 was sent by xdp (sendmmsg, trains of 4 did not outrun this receiver): it \
                 offered 2.00 times what was received and outran the receiver",
            ]
        );
    }

    #[test]
    fn a_receiver_that_was_not_outrun_is_told_with_who_would_have() {
        let trial = |name: &str, offered_mpps, mpps, outran| SenderTrial {
            name: name.to_owned(),
            offered_mpps,
            mpps,
            outran,
        };
        let mut slow = fours(1.01);
        slow.search_complete = true;
        assert!(verdict(&slow).ends_with("there is no stronger sender for it on this machine"));
        slow.tried = vec![trial("sendmmsg, trains of 16", 1.5, 1.49, false)];
        assert!(verdict(&slow).contains("nor did any other sender of this machine (tried: "));
        slow.tried.push(trial("xdp", 3.0, 1.5, true));
        slow.would_outrun = Some("xdp".to_owned());
        let said = sentences(&[rung("11", slow)]);
        assert_eq!(
            said,
            [
                "rung 11 was sent by sendmmsg, trains of 4: it offered 1.01 times what was received \
                 and did not outrun the receiver; xdp would have outrun it (tried: sendmmsg, trains \
                 of 16 offered 1.50 Mpps, received 1.49; xdp offered 3.00 Mpps, received 1.50)"
            ]
        );
    }

    #[test]
    fn a_search_that_was_cut_short_is_told_as_one() {
        let mut slow = fours(1.01);
        assert!(verdict(&slow).ends_with("; and no stronger one was tried"));
        slow.tried = vec![SenderTrial {
            name: "sendmmsg, trains of 16".to_owned(),
            offered_mpps: 1.5,
            mpps: 1.49,
            outran: false,
        }];
        let said = verdict(&slow);
        assert!(
            said.contains("; nor did the others that were tried, which may not be all (tried: ")
        );
    }
}
