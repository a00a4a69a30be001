//! Throttles the interrupts of an interface, and lets them go again.
//!
//! Two ways. The card waits so long after a packet before it interrupts (coalescing, what the
//! driver of 2014 called its interrupt throttle rate). Or the kernel polls the queue by a timer
//! and leaves the interrupts off meanwhile (`gro_flush_timeout` and `napi_defer_hard_irqs`), which
//! works with every driver that has NAPI.
//!
//! These settings stay when a process dies, and are journalled for that ([`crate::change`]):
//! [`Moderation`] takes the steps back when it goes.

mod settings;
mod step;
#[cfg(test)]
mod tests;

pub use settings::{Attribute, KernelSettings, Settings};
pub use step::ModerationStep;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Made, Outcome, Undone};
use crate::journal;
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
pub struct Moderation(Made<ModerationPlan>);

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
    type Host = dyn Settings;

    fn kernel() -> Box<dyn Settings> {
        Box::new(KernelSettings)
    }

    fn namespace_of(settings: &dyn Settings) -> Result<u32, mpps_os::Error> {
        settings.namespace()
    }

    fn namespace(&self) -> u32 {
        self.namespace
    }

    fn object(&self) -> &str {
        &self.interface
    }

    fn place(&self) -> String {
        format!("{}-{}", self.namespace, self.interface_index)
    }

    fn heading(&self) -> String {
        format!("{}, moderation", self.interface)
    }

    fn steps(&self) -> Vec<String> {
        self.steps.iter().map(ToString::to_string).collect()
    }

    fn present(&self, settings: &dyn Settings) -> Result<Option<String>, mpps_os::Error> {
        settings.name(self.interface_index)
    }

    fn prepare(&mut self, step: usize, settings: &dyn Settings) -> Result<()> {
        self.steps[step].check(settings, &self.interface)
    }

    fn take(&mut self, step: usize, settings: &dyn Settings) -> Result<()> {
        self.steps[step].take(settings, &self.interface)
    }

    fn undo(
        &self,
        step: usize,
        interface: &str,
        settings: &dyn Settings,
    ) -> Result<Undone, mpps_os::Error> {
        self.steps[step].undo(settings, interface)
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
        Made::apply(plan, Box::new(KernelSettings), &journal::directories()).map(Self)
    }

    /// What was done.
    pub fn plan_done(&self) -> &ModerationPlan {
        &self.0.record.plan
    }

    /// Puts the settings back, the last step first, and says of each step what came of it. After
    /// a failure it goes on with the others, and keeps the journal for `mpps undo`.
    pub fn undo(self) -> Vec<Outcome> {
        self.0.undo()
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
