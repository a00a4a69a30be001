//! A function fits on a screen.

use super::Rule;
use crate::finding::Finding;
use crate::rust::{Token, tokens};
use crate::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "functions",
    check,
};

/// Lines that a function has at most, from `fn` to its closing brace.
const LINES_MAX: usize = 70;

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("rs") {
        // A file that is no Rust is found by the rule about words.
        let Ok(tokens) = tokens(text) else { continue };
        for (at, token) in tokens.iter().enumerate() {
            if token.text != "fn" {
                continue;
            }
            let Some(end) = body_end(&tokens[at + 1..]) else {
                continue;
            };
            let lines = end + 1 - token.line;
            if lines > LINES_MAX {
                let name = &tokens[at + 1].text;
                let message = format!(
                    "{name} has {lines} lines, at most {LINES_MAX}: give its parts names of \
                     their own"
                );
                findings.push(Finding::new(path, token.line, message));
            }
        }
    }
    findings
}

/// The line on which the body ends; none for a function without one, or for a type.
fn body_end(after: &[Token]) -> Option<usize> {
    if after.first()?.text == "(" {
        return None;
    }
    let mut depth = 0;
    for token in after {
        match token.text.as_str() {
            "{" if depth == 0 => return Some(token.line_end),
            ";" if depth == 0 => return None,
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn long_functions_are_found() {
        let function = |lines| format!("\nfn a(b: [u8; 3]) {{{}}}\n", "\n".repeat(lines - 1));
        let fine = [("a.rs", &*function(LINES_MAX)), ("b.rs", "type F = fn();")];
        assert!(places(&RULE, &fine).is_empty());
        let broken = [("a.rs", &*function(LINES_MAX + 1))];
        assert_eq!(places(&RULE, &broken), ["a.rs:2"]);
    }

    #[test]
    fn a_function_without_a_body_does_not_take_the_next_one() {
        let text = format!(
            "trait A {{ fn a(); }}\nmod b {{{}}}",
            "\n".repeat(LINES_MAX)
        );
        assert!(places(&RULE, &[("a.rs", &text)]).is_empty());
    }
}
