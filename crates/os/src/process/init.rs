//! The first process of a command's namespace, and the process that watches a command's session.
//!
//! Everything here runs between `fork` and `exec`, where only async-signal-safe calls are allowed
//! (`signal-safety(7)`): no allocation, no lock, no panic.

use crate::signal::ending;
use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// The descriptors that the new process inherits for its set-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct InheritedDescriptors {
    /// The reading end of a pipe that closes when the program dies.
    pub(super) lifeline: RawFd,
    /// The writing end, which only the program may have.
    pub(super) lifeline_writer: RawFd,
    /// Takes one pair of bytes for each thing that was refused.
    pub(super) notes: RawFd,
    /// The terminal to hand over.
    pub(super) terminal: Option<RawFd>,
    pub(super) bound: Bound,
}

/// The boundary that holds a command and its descendants together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// A process namespace, which no descendant leaves.
    Namespace,
    /// A session without a terminal. Only a descendant that makes a session of its own
    /// (`setsid(2)`) leaves it.
    Session,
}

/// The command, as the process that watches it knows it.
#[derive(Debug, Clone, Copy)]
struct Watched {
    pid: libc::pid_t,
    /// It leads a process group of its own, which the keyboard's signals reach or miss as a whole.
    leads: bool,
    has_terminal: bool,
    is_stopped: bool,
    bound: Bound,
}

/// Steps that the kernel may refuse. A refused view is harmless; another refused step ends the
/// start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SetUpStep {
    Proc = 1,
    Sys,
    Unshare,
    Private,
    Fork,
    Group,
    Keyboard,
}

impl SetUpStep {
    /// All steps.
    pub(super) const ALL: [Self; 7] = [
        Self::Proc,
        Self::Sys,
        Self::Unshare,
        Self::Private,
        Self::Fork,
        Self::Group,
        Self::Keyboard,
    ];

    /// The step of a note.
    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step as u8 == number)
    }

    /// The system call of the step.
    pub(super) fn call(self) -> &'static str {
        match self {
            Self::Proc => "mount /proc",
            Self::Sys => "mount /sys",
            Self::Unshare => "unshare CLONE_NEWNS",
            Self::Private => "mount MS_PRIVATE",
            Self::Fork => "fork",
            Self::Group => "setpgid",
            Self::Keyboard => "tcsetpgrp",
        }
    }
}

