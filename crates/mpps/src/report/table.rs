//! Lays text out in columns for a terminal of a given width.

use std::borrow::Cow;

/// How a piece of text is set off if the terminal has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
}

impl Paint {
    /// The text with its colour codes around it (ECMA-48, select graphic rendition).
    pub(crate) fn on(self, text: &str, colour: bool) -> Cow<'_, str> {
        let code = match self {
            Self::Plain => return Cow::Borrowed(text),
            Self::Strong => 1,
            Self::Faint => 2,
            Self::Good => 32,
            Self::Bad => 31,
        };
        if !colour || text.trim().is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
    }
}

/// Text in a column of a table.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) width: usize,
    pub(crate) right: bool,
    pub(crate) paint: Paint,
}

impl Cell {
    /// Words, from the left.
    pub(crate) fn left(text: impl Into<String>, width: usize) -> Self {
        Self {
            text: text.into(),
            width,
            right: false,
            paint: Paint::Plain,
        }
    }

    /// A figure, from the right.
    pub(crate) fn right(text: impl Into<String>, width: usize) -> Self {
        Self {
            right: true,
            ..Self::left(text, width)
        }
    }

    /// The same text in another colour.
    pub(crate) fn paint(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }
}

/// One row of a table: cells two blanks apart, each wrapped inside its column, nothing cut off.
pub(crate) fn row(cells: &[Cell], colour: bool) -> String {
    let columns: Vec<_> = cells
        .iter()
        .map(|cell| wrap(&cell.text, cell.width))
        .collect();
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for at in 0..height {
        let mut line = String::from(" ");
        for (number, (cell, lines)) in cells.iter().zip(&columns).enumerate() {
            if number > 0 {
                line.push_str("  ");
            }
            let part = lines.get(at).map_or("", String::as_str);
            let blanks = " ".repeat(cell.width.saturating_sub(part.chars().count()));
            if cell.right {
                line.push_str(&blanks);
            }
            line.push_str(&cell.paint.on(part, colour));
            if !cell.right {
                line.push_str(&blanks);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A paragraph: one blank before its first line, `indent` blanks before the others.
pub(crate) fn paragraph(
    text: &str,
    width: usize,
    indent: usize,
    paint: Paint,
    colour: bool,
) -> String {
    let room = width.saturating_sub(indent).max(20);
    let lines = if text.chars().count() < width {
        // What fits keeps its runs of blanks: they part one fact from the next.
        vec![plain(text)]
    } else {
        wrap(text, room)
    };
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        out.push_str(&" ".repeat(if number == 0 { 1 } else { indent }));
        out.push_str(&paint.on(line, colour));
        out.push('\n');
    }
    out
}

/// Breaks text into lines of at most `width` characters, between words where it can.
///
/// Control characters become blanks: a result file from elsewhere must not steer the terminal.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    let mut gap = 0;
    // Only the blank breaks: the blanks inside a grouped number and before a unit are hard ones.
    for word in clean.split(' ') {
        gap += 1;
        if word.is_empty() {
            continue;
        }
        // Inside a line a run of blanks stays: it parts one fact from the next.
        let blanks = std::mem::take(&mut gap);
        let mut word = word;
        loop {
            let size = word.chars().count();
            if length > 0 && length + blanks + size <= width {
                line.extend(std::iter::repeat_n(' ', blanks));
                line.push_str(word);
                length += blanks + size;
                break;
            }
            if length > 0 {
                lines.push(std::mem::take(&mut line));
                length = 0;
            }
            if size <= width {
                line.push_str(word);
                length = size;
                break;
            }
            let cut = word
                .char_indices()
                .nth(width)
                .map_or(word.len(), |(at, _)| at);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
        }
    }
    if length > 0 {
        lines.push(line);
    }
    lines.iter().map(|line| plain(line)).collect()
}

/// The text without control characters, its hard blanks as plain ones.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || c == HARD_BLANK {
                ' '
            } else {
                c
            }
        })
        .collect()
}

/// U+00A0: a blank at which a line does not break.
const HARD_BLANK: char = '\u{a0}';

/// Makes the blanks of a figure with its unit hard, so that a line does not break inside it.
pub(crate) fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_wraps_inside_its_columns() {
        let cells = [
            Cell::right("1", 2),
            Cell::left("one socket, pinned", 10),
            Cell::right("0.52", 6),
        ];
        assert_eq!(
            row(&cells, false),
            "  1  one           0.52\n     socket,\n     pinned\n"
        );
    }

    #[test]
    fn colour_does_not_move_a_column() {
        let cells = |paint| [Cell::left("ab", 4).paint(paint), Cell::left("cd", 4)];
        let painted = row(&cells(Paint::Bad), true);
        assert_eq!(
            painted.replace("\x1b[31m", "").replace("\x1b[0m", ""),
            row(&cells(Paint::Bad), false)
        );
        assert_ne!(painted, row(&cells(Paint::Bad), false));
    }

    #[test]
    fn a_figure_stays_with_its_unit() {
        assert_eq!(
            wrap(&format!("lost {}", unbroken("39.0 %")), 9),
            ["lost", "39.0 %"]
        );
    }

    #[test]
    fn facts_stay_apart_in_a_wrapped_line_too() {
        assert_eq!(
            wrap("two hosts   sender: CPU 0   Linux 6.18", 29),
            ["two hosts   sender: CPU 0", "Linux 6.18"]
        );
    }

    #[test]
    fn a_foreign_file_cannot_steer_the_terminal() {
        assert_eq!(wrap("a\x1b[2Jb\nc\u{9b}d", 40), ["a [2Jb c d"]);
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_letter_and_the_width(text in "\\PC{0,80}", width in 0_usize..30) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width.max(1)));
            let letters = |text: &str| text.chars().filter(|c| *c != ' ' && *c != HARD_BLANK).collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
