//! A trial: a test with its name, its use of the machine, and its requirements.

use crate::Need;
use crate::process::{self, SKIPPED};
use libtest_mimic::Failed;
use std::fmt;
use std::process::ExitCode;

/// A trial's use of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MachineUse {
    Pure,
    Waits,
    Compares,
    Measures,
}

/// The return type of a test function.
pub trait TestReturn {
    /// Returns the result.
    ///
    /// # Errors
    ///
    /// The reason why the test failed.
    fn passed(self) -> Result<(), Failed>;
}

impl TestReturn for () {
    fn passed(self) -> Result<(), Failed> {
        Ok(())
    }
}

impl TestReturn for Result<(), Failed> {
    fn passed(self) -> Self {
        self
    }
}

/// A test with its name, its use of the machine, and its requirements.
pub struct Trial {
    pub(crate) name: String,
    pub(crate) kind: MachineUse,
    pub(crate) needs: Vec<Need>,
    pub(crate) test: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.kind, self.name, self.needs)
    }
}

impl Trial {
    /// A trial that computes. It starts nothing and runs in this process beside others.
    pub fn pure<O: TestReturn>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, MachineUse::Pure, test)
    }

    /// A trial that runs beside others, because it mostly waits and compares no rates.
    pub fn waits<O: TestReturn>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, MachineUse::Waits, test)
    }

    /// A trial whose program has to get a CPU soon, and takes a small part of it: its counts with
    /// and without a change are compared. It runs beside others of its kind, after those that wait.
    pub fn compares<O: TestReturn>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, MachineUse::Compares, test)
    }

    /// A trial that has the machine to itself.
    pub fn measures<O: TestReturn>(
        name: impl Into<String>,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self::new(name, MachineUse::Measures, test)
    }

    fn new<O: TestReturn>(
        name: impl Into<String>,
        kind: MachineUse,
        test: impl FnOnce() -> O + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            needs: Vec::new(),
            test: Box::new(|| test().passed()),
        }
    }

    /// Its name. The command line chooses trials by it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a requirement. The first that is not met is the reason why the trial is ignored.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    pub(crate) fn is_chosen(&self, by: Option<&str>) -> bool {
        match by {
            Some("rights") => self.kind != MachineUse::Pure,
            Some("programs") => self.needs.iter().any(Need::is_program),
            _ => true,
        }
    }

    /// Runs the trial in this process, which does nothing but that.
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
