//! Rules of nftables, and of iptables over it, that translate destinations or hand packets to programs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket as RawSocket, SocketAddr as NetlinkAddress};

use super::generic::{Attributes, attributes, exchange_while, message};
use crate::CallResult;
use crate::error::On;
use crate::native::half_word;

/// `NFT_MSG_GETRULE` and `NFT_MSG_GETGEN` of `NFNL_SUBSYS_NFTABLES`
/// (include/uapi/linux/netfilter/nf_tables.h).
const GET_RULES: u16 = 10 << 8 | 7;
const GET_GENERATION: u16 = 10 << 8 | 16;
const GET_CHAINS: u16 = 10 << 8 | 4;
/// `NFTA_CHAIN_POLICY`, `NF_DROP`.
const POLICY: u16 = 5;
const DROP: u32 = 0;
/// `struct nfgenmsg`.
const MESSAGE_LENGTH: usize = 4;
/// `NFTA_RULE_EXPRESSIONS`, `NFTA_GEN_ID`.
const EXPRESSIONS: u16 = 4;
const GENERATION_ID: u16 = 1;
/// `NFT_META_L4PROTO`, `NFT_PAYLOAD_NETWORK_HEADER`, `NFT_PAYLOAD_TRANSPORT_HEADER`, `NFT_NAT_DNAT`.
const META_PROTOCOL: u32 = 16;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
const DESTINATION_NAT: u32 = 1;
/// `NFT_QUEUE_FLAG_BYPASS`.
const BYPASS: u16 = 1;

/// A rule that changes where packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetfilterRule {
    /// The only IP protocol that it is for.
    pub protocol: Option<u8>,
    /// The only destination ports that it is for; none too if they are in a set, which is not read.
    pub ports: Option<RangeInclusive<u16>>,
    /// Its action.
    pub action: NetfilterAction,
}

/// The action of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetfilterAction {
    /// Another destination (`dnat`, `redirect`), as far as the rule itself has it.
    Translate {
        /// The new address.
        address: Option<IpAddr>,
        /// The new port.
        port: Option<u16>,
    },
    /// A program decides (`queue`, `NFQUEUE`).
    Queue {
        /// The numbers of the queues.
        numbers: RangeInclusive<u16>,
        /// Without a program the packets pass.
        bypasses: bool,
    },
}

/// The rules of the calling thread's network namespace with such an action. If `goes_on` says no, the
/// list ends early with `EINTR`: 60 000 rules take half a second.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` in a kernel without nftables.
pub fn list(goes_on: &dyn Fn() -> bool) -> CallResult<Vec<NetfilterRule>> {
    let answers =
        ask(GET_RULES, NLM_F_DUMP, goes_on).on("nfnetlink NFT_MSG_GETRULE", "all rules")?;
    Ok(answers
        .iter()
        .filter_map(|body| NetfilterRule::parse(body))
        .collect())
}

/// How many rules there are, whatever they do, and chains that drop what no rule accepts.
///
/// # Errors
///
/// As [`list`].
pub fn count() -> CallResult<usize> {
    let ask = |kind, call| ask(kind, NLM_F_DUMP, &|| true).on(call, "the rules");
    let rules = ask(GET_RULES, "nfnetlink NFT_MSG_GETRULE")?;
    let chains = ask(GET_CHAINS, "nfnetlink NFT_MSG_GETCHAIN")?;
    let policy = |body: &Vec<u8>| number(&attributes(body.get(MESSAGE_LENGTH..)?), POLICY);
    let dropping = chains.iter().filter(|body| policy(body) == Some(DROP));
    Ok(rules.len() + dropping.count())
}

/// A number that is another one after each change of these rules.
///
/// # Errors
///
/// As [`list`].
pub fn generation() -> CallResult<u32> {
    const CALL: &str = "nfnetlink NFT_MSG_GETGEN";
    let answers = ask(GET_GENERATION, NLM_F_ACK, &|| true).on(CALL, "the rules")?;
    let body = answers.first().and_then(|body| body.get(MESSAGE_LENGTH..));
    let number = number(&attributes(body.unwrap_or_default()), GENERATION_ID);
    number
        .ok_or(io::Error::from(io::ErrorKind::InvalidData))
        .on(CALL, "the rules")
}

