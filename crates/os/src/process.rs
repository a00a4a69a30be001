//! Commands that cannot outlive the program that started them.

mod init;

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setsid,
};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use self::init::{Bound, InheritedDescriptors, SetUpStep};
use crate::error::On;
use crate::namespace::NetNamespace;
use crate::{CallError, CallResult};

/// A command in a network namespace, with a process namespace of its own
/// (`pid_namespaces(7)`), or in a session of its own.
///
/// It and all its descendants, whatever they do to get away, end when this value is dropped and
/// when the program that holds it dies, also by `SIGKILL`. Of a session, a descendant that makes
/// another one stays.
#[derive(Debug)]
pub struct ContainedChild {
    child: Child,
    bound: Bound,
    /// The process that watches the command ends it when this closes. Only this program has it.
    lifeline: Option<PipeWriter>,
    terminal: Option<(OwnedFd, Termios)>,
    notes: Vec<String>,
}

/// Starts a command in `namespace`. It sees its own `/proc` and the `/sys` of the namespace.
///
/// A command whose standard input is this program's terminal gets the terminal's keyboard, until
/// [`ContainedChild::wait`] or drop takes it back. Ctrl-C then goes only to the command, and a
/// shell has its job control. A worker in the background is given another standard input.
///
/// The command starts with the default answer to every signal. If this program ignores `SIGCHLD`,
/// this call ends that: the kernel would discard the command's end (`wait(2)`).
///
/// # Errors
///
/// The program does not exist or may not be executed; `EPERM` without `CAP_SYS_ADMIN` in the
/// caller's user namespace; no process can be started. The error names the call that failed, even
/// if the new process made it.
pub fn spawn_contained(command: Command, namespace: &NetNamespace) -> CallResult<ContainedChild> {
    spawn(command, Some(namespace))
}

/// Starts a command in a session of its own, without a terminal, which needs no right. Ctrl-C goes
/// only to this program. When the command ends, the processes that it left running in its session
/// are killed.
///
/// # Errors
///
/// The program does not exist or may not be executed; no process can be started.
pub fn spawn_session(command: Command) -> CallResult<ContainedChild> {
    spawn(command, None)
}

fn spawn(mut command: Command, namespace: Option<&NetNamespace>) -> CallResult<ContainedChild> {
    let object = command.get_program().to_string_lossy().into_owned();
    let failed = |call| {
        let object = object.clone();
        move |source| CallError::new(call, object, source)
    };
    init::keep_children().map_err(failed("sigaction SIGCHLD"))?;
    let (lifeline_end, lifeline) = io::pipe().map_err(failed("pipe"))?;
    let (notes_start, notes_end) = io::pipe().map_err(failed("pipe"))?;
    let (bound, terminal) = match namespace {
        Some(_) => (Bound::Namespace, foreground_terminal()),
        None => (Bound::Session, None),
    };
    let plan = InheritedDescriptors {
        lifeline: lifeline_end.as_raw_fd(),
        lifeline_writer: lifeline.as_raw_fd(),
        notes: notes_end.as_raw_fd(),
        terminal: terminal.as_ref().map(|(terminal, _)| terminal.as_raw_fd()),
        bound,
    };
    // SAFETY: the hook runs in the child between fork and exec, and so makes system calls only:
    // `init::enter` neither allocates nor takes a lock. The descriptors of the plan are open
    // until the command has been started, below.
    unsafe { command.pre_exec(move || init::enter(plan)) };
    let spawned = match namespace {
        None => command.spawn(),
        Some(namespace) => namespace.run(|| {
            // SAFETY: without CLONE_FILES, `unshare` touches no descriptor of another thread. It
            // changes where children of this thread are born, and the thread ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWPID) }
                .map_err(|errno| failed("unshare CLONE_NEWPID")(errno.into()))?;
            Ok::<_, CallError>(command.spawn())
        })??,
    };
    drop((lifeline_end, notes_end));
    let (notes, fatal) = read_notes(notes_start);
    match spawned {
        Ok(child) => Ok(ContainedChild {
            child,
            bound,
            lifeline: Some(lifeline),
            terminal,
            notes,
        }),
        Err(source) => {
            reclaim(terminal, false);
            Err(failed(fatal.unwrap_or("execve"))(source))
        }
    }
}

