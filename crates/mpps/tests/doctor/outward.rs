//! Datagrams that do not leave this host.

use super::scenario::{
    IP, NFT, PORT, PYTHON, SENT, Scenario, Traffic, at, expect, remarks, silent, silent_but_for,
};
use crate::common::run;
use mpps_lab::address;
use mpps_trial::{Need, Trial, trials};
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, IP): no_route_out, a_neighbour_that_is_silent, a_queue_that_is_too_short,
            a_queue_too_short_all_the_time,
            a_queue_too_short_for_what_is_forwarded, a_route_that_drops,
            a_policy_without_a_key, a_port_of_a_bridge_that_learns, a_loopback_that_is_down;
        waits(Need::Root, NFT): errors_that_a_rule_drops, answers_that_are_dropped;
        waits(Need::Root, PYTHON): connections_to_a_strange_address, a_group_that_nothing_comes_to,
            a_server_with_a_low_hop_limit, a_hop_limit_that_is_used_up;
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

fn no_route_out() {
    let scenario = Scenario::new();
    let far: IpAddr = [203, 0, 113, 9].into();
    let found = scenario.doctor(None, || sends(&scenario, far, SENT));
    found.is("way_out", SENT, "no route");
    found.has_counted("Ip.OutNoRoutes");
    scenario.command("ip route add default via 192.168.254.30");
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
    found.is("way_out", 150, "192.168.254.77 on mpps-rx");
    scenario.sender_has(there);
    // Its port has no socket.
    let found = scenario.doctor(None, || sends(&scenario, there, 150));
    silent_but_for(&found, "refused_sends");
}

fn a_queue_that_is_too_short() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(30).into();
    scenario.command("tc qdisc replace dev mpps-rx root tbf rate 100kbit burst 2kb limit 3000");
    let found = scenario.doctor(None, || sends(&scenario, there, SENT));
    let lost = found.grown("Udp.SndbufErrors");
    found.is("way_out", lost, "queueing discipline of an interface");
    scenario.command("tc qdisc del dev mpps-rx root");
    let found = scenario.doctor(None, || sends(&scenario, there, 100));
    silent_but_for(&found, "refused_sends");
}

/// The program sends also while counters and drop reasons are read, which have to be of one time.
fn a_queue_too_short_all_the_time() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(30).into();
    scenario.command("tc qdisc replace dev mpps-rx root tbf rate 100kbit burst 2kb limit 3000");
    let groups = ["route", "add", "239.0.0.0/8", "dev", "mpps-tx"];
    scenario.on_sender(|| run(Command::new("ip").args(groups)).fine());
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                sends(&scenario, there, 1);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        let enough = || {
            while sent.load(Ordering::Relaxed) < 10 * SENT {
                thread::yield_now();
            }
        };
        enough();
        sent.store(0, Ordering::Relaxed);
        // The kernel gives no reason for a packet to a strange group: only its function says where it was dropped, and
        // to find its name takes time.
        let found = scenario.doctor(None, || {
            scenario.on_sender(|| {
                let group: IpAddr = [239, 1, 1, 1].into();
                let client = UdpSocket::bind((address::v4(30), 0)).expect("a port is free");
                client
                    .send_to(&[0; 9], (group, PORT))
                    .expect("it can be sent");
            });
            enough();
        });
        is_over.store(true, Ordering::Relaxed);
        found
    });
    let lost = found.told()[0].1;
    assert!(lost > SENT, "{found:#?}");
    expect(
        &found,
        &[
            ("way_out", lost, "queueing discipline of an interface"),
            ("unrouted", 1, "groups"),
        ],
    );
}

