//! Result files of earlier versions of `mpps placement`, as results of the ladder.

use super::result::{LabBody, LabResult, RungResult};
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::udp::runs::Runs;
use serde::Deserialize;

/// The results.
#[derive(Debug, Deserialize)]
pub(crate) struct Placements {
    rate_definition: String,
    placement: String,
    sender: String,
    interface: Option<String>,
    notes: Vec<String>,
    rows: Vec<PlacementRow>,
}

/// A placement, measured or skipped.
#[derive(Debug, Deserialize)]
struct PlacementRow {
    /// `same CPU`, `sibling hyper-thread`, `another core`, `another node`.
    place: String,
    article_mpps: [f64; 2],
    queue_cpu: Option<usize>,
    receiver_cpu: Option<usize>,
    #[serde(flatten)]
    runs: Runs,
}

impl EnvelopeBody for Placements {
    const SCHEMA: &'static str = "mpps.placement.v2";
    const COMMAND: &'static str = "mpps placement";

    fn unsound(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.runs.is_unsound())?;
        Some(row.place.clone())
    }
}

impl From<Envelope<Placements>> for LabResult {
    fn from(old: Envelope<Placements>) -> Self {
        let rung = |(row, number): (PlacementRow, &str)| RungResult {
            rung: number.to_owned(),
            name: row.place,
            article_mpps: Some(row.article_mpps),
            queue_cpu: row.queue_cpu,
            receiver_cpu: row.receiver_cpu,
            runs: row.runs,
            ..RungResult::default()
        };
        let rows = old.body.rows.into_iter();
        let body = LabBody {
            rate_definition: old.body.rate_definition,
            placement: old.body.placement,
            delivery: "the placement of each row".to_owned(),
            sender: Some(old.body.sender),
            interface: old.body.interface,
            notes: old.body.notes,
            rungs: rows.zip(["4a", "4b", "4c", "4d"]).map(rung).collect(),
            ..LabBody::default()
        };
        Self {
            schema: LabBody::SCHEMA.to_owned(),
            fingerprint: old.fingerprint,
            command: old.command,
            version: old.version,
            started: old.started,
            quick: old.quick,
            complete: old.complete,
            body,
        }
    }
}
