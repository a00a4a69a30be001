//! Numbered places for what a worker keeps of its connections, each used again.

/// Things by number. The place that became free last is the next to be taken: its memory is warm.
pub(super) struct Places<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Places<T> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Puts something into a place that is free, and returns its number.
    pub(super) fn add(&mut self, what: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(what);
                number
            }
            None => {
                self.places.push(Some(what));
                // There are fewer descriptors than that in a process, and fewer slots in a ring
                // (fs.nr_open is a 32-bit number).
                self.places.len() as u32 - 1
            }
        }
    }

    /// What is in a place.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// Takes out what is in a place.
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let what = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(what)
    }

    /// How many are taken.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether none is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of those that are taken, as of now.
    pub(super) fn numbers(&self) -> Vec<u32> {
        (0..)
            .zip(&self.places)
            .filter_map(|(number, place)| place.as_ref().map(|_| number))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_place_that_became_free_last_is_taken_next() {
        let mut places = Places::new();
        let numbers: Vec<u32> = ["a", "b", "c"].map(|what| places.add(what)).to_vec();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(places.remove(0), Some("a"));
        assert_eq!(places.remove(2), Some("c"));
        assert_eq!((places.remove(2), places.get(0)), (None, None));
        assert_eq!(
            (places.add("d"), places.add("e"), places.add("f")),
            (2, 0, 3)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

        /// Against a map, for any order of coming and going: `Err` is who goes.
        #[test]
        fn they_keep_what_a_map_keeps(
            acts in prop::collection::vec(
                prop_oneof![any::<u16>().prop_map(Ok), (0..12u32).prop_map(Err)], 1..100)
        ) {
            let mut places = Places::new();
            let mut plain = BTreeMap::new();
            for act in acts {
                match act {
                    Ok(what) => {
                        let number = places.add(what);
                        prop_assert_eq!(plain.insert(number, what), None);
                    }
                    Err(number) => prop_assert_eq!(places.remove(number), plain.remove(&number)),
                }
                prop_assert_eq!((places.len(), places.is_empty()), (plain.len(), plain.is_empty()));
                let numbers: Vec<u32> = plain.keys().copied().collect();
                prop_assert_eq!(places.numbers(), numbers);
                for (number, what) in &mut plain {
                    prop_assert_eq!(places.get(*number), Some(what));
                }
            }
        }
    }
}
