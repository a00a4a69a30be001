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
    let lost = |queue: &FilterQueue| queue.full.saturating_add(queue.no_room);
    let most = queues.clone().max_by_key(|(_, queue)| lost(queue));
    if let Some((number, queue)) = most.filter(|_| !evidence.is_empty()) {
        let then = before.and_then(|queues| queues.get(number)).copied();
        let (what, remedy) = program(seen, &then.unwrap_or_default(), queue);
        return Some(RefusalCause {
            what: format!("a queue of the packet filter (NFQUEUE) was full: its program{what}"),
            remedy,
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

/// The program of a full queue and what it did, as half a sentence, and the remedy.
fn program(seen: &Observed, then: &FilterQueue, now: &FilterQueue) -> (String, String) {
    let load = seen.before.loads.get(&now.address);
    let name = load.map_or_else(String::new, |load| {
        format!(", {} (pid {}),", load.name, now.address)
    });
    // It decided on what came, found room in its socket, and does not wait.
    let came = now
        .came
        .saturating_sub(then.came)
        .saturating_add(then.waiting);
    let refused = now.no_room.saturating_sub(then.no_room);
    if came > refused.saturating_add(now.waiting) {
        let remedy = "more CPU time for its program, a longer queue there (nfq_set_queue_maxlen), or several queues \
                      (--queue-balance)";
        return (format!("{name} is too slow"), remedy.to_owned());
    }
    let pid = load.map_or_else(|| "PID".to_owned(), |_| now.address.to_string());
    let remedy = format!(
        "see what it waits for: cat /proc/{pid}/task/*/wchan, and start it again; or let packets pass a full queue \
         (NFQA_CFG_F_FAIL_OPEN; fail-open: yes under nfq: of suricata.yaml)"
    );
    (
        format!("{name} decided on none of its packets meanwhile"),
        remedy,
    )
}
