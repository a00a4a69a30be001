//! Output files: tried before any traffic, and never half if that can be had.

#[cfg(test)]
mod tests;

use super::{OutputStream, patience};
use anyhow::{Context, Result, anyhow, ensure};
use mpps_os::capability::of_file;
use mpps_os::file::{FileTarget, NewFile};
use mpps_os::terminal::write_all;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A new file beside another is from a killed run if it is older than this.
const STALE: Duration = Duration::from_secs(3600);

/// The options of this command that name files to be written, and these.
static NAMED: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

/// Refuses to read what an option of this command is to write.
///
/// # Errors
/// If one names this input.
pub(crate) fn ensure_kept(input: &Path) -> Result<()> {
    let named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    for (option, path) in named.iter() {
        let overwrites = OutputFile::try_out(option, path)?.overwrites(input);
        ensure!(
            !overwrites,
            "{option} names {} itself, which is read",
            input.display()
        );
    }
    Ok(())
}

/// A place that takes no file of this user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnwritablePlace(String);

/// A file that can be written. Nothing of it is there, and what it held stays, until it is written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    /// As it was named.
    path: PathBuf,
    /// Where that led on trial.
    target: FileTarget,
    /// Open since then, because its reader takes a close for the end.
    pipe: Option<File>,
    /// Whether a new file was to take that place, so that its directory takes new files.
    replaces: bool,
    /// What is to be in that place until this run writes again.
    known: Mutex<Option<KnownFile>>,
}

/// A regular file: its device, its inode number, its length.
type KnownFile = (u64, u64, u64);

fn known(file: Option<&File>) -> io::Result<Option<KnownFile>> {
    let status = file.map(File::metadata).transpose()?;
    Ok(status.map(|status| (status.dev(), status.ino(), status.len())))
}

/// How the bytes get there.
#[derive(Debug)]
enum WrittenHow {
    /// In a new file, which takes the place of the old one, if there is any: all at once.
    Replace(Option<File>),
    /// Into what is there: a device, a pipe, an open file, or a file whose directory takes no
    /// other.
    Open(File),
    /// Into a stream of this process. A second opening would have a place of its own in the file,
    /// and what is printed later would go over it.
    Stream(OutputStream),
}

impl OutputFile {
    /// Tries whether the file that an option names can be written, and leaves no trace of the
    /// trial.
    ///
    /// # Errors
    /// If it cannot be written, as far as that shows without writing to it.
    pub(crate) fn try_out(option: &str, path: &Path) -> Result<Self> {
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
        let tried = FileTarget::find(path).and_then(|target| {
            target.remove_left(STALE);
            let way = way(&target)?;
            let known = match &way {
                WrittenHow::Replace(old) => known(old.as_ref())?,
                _ => None,
            };
            Ok((target, way, Mutex::new(known)))
        });
        let cannot = |error: io::Error| {
            let (path, text) = (path.display(), of_file(&error));
            match error.raw_os_error() {
                // EMFILE: no other file can be opened.
                Some(24) => anyhow!("cannot write {path}: {text}"),
                number => {
                    let said =
                        format!("cannot write {path}: {text}; name another file by {option}");
                    // EACCES, EROFS of the kernel; refusals of mpps have no number.
                    match number {
                        Some(13 | 30) => UnwritablePlace(said).into(),
                        _ => anyhow!(said),
                    }
                }
            }
        };
        let (target, way, known) = tried.map_err(cannot)?;
        let is_pipe = |file: &File| file.metadata().is_ok_and(|it| it.file_type().is_fifo());
        Ok(Self {
            path: path.to_owned(),
            target,
            known,
            replaces: matches!(way, WrittenHow::Replace(_)),
            pipe: match way {
                WrittenHow::Open(file) if is_pipe(&file) => Some(file),
                _ => None,
            },
        })
    }

    /// The same for a file that no other option of this command names.
    ///
    /// # Errors
    /// As [`OutputFile::try_out`]'s, and if another option names it.
    pub(crate) fn claim(option: &str, path: &Path) -> Result<Self> {
        let file = Self::try_out(option, path)?;
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        for (other, earlier) in named.iter() {
            ensure!(
                !file.overwrites(earlier),
                "{other} and {option} name the same file"
            );
        }
        named.push((option.to_owned(), path.to_owned()));
        Ok(file)
    }

    /// True if what is written here takes the place of the file of that path, however it is named.
    pub(crate) fn overwrites(&self, path: &Path) -> bool {
        let other = FileTarget::find(path).ok();
        let is_same = other.is_some_and(|other| self.target.is_same(&other).unwrap_or(false));
        is_same && self.target.keeps()
    }

    /// For lines as they come; none if it is standard output.
    pub(crate) fn into_lines(mut self) -> Option<OutputFileLines> {
        let opened = self.pipe.take().map(OnceLock::from).unwrap_or_default();
        let is_output = matches!(way(&self.target), Ok(WrittenHow::Stream(OutputStream::Out)));
        (!is_output).then_some(OutputFileLines { file: self, opened })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces what it held, all at once where that can be had.
    ///
    /// # Errors
    /// If it cannot be written; then the bytes are in a file beside it, if that can be had.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, true).map(drop)
    }

    /// Writes the result so far, to be replaced later. Writes nothing to a file that keeps all its
    /// input, such as a pipe. A failure here repeats at the end, and is reported then.
    pub(crate) fn keep(&self, bytes: &[u8]) {
        let _ = self.put(bytes, false);
    }

