//! The bar charts: inline SVG whose lengths are per cent of the width.

use crate::report::{Shares, article, extremes, mpps};
use crate::result::RungResult;
use maud::{Markup, html};
use mpps_host::Station;

/// Height of a bar chart's row, in CSS pixels.
pub(in crate::report) const HEIGHT: u32 = 26;

/// The ladder: a bar per rung, the article's range above it, the spread of the samples on it.
pub(super) fn ladder(rungs: &[RungResult]) -> Markup {
    let scale = Scale::of(rungs);
    html! {
        p.key {
            (bar_key("bar", "received, median"))
            (whisker_key())
            span { svg height="14" aria-hidden="true" { rect.range width="100%" y="4" height="6" {} } "article, 2015" }
            @if rungs.iter().any(|rung| rung.mpps_median > Some(scale.end)) {
                (break_key())
            }
        }
        ul.ladder {
            @for rung in rungs {
                li {
                    a.name href={ "#rung-" (rung.rung) } { b { (rung.rung) } " " (rung.name) }
                    @if let Some(reason) = &rung.skipped {
                        span.skipped.faint { "skipped: " (reason) }
                    } @else {
                        (bar(rung, &scale))
                        span.figure.number {
                            b { (rung.mpps_median.map_or("-".to_owned(), mpps)) " Mpps" }
                            @if let Some(range) = rung.article_mpps { span.faint { "2015: " (article(range)) } }
                        }
                    }
                }
            }
            (axis(&scale, "Mpps"))
        }
    }
}

/// The key to bars of one style class.
pub(in crate::report) fn bar_key(class: &str, meaning: &str) -> Markup {
    html! {
        span { svg height="14" aria-hidden="true" { rect class=(class) width="100%" height="100%" {} } (meaning) }
    }
}

/// The key to whiskers.
pub(in crate::report) fn whisker_key() -> Markup {
    html! {
        span {
            svg height="14" aria-hidden="true" {
                line.whisker x1="10%" x2="90%" y1="50%" y2="50%" {}
                line.whisker x1="10%" x2="10%" y1="20%" y2="80%" {}
                line.whisker x1="90%" x2="90%" y1="20%" y2="80%" {}
            }
            "lowest to highest repeat"
        }
    }
}

/// The key to bars that are broken off.
pub(in crate::report) fn break_key() -> Markup {
    html! {
        span {
            svg height="14" aria-hidden="true" {
                rect.bar width="100%" height="100%" {}
                path.break d="M12 15L16 -1M18 15L22 -1" {}
            }
            "goes on beyond the scale"
        }
    }
}

/// The last row of a list of bars: the figures of its guide lines, and their unit.
pub(in crate::report) fn axis(scale: &Scale, unit: &str) -> Markup {
    html! {
        li.scale aria-hidden="true" {
            span {}
            svg height="18" {
                @for (number, tick) in scale.ticks().into_iter().enumerate() {
                    text x=(scale.at(tick)) y="14" text-anchor=(if number == 0 { "start" } else { "middle" }) {
                        (tick_name(tick))
                    }
                }
            }
            span { (unit) }
        }
    }
}

/// Where a bar chart's guide lines are.
pub(in crate::report) fn guides(scale: &Scale) -> Markup {
    html! {
        @for tick in scale.ticks() {
            line.guide x1=(scale.at(tick)) x2=(scale.at(tick)) y1="0" y2=(HEIGHT) {}
        }
    }
}

/// Two strokes through the end of a bar that goes on beyond the scale.
pub(in crate::report) fn broken() -> Markup {
    html! { svg x="93%" width="14" { path.break d="M0 25L5 8M6 25L11 8" {} } }
}

/// The spread of the samples, unless it lies beyond the scale.
pub(in crate::report) fn whisker([low, high]: [f64; 2], scale: &Scale) -> Markup {
    html! {
        @if low <= high && high <= scale.end {
            line.whisker x1=(scale.at(low)) x2=(scale.at(high)) y1="16.5" y2="16.5" {}
            line.whisker x1=(scale.at(low)) x2=(scale.at(low)) y1="12" y2="21" {}
            line.whisker x1=(scale.at(high)) x2=(scale.at(high)) y1="12" y2="21" {}
        }
    }
}

fn bar(rung: &RungResult, scale: &Scale) -> Markup {
    let extremes = extremes(&rung.mpps_samples);
    let mut said = format!(
        "{} Mpps",
        rung.mpps_median.map_or("unknown".to_owned(), mpps)
    );
    if let Some([low, high]) = extremes {
        said.push_str(&format!(", repeats {} to {}", mpps(low), mpps(high)));
    }
    if let Some(range) = rung.article_mpps {
        said.push_str(&format!(", article {}", article(range)));
    }
    html! {
        svg height=(HEIGHT) role="img" aria-label=(said) {
            title { (said) }
            (guides(scale))
            @if let Some(median) = rung.mpps_median {
                rect.bar x="0" y="9" width=(scale.at(median)) height="15" {}
                @if median > scale.end { (broken()) }
            }
            @if let Some([from, to]) = rung.article_mpps {
                // A single figure is a mark three pixels wide, and no range of no width.
                rect.range x=(scale.at(from)) y="1" width=(scale.length(from, to)) height="6" {}
                rect.range x=(scale.at(from)) y="1" width="3" height="6" {}
            }
            @if let Some(extremes) = extremes { (whisker(extremes, scale)) }
        }
    }
}

