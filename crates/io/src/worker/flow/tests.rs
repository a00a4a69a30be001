//! The decisions by stamps, and their limits.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn feed(table: &mut FlowTable, kind: StampKind, sequence: u64) {
    feed_flow(table, 2, kind, sequence);
}

fn feed_flow(table: &mut FlowTable, flow: u16, kind: StampKind, sequence: u64) {
    // End markers are written one after the other.
    let time_ns = match kind {
        StampKind::Data => 0,
        StampKind::End => sequence << 8,
    };
    feed_at(table, flow, kind, sequence, time_ns);
}

fn feed_at(table: &mut FlowTable, flow: u16, kind: StampKind, sequence: u64, time_ns: u64) {
    let mut payload = [0; 16];
    Stamp {
        kind,
        sender: 1,
        flow,
        run: 0,
        sequence,
        time_ns,
    }
    .write(&mut payload);
    table.record(&payload, 5_000);
}

/// One thread that received these, and the end marker.
fn seen(sequences: impl IntoIterator<Item = u64>, offered: u64) -> FlowReport {
    seen_by(FlowTable::new(), sequences, offered)
}

/// As `seen`, by a table that remembers three pages, the least.
fn seen_forgetful(sequences: impl IntoIterator<Item = u64>, offered: u64) -> FlowReport {
    let table = FlowTable {
        pages_free: 0,
        ..FlowTable::new()
    };
    seen_by(table, sequences, offered)
}

fn seen_by(
    mut table: FlowTable,
    sequences: impl IntoIterator<Item = u64>,
    offered: u64,
) -> FlowReport {
    for sequence in sequences {
        feed(&mut table, StampKind::Data, sequence);
    }
    feed(&mut table, StampKind::End, offered);
    only(&table)
}

/// Lost, undecided, duplicates.
fn decided(report: &FlowReport) -> (u64, u64, u64) {
    let FlowDecision {
        lost,
        undecided,
        duplicates,
    } = report.decide(1);
    (lost, undecided, duplicates)
}

#[test]
fn a_replay_fills_no_hole() {
    // 700 of the first thousand are lost; what is sent again comes soon, or so late that its numbers may
    // have been forgotten.
    let lost = 300..1_000;
    let some = |end| (0..end).filter(|sequence| !lost.contains(sequence));
    let soon = seen(some(3_000).chain(2_000..2_700), 3_000);
    assert_eq!(decided(&soon), (700, 0, 700));
    let late = || some(20_000).chain(1_000..1_700);
    assert_eq!(decided(&seen(late(), 20_000)), (700, 0, 700));
    let forgotten = seen_forgetful(late(), 20_000);
    assert_eq!((forgotten.too_late, forgotten.duplicates), (700, 0));
    assert_eq!(decided(&forgotten), (700, 700, 0));
    // More are replayed than are missing: the others are duplicates for certain.
    let more = seen_forgetful(some(20_000).chain(1_000..1_750), 20_000);
    assert_eq!(decided(&more), (700, 700, 50));
    let nothing_lost = seen_forgetful((0..20_000).chain(0..700), 20_000);
    assert_eq!(decided(&nothing_lost), (0, 0, 700));
    let twice = seen_forgetful((0..20_000).flat_map(|sequence| [sequence; 2]), 20_000);
    assert_eq!(decided(&twice), (0, 0, 20_000));
}

#[test]
fn what_came_late_is_no_doubt_while_it_is_remembered() {
    // Numbers 100 to 799 take another way.
    let order = || (0..100).chain(800..20_000).chain(100..800);
    let late = seen(order(), 20_000);
    assert_eq!((late.too_late, late.reordered), (0, 700));
    assert_eq!(decided(&late), (0, 0, 0));
    assert_eq!(decided(&seen_forgetful(order(), 20_000)), (700, 700, 0));
    // One of them twice, in the place of another.
    let replaced = order().map(|sequence| if sequence == 500 { 501 } else { sequence });
    assert_eq!(decided(&seen(replaced, 20_000)), (1, 0, 1));
}

