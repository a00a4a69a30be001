//! Datagrams that miss a fragment.

use super::{Check, Confidence, Evidence, Finding, Observed, firewall, reading_times};
use crate::Station;
use crate::facts::Observation;
use crate::ledger::loss::FRAGMENTS;

pub(super) const CHECK: Check = Check {
    name: "fragments",
    reads: "`Ip.ReasmFails`, `Ip6.ReasmFails`, `IpExt.ReasmOverlaps`, `ReasmReqds`, `ReasmOKs`; `FRAG` and \
            `FRAG6` (sockstat, sockstat6); drop reason `FRAG_TOO_FAR`",
    speaks: "fragments could not be reassembled (lost, too far apart, overlapping, no memory), or unusually many \
             datagrams still wait",
    run,
};

/// Fragments that came, and datagrams that they became.
pub(super) const CAME: &[&str] = &["Ip.ReasmReqds", "Ip6.ReasmReqds"];
pub(super) const WHOLE: &[&str] = &["Ip.ReasmOKs", "Ip6.ReasmOKs"];
/// The command that shows fragments.
pub(super) const TCPDUMP: &str = "tcpdump -vni IF 'ip[6:2] & 0x3fff != 0 or ip6[6] == 44' shows";
/// Which datagrams wait, in the same order.
const WAITING: [&str; 2] = ["FRAG", "FRAG6"];
/// The fragments of a datagram come within this time, in seconds, on whichever CPUs.
const PASSING: f64 = 0.02;

fn run(seen: &Observed) -> Vec<Finding> {
    let failed = failed(seen).into_iter();
    // Waiting fragments are then a part of the same, and every fragment came.
    let waiting = waiting(seen).filter(|_| too_far(seen) == 0);
    failed.chain(waiting).chain(earlier(seen)).collect()
}

/// How many datagrams waited for fragments.
fn waits(facts: &Observation, at: usize) -> u64 {
    facts.reassembling.get(WAITING[at]).copied().unwrap_or(0)
}

/// Of those that failed, how many waited at the first moment: their fragments came before it.
fn old(seen: &Observed, at: usize) -> u64 {
    let failed = seen.grown(&FRAGMENTS.counters[at..=at]);
    let aged = match at {
        0 if too_far(seen) > 0 => 0,
        _ => failed,
    };
    aged.min(waits(seen.before, at))
}

/// Datagrams that failed, as far as their fragments came meanwhile.
pub(super) fn lost(seen: &Observed) -> u64 {
    let old = [0, 1].map(|at| old(seen, at));
    let old = old.iter().fold(0, |sum: u64, &one| sum.saturating_add(one));
    seen.grown(FRAGMENTS.counters).saturating_sub(old)
}

/// How many more fragments came than datagrams that they are of, as far as these became whole, failed, or wait
/// in addition.
pub(super) fn beyond_datagrams(seen: &Observed) -> u64 {
    let grown = |at| waits(seen.after, at).saturating_sub(waits(seen.before, at));
    let datagrams = [seen.grown(WHOLE), lost(seen), grown(0), grown(1)];
    let datagrams = datagrams.into_iter().fold(0, u64::saturating_add);
    seen.grown(CAME).saturating_sub(datagrams)
}

/// Fragments of IPv4 datagrams that were given up, because too much of the same sender came in between
/// (`ip_frag_too_far` in net/ipv4/ip_fragment.c). Later ones show no port.
pub(super) fn too_far(seen: &Observed) -> u64 {
    let ours = seen.reason(TOO_FAR).map_or(0, |one| one.grown());
    let known = ours.saturating_add(seen.others(TOO_FAR));
    known.saturating_add(of_unknown(seen))
}

/// A packet that waited has another thing where its device was, so that its namespace is not known. They are this one's
/// at most as far as it counts them.
fn of_unknown(seen: &Observed) -> u64 {
    let drops = seen.drops_unknown.iter();
    let drops = drops.filter(|drop| drop.reason == TOO_FAR);
    let unknown = drops.fold(0, |sum: u64, drop| sum.saturating_add(drop.buffers));
    unknown.min(seen.grown(&FRAGMENTS.counters[..1]))
}

const TOO_FAR: &str = "FRAG_TOO_FAR";
const DISTANCE: &str = "net.ipv4.ipfrag_max_dist";

/// The finding if distance gave up what failed.
fn out_of_order(seen: &Observed, mut found: Finding, count: u64) -> Finding {
    found
        .evidence
        .push(Evidence::new(format!("drop reason {TOO_FAR}"), 0, count));
    let now = seen.after.settings.get(DISTANCE);
    let now = now.map_or_else(String::new, |now| format!(" ({DISTANCE} is {now})"));
    let all = count.saturating_add(reading_times::skew(seen, found.count)) >= found.count;
    let (rest, confidence) = match all {
        true if of_unknown(seen) == 0 => ("", Confidence::Certain),
        true => ("", Confidence::Likely),
        false => (
            "; of some the rest did not come, or they found no memory",
            Confidence::Likely,
        ),
    };
    let what = format!(
        "fragments came too far apart: between two of one datagram came more of others from the same sender than \
         is allowed{now}, because a path reorders packets or the sender sends many datagrams at once{rest}"
    );
    let remedy = format!(
        "sysctl -w {DISTANCE}=0, which sets no limit (at very high rates a fragment may then join the wrong \
         datagram); or one path, without balancing by packet; or datagrams that fit into one packet"
    );
    found.says(what, remedy).with(confidence)
}