/// A server of the host in question answers, and no answer leaves. With its port in question.
fn answers_that_are_dropped() {
    let scenario = Scenario::new();
    let server = scenario.on_receiver(|| UdpSocket::bind(("0.0.0.0", PORT)));
    let server = server.expect("the port is free");
    let look = || {
        scenario.doctor(Some(PORT), || {
            let client = scenario.on_sender(|| UdpSocket::bind("0.0.0.0:0").expect("a port"));
            client.set_nonblocking(true).expect("an option");
            for _ in 0..SENT {
                client.send_to(&[0; 9], at(1)).expect("it can be sent");
                let (_, from) = server.recv_from(&mut [0; 9]).expect("it came");
                // A rule may refuse it.
                let _ = server.send_to(&[0; 9], from);
                let _ = client.recv(&mut [0; 9]);
            }
            scenario.lab.settle().expect("it comes to rest");
        })
    };
    silent(&look());
    for (chain, words) in [
        (
            "inet t c { type filter hook output priority 0; }",
            "what a program sends (EPERM)",
        ),
        (
            "netdev t c { type filter hook egress device \"mpps-rx\" priority 0; }",
            "hook egress",
        ),
    ] {
        let family = chain.split(' ').next().expect("a family");
        scenario.nft(&format!(
            "add table {family} t; add chain {chain}; add rule {family} t c udp sport {PORT} drop"
        ));
        let found = look();
        found.is("way_out", SENT, words);
        scenario.nft(&format!("delete table {family} t"));
    }
}

/// As in a new network namespace, whose programs send to each other.
fn a_loopback_that_is_down() {
    let scenario = Scenario::new();
    let _server = scenario.on_receiver(|| UdpSocket::bind(("127.0.0.1", 7777)).expect("a port"));
    let look =
        |datagrams| scenario.doctor(None, || sends(&scenario, [127, 0, 0, 1].into(), datagrams));
    silent(&look(100));
    scenario.command("ip link set lo down");
    expect(&look(SENT), &[("way_out", SENT, "lo is down")]);
}

/// Packets of the sender to this address come back to it by the receiver.
const FAR: &str = "203.0.113.9:4321";

/// The receiver forwards, and the sender sends by it.
fn forwarding() -> Scenario {
    let scenario = Scenario::new();
    scenario.set("net/ipv4/ip_forward", "1");
    scenario.command("ip route add 203.0.113.0/24 via 192.168.254.30");
    let route = ["route", "add", "203.0.113.0/24", "via", "192.168.254.1"];
    scenario.on_sender(|| run(Command::new("ip").args(route)).fine());
    scenario
}

fn a_hop_limit_that_is_used_up() {
    let scenario = forwarding();
    let look = |hops: u32| {
        scenario.doctor(None, || {
            scenario.on_sender(|| {
                let client = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
                client.set_ttl(hops).expect("an option");
                for _ in 0..SENT {
                    // An earlier one may be reported as lost.
                    if client.send_to(&[0; 100], FAR).is_err() {
                        client.send_to(&[0; 100], FAR).expect("it can be sent");
                    }
                }
            });
            scenario.lab.settle().expect("it comes to rest");
        })
    };
    // As of a traceroute. These come first, while the kernel still answers all (`icmp_ratelimit`).
    let found = scenario.doctor(None, || scenario.python(&probes(FAR, 1)));
    remarks(&found, "bad_header", 3);
    let found = look(1);
    found.is("bad_header", SENT, "hop limit (TTL) was used up");
    found.has_counted("Ip.InHdrErrors");
    silent(&look(64));
}

/// A program in Python that sends three datagrams with a hop limit.
fn probes(to: &str, hops: u8) -> String {
    let (to, port) = to.split_once(':').expect("an address and a port");
    format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(0, 2, {hops})\n\
         for _ in range(3): s.sendto(b'', ('{to}', {port}))"
    )
}

/// The next router is the sender. Its messages reach also a healthy server beside a traceroute.
fn a_server_with_a_low_hop_limit() {
    let scenario = forwarding();
    let forward = ["-qw", "net.ipv4.ip_forward=1"];
    scenario.on_sender(|| run(Command::new("sysctl").args(forward)).fine());
    let server = scenario.on_receiver(|| UdpSocket::bind(("0.0.0.0", PORT)));
    let server = server.expect("the port is free");
    let look = |hops, datagrams| {
        server.set_ttl(hops).expect("an option");
        scenario.doctor(Some(PORT), || {
            scenario.send(Traffic::to(&at(1), 1));
            server.recv(&mut [0; 100]).expect("it came");
            for _ in 0..datagrams {
                server.send_to(&[0; 100], FAR).expect("it can be sent");
            }
            let trace = ["-c", &probes(FAR, 1)];
            scenario.on_receiver(|| run(Command::new("python3").args(trace)).fine());
            scenario.lab.settle().expect("it comes to rest");
        })
    };
    let found = look(64, 0);
    assert!(found.grown("Icmp.InTimeExcds") > 0, "{found:#?}");
    remarks(&found, "refused_sends", 0);
    let found = look(1, SENT);
    found.is("refused_sends", 0, "sends with a limit of 1");
}

