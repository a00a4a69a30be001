//! Ctrl-C and its kin.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the first SIGINT, SIGTERM or SIGHUP; the second one ends the process at once. What must
/// not stay behind is to be undone before anything is waited for that the second one is meant to
/// cut short.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the kernel refuses a handler (`sigaction(2)`).
    pub(crate) fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the conditional exit looks at the flag before this signal sets it.
            let flag = || Arc::clone(&interrupt.0);
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag())?;
            signal_hook::flag::register(signal, flag())?;
        }
        Ok(interrupt)
    }

    /// What is raised then, for those who look themselves.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// True once somebody asked to end.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
