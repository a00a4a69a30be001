//! Charts as inline SVG.

use super::{id, text};
use crate::edge::{Edge, plain};
use crate::{Axis, BarFigures, Bars, ChartBar, ChartLine, Curve, EquationPart, Hue, Scale};
use maud::{Markup, html};
use std::collections::HashSet;

/// Height of a bar chart's row, in CSS pixels.
const HEIGHT: u32 = 26;

/// The bars that have figures.
fn measured(bars: &Bars) -> impl Iterator<Item = &BarFigures> {
    bars.bars.iter().filter_map(|bar| bar.outcome.as_ref().ok())
}

/// The scale of all bars of a chart.
pub(super) fn edge_of(bars: &Bars) -> Edge {
    let highest = |one: &BarFigures| {
        let ends = [one.spread, one.range].into_iter().flatten();
        ends.flatten().chain([total(one)]).collect::<Vec<_>>()
    };
    let figures: Vec<f64> = match bars.break_at {
        Some(end) => vec![end],
        None => measured(bars).flat_map(highest).collect(),
    };
    Edge::of(Scale::Linear, figures)
}

/// The bars of a chart, all on one scale.
pub(super) fn bars(bars: &Bars) -> Markup {
    let figures = || measured(bars);
    let edge = edge_of(bars);
    let (measured, skipped): (Vec<_>, Vec<_>) =
        bars.bars.iter().partition(|one| one.outcome.is_ok());
    html! {
        p.key {
            @for (hue, meaning) in &bars.key { (key(html! { rect class=(class(*hue)) width="100%" height="100%" {} }, meaning)) }
            @if figures().any(|one| one.spread.is_some()) {
                (key(whisker([10.0, 90.0], [2, 7, 12]), "lowest to highest repeat"))
            }
            @if let Some(range) = &bars.range { (key(html! { rect.range width="100%" y="4" height="6" {} }, range)) }
            @if figures().any(|one| edge.is_beyond(total(one))) {
                (key(html! { rect.main width="100%" height="100%" {} path.break d="M12 15L16 -1M18 15L22 -1" {} }, "goes on beyond the scale"))
            }
        }
        ul.bars {
            @for one in measured { (bar(one, &edge, bars)) }
            li.scale aria-hidden="true" {
                span {}
                svg height="18" {
                    @for (at, name) in edge.ticks() {
                        text x=(per_cent(at)) y="14" text-anchor=(if at == 0.0 { "start" } else { "middle" }) { (name) }
                    }
                }
                span { (bars.unit) }
            }
        }
        @if !skipped.is_empty() {
            details {
                summary { (skipped.len()) " skipped" }
                ul.bars { @for one in skipped { (bar(one, &edge, bars)) } }
            }
        }
    }
}

/// The key to one colour or mark of a chart.
fn key(drawing: Markup, meaning: &str) -> Markup {
    html! { span { svg height="14" aria-hidden="true" { (drawing) } (meaning) } }
}

fn bar(bar: &ChartBar, edge: &Edge, bars: &Bars) -> Markup {
    html! {
        li {
            @match id(&bar.link) {
                Some(link) => a.name href={ "#" (link) } { (text(&bar.name)) },
                None => span.name { (text(&bar.name)) },
            }
            @match &bar.outcome {
                Err(why) => span.skipped.faint { (why) },
                Ok(one) => {
                    (drawn(one, edge, bars))
                    span.figure.number {
                        b { (one.figure) }
                        @if !one.beside.is_empty() { span.faint { (one.beside) } }
                    }
                },
            }
        }
    }
}

