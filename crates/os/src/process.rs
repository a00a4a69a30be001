//! Commands that cannot outlive the program that started them.

mod init;

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};

use rustix::thread::{UnshareFlags, unshare_unsafe};

use self::init::Plan;
use crate::namespace::NetNamespace;
use crate::{Error, Result};

/// A command in a network namespace, with a process namespace of its own
/// (`pid_namespaces(7)`).
///
/// It and all its descendants, whatever they do to get away, end when this value is dropped and
/// when the program that holds it dies, also by `SIGKILL`.
#[derive(Debug)]
pub struct ContainedChild {
    child: Child,
    /// The first process of the namespace ends when this closes. Only this program has it.
    _lifeline: PipeWriter,
    terminal: Option<OwnedFd>,
    notes: Vec<String>,
}

/// Starts a command in `namespace`. It sees its own `/proc` and the `/sys` of the namespace.
///
/// A command whose standard input is this program's terminal gets the terminal's keyboard, until
/// [`ContainedChild::wait`] or drop takes it back: Ctrl-C then goes to the command alone, and a
/// shell has its job control. A worker in the background is given another standard input.
///
/// # Errors
///
/// The program is not there or may not be executed; `EPERM` without `CAP_SYS_ADMIN` in the
/// caller's user namespace; no process can be had.
pub fn spawn_contained(mut command: Command, namespace: &NetNamespace) -> Result<ContainedChild> {
    let object = command.get_program().to_string_lossy().into_owned();
    let failed = |call| {
        let object = object.clone();
        move |source| Error::new(call, object, source)
    };
    let (lifeline_end, lifeline) = io::pipe().map_err(failed("pipe"))?;
    let (notes, notes_end) = io::pipe().map_err(failed("pipe"))?;
    let terminal = foreground_terminal();
    let plan = Plan {
        lifeline: lifeline_end.as_raw_fd(),
        notes: notes_end.as_raw_fd(),
        terminal: terminal.as_ref().map(AsRawFd::as_raw_fd),
    };
    // SAFETY: the hook runs in the child between fork and exec, and so makes system calls only:
    // `init::enter` neither allocates nor takes a lock. The descriptors of the plan are open
    // until the command has been started, below.
    unsafe { command.pre_exec(move || init::enter(plan)) };
    let child = namespace.run(|| {
        // SAFETY: without CLONE_FILES, `unshare` touches no descriptor of another thread. It
        // changes where children of this thread are born, and the thread ends here.
        unsafe { unshare_unsafe(UnshareFlags::NEWPID) }
            .map_err(|errno| failed("unshare CLONE_NEWPID")(errno.into()))?;
        command.spawn().map_err(failed("execve"))
    })??;
    drop((lifeline_end, notes_end));
    Ok(ContainedChild {
        child,
        _lifeline: lifeline,
        terminal,
        notes: read_notes(notes),
    })
}

impl ContainedChild {
    /// The number of the first process of the namespace, which stands for all of them.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the command had to do without, such as its own `/sys`, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The writing end of the command's standard input, once, if it was asked for.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
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
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self
            .child
            .wait()
            .map_err(|source| Error::new("wait", format!("process {}", self.id()), source));
        self.reclaim_terminal();
        status
    }

    /// The command's end, if it has ended.
    ///
    /// # Errors
    ///
    /// `wait(2)` fails.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        let status = self
            .child
            .try_wait()
            .map_err(|source| Error::new("wait", format!("process {}", self.id()), source))?;
        if status.is_some() {
            self.reclaim_terminal();
        }
        Ok(status)
    }

    /// Kills the command and all its descendants, with `SIGKILL`.
    ///
    /// # Errors
    ///
    /// `kill(2)` fails. A command that has ended is no error.
    pub fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .map_err(|source| Error::new("kill", format!("process {}", self.id()), source))
    }

    /// Takes the terminal's keyboard back from the command's process group, which is gone.
    fn reclaim_terminal(&mut self) {
        if let Some(terminal) = self.terminal.take() {
            let group = rustix::process::getpgrp().as_raw_nonzero().get();
            // A refusal means that the terminal is gone too.
            let _ = init::give_terminal(terminal.as_raw_fd(), group);
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

/// The terminal of this program, if its keyboard is this program's.
fn foreground_terminal() -> Option<OwnedFd> {
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let owner = rustix::termios::tcgetpgrp(&terminal).ok()?;
    (owner == rustix::process::getpgrp()).then(|| terminal.into())
}

/// One pair of bytes for each thing that was refused: which, and the `errno`.
fn read_notes(mut notes: PipeReader) -> Vec<String> {
    let mut bytes = Vec::new();
    // Every writer is gone: the command has been executed. What cannot be read is not there.
    let _ = notes.read_to_end(&mut bytes);
    bytes
        .chunks_exact(2)
        .map(|note| {
            let source = io::Error::from_raw_os_error(note[1].into());
            format!("{}: {source}", init::step_name(note[0]))
        })
        .collect()
}
