//! Several senders and receivers of one run, a network namespace each, at one bridge.

use crate::common::{Ended, Entered, Running, mpps, run, words};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use serde_json::Value;
use std::fs;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// Datagrams and end markers of a sender to one target.
const SENT: u64 = 3000 + 3;

fn ip(arguments: &str) {
    run(Command::new("ip").args(words(arguments))).fine();
}

/// Makes a network namespace whose `eth0` is at the bridge, with this last part of its address.
fn host(bridge: &NetNamespace, own: usize) -> NetNamespace {
    let namespace = quiet();
    let port = format!("p{own}");
    namespace
        .within(|| link::create_veth("eth0", 1, &port, 1, bridge.as_fd()))
        .expect("a pair");
    namespace.within(|| {
        ip(&format!("address add 10.9.0.{own}/24 dev eth0"));
        ip("link set eth0 up");
    });
    bridge.within(|| ip(&format!("link set {port} master br0 up")));
    namespace
}

fn quiet() -> NetNamespace {
    let made = NetNamespace::new().expect("the probe made one");
    let set = || fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    made.within(set).expect("it is ours");
    made
}

/// Three senders and two receivers of a run.
struct Run {
    start: Duration,
    sent: Vec<Ended>,
    /// The files of the senders and of the receivers.
    files: [Vec<String>; 2],
    directory: TempDir,
}

impl Run {
    fn new() -> Self {
        let bridge = quiet();
        bridge.within(|| {
            ip("link add br0 type bridge mcast_snooping 0");
            ip("link set br0 up");
        });
        let senders = [1, 2, 3].map(|own| host(&bridge, own));
        let receiving = [("10.9.0.11:4321", "4M", 11), ("10.9.0.12:4322", "4k", 12)];
        let receiving = receiving.map(|(at, buffer, own)| {
            let mut command = mpps(&["recv", at, "--json", "--rcvbuf", buffer]);
            let mut running = host(&bridge, own).within(|| Running::start(&mut command));
            running.address();
            running
        });
        let start = SystemTime::now() + Duration::from_secs(1);
        let start = start.duration_since(UNIX_EPOCH).expect("it is later");
        let at = start.as_secs_f64().to_string();
        let both = "10.9.0.11:4321 10.9.0.12:4322 --count 6000";
        let targets = [
            both,
            "10.9.0.12:4322 --count 3000",
            "10.9.0.11:4321 --count 3000",
        ];
        let sending = [0, 1, 2].map(|sender| {
            let mut command = mpps(&["send", "--json", "--stamp", "--rate", "20k", "--run", "a"]);
            command.args(["--start-at", &at, "--sender", &(10 * sender).to_string()]);
            senders[sender].within(|| Running::start(command.args(words(targets[sender]))))
        });
        let sent: Vec<Ended> = sending.into_iter().map(|one| one.end().fine()).collect();
        let received = receiving.map(|one| one.interrupt().fine());
        let mut made = Self {
            start,
            files: Default::default(),
            directory: tempfile::tempdir().expect("a directory"),
            sent,
        };
        for (at, ended) in [&made.sent[..], &received].into_iter().enumerate() {
            let named = ended.iter().enumerate();
            let files = named.map(|(number, one)| made.write(&format!("{at}-{number}"), &one.out));
            made.files[at] = files.collect();
        }
        made
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("it can be written");
        path.to_str().expect("a plain name").to_owned()
    }
}

fn ledger(files: &[&String]) -> Ended {
    run(mpps(&["ledger", "--json"]).args(files))
}

/// Each datagram has its place, and all losses are those of a socket.
pub(crate) fn several_senders_and_receivers_have_one_ledger() {
    let made = Run::new();
    let [s, r] = &made.files;
    let ended = ledger(&[&r[1], &s[0], &s[1], &r[0], &s[2]]).fine();
    let together: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    let all = &together["all"];
    assert_eq!(all["offered"], 4 * SENT, "{all:#}");
    assert_eq!(all["unaccounted"], 0, "{all:#}");
    let losses = all["losses"].as_array().expect("a list").iter();
    let full =
        losses.map(|loss| (loss["reason"] == "socket buffer full").then(|| loss["count"].as_u64()));
    let lost: u64 = full
        .map(|count| count.flatten().expect("of the socket"))
        .sum();
    assert!(lost > 0, "{all:#}");
    let column = |pointer: &str, field: &str| -> Vec<u64> {
        let rows = together.pointer(pointer).and_then(Value::as_array);
        let rows = rows.expect("rows").iter();
        rows.map(|row| row.pointer(field).and_then(Value::as_u64).expect("a count"))
            .collect()
    };
    assert_eq!(column("/senders", "/offered"), [2 * SENT, SENT, SENT]);
    assert_eq!(
        column("/senders", "/arrived/1"),
        [SENT, 0, SENT],
        "{together:#}"
    );
    assert_eq!(
        column("/senders", "/missing").iter().sum::<u64>(),
        lost,
        "{together:#}"
    );
    assert_eq!(column("/receivers", "/dropped"), [lost, 0], "{together:#}");
    for one in &made.sent {
        let total = one.out.lines().last().expect("totals");
        let total: Value = serde_json::from_str(total).expect("an object");
        let began = total["host"]["taken_unix_ns"][0].as_u64().expect("a time");
        assert!(
            u128::from(began) + 1000 >= made.start.as_nanos(),
            "it waited"
        );
    }
    // Files that do not belong together.
    let other = made.sent[1]
        .out
        .replace("\"run_id\":\"a\"", "\"run_id\":\"b\"");
    let other = made.write("other", &other);
    for (files, words) in [
        (vec![&s[0], &s[1], &s[2]], "no result of a receiver"),
        (vec![&r[0], &r[1]], "no result of a sender"),
        (vec![&s[0], &other, &r[0], &r[1]], "is of run a, and "),
        (
            vec![&s[0], &s[0], &r[0], &r[1]],
            "have the stamps of one sender",
        ),
        (
            vec![&s[0], &s[1], &r[0]],
            "belongs to none of the receivers: the receiver's port",
        ),
        (vec![&s[2], &r[0], &r[1]], "belongs to none of the senders"),
        (vec![&s[0], &r[0], &r[0]], "are of one network namespace"),
    ] {
        ledger(&files).fails(&[words]);
    }
}
