//! ARCHITECTURE.md names every file that allows itself unsafe code. A lint of the workspace forbids
//! it in the others.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

/// The crate that wraps system calls.
const WRAPPERS: &str = "crates/os/";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The name of the lint. It is split so that this file does not contain it.
const LINT: &str = concat!("unsafe", "_code");

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let architecture = tree.text(ARCHITECTURE).unwrap_or_default();
    let mut findings = Vec::new();
    let others = tree
        .ending("rs")
        .filter(|(path, _)| !path.starts_with(WRAPPERS));
    for (path, text) in others.filter(|(path, _)| !architecture.contains(&format!("`{path}`"))) {
        for (at, line) in text.lines().enumerate() {
            if line.contains(LINT) && !line.contains("forbid") {
                let message = format!("unsafe code in a file that {ARCHITECTURE} does not name");
                findings.push(TidyFinding::new(path, at + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn a_file_that_is_not_named_may_not_allow_it() {
        let allow = format!("//! A.\n#![allow(\n    {LINT},\n)]\n");
        let forbid = format!("#![forbid({LINT})]\n");
        let files = [
            (ARCHITECTURE, "`unsafe` lives in `crates/io/src/batch.rs`"),
            ("crates/io/src/batch.rs", &*allow),
            ("crates/io/src/flow.rs", &*allow),
            ("crates/os/src/lib.rs", &*allow),
            ("crates/lab/src/lib.rs", &*forbid),
        ];
        assert_eq!(places(check, &files), ["crates/io/src/flow.rs:3"]);
    }
}