fn remedy() -> String {
    format!(
        "{TCPDUMP} whether all fragments come, which a firewall or a path on the way may drop; datagrams that \
         fit into one packet have none"
    )
}

/// The later fragments that a rule of this host may have dropped, as a half sentence. Only the first one has
/// a UDP header, so that they are among other packets.
pub(super) fn filtered(seen: &Observed) -> Option<(u64, String)> {
    let count = seen.others(firewall::REASON);
    let what = format!(
        "; meanwhile the firewall of this host dropped {count} packets that show no such port, as later fragments \
         do not"
    );
    (count > 0).then_some((count, what))
}

/// How to see the rule that drops them.
pub(super) const RULE: &str = "nft list ruleset shows a rule about frag-off (iptables -S: -f)";

/// The kernel gives up a datagram 30 s after its first fragment, and counts it only then.
fn earlier(seen: &Observed) -> Option<Finding> {
    let (mut count, mut evidence) = (0_u64, Vec::new());
    for (at, name) in WAITING.into_iter().enumerate() {
        let old = old(seen, at);
        if old > 0 {
            count = count.saturating_add(old);
            let [before, now] = [seen.before, seen.after].map(|facts| waits(facts, at));
            evidence.extend(seen.counter(FRAGMENTS.counters[at]));
            evidence.push(Evidence::new(
                format!("{name} inuse (sockstat)"),
                before,
                now,
            ));
        }
    }
    let what = format!(
        "{count} datagrams were given up: they already waited for fragments at the start (at most 30 s, IPv6: \
         60 s), and are no loss of this time"
    );
    let found = (count > 0).then(|| Finding::noticed(seen, &CHECK, Station::Ip, evidence));
    Some(found?.says(what, remedy()).with(Confidence::Likely))
}

fn failed(seen: &Observed) -> Option<Finding> {
    let found = Finding::counted(seen, &CHECK, &FRAGMENTS)?;
    let mut found = found.of(lost(seen), seen);
    if found.count == 0 {
        return None;
    }
    let far = too_far(seen);
    if far.saturating_mul(2) >= found.count {
        return Some(out_of_order(seen, found, far));
    }
    let smaller = format!(
        "datagrams that fit into one packet (for DNS: max-udp-size 1232); or more memory: {}; for IPv6 \
         net.ipv6.ip6frag_high_thresh",
        seen.raise("net.ipv4.ipfrag_high_thresh", 16 << 20)
    );
    let overlaps = seen.counter("IpExt.ReasmOverlaps");
    let overlaps = overlaps.filter(|overlaps| overlaps.grown() > 0);
    let Some(overlaps) = overlaps else {
        if let Some((_, filtered)) = filtered(seen) {
            let what = format!("fragments of datagrams came and the rest did not{filtered}");
            let remedy = format!("{RULE}; otherwise {smaller}");
            return Some(found.says(what, remedy).with(Confidence::Possible));
        }
        let v6 = match seen.grown(&FRAGMENTS.counters[1..]) {
            0 => "",
            _ => ", or they overlap, which IPv6 does not count",
        };
        let what = "fragments of datagrams came and the rest did not, or they found no memory";
        return Some(
            found
                .says(format!("{what}{v6}"), smaller)
                .with(Confidence::Likely),
        );
    };
    let mut what = "fragments of datagrams overlap, which no sender that works makes".to_owned();
    let mut remedy =
        format!("{TCPDUMP} who sends them: it is broken, or an attack, which a firewall can drop");
    let others = found.count.saturating_sub(overlaps.grown());
    if others > 0 {
        what += &format!("; of {others} the rest did not come, or they found no memory");
        remedy += &format!("; for the others {smaller}");
    }
    found.evidence.push(overlaps);
    Some(found.says(what, remedy).with(Confidence::Likely))
}

/// The kernel counts a datagram as failed only when its time is over. `ReasmReqds` counts fragments
/// and `ReasmOKs` counts datagrams. So they do not show how many datagrams still wait; sockstat
/// does.
fn waiting(seen: &Observed) -> Option<Finding> {
    let (mut count, mut evidence) = (0_u64, Vec::new());
    for (at, name) in WAITING.into_iter().enumerate() {
        let [before, now] = [seen.before, seen.after].map(|facts| waits(facts, at));
        let whole = seen.grown(&WHOLE[at..=at]) as f64 / seen.seconds();
        let passing = (whole * PASSING).ceil() + seen.grown(&FRAGMENTS.counters[at..=at]) as f64;
        let came = seen.counter(CAME[at]).filter(|came| came.grown() > 0);
        let Some(came) = came.filter(|_| now as f64 > passing) else {
            continue;
        };
        count = count.saturating_add(now);
        evidence.push(Evidence::new(
            format!("{name} inuse (sockstat)"),
            before,
            now,
        ));
        evidence.push(came);
    }
    let what = format!(
        "{count} datagrams wait for further fragments; what does not come in 30 s (IPv6: 60 s) is lost, and \
         is counted only then"
    );
    let found = (count > 0).then(|| Finding::noticed(seen, &CHECK, Station::Ip, evidence))?;
    if let Some((dropped, filtered)) = filtered(seen) {
        let confidence = match dropped >= count {
            true => Confidence::Likely,
            false => Confidence::Possible,
        };
        let remedy = format!("{RULE}; {}", remedy());
        return Some(found.says(what + &filtered, remedy).with(confidence));
    }
    let remedy = format!("look again after that time; {}", remedy());
    Some(found.says(what, remedy).with(Confidence::Possible))
}
