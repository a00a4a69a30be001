//! Maps: tables that programs and user space share.

mod array;
mod device;

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Command, call, object_info, object_name, owned};
use crate::error::On;
use crate::{CallError, CallResult};

pub use array::ArrayMap;
pub use device::DeviceMap;

/// A table with one value per key and CPU: programs count without atomic operations.
#[derive(Debug)]
pub struct PerCpuMap<K, V> {
    table: RawMap,
    cpus: usize,
    types: PhantomData<fn(K) -> V>,
}

/// The kinds of [`PerCpuMap`], from `enum bpf_map_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PerCpuMapKind {
    /// Any key (`BPF_MAP_TYPE_PERCPU_HASH`).
    Hash = 5,
    /// Keys are `u32` indexes, all present from the start, zeroed (`BPF_MAP_TYPE_PERCPU_ARRAY`).
    Array = 6,
}

/// A value of fixed size that goes into a map byte by byte, in the machine's byte order.
pub trait Plain: Sized {
    /// How many bytes it has in a map.
    const SIZE: usize;

    /// Writes itself to exactly [`SIZE`](Self::SIZE) bytes.
    fn write(&self, to: &mut [u8]);

    /// Reads itself from exactly [`SIZE`](Self::SIZE) bytes.
    fn read(from: &[u8]) -> Self;
}

/// A row of equal words, the shape that maps of counters have.
impl<const N: usize> Plain for [u32; N] {
    const SIZE: usize = 4 * N;

    fn write(&self, to: &mut [u8]) {
        for (chunk, word) in to.as_chunks_mut::<4>().0.iter_mut().zip(self) {
            *chunk = word.to_ne_bytes();
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(from.as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*chunk);
        }
        words
    }
}

/// A row of equal double words, the shape that maps of counters have.
impl<const N: usize> Plain for [u64; N] {
    const SIZE: usize = 8 * N;

    fn write(&self, to: &mut [u8]) {
        for (chunk, word) in to.as_chunks_mut::<8>().0.iter_mut().zip(self) {
            *chunk = word.to_ne_bytes();
        }
    }

    fn read(from: &[u8]) -> Self {
        let mut words = [0; N];
        for (word, chunk) in words.iter_mut().zip(from.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*chunk);
        }
        words
    }
}

impl<K: Plain, V: Plain> PerCpuMap<K, V> {
    /// Makes an empty table with room for `capacity` keys.
    ///
    /// bpf(2), `BPF_MAP_CREATE`.
    ///
    /// # Errors
    ///
    /// `EPERM` without the capabilities; an unreadable `/sys/devices/system/cpu/possible`.
    pub fn create(kind: PerCpuMapKind, name: &str, capacity: u32) -> CallResult<Self> {
        Ok(Self {
            cpus: possible_cpus()?,
            table: RawMap::create::<K, V>(kind as u32, name, capacity)?,
            types: PhantomData,
        })
    }

    /// The values of a key, one for each possible CPU (not by CPU number); none if the key is not there.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn values(&self, key: &K) -> CallResult<Vec<V>> {
        // The kernel copies each CPU's value to a multiple of eight bytes.
        let stride = V::SIZE.next_multiple_of(8);
        let mut bytes = vec![0; stride * self.cpus];
        if !self.table.lookup(&bytes_of(key), &mut bytes)? {
            return Ok(Vec::new());
        }
        let values = bytes.chunks_exact(stride);
        Ok(values.map(|value| V::read(&value[..V::SIZE])).collect())
    }

    /// The keys present, in no order.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn keys(&self) -> CallResult<Vec<K>> {
        self.table.keys()
    }
}

/// The sockets that an XDP program may redirect to, by queue (`BPF_MAP_TYPE_XSKMAP`, Linux 4.18).
///
/// The kernel forgets a socket when it is closed.
#[derive(Debug)]
pub struct XskMap {
    table: RawMap,
}

/// `BPF_MAP_TYPE_XSKMAP` of `enum bpf_map_type`.
const XSK_MAP: u32 = 17;
/// `struct bpf_map_info` up to and with `max_entries`: type, number, sizes of key and value.
const MAP_INFO_SIZE: usize = 20;

