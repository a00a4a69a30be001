//! Output in a page is that of the raw file it names: `<!-- from docs/results/...txt -->` before a
//! block of code. `...` stands for what was left out; lines may be wrapped in another way.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("md") {
        let mut source: Option<(&str, String)> = None;
        let mut in_block = false;
        for (at, line) in text.lines().enumerate() {
            if let Some(from) = named(line) {
                match tree.text(from) {
                    Some(raw) => source = Some((from, squeezed(raw))),
                    None => {
                        findings.push(TidyFinding::new(path, at + 1, format!("no file {from}")))
                    }
                }
                continue;
            }
            if line.starts_with("```") {
                in_block = !in_block && source.is_some();
                source = source.filter(|_| in_block);
                continue;
            }
            let Some((from, raw)) = source.as_ref().filter(|_| in_block) else {
                continue;
            };
            let is_command = line.starts_with("$ ");
            let parts = line.split("...").map(squeezed);
            let mut absent = parts.filter(|part| !is_command && !raw.contains(part.as_str()));
            if let Some(part) = absent.next() {
                findings.push(TidyFinding::new(
                    path,
                    at + 1,
                    format!("not in {from}: `{part}`"),
                ));
            }
        }
    }
    findings
}

/// The file that a line names as the source of the block below it.
fn named(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- from ")?.strip_suffix(" -->")
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn a_figure_that_the_raw_file_has_not_is_found() {
        let raw = ("docs/results/a.txt", "rate  1.25 Mpps\n   of 2.5\nend\n");
        let page =
            |block: &str| format!("<!-- from docs/results/a.txt -->\n```\n{block}\n```\n9.9\n");
        for (block, expected) in [
            ("$ mpps lab\nrate 1.25 Mpps of 2.5\n...\nend", &[][..]),
            ("rate ... of 2.5", &[]),
            ("rate 1.26 Mpps", &["a.md:3"]),
        ] {
            let text = page(block);
            assert_eq!(places(check, &[raw, ("a.md", &text)]), expected, "{block}");
        }
        assert_eq!(places(check, &[("a.md", &page("x"))]), ["a.md:1"]);
        assert!(places(check, &[("a.md", "```\n9.9\n```\n")]).is_empty());
    }
}
