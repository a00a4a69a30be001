//! What a tap lets in, and how members of a group are chosen.

use crate::filter::FlowFilter;
use mpps_os::bpf::asm::{Assembler, R0, R1, Size};
use mpps_os::bpf::classic::ClassicInstruction;
use mpps_os::bpf::{Program, ProgramKind};
use mpps_os::{Error, Result};

// Opcodes of include/uapi/linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K,
// BPF_RET | BPF_K.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF` of include/uapi/linux/filter.h: what is known of a packet beside its bytes.
const ANCILLARY: u32 = -0x1000_i32 as u32;
/// `SKF_AD_PKTTYPE` and `SKF_AD_VLAN_TAG_PRESENT` of the same file.
const PACKET_TYPE: u32 = ANCILLARY + 4;
const VLAN_TAG_PRESENT: u32 = ANCILLARY + 48;
/// `PACKET_OUTGOING` of include/uapi/linux/if_packet.h.
const OUTGOING: u32 = 4;
/// Offset of `queue_mapping` in `struct __sk_buff` of include/uapi/linux/bpf.h.
const QUEUE_MAPPING: i16 = 12;

/// The filter of a tap that lets the frames of `flow` in, without those that leave this host. As C:
///
/// ```c
/// if (skb->pkt_type == PACKET_OUTGOING) return 0;
/// if (!tagged && skb_vlan_tag_present(skb)) return 0;
/// return flow(skb);
/// ```
///
/// The kernel takes a VLAN tag out of a frame before taps see it, so that `flow` cannot know of it;
/// `tagged` lets such frames in.
pub(in crate::backend) fn incoming(flow: &FlowFilter, tagged: bool) -> Vec<ClassicInstruction> {
    let mut program = vec![
        op(LOAD, 0, 0, PACKET_TYPE),
        op(JUMP_IF_EQUAL, 2, 0, OUTGOING),
        op(LOAD, 0, 0, VLAN_TAG_PRESENT),
        op(JUMP_IF_EQUAL, 1, u8::from(tagged), 0),
        op(RETURN, 0, 0, 0),
    ];
    program.extend(flow.classic());
    program
}

/// The program that chooses the member of a fan-out group by the receive queue; the kernel takes
/// the answer modulo members. As C:
///
/// ```c
/// return skb->queue_mapping;
/// ```
///
/// A network card's driver leaves one more than the queue's number there (`skb_record_rx_queue`),
/// veth the number itself, which is the sender's transmit queue: either way each queue has its
/// member.
pub(super) fn by_queue() -> Result<Program> {
    let mut program = Assembler::new();
    program.load(Size::Word, R0, R1, QUEUE_MAPPING).exit();
    let instructions = program.finish().map_err(Error::from)?;
    Program::load(ProgramKind::SocketFilter, "mpps_fanout", &instructions)
}

fn op(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> ClassicInstruction {
    ClassicInstruction {
        code,
        jump_true,
        jump_false,
        constant,
    }
}
