//! The counts of a thread, as others see them.

use std::sync::{Mutex, PoisonError};

/// A value that its thread publishes once for each batch of events, whole, so that sums in it hold at
/// every look.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts<T>(Mutex<T>);

impl<T: Copy> ThreadCounts<T> {
    pub(crate) fn publish(&self, value: T) {
        // A value copied as a whole is valid even if a thread panicked.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    pub(crate) fn look(&self) -> T {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
