//! `unsafe` stays in the crate `os` and in the few files that ARCHITECTURE.md names.

use super::Rule;
use crate::finding::Finding;
use crate::rust::{lines_of, tokens};
use crate::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "unsafe",
    check,
};

/// The crate that wraps system calls.
const WRAPPERS: &str = "crates/os/";
/// The crate of which files may be named.
const PARTLY: &str = "crates/io/";
/// Where they are named.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// What every other crate begins with.
const FORBID: &[&str] = &["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];

fn check(tree: &Tree) -> Vec<Finding> {
    let architecture = tree.text(ARCHITECTURE).unwrap_or_default();
    let mut findings = Vec::new();
    for (path, text) in tree.ending("rs") {
        // A file that is no Rust is found by the rule about words.
        let Ok(tokens) = tokens(text) else { continue };
        let allowed =
            path.starts_with(WRAPPERS) || path.starts_with(PARTLY) && architecture.contains(path);
        if !allowed {
            let message = if path.starts_with(PARTLY) {
                format!("unsafe code in a file that {ARCHITECTURE} does not name by its path")
            } else {
                format!("unsafe code outside {WRAPPERS}: wrap it there")
            };
            let lines = lines_of(&tokens, &["unsafe"]);
            findings.extend(lines.map(|line| Finding::new(path, line, &*message)));
        }
        let is_root = ["src/lib.rs", "src/main.rs"]
            .iter()
            .any(|root| path.ends_with(root));
        let partly = path.starts_with(WRAPPERS) || path.starts_with(PARTLY);
        if is_root && !partly && lines_of(&tokens, FORBID).next().is_none() {
            let message = format!("add `{}`", FORBID.concat());
            findings.push(Finding::new(path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    const UNSAFE: &str = "//! A.\nfn a() { unsafe {} }";

    #[test]
    fn unsafe_code_in_the_wrong_place_is_found() {
        let files = [
            (
                "ARCHITECTURE.md",
                "Unsafe: `crates/io/src/batch.rs`, `crates/host/src/cpu.rs`",
            ),
            ("crates/host/src/cpu.rs", UNSAFE),
            ("crates/io/src/batch.rs", UNSAFE),
            ("crates/io/src/pace.rs", UNSAFE),
            ("crates/os/src/socket.rs", UNSAFE),
        ];
        let found = ["crates/host/src/cpu.rs:2", "crates/io/src/pace.rs:2"];
        assert_eq!(places(&RULE, &files), found);
    }

    #[test]
    fn a_crate_that_does_not_forbid_it_is_found() {
        let forbids = "//! A.\n#![forbid(unsafe_code)]\n";
        let files = [
            ("crates/host/src/lib.rs", forbids),
            ("crates/io/src/lib.rs", "//! A."),
            ("crates/lab/src/lib.rs", "//! #![forbid(unsafe_code)]"),
            ("crates/os/src/lib.rs", "//! A."),
            ("xtask/src/main.rs", "//! A."),
        ];
        let found = ["crates/lab/src/lib.rs:1", "xtask/src/main.rs:1"];
        assert_eq!(places(&RULE, &files), found);
    }
}
