//! The counters of a card's queues, compared with the prediction.

use super::flows::Flows;
use mpps_host::QueuePackets;
use mpps_report::{Column, Row, Style, Table, Text, grouped};
use schemars::JsonSchema;
use serde::Serialize;

/// Above this share of packets that are no flow's, counters say nothing of a prediction.
const UNKNOWN: f64 = 0.05;

/// The counters of the card's queues, compared with the prediction.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Verified {
    /// Each queue that has a counter.
    queues: Vec<VerifiedQueue>,
    /// Packets that were seen and are of no flow in question: they come by some queue, too.
    others: u64,
    /// Packets that the tap lost before they were seen.
    dropped: u64,
    /// Packets that the counters have besides: they came before the tap opened, or after it was emptied.
    unseen: u64,
    /// Flows that were named and did not come; absent where none were named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) missing: Option<u64>,
    /// True where no queue got fewer packets than were predicted for it, and nearly all were seen.
    agrees: bool,
}

/// A queue by both.
#[derive(Debug, Serialize, JsonSchema)]
struct VerifiedQueue {
    /// The queue.
    queue: u32,
    /// Packets of the flows seen that lead there.
    predicted: u64,
    /// Packets by the counter.
    counted: u64,
    /// The driver's name of the counter.
    counter: String,
}

impl Verified {
    /// Holds the packets that were predicted for each queue to what the driver counted.
    pub(super) fn of(predicted: impl Iterator<Item = (u32, u64)>, flows: &Flows) -> Self {
        let counter = |queue: u32| -> Option<&QueuePackets> {
            flows
                .queues
                .iter()
                .find(|counted| counted.queue == queue as usize)
        };
        let queues = predicted.filter_map(|(queue, predicted)| {
            let counted = counter(queue)?;
            Some(VerifiedQueue {
                queue,
                predicted,
                counted: u64::try_from(counted.packets).unwrap_or(0),
                counter: counted.counter.clone(),
            })
        });
        let queues: Vec<VerifiedQueue> = queues.collect();
        let sum = |of: fn(&VerifiedQueue) -> u64| -> u64 { queues.iter().map(of).sum() };
        let (counted, predicted) = (sum(|one| one.counted), sum(|one| one.predicted));
        let is_less = queues.iter().any(|one| one.counted < one.predicted);
        let unknown = counted.saturating_sub(predicted);
        Self {
            agrees: predicted > 0 && !is_less && unknown as f64 <= counted as f64 * UNKNOWN,
            missing: flows.missing,
            others: flows.others.sum(),
            dropped: flows.dropped,
            unseen: unknown.saturating_sub(flows.others.sum() + flows.dropped),
            queues,
        }
    }

    /// True where the card did as predicted with all that was named.
    pub(super) fn is_whole(&self) -> bool {
        self.agrees && self.missing.is_none_or(|missing| missing == 0)
    }

    pub(super) fn table(&self) -> Table {
        let columns = [
            Column::figure("queue", 5),
            Column::figure("predicted", 9),
            Column::figure("counted", 9),
            Column::words("counter", 12).grow(60),
        ];
        let rows = self.queues.iter().map(|one| {
            Row::new([
                one.queue.to_string().into(),
                grouped(one.predicted.into()).into(),
                grouped(one.counted.into()).into(),
                one.counter.clone().into(),
            ])
        });
        Table::new(columns).rows(rows)
    }

    pub(super) fn sentence(&self) -> Text {
        let named = match self.missing {
            Some(0) => "all named flows came; ".to_owned(),
            Some(missing) => format!("{} named flows did not come; ", grouped(missing.into())),
            None => String::new(),
        };
        let rest = format!(
            "{named}{} packets were of no such flow, {} were lost by the tap, and {} came before or after it",
            grouped(self.others.into()),
            grouped(self.dropped.into()),
            grouped(self.unseen.into())
        );
        let is_less = self.queues.iter().any(|one| one.counted < one.predicted);
        let said = match (self.agrees, self.queues.is_empty(), is_less) {
            (true, ..) => format!("the card did as predicted; {rest}"),
            (_, true, _) => {
                "the driver counts no packets by queue: nothing was verified".to_owned()
            }
            (.., true) => {
                format!("the card did not do as predicted: another key, table or fields; {rest}")
            }
            _ => format!("too much is of no flow to say whether the card did as predicted: {rest}"),
        };
        let style = match self.is_whole() {
            true => Style::Good,
            false => Style::Bad,
        };
        Text::styled(style, said)
    }
}
