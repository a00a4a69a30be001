//! iperf3, which reads only during a test: starved, and healthy.

use super::program::Group;
use super::scenario::{PORT, Scenario, silent_but_for};
use crate::common::{Running, run};
use mpps_trial::{Need, Trial, trials};
use std::process::Command;

const IPERF3: Need = Need::Program("iperf3", "iperf3");

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, IPERF3): iperf3_that_is_stopped, iperf3_that_receives;
    ]
}

fn iperf3(scenario: &Scenario) -> Group {
    let mut server = Command::new("iperf3");
    server.args(format!("-s -B 192.168.254.1 --forceflush -p {PORT}").split(' '));
    Group::ready(scenario, &mut server, "listening")
}

/// A client that sends 200 bytes a datagram for so long.
fn client(rate: &str, seconds: &str) -> Command {
    let mut client = Command::new("iperf3");
    let words = format!("-c 192.168.254.1 -p {PORT} -u -l 200 -b {rate} -t {seconds}");
    client.args(words.split(' '));
    client
}

fn iperf3_that_is_stopped() {
    let scenario = Scenario::new();
    let mut group = iperf3(&scenario);
    let found = scenario.doctor(Some(PORT), || {
        let client = scenario.on_sender(|| Running::start(&mut client("50M", "60")));
        // The report of its first second. Before that, the two only agree on the test.
        group.says("0.00-");
        group.signal("STOP");
        group.await_drops();
        drop(client);
        scenario.lab.settle().expect("it comes to rest");
    });
    found.is("socket_buffer", found.kernels_drops(&group), "stopped");
}

fn iperf3_that_receives() {
    let scenario = Scenario::new();
    let _server = iperf3(&scenario);
    let found = scenario.doctor(None, || {
        scenario.on_sender(|| run(&mut client("1M", "1")).fine());
        scenario.lab.settle().expect("it comes to rest");
    });
    // The server may leave the last datagrams of a test unread, which is a remark.
    silent_but_for(&found, "closed_unread");
}
