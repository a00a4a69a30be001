//! The packet filter: where its rules and tracked flows send packets, and the queues of its programs.

use crate::root::Root;
use mpps_os::netlink::netfilter_rule::{self, NetfilterAction, NetfilterRule};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Where more flows than this are tracked, the list is not read: it takes about 0.2 s for a port that was
/// asked for, and 10 ms without one, as for a screen that looks each second.
const READ_MAX: u64 = 64 * 1024;
const READ_MAX_OF_ALL: u64 = 2 * 1024;
/// At most this many flows are kept.
const FLOWS_MAX: usize = 64;
/// The IP protocol of UDP.
const UDP: u8 = 17;

/// The facts of netfilter that decide how a loss is fixed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketFilter {
    /// The commands that list the tables of the older iptables, which nft(8) does not show.
    pub legacy: Vec<&'static str>,
    /// One of these tables translates addresses.
    pub has_legacy_nat: bool,
    /// The rules that send packets elsewhere; none if they were not read.
    pub rules: Option<Vec<NetfilterRule>>,
    /// How many rules there are of all kinds; 0 if they were not counted, as where no CPU's backlog was full.
    pub rule_count: usize,
    /// The state that they were read in (`NFTA_GEN_ID`).
    pub(crate) generation: Option<u32>,
    /// UDP flows in question.
    pub flows: Vec<TrackedFlow>,
    /// Its queues for programs that have one open, by number; none if the kernel has no such queues.
    pub queues: Option<BTreeMap<u16, FilterQueue>>,
    /// The tracker looks at checksums, and finds packets with a wrong one invalid.
    pub checks_checksums: bool,
}

/// A UDP flow of the connection tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackedFlow {
    /// The sender of its first packet.
    pub from: SocketAddr,
    /// The destination of its first packet.
    pub to: SocketAddr,
    /// Where answers come from: another address than `to` if it is translated.
    pub answers: SocketAddr,
    /// An answer came.
    pub is_answered: bool,
}

impl TrackedFlow {
    /// True if it goes to another destination than its sender chose.
    pub fn is_translated(&self) -> bool {
        self.answers != self.to
    }
}

/// A queue for a program, and its drops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterQueue {
    /// The address of the program's socket: the number of its process, unless the socket asked for another or is not
    /// its first.
    pub address: u32,
    /// Packets that wait for the program's decision (`queue_total`).
    pub waiting: u64,
    /// All packets that ever came (`id_sequence`), without those of `full`.
    pub came: u64,
    /// It was full (`queue_dropped`).
    pub full: u64,
    /// The program's socket had no room (`user_dropped`).
    pub no_room: u64,
}

/// The flows in question.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FlowsOf<'a> {
    /// None: the list is not read.
    None,
    /// To or from this port.
    Port(u16),
    /// From or to these ports without an answer, or translated to these addresses.
    Unanswered(&'a [u16], &'a [IpAddr]),
}

impl PacketFilter {
    /// Reads it without the rules; flows if `tracked` of them are few.
    pub(crate) fn read_from(root: &Root, flows: FlowsOf<'_>, tracked: u64) -> Self {
        let net = |file: &str| root.read_if_possible(&format!("proc/thread-self/net/{file}"));
        let v4 = net("ip_tables_names");
        let has_nat = |names: &Option<String>| {
            let mut names = names.iter().flat_map(|names| names.lines());
            names.any(|name| name == "nat")
        };
        let v6 = net("ip6_tables_names");
        let commands = [
            ("iptables-legacy-save -c", &v4),
            ("ip6tables-legacy-save -c", &v6),
        ];
        let has_queues = root.exists("proc/thread-self/net/netfilter/nfnetlink_queue");
        let queues = net("netfilter/nfnetlink_queue").unwrap_or_default();
        let text = match (flows, tracked) {
            (FlowsOf::None, _) | (_, 0) => None,
            (FlowsOf::Port(_), _) if tracked > READ_MAX => None,
            (FlowsOf::Unanswered(..), _) if tracked > READ_MAX_OF_ALL => None,
            _ => net("nf_conntrack"),
        };
        let checks = root.read_if_possible("proc/sys/net/netfilter/nf_conntrack_checksum");
        Self {
            has_legacy_nat: has_nat(&v4) || has_nat(&v6),
            legacy: commands
                .into_iter()
                .filter_map(|(command, names)| names.as_ref().map(|_| command))
                .collect(),
            rules: None,
            rule_count: 0,
            generation: None,
            flows: flows_in(&text.unwrap_or_default(), flows),
            queues: has_queues.then(|| queues.lines().filter_map(queue).collect()),
            checks_checksums: checks.is_some_and(|value| value == "1"),
        }
    }

