//! Packets that another namespace gets, and sockets that are bound where they cannot hear.

use super::packets::knows_reason;
use super::program::{Group, Way};
use super::scenario::{
    Found, IP, NFT, PORT, PYTHON, SENT, Scenario, Traffic, at, expect, healthy, large, remarks,
    silent,
};
use crate::common::run;
use mpps_trial::{Need, Trial, trials};
use std::net::UdpSocket;
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            a_broadcast_for_a_socket_of_one_address,
            losses_of_another_port,
            two_programs_at_one_port;
        waits(Need::Root, PYTHON):
            a_group_joined_at_another_interface,
            a_group_joined_for_another_source,
            packets_of_another_protocol,
            a_later_program_that_takes_all;
        waits(Need::Root, PYTHON, IP):
            a_socket_of_an_interface_made_anew;
        waits(Need::Root, NFT):
            a_flow_older_than_its_rule,
            a_port_published_for_tcp_only,
            a_published_port,
            a_published_port_with_a_proxy,
            a_published_port_refused,
            a_port_translated_to_loopback,
            later_fragments_refused;
        waits(Need::Root, Need::Program("iptables-nft", "iptables")): a_queue_without_a_program;
    ]
}

/// VRRP to this host itself, which a program takes, and which no counter of a protocol has.
fn packets_of_another_protocol() {
    const SEND: &str = "import socket\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112)\n\
        for _ in range(5): s.sendto(bytes(20), ('192.168.254.1', 0))";
    const TAKE: &str = "import socket, time\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112)\n\
        print('ready', flush=True)\n\
        time.sleep(600)";
    let scenario = Scenario::new();
    let _router = scenario.server(TAKE);
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.python(SEND));
    let words = "no UDP datagram was among them";
    found.is("nothing_arrives", 0, words);
    silent(&scenario.doctor(Some(PORT), || {
        scenario.python(SEND);
        scenario.send(Traffic::to(&at(1), SENT));
    }));
}

/// Sends what comes to the port on to this address.
fn translate(scenario: &Scenario, port: u16, to: &str) {
    scenario.nft("add table ip t");
    scenario.nft("add chain ip t p { type nat hook prerouting priority -100; }");
    scenario.nft(&format!("add rule ip t p udp dport {port} dnat to {to}"));
}

/// As container engines do it. The sender's namespace is the container's here. No other trial has a
/// server at this port.
fn a_published_port() {
    const PUBLISHED: u16 = 4337;
    let scenario = Scenario::new();
    scenario.set("net/ipv4/ip_forward", "1");
    translate(&scenario, PUBLISHED, "192.168.254.30");
    let traffic = || Traffic::to(&format!("192.168.254.1:{PUBLISHED}"), SENT);
    let look = || scenario.doctor(Some(PUBLISHED), || scenario.send(traffic()));
    let words = format!("{SENT} packets were forwarded to another");
    let said = |found: &Found, words: &str| {
        remarks(found, "nothing_arrives", 0);
        found.says("what", words);
    };
    said(&look(), &words);
    let _container = Group::on_sender(&scenario, &format!("0.0.0.0:{PUBLISHED}"));
    said(
        &look(),
        &format!("has port {PUBLISHED} in another network namespace"),
    );
}

/// A container engine's proxy has the published port here, and the container serves another one.
fn a_published_port_with_a_proxy() {
    const INNER: u16 = 4342;
    let scenario = Scenario::new();
    scenario.set("net/ipv4/ip_forward", "1");
    let container = Group::on_sender(&scenario, &format!("0.0.0.0:{INNER}"));
    let command = format!("mpps doctor --pid {} --port {INNER}", container.pid());
    // No host has the address 31.
    for (published, last, is_its) in [(4340, 31, false), (4341, 30, true)] {
        let _proxy = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{published}"));
        translate(&scenario, published, &format!("192.168.254.{last}:{INNER}"));
        let traffic = Traffic::to(&format!("192.168.254.1:{published}"), SENT);
        let found = scenario.doctor(Some(published), || scenario.send(traffic));
        remarks(&found, "nothing_arrives", 0);
        let what = found.first()["what"].as_str().unwrap_or_default();
        assert_eq!(what.contains(&command), is_its, "{what}");
    }
}