/// Has a command end when this thread does, also if that is killed (`PR_SET_PDEATHSIG`,
/// prctl(2)). Its own children are none of that.
pub fn end_with_us(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before this was asked for.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: the hook runs in the child between fork and exec, and makes system calls only.
    unsafe { command.pre_exec(hook) }
}

/// Starts a command in a session of its own: no signal of the terminal reaches it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    let hook = || Ok(setsid().map(drop)?);
    // SAFETY: the hook runs in the child between fork and exec, and makes one system call only.
    unsafe { command.pre_exec(hook) }
}

/// Makes this process the parent of processes whose parent ends, among its descendants
/// (`PR_SET_CHILD_SUBREAPER`, prctl(2)).
///
/// # Errors
/// None that Linux has since 3.4.
pub fn adopt() -> CallResult<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .on("prctl PR_SET_CHILD_SUBREAPER", "mpps")
}

/// The children of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    /// None ended.
    Nothing,
    /// This process ended, with this exit code, or 128 + the signal.
    Ended(u32, u8),
    /// There is none.
    NoChildren,
}

/// Looks for a child that ended (`waitpid(2)`, `WNOHANG`).
///
/// # Errors
/// None that the kernel documents.
pub fn reap() -> CallResult<Reaped> {
    use rustix::process::{WaitOptions, wait};
    match wait(WaitOptions::NOHANG) {
        Ok(None) => Ok(Reaped::Nothing),
        Ok(Some((pid, status))) => {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(0);
            Ok(Reaped::Ended(
                pid.as_raw_nonzero().get().unsigned_abs(),
                code as u8,
            ))
        }
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::NoChildren),
        Err(errno) => Err(errno).on("waitpid", "any child"),
    }
}

/// The children of this process, also ones that have ended and were not looked for. None on a kernel without
/// `CONFIG_PROC_CHILDREN` (`/proc/PID/task/TID/children`, proc(5)).
pub fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    words.filter_map(|pid| pid.parse().ok()).collect()
}

/// Sends a signal to a process (kill(2)); a process that is gone is no error.
pub fn signal(process: u32, signal: i32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

/// Stops a process, or lets it go on (`SIGSTOP`, `SIGCONT`; signal(7)).
///
/// # Errors
/// `EPERM` for a process of another user, `ESRCH` if there is none.
pub fn stop(process: u32, is_stopped: bool) -> CallResult<()> {
    let signal = [Signal::CONT, Signal::STOP][usize::from(is_stopped)];
    let name = format!("process {process}");
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(rustix::io::Errno::SRCH).on("kill", &name)?;
    kill_process(pid, signal).on("kill", name)
}

/// The process that started this one, held by a descriptor (`pidfd_open(2)`), so that no later
/// one with its number is taken for it.
#[derive(Debug)]
pub struct Parent {
    fd: OwnedFd,
}

impl Parent {
    /// The parent, if it is the process of that number and has not ended.
    ///
    /// # Errors
    ///
    /// `ENOSYS` before Linux 5.3.
    pub fn hold(process: u32) -> CallResult<Option<Self>> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| getppid() == Some(*pid)) else {
            return Ok(None);
        };
        let held = pidfd_open(pid, PidfdFlags::empty());
        // The descriptor is of the parent if that has not ended meanwhile.
        if getppid() != Some(pid) {
            return Ok(None);
        }
        let fd = held.on("pidfd_open", format!("process {process}"))?;
        Ok(Some(Self { fd }))
    }

    /// Ends it, also if it is stopped.
    pub fn kill(&self) {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&self.fd, Signal::KILL);
    }

    /// Waits until it has ended.
    pub fn await_end(&self) {
        let mut events = [PollFd::new(&self.fd, PollFlags::IN)];
        // A signal is no end.
        while poll(&mut events, None).is_err() {}
    }
}

impl ContainedChild {
    /// The number of the process that watches the command, which stands for all of them.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The parts that were refused to the command, such as its own `/sys`, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The reading end of the command's standard output, once, if it was asked for.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The reading end of the command's standard error, once, if it was asked for.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the command; what it left running in the background dies with it. A command that
    /// a signal ended has the exit code 128 + the signal, as in a shell.
    ///
    /// # Errors
    ///
    /// `wait(2)` fails.
    pub fn wait(&mut self) -> CallResult<ExitStatus> {
        let status = self
            .child
            .wait()
            .on("wait", format!("process {}", self.id()));
        reclaim(self.terminal.take(), status.as_ref().is_ok_and(is_killed));
        status
    }