pub(super) fn drawn(one: &BarFigures, edge: &Edge, bars: &Bars) -> Markup {
    let mut said = one.figure.clone();
    for (name, ends) in [
        (Some("repeats"), one.spread),
        (bars.range.as_deref(), one.range),
    ] {
        let ends = ends.filter(|ends| ends.iter().all(|end| end.is_finite()));
        if let (Some(name), Some([low, high])) = (name, ends) {
            said.push_str(&format!(", {name} {} to {}", plain(low), plain(high)));
        }
    }
    let mut from = 0.0;
    let places = one
        .parts
        .iter()
        .filter(|(_, length)| *length > 0.0)
        .map(|(hue, length)| {
            let start = edge.share(from);
            from += length;
            (class(*hue), start, edge.share(from) - start)
        });
    let places: Vec<_> = places.collect();
    html! {
        svg height=(HEIGHT) role="img" aria-label=(said) {
            title { (said) }
            @for (at, _) in edge.ticks() { line.guide x1=(per_cent(at)) x2=(per_cent(at)) y1="0" y2=(HEIGHT) {} }
            @for (class, start, length) in places {
                rect class=(class) x=(per_cent(start)) y="9" width=(per_cent(length)) height="15" {}
            }
            @if edge.is_beyond(total(one)) {
                // Two strokes through the end of a bar that goes on beyond the scale.
                svg x="93%" width="14" { path.break d="M0 25L5 8M6 25L11 8" {} }
            }
            @if let Some([low, high]) = one.range.filter(|range| range.iter().all(|end| end.is_finite())) {
                // A single figure is a mark three pixels wide, because a range of no width is
                // invisible.
                rect.range x=(per_cent(edge.share(low))) y="1" width=(per_cent(edge.share(high) - edge.share(low))) height="6" {}
                rect.range x=(per_cent(edge.share(low))) y="1" width="3" height="6" {}
            }
            @if let Some([low, high]) = one.spread.filter(|[low, high]| low <= high && !edge.is_beyond(*high)) {
                (whisker([low, high].map(|end| edge.share(end) * 100.0), [12, 17, 21]))
            }
        }
    }
}

/// A line from one per cent of the width to another, with its height at both ends and between.
fn whisker([low, high]: [f64; 2], [top, middle, bottom]: [u32; 3]) -> Markup {
    html! {
        @for [x1, x2, y1, y2] in [[low, high, middle.into(), middle.into()], [low, low, top.into(), bottom.into()], [high, high, top.into(), bottom.into()]] {
            line.whisker x1=(per_cent(x1 / 100.0)) x2=(per_cent(x2 / 100.0)) y1=(y1) y2=(y2) {}
        }
    }
}

/// The length of all parts that can be drawn.
fn total(one: &BarFigures) -> f64 {
    let parts = one.parts.iter().map(|(_, length)| *length);
    parts.filter(|length| *length > 0.0).sum()
}

pub(super) fn class(hue: Hue) -> &'static str {
    match hue {
        Hue::Main => "main",
        Hue::Reference => "reference",
        Hue::Second => "second",
        Hue::Ideal => "ideal",
        Hue::Lost(class) => class,
    }
}

/// A length inside a chart.
pub(super) fn per_cent(share: f64) -> String {
    let inside = if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    };
    format!("{:.2}%", inside * 100.0)
}

/// The bar in a cell of a table, in thousandths.
pub(super) fn part(full: u16, missing: u16) -> Markup {
    let [full, all] = [full, full.saturating_add(missing)].map(|part| f64::from(part) / 1000.0);
    html! {
        svg.part height="12" aria-hidden="true" {
            rect.missing width=(per_cent(all)) height="100%" {}
            rect.main width=(per_cent(full)) height="100%" {}
        }
    }
}

/// Where everything went, as one bar.
pub(super) fn stack(parts: &[EquationPart]) -> Markup {
    let size = |part: &EquationPart| part.count.unsigned_abs() as f64;
    let whole = parts.iter().map(size).sum::<f64>().max(1.0);
    let mut from = 0.0;
    let mut placed = Vec::new();
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.count != 0) {
        let width = size(part) / whole;
        placed.push((at + 1, part.class, from, width));
        from += width;
    }
    html! {
        svg.stack height="28" aria-hidden="true" {
            @for (number, class, from, width) in placed {
                rect class=(class) x=(per_cent(from)) y="0" width=(per_cent(width)) height="28" {}
                @if width > 0.05 { text x=(per_cent(from + width / 2.0)) y="14" { (number) } }
            }
        }
    }
}

/// The frame that a curve lies in, in units of its drawing.
struct ChartFrame {
    size: [f64; 2],
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    x: Edge,
    y: Edge,
}

