//! The fault gallery: hosts of a lab with one fault each, made on purpose, or with two, or with none,
//! and what `mpps doctor` says of them. Counts are exact, and those that the kernel alone knows are held
//! to what another reader of it says.

mod common;
#[path = "doctor/others.rs"]
mod others;
#[path = "doctor/program.rs"]
mod program;
#[path = "doctor/scenario.rs"]
mod scenario;

use common::{Need, Test, faults, mpps, run, validator};
use mpps_lab::{EarlyDrop, address};
use mpps_os::netlink::neighbour;
use program::{Group, Way};
use scenario::{PORT, Scenario, Traffic, expect, healthy};
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

fn main() -> ExitCode {
    if program::is_asked_for() {
        return program::run();
    }
    let namespaces = common::become_able();
    common::run_tests(TESTS, &namespaces, 2, |_| false)
}

const NFT: Need = Need::RootAnd("nft", "nftables");
const IPTABLES: Need = Need::RootAnd("iptables-legacy", "iptables");

const TESTS: &[Test] = &[
    (
        "nsd_that_is_stopped",
        others::NSD,
        others::nsd_that_is_stopped,
    ),
    ("nsd_that_answers", others::NSD, others::nsd_that_answers),
    (
        "rsyslog_that_is_stopped",
        others::RSYSLOG,
        others::rsyslog_that_is_stopped,
    ),
    (
        "rsyslog_that_writes",
        others::RSYSLOG,
        others::rsyslog_that_writes,
    ),
    (
        "iperf3_that_is_stopped",
        others::IPERF3,
        others::iperf3_that_is_stopped,
    ),
    (
        "iperf3_that_receives",
        others::IPERF3,
        others::iperf3_that_receives,
    ),
    (
        "fragments_without_memory",
        Need::Root,
        fragments_without_memory,
    ),
    ("a_wrong_checksum", PYTHON, a_wrong_checksum),
    (
        "a_checksum_of_zero_over_ipv6",
        PYTHON,
        a_checksum_of_zero_over_ipv6,
    ),
    ("a_socket_filter", PYTHON, a_socket_filter),
    (
        "a_socket_bound_to_an_interface",
        PYTHON,
        a_socket_bound_to_an_interface,
    ),
    (
        "a_server_in_python_that_sleeps",
        PYTHON,
        a_server_in_python_that_sleeps,
    ),
    (
        "a_listener_on_loopback_alone",
        Need::Root,
        a_listener_on_loopback_alone,
    ),
    (
        "a_full_queue_of_handshakes",
        Need::Root,
        a_full_queue_of_handshakes,
    ),
    (
        "a_group_that_nobody_joined",
        Need::Root,
        a_group_that_nobody_joined,
    ),
    (
        "somebody_elses_address_over_ipv6",
        Need::Root,
        somebody_elses_address_over_ipv6,
    ),
    ("a_rule_that_rejects", NFT, || {
        a_rule("udp dport 4321 reject")
    }),
    ("a_rule_for_one_sender", NFT, || {
        a_rule("ip saddr 192.168.254.30 drop")
    }),
    ("a_policy_that_drops", NFT, a_policy_that_drops),
    ("a_cable_that_is_out", IP, a_cable_that_is_out),
    (
        "frames_of_another_protocol",
        PYTHON,
        frames_of_another_protocol,
    ),
    (
        "an_uneven_group_and_nobody_listens",
        Need::Root,
        an_uneven_group_and_nobody_listens,
    ),
    ("an_address_and_a_rule", NFT, an_address_and_a_rule),
    (
        "fragments_and_a_stopped_program",
        Need::Root,
        fragments_and_a_stopped_program,
    ),
    ("a_stopped_program", Need::Root, a_stopped_program),
    (
        "a_program_that_does_not_read",
        Need::Root,
        a_program_that_does_not_read,
    ),
    (
        "a_program_that_is_too_slow",
        Need::Root,
        a_program_that_is_too_slow,
    ),
    (
        "a_buffer_too_small_for_bursts",
        Need::Root,
        a_buffer_too_small_for_bursts,
    ),
    (
        "one_flow_for_four_sockets",
        Need::Root,
        one_flow_for_four_sockets,
    ),
    ("nobody_listens", Need::Root, nobody_listens),
    (
        "nobody_listens_over_ipv6",
        Need::Root,
        nobody_listens_over_ipv6,
    ),
    (
        "a_listener_at_another_address",
        Need::Root,
        a_listener_at_another_address,
    ),
    (
        "a_listener_of_the_other_family",
        Need::Root,
        a_listener_of_the_other_family,
    ),
    ("a_connected_listener", Need::Root, a_connected_listener),
    ("a_rule_before_tracking", NFT, || {
        a_rule_of(EarlyDrop::NftRaw)
    }),
    ("a_rule_at_the_ingress", NFT, || {
        a_rule_of(EarlyDrop::NftIngress)
    }),
    ("a_rule_of_iptables", IPTABLES, || {
        a_rule_of(EarlyDrop::IptablesRaw)
    }),
    ("an_xdp_program", Need::Root, || {
        a_program_at_the_driver(EarlyDrop::XdpUntouched)
    }),
    ("an_xdp_program_that_looks", Need::Root, || {
        a_program_at_the_driver(EarlyDrop::XdpParsed)
    }),
    ("an_asymmetric_route", Need::Root, an_asymmetric_route),
    ("somebody_elses_address", Need::Root, somebody_elses_address),
    (
        "somebody_elses_hardware_address",
        Need::Root,
        somebody_elses_hardware_address,
    ),
    ("a_martian_source", Need::Root, a_martian_source),
    (
        "a_full_queue_of_connections",
        Need::Root,
        a_full_queue_of_connections,
    ),
    ("nothing_at_all", Need::Root, nothing_at_all),
    (
        "connections_but_no_datagrams",
        Need::Root,
        connections_but_no_datagrams,
    ),
    (
        "nobody_listens_and_nobody_reads",
        Need::Root,
        nobody_listens_and_nobody_reads,
    ),
    ("a_rule_and_nobody_listens", NFT, a_rule_and_nobody_listens),
    (
        "an_asymmetric_route_and_a_stopped_program",
        Need::Root,
        an_asymmetric_route_and_a_stopped_program,
    ),
    ("healthy_and_idle", Need::Root, healthy_and_idle),
    ("healthy_with_one_flow", Need::Root, || {
        healthy_with(1, "192.168.254.1")
    }),
    ("healthy_with_many_flows", Need::Root, || {
        healthy_with(64, "192.168.254.1")
    }),
    ("healthy_over_ipv6", Need::Root, || {
        healthy_with(4, "fd00:254::1")
    }),
    (
        "healthy_with_four_sockets",
        Need::Root,
        healthy_with_four_sockets,
    ),
    (
        "healthy_with_connections",
        Need::Root,
        healthy_with_connections,
    ),
    (
        "what_it_writes_is_shown_again",
        Need::Namespace,
        what_it_writes_is_shown_again,
    ),
    (
        "an_ordinary_user_is_told_what_is_hidden",
        Need::Root,
        an_ordinary_user_is_told_what_is_hidden,
    ),
    ("mistakes_are_told", Need::Nothing, mistakes_are_told),
];

