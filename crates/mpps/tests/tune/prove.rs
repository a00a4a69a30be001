//! `mpps tune prove`: its counts with and without each stage. The host is afterwards as it was.

use super::Place;
use crate::common::{self, Ended, Entered, Running, mpps, run, words};
use mpps::command::tune::Proofs;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        // It compares rates.
        measures(Need::Root, Need::Program("nft", "nftables")): what_helps_is_kept;
        waits(Need::Root):
            what_is_proved_after_an_apply_is_put_back_with_it,
            each_stage_is_measured_with_and_without,
            a_program_that_does_not_read_is_named,
            connections_are_counted_with_and_without,
            connections_that_find_no_room_are_counted_as_lost;
    ]
}

/// The result of the command, run in this folder on the near host.
fn proved(place: &Place, folder: &Path, command: &str) -> Ended {
    let words = words(command);
    let prove = || run(mpps(&words).current_dir(folder));
    place.near.within(prove).fine()
}

/// Read by mpps, and by a program that has the port; afterwards the host is as it was.
fn each_stage_is_measured_with_and_without() {
    const RECEIVER: &str = "10.9.0.1:4321";
    let place = Place::new();
    place.meet();
    let folder = tempfile::tempdir().expect("a directory");
    let sending = ["send", RECEIVER, "--rate", "20000", "--duration", "600s"];
    let _sending = place.far.within(|| Running::start(&mut mpps(&sending)));
    let before = place.state();
    for is_taken in [false, true] {
        let taken = is_taken.then(|| {
            let socket = place
                .near
                .within(|| UdpSocket::bind(RECEIVER))
                .expect("it is free");
            thread::spawn(move || {
                let mut bytes = [0; 64];
                // It ends with the sender.
                while socket.recv(&mut bytes).is_ok() && !ENDED.load(Ordering::Relaxed) {}
            })
        });
        let words = "tune prove near --port 4321 --only napi-defer,rps --seconds 50ms --repeat 3 --put-back";
        let proved = proved(&place, folder.path(), words);
        ENDED.store(is_taken, Ordering::Relaxed);
        assert_eq!(place.state(), before, "{proved:#?}");
        let text = common::valid::<Proofs>(&folder.path().join("tune-prove.json"));
        let read_by = if is_taken { "that has it" } else { "recvmmsg" };
        assert_has_measured(&text, read_by);
        let report = run(mpps(&["report", "tune-prove.json"]).current_dir(folder.path())).fine();
        assert!(report.out.contains("napi-defer"), "{report:#?}");
        if let Some(taken) = taken {
            taken.join().expect("no panic");
        }
    }
    let portless = place.tune("prove near");
    portless.fails(&["--port"]);
}

/// It has the port. Its twin that reads is in `each_stage_is_measured_with_and_without`.
fn a_program_that_does_not_read_is_named() {
    let place = Place::new();
    place.meet();
    let stuck = place.near.within(|| UdpSocket::bind("10.9.0.1:4321"));
    let _stuck = stuck.expect("it is free");
    let send = || UdpSocket::bind("10.9.0.2:0")?.send_to(b"hello", "10.9.0.1:4321");
    place.far.within(send).expect("it is sent");
    let before = place.state();
    let line = "prove near --port 4321 --only napi-defer --seconds 50ms --json";
    let ended = place.tune(line);
    let said = ended.err.contains("datagrams wait at port 4321 of near");
    assert_eq!((ended.code(), said), (2, true), "{ended:#?}");
    assert!(!ended.err.contains("does a program send"), "{ended:#?}");
    assert_eq!(place.state(), before);
}

