//! Ctrl-C and its kin.

use mpps_os::signal::{ending, is_ignored, unblock};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

/// How often a program looks for Ctrl-C, the first packet and finished workers.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Makes the signals of this process what they are meant to be, whoever started it; to be called
/// while there is one thread.
pub(crate) fn begin() -> io::Result<()> {
    unblock(ending());
    // A file that reaches `ulimit -f` is an error of write(2), which is told and cleaned up after. A
    // handler that does nothing, for one that is ignored would be so in commands, too.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

/// Set by each of them, in whichever part of the program that is heard.
static CAME: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// True once a signal asked this process to end and a handler took it.
pub(crate) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Set by the first signal of [`ending`]; the second one ends the process at once. Changes must be undone before anything is waited for that the second one is meant to
/// cut short. What changes the host is safer with [`EndSignal::listen_held`]: between the first
/// signal and the moment at which it is seen, there is time for the second.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndSignal {
    came: Arc<AtomicBool>,
    /// Whether the next signal ends the process, also if it is the first.
    ends: Arc<AtomicBool>,
    /// The number of the last one; 0 before the first.
    signal: Arc<AtomicUsize>,
}

/// A run that was interrupted before it had a result.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

impl EndSignal {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::default().register(true)
    }

    /// Begins to listen, and no signal ends the process before [`EndSignal::release`].
    pub(crate) fn listen_held() -> io::Result<Self> {
        Self::default().register(false)
    }

    fn register(self, second_ends: bool) -> io::Result<Self> {
        use signal_hook::flag::{register, register_conditional_shutdown, register_usize};
        // A program that `nohup` starts is to stay when the terminal goes.
        let heard =
            |signal: &i32| [SIGINT, SIGQUIT, SIGTERM].contains(signal) || !is_ignored(*signal);
        for signal in ending().filter(heard) {
            // In this order: the conditional exit looks at the flag before this signal sets it.
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.ends))?;
            if second_ends {
                register_conditional_shutdown(signal, 128 + signal, Arc::clone(&self.came))?;
            }
            let number = signal.unsigned_abs() as usize;
            register_usize(signal, Arc::clone(&self.signal), number)?;
            register(signal, Arc::clone(&self.came))?;
            register(signal, Arc::clone(&CAME))?;
        }
        Ok(self)
    }

    /// Everything is put back: from now on a signal ends the process at once.
    pub(crate) fn release(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Runs a preparation that takes long, has no result to show and leaves nothing behind. A
    /// signal ends the process at once meanwhile.
    pub(crate) fn ends_during<T>(&self, prepare: impl FnOnce() -> T) -> T {
        self.release();
        let prepared = prepare();
        self.ends.store(false, Ordering::Relaxed);
        prepared
    }

    /// The flag that a signal sets, for callers that look themselves.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.came
    }

    /// The last signal that came, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        let number = self.signal.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number > 0)
    }

    /// The last signal that came since the last time that this was asked.
    pub(crate) fn take(&self) -> Option<i32> {
        let number = self.signal.swap(0, Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number > 0)
    }

    /// Waits for so long, or until a signal asks to end; false then.
    pub(crate) fn is_quiet_for(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.came() && Instant::now() < end {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        !self.came()
    }

    /// True once a signal asked to end.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}
