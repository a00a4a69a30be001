//! Packets that are dropped before a socket, and none at all.

use super::program::{Group, Way};
use super::scenario::{
    Found, IP, IPTABLES, NFT, PORT, PYTHON, SENT, Scenario, Traffic, at, expect, healthy, large,
    remarks,
};
use crate::common::run;
use mpps_lab::{EarlyDrop, address};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, IP): a_link_that_bounces, a_cable_that_is_out, a_policy_of_ipsec;
        waits(Need::Root):
            fragments_without_memory,
            a_group_that_nobody_joined,
            broadcasts_to_a_port_without_a_socket,
            somebody_elses_address_over_ipv6,
            an_xdp_program,
            an_xdp_program_that_looks,
            an_asymmetric_route,
            somebody_elses_address,
            somebody_elses_hardware_address,
            a_martian_source,
            nothing_at_all,
            connections_but_no_datagrams;
        waits(Need::Root, PYTHON):
            a_wrong_checksum,
            a_wrong_checksum_found_late,
            a_checksum_of_zero_over_ipv6,
            an_ipv6_option_that_is_unknown,
            an_interface_without_ipv6,
            a_wrong_ip_checksum,
            a_wrong_udp_length,
            packets_cut_short,
            no_route_onward,
            an_ip_option_that_is_refused,
            frames_of_another_protocol;
        waits(Need::Root, NFT):
            a_rule_that_rejects,
            a_rule_for_one_sender,
            a_policy_that_drops,
            a_rule_before_tracking,
            a_rule_at_the_ingress,
            a_rule_for_what_is_sent;
        waits(Need::Root, IPTABLES): a_rule_of_iptables;
        waits(Need::Root, NFT, PYTHON): a_wrong_checksum_that_a_rule_drops;
    ]
}

fn a_wrong_checksum() {
    a_wrong_checksum_of(4, false);
}

fn a_wrong_checksum_found_late() {
    a_wrong_checksum_of(200, false);
}

fn a_wrong_checksum_that_a_rule_drops() {
    a_wrong_checksum_of(4, true);
}

fn a_rule_that_rejects() {
    a_rule("udp dport 4321 reject");
}

fn a_rule_for_one_sender() {
    a_rule("ip saddr 192.168.254.30 drop");
}

fn a_rule_before_tracking() {
    a_rule_of(EarlyDrop::NftRaw);
}

fn a_rule_at_the_ingress() {
    a_rule_of(EarlyDrop::NftIngress);
}

fn a_rule_of_iptables() {
    a_rule_of(EarlyDrop::IptablesRaw);
}

fn an_xdp_program() {
    a_program_at_the_driver(EarlyDrop::XdpUntouched);
}

fn an_xdp_program_that_looks() {
    a_program_at_the_driver(EarlyDrop::XdpParsed);
}

fn a_rule_of(rule: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _rule = rule.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("firewall", SENT, "packet filter");
}

/// A rule of the input chain, as a firewall of states has it.
fn a_rule(rule: &str) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.nft("add table inet t");
    scenario.nft("add chain inet t input { type filter hook input priority 0; }");
    scenario.nft(&format!("add rule inet t input {rule}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("firewall", SENT, "packet filter");
}

/// Lost packets that this host sends are no loss of received packets, and are not reported as such.
fn a_rule_for_what_is_sent() {
    let scenario = Scenario::new();
    scenario.nft("add table inet t");
    scenario.nft("add chain inet t output { type filter hook output priority 0; }");
    scenario.nft("add rule inet t output udp dport 7777 drop");
    let found = scenario.doctor(None, || {
        scenario.on_receiver(|| {
            let client = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
            for _ in 0..SENT {
                let refused = client.send_to(b"x", (address::v4(30), 7777));
                refused.expect_err("the rule refuses it");
            }
        });
        scenario.end_unread(150);
    });
    let expected = [
        ("way_out", SENT, "rule of the firewall"),
        ("closed_unread", 150, "no program had read"),
    ];
    expect(&found, &expected);
    found.balances();
    found.came(150);
}

/// Datagrams without a socket, which the policy refuses first (`__udp4_lib_rcv`).
fn a_policy_of_ipsec() {
    let scenario = Scenario::new();
    let policy = "xfrm policy add dir in src 0.0.0.0/0 dst 0.0.0.0/0 proto udp action block";
    scenario.ip(policy);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("udp_errors", SENT, "policy of IPsec blocks");
    found.balances();
    found.came(SENT);
}

fn a_policy_that_drops() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("[fd00:254::1]:{PORT}"));
    scenario.nft("add table inet t");
    scenario.nft("add chain inet t input { type filter hook input priority 0; policy drop; }");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    // Which port it was for is not known.
    remarks(&found, "firewall", SENT);
    found.balances();
}

fn a_program_at_the_driver(program: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _program = program.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("xdp_drop", SENT, "XDP program");
}

/// The receiver has no way back to the sender's other network.
fn an_asymmetric_route() {
    let scenario = Scenario::new();
    scenario.filter_strictly();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::from_elsewhere(&at(1), SENT))
    });
    found.is("reverse_path", SENT, "reverse path filter");
    found.balances();
}

