//! An interface whose settings are changed, step by step.

use std::fmt;
use std::mem;
use std::path::PathBuf;

use super::{Plan, Step};
use crate::setting::{Applied, Change, Host, Kernel, Outcome, directories};
use crate::{Error, Result};

/// The steps that are made of the plans of an interface. Dropping it puts them back, the last one
/// first.
pub struct Tuned {
    /// What claims the interface, and behind it the steps.
    applied: Vec<Applied>,
    host: MakeHost,
    directories: Vec<PathBuf>,
}

/// Each change has its host.
type MakeHost = Box<dyn Fn() -> Box<dyn Host>>;

/// What became of an edit of a step.
#[derive(Debug)]
pub struct Edited {
    /// From what to what.
    pub edit: String,
    /// Why it was not made.
    pub refusal: Option<Error>,
}

impl Tuned {
    /// Claims the interface of a plan, in the network namespace of the calling thread, where it must
    /// also end.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the interface is tuned already, or another process is at it;
    /// [`Error::Kernel`] for a refusal, also of the journal's file.
    pub fn begin(plan: &Plan) -> Result<Self> {
        let kernel = || Box::new(Kernel::default()) as Box<dyn Host>;
        Self::begin_on(Box::new(kernel), plan, directories())
    }

    pub(super) fn begin_on(host: MakeHost, plan: &Plan, directories: Vec<PathBuf>) -> Result<Self> {
        let claim = plan.change_on(&*host(), None)?;
        Ok(Self {
            applied: vec![Applied::on(host(), &claim, &directories)?],
            host,
            directories,
        })
    }

    /// Makes a step. Where the driver refuses an edit, nothing of this step is made; with `goes_on`
    /// that edit alone is left out.
    ///
    /// # Errors
    /// As [`Applied::new`]. The steps before it stay as they are.
    pub fn make(&mut self, plan: &Plan, step: &Step, goes_on: bool) -> Result<Vec<Edited>> {
        let change = plan.change_on(&*(self.host)(), Some(step))?;
        if change.edits.is_empty() {
            return Ok(Vec::new());
        }
        let (applied, refused) = self.applied(&change, goes_on)?;
        let made = applied.steps().into_iter();
        let made = made.map(|edit| Edited {
            edit,
            refusal: None,
        });
        let refused = refused.into_iter().map(|(edit, refusal)| Edited {
            edit,
            refusal: Some(refusal),
        });
        let edited = made.chain(refused).collect();
        // One of which nothing was made goes, and its journal with it.
        if !applied.steps().is_empty() {
            self.applied.push(applied);
        }
        Ok(edited)
    }

    fn applied(&self, change: &Change, goes_on: bool) -> Result<(Applied, Vec<(String, Error)>)> {
        let (host, directories) = ((self.host)(), &self.directories);
        match goes_on {
            false => Ok((Applied::on(host, change, directories)?, Vec::new())),
            true => Applied::far_on(host, change, directories),
        }
    }

    /// True if a step is made.
    pub fn has_changed(&self) -> bool {
        self.applied.len() > 1
    }

    /// Puts the last step back, and says of each edit what came of it.
    pub fn undo_last(&mut self) -> Vec<Outcome> {
        match self.has_changed() {
            true => self.applied.pop().map(Applied::undo).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    /// Puts all steps back, the last one first, and says of each edit what came of it.
    pub fn undo(mut self) -> Vec<Outcome> {
        let applied = mem::take(&mut self.applied);
        applied.into_iter().rev().flat_map(Applied::undo).collect()
    }

    /// From now on [`crate::Leftover::keep`] of another process confirms the steps.
    ///
    /// # Errors
    /// A journal cannot be written.
    pub fn wait_for_word(&mut self) -> Result<()> {
        self.applied.iter_mut().try_for_each(Applied::wait_for_word)
    }

    /// True if another process has confirmed all of them.
    pub fn has_word(&self) -> bool {
        self.applied.iter().all(Applied::has_word)
    }

    /// Lets the steps stay when this process ends, for [`crate::Leftover::undo_here`].
    ///
    /// # Errors
    /// A journal cannot be written; what is not kept yet is put back then.
    pub fn keep(mut self) -> Result<()> {
        if !self.has_changed() {
            return Ok(());
        }
        mem::take(&mut self.applied)
            .into_iter()
            .try_for_each(Applied::keep)
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        while let Some(last) = self.applied.pop() {
            drop(last);
        }
    }
}

impl fmt::Debug for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuned")
            .field("applied", &self.applied)
            .finish_non_exhaustive()
    }
}
