//! A published figure has its machine, its kernel, its command, its date and its raw file.
//!
//! Each folder `docs/results/<yyyy-mm-dd>-<machine>/` has a README.md. It has a line each that
//! begins with `Kernel`, `CPU` and `Command`: a list item, a table row or a heading. It names every
//! other file of the folder.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;
use std::collections::BTreeSet;

const FOLDER: &str = "docs/results/";
/// The first words of the lines that the README must have.
const SUBJECTS: [&str; 3] = ["kernel", "cpu", "command"];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let inside = || tree.paths().filter_map(|path| path.strip_prefix(FOLDER));
    let runs: BTreeSet<&str> = inside()
        .filter_map(|path| Some(path.split_once('/')?.0))
        .collect();
    for path in inside().filter(|path| !path.contains('/')) {
        let message = "move it to a folder <yyyy-mm-dd>-<machine>/";
        findings.push(TidyFinding::new(&format!("{FOLDER}{path}"), 1, message));
    }
    for run in runs {
        let folder = format!("{FOLDER}{run}");
        let page = format!("{folder}/README.md");
        if !is_dated(run) {
            findings.push(TidyFinding::new(
                &folder,
                1,
                "name it <yyyy-mm-dd>-<machine>",
            ));
        }
        let Some(text) = tree.text(&page) else {
            let message = "write it: kernel, CPU, command, and what each file is";
            findings.push(TidyFinding::new(&page, 1, message));
            continue;
        };
        for subject in SUBJECTS {
            if !text.lines().any(|line| begins(line, subject)) {
                let message = format!("add a line that begins with `{subject}`");
                findings.push(TidyFinding::new(&page, 1, message));
            }
        }
        for path in tree.paths().filter(|path| *path != page) {
            let name = path
                .strip_prefix(&folder)
                .and_then(|name| name.strip_prefix('/'));
            if name.is_some_and(|name| !text.contains(name)) {
                let message = format!("say in {page} what it is and which command made it");
                findings.push(TidyFinding::new(path, 1, message));
            }
        }
    }
    findings
}

/// True for `2026-01-31-name`.
fn is_dated(run: &str) -> bool {
    let pattern = "dddd-dd-dd-";
    run.len() > pattern.len()
        && run.chars().zip(pattern.chars()).all(|(c, p)| match p {
            'd' => c.is_ascii_digit(),
            _ => c == p,
        })
}

/// True if the first word of a line is this one. Marks of lists, tables and emphasis do not count.
fn begins(line: &str, subject: &str) -> bool {
    let line = line.trim_start_matches(|c: char| !c.is_alphanumeric());
    line.to_lowercase().starts_with(subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    const PAGE: &str = "# A run\n* **Kernel**: 6.18\n| CPU | 2 |\n## Commands\n`lab.json`\n";

    #[test]
    fn a_whole_record_is_fine() {
        let files = [
            ("docs/results/2026-01-31-a/README.md", PAGE),
            ("docs/results/2026-01-31-a/lab.json", "{}"),
        ];
        assert!(places(check, &files).is_empty());
    }

    #[test]
    fn what_is_missing_is_found() {
        let files = [
            (
                "docs/results/2026-01-31-a/README.md",
                "# A kernel's run\nKernel, CPU\n",
            ),
            ("docs/results/2026-01-31-a/raw/lab.json", "{}"),
            ("docs/results/2026-02-01-b/lab.json", "{}"),
            ("docs/results/loose.json", "{}"),
            ("docs/results/today/README.md", PAGE),
        ];
        let found = [
            "docs/results/2026-01-31-a/README.md:1",
            "docs/results/2026-01-31-a/README.md:1",
            "docs/results/2026-01-31-a/raw/lab.json:1",
            "docs/results/2026-02-01-b/README.md:1",
            "docs/results/loose.json:1",
            "docs/results/today:1",
        ];
        assert_eq!(places(check, &files), found);
    }
}
