//! Output files: tried before any traffic, written at the end, and never half if that can be had.

#[cfg(test)]
mod tests;

use crate::output::{self, Stream};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// So many symbolic links lead to a file at most (`path_resolution(7)`).
const LINKS_MAX: usize = 40;

/// A file that can be written. Nothing of it is there, and what it held stays, until
/// [`OutputFile::write`].
#[derive(Debug)]
pub(in crate::command) struct OutputFile {
    /// As it was named.
    path: PathBuf,
    /// Where its symbolic links lead to.
    target: PathBuf,
    way: Way,
}

/// How the bytes get there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a new file, which takes the place of the old one: all at once.
    Replace,
    /// Into the file that is there, instead of what it held.
    Overwrite,
    /// Behind what is there: it is not ours to cut.
    Append,
    /// Into a stream of this process. A second opening would have a place of its own in the file,
    /// and what is printed later would go over it.
    Stream(Stream),
}

impl OutputFile {
    /// Tries whether the file can be written, and leaves no trace of the trial.
    pub(in crate::command) fn try_out(path: &Path) -> Result<Self> {
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
            let way = way(&target)?;
            Ok((target, way))
        });
        let (target, way) = tried.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            target,
            way,
        })
    }

    /// Where it is.
    pub(in crate::command) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what it held, all at once where that can be had.
    pub(in crate::command) fn write(self, bytes: &[u8]) -> Result<()> {
        let target = &self.target;
        let written = match self.way {
            Way::Replace => replace(target, bytes, |from, to| fs::rename(from, to)),
            Way::Overwrite => overwrite(target, bytes),
            Way::Append => append(target).and_then(|mut file| file.write_all(bytes)),
            Way::Stream(stream) => output::bytes(stream, bytes),
        };
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The stream behind a path such as `/proc/1234/fd/1`, where 1234 is this process.
fn stream(target: &Path) -> Option<Stream> {
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    let name = target.strip_prefix(own).ok()?;
    match name.as_os_str().as_bytes() {
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
        let place = place(&path)?;
        if !fs::symlink_metadata(&place).is_ok_and(|file| file.is_symlink())
            || place.starts_with("/proc")
        {
            return Ok(place);
        }
        let target = fs::read_link(&place)?;
        path = place.parent().unwrap_or(Path::new("/")).join(target);
    }
    let text = "too many symbolic links";
    Err(io::Error::new(ErrorKind::InvalidInput, text))
}

/// The path with all links resolved but its own.
fn place(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(ErrorKind::IsADirectory.into());
    };
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    Ok(fs::canonicalize(parent)?.join(name))
}

/// Finds out how a file can be written, by trying all of it but the writing.
fn way(target: &Path) -> io::Result<Way> {
    if let Some(stream) = stream(target) {
        return Ok(Way::Stream(stream));
    }
    let found = match fs::metadata(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        found => Some(found?),
    };
    // To open a pipe waits for its reader, who would take the end of the trial for the end.
    let is_pipe = found
        .as_ref()
        .is_some_and(|file| file.file_type().is_fifo());
    if target.starts_with("/proc") || target.parent() == Some(Path::new("/dev")) {
        if !is_pipe {
            drop(append(target)?);
        }
        return Ok(Way::Append);
    }
    match found {
        None => try_beside(target).map(|()| Way::Replace),
        Some(_) if is_pipe => Ok(Way::Overwrite),
        Some(file) => {
            OpenOptions::new().write(true).open(target)?;
            if !file.is_file() {
                return Ok(Way::Overwrite);
            }
            match try_beside(target) {
                Ok(()) => Ok(Way::Replace),
                Err(error) if is_about_the_place(&error) => Ok(Way::Overwrite),
                Err(error) => Err(error),
            }
        }
    }
}

/// Tries whether there can be a file beside this one.
fn try_beside(target: &Path) -> io::Result<()> {
    let beside = beside(target);
    create(&beside)?;
    fs::remove_file(&beside)
}

/// Writes a new file, and moves it to its place by `rename`.
fn replace(
    target: &Path,
    bytes: &[u8],
    rename: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> io::Result<()> {
    // A link that was put there since the trial would be replaced, and not what it leads to.
    if fs::symlink_metadata(target).is_ok_and(|file| file.is_symlink()) {
        return overwrite(target, bytes);
    }
    let beside = beside(target);
    let replaced = create(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| rename(&beside, target));
    let Err(error) = replaced else {
        return Ok(());
    };
    // Best effort: the error that brought us here is the one to tell.
    let _ = fs::remove_file(&beside);
    if is_about_the_place(&error) && target.is_file() {
        // A mount point, or a file of somebody else in a directory that all may write to.
        return overwrite(target, bytes);
    }
    Err(error)
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

fn overwrite(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(target)?;
    file.write_all(bytes)
}

fn append(target: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(target)
}

/// A new file, and no link that somebody has put there.
fn create(path: &Path) -> io::Result<File> {
    // One of a process that died in the middle would be in the way.
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// A name of this process's own in the same directory, from which a rename is possible.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}