/// The same behind a policy that forwards nothing.
fn a_published_port_refused() {
    const PUBLISHED: u16 = 4338;
    let scenario = Scenario::new();
    scenario.set("net/ipv4/ip_forward", "1");
    translate(&scenario, PUBLISHED, "192.168.254.30:4339");
    scenario.nft("add chain ip t f { type filter hook forward priority 0; policy drop; }");
    let traffic = Traffic::to(&format!("192.168.254.1:{PUBLISHED}"), SENT);
    let found = scenario.doctor(Some(PUBLISHED), || scenario.send(traffic));
    // Older kernels count a packet as forwarded only when the rules let it pass.
    let words = format!("NAT translates port {PUBLISHED} to 192.168.254.30:4339");
    found.is("nothing_arrives", 0, &words);
    let what = found.first()["what"].as_str().unwrap_or_default();
    assert!(
        what.contains("dropped") && !what.contains("were forwarded"),
        "{what}"
    );
}

fn a_port_published_for_tcp_only() {
    const PUBLISHED: u16 = 4340;
    let scenario = Scenario::new();
    scenario.nft("add table ip t");
    scenario.nft("add chain ip t p { type nat hook prerouting priority -100; }");
    scenario.nft(&format!(
        "add rule ip t p tcp dport {PUBLISHED} dnat to 192.168.254.30"
    ));
    let _container = Group::on_sender(&scenario, &format!("0.0.0.0:{PUBLISHED}"));
    let traffic = Traffic::to(&format!("192.168.254.1:{PUBLISHED}"), SENT);
    let found = scenario.doctor(Some(PUBLISHED), || scenario.send(traffic));
    let words = format!("translates TCP port {PUBLISHED}, and none UDP port");
    found.is("no_listener", SENT, &words);
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(
        remedy.contains("/udp") && !remedy.contains("start the program"),
        "{remedy}"
    );
}

/// Connection tracking decides on a flow's first datagram.
fn a_flow_older_than_its_rule() {
    let scenario = Scenario::new();
    translate(&scenario, 9, "192.168.254.30");
    let client = scenario.on_sender(|| UdpSocket::bind("0.0.0.0:0").expect("a port is free"));
    client.send_to(b"x", at(1)).expect("it can be sent");
    scenario.lab.settle().expect("it comes to rest");
    scenario.nft(&format!(
        "add rule ip t p udp dport {PORT} dnat to 192.168.254.77"
    ));
    let found = scenario.doctor(Some(PORT), || {
        for _ in 0..SENT {
            // A refusal of an earlier one is no failure of this one.
            let sent = client
                .send_to(b"x", at(1))
                .or_else(|_| client.send_to(b"x", at(1)));
            sent.expect("it can be sent");
        }
        scenario.lab.settle().expect("it comes to rest");
    });
    found.is("no_listener", SENT, "tracked before the rule was there");
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    let delete = format!("conntrack -D -p udp --dport {PORT}; or ");
    assert!(remedy.starts_with(&delete), "{remedy}");
}

/// By iptables over nftables: few kernels have nftables' own queues.
fn a_queue_without_a_program() {
    for flag in [None, Some("--queue-bypass")] {
        let scenario = Scenario::new();
        let _group = Group::start(&scenario, Way::Read, 1, &at(1));
        scenario.on_receiver(|| {
            let rule = "-A INPUT -p udp --dport 4321 -j NFQUEUE --queue-num 0";
            let words = rule.split(' ').chain(flag);
            run(Command::new("iptables-nft").args(words)).fine();
        });
        let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
        match flag {
            None => found.is("drop_reason", SENT, "no program has that queue open"),
            Some(_) => healthy(&found, SENT),
        }
    }
}

fn a_port_translated_to_loopback() {
    let scenario = Scenario::new();
    scenario.wake_loopback();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("127.0.0.1:{PORT}"));
    translate(&scenario, PORT, "127.0.0.1");
    let look = || scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    match knows_reason("IP_LOCALNET") {
        true => expect(
            &look(),
            &[("drop_reason", SENT, "redirects them to 127.0.0.1")],
        ),
        false => expect(&look(), &[("unrouted", SENT, "cause is not known")]),
    }
    scenario.set("net/ipv4/conf/all/route_localnet", "1");
    healthy(&look(), SENT);
}

/// The rule stands before the kernel puts fragments together.
fn later_fragments_refused() {
    for is_refused in [true, false] {
        let scenario = Scenario::new();
        let _group = Group::start(&scenario, Way::Read, 1, &at(1));
        if is_refused {
            scenario.nft("add table ip t");
            scenario.nft("add chain ip t p { type filter hook prerouting priority -500; }");
            scenario.nft("add rule ip t p ip frag-off & 0x1fff != 0 drop");
        }
        let found = scenario.doctor(Some(PORT), || scenario.send(large(&at(1))));
        let words = format!("firewall of this host dropped {SENT}");
        match is_refused {
            true => {
                let expected = [("nothing_arrives", 0, &*words), ("fragments", 0, &*words)];
                expect(&found, &expected);
            }
            false => silent(&found),
        }
    }
}

