//! `cargo xtask dist`: builds a release in `target/dist`. It has the program without libraries, as
//! an archive and as a Debian package. With it come the library of `mpps accelerate`, manual pages, completions, the exporter's unit,
//! a list of its crates and the checksums of all files. `cargo xtask dist --check` also tries the
//! package.

mod bill;
mod package;

use crate::vm::run_quietly as run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The only target that is built here.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The library of `mpps accelerate`, for programs of the GNU C library. A static target makes none.
const LIBRARY: &str = "target/release/libmpps_accelerate.so";

/// Compiler flags for a program of this target that needs no libraries.
const STATIC: &str = "-C target-feature=+crt-static";

/// The release to build.
#[derive(Debug)]
struct Release {
    root: PathBuf,
    /// The folder for the files.
    folder: PathBuf,
    version: &'static str,
    /// The time of the commit in seconds since 1970, so that a second build has the same files.
    epoch: String,
}

pub(crate) fn run_chore(root: &Path, words: &[String]) -> Result<ExitCode> {
    let is_checked = match words {
        [] => false,
        [word] if word == "--check" => true,
        _ => bail!("usage: cargo xtask dist [--check]"),
    };
    let release = Release::begin(root)?;
    let program = release.build()?;
    let pages = release.generate(&program)?;
    let package = package::build(&release, &program, &pages)?;
    let archive = release.archive(&program, &pages)?;
    let bill = bill::write(&release)?;
    let sums = run(Command::new("sha256sum")
        .args([&package, &archive, &bill])
        .current_dir(&release.folder))?;
    fs::write(release.folder.join("SHA256SUMS"), &sums)?;
    print!("{sums}");
    if is_checked {
        let checked = [
            ("packaging/check", release.folder.join(&package)),
            ("packaging/check_unit", program),
        ];
        for (check, what) in checked {
            if !Command::new(root.join(check)).arg(what).status()?.success() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Release {
    fn begin(root: &Path) -> Result<Self> {
        let root = fs::canonicalize(root)?;
        let folder = root.join("target/dist");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut log = Command::new("git");
        log.args(["-c", "safe.directory=*", "log", "-1", "--format=%ct"]);
        let epoch = run(log.current_dir(&root))?.trim().to_owned();
        Ok(Self {
            root,
            folder,
            // That of the workspace.
            version: env!("CARGO_PKG_VERSION"),
            epoch,
        })
    }

    /// Builds the program, which has all libraries in it.
    fn build(&self) -> Result<PathBuf> {
        let status = Command::new("cargo")
            .args(["build", "--release", "--locked", "--package", "mpps"])
            .args(["--target", TARGET])
            .env("RUSTFLAGS", STATIC)
            .current_dir(&self.root)
            .status()?;
        if !status.success() {
            bail!("the program was not built");
        }
        let built = self.root.join(format!("target/{TARGET}/release/mpps"));
        let headers = run(Command::new("readelf").args(["-ld"]).arg(&built))?;
        if headers.contains("(NEEDED)") || headers.contains("INTERP") {
            bail!(
                "{} needs a library at run time:\n{headers}",
                built.display()
            );
        }
        let program = self.folder.join("mpps");
        run(Command::new("strip").arg(&built).arg("-o").arg(&program))?;
        run(Command::new("cargo")
            .args(["build", "--release", "--locked", "--package"])
            .arg("mpps-accelerate")
            .env_remove("RUSTFLAGS")
            .current_dir(&self.root))?;
        let library = self.library();
        run(Command::new("strip")
            .arg(self.root.join(LIBRARY))
            .arg("-o")
            .arg(library))?;
        Ok(program)
    }

    fn library(&self) -> PathBuf {
        self.folder.join("libmpps_accelerate.so")
    }

    /// Makes the manual pages and the completions, by the program itself.
    fn generate(&self, program: &Path) -> Result<PathBuf> {
        let pages = self.folder.join("pages");
        let date = run(Command::new("date")
            .args(["--utc", "+%F", "--date"])
            .arg(format!("@{}", self.epoch)))?;
        let mut generate = Command::new(program);
        generate.arg("generate").arg(&pages);
        run(generate.args(["--date", date.trim()]))?;
        Ok(pages)
    }

    /// Makes the archive for every other Linux. Returns the name of its file.
    fn archive(&self, program: &Path, pages: &Path) -> Result<String> {
        let name = format!("mpps-{}-{TARGET}", self.version);
        let folder = self.folder.join(&name);
        fs::create_dir_all(folder.join("packaging"))?;
        run(Command::new("cp")
            .args([program, &self.library()])
            .arg(&folder))?;
        run(Command::new("cp").arg("-r").arg(pages).arg(&folder))?;
        for file in INCLUDED {
            fs::copy(self.root.join(file), folder.join(file))
                .with_context(|| (*file).to_owned())?;
        }
        let file = format!("{name}.tar.gz");
        run(Command::new("tar")
            .args([
                "--create",
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
            ])
            .args(["--use-compress-program=gzip -9n", "--file", &file, &name])
            .arg(format!("--mtime=@{}", self.epoch))
            .current_dir(&self.folder))?;
        fs::remove_dir_all(folder)?;
        Ok(file)
    }
}

/// Files of the archive beside the program, its pages and completions.
const INCLUDED: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "packaging/mpps-exporter.service",
    "packaging/mpps-fix@.service",
    "packaging/prometheus-rules.yml",
    "packaging/grafana-dashboard.json",
];

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    /// cargo-dist and `cargo xtask dist` make the same archive.
    #[test]
    fn both_ways_to_release_agree() {
        let text = fs::read_to_string(format!("{ROOT}/dist-workspace.toml")).unwrap();
        let told: toml::Table = toml::from_str(&text).unwrap();
        let dist = told["dist"].as_table().unwrap();
        let list = |key: &str| -> Vec<&str> {
            let list = dist[key].as_array().unwrap().iter();
            list.map(|word| word.as_str().unwrap()).collect()
        };
        assert_eq!(list("targets"), [TARGET]);
        assert_eq!(
            list("include"),
            [&[LIBRARY], &INCLUDED[4..]].concat(),
            "the others are included by themselves"
        );
        let members = told["workspace"]["members"].as_array().unwrap();
        assert_eq!(members[0].as_str(), Some("cargo:."));
        let manifest = fs::read_to_string(format!("{ROOT}/crates/mpps/Cargo.toml")).unwrap();
        assert!(manifest.contains("[package.metadata.dist]\ndist = true"));
        let flags = format!("RUSTFLAGS='{STATIC}'");
        assert!(text.contains(&flags), "{flags}");
        let config = fs::read_to_string(format!("{ROOT}/.cargo/config.toml")).unwrap_or_default();
        assert!(!config.contains("crt-static"), "only releases are static");
    }

    #[test]
    fn a_wrong_word_is_refused_before_anything_is_built() {
        let refused = run_chore(Path::new(ROOT), &["--chek".to_owned()]).unwrap_err();
        assert!(refused.to_string().contains("usage"), "{refused}");
    }
}
