//! The interfaces that XDP programs send frames to.

use super::{RawMap, bytes_of};
use crate::CallResult;

/// Interfaces by index, for an XDP program to redirect frames to (`BPF_MAP_TYPE_DEVMAP`,
/// Linux 4.14).
#[derive(Debug)]
pub struct DeviceMap {
    table: RawMap,
}

/// `BPF_MAP_TYPE_DEVMAP` of `enum bpf_map_type`.
const DEVICE_MAP: u32 = 14;

impl DeviceMap {
    /// Makes a map with room for `length` interfaces.
    ///
    /// bpf(2), `BPF_MAP_CREATE`.
    ///
    /// # Errors
    ///
    /// `EPERM` without the capabilities; `EINVAL` for a length of zero.
    pub fn create(name: &str, length: u32) -> CallResult<Self> {
        Ok(Self {
            table: RawMap::create::<[u32; 1], [u32; 1]>(DEVICE_MAP, name, length)?,
        })
    }

    /// Puts an interface of the calling thread's network namespace into the map. It stays that
    /// one, whichever namespace the program later runs in.
    ///
    /// bpf(2), `BPF_MAP_UPDATE_ELEM` (`kernel/bpf/devmap.c`).
    ///
    /// # Errors
    ///
    /// `EINVAL` where there is no such interface, `E2BIG` for a slot that the map does not have.
    pub fn set(&self, slot: u32, interface_index: u32) -> CallResult<()> {
        self.table
            .update(&bytes_of(&[slot]), &bytes_of(&[interface_index]))
    }

    /// Whether a slot holds an interface. The kernel empties it when the interface goes away.
    ///
    /// bpf(2), `BPF_MAP_LOOKUP_ELEM`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn holds(&self, slot: u32) -> CallResult<bool> {
        self.table.lookup(&bytes_of(&[slot]), &mut [0; 4])
    }
}

lends_descriptor!(DeviceMap, table.fd);
