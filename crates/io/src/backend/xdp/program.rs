//! The program that makes one frame after another, flow after flow, out of one template.

use crate::STAMP_BYTES;
use crate::wire::Template;
use mpps_os::bpf::asm::{
    Assembler, Condition, Helper, Operation, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Register,
    Size,
};
use mpps_os::bpf::{AssemblyError, Instruction, Plain};
use std::os::fd::BorrowedFd;

/// `XDP_DROP` of `enum xdp_action` (include/uapi/linux/bpf.h).
const XDP_DROP: i32 = 1;
/// The part of a UDP header in front of its check sum, backwards from the payload.
const UDP_BYTES: i16 = 8;
/// Where the parts of a stamp are that the program takes from the template: see `stamp.rs`.
const STAMP_KIND_AT: i16 = 3;
const STAMP_RUN_AT: i16 = 6;
/// All of a stamp's first word, except the check byte.
const STAMP_CHECK_MASK: i32 = !0xff00;
/// The end marker's bit in the kind.
const END_BIT: i32 = 0x80;

/// How far a program has got: the flow that is next, and how many rounds over all flows are
/// complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProgramProgress {
    pub(super) flow: u64,
    pub(super) rounds: u64,
}

/// The value of the program's map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProgramCounts {
    /// Datagrams.
    pub(super) data: ProgramProgress,
    /// End markers.
    pub(super) end: ProgramProgress,
}

impl ProgramProgress {
    /// Frames so far.
    pub(super) fn frames(self, flows: u64) -> u64 {
        self.rounds * flows + self.flow
    }
}

/// Offsets of [`ProgramCounts`] in the map.
const DATA_FLOW: i16 = 0;
const DATA_ROUNDS: i16 = 8;
const END_FLOW: i16 = 16;

impl Plain for ProgramCounts {
    const SIZE: usize = 32;

    fn write(&self, to: &mut [u8]) {
        let Self { data, end } = *self;
        [data.flow, data.rounds, end.flow, end.rounds].write(to);
    }

    fn read(from: &[u8]) -> Self {
        let [flow, rounds, end_flow, end_rounds] = <[u64; 4]>::read(from);
        let end = ProgramProgress {
            flow: end_flow,
            rounds: end_rounds,
        };
        Self {
            data: ProgramProgress { flow, rounds },
            end,
        }
    }
}

/// When a paced program may send, and how much more: the value of its second map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// `CLOCK_MONOTONIC` of the next datagram, in units of 1/1024 ns.
    pub(super) next: u64,
    /// Datagrams that it may still send.
    pub(super) left: u64,
}

/// Offsets of [`Allowance`] in the map.
const NEXT: i16 = 0;
const LEFT: i16 = 8;
/// Units of [`Allowance::next`] in a nanosecond, as a power of two: a datagram every 100 ns is off by
/// a hundred-thousandth at the most.
pub(super) const FRACTION_BITS: i32 = 10;
/// The most that a program makes up for at once when it fell behind, as it does between two sends.
/// The limits are datagrams, half of the ring of a veth (`VETH_RING_SIZE`, drivers/net/veth.c), and
/// nanoseconds.
pub(super) const BEHIND_MAX: i64 = 128;
pub(super) const BEHIND_NS_MAX: i64 = 1_000_000;

impl Plain for Allowance {
    const SIZE: usize = 16;

    fn write(&self, to: &mut [u8]) {
        [self.next, self.left].write(to);
    }

    fn read(from: &[u8]) -> Self {
        let [next, left] = <[u64; 2]>::read(from);
        Self { next, left }
    }
}

/// A rate that the program keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramPace<'a> {
    /// Time between two datagrams, in units of 1/1024 ns.
    pub(super) interval: i32,
    /// A [`mpps_os::bpf::ArrayMap`] of one [`Allowance`].
    pub(super) allowance: BorrowedFd<'a>,
}

/// The interval of a rate, or none if it is too slow to be kept by trying again and again.
pub(super) fn interval(rate_pps: f64) -> Option<i32> {
    let interval = 1e9 * f64::from(1 << FRACTION_BITS) / rate_pps;
    (interval >= 1.0 && interval <= f64::from(i32::MAX)).then_some(interval as i32)
}

