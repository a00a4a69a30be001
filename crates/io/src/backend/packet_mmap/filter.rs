//! The filter of a tap, and the choice among the members of a group.

use crate::filter::FlowFilter;
use mpps_os::bpf::asm::{Assembler, R0, R1, Size};
use mpps_os::bpf::classic::{
    ClassicAssembler, ClassicCondition, ClassicInstruction, ClassicOperand,
};
use mpps_os::bpf::{Program, ProgramKind};
use mpps_os::{CallError, CallResult};

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
    let mut program = ClassicAssembler::new();
    program.reject_outgoing();
    if !tagged {
        let zero = ClassicOperand::Constant(0);
        program
            .load_tagged()
            .reject_unless(ClassicCondition::Equal, zero);
    }
    program.finish_with(&flow.classic())
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
pub(super) fn by_queue() -> CallResult<Program> {
    let mut program = Assembler::new();
    program.load(Size::Word, R0, R1, QUEUE_MAPPING).exit();
    let instructions = program.finish().map_err(CallError::from)?;
    Program::load(ProgramKind::SocketFilter, "mpps_fanout", &instructions)
}
