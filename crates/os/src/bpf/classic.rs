//! Classic BPF: the small language of socket filters, older than eBPF, which needs no privilege.
//!
//! Language: `Documentation/networking/filter.rst` and `include/uapi/linux/filter.h` of the kernel.
//! A program has an accumulator, an index register and 16 words of memory. A load beyond the end
//! of the packet ends the program with 0, so that no load needs a check.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::CallResult;
use crate::error::On;

/// One instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ClassicInstruction {
    /// Class, size and mode.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip if it does not.
    pub jump_false: u8,
    /// The constant: an offset, an operand, a number of bytes.
    pub constant: u32,
}

/// Collects the instructions of a filter: what it does not reject it accepts at its end.
///
/// ```
/// use mpps_os::bpf::classic::{ClassicAssembler, ClassicCondition, ClassicOperand};
///
/// // Accepts frames of IPv4, whole.
/// let mut filter = ClassicAssembler::new();
/// filter.load_half(12);
/// filter.reject_unless(ClassicCondition::Equal, ClassicOperand::Constant(0x0800));
/// assert_eq!(filter.finish().len(), 4);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClassicAssembler {
    instructions: Vec<ClassicInstruction>,
    rejections: Vec<Rejection>,
}

/// A comparison that rejects: its place, and whether it does so where it holds.
#[derive(Clone, Copy, Debug)]
struct Rejection {
    at: usize,
    on_true: bool,
}

/// Comparisons of the accumulator with an operand, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ClassicCondition {
    /// They are equal.
    Equal = 0x10,
    /// The accumulator is greater.
    Above = 0x20,
    /// The accumulator is greater, or they are equal.
    AtLeast = 0x30,
    /// They have a one in the same place.
    AnyBit = 0x40,
}

/// The operand of a comparison or an addition with the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassicOperand {
    /// A constant.
    Constant(u32),
    /// The index register.
    Index,
}

/// Classes (`BPF_CLASS`).
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
/// Sizes of loads.
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;
/// Modes of loads (`BPF_ABS`, `BPF_IND`, `BPF_LEN`, `BPF_MSH`).
const ABSOLUTE: u16 = 0x20;
const INDEXED: u16 = 0x40;
const LENGTH: u16 = 0x80;
const HEADER: u16 = 0xa0;
/// The operand is the index register (`BPF_X`). Addition and `BPF_TAX` have the code zero.
const INDEX: u16 = 0x08;
/// Where facts about the packet that are not in it can be loaded from (`SKF_AD_OFF`), and that it
/// has a VLAN tag, which the device or the kernel has taken out (`SKF_AD_VLAN_TAG_PRESENT`).
const FACTS: u32 = 0xffff_f000;
const FACT_TAGGED: u32 = FACTS + 48;
/// The kind of packet (`SKF_AD_PKTTYPE`), and the CPU that handles it (`SKF_AD_CPU`).
const FACT_KIND: u32 = FACTS + 4;
const FACT_CPU: u32 = FACTS + 36;
/// A random number (`SKF_AD_RANDOM`).
const FACT_RANDOM: u32 = FACTS + 56;
/// `PACKET_OUTGOING` of include/uapi/linux/if_packet.h.
const OUTGOING: u32 = 4;
/// The network header (`SKF_NET_OFF`).
const NETWORK: u32 = 0xfff0_0000;
/// `BPF_MUL`, `BPF_RSH`, `BPF_MOD`, and the accumulator as what is returned (`BPF_A`).
const MULTIPLY: u16 = 0x20;
const SHIFT_RIGHT: u16 = 0x70;
const MODULO: u16 = 0x90;
const ACCUMULATOR: u16 = 0x10;
/// All bytes of a packet: more than any has.
const WHOLE: u32 = 0x4_0000;
/// Rejections jump forwards, by at most as many instructions as fit a byte.
const INSTRUCTIONS_MAX: usize = 255;

/// The program that keeps no byte of a packet: it is dropped and counted (`sk_filter_trim_cap` in
/// net/core/filter.c).
pub const NOTHING: [ClassicInstruction; 1] = [ClassicInstruction::new(RET, 0)];

