//! A setting that goes with a queue.

use serde::{Deserialize, Serialize};

use super::primitive::{Setting, Value};

/// A setting of a queue or an interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OfQueue {
    /// The name of the interrupt, whose number another one may have once they are made anew.
    pub(crate) interrupt: Option<String>,
    pub(crate) setting: Setting,
    pub(crate) value: Value,
}

impl OfQueue {
    pub(super) fn find_in<'a>(&self, all: &'a [Self]) -> Option<&'a Self> {
        all.iter().find(|one| match &self.interrupt {
            Some(_) => one.interrupt == self.interrupt,
            None => one.setting == self.setting,
        })
    }
}