fn ask(kind: u16, flags: u16, goes_on: &dyn Fn() -> bool) -> io::Result<Vec<Vec<u8>>> {
    let socket = RawSocket::new(NETLINK_NETFILTER)?;
    socket.connect(&NetlinkAddress::new(0, 0))?;
    let question = message(kind, NLM_F_REQUEST | flags, &[0; MESSAGE_LENGTH]);
    Ok(exchange_while(&socket, &question, goes_on)?)
}

/// The value that the last expression loaded, for the comparison that follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Protocol,
    Port,
    Other,
}

impl NetfilterRule {
    /// One answer of the kernel; none if it is damaged, or of a rule with another action.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let is_v4 = i32::from(*body.first()?) == libc::AF_INET;
        let rule = attributes(body.get(MESSAGE_LENGTH..)?);
        let mut found = RuleParts::default();
        for (_, expression) in attributes(value(&rule, EXPRESSIONS)?) {
            let expression = attributes(&expression);
            let data = attributes(value(&expression, 2).unwrap_or_default());
            found.take(text(&expression, 1)?, &data, is_v4);
        }
        Some(Self {
            action: found.action?,
            protocol: found.protocol,
            ports: found.ports.filter(|ports| !ports.is_empty()),
        })
    }
}

/// The expressions of a rule so far.
struct RuleParts {
    loaded: Loaded,
    address: Option<IpAddr>,
    port: Option<u16>,
    protocol: Option<u8>,
    ports: Option<RangeInclusive<u16>>,
    action: Option<NetfilterAction>,
}

impl Default for RuleParts {
    fn default() -> Self {
        Self {
            loaded: Loaded::Other,
            address: None,
            port: None,
            protocol: None,
            ports: None,
            action: None,
        }
    }
}

impl RuleParts {
    /// Takes the expression of this name.
    fn take(&mut self, name: &str, data: &Attributes, is_v4: bool) {
        let number = |kind| number(data, kind);
        let half = |kind| short(value(data, kind)?, 0);
        match name {
            "meta" if number(2) == Some(META_PROTOCOL) => self.loaded = Loaded::Protocol,
            "payload" => {
                self.loaded = match (number(2), number(3), number(4)) {
                    (Some(TRANSPORT), Some(2), Some(2)) => Loaded::Port,
                    (Some(NETWORK), Some(9), Some(1)) => Loaded::Protocol,
                    _ => Loaded::Other,
                }
            }
            "meta" | "ct" | "fib" | "bitwise" => self.loaded = Loaded::Other,
            "cmp" => self.compare(number(2).unwrap_or_default(), data),
            "match" => self.xt_match(data),
            "immediate" => self.immediate(data),
            "nat" if number(1) == Some(DESTINATION_NAT) => self.translate(),
            "redir" => self.translate(),
            "queue" => {
                let (first, total) = (half(1).unwrap_or_default(), half(2).unwrap_or(1));
                self.queue(
                    first,
                    total,
                    half(3).is_some_and(|flags| flags & BYPASS != 0),
                );
            }
            "target" => self.xt_target(data, is_v4),
            _ => {}
        }
    }

    fn compare(&mut self, operator: u32, data: &Attributes) {
        let nested = attributes(value(data, 3).unwrap_or_default());
        let bytes = value(&nested, 1).unwrap_or_default();
        match (self.loaded, bytes, operator) {
            (Loaded::Protocol, &[protocol], 0) => self.protocol = Some(protocol),
            (Loaded::Port, &[high, low], 0 | 3 | 5) => {
                let port = u16::from_be_bytes([high, low]);
                let (first, last) = match (&self.ports, operator) {
                    (_, 0) => (port, port),
                    (Some(ports), 3) => (*ports.start(), port),
                    (None, 3) => (0, port),
                    _ => (port, u16::MAX),
                };
                self.ports = Some(first..=last);
            }
            _ => {}
        }
    }

