//! Servers from other projects: starved, and healthy.

use super::program::Group;
use super::scenario::{PORT, Scenario, Traffic, expect, nothing_is_wrong, silent_but_for};
use crate::common::{Running, run};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const NSD: Need = Need::Program("nsd dnsperf", "nsd, dnsperf");
const RSYSLOG: Need = Need::Program("rsyslogd", "rsyslog");
const IPERF3: Need = Need::Program("iperf3", "iperf3");

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, NSD): nsd_that_is_stopped, nsd_that_answers;
        waits(Need::Root, RSYSLOG): rsyslog_that_is_stopped, rsyslog_that_writes;
        waits(Need::Root, IPERF3): iperf3_that_is_stopped, iperf3_that_receives;
    ]
}

/// A server on the receiver. It has a directory of its own, and `{DIR}` stands for that.
fn server(scenario: &Scenario, files: &[(&str, &str)], command: &str) -> (TempDir, Group) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a plain name");
    for (name, text) in files {
        let text = text.replace("{DIR}", path);
        fs::write(directory.path().join(name), text).expect("it can be written");
    }
    let words = command.replace("{DIR}", path);
    let mut words = words.split(' ');
    let mut server = Command::new(words.next().unwrap_or_default());
    server.args(words).current_dir("/");
    let group = Group::serving(scenario, &mut server);
    (directory, group)
}

/// A parent, two children and a process for transfers have one socket.
fn nsd(scenario: &Scenario) -> (TempDir, Group) {
    let conf = format!(
        "server:\n ip-address: 192.168.254.1\n port: {PORT}\n username: root\n chroot: \"\"\n \
         zonesdir: \"{{DIR}}\"\n database: \"\"\n pidfile: \"{{DIR}}/pid\"\n \
         xfrdfile: \"{{DIR}}/xfrd\"\n zonelistfile: \"{{DIR}}/zones\"\n server-count: 2\n \
         receive-buffer-size: 4096\nremote-control:\n control-enable: no\n\
         zone:\n name: example\n zonefile: example\n"
    );
    let zone = "$ORIGIN example.\n$TTL 60\n@ SOA ns.example. h.example. 1 60 60 60 60\n\
                @ NS ns\nns A 192.0.2.1\n";
    let files = [
        ("conf", &*conf),
        ("example", zone),
        ("queries", "ns.example A\n"),
    ];
    server(scenario, &files, "nsd -d -c {DIR}/conf")
}

/// Asks `questions` questions, `at_once` of them at a time.
fn ask(scenario: &Scenario, directory: &TempDir, questions: u32, at_once: u32) {
    let (questions, at_once) = (questions.to_string(), at_once.to_string());
    let mut dnsperf = Command::new("dnsperf");
    dnsperf.args(["-s", "192.168.254.1", "-p", &PORT.to_string(), "-t", "1"]);
    dnsperf.args(["-n", &questions, "-q", &at_once, "-c", "1", "-d"]);
    dnsperf.arg(directory.path().join("queries"));
    scenario.on_sender(|| run(&mut dnsperf).fine());
    scenario.lab.settle().expect("it comes to rest");
}

fn nsd_that_is_stopped() {
    let scenario = Scenario::new();
    let (directory, group) = nsd(&scenario);
    let found = scenario.doctor(Some(PORT), || {
        group.signal("STOP");
        ask(&scenario, &directory, 1000, 1000);
    });
    expect(
        &found,
        &[("socket_buffer", found.kernels_drops(&group), "stopped")],
    );
    let what = found.first()["what"].as_str().unwrap_or_default();
    assert!(what.contains("nsd"), "{what}");
}

fn nsd_that_answers() {
    let scenario = Scenario::new();
    let (directory, _group) = nsd(&scenario);
    let found = scenario.doctor(Some(PORT), || ask(&scenario, &directory, 1000, 2));
    nothing_is_wrong(&found);
}

fn rsyslog(scenario: &Scenario) -> (TempDir, Group) {
    let conf = format!(
        "global(workDirectory=\"{{DIR}}\")\nmodule(load=\"imudp\")\n\
         input(type=\"imudp\" address=\"192.168.254.1\" port=\"{PORT}\")\n\
         *.* action(type=\"omfile\" file=\"{{DIR}}/log\")\n"
    );
    server(
        scenario,
        &[("conf", &*conf)],
        "rsyslogd -n -f {DIR}/conf -i {DIR}/pid",
    )
}

fn rsyslog_that_is_stopped() {
    let scenario = Scenario::new();
    let (_directory, group) = rsyslog(&scenario);
    let found = scenario.doctor(Some(PORT), || {
        group.signal("STOP");
        scenario.send(Traffic::to(&format!("192.168.254.1:{PORT}"), 5000));
    });
    expect(
        &found,
        &[("socket_buffer", found.kernels_drops(&group), "stopped")],
    );
}

fn rsyslog_that_writes() {
    let scenario = Scenario::new();
    let (_directory, _group) = rsyslog(&scenario);
    let found = scenario.doctor(Some(PORT), || {
        scenario.send(Traffic::to(&format!("192.168.254.1:{PORT}"), 200));
    });
    nothing_is_wrong(&found);
}

fn iperf3(scenario: &Scenario) -> Group {
    let mut server = Command::new("iperf3");
    server.args([
        "-s",
        "-B",
        "192.168.254.1",
        "--forceflush",
        "-p",
        &PORT.to_string(),
    ]);
    Group::ready(scenario, &mut server, "listening")
}

/// A client that sends 200 bytes a datagram for so long.
fn client(rate: &str, seconds: &str) -> Command {
    let mut client = Command::new("iperf3");
    client.args([
        "-c",
        "192.168.254.1",
        "-p",
        &PORT.to_string(),
        "-u",
        "-l",
        "200",
    ]);
    client.args(["-b", rate, "-t", seconds]);
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
    expect(
        &found,
        &[("socket_buffer", found.kernels_drops(&group), "stopped")],
    );
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
