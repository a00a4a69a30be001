//! The point of each rung, by the packets that its sockets and queues got.

use super::{LabResult, RungResult};
use mpps_host::Station;
use std::{fs, path::Path};

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
    several_are_used(result);
    // A socket for each CPU that serves queues.
    let came = came(rung("10"));
    assert!(came.iter().all(|socket| *socket > 0), "{came:?}");
}

/// Rungs 5 to 9, as far as they were measured, show their points by the packets of queues and sockets.
/// Returns how many there are.
pub(crate) fn several_are_used(result: &LabResult) -> usize {
    let measured = result.rungs.iter().filter(|rung| rung.path.is_some());
    let told = measured.filter(|rung| {
        let number = &*rung.rung;
        // Queues, sockets, and whether each socket gets some.
        let (queues, sockets, each) = match number {
            "5" => (2, 1, true),
            "6" => (4, 1, true),
            "7" => (2, 2, true),
            "8a" | "8c" => (4, 4, false),
            "8b" | "9a" | "9b" => (4, 4, true),
            _ => return false,
        };
        let path = rung.path.as_ref().expect("it says which way");
        let used = path.queues.iter().filter(|queue| queue.packets > 0);
        assert_eq!(used.count(), queues, "rung {number}: {path:?}");
        let came = came(rung);
        let idle = came.iter().filter(|packets| **packets == 0).count();
        assert!(
            came.len() == sockets && (!each || idle == 0),
            "rung {number}: {came:?}"
        );
        let most = came.iter().max().expect("a socket");
        match number {
            "8a" => assert_eq!(idle, 3, "{came:?}"),
            "8b" => assert!(most * 5 <= came.iter().sum::<u64>() * 3, "{came:?}"),
            _ => {}
        }
        let verdict = rung.verdict.as_ref();
        let holds = verdict.and_then(|verdict| verdict.holds);
        let expected = match number {
            "8a" | "8c" => Some(idle > 0),
            "6" if path.name.contains("threaded") => {
                let [queue, socket] = [Station::Wire, Station::Socket].map(|at| lost_at(rung, at));
                Some(socket > queue)
            }
            _ => return verdict.is_some() || number == "6",
        };
        assert_eq!(holds, expected, "rung {number}: {verdict:?}");
        true
    });
    told.count()
}

/// The newest ladders that `cargo xtask vm record` kept of machines with other CPUs.
pub(crate) fn kept_ladders_show_the_points_of_several_queues() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let entries = fs::read_dir(results).expect("results are kept");
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = folders.filter(|path| path.to_string_lossy().ends_with("-topologies"));
    let newest = newest.max().expect("ladders are kept");
    let mut read = 0;
    for (machine, expected) in [
        ("1", 1),
        ("2x2x2", 3),
        ("8", 7),
        ("12", 7),
        ("2x4x2", 8),
        ("24", 8),
    ] {
        let Ok(text) = fs::read_to_string(newest.join(format!("{machine}-lab.json"))) else {
            continue;
        };
        let result = LabResult::parse(&text).expect("this version reads it");
        assert_eq!(several_are_used(&result), expected, "machine {machine}");
        read += 1;
    }
    assert!(read >= 4, "{}: {read} ladders", newest.display());
}
