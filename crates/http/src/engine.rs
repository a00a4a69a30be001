//! The table of engines: every way to drive sockets, one row each.
//!
//! To add one, copy `engine/epoll.rs` and add two lines here. The command-line flag, the JSON
//! value and the test scenarios follow from the row.

mod epoll;
mod io_uring;

use std::borrow::Cow;

use crate::load::LoadWorker;
use crate::serve::ServeWorker;
use crate::{HttpError, Switch, Switches};

/// Whether this host can run an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineSupport {
    /// It can.
    Yes,
    /// It cannot.
    No {
        /// The missing part.
        why: String,
        /// The remedy for the user.
        remedy: String,
    },
}

/// The task of an engine: some tasks need a younger kernel than the engine itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To serve.
    Serve {
        /// Ends connections with a RST ([`Close::Rst`](crate::Close::Rst)).
        reset: bool,
    },
    /// To make connections.
    Load,
}

/// An engine's advice on one of its switches on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Which.
    pub switch: Switch,
    /// The effect in this engine, on this kernel, in one line.
    pub what: &'static str,
    /// Why it is not worth turning on here; empty if it is, and so is on unless a user says otherwise.
    pub why_not: Cow<'static, str>,
    /// False if this kernel cannot do it, so that a server refuses it.
    pub possible: bool,
}

impl Advice {
    /// Of a switch that helps.
    fn helps(switch: Switch, what: &'static str) -> Self {
        Self {
            switch,
            what,
            why_not: "".into(),
            possible: true,
        }
    }

    /// The advice on the switch that is the same for every engine, and on the one without effect in
    /// any.
    fn of_all() -> [Self; 2] {
        let affinity = "a listener for each worker (SO_REUSEPORT), chosen by the CPU that received \
                        the SYN (classic BPF); workers pinned";
        let moderation = "interrupts throttled at the interface, outside of the engine";
        let why_not = "it changes an interface, which must be named, and trades delay for CPU";
        [
            Self::helps(Switch::Affinity, affinity),
            Self {
                why_not: why_not.into(),
                ..Self::helps(Switch::Moderation, moderation)
            },
        ]
    }
}

/// One way to drive many sockets.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The name, spelt the same in the flag, the file, the JSON and the docs.
    pub name: &'static str,
    /// Whether this host can run it for a task.
    pub support: fn(Task) -> EngineSupport,
    /// The switches that it has, with what they do on this kernel.
    pub switches: fn() -> Vec<Advice>,
    /// Serves connections in the calling thread until it is stopped and has drained.
    pub(crate) serve: fn(ServeWorker) -> Result<(), HttpError>,
    /// Makes connections in the calling thread until the load is done.
    pub(crate) load: fn(LoadWorker) -> Result<(), HttpError>,
}

/// Every engine, plain ones first.
pub static ENGINES: &[Engine] = &[epoll::ENGINE, io_uring::ENGINE];

impl Engine {
    /// The engine of a name.
    ///
    /// # Errors
    ///
    /// [`HttpError::UnknownEngine`] with the names that there are.
    pub fn find(name: &str) -> Result<&'static Self, HttpError> {
        ENGINES
            .iter()
            .find(|engine| engine.name == name)
            .ok_or_else(|| HttpError::UnknownEngine {
                name: name.to_owned(),
                known: ENGINES
                    .iter()
                    .map(|engine| engine.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Refuses a task if this host cannot run the engine for it.
    ///
    /// # Errors
    ///
    /// [`HttpError::Unavailable`].
    pub fn require(&self, task: Task) -> Result<(), HttpError> {
        match (self.support)(task) {
            EngineSupport::Yes => Ok(()),
            EngineSupport::No { why, remedy } => Err(HttpError::Unavailable {
                engine: self.name,
                why,
                remedy,
            }),
        }
    }

    /// The switches that are on if a user says nothing: those that help on this kernel.
    pub fn default_switches(&self) -> Switches {
        let advice = (self.switches)();
        let helps = advice.iter().filter(|advice| advice.why_not.is_empty());
        helps.fold(Switches::NONE, |set, advice| set.with(advice.switch))
    }

    /// Refuses switches that the engine does not have.
    pub(crate) fn check(&self, switches: Switches) -> Result<(), HttpError> {
        let known = (self.switches)();
        for switch in switches.iter() {
            let why = match known.iter().find(|advice| advice.switch == switch) {
                Some(advice) if advice.possible => continue,
                Some(advice) => format!(" here: {}", advice.why_not),
                None => String::new(),
            };
            return Err(HttpError::NoSwitch {
                engine: self.name,
                switch,
                why,
            });
        }
        Ok(())
    }
}
