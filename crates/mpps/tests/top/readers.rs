//! This project and other programs read the same numbers of one host, to the packet.

use super::{PORT, SENT, Scenario};
use crate::common::Entered;
use crate::common::run;
use mpps_host::{Moment, Observation};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, Need::Program("nstat ss ip ethtool", "iproute2 ethtool")):
            other_readers_agree_to_the_packet;
    ]
}

fn told(command: &str) -> String {
    let mut words = command.split(' ');
    let program = words.next().expect("a program");
    run(Command::new(program).args(words)).fine().out
}

fn other_readers_agree_to_the_packet() {
    let scenario = Scenario::new();
    scenario.send(SENT);
    let read = scenario.read();
    scenario.send(3);
    let interface = scenario.lab.receiver().interface().to_owned();
    scenario.lab.receiver().within(|| {
        // Nothing comes any more, so the order of the readers does not matter.
        let facts = Observation::take(Moment::First, &[&interface], None).expect("root may");
        protocols(&facts, read);
        links(&facts, &interface);
        sockets(&facts);
    });
}

/// `nstat` has each counter of /proc/net/snmp, snmp6 and netstat under its name without the dot.
fn protocols(facts: &Observation, read: u64) {
    let told: Value = serde_json::from_str(&told("nstat --json -a -s -z")).expect("it is JSON");
    let told = told["kernel"].as_object().expect("counters");
    let mut agreed = 0;
    for (name, value) in facts.snapshot.snmp.iter() {
        let Some(theirs) = told.get(&name.replace('.', "")) else {
            continue;
        };
        assert_eq!(theirs.as_i64(), Some(value), "{name}");
        agreed += 1;
    }
    assert!(agreed > 100, "{agreed} counters have the same name");
    assert_eq!(told["UdpInDatagrams"], read);
    assert_eq!(told["UdpRcvbufErrors"], SENT - read);
}

fn links(facts: &Observation, interface: &str) {
    let link = &facts.snapshot.links[interface];
    let ip: Value = serde_json::from_str(&told(&format!("ip -s -s -j link show dev {interface}")))
        .expect("JSON");
    let received = &ip[0]["stats64"]["rx"];
    for (name, ours) in [
        ("packets", link.counters.rx_packets),
        ("bytes", link.counters.rx_bytes),
        ("dropped", link.counters.rx_dropped),
        ("errors", link.counters.rx_errors),
        ("fifo_errors", link.counters.rx_fifo_errors),
        ("missed_errors", link.counters.rx_missed_errors),
    ] {
        let theirs = received
            .get(name)
            .or_else(|| received.get(name.trim_end_matches("_errors")));
        let theirs = theirs.unwrap_or_else(|| panic!("no {name}: {received:#}"));
        assert_eq!(theirs, ours, "{name}");
    }
    assert!(link.counters.rx_packets >= SENT);
    let ethtool = told(&format!("ethtool -S {interface}"));
    let theirs = ethtool.lines().skip(1).filter_map(|line| {
        let (name, value) = line.trim().rsplit_once(": ")?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    let theirs: BTreeMap<String, u64> = theirs.collect();
    assert!(theirs.len() > 10, "{ethtool}");
    assert_eq!(link.driver, theirs);
}

/// `ss` shows the buffer and the drops of each socket in the form `skmem:(r0,rb212992,...,d1718)`.
fn sockets(facts: &Observation) {
    let ss = told("ss -H -u -a -m -n");
    let text = ss.replace("\n\t", " ");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("skmem:("))
        .collect();
    assert_eq!(lines.len(), facts.sockets.len(), "{text}");
    for socket in &facts.sockets {
        let local = socket.local.to_string();
        let line = lines
            .iter()
            .find(|line| line.split_whitespace().any(|word| word == local));
        let line = line.unwrap_or_else(|| panic!("no {local}: {text}"));
        let memory = line
            .split("skmem:(")
            .nth(1)
            .and_then(|rest| rest.split(')').next());
        let field = |letters: &str| {
            let fields = memory.unwrap_or_default().split(',');
            let mut value = fields.filter_map(|field| {
                let digits = field.strip_prefix(letters)?;
                digits.parse::<u32>().ok()
            });
            value.next_back()
        };
        assert_eq!(field("d"), Some(socket.drops), "{line}");
        assert_eq!(field("rb"), Some(socket.buffer_bytes), "{line}");
        assert_eq!(field("r"), Some(socket.queued_bytes), "{line}");
    }
    assert!(
        facts
            .sockets
            .iter()
            .any(|socket| socket.local.port() == PORT && socket.drops > 0)
    );
}
