//! Changes that are on the host: of processes that live, and of those that died.

use std::cmp::Reverse;
use std::path::Path;

use mpps_os::namespace::NetNamespace;

use super::applied::undo_edits;
use super::change::SettingChange;
use super::host::LiveKernel;
use super::journal::{self, Journal, Record};
use super::kind::SettingHost;
use super::outcome::{Undone, UndoneStep};
use super::owner::Life;
use super::place::Place;
use crate::HostError;
use crate::facts::namespace_paths;

/// A journal that was found.
#[derive(Debug)]
pub struct Leftover {
    pub(crate) journal: Journal,
    pub(crate) record: Record,
}

/// All journals of this user, the newest first, because a later change may stand on an earlier one; and
/// the files and directory that could not be read as such.
pub fn leftovers() -> (Vec<Leftover>, Vec<HostError>) {
    leftovers_in(&journal::directory())
}

pub(crate) fn leftovers_in(directory: &Path) -> (Vec<Leftover>, Vec<HostError>) {
    let (journals, mut unreadable) = Journal::find(directory);
    let mut found = Vec::new();
    for journal in journals {
        match journal.read() {
            Ok(Some(record)) => found.push(Leftover { journal, record }),
            // Its process has ended in the meantime, and put everything back.
            Ok(None) => {}
            Err(error) => unreadable.push(error),
        }
    }
    found.sort_by_key(|one| Reverse(one.record.began_ns));
    (found, unreadable)
}

impl Leftover {
    /// The heading of the change.
    pub fn heading(&self) -> &str {
        &self.record.change.heading
    }

    /// Whether the process that made it is alive.
    pub fn life(&self) -> Life {
        self.record.owner.life()
    }

    /// The number of that process.
    pub fn process(&self) -> u32 {
        self.record.owner.pid
    }

    /// The network namespace of the change, by its inode number.
    pub fn namespace(&self) -> u32 {
        self.record.change.namespace
    }

    /// True if it is of the calling thread's network namespace.
    pub fn is_here(&self) -> bool {
        let here = LiveKernel::default().namespace();
        here.is_ok_and(|here| here == self.namespace()) && !self.is_outlived()
    }

    /// True if its network namespace is gone, and another has its number.
    pub fn is_outlived(&self) -> bool {
        let host = LiveKernel::default();
        let is_here = host.namespace().is_ok_and(|here| here == self.namespace());
        is_here && self.record.change.has_outlived(&host)
    }

    /// Its edits, and how many of them were at least begun.
    pub fn steps(&self) -> (Vec<String>, usize) {
        (self.record.change.steps(), self.record.begun)
    }

    /// True while the process that made it waits for the word that it may stay.
    pub fn waits(&self) -> bool {
        self.record.waits && !self.record.kept
    }

    /// True if it stays until an undo names it: the process that made it may have ended.
    pub fn is_kept(&self) -> bool {
        self.record.kept
    }

    /// Lets those stay that are meant, and whose processes live and wait for this; answers them. A
    /// process sees all of its changes confirmed, or ends its wait before.
    ///
    /// # Errors
    /// A journal cannot be written.
    pub fn keep_waiting(is_meant: impl Fn(&Self) -> bool) -> crate::HostResult<Vec<Self>> {
        Self::keep_waiting_in(&journal::directory(), is_meant)
    }

    pub(crate) fn keep_waiting_in(
        directory: &Path,
        is_meant: impl Fn(&Self) -> bool,
    ) -> crate::HostResult<Vec<Self>> {
        let (found, _) = leftovers_in(directory);
        let Some(first) = found.first() else {
            return Ok(Vec::new());
        };
        // The lock is of the directory, and so of all journals.
        let _lock = first.journal.lock()?;
        let (mut found, _) = leftovers_in(directory);
        found.retain(|one| one.waits() && one.life() == Life::Alive && is_meant(one));
        for one in &mut found {
            one.record.kept = true;
            one.journal.write(&one.record)?;
        }
        Ok(found)
    }

    /// The name of the change: `carve-out`.
    pub fn name(&self) -> &str {
        &self.record.change.name
    }

    /// The interface, or the setting of the machine, that was changed.
    pub fn object(&self) -> &str {
        self.record.change.place.name()
    }

