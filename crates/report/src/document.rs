//! What a report says, in its order.

use crate::{Bars, Curve, Equation, Shares, Table, Text};

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it is about: the title of its page.
    pub title: String,
    /// The program that measured, and its version.
    pub generator: String,
    /// What it says.
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

/// A piece of a report. A medium that has no use for a kind of block leaves it out: a terminal and
/// Markdown have no [`Block::Bars`], [`Block::Curves`], [`Block::Shares`] and [`Block::Details`].
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A heading of a part of the report. An empty line stands before it.
    Heading(Text),
    /// A paragraph. In a terminal its lines but the first are indented.
    Paragraph(Text),
    /// What matters most, a sentence each.
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
    /// What only a page shows, and there only on request.
    Details(String, Vec<Block>),
    /// What only one medium shows.
    On(Medium, Vec<Block>),
}

/// Who shows a block.
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
    /// By which a link finds it, without blanks; empty if none does.
    pub anchor: String,
    /// Its main figure; empty if it has none.
    pub figure: Text,
    /// What it says.
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

    /// A paragraph `note: ...`, which a reader may pass over.
    pub fn note(text: impl AsRef<str>) -> Self {
        Self::Paragraph(Text::new().faint(format!("note: {}", text.as_ref())))
    }

    /// What only a page shows.
    pub fn on_page(blocks: impl IntoIterator<Item = Self>) -> Self {
        Self::On(Medium::Page, blocks.into_iter().collect())
    }

    /// What a terminal and Markdown show, and a page does not.
    pub fn on_text(blocks: impl IntoIterator<Item = Self>) -> Self {
        Self::On(Medium::Text, blocks.into_iter().collect())
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

impl From<Bars> for Block {
    fn from(bars: Bars) -> Self {
        Self::Bars(bars)
    }
}

impl From<Equation> for Block {
    fn from(equation: Equation) -> Self {
        Self::Equation(equation)
    }
}

impl From<Shares> for Block {
    fn from(shares: Shares) -> Self {
        Self::Shares(shares)
    }
}

impl From<Section> for Block {
    fn from(section: Section) -> Self {
        Self::Section(section)
    }
}
