//! The overload curves: goodput against offered load, with the line of an ideal receiver.

use crate::bench::result::{OverloadCurve, OverloadPoint};
use crate::report::bench::{text::multiple, title as name};
use crate::report::html::chart::{Scale, tick_name};
use crate::report::html::ledger::equation;
use crate::report::{mpps, percent};
use maud::{Markup, html};

/// The drawing, in its own units: its whole size, and the frame that the curve lies in.
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 350.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 205.0;

/// A drawing per path, each with its own scale, since the paths' peaks lie far apart.
pub(super) fn curves(curves: &[OverloadCurve]) -> Markup {
    html! {
        p.faint {
            "Queue and application share one CPU. The dashed line is an ideal receiver: it takes everything up \
             to the path's peak, and stays there. Each drawing has its own scale, in Mpps."
        }
        div.curves { @for curve in curves { (drawing(curve)) } }
        h3 { "Points, and their ledgers" }
        @for curve in curves { (points(curve)) }
    }
}

/// From rates to places on the drawing.
#[derive(Debug)]
struct Frame {
    offered: Scale,
    goodput: Scale,
}

impl Frame {
    fn of(curve: &OverloadCurve) -> Self {
        // No receiver gets a million Mpps: such a figure of a foreign file is not drawn.
        let highest = |rate: fn(&OverloadPoint) -> f64, least: f64| {
            let rates = curve.points.iter().map(rate);
            let drawn = rates.filter(|rate| (0.0..1e6).contains(rate));
            drawn.fold(least, f64::max)
        };
        Self {
            offered: Scale::up_to(highest(|point| point.offered_mpps, 0.001)),
            goodput: Scale::up_to(highest(|point| point.goodput_mpps, peak(curve))),
        }
    }

    fn x(&self, rate: f64) -> f64 {
        LEFT + inside(rate / self.offered.end) * (RIGHT - LEFT)
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - inside(rate / self.goodput.end) * (BOTTOM - TOP)
    }

    fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let places = points
            .map(|(offered, goodput)| format!("{:.1},{:.1}", self.x(offered), self.y(goodput)));
        places.collect::<Vec<_>>().join(" ")
    }
}

/// What is no number, or outside, is put at the edge.
fn inside(share: f64) -> f64 {
    if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    }
}

/// The peak, if it is one that can be drawn.
fn peak(curve: &OverloadCurve) -> f64 {
    let peak = curve.peak_mpps;
    if (0.001..1e6).contains(&peak) {
        peak
    } else {
        0.001
    }
}

fn title(curve: &OverloadCurve) -> String {
    name(&curve.path, &curve.variant)
}

fn drawing(curve: &OverloadCurve) -> Markup {
    let frame = Frame::of(curve);
    let peak = peak(curve);
    let ideal = [(0.0, 0.0), (peak, peak), (frame.offered.end, peak)];
    let measured = curve
        .points
        .iter()
        .map(|point| (point.offered_mpps, point.goodput_mpps));
    let said = format!(
        "peak {} Mpps, keeps {} of it at {}x offered",
        mpps(curve.peak_mpps),
        percent(curve.kept),
        curve
            .points
            .last()
            .map_or_else(String::new, |point| multiple(point, curve.peak_mpps))
    );
    html! {
        figure {
            figcaption { b { (title(curve)) } " " span.faint { (said) } }
            svg.curve viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(said) {
                @for tick in frame.goodput.ticks() {
                    line.guide x1=(LEFT) x2=(RIGHT) y1=(frame.y(tick)) y2=(frame.y(tick)) {}
                    text x=(LEFT - 6.0) y=(frame.y(tick) + 4.0) text-anchor="end" { (tick_name(tick)) }
                }
                @for tick in frame.offered.ticks() {
                    line.guide x1=(frame.x(tick)) x2=(frame.x(tick)) y1=(TOP) y2=(BOTTOM) {}
                    text x=(frame.x(tick)) y=(BOTTOM + 18.0) text-anchor="middle" { (tick_name(tick)) }
                }
                text.faint x=(RIGHT) y=(BOTTOM + 36.0) text-anchor="end" { "offered, Mpps" }
                text.faint x=(LEFT - 30.0) y=(TOP - 12.0) { "received, Mpps" }
                polyline.ideal points=(frame.line(ideal.into_iter())) {}
                polyline.goodput points=(frame.line(measured.clone())) {}
                @for (offered, goodput) in measured {
                    circle.goodput cx=(format!("{:.1}", frame.x(offered))) cy=(format!("{:.1}", frame.y(goodput))) r="3.5" {
                        title { (mpps(goodput)) " of " (mpps(offered)) " Mpps" }
                    }
                }
            }
        }
    }
}

/// The figures of a curve, and the ledger of each point folded away.
fn points(curve: &OverloadCurve) -> Markup {
    html! {
        article {
            header { h3 { (title(curve)) } }
            p.faint { (curve.mode) "; NAPI: " (curve.napi) }
            @for note in &curve.notes { p { b { "Note: " } (note) } }
            table.cards {
                thead { tr {
                    th { "Load asked for" } th.number { "Offered Mpps" } th.number { "Of the peak" } th.number { "Received Mpps" } th.number { "Of offered" }
                } }
                tbody { @for point in &curve.points { tr {
                    td { @if point.unpaced { "as fast as it goes" } @else { (point.load) "x" } }
                    td.number data-name="offered" { (mpps(point.offered_mpps)) }
                    td.number data-name="of the peak" { (multiple(point, curve.peak_mpps)) "x" }
                    td.number data-name="received" { (mpps(point.goodput_mpps)) }
                    td.number data-name="of offered" { (percent(point.ledger.delivered_ratio())) }
                } } }
            }
            details {
                summary { "Ledgers of the points" }
                @for point in &curve.points { (equation(&point.ledger)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::bench::tests::fixture;

    #[test]
    fn the_curve_lies_inside_its_frame() {
        for curve in &fixture().overload {
            let frame = Frame::of(curve);
            for point in &curve.points {
                assert!((LEFT..=RIGHT).contains(&frame.x(point.offered_mpps)));
                assert!((TOP..=BOTTOM).contains(&frame.y(point.goodput_mpps)));
            }
            assert_eq!(frame.x(0.0), LEFT);
            assert_eq!(frame.y(f64::NAN), BOTTOM);
        }
    }
}
