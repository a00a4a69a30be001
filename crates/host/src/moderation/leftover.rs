//! Moderations that are on the host: of processes that live, and of those that died.

use std::path::PathBuf;

use mpps_os::namespace::NetNamespace;

use super::{KernelSettings, ModerationPlan, Settings, undo_steps};
use crate::Error;
use crate::carve_out::{Outcome, Undone, namespace_path};
use crate::journal::{self, Journal, Life, Record};

/// A journal that was found.
#[derive(Debug)]
pub struct ModerationLeftover {
    /// The file.
    pub journal: Journal,
    /// What it says.
    pub record: Record<ModerationPlan>,
}

impl ModerationLeftover {
    /// All journals of this user, and the files that could not be read as such.
    pub fn list() -> (Vec<Self>, Vec<Error>) {
        Self::list_in(&journal::directories())
    }

    pub(super) fn list_in(directories: &[PathBuf]) -> (Vec<Self>, Vec<Error>) {
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for journal in Journal::list_of::<ModerationPlan>(directories) {
            match journal.read_as() {
                Ok(Some(record)) => found.push(Self { journal, record }),
                // Its process has ended in the meantime, and put everything back.
                Ok(None) => {}
                Err(error) => unreadable.push(error),
            }
        }
        (found, unreadable)
    }

    /// Whether the process that made it is alive.
    pub fn life(&self) -> Life {
        self.record.owner.life()
    }

    /// Puts back what the journal says, if its process is dead; nothing otherwise. To be called in
    /// the plan's network namespace. The journal goes away unless a step failed.
    pub fn undo(&self, settings: &dyn Settings) -> Vec<Outcome> {
        if self.life() != Life::Dead {
            return Vec::new();
        }
        let mut outcomes = undo_steps(&self.record, settings);
        if outcomes.iter().all(Outcome::finished)
            && let Err(error) = self.journal.remove()
        {
            let step = "remove the journal".to_owned();
            let result = Undone::Failed(error.to_string());
            outcomes.push(Outcome { step, result });
        }
        outcomes
    }

    /// The same in the plan's network namespace, if a process or a name still holds it.
    pub fn undo_there(&self) -> Vec<Outcome> {
        let failed = |why: String| {
            let step = format!("enter net:[{}]", self.record.plan.namespace);
            let result = Undone::Failed(why);
            vec![Outcome { step, result }]
        };
        let Some(path) = namespace_path(self.record.plan.namespace) else {
            return failed("no process is in it and no name holds it".to_owned());
        };
        let entered = NetNamespace::open(&path)
            .and_then(|namespace| namespace.run(|| self.undo(&KernelSettings)));
        entered.unwrap_or_else(|error| failed(error.to_string()))
    }
}
