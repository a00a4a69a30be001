//! One noun, one file: files stay short, and `lib.rs` is a table of contents.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

/// A file of this many lines is worth a second look.
const LOOK_LINES: usize = 500;
/// The maximum number of lines of a file.
const FILE_LINES_MAX: usize = 800;
/// The maximum number of lines of a crate's `lib.rs`.
const CONTENTS_LINES_MAX: usize = 100;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("rs") {
        let lines = text.lines().count();
        if path.ends_with("src/lib.rs") && lines > CONTENTS_LINES_MAX {
            let message = format!(
                "{lines} lines; a lib.rs is a table of contents of at most {CONTENTS_LINES_MAX}: \
                 move the code to a module"
            );
            findings.push(TidyFinding::new(path, lines, message));
        } else if lines > FILE_LINES_MAX {
            let message = format!(
                "{lines} lines, at most {FILE_LINES_MAX}: find the second noun in it and give it \
                 a file"
            );
            findings.push(TidyFinding::new(path, lines, message));
        } else if lines > LOOK_LINES {
            let message = format!("{lines} lines: is there a second noun in it?");
            findings.push(TidyFinding::hint(path, lines, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn long_files_are_found() {
        let lines = |count| "\n".repeat(count);
        let (contents, long) = (lines(CONTENTS_LINES_MAX), lines(FILE_LINES_MAX));
        let fine = [("src/lib.rs", &*contents), ("src/short.rs", "\n")];
        assert!(places(check, &fine).is_empty());

        let hints = check(&RepositoryTree::of(&[("src/a.rs", &long)]));
        assert!(hints.len() == 1 && hints[0].hint);

        let (contents, long) = (lines(CONTENTS_LINES_MAX + 1), lines(FILE_LINES_MAX + 1));
        let broken = check(&RepositoryTree::of(&[
            ("src/lib.rs", &contents),
            ("src/a.rs", &long),
        ]));
        assert_eq!(broken.iter().filter(|finding| !finding.hint).count(), 2);
    }
}
