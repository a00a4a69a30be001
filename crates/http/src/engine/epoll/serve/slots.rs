//! The connections of one worker, each in a slot that is used again.

use super::exchange::Open;

/// Open connections by number.
#[derive(Default)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    /// How often the slot was used, so that the key of one connection is not that of the next.
    generation: u32,
    open: Option<Open>,
}

impl Slots {
    /// Puts a connection into the slot that became free last, whose memory is warm.
    pub(super) fn insert(&mut self, open: Open) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                open: None,
            });
            // There are fewer descriptors than that in a process (fs.nr_open is a 32-bit number).
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[slot as usize];
        entry.open = Some(open);
        key(slot, entry.generation)
    }

    /// The connection of a key, if it is still open.
    #[inline]
    pub(super) fn find(&mut self, key: u64) -> Option<&mut Open> {
        let entry = self.entries.get_mut(slot_of(key) as usize)?;
        if entry.generation == generation_of(key) {
            entry.open.as_mut()
        } else {
            None
        }
    }

    /// Takes the connection of a key out.
    pub(super) fn remove(&mut self, key: u64) -> Option<Open> {
        let slot = slot_of(key);
        let entry = self.entries.get_mut(slot as usize)?;
        if entry.generation != generation_of(key) {
            return None;
        }
        let open = entry.open.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        Some(open)
    }

    /// The key of the connection in a slot.
    pub(super) fn key_of(&self, slot: u32) -> Option<u64> {
        let entry = self.entries.get(slot as usize)?;
        entry.open.as_ref().map(|_| key(slot, entry.generation))
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> Vec<u64> {
        (0..self.entries.len() as u32)
            .filter_map(|slot| self.key_of(slot))
            .collect()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The slot that a key names.
pub(super) fn slot_of(key: u64) -> u32 {
    key as u32
}

fn generation_of(key: u64) -> u32 {
    (key >> 32) as u32
}

fn key(slot: u32, generation: u32) -> u64 {
    // Slots stay far below u32::MAX - 1, so that no key is that of the listener or the wake.
    u64::from(generation) << 32 | u64::from(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 000 idle connections are to stay far below 40 MiB.
    #[test]
    fn a_connection_that_is_idle_takes_little() {
        assert!(size_of::<Entry>() <= 256, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_key_names_slot_and_generation() {
        let key = key(7, u32::MAX);
        assert_eq!((slot_of(key), generation_of(key)), (7, u32::MAX));
    }
}
