//! Reads with too small a buffer.

use super::*;
use crate::counters::read_probe::ReadCount;

const SERVER: u32 = 7;

/// A host whose server read 1000 datagrams.
fn reading(cut: u64, buffers: (u64, u64), takes_trains: bool) -> Scene {
    let counters = "Ip.InReceives 1000, Ip.InDelivers 1000, Udp.InDatagrams 1000";
    Scene::grown(counters).port(53).now(|after| {
        after.sockets = vec![socket("0.0.0.0:53", SERVER, 0)];
        has(after, SERVER, owner(0, 0));
        let count = ReadCount {
            cut,
            buffers,
            takes_trains,
        };
        after.reads = [(SERVER.into(), count), (8, count)].into();
    })
}

#[test]
fn a_buffer_that_cuts_is_named_with_its_remedy() {
    let train = "65535 bytes for each read";
    for (buffers, takes_trains, parts) in [
        (
            (512, 512),
            false,
            "cut datagrams: its buffer of 512 bytes | 1472",
        ),
        ((512, 900), false, "of 512 to 900 bytes | 1472"),
        (
            (24_000, 24_000),
            true,
            &*format!("cut trains (UDP_GRO) | {train}"),
        ),
        ((1400, 1400), true, "trains (UDP_GRO) | 65535"),
        (
            (24_000, 24_000),
            false,
            "datagrams | if the program sets UDP_GRO",
        ),
    ] {
        let scene = reading(400, buffers, takes_trains);
        scene.tells(&format!("truncated_reads 400 certain alone: {parts}"));
        let ledger = scene.sums([1000, 400, 0]).ledger();
        assert_eq!(ledger.delivered, 600, "{ledger:#?}");
        assert!(ledger.adds_up());
    }
}

#[test]
fn only_reads_that_cut_count() {
    // A single one of more than a thousand, or in more than a second, may be a stranger's.
    let one = reading(1, (512, 512), false);
    one.tells("truncated_reads 1 alone");
    reading(0, (0, 0), true).finds("");
    // Reads before the first moment, and sockets of other ports.
    let mut earlier = one.clone();
    earlier.before = earlier.after.clone();
    for scene in [earlier, one.port(54)] {
        let found = scene.found();
        assert!(found.iter().all(|one| one.check != "truncated_reads"));
    }
}
