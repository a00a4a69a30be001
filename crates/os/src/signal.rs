//! Signal settings of this process, inherited from the process that started it (`execve(2)`).

use libc::{
    SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGIO, SIGPROF, SIGPWR, SIGQUIT,
    SIGRTMAX, SIGRTMIN, SIGSEGV, SIGSTKFLT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU,
};
use std::mem::{MaybeUninit, zeroed};
use std::sync::OnceLock;
use std::{io, ptr};

/// Signals that end a program that does not handle them (signal(7)), except `FAULTS`. Those without a name are
/// the real-time signals that the C library leaves to programs.
pub fn ending() -> impl Iterator<Item = i32> {
    let named = [
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGSTKFLT,
        SIGSYS, SIGTRAP, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// The signals of a fault of the program itself. A handler of them must not return.
const FAULTS: [i32; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

/// The terminal's mode and the bytes that [`restore_terminal_on_fault`] was given.
static TERMINAL: OnceLock<(libc::termios, &'static [u8])> = OnceLock::new();

/// From now on, a signal of `FAULTS` gives the terminal on standard input the mode that it has at the
/// first call, and writes the bytes to standard output, before it ends the process. A fault runs no
/// other code.
///
/// # Errors
/// `ENOTTY` if standard input is no terminal (`tcgetattr(3)`).
pub fn restore_terminal_on_fault(bytes: &'static [u8]) -> io::Result<()> {
    let mut mode = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `mode` is writable, and the call fills it if it succeeds.
    let mode = unsafe {
        match libc::tcgetattr(0, mode.as_mut_ptr()) {
            0 => mode.assume_init(),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    TERMINAL.get_or_init(|| (mode, bytes));
    // SAFETY: all zeros are a sigaction, which is plain numbers and outlives the calls. The handler
    // calls only functions that are safe in one (signal-safety(7)).
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = restore_terminal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // On the stack that Rust's threads have for it: the fault may be the end of the usual one. With
        // the usual action behind it.
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESETHAND;
        for signal in FAULTS {
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
    Ok(())
}

/// Ignores the signals that the C library keeps for itself, unless it handles them: they would end the
/// process. `sigaction(3)` refuses their numbers.
pub fn ignore_reserved() {
    /// The lowest real-time signal of the kernel (signal(7)), and the bytes of its signal set.
    const FIRST: libc::c_int = 32;
    const SET: usize = 8;
    // `struct sigaction` of the kernel: a handler, and what does not count if it is SIG_IGN.
    let ignored = [libc::SIG_IGN, 0, 0, 0];
    for signal in FIRST..SIGRTMIN() {
        let mut old = [libc::SIG_IGN; 4];
        // SAFETY: both arrays are as large as that structure at least, and outlive the calls.
        unsafe {
            let (call, old) = (libc::SYS_rt_sigaction, &mut old);
            libc::syscall(call, signal, ptr::null::<usize>(), old.as_mut_ptr(), SET);
            if old[0] == libc::SIG_DFL {
                libc::syscall(call, signal, ignored.as_ptr(), ptr::null::<usize>(), SET);
            }
        }
    }
}

extern "C" fn restore_terminal(signal: libc::c_int) {
    let mut output = libc::pollfd {
        fd: 1,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: all pointers are to values that outlive the calls. The signal comes when the handler
    // returns, and then ends the process.
    unsafe {
        if let Some((mode, bytes)) = TERMINAL.get() {
            libc::tcsetattr(0, libc::TCSANOW, mode);
            // A terminal that takes nothing must not keep the process.
            if libc::poll(&mut output, 1, 0) > 0 {
                libc::write(1, bytes.as_ptr().cast(), bytes.len());
            }
        }
        libc::raise(signal);
    }
}

/// Lets the signals come, where who started the program had blocked them: to the calling thread and
/// those that it starts from now on (`pthread_sigmask(3)`).
pub fn unblock(signals: impl IntoIterator<Item = i32>) {
    // SAFETY: a signal set is plain numbers, and all zeros are a value of it. This C library makes
    // it empty, and it outlives the calls; the old set is not requested. A number that is no signal
    // is refused, and changes nothing.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, signal);
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
        unblock([libc::SIGUSR1, 4095]);
        assert_eq!(both.map(is_blocked), [false, true]);
    }

    #[test]
    fn what_is_ignored_is_told_from_what_is_not() {
        // Rust has programs ignore SIGPIPE; nothing ignores SIGUSR2.
        let told = [libc::SIGPIPE, libc::SIGUSR2, 4095].map(is_ignored);
        assert_eq!(told, [true, false, false]);
    }
}
