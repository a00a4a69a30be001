//! The tables of the documentation match the code and the results.

use crate::docs::TABLES;
use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for table in TABLES {
        let (path, name) = (table.path, table.name);
        let text = tree.text(path).unwrap_or_default();
        let Some(written) = table.written(tree, text) else {
            let message = format!(
                "has no table: put the lines `<!-- {name} -->` and `<!-- /{name} -->` where it \
                 belongs and run `cargo xtask docs`"
            );
            findings.push(TidyFinding::new(path, 1, message));
            continue;
        };
        if written != text {
            let same = |(now, then): &(&str, &str)| now == then;
            let line = text.lines().zip(written.lines()).take_while(same).count() + 1;
            let message = format!("the table `{name}` is old: run `cargo xtask docs`");
            findings.push(TidyFinding::new(path, line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn an_old_table_is_found_and_a_new_one_is_fine() {
        let tree = RepositoryTree::of(&[]);
        let texts = TABLES.iter().map(|table| {
            let empty = format!("# a\n<!-- {0} -->\n<!-- /{0} -->\n", table.name);
            (table.path, table.written(&tree, &empty).unwrap())
        });
        let texts: Vec<(&str, String)> = texts.collect();
        let mut files: Vec<(&str, &str)> = texts
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        assert!(places(check, &files).is_empty());
        let old = files[0].1.replacen("| `recvmmsg` |", "| `recvmsg` |", 1);
        assert_ne!(old, files[0].1);
        files[0].1 = &old;
        assert_eq!(places(check, &files).len(), 1);
        assert_eq!(places(check, &[]).len(), TABLES.len());
    }
}
