//! An interface whose settings are changed, step by step.

use std::fmt;
use std::fs::File;
use std::mem;
use std::path::PathBuf;

use super::{CLAIM, PlannedStep, TunePlan, is_of_plan};
use crate::setting::{
    Applied, Leftover, Life, LiveKernel, Setting, SettingChange, SettingHost, UndoneStep,
    directory, leftovers_in,
};
use crate::{HostError, HostResult};

/// The steps that are made of the plans of an interface. Dropping it puts them back, the last one
/// first.
pub struct Tuned {
    /// The claim on the interface; none once it has ended.
    claim: Option<Applied>,
    /// True if another claim was there before, and stays.
    is_on_top: bool,
    steps: Vec<Applied>,
    host: MakeHost,
    directory: PathBuf,
}

fn kernel() -> Box<dyn SettingHost> {
    Box::new(LiveKernel::default())
}

/// Each change has its host.
type MakeHost = Box<dyn Fn() -> Box<dyn SettingHost>>;

/// The result of an edit of a step.
#[derive(Debug)]
pub struct Edited {
    /// From what to what.
    pub edit: String,
    /// Why it was not made.
    pub refusal: Option<HostError>,
}

impl Tuned {
    /// Claims the interface of a plan, in the network namespace of the calling thread, where it must
    /// also end.
    ///
    /// # Errors
    /// [`HostError::Impossible`] where the interface is tuned already, or another process is at it;
    /// [`HostError::Kernel`] for a refusal, also of the journal's file.
    pub fn begin(plan: &TunePlan) -> HostResult<Self> {
        Self::begin_on(Box::new(kernel), plan, directory(), false)
    }

    /// The same, also on an interface that is tuned and whose steps stay: an undo restores both.
    ///
    /// # Errors
    /// As [`Tuned::begin`].
    pub fn go_on(plan: &TunePlan) -> HostResult<Self> {
        Self::begin_on(Box::new(kernel), plan, directory(), true)
    }

    pub(super) fn begin_on(
        host: MakeHost,
        plan: &TunePlan,
        directory: PathBuf,
        goes_on: bool,
    ) -> HostResult<Self> {
        let mut claim = plan.change_on(&*host(), None)?;
        let is_kept = |one: &Leftover| {
            let there = &one.record.change;
            one.is_kept()
                && (&there.name, &there.place) == (&claim.name, &claim.place)
                && there.namespace == claim.namespace
        };
        let is_on_top = goes_on && leftovers_in(&directory).0.iter().any(is_kept);
        if is_on_top {
            // The claim that is there stays; this one keeps others from going on at the same time.
            claim.name = format!("{CLAIM}-more");
        }
        Ok(Self {
            claim: Some(Applied::on(host(), &claim, &directory)?),
            is_on_top,
            steps: Vec::new(),
            host,
            directory,
        })
    }

