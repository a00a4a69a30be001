//! A table with one value per index, the same for all CPUs.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use super::{Plain, RawMap, bytes_of};
use crate::CallResult;

/// Values by index, all present from the start, zeroed (`BPF_MAP_TYPE_ARRAY`). A program that runs
/// on one CPU at a time may count in it without atomic operations, wherever it runs next.
#[derive(Debug)]
pub struct ArrayMap<V> {
    table: RawMap,
    value: PhantomData<fn() -> V>,
}

/// `BPF_MAP_TYPE_ARRAY` of `enum bpf_map_type`.
const ARRAY: u32 = 2;

impl<V: Plain> ArrayMap<V> {
    /// Makes a table of `length` values.
    ///
    /// bpf(2), `BPF_MAP_CREATE`.
    ///
    /// # Errors
    ///
    /// `EPERM` without the capabilities; `EINVAL` for a length of zero.
    pub fn create(name: &str, length: u32) -> CallResult<Self> {
        Ok(Self {
            table: RawMap::create::<[u32; 1], V>(ARRAY, name, length)?,
            value: PhantomData,
        })
    }

    /// The value at `index`; none behind the end.
    ///
    /// bpf(2), `BPF_MAP_LOOKUP_ELEM`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn value(&self, index: u32) -> CallResult<Option<V>> {
        let mut bytes = vec![0; V::SIZE];
        let found = self.table.lookup(&bytes_of(&[index]), &mut bytes)?;
        Ok(found.then(|| V::read(&bytes)))
    }
}

impl<V: Plain> ArrayMap<V> {
    /// Sets the value at `index`.
    ///
    /// bpf(2), `BPF_MAP_UPDATE_ELEM`.
    ///
    /// # Errors
    ///
    /// `E2BIG` behind the end.
    pub fn set(&self, index: u32, value: &V) -> CallResult<()> {
        self.table.update(&bytes_of(&[index]), &bytes_of(value))
    }
}

impl<V> AsFd for ArrayMap<V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.fd.as_fd()
    }
}
