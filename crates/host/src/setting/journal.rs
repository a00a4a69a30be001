//! What this program is about to change on the host, on disk before it is changed.
//!
//! One file for each change of an object, so that two programs cannot make the same one. A file is always whole: it is written beside its place, flushed, and moved there.

use mpps_os::On;
use mpps_os::clock::monotonic_ns;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mpps_os::Error as Refusal;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::owner::{Life, Owner};
use crate::root::Root;
use crate::{Error, Result};

/// The version of a journal's form. Version 1 had a form for each kind of change.
const SCHEMA: u32 = 2;

/// Where a system keeps what is true until it restarts (`hier(7)`).
const SYSTEM_DIRECTORY: &str = "/run/mpps";

/// Journals are smaller; a larger file is none. A table of 65536 queues fits.
const LENGTH_MAX: u64 = 4 << 20;

/// The file of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    path: PathBuf,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The version of this form.
    schema: u32,
    /// The process that makes the change.
    pub(crate) owner: Owner,
    /// When it began, by the clock of clock_gettime(2) that does not go back (`CLOCK_MONOTONIC`), in
    /// nanoseconds: a journal does not outlive the machine's start.
    #[serde(default)]
    pub(crate) began_ns: u64,
    /// All edits.
    pub(crate) change: Change,
    /// How many of them were at least begun.
    pub(crate) begun: usize,
    /// True if the edits stay when the process ends, until they are undone by name.
    #[serde(default)]
    pub(crate) kept: bool,
    /// True while the process waits for another one to confirm them.
    #[serde(default)]
    pub(crate) waits: bool,
}

/// Where journals are looked for, and, in this order, made: `/run/mpps`, and for an ordinary user
/// `mpps` in `$XDG_RUNTIME_DIR`.
pub(crate) fn directories() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let own = own.map(|path| PathBuf::from(path).join("mpps"));
    let own = own.filter(|path| path.is_absolute());
    std::iter::once(PathBuf::from(SYSTEM_DIRECTORY))
        .chain(own)
        .collect()
}

impl Record {
    pub(crate) fn new(owner: Owner, change: Change) -> Self {
        Self {
            schema: SCHEMA,
            owner,
            began_ns: monotonic_ns(),
            change,
            begun: 0,
            kept: false,
            waits: false,
        }
    }
}

impl Journal {
    /// Makes the file, in the first directory that takes it.
    ///
    /// # Errors
    /// [`Error::Impossible`] if there is one for the same thing; [`Error::Kernel`] if no
    /// directory takes it.
    pub(crate) fn create(directories: &[PathBuf], record: &Record) -> Result<Self> {
        let mut refusal = Refusal::new(
            "open",
            SYSTEM_DIRECTORY,
            io::Error::from(io::ErrorKind::NotFound),
        );
        for directory in directories {
            let journal = Self {
                path: directory.join(record.change.file_name()),
            };
            match journal.create_in(directory, record) {
                Ok(()) => return Ok(journal),
                Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(journal.taken(&record.change));
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal.into())
    }

    /// Why this change cannot be made now; none where no other is in the way.
    pub(crate) fn obstacle(directories: &[PathBuf], change: &Change) -> Option<Error> {
        let mut places = directories
            .iter()
            .map(|directory| directory.join(change.file_name()));
        let path = places.find(|path| path.exists())?;
        Some(Self { path }.taken(change))
    }

    fn create_in(&self, directory: &Path, record: &Record) -> Result<(), Refusal> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .on("mkdir", directory.display())?;
        let beside = self.write_beside(record)?;
        // Unlike rename(2), link(2) fails if the name is there already.
        let linked = fs::hard_link(&beside, &self.path).on("link", self.path.display());
        let _ = fs::remove_file(&beside);
        linked.and_then(|()| {
            self.flush_directory()
                // Another directory is tried next: this change is in one journal only.
                .inspect_err(|_| drop(fs::remove_file(&self.path)))
        })
    }

