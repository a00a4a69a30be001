//! The threads of a server or of a load.

use crate::HttpError;
use mpps_os::sched;
use std::thread::{self, JoinHandle};

/// A running thread.
pub(crate) type ServeThread = JoinHandle<Result<(), HttpError>>;

/// Starts a thread of that name, on its CPU if it has one.
pub(crate) fn spawn(
    name: String,
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<(), HttpError> + Send + 'static,
) -> Result<ServeThread, HttpError> {
    let task = move || {
        if let Some(cpu) = cpu {
            sched::pin_current(&[cpu])?;
        }
        work()
    };
    let spawned = thread::Builder::new().name(name.clone()).spawn(task);
    Ok(spawned.map_err(|source| mpps_os::CallError::new("clone", name, source))?)
}

/// Waits for all threads, and answers with the first error.
pub(crate) fn join(threads: impl IntoIterator<Item = ServeThread>) -> Result<(), HttpError> {
    let ends: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    for end in ends {
        match end {
            Ok(end) => end?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    Ok(())
}