    /// Reads the rules, or takes those of `earlier` if they have not changed since, or `goes_on` says no.
    pub(crate) fn read_rules(&mut self, earlier: Option<&Self>, goes_on: &dyn Fn() -> bool) {
        let generation = netfilter_rule::generation().ok();
        self.take_rules(earlier, generation, || netfilter_rule::list(goes_on).ok());
    }

    fn take_rules(
        &mut self,
        earlier: Option<&Self>,
        generation: Option<u32>,
        list: impl FnOnce() -> Option<Vec<NetfilterRule>>,
    ) {
        let known = earlier.filter(|earlier| earlier.generation.is_some());
        let is_known = known.is_some_and(|known| known.generation == generation);
        let rules = if is_known { None } else { list() };
        (self.generation, self.rules) = match (rules, known) {
            (None, Some(known)) => (known.generation, known.rules.clone()),
            (rules, _) => (generation.filter(|_| rules.is_some()), rules),
        };
    }

    /// The rules that translate this port of this protocol.
    pub(crate) fn translations(&self, protocol: u8, port: u16) -> Vec<&NetfilterRule> {
        let rules = self.rules.iter().flatten();
        let fits = |rule: &&NetfilterRule| {
            matches!(rule.action, NetfilterAction::Translate { .. })
                && rule.protocol.is_none_or(|only| only == protocol)
                && rule
                    .ports
                    .as_ref()
                    .is_some_and(|ports| ports.contains(&port))
        };
        rules.filter(fits).collect()
    }

    /// True if any rule translates destinations, whichever they are.
    pub(crate) fn translates(&self) -> bool {
        let mut rules = self.rules.iter().flatten();
        self.has_legacy_nat
            || rules.any(|rule| matches!(rule.action, NetfilterAction::Translate { .. }))
    }

    /// Where datagrams to this port go, by a flow or a rule: `172.17.0.2:47051`.
    pub(crate) fn destination(&self, port: u16) -> Option<String> {
        if let Some(to) = self.translated_to(port) {
            return Some(to.to_string());
        }
        self.translations(UDP, port)
            .first()
            .map(|rule| match rule.action {
                NetfilterAction::Translate { port: Some(to), .. } => {
                    format!("port {to} of this host")
                }
                _ => "another address".to_owned(),
            })
    }

    /// The other port of this host that a flow or a rule translates this port to (`redirect`).
    pub(crate) fn translated_here(&self, port: u16) -> Option<u16> {
        let mut flows = self.flows.iter();
        let flow = flows.find(|flow| flow.to.port() == port && flow.is_translated());
        match (
            flow,
            self.translations(UDP, port)
                .first()
                .map(|rule| &rule.action),
        ) {
            (Some(flow), _) => (flow.answers.ip() == flow.to.ip()).then_some(flow.answers.port()),
            (
                None,
                Some(NetfilterAction::Translate {
                    address: None,
                    port,
                }),
            ) => *port,
            (None, _) => None,
        }
    }

    /// The address that a flow or a rule translates this port to, if they say it.
    pub(crate) fn translated_to(&self, port: u16) -> Option<SocketAddr> {
        let mut flows = self.flows.iter();
        if let Some(flow) = flows.find(|flow| flow.to.port() == port && flow.is_translated()) {
            return Some(flow.answers);
        }
        match self.translations(UDP, port).first()?.action {
            NetfilterAction::Translate {
                address: Some(address),
                port: to,
            } => Some(SocketAddr::new(address, to.unwrap_or(port))),
            _ => None,
        }
    }

    /// A tracked flow that is translated to one of these addresses.
    pub(crate) fn translated_among(&self, addresses: &[IpAddr]) -> Option<&TrackedFlow> {
        let mut flows = self.flows.iter().filter(|flow| flow.is_translated());
        flows.find(|flow| addresses.contains(&flow.answers.ip()))
    }