    /// `struct xt_udp` and `struct xt_tcp` begin alike (include/uapi/linux/netfilter/xt_tcpudp.h).
    fn xt_match(&mut self, data: &Attributes) {
        let info = value(data, 3).unwrap_or_default();
        let port = |at| half_word(info, at);
        if let Some(name @ ("udp" | "tcp")) = text(data, 1) {
            self.protocol = Some(if name == "udp" { 17 } else { 6 });
            let ports = port(4).zip(port(6)).map(|(first, last)| first..=last);
            self.ports = ports.filter(|ports| *ports != (0..=u16::MAX));
        }
    }

    fn immediate(&mut self, data: &Attributes) {
        let nested = attributes(value(data, 2).unwrap_or_default());
        match value(&nested, 1).unwrap_or_default() {
            &[high, low] => self.port = Some(u16::from_be_bytes([high, low])),
            bytes => self.address = address(bytes).or(self.address),
        }
    }

    fn translate(&mut self) {
        self.action = Some(NetfilterAction::Translate {
            address: self.address,
            port: self.port,
        });
    }

    fn queue(&mut self, first: u16, total: u16, bypasses: bool) {
        self.action = Some(NetfilterAction::Queue {
            numbers: first..=first.saturating_add(total.max(1) - 1),
            bypasses,
        });
    }

    /// `struct nf_nat_range` (linux/netfilter/nf_nat.h) and `struct xt_NFQ_info_v3`
    /// (linux/netfilter/xt_NFQUEUE.h), whose earlier versions are shorter.
    fn xt_target(&mut self, data: &Attributes, is_v4: bool) {
        let info = value(data, 3).unwrap_or_default();
        let native = |at| half_word(info, at);
        match text(data, 1) {
            Some("DNAT") => {
                if number(data, 2) > Some(0) {
                    let length = if is_v4 { 4 } else { 16 };
                    self.address = info.get(4..4 + length).and_then(address);
                    self.port = short(info, 36).filter(|port| *port > 0);
                }
                self.translate();
            }
            Some("REDIRECT") => self.translate(),
            Some("NFQUEUE") => self.queue(
                native(0).unwrap_or_default(),
                native(2).filter(|_| number(data, 2) > Some(0)).unwrap_or(1),
                native(4).is_some_and(|flags| number(data, 2) > Some(1) && flags & BYPASS != 0),
            ),
            _ => {}
        }
    }
}

fn value(attributes: &Attributes, kind: u16) -> Option<&[u8]> {
    let (_, value) = attributes.iter().find(|(found, _)| *found == kind)?;
    Some(value)
}

