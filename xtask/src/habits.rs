//! Habits of style that make a sentence hard to read: their counts per crate may only fall.
//!
//! The counts are kept in `xtask/habits.tsv`, which `cargo xtask docs` writes when they fall.

use crate::tree::RepositoryTree;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the counts are kept.
pub(crate) const FILE: &str = "xtask/habits.tsv";

/// Words and phrases, with better ones.
const PHRASES: &[(&str, &str)] = &[
    ("somebody", "name the actor"),
    ("nobody", "no program, no user"),
    ("anybody", "name the actor"),
    ("whoever", "name the actor"),
    ("one who", "name the actor"),
    ("one that", "name the thing"),
    ("alone", "only"),
    ("else", "otherwise"),
    ("for ever", "until stopped"),
    ("so many", "N"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("tell", "show, report"),
    ("tells", "shows, reports"),
    ("told", "shown, reported"),
    ("telling", "showing"),
    ("has not a", "does not have a"),
    ("has not the", "does not have the"),
    ("has not it", "does not have it"),
    ("have not the", "do not have the"),
];
/// Before `which`, `whom` and `whose` they call for a second sentence.
const BEFORE_WHICH: &[&str] = &[
    "of", "by", "in", "with", "from", "for", "to", "on", "at", "through", "after", "under",
];
/// No subjects of a sentence, unless it is a question.
const SUBJECTS: &[&str] = &["what", "who"];
/// No first words of a help text.
const FIRST: &[&str] = &["tell", "say", "mend", "do", "have"];

/// A line of text: its kind, its crate, and where it stands.
struct TextLine<'a> {
    kind: &'static str,
    part: &'a str,
    path: &'a str,
    number: usize,
    text: String,
}

/// The counts of a tree, as the file keeps them.
pub(crate) fn counts(tree: &RepositoryTree) -> String {
    let mut text = String::new();
    for ((kind, part), places) in found(tree) {
        let _ = writeln!(text, "{kind}\t{part}\t{}", places.len());
    }
    text
}

pub(crate) fn read(text: &str) -> BTreeMap<(String, String), usize> {
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split('\t').map(str::to_owned);
        let (kind, part) = (words.next()?, words.next()?);
        Some(((kind, part), words.next()?.parse().ok()?))
    });
    rows.collect()
}

/// Where habits are: the file, the line, and a better word.
pub(crate) type HabitPlaces<'a> = Vec<(&'a str, usize, String)>;

/// Every habit, by kind and crate.
pub(crate) fn found(tree: &RepositoryTree) -> BTreeMap<(&'static str, &str), HabitPlaces<'_>> {
    let mut found: BTreeMap<_, HabitPlaces<'_>> = BTreeMap::new();
    for (path, text) in tree.texts() {
        // It names the words themselves.
        if path.starts_with("xtask/src/") && path.ends_with("habits.rs") {
            continue;
        }
        for line in lines(path, text) {
            let places = found.entry((line.kind, line.part)).or_default();
            let habits = habits(&line.text, line.kind == "help").into_iter();
            places.extend(habits.map(|words| (line.path, line.number, words)));
        }
    }
    found
}

/// The text of a file that people read, line by line.
fn lines<'a>(path: &'a str, text: &'a str) -> Vec<TextLine<'a>> {
    let is_page = path.ends_with(".md") && !path.starts_with("docs/results/");
    let is_rust = path.ends_with(".rs");
    if !is_page && !is_rust {
        return Vec::new();
    }
    let part = match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", part, ..] => part,
        _ if is_page => "docs",
        [part, ..] => part,
        [] => "",
    };
    let has_arguments = ["#[arg(", "#[command(", "ValueEnum"].iter();
    let is_help = path.starts_with("crates/mpps/src/")
        && has_arguments.clone().any(|mark| text.contains(mark));
    let mut in_tests = path.contains("/tests") || path.ends_with("tests.rs");
    let mut in_code = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut push = |kind, text: &str| {
            lines.push(TextLine {
                kind,
                part,
                path,
                number: at + 1,
                text: without_code(text),
            });
        };
        let line = line.trim();
        in_tests |= line.contains("#[cfg(test)]");
        if is_page {
            in_code ^= line.starts_with("```");
            if !in_code {
                push("docs", line);
            }
        } else if let Some(comment) = line.strip_prefix("//") {
            let is_doc = comment.starts_with('/');
            let kind = if is_doc && is_help {
                "help"
            } else {
                "comments"
            };
            push(kind, comment.trim_start_matches(['/', '!']).trim());
        } else if !in_tests && path.starts_with("crates/") {
            for message in line.split('"').skip(1).step_by(2) {
                if message.contains(' ') {
                    push("messages", message);
                }
            }
        }
    }
    lines
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("x")
}

/// The habits of a line, each with a better word.
fn habits(line: &str, is_help: bool) -> Vec<String> {
    let lower = line.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'' && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (phrase, better) in PHRASES {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        let times = words.windows(wanted.len()).filter(|seen| *seen == wanted);
        found.extend(times.map(|_| format!("`{phrase}`: better {better}")));
    }
    for pair in words.windows(2) {
        if BEFORE_WHICH.contains(&pair[0]) && ["which", "whom", "whose"].contains(&pair[1]) {
            found.push(format!(
                "`{} {}`: better a second sentence",
                pair[0], pair[1]
            ));
        }
    }
    let starts = line.split(". ").map(|sentence| {
        let first = sentence.split(' ').next().unwrap_or_default();
        (first, sentence.contains('?'))
    });
    for (first, is_question) in starts {
        let is_capital = first.starts_with(char::is_uppercase);
        if is_capital && !is_question && SUBJECTS.contains(&first.to_lowercase().as_str()) {
            found.push(format!("`{first}` as a subject: name the thing"));
        }
    }
    let first = words.first().copied().unwrap_or_default();
    let starts_so = line.starts_with(char::is_uppercase) && FIRST.contains(&first);
    if is_help && starts_so {
        found.push(format!(
            "`{first}`: a help text starts with show, set, use, ..."
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_questions_are_no_habits() {
        for fine in [
            "What is lost?",
            "Use `else` here",
            "the user who sends",
            "Otherwise it waits",
        ] {
            assert!(habits(&without_code(fine), true).is_empty(), "{fine}");
        }
        for (habit, count) in [
            ("Tell what mends it", 3),
            ("What is lost is counted", 1),
            ("the queue by which it came", 1),
            ("It has not the right", 1),
        ] {
            assert_eq!(habits(habit, true).len(), count, "{habit}");
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        let args = "/// Show it\n// A note\n#[arg(long)]\nlet a = \"two words\";\n";
        let kinds: Vec<_> = lines("crates/mpps/src/command.rs", args)
            .iter()
            .map(|line| line.kind)
            .collect();
        assert_eq!(kinds, ["help", "comments", "messages"]);
        assert!(lines("docs/results/a.md", "nobody").is_empty());
        assert_eq!(lines("docs/a.md", "a\n```\nb\n```\n").len(), 2);
    }
}