    /// Makes a step. If the driver refuses an edit, nothing of this step is made. With `goes_on`,
    /// only that edit is left out.
    ///
    /// # Errors
    /// As [`Applied::new`]. The steps before it stay as they are.
    pub fn make(
        &mut self,
        plan: &TunePlan,
        step: &PlannedStep,
        goes_on: bool,
    ) -> HostResult<Vec<Edited>> {
        let change = plan.change_on(&*(self.host)(), Some(step))?;
        if change.edits.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(error) = self.obstacle(&change) {
            let edit = step.stage.to_owned();
            return match goes_on {
                false => Err(error),
                true => Ok(vec![Edited {
                    edit,
                    refusal: Some(error),
                }]),
            };
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
        // A change without any edit is dropped, and its journal goes with it.
        if !applied.steps().is_empty() {
            self.steps.push(applied);
        }
        Ok(edited)
    }

    /// Why it cannot be made beside what a receiver or a server has made: a queue that is carved out has the
    /// table for itself.
    fn obstacle(&self, change: &SettingChange) -> Option<HostError> {
        let settings = |change: &SettingChange| {
            let settings = change.edits.iter().map(|edit| edit.setting.clone());
            settings.collect::<Vec<Setting>>()
        };
        let own = settings(change);
        let remakes = own.iter().any(|setting| setting.row().remakes_queues);
        let (found, _) = leftovers_in(&self.directory);
        let other = found.iter().find(|one| {
            let there = &one.record.change;
            let is_here = there.key() == change.key();
            let overlaps = || settings(there).iter().any(|setting| own.contains(setting));
            is_here && !is_of_plan(one.name()) && (remakes || overlaps())
        })?;
        let why = format!("{} needs it as it is", other.heading());
        let remedy = match other.life() {
            Life::Dead => "put that back first: mpps undo".to_owned(),
            _ => format!("end process {} first", other.process()),
        };
        Some(HostError::impossible(change.place.name(), why, remedy))
    }

    fn applied(
        &self,
        change: &SettingChange,
        goes_on: bool,
    ) -> HostResult<(Applied, Vec<(String, HostError)>)> {
        let (host, directory) = ((self.host)(), &self.directory);
        match goes_on {
            false => Ok((Applied::on(host, change, directory)?, Vec::new())),
            true => Applied::far_on(host, change, directory),
        }
    }

    /// True if a step is made.
    pub fn has_changed(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Puts the last step back, and says of each edit what came of it.
    pub fn undo_last(&mut self) -> Vec<UndoneStep> {
        self.steps.pop().map(Applied::undo).unwrap_or_default()
    }

    /// Puts all steps back, the last one first, and says of each edit what came of it.
    pub fn undo(mut self) -> Vec<UndoneStep> {
        self.take().rev().flat_map(Applied::undo).collect()
    }

    /// From now on [`crate::Leftover::keep_waiting`] of another process confirms the steps.
    ///
    /// # Errors
    /// A journal cannot be written.
    pub fn wait_for_word(&mut self) -> HostResult<()> {
        let _lock = self.lock()?;
        self.set_waiting(true)
    }

    /// From now on no other process confirms the steps; true if one had confirmed all of them.
    ///
    /// # Errors
    /// A journal cannot be written.
    pub fn end_wait(&mut self) -> HostResult<bool> {
        // A confirmation is written as a whole under this lock: it came before, or is refused.
        let _lock = self.lock()?;
        if self.has_word() {
            return Ok(true);
        }
        self.set_waiting(false)?;
        Ok(false)
    }

    fn lock(&self) -> HostResult<Option<File>> {
        self.claim
            .as_ref()
            .map(|one| one.journal.lock())
            .transpose()
    }

    fn set_waiting(&mut self, waits: bool) -> HostResult<()> {
        let mut all = self.claim.iter_mut().chain(&mut self.steps);
        all.try_for_each(|one| one.set_waiting(waits))
    }

    /// True if another process has confirmed all of them.
    pub fn has_word(&self) -> bool {
        let mut all = self.claim.iter().chain(&self.steps);
        all.all(Applied::has_word)
    }

    /// Lets the steps stay when this process ends, for [`crate::Leftover::undo_here`].
    ///
    /// # Errors
    /// A journal cannot be written; what is not kept yet is put back then.
    pub fn keep(mut self) -> HostResult<()> {
        if !self.has_changed() {
            return Ok(());
        }
        if self.is_on_top {
            drop(self.claim.take());
        }
        self.take().try_for_each(Applied::keep)
    }

    /// Takes the claim on the interface, and behind it the steps.
    fn take(&mut self) -> impl DoubleEndedIterator<Item = Applied> + use<> {
        let steps = mem::take(&mut self.steps);
        self.claim.take().into_iter().chain(steps)
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        self.take().rev().for_each(drop);
    }
}

impl fmt::Debug for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuned")
            .field("claim", &self.claim)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::fake::{Fake, eth9, plain};

    fn tuned() -> Tuned {
        let fake = Fake::new(plain());
        let directory = fake.directory();
        let applied = |name: &str| {
            let change = SettingChange {
                name: name.to_owned(),
                place: eth9(),
                namespace: 7,
                namespace_cookie: None,
                user: None,
                heading: "eth9".to_owned(),
                edits: Vec::new(),
            };
            fake.apply(&change).expect("it can")
        };
        Tuned {
            claim: Some(applied(CLAIM)),
            is_on_top: false,
            steps: vec![applied("tune-buffers"), applied("tune-napi")],
            host: Box::new(move || Box::new(fake.clone())),
            directory,
        }
    }

    #[test]
    fn a_confirmation_is_of_all_steps_or_too_late() {
        let mut tuned = tuned();
        let directory = tuned.directory.clone();
        let confirm = || {
            let kept = Leftover::keep_waiting_in(&directory, |_| true);
            kept.expect("it can be written").len()
        };
        assert_eq!(confirm(), 0, "it waits for none");
        tuned.wait_for_word().expect("it can be written");
        assert!(!tuned.end_wait().expect("it can be written"));
        assert_eq!(confirm(), 0, "it is put back already");
        tuned.wait_for_word().expect("it can be written");
        assert_eq!(confirm(), 3);
        assert!(tuned.end_wait().expect("it can be written"), "it stays");
        assert!(tuned.has_word());
        assert_eq!(confirm(), 0, "it was confirmed");
    }

    /// It was killed between two of its writes.
    #[test]
    fn half_a_confirmation_is_none() {
        let mut tuned = tuned();
        let directory = tuned.directory.clone();
        tuned.wait_for_word().expect("it can be written");
        let is_step = |one: &Leftover| one.name() != CLAIM;
        let kept = Leftover::keep_waiting_in(&directory, is_step);
        assert_eq!(kept.expect("it can be written").len(), 2);
        assert!(!tuned.end_wait().expect("it can be written"));
        let (left, _) = leftovers_in(&directory);
        assert!(left.iter().all(|one| !one.waits() && !one.is_kept()));
    }
}
