//! Every file begins by saying what it is.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    tree.ending("rs")
        .filter(|(path, _)| !path.contains("/fixtures/"))
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| {
            TidyFinding::new(
                path,
                1,
                "begin the file with a `//!` sentence on what it is",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn a_file_that_does_not_say_what_it_is_is_found() {
        let files = [
            ("a.rs", "//! A.\n"),
            ("b.rs", "use std::io;\n//! B.\n"),
            ("c.rs", ""),
            ("tests/fixtures/d.rs", ""),
        ];
        assert_eq!(places(check, &files), ["b.rs:1", "c.rs:1"]);
    }
}
