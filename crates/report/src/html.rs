//! Renders a report as one HTML file: no network, no script, no font of its own.
//!
//! `maud` escapes all text, so that nothing in a report becomes markup. Charts are inline SVG in
//! per cent of the width: they fit a phone, a screen and a sheet of paper.

mod chart;
mod picture;

pub use picture::picture;

use crate::wrap::harmless;
use crate::{
    Balance, Block, Cell, Column, ColumnKind, Document, Equation, EquationPart, Medium, Quantity,
    Row, Section, Shares, Style, Table, Text,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The whole style sheet; it is part of the page.
const STYLE: &str = include_str!("html/style.css");

/// A table of more columns than these folds into cards before a screen is as narrow as a phone.
const MANY: usize = 6;

/// The report as one page with everything in it.
pub fn page(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(document.generator);
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body { h1 { (document.title) } (blocks(&document.blocks, false)) }
        }
    };
    finished(page)
}

/// Markup as the text of a file. Control characters are replaced: XML forbids most of them.
fn finished(markup: Markup) -> String {
    let clean = |letter| match letter {
        '\n' => letter,
        _ => harmless(letter),
    };
    markup.into_string().chars().map(clean).collect()
}

/// Pieces of a report; `inside` is true in a part that stands by itself.
fn blocks(blocks: &[Block], inside: bool) -> Markup {
    html! { @for one in blocks { (block(one, inside)) } }
}

fn block(block: &Block, inside: bool) -> Markup {
    html! {
        @match block {
            Block::Heading(words) if inside => h4 { (text(words)) },
            Block::Heading(words) => h2 { (text(words)) },
            Block::Paragraph(words) => p { (text(words)) },
            Block::Sentences(all) if all.is_empty() => {},
            Block::Sentences(all) => ul.advice { @for words in all { li { (text(words)) } } },
            Block::Table(one) => (table(one)),
            Block::Bars(bars) => (chart::bars(bars)),
            Block::Curves(curves) => (chart::curves(curves)),
            Block::Equation(one) => (equation(one)),
            Block::Shares(one) => (shares(one)),
            Block::Section(one) => (section(one)),
            Block::Details(summary, all) => details { summary { (summary) } (blocks(all, true)) },
            Block::On(Medium::Page, all) => (blocks(all, inside)),
            Block::On(Medium::Terminal | Medium::Text, _) => {},
        }
    }
}

fn text(text: &Text) -> Markup {
    html! {
        @for (style, words) in &text.spans {
            @match style {
                Style::Plain => (words),
                Style::Strong => b { (words) },
                Style::Faint => span.faint { (words) },
                Style::Code => code { (words) },
                Style::Good => span.flag.good { (words) },
                Style::Bad => span.flag.bad { (words) },
            }
        }
    }
}

fn section(section: &Section) -> Markup {
    html! {
        article id=[id(&section.anchor)] {
            header {
                h3 { (text(&section.heading)) }
                @if !section.figure.is_empty() { span.number { (text(&section.figure)) } }
            }
            (blocks(&section.blocks, true))
        }
    }
}

/// The HTML id of a link's target; none if the anchor is empty.
fn id(anchor: &str) -> Option<String> {
    (!anchor.is_empty()).then(|| anchor.replace(char::is_whitespace, "-"))
}

fn table(table: &Table) -> Markup {
    html! {
        table.cards.wide[table.columns.len() > MANY] {
            thead { tr { @for column in &table.columns { th.number[column.kind == ColumnKind::Figure] { (column.head) } } } }
            tbody { @for one in &table.rows { (row(table, one)) } }
        }
    }
}

fn row(table: &Table, row: &Row) -> Markup {
    let all = table.columns.len();
    let last = row.cells.len().saturating_sub(1);
    html! {
        tr id=[id(&row.anchor)] {
            @for (at, one) in row.cells.iter().enumerate() {
                @if at == last && at + 1 < all { td colspan=(all - at) { (cell(one)) } }
                @else { (named(table.columns.get(at), at, one)) }
            }
        }
        @if !row.below.is_empty() {
            tr.below { td colspan=(all) { @for words in &row.below { p { (text(words)) } } } }
        }
    }
}

