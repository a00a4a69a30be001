//! Chores of the repository, run as `cargo xtask CHORE`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a chore has to say goes to the terminal"
)]

mod dist;
mod docs;
mod finding;
mod habits;
mod mutants;
mod rule;
mod rust;
mod seen;
mod tidy;
mod tree;
mod vm;

use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;

/// One thing that `cargo xtask` can do.
struct Chore {
    name: &'static str,
    summary: &'static str,
    /// The chore, from the root of the repository, with the words behind its name.
    run: fn(&Path, &[String]) -> Result<ExitCode>,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "tidy",
        summary: "check the rules of style that can be checked",
        run: tidy::run,
    },
    Chore {
        name: "docs",
        summary: "write the tables that come from the code and from results",
        run: docs::run,
    },
    Chore {
        name: "dist",
        summary: "make what a release has, and with --check try its package",
        run: dist::run_chore,
    },
    Chore {
        name: "mutants",
        summary: "change the modules that figures rest on, and see whether tests notice",
        run: mutants::run,
    },
    Chore {
        name: "vm",
        summary: "run commands and tests on other kernels, CPUs and network cards",
        run: vm::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = match arguments.as_slice() {
        [name, words @ ..] => CHORES
            .iter()
            .find(|chore| chore.name == name)
            .map(|chore| (chore, words)),
        _ => None,
    };
    let Some((chore, words)) = chore else {
        eprintln!("usage: cargo xtask CHORE [WORD...]");
        for chore in CHORES {
            eprintln!("  {:<7} {}", chore.name, chore.summary);
        }
        return ExitCode::from(2);
    };
    // The workspace is the folder above this crate.
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    (chore.run)(root, words).unwrap_or_else(|error| {
        eprintln!("xtask {}: {error:#}", chore.name);
        ExitCode::from(2)
    })
}
