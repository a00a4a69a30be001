//! The fault gallery: hosts of a lab with one fault each, made on purpose, or with two, or with none,
//! and what `mpps doctor` says of them. Counts are exact, and those that the kernel alone knows are held
//! to what another reader of it says.

mod common;
#[path = "doctor/program.rs"]
mod program;
#[path = "doctor/scenario.rs"]
mod scenario;

use common::{Need, Test, faults, mpps, run, validator};
use mpps_lab::{EarlyDrop, address};
use program::{Group, Way};
use scenario::{Count, PORT, Scenario, Traffic, expect, healthy};
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
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
const IPTABLES: Need = Need::RootAnd("iptables", "iptables");

const TESTS: &[Test] = &[
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

const SENT: u64 = 1000;

fn a_stopped_program() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    common::kill("STOP", &group.pid().to_string());
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), 5 * SENT)));
    common::kill("CONT", &group.pid().to_string());
    expect(
        &found,
        &[(
            "socket_buffer",
            Count::Is(found.kernels_drops(&group)),
            "stopped",
        )],
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
        &[(
            "socket_buffer",
            Count::Is(found.kernels_drops(&group)),
            said,
        )],
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
            Count::Is(found.kernels_drops(&group)),
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
    expect(
        &found,
        &[("no_listener", Count::Is(SENT), "no socket has it")],
    );
}

fn nobody_listens_over_ipv6() {
    let scenario = Scenario::new();
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    expect(&found, &[("no_listener", Count::Is(SENT), "no socket has")]);
    found.balances();
}

fn a_listener_at_another_address() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(2));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("listener_elsewhere", Count::Is(SENT), &at(2))]);
}

fn a_listener_of_the_other_family() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&format!("[fd00:254::1]:{PORT}"), SENT))
    });
    expect(
        &found,
        &[("listener_elsewhere", Count::Is(SENT), "0.0.0.0")],
    );
}

fn a_connected_listener() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Connected, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("listener_elsewhere", Count::Is(SENT), "alone")]);
}

fn a_rule_of(rule: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _rule = rule.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("firewall", Count::Is(SENT), "packet filter")]);
}

fn a_program_at_the_driver(program: EarlyDrop) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let _program = program.install(&scenario.lab, PORT).expect("it was probed");
    let found = scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    expect(&found, &[("xdp_drop", Count::Is(SENT), "XDP program")]);
}

/// The receiver has no way back to the sender's other network.
fn an_asymmetric_route() {
    let scenario = Scenario::new();
    scenario.filter_strictly();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::from_elsewhere(&at(1), SENT))
    });
    expect(
        &found,
        &[("reverse_path", Count::Is(SENT), "reverse path filter")],
    );
    found.balances();
}

fn somebody_elses_address() {
    let scenario = Scenario::new();
    let own = scenario.hardware_address();
    scenario.neighbour(address::v4(99).into(), &own);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    expect(&found, &[("address", Count::Is(SENT), "does not have")]);
    found.balances();
}

fn somebody_elses_hardware_address() {
    let scenario = Scenario::new();
    scenario.neighbour(address::v4(99).into(), &[2, 0, 0, 0, 0, 99]);
    let found = scenario.doctor(None, || scenario.send(Traffic::to(&at(99), SENT)));
    expect(&found, &[("drop_reason", Count::Is(SENT), "OTHERHOST")]);
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
    expect(
        &found,
        &[("drop_reason", Count::Is(SENT), "IP_LOCAL_SOURCE")],
    );
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
    expect(
        &found,
        &[("listen_queue", Count::Is(overflows), "listening")],
    );
    assert_eq!(first["evidence"][1]["source"], "TcpExt.ListenOverflows");
}

fn nothing_at_all() {
    let scenario = Scenario::new();
    let found = scenario.doctor(Some(PORT), || {});
    expect(
        &found,
        &[(
            "nothing_arrives",
            Count::Is(0),
            "no interface received any packet",
        )],
    );
}

fn connections_but_no_datagrams() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(Some(PORT), || scenario.connect(20));
    expect(
        &found,
        &[(
            "nothing_arrives",
            Count::Is(0),
            "no UDP datagram was among them",
        )],
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
            ("socket_buffer", Count::Is(dropped), "nobody reads"),
            ("no_listener", Count::Is(SENT), "no socket has"),
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
            ("firewall", Count::Is(2 * SENT), "packet filter"),
            ("no_listener", Count::Is(SENT), "no socket has"),
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
            ("socket_buffer", Count::Is(dropped), "stopped"),
            ("reverse_path", Count::Is(SENT), "reverse path filter"),
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
