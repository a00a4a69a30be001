//! Renders a report for a terminal of a given width.

use crate::wrap::{Letter, letters, paint, wrap};
use crate::{
    Balance, Block, Cell, Column, ColumnKind, Document, Equation, Medium, Row, Style, Table, Text,
};

/// Blanks before the lines of a paragraph but the first.
const HANGING: usize = 3;
/// Blanks before the text below a row.
const BELOW: usize = 6;
/// Minimum width of a cell that spans several columns, in characters.
const SPANNING: usize = 20;

/// A terminal, or a file with the same text.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    width: usize,
    colour: bool,
}

/// The text in one column of one row.
struct PlacedText {
    lines: Vec<Vec<Letter>>,
    width: usize,
    right: bool,
}

impl Terminal {
    /// A terminal of `width` columns, at least 20.
    pub fn new(width: usize, colour: bool) -> Self {
        Self {
            width: width.max(20),
            colour,
        }
    }

    /// The whole report, without its title.
    pub fn document(&self, document: &Document) -> String {
        self.blocks(&document.blocks)
    }

    /// A line of a program's own layout: where it is too long, further ones are indented more.
    pub fn line(&self, text: &str) -> String {
        let words = text.trim_start_matches(' ');
        let first = text.len() - words.len();
        let others = first.min(self.width / 2) + HANGING;
        self.paragraph(&words.into(), Style::Plain, first, others)
    }

    /// Pieces of a report. An empty line stands below each table.
    pub fn blocks(&self, blocks: &[Block]) -> String {
        let mut text = String::new();
        let mut is_below_table = false;
        for block in blocks {
            let next = self.block(block);
            if next.is_empty() {
                continue;
            }
            if is_below_table && !next.starts_with('\n') {
                text.push('\n');
            }
            text.push_str(&next);
            is_below_table = ends_in_table(block);
        }
        text
    }

    /// The names of a table's columns. They can be printed before the first row is known.
    pub fn head(&self, table: &Table) -> String {
        let widths = self.widths(&table.columns);
        let shown = widths.iter().flatten().count();
        let is_named = table.columns.iter().any(|column| !column.head.is_empty());
        if !is_named || shown == 0 || (shown == 1 && table.columns.len() > 1) {
            return String::new();
        }
        let mut placed: Vec<PlacedText> = Vec::new();
        for (column, width) in table.columns.iter().zip(widths) {
            let text = Text::from(&*column.head);
            let right = column.kind == ColumnKind::Figure;
            placed.extend(width.map(|width| PlacedText::new(&text, Style::Faint, width, right)));
        }
        let height = placed.iter().map(|cell| cell.lines.len()).max();
        for cell in &mut placed {
            // The last line of a name stands next to the figures.
            let missing = height.unwrap_or(0) - cell.lines.len();
            cell.lines.splice(0..0, vec![Vec::new(); missing]);
        }
        self.lines(&placed)
    }

