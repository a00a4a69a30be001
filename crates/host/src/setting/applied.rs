//! A change that is made, and taken back.

use std::path::Path;

use super::change::SettingChange;
use super::edit::Backward;
use super::host::LiveKernel;
use super::journal::{self, Journal, Record};
use super::kind::SettingHost;
use super::outcome::{Undone, UndoneStep};
use super::owner::Owner;
use super::place::{Place, PlaceKind};
use crate::{HostError, HostResult};

/// A change that is made. Dropping it puts the settings back.
#[derive(Debug)]
pub struct Applied {
    pub(crate) record: Record,
    pub(crate) journal: Journal,
    host: Box<dyn SettingHost>,
    ended: bool,
}

impl Applied {
    /// Makes a change, in the network namespace of the calling thread, where it must also end.
    ///
    /// # Errors
    /// [`HostError::Impossible`] if another change of this name is on the object. Also if the driver
    /// does not take a value, or a setting has changed since it was planned. [`HostError::Kernel`] for
    /// a refusal, also of the journal's file. Edits made before the error are put back.
    /// [`HostError::PutBack`] says where that failed.
    pub fn new(change: &SettingChange) -> HostResult<Self> {
        Self::on(
            Box::new(LiveKernel::default()),
            change,
            &journal::directory(),
        )
    }

    /// The same, as long as `goes_on` says so; otherwise the edits made so far are put back.
    ///
    /// # Errors
    /// As [`Applied::new`].
    pub fn new_while(change: &SettingChange, goes_on: &dyn Fn() -> bool) -> HostResult<Self> {
        let host = Box::new(LiveKernel::default());
        Self::on_while(host, change, &journal::directory(), goes_on)
    }

    /// Makes a change as far as the driver takes it. A refused edit is put back, left out, and
    /// returned with the refusal. Otherwise as [`Applied::new`].
    pub(crate) fn far_on(
        host: Box<dyn SettingHost>,
        change: &SettingChange,
        directory: &Path,
    ) -> HostResult<(Self, Vec<(String, HostError)>)> {
        let mut made = Self::written_down(host, change, directory)?;
        let mut refused = Vec::new();
        while made.record.begun < made.record.change.edits.len() {
            let at = made.record.begun;
            let Err(refusal) = made.make_edit(at) else {
                continue;
            };
            let change = &made.record.change;
            let edit = change.edits[at].to_string();
            // The driver may have made a part of it. Where it was not begun, what is there is not ours.
            if made.record.begun > at {
                let place = change.place.clone();
                let undone = edit_undone(&mut made.record, &made.journal, at, &*made.host, &place);
                if !undone.clean() {
                    return Err(refusal);
                }
            }
            made.record.change.edits.remove(at);
            made.record.begun = at;
            made.journal.write(&made.record)?;
            refused.push((edit, refusal));
        }
        Ok((made, refused))
    }

    /// Creates the journal of a change, before any edit is made.
    fn written_down(
        host: Box<dyn SettingHost>,
        change: &SettingChange,
        directory: &Path,
    ) -> HostResult<Self> {
        let mut record = Record::new(Owner::current()?, change.clone());
        // A change that undo would refuse must not be written.
        if let Some(why) = record.change.fault() {
            let remedy = "this is a fault of mpps: please report it";
            return Err(HostError::impossible(change.place.name(), why, remedy));
        }
        Ok(Self {
            journal: Journal::create(directory, &record)?,
            record,
            host,
            ended: false,
        })
    }

    /// As [`Applied::new`], with anything that has settings.
    pub(crate) fn on(
        host: Box<dyn SettingHost>,
        change: &SettingChange,
        directory: &Path,
    ) -> HostResult<Self> {
        Self::on_while(host, change, directory, &|| true)
    }

    pub(crate) fn on_while(
        host: Box<dyn SettingHost>,
        change: &SettingChange,
        directory: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> HostResult<Self> {
        let mut made = Self::written_down(host, change, directory)?;
        let Err(cause) = made.make_edits(goes_on) else {
            return Ok(made);
        };
        let outcomes = made.end(true);
        let bad = outcomes.iter().filter(|outcome| !outcome.clean());
        let bad: Vec<String> = bad.map(ToString::to_string).collect();
        if bad.is_empty() {
            return Err(cause);
        }
        Err(HostError::PutBack {
            cause: Box::new(cause),
            rest: bad.join("; "),
        })
    }

    fn make_edits(&mut self, goes_on: &dyn Fn() -> bool) -> HostResult<()> {
        (0..self.record.change.edits.len()).try_for_each(|at| match goes_on() {
            true => self.make_edit(at),
            false => {
                let name = self.record.change.place.name();
                Err(HostError::impossible(name, "interrupted", "try again"))
            }
        })
    }

    fn make_edit(&mut self, at: usize) -> HostResult<()> {
        let SettingChange { edits, place, .. } = &mut self.record.change;
        edits[at].prepare(&*self.host, place)?;
        self.record.begun = at + 1;
        self.journal.write(&self.record)?;
        let SettingChange { edits, place, .. } = &mut self.record.change;
        let made = edits[at].make(&*self.host, place);
        // Only now it is known what the driver made of it, even if that is not the wanted value.
        self.journal.write(&self.record)?;
        made
    }

    /// From now on [`Leftover::keep_waiting`](super::Leftover::keep_waiting) of another process
    /// confirms the change, or from now on it does not.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn set_waiting(&mut self, waits: bool) -> HostResult<()> {
        self.record.waits = waits;
        self.journal.write(&self.record)
    }

