//! Packets lost at the other end of a veth, on the way into a container.

use super::{Check, Confidence, Evidence, Finding, Observed, backlog, link_fault};
use crate::Station;
use crate::facts::far_end::FarEnd;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "far_end",
    reads: "`tx_dropped`, MTU, and drops of the queueing discipline and of tc filters (`clsact`), of the other \
            end of a veth, in its namespace, less backlog drops; drop reason `TC_EGRESS`",
    speaks: "a veth's other end, as on the node of a container, dropped packets to this namespace",
    run,
};

const RING: &str = "the ring of a veth holds 256 packets: more CPU time for the soft interrupts of this container's CPU; \
                    receive queues with a CPU each (ethtool -L, threaded NAPI); slower bursts from the sender";

/// The ends at both moments, each with the interface here.
pub(super) fn ends<'a>(
    seen: &Observed<'a>,
) -> impl Iterator<Item = (&'a str, &'a FarEnd, &'a FarEnd)> {
    let (before, after) = (seen.before, seen.after);
    let here = after
        .far_ends
        .iter()
        .filter(|(name, _)| after.snapshot.links.contains_key(*name));
    here.filter_map(|(name, now)| {
        let then = before.far_ends.get(name)?;
        (then.netns == now.netns && then.name == now.name).then_some((&**name, then, now))
    })
}

/// Packets that the end's ring refused. A full backlog is counted there too, and at this end as `rx_dropped`.
fn refused(seen: &Observed, here: &str, then: &FarEnd, now: &FarEnd) -> (Evidence, u64) {
    let source = format!("{}: {} tx_dropped", now.namespace, now.name);
    let refused = Evidence::new(source, then.counters.tx_dropped, now.counters.tx_dropped);
    let came = seen.link(here, "rx_dropped").map_or(0, |one| one.grown());
    let queued = came.min(backlog::lost(seen));
    let count = refused.grown().saturating_sub(queued);
    (refused, count)
}

fn shaped(then: &FarEnd, now: &FarEnd) -> Option<Evidence> {
    let source = format!(
        "{}: {} drops of its queueing discipline",
        now.namespace, now.name
    );
    Some(Evidence::new(source, then.qdisc_drops?, now.qdisc_drops?))
}

/// Packets that filters at the end dropped. Their counter has both directions; the kernel's drop reason only the
/// one to this namespace.
fn filtered(seen: &Observed, then: &FarEnd, now: &FarEnd) -> Option<(Evidence, u64, Confidence)> {
    let source = format!("{}: {} drops of its clsact", now.namespace, now.name);
    let counted = Evidence::new(source, then.filter_drops?, now.filter_drops?);
    let egress = seen.elsewhere(EGRESS);
    let (count, confidence) = match seen.drops.is_some() {
        true => (counted.grown().min(egress), Confidence::Likely),
        false => (counted.grown(), Confidence::Possible),
    };
    (count > 0).then_some((counted, count, confidence))
}

/// The drop reason of a tc filter for what is sent.
const EGRESS: &str = "TC_EGRESS";

/// True if an end lost packets to this namespace.
pub(super) fn loses(seen: &Observed) -> bool {
    !run(seen).is_empty()
}

/// How many packets the rings of this namespace refused: the kernel names no reason.
pub(super) fn without_reason(seen: &Observed) -> u64 {
    let counts = ends(seen).map(|(here, then, now)| refused(seen, here, then, now).1);
    counts.fold(0, u64::saturating_add)
}

