//! Which rungs of the ladder are climbed.

use super::bench_rungs::{BEYOND, Beyond};
use super::rung::Rung;
use super::rungs::rungs;
use super::sender::SenderChoice;
use crate::udp::labs::Labs;
use crate::udp::roles::CpuLayout;
use anyhow::{Result, ensure};

/// Rungs of the ladder, lowest first.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) rungs: Vec<Rung>,
    pub(crate) beyond: Vec<Beyond>,
}

impl Selection {
    /// Selects the rungs that `--only` names, or all if it names none. `4` means 4a to 4d, because
    /// there is no rung 4. Rungs that need more CPUs than this host has are skipped, unless `all`
    /// is set.
    ///
    /// # Errors
    /// If there is no such rung.
    pub(crate) fn new(
        layout: &CpuLayout,
        choice: &SenderChoice,
        only: &[String],
        all: bool,
    ) -> Result<Self> {
        let (mut rungs, mut beyond) = (rungs(layout, choice, all), BEYOND.to_vec());
        let numbers = rungs.iter().map(|rung| rung.number);
        let numbers: Vec<&str> = numbers
            .chain(beyond.iter().map(|rung| rung.number))
            .collect();
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
        let keep =
            |number: &str| only.is_empty() || only.iter().any(|wanted| names(number, wanted));
        rungs.retain(|rung| keep(rung.number));
        beyond.retain(|rung| keep(rung.number));
        Ok(Self { rungs, beyond })
    }

    /// Notes of each rung whether the lab that it runs in could place its queues.
    pub(crate) fn place(&mut self, labs: &Labs) {
        for rung in &mut self.rungs {
            labs.place(&mut rung.layout);
            if rung.skipped.is_none() {
                rung.skipped = labs.lacks_threads(&rung.layout).map(str::to_owned);
            }
        }
    }

    /// The rungs as `--list` has them: number, name, and lesson or why it is skipped.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |number: &str, name: &str, rest: &str| format!("{number:>3}  {name:<32} {rest}");
        let rungs = self.rungs.iter().map(|rung| match &rung.skipped {
            Some(reason) => line(rung.number, rung.name, &format!("skipped: {reason}")),
            None => line(rung.number, rung.name, rung.lesson),
        });
        let beyond = self.beyond.iter();
        let beyond = beyond.map(|rung| match rung.skipped {
            Some(reason) => line(rung.number, rung.name, &format!("skipped: {reason}")),
            None => line(rung.number, rung.name, rung.lesson),
        });
        rungs.chain(beyond).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::two_cpus;

    fn numbers(only: &[&str]) -> Result<Vec<String>> {
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let choice = SenderChoice::new(None, Some(4))?;
        let chosen = Selection::new(&two_cpus(), &choice, &only, false)?;
        let first = |line: String| line.split_whitespace().next().map(ToOwned::to_owned);
        Ok(chosen.lines().into_iter().filter_map(first).collect())
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