/// Splits the new process in two: the first process of its namespace stays here and watches, and
/// the second returns, to become the command.
pub(super) fn enter(plan: InheritedDescriptors) -> io::Result<()> {
    // SAFETY: the number is that of this process's own copy, which no code uses. As long as it is
    // open here, the program's end goes unnoticed.
    unsafe { libc::close(plan.lifeline_writer) };
    answer_by_default();
    if plan.bound == Bound::Namespace {
        mount_views(plan.notes)?;
    }
    // A command that reads from elsewhere, such as a worker in the background, has no use for the
    // keyboard. SAFETY: no memory is involved.
    let reads_terminal = unsafe { libc::isatty(0) } != 0;
    let terminal = plan.terminal.filter(|_| reads_terminal);
    // A command that may use the terminal of a program in the foreground stays in that program's
    // group. It gets the keyboard's signals with it.
    let is_apart = terminal.is_some() || (plan.terminal.is_none() && !reads_terminal);
    let leads = is_apart || plan.bound == Bound::Session;
    if plan.bound == Bound::Session {
        // Processes that lose their parent become children of the watch, which finds them at the
        // end. If this is refused, they are not found. SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    }
    // SAFETY: no memory is involved.
    let watch_pid = unsafe { libc::getpid() };
    // SAFETY: fork has no arguments. This process has one thread, as it was forked itself.
    match unsafe { libc::fork() } {
        -1 => noted(plan.notes, SetUpStep::Fork, Err(io::Error::last_os_error())),
        0 => match (plan.bound, terminal) {
            (Bound::Session, _) => own_session(plan.notes, watch_pid),
            (_, Some(terminal)) => own_terminal(plan.notes, terminal),
            (_, None) if leads => own_group(plan.notes),
            (_, None) => Ok(()),
        },
        pid => watch(
            plan.lifeline,
            Watched {
                pid,
                leads,
                has_terminal: terminal.is_some(),
                is_stopped: false,
                bound: plan.bound,
            },
        ),
    }
}

/// Undoes the signal settings of the program, or of the process that started it. The first process
/// never executes anything, and so would keep the program's handlers. The command would keep
/// ignoring what is ignored (`execve(2)`). An ignored `SIGCHLD` would cost the watch its children.
fn answer_by_default() {
    // Signals have the numbers 1 to 64 (_NSIG of include/uapi/asm-generic/signal.h).
    for signal in 1..=64 {
        // SAFETY: all zeros are a sigaction without flags, mask and restorer, for SIG_DFL; it
        // outlives the call. SIGKILL, SIGSTOP and those of the C library are refused, rightly.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Makes the kernel keep the ends of this program's children until they are asked for, which it
/// does not where `SIGCHLD` is ignored, maybe by inheritance (`sigaction(2)`).
pub(super) fn keep_children() -> io::Result<()> {
    // SAFETY: all zeros are a sigaction, which is plain numbers, and outlives the calls. The
    // setting stays as it was, except for ignoring: no new handler comes in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        check(libc::sigaction(libc::SIGCHLD, ptr::null(), &mut action))?;
        let ignored = action.sa_sigaction == libc::SIG_IGN;
        if !ignored && action.sa_flags & libc::SA_NOCLDWAIT == 0 {
            return Ok(());
        }
        action.sa_flags &= !libc::SA_NOCLDWAIT;
        if ignored {
            action.sa_sigaction = libc::SIG_DFL;
        }
        check(libc::sigaction(libc::SIGCHLD, &action, ptr::null_mut()))
    }
}

/// Reports to the program if the step was refused.
fn noted(notes: RawFd, step: SetUpStep, answer: io::Result<()>) -> io::Result<()> {
    if let Err(error) = &answer {
        // Every errno of Linux is below 134 (include/uapi/asm-generic/errno.h).
        let note = [step as u8, error.raw_os_error().unwrap_or(0) as u8];
        // SAFETY: the two bytes of `note` are readable. A note that is lost harms nothing.
        unsafe { libc::write(notes, note.as_ptr().cast(), note.len()) };
    }
    answer
}

/// Gives the namespace's processes their own `/proc` and `/sys`, which no other process sees.
fn mount_views(notes: RawFd) -> io::Result<()> {
    // SAFETY: CLONE_NEWNS concerns nothing but mounts. This process has one thread.
    let unshared = check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
    noted(notes, SetUpStep::Unshare, unshared)?;
    // Without this, a shared mount would carry what follows back to the host.
    let private = mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE);
    noted(notes, SetUpStep::Private, private)?;
    let restrictions = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let views = [
        (SetUpStep::Proc, c"proc", c"/proc"),
        (SetUpStep::Sys, c"sysfs", c"/sys"),
    ];
    for (step, kind, target) in views {
        // The command can do without.
        let _ = noted(notes, step, mount(kind, target, Some(kind), restrictions));
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

/// Makes this process the leader of a process group that owns the terminal's keyboard. An
/// interactive shell expects that, and could not see a group from outside its namespace.
fn own_terminal(notes: RawFd, terminal: RawFd) -> io::Result<()> {
    own_group(notes)?;
    // SAFETY: no memory is involved.
    let given = give_terminal(terminal, unsafe { libc::getpid() });
    noted(notes, SetUpStep::Keyboard, given)
}

fn own_group(notes: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    noted(
        notes,
        SetUpStep::Group,
        check(unsafe { libc::setpgid(0, 0) }),
    )
}

/// Leaves the terminal, so that its signals go only to the program, and ends with the watch.
fn own_session(notes: RawFd, watch: libc::pid_t) -> io::Result<()> {
    // SAFETY: no memory is involved.
    let led = check(unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It may have ended before that was asked for.
        if libc::getppid() != watch {
            exit(128 + libc::SIGKILL);
        }
        libc::setsid()
    });
    noted(notes, SetUpStep::Group, led)
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

/// The life of the first process: it reaps, as its duty is, and passes signals on. It ends when the
/// command or the program ends. Its end is the end of every process in the namespace
/// (`pid_namespaces(7)`), so no process can stay behind; a session is killed.
fn watch(lifeline: RawFd, mut command: Watched) -> ! {
    // Out of the program's process group: who stops that group would stop the watch as well, and
    // a program killed then would leave everything behind.
    join_group(0);
    let unblocked = prepare_watch(lifeline);
    loop {
        if let Some(code) = reap(&mut command) {
            end(command, code);
        }
        pass_on(command);
        let mut poll = libc::pollfd {
            fd: 0,
            events: 0,
            revents: 0,
        };
        // SAFETY: one pollfd, no time-out, an initialised mask. The signals are blocked but here,
        // so that none can come unseen between the looks above and this call.
        let ready = unsafe { libc::ppoll(&mut poll, 1, ptr::null(), &unblocked) };
        if ready > 0 {
            // Every writing end of the lifeline is closed: the program is gone, or wants that.
            end(command, 128 + libc::SIGKILL);
        }
    }
}

/// Ends the watch, and with it all that is bound to it.
fn end(command: Watched, code: libc::c_int) -> ! {
    if command.bound == Bound::Session {
        // SAFETY: no memory is involved. The number is still the command's, which is not taken in.
        unsafe { libc::kill(-command.pid, libc::SIGKILL) };
        end_session(command.pid);
    }
    exit(code)
}

/// Kills what has left the command's process group, but not its session (`timeout 9 sleep 9 &`). A
/// process whose parent has been killed is a child of the watch, and so all are in the end.
fn end_session(session: libc::pid_t) {
    // Some do not end at once, or never (uninterruptible sleep, proc_pid_stat(5)).
    for _ in 0..1000 {
        if !kill_children(session) {
            return;
        }
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        // SAFETY: no status is wanted; `pause` is readable, and no remainder is wanted.
        unsafe {
            while libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) > 0 {}
            libc::nanosleep(&pause, ptr::null_mut());
        }
    }
}

/// Kills the children that are of the session of this process; true if there are some, also ones that have ended.
fn kill_children(session: libc::pid_t) -> bool {
    let path = c"/proc/thread-self/children";
    // SAFETY: the path ends with a zero.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // Some kernels have no such file (CONFIG_PROC_CHILDREN), nor have some mounts of /proc.
    if file < 0 {
        return false;
    }
    let (mut pid, mut found, mut bytes): (libc::pid_t, _, _) = (0, false, [0_u8; 1024]);
    loop {
        // SAFETY: the bytes are writable.
        let read = unsafe { libc::read(file, bytes.as_mut_ptr().cast(), bytes.len()) };
        let read = usize::try_from(read).unwrap_or(0).min(bytes.len());
        for byte in bytes.iter().take(read) {
            // Each number is followed by a blank.
            if byte.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add((byte - b'0').into());
                continue;
            }
            // SAFETY: no memory is involved. The number is of a child, which is not taken in yet.
            unsafe {
                if pid > 0 && libc::getsid(pid) == session {
                    libc::kill(pid, libc::SIGKILL);
                    found = true;
                }
            }
            pid = 0;
        }
        if read == 0 {
            // SAFETY: the descriptor is this function's own.
            unsafe { libc::close(file) };
            return found;
        }
    }
}

/// Gives the command the signal that came. One in the program's own group has had it by the
/// keyboard, which sends no SIGTERM, and another one would cut its end short. A stopped command has
/// not seen it yet, and has to go on to do so.
fn pass_on(command: Watched) {
    let signal = HEARD.swap(0, Ordering::Relaxed);
    if signal == 0 {
        return;
    }
    // Out of the command's group first: its signals must not come here again.
    join_group(0);
    let to = match command.leads {
        true => -command.pid,
        false => command.pid,
    };
    // SAFETY: no memory is involved.
    unsafe {
        if command.leads || command.is_stopped || signal == libc::SIGTERM {
            libc::kill(to, signal);
            libc::kill(to, libc::SIGCONT);
        }
    }
}

/// Enters a process group; 0 is one of its own.
fn join_group(group: libc::pid_t) {
    // SAFETY: no memory is involved.
    unsafe { libc::setpgid(0, group) };
}

/// The last signal that came and was not passed on yet.
static HEARD: AtomicI32 = AtomicI32::new(0);

/// Closes what belongs to the command, makes the lifeline descriptor 0, and blocks the signals
/// that are waited for. Returns the mask to wait with.
fn prepare_watch(lifeline: RawFd) -> libc::sigset_t {
    let unblocked = no_signals();
    let mut blocked = no_signals();
    // SAFETY: the descriptors are this process's own, and no other thread runs in it. The handler
    // stores a number, which is safe at any moment; without one, SIGCHLD would not wake the
    // process. All structures are initialised.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hear as extern "C" fn(libc::c_int) as libc::sighandler_t;
        for signal in ending().chain([libc::SIGCHLD]) {
            libc::sigaddset(&mut blocked, signal);
            libc::sigaction(signal, &action, ptr::null_mut());
        }
        // Ctrl-Z may come while it is in the group of a stopped command.
        libc::signal(libc::SIGTSTP, libc::SIG_IGN);
        libc::sigprocmask(libc::SIG_BLOCK, &blocked, ptr::null_mut());
        // Last, because it reports to the program that the command runs.
        libc::dup2(lifeline, 0);
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            // Linux before 5.9. The usual hard limit of descriptors is the bound.
            for fd in 1..65536 {
                libc::close(fd);
            }
        }
    }
    unblocked
}

