//! Renders a report as Markdown, for a ticket or for the documentation.

use crate::wrap::harmless;
use crate::{Balance, Block, Cell, ColumnKind, Document, Equation, Medium, Style, Table, Text};

/// The report as Markdown (CommonMark, and the tables of GitHub's dialect).
pub fn markdown(document: &Document) -> String {
    let mut parts = vec![format!("# {}", escaped(&document.title))];
    blocks(&document.blocks, &mut parts);
    parts.join("\n\n") + "\n"
}

/// Appends the parts that an empty line stands between.
fn blocks(blocks: &[Block], parts: &mut Vec<String>) {
    for block in blocks {
        match block {
            Block::Heading(words) => parts.push(format!("## {}", text(words))),
            Block::Paragraph(words) => parts.push(paragraph(words)),
            Block::Sentences(all) => {
                let items = all.iter().map(|words| format!("- {}", paragraph(words)));
                parts.push(items.collect::<Vec<_>>().join("\n"));
            }
            Block::Table(one) => parts.extend(table(one)),
            Block::Equation(one) => parts.push(equation(one)),
            Block::Section(one) => {
                parts.push(format!("### {}", text(&one.heading)));
                if !one.figure.is_empty() {
                    parts.push(paragraph(&one.figure));
                }
                self::blocks(&one.blocks, parts);
            }
            Block::On(Medium::Text, all) => self::blocks(all, parts),
            Block::On(Medium::Page | Medium::Terminal, _)
            | Block::Bars(_)
            | Block::Curves(_)
            | Block::Shares(_)
            | Block::Details(..) => {}
        }
    }
    parts.retain(|part| !part.trim().is_empty());
}

/// A table without its columns of bars. Sentences below a row become rows.
fn table(table: &Table) -> Option<String> {
    let is_bar = |at: usize| {
        table
            .columns
            .get(at)
            .is_some_and(|one| one.kind == ColumnKind::Bar)
    };
    let shown: Vec<usize> = (0..table.columns.len()).filter(|at| !is_bar(*at)).collect();
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let heads = shown.iter().map(|at| escaped(&table.columns[*at].head));
    let edges = shown.iter().map(|at| match table.columns[*at].kind {
        ColumnKind::Figure => "---:".to_owned(),
        ColumnKind::Words | ColumnKind::Bar => "---".to_owned(),
    });
    let mut lines = vec![
        line(&heads.collect::<Vec<_>>()),
        line(&edges.collect::<Vec<_>>()),
    ];
    for row in &table.rows {
        // A cell without a column goes into the last column, so that nothing is lost.
        let mut cells = vec![String::new(); shown.len()];
        for (at, cell) in row.cells.iter().enumerate().filter(|(at, _)| !is_bar(*at)) {
            let place = shown.iter().position(|shown| *shown >= at);
            let place = place.or(cells.len().checked_sub(1))?;
            if let Cell::Text(words) = cell {
                let sep = if cells[place].is_empty() { "" } else { "; " };
                cells[place] += &format!("{sep}{}", in_cell(words));
            }
        }
        lines.push(line(&cells));
        for words in &row.below {
            let mut cells = vec![String::new(); shown.len()];
            *cells.first_mut()? = in_cell(words);
            lines.push(line(&cells));
        }
    }
    (!shown.is_empty()).then(|| lines.join("\n"))
}

fn equation(equation: &Equation) -> String {
    let words = match equation.balance {
        Balance::Unbalanced => Text::new().strong(equation.words()),
        Balance::Balances | Balance::Inexact => Text::from(equation.words()),
    };
    let mut text = paragraph(&words);
    for note in &equation.notes {
        text += &format!(" ({})", escaped(note));
    }
    text
}

/// A text at the beginning of a line, where signs and numbers have a meaning of their own.
fn paragraph(words: &Text) -> String {
    let text = text(words);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let begins_list = digits > 0 && text[digits..].starts_with(['.', ')']);
    if begins_list {
        format!("{}\\{}", &text[..digits], &text[digits..])
    } else if text.starts_with(['#', '+', '-', '=', '>']) {
        format!("\\{text}")
    } else {
        text
    }
}

/// A text in a cell, where even in code a stroke would end the cell.
fn in_cell(words: &Text) -> String {
    text(words).replace("\\|", "|").replace('|', "\\|")
}

