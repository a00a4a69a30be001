//! Every source file is a module of the one above it.

use crate::finding::TidyFinding;
use crate::rust::{lines_of, tokens};
use crate::tree::RepositoryTree;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, _) in tree.ending("rs") {
        let Some((krate, inside)) = path.split_once("src/") else {
            continue;
        };
        let module = inside.trim_end_matches(".rs");
        if ["lib", "main"].contains(&module) || module.starts_with("bin/") {
            continue;
        }
        let (parents, name) = match module.rsplit_once('/') {
            Some((parent, name)) => (vec![format!("{krate}src/{parent}.rs")], name),
            None => (
                ["lib", "main"]
                    .map(|root| format!("{krate}src/{root}.rs"))
                    .into(),
                module,
            ),
        };
        let named = parents.iter().any(|parent| declares(tree, parent, name));
        if !named {
            let parent = &parents[0];
            let message =
                format!("nothing compiles it: add `mod {name};` to {parent}, or delete it");
            findings.push(TidyFinding::new(path, 1, message));
        }
    }
    findings
}

fn declares(tree: &RepositoryTree, parent: &str, name: &str) -> bool {
    let tokens = tree.text(parent).and_then(|text| tokens(text).ok());
    tokens.is_some_and(|tokens| lines_of(&tokens, &["mod", name, ";"]).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn files_that_nothing_compiles_are_found() {
        let files = [
            ("c/src/lib.rs", "mod a;\n// mod lost;\n"),
            ("c/src/main.rs", "mod b;"),
            ("c/src/a.rs", "mod inner;"),
            ("c/src/a/inner.rs", ""),
            ("c/src/a/lost.rs", ""),
            ("c/src/b.rs", ""),
            ("c/src/lost.rs", ""),
            ("c/tests/common/mod.rs", ""),
        ];
        let found = ["c/src/a/lost.rs:1", "c/src/lost.rs:1"];
        assert_eq!(places(check, &files), found);
    }
}
