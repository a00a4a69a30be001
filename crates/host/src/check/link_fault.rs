//! Why an interface could not send, or its other end could not receive, by their kinds and states.

use super::Observed;
use super::reader::named;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::text::ShellWord;

/// A cause and its remedy.
pub(super) struct LinkFault {
    pub(super) what: String,
    pub(super) remedy: String,
    /// True if a state of the link shows the cause.
    pub(super) is_seen: bool,
}

impl LinkFault {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
            is_seen: false,
        }
    }
}

/// One end of a veth: its name, its MTU, and whether it is up.
type VethEnd<'a> = (&'a str, u32, bool);

/// Why the end of a veth that packets are for refuses them (`__is_skb_forwardable`, net/core/dev.c); none if its
/// state shows no cause.
pub(super) fn of_veth(sender: VethEnd<'_>, receiver: VethEnd<'_>) -> Option<LinkFault> {
    let (name, word) = (receiver.0, ShellWord::new(receiver.0));
    let fault = match receiver {
        (.., false) => LinkFault::new(
            format!("{name} is down"),
            format!("ip link set dev {word} up"),
        ),
        (_, mtu, _) if mtu < sender.1 => LinkFault::new(
            format!(
                "packets were longer than the MTU of {name}, {mtu} bytes, and {} has {}",
                sender.0, sender.1
            ),
            format!(
                "the same MTU at both ends: ip link set dev {word} mtu {}; or ip link set dev {} mtu {mtu}, where \
                 that is, and shorter datagrams",
                sender.1,
                ShellWord::new(sender.0)
            ),
        ),
        _ => return None,
    };
    Some(LinkFault {
        is_seen: true,
        ..fault
    })
}

/// An interface that is down and refused packets, as `lo` of a new network namespace.
pub(super) fn of_down(seen: &Observed, name: &str) -> Option<LinkFault> {
    let mut links = seen.after.links.iter();
    let link = links.find(|link| link.name == name && !link.up)?;
    let refused = seen.link(name, "tx_dropped")?;
    (refused.grown() > 0).then(|| LinkFault {
        is_seen: true,
        ..LinkFault::new(
            format!("{name} is down"),
            format!("ip link set dev {} up", ShellWord::new(&link.name)),
        )
    })
}

/// Why this interface could not send what it was given (`tx_dropped`, `tx_errors`).
pub(super) fn of_sender(seen: &Observed, name: &str) -> LinkFault {
    let word = ShellWord::new(name);
    if let Some(fault) = of_down(seen, name) {
        return fault;
    }
    match seen.driver_of(name) {
        "tun" | "tap" | "macvtap" => LinkFault::new(
            "the program at the other end of a tun or tap (a VPN, QEMU) does not read its packets fast enough",
            format!(
                "that program needs more CPU time, or more queues; or a longer queue for bursts: ip link set dev \
                 {word} txqueuelen 10000"
            ),
        ),
        "vxlan" | "geneve" => LinkFault::new(
            "a tunnel knows no remote for what this host sends, or has no route to the remote",
            format!(
                "bridge fdb show dev {word}: bridge fdb append MAC dev {word} dst REMOTE (the MAC 00:00:00:00:00:00 \
                 is for all others); ip -d link show dev {word}; ip route get REMOTE"
            ),
        ),
        "veth" => veth_peer(seen, name).unwrap_or_else(|| {
            LinkFault::new(
                "the other end of a veth refuses what this host sends: its ring of 256 packets is full, it is down, \
                 or its MTU is smaller",
                "ip link show dev PEER, in the namespace of the other end: the same MTU, and up; more CPU time for \
                 the soft interrupts there",
            )
        }),
        _ => LinkFault::new(
            "an interface dropped what this host sends: its transmit ring was full, or its driver could not send",
            "a lower rate, a longer ring (ethtool -G IF tx N), or a queue in front of it (tc qdisc replace dev IF \
             root fq_codel)",
        ),
    }
}

fn veth_peer(seen: &Observed, name: &str) -> Option<LinkFault> {
    let mut links = seen.after.links.iter();
    let own = links.find(|link| link.name == name)?;
    let sender = (name, own.mtu, own.up);
    if let Some(end) = seen.after.far_ends.get(name) {
        return of_veth(sender, (&end.name, end.mtu, end.up));
    }
    let mut links = seen.after.links.iter();
    let is_peer =
        |link: &&NetlinkLink| own.bound_namespace.is_none() && Some(link.index) == own.bound_to;
    let peer = links.find(is_peer)?;
    of_veth(sender, (&peer.name, peer.mtu, peer.up))
}

