//! Packets that a tunnel refuses, whose counters other interfaces have for damaged frames.

use super::program::{Group, Way};
use super::scenario::{Found, IP, PYTHON, SENT, Scenario, expect, silent};
use mpps_os::namespace::NetNamespace;
use mpps_trial::{Need, Trial, trials};
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    let vxlan = Need::probe(|| match NetNamespace::new() {
        Ok(namespace) => made(&namespace),
        Err(error) => Err(error.to_string()),
    });
    trials![
        waits(Need::Root, IP, PYTHON, vxlan):
            a_vxlan_with_other_flags,
            a_vxlan_that_was_congested,
            a_vxlan_cut_short,
            a_vxlan_that_is_fine;
    ]
}

const ADD: &str = "link add vx0 type vxlan id 42 remote 192.168.254.30 dstport 4789";

/// A kernel may lack VXLAN.
fn made(namespace: &NetNamespace) -> Result<(), String> {
    let made = namespace.run(|| Command::new("ip").args(ADD.split(' ')).output());
    match made {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        other => Err(format!("no VXLAN: {other:?}")),
    }
}

fn tunnel(scenario: &Scenario, options: &str) {
    for command in [
        &*format!("{ADD}{options}"),
        "link set vx0 address 02:00:00:00:00:aa up",
        "addr add 10.99.0.1/24 dev vx0",
    ] {
        scenario.ip(command);
    }
}

/// Sends packets of VXLAN with these flags, type of service, and bytes of the packet inside.
fn sent(scenario: &Scenario, flags: &str, tos: u8, bytes: usize) -> Found {
    scenario.doctor(None, || {
        scenario.python(&format!(
            "import socket, struct\n\
             udp = struct.pack('>HHHH', 9, 4321, 28, 0) + bytes(20)\n\
             head = lambda check: struct.pack('>BBHHHBBH4s4s', 69, 0, 48, 0, 0, 64, 17, check,\n\
             \x20   bytes([10, 99, 0, 2]), bytes([10, 99, 0, 1]))\n\
             words = sum(struct.unpack('>10H', head(0)))\n\
             words = (words & 65535) + (words >> 16)\n\
             inner = (head(65535 - words) + udp)[:{bytes}]\n\
             frame = bytes([2, 0, 0, 0, 0, 170, 2, 0, 0, 0, 0, 187, 8, 0]) + inner\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.bind(('192.168.254.30', 0))\n\
             s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, {tos})\n\
             for _ in range({SENT}):\n\
             \x20   s.sendto(struct.pack('>II', {flags}, 42 << 8) + frame, ('192.168.254.1', 4789))\n"
        ));
    })
}

fn receiver(scenario: &Scenario) -> Group {
    Group::start(scenario, Way::Read, 1, "0.0.0.0:4321")
}

/// The other end sets a group policy. Once this end knows such, nothing is lost.
fn a_vxlan_with_other_flags() {
    let scenario = Scenario::new();
    tunnel(&scenario, "");
    let _receiver = receiver(&scenario);
    let found = sent(&scenario, "0x88000000", 0, 48);
    expect(
        &found,
        &[(
            "virtual_device",
            SENT,
            "vx0: VXLAN dropped packets with header bits",
        )],
    );
    found.says("remedy", "ip -d link show dev vx0");
    scenario.ip("link del vx0");
    tunnel(&scenario, " gbp");
    silent(&sent(&scenario, "0x88000000", 0, 48));
}

fn a_vxlan_that_was_congested() {
    let scenario = Scenario::new();
    tunnel(&scenario, "");
    let found = sent(&scenario, "0x08000000", 3, 48);
    found.is("virtual_device", SENT, "ECN");
}

fn a_vxlan_cut_short() {
    let scenario = Scenario::new();
    tunnel(&scenario, "");
    let found = sent(&scenario, "0x08000000", 0, 10);
    found.is("virtual_device", SENT, "shorter than an IP header");
}

fn a_vxlan_that_is_fine() {
    let scenario = Scenario::new();
    tunnel(&scenario, "");
    let _receiver = receiver(&scenario);
    silent(&sent(&scenario, "0x08000000", 0, 48));
}
