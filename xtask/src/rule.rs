//! The table of rules. To add one, write its file and add two lines here.

mod circles;
mod habits;
mod layers;
mod length;
mod links;
mod modules;
mod names;
mod opening;
mod permission;
mod quotes;
mod results;
mod tables;
mod whitespace;
mod words;

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

/// A rule: the name that its findings carry, and the function that finds them.
pub(crate) type TidyRule = (&'static str, fn(&RepositoryTree) -> Vec<TidyFinding>);

/// Every rule.
pub(crate) const RULES: &[TidyRule] = &[
    ("length", length::check),
    ("opening", opening::check),
    ("modules", modules::check),
    ("circles", circles::check),
    ("names", names::check),
    ("words", words::check),
    ("habits", habits::check),
    ("whitespace", whitespace::check),
    ("layers", layers::check),
    ("tables", tables::check),
    ("links", links::check),
    ("results", results::check),
    ("quotes", quotes::check),
    ("unsafe", permission::check),
];

/// The findings of a rule in a small tree, as `path:line`.
#[cfg(test)]
fn places(check: fn(&RepositoryTree) -> Vec<TidyFinding>, files: &[(&str, &str)]) -> Vec<String> {
    let mut findings = check(&RepositoryTree::of(files));
    findings.sort();
    findings
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}
