//! A process that keeps the rights that the starting program gives up. It makes a change of the
//! host on request. It undoes the change on request, or when the program is gone.

use crate::failure;
use crate::measure::outcome::CommandEnding;
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use anyhow::{Context, Result, bail};
use mpps_host::{Applied, SettingChange, Undone};
use mpps_os::On;
use mpps_os::poll::Waiter;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to put the change back.
const UNDO_WAIT: Duration = Duration::from_secs(1);

/// Its answers, one line each.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum HelperAnswer {
    /// Which of the changes was made, and why not those before it.
    Made(usize, Vec<String>),
    /// Why none was made.
    Failed(String),
    /// The outcome of undoing the change.
    Ended(Vec<mpps_host::UndoneStep>),
}

/// The running process, as the program that started it sees it.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Keeper {
    /// Starts it with the possible changes, the best first. One of them is made. It learns of them
    /// now, so an attacker who takes over the program later cannot request another change.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(crate) fn start(changes: &[&SettingChange]) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("mpps").args(["undo", "--keep"]);
        // Ctrl-C is for the program, which passes it on.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().on("execve", "mpps");
        let mut child = child.context("cannot start `mpps undo --keep`")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut asks, answers) = pipes.context("both were asked for")?;
        writeln!(asks, "{}", serde_json::to_string(changes)?)?;
        let answers = BufReader::new(answers);
        Ok(Self {
            child,
            asks,
            answers,
        })
    }

    /// Has the first change made that is possible. Answers which, and why not those before it.
    ///
    /// # Errors
    /// Why none was made.
    pub(crate) fn make(&mut self) -> Result<(usize, Vec<String>)> {
        writeln!(self.asks, "make")?;
        match self.answer()? {
            HelperAnswer::Made(at, refused) => Ok((at, refused)),
            HelperAnswer::Failed(why) => bail!(why),
            HelperAnswer::Ended(_) => bail!("`mpps undo --keep` ended too early"),
        }
    }

    /// Has it put back. Waits a second at most, because the process may be stopped.
    pub(crate) fn undo(mut self) -> Vec<mpps_host::UndoneStep> {
        let failed = |why: &str| {
            vec![mpps_host::UndoneStep {
                step: "the change".to_owned(),
                result: Undone::Failed(why.to_owned()),
            }]
        };
        let asked = writeln!(self.asks, "undo").map_err(anyhow::Error::from);
        let deadline = Instant::now() + UNDO_WAIT;
        let left = || deadline.saturating_duration_since(Instant::now());
        // A second signal interrupts the wait.
        while !matches!(
            Waiter::new().poll(self.answers.get_ref().as_fd(), left()),
            Ok(true)
        ) {
            if left().is_zero() {
                return failed("the process that kept it does not answer");
            }
        }
        let answer = asked.and_then(|()| self.answer());
        // It ends now, if it has not been killed before.
        drop(self.asks);
        let _ = self.child.wait();
        match answer {
            Ok(HelperAnswer::Ended(outcomes)) => outcomes,
            Ok(_) | Err(_) => failed("the process that kept it was ended"),
        }
    }

    fn answer(&mut self) -> Result<HelperAnswer> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("`mpps undo --keep` has ended")
    }
}

/// Runs the keeper: reads requests from standard input, and ends with it.
///
/// # Errors
/// If standard input has no list of changes. Outcomes of changes go to the other end.
pub(crate) fn keep() -> Result<CommandEnding> {
    // Stopping a service stops all its processes. This one ends after the other.
    let _held = EndSignal::listen_held()?;
    // A program under an attacker's control must not fill the memory of this process.
    let mut asks = io::stdin().lock().take(ASKED_MAX).lines();
    let Some(changes) = asks.next().transpose()? else {
        return Ok(CommandEnding::Fine);
    };
    let changes: Vec<SettingChange> =
        serde_json::from_str(&changes).context("not a list of changes")?;
    let Some(_make) = asks.next().transpose()? else {
        return Ok(CommandEnding::Fine);
    };
    let (answer, made) = make(&changes);
    tell(&answer);
    // The end of the program counts as a request, too.
    let _undo = asks.next();
    tell(&HelperAnswer::Ended(
        made.map(Applied::undo).unwrap_or_default(),
    ));
    Ok(CommandEnding::Fine)
}

/// The longest text of all that is asked, as long as two journals.
const ASKED_MAX: u64 = 8 << 20;

/// The other end may be gone, and what was changed is put back all the same.
fn tell(answer: &HelperAnswer) {
    if let Ok(text) = output::json(answer) {
        let _ = output::line(OutputStream::Out, &text);
    }
}

fn make(changes: &[SettingChange]) -> (HelperAnswer, Option<Applied>) {
    let mut refused = Vec::new();
    for (at, change) in changes.iter().enumerate() {
        match Applied::new(change) {
            Ok(made) => return (HelperAnswer::Made(at, refused), Some(made)),
            Err(error @ mpps_host::HostError::Impossible { .. }) if at + 1 < changes.len() => {
                refused.push(error.to_string());
            }
            Err(error) => return (HelperAnswer::Failed(failure::explain(&error.into())), None),
        }
    }
    (HelperAnswer::Failed("nothing to do".to_owned()), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_go_through_a_line() {
        let outcome = |result| mpps_host::UndoneStep {
            step: "rx-usecs 50".to_owned(),
            result,
        };
        let outcomes = [
            outcome(Undone::Restored),
            outcome(Undone::Nothing),
            outcome(Undone::Changed("now 3".to_owned())),
            outcome(Undone::Failed("gone".to_owned())),
        ];
        for answer in [
            HelperAnswer::Made(1, vec!["the card\ndoes not wait".to_owned()]),
            HelperAnswer::Failed("no".to_owned()),
            HelperAnswer::Ended(outcomes.into()),
        ] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert_eq!(serde_json::from_str::<HelperAnswer>(&text).unwrap(), answer);
        }
    }
}
