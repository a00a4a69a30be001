//! `mpps placement`, in the lab and of traffic that arrives.

use super::directory;
use crate::common::{self, mpps, run};
use mpps::experiment::placement::Placements;
use std::fs;

pub(crate) fn the_receiver_is_measured_in_each_place_that_there_is() {
    let directory = directory();
    let mut command = mpps(&["placement", "--quick"]);
    let ended = run(command.current_dir(&directory)).fine();
    let text = common::valid::<Placements>(&directory.path().join("placement.json"));
    let result: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(result["complete"], true);
    let rows = result["rows"].as_array().expect("rows");
    let places = [
        "same CPU",
        "sibling hyper-thread",
        "another core",
        "another node",
    ];
    assert_eq!(rows.len(), places.len());
    for (row, place) in rows.iter().zip(places) {
        assert_eq!(row["place"], place);
        assert!(ended.out.contains(place), "{ended:#?}");
        if row["skipped"].is_string() {
            assert!(row["ledger"].is_null(), "{row}");
            continue;
        }
        let is_same = row["queue_cpu"] == row["receiver_cpu"];
        assert_eq!(is_same, place == "same CPU", "{row}");
        assert!(row["mpps_median"].as_f64() > Some(0.0), "{row}");
        let repeats = row["sample_ledgers"].as_array().expect("ledgers");
        for ledger in repeats.iter().chain([&row["ledger"]]) {
            assert!(ledger["offered"].as_u64() > Some(0), "{ledger}");
            assert_eq!(ledger["unaccounted"], 0, "{ledger}");
        }
    }
    assert!(rows[0]["skipped"].is_null(), "every host has a CPU");
    assert!(directory.path().join("placement.html").exists());
}

/// A burst shows which CPU serves the queue. Each run has one burst: its first packet begins the
/// run, and its last one comes before the end. The sender counts the packets that the ring of the
/// receiving interface refused.
pub(crate) fn what_arrives_at_an_interface_is_accounted_for() {
    let directory = directory();
    // A burst for each socket. The inode of the socket at port 4321 shows that it is new
    // (proc_net(5)). The run reads the counters just after it has opened the socket.
    let script = format!(
        "{mpps} placement --interface mpps-rx --port 4321 --seconds 2.5 --repeat 1 & \
         last=; while kill -0 $! 2>/dev/null; do \
         now=$(sed -n 's/.*:10E1 .* \\([0-9]*\\) 2 [0-9a-f]* [0-9]* *$/\\1/p' /proc/net/udp); \
         if [ -z \"$now\" ] || [ \"$now\" = \"$last\" ]; then sleep 0.05; continue; fi; \
         last=$now; sleep 0.3; \
         nsenter --net=$MPPS_SENDER {mpps} send 192.168.254.1:4321 --count 100000 --rate 100k \
         --json >>sent.json 2>/dev/null; done; wait $!",
        mpps = env!("CARGO_BIN_EXE_mpps"),
    );
    let mut command = mpps(&["lab", "--", "sh", "-c", &script]);
    let ended = run(command.current_dir(&directory)).fine();
    let text = common::valid::<Placements>(&directory.path().join("placement.json"));
    let result: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(result["complete"], true, "{result}");
    assert_eq!(result["interface"], "mpps-rx");
    let place = result["placement"].as_str().expect("a sentence");
    assert!(place.contains("softnet_stat"), "{place}");
    let rows = result["rows"].as_array().expect("rows");
    let measured: Vec<_> = rows.iter().filter(|row| row["skipped"].is_null()).collect();
    assert!(!measured.is_empty(), "{ended:#?}");
    let sent = fs::read_to_string(directory.path().join("sent.json")).expect("it is there");
    let sent = sent
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"));
    let sent = sent.filter(|object: &serde_json::Value| object["type"] == "total");
    let bursts: Vec<_> = sent.collect();
    for (row, burst) in measured.iter().zip(&bursts[1..]) {
        let is_same = row["queue_cpu"] == row["receiver_cpu"];
        assert_eq!(is_same, row["place"] == "same CPU", "{row}");
        assert!(row["exact"].is_null(), "{row}");
        let ledger = &row["sample_ledgers"][0];
        assert_eq!(burst["sent"], 100_000, "{burst}");
        let refused = burst["host"]["snmp"]["Udp.SndbufErrors"].as_u64();
        let came = ledger["offered"].as_u64().expect("a number");
        assert_eq!(came + refused.expect("a number"), 100_000, "{ledger}");
        assert_eq!(ledger["unaccounted"], 0, "{ledger}");
    }
}
