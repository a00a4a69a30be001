//! An XDP program in the driver of the receiver's link.

use mpps_os::bpf::asm::{
    Assembler, Condition, Helper, Operation, R0, R1, R2, R3, R4, R5, R10, Size,
};
use mpps_os::bpf::{
    AssemblyError, BpfLink, Instruction, PerCpuMap, PerCpuMapKind, Program, XdpAttach,
};
use std::os::fd::{AsFd, BorrowedFd};

use super::EarlyDropRule;
use crate::{LabError, LabHost};

/// How much of a frame the program reads before it drops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing. It drops every frame.
    Nothing,
    /// The first byte. It drops every frame that has one.
    FirstByte,
    /// The headers. It drops UDP datagrams to the port; all other frames go on.
    Headers {
        /// The UDP port.
        port: u16,
    },
}

/// The verdicts of the program (`enum xdp_action` of `include/uapi/linux/bpf.h`).
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// Offsets in `struct xdp_md` of `include/uapi/linux/bpf.h`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

/// Offsets from the start of an Ethernet frame without a VLAN tag (RFC 791, RFC 8200).
const ETHER_TYPE: i16 = 12;
const IP: i32 = 14;
const V4_FIRST_BYTE: i16 = 14;
const V4_FRAGMENT: i16 = 20;
const V4_PROTOCOL: i16 = 23;
const V4_BYTES_MIN: i32 = 20;
const V6_NEXT_HEADER: i16 = 20;
const V6_BYTES: i32 = 40;
/// Offset of the destination port in a UDP header, and the bytes up to its end (RFC 768).
const PORT: i16 = 2;
const PORT_END: i32 = 4;

/// Numbers in network order, as a load from the frame has them.
const ETHER_TYPE_V4: i32 = 0x0800_u16.to_be() as i32;
const ETHER_TYPE_V6: i32 = 0x86dd_u16.to_be() as i32;
const FRAGMENT_OFFSET: i32 = 0x1fff_u16.to_be() as i32;
/// `IPPROTO_UDP`.
const UDP: i32 = 17;

/// The program on the link, and its counter.
#[derive(Debug)]
pub(super) struct XdpDrop {
    dropped: PerCpuMap<[u32; 1], [u64; 1]>,
    link: Option<BpfLink>,
}

impl XdpDrop {
    pub(super) fn new(host: &LabHost, reading: Reading) -> Result<Self, LabError> {
        let dropped = PerCpuMap::create(PerCpuMapKind::Array, "mpps_dropped", 1)?;
        // Where the kernel knows no frames of several buffers, the link gives them up, and the
        // sender's end its offloads.
        let load = |_fragments| program(reading, dropped.as_fd());
        let (program, _) = Program::load_xdp("mpps_early_drop", load)?;
        let index = host.interface_index();
        let link = host.run(|| BpfLink::xdp(&program, index, XdpAttach::Native))??;
        Ok(Self {
            dropped,
            link: Some(link),
        })
    }
}

impl EarlyDropRule for XdpDrop {
    fn dropped(&self) -> Result<u64, LabError> {
        let counts = self.dropped.values(&[0])?;
        Ok(counts.iter().map(|[count]| count).sum())
    }

    fn remove(&mut self) -> Result<(), LabError> {
        // Closing the link detaches the program.
        self.link = None;
        Ok(())
    }
}

