//! Datagrams that do not leave this host.

use super::scenario::{IP, PORT, SENT, Scenario, Traffic, expect, silent};
use crate::common::run;
use mpps_lab::address;
use mpps_trial::{Need, Trial, trials};
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, IP): no_route_out, a_neighbour_that_is_silent, a_queue_that_is_too_short,
            a_queue_too_short_for_what_is_forwarded;
    ]
}

/// A program of the host in question sends datagrams there.
fn sends(scenario: &Scenario, to: IpAddr, datagrams: u64) {
    scenario.on_receiver(|| {
        let client = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        for _ in 0..datagrams {
            // The kernel may refuse it, or report that an earlier one was lost.
            let _ = client.send_to(&[0; 100], (to, 7777));
        }
    });
}

fn ip(scenario: &Scenario, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    scenario.on_receiver(|| run(Command::new(words[0]).args(&words[1..])).fine());
}

fn no_route_out() {
    let scenario = Scenario::new();
    let far: IpAddr = [203, 0, 113, 9].into();
    let found = scenario.doctor(None, || sends(&scenario, far, SENT));
    expect(&found, &[("way_out", SENT, "no route")]);
    found.has_counted("Ip.OutNoRoutes");
    ip(&scenario, "ip route add default via 192.168.254.30");
    silent(&scenario.doctor(None, || sends(&scenario, far, SENT)));
}

fn a_neighbour_that_is_silent() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(77).into();
    let found = scenario.doctor(None, || {
        sends(&scenario, there, 150);
        // The kernel asks three times, a second apart.
        thread::sleep(Duration::from_millis(4500));
    });
    expect(&found, &[("way_out", 150, "192.168.254.77 on mpps-rx")]);
    scenario.sender_has(there);
    silent(&scenario.doctor(None, || sends(&scenario, there, 150)));
}

fn a_queue_that_is_too_short() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(30).into();
    ip(
        &scenario,
        "tc qdisc replace dev mpps-rx root tbf rate 100kbit burst 2kb limit 3000",
    );
    let found = scenario.doctor(None, || sends(&scenario, there, SENT));
    let lost = found.grown("Udp.SndbufErrors");
    expect(
        &found,
        &[("way_out", lost, "queueing discipline of an interface")],
    );
    ip(&scenario, "tc qdisc del dev mpps-rx root");
    silent(&scenario.doctor(None, || sends(&scenario, there, 100)));
}

/// The sender's packets come back to it by the receiver.
fn a_queue_too_short_for_what_is_forwarded() {
    let scenario = Scenario::new();
    let far: IpAddr = [203, 0, 113, 9].into();
    ip(&scenario, "sysctl -qw net.ipv4.ip_forward=1");
    ip(&scenario, "ip route add 203.0.113.0/24 via 192.168.254.30");
    let route = ["route", "add", "203.0.113.0/24", "via", "192.168.254.1"];
    scenario.on_sender(|| run(Command::new("ip").args(route)).fine());
    let look = |datagrams| {
        let traffic = Traffic::to(&format!("{far}:{PORT}"), datagrams);
        scenario.doctor(None, || scenario.send(traffic))
    };
    ip(
        &scenario,
        "tc qdisc replace dev mpps-rx root tbf rate 100kbit burst 2kb limit 3000",
    );
    let found = look(SENT);
    let lost = found.evidence();
    assert!(lost > SENT / 2 && lost < SENT, "{found:#?}");
    expect(&found, &[("way_out", lost, "were forwarded")]);
    found.came(0);
    ip(&scenario, "tc qdisc del dev mpps-rx root");
    silent(&look(100));
}
