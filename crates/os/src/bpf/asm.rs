//! A typed assembler for BPF programs.
//!
//! Encoding: `Documentation/bpf/standardization/instruction-set.rst` and
//! `include/uapi/linux/bpf.h` of the kernel. Jumps name labels; [`Assembler::finish`] resolves them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Collects instructions; every method appends one and returns the assembler for chaining.
///
/// ```
/// use mpps_os::bpf::asm::{Assembler, Condition, R0, R1};
///
/// // if (r1 == 0) return 1; return 0;
/// let mut program = Assembler::new();
/// program.jump_if(Condition::Equal, R1, 0, "zero");
/// program.set(R0, 0).exit();
/// program.label("zero").set(R0, 1).exit();
/// assert_eq!(program.finish().unwrap().len(), 5);
/// ```
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    labels: HashMap<Label, usize>,
    jumps: Vec<(usize, Label)>,
    defined_twice: Option<Label>,
}

/// The name of a place in a program.
pub type Label = Cow<'static, str>;

/// One eight-byte slot of a program (`struct bpf_insn`); a 64-bit constant takes two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// Class, operation and source of the operand.
    pub code: u8,
    /// Destination in the low four bits, source in the high four.
    pub registers: u8,
    /// Distance of a jump in slots, or of a memory access in bytes.
    pub offset: i16,
    /// The constant.
    pub immediate: i32,
}

/// One of the eleven registers.
///
/// `R0` returns, `R1` to `R5` pass arguments and are lost in calls, `R6` to `R9` survive calls,
/// `R10` is the read-only end of the 512-byte stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

/// Return value of a call and of the program.
pub const R0: Register = Register(0);
/// First argument; the context when the program starts.
pub const R1: Register = Register(1);
/// Second argument.
pub const R2: Register = Register(2);
/// Third argument.
pub const R3: Register = Register(3);
/// Fourth argument.
pub const R4: Register = Register(4);
/// Fifth argument.
pub const R5: Register = Register(5);
/// Survives calls.
pub const R6: Register = Register(6);
/// Survives calls.
pub const R7: Register = Register(7);
/// Survives calls.
pub const R8: Register = Register(8);
/// Survives calls.
pub const R9: Register = Register(9);
/// Frame pointer: the stack is below it.
pub const R10: Register = Register(10);

/// How many bytes a load or store moves; loads fill the rest of the register with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Size {
    /// Four bytes (`BPF_W`).
    Word = 0x00,
    /// Two bytes (`BPF_H`).
    Half = 0x08,
    /// One byte (`BPF_B`).
    Byte = 0x10,
    /// Eight bytes (`BPF_DW`).
    Double = 0x18,
}

/// Arithmetic on a whole 64-bit register, or on its lower half
/// ([`Assembler::compute32`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// `to += operand`
    Add = 0x00,
    /// `to -= operand`
    Subtract = 0x10,
    /// `to *= operand`
    Multiply = 0x20,
    /// `to /= operand`, unsigned; division by zero gives zero.
    Divide = 0x30,
    /// `to |= operand`
    Or = 0x40,
    /// `to &= operand`
    And = 0x50,
    /// `to <<= operand`
    ShiftLeft = 0x60,
    /// `to >>= operand`, filling with zeros.
    ShiftRight = 0x70,
    /// `to %= operand`, unsigned; modulo zero leaves `to` as it is.
    Modulo = 0x90,
    /// `to ^= operand`
    Xor = 0xa0,
    /// `to = operand`
    Move = 0xb0,
}

/// Comparisons of a whole 64-bit register, or of its lower half
/// ([`Assembler::jump_if32`]); unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// `left == right`
    Equal = 0x10,
    /// `left > right`
    Above = 0x20,
    /// `left >= right`
    AtLeast = 0x30,
    /// `left & right` has a bit that is one.
    AnyBit = 0x40,
    /// `left != right`
    NotEqual = 0x50,
    /// `left < right`
    Below = 0xa0,
    /// `left <= right`
    AtMost = 0xb0,
}

