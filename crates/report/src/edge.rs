//! The edge of a drawing: from figures to places, and the figures that are written along it.

use crate::{Scale, grouped};

/// Figures from here on do not set the scale. Otherwise one figure of a foreign file could press
/// all others flat.
const HIGHEST: f64 = 1e15;
/// The lowest figure that a logarithmic edge is drawn to.
const LOWEST: f64 = 1e-3;
/// Percentages that an edge of nines names. Each leaves a tenth of what the one before leaves.
const NINES: [f64; 6] = [0.0, 90.0, 99.0, 99.9, 99.99, 99.999];
/// Higher percentages are drawn at the end of an edge of nines.
const LAST_NINE: f64 = 99.9995;

/// An edge with both of its ends.
#[derive(Debug)]
pub(crate) struct Edge {
    scale: Scale,
    /// On a logarithmic edge this is a power of ten, and so is `high`.
    low: f64,
    high: f64,
}

impl Edge {
    /// An edge that fits all of the figures that can be drawn.
    pub(crate) fn of(scale: Scale, figures: impl IntoIterator<Item = f64>) -> Self {
        let figures = figures.into_iter();
        let (low, high) = match scale {
            Scale::Linear => {
                let drawn = figures.filter(|figure| (0.0..HIGHEST).contains(figure));
                let top = drawn.fold(0.0, f64::max);
                // A little beyond the highest figure.
                (0.0, if top > 0.0 { top * 1.03 } else { 1.0 })
            }
            Scale::Logarithmic => {
                let drawn = figures.filter(|figure| (LOWEST..HIGHEST).contains(figure));
                let ends = drawn.fold(None, |ends: Option<(f64, f64)>, figure| {
                    let (low, high) = ends.unwrap_or((figure, figure));
                    Some((low.min(figure), high.max(figure)))
                });
                let (low, high) = ends.unwrap_or((1.0, 1000.0));
                let (low, high) = (low.log10().floor(), high.log10().ceil());
                (low, high.max(low + 1.0))
            }
            Scale::Nines => (0.0, LAST_NINE),
        };
        Self { scale, low, high }
    }

    /// The position of a figure, 0 to 1. A figure outside the edge, or NaN, is put at an end.
    pub(crate) fn share(&self, figure: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => figure / self.high,
            Scale::Logarithmic if figure > 0.0 => {
                (figure.log10() - self.low) / (self.high - self.low)
            }
            Scale::Logarithmic => 0.0,
            Scale::Nines => {
                let rest = |at: f64| (1.0 - at.clamp(0.0, LAST_NINE) / 100.0).log10();
                rest(figure) / rest(LAST_NINE)
            }
        };
        if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 1.0)
        }
    }

    /// True if a figure goes on beyond the end.
    pub(crate) fn is_beyond(&self, figure: f64) -> bool {
        self.scale == Scale::Linear && figure > self.high
    }

    /// The positions of the guide lines, and their names.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let (ticks, digits): (Vec<f64>, usize) = match self.scale {
            Scale::Linear => {
                let rough = self.high / 5.0;
                let ten = 10_f64.powf(rough.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * ten);
                let step = steps.into_iter().find(|step| *step >= rough);
                let step = step.unwrap_or(rough);
                let ticks = (0..=5).map(|number| f64::from(number) * step);
                let digits = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
                (ticks.filter(|tick| *tick <= self.high).collect(), digits)
            }
            Scale::Logarithmic => {
                // There are 18 powers of ten from the lowest to the highest figure.
                let powers = 0..=(self.high - self.low) as u32;
                let ticks = powers.map(|power| 10_f64.powf(self.low + f64::from(power)));
                (ticks.collect(), (-self.low).max(0.0) as usize)
            }
            Scale::Nines => (NINES.to_vec(), 3),
        };
        let name = |tick: f64| match digits {
            0 => grouped(tick.round() as u128),
            _ => trimmed(tick, digits),
        };
        let unit = if self.scale == Scale::Nines {
            "\u{a0}%"
        } else {
            ""
        };
        let named = |tick: f64| (self.share(tick), name(tick) + unit);
        ticks.into_iter().map(named).collect()
    }
}

/// Formats a figure when the number of significant digits is not known.
pub(crate) fn plain(figure: f64) -> String {
    match figure {
        1000.0..HIGHEST => grouped(figure.round() as u128),
        _ => trimmed(figure, 3),
    }
}

/// Formats a figure without zeros at the end of its decimals. Rounding removes errors of the
/// arithmetic.
fn trimmed(figure: f64, digits: usize) -> String {
    let text = format!("{figure:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(scale: Scale, figures: &[f64]) -> Vec<String> {
        let edge = Edge::of(scale, figures.iter().copied());
        edge.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn the_highest_figure_fits_and_fills_the_edge() {
        for top in [1e-9, 0.0013, 0.37, 1.4, 11.84, 148.8, 3e7] {
            let edge = Edge::of(Scale::Linear, [top / 3.0, top]);
            assert!((0.9..1.0).contains(&edge.share(top)), "{top}");
            assert!((2..=6).contains(&edge.ticks().len()), "{:?}", edge.ticks());
            assert!(edge.is_beyond(top * 2.0) && !edge.is_beyond(top));
        }
    }

    #[test]
    fn ticks_have_names_without_rounding_dust() {
        assert_eq!(
            names(Scale::Linear, &[0.9]),
            ["0", "0.2", "0.4", "0.6", "0.8"]
        );
        assert_eq!(names(Scale::Linear, &[9e3])[1], "2\u{a0}000");
        assert_eq!(
            names(Scale::Logarithmic, &[0.04, 70.0]),
            ["0.01", "0.1", "1", "10", "100"]
        );
        assert_eq!(names(Scale::Nines, &[])[3], "99.9\u{a0}%");
    }

    #[test]
    fn each_further_nine_is_one_step() {
        let edge = Edge::of(Scale::Nines, []);
        let [a, b, c] = [90.0, 99.0, 99.9].map(|at| edge.share(at));
        assert!((b - a - (c - b)).abs() < 1e-9 && a > 0.0);
        assert_eq!((edge.share(0.0), edge.share(100.0)), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn any_figure_stays_inside(figures in prop::collection::vec(any::<f64>(), 0..6)) {
            for scale in [Scale::Linear, Scale::Logarithmic, Scale::Nines] {
                let edge = Edge::of(scale, figures.iter().copied());
                let odd = [f64::NAN, f64::INFINITY, -f64::INFINITY, f64::MAX, f64::MIN_POSITIVE];
                for figure in figures.iter().copied().chain(odd) {
                    prop_assert!((0.0..=1.0).contains(&edge.share(figure)));
                }
                prop_assert!((2..=20).contains(&edge.ticks().len()));
                let places: Vec<f64> = edge.ticks().iter().map(|(at, _)| *at).collect();
                prop_assert!(places.is_sorted());
            }
        }
    }
}
