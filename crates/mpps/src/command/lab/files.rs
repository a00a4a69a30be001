//! Output files: opened before any traffic, written at the end, and not lost in between.

use anyhow::{Context, Result};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file that can be written. What it held stays until [`OutputFile::write`]; one that was made
/// for nothing is removed again.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl OutputFile {
    /// Opens a file for writing, making it if it is not there.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_new,
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what it held.
    pub(super) fn write(mut self, bytes: &[u8]) -> Result<()> {
        let replaced = (|| {
            // A pipe or a device has no length to set.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(bytes)?;
            self.file.flush()
        })();
        self.is_new &= replaced.is_err();
        replaced.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if self.is_new {
            // Best effort: the error that brought us here is the one to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_there_until_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.json");
        fs::write(&path, "a long earlier result").unwrap();
        drop(OutputFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long earlier result");
        OutputFile::open(&path).unwrap().write(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn leaves_no_empty_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.json");
        drop(OutputFile::open(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn names_what_cannot_be_written() {
        let error = OutputFile::open(Path::new("/nosuch/lab.json")).unwrap_err();
        assert!(format!("{error:#}").contains("/nosuch/lab.json"));
    }
}
