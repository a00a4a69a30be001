//! A change of the host's settings: written down, made step by step, and taken back.
//!
//! These settings stay when a process dies. So every step is in a [journal](crate::journal) before
//! it is taken. A change takes its steps back when it goes, and `mpps undo` does so for a process
//! that was killed ([`Leftover`]). A setting that somebody else has changed in between is told and
//! left as it is.

mod leftover;
mod outcome;

pub use leftover::{Left, Leftover, leftovers};
pub use outcome::{Outcome, Undone};

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::journal::{Journal, Owner, Record};
use crate::{Error, Result};

/// A kind of change that is written down before it is made; a value is the plan of one.
pub trait Change:
    Clone + PartialEq + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// What it is called in a sentence: `a carve-out`.
    const WHAT: &'static str;
    /// How the names of its files begin.
    const FILES: &'static str;
    /// What is asked and set: the kernel, or a stand-in of a test.
    type Host: fmt::Debug + ?Sized;

    /// The kernel, in the network namespace of the calling thread.
    fn kernel() -> Box<Self::Host>;
    /// The network namespace in which `host` works, by its inode number (`ns.inum`).
    ///
    /// # Errors
    /// No `/proc`.
    fn namespace_of(host: &Self::Host) -> Result<u32, mpps_os::Error>;

    /// The network namespace in which it is to be made and undone.
    fn namespace(&self) -> u32;
    /// What is changed, as a message names it: an interface or a setting.
    fn object(&self) -> &str;
    /// What tells its file from those of the same kind: no two changes of one thing at a time.
    fn place(&self) -> String;
    /// How `mpps undo` names it.
    fn heading(&self) -> String;
    /// Its steps in order, a few words each.
    fn steps(&self) -> Vec<String>;

    /// The present name of what is changed; none where it is gone, and its settings with it.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn present(&self, host: &Self::Host) -> Result<Option<String>, mpps_os::Error>;
    /// Looks at what is there just before a step is written down.
    ///
    /// # Errors
    /// [`Error::Impossible`] if it is not as it was when the step was planned; [`Error::Kernel`].
    fn prepare(&mut self, step: usize, host: &Self::Host) -> Result<()>;
    /// Takes a step.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the driver has no such value; [`Error::Kernel`].
    fn take(&mut self, step: usize, host: &Self::Host) -> Result<()>;
    /// Undoes a step, if things are as it left them; `object` is the present name.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn undo(&self, step: usize, object: &str, host: &Self::Host) -> Result<Undone, mpps_os::Error>;
}

/// A change that is made. Dropping it puts the settings back.
#[derive(Debug)]
pub(crate) struct Made<C: Change> {
    pub(crate) record: Record<C>,
    pub(crate) journal: Journal,
    host: Box<C::Host>,
    ended: bool,
}

impl<C: Change> Made<C> {
    /// Carries a plan out. What was changed before an error is put back.
    ///
    /// # Errors
    /// [`Error::Impossible`] where another change of this kind is there, or a setting has changed
    /// since it was planned; [`Error::Kernel`] for a refusal, also of the journal's file;
    /// [`Error::PutBack`] where something could not be put back.
    pub(crate) fn apply(plan: &C, host: Box<C::Host>, directories: &[PathBuf]) -> Result<Self> {
        let record = Record::new(Owner::current()?, plan.clone());
        let mut made = Self {
            journal: Journal::create(directories, &record)?,
            record,
            host,
            ended: false,
        };
        let Err(cause) = made.take_steps() else {
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

    fn take_steps(&mut self) -> Result<()> {
        for at in 0..self.record.plan.steps().len() {
            self.record.plan.prepare(at, &self.host)?;
            self.record.begun = at + 1;
            self.journal.write(&self.record)?;
            let taken = self.record.plan.take(at, &self.host);
            // What the driver made of it is known only now, also if it is not what was wanted.
            self.journal.write(&self.record)?;
            taken?;
        }
        Ok(())
    }

    /// Puts the settings back, the last step first, and says of each step what came of it. After
    /// a failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub(crate) fn undo(mut self) -> Vec<Outcome> {
        self.end(true)
    }

    /// `told`: somebody reads the outcomes, so that a foreign change need not be told again.
    fn end(&mut self, told: bool) -> Vec<Outcome> {
        self.ended = true;
        let outcomes = undo_steps(&self.record, &*self.host);
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

impl<C: Change> Drop for Made<C> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// Undoes the steps that were begun, the last one first.
pub(crate) fn undo_steps<C: Change>(record: &Record<C>, host: &C::Host) -> Vec<Outcome> {
    let plan = &record.plan;
    let steps = plan.steps();
    let begun = steps.iter().enumerate().take(record.begun).rev();
    let all = |result: Undone| {
        let outcome = |(_, step): (usize, &String)| Outcome::new(step, result.clone());
        begun.clone().map(outcome).collect()
    };
    match C::namespace_of(host) {
        Ok(namespace) if namespace == plan.namespace() => {}
        Ok(_) => {
            let namespace = plan.namespace();
            return all(Undone::Failed(format!(
                "it is in another network namespace, net:[{namespace}]"
            )));
        }
        Err(error) => return all(Undone::Failed(error.to_string())),
    }
    match plan.present(host) {
        Ok(Some(object)) => begun
            .map(|(at, step)| {
                let result = plan.undo(at, &object, host);
                let failed = |error: mpps_os::Error| Undone::Failed(error.to_string());
                Outcome::new(step, result.unwrap_or_else(failed))
            })
            .collect(),
        // Its settings went with it.
        Ok(None) => all(Undone::Nothing),
        Err(error) => all(Undone::Failed(error.to_string())),
    }
}
