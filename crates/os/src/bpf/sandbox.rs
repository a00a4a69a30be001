//! Runs BPF programs in user space, for unit tests: no privilege, no kernel, made-up memory.
//!
//! `rbpf` interprets the instructions; this module plays the kernel around them: the helpers, maps,
//! and kernel memory at addresses that exist only here. The verifier is not played: that a program
//! is acceptable to the kernel only a test that loads it can show.
//!
//! A program may be wrong: neither `rbpf` nor a helper touches memory but the program's stack, its
//! context and the values of its maps. So a run is safe, whatever the program.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::asm::{Assembler, Helper, R1, R10};
use super::{AssemblyError, Instruction};

mod packet;

use packet::LowPacket;
pub use packet::PacketContext;

/// The world that a program under test sees.
#[derive(Debug, Default)]
pub struct Sandbox {
    memory: BTreeMap<u64, Vec<u8>>,
    maps: BTreeMap<RawFd, SandboxMap>,
    network: Vec<u8>,
    /// Where the running program may read and write: its stack, as soon as it is known, its
    /// context, and the values of its maps.
    stack: Option<Range<u64>>,
    context: Option<Range<u64>>,
    packet: Option<PacketFacts>,
    /// The last packet as its program left it.
    packet_after: Vec<u8>,
}

/// The packet of the running program, as helpers see it.
#[derive(Clone, Copy, Debug)]
struct PacketFacts {
    start: u64,
    bytes: u64,
    /// The address of `data_end` in the context.
    end_field: u64,
}

/// A hash map whose values stay in place, because programs keep pointers to them.
#[derive(Debug)]
struct SandboxMap {
    key_size: usize,
    value_size: usize,
    capacity: usize,
    slots: BTreeMap<Vec<u8>, usize>,
    values: Vec<Cell<u8>>,
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
            values: cells(&vec![0; capacity * value_size]),
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

    /// Runs a program to its end with `R1` pointing to `context`, and returns its result.
    ///
    /// # Errors
    ///
    /// The interpreter's objections: a memory access outside stack, context and map values, an
    /// unknown instruction or helper. A helper that gets such an address answers `-EFAULT`.
    pub fn run(
        &mut self,
        program: &[Instruction],
        context: &mut [u8],
    ) -> Result<u64, std::io::Error> {
        self.execute(program, context, &mut [])
    }

    /// Runs a program that reads a packet through the pointers of its context. Only the first
    /// `linear_bytes` are where the pointers say; the kernel's verifier, which is not played here,
    /// keeps programs from what is behind.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), also for an access outside the packet; no room below 4 GiB.
    pub fn run_on_packet(
        &mut self,
        program: &[Instruction],
        kind: PacketContext,
        packet: &[u8],
        linear_bytes: usize,
    ) -> Result<u64, std::io::Error> {
        let mut packet = LowPacket::new(packet, linear_bytes)?;
        let mut context = kind.bytes(&packet);
        self.packet = Some(PacketFacts {
            start: packet.linear().start,
            bytes: packet.len() as u64,
            // Relative to the context until that has its address.
            end_field: kind.data_offset() as u64 + 4,
        });
        let answer = self.execute(program, &mut context, packet.bytes_mut());
        self.packet = None;
        self.packet_after = packet.bytes_mut().to_vec();
        answer
    }

    /// The packet of the last [`run_on_packet`](Self::run_on_packet) as the program left it.
    pub fn packet_after(&self) -> &[u8] {
        &self.packet_after
    }

    fn execute(
        &mut self,
        program: &[Instruction],
        context: &mut [u8],
        packet: &mut [u8],
    ) -> Result<u64, std::io::Error> {
        let room = cells(context);
        let context_range = addresses(&room);
        let prologue = prologue(context_range.start).map_err(std::io::Error::other)?;
        let whole = prologue.iter().chain(program);
        let bytes: Vec<u8> = whole.flat_map(Instruction::bytes).collect();
        let mut machine = rbpf::EbpfVmRaw::new(Some(&bytes))?;
        let helpers: [(u32, rbpf::Helper); 10] = [
            (Helper::ClockNs as u32, clock_ns),
            (Helper::ClockTaiNs as u32, clock_tai_ns),
            (Helper::MapLookup as u32, map_lookup),
            (Helper::MapUpdate as u32, map_update),
            (Helper::SkbLoadBytesRelative as u32, skb_load_bytes_relative),
            (Helper::ProbeReadKernel as u32, probe_read_kernel),
            (Helper::RedirectMap as u32, redirect_map),
            (Helper::XdpBufferLength as u32, xdp_buffer_length),
            (Helper::SkbPullData as u32, skb_pull_data),
            (STACK_KNOWN, stack_known),
        ];
        for (number, function) in helpers {
            machine.register_helper(number, function)?;
        }
        for map in self.maps.values() {
            machine.register_allowed_memory(addresses(&map.values));
        }
        machine.register_allowed_memory(context_range.clone());
        if let Some(facts) = &mut self.packet {
            facts.end_field += context_range.start;
        }
        self.context = Some(context_range);
        RUNNING.replace(std::mem::take(self));
        let answer = machine.execute_program(packet);
        *self = RUNNING.take();
        (self.stack, self.context) = (None, None);
        for (byte, cell) in context.iter_mut().zip(&room) {
            *byte = cell.get();
        }
        answer
    }