const PYTHON: Need = Need::RootAnd("python3", "python3");
const IP: Need = Need::RootAnd("ip", "iproute2");

const SENT: u64 = 1000;

fn a_stopped_program() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    common::kill("STOP", &group.pid().to_string());
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    common::kill("CONT", &group.pid().to_string());
    expect(
        &found,
        &[("socket_buffer", found.kernels_drops(&group), "stopped")],
    );
    assert!(
        found.first()["what"]
            .as_str()
            .is_some_and(|what| what.contains(&group.pid().to_string()))
    );
}

fn starved(way: Way, said: &str) {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, way, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(1), 5 * SENT));
        // For shares of its time to mean something.
        thread::sleep(Duration::from_millis(300));
    });
    expect(
        &found,
        &[("socket_buffer", found.kernels_drops(&group), said)],
    );
}

fn a_program_that_does_not_read() {
    starved(Way::Sleep, "nobody reads");
}

/// Beside other work a thread that never sleeps may lack a CPU, which is told in its place.
fn a_program_that_is_too_slow() {
    starved(Way::Spin, "of the time");
}

fn a_buffer_too_small_for_bursts() {
    starved(Way::Slow, "of the time");
}

fn one_flow_for_four_sockets() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Sleep, 4, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    expect(
        &found,
        &[(
            "reuseport_uneven",
            found.kernels_drops(&group),
            "1 lost all that was lost, and 3 lost nothing",
        )],
    );
}

