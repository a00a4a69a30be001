//! A trial: a test with its name, what it takes of the machine, and what it needs.

use crate::Need;
use crate::process::{self, SKIPPED};
use libtest_mimic::Failed;
use std::fmt;
use std::process::ExitCode;

/// What a trial takes of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pure,
    Waits,
    Measures,
}

/// What a test function may answer.
pub trait Outcome {
    /// Whether it passed.
    ///
    /// # Errors
    ///
    /// Why it did not.
    fn passed(self) -> Result<(), Failed>;
}

impl Outcome for () {
    fn passed(self) -> Result<(), Failed> {
        Ok(())
    }
}

impl Outcome for Result<(), Failed> {
    fn passed(self) -> Self {
        self
    }
}

/// A test with its name, what it takes of the machine, and what it needs.
pub struct Trial {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) needs: Vec<Need>,
    pub(crate) test: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.kind, self.name, self.needs)
    }
}

impl Trial {
    /// Computes, starts nothing, and runs in this process beside others.
    pub fn pure<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Pure, test)
    }

    /// Runs beside others, for it mostly waits and compares no rates.
    pub fn waits<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Waits, test)
    }

    /// Has the machine alone.
    pub fn measures<O: Outcome>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, Kind::Measures, test)
    }

    fn new<O: Outcome>(
        name: impl Into<String>,
        kind: Kind,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            needs: Vec::new(),
            test: Box::new(|| test().passed()),
        }
    }

    /// Its name, by which the command line chooses it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds what it needs; what is missing first is the reason why it is ignored.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    pub(crate) fn is_chosen(&self, by: Option<&str>) -> bool {
        match by {
            Some("rights") => self.kind != Kind::Pure,
            Some("programs") => self.needs.iter().any(Need::is_program),
            _ => true,
        }
    }

    /// Runs it in this process, whose only work it is.
    pub(crate) fn play(self) -> ExitCode {
        for need in &self.needs {
            if let Err(why) = need.look() {
                process::say(&why);
                return SKIPPED.into();
            }
        }
        match (self.test)() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => {
                process::say(failed.message().unwrap_or("it failed"));
                ExitCode::FAILURE
            }
        }
    }
}
