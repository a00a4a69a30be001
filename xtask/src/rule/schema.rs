//! Published schemas are JSON and say which dialect they are in.

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;
use serde_json::Value;

pub(super) const RULE: Rule = Rule {
    name: "schema",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let schemas = tree
        .ending("json")
        .filter(|(path, _)| path.starts_with("docs/schema/"));
    for (path, text) in schemas {
        match serde_json::from_str::<Value>(text) {
            Err(error) => findings.push(Finding::new(path, error.line(), error.to_string())),
            Ok(schema) if schema["$schema"].is_string() => {}
            Ok(_) => findings.push(Finding::new(path, 1, "add \"$schema\", the dialect")),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn schemas_that_are_none_are_found() {
        let files = [
            ("docs/schema/a.json", "{\n\"a\": }"),
            ("docs/schema/b.json", "{\"$schema\": \"x\"}"),
            ("docs/schema/c.json", "{}"),
            ("docs/results/d.json", "{"),
        ];
        let found = ["docs/schema/a.json:2", "docs/schema/c.json:1"];
        assert_eq!(places(&RULE, &files), found);
    }
}