    fn taken(&self, change: &Change) -> Error {
        let what = match change.interface_index {
            Some(_) => &change.name,
            None => "change",
        };
        let (why, remedy) = match self.read() {
            Ok(Some(other)) if other.kept => (
                format!("it was tuned already ({})", other.change.heading),
                "`mpps tune undo` puts that back".to_owned(),
            ),
            Ok(Some(other)) if other.owner.life() == Life::Dead => (
                format!("process {} died and left a {what} on it", other.owner.pid),
                "`mpps undo` puts back what it left".to_owned(),
            ),
            Ok(Some(other)) => (
                format!("process {} has a {what} on it", other.owner.pid),
                "end that one first".to_owned(),
            ),
            _ => (
                format!("{} is in the way", self.path.display()),
                "`mpps undo --list` tells more".to_owned(),
            ),
        };
        Error::impossible(&change.object, why, remedy)
    }

    /// Replaces what the file says.
    ///
    /// # Errors
    /// The refusal of the file system.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let beside = self.write_beside(record)?;
        fs::rename(&beside, &self.path).on("rename", self.path.display())?;
        Ok(self.flush_directory()?)
    }

    /// Writes a new file next to the journal's place, flushed to the disk.
    fn write_beside(&self, record: &Record) -> Result<PathBuf, Refusal> {
        let beside = self
            .path
            .with_extension(format!("new-{}", std::process::id()));
        let failed = |call| {
            let name = beside.display().to_string();
            move |source| Refusal::new(call, name, source)
        };
        let text = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .map_err(failed("write"))?;
        // One of a process that died in the middle would be in the way.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .map_err(failed("open"))?;
        file.write_all(&text).map_err(failed("write"))?;
        file.sync_all().map_err(failed("fsync"))?;
        Ok(beside)
    }

    /// What the file says; none where it has gone meanwhile.
    ///
    /// # Errors
    /// [`Error::Impossible`] for the file of another user, who must not make us change settings;
    /// [`Error::Malformed`] for one that is no journal; the refusal of the file system.
    pub(crate) fn read(&self) -> Result<Option<Record>> {
        let name = self.path.display().to_string();
        let failed = |source| Refusal::new("read", &name, source);
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error).into()),
        };
        let status = file.metadata().map_err(failed)?;
        let user = user_from(&Root::machine())?;
        if status.uid() != user {
            let why = format!("it belongs to user {}, not to {user}", status.uid());
            return Err(Error::impossible(name, why, "run as that user"));
        }
        if !status.is_file() || status.len() > LENGTH_MAX {
            return Err(Error::malformed(name, "not a journal"));
        }
        let malformed = |error: serde_json::Error| Error::malformed(&name, error.to_string());
        let said: serde_json::Value =
            serde_json::from_reader(io::BufReader::new(file)).map_err(malformed)?;
        let schema = said.get("schema").and_then(serde_json::Value::as_u64);
        if schema.is_some_and(|schema| schema != u64::from(SCHEMA)) {
            let why = format!(
                "a journal of form {}; this mpps knows form {SCHEMA}",
                said["schema"]
            );
            let remedy = "`mpps undo` of the version that wrote it puts its settings back";
            return Err(Error::impossible(name, why, remedy));
        }
        serde_json::from_value(said).map(Some).map_err(malformed)
    }

    /// Takes the file away.
    ///
    /// # Errors
    /// The refusal of the file system, but not that the file has gone already.
    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Refusal::new("unlink", self.path.display(), error).into())
            }
            _ => Ok(self.flush_directory()?),
        }
    }

    /// All journals in these directories, and the refusals of directories that are there.
    pub(crate) fn find(directories: &[PathBuf]) -> (Vec<Self>, Vec<Error>) {
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for directory in directories {
            match names(directory) {
                Ok(paths) => found.extend(paths.into_iter().map(|path| Self { path })),
                // Nobody has changed anything yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    refused.push(Refusal::new("open", directory.display(), error).into());
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        (found, refused)
    }

    /// The same in a test, where no directory refuses.
    #[cfg(test)]
    pub(crate) fn list(directories: &[PathBuf]) -> Vec<Self> {
        let (found, refused) = Self::find(directories);
        assert!(refused.is_empty(), "{refused:?}");
        found
    }

    /// Keeps every other `mpps undo` off the journals beside this one, until the file is closed.
    ///
    /// # Errors
    /// The refusal of the file system.
    pub(crate) fn lock(&self) -> Result<File> {
        let directory = self.directory();
        let file = File::open(directory).on("open", directory.display())?;
        mpps_os::file::lock(&file, directory)?;
        Ok(file)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Makes a new or removed name last, which flushing the file does not (`fsync(2)`).
    fn flush_directory(&self) -> Result<(), Refusal> {
        let directory = self.directory();
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .on("fsync", directory.display())
    }
}

/// The paths of what a directory has that is named as journals are. A file that a dead process left before
/// it was a journal is removed.
fn names(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("json") => paths.push(path),
            Some(end) if is_abandoned(end) => drop(fs::remove_file(path)),
            _ => {}
        }
    }
    Ok(paths)
}

