//! Fuzzed input from files of mpps or of another program.

use mpps::experiment::ladder::result::LabResult;
use mpps::experiment::receive_paths::result::BenchResult;
use mpps::udp::traffic::{RecvTotal, SendTotal, join};
use mpps_host::Ledger;
use mpps_host::setting::{Setting, read_journal};

/// `lab.json`.
pub(crate) fn lab_result(data: &[u8]) -> Option<()> {
    let result = LabResult::parse(str::from_utf8(data).ok()?).ok()?;
    let written = serde_json::to_string(&result).expect("a result can be written");
    LabResult::parse(&written).expect("it reads what it writes");
    assert!(
        result
            .fingerprint
            .differences(&result.fingerprint)
            .is_empty()
    );
    for rung in &result.rungs {
        for ledger in rung.runs.ledger.iter().chain(&rung.runs.sample_ledgers) {
            look_at(ledger);
        }
    }
    Some(())
}

/// `bench.json`.
pub(crate) fn bench_result(data: &[u8]) -> Option<()> {
    let result = BenchResult::parse(str::from_utf8(data).ok()?).ok()?;
    let written = serde_json::to_string(&result).expect("a result can be written");
    BenchResult::parse(&written).expect("it reads what it writes");
    let rows = result.rows.iter().flat_map(|row| row.runs.ledgers());
    let points = result.overload.iter().flat_map(|curve| &curve.points);
    for ledger in rows.chain(points.map(|point| &point.ledger)) {
        assert!(ledger.adds_up(), "{ledger:?}");
        look_at(ledger);
    }
    Some(())
}

/// A journal. Every setting that undo would restore is in one of the folders of settings.
pub(crate) fn journal(data: &[u8]) -> Option<()> {
    let change = read_journal("journal", data).ok()?;
    for edit in &change.edits {
        match &edit.setting {
            Setting::File { name } => assert!(!name.starts_with('/') && !name.contains("..")),
            Setting::Sysctl { name } => {
                let is_plain = |letter: char| letter.is_ascii_lowercase() || "._".contains(letter);
                assert!(
                    name.starts_with("net.core.") && name.chars().all(is_plain),
                    "{name}"
                );
            }
            _ => {}
        }
        for value in [&edit.old, &edit.new] {
            let _ = edit.setting.command(change.place.name(), value);
        }
    }
    assert_eq!(change.steps().len(), change.edits.len());
    Some(())
}

/// The output of `mpps send --json` and `mpps recv --json`, separated by a zero byte, and their
/// ledger.
pub(crate) fn totals(data: &[u8]) -> Option<()> {
    let text = str::from_utf8(data).ok()?;
    let (send, recv) = text.split_once('\0').unwrap_or((text, text));
    let (send, recv) = (SendTotal::parse(send).ok()?, RecvTotal::parse(recv).ok()?);
    let ledger = join(&send, &recv);
    assert!(ledger.adds_up(), "{ledger:?}");
    look_at(&ledger);
    Some(())
}

fn look_at(ledger: &Ledger) {
    let _ = (ledger.balances(), ledger.adds_up(), ledger.to_string());
    assert!(!ledger.delivered_ratio().is_nan());
    for loss in &ledger.losses {
        assert!(ledger.lost_at(loss.station) <= ledger.lost());
    }
    let _ = ledger.witnesses.iter().all(|witness| witness.agrees());
}
