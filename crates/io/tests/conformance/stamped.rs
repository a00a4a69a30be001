//! Stamped traffic between two workers: the sequence numbers agree with every counter.

use super::pair::{PATIENCE, Pair, within_patience};
use mpps_io::{
    FlowTable, Inspect, Refusals, RxConfig, RxReport, RxTask, RxWorker, Stop, TxConfig, TxReport,
    TxTask, TxWorker, Wait, Work,
};
use std::thread;
use std::time::{Duration, Instant};

scenarios! {
    Pairs ["numbers", "tx flows"]: stamped_traffic_is_accounted_for;
    Receivers ["numbers"]: stamped_overload_is_accounted_for;
    Pairs ["rx gro", "tx gso_segments", "loopback"]: stamped_trains_are_accounted_for;
}

/// End markers of each flow; all of them come if nothing is dropped.
const MARKERS: u64 = 3;

fn stamped_traffic_is_accounted_for(pair: &Pair) {
    const DATAGRAMS: u64 = 30_001;
    let (sent, received) = run(
        pair,
        &pair.rx_config(),
        |config| config.flows = 3,
        Some(100_000.0),
        DATAGRAMS,
    );
    assert_eq!((sent.accepted, sent.offered()), (DATAGRAMS, DATAGRAMS));
    assert_eq!(sent.end_markers, 3 * MARKERS);
    let counted = received.counters.datagrams + received.counters.dropped;
    assert_eq!(counted, DATAGRAMS + 3 * MARKERS);
    let lost = check_flows(&sent, &received.flows);
    // Markers may be dropped as well, and are in no flow.
    let markers_lost = 3 * MARKERS - received.flows.end_markers();
    assert_eq!(lost + markers_lost, received.counters.dropped);
    assert_eq!(received.flows.reports().count(), 3);
}

/// A receiver that is too slow by design: it gets a CPU's worth of traffic through a small buffer.
fn stamped_overload_is_accounted_for(pair: &Pair) {
    const DATAGRAMS: u64 = 50_000;
    let mut config = pair.small_rx_config();
    config.batch = 1;
    let before = pair.place.lost_on_link();
    let (sent, received) = run(pair, &config, |_| {}, None, DATAGRAMS);
    let lost_on_link = pair.place.lost_on_link() - before;
    assert_eq!(
        (sent.accepted, &sent.refused),
        (DATAGRAMS, &Refusals::new())
    );
    let dropped = received.counters.dropped + lost_on_link;
    let counted = received.counters.datagrams + dropped;
    assert_eq!(counted, DATAGRAMS + sent.end_markers);
    let lost = check_flows(&sent, &received.flows);
    let markers_lost = sent.end_markers - received.flows.end_markers();
    assert_eq!(lost + markers_lost, dropped);
}

fn stamped_trains_are_accounted_for(pair: &Pair) {
    const DATAGRAMS: u64 = 16 * 500 + 5;
    let trains = |config: &mut TxConfig| {
        config.gso_segments = 16;
        config.batch = 4;
    };
    let config = pair.rx_config().with_gro();
    let (sent, received) = run(pair, &config, trains, Some(40_000.0), DATAGRAMS);
    assert_eq!(sent.accepted, DATAGRAMS);
    // At 2500 trains a second into a buffer of thousands nothing is dropped; drops would be
    // counted in trains of an unknown length.
    assert_eq!(received.counters.dropped, 0);
    assert_eq!(received.counters.datagrams, DATAGRAMS + MARKERS);
    assert!(received.counters.buffers < DATAGRAMS, "no train came");
    assert_eq!(check_flows(&sent, &received.flows), 0);
    assert_eq!(received.flows.end_markers(), MARKERS);
}

/// Runs stamped traffic from one worker to another until all of it is through.
fn run(
    pair: &Pair,
    receiving: &RxConfig,
    change: impl FnOnce(&mut TxConfig),
    rate_pps: Option<f64>,
    count: u64,
) -> (TxReport, RxReport) {
    let lost_before = pair.place.lost_on_link();
    let rx = pair.open_rx(receiving);
    let mut sending = pair.tx_config(rx.caps().local_address);
    change(&mut sending);
    let tx = match rate_pps {
        Some(_) => pair.open_tx(&sending),
        None => pair.open_fast_tx(&sending),
    };
    let stop = Stop::new();
    let receiver = RxWorker::spawn(RxTask {
        rx,
        cpu: None,
        wait: Wait::Block(Duration::from_millis(20)),
        inspect: Inspect::Auto,
        work: Work::None,
        limit: None,
        stop: stop.clone(),
    });
    let receiver = receiver.expect("a thread can be had");
    let sender = TxWorker::spawn(TxTask {
        tx,
        cpu: None,
        stamp: Some(5),
        to_group: false,
        end_markers: true,
        rate_pps,
        count: Some(count),
        duration: None,
        stop: Stop::new(),
    });
    let sender = sender.expect("a thread can be had");
    let sent = within_patience("the sender", move || sender.join());
    assert!(sent.error.is_none(), "{:?}", sent.error);
    let all = sent.accepted + sent.end_markers;
    let counted = || {
        receiver.refresh();
        let progress = receiver.progress();
        progress.datagrams + progress.dropped + pair.place.lost_on_link() - lost_before
    };
    let deadline = Instant::now() + PATIENCE;
    while counted() < all && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    stop.stop();
    let received = within_patience("the receiver", move || receiver.join());
    assert!(received.error.is_none(), "{:?}", received.error);
    (sent, received)
}

/// Checks each flow against what the sender says of it; answers what was lost of all.
fn check_flows(sent: &TxReport, flows: &FlowTable) -> u64 {
    assert_eq!((flows.unstamped(), flows.untracked()), (0, 0));
    let mut lost = 0;
    for (key, report) in flows.reports() {
        assert_eq!(key.sender, 5);
        let offered = sent.flows[usize::from(key.flow)];
        assert_eq!(report.duplicates, 0, "{key:?}");
        assert_eq!(report.reordered, 0, "{key:?}");
        assert_eq!(report.too_late, 0, "{key:?}");
        assert_eq!(report.delay_ns.len(), report.received);
        let lost_here = offered - report.received;
        // Where no end marker came, the receiver cannot know of what was lost after the last one.
        let told = report.offered.unwrap_or(report.next);
        assert_eq!(report.lost(), told - report.received, "{key:?}");
        assert!(told == offered || report.offered.is_none(), "{key:?}");
        lost += lost_here;
    }
    lost
}
