//! `cargo xtask tidy`: checks the rules of style that a program can check.

use crate::finding::TidyFinding;
use crate::rule::RULES;
use crate::tree::RepositoryTree;
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;

/// Prints all findings. Status 1 if there is anything to fix.
pub(crate) fn run(root: &Path, _: &[String]) -> Result<ExitCode> {
    let tree = RepositoryTree::read(root)?;
    let mut broken = 0;
    for (name, check) in RULES {
        let mut findings: Vec<TidyFinding> = check(&tree);
        findings.sort();
        for finding in &findings {
            println!("{finding} [{name}]");
        }
        broken += findings.iter().filter(|finding| !finding.hint).count();
    }
    let (files, rules) = (tree.paths().count(), RULES.len());
    if broken == 0 {
        println!("tidy: {files} files keep {rules} rules");
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {broken} places to mend");
    Ok(ExitCode::FAILURE)
}