fn nobody_listens() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&at(1), SENT));
        // Another port is another story.
        scenario.send(Traffic::to("192.168.254.1:9", 7));
    });
    expect(&found, &[("no_listener", SENT, "no socket has it")]);
}

fn nobody_listens_over_ipv6() {
    let scenario = Scenario::new();
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    expect(&found, &[("no_listener", SENT, "no socket has")]);
    found.balances();
}

fn a_listener_at_another_address() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(2));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("listener_elsewhere", SENT, &at(2))]);
}

fn a_listener_of_the_other_family() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    expect(&found, &[("listener_elsewhere", SENT, "0.0.0.0")]);
}

fn a_connected_listener() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Connected, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("listener_elsewhere", SENT, "alone")]);
}

fn a_rule_of(rule: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _rule = rule.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("firewall", SENT, "packet filter")]);
}

fn a_program_at_the_driver(program: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _program = program.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("xdp_drop", SENT, "XDP program")]);
}

/// The receiver has no way back to the sender's other network.
fn an_asymmetric_route() {
    let scenario = Scenario::new();
    scenario.filter_strictly();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::from_elsewhere(&at(1), SENT))
    });
    expect(&found, &[("reverse_path", SENT, "reverse path filter")]);
    found.balances();
}

fn somebody_elses_address() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v4(99).into(), &own);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    expect(&found, &[("address", SENT, "does not have")]);
    found.balances();
}

fn somebody_elses_hardware_address() {
    let scenario = Scenario::new();
    scenario.neighbour(address::v4(99).into(), &[2, 0, 0, 0, 0, 99]);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    expect(&found, &[("drop_reason", SENT, "OTHERHOST")]);
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
        true => expect(&found, &[("drop_reason", SENT, "IP_LOCAL_SOURCE")]),
        false => expect(&found, &[("unrouted", SENT, "cannot be a source")]),
    }
}

/// Whether the kernel's type information has this drop reason.
fn knows_reason(name: &str) -> bool {
    let types = fs::read("/sys/kernel/btf/vmlinux").expect("the doctor needs it, too");
    let name = format!("SKB_DROP_REASON_{name}\0");
    types
        .windows(name.len())
        .any(|bytes| bytes == name.as_bytes())
}

fn a_full_queue_of_connections() {
    let scenario = Scenario::new();
    let write = || fs::write("/proc/sys/net/core/somaxconn", "1").expect("it is this namespace's");
    scenario.on_receiver(write);
    let local = SocketAddr::from((address::v4(1), PORT));
    let _listener = scenario.on_receiver(|| TcpListener::bind(local).expect("the port is free"));
    let found = scenario.doctor(None, || {
        scenario.on_sender(|| {
            let connect = |_| TcpStream::connect_timeout(&local, Duration::from_millis(50));
            let _made: Vec<_> = (0..6).map(connect).collect();
        });
    });
    let first = found.first();
    let overflows = found.grown("TcpExt.ListenDrops");
    assert!(overflows > 0);
    expect(&found, &[("listen_queue", overflows, "listening")]);
    assert_eq!(first["evidence"][1]["source"], "TcpExt.ListenOverflows");
}

fn nothing_at_all() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {});
    expect(
        &found,
        &[("nothing_arrives", 0, "no interface received any packet")],
    );
}

fn connections_but_no_datagrams() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.connect(20));
    expect(
        &found,
        &[("nothing_arrives", 0, "no UDP datagram was among them")],
    );
}

