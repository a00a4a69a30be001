//! Packages of Debian's suites, without touching this host's packages and sources. apt gets lists,
//! a cache and sources of its own (apt.conf(5)).

use super::run_quietly as run;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The suite for QEMU, if the host's own release has one without the card igb.
pub(super) const BACKPORTS: &str = "bookworm-backports";
/// How old the lists may be.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
/// The host's own release comes first, and the unreleased suite last, whatever the version.
const PINS: &str = "Package: *\nPin: release n=sid\nPin-Priority: 10\n\n\
    Package: *\nPin: release n=bullseye*\nPin-Priority: 50\n";

/// apt with a configuration of our own.
#[derive(Debug)]
pub(super) struct Apt {
    configuration: PathBuf,
}

impl Apt {
    /// Prepares it below a folder, and reads the lists of these suites if the ones there are old.
    pub(super) fn new(folder: &Path, suites: &[&str]) -> Result<Self> {
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("cache/archives/partial"))?;
        let place = folder.display();
        let configuration = format!(
            "Dir::Etc::SourceList \"{place}/sources.list\";\n\
             Dir::Etc::SourceParts \"/dev/null\";\n\
             Dir::Etc::Preferences \"{place}/preferences\";\n\
             Dir::Etc::PreferencesParts \"/dev/null\";\n\
             Dir::State::Lists \"{place}/lists\";\n\
             Dir::Cache \"{place}/cache\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             APT::Sandbox::User \"root\";\n"
        );
        let sources = sources(&origins()?, suites);
        let known = fs::read_to_string(folder.join("sources.list")).unwrap_or_default();
        fs::write(folder.join("apt.conf"), configuration)?;
        fs::write(folder.join("preferences"), PINS)?;
        fs::write(folder.join("sources.list"), &sources)?;
        let apt = Self {
            configuration: folder.join("apt.conf"),
        };
        let stamp = folder.join("updated");
        let age = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).ok();
        let is_fresh = age
            .and_then(|time| time.elapsed().ok())
            .is_some_and(|age| age < FRESH);
        if !(is_fresh && known == sources) {
            // A suite that is gone fails, but the others are still read.
            match run(apt.command("apt-get").args(["--quiet=2", "update"])) {
                Ok(_) => fs::write(stamp, "")?,
                Err(error) => println!("vm: {error:#}"),
            }
        }
        Ok(apt)
    }

    /// Installs packages, as root, from the host's release or from its backports.
    pub(super) fn install(&self, packages: &[&str]) -> Result<()> {
        let mut install = self.command("apt-get");
        install.args(["--quiet=2", "--yes", "--no-install-recommends", "install"]);
        install.args(["--target-release", BACKPORTS]).args(packages);
        run(install.env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    }

    /// The newest package whose name fits a pattern, and the text in place of the `*`.
    pub(super) fn newest(&self, pattern: &str) -> Result<(String, String)> {
        let (before, after) = pattern.split_once('*').context("a pattern has a `*`")?;
        let newest_first = "apt-cache pkgnames \"$0\" | sort --version-sort --reverse";
        let names = run(self.command("sh").args(["-c", newest_first, before]))?;
        let versions = names.lines().filter_map(|name| {
            let version = name.strip_prefix(before)?.strip_suffix(after)?;
            (!version.contains('-')).then(|| version.to_owned())
        });
        // apt may know names of packages that are gone.
        for version in versions {
            let name = format!("{before}{version}{after}");
            let shown = self.command("apt-cache").args(["show", &name]).output()?;
            if shown.status.success() && !shown.stdout.is_empty() {
                return Ok((name, version));
            }
        }
        bail!("no package {pattern} can be had here");
    }

    /// Fetches a package and unpacks its files below a folder.
    pub(super) fn unpack(&self, package: &str, folder: &Path) -> Result<()> {
        let download = folder.join("download");
        fs::create_dir_all(&download)?;
        let mut fetch = self.command("apt-get");
        run(fetch
            .args(["--quiet=2", "download", package])
            .current_dir(&download))?;
        for entry in fs::read_dir(&download)? {
            run(Command::new("dpkg-deb")
                .arg("-x")
                .arg(entry?.path())
                .arg(folder))?;
        }
        Ok(fs::remove_dir_all(download)?)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration);
        command
    }
}

/// The addresses that this host gets Debian and its security suites from.
#[derive(Debug, PartialEq, Eq)]
struct Origins {
    archive: String,
    security: Option<String>,
}

/// Asks apt, so that this host's mirror is used here too.
fn origins() -> Result<Origins> {
    let mut ask = Command::new("apt-get");
    ask.args([
        "indextargets",
        "--format",
        "$(ORIGIN) $(RELEASE) $(REPO_URI)",
    ]);
    let listing = run(ask.arg("Created-By: Packages"))?;
    read_origins(&listing).context("apt knows no source of Debian on this host")
}

fn read_origins(listing: &str) -> Option<Origins> {
    let rows = listing.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let row = (words.next()?, words.next()?, words.next()?);
        (row.0 == "Debian").then_some((row.1, row.2.to_owned()))
    });
    let (security, archive): (Vec<_>, Vec<_>) =
        rows.partition(|(suite, _)| suite.ends_with("-security"));
    Some(Origins {
        archive: archive.into_iter().next()?.1,
        security: security.into_iter().next().map(|(_, uri)| uri),
    })
}

/// The lines of sources.list(5) for these suites.
fn sources(origins: &Origins, suites: &[&str]) -> String {
    let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    let mut text = String::new();
    for suite in suites {
        text.push_str(&format!("deb {key} {} {suite} main\n", origins.archive));
        let released = *suite != "sid" && !suite.contains('-');
        if let Some(security) = origins.security.as_ref().filter(|_| released) {
            text.push_str(&format!("deb {key} {security} {suite}-security main\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_s_mirror_is_used_and_security_is_apart() {
        let listing = "other stable https://example.org/\n\
            Debian bookworm http://mirror.example.org/debian/\n\
            Debian bookworm-security http://mirror.example.org/security/\n";
        let origins = read_origins(listing).unwrap();
        let text = sources(&origins, &["bookworm", BACKPORTS, "sid"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].ends_with("http://mirror.example.org/security/ bookworm-security main"));
        assert!(lines[3].ends_with("http://mirror.example.org/debian/ sid main"));
        assert_eq!(read_origins("other stable https://example.org/\n"), None);
    }
}