fn a_route_that_drops() {
    let scenario = forwarding();
    let look = || scenario.doctor(None, || scenario.send(Traffic::to(FAR, SENT)));
    scenario.command("ip route replace blackhole 203.0.113.0/24");
    let found = look();
    found.is("drop_reason", SENT, "blackhole");
    found.balances();
    scenario.command("ip route replace 203.0.113.0/24 via 192.168.254.30");
    silent(&look());
}

fn a_policy_without_a_key() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(30).into();
    let look = || scenario.doctor(None, || sends(&scenario, there, SENT));
    scenario.command(
        "ip xfrm policy add dir out dst 192.168.254.30/32 proto udp tmpl proto esp mode transport",
    );
    let found = look();
    found.is("way_out", SENT, "there is no state (key) for it");
    scenario.command("ip xfrm policy flush");
    silent_but_for(&look(), "refused_sends");
}

/// No program has the port there.
fn errors_that_a_rule_drops() {
    let scenario = Scenario::new();
    let there: IpAddr = address::v4(30).into();
    let look = || scenario.doctor(None, || sends(&scenario, there, SENT));
    scenario.nft(
        "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
         add rule inet t c icmp type destination-unreachable drop",
    );
    expect(&look(), &[("firewall", 0, "error messages (ICMP)")]);
    scenario.nft("delete table inet t");
    silent_but_for(&look(), "refused_sends");
}

fn a_queue_too_short_for_what_is_forwarded() {
    let scenario = forwarding();
    let look = |datagrams| {
        let traffic = Traffic::to(FAR, datagrams);
        scenario.doctor(None, || scenario.send(traffic))
    };
    scenario.command("tc qdisc replace dev mpps-rx root tbf rate 100kbit burst 2kb limit 3000");
    let found = look(SENT);
    let lost = found.evidence();
    assert!(lost > SENT / 2 && lost < SENT, "{found:#?}");
    found.is("way_out", lost, "were forwarded");
    found.came(0);
    scenario.command("tc qdisc del dev mpps-rx root");
    silent(&look(100));
}

/// The host in question has the bridge.
fn a_port_of_a_bridge_that_learns() {
    let scenario = Scenario::new();
    for command in [
        "ip link add bridge type bridge",
        "ip link add port type veth peer name far",
        "ip link set port master bridge",
        "ip link set far up",
        "ip link set port up",
        "ip link set bridge up",
        "ip link set port type bridge_slave state 2",
    ] {
        scenario.command(command);
    }
    let found = scenario.doctor(None, || ());
    found.is("bridge_port", 0, "its state is learning");
    scenario.command("ip link set port type bridge_slave state 3");
    silent(&scenario.doctor(None, || ()));
}

/// Packets of TCP that IP counts as lost. [`super::packets`] has the twin of UDP.
fn connections_to_a_strange_address() {
    let scenario = Scenario::new();
    scenario.neighbour(address::v4(99).into(), &scenario.hardware_address());
    let found = scenario.doctor(None, || {
        scenario.python(
            "import socket\n\
             for port in range(1, 201):\n \
             s = socket.socket(); s.setblocking(False); s.connect_ex(('192.168.254.99', port)); s.close()",
        );
    });
    assert!(found.grown("Ip.InAddrErrors") >= 200, "{found:#?}");
    silent(&found);
    found.came(0);
}

fn a_group_that_nothing_comes_to() {
    let scenario = Scenario::new();
    let _member = scenario.server(&format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.bind(('', {PORT}))\n\
         s.setsockopt(0, 35, socket.inet_aton('239.1.1.1') + socket.inet_aton('192.168.254.1'))\n\
         print('ready', flush=True)\n\
         s.recv(9)"
    ));
    let found = scenario.doctor(Some(PORT), || ());
    found.is("nothing_arrives", 0, "joined here: 239.1.1.1 at mpps-rx");
    found.says("remedy", "mcast_querier 1");
    remarks(&scenario.doctor(None, || ()), "nothing_arrives", 0);
}