/// Kinds of interfaces that pass packets among themselves and to the outside, and not to the host of the interface
/// below them (`macvlan_queue_xmit`, drivers/net/macvlan.c).
const SIDE_BY_SIDE: [&str; 3] = ["macvlan", "macvtap", "ipvlan"];
/// The remedy for the host.
const BESIDE: &str = "an interface of the same kind for the host, with the address or the route to them: ip link add link IF name host0 \
                      type macvlan mode bridge; or a veth and a bridge instead";

/// The kind of such an interface, the others that it does not hear by its mode and the remedy; none for others.
fn side_by_side(link: &NetlinkLink) -> Option<(String, String, String)> {
    let kind = &link.kind;
    if link.bound_namespace.is_none() || !SIDE_BY_SIDE.contains(&&**kind) {
        return None;
    }
    let (word, family) = (ShellWord::new(&link.name), kind.replace("vtap", "vlan"));
    let mode = match &*family {
        "macvlan" => "mode bridge",
        _ => "bridge",
    };
    let open = format!(
        "if the other is on the same interface: ip link set dev {word} type {kind} {mode}, on both sides; otherwise {BESIDE}"
    );
    let (others, remedy) = match link.apart {
        None => return Some((kind.clone(), String::new(), BESIDE.to_owned())),
        Some("source") => (
            "Ethernet addresses that are not in its list".to_owned(),
            format!(
                "ip link set dev {word} type {kind} macaddr add MAC, for each sender; or {open}"
            ),
        ),
        Some("vepa") => (
            format!(
                "another {family} on the same interface, unless the switch sends back (reflective relay)"
            ),
            open,
        ),
        Some(_) => (format!("another {family} on the same interface"), open),
    };
    let mode = link.apart.unwrap_or_default();
    Some((
        format!("{kind} in mode {mode}"),
        format!("{others}, nor "),
        remedy,
    ))
}

/// The first interface of such a kind, which does not hear the host that has the interface below it, as a half
/// sentence, and the remedy.
pub(super) fn deaf_to_host(seen: &Observed) -> Option<(String, String)> {
    let mut links = seen.after.links.iter();
    let (name, (kind, others, remedy)) =
        links.find_map(|link| Some((&link.name, side_by_side(link)?)))?;
    let what = format!(
        "; {name} is a {kind}, which never hears {others}the host that has the interface below it"
    );
    Some((what, remedy))
}

/// The fault of an interface that cannot send at all.
pub(super) fn of_way(seen: &Observed, name: &str) -> Option<LinkFault> {
    let mut links = seen.after.links.iter();
    let link = links.find(|link| link.name == name)?;
    let has_port = seen
        .after
        .links
        .iter()
        .any(|port| port.controller == Some(link.index));
    if link.kind == "bridge" && !has_port {
        let what = format!("the bridge {name} has no port");
        return Some(LinkFault::new(
            what,
            format!(
                "ip link set dev PORT master {}: of a container, PORT is the end of its veth here",
                ShellWord::new(name)
            ),
        ));
    }
    if let Some((kind, others, remedy)) = side_by_side(link) {
        let what = format!(
            "{name} is a {kind}: it never reaches {others}the host that has the interface below it, if that is who does not answer"
        );
        return Some(LinkFault::new(what, remedy));
    }
    if let Some(end) = seen.after.far_ends.get(name).filter(|end| end.isolated) {
        let what = format!(
            "the other end of {name}, {} in namespace {}, is an isolated port of a bridge, which passes nothing to other \
             isolated ports, as where the next host is behind one",
            end.name, end.namespace
        );
        let port = ShellWord::new(&end.name);
        let remedy = format!(
            "in namespace {}: bridge link set dev {port} isolated off",
            end.namespace
        );
        return Some(LinkFault::new(what, remedy));
    }
    (!link.carrier).then(|| {
        LinkFault::new(
            format!("{name} has no carrier"),
            "ip link set dev PEER up at the other end of the veth or cable",
        )
    })
}

