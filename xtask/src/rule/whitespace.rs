//! Lines end where their text ends, and files end with a line's end.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

/// Folders and files that stay as another program wrote them.
const AS_WRITTEN: &[&str] = &["docs/results/", "/fixtures/", "fuzz/seeds/", "LICENSE-"];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let ours = |path: &str| !AS_WRITTEN.iter().any(|kept| path.contains(kept));
    for (path, text) in tree.texts().filter(|(path, _)| ours(path)) {
        for (at, line) in text.split('\n').enumerate() {
            if line.ends_with(char::is_whitespace) {
                findings.push(TidyFinding::new(
                    path,
                    at + 1,
                    "take the space off the line's end",
                ));
            }
        }
        let lines = text.lines().count();
        if !text.is_empty() && !text.ends_with('\n') {
            findings.push(TidyFinding::new(path, lines, "end the file with a newline"));
        }
        if text.ends_with("\n\n") {
            findings.push(TidyFinding::new(
                path,
                lines,
                "take the empty lines off the file's end",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn spaces_and_ends_are_found() {
        let files = [
            ("a.md", "a\nb \n"),
            ("b.toml", "a\nb"),
            ("c.css", "a\n\n"),
            ("d.sh", "a\r\n"),
            ("docs/results/e.txt", "a "),
            ("f.rs", "a\n"),
            ("g", ""),
        ];
        let found = ["a.md:2", "b.toml:2", "c.css:2", "d.sh:1"];
        assert_eq!(places(check, &files), found);
    }
}
