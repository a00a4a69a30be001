//! The XDP program: which frames go to the rings. All others are the kernel's.

use anyhow::Result;
use mpps_io::Destination;
use mpps_io::parts::{FlowCounters, FlowFilter};
use mpps_os::bpf::XskMap;
use mpps_os::bpf::asm::{
    Assembler, AssemblyError, Condition, Helper, Operation, R0, R1, R2, R3, R6, R7, R8, R9, R10,
    Size,
};
use mpps_os::bpf::{
    ArrayMap, BpfLink, Instruction, PerCpuMapKind, Program, ProgramKind, XdpAttach,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

const XDP_PASS: i32 = 2;
/// The place of the address's number on the stack.
const KEY: i16 = -4;
/// Fields of `struct xdp_md`: `data`, `data_end`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;

/// The program on its interface, until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct PortSteering {
    pub(super) sockets: XskMap,
    /// For each address the port whose datagrams go to the rings, in network order; 0 for none.
    ports: ArrayMap<[u32; 1]>,
    counters: FlowCounters,
    pub(super) is_native: bool,
    _link: BpfLink,
}

impl PortSteering {
    pub(super) fn attach(
        interface_index: u32,
        hardware: &[u8],
        addresses: &[IpAddr],
        queues: u32,
    ) -> Result<Self> {
        let sockets = XskMap::create("mpps_sockets", queues)?;
        let counters = FlowCounters::create(PerCpuMapKind::Array, "mpps_counts", queues)?;
        let ports = ArrayMap::create("mpps_ports", addresses.len() as u32)?;
        let mut program = chosen(hardware, addresses, ports.as_fd())?;
        let any = |address| Destination {
            address,
            ports: 0..=u16::MAX,
        };
        let filter = FlowFilter::new(any(Ipv4Addr::UNSPECIFIED.into()))
            .or(any(Ipv6Addr::UNSPECIFIED.into()));
        program.extend(filter.redirect(sockets.as_fd(), counters.as_fd(), false)?);
        let program = Program::load(ProgramKind::Xdp, "mpps_accelerate", &program)?;
        let (link, attached) = BpfLink::xdp_native_or_generic(&program, interface_index)?;
        Ok(Self {
            sockets,
            ports,
            counters,
            is_native: attached == XdpAttach::Native,
            _link: link,
        })
    }

    /// Sets whether the datagrams to an address and port go to the rings.
    pub(super) fn switch(&self, address: usize, port: Option<u16>) -> Result<()> {
        let port = u32::from(port.unwrap_or(0).to_be());
        Ok(self.ports.set(address as u32, &[port])?)
    }

    /// How many frames went to a queue's ring, which may have had no room.
    pub(super) fn redirected(&self, queue: u32) -> Result<u64> {
        let cpus = self.counters.values(&[queue])?;
        Ok(cpus.iter().map(|[taken, ..]| taken).sum())
    }
}

/// Leaves frames to the kernel that are not for this interface's hardware address, have IPv4
/// options, come from an address that no host may have, or go to another address or port. Other
/// frames go on to the [`FlowFilter`], which looks at lengths and fragments. In C:
///
/// ```c
/// if (data + 42 > data_end || memcmp(data, HARDWARE, 6))
///         return XDP_PASS;
/// if (*(__be16 *)(data + 12) == htons(ETH_P_IP)) {
///         __u8 first = data[26];          // of the source address
///         if (data[14] != 0x45 || first == 0 || first == 127 || first >= 224)
///                 return XDP_PASS;
///         if (*(__be32 *)(data + 30) == ADDRESS) at = 0;          // and so on
///         port = *(__be16 *)(data + 36);
/// }                                       // IPv6 alike: not ff00::/8, not ::/32
/// __u32 *wanted = bpf_map_lookup_elem(&ports, &at);
/// if (!wanted || *wanted != port)
///         return XDP_PASS;
/// ```
fn chosen(
    hardware: &[u8],
    addresses: &[IpAddr],
    ports: BorrowedFd<'_>,
) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    program.set(R6, R1);
    program
        .load(Size::Word, R7, R6, DATA)
        .load(Size::Word, R8, R6, DATA_END);
    leave_shorter(&mut program, 42);
    let [a, b, c, d, e, f] = *hardware.first_chunk().unwrap_or(&[0; 6]);
    let (word, half) = (i32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]));
    program
        .load(Size::Word, R2, R7, 0)
        .jump_if32(Condition::NotEqual, R2, word, "kernel");
    program.load(Size::Half, R2, R7, 4);
    program.jump_if(Condition::NotEqual, R2, i32::from(half), "kernel");
    program.load(Size::Half, R2, R7, 12);
    program.jump_if(Condition::Equal, R2, i32::from(0x86dd_u16.to_be()), "v6");
    program.jump_if(
        Condition::NotEqual,
        R2,
        i32::from(0x0800_u16.to_be()),
        "kernel",
    );
    program.load(Size::Byte, R2, R7, 14);
    program.jump_if(Condition::NotEqual, R2, 0x45, "kernel");
    program.load(Size::Byte, R2, R7, 26);
    program.jump_if(Condition::Equal, R2, 0, "kernel");
    program.jump_if(Condition::Equal, R2, 127, "kernel");
    program.jump_if(Condition::AtLeast, R2, 224, "kernel");
    program.load(Size::Half, R9, R7, 36);
    find_address(&mut program, addresses, true, 30);
    program.label("v6");
    leave_shorter(&mut program, 62);
    program.load(Size::Byte, R2, R7, 22);
    program.jump_if(Condition::Equal, R2, 0xff, "kernel");
    program.load(Size::Word, R2, R7, 22);
    program.jump_if(Condition::Equal, R2, 0, "kernel");
    program.load(Size::Half, R9, R7, 56);
    find_address(&mut program, addresses, false, 38);
    program.label("port");
    program.set_map(R1, ports).set(R2, R10);
    program
        .compute(Operation::Add, R2, i32::from(KEY))
        .call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "kernel");
    program.load(Size::Word, R1, R0, 0);
    program.jump_if(Condition::Equal, R1, R9, "ours");
    program.label("kernel").set(R0, XDP_PASS).exit();
    program.label("ours").set(R1, R6);
    program.finish()
}

fn leave_shorter(program: &mut Assembler, bytes: i32) {
    program.set(R2, R7).compute(Operation::Add, R2, bytes);
    program.jump_if(Condition::Above, R2, R8, "kernel");
}

/// Goes to `port` with the number of the address on the stack, or to `kernel`.
fn find_address(program: &mut Assembler, addresses: &[IpAddr], is_v4: bool, offset: i16) {
    for (number, address) in addresses
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_ipv4() == is_v4)
    {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let next = format!("behind {number}");
        for (word, place) in bytes.as_chunks::<4>().0.iter().zip((offset..).step_by(4)) {
            program.load(Size::Word, R3, R7, place);
            program.jump_if32(
                Condition::NotEqual,
                R3,
                i32::from_ne_bytes(*word),
                next.clone(),
            );
        }
        program
            .store(Size::Word, R10, KEY, number as i32)
            .jump("port")
            .label(next);
    }
    program.jump("kernel");
}