/// Ports of one bridge with different MTUs: a bridge drops what is longer than that of the port it leaves by, and
/// sends no answer (`br_dev_queue_push_xmit`, net/bridge/br_forward.c).
pub(super) fn of_bridge(seen: &Observed) -> Option<LinkFault> {
    let links = &seen.after.links;
    let bridges = links.iter().filter(|link| link.kind == "bridge");
    let mut ports = bridges.flat_map(|bridge| {
        let ports = links
            .iter()
            .filter(|port| port.controller == Some(bridge.index));
        let least = ports.clone().min_by_key(|port| port.mtu);
        least.zip(ports.max_by_key(|port| port.mtu))
    });
    let (least, most) = ports.find(|(least, most)| least.mtu < most.mtu)?;
    Some(LinkFault::new(
        format!(
            "ports of one bridge have different MTUs, {} {} bytes and {} {}, and a bridge drops what is too long \
             for the port that it leaves by",
            least.name, least.mtu, most.name, most.mtu
        ),
        format!(
            "one MTU for the whole way: ip link set dev {} mtu {} if the link takes it, or {} at the senders",
            ShellWord::new(&least.name),
            most.mtu,
            least.mtu
        ),
    ))
}

/// The isolated ports of one bridge, with packets that they received; none for fewer than two.
pub(super) fn of_isolated(seen: &Observed) -> Option<LinkFault> {
    let links = &seen.after.links;
    let bridges = links.iter().filter(|link| link.kind == "bridge");
    let (bridge, ports) = bridges
        .map(|bridge| {
            let ports = links
                .iter()
                .filter(|port| port.controller == Some(bridge.index));
            let ports = ports.filter(|port| port.isolated && port.up);
            (bridge, ports.map(|port| &*port.name).collect::<Vec<&str>>())
        })
        .find(|(_, ports)| ports.len() > 1)?;
    let what = format!(
        "the ports {} of the bridge {} are isolated, and pass nothing to each other",
        named(ports.iter().map(|port| (*port).to_owned()).collect()),
        bridge.name
    );
    let first = ports.first().map_or("PORT", |port| port);
    Some(LinkFault::new(
        what,
        format!(
            "bridge link set dev {} isolated off, for one of two that should",
            ShellWord::new(first)
        ),
    ))
}

/// An ifb that is down: a filter of tc that redirects to it drops (`tcf_mirred_to_dev`, net/sched/act_mirred.c).
pub(super) fn of_redirect(seen: &Observed) -> Option<LinkFault> {
    let mut links = seen.after.links.iter();
    let ifb = links.find(|link| link.kind == "ifb" && !link.up)?;
    Some(LinkFault::new(
        format!(
            "a filter of tc redirects them (mirred) to {}, an ifb that is down",
            ifb.name
        ),
        format!(
            "ip link set dev {} up; tc -s filter show dev IF ingress, or egress, shows whether it redirects there",
            ShellWord::new(&ifb.name)
        ),
    ))
}

/// The interface whose queueing discipline dropped packets, where `tc -s qdisc` counts it, or where an interface
/// without carrier has none.
pub(super) fn of_queue(seen: &Observed) -> Option<LinkFault> {
    let links = seen.delta.links.iter();
    let dropping = links.filter(|(_, link)| link.qdisc_drops.is_some_and(|drops| drops > 0));
    if let Some((name, _)) = dropping.max_by_key(|(_, link)| link.qdisc_drops) {
        return Some(LinkFault::new(
            format!("the queueing discipline of {name} dropped them, as a limit of bandwidth does"),
            format!(
                "tc -s qdisc show dev {}: a higher rate or limit",
                ShellWord::new(name)
            ),
        ));
    }
    let mut down = seen
        .counting_interfaces()
        .filter_map(|name| of_down(seen, name));
    if let Some(fault) = down.next() {
        return Some(fault);
    }
    let mut links = seen.after.links.iter();
    let silent =
        links.find(|link| link.up && !link.carrier && !["bridge", "tun"].contains(&&*link.kind))?;
    let name = &silent.name;
    let end = seen.after.far_ends.get(name).filter(|end| !end.up);
    let (what, remedy) = match end {
        Some(end) => (
            format!(
                "{name} has no carrier: its other end, {} in namespace {}, is down",
                end.name, end.namespace
            ),
            format!(
                "in namespace {}: ip link set dev {} up",
                end.namespace,
                ShellWord::new(&end.name)
            ),
        ),
        None => (
            format!("{name} is up and has no carrier, so that the kernel drops what is sent by it"),
            "the other end of the veth or cable has to be up: ip link set dev PEER up".to_owned(),
        ),
    };
    Some(LinkFault::new(what, remedy))
}