/// The program whose answer is a hash of a datagram's source address and ports modulo a number: each flow has
/// one answer. Of an IPv6 address it takes the last word, and no extension headers; of a later fragment
/// whatever is there.
pub fn flow_modulo(number: u32) -> Vec<ClassicInstruction> {
    /// 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
    const GOLDEN: u32 = 0x9e37_79b9;
    const HASH: [(u16, u32); 3] = [
        (ALU | INDEX, 0),
        (ALU | MULTIPLY, GOLDEN),
        (ALU | SHIFT_RIGHT, 16),
    ];
    let tail = [(ALU | MODULO, number), (RET | ACCUMULATOR, 0)];
    let index = [(MISC, 0)];
    // The ports into X, the address into A.
    let v4 = [(LDX | BYTE | HEADER, NETWORK), (LD | INDEXED, NETWORK)];
    let v4 = [
        &v4[..],
        &index,
        &[(LD | ABSOLUTE, NETWORK + 12)],
        &HASH,
        &tail,
    ]
    .concat();
    let v6 = [(LD | ABSOLUTE, NETWORK + 40)];
    let v6 = [
        &v6[..],
        &index,
        &[(LD | ABSOLUTE, NETWORK + 20)],
        &HASH,
        &tail,
    ]
    .concat();
    let mut is_v6 = ClassicInstruction::new(JMP | ClassicCondition::AtLeast as u16, 0x60);
    is_v6.jump_true = v4.len() as u8;
    let version = ClassicInstruction::new(LD | BYTE | ABSOLUTE, NETWORK);
    let rest = v4.into_iter().chain(v6);
    let rest = rest.map(|(code, constant)| ClassicInstruction::new(code, constant));
    [version, is_v6].into_iter().chain(rest).collect()
}

impl ClassicInstruction {
    const fn new(code: u16, constant: u32) -> Self {
        Self {
            code,
            jump_true: 0,
            jump_false: 0,
            constant,
        }
    }
}

impl ClassicAssembler {
    /// A filter that accepts everything, as yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `A = packet[offset]`
    pub fn load_byte(&mut self, offset: u32) -> &mut Self {
        self.push(LD | BYTE | ABSOLUTE, offset)
    }

    /// `A =` two bytes from `offset`, in network order.
    pub fn load_half(&mut self, offset: u32) -> &mut Self {
        self.push(LD | HALF | ABSOLUTE, offset)
    }

    /// `A =` four bytes from `offset`, in network order.
    pub fn load_word(&mut self, offset: u32) -> &mut Self {
        self.push(LD | ABSOLUTE, offset)
    }

    /// `A =` two bytes from `X + offset`, in network order.
    pub fn load_half_indexed(&mut self, offset: u32) -> &mut Self {
        self.push(LD | HALF | INDEXED, offset)
    }

    /// `A =` the length of the packet.
    pub fn load_length(&mut self) -> &mut Self {
        self.push(LD | LENGTH, 0)
    }

    /// `A =` one if the packet's VLAN tag was taken out of it, otherwise zero.
    pub fn load_tagged(&mut self) -> &mut Self {
        self.push(LD | ABSOLUTE, FACT_TAGGED)
    }

    /// `A =` the number of the CPU that handles the packet.
    pub fn load_cpu(&mut self) -> &mut Self {
        self.push(LD | ABSOLUTE, FACT_CPU)
    }

    /// `A =` a random number.
    pub fn load_random(&mut self) -> &mut Self {
        self.push(LD | ABSOLUTE, FACT_RANDOM)
    }

    /// Rejects packets that leave this host.
    pub fn reject_outgoing(&mut self) -> &mut Self {
        self.push(LD | ABSOLUTE, FACT_KIND);
        self.reject_if(ClassicCondition::Equal, ClassicOperand::Constant(OUTGOING))
    }

    /// Ends with this answer if the accumulator has that value.
    pub fn answer_for(&mut self, value: u32, answer: u32) -> &mut Self {
        let mut jump = ClassicInstruction::new(JMP | ClassicCondition::Equal as u16, value);
        // Otherwise what follows the answer is next.
        jump.jump_false = 1;
        self.instructions.push(jump);
        self.push(RET, answer)
    }