extern "C" fn hear(signal: libc::c_int) {
    if signal != libc::SIGCHLD {
        HEARD.store(signal, Ordering::Relaxed);
    }
}

/// Takes in all children that ended, except the command: its number must stay its own, for what is
/// killed by it. The command's end is its exit code.
fn reap(command: &mut Watched) -> Option<libc::c_int> {
    loop {
        // SAFETY: all zeros are a siginfo_t, which is plain numbers. It outlives the call, which
        // leaves the number of a child 0 if none has news.
        let (seen, child, status, code) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let told = libc::WEXITED | MOVES | libc::WNOHANG | libc::WNOWAIT;
            let seen = libc::waitid(libc::P_ALL, 0, &mut info, told);
            (seen, info.si_pid(), info.si_status(), info.si_code)
        };
        if seen < 0 {
            // There is no child (ECHILD, the only error that is possible here): the command's end
            // was lost, and nothing will come.
            return Some(END_UNKNOWN);
        }
        if child == 0 {
            return None;
        }
        let is_stopped = code == libc::CLD_STOPPED || code == libc::CLD_TRAPPED;
        let has_ended = !is_stopped && code != libc::CLD_CONTINUED;
        if child == command.pid && has_ended {
            return Some(match code {
                libc::CLD_EXITED => status,
                _ => 128 + status,
            });
        }
        let what = match has_ended {
            true => libc::WEXITED,
            false => MOVES,
        };
        // SAFETY: no answer is wanted. The number is of a child, which no other code reaps.
        unsafe {
            let child = child.unsigned_abs();
            libc::waitid(libc::P_PID, child, ptr::null_mut(), what | libc::WNOHANG)
        };
        if child == command.pid {
            command.is_stopped = is_stopped;
            if command.has_terminal {
                follow(*command, status);
            }
        }
    }
}

/// The options of `waitid` for a child that stops or goes on.
const MOVES: libc::c_int = libc::WSTOPPED | libc::WCONTINUED;

/// There is no shell here to wake a command that Ctrl-Z stopped, so its whole group goes on. Other
/// stops are intended, or are the right answer to a job in the background that reads the keyboard.
/// They would come again at once. Until the command goes on, this process is in its group, to hear
/// Ctrl-C for it.
fn follow(command: Watched, signal: libc::c_int) {
    match command.is_stopped {
        // SAFETY: no memory is involved.
        true if signal == libc::SIGTSTP => unsafe {
            libc::kill(-command.pid, libc::SIGCONT);
        },
        true => join_group(command.pid),
        false => join_group(0),
    }
}

/// The exit code where that of the command was lost; commands seldom use the highest one.
const END_UNKNOWN: libc::c_int = 255;

fn exit(code: libc::c_int) -> ! {
    // SAFETY: ends the process without running anything of the program that it was forked from.
    unsafe { libc::_exit(code) }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: a signal set is plain numbers, and all zeros are a value of it; sigemptyset makes it
    // the empty set of this C library.
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