    /// One row of a table. Only the terminal and the table's columns decide the width of each
    /// column. So rows may be printed as they become known.
    ///
    /// A cell without a column goes below the row, as `head value`. So does a figure that is too
    /// long for its column.
    pub fn row(&self, table: &Table, row: &Row) -> String {
        let widths = self.widths(&table.columns);
        let mut placed: Vec<PlacedText> = Vec::new();
        let mut below = Text::new();
        for (at, cell) in row.cells.iter().enumerate() {
            let column = table.columns.get(at);
            let width = widths.get(at).copied().flatten();
            let is_last = at + 1 == row.cells.len() && at + 1 < table.columns.len();
            let start: usize = placed.iter().map(|cell| cell.width + 2).sum();
            let rest = self.width.saturating_sub(1 + start);
            match (cell, column, width) {
                (Cell::Text(text), _, _) if is_last && rest >= SPANNING => {
                    placed.push(PlacedText::new(text, Style::Plain, rest, false));
                }
                (Cell::Text(text), Some(column), Some(width)) if !is_last => {
                    let right = column.kind == ColumnKind::Figure;
                    if right && text.words().chars().count() > width {
                        placed.push(PlacedText::new(&"…".into(), Style::Faint, width, right));
                        below = with_value(below, &column.head, text);
                    } else {
                        placed.push(PlacedText::new(text, Style::Plain, width, right));
                    }
                }
                (Cell::Text(text), column, _) => {
                    let head = column
                        .filter(|_| !is_last)
                        .map_or("", |column| &column.head);
                    below = with_value(below, head, text);
                }
                (Cell::Bar { full, missing }, _, Some(width)) => {
                    let bar = Text::from(bar(*full, *missing, width));
                    placed.push(PlacedText::new(&bar, Style::Plain, width, false));
                }
                (Cell::Bar { .. }, _, None) => {}
            }
        }
        let mut text = self.lines(&placed);
        text.push_str(&self.paragraph(&below, Style::Faint, BELOW, BELOW));
        for sentence in &row.below {
            text.push_str(&self.paragraph(sentence, Style::Plain, BELOW, BELOW));
        }
        text
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Heading(text) => self.heading(text),
            Block::Paragraph(text) => self.words(text, Style::Plain),
            Block::Sentences(all) => all
                .iter()
                .map(|sentence| self.words(sentence, Style::Strong))
                .collect(),
            Block::Table(table) => {
                let rows = table.rows.iter().map(|row| self.row(table, row));
                self.head(table) + &rows.collect::<String>()
            }
            Block::Equation(equation) => self.equation(equation),
            Block::Section(section) => {
                let mut heading = section.heading.clone();
                if !section.figure.is_empty() {
                    heading = heading.plain("   ");
                    heading.spans.extend_from_slice(&section.figure.spans);
                }
                self.heading(&heading) + &self.blocks(&section.blocks)
            }
            Block::On(Medium::Terminal | Medium::Text, blocks) => self.blocks(blocks),
            Block::On(Medium::Page, _)
            | Block::Bars(_)
            | Block::Curves(_)
            | Block::Shares(_)
            | Block::Details(..) => String::new(),
        }
    }

    fn heading(&self, text: &Text) -> String {
        format!("\n{}", self.words(text, Style::Strong))
    }

    fn equation(&self, equation: &Equation) -> String {
        let style = match equation.balance {
            Balance::Balances => Style::Good,
            Balance::Unbalanced => Style::Bad,
            Balance::Inexact => Style::Faint,
        };
        let mut text = self.words(&equation.words().into(), style);
        for note in &equation.notes {
            text.push_str(&self.paragraph(&note.as_str().into(), Style::Faint, HANGING, HANGING));
        }
        text
    }

    fn words(&self, text: &Text, base: Style) -> String {
        self.paragraph(text, base, 1, HANGING)
    }

    /// A text in lines, with `first` blanks before the first line and `others` before the rest.
    fn paragraph(&self, text: &Text, base: Style, first: usize, others: usize) -> String {
        let letters = letters(text, base);
        let fits = first + letters.len() <= self.width;
        let room = self.width - if fits { first } else { others };
        let mut out = String::new();
        for (at, line) in wrap(&letters, room).iter().enumerate() {
            out.push_str(&" ".repeat(if at == 0 { first } else { others }));
            out.push_str(&paint(line, self.colour));
            out.push('\n');
        }
        out
    }

    /// Cells two blanks apart, each wrapped inside its column, nothing cut off.
    fn lines(&self, cells: &[PlacedText]) -> String {
        let height = cells.iter().map(|cell| cell.lines.len()).max();
        let mut text = String::new();
        for at in 0..height.unwrap_or(0) {
            let mut line = String::from(" ");
            for (number, cell) in cells.iter().enumerate() {
                if number > 0 {
                    line.push_str("  ");
                }
                let part = cell.lines.get(at).map_or(&[][..], Vec::as_slice);
                let blanks = " ".repeat(cell.width.saturating_sub(part.len()));
                let part = paint(part, self.colour);
                line.push_str(&if cell.right {
                    blanks + &part
                } else {
                    part + &blanks
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The width of each column; none for one whose cells go below the row. If not even the columns
    /// of priority 0 fit, the first one has a line to itself.
    fn widths(&self, columns: &[Column]) -> Vec<Option<usize>> {
        let mut widths: Vec<_> = columns.iter().map(|one| Some(one.width.max(1))).collect();
        // A blank before the first column, and two before each of the others.
        let used = |widths: &[Option<usize>]| {
            let widths = widths.iter().flatten();
            widths
                .fold(0_usize, |sum, width| sum.saturating_add(width + 2))
                .saturating_sub(1)
        };
        while used(&widths) > self.width {
            let shown = (0..columns.len()).filter(|at| widths[*at].is_some());
            // Of those of one priority the rightmost goes first.
            let Some(least) = shown.max_by_key(|at| (columns[*at].priority, *at)) else {
                break;
            };
            if columns[least].priority == 0 {
                widths.fill(None);
                widths[0] = Some(self.width - 1);
                return widths;
            }
            widths[least] = None;
        }
        let mut room = self.width.saturating_sub(used(&widths));
        loop {
            let before = room;
            for (column, width) in columns.iter().zip(&mut widths) {
                let most = column.width.max(1).saturating_add(column.grow);
                if let Some(width) = width.as_mut().filter(|width| **width < most && room > 0) {
                    *width += 1;
                    room -= 1;
                }
            }
            if room == before {
                return widths;
            }
        }
    }
}

impl PlacedText {
    fn new(text: &Text, base: Style, width: usize, right: bool) -> Self {
        Self {
            lines: wrap(&letters(text, base), width),
            width,
            right,
        }
    }
}

fn ends_in_table(block: &Block) -> bool {
    match block {
        Block::Table(_) => true,
        Block::On(_, blocks) => blocks.last().is_some_and(ends_in_table),
        _ => false,
    }
}

/// The text with `head value` behind it; a dash is a value that the row does not have.
fn with_value(mut text: Text, head: &str, value: &Text) -> Text {
    if matches!(&*value.words(), "" | "-") {
        return text;
    }
    if !text.is_empty() {
        text = text.plain("; ");
    }
    if !head.is_empty() {
        text = text.plain(format!("{head} "));
    }
    text.spans.extend_from_slice(&value.spans);
    text
}

/// A bar: the full part, and behind it the missing part, in thousandths of the width.
fn bar(full: u16, missing: u16, width: usize) -> String {
    let place = |thousandths: u16| (usize::from(thousandths.min(1000)) * width + 500) / 1000;
    let there = place(full);
    let missing = place(full.saturating_add(missing)) - there;
    "█".repeat(there) + &"░".repeat(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{any_table, document};
    use proptest::prelude::*;

    fn paths() -> Table {
        let columns = [
            Column::words("path", 10).grow(10),
            Column::figure("Mpps", 6),
            Column::figure("ns each", 5).priority(1),
            Column::words("mode", 16).grow(60).priority(2),
        ];
        let cells = |texts: [&str; 4]| Row::new(texts.map(Cell::from));
        Table::new(columns).rows([
            cells(["recvmmsg", "1.14", "312", "copied, by a socket"]).below("note: pinned"),
            Row::new(["dpdk".into(), "skipped: no hugepages".into()]),
        ])
    }

    fn rendered(width: usize) -> String {
        Terminal::new(width, false).blocks(&[paths().into()])
    }

    #[test]
    fn a_wide_terminal_has_all_columns() {
        assert_eq!(
            rendered(80),
            "                                  ns
 path                    Mpps   each  mode
 recvmmsg                1.14    312  copied, by a socket
      note: pinned
 dpdk                  skipped: no hugepages
"
        );
    }

    #[test]
    fn what_a_narrow_terminal_has_no_column_for_stands_below() {
        assert_eq!(
            rendered(40),
            "                                  ns
 path                    Mpps   each
 recvmmsg                1.14    312
      mode copied, by a socket
      note: pinned
 dpdk
      skipped: no hugepages
"
        );
    }

    #[test]
    fn a_terminal_without_room_for_the_main_columns_gets_a_name_and_a_sentence() {
        let mut table = paths();
        table.columns[0].width = 50;
        assert_eq!(
            Terminal::new(58, false).blocks(&[table.into()]),
            " recvmmsg
      Mpps 1.14; ns each 312; mode copied, by a socket
      note: pinned
 dpdk
      skipped: no hugepages
"
        );
    }

    #[test]
    fn a_figure_too_long_for_its_column_is_not_broken() {
        let table = Table::new([Column::words("path", 8), Column::figure("count", 5)])
            .rows([Row::new(["a".into(), "1\u{a0}234\u{a0}567".into()])]);
        let text = Terminal::new(80, false).blocks(&[table.into()]);
        assert_eq!(
            text,
            " path      count\n a             …\n      count 1 234 567\n"
        );
    }

    #[test]
    fn a_bar_shows_what_is_missing() {
        assert_eq!(bar(500, 0, 8), "████");
        assert_eq!(bar(250, 750, 8), "██░░░░░░");
        assert_eq!(bar(0, 1000, 8), "░░░░░░░░");
        assert_eq!(bar(u16::MAX, u16::MAX, 8), "████████");
    }

    #[test]
    fn colour_moves_nothing() {
        let [plain, colour] =
            [false, true].map(|colour| Terminal::new(60, colour).document(&document("")));
        let codes = ["\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"];
        assert!(codes.iter().all(|code| colour.contains(code)));
        let bare = codes
            .iter()
            .fold(colour, |text, code| text.replace(code, ""));
        assert_eq!(bare, plain);
    }

    proptest! {
        #[test]
        fn any_table_keeps_its_letters_and_the_width(table in any_table(), width in 0_usize..160) {
            let text = Terminal::new(width, false).blocks(&[table.clone().into()]);
            for line in text.lines() {
                prop_assert!(line.chars().count() <= width.max(20), "{line}");
                prop_assert_eq!(line.trim_end(), line);
            }
            let mut all = text.chars().filter(|letter| letter.is_alphanumeric()).collect::<Vec<_>>();
            let cells = table.rows.iter().flat_map(|row| &row.cells);
            for cell in cells {
                let Cell::Text(text) = cell else { continue };
                // A letter that is drawn as nothing (U+FFA0) is replaced.
                let words = text.words();
                let drawn = words.chars().map(crate::wrap::harmless);
                for letter in drawn.filter(|letter| letter.is_alphanumeric()) {
                    let at = all.iter().position(|known| *known == letter);
                    prop_assert!(at.is_some(), "{letter} is lost");
                    all.swap_remove(at.unwrap_or_default());
                }
            }
            prop_assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()));
        }
    }
}