impl XskMap {
    /// Makes a map with room for queues 0 to `queues - 1`.
    ///
    /// bpf(2), `BPF_MAP_CREATE`.
    ///
    /// # Errors
    ///
    /// `EPERM` without the capabilities; `EINVAL` for no queues, or a kernel without AF_XDP.
    pub fn create(name: &str, queues: u32) -> CallResult<Self> {
        Ok(Self {
            table: RawMap::create::<[u32; 1], [u32; 1]>(XSK_MAP, name, queues)?,
        })
    }

    /// Takes over a map made elsewhere, such as a map of the user's own program.
    ///
    /// bpf(2), `BPF_OBJ_GET_INFO_BY_FD`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a descriptor that is no BPF object; `InvalidInput` for one of another type.
    pub fn from_fd(fd: OwnedFd) -> CallResult<Self> {
        const NAME: &str = "the map that was passed";
        let mut info = [0; MAP_INFO_SIZE];
        object_info(fd.as_fd(), NAME, &mut info)?;
        let [kind, _, key_size, value_size, capacity] = <[u32; 5]>::read(&info);
        if (kind, key_size, value_size) != (XSK_MAP, 4, 4) {
            let why = format!("its type is {kind}, and that of an XSKMAP is {XSK_MAP}");
            let odd = std::io::Error::new(std::io::ErrorKind::InvalidInput, why);
            return Err(CallError::new("take an XSKMAP", NAME, odd));
        }
        Ok(Self {
            table: RawMap {
                fd,
                name: NAME.to_owned(),
                capacity,
            },
        })
    }

    /// How many queues it has room for.
    pub fn queues(&self) -> u32 {
        self.table.capacity
    }

    /// Sends what is redirected to `queue` to this AF_XDP socket. Another socket is replaced.
    ///
    /// bpf(2), `BPF_MAP_UPDATE_ELEM` (`net/xdp/xskmap.c`).
    ///
    /// # Errors
    ///
    /// `E2BIG` for a queue that the map has no room for, `EOPNOTSUPP` for a socket of another kind
    /// or one without a receive ring.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> CallResult<()> {
        // A descriptor is never negative, so the cast keeps its value.
        self.table
            .update(&bytes_of(&[queue]), &bytes_of(&[socket.as_raw_fd() as u32]))
    }

    /// Redirects nothing to this queue any more. A queue without a socket is fine, too.
    ///
    /// bpf(2), `BPF_MAP_DELETE_ELEM`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a queue that the map has no room for.
    pub fn clear(&self, queue: u32) -> CallResult<()> {
        self.table.delete(&bytes_of(&[queue]))
    }
}

lends_descriptor!(XskMap, table.fd);

impl<K, V> AsFd for PerCpuMap<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.fd.as_fd()
    }
}

/// A map as the kernel sees it: bytes in, bytes out. Callers pass buffers of the created sizes.
#[derive(Debug)]
struct RawMap {
    fd: OwnedFd,
    name: String,
    capacity: u32,
}

