//! Changes that are on the host: of processes that live, and of those that died.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;

use mpps_os::namespace::NetNamespace;

use super::{Change, Outcome, Undone, undo_steps};
use crate::Error;
use crate::carve_out::Plan;
use crate::journal::{self, Journal, Life, Record};
use crate::moderation::ModerationPlan;
use crate::skb_defer::SkbDeferPlan;

/// A journal that was found.
#[derive(Debug)]
pub struct Leftover<C> {
    /// The file.
    pub journal: Journal,
    /// What it says.
    pub record: Record<C>,
}

/// A journal that was found, whatever kind of change it is of.
pub trait Left {
    /// What was changed.
    fn heading(&self) -> String;
    /// Whether the process that made it is alive.
    fn life(&self) -> Life;
    /// The number of that process.
    fn process(&self) -> u32;
    /// The network namespace in which it was made, by its inode number.
    fn namespace(&self) -> u32;
    /// Its steps, and how many of them were at least begun.
    fn steps(&self) -> (Vec<String>, usize);
    /// Where its file is.
    fn path(&self) -> &Path;
    /// Puts back what the journal says, if its process is dead; nothing otherwise. To be called in
    /// the change's network namespace. The journal goes away unless a step failed. No outcome at
    /// all if no step was begun, or somebody else has undone them since the journal was read.
    fn undo_here(&self) -> Vec<Outcome>;
    /// The same in the change's network namespace, if a process or a name still holds it.
    fn undo_there(&self) -> Vec<Outcome>;
}

/// All journals of this user, and the files and directories that could not be read as such.
pub fn leftovers() -> (Vec<Box<dyn Left>>, Vec<Error>) {
    fn add<C: Change>(journals: &[Journal], all: &mut (Vec<Box<dyn Left>>, Vec<Error>)) {
        let (found, unreadable) = Leftover::<C>::among(journals);
        all.0
            .extend(found.into_iter().map(|left| Box::new(left) as Box<_>));
        all.1.extend(unreadable);
    }
    let (journals, unreadable) = Journal::find(&journal::directories());
    let mut all = (Vec::new(), unreadable);
    add::<Plan>(&journals, &mut all);
    add::<ModerationPlan>(&journals, &mut all);
    add::<SkbDeferPlan>(&journals, &mut all);
    all
}

impl<C: Change> Leftover<C> {
    fn among(journals: &[Journal]) -> (Vec<Self>, Vec<Error>) {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for journal in journals.iter().filter(|journal| journal.is_of::<C>()) {
            match journal.read_as() {
                Ok(Some(record)) => found.push(Self {
                    journal: journal.clone(),
                    record,
                }),
                // Its process has ended in the meantime, and put everything back.
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        (found, unreadable)
    }

    #[cfg(test)]
    pub(crate) fn list_in(directories: &[PathBuf]) -> (Vec<Self>, Vec<Error>) {
        Self::among(&Journal::list(directories))
    }

    /// As [`Left::undo_here`], with anything that can be asked and set.
    pub(crate) fn undo(&self, host: &C::Host) -> Vec<Outcome> {
        if self.life() != Life::Dead {
            return Vec::new();
        }
        let failed = |step: &str, error: Error| {
            let step = step.to_owned();
            let result = Undone::Failed(error.to_string());
            Outcome { step, result }
        };
        // Two at once would undo each step twice, and take the other one's for somebody's change.
        let lock = match self.journal.lock() {
            Ok(lock) => lock,
            Err(error) => return vec![failed("lock the journal", error)],
        };
        match self.journal.read_as::<C>() {
            Ok(Some(record)) if record == self.record => {}
            // Another one has undone it since it was read.
            Ok(_) => return Vec::new(),
            Err(error) => return vec![failed("read the journal", error)],
        }
        let mut outcomes = undo_steps(&self.record, host);
        if outcomes.iter().all(Outcome::finished)
            && let Err(error) = self.journal.remove()
        {
            outcomes.push(failed("remove the journal", error));
        }
        drop(lock);
        outcomes
    }
}

impl<C: Change> Left for Leftover<C> {
    fn heading(&self) -> String {
        self.record.plan.heading()
    }

    fn life(&self) -> Life {
        self.record.owner.life()
    }

    fn process(&self) -> u32 {
        self.record.owner.pid
    }

    fn namespace(&self) -> u32 {
        self.record.plan.namespace()
    }

    fn steps(&self) -> (Vec<String>, usize) {
        (self.record.plan.steps(), self.record.begun)
    }

    fn path(&self) -> &Path {
        self.journal.path()
    }

    fn undo_here(&self) -> Vec<Outcome> {
        self.undo(&C::kernel())
    }

    fn undo_there(&self) -> Vec<Outcome> {
        let failed = |why: String| {
            let step = format!("enter net:[{}]", self.namespace());
            let result = Undone::Failed(why);
            vec![Outcome { step, result }]
        };
        let Some(path) = namespace_path(self.namespace()) else {
            return failed("no process is in it and no name holds it".to_owned());
        };
        let entered =
            NetNamespace::open(&path).and_then(|namespace| namespace.run(|| self.undo_here()));
        entered.unwrap_or_else(|error| failed(error.to_string()))
    }
}

/// A file that stands for the network namespace: of a process in it, or the mount that
/// `ip netns add` makes.
fn namespace_path(namespace: u32) -> Option<String> {
    let names = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    };
    let processes = names("/proc")
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|pid| format!("/proc/{pid}/ns/net"));
    let named = names("/run/netns").map(|name| format!("/run/netns/{name}"));
    processes
        .chain(named)
        .find(|path| fs::metadata(path).is_ok_and(|file| file.ino() == u64::from(namespace)))
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
