//! The README's table of backends is the table of the code.

use super::Rule;
use crate::docs::{README, with_backends};
use crate::finding::Finding;
use crate::tree::Tree;

pub(super) const RULE: Rule = Rule {
    name: "backends",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(README).unwrap_or_default();
    let Some(written) = with_backends(text) else {
        let message = "has no table of backends: put the lines `<!-- backends -->` and \
                       `<!-- /backends -->` where it belongs and run `cargo xtask docs`";
        return vec![Finding::new(README, 1, message)];
    };
    if written == text {
        return Vec::new();
    }
    let same = |(now, then): &(&str, &str)| now == then;
    let line = text.lines().zip(written.lines()).take_while(same).count() + 1;
    let message = "the table of backends is not that of the code: run `cargo xtask docs`";
    vec![Finding::new(README, line, message)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn an_old_table_is_found_and_a_new_one_is_fine() {
        let empty = "# mpps\n<!-- backends -->\n<!-- /backends -->\n";
        let written = with_backends(empty).unwrap();
        assert!(places(&RULE, &[(README, &written)]).is_empty());
        let old = written.replacen("| `recvmmsg` |", "| `recvmsg` |", 1);
        assert_ne!(old, written);
        assert_eq!(places(&RULE, &[(README, empty)]), ["README.md:3"]);
        assert_eq!(places(&RULE, &[(README, &old)]).len(), 1);
        assert_eq!(places(&RULE, &[]), ["README.md:1"]);
    }
}
