//! The table of rules. To add one, write its file and add two lines here.

mod circles;
mod layers;
mod length;
mod links;
mod modules;
mod opening;
mod permission;
mod results;
mod schema;
mod tables;
mod whitespace;
mod words;

use crate::finding::Finding;
use crate::tree::Tree;

/// One rule.
pub(crate) struct Rule {
    /// The name that findings carry.
    pub(crate) name: &'static str,
    /// Finds what breaks it.
    pub(crate) check: fn(&Tree) -> Vec<Finding>,
}

/// Every rule.
pub(crate) const RULES: &[Rule] = &[
    length::RULE,
    opening::RULE,
    modules::RULE,
    circles::RULE,
    words::RULE,
    whitespace::RULE,
    layers::RULE,
    tables::RULE,
    links::RULE,
    results::RULE,
    schema::RULE,
    permission::RULE,
];

/// What a rule says of a small tree, as `path:line`.
#[cfg(test)]
fn places(rule: &Rule, files: &[(&str, &str)]) -> Vec<String> {
    let mut findings = (rule.check)(&Tree::of(files));
    findings.sort();
    findings
        .iter()
        .map(|finding| format!("{}:{}", finding.path, finding.line))
        .collect()
}
