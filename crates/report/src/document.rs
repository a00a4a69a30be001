//! The contents of a report, in order.

use crate::{Bars, Curve, Equation, Shares, Table, Text};

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The title of the page.
    pub title: String,
    /// The program that measured, and its version.
    pub generator: String,
    /// The contents.
    pub blocks: Vec<Block>,
}

impl Document {
    /// A report of these blocks.
    pub fn new(
        title: impl Into<String>,
        generator: impl Into<String>,
        blocks: impl IntoIterator<Item = Block>,
    ) -> Self {
        Self {
            title: title.into(),
            generator: generator.into(),
            blocks: blocks.into_iter().collect(),
        }
    }
}

/// A piece of a report. A medium leaves out the kinds of block that it cannot show. A terminal and
/// Markdown leave out [`Block::Bars`], [`Block::Curves`], [`Block::Shares`] and [`Block::Details`].
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A heading of a part of the report. An empty line stands before it.
    Heading(Text),
    /// A paragraph. In a terminal its lines but the first are indented.
    Paragraph(Text),
    /// The most important results, one sentence each.
    Sentences(Vec<Text>),
    /// A table.
    Table(Table),
    /// A bar for each thing measured.
    Bars(Bars),
    /// Drawings of one thing against another, side by side where there is room.
    Curves(Vec<Curve>),
    /// A ledger as the equation it is.
    Equation(Equation),
    /// Where everything went, as one bar and its table.
    Shares(Shares),
    /// A part that stands by itself: one rung, one path.
    Section(Section),
    /// A summary, and blocks that stay folded until the reader opens them. Only a page shows it.
    Details(String, Vec<Block>),
    /// Blocks that only one medium shows.
    On(Medium, Vec<Block>),
}

/// The medium that shows a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A page.
    Page,
    /// A terminal.
    Terminal,
    /// A terminal, and Markdown.
    Text,
}

/// A part of a report that stands by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: Text,
    /// The target of links to it, without blanks; empty if there is none.
    pub anchor: String,
    /// Its main figure; empty if it has none.
    pub figure: Text,
    /// The contents.
    pub blocks: Vec<Block>,
}

impl Block {
    /// A heading.
    pub fn heading(text: impl Into<Text>) -> Self {
        Self::Heading(text.into())
    }

    /// A paragraph.
    pub fn paragraph(text: impl Into<Text>) -> Self {
        Self::Paragraph(text.into())
    }

    /// A faint paragraph `note: ...`.
    pub fn note(text: impl AsRef<str>) -> Self {
        Self::Paragraph(Text::new().faint(format!("note: {}", text.as_ref())))
    }

    /// Blocks that only a page shows.
    pub fn on_page(blocks: impl IntoIterator<Item = Self>) -> Self {
        Self::On(Medium::Page, blocks.into_iter().collect())
    }

    /// Blocks that a terminal and Markdown show, but not a page.
    pub fn on_text(blocks: impl IntoIterator<Item = Self>) -> Self {
        Self::On(Medium::Text, blocks.into_iter().collect())
    }
}

macro_rules! blocks {
    ($($kind:ident),+) => {$(
        impl From<$kind> for Block {
            fn from(block: $kind) -> Self {
                Self::$kind(block)
            }
        }
    )+};
}

blocks!(Table, Bars, Equation, Shares, Section);
