//! How a run ended, and what could not be put back after it.

use crate::output;
use anyhow::{Result, ensure};

/// How a command ended when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandEnding {
    /// Exit status 0.
    Fine,
    /// Exit status 1: it found what it was asked to look for.
    Found,
    /// Exit status 130: Ctrl-C ended a run that has an end of its own.
    Interrupted,
    /// Another program's own exit status.
    Status(u8),
}

impl CommandEnding {
    /// Of a measurement: whether it came to its end, and whether every exact ledger balances.
    pub(crate) fn of(complete: bool, balances: bool) -> Self {
        match (complete, balances) {
            (false, _) => Self::Interrupted,
            (true, false) => Self::Found,
            (true, true) => Self::Fine,
        }
    }
}

/// The settings that could not be restored, as an error. The outcome of each step was printed
/// before.
pub(crate) fn put_back(outcomes: &[mpps_host::UndoneStep], option: &str) -> Result<()> {
    let failed = outcomes.iter().filter(|outcome| !outcome.finished());
    let failed: Vec<String> = failed.map(ToString::to_string).collect();
    ensure!(
        failed.is_empty(),
        "{option}: {}; `mpps undo` tries again",
        failed.join("; ")
    );
    Ok(())
}

/// The end of a run that changed the host. Settings that were not restored are always reported.
pub(crate) fn ended<T>(ended: Result<T>, back: Result<()>) -> Result<T> {
    let Err(rest) = back else {
        return ended;
    };
    match ended {
        // A closed pipe is no failure of its own, and would end with status 0.
        Err(failure) if !failure.downcast_ref().is_some_and(output::is_closed) => {
            Err(failure.context(format!("{rest:#}")))
        }
        _ => Err(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use mpps_host::Undone;
    use std::io;

    fn outcome(result: Undone) -> mpps_host::UndoneStep {
        let step = "a step".to_owned();
        mpps_host::UndoneStep { step, result }
    }

    #[test]
    fn what_is_left_to_do_is_an_error_that_names_what_helps() {
        let changed = outcome(Undone::Changed("it is 9".to_owned()));
        let done = [outcome(Undone::Restored), changed];
        put_back(&done, "--moderation").expect("nothing is left to do");
        let failed = outcome(Undone::Failed("no such device".to_owned()));
        let error = put_back(&[failed], "--moderation").expect_err("one is left");
        let text = error.to_string();
        for word in ["--moderation", "a step", "no such device", "`mpps undo`"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn what_was_not_put_back_is_told_whatever_else_went_wrong() {
        let is_closed = |error: &anyhow::Error| error.downcast_ref().is_some_and(output::is_closed);
        let back = || Err(anyhow!("not undone"));
        assert_eq!(ended(Ok(1), Ok(())).expect("fine"), 1);
        ended(Err::<(), _>(anyhow!("x")), Ok(())).expect_err("the failure");
        ended(Ok(1), back()).expect_err("not put back");
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        let error = ended(Err::<(), _>(pipe().into()), back()).expect_err("not put back");
        assert!(!is_closed(&error), "{error:#}");
        let error = ended(Err::<(), _>(anyhow!("a failure")), back()).expect_err("both");
        assert_eq!(format!("{error:#}"), "not undone: a failure");
    }
}