    /// Answers the file with these bytes, to add to it; none if it is a pipe or a stream, or takes only the last
    /// bytes.
    fn put(&self, bytes: &[u8], is_last: bool) -> Result<Option<File>> {
        // A path that leads nowhere since the trial, or by another user's link, leads where it did.
        let found = FileTarget::find(&self.path);
        let target = found.as_ref().unwrap_or(&self.target);
        let put = match &self.pipe {
            Some(pipe) if is_last => target.overwrite(pipe, bytes, patience()).map(|()| None),
            Some(_) => Ok(None),
            None => way(target).and_then(|way| match way {
                WrittenHow::Replace(old) => {
                    let mut expected = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                    if known(old.as_ref())? != *expected {
                        return Err(io::Error::other("another program wrote it during the run"));
                    }
                    let new = replace(target, old, bytes, is_last, NewFile::take_place)?;
                    *expected = known(Some(&new))?;
                    Ok(Some(new))
                }
                _ if !is_last => Ok(None),
                WrittenHow::Open(file) => {
                    target.overwrite(&file, bytes, patience())?;
                    Ok(Some(file))
                }
                WrittenHow::Stream(stream) => super::written(stream, bytes).map(|()| None),
            }),
        };
        let path = self.path.display();
        let error = match put {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        // A file that took the place during the run must not cost the result.
        let may_move = is_last && self.replaces;
        match may_move.then(|| self.target.write_aside(bytes)) {
            Some(Ok(aside)) => {
                let (aside, error) = (aside.display(), of_file(&error));
                Err(anyhow!(
                    "could not write {path}: {error}; the result is in {aside}"
                ))
            }
            _ => Err(error).with_context(|| format!("cannot write {path}")),
        }
    }
}

/// A file for lines as they come. The first of them replace what it held.
#[derive(Debug)]
pub(crate) struct OutputFileLines {
    file: OutputFile,
    opened: OnceLock<File>,
}

impl OutputFileLines {
    /// Replaces what the file held by the first lines.
    ///
    /// # Errors
    /// As [`OutputFile::write`]'s.
    pub(crate) fn open(&self, first: &[u8]) -> Result<()> {
        if let Some(file) = self.file.put(first, true)? {
            // It is opened once.
            let _ = self.opened.set(file);
        }
        Ok(())
    }

    /// Writes lines, all or none where that can be had.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = self.opened.get() else {
            let opened = self.open(bytes);
            return opened.map_err(|error| io::Error::other(format!("{error:#}")));
        };
        let status = file.metadata()?;
        // The open file of another program is not ours to cut, and may have no name.
        let is_ours = status.is_file() && !self.file.target.is_in_proc();
        if is_ours && status.nlink() == 0 {
            let gone = io::Error::other("another program replaced or removed it during the run");
            return Err(named(&self.file.path.display(), &gone));
        }
        write_all(file, bytes, patience()).map_err(|error| {
            if is_ours {
                let _ = file.set_len(status.len());
            }
            named(&self.file.path.display(), &error)
        })
    }
}

/// The refusal of a write, with what could not be written.
pub(super) fn named(what: &impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {what}: {error}"))
}

/// Tries the file of an option that may not be given.
///
/// # Errors
/// As [`OutputFile::claim`]'s.
pub(crate) fn optional(option: &str, path: Option<&Path>) -> Result<Option<OutputFile>> {
    path.map(|path| OutputFile::claim(option, path)).transpose()
}

/// Finds out how a file can be written, by trying all of it but the writing.
fn way(target: &FileTarget) -> io::Result<WrittenHow> {
    match target.own_descriptor() {
        Some(1) => return Ok(WrittenHow::Stream(OutputStream::Out)),
        Some(2) => return Ok(WrittenHow::Stream(OutputStream::Err)),
        _ => {}
    }
    let old = target.open()?;
    if let Some(file) = &old
        && (!file.metadata()?.is_file() || target.is_in_proc())
    {
        return Ok(old.map_or(WrittenHow::Replace(None), WrittenHow::Open));
    }
    match (target.create_beside(old.as_ref()).map(drop), old) {
        (Ok(()), old) => Ok(WrittenHow::Replace(old)),
        (Err(error), Some(file)) if is_about_the_place(&error) => Ok(WrittenHow::Open(file)),
        (Err(error), _) => Err(error),
    }
}

/// Writes a new file and, when the disk has it, moves it to its place by `rename`. Where nothing can
/// take that place, the last one overwrites what is there, which a power cut may leave half written.
fn replace<'a>(
    target: &'a FileTarget,
    old: Option<File>,
    bytes: &[u8],
    is_last: bool,
    rename: impl FnOnce(NewFile<'a>) -> io::Result<File>,
) -> io::Result<File> {
    let mut file = target.create_beside(old.as_ref())?;
    file.write(bytes)?;
    match (rename(file), old) {
        // A mount point, or a file of another user in a directory that all may write to.
        (Err(error), Some(old)) if is_last && is_about_the_place(&error) => {
            target.overwrite(&old, bytes, patience())?;
            Ok(old)
        }
        (renamed, _) => renamed,
    }
}

/// Whether the directory, and not the file, refuses: it is not to be written, or the file is a
/// mount point.
fn is_about_the_place(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::ResourceBusy
            | ErrorKind::CrossesDevices
    )
}
