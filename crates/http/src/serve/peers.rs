//! How many connections there may be, over all workers and from one address.

use super::counters::Ending;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The clients of a server, counted.
#[derive(Debug)]
pub(crate) struct Peers {
    open: AtomicUsize,
    limit: usize,
    limit_per_address: Option<usize>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Peers {
    pub(crate) fn new(limit: usize, limit_per_address: Option<usize>) -> Self {
        Self {
            open: AtomicUsize::new(0),
            limit,
            limit_per_address,
            by_address: Mutex::default(),
        }
    }

    /// Whether [`Peers::admit`] and [`Peers::leave`] need addresses: only if there is a limit for
    /// one, because asking the kernel for them is not free.
    pub(crate) fn needs_address(&self) -> bool {
        self.limit_per_address.is_some()
    }

    /// Decides whether a new connection may stay. An admitted connection must [`Peers::leave`].
    ///
    /// # Errors
    ///
    /// How the connection is to be counted, if it may not stay.
    pub(crate) fn admit(&self, address: Option<IpAddr>) -> Result<(), Ending> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Ending::OverLimit);
        }
        if let (Some(limit), Some(address)) = (self.limit_per_address, address) {
            let mut by_address = self
                .by_address
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let count = by_address.entry(block(address)).or_insert(0);
            if *count >= limit {
                // Only with a limit of zero the entry is new here.
                if *count == 0 {
                    by_address.remove(&block(address));
                }
                self.open.fetch_sub(1, Ordering::Relaxed);
                return Err(Ending::OverAddressLimit);
            }
            *count += 1;
        }
        Ok(())
    }

    /// A connection that was admitted has ended.
    pub(crate) fn leave(&self, address: Option<IpAddr>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let (Some(_), Some(address)) = (self.limit_per_address, address) {
            let mut by_address = self
                .by_address
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Entry::Occupied(mut entry) = by_address.entry(block(address)) {
                if *entry.get() <= 1 {
                    entry.remove();
                } else {
                    *entry.get_mut() -= 1;
                }
            }
        }
    }
}

/// The part that counts as one address: with IPv6 the first 64 bits, because one host has all
/// addresses below them.
fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_over_all_addresses() {
        let peers = Peers::new(2, None);
        assert!(!peers.needs_address());
        assert_eq!(peers.admit(None), Ok(()));
        assert_eq!(peers.admit(None), Ok(()));
        assert_eq!(peers.admit(None), Err(Ending::OverLimit));
        peers.leave(None);
        assert_eq!(peers.admit(None), Ok(()));
    }

    #[test]
    fn one_address_cannot_take_all_and_is_forgotten_when_it_has_gone() {
        let peers = Peers::new(100, Some(2));
        let hog = Some(IpAddr::from([10, 0, 0, 1]));
        let other = Some(IpAddr::from([10, 0, 0, 2]));
        assert_eq!(peers.admit(hog), Ok(()));
        assert_eq!(peers.admit(hog), Ok(()));
        assert_eq!(peers.admit(hog), Err(Ending::OverAddressLimit));
        assert_eq!(peers.admit(other), Ok(()));
        for address in [hog, hog, other] {
            peers.leave(address);
        }
        assert_eq!(peers.open.load(Ordering::Relaxed), 0);
        assert!(peers.by_address.lock().unwrap().is_empty());
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing() {
        let peers = Peers::new(100, Some(0));
        let address = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(peers.admit(address), Err(Ending::OverAddressLimit));
        assert!(peers.by_address.lock().unwrap().is_empty());
        assert_eq!(peers.open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_host_has_many_addresses_of_ipv6() {
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let same_host: IpAddr = "2001:db8::ffff:1".parse().unwrap();
        let another: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        assert_eq!(block(one), block(same_host));
        assert_ne!(block(one), block(another));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(block(mapped), IpAddr::from([10, 0, 0, 1]));
    }
}
