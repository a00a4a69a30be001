//! The table of losses: what each is called, where it happens, and who counts it.
//!
//! The account of a run, the doctor's ledger, `mpps top`, the exporter and the docs read it, so that one
//! loss has one name. A counter of `/proc/net/snmp`, `snmp6` or `netstat` belongs to one row.

use super::{Loss, Scope, Station};

/// A kind of loss.
#[derive(Debug, PartialEq, Eq)]
pub struct LossKind {
    /// Its name for programs.
    pub name: &'static str,
    /// Where packets are lost.
    pub station: Station,
    /// Its name for people.
    pub words: &'static str,
    /// Whose packets its counters count.
    pub scope: Scope,
    /// The counters of a network namespace that grow by it alone.
    pub counters: &'static [&'static str],
    /// The kernel's drop reasons of it.
    pub reasons: &'static [&'static str],
    /// The checks of the doctor that count it, where no counter of the namespace does.
    pub checks: &'static [&'static str],
}

impl LossKind {
    const fn new(station: Station, name: &'static str, words: &'static str) -> Self {
        Self {
            name,
            station,
            words,
            scope: Scope::Namespace,
            counters: &[],
            reasons: &[],
            checks: &[],
        }
    }

    const fn of(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    const fn counted_by(self, counters: &'static [&'static str]) -> Self {
        Self { counters, ..self }
    }

    const fn dropped_for(self, reasons: &'static [&'static str]) -> Self {
        Self { reasons, ..self }
    }

    const fn found_by(self, checks: &'static [&'static str]) -> Self {
        Self { checks, ..self }
    }

    /// A row of a ledger, by this counter: exact, and a counter of its own unless the caller says
    /// otherwise.
    pub fn row(&self, count: u64, source: impl Into<String>) -> Loss {
        let row = Loss::new(self.station, self.words, count, source);
        Loss {
            scope: self.scope,
            ..row
        }
    }
}

use Scope::{Host, Interface, Program, Socket};
use Station as At;