fn somebody_elses_address() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v4(99).into(), &own);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    found.is("address", SENT, "does not have");
    found.balances();
}

fn somebody_elses_address_over_ipv6() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v6(99).into(), &own);
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::63]:{PORT}"), SENT))
    });
    found.is("address", SENT, "does not have");
    found.balances();
}

fn somebody_elses_hardware_address() {
    let scenario = Scenario::new();
    scenario.neighbour(address::v4(99).into(), &[2, 0, 0, 0, 0, 99]);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    found.is("drop_reason", SENT, "OTHERHOST");
}

/// A source that is the receiver's own address.
fn a_martian_source() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.sender_has(address::v4(2).into());
    let found = scenario.doctor(None, || {
        let traffic = Traffic::to(&at(1), SENT);
        scenario.send(Traffic {
            source: address::v4(2).into(),
            ..traffic
        });
    });
    // A kernel that has no such reason names none, and no counter.
    match knows_reason("IP_LOCAL_SOURCE") {
        true => found.is("drop_reason", SENT, "IP_LOCAL_SOURCE"),
        false => found.is("unrouted", SENT, "cause is not known"),
    }
}

/// Whether the kernel's type information has this drop reason.
pub(crate) fn knows_reason(name: &str) -> bool {
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("the doctor needs it, too");
    let name = format!("SKB_DROP_REASON_{name}\0");
    types
        .windows(name.len())
        .any(|bytes| bytes == name.as_bytes())
}

fn a_group_that_nobody_joined() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("239.1.1.1:{PORT}"), SENT))
    });
    // As mDNS of other hosts comes to each host of a network.
    remarks(&found, "unrouted", SENT);
    // The kernel counts only packets for a joined group. So this counter refutes nothing.
    assert_eq!(found.grown("IpExt.InMcastPkts"), 0);
    found.balances();
}

fn broadcasts_to_a_port_without_a_socket() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(255), SENT));
    });
    found.is("no_listener", SENT, "to all hosts");
    found.balances();
}

/// A packet that a sender makes itself, with its fault.
#[derive(Default)]
struct Crafted {
    /// The length in the IP header; 0 for the right one.
    total: u16,
    /// The length in the UDP header; 0 for the right one.
    udp: u16,
    /// The value added to the correct IP checksum.
    checksum: u16,
    /// Its IP options, as hexadecimal digits.
    options: &'static str,
}

/// The output of the doctor while these packets come to an address.
fn crafted(scenario: &Scenario, to: &str, packet: &Crafted) -> Found {
    let mac = scenario.hardware_address();
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let Crafted {
        total,
        udp,
        checksum,
        options,
    } = packet;
    let program = format!(
        "import socket, struct\n\
         o = bytes.fromhex('{options}')\n\
         p = struct.pack('!4H', 4320, 4321, {udp} or 40, 0) + bytes(32)\n\
         a = socket.inet_aton('192.168.254.30') + socket.inet_aton('{to}')\n\
         n = {total} or 20 + len(o) + len(p)\n\
         def ip(c): return struct.pack('!BBHHHBBH', 69 + len(o) // 4, 0, n, 1, 0, 64, 17, c) + a + o\n\
         c = sum(struct.unpack('!%dH' % (10 + len(o) // 2), ip(0)))\n\
         c = (c & 65535) + (c >> 16); c = (c & 65535) + (c >> 16)\n\
         f = bytes.fromhex('{mac}02aabbccdd010800') + ip(~c & 65535 ^ {checksum}) + p\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('mpps-tx', 0))\n\
         for _ in range(1000): s.send(f)"
    );
    scenario.doctor(None, || scenario.python(&program))
}

/// Expects this finding for a crafted packet, and no other.
fn expect_crafted(packet: &Crafted, expected: (&str, u64, &str)) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = crafted(&scenario, "192.168.254.1", packet);
    expect(&found, &[expected]);
    found.balances();
}

fn a_wrong_ip_checksum() {
    let packet = Crafted {
        checksum: 1,
        ..Crafted::default()
    };
    expect_crafted(&packet, ("bad_header", SENT, "damaged IP header"));
}

fn a_wrong_udp_length() {
    let packet = Crafted {
        udp: 200,
        ..Crafted::default()
    };
    expect_crafted(&packet, ("udp_errors", SENT, "UDP header says"));
}

fn packets_cut_short() {
    let packet = Crafted {
        total: 300,
        ..Crafted::default()
    };
    expect_crafted(&packet, ("ip_discards", SENT, "cut short"));
}

/// A source route. Hosts refuse it unless they are set to accept it.
fn an_ip_option_that_is_refused() {
    let packet = Crafted {
        options: "830704c0a8fe0100",
        ..Crafted::default()
    };
    expect_crafted(&packet, ("drop_reason", SENT, "asks for a source route"));
}

fn no_route_onward() {
    let scenario = Scenario::new();
    scenario.set("net/ipv4/ip_forward", "1");
    let found = crafted(&scenario, "172.29.0.9", &Crafted::default());
    found.is("ip_discards", SENT, "no route");
    found.balances();
}

