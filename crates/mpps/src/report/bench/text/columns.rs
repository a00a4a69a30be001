//! The columns of the comparison, and the figures in them.

use crate::bench::result::BenchRow;
use crate::report::bench::{Group, calls, name, per_call, spread, times};
use crate::report::table::{Cell, Paint, row, unbroken};
use crate::report::{mpps, percent};

/// From this many columns on the mode stands beside the figures.
const WIDE: usize = 150;
/// From this many on all figures stand in columns, and the mode below them.
const NORMAL: usize = 100;
/// From this many on the main figures do. On less, a path is a name and a sentence.
const COMPACT: usize = 72;

/// The figures of a row as they are printed; a dash is one that the row does not have.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) name: String,
    received: String,
    spread: Option<String>,
    offered: String,
    times: String,
    app: String,
    napi: String,
    per_call: String,
    calls: String,
}

impl Figures {
    /// Those of a row, measured against its group.
    pub(super) fn of(group: &Group<'_>, result: &BenchRow) -> Self {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let cost = result.cpu_ns_per_packet.as_ref();
        let ns = |figure: Option<f64>| or_dash(figure.map(|ns| format!("{ns:.0}")));
        Self {
            name: name(result),
            received: or_dash(result.mpps_median.map(mpps)),
            spread: spread(result),
            offered: unbroken(&or_dash(result.delivered_ratio.map(percent))),
            times: or_dash(group.times(result).map(times)),
            app: ns(cost.and_then(|cost| cost.app)),
            napi: ns(cost.and_then(|cost| cost.softirq)),
            per_call: or_dash(result.packets_per_call.map(per_call)),
            calls: or_dash(result.calls_per_packet.map(calls)),
        }
    }

    /// What has no column on a narrow terminal.
    pub(super) fn rest(&self) -> String {
        let mut said = String::new();
        if let Some(spread) = &self.spread {
            said.push_str(&format!("repeats {}; ", unbroken(spread)));
        }
        if self.calls != "-" {
            said.push_str(&format!("{} calls per packet; ", unbroken(&self.calls)));
        }
        said
    }

    /// All figures with their names.
    pub(super) fn sentence(&self) -> String {
        let mut parts = vec![
            unbroken(&format!("{} Mpps", self.received)),
            format!("{} of offered", self.offered),
        ];
        let named = [
            (&self.times, " recvmmsg"),
            (&self.app, " ns app"),
            (&self.napi, " ns NAPI"),
            (&self.per_call, " per call"),
            (&self.calls, " calls per packet"),
        ];
        if let Some(spread) = &self.spread {
            parts.insert(1, unbroken(&format!("repeats {spread}")));
        }
        for (figure, what) in named {
            if figure != "-" {
                parts.push(unbroken(&format!("{figure}{what}")));
            }
        }
        parts.join(", ")
    }
}

/// Which columns there are room for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    name: usize,
    /// With the spread and the calls per packet.
    pub(super) all: bool,
    /// Width of the column of words, if there is one.
    pub(super) mode: Option<usize>,
}

impl Columns {
    /// Those that a terminal of this width has room for; none on a narrow one.
    pub(super) fn of(width: usize) -> Option<Self> {
        // One blank, then each column with two blanks before it.
        let main = 1 + (2 + 6) + (2 + 7) + (2 + 8) + (2 + 6) + (2 + 7) + (2 + 7);
        let all = main + (2 + 13) + (2 + 6);
        // `xdp_drop packet untouched *`.
        let name = 27;
        if width >= WIDE {
            return Some(Self {
                name,
                all: true,
                mode: Some(width - all - name - 2),
            });
        }
        let is_normal = width >= NORMAL;
        (width >= COMPACT).then(|| Self {
            name: (width - if is_normal { all } else { main }).min(name),
            all: is_normal,
            mode: None,
        })
    }

    /// The names of the columns.
    pub(super) fn header(&self, colour: bool) -> String {
        let mut cells = self.cells(&Figures {
            name: "path".to_owned(),
            received: "Mpps".to_owned(),
            spread: Some("low-high".to_owned()),
            offered: "of offered".to_owned(),
            times: "against recvmmsg".to_owned(),
            app: "app ns".to_owned(),
            napi: unbroken("NAPI ns"),
            per_call: "packets per call".to_owned(),
            calls: "calls per packet".to_owned(),
        });
        if let Some(width) = self.mode {
            cells.push(Cell::left("mode, and where NAPI ran", width));
        }
        let faint = cells.into_iter().map(|cell| cell.paint(Paint::Faint));
        row(&faint.collect::<Vec<_>>(), colour)
    }

    /// A row without its words.
    pub(super) fn cells(&self, figures: &Figures) -> Vec<Cell> {
        let mut cells = vec![
            Cell::left(&figures.name, self.name),
            Cell::right(&figures.received, 6).paint(Paint::Strong),
            Cell::right(&figures.offered, 7),
            Cell::right(&figures.times, 8),
            Cell::right(&figures.app, 6),
            Cell::right(&figures.napi, 7),
            Cell::right(&figures.per_call, 7),
        ];
        if self.all {
            let spread = figures.spread.as_deref().unwrap_or("-");
            cells.insert(2, Cell::right(spread, 13));
            cells.push(Cell::right(&figures.calls, 6));
        }
        cells
    }
}
