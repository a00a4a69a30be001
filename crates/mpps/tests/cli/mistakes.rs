//! Command lines that cannot work, and the error for each.

use super::{expect_named, expect_refusal};
use crate::common::{mpps, run};
use mpps_trial::Trial;
use std::fs;

const MISTAKES: &str = include_str!("mistakes.tsv");

/// A trial for each.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let rows = MISTAKES.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let [name, usage, arguments, words] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("four columns: {row}");
        };
        let words: Vec<&str> = words.split("; ").collect();
        let make = move || make(usage == "usage", arguments, &words);
        Trial::waits(format!("cli::mistake::{name}"), make)
    })
}

/// Makes the mistake, and checks the error.
fn make(shows_usage: bool, arguments: &str, words: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let arguments: Vec<&str> = arguments.split_ascii_whitespace().collect();
    let ended = run(mpps(&arguments).current_dir(&directory));
    if shows_usage {
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.out.is_empty(), "{ended:#?}");
        expect_named(&ended, words);
    } else {
        expect_refusal(&ended, words);
    }
    let left = fs::read_dir(&directory).expect("it is still there").count();
    assert_eq!(left, 0, "files were left behind");
}
