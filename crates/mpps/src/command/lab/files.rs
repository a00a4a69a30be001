//! Output files: tried before any traffic, written at the end, and never half.

use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that can be written. Nothing of it is there, and what it held stays, until
/// [`OutputFile::write`].
#[derive(Debug)]
pub(in crate::command) struct OutputFile {
    path: PathBuf,
}

impl OutputFile {
    /// Tries whether the file can be written, and leaves no trace of the trial.
    pub(in crate::command) fn try_out(path: &Path) -> Result<Self> {
        ensure!(
            path.as_os_str() != "-",
            "cannot write `-`: it is a file here, and not standard output; name one, or ./-"
        );
        let tried = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = beside(path);
                fs::write(&beside, "").and_then(|()| fs::remove_file(&beside))
            }
            other => other.map(drop),
        };
        tried.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Where it is.
    pub(in crate::command) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what it held, all at once.
    pub(in crate::command) fn write(self, bytes: &[u8]) -> Result<()> {
        let replaced = if self.path.exists() && !self.path.is_file() {
            // A pipe or a device cannot be replaced.
            OpenOptions::new()
                .write(true)
                .open(&self.path)
                .and_then(|mut file| file.write_all(bytes))
        } else {
            // A link stays, and what it leads to is replaced: /dev/stdout is one.
            let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
            let beside = beside(&path);
            let renamed = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, &path));
            if renamed.is_err() {
                // Best effort: the error that brought us here is the one to tell.
                let _ = fs::remove_file(&beside);
            }
            renamed
        };
        replaced.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A name of this process's own in the same directory, from which a rename is possible.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_there_until_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.json");
        fs::write(&path, "a long earlier result").unwrap();
        drop(OutputFile::try_out(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a long earlier result");
        OutputFile::try_out(&path).unwrap().write(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        OutputFile::try_out(&link).unwrap().write(b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    }

    #[test]
    fn standard_output_is_no_file() {
        let error = OutputFile::try_out(Path::new("-")).unwrap_err();
        assert!(error.to_string().contains("standard output"));
    }

    #[test]
    fn leaves_no_empty_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.json");
        drop(OutputFile::try_out(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn names_what_cannot_be_written() {
        let error = OutputFile::try_out(Path::new("/nosuch/lab.json")).unwrap_err();
        assert!(format!("{error:#}").contains("/nosuch/lab.json"));
    }
}
