//! Where a server is in its life, and how its workers learn of a change.

use mpps_os::wake::Wake;
use std::sync::atomic::{AtomicU8, Ordering};

/// The stage that workers are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServeStage {
    /// Accept and serve.
    Running,
    /// Accept no more, finish what was begun, close what is idle.
    Draining,
    /// Reset what is left, and return.
    Stopped,
}

/// The stage of a server, which only goes on and never back.
#[derive(Debug)]
pub(crate) struct ServePhase {
    stage: AtomicU8,
    wakes: Vec<Wake>,
}

impl ServePhase {
    /// For this number of workers, running.
    ///
    /// # Errors
    ///
    /// `EMFILE` if descriptors ran out.
    pub(crate) fn new(workers: usize) -> Result<Self, mpps_os::CallError> {
        Ok(Self {
            stage: AtomicU8::new(0),
            wakes: (0..workers)
                .map(|_| Wake::new())
                .collect::<Result<_, _>>()?,
        })
    }

    /// The present stage.
    pub(crate) fn stage(&self) -> ServeStage {
        match self.stage.load(Ordering::Acquire) {
            0 => ServeStage::Running,
            1 => ServeStage::Draining,
            _ => ServeStage::Stopped,
        }
    }

    /// Goes on to a stage, and wakes every worker. Going back does nothing.
    pub(crate) fn advance(&self, stage: ServeStage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        for wake in &self.wakes {
            wake.wake();
        }
    }

    /// Wakes one worker. It stays readable until the worker clears it.
    pub(crate) fn wake(&self, worker: usize) -> &Wake {
        &self.wakes[worker]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_only_goes_on() {
        let phase = ServePhase::new(2).unwrap();
        assert_eq!(phase.stage(), ServeStage::Running);
        assert!(!phase.wake(1).clear());
        phase.advance(ServeStage::Stopped);
        phase.advance(ServeStage::Draining);
        assert_eq!(phase.stage(), ServeStage::Stopped);
        assert!(phase.wake(0).clear() && phase.wake(1).clear());
    }
}
