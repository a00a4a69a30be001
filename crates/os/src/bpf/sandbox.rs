//! Runs BPF programs in user space, for unit tests: no privilege, no kernel, made-up memory.
//!
//! `rbpf` interprets the instructions; this module plays the kernel around them: the helpers, maps,
//! and kernel memory at addresses that exist only here. The verifier is not played: that a program
//! is acceptable to the kernel only a test that loads it can show.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::Instruction;
use super::asm::Helper;

/// The world that a program under test sees.
#[derive(Debug, Default)]
pub struct Sandbox {
    memory: BTreeMap<u64, Vec<u8>>,
    maps: BTreeMap<RawFd, SandboxMap>,
    network: Vec<u8>,
}

/// A hash map whose values stay in place, because programs keep pointers to them.
#[derive(Debug)]
struct SandboxMap {
    key_size: usize,
    value_size: usize,
    capacity: usize,
    slots: BTreeMap<Vec<u8>, usize>,
    values: Box<[Cell<u8>]>,
}

thread_local! {
    /// Helpers are plain functions, so the world of the running program waits for them here.
    static RUNNING: RefCell<Sandbox> = RefCell::new(Sandbox::default());
}

impl Sandbox {
    /// An empty world.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts bytes at an address of kernel memory, for `bpf_probe_read_kernel`.
    pub fn place(&mut self, address: u64, bytes: Vec<u8>) -> &mut Self {
        self.memory.insert(address, bytes);
        self
    }

    /// The packet from its network header on, for `bpf_skb_load_bytes_relative`.
    pub fn set_network(&mut self, packet: Vec<u8>) -> &mut Self {
        self.network = packet;
        self
    }

    /// Adds a hash map under the number that [`Assembler::set_map`](super::Assembler::set_map) was
    /// given. Any open file will do, its number is only a name here.
    pub fn add_map(
        &mut self,
        name: BorrowedFd<'_>,
        key_size: usize,
        value_size: usize,
        capacity: usize,
    ) -> &mut Self {
        let map = SandboxMap {
            key_size,
            value_size,
            capacity,
            slots: BTreeMap::new(),
            values: vec![Cell::new(0); capacity * value_size].into(),
        };
        self.maps.insert(name.as_raw_fd(), map);
        self
    }

    /// Puts an entry into a map. Arrays, whose entries the kernel makes, are played this way.
    pub fn insert(&mut self, name: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> &mut Self {
        if let Some(map) = self.maps.get_mut(&name.as_raw_fd()) {
            map.insert(key.to_vec(), value.to_vec(), 0);
        }
        self
    }

    /// The keys and values of a map, in the order of the keys' bytes.
    pub fn entries(&self, name: BorrowedFd<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(map) = self.maps.get(&name.as_raw_fd()) else {
            return Vec::new();
        };
        let value = |slot: usize| {
            let cells = &map.values[slot * map.value_size..][..map.value_size];
            cells.iter().map(Cell::get).collect()
        };
        let entries = map.slots.iter();
        entries.map(|(k, &slot)| (k.clone(), value(slot))).collect()
    }

    /// Runs a program to its end with `R1` pointing to `context`, and says what it returned.
    ///
    /// # Errors
    ///
    /// What the interpreter objects to: a memory access outside stack, context and map values, an
    /// unknown instruction or helper.
    pub fn run(
        &mut self,
        program: &[Instruction],
        context: &mut [u8],
    ) -> Result<u64, std::io::Error> {
        let bytes: Vec<u8> = program.iter().flat_map(Instruction::bytes).collect();
        let mut machine = rbpf::EbpfVmRaw::new(Some(&bytes))?;
        let helpers: [(Helper, rbpf::Helper); 4] = [
            (Helper::MapLookup, map_lookup),
            (Helper::MapUpdate, map_update),
            (Helper::SkbLoadBytesRelative, skb_load_bytes_relative),
            (Helper::ProbeReadKernel, probe_read_kernel),
        ];
        for (number, function) in helpers {
            machine.register_helper(number as u32, function)?;
        }
        for map in self.maps.values() {
            let start = map.values.as_ptr() as u64;
            machine.register_allowed_memory(start..start + map.values.len() as u64);
        }
        RUNNING.replace(std::mem::take(self));
        let answer = machine.execute_program(context);
        *self = RUNNING.take();
        answer
    }

    /// `length` bytes of kernel memory, which must be inside one placed piece.
    fn kernel_bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let (start, piece) = self.memory.range(..=address).next_back()?;
        let offset = usize::try_from(address - start).ok()?;
        piece.get(offset..offset.checked_add(length)?)
    }
}

impl SandboxMap {
    fn insert(&mut self, key: Vec<u8>, value: Vec<u8>, flags: u64) -> u64 {
        let slot = match self.slots.get(&key) {
            Some(_) if flags == ONLY_NEW => return KEY_EXISTS,
            Some(&slot) => slot,
            None if self.slots.len() == self.capacity => return FULL,
            None => self.slots.len(),
        };
        let cells = &self.values[slot * self.value_size..][..self.value_size];
        for (cell, byte) in cells.iter().zip(value) {
            cell.set(byte);
        }
        self.slots.insert(key, slot);
        0
    }
}

