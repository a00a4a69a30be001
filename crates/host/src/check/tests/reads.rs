//! Reads with too small a buffer.

use super::*;
use crate::counters::read_probe::ReadCount;

const SERVER: u32 = 7;

/// A host whose server read 1000 datagrams.
fn reading(cut: u64, buffers: (u64, u64), takes_trains: bool) -> Observation {
    let mut facts = host(&[
        ("Ip.InReceives", 1000),
        ("Ip.InDelivers", 1000),
        ("Udp.InDatagrams", 1000),
    ]);
    facts.sockets = vec![socket("0.0.0.0:53", SERVER, 0)];
    has(&mut facts, SERVER, owner(0, 0));
    let count = ReadCount {
        cut,
        buffers,
        takes_trains,
    };
    facts.reads = [(SERVER.into(), count), (8, count)].into();
    later(facts)
}

fn idle() -> Observation {
    host(&[
        ("Ip.InReceives", 0),
        ("Ip.InDelivers", 0),
        ("Udp.InDatagrams", 0),
    ])
}

#[test]
fn a_buffer_that_cuts_is_named_with_its_remedy() {
    for (buffers, takes_trains, words, remedy) in [
        (
            (512, 512),
            false,
            "cut datagrams: its buffer of 512 bytes",
            "1472",
        ),
        ((512, 900), false, "of 512 to 900 bytes", "1472"),
        (
            (24_000, 24_000),
            true,
            "cut trains (UDP_GRO)",
            "65535 bytes for each read",
        ),
        ((1400, 1400), true, "trains (UDP_GRO)", "65535"),
        (
            (24_000, 24_000),
            false,
            "datagrams",
            "if the program sets UDP_GRO",
        ),
    ] {
        let (before, after) = (idle(), reading(400, buffers, takes_trains));
        let seen = Observed::new(&before, &after, None, asked(Some(53)));
        let found = findings(&seen);
        let [found] = &found[..] else {
            panic!("{found:#?}");
        };
        assert_eq!((&*found.check, found.count), (CHECK, 400));
        assert!(found.what.contains(words), "{}", found.what);
        assert!(found.remedy.contains(remedy), "{}", found.remedy);
        assert_eq!(found.confidence, Confidence::Certain);
        assert!(!found.is_remark);
        let ledger = ledger(&seen);
        let told = (ledger.delivered, ledger.lost(), ledger.unaccounted);
        assert_eq!(told, (600, 400, 0), "{ledger:#?}");
        assert!(ledger.adds_up());
    }
}

const CHECK: &str = "truncated_reads";

#[test]
fn only_reads_that_cut_count() {
    // A single one of more than a thousand, or in more than a second, may be a stranger's.
    let (before, after) = (idle(), reading(1, (512, 512), false));
    let seen = Observed::new(&before, &after, None, asked(Some(53)));
    let found = findings(&seen);
    assert_eq!((&*found[0].check, found[0].count), (CHECK, 1));
    assert_eq!((found.len(), found[0].is_remark), (1, false));
    let whole = reading(0, (0, 0), true);
    let seen = Observed::new(&before, &whole, None, asked(Some(53)));
    assert_eq!(findings(&seen), []);
    // Reads before the first moment, and sockets of other ports.
    let seen = Observed::new(&after, &after, None, asked(Some(53)));
    assert_eq!(
        findings(&seen)
            .iter()
            .filter(|one| one.check == CHECK)
            .count(),
        0
    );
    let seen = Observed::new(&before, &after, None, asked(Some(54)));
    assert_eq!(
        findings(&seen)
            .iter()
            .filter(|one| one.check == CHECK)
            .count(),
        0
    );
}
