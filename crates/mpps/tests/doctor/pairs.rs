//! Hosts with two faults at once, and hosts with none.

use super::program::{Group, Way};
use super::scenario::{NFT, PORT, SENT, Scenario, Traffic, at, expect, healthy, large, remarks};
use crate::common::run;
use mpps_lab::{EarlyDrop, address};
use mpps_os::netlink::link;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            healthy_beside_broadcasts,
            healthy_but_for_a_stray_one,
            an_uneven_group_and_nobody_listens,
            fragments_and_a_stopped_program,
            nobody_listens_and_nobody_reads,
            an_asymmetric_route_and_a_stopped_program,
            healthy_and_idle,
            healthy_with_one_flow,
            healthy_with_many_flows,
            healthy_over_ipv6,
            healthy_with_four_sockets,
            healthy_with_connections,
            healthy_with_a_cookie_for_each_connection;
        waits(Need::Root, TC): a_limit_on_the_node_of_a_container;
        waits(Need::Root, NFT): an_address_and_a_rule, a_rule_and_nobody_listens;
    ]
}

const TC: Need = Need::Program("tc mount", "iproute2 and mount");

/// The sender is the node, with a name for its namespace; the receiver is the container.
fn a_limit_on_the_node_of_a_container() {
    let scenario = Scenario::new();
    fs::create_dir_all("/run/netns").expect("the trial has its own /run");
    fs::write("/run/netns/node", "").expect("a file");
    let node = scenario.lab.sender().namespace().as_fd().as_raw_fd();
    let node = format!("/proc/{}/fd/{node}", std::process::id());
    run(Command::new("mount").args(["--bind", &node, "/run/netns/node"])).fine();
    let name = scenario.on_sender(|| link::of(scenario.lab.sender().interface_index()));
    let name = name.expect("it is there").name;
    let tc = |words: &str| {
        let words = words.replace("DEV", &name);
        scenario.on_sender(|| run(Command::new("tc").args(words.split(' '))).fine());
    };
    let group = Group::start(&scenario, Way::Read, 1, &at(1));
    let send = || scenario.send(Traffic::to(&at(1), SENT));
    tc("qdisc replace dev DEV root tbf rate 1mbit burst 5kb limit 5kb");
    let found = scenario.doctor(None, send);
    let dropped = found.evidence();
    assert!(dropped > SENT / 2, "{found:#?}");
    found.is("far_end", dropped, "node: ");
    found.came(SENT);
    // The remedy.
    tc("qdisc replace dev DEV root tbf rate 10gbit burst 1mb limit 10mb");
    let found = scenario.doctor(None, send);
    healthy(&found, SENT);
    drop(group);
    run(Command::new("umount").arg("/run/netns/node")).fine();
}

fn healthy_with_one_flow() {
    healthy_with(1, "192.168.254.1");
}

fn healthy_with_many_flows() {
    healthy_with(64, "192.168.254.1");
}

fn healthy_over_ipv6() {
    healthy_with(4, "fd00:254::1");
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
            ("socket_buffer", dropped, "does not read it"),
            ("no_listener", SENT, "no socket took them"),
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
            ("no_listener", SENT, "no socket took them"),
            ("firewall", 2 * SENT, "packet filter"),
        ],
    );
    found.balances();
}

fn an_asymmetric_route_and_a_stopped_program() {
    let scenario = Scenario::new();
    scenario.filter_strictly();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    group.signal("STOP");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(Traffic::from_elsewhere(&at(1), SENT));
    });
    let dropped = found.kernels_drops(&group);
    expect(
        &found,
        &[
            ("socket_buffer", dropped, "stopped"),
            ("reverse_path", SENT, "reverse path filter"),
        ],
    );
}

fn an_uneven_group_and_nobody_listens() {
    let scenario = Scenario::new();
    let group = Group::start(&scenario, Way::Slow, 4, &format!("0.0.0.0:{PORT}"));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(Traffic::to("192.168.254.1:9", SENT));
    });
    let dropped = found.kernels_drops(&group);
    expect(
        &found,
        &[
            ("reuseport_uneven", dropped, "3 lost nothing"),
            ("no_listener", SENT, "no socket took them"),
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
            ("address", SENT, "does not have"),
            ("firewall", 2 * SENT, "packet filter"),
        ],
    );
    found.balances();
}

fn fragments_and_a_stopped_program() {
    let scenario = Scenario::new();
    scenario.keep_no_fragments();
    let group = Group::start(&scenario, Way::Slow, 1, &at(1));
    group.signal("STOP");
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 8 * SENT));
        scenario.send(large(&at(2)));
    });
    let (dropped, fails) = (found.kernels_drops(&group), found.grown("Ip.ReasmFails"));
    expect(
        &found,
        &[
            ("socket_buffer", dropped, "stopped"),
            ("fragments", fails, "fragments of datagrams"),
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

fn healthy_with_a_cookie_for_each_connection() {
    let scenario = Scenario::new();
    scenario.set("net/ipv4/tcp_syncookies", "2");
    let found = scenario.doctor(None, || scenario.connect(20));
    assert!(found.grown("TcpExt.TCPReqQFullDoCookies") >= 20);
    healthy(&found, 0);
}

/// A broadcast without a listener here is a remark, and not a problem.
fn healthy_beside_broadcasts() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to("192.168.254.255:137", 100));
        scenario.send(Traffic::to(&at(1), SENT));
    });
    remarks(&found, "no_listener", 100);
    found.balances();
}

/// One datagram of 2000 for a port without a program is a remark, and nothing wrong.
fn healthy_but_for_a_stray_one() {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, &at(1));
    let found = scenario.doctor(None, || {
        scenario.send(Traffic::to(&at(1), 2 * SENT));
        scenario.send(Traffic::to("192.168.254.1:9", 1));
    });
    remarks(&found, "no_listener", 1);
    found.balances();
}
