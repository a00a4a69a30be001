//! Trials of `mpps` on another kernel, topology or network card. `cargo xtask vm test` runs them in
//! each of its machines, with the release build on the path. They change their machine as they
//! like, and are therefore no part of `cargo test`.
//!
//! A trial is ignored if the machine does not meet its needs. `mpps` itself gives the reason,
//! before the run or when it refuses. `xtask/vm/machines.toml` has the number of trials that are
//! ignored.

#![allow(
    clippy::print_stderr,
    reason = "who starts it by hand is told what it is"
)]

#[path = "machine/card.rs"]
mod card;
mod common;
#[path = "machine/fixing.rs"]
mod fixing;
#[path = "machine/settings.rs"]
mod settings;
#[path = "machine/tuning.rs"]
mod tuning;

use common::{Ended, Running, run};
use libtest_mimic::{Arguments, Completion, Trial};
use mpps_os::namespace::NetNamespace;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// Datagrams of one path; `RATE` of them a second, which the hub between two emulated cards passes.
const COUNT: u64 = 2000;
const RATE: &str = "2000";
const ADDRESS: &str = "10.0.0.2:4321";
/// Where the tests may write.
const FOLDER: &str = "/tmp/machine";

/// A way to receive or to send: the backend with its options, and its technique. The technique is
/// the name in `mpps backends IF`, if that command judges it.
type Way = (&'static str, Option<&'static str>);

const RECEIVERS: &[Way] = &[
    ("recv", Some("recv")),
    ("recvmmsg", Some("recvmmsg")),
    ("io_uring", Some("io_uring")),
    ("packet_mmap", Some("packet_mmap")),
    ("packet_mmap --take", None),
    ("af_xdp --xdp generic", Some("AF_XDP generic")),
    ("af_xdp --copy copy --require native", Some("AF_XDP native")),
    ("af_xdp --require zerocopy", Some("AF_XDP zero-copy")),
];

const SENDERS: &[Way] = &[
    ("send", None),
    ("sendmmsg", None),
    ("io_uring", None),
    ("packet_mmap", None),
    ("af_xdp", None),
    ("xdp", None),
];

/// The rows of `mpps bench` to measure here: for each path, one row that differs from those of the
/// others.
const ROWS: [&str; 12] = [
    "recv",
    "recvmmsg/block",
    "recvmmsg/busy-poll",
    "recvmmsg/gro",
    "io_uring",
    "packet_mmap/tap",
    "packet_mmap/take",
    "af_xdp/generic",
    "af_xdp/auto",
    "iptables_raw_drop",
    "nft_ingress_drop",
    "xdp_drop/packet-read",
];

/// A socket's buffer holds all, because a receiver in software may pause; rings do.
const SOCKETS: [&str; 3] = ["recv", "recvmmsg", "io_uring"];