/// Makes a constant of each row, and the table of them: no kind is missing there.
macro_rules! losses {
    ($(#[$about:meta])* $table:ident: $($(#[$doc:meta])* $name:ident = $row:expr;)+) => {
        $($(#[$doc])* pub const $name: LossKind = $row;)+

        $(#[$about])*
        pub const $table: &[&LossKind] = &[$(&$name),+];
    };
}

losses! {
    /// Every kind of loss of what this host sends, in the order of the packets' way.
    LOSSES_OUT:
    /// No route to where a program sends (`ENETUNREACH`).
    NO_ROUTE_OUT = LossKind::new(At::Sender, "no_route_out", "no route out")
        .counted_by(&["Ip.OutNoRoutes", "Ip6.OutNoRoutes"]).dropped_for(&["IP_OUTNOROUTES"]);
    /// A policy of IPsec wants encryption, and has no state. The packets get a route that drops them without an answer.
    NO_STATE_OUT = LossKind::new(At::Sender, "ipsec_state_out", "no state of IPsec")
        .counted_by(&["XfrmOutNoStates"]).dropped_for(&["NOT_SPECIFIED@dst_discard_out"]);
    /// A policy of IPsec blocks them (`EPERM`).
    BLOCKED_OUT = LossKind::new(At::Sender, "ipsec_block_out", "blocked by a policy of IPsec")
        .counted_by(&["XfrmOutPolBlock"]);
    /// A program that does not wait found its send buffer full (`EAGAIN`).
    SEND_BUFFER = LossKind::new(At::Sender, "send_buffer_full", "send buffer full")
        .counted_by(&["Udp.SndbufErrors", "Udp6.SndbufErrors"]);
    /// A rule of the firewall for what is sent (`EPERM`).
    FIREWALL_OUT = LossKind::new(At::Sender, "firewall_out", "firewall of what is sent")
        .counted_by(&["Ip.OutDiscards", "Ip6.OutDiscards"]).dropped_for(&["NETFILTER_DROP"]);
    /// Longer than the path takes, and not to be fragmented (`EMSGSIZE`). It is in `OutDiscards`, too.
    TOO_LONG_OUT = LossKind::new(At::Sender, "too_long_out", "too long for the path")
        .counted_by(&["Ip.FragFails", "Ip6.FragFails"]).dropped_for(&["PKT_TOO_BIG"]);
    /// A BPF program of the sender's cgroup (`EPERM`).
    CGROUP_OUT = LossKind::new(At::Sender, "cgroup_out", "BPF program of the sender's cgroup")
        .dropped_for(&["BPF_CGROUP_EGRESS"]);
    /// The next host does not answer ARP or neighbour discovery.
    NO_NEIGHBOUR = LossKind::new(At::Sender, "no_neighbour", "no answer of the next host")
        .dropped_for(&["NEIGH_*"]);
    /// The queueing discipline of an interface.
    QDISC_OUT = LossKind::new(At::Sender, "qdisc_out", "queueing discipline")
        .of(Interface).dropped_for(&["QDISC_*", "FQ_*", "CAKE_*", "DUALPI2_*"]);
    /// A filter of tc of an interface.
    FILTER_OUT = LossKind::new(At::Sender, "tc_filter_out", "filter of tc")
        .of(Interface).dropped_for(&["TC_*"]);
    /// A rule of the firewall at an interface, of a table of the family netdev (`ENOBUFS`).
    EGRESS_OUT = LossKind::new(At::Sender, "firewall_egress_out", "firewall at an interface")
        .of(Interface).dropped_for(&["NETFILTER_DROP+egress"]);
    /// Refused by a queue or a filter behind IP, without a drop reason (`ENOBUFS`).
    BEHIND_OUT = LossKind::new(At::Sender, "refused_behind_ip", "refused behind IP");
    /// The driver of an interface: its transmit ring was full, or it could not send.
    INTERFACE_OUT = LossKind::new(At::Sender, "interface_out", "sending interface")
        .of(Interface).dropped_for(&["FULL_RING", "TAP_*", "NOT_SPECIFIED@__dev_forward_skb2"]);
    /// Beyond what a cloud's machine may send.
    ALLOWANCE_OUT =
        LossKind::new(At::Sender, "cloud_allowance_out", "held back by the cloud on the way out")
        .of(Interface);
    /// Losses that only another drop reason of the kernel shows.
    OTHER_OUT = LossKind::new(At::Sender, "other_reason_out", "another reason on the way out");
}

losses! {
    /// Every kind of loss, in the order of the stations.
    LOSSES:
    /// Refused by the sending kernel before the packet left its socket.
    REFUSED_BY_SENDER = LossKind::new(At::Sender, "refused_by_sender", "refused").of(Program);
    /// Taken from the sending socket and dropped behind it.
    BEHIND_SENDER =
        LossKind::new(At::Sender, "behind_sending_socket", "dropped behind the sending socket")
        ;
    /// Dropped by the queueing discipline of the sender's interface.
    SENDER_QDISC =
        LossKind::new(At::Sender, "sender_qdisc", "dropped by the sender's queueing discipline")
        .of(Interface);
    /// Dropped by the driver of the sender's interface.
    SENDER_INTERFACE =
        LossKind::new(At::Sender, "sender_interface", "dropped by the sending interface")
        .of(Interface);
    /// Left one card and did not reach the other.
    BETWEEN_NICS = LossKind::new(At::Wire, "between_nics", "lost between the two NICs")
        .of(Interface);
    /// The receive ring of a veth was full (no reason of its own, drivers/net/veth.c).
    VETH_RING_FULL = LossKind::new(At::Wire, "receive_ring_full", "receive ring full")
        .of(Interface).dropped_for(&["NOT_SPECIFIED"]);
    /// The other end of a veth dropped it before it came to this namespace.
    FAR_END = LossKind::new(At::Wire, "far_end", "dropped at the other end of the veth")
        .of(Interface).found_by(&["far_end"]);
    /// A card had no descriptor, or no room in its FIFO.
    NIC_NO_ROOM = LossKind::new(At::Wire, "nic_no_room", "no room in the NIC")
        .of(Interface).found_by(&["nic_no_room", "nic_no_memory"]);
    /// Beyond what a cloud's machine may receive.
    ALLOWANCE = LossKind::new(At::Wire, "cloud_allowance", "held back by the cloud")
        .of(Interface).found_by(&["allowance"]);
    /// Damaged on the wire.
    DAMAGED = LossKind::new(At::Wire, "damaged_frame", "damaged frame")
        .of(Interface).found_by(&["frame_errors"]);
    /// Dropped by a card or driver for another cause.
    NIC_REFUSED = LossKind::new(At::Wire, "nic_refused", "refused by the NIC")
        .of(Interface).found_by(&["nic_refused"]);
    /// Dropped by an XDP program.
    XDP = LossKind::new(At::Wire, "xdp_program", "XDP program")
        .of(Interface).dropped_for(&["XDP"]).found_by(&["xdp_drop"]);
    /// Refused by a tunnel or another virtual device. UDP has delivered the packet around it, if that was one.
    VIRTUAL_DEVICE = LossKind::new(At::Wire, "virtual_device", "refused by a virtual device")
        .of(Interface)
        .dropped_for(&["IP_TUNNEL_ECN", "VXLAN_INVALID_HDR"])
        .found_by(&["virtual_device"]);
    /// The queue of a CPU was full (`netif_rx`, RPS).
    BACKLOG_FULL = LossKind::new(At::Backlog, "backlog_full", "per-CPU backlog full")
        .of(Host).dropped_for(&["CPU_BACKLOG"]).found_by(&["backlog"]);
    /// The way back to the sender is another (`rp_filter`).
    REVERSE_PATH = LossKind::new(At::Ip, "reverse_path_filter", "reverse path filter")
        .counted_by(&["TcpExt.IPReversePathFilter"]).dropped_for(&["IP_RPFILTER"]);
    /// No address of this host.
    ADDRESS = LossKind::new(At::Ip, "not_our_address", "not an address of this host")
        .counted_by(&["Ip.InAddrErrors", "Ip6.InAddrErrors"])
        .dropped_for(&["IP_INADDRERRORS", "IP_INVALID_DEST"]);
    /// A header that cannot be.
    BAD_HEADER = LossKind::new(At::Ip, "bad_ip_header", "bad IP header")
        .counted_by(&["Ip.InHdrErrors", "Ip6.InHdrErrors"])
        .dropped_for(&["IP_CSUM", "IP_INHDR", "IPV6_BAD_EXTHDR"]);
    /// Shorter than its header says.
    CUT_SHORT = LossKind::new(At::Ip, "cut_short", "cut short")
        .counted_by(&["IpExt.InTruncatedPkts", "Ip6.InTruncatedPkts"]).dropped_for(&["HDR_TRUNC"]);
    /// No route to its destination.
    NO_ROUTE = LossKind::new(At::Ip, "no_route", "no route")
        .counted_by(&["IpExt.InNoRoutes", "Ip6.InNoRoutes"]).dropped_for(&["IP_INNOROUTES"]);
    /// For want of memory, or because IPv6 is off.
    DISCARDED = LossKind::new(At::Ip, "discarded_by_ip", "discarded by IP")
        .counted_by(&["Ip.InDiscards", "Ip6.InDiscards"]).dropped_for(&["NOMEM", "IPV6DISABLED"]);
    /// A datagram that missed a fragment. The counters have one for each datagram that was given up, not for
    /// each fragment.
    FRAGMENTS = LossKind::new(At::Ip, "fragments", "fragments without the rest")
        .counted_by(&["Ip.ReasmFails", "Ip6.ReasmFails"])
        .dropped_for(&["FRAG_REASM_TIMEOUT", "FRAG_TOO_FAR", "DUP_FRAG"]);
    /// A rule of netfilter, or connection tracking.
    FIREWALL = LossKind::new(At::Ip, "firewall", "firewall")
        .dropped_for(&["NETFILTER_DROP"]).found_by(&["firewall"]);
    /// Dropped by connection tracking.
    CONNTRACK = LossKind::new(At::Ip, "connection_tracking", "connection tracking")
        .found_by(&["conntrack"]);
    /// IP delivered and forwarded it nowhere.
    UNROUTED = LossKind::new(At::Ip, "delivered_nowhere", "delivered nowhere")
        .found_by(&["unrouted"]);
    /// No socket at its port and address.
    NO_SOCKET = LossKind::new(At::Udp, "no_socket", "no socket on the port")
        .counted_by(&["Udp.NoPorts", "Udp6.NoPorts"]).dropped_for(&["NO_SOCKET"]);
    /// To all hosts or to a group, and no socket was for it.
    NO_MEMBER =
        LossKind::new(At::Udp, "no_socket_for_group", "broadcast or multicast without a socket")
        .counted_by(&["Udp.IgnoredMulti", "Udp6.IgnoredMulti"]);
    /// The checksum is not that of its bytes.
    CHECKSUM = LossKind::new(At::Udp, "bad_udp_checksum", "bad UDP checksum")
        .counted_by(&["Udp.InCsumErrors", "Udp6.InCsumErrors"]).dropped_for(&["UDP_CSUM"]);
    /// All UDP sockets together have no memory left (`net.ipv4.udp_mem`).
    NO_MEMORY = LossKind::new(At::Udp, "no_udp_memory", "no memory for UDP")
        .counted_by(&["Udp.MemErrors", "Udp6.MemErrors"]).dropped_for(&["PROTO_MEM"]);
    /// Refused by UDP for another cause: a socket filter, a program of a cgroup, an IPsec policy, or a length
    /// that cannot be. The counters are computed.
    REFUSED_BY_UDP = LossKind::new(At::Udp, "refused_by_udp", "refused by UDP")
        .counted_by(&["Udp.InErrors beyond its parts", "Udp6.InErrors beyond its parts"])
        .dropped_for(&["SOCKET_FILTER", "SECURITY_HOOK", "XFRM_POLICY"]);
    /// The buffer of a socket was full.
    BUFFER_FULL = LossKind::new(At::Socket, "socket_buffer_full", "socket buffer full")
        .counted_by(&["Udp.RcvbufErrors", "Udp6.RcvbufErrors"]).dropped_for(&["SOCKET_RCVBUFF"]);
    /// The ring of an AF_XDP socket was full, or had no frames.
    XDP_RING = LossKind::new(At::Socket, "af_xdp_ring", "AF_XDP ring")
        .of(Socket).found_by(&["xdp_socket"]);
    /// A program closed its socket before it had read all.
    CLOSED_UNREAD = LossKind::new(At::Socket, "closed_unread", "unread in a closed socket")
        .found_by(&["closed_unread"]);
    /// Datagrams that a program read with too small a buffer; the least of each train.
    CUT_BY_PROGRAM = LossKind::new(At::Application, "cut_by_program", "cut to the program's buffer")
        .found_by(&["truncated_reads"]);
}

/// The reason of losses that only a drop reason of the kernel shows.
pub const OTHER_REASON: &str = OTHER.words;
const OTHER: LossKind = LossKind::new(At::Ip, "other_drop_reason", "another drop reason");
/// The stations of [`OTHER_REASON`].
pub const OTHER_STATIONS: [Station; 4] = [At::Wire, At::Ip, At::Udp, At::Socket];

/// Every loss that a host's own ledger can have.
pub fn of_a_host() -> impl Iterator<Item = LossKind> {
    let counted = LOSSES
        .iter()
        .filter(|kind| !kind.counters.is_empty() || !kind.checks.is_empty());
    let others = OTHER_STATIONS.map(|station| LossKind { station, ..OTHER });
    counted.map(|kind| LossKind { ..**kind }).chain(others)
}

/// The name for programs of the loss that a ledger calls by these words.
pub fn name(words: &str) -> &str {
    let mut all = LOSSES.iter().chain(&[&OTHER]);
    let kind = all.find(|kind| kind.words == words);
    kind.map_or(words, |kind| kind.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two of these are the same.
    fn are_unique<T: Ord + std::fmt::Debug>(all: impl Iterator<Item = T>) {
        let mut all: Vec<T> = all.collect();
        all.sort();
        let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(twice.is_none(), "{twice:?}");
    }

    #[test]
    fn names_counters_and_reasons_are_of_one_row() {
        let both = || LOSSES.iter().chain(LOSSES_OUT);
        are_unique(both().map(|kind| kind.name));
        are_unique(both().map(|kind| kind.words));
        are_unique(both().flat_map(|kind| kind.counters));
        // A firewall has the same reason for both ways.
        are_unique(LOSSES.iter().flat_map(|kind| kind.reasons));
        are_unique(LOSSES_OUT.iter().flat_map(|kind| kind.reasons));
        assert!(LOSSES.is_sorted_by_key(|kind| kind.station));
    }

    #[test]
    fn checks_of_the_table_exist() {
        let known: Vec<&str> = crate::CHECKS.iter().map(|check| check.name).collect();
        for check in LOSSES.iter().flat_map(|kind| kind.checks) {
            assert!(known.contains(check), "{check}");
        }
    }

    #[test]
    fn each_kind_has_somebody_who_counts_it() {
        let by_account = [At::Sender, At::Wire];
        for kind in LOSSES {
            let is_counted = !kind.counters.is_empty() || !kind.checks.is_empty();
            assert!(
                is_counted || by_account.contains(&kind.station),
                "{}",
                kind.name
            );
        }
    }
}