    /// The state of each edit that was begun, in the calling thread's network namespace. None if
    /// the edit stands, otherwise the present value.
    pub fn standing(&self) -> Vec<(String, Option<String>)> {
        let host = LiveKernel::default();
        let change = &self.record.change;
        let place = present(change, &host);
        let begun = change.edits.iter().take(self.record.begun);
        begun
            .map(|edit| (edit.to_string(), edit.otherwise(&host, &place)))
            .collect()
    }

    /// True if it is of the interface with this name, also if that had another name when it was changed. Call it in the
    /// change's network namespace.
    pub fn is_of(&self, interface: &str) -> bool {
        let now = present(&self.record.change, &LiveKernel::default());
        [self.object(), now.name()].contains(&interface)
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        self.journal.path()
    }

    /// Puts back the journal's settings, if its process is dead or the change was to stay.
    /// Otherwise it does nothing. Call it in the change's network namespace. The journal goes away
    /// unless an edit failed, or another program has changed a setting that was to stay. Returns no outcome if no edit was begun, or if another undo has run
    /// since the journal was read.
    ///
    /// `force` also restores settings that another program has changed since.
    pub fn undo_here(&self, force: bool) -> Vec<UndoneStep> {
        self.undo(&LiveKernel::default(), force)
    }

    /// The same in the change's network namespace, if a process or a name still holds it.
    pub fn undo_there(&self) -> Vec<UndoneStep> {
        let failed = |why: String| {
            let step = format!("enter net:[{}]", self.namespace());
            vec![UndoneStep::new(&step, Undone::Failed(why))]
        };
        let Some(path) = namespace_path(self.namespace()) else {
            return failed("no process is in it and no name holds it".to_owned());
        };
        let entered =
            NetNamespace::open(&path).and_then(|namespace| namespace.run(|| self.undo_here(false)));
        entered.unwrap_or_else(|error| failed(error.to_string()))
    }

    /// As [`Leftover::undo_here`], with anything that has settings.
    pub(crate) fn undo(&self, host: &dyn SettingHost, force: bool) -> Vec<UndoneStep> {
        if self.life() != Life::Dead && !self.record.kept {
            return Vec::new();
        }
        let failed = |step: &str, error: HostError| {
            UndoneStep::new(&step, Undone::Failed(error.to_string()))
        };
        // Two undos at once would undo each edit twice. Each would take the other's work for a
        // foreign change.
        let lock = match self.journal.lock() {
            Ok(lock) => lock,
            Err(error) => return vec![failed("lock the journal", error)],
        };
        match self.journal.read() {
            Ok(Some(record)) if record == self.record => {}
            // Another one has undone it since it was read.
            Ok(_) => return Vec::new(),
            Err(error) => return vec![failed("read the journal", error)],
        }
        let mut record = self.record.clone();
        if force {
            take_as_made(&mut record, host);
        }
        let mut outcomes = undo_edits(&mut record, &self.journal, host);
        // A change that was to stay can still be restored by force, unless it is of a program.
        let may_force = !matches!(record.change.place, Place::Process { .. });
        let is_left = may_force && record.kept && outcomes.iter().any(UndoneStep::is_left);
        if !is_left
            && outcomes.iter().all(UndoneStep::finished)
            && let Err(error) = self.journal.remove()
        {
            outcomes.push(failed("remove the journal", error));
        }
        drop(lock);
        outcomes
    }
}

/// Records each present value as the result of its edit. Undo then does not take it for a foreign
/// change.
fn take_as_made(record: &mut Record, host: &dyn SettingHost) {
    let place = present(&record.change, host);
    for edit in record.change.edits.iter_mut().take(record.begun) {
        edit.take_as_made(host, &place);
    }
}

/// The place of a change by its present name; as it was where it is gone.
fn present(change: &SettingChange, host: &dyn SettingHost) -> Place {
    let present = host.present(&change.place).ok().flatten();
    present.unwrap_or_else(|| change.place.clone())
}

/// A file that stands for the network namespace: of a process in it, or the mount that
/// `ip netns add` makes.
fn namespace_path(namespace: u32) -> Option<String> {
    let mut all = namespace_paths();
    all.find_map(|(inode, path)| (inode == namespace).then_some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_found() {
        let own = NetNamespace::current().expect("/proc is here").inode();
        let path = namespace_path(own).expect("this process is in it");
        let found = NetNamespace::open(&path).expect("its file opens");
        assert_eq!(found.inode(), own);
        assert_eq!(namespace_path(1), None);
    }
}
