//! The rates of a run's seconds, as a page draws them.

use mpps_report::{Axis, Block, ChartLine, Curve, Scale};

/// Rates over time, if there are two points; each line has its points in seconds.
pub(crate) fn second_rates(
    unit: &str,
    lines: impl IntoIterator<Item = ChartLine>,
) -> Option<Block> {
    let axis = |name: &str| Axis {
        name: name.to_owned(),
        scale: Scale::Linear,
    };
    let lines = lines.into_iter().filter(|line| line.points.len() > 1);
    let lines: Vec<ChartLine> = lines.collect();
    let curve = (!lines.is_empty()).then(|| Curve {
        title: "Rate of each second".into(),
        x: axis("seconds"),
        y: axis(unit),
        lines,
    });
    curve.map(|curve| Block::on_page([Block::Curves(vec![curve])]))
}
