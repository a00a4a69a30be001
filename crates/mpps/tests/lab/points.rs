//! The point of each rung, by the packets that its sockets and queues got.

use super::{LabResult, RungResult};
use mpps_host::Station;

/// The packets that came to each socket of a rung, read in time or not.
fn came(rung: &RungResult) -> Vec<u64> {
    let threads = rung.threads.iter();
    let came = threads.map(|thread| thread.received + thread.socket_drops.unwrap_or(0));
    came.collect()
}

/// The packets lost at a station in the runs behind a rung's rate.
fn lost_at(rung: &RungResult, station: Station) -> u64 {
    let losses = rung.runs.sample_ledgers.iter().flat_map(|one| &one.losses);
    let there = losses.filter(|loss| loss.station == station);
    there.map(|loss| loss.count).sum()
}

/// Each rung of a full climb shows its point, also if it must share CPUs for that.
///
/// A group on a wildcard address is looked up without the destination. So only flows from many
/// source ports reach all of its sockets. Once in ten million boots, sixty-four flows miss one of
/// four sockets, or bring one more than three fifths.
pub(crate) fn hold(result: &LabResult) {
    let rung = |number: &str| {
        let mut all = result.rungs.iter();
        all.find(|rung| rung.rung == number)
            .expect("it was asked for")
    };
    for rung in &result.rungs {
        let may_lack = ["2b", "2c", "4b", "4c", "4d", "4e", "9b", "13", "17"];
        let is_measured = rung.runs.skipped.is_none();
        assert!(is_measured || may_lack.contains(&&*rung.rung), "{rung:?}");
    }
    for number in ["2b", "2c"] {
        let why = rung(number).runs.skipped.as_deref();
        let is_named = why.is_none_or(|why| why.contains("nft"));
        let has_nft = mpps_trial::program("nft", "nftables").is_ok();
        assert!(is_named && (why.is_none() || !has_nft), "{why:?}");
    }
    let three = rung("3");
    let [queue, socket] = [Station::Wire, Station::Socket].map(|at| lost_at(three, at));
    assert!(queue > socket, "{queue} {socket}: {:#?}", three.limited_by);
    assert!(
        three
            .verdict
            .as_ref()
            .is_some_and(|it| it.holds == Some(true))
    );
    // A host whose one CPU serves queue and application under overload is in livelock.
    if rung("4c").runs.skipped.is_none() {
        let [same, other] = ["4a", "4c"].map(|number| rung(number).runs.mpps_median);
        assert!(same < other, "{same:?} {other:?}");
    }
    let one = came(rung("8a"));
    let reached = one.iter().filter(|socket| **socket > 0);
    assert_eq!((one.len(), reached.count()), (4, 1), "{one:?}");
    let spread = came(rung("8b"));
    let all: u64 = spread.iter().sum();
    assert_eq!(spread.len(), 4);
    for socket in &spread {
        assert!(*socket > 0 && socket * 5 <= all * 3, "{spread:?}");
    }
    // An address, a queue and a socket for each thread, and a socket for each CPU that serves
    // queues.
    let aligned = rung("9a");
    let queues = &aligned.path.as_ref().expect("it says which way").queues;
    let packets: Vec<u64> = queues.iter().map(|queue| queue.packets).collect();
    assert!(
        packets.len() == 4 && packets.iter().all(|count| *count > 0),
        "{packets:?}"
    );
    for number in ["9a", "10"] {
        let came = came(rung(number));
        assert!(came.iter().all(|socket| *socket > 0), "{number}: {came:?}");
    }
}
