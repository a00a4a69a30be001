//! The files of the repository, read once for all rules.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// Files by their path from the root of the repository. Files that are not text have no content
/// here.
#[derive(Debug, Default)]
pub(crate) struct RepositoryTree {
    files: BTreeMap<String, Option<String>>,
}

impl RepositoryTree {
    /// Reads the files that git keeps or would keep: nothing that `.gitignore` names.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        // The checkout may belong to a different user, as in a container.
        let listing = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git is needed to list the files")?;
        if !listing.status.success() {
            bail!("git: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let listing = String::from_utf8(listing.stdout).context("a file name is not UTF-8")?;
        let mut tree = Self::default();
        for path in listing.split_terminator('\0') {
            let bytes = match fs::read(root.join(path)) {
                Ok(bytes) => bytes,
                // Git still lists files that were deleted and not committed yet.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| path.to_owned()),
            };
            tree.files
                .insert(path.to_owned(), String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    /// A tree of these files, for the tests of a rule.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())))
            .collect();
        Self { files }
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// All text files: path and content.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text files whose name ends in `.` and this.
    pub(crate) fn ending<'a>(
        &'a self,
        ending: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(move |(path, _)| {
            Path::new(path)
                .extension()
                .is_some_and(|found| found == ending)
        })
    }

    /// The content of a text file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// True if there is a file, or a folder with files, of that path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self.paths().any(|known| known.starts_with(&folder))
    }
}
