//! `mpps placement`, in the lab and of traffic that arrives.

use super::directory;
use crate::common::{self, mpps, run};
use mpps::experiment::ladder::result::{LabBody, LabResult, RungResult};
use std::fs;
use tempfile::TempDir;

/// The result in a directory, held to the schema and to its own arithmetic.
fn result(directory: &TempDir) -> LabResult {
    let text = common::valid::<LabBody>(&directory.path().join("placement.json"));
    let result = LabResult::parse(&text).expect("it reads what it wrote");
    let rungs: Vec<&str> = result.rungs.iter().map(|rung| &*rung.rung).collect();
    assert_eq!(rungs, ["4a", "4b", "4c", "4d"]);
    assert!(result.complete);
    result
}

/// A measured rung names the CPUs of its queue and its receiver, which are one on rung 4a only.
fn names_its_cpus(rung: &RungResult) {
    let cpus = rung.queue_cpu.zip(rung.receiver_cpu);
    let is_one = cpus.map(|(queue, receiver)| queue == receiver);
    assert_eq!(is_one, Some(rung.rung == "4a"), "{rung:?}");
}

pub(crate) fn the_receiver_is_measured_in_each_place_that_there_is() {
    let directory = directory();
    let mut command = mpps(&["placement", "--quick"]);
    let ended = run(command.current_dir(&directory)).fine();
    let result = result(&directory);
    assert!(
        result.rungs[0].runs.skipped.is_none(),
        "every host has a CPU"
    );
    for rung in &result.rungs {
        assert!(ended.out.contains(&rung.name), "{ended:#?}");
        if rung.runs.skipped.is_some() {
            continue;
        }
        names_its_cpus(rung);
        assert!(rung.runs.mpps_median > Some(0.0), "{rung:?}");
        assert!(rung.runs.ledgers().count() > rung.runs.sample_ledgers.len());
        for ledger in rung.runs.ledgers() {
            assert!(ledger.offered > 0 && ledger.unaccounted == 0, "{ledger}");
        }
    }
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
    let result = result(&directory);
    assert_eq!(result.interface.as_deref(), Some("mpps-rx"));
    assert!(result.placement.contains("softnet_stat"), "{result:?}");
    let rungs = result.rungs.iter();
    let measured: Vec<_> = rungs.filter(|rung| rung.runs.skipped.is_none()).collect();
    assert!(!measured.is_empty(), "{ended:#?}");
    let sent = fs::read_to_string(directory.path().join("sent.json")).expect("it is there");
    let sent = sent
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"));
    let sent = sent.filter(|object: &serde_json::Value| object["type"] == "total");
    let bursts: Vec<_> = sent.collect();
    for (rung, burst) in measured.iter().zip(&bursts[1..]) {
        names_its_cpus(rung);
        let [ledger] = &rung.runs.sample_ledgers[..] else {
            panic!("{rung:?}")
        };
        assert_eq!(burst["sent"], 100_000, "{burst}");
        // A full send buffer counts here too, and the datagram is sent later.
        let errors = [
            &burst["host"]["snmp"]["Udp.SndbufErrors"],
            &burst["blocked"],
        ];
        let [errors, blocked] = errors.map(|count| count.as_u64().expect("a number"));
        let refused = errors.saturating_sub(blocked);
        assert_eq!(ledger.offered + refused, 100_000, "{ledger}");
        assert_eq!(ledger.unaccounted, 0, "{ledger}");
    }
}