    /// A tracked flow of this port to a destination that no rule has any more; none where a rule's own port
    /// or address is not known.
    pub(crate) fn outdated(&self, port: u16) -> Option<SocketAddr> {
        let to = |rule: &NetfilterRule| match (&rule.ports, &rule.action) {
            (
                Some(_),
                NetfilterAction::Translate {
                    address: Some(address),
                    port: to,
                },
            ) => Some(Some(SocketAddr::new(*address, to.unwrap_or(port)))),
            (_, NetfilterAction::Translate { .. }) => Some(None),
            _ => None,
        };
        let rules = self.rules.iter().flatten().filter_map(to);
        let known: Vec<SocketAddr> = rules.collect::<Option<_>>()?;
        let is_ruled = !self.translations(UDP, port).is_empty() && !self.has_legacy_nat;
        let mut flows = self.flows.iter().filter(|flow| flow.to.port() == port);
        let old = flows.find(|flow| flow.is_translated() && !known.contains(&flow.answers));
        old.filter(|_| is_ruled).map(|flow| flow.answers)
    }

    /// The first queue of a rule that no program reads, and whose packets are dropped therefore. A rule may
    /// name 65 536 queues.
    pub(crate) fn unread_queue(&self) -> Option<u16> {
        let open = self.queues.as_ref()?;
        let rules = self.rules.iter().flatten();
        let numbers = rules.filter_map(|rule| match &rule.action {
            NetfilterAction::Queue {
                numbers,
                bypasses: false,
            } => Some(numbers.clone()),
            _ => None,
        });
        let unread = numbers.filter_map(|mut of_rule| of_rule.find(|at| !open.contains_key(at)));
        unread.min()
    }
}

/// The UDP flows in question among the lines of the tracker (`ct_seq_show`,
/// net/netfilter/nf_conntrack_standalone.c).
fn flows_in(text: &str, asked: FlowsOf<'_>) -> Vec<TrackedFlow> {
    let flows = text.lines().filter_map(flow);
    let is_asked = |flow: &TrackedFlow| match asked {
        FlowsOf::None => false,
        FlowsOf::Port(port) => [flow.from.port(), flow.to.port()].contains(&port),
        FlowsOf::Unanswered(ports, silent) => {
            let mut ends = [flow.from.port(), flow.to.port()].into_iter();
            let is_lost = flow.is_translated() && silent.contains(&flow.answers.ip());
            is_lost || !flow.is_answered && ends.any(|port| ports.contains(&port))
        }
    };
    flows.filter(is_asked).take(FLOWS_MAX).collect()
}

fn flow(line: &str) -> Option<TrackedFlow> {
    if line.split_ascii_whitespace().nth(2) != Some("udp") {
        return None;
    }
    let end = |address: &str, port: &str, at: usize| {
        let value = |name: &str| {
            let mut words = line.split_ascii_whitespace();
            words
                .by_ref()
                .filter_map(|word| word.strip_prefix(name))
                .nth(at)
        };
        let address: IpAddr = value(address)?.parse().ok()?;
        Some(SocketAddr::new(address, value(port)?.parse().ok()?))
    };
    Some(TrackedFlow {
        from: end("src=", "sport=", 0)?,
        to: end("dst=", "dport=", 0)?,
        answers: end("src=", "sport=", 1)?,
        is_answered: !line.contains("[UNREPLIED]"),
    })
}

