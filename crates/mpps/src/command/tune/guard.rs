//! A process that outlives `mpps tune apply --confirm-within`, and puts back what that leaves: it may be
//! killed, stopped, or held up by a terminal that takes nothing.

use super::undo;
use crate::measure::outcome::CommandEnding;
use crate::output::{self, OutputStream};
use crate::program::lines::OutputLines;
use crate::signal::EndSignal;
use anyhow::{Context, Result, ensure};
use mpps_os::On;
use mpps_os::process::{Parent, in_own_session};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Its first line: from now on it is there.
const READY: &str = "ready";
/// The program sends this when nothing is left to restore, or when it has reported why not.
const DONE: &str = "done";
/// The program sends the milliseconds until its decision, or this word after it.
const DECIDED: &str = "decided";
/// How much later than the program it puts things back.
const SLACK: Duration = Duration::from_secs(2);
/// How long the changes themselves may take.
const MAKING: Duration = Duration::from_secs(60);

/// The running process, as the program that started it sees it.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    /// How long a confirmation is waited for.
    time: Duration,
}

impl Guard {
    /// Starts it, and waits until it is there. A confirmation is to be waited for so long.
    pub(super) fn start(time: Duration) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        let own = process::id().to_string();
        command.arg0("mpps").args(["undo", "--after", &own]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Signals of the terminal are for the program. A signal that ends the program does not end
        // this.
        let child = in_own_session(&mut command).spawn();
        let child = child.on("execve", "mpps");
        let mut child = child.context("--confirm-within: cannot start `mpps undo --after`")?;
        let mut line = String::new();
        if let Some(answers) = child.stdout.take() {
            BufReader::new(answers).read_line(&mut line)?;
        }
        let mut guard = Self { child, time };
        ensure!(
            line.trim_end() == READY,
            "--confirm-within: `mpps undo --after` cannot watch this process"
        );
        guard.expect_within(time + MAKING)?;
        Ok(guard)
    }

    /// The time begins; answers how long it is.
    ///
    /// # Errors
    /// The process has been ended.
    pub(super) fn begin(&mut self) -> Result<Duration> {
        self.expect_within(self.time)?;
        Ok(self.time)
    }

    /// Runs `say` between two changes, within [`Guard::time`]. A terminal may block it.
    pub(super) fn while_saying(&mut self, say: impl FnOnce() -> Result<()>) -> Result<()> {
        self.expect_within(self.time)?;
        say()?;
        self.expect_within(self.time + MAKING)
    }

    /// The settings go back after this time, unless the program is heard of before.
    fn expect_within(&mut self, time: Duration) -> Result<()> {
        let told = self.tell(&(time + SLACK).as_millis().to_string());
        told.context("--confirm-within: `mpps undo --after` has been ended")
    }

    /// The program goes on by itself, for as long as it takes; its end is still waited for.
    pub(super) fn decided(&mut self) {
        // If it has been ended, nothing waits for this.
        let _ = self.tell(DECIDED);
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        let asks = self.child.stdin.as_mut();
        asks.map_or(Ok(()), |asks| writeln!(asks, "{line}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It ends now, if it has not been killed before.
        let _ = self.tell(DONE);
        let _ = self.child.wait();
    }
}

/// Runs the guard: waits for the end of the process with this number, which started it. Then
/// restores the settings that this process has tuned and not kept.
///
/// # Errors
/// The kernel has no descriptor of a process.
pub(crate) fn guard(process: u32) -> Result<CommandEnding> {
    let _held = EndSignal::listen_held()?;
    // A program that has already ended changed nothing, because it waits for the first line.
    let Some(program) = Parent::hold(process)? else {
        return Ok(CommandEnding::Fine);
    };
    let (tell, told) = mpsc::channel();
    thread::Builder::new()
        .spawn(move || {
            let lines = io::stdin().lines().map_while(Result::ok);
            lines.map(|line| tell.send(line)).any(|sent| sent.is_err())
        })
        .on("clone", "thread")?;
    output::line(OutputStream::Out, READY)?;
    let (mut deadline, mut is_stuck) = (None, false);
    loop {
        let left = deadline.map(|at: Instant| at.saturating_duration_since(Instant::now()));
        match told.recv_timeout(left.unwrap_or(Duration::MAX)) {
            Ok(line) if line == DONE => return Ok(CommandEnding::Fine),
            Ok(line) => {
                let time = line.parse().ok().map(Duration::from_millis);
                deadline = time.and_then(|time| Instant::now().checked_add(time));
                continue;
            }
            // It was confirmed, or put back, and the program is slow to say so.
            Err(RecvTimeoutError::Timeout) if undo::unkept_of(process)?.is_empty() => {
                deadline = None;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => is_stuck = true,
            Err(RecvTimeoutError::Disconnected) => {}
        }
        break;
    }
    if is_stuck {
        program.kill();
    }
    program.await_end();
    // Standard output went to the program.
    output::json_to(Path::new("-"))?;
    let lines = OutputLines::PEOPLE;
    let worst = undo::undo(
        &undo::unkept_of(process)?,
        false,
        CommandEnding::Fine,
        lines,
    );
    if is_stuck {
        lines.say(&format!("process {process} was stuck, and was ended"))?;
    }
    worst
}
