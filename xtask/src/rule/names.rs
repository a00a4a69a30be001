//! A type's name is unique in the workspace, so that a search finds one type.
//!
//! Tests have names of their own.

use super::circles::without_tests;
use crate::finding::TidyFinding;
use crate::rust::tokens;
use crate::tree::RepositoryTree;
use std::collections::BTreeMap;

/// The words before the name of a new type. An associated type (`type Target = …`) is none.
const DECLARES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for (path, text) in tree.ending("rs") {
        let is_source = path.contains("src/") && path.starts_with(['c', 'x']);
        let Ok(tokens) = tokens(text) else { continue };
        if !is_source || path.ends_with("tests.rs") {
            continue;
        }
        let tokens = without_tests(&tokens);
        let mut depth = 0_usize;
        for pair in tokens.windows(2) {
            let [word, name] = pair else { continue };
            match &*word.text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            let starts_a_type = depth == 0 && DECLARES.contains(&&*word.text);
            if !starts_a_type || !name.text.starts_with(char::is_uppercase) {
                continue;
            }
            match first.get(&name.text) {
                Some(other) => findings.push(TidyFinding::new(
                    path,
                    name.line,
                    format!(
                        "{} is also a type of {other}: say its domain in its name",
                        name.text
                    ),
                )),
                None => {
                    first.insert(name.text.clone(), path.to_owned());
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;

    #[test]
    fn a_name_that_recurs_is_found_and_one_of_a_test_is_not() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "pub struct Plan;\nimpl Iterator for Plan {\n type Item = u8;\n}\n",
            ),
            ("crates/b/src/lib.rs", "\nenum Plan {}\nstruct Other;\n"),
            (
                "crates/b/src/c.rs",
                "#[cfg(test)]\nmod tests {\n struct Other;\n}\n",
            ),
            ("crates/b/tests/d.rs", "struct Plan;\n"),
            ("bench/peers/src/e.rs", "struct Plan;\n"),
        ];
        assert_eq!(places(super::check, &files), ["crates/b/src/lib.rs:2"]);
    }
}
