//! Words that must not be published: unfinished work, and one developer's machine.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

/// Whole words that mark unfinished work, in any file.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

/// Parts of paths that exist on one machine only.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tmp/br", "ief"),
    concat!("shared/", "design"),
];

/// Phrases about how the work was done.
const PHRASES: &[&str] = &[
    concat!("the is", "sue"),
    concat!("this is", "sue"),
    concat!("this ses", "sion"),
    concat!("the br", "ief"),
];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != "Cargo.lock") {
        for (at, line) in text.lines().enumerate() {
            if let Some(message) = objection(line) {
                findings.push(TidyFinding::new(path, at + 1, message));
            }
        }
    }
    findings
}

fn objection(line: &str) -> Option<String> {
    let whole = |word: &&&str| {
        line.match_indices(**word).any(|(at, _)| {
            let edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            edge(line[..at].chars().next_back()) && edge(line[at + word.len()..].chars().next())
        })
    };
    if let Some(mark) = MARKS.iter().find(whole) {
        return Some(format!(
            "`{mark}`: do it now, or say in docs/ what is missing and why"
        ));
    }
    if let Some(place) = PLACES.iter().find(|place| line.contains(**place)) {
        return Some(format!(
            "`{place}` is a path of one machine: give a relative one"
        ));
    }
    let lower = line.to_lowercase();
    let phrase = PHRASES.iter().find(|phrase| lower.contains(**phrase))?;
    Some(format!(
        "`{phrase}`: a reader knows the project only: say what is meant"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn every_forbidden_word_is_found() {
        for word in MARKS.iter().chain(PLACES).chain(PHRASES) {
            let text = format!("fine\nnot {word}, though\n");
            assert_eq!(places(check, &[("a.md", &text)]), ["a.md:2"], "{word}");
        }
    }

    #[test]
    fn parts_of_words_are_fine() {
        let name = format!("mkstemp {}{} and {}S", MARKS[2], MARKS[2], MARKS[0]);
        assert!(places(check, &[("a.md", &name)]).is_empty());
    }
}
