//! The figures of an experiment against the size of the body: a column, or a point, for each.

use super::{CellGroup, Show, cps, cpu, named, rate, us};
use crate::experiment::connections::result::{TcpFigures, body};
use crate::measure::document::firsts;
use mpps_report::{Axis, Block, ChartLine, Column, Curve, Hue, Row, Scale, Table};

/// The figures of each server that have a table of their own, with a column for each size of body.
const BY_BODY: [(&str, Show); 3] = [
    ("connections per second", |own, _| rate(own.cps_median)),
    ("server CPU per connection, µs", |own, _| us(cpu(own))),
    ("throughput of bodies, Mbit/s", |own, _| {
        rate(own.throughput_mbit_median)
    }),
];

/// The figures of [`BY_BODY`], a column for each body.
pub(super) fn tables(groups: &[&CellGroup<'_>]) -> Vec<Block> {
    let cells = groups.iter().map(|group| {
        let cells = group.measured();
        firsts(cells.map(|(cell, figures, base)| ((figures, base), named(cell))))
    });
    let bodies: Vec<_> = cells.collect();
    let blocks = BY_BODY.into_iter().flat_map(|(what, show)| {
        let columns = groups
            .iter()
            .zip(1..)
            .map(|(group, priority)| Column::figure(body(group.body_bytes), 7).priority(priority));
        let first = Column::words("server, step", 16).grow(10);
        let rows = groups[0].measured().map(|(cell, ..)| {
            let shown = bodies.iter().map(|cells| match cells.get(&named(cell)) {
                Some((figures, base)) => show(figures, *base),
                None => "-".to_owned(),
            });
            let name = [named(cell).join(" ")].into_iter();
            Row::new(name.chain(shown).map(Into::into))
        });
        [
            Block::heading(format!(
                "Experiment {}, by body: {what}",
                groups[0].experiment
            )),
            Table::new([first].into_iter().chain(columns))
                .rows(rows)
                .into(),
        ]
    });
    blocks.collect()
}

/// A figure that is drawn for each server: its name, and where it comes from.
type Drawn = (&'static str, fn(&TcpFigures) -> f64);

/// Connections and throughput of each server, with all of its steps and with none: the paper's figures
/// of its third experiment.
pub(super) fn curves(groups: &[&CellGroup<'_>], link_rate_bits: Option<u64>) -> Block {
    let figures: [Drawn; 2] = [
        ("connections per second", cps),
        ("Mbit/s of bodies", |figures| figures.throughput_mbit_median),
    ];
    let servers = groups[0].servers.iter();
    let servers = servers.filter(|(_, cells)| cells.iter().any(|cell| cell.figures.is_some()));
    let drawn = servers.flat_map(|(name, cells)| {
        let with = cells.iter().filter(|cell| cell.figures.is_some());
        let steps: Vec<&str> = with.map(|cell| &*cell.step).collect();
        let last = steps.get(1..).and_then(<[_]>::last);
        let ends = [steps.first(), last];
        figures.map(|(unit, of)| {
            let lines = ends.into_iter().zip([Hue::Reference, Hue::Main]);
            let mut lines: Vec<ChartLine> = lines
                .filter_map(|(step, hue)| Some((step?, hue)))
                .map(|(step, hue)| line(groups, [name, *step], hue, of))
                .collect();
            if let (Some(bits), true) = (link_rate_bits, unit.starts_with("Mbit")) {
                let mbit = bits as f64 / 1e6;
                let bodies = groups.iter().map(|group| (kibibytes(group), mbit));
                lines.push(ChartLine {
                    name: "the link".to_owned(),
                    hue: Hue::Ideal,
                    points: bodies.collect(),
                });
            }
            Curve {
                title: format!("{name}: {unit}").into(),
                x: axis("body, KiB", Scale::Logarithmic),
                y: axis(unit, Scale::Linear),
                lines,
            }
        })
    });
    Block::Curves(drawn.collect())
}

fn axis(name: &str, scale: Scale) -> Axis {
    let name = name.to_owned();
    Axis { name, scale }
}

fn kibibytes(group: &CellGroup<'_>) -> f64 {
    group.body_bytes as f64 / 1024.0
}

/// A figure of one server in one step, for each body that was measured.
fn line(
    groups: &[&CellGroup<'_>],
    name: [&str; 2],
    hue: Hue,
    of: fn(&TcpFigures) -> f64,
) -> ChartLine {
    let points = groups.iter().filter_map(|group| {
        let mut cells = group.measured();
        let (_, figures, _) = cells.find(|(cell, ..)| named(cell) == name)?;
        Some((kibibytes(group), of(figures)))
    });
    ChartLine {
        name: name[1].to_owned(),
        hue,
        points: points.collect(),
    }
}