    /// Whether the running program may touch all `length` bytes at this address.
    fn owns(&self, address: u64, length: usize) -> bool {
        let maps = self.maps.values().map(|map| addresses(&map.values));
        let mut pieces = maps.chain(self.stack.clone()).chain(self.context.clone());
        let end = address.checked_add(length as u64);
        end.is_some_and(|end| pieces.any(|piece| piece.start <= address && end <= piece.end))
    }

    /// Bytes that the running program points to.
    fn peek(&self, from: u64, length: usize) -> Option<Vec<u8>> {
        if !self.owns(from, length) {
            return None;
        }
        let mut bytes = vec![0; length];
        // SAFETY: `owns` has found the whole source in memory that is alive during the run: the
        // stack of `rbpf`, or cells. There is no exclusive reference to it. The destination is new
        // and has this length.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), length) };
        Some(bytes)
    }

    /// Copies what a helper found, or zeros if it found nothing, as the kernel's helpers do, to
    /// where the running program wants it.
    fn copy_out(&self, to: u64, length: usize, found: Option<&[u8]>) -> u64 {
        if !self.owns(to, length) {
            return FAULT;
        }
        let zeros = vec![0; if found.is_some() { 0 } else { length }];
        let bytes = found.unwrap_or(&zeros);
        if bytes.len() != length {
            return FAULT;
        }
        // SAFETY: the source is `length` bytes long, and no program can point to it. `owns` has
        // found the whole destination in memory that is alive during the run: the stack of `rbpf`,
        // or cells. There is no exclusive reference to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, length) };
        if found.is_some() { 0 } else { FAULT }
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
const OUT_OF_MEMORY: u64 = -(libc::ENOMEM as i64) as u64;
const FAULT: u64 = -(libc::EFAULT as i64) as u64;
/// The flag of an update that must not replace (`BPF_NOEXIST`).
const ONLY_NEW: u64 = 1;

fn with_map(name: u64, verb: impl FnOnce(&mut Sandbox, RawFd) -> Option<u64>) -> Option<u64> {
    RUNNING.with_borrow_mut(|world| verb(world, RawFd::try_from(name).ok()?))
}

fn map_lookup(name: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    with_map(name, |world, name| {
        let map = world.maps.get(&name)?;
        let slot = *map.slots.get(&world.peek(key, map.key_size)?)?;
        Some(addresses(&map.values[slot * map.value_size..]).start)
    })
    .unwrap_or(0)
}

fn map_update(name: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    with_map(name, |world, name| {
        let map = world.maps.get(&name)?;
        let key = world.peek(key, map.key_size)?;
        let value = world.peek(value, map.value_size)?;
        Some(world.maps.get_mut(&name)?.insert(key, value, flags))
    })
    .unwrap_or(FAULT)
}

/// The fixed answer of `bpf_ktime_get_ns`.
pub const CLOCK_NS: u64 = 0x1234_5678_9abc;
/// The hour that it always is here: 2^40 ns and a little since 1970, so that more than 40 bits count.
pub const CLOCK_TAI_NS: u64 = (1 << 40) + 0x12_3456_7890;

fn clock_ns(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    CLOCK_NS
}

fn clock_tai_ns(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    CLOCK_TAI_NS
}

fn probe_read_kernel(to: u64, length: u64, from: u64, _: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        world.copy_out(to, length, world.kernel_bytes(from, length))
    })
}

fn skb_load_bytes_relative(_: u64, offset: u64, to: u64, length: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = start.checked_add(length);
        let bytes = end.and_then(|end| world.network.get(start..end));
        world.copy_out(to, length, bytes)
    })
}

/// The answer of `bpf_redirect_map` that makes the driver redirect the frame (`XDP_REDIRECT`).
const REDIRECT: u64 = 4;
/// The flags that are the answer for a key that is not in the map.
const REDIRECT_FALLBACK: u64 = 3;

fn redirect_map(name: u64, key: u64, flags: u64, _: u64, _: u64) -> u64 {
    with_map(name, |world, name| {
        // Maps to redirect to have keys of 32 bits.
        let key = (key as u32).to_ne_bytes();
        world.maps.get(&name)?.slots.get(key.as_slice())?;
        Some(REDIRECT)
    })
    .unwrap_or(flags & REDIRECT_FALLBACK)
}