/// A text in one line.
fn text(words: &Text) -> String {
    let mut out = String::new();
    for (style, words) in &words.spans {
        let mark = match style {
            Style::Plain | Style::Faint | Style::Good => "",
            Style::Strong | Style::Bad => "**",
            Style::Code => {
                out += &code(words);
                continue;
            }
        };
        let words = escaped(words);
        // Markdown wants no blank just inside the marks.
        let bare = words.trim();
        if bare.is_empty() {
            out += &words;
            continue;
        }
        let start = words.len() - words.trim_start().len();
        let (before, after) = (&words[..start], &words[start + bare.len()..]);
        out += &format!("{before}{mark}{bare}{mark}{after}");
    }
    out.trim().to_owned()
}

/// Words as code, between more ticks than they have in a row.
fn code(words: &str) -> String {
    let words: String = words.chars().map(harmless).collect();
    let longest = words.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let blank = if longest > 0 { " " } else { "" };
    format!("{ticks}{blank}{words}{blank}{ticks}")
}

/// Escapes words, so that nothing in them is markup, and puts them in one line.
fn escaped(words: &str) -> String {
    let letters: Vec<char> = words.chars().map(soft).collect();
    let is_word = |at: Option<usize>| {
        let letter = at.and_then(|at| letters.get(at));
        letter.is_some_and(|letter| letter.is_alphanumeric())
    };
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        // An underscore inside a word is not markup.
        let is_inside = *letter == '_' && is_word(at.checked_sub(1)) && is_word(Some(at + 1));
        if "\\`*_[]<>|~&$".contains(*letter) && !is_inside {
            out.push('\\');
        }
        out.push(*letter);
    }
    out
}

/// Replaces a character that steers a terminal or ends a line. A hard blank becomes a blank.
fn soft(letter: char) -> char {
    match harmless(letter) {
        '\u{a0}' => ' ',
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{any_table, document};
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser};

    /// The words that a reader of the Markdown sees, and the names of its markup.
    fn read(text: &str) -> (String, Vec<String>) {
        let (mut words, mut marks) = (String::new(), Vec::new());
        for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
            match event {
                Event::Text(text) | Event::Code(text) => words.push_str(&text),
                Event::Start(tag) => marks.push(format!("{tag:?}")),
                Event::End(_) => {}
                other => marks.push(format!("{other:?}")),
            }
        }
        (words, marks)
    }

    #[test]
    fn code_keeps_its_ticks_and_a_cell_its_strokes() {
        let words = Text::new().plain("by ").code("a | `b`");
        assert_eq!(read(&text(&words)).0, "by a | `b`");
        assert_eq!(in_cell(&words), "by `` a \\| `b` ``");
        assert_eq!(text(&Text::new().strong(" a ").code("b")), "**a** `b`");
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let (words, marks) = read(&markdown(&document("<i>*x*</i>")));
        assert!(words.contains("only text says this") && !words.contains("only a page"));
        assert!(words.contains("<i>*x*</i>"));
        for mark in marks {
            let known = ["Heading", "Paragraph", "Table", "Strong", "List", "Item"];
            assert!(known.iter().any(|known| mark.starts_with(known)), "{mark}");
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_paragraph_becomes_markup(words in "[a-z0-9 .)#+=>|<&_*`~!$\\[\\]()\\\\\n-]{1,40}") {
            let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            prop_assume!(!flat(&words).is_empty());
            let (seen, marks) = read(&paragraph(&words.as_str().into()));
            prop_assert_eq!(flat(&seen), flat(&words));
            prop_assert_eq!(marks, ["Paragraph"]);
        }

        #[test]
        fn each_row_of_any_table_is_one_line_of_as_many_cells(any in any_table()) {
            let Some(text) = table(&any) else { return Ok(()) };
            let below: usize = any.rows.iter().map(|row| row.below.len()).sum();
            prop_assert_eq!(text.lines().count(), 2 + any.rows.len() + below);
            let cells = |line: &str| line.replace("\\\\", "").replace("\\|", "").matches('|').count();
            let all: Vec<usize> = text.lines().map(cells).collect();
            prop_assert!(all.iter().all(|number| *number == all[1]), "{}", text);
        }
    }
}