/// A firewall lets few packets of new connections pass. Without tracking all pass. The stage is
/// kept until it is undone.
fn what_helps_is_kept() {
    const FIREWALL: &str = "table inet firewall { chain input { type filter hook input priority 0; \
        udp dport 4321 ct state new limit rate over 100/second drop; }; }";
    let place = Place::new();
    place.meet();
    let nft = |words: &'static [&str]| {
        place
            .near
            .within(|| run(Command::new("nft").args(words)))
            .fine()
            .out
    };
    nft(&[FIREWALL]);
    let before = (nft(&["list", "ruleset"]), place.state().values);
    // The proof comes on top of an applied change, and goes with it.
    place.tune("apply near --only napi-defer").fine();
    let sending = words("send 10.9.0.1:4321 --rate 2000 --duration 600s");
    let _sending = place.far.within(|| Running::start(&mut mpps(&sending)));
    let folder = tempfile::tempdir().expect("a directory");
    let words = "tune prove near --port 4321 --only notrack --seconds 200ms --repeat 5";
    let proved = proved(&place, folder.path(), words);
    assert!(proved.out.contains("kept: more packets"), "{proved:#?}");
    assert!(proved.out.contains("is kept until"), "{proved:#?}");
    let rules = nft(&["list", "ruleset"]);
    assert!(rules.contains("udp dport 4321 notrack"), "{rules}");
    place.tune("undo near").fine();
    assert_eq!((nft(&["list", "ruleset"]), place.state().values), before);
}

/// After an apply that is kept, the proved stages come on top, and one undo undoes both.
fn what_is_proved_after_an_apply_is_put_back_with_it() {
    const RECEIVER: &str = "10.9.0.1:4321";
    let place = Place::new();
    place.meet();
    let before = place.state();
    place
        .tune("apply near --only napi-defer --for af_xdp")
        .fine();
    let applied = place.state();
    assert_ne!(applied, before);
    let sending = ["send", RECEIVER, "--rate", "20000", "--duration", "600s"];
    let _sending = place.far.within(|| Running::start(&mut mpps(&sending)));
    let folder = tempfile::tempdir().expect("a directory");
    let prove = |more: &[&str]| {
        let words = "tune prove near --port 4321 --only napi-defer,rps --seconds 50ms --repeat 3";
        proved(&place, folder.path(), &[&[words], more].concat().join(" "))
    };
    prove(&["--put-back"]);
    assert_eq!(place.state(), applied, "the apply stays");
    // Whether it helps here or not.
    prove(&[]);
    place.tune("undo near").fine();
    assert_eq!(place.state(), before);
    let status = place.tune("status near").fine();
    assert!(status.out.contains("not tuned"), "{status:#?}");
}

/// A server's connections are counted, and not more than it had.
fn connections_are_counted_with_and_without() {
    const SERVER: &str = "10.9.0.1:8080";
    let place = Place::new();
    place.meet();
    let words = words(
        "tune prove near --for tcp --port 8080 --only napi-defer,rps --seconds 50ms --repeat 3 --put-back",
    );
    let folder = tempfile::tempdir().expect("a directory");
    let prove = || {
        let prove = || run(mpps(&words).current_dir(folder.path()));
        place.near.within(prove)
    };
    let before = place.state();
    let lonely = prove();
    lonely.fails(&["`mpps serve"]);
    let serve = || Running::start(&mut mpps(&["serve", SERVER, "--json"]));
    let mut serving = place.near.within(serve);
    serving.line("serving at ");
    let url = format!("http://{SERVER}/");
    let load = || Running::start(&mut mpps(&["load", &url, "--duration", "600s"]));
    let loading = place.far.within(load);
    let proved = prove().fine();
    assert_eq!(place.state(), before, "{proved:#?}");
    drop(loading);
    let served = serving.interrupt().last_json()["accepted"].as_u64();
    let text = common::valid::<Proofs>(&folder.path().join("tune-prove.json"));
    assert_has_measured(&text, "listeners of this host");
    let found: Value = serde_json::from_str(&text).expect("it is JSON");
    let rows = found["rows"].as_array().expect("a list").iter();
    let sides = rows.flat_map(|row| [&row["without"], &row["with"]]);
    let ledgers = sides.flat_map(|side| side["sample_ledgers"].as_array().expect("a list"));
    let taken: u64 = ledgers
        .filter_map(|ledger| ledger["delivered"].as_u64())
        .sum();
    assert!(0 < taken && Some(taken) <= served, "{taken} of {served:?}");
    let report = run(mpps(&["report", "tune-prove.json"]).current_dir(folder.path())).fine();
    let a_second = found["rows"][0]["without"]["mpps_median"].as_f64();
    let a_second = (a_second.expect("a number") * 1e6).round();
    let mut shown = report.out.clone();
    shown.retain(|character| !character.is_whitespace());
    let row = format!("nothing{a_second}");
    assert!(shown.contains(&row), "{row}: {report:#?}");
}

