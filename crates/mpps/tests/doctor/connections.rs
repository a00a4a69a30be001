//! Connections that find no room.

use super::scenario::{PORT, Scenario, expect, remarks};
use mpps_lab::address;
use mpps_os::netlink::neighbour;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root): a_full_queue_of_handshakes, a_full_queue_of_connections;
    ]
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
    found.has_counted("TcpExt.ListenOverflows");
    let counted = found.first()["count"].as_u64().unwrap_or(0);
    expect(&found, &[("listen_queue", counted, "listening")]);
    assert_eq!(counted, found.evidence());
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
    found.has_counted("TcpExt.TCPReqQFullDoCookies");
    // None is lost that is answered with a cookie.
    remarks(&found, "handshake_queue", 0);
}