fn a_broadcast_for_a_socket_of_one_address() {
    let scenario = Scenario::new();
    let look = || scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(255), SENT)));
    let bound = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = look();
    found.is("no_listener", SENT, "some: 192.168.254.1:4321");
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(
        remedy.contains("bind it to 0.0.0.0") && !remedy.contains("none, if"),
        "{remedy}"
    );
    drop(bound);
    let _whole = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    healthy(&look(), SENT);
}

fn a_group_joined_at_another_interface() {
    a_group_joined("35, g + a('127.0.0.1')", "239.1.1.1 at lo");
}

fn a_group_joined_for_another_source() {
    a_group_joined(
        "39, g + a('192.168.254.1') + a('192.168.254.77')",
        "239.1.1.1 at mpps-rx (only from 192.168.254.77)",
    );
}

/// A server that joins a group in a way that misses its traffic, and a server that joins it right
/// (`IP_ADD_MEMBERSHIP` and `IP_ADD_SOURCE_MEMBERSHIP`).
fn a_group_joined(wrong: &str, words: &str) {
    let right = "39, g + a('192.168.254.1') + a('192.168.254.30')";
    for how in [wrong, right] {
        let scenario = Scenario::new();
        scenario.wake_loopback();
        let _server = scenario.server(&format!(
            "import socket\n\
             a = socket.inet_aton\n\
             g = a('239.1.1.1')\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.setsockopt(1, 33, 8 << 20)\n\
             s.bind(('', {PORT}))\n\
             s.setsockopt(0, {how})\n\
             print('ready', flush=True)\n\
             while True: s.recv(2048)"
        ));
        let found = scenario.doctor(Some(PORT), || {
            scenario.send(Traffic::to(&format!("239.1.1.1:{PORT}"), SENT))
        });
        match how == right {
            false => found.is("unrouted", SENT, words),
            true => silent(&found),
        }
    }
}

fn losses_of_another_port() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Sleep, 1, &at(1));
    let found = scenario.doctor(Some(9), || scenario.send(Traffic::to(&at(1), 8 * SENT)));
    let dropped = found.kernels_drops(&group);
    expect(
        &found,
        &[
            (
                "port_owner",
                0,
                "no socket of this namespace has UDP port 9",
            ),
            ("port_owner", dropped, "192.168.254.1:4321 most of them"),
        ],
    );
}

fn two_programs_at_one_port() {
    let scenario = Scenario::new();
    let _first = Group::start(&scenario, Way::Read, 1, &at(1));
    let look = || scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    healthy(&look(), SENT);
    let _second = Group::start(&scenario, Way::Read, 1, &at(1));
    remarks(&look(), "port_owner", 0);
}

/// Both set SO_REUSEADDR only.
fn a_later_program_that_takes_all() {
    let scenario = Scenario::new();
    let start = || {
        scenario.server(
            "import socket\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.setsockopt(1, 2, 1); s.setsockopt(1, 8, 1 << 21); s.bind(('192.168.254.1', 4321))\n\
             print('ready', flush=True)\n\
             while True: s.recv(2048)",
        )
    };
    let (first, second) = (start(), start());
    let send = || scenario.send(Traffic::to(&at(1), SENT));
    remarks(&scenario.doctor(Some(PORT), send), "port_owner", 0);
    let pids = [&first, &second].map(|one| one.pid().to_string());
    let found = scenario.doctor_asked(&["--pid", &pids[0]], send);
    let words = format!(
        "python3 (pid {}) bound UDP 192.168.254.1:4321 later",
        pids[1]
    );
    found.is("port_owner", 0, &words);
    remarks(
        &scenario.doctor_asked(&["--pid", &pids[1]], send),
        "port_owner",
        0,
    );
}

/// The socket keeps the number of the old one.
fn a_socket_of_an_interface_made_anew() {
    let scenario = Scenario::new();
    scenario.ip("link add mpps-anew type veth peer name mpps-peer");
    let _server = scenario.server(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(1, 25, b'mpps-anew'); s.bind(('0.0.0.0', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)",
    );
    scenario.ip("link del mpps-anew");
    scenario.ip("link add mpps-anew type veth peer name mpps-peer");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    found.is("listener_elsewhere", SENT, "which is gone");
    let remedy = found.first()["remedy"].as_str().unwrap_or_default();
    assert!(remedy.starts_with("restart the program"), "{remedy}");
}