    /// The command's end, if it has ended.
    ///
    /// # Errors
    ///
    /// `wait(2)` fails.
    pub fn try_wait(&mut self) -> CallResult<Option<ExitStatus>> {
        let status = self
            .child
            .try_wait()
            .on("wait", format!("process {}", self.id()))?;
        if let Some(status) = &status {
            reclaim(self.terminal.take(), is_killed(status));
        }
        Ok(status)
    }

    /// Kills the command and all its descendants, with `SIGKILL`.
    ///
    /// # Errors
    ///
    /// `kill(2)` fails. A command that has ended is no error.
    pub fn kill(&mut self) -> CallResult<()> {
        // The watch kills the session: no other process would.
        drop(self.lifeline.take());
        match self.bound {
            Bound::Session => Ok(()),
            Bound::Namespace => self
                .child
                .kill()
                .on("kill", format!("process {}", self.id())),
        }
    }

    /// Passes a signal on to the command, one of [`crate::signal::ending`]. A signal that shares the
    /// keyboard with this program has had all but SIGTERM from there, and does not get it again.
    ///
    /// # Errors
    ///
    /// `kill(2)` fails. A command that has ended is no error.
    pub fn signal(&mut self, signal: i32) -> CallResult<()> {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return Ok(());
        };
        match self.try_wait()? {
            Some(_) => Ok(()),
            None => kill_process(Pid::from_child(&self.child), signal)
                .on("kill", format!("process {}", self.id())),
        }
    }
}

impl Drop for ContainedChild {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already, which is what is wanted.
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// The terminal of this program and its mode, if its keyboard is this program's.
fn foreground_terminal() -> Option<(OwnedFd, Termios)> {
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let owner = tcgetpgrp(&terminal).ok()?;
    let mode = tcgetattr(&terminal).ok()?;
    (owner == rustix::process::getpgrp()).then(|| (terminal.into(), mode))
}

/// Whether a signal ended the command, or what it ran last.
fn is_killed(status: &ExitStatus) -> bool {
    status.code().is_none_or(|code| code > 128)
}

/// Takes the terminal's keyboard back from the command's process group, which is gone. A command that was
/// killed has left the terminal in a mode of its own.
fn reclaim(terminal: Option<(OwnedFd, Termios)>, is_killed: bool) {
    if let Some((terminal, mode)) = terminal {
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        // A refusal means that the terminal is gone too.
        let _ = init::give_terminal(terminal.as_raw_fd(), group);
        if is_killed {
            let _ = tcsetattr(&terminal, OptionalActions::Now, &mode);
        }
    }
}

/// The parts refused to the command, and the call that kept it from being executed, if one did.
fn read_notes(mut notes: PipeReader) -> (Vec<String>, Option<&'static str>) {
    let mut bytes = Vec::new();
    // Every writer is gone: the command has been executed, or never will be. A failed read counts
    // as the end.
    let _ = notes.read_to_end(&mut bytes);
    parse_notes(&bytes)
}

/// One pair of bytes for each thing that was refused: which, and the `errno`.
fn parse_notes(bytes: &[u8]) -> (Vec<String>, Option<&'static str>) {
    let (mut lacks, mut fatal) = (Vec::new(), None);
    for note in bytes.chunks_exact(2) {
        let source = io::Error::from_raw_os_error(note[1].into());
        match SetUpStep::of(note[0]) {
            Some(SetUpStep::Proc) => {
                lacks.push(format!("the command has no /proc of its own: {source}"))
            }
            Some(SetUpStep::Sys) => {
                lacks.push(format!("the command has no /sys of its own: {source}"))
            }
            Some(step) => fatal = Some(step.call()),
            None => lacks.push(format!("the command lacks something: {source}")),
        }
    }
    (lacks, fatal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fatal_step_is_told_from_one_that_the_command_can_do_without() {
        let eperm = libc::EPERM as u8;
        let (lacks, fatal) =
            parse_notes(&[SetUpStep::Sys as u8, eperm, SetUpStep::Fork as u8, eperm]);
        assert_eq!(lacks.len(), 1);
        assert!(lacks[0].contains("/sys"), "{lacks:?}");
        assert_eq!(fatal, Some("fork"));
    }

    #[test]
    fn every_step_is_known_by_its_number() {
        for step in SetUpStep::ALL {
            assert_eq!(SetUpStep::of(step as u8), Some(step));
        }
        assert_eq!(SetUpStep::of(0), None);
    }
}