/// The specification of a program.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    pub(super) template: &'a Template,
    /// Source ports, from the template's on.
    pub(super) flows: u32,
    /// The sum of the payload: without its stamp, if it has one.
    pub(super) payload_sum: u16,
    /// The clock of the stamps; none leaves the payload as it is.
    pub(super) stamp: Option<Clock>,
    /// The rate that it keeps; none makes a frame at each run.
    pub(super) pace: Option<ProgramPace<'a>>,
    /// A [`mpps_os::bpf::ArrayMap`] of one [`ProgramCounts`].
    pub(super) counts: BorrowedFd<'a>,
    /// A [`mpps_os::bpf::DeviceMap`] whose slot 0 is the interface.
    pub(super) devices: BorrowedFd<'a>,
}

/// How the send time of a stamp is computed from `CLOCK_TAI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    /// `CLOCK_REALTIME` less `CLOCK_TAI`.
    pub(super) realtime_ahead_ns: i64,
}

impl Recipe<'_> {
    /// The program. In C, with the recipe in capitals:
    ///
    /// ```c
    /// int generate(struct xdp_md *ctx) {
    ///     u8 *frame = ctx->data, *payload = frame + HEADER_BYTES;
    ///     if (payload + (STAMP ? 16 : 0) > ctx->data_end) return XDP_DROP;
    ///     if (PACE && !may_send(payload)) return XDP_DROP;
    ///     struct counts *counts = bpf_map_lookup_elem(&COUNTS, &(u32){0});
    ///     if (!counts) return XDP_DROP;
    ///     u64 flow, sequence;
    ///     if (STAMP && payload[3] & 0x80) {          // an end marker
    ///         flow = next(&counts->end);
    ///         sequence = counts->data.rounds + (flow < counts->data.flow);
    ///     } else {
    ///         sequence = counts->data.rounds;
    ///         flow = next(&counts->data);            // flow = (flow + 1) % FLOWS
    ///     }
    ///     memcpy(frame, HEADER, HEADER_BYTES);
    ///     u64 sum = SUM + FIRST_PORT + flow;
    ///     if (STAMP) sum += write_stamp(payload, flow, sequence);
    ///     udp->source = htons(FIRST_PORT + flow);
    ///     u16 check = ~fold(sum);
    ///     udp->check = htons(check ? check : 0xffff);
    ///     return bpf_redirect_map(&DEVICES, 0, XDP_DROP);
    /// }
    /// ```
    ///
    /// All headers are written each time, because frames are recycled: GRO or a router may have
    /// changed them.
    pub(super) fn program(&self) -> Result<Vec<Instruction>, AssemblyError> {
        // Headers have 62 bytes at most, so the casts keep their values.
        let header_bytes = self.template.header_bytes() as i16;
        let stamp_bytes = self.stamp.map_or(0, |_| STAMP_BYTES as i32);
        let mut program = Assembler::new();
        program.load(Size::Word, R6, R1, 0);
        program.load(Size::Word, R2, R1, 4);
        program.set(R3, R6);
        program.compute(Operation::Add, R3, i32::from(header_bytes) + stamp_bytes);
        program.jump_if(Condition::Above, R3, R2, "drop");
        program.store(Size::Word, R10, -4, 0);
        if let Some(pace) = self.pace {
            self.wait(&mut program, pace, header_bytes);
        }
        program.set_map(R1, self.counts).set(R2, R10);
        program.compute(Operation::Add, R2, -4);
        program.call(Helper::MapLookup);
        program.jump_if(Condition::Equal, R0, 0, "drop");

        self.choose_flow(&mut program, header_bytes);
        self.write_headers(&mut program);
        let constant = self.template.sum_without_port(self.payload_sum);
        program.set(R9, i32::from(constant));
        if let Some(clock) = self.stamp {
            write_stamp(&mut program, clock, header_bytes);
        }
        self.write_port(&mut program, header_bytes);
        write_check(&mut program, header_bytes, self.stamp.is_some());

        program.set_map(R1, self.devices).set(R2, 0);
        program.set(R3, XDP_DROP).call(Helper::RedirectMap).exit();
        program.label("drop").set(R0, XDP_DROP).exit();
        program.finish()
    }

    /// Drops the frame, which costs little, unless a datagram is due and allowed; end markers always
    /// are. Uses all registers but `R6`.
    ///
    /// ```c
    /// bool may_send(u8 *payload) {
    ///     if (STAMP && payload[3] & 0x80) return true;   // an end marker
    ///     struct allowance *a = bpf_map_lookup_elem(&ALLOWANCE, &(u32){0});
    ///     if (!a || a->left == 0) return false;
    ///     u64 now = bpf_ktime_get_ns() << 10;
    ///     if (a->next > now) return false;
    ///     if (now - a->next > BEHIND) a->next = now - BEHIND;
    ///     a->next += INTERVAL;
    ///     a->left--;
    ///     return true;
    /// }
    /// ```
    fn wait(&self, program: &mut Assembler, pace: ProgramPace<'_>, header_bytes: i16) {
        if self.stamp.is_some() {
            program.load(Size::Byte, R1, R6, header_bytes + STAMP_KIND_AT);
            program.compute(Operation::And, R1, END_BIT);
            program.jump_if(Condition::NotEqual, R1, 0, "due");
        }
        program.set_map(R1, pace.allowance).set(R2, R10);
        program.compute(Operation::Add, R2, -4);
        program.call(Helper::MapLookup);
        program.jump_if(Condition::Equal, R0, 0, "drop");
        program.set(R7, R0);
        program.load(Size::Double, R8, R7, LEFT);
        program.jump_if(Condition::Equal, R8, 0, "drop");
        program.call(Helper::ClockNs);
        program.compute(Operation::ShiftLeft, R0, FRACTION_BITS);
        program.load(Size::Double, R9, R7, NEXT);
        program.jump_if(Condition::Above, R9, R0, "drop");
        program.set(R1, R0).compute(Operation::Subtract, R1, R9);
        let behind = i64::from(pace.interval) * BEHIND_MAX;
        // The smaller one has 30 bits.
        let behind = behind.min(BEHIND_NS_MAX << FRACTION_BITS) as i32;
        program.jump_if(Condition::AtMost, R1, behind, "in time");
        program.set(R9, R0).compute(Operation::Subtract, R9, behind);
        program.label("in time");
        program.compute(Operation::Add, R9, pace.interval);
        program.store(Size::Double, R7, NEXT, R9);
        program.compute(Operation::Subtract, R8, 1);
        program.store(Size::Double, R7, LEFT, R8);
        program.label("due");
    }

    /// `R7` = flow, `R8` = sequence number in it. `R0` points to the counts.
    fn choose_flow(&self, program: &mut Assembler, header_bytes: i16) {
        if self.stamp.is_some() {
            program.load(Size::Byte, R1, R6, header_bytes + STAMP_KIND_AT);
            program.compute(Operation::And, R1, END_BIT);
            program.jump_if(Condition::Equal, R1, 0, "data");
            self.next(program, END_FLOW, "more markers");
            program.load(Size::Double, R8, R0, DATA_ROUNDS);
            program.load(Size::Double, R1, R0, DATA_FLOW);
            program.jump_if(Condition::AtLeast, R7, R1, "chosen");
            program.compute(Operation::Add, R8, 1).jump("chosen");
            program.label("data");
        }
        self.next(program, DATA_FLOW, "more data");
        program.label("chosen");
    }

    /// `R7`, `R8` = the next flow and the rounds so far of the progress at this offset, which is
    /// moved on.
    fn next(&self, program: &mut Assembler, at: i16, same_round: &'static str) {
        program.load(Size::Double, R7, R0, at);
        program.load(Size::Double, R8, R0, at + 8);
        program.set(R1, R7).compute(Operation::Add, R1, 1);
        // There are 65 535 flows at most, so the cast keeps its value.
        program.jump_if(Condition::Below, R1, self.flows as i32, same_round);
        program.set(R1, R8).compute(Operation::Add, R1, 1);
        program.store(Size::Double, R0, at + 8, R1).set(R1, 0);
        program.label(same_round);
        program.store(Size::Double, R0, at, R1);
    }

    fn write_headers(&self, program: &mut Assembler) {
        let (words, rest) = self.template.header().as_chunks::<4>();
        let mut at = 0;
        for word in words {
            program.store(Size::Word, R6, at, i32::from_ne_bytes(*word));
            at += 4;
        }
        if let [a, b] = rest {
            let half = u16::from_ne_bytes([*a, *b]);
            program.store(Size::Half, R6, at, i32::from(half));
        }
    }

    /// Writes the source port, and adds it to the sum in `R9`.
    fn write_port(&self, program: &mut Assembler, header_bytes: i16) {
        let first = i32::from(self.template.source_port(0));
        program.set(R1, R7).compute(Operation::Add, R1, first);
        program.compute(Operation::Add, R9, R1).swap_network16(R1);
        program.store(Size::Half, R6, header_bytes - UDP_BYTES, R1);
    }
}

