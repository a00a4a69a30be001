//! Throttles the interrupts of an interface, and lets them go again.
//!
//! Two ways to throttle. The card waits so long after a packet before it interrupts (coalescing, what the
//! driver of 2014 called its interrupt throttle rate). Or the kernel polls the queue by a timer
//! and leaves the interrupts off meanwhile (`gro_flush_timeout` and `napi_defer_hard_irqs`), which
//! works with every driver that has NAPI.
//!
//! And one to do without them: as long as epoll_wait(2) finds packets, interrupts stay off, and the
//! receiver polls the queue itself (Documentation/networking/napi.rst, "IRQ suspension").

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::setting::{
    Edit, LiveKernel, Place, Setting, SettingChange, SettingHost, Value, coalescings_of,
};
use crate::{HostError, HostResult};

/// Empty polls before a queue's interrupts are on again: the figure of the example in
/// Documentation/networking/napi.rst.
const DEFERRED_POLLS: u32 = 2;

/// The same, and nanoseconds between the kernel's own polls, of a queue whose interrupts a receiver
/// suspends: the figures of the kernel's selftest (tools/testing/selftests/net/busy_poll_test.sh).
const SUSPENDED_POLLS: u32 = 100;
const SUSPENDED_POLL_NS: u32 = 50_000;

/// The side that waits: the card or the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The card, before it interrupts (`ethtool -C IF rx-usecs`).
    Nic,
    /// The kernel, before it polls the queue again.
    Kernel,
}

/// The throttle of an interface's interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moderation {
    /// The side that waits.
    pub throttle: Throttle,
    /// How long, in nanoseconds; 0 is not at all.
    pub time_ns: u64,
    /// How the interface's settings are changed.
    pub change: SettingChange,
}

impl Moderation {
    /// Finds out what must be changed so that `interface` waits so long. Changes nothing.
    ///
    /// # Errors
    /// [`HostError::Impossible`] where the driver has no coalescing or no queue to poll, or no card
    /// waits so long; [`HostError::Kernel`].
    pub fn plan(interface: &str, time: Duration, throttle: Throttle) -> HostResult<Self> {
        Self::plan_on(&LiveKernel::default(), interface, time, throttle)
    }

    fn plan_on(
        host: &dyn SettingHost,
        interface: &str,
        time: Duration,
        throttle: Throttle,
    ) -> HostResult<Self> {
        let place = host.interface(interface)?;
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if throttle == Throttle::Kernel && host.polled_queues(&place) == Some(0) {
            return Err(no_queue(interface));
        }
        let edits = match throttle {
            Throttle::Nic => coalescing(host, &place, time_ns)?,
            Throttle::Kernel => {
                let polls = if time_ns == 0 { 0 } else { DEFERRED_POLLS };
                deferral(host, &place, time_ns, polls)?
            }
        };
        let change = change(host, place, "moderation", edits)?;
        Ok(Self {
            throttle,
            time_ns,
            change,
        })
    }
}

/// Finds out what must be changed so that the interrupts of these receive queues of `interface` stay off for
/// so long after epoll_wait(2) has found packets; without queues, those of all. Changes nothing. The settings
/// are those of each queue's NAPI context (`napi-set`), and never of the whole interface.
///
/// # Errors
/// [`HostError::Impossible`] where the interface has no queue that the kernel polls, the kernel has no
/// such setting, or cannot hold the time; [`HostError::Kernel`].
pub fn irq_suspension(
    interface: &str,
    queues: &[u32],
    time: Duration,
) -> HostResult<SettingChange> {
    irq_suspension_on(&LiveKernel::default(), interface, queues, time)
}

