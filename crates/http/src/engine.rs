//! The table of engines: every way to drive sockets, one row each.
//!
//! To add one, copy `engine/epoll.rs` and add two lines here. The command-line flag, the JSON
//! value and the test scenarios follow from the row.

mod epoll;
mod io_uring;
mod places;

use crate::load::LoadWorker;
use crate::serve::ServeWorker;
use crate::{Error, Limits, Switch, Switches};
use std::fmt;

/// Whether this host can run an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Yes,
    /// It cannot.
    No {
        /// What is missing.
        why: String,
        /// What a user can do about it.
        remedy: String,
    },
}

/// What an engine is wanted for: some of it takes a younger kernel than the engine itself.
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

/// What an engine thinks of one of its switches on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Which.
    pub switch: Switch,
    /// What it does in this engine, on this kernel, in one line.
    pub what: &'static str,
    /// True if it is worth turning on here, and so is on unless a user says otherwise.
    pub helps: bool,
    /// Why it is not turned on, or empty.
    pub why_not: &'static str,
    /// False if this kernel cannot do it, so that a server refuses it.
    pub possible: bool,
}

impl Advice {
    /// Of the switch that is the same for whoever accepts.
    fn affinity() -> Self {
        Self {
            switch: Switch::Affinity,
            what: "a listener for each worker (SO_REUSEPORT), chosen by the CPU that received the \
                   SYN (classic BPF); workers pinned",
            helps: true,
            why_not: "",
            possible: true,
        }
    }

    /// Of the switch that no engine acts on.
    fn moderation() -> Self {
        Self {
            switch: Switch::Moderation,
            what: "interrupts throttled at the interface, outside of the engine",
            helps: false,
            why_not: "it changes an interface, which must be named, and trades delay for CPU",
            possible: true,
        }
    }
}

/// One way to drive many sockets.
#[derive(Clone, Copy)]
pub struct Engine {
    /// The name, spelt the same in the flag, the file, the JSON and the docs.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Whether this host can run it.
    pub probe: fn() -> Support,
    /// Whether this kernel has what the engine needs for a task, besides what it always needs.
    pub(crate) can: fn(Task) -> Support,
    /// The switches that it has, with what they do on this kernel.
    pub switches: fn() -> Vec<Advice>,
    /// The same of one switch, where a server's limits make something else of it.
    pub(crate) limited: fn(Advice, &Limits) -> Advice,
    /// Serves connections in the calling thread until it is told to stop and has drained.
    pub(crate) serve: fn(ServeWorker) -> Result<(), Error>,
    /// Makes connections in the calling thread until the load is done.
    pub(crate) load: fn(LoadWorker) -> Result<(), Error>,
}

/// Every engine, plain ones first.
pub static ENGINES: &[Engine] = &[epoll::ENGINE, io_uring::ENGINE];

impl Engine {
    /// The engine of a name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownEngine`] with the names that there are.
    pub fn find(name: &str) -> Result<&'static Self, Error> {
        ENGINES
            .iter()
            .find(|engine| engine.name == name)
            .ok_or_else(|| Error::UnknownEngine {
                name: name.to_owned(),
                known: ENGINES
                    .iter()
                    .map(|engine| engine.name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Whether this host can run it for this task.
    pub fn support(&self, task: Task) -> Support {
        match (self.probe)() {
            Support::Yes => (self.can)(task),
            no => no,
        }
    }

    /// Refuses a task for which this host cannot run the engine.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub fn require(&self, task: Task) -> Result<(), Error> {
        match self.support(task) {
            Support::Yes => Ok(()),
            Support::No { why, remedy } => Err(Error::Unavailable {
                engine: self.name,
                why,
                remedy,
            }),
        }
    }

    /// The switches that are on if a user says nothing: those that help on this kernel.
    pub fn default_switches(&self) -> Switches {
        (self.switches)()
            .iter()
            .filter(|advice| advice.helps)
            .fold(Switches::NONE, |set, advice| set.with(advice.switch))
    }

    /// Refuses switches that the engine does not have.
    pub(crate) fn check(&self, switches: Switches) -> Result<(), Error> {
        let known = (self.switches)();
        for switch in switches.iter() {
            let why = match known.iter().find(|advice| advice.switch == switch) {
                Some(advice) if advice.possible => continue,
                Some(advice) => format!(" here: {}", advice.why_not),
                None => String::new(),
            };
            return Err(Error::NoSwitch {
                engine: self.name,
                switch,
                why,
            });
        }
        Ok(())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
