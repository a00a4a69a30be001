//! The journal of changes to the host. It is on disk before a change is made.
//!
//! One file for each change of an object, so that two programs cannot make the same one. A file is
//! always whole: it is written beside its place, flushed, and moved there. A journal is obeyed only
//! if this user made it ([`PrivateDirectory`]), and if it names nothing but what a plan changes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mpps_os::clock::monotonic_ns;
use mpps_os::private_directory::PrivateDirectory;
use mpps_os::user::is_root;
use mpps_os::{CallError as Refusal, On};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::change::SettingChange;
use super::owner::{Life, Owner};
use super::place::Place;
use crate::{HostError, HostResult};

/// The version of a journal's form. Version 1 had a form for each kind of change.
const SCHEMA: u32 = 3;

/// Version 2 had texts for values, and knew interfaces and one setting of the machine as places.
const SCHEMA_OF_TEXTS: u32 = 2;

/// Where a system keeps what is true until it restarts (`hier(7)`).
const SYSTEM_DIRECTORY: &str = "/run/mpps";

/// Journals are smaller; a larger file is none. A table of 65536 queues fits.
const LENGTH_MAX: u64 = 4 << 20;

/// The file of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    path: PathBuf,
}

/// The content of a journal.
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
    pub(crate) change: SettingChange,
    /// How many of them were at least begun.
    pub(crate) begun: usize,
    /// True if the edits stay when the process ends, until they are undone by name.
    #[serde(default)]
    pub(crate) kept: bool,
    /// True while the process waits for another one to confirm them.
    #[serde(default)]
    pub(crate) waits: bool,
}

/// Where this user's journals are. Root has them in `/run/mpps`, whatever the environment says, and
/// an ordinary user in `mpps` below `$XDG_RUNTIME_DIR`. In a user namespace root may not write to
/// `/run`, and is an ordinary user here.
pub(crate) fn directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    match own {
        Some(own) if !has_run() => own.join("mpps"),
        _ => PathBuf::from(SYSTEM_DIRECTORY),
    }
}

/// Whether this user is root, and `/run` is root's.
fn has_run() -> bool {
    is_root() && fs::metadata("/run").is_ok_and(|run| run.uid() == 0)
}

/// True of the directory of root, for any other user: there is none then.
fn is_roots(directory: &Path) -> bool {
    directory == SYSTEM_DIRECTORY && !has_run()
}