/// Writes the stamp of flow `R7` and sequence number `R8`, and adds it to the sum in `R9`. Uses all
/// registers but `R6`, `R7` and `R9`. The layout is that of `stamp.rs`.
fn write_stamp(program: &mut Assembler, clock: Clock, payload: i16) {
    program.call(Helper::ClockTaiNs);
    program.set64(R1, clock.realtime_ahead_ns as u64);
    program.compute(Operation::Add, R0, R1);
    // 40 bits of nanoseconds without the last eight.
    program.compute(Operation::ShiftLeft, R0, 24);
    program.compute(Operation::ShiftRight, R0, 32);
    // R2 = the second half: the sequence number, and the time.
    program.set(R2, R8);
    program.compute(Operation::ShiftLeft, R2, 32);
    program.compute(Operation::Or, R2, R0);
    // R1 = the first half: magic, run, kind and sender of the template, flow, run.
    program.load(Size::Word, R1, R6, payload);
    program.swap_network32(R1);
    program.compute(Operation::And, R1, STAMP_CHECK_MASK);
    program.compute(Operation::ShiftLeft, R1, 16);
    program.compute(Operation::Or, R1, R7);
    program.compute(Operation::ShiftLeft, R1, 16);
    program.load(Size::Half, R3, R6, payload + STAMP_RUN_AT);
    program.swap_network16(R3);
    program.compute(Operation::Or, R1, R3);
    // R3 = the xor of all bytes, which goes to the check byte.
    program.set(R3, R1).compute(Operation::Xor, R3, R2);
    for bits in [32, 16, 8] {
        program.set(R4, R3);
        program.compute(Operation::ShiftRight, R4, bits);
        program.compute(Operation::Xor, R3, R4);
    }
    program.compute(Operation::And, R3, 0xff);
    program.compute(Operation::ShiftLeft, R3, 40);
    program.compute(Operation::Or, R1, R3);
    store_big_endian(program, R1, payload);
    store_big_endian(program, R2, payload + 8);
}