    /// `X = 4 * (packet[offset] & 15)`: the length of an IPv4 header.
    pub fn index_by_header(&mut self, offset: u32) -> &mut Self {
        self.push(LDX | BYTE | HEADER, offset)
    }

    /// `X = A`
    pub fn index_by_accumulator(&mut self) -> &mut Self {
        self.push(MISC, 0)
    }

    /// `A += operand`
    pub fn add(&mut self, operand: ClassicOperand) -> &mut Self {
        let (source, constant) = operand.parts();
        self.push(ALU | source, constant)
    }

    /// Rejects the packet if the comparison holds.
    pub fn reject_if(&mut self, condition: ClassicCondition, operand: ClassicOperand) -> &mut Self {
        self.reject(condition, operand, true)
    }

    /// Rejects the packet if the comparison does not hold.
    pub fn reject_unless(
        &mut self,
        condition: ClassicCondition,
        operand: ClassicOperand,
    ) -> &mut Self {
        self.reject(condition, operand, false)
    }

    /// The filter: what has come to its end is accepted whole.
    ///
    /// # Panics
    ///
    /// For more than 255 instructions, which is a mistake in the program that writes the filter.
    pub fn finish(&self) -> Vec<ClassicInstruction> {
        self.finish_with(&[ClassicInstruction::new(RET, WHOLE)])
    }

    /// The program whose answer is the accumulator modulo a number, unless it has come to another
    /// answer before.
    ///
    /// # Panics
    ///
    /// As [`ClassicAssembler::finish`], if it has rejections.
    pub fn finish_modulo(&self, number: u32) -> Vec<ClassicInstruction> {
        let modulo = ClassicInstruction::new(ALU | MODULO, number);
        self.finish_with(&[modulo, ClassicInstruction::new(RET | ACCUMULATOR, 0)])
    }

    /// The filter: what has come to its end is for another one to judge.
    ///
    /// # Panics
    ///
    /// As [`ClassicAssembler::finish`], for both together.
    pub fn finish_with(&self, rest: &[ClassicInstruction]) -> Vec<ClassicInstruction> {
        self.finish_between(rest, &[ClassicInstruction::new(RET, 0)])
    }

    /// The filter. Packets that it rejects go on to the next filter, `rest`.
    ///
    /// # Panics
    ///
    /// As [`ClassicAssembler::finish`], for this filter without `rest`.
    pub fn finish_or(&self, rest: &[ClassicInstruction]) -> Vec<ClassicInstruction> {
        self.finish_between(&[ClassicInstruction::new(RET, WHOLE)], rest)
    }

    /// The program that goes on with `end` for what it has not rejected, and with `rejected` for the
    /// rest.
    fn finish_between(
        &self,
        end: &[ClassicInstruction],
        rejected: &[ClassicInstruction],
    ) -> Vec<ClassicInstruction> {
        let mut program = self.clone();
        program.instructions.extend(end);
        if program.rejections.is_empty() {
            return program.instructions;
        }
        let target = program.instructions.len();
        assert!(
            target <= INSTRUCTIONS_MAX,
            "a filter is too long to jump out of"
        );
        program.instructions.extend(rejected);
        for Rejection { at, on_true } in program.rejections {
            let instruction = &mut program.instructions[at];
            // A jump counts from the instruction after it. The assertion keeps it within a byte.
            let distance = (target - at - 1) as u8;
            match on_true {
                true => instruction.jump_true = distance,
                false => instruction.jump_false = distance,
            }
        }
        program.instructions
    }

    fn reject(
        &mut self,
        condition: ClassicCondition,
        operand: ClassicOperand,
        on_true: bool,
    ) -> &mut Self {
        let at = self.instructions.len();
        self.rejections.push(Rejection { at, on_true });
        let (source, constant) = operand.parts();
        self.push(JMP | condition as u16 | source, constant)
    }

    fn push(&mut self, code: u16, constant: u32) -> &mut Self {
        let instruction = ClassicInstruction::new(code, constant);
        self.instructions.push(instruction);
        self
    }
}

