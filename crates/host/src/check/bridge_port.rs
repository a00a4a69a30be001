//! Ports of bridges that forward nothing.

use super::{Check, Confidence, Evidence, Finding, Observed, far_end};
use crate::Station;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::text::{Foreign, ShellWord};

pub(super) const CHECK: Check = Check {
    name: "bridge_port",
    reads: "the state of each bridge's port that has a carrier, here and at the other end of a veth (`IFLA_BRPORT_STATE`)",
    speaks: "a port of a bridge forwards nothing (disabled, listening, learning, blocking); a remark for a card's, which \
             spanning tree may block on purpose",
    run,
};

/// Kinds of ports behind which no other bridge is, as a rule.
const LEAVES: [&str; 2] = ["veth", "tun"];

fn run(seen: &Observed) -> Vec<Finding> {
    let here = seen.after.links.iter().filter_map(|port| own(seen, port));
    let beyond = far_end::ends(seen).filter_map(|(here, then, now)| {
        let state = now.held_back.filter(|_| now.up)?;
        let bridge = now.bridge.as_ref()?;
        let source = format!("{}: {} tx_packets", now.namespace, now.name);
        let sent = [then, now].map(|end| end.counters.tx_packets);
        let evidence = Evidence::new(source, sent[0], sent[1]);
        let place = format!("in namespace {}: ", now.namespace);
        let mut found = finding(seen, &place, (&now.name, bridge, state), evidence);
        found.what += &Foreign(format!("; {here} here gets nothing from it")).to_string();
        Some(found)
    });
    here.chain(beyond).collect()
}

fn own(seen: &Observed, port: &NetlinkLink) -> Option<Finding> {
    let state = port.held_back.filter(|_| port.up && port.carrier)?;
    let bridge = seen.interface_name(port.controller?)?;
    let evidence = seen.link(&port.name, "tx_packets")?;
    let mut found = finding(seen, "", (&port.name, bridge, state), evidence);
    found.is_remark = !LEAVES.contains(&&*port.kind);
    Some(found)
}

fn finding(
    seen: &Observed,
    place: &str,
    (port, bridge, state): (&str, &str, &str),
    evidence: Evidence,
) -> Finding {
    let what = format!(
        "{place}{port}, a port of the bridge {bridge}, forwards nothing: its state is {state}, by spanning tree or by hand"
    );
    let [port, bridge] = [port, bridge].map(ShellWord::new);
    let remedy = format!(
        "{place}wait twice the forward_delay of spanning tree (ip -d link show dev {bridge}), and look again; or, if there \
         is no loop, ip link set dev {bridge} type bridge stp_state 0; or, if it was set by hand, bridge link set dev \
         {port} state 3"
    );
    let found = Finding::noticed(seen, &CHECK, Station::Wire, vec![evidence]);
    found.says(what, remedy).with(Confidence::Likely)
}
