//! Charts: bars with their spread and a reference beside them, and curves.

use crate::Text;

/// The colour of a bar or a line, by what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hue {
    /// The subject of the chart.
    Main,
    /// The reference that the others are compared with.
    Reference,
    /// A part stacked behind the first.
    Second,
    /// A part that was lost, with the class of its colour in the style sheet.
    Lost(&'static str),
    /// The ideal, as a dashed line.
    Ideal,
}

/// A bar for each thing measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bars {
    /// The unit of the figures.
    pub unit: String,
    /// The meaning of each colour.
    pub key: Vec<(Hue, String)>,
    /// The meaning of the range beside a bar, if a bar has one.
    pub range: Option<String>,
    /// Bars are broken off at this figure. None draws all of them to their end.
    pub break_at: Option<f64>,
    /// The bars, from the top.
    pub bars: Vec<ChartBar>,
}

/// A bar, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartBar {
    /// The name of the thing measured.
    pub name: Text,
    /// The anchor of the section with the details; empty if there is none.
    pub link: String,
    /// The figures, or why there are none.
    pub outcome: Result<BarFigures, String>,
}

/// The figures of a bar. NaN and infinity are not drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BarFigures {
    /// Lengths and their colours, each behind the one before.
    pub parts: Vec<(Hue, f64)>,
    /// The lowest and the highest repeat.
    pub spread: Option<[f64; 2]>,
    /// The lowest and the highest figure of a reference.
    pub range: Option<[f64; 2]>,
    /// The figure as it is read.
    pub figure: String,
    /// Text below the figure; empty if there is none.
    pub beside: String,
}

/// A drawing of one thing against another.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The title.
    pub title: Text,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<ChartLine>,
}

/// An edge of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The quantity along the axis, with its unit.
    pub name: String,
    /// How figures become places.
    pub scale: Scale,
}

/// How figures become places on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// In proportion, from zero to the highest.
    Linear,
    /// By powers of ten, from the lowest to the highest.
    Logarithmic,
    /// Per cent, where each further nine is one step: 0, 90, 99, 99.9 and so on.
    Nines,
}

/// A line of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct ChartLine {
    /// The name, as the key shows it.
    pub name: String,
    /// Its colour.
    pub hue: Hue,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}
