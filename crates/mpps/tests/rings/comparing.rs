//! `mpps bench` over a few of its rows, with traffic of another host.

use super::{PORT, address, exchange, lab, on, receiver, start, threaded};
use crate::common::{Entered, Running, mpps, run, words};
use mpps_io::RxDrop;
use mpps_lab::Lab;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::path::Path;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        // They measure a sender that goes on. Its packets are lost if the receiver gets no CPU.
        measures(Need::Root):
            traffic_of_another_host_is_measured,
            what_another_host_sends_around_a_run_is_not_lost,
            what_comes_by_another_queue_is_lost;
        waits(Need::Root): what_comes_in_fragments_is_past_a_ring;
    ]
}

fn written(directory: &Path) -> Value {
    let text = fs::read_to_string(directory.join("bench.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The rows that were measured; each has a rate, a mode and a ledger.
fn measured(result: &Value) -> Vec<&str> {
    let rows = result["rows"].as_array().expect("a list");
    let ran = rows.iter().filter(|row| row["skipped"].is_null());
    ran.map(|row| {
        assert!(row["mpps_median"].as_f64() > Some(0.0), "{row:#}");
        let ledger = &row["ledger"];
        assert!(ledger["offered"].as_u64() >= ledger["delivered"].as_u64());
        assert!(row["mode"].as_str().is_some_and(|mode| !mode.is_empty()));
        row["path"].as_str().expect("a name")
    })
    .collect()
}

/// The command that it prints is run unchanged. Losses before the measuring host have no counter
/// there. So the ledger has a remainder, and says why.
fn traffic_of_another_host_is_measured() {
    let lab = threaded();
    let at = address(&lab, 4, PORT);
    let directory = tempfile::tempdir().expect("a directory can be had");
    let line = format!("bench --quick --only recvmmsg,af_xdp --sender elsewhere --address {at}");
    let mut command = mpps(&words(&line));
    command.current_dir(&directory);
    let mut measuring = lab.receiver().within(|| Running::start(&mut command));
    let line = measuring.line("mpps send ");
    assert!(line.contains("elsewhere"), "{line}");
    let (_, sent) = line.split_once("mpps ").expect("a command");
    let sending = lab
        .sender()
        .within(|| Running::start(&mut mpps(&words(sent))));
    let ended = measuring.end();
    sending.interrupt().fine();
    assert_eq!(ended.code(), 0, "{ended:#?}");
    let result = written(directory.path());
    let paths = measured(&result);
    for path in ["recvmmsg", "af_xdp"] {
        assert!(paths.contains(&path), "{path}: {ended:#?}");
    }
    for row in result["rows"].as_array().expect("a list") {
        let notes = row["ledger"]["notes"].to_string();
        let skipped = !row["skipped"].is_null();
        assert!(
            skipped || notes.contains("lost before this host"),
            "{row:#}"
        );
    }
}

/// Measures the traffic that arrives at the receiver's first address, by these rows.
fn bench_live(lab: &Lab, only: &str) -> Value {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let at = address(lab, 4, PORT);
    let line = format!("bench --quick --only {only} --sender elsewhere --address {at}");
    let mut command = mpps(&words(&line));
    command.current_dir(&directory);
    let ended = lab.receiver().within(|| run(&mut command));
    ended.fine();
    written(directory.path())
}

/// The sender begins before the first run and ends after the last one. Another program sends to a
/// port without a listener. The kernel drops packets of both, and none of them belongs to a run.
fn what_another_host_sends_around_a_run_is_not_lost() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let at_nobody = address(&lab, 4, PORT + 1);
    let send = format!("send {at} --stamp --rate 1k --flows 4");
    let sending = start(lab.sender(), &send);
    let astray = start(lab.sender(), &format!("send {at_nobody} --rate 500"));
    let result = bench_live(&lab, "recv,recvmmsg,io_uring,packet_mmap,af_xdp");
    assert!(measured(&result).len() >= 4, "{result:#}");
    for row in result["rows"].as_array().expect("a list") {
        let ledger = &row["ledger"];
        if row["skipped"].is_null() {
            assert_eq!(
                ledger["losses"].as_array().map(Vec::len),
                Some(0),
                "{row:#}"
            );
            assert_eq!(ledger["unaccounted"], 0, "{row:#}");
        }
    }
    sending.interrupt().fine();
    // It found that no program listens, as expected. Its status does not matter.
    astray.interrupt();
}

/// Half of the packets come by a queue that the ring does not read.
fn what_comes_by_another_queue_is_lost() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let send = format!("send {at} --stamp --backend af_xdp --threads 2 --rate 1k");
    let sending = start(lab.sender(), &send);
    let result = bench_live(&lab, "recvmmsg/spin,af_xdp/spin");
    sending.interrupt().fine();
    assert_eq!(measured(&result).len(), 2, "{result:#}");
    for row in result["rows"].as_array().expect("a list") {
        let ledger = &row["ledger"];
        assert_eq!(ledger["unaccounted"], 0, "{row:#}");
        let ratio = row["delivered_ratio"].as_f64().expect("a ratio");
        let losses = ledger["losses"].as_array().expect("a list");
        if row["path"] == "recvmmsg" {
            // Packets still in the buffer at the end count as queued.
            let came = ["delivered", "queued"].map(|term| ledger[term].as_u64().expect("a count"));
            assert!(losses.is_empty(), "{row:#}");
            assert_eq!(ledger["offered"], came[0] + came[1], "{row:#}");
            continue;
        }
        let [loss] = &losses[..] else {
            panic!("{row:#}")
        };
        assert_eq!(loss["reason"], "came by a queue without a receiver");
        assert!((0.3..0.7).contains(&ratio), "{row:#}");
    }
}

/// A ring takes whole frames, and the kernel makes datagrams of fragments: they end at the port, as
/// those do that come by a queue that nobody reads. A tap without --take has no count of them.
fn what_comes_in_fragments_is_past_a_ring() {
    let lab = lab();
    let cause = RxDrop::PAST_RING;
    let other_queue = "came by a queue without a receiver";
    let cases = [("af_xdp", 4), ("packet_mmap", 6), ("packet_mmap --take", 4)];
    for (backend, family) in cases {
        let at = address(&lab, family, PORT);
        let send = format!("send {at} --json --stamp --count 50 --rate 5k --size 4000");
        let told = exchange(&lab, receiver(&lab, &at, backend), &send);
        let is_counted = backend != "packet_mmap";
        let losses = told.ledger.losses.iter();
        let lost: Vec<_> = losses.map(|loss| (&*loss.reason, loss.count)).collect();
        // 50 datagrams, and three end markers of the same length.
        let (rows, left): (&[_], _) = match is_counted {
            true => (&[(cause, 53)], 0),
            false => (&[], 53),
        };
        assert_eq!(lost, rows, "{}", told.people);
        assert_eq!(told.ledger.unaccounted, left, "{}", told.people);
        assert_eq!(told.recv.socket_drops, 53 - left as u64, "{}", told.people);
        let note = "up to 53 datagrams may have been for this port";
        assert!(told.ledger.notes.iter().any(|one| one.contains(note)));
    }
    // Each of two causes has its own packets.
    let at = address(&lab, 4, PORT);
    let count = format!("send {at} --json --count 50 --rate 5k");
    let whole = exchange(&lab, receiver(&lab, &at, "packet_mmap"), &count);
    assert_eq!(whole.ledger.unaccounted, 0, "{}", whole.people);
    assert!(!whole.people.contains("fragments"), "{}", whole.people);
    let running = receiver(&lab, &at, "af_xdp --threads 1");
    let elsewhere = format!("{count} --backend af_xdp --queue 1");
    on(lab.sender(), &elsewhere).fine();
    let told = exchange(&lab, running, &format!("{count} --size 4000"));
    let drops = told.recv.drops.iter();
    let mut drops: Vec<_> = drops.map(|drop| (&*drop.reason, drop.count)).collect();
    drops.sort_unstable();
    assert_eq!(drops, [(other_queue, 50), (cause, 50)], "{}", told.people);
}