/// Writes a double word in network order, and adds its halves to the sum in `R9`. Uses `R4`, `R5`.
fn store_big_endian(program: &mut Assembler, from: Register, at: i16) {
    program.set(R4, from);
    program.compute(Operation::ShiftRight, R4, 32);
    // Moving 32 bits clears the upper half.
    program.compute32(Operation::Move, R5, from);
    for (half, at) in [(R4, at), (R5, at + 4)] {
        program.compute(Operation::Add, R9, half);
        program.swap_network32(half);
        program.store(Size::Word, R6, at, half);
    }
}

/// Writes the check sum of what `R9` sums up to: two 16-bit terms, and with a stamp four 32-bit
/// ones.
fn write_check(program: &mut Assembler, header_bytes: i16, stamped: bool) {
    // Each fold adds what is above the lower 16 bits to them: 0x1_fffe becomes 0xffff at once,
    // 34 bits become 19, 17 and 16.
    for _ in 0..if stamped { 3 } else { 1 } {
        program.set(R1, R9);
        program.compute(Operation::ShiftRight, R1, 16);
        program.compute(Operation::And, R9, 0xffff);
        program.compute(Operation::Add, R9, R1);
    }
    program.compute(Operation::Xor, R9, 0xffff);
    program.jump_if(Condition::NotEqual, R9, 0, "has a check sum");
    // Zero on the wire means that there is none (RFC 768).
    program.set(R9, 0xffff);
    program.label("has a check sum").swap_network16(R9);
    program.store(Size::Half, R6, header_bytes - 2, R9);
}

#[cfg(test)]
mod tests;