    /// True if another process has confirmed the change.
    pub(crate) fn has_word(&self) -> bool {
        matches!(self.journal.read(), Ok(Some(record)) if record.kept)
    }

    /// Lets the change stay when this process ends; the journal stays with it, for
    /// [`Leftover::undo_here`](super::Leftover::undo_here).
    ///
    /// # Errors
    /// The journal cannot be written; the change is put back then.
    pub fn keep(mut self) -> HostResult<()> {
        self.record.kept = true;
        self.journal.write(&self.record)?;
        self.ended = true;
        Ok(())
    }

    /// The edits that were made, in a few words each.
    pub fn steps(&self) -> Vec<String> {
        self.record.change.steps()
    }

    /// Puts the settings back, the last one first, and says of each what came of it. After a
    /// failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub fn undo(mut self) -> Vec<UndoneStep> {
        self.end(true)
    }

    /// `told`: the caller reads the outcomes, so a foreign change need not be reported again.
    fn end(&mut self, told: bool) -> Vec<UndoneStep> {
        self.ended = true;
        let outcomes = undo_edits(&mut self.record, &self.journal, &*self.host);
        let finished = if told {
            outcomes.iter().all(UndoneStep::finished)
        } else {
            outcomes.iter().all(UndoneStep::clean)
        };
        if finished {
            // If this fails, the journal that stays has nothing left to undo.
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

/// Undoes one edit. The journal first records the settings of queues that undoing changes.
fn edit_undone(
    record: &mut Record,
    journal: &Journal,
    at: usize,
    host: &dyn SettingHost,
    place: &Place,
) -> UndoneStep {
    let failed = |why: String| Undone::Failed(why);
    let written = match record.change.edits[at].prepare_undo(host, place) {
        Ok(true) => journal.write(record).map_err(|error| error.to_string()),
        Ok(false) => Ok(()),
        Err(why) => Err(why),
    };
    let edit = &mut record.change.edits[at];
    let undone = written.and_then(|()| edit.undo(host, place).map_err(|error| error.to_string()));
    let result = undone.unwrap_or_else(failed);
    let outcome = match result {
        Undone::Restored | Undone::Partly(_) | Undone::Reset(_) => {
            UndoneStep::new(&Backward(edit), result)
        }
        _ => UndoneStep::new(edit, result),
    };
    if edit.end_undo(host, place) {
        // The next undo must not put back a setting that is changed in between.
        let _ = journal.write(record);
    }
    outcome
}

/// Undoes the edits that were begun, the last one first.
pub(crate) fn undo_edits(
    record: &mut Record,
    journal: &Journal,
    host: &dyn SettingHost,
) -> Vec<UndoneStep> {
    let change = &record.change;
    let begun = record.begun.min(change.edits.len());
    let all = |result: Undone| {
        let begun = change.edits.iter().take(begun).rev();
        let outcome = |edit| UndoneStep::new(edit, result.clone());
        begun.map(outcome).collect()
    };
    let present = match host.namespace() {
        // A program's settings are not of a network namespace.
        Ok(_) if matches!(change.place, Place::Process { .. }) => Ok(Some(change.place.clone())),
        Ok(here) if here == change.namespace && change.has_outlived(host) => Ok(None),
        Ok(here) if here == change.namespace => host.present(&change.place),
        Ok(_) => {
            let there = change.namespace;
            return all(Undone::Failed(format!(
                "it is in another network namespace, net:[{there}]"
            )));
        }
        Err(error) => Err(error),
    };
    let present = match present {
        Ok(present) => present,
        Err(error) => return all(Undone::Failed(error.to_string())),
    };
    let is_gone = present.is_none();
    let place = present.unwrap_or_else(|| change.place.clone());
    let name = place.name();
    let of_gone = match is_gone.then(|| host.elsewhere(name)).flatten() {
        None => Undone::Nothing,
        Some(there) => Undone::Failed(format!(
            "{name} is not in this network namespace; if it is that of net:[{there}], move it back, \
             otherwise remove the journal"
        )),
    };
    let mut outcomes = Vec::new();
    for at in (0..begun).rev() {
        let edit = &record.change.edits[at];
        // Its settings went with it; those of the machine did not.
        outcomes.push(
            match is_gone && edit.setting.row().place != PlaceKind::Machine {
                true => UndoneStep::new(edit, of_gone.clone()),
                false => edit_undone(record, journal, at, host, &place),
            },
        );
    }
    outcomes
}