fn irq_suspension_on(
    host: &dyn SettingHost,
    interface: &str,
    queues: &[u32],
    time: Duration,
) -> HostResult<SettingChange> {
    let place = host.interface(interface)?;
    let polled = host.polled_queues(&place);
    if polled == Some(0) {
        return Err(no_queue(interface));
    }
    let Ok(time_ns) = u32::try_from(time.as_nanos()) else {
        let why = "it would suspend interrupts for more than 4 seconds";
        return Err(HostError::impossible(interface, why, "name a shorter time"));
    };
    let all: Vec<u32> = (0..polled.unwrap_or(1) as u32).collect();
    let queues = if queues.is_empty() { &all } else { queues };
    let mut edits = Vec::new();
    for queue in queues {
        // Without the first two the interrupts are on again after each poll. Values that are set already
        // stay.
        for (name, new, stays) in [
            ("gro-flush-timeout", SUSPENDED_POLL_NS, true),
            ("defer-hard-irqs", SUSPENDED_POLLS, true),
            ("irq-suspend-timeout", time_ns, false),
        ] {
            let (name, queue) = (name.to_owned(), *queue);
            let (setting, new) = (Setting::Napi { name, queue }, Value::Number(new.into()));
            let old = match host.read(&setting, &place) {
                Err(error) if error.is_shortage() => return Err(error.into()),
                Ok(Some(old)) => old,
                _ => {
                    return Err(HostError::impossible(
                        interface,
                        "the kernel does not suspend the interrupts of its queues (Linux 6.13 does)",
                        "busy polling does without it",
                    ));
                }
            };
            if old != new && !(stays && old != Value::Number(0)) {
                edits.push(Edit::new(setting, old, new));
            }
        }
    }
    Ok(change(host, place, "irq-suspension", edits)?)
}

fn change(
    host: &dyn SettingHost,
    place: Place,
    name: &str,
    edits: Vec<Edit>,
) -> mpps_os::CallResult<SettingChange> {
    let heading = format!("{}, {}", place.name(), name.replace('-', " "));
    SettingChange::new(host, place, name, heading, edits)
}

fn no_queue(interface: &str) -> HostError {
    HostError::impossible(
        interface,
        "it has no queue that the kernel polls (NAPI), and so nothing to throttle",
        "name another interface; a veth gets such queues by `ethtool -K IF gro on`",
    )
}

/// How the kernel defers its polls.
fn deferral(
    host: &dyn SettingHost,
    place: &Place,
    time_ns: u64,
    polls: u32,
) -> HostResult<Vec<Edit>> {
    // The time first: deferral without it would leave a queue to itself.
    let wanted = [
        (
            "gro_flush_timeout",
            i64::try_from(time_ns).unwrap_or(i64::MAX),
        ),
        ("napi_defer_hard_irqs", polls.into()),
    ];
    let mut edits = Vec::new();
    for (name, new) in wanted {
        let (setting, new) = (Setting::file(name), Value::Number(new));
        // A file that is not there is a refusal, and so an error.
        if let Some(old) = host.read(&setting, place)?
            && old != new
        {
            edits.push(Edit::new(setting, old, new));
        }
    }
    Ok(edits)
}

/// How a card waits.
fn coalescing(host: &dyn SettingHost, place: &Place, time_ns: u64) -> HostResult<Vec<Edit>> {
    let interface = place.name();
    let Ok(time_us) = u32::try_from(time_ns.div_ceil(1000)) else {
        let why = "no card waits so long";
        return Err(HostError::impossible(interface, why, "name a shorter time"));
    };
    let all = coalescings_of(host, place).map_err(|error| {
        Setting::Coalescing { queue: None }
            .row()
            .refused(error, interface)
    })?;
    if all.is_empty() {
        return Err(HostError::malformed(interface, "it tells no coalescing"));
    }
    let edits = all.into_iter().filter_map(|(setting, old)| {
        let new = old.with_rx_time_us(time_us);
        let [old, new] = [old, new].map(|told| Value::Numbers(told.words()));
        (old != new).then(|| Edit::new(setting, old, new))
    });
    Ok(edits.collect())
}

/// `eth0: the card waits 50 µs before it interrupts, at most 20000 times a second a queue`.
impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            change, time_ns, ..
        } = self;
        let interface = change.place.name();
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