/// True of a file that a process died over before it was a journal.
fn is_abandoned(extension: &str) -> bool {
    let pid = extension.strip_prefix("new-");
    pid.and_then(|pid| pid.parse::<u32>().ok())
        .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// The user as whom this process acts (`Uid:` in `proc_pid_status(5)`, second column).
fn user_from(root: &Root) -> Result<u32> {
    let file = "proc/self/status";
    let status = root.read(file)?;
    let user = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|users| users.split_ascii_whitespace().nth(1)?.parse().ok());
    user.ok_or_else(|| Error::malformed(root.name(file), "no user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(index: u32) -> Record {
        let change = Change {
            name: "carve-out".to_owned(),
            object: "eth9".to_owned(),
            interface_index: Some(index),
            namespace: 7,
            heading: "eth9, queue 1".to_owned(),
            edits: Vec::new(),
        };
        Record::new(Owner::current().expect("/proc is here"), change)
    }

    #[test]
    fn a_journal_is_made_once_replaced_and_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let directories = [directory.path().join("a/mpps")];
        let mut said = record(3);
        let journal = Journal::create(&directories, &said).expect("made");
        assert_eq!(journal.read().expect("readable"), Some(said.clone()));
        let error = Journal::create(&directories, &said).expect_err("there is one");
        let text = error.to_string();
        assert!(text.contains("eth9: process"), "{text}");
        Journal::create(&directories, &record(4)).expect("another interface");

        said.begun = 2;
        journal.write(&said).expect("written");
        assert_eq!(journal.read().expect("readable"), Some(said));
        // What a process died over is no journal, and goes; that of one that lives stays.
        let of = |pid: u32| directories[0].join(format!("x.new-{pid}"));
        let (dead, alive) = (of(u32::MAX), of(std::process::id()));
        for file in [&dead, &alive] {
            fs::write(file, "half").expect("written");
        }
        assert_eq!(Journal::list(&directories).len(), 2);
        assert!(!dead.exists());
        fs::remove_file(alive).expect("it is there");
        for _ in 0..2 {
            journal.remove().expect("removed, twice");
        }
        assert_eq!(journal.read().expect("gone is no error"), None);
        let left: Vec<_> = fs::read_dir(&directories[0]).expect("there").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_passed_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("written");
        let directories = [file.join("mpps"), directory.path().join("mpps")];
        let journal = Journal::create(&directories, &record(1)).expect("the second");
        assert!(journal.path().starts_with(&directories[1]));
        let error = Journal::create(&directories[..1], &record(2)).expect_err("no room");
        assert!(error.to_string().contains("file/mpps"), "{error}");
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_told_and_one_that_is_not_there_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("written");
        let own = directory.path().join("mpps");
        let made = Journal::create(std::slice::from_ref(&own), &record(1)).expect("made");
        let nowhere = directory.path().join("nowhere");
        // Root may list what is forbidden, but nobody a file.
        let (found, refused) = Journal::find(&[nowhere, file.clone(), own]);
        assert_eq!(found, [made]);
        assert_eq!(refused.len(), 1, "{refused:?}");
        let text = refused[0].to_string();
        assert!(text.contains(&file.display().to_string()), "{text}");
    }

    #[test]
    fn foreign_files_are_errors_that_name_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut other = serde_json::to_value(record(1)).expect("plain data");
        let [earlier, later] = [1, 99].map(|schema| {
            other["schema"] = schema.into();
            other.to_string()
        });
        for text in ["", "{}", "[1]", &earlier, &later] {
            let path = directory.path().join("x.json");
            fs::write(&path, text).expect("written");
            let error = Journal { path }.read().expect_err("no journal").to_string();
            assert!(error.contains("x.json"), "{error}");
            let versioned = [&*earlier, &later].contains(&text);
            assert_eq!(
                error.contains("this mpps knows form 2"),
                versioned,
                "{error}"
            );
        }
    }
}
