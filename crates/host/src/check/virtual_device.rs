//! Packets that a tunnel or another virtual device dropped.

use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use crate::counters::driver_counters::VirtualLoss;
use mpps_os::text::{Foreign, ShellWord};

pub(super) const CHECK: Check = Check {
    name: "virtual_device",
    reads: "`rx_errors` and its parts of tunnels, by driver (crates/host/src/counters/driver_counters.tsv)",
    speaks: "a tunnel or another virtual device refused packets, with the cause that its driver counts",
    run,
};

/// The driver whose drops have no reason, because it frees them as if used (`dev_kfree_skb`).
const UNTRACED: &str = "wireguard";

/// The losses of each interface, by cause.
fn losses<'s>(
    seen: &'s Observed,
) -> impl Iterator<Item = (&'s str, &'static VirtualLoss, Evidence)> {
    let names = seen.counting_interfaces();
    names.flat_map(|name| {
        let losses = seen.virtual_losses(name);
        losses.map(move |(loss, evidence)| (name, loss, evidence))
    })
}

/// The losses of drivers whose drops have a reason, even if that is `NOT_SPECIFIED`.
fn traced(seen: &Observed) -> u64 {
    let traced = losses(seen).filter(|(name, ..)| seen.driver_of(name) != UNTRACED);
    traced.fold(0, |sum: u64, (.., lost)| sum.saturating_add(lost.grown()))
}

/// How many drops with this reason no virtual device counted.
pub(super) fn beyond(seen: &Observed, reason: &str) -> u64 {
    let all = seen.reason(reason).map_or(0, |all| all.grown());
    all.saturating_sub(traced(seen))
}

/// How many packets virtual devices dropped without a reason; `reasons` are those with one.
pub(super) fn nameless(seen: &Observed, reasons: &[&str]) -> u64 {
    let named = reasons.iter().map(|reason| {
        let ours = seen.reason(reason).map_or(0, |all| all.grown());
        ours.saturating_add(seen.others(reason))
    });
    traced(seen).saturating_sub(named.fold(0, u64::saturating_add))
}

fn run(seen: &Observed) -> Vec<Finding> {
    let found = losses(seen).filter_map(|(name, loss, evidence)| {
        let found = Finding::lost(seen, &CHECK, Station::Wire, vec![evidence])?;
        let remedy = loss.remedy.replace("IF", &ShellWord::new(name).to_string());
        let confidence = match loss.is_certain {
            true => Confidence::Certain,
            false => Confidence::Likely,
        };
        let what = format!("{}: {}", Foreign(name), loss.what);
        Some(found.says(what, remedy).with(confidence))
    });
    found.collect()
}

/// Kinds of tunnels whose datagrams UDP counts as delivered, as it counts what they carried.
pub(super) const TUNNELS: [&str; 4] = ["vxlan", "geneve", "wireguard", "bareudp"];

/// Tunnels that get their datagrams at a port of their own, if datagrams found no socket: half a sentence, and a
/// remedy.
pub(super) fn tunnels(seen: &Observed, station: Station) -> (String, String) {
    let links = seen.after.links.iter();
    let names = links.filter(|link| TUNNELS.contains(&&*link.kind));
    let names: Vec<&str> = names.map(|link| &*link.name).collect();
    match names.is_empty() || station != Station::Udp {
        true => Default::default(),
        false => (
            format!("; they may be of a tunnel whose other end sends to another port than {} has", names.join(", ")),
            "; tcpdump -ni any 'icmp[0] == 3' shows the port, which dstport has to be: ip -d link show type vxlan"
                .to_owned(),
        ),
    }
}