fn run(seen: &Observed) -> Vec<Finding> {
    let found = ends(seen).flat_map(|(here, then, now)| {
        let place = format!("{}: {} (peer of {here} in this namespace)", now.namespace, now.name);
        let way = way(now);
        let (refused, count) = refused(seen, here, then, now);
        let refused = (count > 0).then(|| {
            let own = seen.after.links.iter().find(|link| link.name == here);
            let fault = own.and_then(|own| {
                link_fault::of_veth((&now.name, now.mtu, now.up), (here, own.mtu, own.up))
            });
            let (cause, remedy) = match fault {
                Some(fault) => (fault.what, fault.remedy),
                None => (format!("the receive ring of {here} was full"), RING.to_owned()),
            };
            let what = format!("{place} tx_dropped {count}: {cause}; {way}");
            let found = Finding::noticed(seen, &CHECK, Station::Wire, vec![refused]);
            found.of(count, seen).says(what, remedy).with(Confidence::Likely)
        });
        let shaped = shaped(then, now).and_then(|shaped| {
            let found = Finding::lost(seen, &CHECK, Station::Wire, vec![shaped])?;
            let what = format!(
                "{place}: its queueing discipline dropped {} packets to {here}, as a limit of bandwidth does; {way}",
                found.count
            );
            let remedy = format!(
                "in namespace {}: tc -s qdisc show dev {}; raise its rate or limit (for Kubernetes the \
                 annotation kubernetes.io/ingress-bandwidth)",
                now.namespace,
                ShellWord::new(&now.name)
            );
            Some(found.says(what, remedy).with(Confidence::Certain))
        });
        let filtered = filtered(seen, then, now).map(|(counted, count, confidence)| {
            let what = format!(
                "{place}: a filter or BPF program of tc there (clsact) dropped {count} packets to {here}; {way}"
            );
            let remedy = format!(
                "in namespace {}: tc -s filter show dev {} egress, and bpftool net list, show which (of Cilium: \
                 cilium monitor --type drop, its network policies)",
                now.namespace,
                ShellWord::new(&now.name)
            );
            let found = Finding::noticed(seen, &CHECK, Station::Wire, vec![counted]);
            found.of(count, seen).says(what, remedy).with(confidence)
        });
        refused.into_iter().chain(shaped).chain(filtered)
    });
    found.collect()
}

/// The stations before an end, from the outside in.
fn way(end: &FarEnd) -> String {
    let cards = (!end.cards.is_empty()).then(|| end.cards.join(" or "));
    let bridge = end.bridge.as_ref().map(|bridge| format!("bridge {bridge}"));
    let name = match end.isolated {
        true => format!("{}, an isolated port,", end.name),
        false => end.name.clone(),
    };
    let stations = cards.into_iter().chain(bridge).chain([name]);
    let stations: Vec<String> = stations.collect();
    format!(
        "the way in is {} of namespace {}",
        stations.join(" -> "),
        end.namespace
    )
}

/// The packets that the other ends sent while nothing came here, as a half sentence, and where to look; none if no other
/// end is seen.
pub(super) fn beyond(seen: &Observed) -> Option<(String, String)> {
    let (here, then, now) = ends(seen).next()?;
    let port = seen.asked.port;
    let port = port.map_or_else(String::new, |port| format!(" --port {port}"));
    let sent = now
        .counters
        .tx_packets
        .saturating_sub(then.counters.tx_packets);
    let what = format!("; {}, and {} sent {sent} to {here}", way(now), now.name);
    let (netns, hint) = match &*now.namespace {
        "init" => ("1".to_owned(), ""),
        name if name.bytes().all(|one| one.is_ascii_digit()) => {
            ("PID".to_owned(), " (lsns -t net shows a process of it)")
        }
        name => (ShellWord::new(name).to_string(), ""),
    };
    let isolated = link_fault::of_way(seen, here).filter(|_| now.isolated);
    let isolated = isolated.map_or_else(String::new, |fault| {
        format!(
            "if the sender is behind an isolated port too, {}; otherwise ",
            fault.remedy
        )
    });
    let remedy = format!(
        "{isolated}look in that namespace: mpps doctor --netns {netns}{port}{hint}; if it publishes the port under \
         another number, ask for that one"
    );
    Some((what, remedy))
}

/// The ways into this namespace, from the outside in.
pub(super) fn ways(seen: &Observed) -> Vec<String> {
    let ways = ends(seen).map(|(here, _, now)| format!("{}, then {here} here", way(now)));
    ways.collect()
}