/// Answers of helpers that failed, as the kernel gives them: a negative `errno`.
const KEY_EXISTS: u64 = -(libc::EEXIST as i64) as u64;
const FULL: u64 = -(libc::E2BIG as i64) as u64;
const FAULT: u64 = -(libc::EFAULT as i64) as u64;
/// The flag of an update that must not replace (`BPF_NOEXIST`).
const ONLY_NEW: u64 = 1;

fn with_map(name: u64, verb: impl FnOnce(&mut SandboxMap) -> u64) -> u64 {
    RUNNING.with_borrow_mut(|world| {
        let name = RawFd::try_from(name).unwrap_or(-1);
        world.maps.get_mut(&name).map_or(FAULT, verb)
    })
}

fn map_lookup(name: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    with_map(name, |map| match map.slots.get(&peek(key, map.key_size)) {
        Some(slot) => map.values[slot * map.value_size..].as_ptr() as u64,
        None => 0,
    })
}

fn map_update(name: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    with_map(name, |map| {
        let (key, value) = (peek(key, map.key_size), peek(value, map.value_size));
        map.insert(key, value, flags)
    })
}

fn probe_read_kernel(to: u64, length: u64, from: u64, _: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        copy_out(to, length, world.kernel_bytes(from, length))
    })
}

fn skb_load_bytes_relative(_: u64, offset: u64, to: u64, length: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = start.checked_add(length);
        let bytes = end.and_then(|end| world.network.get(start..end));
        copy_out(to, length, bytes)
    })
}

/// Copies what a helper found, or zeros if it found nothing, as the kernel's helpers do.
fn copy_out(to: u64, length: usize, found: Option<&[u8]>) -> u64 {
    let zeros = vec![0; if found.is_some() { 0 } else { length }];
    let bytes = found.unwrap_or(&zeros);
    // SAFETY: the program under test passes an address on its stack with at least the room that it
    // asked for; the verifier checks that when a test loads the same program into the kernel.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
    if found.is_some() { 0 } else { FAULT }
}

fn peek(from: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // SAFETY: the program under test passes the address of a key or value of the map's size on its
    // stack, or in a map; the verifier checks that when a test loads the program into the kernel.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), length) };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::asm::{Assembler, Condition, Operation, R0, R1, R2, R3, R4, R10, Size};
    use std::os::fd::AsFd;

    /// `key = *(u32 *)context; value = map[key]; if (!value) { map[key] = 0; value = map[key] } ++*value`
    fn counting_program(map: BorrowedFd<'_>) -> Vec<Instruction> {
        let mut program = Assembler::new();
        program.load(Size::Word, R2, R1, 0);
        program.store(Size::Word, R10, -4, R2);
        program.store(Size::Double, R10, -16, 0);
        program.set_map(R1, map).set(R2, R10);
        program.compute(Operation::Add, R2, -4);
        program.set(R3, R10).compute(Operation::Add, R3, -16);
        program.set(R4, 1).call(Helper::MapUpdate);
        program.set_map(R1, map).set(R2, R10);
        program.compute(Operation::Add, R2, -4);
        program.call(Helper::MapLookup);
        program.jump_if(Condition::Equal, R0, 0, "out");
        program.load(Size::Double, R1, R0, 0);
        program.compute(Operation::Add, R1, 1);
        program.store(Size::Double, R0, 0, R1);
        program.label("out").set(R0, 0).exit();
        program.finish().expect("the program assembles")
    }

    #[test]
    fn maps_keep_their_values_between_runs_and_fill_up() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let program = counting_program(file.as_fd());
        let mut world = Sandbox::new();
        world.add_map(file.as_fd(), 4, 8, 2);
        for key in [7u8, 9, 7, 7, 8] {
            world
                .run(&program, &mut [key, 0, 0, 0])
                .expect("the program runs");
        }
        let counts: Vec<(u8, u8)> = world
            .entries(file.as_fd())
            .iter()
            .map(|(key, value)| (key[0], value[0]))
            .collect();
        assert_eq!(counts, [(7, 3), (9, 1)]);
    }

    #[test]
    fn kernel_memory_that_was_not_placed_is_a_fault() {
        let mut program = Assembler::new();
        program.set(R1, R10).compute(Operation::Add, R1, -8);
        program.set(R2, 8).set64(R3, 0xffff_8000_0000_0001);
        program.call(Helper::ProbeReadKernel);
        program.jump_if(Condition::NotEqual, R0, 0, "out");
        program.load(Size::Double, R0, R10, -8);
        program.label("out").exit();
        let program = program.finish().expect("the program assembles");

        let mut world = Sandbox::new();
        world.place(0xffff_8000_0000_0000, vec![0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let answer = world.run(&program, &mut [0]).expect("the program runs");
        assert_eq!(answer.to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);

        world.place(0xffff_8000_0000_0000, vec![0; 8]);
        let answer = world.run(&program, &mut [0]).expect("the program runs");
        assert_eq!(answer, FAULT);
    }
}