/// Datagrams of two fragments, for which there is no memory.
fn fragments_without_memory() {
    let scenario = Scenario::new();
    scenario.keep_no_fragments();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || scenario.send(large(&at(1))));
    let fails = found.grown("Ip.ReasmFails");
    assert!(fails >= SENT, "{fails}");
    expect(&found, &[("fragments", fails, "fragments of datagrams")]);
}

/// Datagrams of two fragments.
fn large(to: &str) -> Traffic {
    Traffic {
        bytes: 2000,
        ..Traffic::to(to, SENT)
    }
}

/// A raw socket writes its own UDP header, with a checksum that is none.
fn a_wrong_checksum() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        scenario.python(
            "import socket, struct\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)\n\
             s.bind(('192.168.254.30', 0))\n\
             for _ in range(1000): s.sendto(struct.pack('!4H', 7, 4321, 12, 0xdead) + b'mpps', ('192.168.254.1', 0))",
        );
    });
    expect(&found, &[("checksum", SENT, "wrong checksum")]);
}

/// IPv6 has no datagrams without a checksum (RFC 8200); a sender that leaves it out (`UDP_NO_CHECK6_TX`).
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
    expect(&found, &[("checksum", SENT, "wrong checksum")]);
    found.balances();
}

/// A server in Python, with these lines about its socket `s` before it says that it is ready.
const SERVER: &str = "import ctypes, socket, struct, sys, time\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n";

fn a_socket_filter() {
    let scenario = Scenario::new();
    // `ret #0` for all packets (SO_ATTACH_FILTER of socket(7)).
    let _server = scenario.server(&format!(
        "{SERVER}code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n\
         s.setsockopt(1, 26, struct.pack('HL', 1, ctypes.addressof(code)))\n\
         s.bind(('192.168.254.1', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)"
    ));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("drop_reason", SENT, "SOCKET_FILTER")]);
}

fn a_socket_bound_to_an_interface() {
    let scenario = Scenario::new();
    let _server = scenario.server(&format!(
        "{SERVER}s.setsockopt(1, 25, b'lo')\n\
         s.bind(('0.0.0.0', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)"
    ));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(
        &found,
        &[(
            "listener_elsewhere",
            SENT,
            "0.0.0.0:4321 (of one interface alone)",
        )],
    );
}

/// The server of Python's own library, whose handler waits for something else.
fn a_server_in_python_that_sleeps() {
    let scenario = Scenario::new();
    let server = scenario.server(
        "import socketserver, time\n\
         class Handler(socketserver.BaseRequestHandler):\n\
        \x20   def handle(self): time.sleep(3600)\n\
         server = socketserver.UDPServer(('192.168.254.1', 4321), Handler)\n\
         print('ready', flush=True)\n\
         server.serve_forever()",
    );
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    expect(
        &found,
        &[(
            "socket_buffer",
            found.kernels_drops(&server),
            "nobody reads",
        )],
    );
    assert!(
        found.first()["what"]
            .as_str()
            .is_some_and(|what| what.contains("python3"))
    );
}

fn a_listener_on_loopback_alone() {
    let scenario = Scenario::new();
    scenario.wake_loopback();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("127.0.0.1:{PORT}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("listener_elsewhere", SENT, "127.0.0.1")]);
}

/// The sender never hears the answer to its first packet, so that no handshake ends.
fn a_full_queue_of_handshakes() {
    let scenario = Scenario::new();
    scenario.on_receiver(|| {
        fs::write("/proc/sys/net/core/somaxconn", "2").expect("it is this namespace's");
    });
    let index = scenario.lab.receiver().interface_index();
    let wrong = [2, 0, 0, 0, 0, 99];
    let told =
        scenario.on_receiver(|| neighbour::add_permanent(index, address::v4(30).into(), &wrong));
    told.expect("it can be told");
    let local = SocketAddr::from((address::v4(1), PORT));
    let _listener = scenario.on_receiver(|| TcpListener::bind(local).expect("the port is free"));
    let found = scenario.doctor(None, || {
        scenario.on_sender(|| {
            thread::scope(|scope| {
                for _ in 0..12 {
                    scope.spawn(|| TcpStream::connect_timeout(&local, Duration::from_millis(100)));
                }
            });
        });
    });
    let cookies = found.grown("TcpExt.TCPReqQFullDoCookies");
    assert!(cookies > 0);
    expect(&found, &[("handshake_queue", cookies, "SYN cookies")]);
}

fn a_group_that_nobody_joined() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("239.1.1.1:{PORT}"), SENT))
    });
    expect(&found, &[("unrouted", SENT, "joined")]);
}

