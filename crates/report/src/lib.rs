//! Reports as documents: built once, then rendered for a terminal, as one HTML page, and as
//! Markdown.
//!
//! ```
//! use mpps_report::{Block, Column, Document, Quantity, Row, Table, Terminal};
//!
//! let mut table = Table::new([Column::words("path", 12), Column::figure("Mpps", 6)]);
//! table.rows.push(Row::new(["recvmmsg".into(), Quantity::Mpps(1.1437).figure().into()]));
//! let document = Document::new("receive paths", "mpps 0.1", [Block::from(table)]);
//! assert_eq!(Terminal::new(80, false).document(&document), " path            Mpps\n recvmmsg        1.14\n");
//! ```
//!
//! [`Quantity`] decides the digits of a figure. A [`Document`] is a list of [`Block`]s: text,
//! tables, charts and the equation of a ledger. [`Terminal`], [`page`], [`picture`] and
//! [`markdown()`] render it, and know nothing of the measurements.
#![forbid(unsafe_code)]

mod chart;
mod document;
mod edge;
mod equation;
mod html;
mod markdown;
mod quantity;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod wrap;

pub use chart::{Axis, BarFigures, Bars, ChartBar, ChartLine, Curve, Hue, Scale};
pub use document::{Block, Document, Medium, Section};
pub use equation::{Balance, Equation, EquationPart, Shares};
pub use html::{page, picture};
pub use markdown::markdown;
pub use quantity::{Quantity, grouped, range};
pub use table::{Cell, Column, ColumnKind, Row, Table};
pub use terminal::Terminal;
pub use text::{Style, Text, unbroken};
pub use wrap::harmless;
