//! The fate of everything that was started: each outcome has a counter of its own.

use super::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The account of a load's connections, or of its requests.
///
/// ```text
/// started = completed + failed + aborted_at_end + unaccounted
/// ```
///
/// No term but the last is a difference of others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadAccount {
    /// Begun: of a connection, its socket; of a request, the attempt, connecting included.
    pub started: u64,
    /// Ended as it should.
    pub completed: u64,
    /// Failed, by how; in a closed ledger every kind is there.
    #[schemars(extend("propertyNames" = {"enum": Failure::ALL}))]
    pub failed: BTreeMap<Failure, u64>,
    /// In flight when the run ended.
    pub aborted_at_end: u64,
    /// Explained by no counter; negative if something was counted twice. Set by [`LoadAccount::close`].
    pub unaccounted: i64,
}

impl LoadAccount {
    /// How many failed in this way.
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failed.get(&failure).copied().unwrap_or(0)
    }

    /// How many failed, in whatever way.
    pub fn failed_total(&self) -> u64 {
        self.failed.values().copied().fold(0, u64::saturating_add)
    }

    /// The rest after all other terms, in a sum that cannot overflow.
    pub fn remainder(&self) -> i64 {
        let failed: i128 = self.failed.values().copied().map(i128::from).sum();
        let known = i128::from(self.completed) + i128::from(self.aborted_at_end) + failed;
        let rest = i128::from(self.started) - known;
        rest.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// True if the last term is what the others leave.
    pub fn adds_up(&self) -> bool {
        self.unaccounted == self.remainder()
    }

    /// True if this is the sum of `parts`, or if there are none.
    pub fn is_sum_of(&self, parts: &[Self]) -> bool {
        let mut sum = Self::default();
        parts.iter().for_each(|part| sum.add(part));
        parts.is_empty() || sum.close() == self.clone().close()
    }

    /// The ledger with every kind of failure and its last term: nothing is added any more.
    #[must_use]
    pub fn close(mut self) -> Self {
        for failure in Failure::ALL {
            self.failed.entry(failure).or_default();
        }
        self.unaccounted = self.remainder();
        self
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        *self.failed.entry(failure).or_default() += 1;
    }

    /// Adds the counts of another thread, or of another run.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.started, other.started);
        add(&mut self.completed, other.completed);
        add(&mut self.aborted_at_end, other.aborted_at_end);
        for (failure, count) in &other.failed {
            add(self.failed.entry(*failure).or_default(), *count);
        }
        self.unaccounted = self.unaccounted.saturating_add(other.unaccounted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_own_counter_and_its_own_name() {
        let mut ledger = LoadAccount::default();
        for (at, failure) in Failure::ALL.into_iter().enumerate() {
            (0..=at).for_each(|_| ledger.fail(failure));
        }
        let counts = Failure::ALL.map(|failure| ledger.failed(failure));
        assert_eq!(counts.to_vec(), (1..=13).collect::<Vec<_>>());
        assert_eq!(ledger.failed_total(), 91);
        let mut names = Failure::ALL.map(|failure| failure.to_string()).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Failure::ALL.len());
    }

    #[test]
    fn the_file_has_the_names_and_all_of_them() {
        let file = serde_json::to_value(LoadAccount::default().close()).unwrap();
        let failed = file["failed"].as_object().unwrap();
        assert_eq!(failed.len(), Failure::ALL.len());
        for failure in Failure::ALL {
            assert_eq!(failed[&failure.to_string()], 0);
        }
    }

    #[test]
    fn what_is_missing_is_told_and_what_is_too_much_is_negative() {
        let mut ledger = LoadAccount {
            started: 10,
            completed: 7,
            aborted_at_end: 1,
            ..LoadAccount::default()
        };
        ledger.fail(Failure::Reset);
        let ledger = ledger.close();
        assert_eq!(ledger.unaccounted, 1);
        let mut twice = ledger.clone();
        twice.add(&ledger);
        assert_eq!((twice.started, twice.unaccounted), (20, 2));
        assert_eq!(twice.unaccounted, twice.remainder());
        twice.completed += 5;
        assert_eq!(twice.remainder(), -3);
    }

    #[test]
    fn parts_are_all_of_it_or_none() {
        let part = |started, completed| LoadAccount {
            started,
            completed,
            failed: [(Failure::Reset, started - completed)].into(),
            ..LoadAccount::default()
        };
        let (one, other, all) = (part(3, 2), part(5, 5), part(8, 7));
        assert!(all.is_sum_of(&[one.clone(), other.clone()]) && all.is_sum_of(&[]));
        assert!(!all.is_sum_of(&[one.clone(), one]) && !all.is_sum_of(&[other]));
    }

    #[test]
    fn counts_of_any_size_are_added_up() {
        let huge = LoadAccount {
            completed: u64::MAX,
            failed: [(Failure::Reset, u64::MAX)].into(),
            ..LoadAccount::default()
        };
        let huge = huge.close();
        assert_eq!(huge.unaccounted, i64::MIN);
        let mut sum = huge.clone();
        sum.add(&huge);
        assert_eq!((sum.completed, sum.failed_total()), (u64::MAX, u64::MAX));
    }
}