fn somebody_elses_address_over_ipv6() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v6(99).into(), &own);
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::63]:{PORT}"), SENT))
    });
    expect(&found, &[("address", SENT, "does not have")]);
    found.balances();
}

/// A rule of the input chain, as a firewall of states has it.
fn a_rule(rule: &str) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.nft("add table inet t");
    scenario.nft("add chain inet t input { type filter hook input priority 0; }");
    scenario.nft(&format!("add rule inet t input {rule}"));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("firewall", SENT, "packet filter")]);
}

fn a_policy_that_drops() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("[fd00:254::1]:{PORT}"));
    scenario.nft("add table inet t");
    scenario.nft("add chain inet t input { type filter hook input priority 0; policy drop; }");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    expect(&found, &[("firewall", SENT, "packet filter")]);
    found.balances();
}

fn a_cable_that_is_out() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    scenario.on_sender(|| run(Command::new("ip").args(["link", "set", "mpps-tx", "down"])).fine());
    let found = scenario.doctor(Some(PORT), || {});
    expect(&found, &[("nothing_arrives", 0, "mpps-rx has no carrier")]);
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
    expect(&found, &[("nothing_arrives", 0, "none reached IP")]);
}

fn an_uneven_group_and_nobody_listens() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Sleep, 4, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(Traffic::to("192.168.254.1:9", SENT));
    });
    let dropped = found.kernels_drops(&group);
    expect(
        &found,
        &[
            ("reuseport_uneven", dropped, "3 lost nothing"),
            ("no_listener", SENT, "no socket has"),
        ],
    );
}

fn an_address_and_a_rule() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v4(99).into(), &own);
    let _rule = EarlyDrop::NftRaw
        .install(&scenario.lab, PORT)
        .expect("it was probed");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to("192.168.254.99:9", SENT));
        scenario.send(Traffic::to(&at(1), 2 * SENT));
    });
    expect(
        &found,
        &[
            ("firewall", 2 * SENT, "packet filter"),
            ("address", SENT, "does not have"),
        ],
    );
    found.balances();
}

fn fragments_and_a_stopped_program() {
    let scenario = Scenario::new();
    scenario.keep_no_fragments();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    common::kill("STOP", &group.pid().to_string());
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(large(&at(2)));
    });
    common::kill("CONT", &group.pid().to_string());
    let (dropped, fails) = (found.kernels_drops(&group), found.grown("Ip.ReasmFails"));
    expect(
        &found,
        &[
            ("socket_buffer", dropped, "stopped"),
            ("fragments", fails, "fragments of datagrams"),
        ],
    );
}

fn nobody_listens_and_nobody_reads() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Sleep, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(Traffic::to("192.168.254.1:9", SENT));
    });
    let dropped = found.kernels_drops(&group);
    assert!(dropped > SENT, "{dropped}");
    expect(
        &found,
        &[
            ("socket_buffer", dropped, "nobody reads"),
            ("no_listener", SENT, "no socket has"),
        ],
    );
}

fn a_rule_and_nobody_listens() {
    let scenario = Scenario::new();
    let _rule = EarlyDrop::NftRaw
        .install(&scenario.lab, PORT)
        .expect("it was probed");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 2 * SENT));
        scenario.send(Traffic::to("192.168.254.1:9", SENT));
    });
    expect(
        &found,
        &[
            ("firewall", 2 * SENT, "packet filter"),
            ("no_listener", SENT, "no socket has"),
        ],
    );
    found.balances();
}