/// The second operand: a register or a constant (sign-extended to 64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Register(Register),
    /// A constant.
    Immediate(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(immediate: i32) -> Self {
        Self::Immediate(immediate)
    }
}

/// Functions of the kernel that programs may call, numbered as in `___BPF_FUNC_MAPPER` of
/// `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Helper {
    /// `void *bpf_map_lookup_elem(map, key)`
    MapLookup = 1,
    /// `long bpf_map_update_elem(map, key, value, flags)`
    MapUpdate = 2,
    /// `u64 bpf_ktime_get_ns(void)`: nanoseconds of `CLOCK_MONOTONIC`.
    ClockNs = 5,
    /// `long bpf_skb_vlan_push(skb, protocol, tci)`
    SkbVlanPush = 18,
    /// `long bpf_redirect(interface_index, flags)`
    Redirect = 23,
    /// `u64 bpf_get_current_task(void)`: the address of the kernel's `struct task_struct`.
    CurrentTask = 35,
    /// `long bpf_skb_pull_data(skb, length)`
    SkbPullData = 39,
    /// `u64 bpf_get_socket_cookie(sock)`, for programs of function exits (Linux 5.12)
    SocketCookie = 46,
    /// `long bpf_redirect_map(map, key, flags)`
    RedirectMap = 51,
    /// `long bpf_xdp_adjust_meta(xdp, delta)`
    XdpAdjustMeta = 54,
    /// `long bpf_skb_load_bytes_relative(skb, offset, to, length, start_header)`
    SkbLoadBytesRelative = 68,
    /// `long bpf_probe_read_kernel(to, size, from)`
    ProbeReadKernel = 113,
    /// `u64 bpf_xdp_get_buff_len(xdp)` (Linux 5.18)
    XdpBufferLength = 188,
    /// `u64 bpf_ktime_get_tai_ns()`: `CLOCK_TAI` (Linux 6.1).
    ClockTaiNs = 208,
}

/// A program that cannot be assembled: a mistake in the program, never in the machine it runs on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// A jump names a label that the program does not define.
    #[error("jump to the unknown label {0}")]
    UnknownLabel(Label),
    /// Two places have the same label.
    #[error("label {0} is defined twice")]
    DuplicateLabel(Label),
    /// A jump spans more than 32 767 slots.
    #[error("label {0} is too far from a jump to it")]
    JumpTooFar(Label),
}

impl From<AssemblyError> for crate::CallError {
    fn from(error: AssemblyError) -> Self {
        Self::new(
            "assemble",
            "BPF program",
            std::io::Error::new(std::io::ErrorKind::InvalidInput, error),
        )
    }
}

