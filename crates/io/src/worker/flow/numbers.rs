//! Which sequence numbers came.

use std::collections::BTreeMap;
use std::mem;

/// Numbers to a page.
pub(super) const PAGE: u64 = 4096;

/// A bit for each number.
type Page = Box<[u64; (PAGE / 64) as usize]>;

/// The numbers that came, a bit each, in pages. The lowest pages are forgotten if there are too
/// many.
#[derive(Debug, Clone)]
pub(super) struct Numbers {
    /// The page in use, which nearly every number falls into, and its place.
    page: Page,
    at: u64,
    others: BTreeMap<u64, Page>,
    /// Pages below this one may have been forgotten.
    kept_from: u64,
    /// Numbers that came and were forgotten.
    forgotten: u64,
}

/// Whether a number came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Novelty {
    New,
    Again,
    /// Its page was forgotten.
    Unknown,
}

impl Numbers {
    /// None so far, and one page.
    pub(super) fn new() -> Self {
        Self {
            page: empty(),
            at: 0,
            others: BTreeMap::new(),
            kept_from: 0,
            forgotten: 0,
        }
    }

    /// Enters a number. `free` is how many more pages there may be; of those that it has got already, a
    /// flow keeps three in any case.
    #[inline]
    pub(super) fn enter(&mut self, number: u64, free: &mut usize) -> Novelty {
        let at = number / PAGE;
        if at != self.at && !self.turn_to(at, free) {
            return Novelty::Unknown;
        }
        let word = &mut self.page[(number % PAGE / 64) as usize];
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            return Novelty::Again;
        }
        *word |= bit;
        Novelty::New
    }

    /// Makes this page the one in use; false if it was forgotten.
    #[cold]
    fn turn_to(&mut self, at: u64, free: &mut usize) -> bool {
        if at < self.kept_from {
            return false;
        }
        let page = match self.others.remove(&at) {
            Some(page) => page,
            None if *free > 0 || self.others.len() < 2 => {
                *free = free.saturating_sub(1);
                empty()
            }
            None => match self.others.pop_first() {
                // The one in use stays, whichever it is, until the next one is.
                Some((lowest, mut page)) if lowest < at => {
                    self.kept_from = lowest + 1;
                    self.forgotten += count(&page);
                    page.fill(0);
                    page
                }
                lowest => {
                    self.others.extend(lowest);
                    return false;
                }
            },
        };
        let before = mem::replace(&mut self.page, page);
        self.others.insert(mem::replace(&mut self.at, at), before);
        true
    }

    /// Enters those of another thread. Answers how many of them came here too, and of how many more that
    /// is not known, at most.
    pub(super) fn merge(&mut self, other: &Self) -> (u64, u64) {
        let unknown = self
            .forgotten
            .min(other.below(self.kept_from) + other.forgotten)
            + other.forgotten.min(self.below(other.kept_from));
        let mut common = 0;
        for (at, theirs) in other.pages() {
            let own = match at == self.at {
                true => &mut self.page,
                false => self.others.entry(at).or_insert_with(empty),
            };
            for (own, theirs) in own.iter_mut().zip(theirs.iter()) {
                common += u64::from((*own & theirs).count_ones());
                *own |= theirs;
            }
        }
        self.forgotten += other.forgotten;
        self.kept_from = self.kept_from.max(other.kept_from);
        (common, unknown)
    }

    fn pages(&self) -> impl Iterator<Item = (u64, &Page)> {
        let others = self.others.iter().map(|(at, page)| (*at, page));
        others.chain([(self.at, &self.page)])
    }

    /// How many of the numbers that it knows are in pages below this one.
    fn below(&self, end: u64) -> u64 {
        let pages = self.pages().filter(|(at, _)| *at < end);
        pages.map(|(_, page)| count(page)).sum()
    }
}

fn empty() -> Page {
    Box::new([0; (PAGE / 64) as usize])
}

fn count(page: &Page) -> u64 {
    page.iter().map(|word| u64::from(word.count_ones())).sum()
}
