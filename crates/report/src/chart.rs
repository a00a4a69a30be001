//! Charts: bars with their spread and a reference beside them, and curves.

use crate::Text;

/// The colour of a bar or a line, by what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hue {
    /// What the chart is about.
    Main,
    /// What the others are measured against.
    Reference,
    /// What is stacked behind the first.
    Second,
    /// What would be ideal: a dashed line.
    Ideal,
}

/// A bar for each thing measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// The unit of the figures.
    pub unit: String,
    /// What the colours stand for.
    pub key: Vec<(Hue, String)>,
    /// What the range beside a bar stands for, if a bar has one.
    pub range: Option<String>,
    /// The figure at which bars are broken off; absent if all are drawn to their end.
    pub break_at: Option<f64>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

/// A bar, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What was measured.
    pub name: Text,
    /// The anchor of the section that tells more; empty if none does.
    pub link: String,
    /// The figures, or why there are none.
    pub outcome: Result<Measured, String>,
}

/// The figures of a bar. What is no number is not drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Lengths and their colours, each behind the one before.
    pub parts: Vec<(Hue, f64)>,
    /// The lowest and the highest repeat.
    pub spread: Option<[f64; 2]>,
    /// The lowest and the highest figure of a reference.
    pub range: Option<[f64; 2]>,
    /// The figure as it is read.
    pub figure: String,
    /// What stands below the figure; empty if nothing does.
    pub beside: String,
}

/// A drawing of one thing against another.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What it shows.
    pub title: Text,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

/// An edge of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What is measured along it, with its unit.
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
pub struct Line {
    /// What it stands for.
    pub name: String,
    /// Its colour.
    pub hue: Hue,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}
