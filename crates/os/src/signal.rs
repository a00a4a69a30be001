//! Signal settings of this process, inherited from the process that started it (`execve(2)`).

use libc::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT, SIGSTKFLT, SIGTERM, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGXCPU,
};
use std::mem::zeroed;
use std::ptr;

/// What ends a program that does not handle it (signal(7)), except a fault of the program itself.
pub const ENDING: [i32; 14] = [
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGSTKFLT, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGXCPU,
];

/// Lets the signals come, where who started the program had blocked them: to the calling thread and
/// those that it starts from now on (`pthread_sigmask(3)`).
pub fn unblock(signals: &[i32]) {
    // SAFETY: a signal set is plain numbers, and all zeros are a value of it. This C library makes
    // it empty, and it outlives the calls; the old set is not requested. A number that is no signal
    // is refused, and changes nothing.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
    }
}

/// Whether this process ignores a signal, as `nohup` has it ignore SIGHUP.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros are a sigaction, which is plain numbers, and outlives the call; nothing is set.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let asked = libc::sigaction(signal, ptr::null(), &mut action);
        asked == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        // SAFETY: all zeros are a set, which outlives the calls; nothing is set.
        unsafe {
            let mut set = zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut set);
            libc::sigismember(&set, signal) == 1
        }
    }

    #[test]
    fn what_is_blocked_comes_again_and_nothing_else() {
        let both = [libc::SIGUSR1, libc::SIGUSR2];
        // SAFETY: as in `unblock`. The mask is this test's thread's, which ends with it.
        unsafe {
            let mut set = zeroed();
            libc::sigemptyset(&mut set);
            both.iter().for_each(|signal| {
                libc::sigaddset(&mut set, *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
        }
        assert_eq!(both.map(is_blocked), [true, true]);
        unblock(&[libc::SIGUSR1, 4095]);
        assert_eq!(both.map(is_blocked), [false, true]);
    }

    #[test]
    fn what_is_ignored_is_told_from_what_is_not() {
        // Rust has programs ignore SIGPIPE; nothing ignores SIGUSR2.
        let told = [libc::SIGPIPE, libc::SIGUSR2, 4095].map(is_ignored);
        assert_eq!(told, [true, false, false]);
    }
}