fn xdp_buffer_length(_: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| world.packet.map_or(0, |packet| packet.bytes))
}

/// Makes more of the packet linear, by moving `data_end`.
fn skb_pull_data(_: u64, length: u64, _: u64, _: u64, _: u64) -> u64 {
    RUNNING.with_borrow(|world| {
        let Some(packet) = world.packet.filter(|packet| length <= packet.bytes) else {
            return OUT_OF_MEMORY;
        };
        let end = (packet.start + length) as u32;
        world.copy_out(packet.end_field, 4, Some(&end.to_ne_bytes()))
    })
}

/// Records where the stack ends, which only a running program knows.
///
/// The prologue calls this first. Later calls, by the program itself, change nothing.
fn stack_known(end: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    RUNNING.with_borrow_mut(|world| {
        let start = |end| end - rbpf::ebpf::STACK_SIZE as u64;
        world.stack.get_or_insert_with(|| start(end)..end);
    });
    0
}

/// The number of that helper, far above those of the kernel.
const STACK_KNOWN: u32 = 0x7fff_0000;

/// Runs before every program: records the stack's end, and makes `R1` point to the context.
fn prologue(context: u64) -> Result<Vec<Instruction>, AssemblyError> {
    let mut instructions = Assembler::new().set(R1, R10).finish()?;
    instructions.push(Instruction {
        code: rbpf::ebpf::CALL,
        registers: 0,
        offset: 0,
        immediate: STACK_KNOWN as i32,
    });
    instructions.extend(Assembler::new().set64(R1, context).finish()?);
    Ok(instructions)
}

/// Memory that programs change through its address, and a margin: `rbpf` looks at the first byte of
/// an access only, so that one of eight bytes may reach seven beyond the end.
fn cells(bytes: &[u8]) -> Vec<Cell<u8>> {
    let margin = [0; MARGIN];
    bytes
        .iter()
        .chain(&margin)
        .copied()
        .map(Cell::new)
        .collect()
}

const MARGIN: usize = 7;

