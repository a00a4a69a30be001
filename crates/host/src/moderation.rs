//! Throttles the interrupts of an interface, and lets them go again.
//!
//! Two ways. The card waits so long after a packet before it interrupts (coalescing, what the
//! driver of 2014 called its interrupt throttle rate). Or the kernel polls the queue by a timer
//! and leaves the interrupts off meanwhile (`gro_flush_timeout` and `napi_defer_hard_irqs`), which
//! works with every driver that has NAPI.
//!
//! These settings stay when a process dies: as with a carve-out each step is written to a
//! [journal] before it is taken, [`Moderation`] takes the steps back when it
//! goes, and `mpps undo` does so for a process that was killed.

mod leftover;
mod settings;
mod step;
#[cfg(test)]
mod tests;

pub use leftover::ModerationLeftover;
pub use settings::{Attribute, KernelSettings, Settings};
pub use step::ModerationStep;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::carve_out::{Outcome, Undone};
use crate::journal::{self, Change, Journal, Owner, Record, Target};
use crate::{Error, Result};

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The card, before it interrupts (`ethtool -C IF rx-usecs`).
    Nic,
    /// The kernel, before it polls the queue again.
    Kernel,
}

/// Interrupts that are throttled. Dropping it puts the settings back.
#[derive(Debug)]
pub struct Moderation {
    record: Record<ModerationPlan>,
    journal: Journal,
    settings: Box<dyn Settings>,
    ended: bool,
}

/// What a moderation will do, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModerationPlan {
    /// The network namespace of the interface, by its inode number (`ns.inum`).
    pub namespace: u32,
    /// The interface's name.
    pub interface: String,
    /// The number by which the kernel knows it, which stays if it is renamed.
    pub interface_index: u32,
    /// Who waits.
    pub throttle: Throttle,
    /// How long, in nanoseconds; 0 is not at all.
    pub time_ns: u64,
    /// The steps in order; what is already so needs none.
    pub steps: Vec<ModerationStep>,
}

impl Change for ModerationPlan {
    const WHAT: &'static str = "a moderation";
    const FILES: &'static str = "moderation";

    fn target(&self) -> Target<'_> {
        Target {
            namespace: self.namespace,
            interface: &self.interface,
            interface_index: self.interface_index,
        }
    }
}

impl Moderation {
    /// Finds out what must be changed so that `interface` waits so long. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Impossible`] where the driver has no coalescing or no queue to poll, or no card
    /// waits so long; [`Error::Kernel`].
    pub fn plan(interface: &str, time: Duration, throttle: Throttle) -> Result<ModerationPlan> {
        ModerationPlan::make(&KernelSettings, interface, time, throttle)
    }

    /// Carries a plan out, in the network namespace of the calling thread, where it must also end.
    ///
    /// # Errors
    /// [`Error::Impossible`] where another moderation is on this interface, the driver does not
    /// take the value, or a setting has changed since it was planned; [`Error::Kernel`] for a
    /// refusal, also of the journal's file. What was changed before the error is put back;
    /// [`Error::PutBack`] says where that failed.
    pub fn apply(plan: &ModerationPlan) -> Result<Self> {
        Self::apply_with(plan, Box::new(KernelSettings), &journal::directories())
    }

    fn apply_with(
        plan: &ModerationPlan,
        settings: Box<dyn Settings>,
        directories: &[PathBuf],
    ) -> Result<Self> {
        let record = Record::new(Owner::current()?, plan.clone());
        let mut moderation = Self {
            journal: Journal::create(directories, &record)?,
            record,
            settings,
            ended: false,
        };
        let Err(cause) = moderation.take_steps() else {
            return Ok(moderation);
        };
        let outcomes = moderation.end(true);
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
        for at in 0..self.record.plan.steps.len() {
            let plan = &self.record.plan;
            plan.steps[at].check(&*self.settings, &plan.interface)?;
            self.record.begun = at + 1;
            self.journal.write(&self.record)?;
            let interface = self.record.plan.interface.clone();
            let taken = self.record.plan.steps[at].take(&*self.settings, &interface);
            // What the card made of it is known only now, also if it is not what was wanted.
            self.journal.write(&self.record)?;
            taken?;
        }
        Ok(())
    }

