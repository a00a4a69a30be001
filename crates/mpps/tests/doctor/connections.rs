//! Connections that find no room.

use super::scenario::{PORT, PYTHON, Scenario, expect, remarks, silent};
use mpps_lab::address;
use mpps_os::netlink::neighbour;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, PYTHON): a_listener_that_is_stopped;
        waits(Need::Root): a_full_queue_of_handshakes, a_full_queue_of_connections, a_flood_of_handshakes_without_cookies;
    ]
}

fn a_full_queue_of_connections() {
    let scenario = Scenario::new();
    scenario.set("net/core/somaxconn", "1");
    let local = SocketAddr::from((address::v4(1), PORT));
    let _listener = scenario.on_receiver(|| TcpListener::bind(local).expect("the port is free"));
    let found = scenario.doctor(None, || {
        scenario.on_sender(|| {
            let connect = |_| TcpStream::connect_timeout(&local, Duration::from_millis(50));
            let _made: Vec<_> = (0..6).map(connect).collect();
        });
    });
    found.has_counted("TcpExt.ListenOverflows");
    let counted = found.first()["count"].as_u64().unwrap_or(0);
    found.is("listen_queue", counted, "listening");
    assert_eq!(counted, found.evidence());
}

/// Its queue is far from full.
fn a_listener_that_is_stopped() {
    for stops in [false, true] {
        let scenario = Scenario::new();
        let program = format!(
            "import socket\ns = socket.create_server(('192.168.254.1', {PORT}))\nprint('ready', flush=True)\n\
             while True: s.accept()"
        );
        let server = scenario.server(&program);
        if stops {
            server.signal("STOP");
        }
        let connect = |_| scenario.on_sender(|| TcpStream::connect(local()).expect("it has room"));
        let _made: Vec<_> = (0..6).map(connect).collect();
        let found = scenario.doctor(None, || thread::sleep(Duration::from_secs(1)));
        match stops {
            false => silent(&found),
            true => found.is("listen_queue", 0, "stopped"),
        }
    }
}

/// Without cookies the last quarter is kept for clients that the kernel knows.
fn a_flood_of_handshakes_without_cookies() {
    for cookies in ["1", "0"] {
        let scenario = Scenario::new();
        let _listener = half_open(
            &scenario,
            &[("tcp_syncookies", cookies), ("tcp_max_syn_backlog", "8")],
        );
        let found = scenario.doctor(None, || connect_in_vain(&scenario));
        if cookies == "1" {
            silent(&found);
            continue;
        }
        found.has_counted("TcpExt.ListenDrops");
        let first = found.first();
        expect(
            &found,
            &[(
                "handshake_queue",
                found.evidence(),
                "keeps the last quarter",
            )],
        );
        assert!(
            first["remedy"].to_string().contains("tcp_syncookies=1"),
            "{first:#}"
        );
    }
}

fn a_full_queue_of_handshakes() {
    let scenario = Scenario::new();
    let _listener = half_open(&scenario, &[("../core/somaxconn", "2")]);
    let found = scenario.doctor(None, || connect_in_vain(&scenario));
    found.has_counted("TcpExt.TCPReqQFullDoCookies");
    // None is lost that is answered with a cookie.
    remarks(&found, "handshake_queue", 0);
}

fn local() -> SocketAddr {
    (address::v4(1), PORT).into()
}

/// A listener of a receiver with these settings. The sender never hears the answer to its first packet, so
/// that no handshake ends.
fn half_open(scenario: &Scenario, settings: &[(&str, &str)]) -> TcpListener {
    let index = scenario.lab.receiver().interface_index();
    let wrong = [2, 0, 0, 0, 0, 99];
    scenario.on_receiver(|| {
        for (name, value) in settings {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value).expect("it is this namespace's");
        }
        neighbour::add_permanent(index, address::v4(30).into(), &wrong).expect("it can be told");
        TcpListener::bind(local()).expect("the port is free")
    })
}

fn connect_in_vain(scenario: &Scenario) {
    scenario.on_sender(|| {
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| TcpStream::connect_timeout(&local(), Duration::from_millis(100)));
            }
        });
    });
}
