//! Cases that are measured in turn, round after round: a machine that slows down slows them all.

use super::session::progress;
use crate::failure;
use crate::signal::{EndSignal, Interrupted};
use anyhow::{Result, ensure};
use std::fmt::Display;

/// Something to measure, and what is known of it.
#[derive(Debug)]
pub(crate) struct Case<P, S> {
    pub(crate) plan: P,
    /// Why it does not run, or why it stopped.
    pub(crate) skipped: Option<String>,
    pub(crate) samples: Vec<S>,
}

impl<P, S> Case<P, S> {
    /// A case that did not run yet, or why it cannot.
    pub(crate) fn new(plan: P, skipped: Option<String>) -> Self {
        Self {
            plan,
            skipped,
            samples: Vec::new(),
        }
    }

    /// Why nothing of it was measured.
    pub(crate) fn unmeasured(&self) -> Option<String> {
        self.skipped.clone().filter(|_| self.samples.is_empty())
    }

    /// Why it has fewer runs than the others.
    pub(crate) fn stopped(&self) -> Option<String> {
        let why = self.skipped.as_ref()?;
        let repeat = self.samples.len() + 1;
        (repeat > 1).then(|| format!("stopped in repeat {repeat}: {why}"))
    }
}

/// Runs every case once a round, and shows the progress on standard error. Calls `known` with all
/// cases after each run. A case whose run fails is skipped from then on, with the reason. It keeps
/// its earlier runs, and the others go on. Returns false if Ctrl-C ended it. The run that Ctrl-C
/// cut short does not count.
///
/// # Errors
/// Those of `known`. [`Interrupted`] if Ctrl-C came before any run ended, so that no earlier result
/// is replaced by an empty one.
pub(crate) fn interleave<P: Display, S>(
    cases: &mut [Case<P, S>],
    rounds: usize,
    interrupt: &EndSignal,
    mut run: impl FnMut(&Case<P, S>) -> Result<S>,
    mut known: impl FnMut(&[Case<P, S>]) -> Result<()>,
) -> Result<bool> {
    let runs = |case: &&Case<P, S>| case.skipped.is_none();
    let bar = progress(cases.iter().filter(runs).count() * rounds);
    for _ in 0..rounds {
        for at in 0..cases.len() {
            let case = &mut cases[at];
            if case.skipped.is_some() {
                continue;
            }
            bar.set_message(case.plan.to_string());
            bar.inc(1);
            let ran = run(case);
            if interrupt.came() {
                bar.finish_and_clear();
                ensure!(
                    cases.iter().any(|case| !case.samples.is_empty()),
                    Interrupted
                );
                return Ok(false);
            }
            match ran {
                Ok(sample) => case.samples.push(sample),
                Err(error) => case.skipped = Some(failure::explain(&error)),
            }
            bar.suspend(|| known(cases))?;
        }
    }
    bar.finish_and_clear();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering;

    #[test]
    fn rounds_are_interleaved_and_a_case_that_fails_does_not_end_the_others() {
        let mut cases: Vec<Case<char, usize>> = ['a', 'b', 'c']
            .map(|name| Case::new(name, (name == 'c').then(|| "not here".to_owned())))
            .into();
        let (order, known) = (RefCell::new(String::new()), Cell::new(0));
        let complete = interleave(
            &mut cases,
            3,
            &EndSignal::default(),
            |case| {
                order.borrow_mut().push(case.plan);
                anyhow::ensure!(case.plan != 'b' || case.samples.is_empty(), "lost");
                Ok(case.samples.len())
            },
            |_| {
                known.set(known.get() + 1);
                Ok(())
            },
        );
        assert!(complete.unwrap());
        assert_eq!((order.into_inner().as_str(), known.get()), ("ababa", 5));
        assert_eq!(cases[0].samples, [0, 1, 2]);
        assert_eq!(cases[1].skipped.as_deref(), Some("lost"));
        assert_eq!(cases[2].skipped.as_deref(), Some("not here"));
        // Runs before the failure count.
        let told: Vec<_> = cases
            .iter()
            .map(|case| (case.unmeasured(), case.stopped()))
            .collect();
        let said = |words: &str| Some(words.to_owned());
        assert_eq!(told[0], (None, None));
        assert_eq!(told[1], (None, said("stopped in repeat 2: lost")));
        assert_eq!(told[2], (said("not here"), None));
    }

    #[test]
    fn a_run_that_was_cut_short_does_not_count() {
        for whole in [0, 1] {
            let (interrupt, ran, known) = (EndSignal::default(), Cell::new(0), Cell::new(0));
            let mut cases = [Case::<_, ()>::new("", None)];
            let run = |_: &Case<&str, ()>| {
                interrupt
                    .flag()
                    .store(ran.get() == whole, Ordering::Relaxed);
                ran.set(ran.get() + 1);
                Ok(())
            };
            let complete = interleave(&mut cases, 2, &interrupt, run, |_| {
                known.set(known.get() + 1);
                Ok(())
            });
            assert_eq!((cases[0].samples.len(), known.get()), (whole, whole));
            match whole {
                0 => assert!(complete.unwrap_err().is::<Interrupted>()),
                _ => assert!(!complete.unwrap()),
            }
        }
    }
}
