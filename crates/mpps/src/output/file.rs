//! Output files: tried before any traffic, and never half if that can be had.

#[cfg(test)]
mod tests;

use super::Stream;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::NamedTempFile;

/// So many symbolic links lead to a file at most (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// The age from which on a new file beside another is of a run that was killed.
const STALE: Duration = Duration::from_secs(3600);

/// A file that can be written. Nothing of it is there, and what it held stays, until it is written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// As it was named.
    path: PathBuf,
}

/// How the bytes get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a new file, which takes the place of the old one: all at once.
    Replace,
    /// Into what is there: a device, a pipe, an open file, or a file whose directory takes no
    /// other.
    Open,
    /// Into a stream of this process. A second opening would have a place of its own in the file,
    /// and what is printed later would go over it.
    Stream(Stream),
}

impl OutputFile {
    /// Tries whether the file can be written, and leaves no trace of the trial.
    ///
    /// # Errors
    /// If it cannot be, as far as one can tell without writing to it.
    pub(crate) fn try_out(path: &Path) -> Result<Self> {
        ensure!(
            path.as_os_str() != "-",
            "cannot write `-`: it is a file here, and not standard output; name one, or ./-"
        );
        let bytes = path.as_os_str().as_bytes();
        ensure!(
            !bytes.ends_with(b"/") && !bytes.ends_with(b"/.") && path.file_name().is_some(),
            "cannot write {}: it names a directory",
            path.display()
        );
        let tried = resolve(path).and_then(|target| {
            forget_stale(&target);
            way(&target)
        });
        tried.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// True if what is written here takes the place of the file of that path, however it is named.
    pub(crate) fn overwrites(&self, path: &Path) -> bool {
        let [own, other] = [&self.path, path].map(|path| resolve(path).ok());
        let is_kept = |file: &Path| file.is_file() || !file.exists();
        own == other && own.as_deref().is_some_and(is_kept)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what it held, all at once where that can be had.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, true)
    }

    /// The same with what is known so far, to be replaced later: nothing is written to what keeps
    /// all that it is given, such as a pipe. What fails here fails again at the end, and is told
    /// then.
    pub(crate) fn keep(&self, bytes: &[u8]) {
        let _ = self.put(bytes, false);
    }

    fn put(&self, bytes: &[u8], is_last: bool) -> Result<()> {
        let put = resolve(&self.path).and_then(|target| match way(&target)? {
            Way::Replace => replace(&target, bytes, is_last, |file, to| {
                file.persist(to).map(drop).map_err(|failed| failed.error)
            }),
            _ if !is_last => Ok(()),
            Way::Open => open(&target)?.write_all(bytes),
            Way::Stream(stream) => super::bytes(stream, bytes),
        });
        put.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The stream behind a path such as `/proc/1234/fd/1`, where 1234 is this process.
fn stream(target: &Path) -> Option<Stream> {
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    match target.strip_prefix(own).ok()?.as_os_str().as_bytes() {
        b"1" => Some(Stream::Out),
        b"2" => Some(Stream::Err),
        _ => None,
    }
}

/// Follows symbolic links, also to a file that is not there, but none of the kernel's own: those in
/// `/proc` lead to open files, whose names may be gone.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let parent = fs::canonicalize(parent)?;
        let place = parent.join(name);
        if !place.is_symlink() || place.starts_with("/proc") {
            return Ok(place);
        }
        path = parent.join(fs::read_link(&place)?);
    }
    let text = "too many symbolic links";
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// Finds out how a file can be written, by trying all of it but the writing.
fn way(target: &Path) -> io::Result<Way> {
    if let Some(stream) = stream(target) {
        return Ok(Way::Stream(stream));
    }
    match fs::metadata(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            beside(target)?;
            Ok(Way::Replace)
        }
        Err(error) => Err(error),
        // To open a pipe waits for its reader, who would take the end of the trial for the end.
        Ok(file) if file.file_type().is_fifo() => Ok(Way::Open),
        Ok(file) => {
            OpenOptions::new().append(true).open(target)?;
            if !file.is_file() || target.starts_with("/proc") {
                return Ok(Way::Open);
            }
            match beside(target) {
                Ok(_) => Ok(Way::Replace),
                Err(error) if is_about_the_place(&error) => Ok(Way::Open),
                Err(error) => Err(error),
            }
        }
    }
}

/// What the name of a new file beside this one begins with.
fn prefix(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.mpps-")
}

/// Removes new files that a killed run left beside this one. What is younger than an hour may be
/// another run's, which has it for as long as a write takes.
fn forget_stale(target: &Path) {
    let prefix = prefix(target);
    let files = target
        .parent()
        .and_then(|directory| fs::read_dir(directory).ok());
    for file in files.into_iter().flatten().flatten() {
        if !file.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        let written = file.metadata().and_then(|facts| facts.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        if age > Some(STALE) {
            // It is no matter of this run if that cannot be.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// A new file in the same directory, with the rights that any new file has.
fn beside(target: &Path) -> io::Result<NamedTempFile> {
    let directory = target.parent().unwrap_or(Path::new("/"));
    tempfile::Builder::new()
        .prefix(&prefix(target))
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)
}

/// Writes a new file and, when the disk has it, moves it to its place by `rename`. Where nothing can
/// take that place, the last one overwrites what is there, which a power cut may leave half written.
fn replace(
    target: &Path,
    bytes: &[u8],
    is_last: bool,
    rename: impl FnOnce(NamedTempFile, &Path) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = beside(target)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    match rename(file, target) {
        // A mount point, or a file of somebody else in a directory that all may write to.
        Err(error) if is_last && is_about_the_place(&error) && target.is_file() => {
            open(target)?.write_all(bytes)
        }
        renamed => renamed,
    }
}

/// Whether the directory, and not the file, refuses: it is not to be written, or the file is a
/// mount point, or its name leaves no room for a longer one beside it.
fn is_about_the_place(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
            | ErrorKind::InvalidFilename
    )
}

/// Opens what is there. A file that another program has open, as `/proc` names it, is not ours to
/// cut: what is written comes behind what it holds.
fn open(target: &Path) -> io::Result<fs::File> {
    let is_open = target.starts_with("/proc");
    let mut options = OpenOptions::new();
    options.write(true).append(is_open).truncate(!is_open);
    options.open(target)
}