/// The program, in C:
///
/// ```c
/// int early_drop(struct xdp_md *frame)
/// {
///         __u8 *data = frame->data, *end = frame->data_end, *udp;
///
///         // Nothing, FirstByte or Headers stands here.
///
///         __u32 first = 0;
///         __u64 *dropped = bpf_map_lookup_elem(&DROPPED, &first);
///         if (!dropped)
///                 return XDP_PASS;
///         ++*dropped;
///         return XDP_DROP;
/// }
/// ```
///
/// The first byte: `if (data + 1 > end) return XDP_PASS; (void)*data;`. For the headers see
/// [`read_headers`]. The map has a counter for each CPU, and a CPU runs the program once at a time.
/// So the addition needs no lock.
fn program(reading: Reading, dropped: BorrowedFd<'_>) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    if reading != Reading::Nothing {
        program.load(Size::Word, R2, R1, DATA);
        program.load(Size::Word, R3, R1, DATA_END);
    }
    match reading {
        Reading::Nothing => {}
        Reading::FirstByte => {
            program.set(R4, R2).compute(Operation::Add, R4, 1);
            program.jump_if(Condition::Above, R4, R3, "pass");
            program.load(Size::Byte, R5, R2, 0);
        }
        Reading::Headers { port } => read_headers(&mut program, port),
    }

    program.store(Size::Word, R10, -4, 0);
    program.set_map(R1, dropped);
    program.set(R2, R10).compute(Operation::Add, R2, -4);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "pass");
    program.load(Size::Double, R1, R0, 0);
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Double, R0, 0, R1);
    program.set(R0, XDP_DROP).exit();

    program.label("pass").set(R0, XDP_PASS).exit();
    program.finish()
}

/// Goes to `pass` unless the frame, from `R2` to `R3`, is a UDP datagram to the port, in C:
///
/// ```c
/// if (data + 34 > end)
///         return XDP_PASS;
/// if (*(__be16 *)(data + 12) == htons(ETH_P_IP)) {
///         if (data[23] != IPPROTO_UDP || *(__be16 *)(data + 20) & htons(0x1fff))
///                 return XDP_PASS;
///         int header = (data[14] & 15) * 4;
///         if (header < 20)
///                 return XDP_PASS;
///         udp = data + 14 + header;
/// } else if (*(__be16 *)(data + 12) == htons(ETH_P_IPV6)) {
///         if (data[20] != IPPROTO_UDP)
///                 return XDP_PASS;
///         udp = data + 14 + 40;
/// } else {
///         return XDP_PASS;
/// }
/// if (udp + 4 > end || *(__be16 *)(udp + 2) != htons(PORT))
///         return XDP_PASS;
/// ```
///
/// Later fragments have no UDP header; they go on, and the rest of their datagram goes with the
/// first one.
fn read_headers(program: &mut Assembler, port: u16) {
    program.set(R4, R2);
    program.compute(Operation::Add, R4, IP + V4_BYTES_MIN);
    program.jump_if(Condition::Above, R4, R3, "pass");
    program.load(Size::Half, R5, R2, ETHER_TYPE);
    program.jump_if(Condition::Equal, R5, ETHER_TYPE_V4, "v4");
    program.jump_if(Condition::NotEqual, R5, ETHER_TYPE_V6, "pass");
    program.load(Size::Byte, R5, R2, V6_NEXT_HEADER);
    program.jump_if(Condition::NotEqual, R5, UDP, "pass");
    program.set(R5, V6_BYTES).jump("udp");

    program.label("v4").load(Size::Byte, R5, R2, V4_PROTOCOL);
    program.jump_if(Condition::NotEqual, R5, UDP, "pass");
    program.load(Size::Half, R5, R2, V4_FRAGMENT);
    program.compute(Operation::And, R5, FRAGMENT_OFFSET);
    program.jump_if(Condition::NotEqual, R5, 0, "pass");
    program.load(Size::Byte, R5, R2, V4_FIRST_BYTE);
    program.compute(Operation::And, R5, 15);
    program.compute(Operation::ShiftLeft, R5, 2);
    program.jump_if(Condition::Below, R5, V4_BYTES_MIN, "pass");

    program.label("udp").set(R4, R2);
    program.compute(Operation::Add, R4, IP);
    program.compute(Operation::Add, R4, R5);
    program.set(R5, R4).compute(Operation::Add, R5, PORT_END);
    program.jump_if(Condition::Above, R5, R3, "pass");
    program.load(Size::Half, R5, R4, PORT);
    program.jump_if(Condition::NotEqual, R5, i32::from(port.to_be()), "pass");
}

#[cfg(test)]
mod tests;