impl ClassicOperand {
    /// The bit of the code, and the constant.
    fn parts(self) -> (u16, u32) {
        match self {
            Self::Constant(constant) => (0, constant),
            Self::Index => (INDEX, 0),
        }
    }
}

/// Sets the program that decides which packets a socket receives, and how many bytes of each. It
/// holds for packets that arrive from now on; those that wait in the socket stay.
///
/// `setsockopt(2)`, `SO_ATTACH_FILTER` (socket(7)).
///
/// # Errors
///
/// `EINVAL` for an empty or a wrong program or one of more than 4096 instructions; `EPERM` if the
/// socket's filter was locked (`SO_LOCK_FILTER`).
pub fn attach(socket: BorrowedFd<'_>, program: &[ClassicInstruction]) -> CallResult<()> {
    set(socket.as_raw_fd(), libc::SO_ATTACH_FILTER, program)
        .on("setsockopt SO_ATTACH_FILTER", "socket")
}

/// Gives a socket a program, by the option that says what for.
pub(crate) fn set(
    socket: RawFd,
    option: libc::c_int,
    program: &[ClassicInstruction],
) -> io::Result<()> {
    // A length that does not fit is refused by the kernel, which knows a much smaller limit.
    let length = libc::c_ushort::try_from(program.len()).unwrap_or(libc::c_ushort::MAX);
    let filter = libc::sock_fprog {
        len: length,
        // The kernel reads through the pointer only, in spite of its type.
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: `filter` is alive and of the size that is passed. It points to `length` instructions,
    // or fewer than exist, and `ClassicInstruction` has the layout of `struct sock_filter`. The
    // kernel copies them during the call.
    let answer = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    /// Accepts this number of bytes.
    fn accept(bytes: u32) -> ClassicInstruction {
        ClassicInstruction::new(RET, bytes)
    }

    #[test]
    fn a_filter_cuts_and_rejects() {
        let (near, far) = UnixDatagram::pair().expect("sockets are to be had");
        let mut buffer = [0; 8];
        attach(far.as_fd(), &[accept(3)]).expect("the program is accepted");
        near.send(b"abcdef").expect("it fits");
        assert_eq!(far.recv(&mut buffer).expect("one is there"), 3);

        attach(far.as_fd(), &NOTHING).expect("the program is accepted");
        far.set_nonblocking(true).expect("a flag");
        // A Unix socket does not report that the filter has dropped the datagram.
        near.send(b"abcdef").expect("it fits");
        assert!(far.recv(&mut buffer).is_err());
    }

    #[test]
    fn rejections_jump_to_the_end() {
        let mut filter = ClassicAssembler::new();
        filter.load_byte(0);
        filter.reject_unless(ClassicCondition::Equal, ClassicOperand::Constant(7));
        filter.load_length().index_by_accumulator();
        filter.reject_if(ClassicCondition::Above, ClassicOperand::Index);
        let codes: Vec<_> = filter
            .finish()
            .iter()
            .map(|i| (i.code, i.jump_true, i.jump_false, i.constant))
            .collect();
        let expected = [
            (0x30, 0, 0, 0),
            (0x15, 0, 4, 7),
            (0x80, 0, 0, 0),
            (0x07, 0, 0, 0),
            (0x2d, 1, 0, 0),
            (0x06, 0, 0, WHOLE),
            (0x06, 0, 0, 0),
        ];
        assert_eq!(codes, expected);
        assert_eq!(ClassicAssembler::new().finish(), [accept(WHOLE)]);
    }

    #[test]
    fn the_kernel_refuses_what_is_no_program() {
        let (socket, _far) = UnixDatagram::pair().expect("sockets are to be had");
        let refusal = attach(socket.as_fd(), &[]).expect_err("nothing is no program");
        assert_eq!(refusal.errno(), Some(libc::EINVAL));
        let endless = vec![accept(1); 70_000];
        let refusal = attach(socket.as_fd(), &endless).expect_err("too long");
        assert_eq!(refusal.errno(), Some(libc::EINVAL));
    }
}