impl ChartFrame {
    /// On a narrow page the style sheet enlarges the words of a single drawing. They need more
    /// room.
    fn of(curve: &Curve, alone: bool) -> Self {
        let (size, [left, top, below]) = match alone {
            true => ([720.0, 350.0], [88.0, 40.0, 68.0]),
            false => ([360.0, 250.0], [60.0, 26.0, 45.0]),
        };
        let points = || curve.lines.iter().flat_map(drawable);
        let edge = |axis: &Axis, figures: Vec<f64>| Edge::of(axis.scale, figures);
        Self {
            size,
            left,
            top,
            right: size[0] - 16.0,
            bottom: size[1] - below,
            x: edge(&curve.x, points().map(|(x, _)| x).collect()),
            y: edge(&curve.y, points().map(|(_, y)| y).collect()),
        }
    }

    fn at(&self, x: f64, y: f64) -> [String; 2] {
        let x = self.left + x * (self.right - self.left);
        let y = self.bottom - y * (self.bottom - self.top);
        [x, y].map(|place| format!("{place:.1}"))
    }

    fn point(&self, (x, y): (f64, f64)) -> [String; 2] {
        self.at(self.x.share(x), self.y.share(y))
    }
}

/// The points of a line that are numbers.
fn drawable(line: &ChartLine) -> impl Iterator<Item = (f64, f64)> {
    let points = line.points.iter().copied();
    points.filter(|(x, y)| x.is_finite() && y.is_finite())
}

/// Drawings side by side. A single one is as wide as the page.
pub(super) fn curves(curves: &[Curve]) -> Markup {
    let mut known = HashSet::new();
    let lines = curves.iter().flat_map(|curve| &curve.lines);
    let lines = lines.map(|line| (line.hue, &*line.name));
    let lines = lines.filter(|line| known.insert(*line));
    let alone = curves.len() == 1;
    html! {
        p.key { @for (hue, name) in lines {
            (key(html! { polyline class=(class(hue)) points="0,7 32,7" {} }, name))
        } }
        div.curves.alone[alone] { @for curve in curves { (drawing(curve, &ChartFrame::of(curve, alone))) } }
    }
}

fn drawing(curve: &Curve, frame: &ChartFrame) -> Markup {
    let [width, height] = frame.size;
    let said = format!(
        "{}: {} against {}",
        curve.title.words(),
        curve.y.name,
        curve.x.name
    );
    html! {
        figure {
            figcaption { (text(&curve.title)) }
            svg.curve viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(said) {
                @for (share, name) in frame.y.ticks() {
                    @let [left, y] = frame.at(0.0, share);
                    @let [right, _] = frame.at(1.0, share);
                    line.guide x1=(left) x2=(right) y1=(y) y2=(y) {}
                    text x=(frame.left - 6.0) y=(y) dy=".3em" text-anchor="end" { (name) }
                }
                @for (share, name) in frame.x.ticks() {
                    @let [x, bottom] = frame.at(share, 0.0);
                    @let [_, top] = frame.at(share, 1.0);
                    line.guide x1=(x) x2=(x) y1=(top) y2=(bottom) {}
                    text x=(x) y=(bottom) dy="1.4em" text-anchor="middle" { (name) }
                }
                text.faint x=(frame.right) y=(height - 8.0) text-anchor="end" { (curve.x.name) }
                text.faint x="4" y="0" dy="1em" { (curve.y.name) }
                @for line in &curve.lines { (drawn_line(line, curve, frame)) }
            }
        }
    }
}

fn drawn_line(line: &ChartLine, curve: &Curve, frame: &ChartFrame) -> Markup {
    let class = class(line.hue);
    let places = drawable(line).map(|point| frame.point(point).join(","));
    let places: Vec<String> = places.collect();
    let is_marked = line.hue != Hue::Ideal && curve.x.scale == Scale::Linear;
    html! {
        polyline class=(class) points=(places.join(" ")) {}
        @if is_marked {
            @for point in drawable(line) {
                @let [x, y] = frame.point(point);
                circle class=(class) cx=(x) cy=(y) r="3.5" {
                    title { (curve.y.name) " " (plain(point.1)) ", " (curve.x.name) " " (plain(point.0)) }
                }
            }
        }
    }
}