/// Datagrams of two fragments, without memory to put them together.
fn fragments_without_memory() {
    let scenario = Scenario::new();
    scenario.keep_no_fragments();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || scenario.send(large(&at(1))));
    let fails = found.grown("Ip.ReasmFails");
    assert!(fails >= SENT, "{fails}");
    found.is("fragments", fails, "fragments of datagrams");
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    healthy(
        &scenario.doctor(None, || scenario.send(large(&at(1)))),
        SENT,
    );
}

/// A raw socket writes its own UDP header, with a wrong checksum. Short datagrams are checked when
/// they arrive. Long ones are checked when they are read; the socket counts them as dropped, too.
/// Connection tracking finds it invalid before UDP looks, if a rule asks for the state.
fn a_wrong_checksum_of(bytes: usize, has_rule: bool) {
    let scenario = Scenario::new();
    if has_rule {
        scenario.nft("add table inet t");
        scenario.nft("add chain inet t input { type filter hook input priority 0; }");
        scenario.nft("add rule inet t input ct state invalid drop");
    }
    let group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        scenario.python(&format!(
            "import socket, struct\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)\n\
             s.bind(('192.168.254.30', 0))\n\
             head = struct.pack('!4H', 7, 4321, 8 + {bytes}, 0xdead)\n\
             for _ in range(1000): s.sendto(head + bytes({bytes}), ('192.168.254.1', 0))"
        ));
    });
    match has_rule {
        false => found.is("checksum", SENT, "wrong checksum"),
        true => found.is("firewall", SENT, "ct state invalid"),
    }
    drop(group);
}

/// IPv6 has no datagrams without a checksum (RFC 8200). This sender leaves it out
/// (`UDP_NO_CHECK6_TX`).
fn a_checksum_of_zero_over_ipv6() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("[fd00:254::1]:{PORT}"));
    let found = scenario.doctor(None, || {
        scenario.python(
            "import socket\n\
             s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
             s.setsockopt(17, 101, 1)\n\
             for _ in range(1000): s.sendto(b'mpps', ('fd00:254::1', 4321))",
        );
    });
    let found_zero = "their UDP checksum is zero, which IPv6 forbids";
    found.is("checksum", SENT, found_zero);
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(!remedy.contains("ethtool"), "{remedy}");
    found.balances();
}

/// An option that the receiver is to skip does no harm (RFC 8200, 4.2).
fn an_ipv6_option_that_is_unknown() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("[fd00:254::1]:{PORT}"));
    let look = |option| {
        let text = format!(
            "import socket\n\
             s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
             s.setsockopt(41, 59, bytes([0, 0, {option}, 4, 0, 0, 0, 0]))\n\
             for _ in range(1000): s.sendto(b'mpps', ('fd00:254::1', 4321))"
        );
        scenario.doctor(None, || scenario.python(&text))
    };
    healthy(&look(0x1e), SENT);
    let found = look(0x5e);
    found.is("bad_header", SENT, "an option that it does not know");
    found.balances();
}

/// As container engines make it. Other hosts' neighbour discovery comes there all the same, and is no loss.
fn an_interface_without_ipv6() {
    const OTHERS: &str = "import socket\n\
        link = [i for i, name in socket.if_nameindex() if name != 'lo'][0]\n\
        s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)\n\
        for _ in range(5): s.sendto(bytes([128, 0, 0, 0, 0, 0, 0, 0]), ('ff02::1', 0, 0, link))";
    const UDP: &str = "import socket\n\
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
        for _ in range(1000): s.sendto(b'mpps', ('fd00:254::1', 4321))";
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.neighbour(address::v6(1).into(), &scenario.hardware_address());
    scenario.set("net/ipv6/conf/all/disable_ipv6", "1");
    let found = scenario.doctor(None, || {
        scenario.python(OTHERS);
        scenario.send(Traffic::to(&at(1), SENT));
    });
    healthy(&found, SENT);
    let found = scenario.doctor(None, || scenario.python(UDP));
    found.is("ip_discards", SENT, "IPv6 is off");
}

fn nothing_at_all() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {});
    found.is("nothing_arrives", 0, "no interface received any packet");
}

fn a_cable_that_is_out() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.on_sender(|| run(Command::new("ip").args(["link", "set", "mpps-tx", "down"])).fine());
    let found = scenario.doctor(Some(PORT), || {});
    found.is("nothing_arrives", 0, "mpps-rx has no carrier");
}

fn frames_of_another_protocol() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        // An EtherType for experiments (IEEE 802).
        scenario.python(
            "import socket\n\
             s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
             s.bind(('mpps-tx', 0))\n\
             for _ in range(100): s.send(b'\\xff' * 12 + b'\\x88\\xb5' + bytes(60))",
        );
    });
    found.is("nothing_arrives", 0, "none reached IP");
}

fn connections_but_no_datagrams() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.connect(20));
    found.is("nothing_arrives", 0, "no UDP datagram was among them");
}

fn a_link_that_bounces() {
    let scenario = Scenario::new();
    let found = scenario.doctor(None, || scenario.bounce());
    found.is("link_bounced", 0, "went and came: 2 changes");
}
