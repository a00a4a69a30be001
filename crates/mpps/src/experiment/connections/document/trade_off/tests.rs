//! Checks the second table and its discussion.

use super::*;

/// Medians of latency at a low load and at full load, in microseconds, for `rate` polls a second.
fn cells(server: &str, rate: f64, low: [f64; 3], full: [f64; 3]) -> [TcpCell; 2] {
    let cell = |suffix: &str, load_share, samples: [f64; 3]| TcpCell {
        experiment: 1,
        server: server.to_owned(),
        step: format!("{rate} per s{suffix}"),
        body_bytes: 1024,
        switches: vec![mpps_http::Switch::Moderation, mpps_http::Switch::Events],
        moderation_us: Some(1e6 / rate),
        load_share,
        figures: Some(TcpFigures {
            latency_p50_us_median: Some(samples[1]),
            latency_p50_us_samples: samples.to_vec(),
            ..TcpFigures::default()
        }),
        ..TcpCell::default()
    };
    [cell("", None, full), cell(" at 10 %", Some(0.1), low)]
}

fn said(low: [[f64; 3]; 2], full: [[f64; 3]; 2]) -> String {
    const FIXTURE: &str = include_str!("../../../../../tests/fixtures/lab_tcp.json");
    let mut result = TcpLabResult::parse(FIXTURE).expect("the fixture is a result file");
    result.cells = cells("mpps", 1_000.0, low[0], full[0]).into();
    // Those in between have no part in it.
    result
        .cells
        .extend(cells("mpps", 4_000.0, [1.0, 1.01, 1.02], [1.0, 1.01, 1.02]));
    result
        .cells
        .extend(cells("mpps", 400_000.0, low[1], full[1]));
    assert_eq!(table(&result).len(), 2);
    let said = inversion(&result).join("; ");
    result.cells.retain(|cell| cell.load_share.is_none());
    assert!(table(&result).is_empty() && inversion(&result).is_empty());
    said.replace('\u{a0}', " ")
}

const SHORT: [f64; 3] = [200.0, 202.0, 205.0];
const LONG: [f64; 3] = [900.0, 910.0, 915.0];

#[test]
fn the_order_turns_round_only_if_both_ends_of_it_are_beyond_noise() {
    let turned = said([LONG, SHORT], [SHORT, LONG]);
    assert!(turned.contains("as in the paper"), "{turned}");
    for part in [
        "mpps, median latency with 400000 per s against 1000 per s",
        "at 10 % of the load 202 \u{b5}s against 910 \u{b5}s, lower",
        "at full load 910 \u{b5}s against 202 \u{b5}s, higher",
    ] {
        assert!(turned.contains(part), "{part}: {turned}");
    }
    let wild = [100.0, 202.0, 2000.0];
    let (not, unknown) = ("does not turn round", "the noise hides");
    for (low, full, verdict) in [
        ([LONG, SHORT], [LONG, SHORT], not),
        ([SHORT, LONG], [SHORT, LONG], not),
        ([SHORT, SHORT], [SHORT, LONG], unknown),
        ([LONG, SHORT], [LONG, LONG], unknown),
        ([LONG, wild], [SHORT, LONG], unknown),
    ] {
        let said = said(low, full);
        assert!(
            said.contains("not here: ") && said.contains(verdict),
            "{said}"
        );
        assert!(!said.contains("as in the paper,"), "{said}");
    }
    assert!(said([SHORT, SHORT], [SHORT, LONG]).contains("alike by the noise test"));
}
