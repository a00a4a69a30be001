//! The first process of a command's namespace.
//!
//! Everything here runs between `fork` and `exec`, where only async-signal-safe calls are allowed
//! (`signal-safety(7)`): no allocation, no lock, no panic.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr;

/// The descriptors that the new process inherits for its set-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The reading end of a pipe that closes when the program dies.
    pub(super) lifeline: RawFd,
    /// Takes one pair of bytes for each thing that was refused.
    pub(super) notes: RawFd,
    /// The terminal to hand over.
    pub(super) terminal: Option<RawFd>,
}

/// What may be refused without harm.
#[derive(Debug, Clone, Copy)]
enum Step {
    Proc = 1,
    Sys = 2,
}

/// The words for a step in a note.
pub(super) fn step_name(step: u8) -> &'static str {
    match step {
        1 => "the command has no /proc of its own",
        2 => "the command has no /sys of its own",
        _ => "the command lacks something",
    }
}

/// Splits the new process in two: the first process of its namespace stays here and watches, and
/// the second returns, to become the command.
pub(super) fn enter(plan: Plan) -> io::Result<()> {
    mount_views(plan.notes)?;
    // SAFETY: fork has no arguments. This process has one thread, as it was forked itself.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => match plan.terminal {
            Some(terminal) => own_terminal(terminal),
            None => Ok(()),
        },
        command => watch(plan.lifeline, command),
    }
}

/// Gives the namespace's processes their own `/proc` and `/sys`, which nobody else sees.
fn mount_views(notes: RawFd) -> io::Result<()> {
    // SAFETY: CLONE_NEWNS concerns nothing but mounts. This process has one thread.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // Without this, a shared mount would carry what follows back to the host.
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    let restrictions = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let views = [
        (Step::Proc, c"proc", c"/proc"),
        (Step::Sys, c"sysfs", c"/sys"),
    ];
    for (step, kind, target) in views {
        if let Err(error) = mount(kind, target, Some(kind), restrictions) {
            // Every errno of Linux is below 134 (include/uapi/asm-generic/errno.h).
            let note = [step as u8, error.raw_os_error().unwrap_or(0) as u8];
            // SAFETY: the two bytes of `note` are readable. A note that is lost harms nothing.
            unsafe { libc::write(notes, note.as_ptr().cast(), note.len()) };
        }
    }
    Ok(())
}

/// `mount(2)`.
fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let kind = kind.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all strings end with a zero and outlive the call; no data is passed.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, ptr::null()) })
}

/// Makes this process the leader of a process group that owns the terminal's keyboard, if it reads
/// from a terminal at all. An interactive shell expects that, and could not see a group from
/// outside its namespace.
fn own_terminal(terminal: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::isatty(0) } == 0 {
        return Ok(());
    }
    // SAFETY: no memory is involved.
    check(unsafe { libc::setpgid(0, 0) })?;
    // SAFETY: no memory is involved.
    give_terminal(terminal, unsafe { libc::getpid() })
}

/// `tcsetpgrp(3)` that a process in the background may use, too.
pub(super) fn give_terminal(terminal: RawFd, group: libc::pid_t) -> io::Result<()> {
    let mut blocked = no_signals();
    let mut before = no_signals();
    // SAFETY: both sets are initialised and outlive the calls. Blocking SIGTTOU keeps the kernel
    // from stopping a process in the background that does this (tcsetpgrp(3)); the mask of this
    // thread is put back.
    unsafe {
        libc::sigaddset(&mut blocked, libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
        let given = check(libc::tcsetpgrp(terminal, group));
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        given
    }
}

/// The life of the first process: to reap, as its duty is, and to end when the command ends or
/// the program does. Its end is the end of every process in the namespace
/// (`pid_namespaces(7)`), so nobody can stay behind.
fn watch(lifeline: RawFd, command: libc::pid_t) -> ! {
    let unblocked = prepare_watch(lifeline);
    loop {
        if let Some(code) = reap(command) {
            exit(code);
        }
        let mut poll = libc::pollfd {
            fd: 0,
            events: 0,
            revents: 0,
        };
        // SAFETY: one pollfd, no time-out, an initialised mask. SIGCHLD is blocked but here, so
        // that no child can end unseen between `reap` and this call.
        let ready = unsafe { libc::ppoll(&mut poll, 1, ptr::null(), &unblocked) };
        if ready > 0 {
            // Every writing end of the lifeline is closed: the program is gone.
            exit(128 + libc::SIGKILL);
        }
    }
}

/// Closes what belongs to the command, makes the lifeline descriptor 0, and blocks `SIGCHLD`.
/// Returns the mask to wait with.
fn prepare_watch(lifeline: RawFd) -> libc::sigset_t {
    let unblocked = no_signals();
    let mut blocked = no_signals();
    // SAFETY: the descriptors are this process's own, and nobody else runs in it. The handler
    // does nothing, which is safe at any moment; without one, SIGCHLD would wake nobody. All
    // structures are initialised.
    unsafe {
        libc::dup2(lifeline, 0);
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            // Linux before 5.9. The usual hard limit of descriptors is the bound.
            for fd in 1..65536 {
                libc::close(fd);
            }
        }
        libc::sigaddset(&mut blocked, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGCHLD, &action, ptr::null_mut());
    }
    unblocked
}

extern "C" fn wake(_signal: libc::c_int) {}

/// Takes in all children that ended. The command's end is its exit code.
fn reap(command: libc::pid_t) -> Option<libc::c_int> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let child = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::WUNTRACED) };
        if child <= 0 {
            return None;
        }
        if libc::WIFSTOPPED(status) {
            // Nobody could ever wake a command that Ctrl-Z stopped, for there is no shell here.
            if child == command {
                // SAFETY: no memory is involved.
                unsafe { libc::kill(command, libc::SIGCONT) };
            }
        } else if child == command {
            return Some(if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            });
        }
    }
}

fn exit(code: libc::c_int) -> ! {
    // SAFETY: ends the process without running anything of the program that it was forked from.
    unsafe { libc::_exit(code) }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain numbers, for which all zeros are a value; sigemptyset makes
    // it the empty set of this C library.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    }
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