fn main() -> ExitCode {
    if std::env::var_os("MPPS_MACHINE").is_none() {
        eprintln!("this needs a machine of its own: cargo xtask vm test");
        return ExitCode::from(2);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    fs::create_dir_all(FOLDER).expect("a machine's root can be written");
    let hosts = Hosts::new();
    let mut trials: Vec<Trial> = Vec::new();
    if !hosts.are_cards {
        trials.push(trial("mpps lab".to_owned(), None, lab));
        trials.push(trial("mpps bench".to_owned(), None, bench));
        trials.push(trial("mpps lab tcp".to_owned(), None, lab_tcp));
    }
    let pairs = RECEIVERS
        .iter()
        .map(|receiver| ("recv", receiver, &SENDERS[1], receiver));
    let others = SENDERS
        .iter()
        .map(|sender| ("send", &RECEIVERS[1], sender, sender));
    for (command, receiver, sender, tried) in pairs.chain(others) {
        let obstacle = obstacle(receiver, sender);
        let name = format!("mpps {command} --backend {}", tried.0);
        trials.push(trial(name, obstacle, || passes(receiver, sender)));
    }
    // Judged, and not tried: a try takes a card's link down. The first trial shows what arrives.
    let echoes = obstacle(&RECEIVERS[5], &SENDERS[1]);
    trials.push(trial("an echo server by AF_XDP".to_owned(), echoes, echo));
    if hosts.are_cards {
        trials.extend(settings::trials());
        trials.extend(card::trials());
        trials.extend(tuning::trials());
    }
    let names = [
        ("mpps backends IF --try", granted as fn()),
        (
            "mpps backends IF --try, MTU 3500",
            granted_with_large_packets,
        ),
        ("generic XDP is never zero-copy", generic_is_copy),
    ];
    trials.extend(names.map(|(name, test)| trial(name.to_owned(), None, test)));
    if hosts.are_cards {
        trials.push(tuning::last());
        trials.extend(fixing::trial());
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test, or the reason why it cannot be run here.
fn trial(name: String, obstacle: Option<String>, test: impl FnOnce() + Send + 'static) -> Trial {
    Trial::ignorable_test(name, || match obstacle {
        Some(why) => Ok(Completion::ignored_with(why)),
        None => {
            test();
            Ok(Completion::Completed)
        }
    })
}

/// Two hosts, `a` and `b`, as named network namespaces. Each has a card of this machine or an end
/// of a veth.
struct Hosts {
    are_cards: bool,
}

impl Hosts {
    fn new() -> Self {
        let are_cards = Path::new("/sys/class/net/eth1").exists();
        if !are_cards {
            ip(&[
                "link", "add", "eth0", "type", "veth", "peer", "name", "eth1",
            ]);
        }
        for (host, interface, address) in
            [("a", "eth0", "10.0.0.1/24"), ("b", "eth1", "10.0.0.2/24")]
        {
            ip(&["netns", "add", host]);
            ip(&["link", "set", interface, "netns", host]);
            ip(&["-n", host, "addr", "add", address, "dev", interface]);
            ip(&["-n", host, "link", "set", interface, "up"]);
            ip(&["-n", host, "link", "set", "lo", "up"]);
            // A veth takes the frames of an XDP program only where its other end polls.
            run(at(host, "ethtool").args(["-K", interface, "gro", "on"])).fine();
        }
        meet();
        Self { are_cards }
    }
}

/// Waits until the one host's datagrams reach the other: two cards, or the bridge between them, may
/// take a while after they are up.
fn meet() {
    let receiving = |options: &[&str]| {
        let mut receiving = at("b", "mpps");
        receiving.args(["recv", ADDRESS, "--json"]).args(options);
        let mut receiving = Running::start(&mut receiving);
        receiving.line("receiving at ");
        receiving
    };
    let first = receiving(&["--count", "1", "--duration", "60s"]);
    let mut sending = at("a", "mpps");
    sending.args(["send", ADDRESS, "--rate", "10", "--duration", "100s"]);
    let sending = Running::start(&mut sending);
    let received = first.end().fine().last_json();
    let has_met = received["received"] != 0;
    assert!(has_met, "the hosts do not meet: {received}");
    // Packets still on their way do not belong to the first trial.
    drop(sending);
    while receiving(&["--duration", "500ms"]).end().fine().last_json()["received"] != 0 {}
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments)).fine();
}

/// A command on one of the hosts.
fn at(host: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", host, program])
        .current_dir(FOLDER);
    command
}

/// Why this path cannot be taken here, as `mpps backends` reports. If that does not know, or does
/// not judge this path, `mpps recv` and `mpps send` decide.
fn obstacle(receiver: &Way, sender: &Way) -> Option<String> {
    let refused = |row: &Value| {
        let is_no = row["usable"] == "no" || row["usable"] == false;
        is_no.then(|| row["why"].as_str().unwrap_or_default().to_owned())
    };
    // A program's start takes a second here.
    static HERE: LazyLock<Value> = LazyLock::new(|| {
        let here = run(at("a", "mpps").args(["backends", "--json"])).fine();
        serde_json::from_str(&here.out).expect("it is JSON")
    });
    static JUDGED: LazyLock<Vec<Value>> =
        LazyLock::new(|| techniques(&["backends", "eth1", "--json"]));
    let backends = HERE["backends"].as_array().expect("a list");
    let backend = |way: &Way| {
        let name = way.0.split(' ').next();
        backends.iter().find(|row| row["name"].as_str() == name)
    };
    let obstacle = [receiver, sender]
        .iter()
        .find_map(|way| refused(backend(way)?));
    if obstacle.is_some() {
        return obstacle;
    }
    let named = |row: &&Value| row["technique"].as_str() == receiver.1;
    let judged = JUDGED
        .iter()
        .find(named)
        .filter(|row| row["usable"] != "unknown");
    match judged {
        Some(judged) => refused(judged),
        None => refusal("b", &["recv", ADDRESS, "--duration", "1ms"], receiver),
    }
    .or_else(|| refusal("a", &["send", ADDRESS, "--count", "1"], sender))
}

/// The error of `mpps` for a way that it refuses.
fn refusal(host: &str, arguments: &[&str], way: &Way) -> Option<String> {
    let mut command = at(host, "mpps");
    command
        .args(arguments)
        .arg("--backend")
        .args(way.0.split(' '));
    let ended = run(&mut command);
    (ended.code() != 0).then(|| ended.err.lines().last().unwrap_or_default().to_owned())
}

/// `mpps backends` and a real try agree about a card, unless the verdict is "unknown".
fn granted() {
    let judged = techniques(&["backends", "eth1", "--json"]);
    let tried = techniques(&["backends", "eth1", "--json", "--try"]);
    for (judged, tried) in judged.iter().zip(&tried) {
        assert_eq!(judged["technique"], tried["technique"]);
        let (before, after) = (&judged["usable"], &tried["usable"]);
        assert!(
            before == "unknown" || before == after,
            "{judged:#}\n{tried:#}"
        );
        let is_tried = judged["technique"]
            .as_str()
            .is_some_and(|name| name.starts_with("AF_XDP"));
        assert!(!is_tried || after != "unknown", "{tried:#}");
    }
}

fn granted_with_large_packets() {
    ip(&["-n", "b", "link", "set", "eth1", "mtu", "3500"]);
    granted();
    ip(&["-n", "b", "link", "set", "eth1", "mtu", "1500"]);
}

fn techniques(arguments: &[&str]) -> Vec<Value> {
    let judged = run(at("b", "mpps").args(arguments)).fine();
    let judged: Value = serde_json::from_str(&judged.out).expect("it is JSON");
    judged["techniques"].as_array().expect("a list").clone()
}

fn generic_is_copy() {
    let asked = ["recv", ADDRESS, "--backend", "af_xdp", "--xdp", "generic"];
    for wish in [["--require", "zerocopy"], ["--copy", "zero"]] {
        let ended = run(at("b", "mpps").args(asked).args(wish));
        assert_eq!(ended.code(), 2, "{ended:#?}");
    }
}

/// Makes the sending host find its neighbour again, after a receiver's attaching took it away.
/// Until then the kernel drops the datagrams of a socket. It counts them only for the whole machine
/// (`unresolved_discards` of /proc/net/stat/arp_cache).
fn resolve() {
    resolve_at(ADDRESS);
}

fn resolve_at(at: &str) {
    let (address, _) = at.split_once(':').expect("it has a port");
    let neighbour = |rest: &[&str]| {
        let mut ip = Command::new("ip");
        run(ip.args(["-n", "a", "neigh"]).args(rest)).fine().out
    };
    for _ in 0..200 {
        if neighbour(&["show", "to", address]).contains("lladdr") {
            return;
        }
        neighbour(&["replace", address, "dev", "eth0", "use"]);
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{address} does not answer");
}

/// The receiver gets every datagram that the sender sends. The hub between two emulated cards loses
/// some, and many while the machine stands still. Then the trial is repeated.
fn passes(receiver: &Way, sender: &Way) {
    let few = (0..3).any(|_| lost_between(receiver, sender) <= COUNT / 10);
    assert!(few, "the cards lose more than a tenth, three times");
}

/// Sends once, and checks the ledger. Returns the number that was lost between the cards, by their
/// counters.
fn lost_between(receiver: &Way, sender: &Way) -> u64 {
    let mut receiving = at("b", "mpps");
    receiving.args(["recv", ADDRESS, "--json", "--backend"]);
    receiving.args(receiver.0.split(' '));
    if SOCKETS.contains(&receiver.0) {
        receiving.args(["--rcvbuf", "4M"]);
    }
    let mut receiving = Running::start(&mut receiving);
    receiving.line("receiving at ");
    resolve();
    let mut sending = at("a", "mpps");
    let count = COUNT.to_string();
    sending.args([
        "send",
        ADDRESS,
        "--json",
        "--rate",
        RATE,
        "--count",
        &count,
        "--backend",
        sender.0,
    ]);
    let sent = run(&mut sending).fine();
    let received = receiving.interrupt().fine();
    let delivered = received.last_json()["received"].clone();
    let ledger = ledger(&sent, &received);
    assert_eq!(ledger.code(), 0, "{ledger:#?}\n{sent:#?}\n{received:#?}");
    let told: Value = serde_json::from_str(&ledger.out).expect("it is JSON");
    let between = |loss: &&Value| loss["reason"] == "lost between the two NICs";
    let losses = told["losses"].as_array().expect("a list").iter();
    let lost: u64 = losses
        .filter(between)
        .filter_map(|loss| loss["count"].as_u64())
        .sum();
    let delivered = delivered.as_u64().map(|delivered| delivered + lost);
    assert_eq!(
        delivered,
        Some(COUNT),
        "{ledger:#?}\n{}\n{}",
        sent.err,
        received.err
    );
    lost
}

/// The echo server of the README answers a client with an ordinary socket.
fn echo() {
    const QUESTIONS: u32 = 100;
    let examples = std::env::var("MPPS_EXAMPLES").expect("it is where they were built");
    let mut server = at("b", &format!("{examples}/readme"));
    let _server = Running::start(server.arg(ADDRESS));
    resolve();
    let host = NetNamespace::open("/run/netns/a").expect("it was made");
    let client = host.run(|| UdpSocket::bind("0.0.0.0:0"));
    let client = client.expect("a thread").expect("a socket");
    client.connect(ADDRESS).expect("an address");
    let patience = Some(Duration::from_millis(500));
    client.set_read_timeout(patience).expect("a time");
    let mut came = [0; 64];
    let deadline = Instant::now() + Duration::from_secs(60);
    // It does not say when it has begun; until then the port refuses.
    while client.send(b"first").is_err() || client.recv(&mut came).is_err() {
        assert!(Instant::now() < deadline, "nothing is answered");
        std::thread::sleep(Duration::from_millis(20));
    }
    for number in 0..QUESTIONS {
        let question = number.to_be_bytes();
        // The hub between two emulated cards loses some, and an earlier answer may be late.
        let is_answered = (0..20).any(|_| {
            client.send(&question).expect("it is sent");
            matches!(client.recv(&mut came), Ok(4) if came[..4] == question)
        });
        assert!(is_answered, "question {number} of {QUESTIONS}");
    }
}

/// The output of `mpps ledger` for the two ends.
fn ledger(sent: &Ended, received: &Ended) -> Ended {
    let file = |name: &str, ended: &Ended| {
        let path = Path::new(FOLDER).join(name);
        fs::write(&path, &ended.out).expect("a machine's root can be written");
        path
    };
    let [sent, received] = [file("sent.json", sent), file("received.json", received)];
    run(Command::new("mpps")
        .args(["ledger", "--json"])
        .args([sent, received]))
}

/// A result file that a command wrote.
fn result(name: &str) -> Value {
    let text = fs::read_to_string(Path::new(FOLDER).join(name)).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

fn mpps(arguments: &[&str]) -> Ended {
    run(Command::new("mpps").args(arguments).current_dir(FOLDER))
}

fn lab() {
    let ended = mpps(&["lab", "--quick"]).fine();
    // `cargo xtask vm record` keeps these.
    fs::write("/run/vm/lab.txt", &ended.out).expect("a folder of the host");
    let json = Path::new(FOLDER).join("lab.json");
    fs::copy(json, "/run/vm/lab.json").expect("a folder of the host");
    let result = result("lab.json");
    assert!(ledgers(&result) > 0, "{result:#}");
    explained(&result["rungs"], "mpps_median");
    let machine = std::env::var("MPPS_MACHINE").unwrap_or_default();
    // A core for each role first, hyper-threads last, queues and application on one node.
    let (sender, queues, application, skipped) = match &*machine {
        "1" => ("CPU 0", "CPU 0", "CPU 0", None),
        "2x2x2" => ("CPUs 4-7", "CPUs 0-1", "CPUs 2-3", None),
        "8" => ("CPUs 0-1", "CPUs 2-3", "CPUs 4-7", Some("4b 4d 9b 17")),
        "12" => ("CPUs 0-3", "CPUs 4-7", "CPUs 8-11", Some("4b 4d 9b 15 17")),
        "2x4x2" => ("CPUs 8,10,12,14", "CPUs 0-3", "CPUs 4-7", Some("17")),
        "24" => ("CPUs 12,14,16,18", "CPUs 0-3", "CPUs 4,6,8,10", Some("17")),
        _ => (
            "CPU 0",
            "CPU 0 in the sender's soft interrupts",
            "CPU 1",
            None,
        ),
    };
    let roles =
        format!("sender: {sender}   receiver: queues on {queues}, application on {application}");
    let placement = result["placement"].as_str().unwrap_or_default();
    assert!(placement.contains(&roles), "{placement}");
    let rungs = result["rungs"].as_array().expect("a list");
    if let Some(expected) = skipped {
        let missing = rungs.iter().filter(|rung| !rung["skipped"].is_null());
        let missing = missing.filter_map(|rung| rung["rung"].as_str());
        // A receiver may poll too few of a veth's packets itself. No program can know that
        // beforehand.
        let missing: Vec<&str> = missing.filter(|rung| *rung != "13").collect();
        assert_eq!(missing.join(" "), expected);
    }
    let came = |number: &str| -> Option<Vec<u64>> {
        let rung = rungs.iter().find(|rung| rung["rung"] == number);
        let threads = rung.expect("it is on the ladder")["threads"].as_array()?;
        let count = |thread: &Value| {
            let dropped = thread["socket_drops"].as_u64().unwrap_or(0);
            thread["received"].as_u64().unwrap_or(0) + dropped
        };
        Some(threads.iter().map(count).collect())
    };
    let reached = |came: &[u64]| came.iter().filter(|socket| **socket > 0).count();
    // Senders that differ in destination only reach one socket of a group on every kernel here.
    let one = came("8a").expect("it was measured");
    assert_eq!((one.len(), reached(&one)), (4, 1), "{one:?}");
    for (number, least) in [("8b", 3), ("9a", 4), ("9b", 4), ("10", 1)] {
        if let Some(came) = came(number) {
            assert!(
                reached(&came) >= least.min(came.len()),
                "{number}: {came:?}"
            );
        }
    }
    if let Some(steered) = came("10") {
        assert_eq!(reached(&steered), steered.len(), "{steered:?}");
    }
}

fn bench() {
    mpps(&[
        "bench",
        "--quick",
        "--flows",
        "1",
        "--only",
        &ROWS.join(","),
    ])
    .fine();
    let result = result("bench.json");
    assert!(ledgers(&result) > 0, "{result:#}");
    explained(&result["rows"], "mpps_median");
}

fn lab_tcp() {
    let cells = "2/mpps-epoll,2/mpps,3/mpps-epoll/base/1k,3/mpps/base/1k,3/mpps/affinity/1k,\
        3/mpps/events/1k";
    mpps(&[
        "lab",
        "tcp",
        "--seconds",
        "300ms",
        "--repeat",
        "1",
        "--connections",
        "256",
        "--only",
        cells,
    ])
    .fine();
    let result = result("lab-tcp.json");
    assert!(ledgers(&result) > 0, "{result:#}");
    explained(&result["cells"], "figures");
}

/// How many exact ledgers are in a value. Each has to balance, each witness has to agree, and no
/// connection may have failed.
fn ledgers(value: &Value) -> usize {
    if let (Some(ledger), Some(witness)) = (value["ledger"].as_i64(), value["witness"].as_i64()) {
        // The reasons of drops are known to fall short where a socket polls by itself.
        let is_reason = value["source"]
            .as_str()
            .is_some_and(|source| source.starts_with("drop reason"));
        assert!(
            witness == ledger || is_reason && witness < ledger,
            "{value:#}"
        );
    }
    if let Some(other) = value["other"].as_i64() {
        assert_eq!(other, 0, "{value:#}");
    }
    let inexact = |loss: &Value| loss["exact"] == false;
    let is_exact = !value["losses"]
        .as_array()
        .is_some_and(|losses| losses.iter().any(inexact));
    let own = value["unaccounted"]
        .as_i64()
        .filter(|_| is_exact)
        .map_or(0, |unaccounted| {
            assert_eq!(unaccounted, 0, "{value:#}");
            1
        });
    let parts: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(parts) => Box::new(parts.iter()),
        Value::Object(parts) => Box::new(parts.values()),
        _ => Box::new(std::iter::empty()),
    };
    own + parts.map(ledgers).sum::<usize>()
}

/// Every row has been measured, or says why not.
fn explained(rows: &Value, figure: &str) {
    for row in rows.as_array().expect("a list") {
        let why = row["skipped"].as_str();
        assert_eq!(row[figure].is_null(), why.is_some(), "{row:#}");
        assert_ne!(why, Some(""), "{row:#}");
    }
}
