//! A group of sockets at one port: some are overrun and others are not.

use super::overrun::{Cause, may_share, overruns, place};
use super::reader::{Late, said};
use super::{Check, Confidence, Evidence, Finding, Observed};
use crate::Station;
use std::collections::BTreeMap;

pub(super) const CHECK: Check = Check {
    name: "reuseport_uneven",
    reads: "`sk_drops`, queue and buffer of sockets that share an address and port (`SO_REUSEPORT`), and \
            what their owners did",
    speaks: "in a `SO_REUSEPORT` group one socket, read and with an equal buffer, lost twice the mean or \
             more, another nothing",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let mut groups = BTreeMap::new();
    let uneven = overruns(seen).into_iter();
    for overrun in uneven.filter(|overrun| overrun.cause == Cause::Uneven) {
        let group: &mut Vec<_> = groups.entry(place(overrun.socket)).or_default();
        group.push(overrun);
    }
    let mut sizes: BTreeMap<_, usize> = BTreeMap::new();
    for socket in seen.sockets.iter().filter(|one| may_share(one)) {
        *sizes.entry(place(socket)).or_default() += 1;
    }
    let found = groups.into_iter().filter_map(|(at, mut lossy)| {
        lossy.sort_by_key(|overrun| std::cmp::Reverse(overrun.lost));
        let evidence: Vec<Evidence> = lossy.iter().map(|one| one.socket.drops.clone()).collect();
        let lost = lossy.iter().fold(0, |sum: u64, one| sum.saturating_add(one.lost));
        let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?.of(lost, seen);
        let all = sizes.get(&at).copied().unwrap_or(0);
        let what = format!(
            "of the {all} sockets at {}, {} lost all that was lost, and {} lost nothing: the flows are \
             spread unevenly",
            lossy.first()?.socket.name(),
            lossy.len(),
            all.saturating_sub(lossy.len()),
        );
        // A thread that hangs in a loop looks the same.
        let confidence = match lossy.iter().any(|one| one.late != Late::Bursts) {
            true => Confidence::Possible,
            false => Confidence::Likely,
        };
        let wildcard = match at.0.ip().is_unspecified() {
            true => {
                "; sockets of all addresses are chosen without regard to the destination, so that \
                 senders with one address and port reach one socket: bind each to an address of its own"
            }
            false => "",
        };
        let remedy = format!(
            "with SO_REUSEPORT a socket is chosen by a hash of the addresses and ports: more flows spread \
             better, and a few do not. SO_ATTACH_REUSEPORT_CBPF with the CPU as index spreads by receive \
             queue{wildcard}"
        );
        let why = [said(lossy.first()?.socket)];
        Some(found.says(what, remedy).because(&why).with(confidence))
    });
    found.collect()
}
