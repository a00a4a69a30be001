//! The connections of one worker by the keys that the set returns. A late event must not be taken
//! for one of the next connection in the same place.

use slab::Slab;

/// Open connections by key.
pub(super) struct OpenConnections<T> {
    places: Slab<Keyed<T>>,
    /// Distinguishes the next key of this slot from earlier ones. A number comes again after 2^32
    /// connections, and the events of a connection come within one batch.
    serial: u32,
}

struct Keyed<T> {
    serial: u32,
    open: T,
}

impl<T> OpenConnections<T> {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            places: Slab::new(),
            serial: 0,
        }
    }

    /// Puts a connection into a slot, and returns its key.
    pub(super) fn insert(&mut self, open: T) -> u64 {
        let serial = self.serial;
        self.serial = serial.wrapping_add(1);
        // There are fewer descriptors than that in a process (fs.nr_open is a 32-bit number).
        key(self.places.insert(Keyed { serial, open }) as u32, serial)
    }

    /// The connection of a key, if it is still open.
    #[inline]
    pub(super) fn find(&mut self, key: u64) -> Option<&mut T> {
        let keyed = self.places.get_mut(slot_of(key) as usize)?;
        (keyed.serial == serial_of(key)).then_some(&mut keyed.open)
    }

    /// Takes the connection of a key out.
    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        self.find(key)?;
        let keyed = self.places.try_remove(slot_of(key) as usize)?;
        Some(keyed.open)
    }

    /// The key of the connection in a slot.
    pub(super) fn key_of(&self, slot: u32) -> Option<u64> {
        let keyed = self.places.get(slot as usize)?;
        Some(key(slot, keyed.serial))
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> Vec<u64> {
        let places = self.places.iter();
        let keys = places.map(|(slot, keyed)| key(slot as u32, keyed.serial));
        keys.collect()
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// The slot that a key names.
pub(super) fn slot_of(key: u64) -> u32 {
    key as u32
}

fn serial_of(key: u64) -> u32 {
    (key >> 32) as u32
}

fn key(slot: u32, serial: u32) -> u64 {
    // Slots stay far below u32::MAX - 1, so that no key is that of the listener or the wake.
    u64::from(serial) << 32 | u64::from(slot)
}

#[cfg(test)]
mod tests {
    use super::super::exchange::Open;
    use super::*;

    /// 10 000 idle connections are to stay far below 40 MiB.
    #[test]
    fn a_connection_that_is_idle_takes_little() {
        let bytes = size_of::<Option<Keyed<Open>>>();
        assert!(bytes <= 256, "{bytes}");
    }

    #[test]
    fn a_key_names_slot_and_serial() {
        let key = key(7, u32::MAX);
        assert_eq!((slot_of(key), serial_of(key)), (7, u32::MAX));
    }

    #[test]
    fn the_key_of_who_has_gone_finds_nobody() {
        let mut slots = OpenConnections::new();
        slots.serial = u32::MAX;
        let [first, other] = [slots.insert('a'), slots.insert('b')];
        assert_eq!(slots.remove(first), Some('a'));
        let next = slots.insert('c');
        assert_eq!(slot_of(next), slot_of(first));
        assert_eq!(slots.find(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.find(next), Some(&mut 'c'));
        assert_eq!(slots.keys(), [next, other]);
        assert_eq!((slots.len(), slots.key_of(9)), (2, None));
    }
}