/// A cell with its column's name, which is shown where the table is a list of cards. The first cell
/// has none: it names the card itself.
fn named(column: Option<&Column>, at: usize, one: &Cell) -> Markup {
    let is_figure = column.is_some_and(|column| column.kind == ColumnKind::Figure);
    let head = column.map(|column| &column.head);
    let head = head.filter(|head| at > 0 && !head.is_empty());
    html! { td.number[is_figure] data-name=[head] { (cell(one)) } }
}

fn cell(cell: &Cell) -> Markup {
    match cell {
        Cell::Text(words) => text(words),
        Cell::Bar { full, missing } => chart::part(*full, *missing),
    }
}

fn equation(equation: &Equation) -> Markup {
    let (class, verdict) = match equation.balance {
        Balance::Balances => ("flag good", " it balances"),
        Balance::Unbalanced => ("flag bad", " it does not balance"),
        Balance::Inexact => ("faint", " a term is not exact"),
    };
    html! {
        p.equation.number {
            @if !equation.name.is_empty() { b { (equation.name) } ": " }
            (equation.terms) " + " span class=(class) { (equation.remainder) } (verdict)
        }
        @for note in &equation.notes { p.faint { (note) } }
    }
}

/// One bar, and below it a table whose numbers are those in the bar.
fn shares(shares: &Shares) -> Markup {
    html! {
        (chart::stack(&shares.parts))
        table.cards {
            thead { tr { th { "Where" } th.number { (shares.unit) } th.number { "share" } th { "counter" } } }
            tbody { @for (at, one) in shares.parts.iter().enumerate() { (part(at + 1, one)) } }
        }
    }
}

fn part(number: usize, part: &EquationPart) -> Markup {
    let share = part.share.map(|share| Quantity::Share(share).to_string());
    html! {
        tr {
            td {
                svg.swatch aria-hidden="true" { rect class=(part.class) width="100%" height="100%" {} }
                b { (number) } " "
                @if part.class == "unaccounted" { span.flag.bad { (part.name) } } @else { (part.name) }
            }
            td.number { (Quantity::Signed(part.count).figure()) }
            td.number { (share.unwrap_or_default()) }
            td.faint data-name="counter:" { (part.source) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{any_table, document};
    use proptest::prelude::*;

    #[test]
    fn nothing_in_a_report_becomes_markup() {
        let evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>\u{1b}[2J\u{202e}";
        let page = page(&document(evil));
        assert!(!page.contains("<script") && !page.contains("<img"));
        assert!(page.matches("&lt;script&gt;").count() > 60);
        assert!(!page.contains(['\u{1b}', '\u{202e}']));
        let markup = |text: &str| text.matches(['<', '"']).count();
        assert_eq!(markup(&page), markup(&super::page(&document("x"))));
    }

    #[test]
    fn the_page_needs_no_network_and_no_script() {
        let page = page(&document("")).replace("of https://example.org", "");
        for foreign in ["http://", "https://", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
    }

    #[test]
    fn links_find_their_places_and_a_table_of_many_columns_folds() {
        let page = page(&document(""));
        assert!(page.contains("href=\"#rung-2\"") && page.contains("<article id=\"rung-2\">"));
        assert!(
            page.contains("<table class=\"cards wide\">")
                && page.contains("<tr id=\"row-af_xdp\">")
        );
    }

    #[test]
    fn what_is_no_number_draws_nothing_wild() {
        let page = page(&document(""));
        for wild in [
            "NaN%", "inf%", "NaN,", ",NaN", "inf,", ",inf", "=\"NaN", "=\"inf",
        ] {
            assert!(!page.contains(wild), "{wild}");
        }
        assert!(
            page.matches("class=\"break\"").count() >= 2,
            "a bar is broken off, and its key"
        );
    }

    proptest! {
        #[test]
        fn any_table_is_markup_of_the_table_alone(any in any_table()) {
            let blank = |text: &Text| Text::from(text.words().replace(['<', '>', '&', '"'], "x"));
            let mut plain = any.clone();
            for column in &mut plain.columns {
                column.head = blank(&column.head.as_str().into()).words();
            }
            for row in &mut plain.rows {
                row.below.iter_mut().for_each(|text| *text = blank(text));
                for cell in &mut row.cells {
                    if let Cell::Text(text) = cell { *text = blank(text) }
                }
            }
            let [any, plain] = [any, plain].map(|one| table(&one).into_string());
            let markup = |text: &str| text.matches(['<', '>', '"']).count();
            prop_assert_eq!(markup(&any), markup(&plain));
        }
    }
}