    /// What was done.
    pub fn plan_done(&self) -> &ModerationPlan {
        &self.record.plan
    }

    /// Puts the settings back, the last step first, and says of each step what came of it. After
    /// a failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub fn undo(mut self) -> Vec<Outcome> {
        self.end(true)
    }

    /// `told`: somebody reads the outcomes, so that a foreign change need not be told again.
    fn end(&mut self, told: bool) -> Vec<Outcome> {
        self.ended = true;
        let outcomes = undo_steps(&self.record, &*self.settings);
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

impl Drop for Moderation {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// Undoes the steps that were begun, the last one first.
fn undo_steps(record: &Record<ModerationPlan>, settings: &dyn Settings) -> Vec<Outcome> {
    let plan = &record.plan;
    let begun = plan.steps.iter().take(record.begun).rev();
    let all = |result: Undone| {
        let outcome = |step: &ModerationStep| Outcome::new(step, result.clone());
        begun.clone().map(outcome).collect()
    };
    match settings.namespace() {
        Ok(namespace) if namespace == plan.namespace => {}
        Ok(_) => {
            let namespace = plan.namespace;
            return all(Undone::Failed(format!(
                "it is in another network namespace, net:[{namespace}]"
            )));
        }
        Err(error) => return all(Undone::Failed(error.to_string())),
    }
    match settings.name(plan.interface_index) {
        Ok(Some(name)) => begun
            .map(|step| {
                let result = step.undo(settings, &name);
                let failed = |error: mpps_os::Error| Undone::Failed(error.to_string());
                Outcome::new(step, result.unwrap_or_else(failed))
            })
            .collect(),
        // Its settings went with it.
        Ok(None) => all(Undone::Nothing),
        Err(error) => all(Undone::Failed(error.to_string())),
    }
}

impl ModerationPlan {
    /// As [`Moderation::plan`], with anything that has settings.
    ///
    /// # Errors
    /// As [`Moderation::plan`].
    pub fn make(
        settings: &dyn Settings,
        interface: &str,
        time: Duration,
        throttle: Throttle,
    ) -> Result<Self> {
        let interface_index = settings.index(interface)?;
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if throttle == Throttle::Kernel && settings.polled_queues(interface_index) == Some(0) {
            return Err(Error::impossible(
                interface,
                "it has no queue that the kernel polls (NAPI), and so nothing to throttle",
                "name another interface; a veth gets such queues by `ethtool -K IF gro on`",
            ));
        }
        let steps = match throttle {
            Throttle::Nic => step::coalescing(settings, interface, time_ns)?,
            Throttle::Kernel => step::deferral(settings, interface, time_ns)?,
        };
        Ok(Self {
            namespace: settings.namespace()?,
            interface: interface.to_owned(),
            interface_index,
            throttle,
            time_ns,
            steps,
        })
    }
}

/// `eth0: the card waits 50 µs before it interrupts, at most 20000 times a second a queue`.
impl fmt::Display for ModerationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            interface, time_ns, ..
        } = self;
        let time_us = *time_ns as f64 / 1e3;
        match (self.throttle, *time_ns) {
            (Throttle::Nic, 0) => write!(f, "{interface}: the card interrupts without waiting"),
            (Throttle::Kernel, 0) => {
                write!(f, "{interface}: the kernel polls after interrupts only")
            }
            (Throttle::Nic, _) => write!(
                f,
                "{interface}: the card waits {time_us} µs before it interrupts"
            ),
            (Throttle::Kernel, _) => write!(
                f,
                "{interface}: the kernel polls each {time_us} µs while packets come, and leaves the \
                 interrupts off"
            ),
        }?;
        if *time_ns > 0 {
            write!(
                f,
                ", at most {:.0} times a second a queue",
                1e9 / *time_ns as f64
            )?;
        }
        Ok(())
    }
}