/// A line of the list of queues (`seq_show`, net/netfilter/nfnetlink_queue.c).
fn queue(line: &str) -> Option<(u16, FilterQueue)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse().ok();
    let queue = FilterQueue {
        address: u32::try_from(number(1)?).ok()?,
        waiting: number(2)?,
        came: number(7)?,
        full: number(5)?,
        no_room: number(6)?,
    };
    Some((u16::try_from(number(0)?).ok()?, queue))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    /// As kernel 6.18 writes them.
    const TREE: &str = "proc/thread-self/net/ip_tables_names = raw\\nnat\n\
        proc/thread-self/net/netfilter/nfnetlink_queue =     7  12345     0 2 65531     3     4      9  1\n\
        proc/sys/net/netfilter/nf_conntrack_checksum = 1\n\
        proc/thread-self/net/nf_conntrack = \
        ipv4     2 udp      17 29 src=10.77.0.2 dst=10.77.0.1 sport=40000 dport=8125 [UNREPLIED] src=10.77.0.1 dst=10.77.0.2 sport=8125 dport=40000 mark=0 zone=0 use=2\\n\
        ipv4     2 udp      17 29 src=10.77.0.3 dst=10.77.0.1 sport=40000 dport=8125 packets=1 bytes=9 src=172.17.0.2 dst=10.77.0.3 sport=53 dport=40000 packets=1 bytes=9 mark=0 zone=0 use=2\\n\
        ipv6     10 udp      17 29 src=fd00::2 dst=fd00::1 sport=7 dport=53 [UNREPLIED] src=fd00::1 dst=fd00::2 sport=53 dport=7 mark=0 zone=0 use=2\\n\
        ipv4     2 tcp      6 29 ESTABLISHED src=10.77.0.2 dst=10.77.0.1 sport=1 dport=8125 src=10.77.0.1 dst=10.77.0.2 sport=8125 dport=1 use=2\n";

    #[test]
    fn flows_queues_and_legacy_tables_are_read() {
        let tree = fixture::tree(TREE);
        let read = |flows, tracked| PacketFilter::read_from(&tree.root, flows, tracked);
        let found = read(FlowsOf::Port(8125), 4);
        assert_eq!(found.legacy, ["iptables-legacy-save -c"]);
        assert!(found.has_legacy_nat && found.checks_checksums);
        let told: Vec<_> = found
            .flows
            .iter()
            .map(|flow| (flow.is_translated(), flow.is_answered))
            .collect();
        assert_eq!(told, [(false, false), (true, true)]);
        assert_eq!(found.destination(8125).as_deref(), Some("172.17.0.2:53"));
        let queue = FilterQueue {
            address: 12345,
            waiting: 0,
            came: 9,
            full: 3,
            no_room: 4,
        };
        assert_eq!(found.queues, Some([(7, queue)].into()));
        let silent = [[172, 17, 0, 2].into()];
        let lost = read(FlowsOf::Unanswered(&[], &silent), 4).flows;
        assert_eq!((lost.len(), lost[0].is_translated()), (1, true));
        let unanswered = read(FlowsOf::Unanswered(&[7, 40000], &[]), 4).flows;
        let to: Vec<_> = unanswered.iter().map(|flow| flow.to.to_string()).collect();
        assert_eq!(to, ["10.77.0.1:8125", "[fd00::1]:53"]);
        for tracked in [0, READ_MAX + 1] {
            assert_eq!(read(FlowsOf::Port(8125), tracked).flows, []);
        }
        assert_eq!(read(FlowsOf::None, 4).flows, []);
    }

    #[test]
    fn rules_are_read_again_after_a_change_only() {
        let rule = |port| NetfilterRule {
            protocol: Some(UDP),
            ports: Some(port..=port),
            action: NetfilterAction::Translate {
                address: None,
                port: None,
            },
        };
        let look = |earlier: Option<&PacketFilter>, generation, list: Option<u16>| {
            let (mut filter, mut reads) = (PacketFilter::default(), 0);
            filter.take_rules(earlier, generation, || {
                reads += 1;
                list.map(|port| vec![rule(port)])
            });
            (filter, reads)
        };
        let (first, reads) = look(None, Some(7), Some(53));
        assert_eq!((first.rules.clone(), reads), (Some(vec![rule(53)]), 1));
        for (generation, list, expected, times) in [
            (Some(7), Some(54), 53, 0),
            (Some(8), Some(54), 54, 1),
            // It is not known whether they have changed, or they were not read to their end.
            (None, Some(54), 54, 1),
            (Some(8), None, 53, 1),
        ] {
            let (later, reads) = look(Some(&first), generation, list);
            assert_eq!((later.rules, reads), (Some(vec![rule(expected)]), times));
            let is_old = expected == 53;
            assert_eq!(later.generation, if is_old { Some(7) } else { generation });
        }
        // Nothing was read before, so that there is nothing to go by.
        let (none, _) = look(None, Some(7), None);
        assert_eq!(look(Some(&none), Some(7), Some(53)).1, 1);
    }

    #[test]
    fn a_queue_without_a_program_is_known() {
        let rule = |numbers, bypasses| NetfilterRule {
            protocol: Some(UDP),
            ports: None,
            action: NetfilterAction::Queue { numbers, bypasses },
        };
        let mut filter = PacketFilter {
            rules: Some(vec![rule(6..=8, false), rule(9..=9, true)]),
            ..PacketFilter::default()
        };
        assert!(
            filter.unread_queue().is_none(),
            "the kernel has no list of them"
        );
        filter.queues = Some([(7, FilterQueue::default())].into());
        assert_eq!(filter.unread_queue(), Some(6));
    }

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "[0-9a-z.:=\\[\\] \n]{0,200}") {
            let _ = (flows_in(&text, FlowsOf::Port(0)), text.lines().filter_map(queue).count());
            let _ = flow(&format!("ipv4 2 udp {text}"));
        }
    }
}