fn merged(one: &FlowReport, two: &FlowReport) -> FlowReport {
    let mut sum = one.clone();
    sum.merge(two);
    sum
}

#[test]
fn a_duplicate_that_came_to_another_thread_is_one() {
    // 15 are lost, and 5 of the others are replayed to another thread.
    let own = seen((0..1_000).filter(|sequence| *sequence >= 15), 1_000);
    let replayed = seen(500..505, 1_000);
    assert_eq!(decided(&merged(&own, &replayed)), (15, 0, 5));
    assert_eq!(decided(&merged(&replayed, &own)), (15, 0, 5));
    // Threads that took turns at one socket have all of it between them; and not, if it was a replay.
    let turns = |which: u64| (0..1_000).filter(move |sequence| sequence % 2 == which);
    let [even, odd] = [0, 1].map(|which| seen(turns(which), 1_000));
    assert_eq!(decided(&merged(&even, &odd)), (0, 0, 0));
    assert_eq!(decided(&merged(&even, &even)), (500, 0, 500));
    let three = merged(&merged(&even, &odd), &replayed);
    assert_eq!(decided(&three), (0, 0, 5));
    // A flow that went from one thread to another.
    let moved = merged(&seen(0..400, 400), &seen(410..1_000, 1_000));
    assert_eq!(decided(&moved), (10, 0, 0));
    // Each socket of a multicast group has a copy of its own.
    assert_eq!(merged(&own, &own).decide(2).lost, 30);
    assert_eq!(merged(&own, &own).decide(2).duplicates, 0);
}

#[test]
fn what_a_thread_has_forgotten_may_be_in_another() {
    let lost = || (0..20_000).filter(|sequence| *sequence >= 15);
    let replayed = seen(500..505, 20_000);
    for sum in [
        merged(&seen_forgetful(lost(), 20_000), &replayed),
        merged(&replayed, &seen_forgetful(lost(), 20_000)),
    ] {
        assert_eq!(decided(&sum), (15, 5, 0));
    }
    // Each thread has its part of the flow: none of them can be in the other.
    let [first, second] = [0..20_000, 20_000..40_000].map(|part| seen_forgetful(part, 40_000));
    assert_eq!(decided(&merged(&first, &second)), (0, 0, 0));
    // Numbers that it remembers are compared in any case.
    let recent = seen(19_000..19_005, 20_000);
    assert_eq!(
        decided(&merged(&seen_forgetful(0..20_000, 20_000), &recent)),
        (0, 0, 5)
    );
}

#[test]
fn an_end_marker_that_came_to_two_threads_is_one() {
    let thread = |ends: &[u64]| {
        let mut table = FlowTable::new();
        feed(&mut table, StampKind::Data, 0);
        for &time_ns in ends {
            feed_at(&mut table, 2, StampKind::End, 1, time_ns);
        }
        only(&table)
    };
    let mut sum = thread(&[256, 512]);
    sum.merge(&thread(&[256]));
    assert_eq!((sum.end_markers, sum.end_markers_once(1)), (3, 2));
    // Each socket of a multicast group has a copy of its own.
    let mut copies = thread(&[256, 512, 768]);
    copies.merge(&thread(&[256, 512, 768]));
    assert_eq!(copies.end_markers_once(2), 6);
}

#[test]
fn a_repeated_end_marker_is_a_duplicate() {
    let mut table = FlowTable::new();
    (0..10).for_each(|sequence| feed(&mut table, StampKind::Data, sequence));
    for time_ns in [256, 512, 512, 256, 768, 1024] {
        feed_at(&mut table, 2, StampKind::End, 10, time_ns);
    }
    let report = only(&table);
    assert_eq!((report.end_markers, table.end_markers()), (3, 3));
    assert_eq!((report.received, decided(&report)), (13, (0, 0, 3)));
}