impl Record {
    pub(crate) fn new(owner: Owner, change: SettingChange) -> Self {
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

/// Reads the text of a journal, and refuses what no plan of mpps makes.
///
/// # Errors
/// [`HostError::Malformed`] if it is no journal; [`HostError::Impossible`] for another form, and for a
/// setting, a name or a value that mpps never writes.
pub fn read_journal(file: &str, text: &[u8]) -> HostResult<SettingChange> {
    Record::parse(file, text).map(|record| record.change)
}

impl Record {
    fn parse(file: &str, text: &[u8]) -> HostResult<Self> {
        let malformed = |error: serde_json::Error| HostError::malformed(file, error.to_string());
        let mut said: serde_json::Value = serde_json::from_slice(text).map_err(malformed)?;
        let schema = said.get("schema").and_then(serde_json::Value::as_u64);
        let is_of_texts = schema == Some(SCHEMA_OF_TEXTS.into());
        if !is_of_texts && schema.is_some_and(|schema| schema != u64::from(SCHEMA)) {
            let why = format!(
                "a journal of form {}; this mpps knows forms {SCHEMA_OF_TEXTS} and {SCHEMA}",
                said["schema"]
            );
            let remedy = "`mpps undo` of the version that wrote it puts its settings back";
            return Err(HostError::impossible(file, why, remedy));
        }
        if is_of_texts {
            name_place(&mut said);
        }
        let mut record: Self = serde_json::from_value(said).map_err(malformed)?;
        if is_of_texts {
            record.schema = SCHEMA;
            record.change.type_texts();
        }
        match record.change.fault() {
            None => Ok(record),
            Some(why) => Err(HostError::impossible(
                file,
                format!("mpps writes no such journal: {why}"),
                "mpps changes nothing; look at the file, then remove it",
            )),
        }
    }
}

/// Gives the change of a version 2 its place.
fn name_place(said: &mut serde_json::Value) -> Option<()> {
    let change = said.get_mut("change")?.as_object_mut()?;
    let name = change.remove("object")?;
    let place = match change.remove("interface_index") {
        None | Some(serde_json::Value::Null) => json!({"machine": {"setting": name}}),
        Some(index) => json!({"interface": {"name": name, "index": index}}),
    };
    change.insert("place".to_owned(), place);
    Some(())
}

impl Journal {
    /// Makes the file.
    ///
    /// # Errors
    /// [`HostError::Impossible`] if there is one for the same thing. [`HostError::Kernel`] if the directory
    /// does not take it, or is not private to this user.
    pub(crate) fn create(directory: &Path, record: &Record) -> HostResult<Self> {
        if is_roots(directory) {
            let why =
                "only root keeps what it changes in /run/mpps, and XDG_RUNTIME_DIR is not set";
            return Err(HostError::impossible(
                record.change.place.name(),
                why,
                "run as root",
            ));
        }
        let journal = Self::of(directory, &record.change);
        let place = PrivateDirectory::create(directory)?;
        let beside = journal.write_beside(&place, record)?;
        match place.rename(&beside, journal.name(), false) {
            Ok(()) => Ok(journal),
            Err(error) => {
                place.remove(&beside)?;
                match error.source.kind() {
                    io::ErrorKind::AlreadyExists => Err(journal.taken(&record.change)),
                    _ => Err(error.into()),
                }
            }
        }
    }

    fn of(directory: &Path, change: &SettingChange) -> Self {
        Self {
            path: directory.join(change.file_name()),
        }
    }

    /// Why this change cannot be made now; none where no other is in the way.
    pub(crate) fn obstacle(directory: &Path, change: &SettingChange) -> Option<HostError> {
        let journal = Self::of(directory, change);
        match journal.read() {
            Ok(None) => None,
            _ => Some(journal.taken(change)),
        }
    }

    fn taken(&self, change: &SettingChange) -> HostError {
        let what = match change.place {
            Place::Interface { .. } => &change.name,
            Place::Process { .. } | Place::Machine { .. } => "change",
        };
        let (why, remedy) = match self.read() {
            Ok(Some(other)) if other.kept && matches!(change.place, Place::Process { .. }) => (
                format!("it was fixed already ({})", other.change.heading),
                "`mpps undo` puts that back".to_owned(),
            ),
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
                "`mpps undo --list` shows more".to_owned(),
            ),
        };
        HostError::impossible(change.place.name(), why, remedy)
    }

    /// Replaces what the file says.
    ///
    /// # Errors
    /// The refusal of the file system.
    pub(crate) fn write(&self, record: &Record) -> HostResult<()> {
        let place = self.open()?;
        let beside = self.write_beside(&place, record)?;
        let renamed = place.rename(&beside, self.name(), true);
        Ok(renamed.inspect_err(|_| drop(place.remove(&beside)))?)
    }

    /// Writes a new file next to the journal's place, flushed to the disk, and answers its name.
    fn write_beside(&self, place: &PrivateDirectory, record: &Record) -> HostResult<OsString> {
        let extension = format!("new-{}", std::process::id());
        let beside = Path::new(self.name()).with_extension(extension);
        let text = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .on("write", self.path.display())?;
        // One of a process that died in the middle would be in the way.
        place.remove(beside.as_os_str())?;
        place.write_new(beside.as_os_str(), &text)?;
        Ok(beside.into_os_string())
    }

    /// Reads the file; none if it has gone meanwhile.
    ///
    /// # Errors
    /// [`HostError::Kernel`] for a file that another user could have made. [`HostError::Malformed`] for a
    /// file that is no journal. [`HostError::Impossible`] for a file that mpps did not write. Otherwise
    /// the refusal of the file system.
    pub(crate) fn read(&self) -> HostResult<Option<Record>> {
        let read = self
            .open()
            .and_then(|place| place.read(self.name(), LENGTH_MAX));
        match read {
            Ok(Some(text)) => Record::parse(&self.path.display().to_string(), &text).map(Some),
            Ok(None) => Ok(None),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the file away.
    ///
    /// # Errors
    /// The refusal of the file system, but not that the file has gone already.
    pub(crate) fn remove(&self) -> HostResult<()> {
        Ok(self.open()?.remove(self.name())?)
    }

    /// All journals in a directory, and why it cannot be read, unless there is none.
    pub(crate) fn find(directory: &Path) -> (Vec<Self>, Vec<HostError>) {
        if is_roots(directory) {
            return Default::default();
        }
        match names(directory) {
            Ok(mut names) => {
                names.sort();
                let path = |name| directory.join(name);
                let found = names.into_iter().map(|name| Self { path: path(name) });
                (found.collect(), Vec::new())
            }
            // Nothing has been changed yet.
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Default::default(),
            Err(error) => (Vec::new(), vec![error.into()]),
        }
    }

    /// The same in a test, where no directory refuses.
    #[cfg(test)]
    pub(crate) fn list(directory: &Path) -> Vec<Self> {
        let (found, refused) = Self::find(directory);
        assert!(refused.is_empty(), "{refused:?}");
        found
    }

    /// Keeps every other `mpps undo` off the journals beside this one, until the file is closed.
    ///
    /// # Errors
    /// The refusal of the file system.
    pub(crate) fn lock(&self) -> HostResult<File> {
        Ok(self.open()?.lock()?)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> HostResult<PrivateDirectory, Refusal> {
        PrivateDirectory::open(self.path.parent().unwrap_or(Path::new("/")))
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

/// The names of the journals in a directory. A file that a dead process left before it was a
/// journal is removed.
fn names(directory: &Path) -> HostResult<Vec<OsString>, Refusal> {
    let place = PrivateDirectory::open(directory)?;
    let mut names = place.names()?;
    names.retain(
        |name| match Path::new(name).extension().and_then(OsStr::to_str) {
            Some("json") => true,
            Some(end) if is_abandoned(end) => {
                // The next one tries again.
                let _ = place.remove(name);
                false
            }
            _ => false,
        },
    );
    Ok(names)
}

/// True of a file that a process died over before it was a journal.
fn is_abandoned(extension: &str) -> bool {
    let pid = extension.strip_prefix("new-");
    pid.and_then(|pid| pid.parse::<u32>().ok())
        .is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn interface(name: &str, index: u32) -> Place {
        let name = name.to_owned();
        Place::Interface { name, index }
    }

    fn record(index: u32) -> Record {
        let change = SettingChange {
            name: "carve-out".to_owned(),
            place: interface("eth9", index),
            namespace: 7,
            namespace_cookie: None,
            user: None,
            heading: "eth9, queue 1".to_owned(),
            edits: Vec::new(),
        };
        Record::new(Owner::current().expect("/proc is here"), change)
    }

    #[test]
    fn a_journal_is_made_once_replaced_and_removed() {
        let guard = tempfile::tempdir().expect("a directory");
        let directory = guard.path().join("a/mpps");
        let mut said = record(3);
        let journal = Journal::create(&directory, &said).expect("made");
        assert_eq!(journal.read().expect("readable"), Some(said.clone()));
        let error = Journal::create(&directory, &said).expect_err("there is one");
        let text = error.to_string();
        assert!(text.contains("eth9: process"), "{text}");
        Journal::create(&directory, &record(4)).expect("another interface");

        said.begun = 2;
        journal.write(&said).expect("written");
        assert_eq!(journal.read().expect("readable"), Some(said));
        // The half-written file of a dead process is no journal, and is removed. That of a living
        // process stays.
        let of = |pid: u32| directory.join(format!("x.new-{pid}"));
        let (dead, alive) = (of(u32::MAX), of(std::process::id()));
        for file in [&dead, &alive] {
            fs::write(file, "half").expect("written");
        }
        assert_eq!(Journal::list(&directory).len(), 2);
        assert!(!dead.exists());
        fs::remove_file(alive).expect("it is there");
        for _ in 0..2 {
            journal.remove().expect("removed, twice");
        }
        assert_eq!(journal.read().expect("gone is no error"), None);
        let left: Vec<_> = fs::read_dir(&directory).expect("there").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_told_and_one_that_is_not_there_is_not() {
        let guard = tempfile::tempdir().expect("a directory");
        assert_eq!(Journal::list(&guard.path().join("nowhere")), []);
        let file = guard.path().join("file");
        fs::write(&file, "").expect("written");
        let open = guard.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("it is ours");
        for (directory, why) in [
            (&file, "Not a directory"),
            (&file.join("mpps"), "Not a directory"),
            (&open, "other users may write to it (mode 777)"),
        ] {
            Journal::create(directory, &record(1)).expect_err("no place");
            let (found, refused) = Journal::find(directory);
            assert_eq!(found, []);
            let [refusal] = &refused[..] else {
                panic!("{refused:?}");
            };
            let text = refusal.to_string();
            assert!(text.contains(why), "{text}");
        }
        assert_eq!(fs::read_dir(&open).expect("there").count(), 0);
    }

    /// Undo goes on with the others, and neither waits for these nor obeys them.
    #[test]
    fn what_this_user_did_not_write_is_refused() {
        let guard = tempfile::tempdir().expect("a directory");
        let directory = guard.path().join("mpps");
        let good = Journal::create(&directory, &record(1)).expect("made");
        let elsewhere = guard.path().join("elsewhere.json");
        fs::copy(good.path(), &elsewhere).expect("copied");
        symlink(&elsewhere, directory.join("link.json")).expect("made");
        let fifo = directory.join("fifo.json");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo is everywhere").success());
        fs::copy(good.path(), directory.join("open.json")).expect("copied");
        let open = Permissions::from_mode(0o666);
        fs::set_permissions(directory.join("open.json"), open).expect("it is ours");
        let mut read = Journal::list(&directory).into_iter().map(|one| one.read());
        assert_eq!(
            read.next().expect("good").expect("ours"),
            Some(record_of(&good))
        );
        for why in ["no regular file", "symbolic link", "other users may write"] {
            let error = read.next().expect("one more").expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(read.next().is_none());
    }

    fn record_of(journal: &Journal) -> Record {
        journal.read().expect("readable").expect("it is there")
    }

    #[test]
    fn foreign_files_are_errors_that_name_them() {
        let mut other = serde_json::to_value(record(1)).expect("plain data");
        let [earlier, later] = [1, 99].map(|schema| {
            other["schema"] = schema.into();
            other.to_string()
        });
        for text in ["", "{}", "[1]", &earlier, &later] {
            let error = read_journal("x.json", text.as_bytes()).expect_err("no journal");
            let error = error.to_string();
            assert!(error.contains("x.json"), "{error}");
            let versioned = [&*earlier, &later].contains(&text);
            let known = "this mpps knows forms 2 and 3";
            assert_eq!(error.contains(known), versioned, "{error}");
        }
    }

    /// The text of a journal with one edit, in the form of values.
    fn typed(setting: &serde_json::Value, old: &serde_json::Value) -> serde_json::Value {
        let mut typed = serde_json::to_value(record(1)).expect("plain data");
        let edit = json!({"setting": setting, "old": old, "new": old, "became": null});
        typed["change"]["edits"] = json!([edit]);
        typed
    }

    /// The same in the form of texts.
    fn text(setting: &serde_json::Value, old: &serde_json::Value) -> Vec<u8> {
        let mut said = typed(setting, old);
        said["schema"] = SCHEMA_OF_TEXTS.into();
        said["change"]["place"].take();
        said["change"]["object"] = "eth9".into();
        said["change"]["interface_index"] = 1.into();
        said.to_string().into_bytes()
    }

    #[test]
    fn a_journal_of_texts_is_one_of_values() {
        let mask = json!({"kind": "file", "name": "queues/rx-0/rps_cpus"});
        let affinity = json!({"kind": "affinity", "interrupt": 40});
        let parse = |text: &[u8]| Record::parse("x", text);
        for (setting, said, value) in [
            (&json!({"kind": "channels"}), json!("4"), json!(4)),
            (&json!({"kind": "filters"}), json!("off"), json!(false)),
            (
                &mask,
                json!("00000001,0000000c"),
                json!({"set": [2, 3, 32]}),
            ),
            (&affinity, json!("0-2,7"), json!({"set": [0, 1, 2, 7]})),
        ] {
            let record = parse(typed(setting, &value).to_string().as_bytes()).expect("a value");
            let of_texts = parse(&text(setting, &said)).expect("a text");
            assert_eq!((of_texts.schema, of_texts.change), (SCHEMA, record.change));
            parse(typed(setting, &said).to_string().as_bytes()).expect_err("a text is no value");
        }
        for set in [
            json!({"set": [2, 1]}),
            json!({"set": [1_u64 << 40]}),
            json!([1]),
            json!({}),
        ] {
            parse(typed(&affinity, &set).to_string().as_bytes()).expect_err("no set of CPUs");
        }
    }

    #[test]
    fn what_a_plan_sets_is_taken_and_nothing_else() {
        let file = |name: &str| json!({"kind": "file", "name": name});
        let sysctl = |name: &str| json!({"kind": "sysctl", "name": name});
        let untracked =
            |protocol: &str| json!({"kind": "untracked", "protocol": protocol, "port": 53});
        let rule =
            |queue: u32| json!({"kind": "rule", "destination": "10.0.0.1:53", "queue": queue});
        let affinity = json!({"kind": "affinity", "interrupt": 40});
        for (setting, value) in [
            (file("gro_flush_timeout"), json!("20000")),
            (file("queues/rx-0/rps_cpus"), json!("00000000,0000000f")),
            (file("queues/tx-63/xps_cpus"), json!("ff")),
            (file("queues/tx-1/tx_maxrate"), json!("0")),
            (sysctl("net.core.rmem_max"), json!("212992")),
            (affinity.clone(), json!("0-3,5")),
            (untracked("udp"), json!("on")),
            (
                json!({"kind": "hash_fields", "flow": "udp4"}),
                json!("sdfn"),
            ),
            (json!({"kind": "feature", "name": "rx-gro"}), json!("off")),
            (json!({"kind": "rss_table"}), json!([0, 1, 2])),
            (rule(3), json!([])),
        ] {
            let taken = read_journal("x", &text(&setting, &value));
            taken.unwrap_or_else(|error| panic!("{setting}: {error}"));
        }
        for (setting, value) in [
            (sysctl("//.//.tmp.x"), json!("1")),
            (sysctl("kernel.core_pattern"), json!("1")),
            (sysctl("net.core.rmem_max"), json!("|/tmp/x")),
            (sysctl("net.core.rmem_max"), json!([1])),
            (sysctl("net.core.rmem_max/../../x"), json!("1")),
            (file("../../../../tmp/x"), json!("1")),
            (file("queues/rx-0/../../../x"), json!("1")),
            (file("queues/rx-00/rps_cpus"), json!("1")),
            (file("queues/rx-+1/rps_cpus"), json!("1")),
            (file("queues/rx-4096/rps_cpus"), json!("1")),
            (file("queues/rx-0/xps_cpus"), json!("1")),
            (file("ifalias"), json!("1")),
            (file("threaded"), json!("1\n")),
            (file("queues/rx-0/rps_cpus"), json!("f; id")),
            (affinity, json!("all")),
            (untracked("udp; flush ruleset"), json!("on")),
            (untracked("tcp"), json!("yes")),
            (json!({"kind": "hash_fields", "flow": "sctp4"}), json!("sd")),
            (
                json!({"kind": "feature", "name": "tx-checksum-ipv4"}),
                json!("off"),
            ),
            (json!({"kind": "rss_key"}), json!("6d:5a")),
            (json!({"kind": "channels"}), json!("many")),
            (json!({"kind": "coalescing"}), json!([1, 2])),
            (rule(5000), json!([])),
        ] {
            let error = read_journal("x", &text(&setting, &value)).expect_err("no plan does");
            let error = error.to_string();
            assert!(
                error.contains("mpps writes no such journal"),
                "{setting}: {error}"
            );
        }
        // A kind that is none is refused, too.
        read_journal("x", &text(&json!({"kind": "path"}), &json!("1"))).expect_err("unknown");
    }

    #[test]
    fn what_a_change_is_about_is_judged() {
        let judged = |name: &str, object: &str, index: Option<u32>| {
            let mut record = record(1);
            record.change.name = name.to_owned();
            record.change.place = match index {
                Some(index) => interface(object, index),
                None => Place::Machine {
                    setting: object.to_owned(),
                },
            };
            let text = serde_json::to_vec(&record).expect("plain data");
            read_journal("x", &text).is_ok()
        };
        for object in [
            "eth0.5",
            "-rf",
            "\u{1b}]0;x",
            "a;id;$(id)",
            "\u{fffd}\u{fffd}",
        ] {
            assert!(judged("tune", object, Some(1)), "{object}");
        }
        assert!(judged("setting", "net.core.skb_defer_max", None));
        for object in [
            "",
            ".",
            "..",
            "../lo",
            "a/b",
            "a b",
            "a:b",
            "a\0",
            "0123456789abcdef",
        ] {
            assert!(!judged("tune", object, Some(1)), "{object}");
        }
        assert!(!judged("../x", "eth0", Some(1)) && !judged("", "eth0", Some(1)));
        assert!(!judged("setting", "kernel.core_pattern", None));
    }

    proptest! {
        #[test]
        fn no_journal_panics(at: prop::sample::Index, new: Vec<u8>, length in 0..9_usize) {
            let mut text = text(&json!({"kind": "rss_table"}), &json!([0, 1]));
            let at = at.index(text.len());
            let end = text.len().min(at + length);
            text.splice(at..end, new);
            let _ = read_journal("x", &text);
        }

        /// Whatever is accepted stays below the two folders of settings.
        #[test]
        fn no_path_leaves_its_folder(
            (kind, name) in prop::sample::select(vec![
                ("file", "gro_flush_timeout"),
                ("file", "queues/rx-0/rps_flow_cnt"),
                ("file", "queues/tx-12/xps_cpus"),
                ("sysctl", "net.core.rmem_max"),
                ("sysctl", "net.core.netdev_budget"),
            ]),
            at: prop::sample::Index,
            piece in "(|[./]{1,3}|[a-z0-9_/.-]{1,4})",
            length in 0..4_usize,
        ) {
            let at = at.index(name.len());
            let end = name.len().min(at + length);
            let changed = [&name[..at], &piece, &name[end..]].concat();
            let setting = json!({"kind": kind, "name": changed});
            if read_journal("x", &text(&setting, &json!("1"))).is_ok() {
                let pieces: Vec<&str> = changed.split('/').collect();
                match kind {
                    "file" => prop_assert!(matches!(pieces.len(), 1 | 3), "{}", changed),
                    _ => prop_assert!(changed.starts_with("net.core."), "{}", changed),
                }
                prop_assert!(!changed.contains(".."), "{}", changed);
            }
            let whole = text(&json!({"kind": kind, "name": name}), &json!("1"));
            let taken = read_journal("x", &whole).is_ok();
            prop_assert!(taken, "{}", name);
        }
    }
}