/// The start of the `BPF_MAP_CREATE` part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct CreateAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    capacity: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// The `BPF_MAP_*_ELEM` part of `union bpf_attr`; `value` is also `next_key`.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl RawMap {
    fn create<K: Plain, V: Plain>(kind: u32, name: &str, capacity: u32) -> CallResult<Self> {
        let mut attributes = CreateAttributes {
            kind,
            key_size: u32::try_from(K::SIZE).unwrap_or(u32::MAX),
            value_size: u32::try_from(V::SIZE).unwrap_or(u32::MAX),
            capacity,
            name: object_name(name),
            ..CreateAttributes::default()
        };
        // SAFETY: the layout is the start of the creation part of `union bpf_attr`, without
        // padding, and it has no addresses.
        let fd = unsafe { call(Command::MapCreate, &mut attributes) }
            .and_then(owned)
            .on("bpf BPF_MAP_CREATE", name)?;
        Ok(Self {
            fd,
            name: name.to_owned(),
            capacity,
        })
    }

    fn lookup(&self, key: &[u8], value: &mut [u8]) -> CallResult<bool> {
        let element = (key.as_ptr() as u64, value.as_mut_ptr() as u64);
        // SAFETY: `value` has the size that the kernel copies for this map.
        let answer = unsafe { self.element(Command::MapLookup, element) };
        self.found("bpf BPF_MAP_LOOKUP_ELEM", answer)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> CallResult<()> {
        let element = (key.as_ptr() as u64, value.as_ptr() as u64);
        // SAFETY: the kernel reads a key and a value of the sizes that the map was created with,
        // which these are.
        unsafe { self.element(Command::MapUpdate, element) }
            .on("bpf BPF_MAP_UPDATE_ELEM", &self.name)
    }

    fn delete(&self, key: &[u8]) -> CallResult<()> {
        // SAFETY: the kernel reads a key of the size that the map was created with, and no value.
        let answer = unsafe { self.element(Command::MapDelete, (key.as_ptr() as u64, 0)) };
        self.found("bpf BPF_MAP_DELETE_ELEM", answer).map(|_| ())
    }

    fn keys<K: Plain>(&self) -> CallResult<Vec<K>> {
        let mut keys = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        // Keys removed meanwhile make the kernel start again: the bound makes that end.
        for _ in 0..self.capacity {
            let mut next = vec![0; K::SIZE];
            let previous = last.as_ref().map_or(0, |key| key.as_ptr() as u64);
            let element = (previous, next.as_mut_ptr() as u64);
            // SAFETY: the previous key is null or of key size, and `next` has room for a key.
            let answer = unsafe { self.element(Command::MapNextKey, element) };
            if !self.found("bpf BPF_MAP_GET_NEXT_KEY", answer)? {
                break;
            }
            keys.push(K::read(&next));
            last = Some(next);
        }
        Ok(keys)
    }

    /// # Safety
    ///
    /// Both addresses must be valid for what `command` reads and writes there.
    unsafe fn element(&self, command: Command, (key, value): (u64, u64)) -> std::io::Result<()> {
        let mut attributes = ElementAttributes {
            map: self.fd.as_raw_fd() as u32,
            reserved: 0,
            key,
            value,
            flags: 0,
        };
        // SAFETY: the layout is the element part of `union bpf_attr` with its padding spelled out;
        // the caller vouches for the addresses.
        unsafe { call(command, &mut attributes) }.map(|_| ())
    }

    fn found(&self, call: &'static str, answer: std::io::Result<()>) -> CallResult<bool> {
        match answer {
            Ok(()) => Ok(true),
            Err(refusal) if refusal.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(refusal) => Err(CallError::new(call, &self.name, refusal)),
        }
    }
}

fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::SIZE];
    value.write(&mut bytes);
    bytes
}

/// Room for the values of a per-CPU map. The kernel copies one value per possible CPU, without
/// gaps; where the numbering has holes the highest number is more than enough and the rest is zero.
fn possible_cpus() -> CallResult<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(PATH).on("read", PATH)?;
    last_cpu(&text)
        .and_then(|last| last.checked_add(1))
        .ok_or_else(|| {
            let odd = std::io::Error::new(std::io::ErrorKind::InvalidData, text.trim().to_owned());
            CallError::new("parse", PATH, odd)
        })
}

fn last_cpu(list: &str) -> Option<usize> {
    let last = list.trim().rsplit([',', '-']).next()?;
    last.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_rows_survive_the_way_through_bytes() {
        assert_eq!(
            <[u64; 2]>::read(&bytes_of(&[1u64, u64::MAX])),
            [1, u64::MAX]
        );
        assert_eq!(<[u32; 3]>::read(&bytes_of(&[1u32, 2, 3])), [1, 2, 3]);
        assert_eq!(<[u32; 3]>::SIZE, 12);
    }

    #[test]
    fn the_highest_cpu_ends_the_list() {
        assert_eq!(last_cpu("0\n"), Some(0));
        assert_eq!(last_cpu("0-127\n"), Some(127));
        assert_eq!(last_cpu("0-3,8,10-11"), Some(11));
        assert_eq!(last_cpu("\n"), None);
    }
}