/// Where cells are, without the margin.
fn addresses(cells: &[Cell<u8>]) -> Range<u64> {
    let start = cells.as_ptr().expose_provenance() as u64;
    start..start + cells.len().saturating_sub(MARGIN) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::asm::{Assembler, Condition, Operation, R0, R1, R2, R3, R4, R6, R10, Size};
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

    /// Calls a helper with these arguments, and returns its answer.
    fn answer(helper: Helper, arguments: [u64; 4], world: &mut Sandbox) -> u64 {
        let mut program = Assembler::new();
        for (register, value) in [R1, R2, R3, R4].into_iter().zip(arguments) {
            program.set64(register, value);
        }
        let program = program.call(helper).exit().finish();
        let program = program.expect("the program assembles");
        world.run(&program, &mut [0; 4]).expect("the program runs")
    }

    #[test]
    fn helpers_keep_away_from_memory_that_is_not_the_programs() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let name = file.as_raw_fd() as u64;
        let mut world = Sandbox::new();
        world.add_map(file.as_fd(), 4, 4, 2);
        world.place(0xffff_8000_0000_0000, vec![1; 8]);
        world.set_network(vec![1; 8]);
        let foreign = [7u8; 8];
        let kernel = 0xffff_8000_0000_0000;
        for address in [0, 1, u64::MAX, foreign.as_ptr().expose_provenance() as u64] {
            for arguments in [
                [address, 8, kernel, 0],
                [address, 8, 1, 0],
                [address, u64::MAX, kernel, 0],
            ] {
                assert_eq!(
                    answer(Helper::ProbeReadKernel, arguments, &mut world),
                    FAULT
                );
            }
            let arguments = [0, 0, address, 8];
            assert_eq!(
                answer(Helper::SkbLoadBytesRelative, arguments, &mut world),
                FAULT
            );
            let arguments = [name, address, address, 0];
            assert_eq!(answer(Helper::MapUpdate, arguments, &mut world), FAULT);
            assert_eq!(answer(Helper::MapLookup, arguments, &mut world), 0);
        }
        assert_eq!(foreign, [7; 8]);
        assert!(world.entries(file.as_fd()).is_empty());
    }

    #[test]
    fn the_end_of_the_stack_is_the_end_of_what_a_helper_fills() {
        for (distance, expected) in [(-8, 0), (-7, FAULT), (-512, 0), (-513, FAULT)] {
            let mut program = Assembler::new();
            program.set(R1, R10).compute(Operation::Add, R1, distance);
            program.set(R2, 8).set64(R3, 0xffff_8000_0000_0000);
            program.call(Helper::ProbeReadKernel).exit();
            let program = program.finish().expect("the program assembles");
            let mut world = Sandbox::new();
            world.place(0xffff_8000_0000_0000, vec![1; 8]);
            assert_eq!(
                world.run(&program, &mut []).expect("the program runs"),
                expected
            );
        }
    }

    #[test]
    fn a_program_cannot_claim_a_stack() {
        let mut foreign = [7u8; 512];
        let end = foreign.as_mut_ptr().expose_provenance() as u64 + 512;
        let call = Instruction {
            code: rbpf::ebpf::CALL,
            immediate: STACK_KNOWN as i32,
            ..Instruction::default()
        };
        let mut program = Assembler::new()
            .set64(R1, end)
            .finish()
            .expect("it assembles");
        program.push(call);
        let mut rest = Assembler::new();
        rest.set64(R1, end - 8).set(R2, 8).set(R3, 0);
        rest.call(Helper::ProbeReadKernel).exit();
        program.extend(rest.finish().expect("it assembles"));
        let answer = Sandbox::new().run(&program, &mut []);
        assert_eq!(answer.expect("the program runs"), FAULT);
        assert_eq!(foreign, [7; 512]);
    }

    /// `return data + 2 <= data_end ? *(__u8 *)(data + 1) : bpf_xdp_get_buff_len(context);`
    fn reading_program() -> Vec<Instruction> {
        let mut program = Assembler::new();
        program.load(Size::Word, R2, R1, 0);
        program.load(Size::Word, R3, R1, 4);
        program.set(R4, R2).compute(Operation::Add, R4, 2);
        program.jump_if(Condition::Above, R4, R3, "short");
        program.load(Size::Byte, R0, R2, 1).exit();
        program.label("short").call(Helper::XdpBufferLength).exit();
        program.finish().expect("the program assembles")
    }

    #[test]
    fn packets_are_read_up_to_the_end_of_their_first_buffer() {
        let kind = PacketContext::Xdp { queue: 0 };
        for (packet, linear, expected) in [
            (&[7, 8, 9][..], 3, 8),
            (&[7, 8, 9], 2, 8),
            (&[7, 8, 9], 1, 3),
            (&[], 0, 0),
        ] {
            let mut world = Sandbox::new();
            let answer = world.run_on_packet(&reading_program(), kind, packet, linear);
            assert_eq!(answer.expect("the program runs"), expected);
        }
    }

    #[test]
    fn an_access_behind_the_packet_is_an_error() {
        let mut program = Assembler::new();
        program.load(Size::Word, R2, R1, 0);
        program.load(Size::Half, R0, R2, 1).exit();
        let program = program.finish().expect("the program assembles");
        let kind = PacketContext::Xdp { queue: 0 };
        let run = |packet: &[u8]| Sandbox::new().run_on_packet(&program, kind, packet, 3);
        assert!(run(&[0, 1, 2]).is_ok());
        assert!(run(&[0, 1]).is_err());
    }

    #[test]
    fn redirects_need_an_entry_in_the_map() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let mut program = Assembler::new();
        program.load(Size::Word, R2, R1, 16);
        program.set_map(R1, file.as_fd()).set(R3, 2);
        program.call(Helper::RedirectMap).exit();
        let program = program.finish().expect("the program assembles");
        let mut world = Sandbox::new();
        world.add_map(file.as_fd(), 4, 4, 2);
        world.insert(file.as_fd(), &1u32.to_ne_bytes(), &[0; 4]);
        for (queue, expected) in [(0, 2), (1, REDIRECT)] {
            let kind = PacketContext::Xdp { queue };
            let answer = world.run_on_packet(&program, kind, &[0; 14], 14);
            assert_eq!(answer.expect("the program runs"), expected);
        }
    }

    #[test]
    fn a_pulled_packet_has_a_later_end() {
        let mut program = Assembler::new();
        program.set(R6, R1);
        program.set(R2, 3).call(Helper::SkbPullData);
        program.load(Size::Word, R0, R6, 80);
        program.load(Size::Word, R1, R6, 76);
        program.compute(Operation::Subtract, R0, R1).exit();
        let program = program.finish().expect("the program assembles");
        for (packet, expected) in [(&[1, 2, 3, 4][..], 3), (&[1, 2], 1)] {
            let mut world = Sandbox::new();
            let kind = PacketContext::Classifier;
            let answer = world.run_on_packet(&program, kind, packet, 1);
            assert_eq!(answer.expect("the program runs"), expected);
        }
    }

    #[test]
    fn what_a_program_writes_to_its_context_is_seen() {
        let mut program = Assembler::new();
        program.load(Size::Byte, R0, R1, 1);
        program.store(Size::Byte, R1, 2, R0).exit();
        let program = program.finish().expect("the program assembles");
        let mut context = [1, 2, 3];
        let answer = Sandbox::new().run(&program, &mut context);
        assert_eq!((answer.expect("the program runs"), context), (2, [1, 2, 2]));
    }
}
