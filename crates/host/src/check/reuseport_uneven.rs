//! A group of sockets at one port of which some are overrun and others are not.

use super::{Check, Confidence, Evidence, Finding, Seen, SeenSocket};
use crate::Station;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

pub(super) const CHECK: Check = Check {
    name: "reuseport_uneven",
    reads: "`sk_drops` of the sockets that share an address and a port (`SO_REUSEPORT`)",
    speaks: "of such a group one socket lost at least twice the mean of all, and another one lost nothing",
    made_by: "four sockets at one port and one flow (gallery: `one_flow_for_four_sockets`)",
    run,
};

/// Fewer drops than this say nothing of the shares.
const DROPS_MIN: u64 = 100;

fn run(seen: &Seen) -> Vec<Finding> {
    groups(seen)
        .iter()
        .filter_map(|group| finding(seen, group))
        .collect()
}

/// The sockets of uneven groups, whose drops this check explains.
pub(super) fn inodes(seen: &Seen) -> BTreeSet<u32> {
    let groups = groups(seen);
    groups.iter().flatten().map(|one| one.entry.inode).collect()
}

/// The uneven groups.
fn groups<'a>(seen: &Seen<'a>) -> Vec<Vec<SeenSocket<'a>>> {
    let mut groups: BTreeMap<(SocketAddr, u32), Vec<SeenSocket>> = BTreeMap::new();
    let own = |socket: &SeenSocket| {
        socket.entry.remote.is_none() && !socket.entry.local.ip().is_multicast()
    };
    for socket in seen.sockets().into_iter().filter(own) {
        let key = (socket.entry.local, socket.entry.interface);
        groups.entry(key).or_default().push(socket);
    }
    groups
        .into_values()
        .filter(|group| is_uneven(group))
        .collect()
}

fn is_uneven(group: &[SeenSocket]) -> bool {
    let drops = || group.iter().map(|socket| socket.drops.grown());
    let (sum, most) = (
        drops().fold(0, u64::saturating_add),
        drops().max().unwrap_or(0),
    );
    let twice_the_mean = most.saturating_mul(group.len() as u64) >= sum.saturating_mul(2);
    group.len() > 1 && sum >= DROPS_MIN && twice_the_mean && drops().any(|drops| drops == 0)
}

fn finding(seen: &Seen, group: &[SeenSocket]) -> Option<Finding> {
    let mut lossy: Vec<&SeenSocket> = group.iter().filter(|one| one.drops.grown() > 0).collect();
    lossy.sort_by_key(|one| std::cmp::Reverse(one.drops.grown()));
    let evidence: Vec<Evidence> = lossy.iter().map(|one| one.drops.clone()).collect();
    let found = Finding::lost(seen, &CHECK, Station::Socket, evidence)?;
    let what = format!(
        "of the {} sockets at {}, {} lost all that was lost, and {} lost nothing: the flows are spread \
         unevenly",
        group.len(),
        lossy.first()?.name(),
        lossy.len(),
        group.len() - lossy.len(),
    );
    let wildcard = match group[0].entry.local.ip().is_unspecified() {
        true => {
            "; sockets of all addresses are chosen without regard to the destination, so that senders \
             with one address and port reach one socket: bind each to an address of its own"
        }
        false => "",
    };
    let remedy = format!(
        "a socket is chosen by a hash of the addresses and ports: more flows spread better, and a few \
         do not. SO_ATTACH_REUSEPORT_CBPF with the CPU as index spreads by receive queue{wildcard}"
    );
    Some(found.says(what, remedy).with(Confidence::Likely))
}