/// A program has room for two connections. It accepts one for ten that are tried. The rest is lost,
/// by the kernel's count.
fn connections_that_find_no_room_are_counted_as_lost() {
    let place = Place::new();
    place.meet();
    let server = SocketAddr::from(([10, 9, 0, 1], 8080));
    let listen = || {
        fs::write("/proc/sys/net/core/somaxconn", "1").expect("it is this namespace's");
        TcpListener::bind(server).expect("it is free")
    };
    let listener = place.near.within(listen);
    listener.set_nonblocking(true).expect("it can be");
    let (tried, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let connects = || {
        while !is_over.load(Ordering::Relaxed) {
            drop(TcpStream::connect_timeout(
                &server,
                Duration::from_millis(20),
            ));
            if tried.fetch_add(1, Ordering::Relaxed) % 10 == 0 {
                // There may be none to take yet.
                let _ = listener.accept();
            }
        }
    };
    let words = words(
        "tune prove near --for tcp --port 8080 --only napi-defer --seconds 200ms --repeat 3 --put-back",
    );
    let folder = tempfile::tempdir().expect("a directory");
    let dropped = || {
        let told = place
            .near
            .run(|| fs::read_to_string("/proc/thread-self/net/netstat"));
        listen_drops(&told.expect("it can be entered").expect("it can be read"))
    };
    let (proved, all) = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.far.within(connects));
        }
        // Whatever fails, the others end.
        let _over = AtEnd(&is_over);
        let before = dropped();
        let prove = || run(mpps(&words).current_dir(folder.path()));
        let proved = place.near.within(prove);
        (proved, dropped() - before)
    });
    proved.fine();
    let text = common::valid::<Proofs>(&folder.path().join("tune-prove.json"));
    let found: Value = serde_json::from_str(&text).expect("it is JSON");
    let rows = found["rows"].as_array().expect("a list").iter();
    let sides = rows.flat_map(|row| [&row["without"], &row["with"]]);
    let ledgers = sides.flat_map(|side| side["sample_ledgers"].as_array().expect("a list"));
    let lost: u64 = ledgers.map(dropped_by_listeners).sum();
    assert!(0 < lost && lost <= all, "{lost} of {all}");
}

struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The connections that a ledger lost; it has those that were made, too, and all are both.
fn dropped_by_listeners(ledger: &Value) -> u64 {
    let terms = ["offered", "delivered"].map(|term| ledger[term].as_u64().expect("a count"));
    let drops = &ledger["losses"][0];
    assert_eq!(drops["source"], "TcpExt.ListenDrops", "{ledger:#}");
    let count = drops["count"].as_u64().expect("a count");
    assert_eq!(terms[0] - terms[1], count, "{ledger:#}");
    count
}

/// `ListenDrops` of netstat(8): the names in one line, and their values in the next.
fn listen_drops(netstat: &str) -> u64 {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("two lines"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, count) = pairs
        .find(|(name, _)| *name == "ListenDrops")
        .expect("it is counted");
    count.parse().expect("a number")
}

fn assert_has_measured(text: &str, read_by: &str) {
    let found: Value = serde_json::from_str(text).expect("it is JSON");
    let traffic = found["traffic"].as_str().expect("a text");
    assert!(traffic.ends_with(read_by), "{traffic}");
    let rows = found["rows"].as_array().expect("a list");
    let stages: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["stage"].as_str())
        .collect();
    assert_eq!(stages, ["nothing", "napi-defer", "rps"]);
    for row in rows {
        for side in ["without", "with"] {
            let samples = row[side]["mpps_samples"].as_array().expect("a list");
            assert_eq!(samples.len(), 3, "{row:#}");
            let came = samples.iter().all(|rate| rate.as_f64() > Some(0.0));
            assert!(came, "{row:#}");
        }
        assert_eq!(row["stopped"], Value::Null, "{row:#}");
    }
}

/// The program that has the port is to end.
static ENDED: AtomicBool = AtomicBool::new(false);
