//! What became of everything that was started: each by a counter of its own.

use super::Failure;

/// The account of a load's connections, or of its requests.
///
/// `started = completed + failed + aborted_at_end`. No term is a difference of others; what does
/// not add up is [`Ledger::unaccounted`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Begun: of a connection, its socket; of a request, the attempt, connecting included.
    pub started: u64,
    /// Ended as it should.
    pub completed: u64,
    /// In flight when the run ended.
    pub aborted_at_end: u64,
    failed: [u64; Failure::ALL.len()],
}

impl Ledger {
    /// How many failed in this way.
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failed[failure as usize]
    }

    /// How many failed, in whatever way.
    pub fn failed_total(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Every way to fail with its count, zeros included.
    pub fn failures(&self) -> impl Iterator<Item = (Failure, u64)> {
        Failure::ALL.into_iter().zip(self.failed)
    }

    /// What is missing in the account, or, if negative, what was counted twice.
    pub fn unaccounted(&self) -> i64 {
        let known = self.completed + self.aborted_at_end + self.failed_total();
        self.started as i64 - known as i64
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failed[failure as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.completed += other.completed;
        self.aborted_at_end += other.aborted_at_end;
        for (sum, more) in self.failed.iter_mut().zip(other.failed) {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_own_counter_and_its_own_name() {
        let mut ledger = Ledger::default();
        for (at, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, at);
            (0..=at).for_each(|_| ledger.fail(failure));
        }
        assert!(
            ledger
                .failures()
                .enumerate()
                .all(|(at, (_, count))| count == at as u64 + 1)
        );
        let mut names = Failure::ALL.map(Failure::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Failure::ALL.len());
    }

    #[test]
    fn what_is_missing_is_told_and_what_is_too_much_is_negative() {
        let mut ledger = Ledger {
            started: 10,
            completed: 7,
            aborted_at_end: 1,
            ..Ledger::default()
        };
        ledger.fail(Failure::Reset);
        assert_eq!(ledger.unaccounted(), 1);
        let mut twice = ledger.clone();
        twice.add(&ledger);
        assert_eq!((twice.started, twice.unaccounted()), (20, 2));
        twice.completed += 5;
        assert_eq!(twice.unaccounted(), -3);
    }
}
