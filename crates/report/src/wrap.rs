//! Breaks words into lines, each letter with its style.

use crate::{Style, Text};

/// A character, and how it is set off. Each is taken as one column of a terminal.
pub(crate) type Letter = (char, Style);

/// A blank that does not break a line.
const HARD_BLANK: char = '\u{a0}';

/// The letters of a text; those that are not set off are in the style `base`.
pub(crate) fn letters(text: &Text, base: Style) -> Vec<Letter> {
    let of_span = |(style, words): &(Style, String)| {
        let style = if *style == Style::Plain { base } else { *style };
        let letters = words.chars().map(move |letter| (harmless(letter), style));
        letters.collect::<Vec<_>>()
    };
    text.spans.iter().flat_map(of_span).collect()
}

/// The character, or a harmless one in its place. It replaces what steers a terminal, ends a line,
/// is invisible or turns the direction of writing. A tab or a line end becomes a blank, any other
/// the replacement character. A result file may come from elsewhere.
///
/// `mpps_os::text::clean` is the same rule; a test of `mpps` holds one to the other.
pub fn harmless(letter: char) -> char {
    // Categories Cc, Cf, Zl and Zp of Unicode 16, and the blank of braille. Also characters that
    // are drawn as nothing (Default_Ignorable_Code_Point, unassigned ones included), and what is no
    // character (Noncharacter_Code_Point).
    match letter {
        '\t' | '\n' | '\r' => ' ',
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{600}'..='\u{605}'
        | '\u{61c}'
        | '\u{6dd}'
        | '\u{70f}'
        | '\u{890}'..='\u{891}'
        | '\u{8e2}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{10ff80}'..='\u{10ffff}' => char::REPLACEMENT_CHARACTER,
        _ if letter as u32 & 0xfffe == 0xfffe => char::REPLACEMENT_CHARACTER,
        _ => letter,
    }
}

/// Breaks letters into lines of at most `width`, between words where it can. Inside a line a run of
/// blanks stays: it parts one fact from the next.
pub(crate) fn wrap(letters: &[Letter], width: usize) -> Vec<Vec<Letter>> {
    let is_blank = |(letter, _): &Letter| *letter == ' ';
    let mut lines = Vec::new();
    let mut rest = letters;
    while let Some(start) = rest.iter().position(|letter| !is_blank(letter)) {
        rest = &rest[start..];
        let width = width.max(1);
        let end = if rest.len() <= width {
            rest.len()
        } else {
            let last = rest[..=width].iter().rposition(is_blank);
            last.unwrap_or(width)
        };
        let (line, after) = rest.split_at(end);
        rest = after;
        if let Some(last) = line.iter().rposition(|(letter, _)| !letter.is_whitespace()) {
            lines.push(line[..=last].to_vec());
        }
    }
    lines
}

/// The letters as they are printed, with colour codes around them (ECMA-48, select graphic
/// rendition) if the terminal has colours.
pub(crate) fn paint(letters: &[Letter], colour: bool) -> String {
    let mut text = String::new();
    for run in letters.chunk_by(|(_, one), (_, next)| one == next) {
        let soft = |(letter, _): &Letter| if *letter == HARD_BLANK { ' ' } else { *letter };
        let words: String = run.iter().map(soft).collect();
        let code = match run[0].1 {
            Style::Plain | Style::Code => None,
            Style::Strong => Some(1),
            Style::Faint => Some(2),
            Style::Good => Some(32),
            Style::Bad => Some(31),
        };
        match code.filter(|_| colour && !words.trim().is_empty()) {
            Some(code) => text.push_str(&format!("\x1b[{code}m{words}\x1b[0m")),
            None => text.push_str(&words),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str, width: usize) -> Vec<String> {
        let lines = wrap(&letters(&Text::from(text), Style::Plain), width);
        lines.iter().map(|line| paint(line, false)).collect()
    }

    #[test]
    fn a_figure_stays_with_its_unit() {
        assert_eq!(lines("lost 39.0\u{a0}%", 9), ["lost", "39.0 %"]);
    }

    #[test]
    fn facts_stay_apart_in_a_wrapped_line_too() {
        assert_eq!(
            lines("two hosts   sender: CPU 0   Linux 6.18", 29),
            ["two hosts   sender: CPU 0", "Linux 6.18"]
        );
    }

    #[test]
    fn a_foreign_file_cannot_steer_the_terminal() {
        assert_eq!(
            lines("a\x1b[2Jb\nc\u{9b}d\u{202e}e", 40),
            ["a\u{fffd}[2Jb c\u{fffd}d\u{fffd}e"]
        );
    }

    #[test]
    fn each_word_keeps_its_style_over_a_line_end() {
        let text = Text::new().strong("one two").plain(" three");
        let lines = wrap(&letters(&text, Style::Faint), 5);
        let painted: Vec<String> = lines.iter().map(|line| paint(line, true)).collect();
        assert_eq!(
            painted,
            [
                "\x1b[1mone\x1b[0m",
                "\x1b[1mtwo\x1b[0m",
                "\x1b[2mthree\x1b[0m"
            ]
        );
    }

    proptest! {
        #[test]
        fn wrapping_keeps_every_letter_and_the_width(text in "[\\PC ]{0,80}", width in 0_usize..30) {
            let lines = lines(&text, width);
            for line in &lines {
                prop_assert!(line.chars().count() <= width.max(1));
                prop_assert_eq!(line.trim_end_matches(' '), line);
            }
            let bare = |text: &str| text.chars().map(harmless).filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(bare(&lines.concat()), bare(&text));
        }
    }
}
