//! The counts of habits may only fall.

use crate::finding::TidyFinding;
use crate::habits::{FILE, found, read};
use crate::tree::RepositoryTree;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let Some(kept) = tree.text(FILE) else {
        return Vec::new();
    };
    let kept = read(kept);
    let found = found(tree);
    let mut findings = Vec::new();
    for (key, places) in &found {
        let most = kept.get(&(key.0.to_owned(), key.1.to_owned())).copied();
        if places.len() > most.unwrap_or_default() {
            findings.extend(places.iter().map(|(path, line, words)| {
                TidyFinding::new(path, *line, format!("{words} ({} of {})", key.0, key.1))
            }));
        }
    }
    let fell = kept.iter().any(|(key, most)| {
        let now = found.get(&(key.0.as_str(), key.1.as_str()));
        now.map_or(0, Vec::len) < *most
    });
    if fell {
        findings.push(TidyFinding::new(
            FILE,
            1,
            "counts fell: write them by `cargo xtask docs`",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn a_count_may_fall_and_not_rise() {
        let file = |count: usize| (FILE, format!("comments\tx\t{count}\n"));
        let code = "// Nobody reads.\n// It is fine.\n//! else\n";
        for (kept, expected) in [
            (0, &["crates/x/src/a.rs:1", "crates/x/src/a.rs:3"][..]),
            (2, &[]),
            (3, &["xtask/habits.tsv:1"]),
        ] {
            let (path, text) = file(kept);
            let files = [(path, text.as_str()), ("crates/x/src/a.rs", code)];
            assert_eq!(places(check, &files), expected, "{kept}");
        }
    }
}
