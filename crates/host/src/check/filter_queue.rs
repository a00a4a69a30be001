//! Packets that a rule hands to a program, and that come back from none: the kernel names no reason.

use super::refusal::RefusalCause;
use super::{Confidence, Evidence, Observed, firewall};
use crate::facts::FilterQueue;

/// The cause of drops without a reason by a queue of the packet filter; none if it has no such queue.
pub(super) fn cause(seen: &Observed) -> Option<RefusalCause> {
    let filter = &seen.after.packet_filter;
    if let Some(number) = filter.unread_queue() {
        return Some(RefusalCause {
            what: format!(
                "a rule hands packets to queue {number} (NFQUEUE), and no program has that queue open"
            ),
            remedy: format!(
                "start its program (Suricata, Snort, a VPN), or let packets pass without it: --queue-bypass of \
                 iptables, `queue flags bypass` of nft: {}",
                firewall::rules(seen)
            ),
            evidence: Vec::new(),
            confidence: Confidence::Likely,
        });
    }
    let queues = filter.queues.iter().flatten();
    let before = seen.before.packet_filter.queues.as_ref();
    let grown = queues.clone().flat_map(|(number, now)| {
        let then = before.and_then(|queues| queues.get(number)).copied();
        let then = then.unwrap_or_default();
        let one = |column: &str, value: fn(&FilterQueue) -> u64| {
            let source = format!("nfnetlink_queue {number} {column}");
            Evidence::new(source, value(&then), value(now))
        };
        [
            one("queue_dropped", |queue| queue.full),
            one("user_dropped", |queue| queue.no_room),
        ]
    });
    let evidence: Vec<Evidence> = grown.filter(|one| one.grown() > 0).collect();
    if !evidence.is_empty() {
        return Some(RefusalCause {
            what: "a queue of the packet filter (NFQUEUE) was full: its program is too slow".to_owned(),
            remedy: "more CPU time for its program, a longer queue there (nfq_set_queue_maxlen), or several queues \
                     (--queue-balance)"
                .to_owned(),
            evidence,
            confidence: Confidence::Likely,
        });
    }
    let numbers: Vec<String> = queues.map(|(number, _)| number.to_string()).collect();
    (!numbers.is_empty()).then(|| RefusalCause {
        what: format!(
            "the program of queue {} (NFQUEUE) may have dropped them",
            numbers.join(", ")
        ),
        remedy: "the log and the rules of that program".to_owned(),
        evidence,
        confidence: Confidence::Possible,
    })
}
