//! A change that is made, and taken back.

use std::path::PathBuf;

use super::change::Change;
use super::host::{Host, Kernel};
use super::journal::{self, Journal, Record};
use super::outcome::{Outcome, Undone};
use super::owner::Owner;
use crate::{Error, Result};

/// A change that is made. Dropping it puts the settings back.
#[derive(Debug)]
pub struct Applied {
    pub(crate) record: Record,
    pub(crate) journal: Journal,
    host: Box<dyn Host>,
    ended: bool,
}

impl Applied {
    /// Makes a change, in the network namespace of the calling thread, where it must also end.
    ///
    /// # Errors
    /// [`Error::Impossible`] where another change of this name is on the object, the driver does
    /// not take a value, or a setting has changed since it was planned; [`Error::Kernel`] for a
    /// refusal, also of the journal's file. What was changed before the error is put back;
    /// [`Error::PutBack`] says where that failed.
    pub fn new(change: &Change) -> Result<Self> {
        Self::on(Box::new(Kernel::default()), change, &journal::directories())
    }

    /// As [`Applied::new`], with anything that has settings.
    pub(crate) fn on(
        host: Box<dyn Host>,
        change: &Change,
        directories: &[PathBuf],
    ) -> Result<Self> {
        let record = Record::new(Owner::current()?, change.clone());
        let mut made = Self {
            journal: Journal::create(directories, &record)?,
            record,
            host,
            ended: false,
        };
        let Err(cause) = made.make_edits() else {
            return Ok(made);
        };
        let outcomes = made.end(true);
        let bad = outcomes.iter().filter(|outcome| !outcome.clean());
        let bad: Vec<String> = bad.map(ToString::to_string).collect();
        if bad.is_empty() {
            return Err(cause);
        }
        Err(Error::PutBack {
            cause: Box::new(cause),
            rest: bad.join("; "),
        })
    }

    fn make_edits(&mut self) -> Result<()> {
        for at in 0..self.record.change.edits.len() {
            let Change { edits, object, .. } = &mut self.record.change;
            edits[at].prepare(&*self.host, object)?;
            self.record.begun = at + 1;
            self.journal.write(&self.record)?;
            let Change { edits, object, .. } = &mut self.record.change;
            let made = edits[at].make(&*self.host, object);
            // What the driver made of it is known only now, also if it is not what was wanted.
            self.journal.write(&self.record)?;
            made?;
        }
        Ok(())
    }

    /// What was done, a few words an edit.
    pub fn steps(&self) -> Vec<String> {
        self.record.change.steps()
    }

    /// Puts the settings back, the last one first, and says of each what came of it. After a
    /// failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub fn undo(mut self) -> Vec<Outcome> {
        self.end(true)
    }

    /// `told`: somebody reads the outcomes, so that a foreign change need not be told again.
    fn end(&mut self, told: bool) -> Vec<Outcome> {
        self.ended = true;
        let outcomes = undo_edits(&self.record, &*self.host);
        let finished = if told {
            outcomes.iter().all(Outcome::finished)
        } else {
            outcomes.iter().all(Outcome::clean)
        };
        if finished {
            // What is left then is a journal by which there is nothing to do.
            let _ = self.journal.remove();
        }
        outcomes
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// Undoes the edits that were begun, the last one first.
pub(crate) fn undo_edits(record: &Record, host: &dyn Host) -> Vec<Outcome> {
    let change = &record.change;
    let begun = change.edits.iter().take(record.begun).rev();
    let all = |result: Undone| {
        let outcome = |edit| Outcome::new(edit, result.clone());
        begun.clone().map(outcome).collect()
    };
    let present = match host.namespace() {
        Ok(here) if here == change.namespace => match change.interface_index {
            Some(index) => host.name(index),
            None => Ok(Some(change.object.clone())),
        },
        Ok(_) => {
            let there = change.namespace;
            return all(Undone::Failed(format!(
                "it is in another network namespace, net:[{there}]"
            )));
        }
        Err(error) => Err(error),
    };
    match present {
        Ok(Some(object)) => begun
            .map(|edit| {
                let failed = |error: mpps_os::Error| Undone::Failed(error.to_string());
                Outcome::new(edit, edit.undo(host, &object).unwrap_or_else(failed))
            })
            .collect(),
        // Its settings went with it.
        Ok(None) => all(Undone::Nothing),
        Err(error) => all(Undone::Failed(error.to_string())),
    }
}