#[test]
fn numbers_go_on_after_32_bits() {
    let turn = 1 << 32;
    let mut table = FlowTable::new();
    for sequence in [turn - 2, turn, turn - 1, turn + 1, turn + 1, turn + 3] {
        feed(&mut table, StampKind::Data, sequence);
    }
    feed(&mut table, StampKind::End, turn + 4);
    let report = only(&table);
    assert_eq!((report.first, report.next), (turn - 2, turn + 4));
    assert_eq!((report.offered, report.too_late), (Some(turn + 4), 0));
    assert_eq!((report.duplicates, report.reordered), (1, 1));
    assert_eq!(report.lost(), turn - 2 + 1);
}

#[test]
fn clocks_that_differ_give_no_delay() {
    let timed = |sent_ns: &[u64]| {
        let mut table = FlowTable::new();
        for (at, time_ns) in sent_ns.iter().enumerate() {
            feed_at(&mut table, 2, StampKind::Data, at as u64, *time_ns);
        }
        let report = only(&table);
        (report.clocks_apart_ns, report.delay_ns)
    };
    let ahead = 4_864 + 1_600_000_000;
    let (apart_ns, delays) = timed(&[1_536, ahead, 6_912]);
    assert_eq!((apart_ns, delays.len()), (1_600_000_000 - 136, 1));
    // A minute and more is no delay either; the clock of a stamp starts again after 18 minutes.
    let behind = (1 << 40) - 100_000_000_000;
    assert_eq!(timed(&[behind]).0, 100_000_000_000 + 5_000 - DELAY_MAX_NS);
    let (apart_ns, delays) = timed(&[1_536, 0, 4_864]);
    assert_eq!((apart_ns, delays.len()), (0, 3));
    // No time at all is not above the most.
    let mut flow = FlowTable::new();
    feed_at(&mut flow, 2, StampKind::Data, 0, 4_864);
    flow.flows[0].report.delay_ns.reset();
    flow.flows[0].time(0);
    let none = only(&flow).delay_ns;
    assert_eq!(none.len(), 1);
    assert!(none.value_at_quantile(0.5) <= none.max());
}

fn only(table: &FlowTable) -> FlowReport {
    table.reports().next().unwrap().1.clone()
}

#[test]
fn tells_loss_duplicates_and_disorder_apart() {
    let mut table = FlowTable::new();
    for sequence in [0, 1, 3, 3, 2, 6] {
        feed(&mut table, StampKind::Data, sequence);
    }
    let report = only(&table);
    assert_eq!(
        (report.received, report.duplicates, report.reordered),
        (6, 1, 1)
    );
    assert_eq!(report.lost(), 2, "4 and 5");
    feed(&mut table, StampKind::End, 10);
    assert_eq!(only(&table).lost(), 5, "4, 5, 7, 8 and 9");
    assert_eq!(
        only(&table).delay_ns.len(),
        5,
        "the end marker is no datagram of the flow, and what comes again has no delay"
    );
}

#[test]
fn memory_is_bounded_whatever_flows_come() {
    let mut table = FlowTable::new();
    for flow in 0..u16::MAX {
        feed_flow(&mut table, flow, StampKind::Data, 0);
    }
    assert_eq!(table.reports().count(), FLOWS_MAX);
    assert_eq!(table.untracked(), u64::from(u16::MAX) - FLOWS_MAX as u64);
    let timed = table.reports().filter(|(_, flow)| flow.delay_ns.len() == 1);
    assert_eq!(timed.count(), HISTOGRAMS_MAX);
}