/// Instruction classes (`BPF_CLASS`), the low three bits of the code.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
/// Memory access modes (`BPF_MEM`, `BPF_ATOMIC`) and 64-bit constant mode (`BPF_IMM`).
const MEM: u8 = 0x60;
const ATOMIC: u8 = 0xc0;
const IMM: u8 = 0x00;
/// The operand is a register (`BPF_X`).
const FROM_REGISTER: u8 = 0x08;
/// Byte order conversion (`BPF_END | BPF_TO_BE`).
const TO_BIG_ENDIAN: u8 = 0xd8;
/// Unconditional jump, call and exit (`BPF_JA`, `BPF_CALL`, `BPF_EXIT`).
const ALWAYS: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
/// The source of a 64-bit constant that is a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const PSEUDO_MAP_FD: Register = Register(1);
/// The source of a call that is of a function of the kernel (`BPF_PSEUDO_KFUNC_CALL`).
const PSEUDO_KFUNC_CALL: Register = Register(2);

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the place of the next instruction.
    pub fn label(&mut self, name: impl Into<Label>) -> &mut Self {
        let name = name.into();
        let here = self.instructions.len();
        if self.labels.insert(name.clone(), here).is_some() {
            self.defined_twice = Some(name);
        }
        self
    }

    /// `to = operand`
    pub fn set(&mut self, to: Register, operand: impl Into<Operand>) -> &mut Self {
        self.compute(Operation::Move, to, operand)
    }

    /// `to = to OPERATION operand`
    pub fn compute(
        &mut self,
        operation: Operation,
        to: Register,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        self.arithmetic(ALU64, operation, to, operand.into())
    }

    /// `to = (u32)to OPERATION (u32)operand`: the upper half becomes zero.
    pub fn compute32(
        &mut self,
        operation: Operation,
        to: Register,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        self.arithmetic(ALU, operation, to, operand.into())
    }

    /// `to = constant`, all 64 bits of it; takes two slots.
    pub fn set64(&mut self, to: Register, constant: u64) -> &mut Self {
        self.wide(to, R0, constant)
    }

    /// `to =` the map behind this descriptor, for a helper's first argument; takes two slots.
    pub fn set_map(&mut self, to: Register, map: BorrowedFd<'_>) -> &mut Self {
        // A descriptor is never negative, so the cast keeps its value.
        self.wide(to, PSEUDO_MAP_FD, map.as_raw_fd() as u32 as u64)
    }

    /// Turns the low 16 bits from network into host order, or back, and clears the rest; takes two
    /// slots.
    ///
    /// The second is a mask that changes nothing. Verifiers up to Linux 6.12 forget the bounds of a
    /// register when its bytes are swapped (`adjust_scalar_min_max_vals`, kernel/bpf/verifier.c), and
    /// then refuse to add it to a packet's address: "math between pkt pointer and register with
    /// unbounded min value is not allowed".
    pub fn swap_network16(&mut self, register: Register) -> &mut Self {
        self.push(ALU | TO_BIG_ENDIAN, register, R0, 0, 16);
        self.compute(Operation::And, register, 0xffff)
    }

    /// Turns the low 32 bits from network into host order, or back, and clears the rest. Verifiers
    /// up to Linux 6.12 do not know the bounds of the result.
    pub fn swap_network32(&mut self, register: Register) -> &mut Self {
        self.push(ALU | TO_BIG_ENDIAN, register, R0, 0, 32)
    }

    /// `to = *(size *)(base + offset)`
    pub fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) -> &mut Self {
        self.push(LDX | MEM | size as u8, to, base, offset, 0)
    }

    /// `*(size *)(base + offset) = operand`
    pub fn store(
        &mut self,
        size: Size,
        base: Register,
        offset: i16,
        operand: impl Into<Operand>,
    ) -> &mut Self {
        match operand.into() {
            Operand::Register(from) => self.push(STX | MEM | size as u8, base, from, offset, 0),
            Operand::Immediate(value) => self.push(ST | MEM | size as u8, base, R0, offset, value),
        }
    }

    /// `*(size *)(base + offset) += from`, in one step for all CPUs; only for whole and double words.
    pub fn atomic_add(
        &mut self,
        size: Size,
        base: Register,
        offset: i16,
        from: Register,
    ) -> &mut Self {
        // The operation is the immediate, and `BPF_ADD` is zero.
        self.push(STX | ATOMIC | size as u8, base, from, offset, 0)
    }

    /// `goto label`
    pub fn jump(&mut self, label: impl Into<Label>) -> &mut Self {
        self.jumps.push((self.instructions.len(), label.into()));
        self.push(JMP | ALWAYS, R0, R0, 0, 0)
    }

    /// `if (left CONDITION right) goto label`
    pub fn jump_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: impl Into<Label>,
    ) -> &mut Self {
        self.conditional(JMP, condition, left, right.into(), label.into())
    }

    /// `if ((u32)left CONDITION (u32)right) goto label`: a constant is not sign-extended, so any
    /// pattern of 32 bits can be compared with a loaded word. Linux 5.1.
    pub fn jump_if32(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: impl Into<Label>,
    ) -> &mut Self {
        self.conditional(JMP32, condition, left, right.into(), label.into())
    }

    /// `r0 = helper(r1, r2, r3, r4, r5)`
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(JMP | CALL, R0, R0, 0, helper as i32)
    }

    /// `r0 = function(r1, ...)`, a function of the kernel by its number
    /// ([`Btf::function`](super::btf::Btf::function)) that is open to programs.
    pub fn call_kernel(&mut self, function: u32) -> &mut Self {
        self.push(JMP | CALL, R0, PSEUDO_KFUNC_CALL, 0, function as i32)
    }

    /// `return r0`
    pub fn exit(&mut self) -> &mut Self {
        self.push(JMP | EXIT, R0, R0, 0, 0)
    }

    /// Resolves the labels and gives out the program.
    ///
    /// # Errors
    ///
    /// A label that is unknown, defined twice, or too far away.
    pub fn finish(&self) -> Result<Vec<Instruction>, AssemblyError> {
        if let Some(name) = &self.defined_twice {
            return Err(AssemblyError::DuplicateLabel(name.clone()));
        }
        let mut instructions = self.instructions.clone();
        for (at, name) in &self.jumps {
            let target = self.labels.get(name);
            let target = target.ok_or_else(|| AssemblyError::UnknownLabel(name.clone()))?;
            // A jump counts from the slot after it. Slots are far fewer than `isize::MAX`.
            let distance = *target as isize - (*at as isize + 1);
            let distance = i16::try_from(distance);
            instructions[*at].offset =
                distance.map_err(|_| AssemblyError::JumpTooFar(name.clone()))?;
        }
        Ok(instructions)
    }

    fn arithmetic(
        &mut self,
        class: u8,
        operation: Operation,
        to: Register,
        operand: Operand,
    ) -> &mut Self {
        let code = class | operation as u8;
        match operand {
            Operand::Register(from) => self.push(code | FROM_REGISTER, to, from, 0, 0),
            Operand::Immediate(value) => self.push(code, to, R0, 0, value),
        }
    }

    fn conditional(
        &mut self,
        class: u8,
        condition: Condition,
        left: Register,
        right: Operand,
        label: Label,
    ) -> &mut Self {
        self.jumps.push((self.instructions.len(), label));
        let code = class | condition as u8;
        match right {
            Operand::Register(right) => self.push(code | FROM_REGISTER, left, right, 0, 0),
            Operand::Immediate(value) => self.push(code, left, R0, 0, value),
        }
    }

    fn wide(&mut self, to: Register, from: Register, constant: u64) -> &mut Self {
        // The casts split the constant into its two halves, bit for bit.
        self.push(LD | IMM | Size::Double as u8, to, from, 0, constant as i32);
        self.push(0, R0, R0, 0, (constant >> 32) as i32)
    }

    fn push(
        &mut self,
        code: u8,
        to: Register,
        from: Register,
        offset: i16,
        immediate: i32,
    ) -> &mut Self {
        self.instructions.push(Instruction {
            code,
            registers: to.0 | from.0 << 4,
            offset,
            immediate,
        });
        self
    }
}

