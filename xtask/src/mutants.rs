//! `cargo xtask mutants [MODULE...]`: checks the tests of the modules that every figure rests on.
//! It changes one operator or value at a time, and sees whether the tests notice.
//!
//! The modules are those of `xtask/mutants.toml`; the changes are made by cargo-mutants, in a copy.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The minimum share of the changes that the tests of each module must notice.
const SHARE_MIN: f64 = 0.95;
/// Tests of a module take seconds. This limit notices a change that makes a loop endless.
const TIMEOUT_SECONDS: &str = "60";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleTable {
    module: Vec<MutantModule>,
}

/// One module, and the tests that must notice changes in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantModule {
    name: String,
    package: String,
    files: Vec<String>,
    /// Parts of the names of its tests.
    tests: Vec<String>,
    #[serde(default)]
    equivalent: Vec<Equivalent>,
}

/// A change that no test can notice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Equivalent {
    /// As cargo-mutants names it, without line and column.
    mutant: String,
    /// The argument, for people.
    #[serde(rename = "why")]
    _why: String,
}

pub(crate) fn run(root: &Path, words: &[String]) -> Result<ExitCode> {
    let path = root.join("xtask/mutants.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let table: ModuleTable = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let known = |word: &&String| !table.module.iter().any(|module| module.name == **word);
    if let Some(word) = words.iter().find(known) {
        let names: Vec<_> = table.module.iter().map(|module| &*module.name).collect();
        bail!("no module `{word}`; there are {}", names.join(", "));
    }
    let version = Command::new("cargo")
        .args(["mutants", "--version"])
        .output();
    if !version.is_ok_and(|answer| answer.status.success()) {
        bail!("cargo-mutants is missing: cargo install --locked cargo-mutants");
    }
    println!("module         caught  survived  equivalent   share");
    let mut fails = false;
    let chosen = |module: &&MutantModule| words.is_empty() || words.contains(&module.name);
    for module in table.module.iter().filter(chosen) {
        let verdict = module.judge(&module.mutate(root)?);
        println!("{}", verdict.text(&module.name));
        fails |= verdict.fails();
    }
    Ok(if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The results of the changes, one line each.
struct MutantResults {
    caught: usize,
    missed: Vec<String>,
}

impl MutantModule {
    fn mutate(&self, root: &Path) -> Result<MutantResults> {
        let target = root.join("target/mutants");
        let out = target.join("results").join(&self.name);
        fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
        let mut command = Command::new("cargo");
        command
            .current_dir(root)
            .args(["mutants", "--package", &self.package]);
        command.args(["--baseline", "skip", "--timeout", TIMEOUT_SECONDS]);
        command.args(self.files.iter().flat_map(|file| ["--file", file]));
        command.arg("--output").arg(&out);
        // For the build too: otherwise the package's test programs would be linked for each change.
        command.arg("--cargo-arg=--lib");
        command.args(["--", "--"]).args(&self.tests);
        // Other people's crates are built once for all modules. One job only: our build outputs
        // have the same names in each job.
        command.env("CARGO_TARGET_DIR", target.join("build"));
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        let answer = command
            .stdin(Stdio::null())
            .output()
            .context("cargo mutants")?;
        // The exit statuses: all were noticed, some were not, some took too long.
        if !matches!(answer.status.code(), Some(0 | 2 | 3)) {
            let said = String::from_utf8_lossy(&answer.stderr);
            let wrote = String::from_utf8_lossy(&answer.stdout);
            bail!(
                "cargo mutants on {} of {}: {said}{wrote}",
                self.name,
                self.package
            );
        }
        let lines = |name: &str| -> Result<Vec<String>> {
            let path = out.join("mutants.out").join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        Ok(MutantResults {
            caught: lines("caught.txt")?.len() + lines("timeout.txt")?.len(),
            missed: lines("missed.txt")?,
        })
    }

    fn judge(&self, found: &MutantResults) -> MutantVerdict {
        let mut survived = found.missed.clone();
        let mut stale = Vec::new();
        for entry in &self.equivalent {
            match survived
                .iter()
                .position(|line| without_place(line) == entry.mutant)
            {
                Some(at) => drop(survived.remove(at)),
                None => stale.push(entry.mutant.clone()),
            }
        }
        MutantVerdict {
            caught: found.caught,
            equivalent: found.missed.len() - survived.len(),
            survived,
            stale,
        }
    }
}

struct MutantVerdict {
    caught: usize,
    equivalent: usize,
    survived: Vec<String>,
    /// Entries of the table that a test noticed after all.
    stale: Vec<String>,
}

impl MutantVerdict {
    /// The share of changes noticed, of those that can be. A module without changes is a wrong
    /// path.
    fn share(&self) -> f64 {
        let all = self.caught + self.survived.len();
        self.caught as f64 / all as f64
    }

    fn fails(&self) -> bool {
        !(self.share() >= SHARE_MIN && self.stale.is_empty())
    }

    fn text(&self, name: &str) -> String {
        let (caught, survived) = (self.caught, self.survived.len());
        let share = self.share() * 100.0;
        let mut text = format!(
            "{name:<13}  {caught:>6}  {survived:>8}  {:>10}  {share:>4.1} %",
            self.equivalent
        );
        for line in &self.survived {
            text += &format!("\n  survived: {line}");
        }
        for line in &self.stale {
            text += &format!("\n  noticed, so no longer an entry of mutants.toml: {line}");
        }
        text
    }
}

/// `a/b.rs:12:3: replace < with <=` without line and column. They change with every edit.
fn without_place(line: &str) -> String {
    match line.split_once(": ") {
        Some((place, what)) => {
            let file = place.split(':').next().unwrap_or(place);
            format!("{file}: {what}")
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(entries: &[&str], caught: usize, missed: &[&str]) -> MutantVerdict {
        let equivalent = entries.iter().map(|mutant| Equivalent {
            mutant: (*mutant).to_owned(),
            _why: String::new(),
        });
        let module = MutantModule {
            name: "a".to_owned(),
            package: "p".to_owned(),
            files: Vec::new(),
            tests: Vec::new(),
            equivalent: equivalent.collect(),
        };
        module.judge(&MutantResults {
            caught,
            missed: missed.iter().map(|line| (*line).to_owned()).collect(),
        })
    }

    #[test]
    fn an_entry_excuses_one_change() {
        let (entry, lines) = (
            "a.rs: delete ! in x",
            ["a.rs:1:2: delete ! in x", "a.rs:9:2: delete ! in x"],
        );
        let once = verdict(&[entry], 19, &lines);
        assert_eq!(
            (once.equivalent, &*once.survived),
            (1, &[lines[1].to_owned()][..])
        );
        assert!(!once.fails() && verdict(&[entry], 18, &lines).fails());
        let twice = verdict(&[entry; 2], 1, &lines);
        assert_eq!(
            (twice.equivalent, twice.survived.len(), twice.fails()),
            (2, 0, false)
        );
    }

    #[test]
    fn an_entry_that_is_noticed_and_a_module_without_changes_are_errors() {
        let stale = verdict(&["a.rs: delete ! in x"], 100, &[]);
        assert!(
            stale.fails()
                && stale
                    .text("a")
                    .ends_with("mutants.toml: a.rs: delete ! in x")
        );
        assert!(verdict(&[], 0, &[]).fails());
    }

    #[test]
    fn the_table_names_files_that_are_there() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let text = fs::read_to_string(root.join("xtask/mutants.toml")).expect("it is here");
        let table: ModuleTable = toml::from_str(&text).expect("a table");
        for file in table.module.iter().flat_map(|module| &module.files) {
            let path = root.join(file.trim_end_matches("*.rs"));
            assert!(path.exists(), "{file}");
        }
    }
}