fn an_asymmetric_route_and_a_stopped_program() {
    let scenario = Scenario::new();
    scenario.filter_strictly();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    common::kill("STOP", &group.pid().to_string());
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(Traffic::from_elsewhere(&at(1), SENT));
    });
    common::kill("CONT", &group.pid().to_string());
    let dropped = found.kernels_drops(&group);
    expect(
        &found,
        &[
            ("socket_buffer", dropped, "stopped"),
            ("reverse_path", SENT, "reverse path filter"),
        ],
    );
}

fn healthy_and_idle() {
    let scenario = Scenario::new();
    let found = scenario.doctor(None, || {});
    healthy(&found, 0);
}

fn healthy_with(flows: u16, to: &str) {
    let scenario = Scenario::new();
    let to: IpAddr = to.parse().expect("an address");
    let to = SocketAddr::new(to, PORT);
    let _group = Group::start(&scenario, Way::Read, 1, &to.to_string());
    for port in [None, Some(PORT)] {
        let found = scenario.doctor(port, || {
            let traffic = Traffic::to(&to.to_string(), SENT);
            scenario.send(Traffic { flows, ..traffic });
        });
        healthy(&found, SENT);
    }
}

fn healthy_with_four_sockets() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 4, &at(1));
    let found = scenario.doctor(Some(PORT), || {
        let traffic = Traffic::to(&at(1), SENT);
        scenario.send(Traffic {
            flows: 64,
            ..traffic
        });
    });
    healthy(&found, SENT);
}

fn healthy_with_connections() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.connect(20);
        scenario.send(Traffic::to(&at(1), SENT));
    });
    healthy(&found, SENT);
}

fn what_it_writes_is_shown_again() {
    let namespace = common::quiet_namespace();
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("doctor.html");
    let doctor = |more: &[&str]| {
        let mut arguments = vec!["doctor", "--seconds", "1", "--port", "9"];
        arguments.extend(more);
        namespace
            .run(|| run(&mut mpps(&arguments)))
            .expect("it can be entered")
    };
    let file = directory.path().join("doctor.json");
    let told = doctor(&["--json", "--html", page.to_str().expect("a plain name")]);
    assert_eq!(told.code(), 1, "{told:#?}");
    fs::write(&file, &told.out).expect("it can be written");
    let value: Value = serde_json::from_str(&told.out).expect("it is JSON");
    assert_eq!(faults(&validator("doctor"), &value), [""; 0]);
    assert!(
        fs::read_to_string(page)
            .expect("a page")
            .contains("nothing arrived")
    );
    let again = run(&mut mpps(&["report", file.to_str().expect("a plain name")])).fine();
    let text = doctor(&[]);
    for told in [&again.out, &text.out] {
        for word in [
            "1. ",
            "nothing arrived",
            "proof: ",
            "remedy: ",
            "verify: ",
            "mpps doctor --port 9",
            "UNACCOUNTED",
        ] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
    let markdown = doctor(&["--markdown"]);
    assert!(markdown.out.starts_with("# "), "{markdown:#?}");
}

fn an_ordinary_user_is_told_what_is_hidden() {
    let directory = tempfile::tempdir().expect("a directory");
    let ended = common::as_nobody(
        directory.path(),
        &["doctor", "lo", "--seconds", "1", "--json"],
    );
    let value: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
    let notes = value["notes"].to_string();
    assert!(notes.contains("drop reasons are not seen"), "{notes}");
}

fn mistakes_are_told() {
    for (arguments, said) in [
        (&["nowhere0"][..], "nowhere0"),
        (&["--port", "0"], "--port"),
        (&["--seconds", "0"], "--seconds"),
        (&["--netns", "no-such-name"], "no-such-name"),
        (&["--netns", "4294967295"], "4294967295"),
        (&["--netns", "/etc/hostname"], "/etc/hostname"),
        (&["--json", "--markdown"], "--markdown"),
        (&["--html", "/nowhere/a.html"], "/nowhere/a.html"),
    ] {
        let ended = run(mpps(&["doctor"]).args(arguments));
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.err.contains(said), "{ended:#?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    }
}

/// A receiver's address, with the port.
fn at(last: u8) -> String {
    let address: Ipv4Addr = address::v4(last);
    format!("{address}:{PORT}")
}