#[test]
fn flows_are_kept_apart_and_threads_added_up() {
    let (mut one, mut two) = (FlowTable::new(), FlowTable::new());
    for sequence in [5, 3, 3, 9000, 1] {
        feed(&mut one, StampKind::Data, sequence);
        feed_flow(&mut one, 7, StampKind::Data, 0);
    }
    feed(&mut one, StampKind::End, 9010);
    for sequence in [8999, 2, 8998, 8998, 8997, 3] {
        feed(&mut two, StampKind::Data, sequence);
    }
    for offered in [9008, 9009] {
        feed(&mut two, StampKind::End, offered);
    }
    two.record(b"no stamp", 5_000);
    two.record(b"none either", 5_000);
    assert_eq!(
        (one.unstamped(), one.end_markers(), one.untracked()),
        (0, 1, 0)
    );
    assert_eq!((two.unstamped(), two.end_markers()), (2, 2));
    let text = format!("{two:?}");
    assert_eq!(
        text,
        "FlowTable { flows: 1, untracked: 0, unstamped: 2, .. }"
    );

    let reports: Vec<_> = one
        .reports()
        .map(|(key, report)| (key.flow, report))
        .collect();
    let [(2, report), (7, other)] = *reports else {
        panic!("two flows: {reports:?}");
    };
    assert_eq!(
        (other.received, other.duplicates, other.decide(3).lost),
        (5, 4, 2)
    );
    let mut sum = report.clone();
    sum.merge(&only(&two));
    let counts = |report: &FlowReport| {
        let FlowReport {
            received,
            duplicates,
            reordered,
            too_late,
            ..
        } = report;
        [
            *received,
            *duplicates,
            *reordered,
            *too_late,
            report.end_markers,
        ]
    };
    assert_eq!(counts(report), [5, 1, 2, 0, 1]);
    assert_eq!(counts(&only(&two)), [6, 1, 4, 0, 2]);
    assert_eq!(counts(&sum), [11, 2, 6, 0, 3]);
    assert_eq!((sum.first, sum.next, sum.offered), (1, 9001, Some(9010)));
    // Number 3 came to both.
    assert_eq!(decided(&sum), (9_010 - 8, 0, 3));
    assert_eq!((sum.delay_ns.len(), sum.decide(2).lost), (9, 18_020 - 9));
}

/// How far from the highest number so far, mostly little, and about one page at times.
fn step() -> impl Strategy<Value = i64> {
    let page = numbers::PAGE as i64;
    prop_oneof![
        8 => -20_i64..20,
        2 => -80_i64..200,
        1 => -page - 3..-page + 4,
        1 => page - 3..page + 4,
        1 => -2 * page..3 * page,
    ]
}

proptest! {
    /// Two threads each get some of the datagrams, with all numbers remembered and with few.
    #[test]
    fn agrees_with_a_plain_model(
        steps in proptest::collection::vec((step(), 0_usize..2), 1..400),
        pages_free in prop_oneof![Just(PAGES_MAX), 0_usize..4],
    ) {
        let mut tables = [0; 2].map(|_| FlowTable { pages_free, ..FlowTable::new() });
        let mut seen = BTreeSet::new();
        for (step, thread) in &steps {
            let next = seen.last().map_or(0, |highest| highest + 1_u64);
            let sequence = next.saturating_add_signed(*step);
            feed(&mut tables[*thread], StampKind::Data, sequence);
            seen.insert(sequence);
        }
        let reports = tables.iter().filter(|table| table.reports().count() > 0).map(only);
        let report = reports.reduce(|sum, report| merged(&sum, &report)).unwrap();
        let missing = seen.last().unwrap() + 1 - seen.len() as u64;
        let again = steps.len() as u64 - seen.len() as u64;
        let FlowDecision { lost, undecided, duplicates } = report.decide(1);
        if pages_free == PAGES_MAX {
            prop_assert_eq!((lost, undecided, duplicates), (missing, 0, again));
        }
        // The truth is always in the range.
        prop_assert!((lost - undecided..=lost).contains(&missing), "{missing}: {report:?}");
        prop_assert!((duplicates..=duplicates + undecided).contains(&again), "{again}: {report:?}");
    }
}