impl Instruction {
    /// The eight bytes as the kernel reads them on a little-endian machine.
    pub fn bytes(&self) -> [u8; 8] {
        let [o0, o1] = self.offset.to_le_bytes();
        let [i0, i1, i2, i3] = self.immediate.to_le_bytes();
        [self.code, self.registers, o0, o1, i0, i1, i2, i3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn bytes(program: &Assembler) -> Vec<[u8; 8]> {
        let instructions = program.finish().expect("the program assembles");
        instructions.iter().map(Instruction::bytes).collect()
    }

    /// The right-hand sides are the macros of `include/linux/filter.h`, evaluated by hand.
    #[test]
    fn instructions_have_the_kernel_encoding() {
        let mut program = Assembler::new();
        program.set(R6, R1);
        program.set(R0, -2);
        program.compute(Operation::Modulo, R3, 4);
        program.compute(Operation::ShiftRight, R3, R2);
        program.load(Size::Half, R2, R6, 16);
        program.load(Size::Double, R2, R10, -8);
        program.store(Size::Word, R6, 12, R3);
        program.store(Size::Byte, R10, -1, 7);
        program.call(Helper::ProbeReadKernel);
        program.swap_network16(R4);
        program.exit();
        assert_eq!(
            bytes(&program),
            [
                [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
                [0xb7, 0x00, 0, 0, 0xfe, 0xff, 0xff, 0xff],
                [0x97, 0x03, 0, 0, 4, 0, 0, 0],
                [0x7f, 0x23, 0, 0, 0, 0, 0, 0],
                [0x69, 0x62, 16, 0, 0, 0, 0, 0],
                [0x79, 0xa2, 0xf8, 0xff, 0, 0, 0, 0],
                [0x63, 0x36, 12, 0, 0, 0, 0, 0],
                [0x72, 0x0a, 0xff, 0xff, 7, 0, 0, 0],
                [0x85, 0x00, 0, 0, 113, 0, 0, 0],
                [0xdc, 0x04, 0, 0, 16, 0, 0, 0],
                [0x57, 0x04, 0, 0, 0xff, 0xff, 0, 0],
                [0x95, 0x00, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn halves_and_atomics_have_the_kernel_encoding() {
        let mut program = Assembler::new();
        program.compute32(Operation::Xor, R3, R2);
        program.compute32(Operation::Multiply, R3, -1);
        program.swap_network32(R4);
        program.atomic_add(Size::Double, R0, 8, R1);
        program.atomic_add(Size::Word, R10, -4, R2);
        program.jump_if32(Condition::NotEqual, R1, -2, "out");
        program.jump_if32(Condition::AnyBit, R1, R2, "out");
        program.label("out").call(Helper::RedirectMap);
        assert_eq!(
            bytes(&program),
            [
                [0xac, 0x23, 0, 0, 0, 0, 0, 0],
                [0x24, 0x03, 0, 0, 0xff, 0xff, 0xff, 0xff],
                [0xdc, 0x04, 0, 0, 32, 0, 0, 0],
                [0xdb, 0x10, 8, 0, 0, 0, 0, 0],
                [0xc3, 0x2a, 0xfc, 0xff, 0, 0, 0, 0],
                [0x56, 0x01, 1, 0, 0xfe, 0xff, 0xff, 0xff],
                [0x4e, 0x21, 0, 0, 0, 0, 0, 0],
                [0x85, 0x00, 0, 0, 51, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn wide_constants_take_two_slots() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let mut program = Assembler::new();
        program.set64(R2, 0x1122_3344_5566_7788);
        program.set_map(R1, file.as_fd());
        let fd = u8::try_from(file.as_raw_fd()).expect("tests have few descriptors");
        assert_eq!(
            bytes(&program),
            [
                [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55],
                [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11],
                [0x18, 0x11, 0, 0, fd, 0, 0, 0],
                [0; 8],
            ]
        );
    }

    #[test]
    fn jumps_count_slots_forwards_and_backwards() {
        let mut program = Assembler::new();
        program.label("start");
        program.jump_if(Condition::Above, R1, R2, "end");
        program.set64(R3, 1);
        program.jump_if(Condition::NotEqual, R1, 5, "start");
        program.jump("end");
        program.label("end").exit();
        let instructions = program.finish().expect("the program assembles");
        let offsets: Vec<i16> = instructions.iter().map(|i| i.offset).collect();
        assert_eq!(offsets, [4, 0, 0, -4, 0, 0]);
        let codes: Vec<u8> = instructions.iter().map(|i| i.code).collect();
        assert_eq!(codes, [0x2d, 0x18, 0, 0x55, 0x05, 0x95]);
    }

    #[test]
    fn labels_that_cannot_be_resolved_are_errors() {
        let mut unknown = Assembler::new();
        unknown.jump("nowhere");
        assert_eq!(
            unknown.finish(),
            Err(AssemblyError::UnknownLabel("nowhere".into()))
        );

        let mut twice = Assembler::new();
        twice.label("here").exit().label("here");
        assert_eq!(
            twice.finish(),
            Err(AssemblyError::DuplicateLabel("here".into()))
        );

        let mut far = Assembler::new();
        far.jump("end");
        for _ in 0..=i16::MAX {
            far.exit();
        }
        assert_eq!(
            far.label("end").finish(),
            Err(AssemblyError::JumpTooFar("end".into()))
        );
    }
}