/// Numbers of nftables are in the order of the network.
fn number(attributes: &Attributes, kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(
        value(attributes, kind)?.try_into().ok()?,
    ))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn text(attributes: &Attributes, kind: u16) -> Option<&str> {
    let bytes = value(attributes, kind)?;
    std::str::from_utf8(bytes.split(|byte| *byte == 0).next()?).ok()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::generic::nested;
    use super::*;
    use proptest::prelude::*;

    fn be(kind: u16, number: u32) -> (u16, Vec<u8>) {
        (kind, number.to_be_bytes().to_vec())
    }

    fn name(kind: u16, name: &str) -> (u16, Vec<u8>) {
        (kind, [name.as_bytes(), &[0]].concat())
    }

    fn expression(of: &str, data: &[(u16, Vec<u8>)]) -> (u16, Vec<u8>) {
        nested(1, &[name(1, of), nested(2, data)])
    }

    fn compared(operator: u32, bytes: &[u8]) -> (u16, Vec<u8>) {
        let bytes = nested(3, &[(1, bytes.to_vec())]);
        expression("cmp", &[be(2, operator), bytes])
    }

    fn parsed(expressions: &[(u16, Vec<u8>)]) -> Option<NetfilterRule> {
        let rule = nested(EXPRESSIONS, expressions);
        let (_, list) = nested(0, &[name(1, "nat"), name(2, "PREROUTING"), rule]);
        NetfilterRule::parse(&[&[libc::AF_INET as u8, 0, 0, 0], &list[..]].concat())
    }

    /// As nft(8) 1.0.6 and iptables-nft(8) 1.8.9 write them.
    #[test]
    fn rules_are_read_in_both_spellings() {
        let udp = [expression("meta", &[be(2, 16)]), compared(0, &[17])];
        let load = expression("payload", &[be(2, 2), be(3, 2), be(4, 2)]);
        let port = [load.clone(), compared(0, &514_u16.to_be_bytes())];
        let immediate = |bytes: &[u8]| {
            let bytes = nested(2, &[(1, bytes.to_vec())]);
            expression("immediate", &[be(1, 1), bytes])
        };
        let to = [
            immediate(&[172, 17, 0, 2]),
            immediate(&47051_u16.to_be_bytes()),
            expression("nat", &[be(1, 1)]),
        ];
        let mut range = vec![0; 42];
        range[4..8].copy_from_slice(&[172, 17, 0, 2]);
        range[36..38].copy_from_slice(&47051_u16.to_be_bytes());
        let target = expression("target", &[name(1, "DNAT"), be(2, 2), (3, range)]);
        let expected = NetfilterRule {
            protocol: Some(17),
            ports: Some(514..=514),
            action: NetfilterAction::Translate {
                address: Some(Ipv4Addr::new(172, 17, 0, 2).into()),
                port: Some(47051),
            },
        };
        let native = [&udp[..], &port, &to].concat();
        assert_eq!(parsed(&native), Some(expected.clone()));
        let xt = [&udp[..], &port, &[target]].concat();
        assert_eq!(parsed(&xt), Some(expected.clone()));
        let narrow = [
            &[
                expression("payload", &[be(2, 1), be(3, 16), be(4, 4)]),
                compared(0, &[9, 9, 9, 9]),
            ],
            &native[..],
        ]
        .concat();
        let found = parsed(&narrow).expect("it translates");
        assert_eq!(found.action, expected.action);
        let between = [
            load,
            compared(5, &5_u16.to_be_bytes()),
            compared(3, &9_u16.to_be_bytes()),
            expression("redir", &[]),
        ];
        let found = parsed(&between).expect("it translates");
        assert_eq!((found.ports, found.protocol), (Some(5..=9), None));
        // A source address is changed on the way out.
        let source = [&udp[..], &port, &[expression("nat", &[be(1, 0)])]].concat();
        assert_eq!(parsed(&source), None);
    }

    #[test]
    fn queues_are_read_with_their_flag() {
        let short = |kind: u16, number: u16| (kind, number.to_be_bytes().to_vec());
        let queue = |numbers, bypasses| Some(NetfilterAction::Queue { numbers, bypasses });
        let native = expression("queue", &[short(1, 4), short(2, 2), short(3, 1)]);
        let action = |expression| parsed(&[expression]).map(|rule| rule.action);
        assert_eq!(action(native), queue(4..=5, true));
        let xt = |revision, words: &[u16]| {
            let info = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let of = [name(1, "NFQUEUE"), be(2, revision), (3, info)];
            action(expression("target", &of))
        };
        assert_eq!(xt(0, &[3, 9, 9, 9]), queue(3..=3, false));
        assert_eq!(xt(3, &[0, 1, 0, 0]), queue(0..=0, false));
        assert_eq!(xt(3, &[0, 2, 1, 0]), queue(0..=1, true));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>, of in "[a-z]{0,9}") {
            let _ = NetfilterRule::parse(&bytes);
            let mut found = RuleParts::default();
            let names = ["meta", "payload", "cmp", "match", "immediate", "nat", "queue", "target", &of];
            for name in names {
                found.take(name, &attributes(&bytes), true);
            }
        }
    }
}