/// Where everything that was offered went, as one bar; the numbers are those of the table below it.
pub(super) fn stack(shares: &Shares) -> Markup {
    let mut parts: Vec<(&str, u128)> = vec![("delivered", shares.delivered)];
    parts.extend(
        shares
            .losses
            .iter()
            .map(|loss| (station_class(loss.station), loss.count)),
    );
    parts.push(("queued", shares.queued));
    parts.push(("unaccounted", shares.unaccounted.unsigned_abs()));
    let whole = parts
        .iter()
        .map(|(_, count)| *count as f64)
        .sum::<f64>()
        .max(1.0);
    let mut from = 0.0;
    let mut placed = Vec::new();
    for (number, (class, count)) in parts.into_iter().enumerate() {
        let width = count as f64 / whole * 100.0;
        if count > 0 {
            placed.push((number + 1, class, from, width));
        }
        from += width;
    }
    html! {
        svg.stack height="28" aria-hidden="true" {
            @for (number, class, from, width) in placed {
                rect class=(class) x=(per_cent(from)) y="0" width=(per_cent(width)) height="28" {}
                @if width > 5.0 { text x=(per_cent(from + width / 2.0)) y="14" { (number) } }
            }
        }
    }
}

/// The style class of a station's colour.
pub(super) fn station_class(station: Station) -> &'static str {
    match station {
        Station::Sender => "sender",
        Station::Wire => "wire",
        Station::Backlog => "backlog",
        Station::Ip => "ip",
        Station::Udp => "udp",
        Station::Socket | Station::Ring => "socket",
        Station::Application => "application",
    }
}

/// From a figure to a place on the chart.
#[derive(Debug)]
pub(in crate::report) struct Scale {
    /// The figure at the right edge.
    pub(in crate::report) end: f64,
    /// What lies between two guide lines.
    step: f64,
}

impl Scale {
    /// Ends at the highest rate of the rungs that the article has, or up to twice as far. A rung far
    /// above them, such as one of segmented trains, would press all others against the left edge: its
    /// bar is broken off instead.
    fn of(rungs: &[RungResult]) -> Self {
        let rates = |rung: &RungResult| {
            let samples = rung.mpps_samples.iter().copied();
            let rates = samples
                .chain(rung.mpps_median)
                .chain(rung.article_mpps.map(|[_, high]| high));
            // No receiver gets a million Mpps: such a figure of a foreign file is not drawn.
            rates
                .filter(|rate| (0.0..1e6).contains(rate))
                .fold(0.0, f64::max)
        };
        let article = rungs
            .iter()
            .filter(|rung| rung.article_mpps.is_some() && rung.skipped.is_none());
        let story = article.map(rates).fold(0.0, f64::max);
        let near = |rate: &f64| story == 0.0 || *rate <= story * 2.0;
        Self::up_to(rungs.iter().map(rates).filter(near).fold(0.001, f64::max))
    }

    /// Ends a little beyond the highest figure.
    pub(in crate::report) fn up_to(top: f64) -> Self {
        let end = top * 1.03;
        let rough = end / 5.0;
        let ten = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|digit| digit * ten)
            .find(|step| *step >= rough)
            .unwrap_or(ten * 10.0);
        Self { end, step }
    }

    pub(in crate::report) fn ticks(&self) -> Vec<f64> {
        (0..=5)
            .map(|number| f64::from(number) * self.step)
            .filter(|tick| *tick <= self.end)
            .collect()
    }

    pub(in crate::report) fn at(&self, rate: f64) -> String {
        per_cent(rate / self.end * 100.0)
    }

    pub(in crate::report) fn length(&self, from: f64, to: f64) -> String {
        per_cent((to - from) / self.end * 100.0)
    }
}

/// A length inside the chart; what is no number, or outside, is put at the edge.
fn per_cent(value: f64) -> String {
    let inside = if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, 100.0)
    };
    format!("{inside:.2}%")
}

pub(in crate::report) fn tick_name(rate: f64) -> String {
    // Rust prints the shortest digits that give the number back; multiplying made 0.6000000000000001.
    let text = format!("{rate:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rung_far_above_the_article_does_not_set_the_scale() {
        let mut old = rung(0.7);
        old.article_mpps = Some([1.4, 1.4]);
        let scale = |new: f64| Scale::of(&[old.clone(), rung(new)]).end;
        assert!((1.4..1.5).contains(&scale(30.0)));
        assert!((2.4..2.5).contains(&scale(2.4)));
        assert_eq!(scale(30.0), Scale::of(&[old.clone()]).end);
    }

    fn rung(rate: f64) -> RungResult {
        RungResult {
            mpps_median: Some(rate),
            ..RungResult::default()
        }
    }

    #[test]
    fn the_highest_rate_fits_and_fills_the_scale() {
        for top in [0.0013, 0.37, 1.4, 11.84, 148.8] {
            let scale = Scale::of(&[rung(top / 3.0), rung(top)]);
            assert!(
                top < scale.end && top > scale.end * 0.9,
                "{top} of {}",
                scale.end
            );
            assert!(
                (2..=6).contains(&scale.ticks().len()),
                "{:?}",
                scale.ticks()
            );
        }
    }

    #[test]
    fn tick_names_have_no_rounding_dust() {
        assert_eq!(tick_name(3.0 * 0.2), "0.6");
        assert_eq!(tick_name(10.0), "10");
        assert_eq!(tick_name(0.0), "0");
    }

    #[test]
    fn lengths_stay_inside_the_chart() {
        assert_eq!(per_cent(f64::NAN), "0.00%");
        assert_eq!(per_cent(-3.0), "0.00%");
        assert_eq!(per_cent(f64::INFINITY), "100.00%");
    }
}
