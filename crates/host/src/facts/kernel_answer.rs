//! An answer of the kernel, or its refusal.

use crate::HostResult;
use mpps_os::CallError as Refusal;
use schemars::JsonSchema;
use serde::Serialize;

/// The kernel's answer to a question, or the words of its refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(serde::Deserialize))]
pub enum KernelAnswer<T> {
    /// The answer.
    Is(T),
    /// The refusal.
    Refused(String),
}

impl<T> Default for KernelAnswer<T> {
    fn default() -> Self {
        Self::Refused("not asked".to_owned())
    }
}

impl<T> KernelAnswer<T> {
    /// The answer, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Refused(_) => None,
        }
    }

    /// Converts the answer.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> KernelAnswer<U> {
        match self {
            Self::Is(value) => KernelAnswer::Is(change(value)),
            Self::Refused(why) => KernelAnswer::Refused(why),
        }
    }

    pub(crate) fn of(result: HostResult<T, Refusal>) -> Self {
        match result {
            Ok(value) => Self::Is(value),
            Err(error) => Self::Refused(error.to_string()),
        }
    }
}
