//! Chores of the repository, run as `cargo xtask CHORE`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a chore has to say goes to the terminal"
)]

mod docs;
mod finding;
mod rule;
mod rust;
mod tidy;
mod tree;

use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;

/// One thing that `cargo xtask` can do.
struct Chore {
    name: &'static str,
    summary: &'static str,
    run: fn(&Path) -> Result<ExitCode>,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "tidy",
        summary: "check the rules of style that can be checked",
        run: tidy::run,
    },
    Chore {
        name: "docs",
        summary: "write the tables of the README that come from the code",
        run: docs::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = match arguments.as_slice() {
        [name] => CHORES.iter().find(|chore| chore.name == name),
        _ => None,
    };
    let Some(chore) = chore else {
        eprintln!("usage: cargo xtask CHORE");
        for chore in CHORES {
            eprintln!("  {:<6} {}", chore.name, chore.summary);
        }
        return ExitCode::from(2);
    };
    // The workspace is the folder above this crate.
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    (chore.run)(root).unwrap_or_else(|error| {
        eprintln!("xtask {}: {error:#}", chore.name);
        ExitCode::from(2)
    })
}
