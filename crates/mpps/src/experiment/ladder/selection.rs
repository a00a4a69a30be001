//! Which rungs of the ladder are climbed.

use super::rung::Rung;
use super::rungs::rungs;
use crate::udp::labs::Labs;
use crate::udp::roles::CpuLayout;
use crate::udp::sender::SenderChoice;
use anyhow::{Result, ensure};

/// Selects the rungs that `--only` names, or all if it names none. `4` means 4a to 4d, because there
/// is no rung 4. Rungs that need more CPUs than this host has are skipped, unless `all` is set.
///
/// # Errors
/// If there is no such rung.
pub(crate) fn selected(
    layout: &CpuLayout,
    choice: &SenderChoice,
    only: &[String],
    all: bool,
) -> Result<Vec<Rung>> {
    let mut rungs = rungs(layout, choice, all);
    let numbers: Vec<&str> = rungs.iter().map(|rung| rung.number).collect();
    let names = |number: &str, wanted: &str| {
        let wanted = wanted.trim();
        let plain = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        number == wanted || plain == wanted && !numbers.contains(&wanted)
    };
    for wanted in only {
        ensure!(
            numbers.iter().any(|number| names(number, wanted)),
            "--only {wanted}: no such rung; `mpps lab --list` names them"
        );
    }
    rungs.retain(|rung| only.is_empty() || only.iter().any(|wanted| names(rung.number, wanted)));
    Ok(rungs)
}

/// Makes the lab of each rung, and finds out which rungs cannot run there.
pub(super) fn place(rungs: &mut [Rung], labs: &mut Labs) -> Result<()> {
    for rung in rungs.iter_mut().filter(|rung| rung.skipped.is_none()) {
        rung.trial.layout = labs.add(rung.trial.layout.clone())?;
        rung.skipped = labs.lacks_threads(&rung.trial.layout).map(str::to_owned);
        if rung.is_beyond() {
            rung.skipped = rung.skipped.take().or_else(|| rung.trial.obstacle(labs));
        }
    }
    Ok(())
}

/// The rungs as `--list` has them: number, name, and lesson or why it is skipped.
pub(crate) fn lines(rungs: &[Rung]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for rung in rungs {
        let Rung { number, name, .. } = rung;
        let rest = match &rung.skipped {
            Some(reason) => format!("skipped: {reason}"),
            None => rung.lesson.to_owned(),
        };
        lines.push(format!("{number:>3}  {name:<32} {rest}"));
    }
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;

    fn numbers(only: &[&str]) -> Result<Vec<String>> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let choice = SenderChoice::new(None, Some(4), 4)?;
        let chosen = selected(&two_cpus(), &choice, &only, false)?;
        let first = |line: String| line.split_whitespace().next().map(ToOwned::to_owned);
        Ok(lines(&chosen).into_iter().filter_map(first).collect())
    }

    #[test]
    fn the_rungs_beyond_sockets_come_last() {
        let all = numbers(&[]).unwrap();
        assert_eq!(all.len(), 26);
        assert_eq!(all[all.len() - 3..], ["16", "17", "18"]);
        assert_eq!(
            numbers(&["4", "15"]).unwrap(),
            ["4a", "4b", "4c", "4d", "15"]
        );
        assert_eq!(numbers(&["2"]).unwrap(), ["2"]);
        let error = numbers(&["19"]).unwrap_err().to_string();
        assert!(error.contains("--only 19"), "{error}");
    }
}
