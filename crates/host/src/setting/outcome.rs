//! The outcome of undoing a step.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One step, and the outcome of undoing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneStep {
    /// The step that was to be undone.
    pub step: String,
    /// The outcome.
    #[serde(flatten)]
    pub result: Undone,
}

/// How undoing one step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", content = "why", rename_all = "snake_case")]
pub enum Undone {
    /// The setting is as it was before.
    Restored,
    /// There was nothing to undo: it was as before already, or the interface or the queue is gone.
    Nothing,
    /// Another program has changed it since, and it was left as it is. The text says what it is
    /// now.
    Changed(String),
    /// The setting is as it was before, but not all that went with it. The text says what is not.
    Partly(String),
    /// It was not known before, and is as the kernel has it from the start. The text says what is lost.
    Reset(String),
    /// It could not be done.
    Failed(String),
}

impl UndoneStep {
    pub(crate) fn new(step: &impl fmt::Display, result: Undone) -> Self {
        let step = step.to_string();
        Self { step, result }
    }

    /// The setting is as it was before, as far as that was known.
    pub fn clean(&self) -> bool {
        matches!(
            self.result,
            Undone::Restored | Undone::Nothing | Undone::Reset(_)
        )
    }

    /// Another program has changed it, and it was left.
    pub(crate) fn is_left(&self) -> bool {
        matches!(self.result, Undone::Changed(_))
    }

    /// Nothing is left that could be done: trying again would not help.
    pub fn finished(&self) -> bool {
        !matches!(self.result, Undone::Failed(_))
    }
}

impl fmt::Display for UndoneStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = &self.step;
        match &self.result {
            Undone::Restored => write!(f, "undone: {step}"),
            Undone::Nothing => write!(f, "nothing to undo: {step}"),
            Undone::Changed(now) => write!(f, "left as it is: {step}: changed since, {now}"),
            Undone::Partly(rest) | Undone::Reset(rest) => write!(f, "undone: {step}, but {rest}"),
            Undone::Failed(why) => write!(f, "not undone: {step}: {why}"),
        }
    }
}
