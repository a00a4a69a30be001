//! Counts reads of UDP sockets that cut a datagram, inside the kernel.
//!
//! A datagram longer than the buffer of its reader loses its end, and a train of a `UDP_GRO` socket
//! loses datagrams. No counter shows it; only the reader gets `MSG_TRUNC`. A BPF program looks for that
//! flag whenever `udp_recvmsg` or `udpv6_recvmsg` returns, where `recvfrom`, `recvmmsg` and io_uring
//! all pass.

use mpps_os::CallResult;
use mpps_os::bpf::asm::{
    Assembler, AssemblyError, Condition, Helper, Operation, R0, R1, R2, R3, R4, R6, R7, R8, R10,
    Size,
};
use mpps_os::bpf::btf::{Btf, BtfError};
use mpps_os::bpf::{BpfLink, Instruction, PerCpuMap, PerCpuMapKind, Program, ProgramKind};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// The reads of one socket that cut, since the probe was attached. Others are not counted: they pay for
/// a look at one flag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCount {
    /// How many cut a datagram or a train. Reads that leave it in the queue, ask for its length, or
    /// discard it without a buffer are no loss.
    pub cut: u64,
    /// The smallest and the largest of their buffers, in bytes.
    pub buffers: (u64, u64),
    /// True if the socket takes trains (`UDP_GRO`); false also where the kernel does not show it.
    pub takes_trains: bool,
}

/// The reads of each socket, by its cookie.
pub type ReadCounts = BTreeMap<u64, ReadCount>;

/// Counts for as long as it lives. The kernel takes it away with the process, however that ends.
#[derive(Debug)]
pub struct ReadProbe {
    counts: PerCpuMap<[u64; 1], ReadTotal>,
    _links: Vec<BpfLink>,
}

/// Reads that cut, their smallest and largest buffer, flags of the socket.
type ReadTotal = [u64; 4];

/// The functions where all reads of UDP sockets return.
const FUNCTIONS: [&str; 2] = ["udp_recvmsg", "udpv6_recvmsg"];
/// Room for this many sockets; reads of more are not counted.
const SOCKETS_MAX: u32 = 10_000;

/// Flags of recvmsg(2): `MSG_TRUNC`, `MSG_PEEK`, `MSG_ERRQUEUE`.
const TRUNCATED: i32 = 0x20;
const NO_LOSS: i32 = TRUNCATED | 0x2 | 0x2000;
/// The largest result; errors are negative.
const RESULT_MAX: i32 = i32::MAX;
/// Update only what is not there (`BPF_NOEXIST`).
const ONLY_NEW: i32 = 1;
/// `UDP_FLAGS_GRO_ENABLED` of `include/linux/udp.h` (Linux 6.7).
const GRO_ENABLED: u64 = 1 << 3;

/// The stack, as offsets from its end.
const KEY: i16 = -8;
const FLAGS: i16 = -16;
const TOTAL: i16 = -48;

/// Where this kernel keeps what the program reads.
struct ReadFields {
    port: i16,
    net: i16,
    net_inode: i16,
    message_flags: i16,
    /// None before Linux 6.7.
    socket_flags: Option<i16>,
}

impl ReadProbe {
    /// Starts to count reads in the network namespace with this inode number, of sockets with this
    /// port or of all.
    ///
    /// # Errors
    ///
    /// The kernel has no type information, does not permit it, or cannot watch its functions (before
    /// Linux 5.12).
    pub fn attach(netns: u32, port: Option<u16>) -> CallResult<Self> {
        let btf = Btf::kernel()?;
        let fields = ReadFields::find(&btf)?;
        let counts = PerCpuMap::create(PerCpuMapKind::Hash, "mpps_reads", SOCKETS_MAX)?;
        let links = FUNCTIONS.map(|name| {
            let (function, arguments) = btf.function(name)?;
            let result = i16::try_from(8 * arguments).unwrap_or(i16::MAX);
            let instructions = assemble(&fields, result, (netns, port), &counts)?;
            let program = Program::load_exit(function, "mpps_reads", &instructions)?;
            BpfLink::function_exit(&program, name)
        });
        let links: CallResult<_> = links.into_iter().collect();
        Ok(Self {
            counts,
            _links: links?,
        })
    }

    /// Everything counted since the probe was attached.
    ///
    /// # Errors
    ///
    /// The kernel's refusal to read its map.
    pub fn counts(&self) -> CallResult<ReadCounts> {
        let mut counts = ReadCounts::new();
        for key in self.counts.keys()? {
            let totals = self.counts.values(&key)?;
            let sum = totals
                .into_iter()
                .fold(ReadCount::default(), ReadCount::and);
            counts.insert(key[0], sum);
        }
        Ok(counts)
    }
}

/// True if the kernel takes a program with the same rights that looks at no function. Then neither a right
/// is missing, nor does a seccomp filter refuse: that cannot distinguish the kinds.
pub(crate) fn has_rights() -> bool {
    let mut program = Assembler::new();
    program.set(R0, 0).exit();
    let program = program.finish().map_err(Into::into);
    program
        .and_then(|program| Program::load(ProgramKind::RawTracepoint, "mpps_rights", &program))
        .is_ok()
}

impl ReadCount {
    /// The same with the reads of another CPU.
    fn and(self, [cut, least, most, flags]: ReadTotal) -> Self {
        let buffers = match (self.cut, cut) {
            (_, 0) => self.buffers,
            (0, _) => (least, most),
            _ => (self.buffers.0.min(least), self.buffers.1.max(most)),
        };
        Self {
            cut: self.cut + cut,
            buffers,
            takes_trains: self.takes_trains || flags & GRO_ENABLED != 0,
        }
    }
}

impl ReadFields {
    fn find(btf: &Btf) -> Result<Self, BtfError> {
        let offset = |structure: &str, path: &str, size| {
            let field = btf.member(structure, path)?;
            match i16::try_from(field.offset) {
                Ok(offset) if field.size == size => Ok(offset),
                _ => Err(BtfError::NoMember {
                    structure: structure.to_owned(),
                    member: format!("{path} of {size} bytes"),
                }),
            }
        };
        Ok(Self {
            port: offset("sock", "__sk_common.skc_num", 2)?,
            net: offset("sock", "__sk_common.skc_net.net", 8)?,
            net_inode: offset("net", "ns.inum", 4)?,
            message_flags: offset("msghdr", "msg_flags", 4)?,
            socket_flags: offset("udp_sock", "udp_flags", 8).ok(),
        })
    }
}

/// Puts the program together. In C, with `result` for the last argument:
///
/// ```c
/// int count_cut(struct sock *sk, struct msghdr *msg, size_t len, int flags, ..., int result)
/// {
///         if (!(msg->msg_flags & MSG_TRUNC))
///                 return 0;
///         // A caller that asks for the whole length, or has no buffer, knows.
///         if (flags & (MSG_TRUNC | MSG_PEEK | MSG_ERRQUEUE) || result < 0 || !len)
///                 return 0;
///         if (sk->sk_num != PORT || sk->sk_net->ns.inum != NETNS)
///                 return 0;
///         __u64 cookie = bpf_get_socket_cookie(sk);
///         struct total zero = {}, *total = bpf_map_lookup_elem(&counts, &cookie);
///         if (!total) {
///                 bpf_map_update_elem(&counts, &cookie, &zero, BPF_NOEXIST);
///                 total = bpf_map_lookup_elem(&counts, &cookie);
///                 if (!total)
///                         return 0;
///         }
///         total->cut += 1;
///         if (!total->least || len < total->least)
///                 total->least = len;
///         if (len > total->most)
///                 total->most = len;
///         total->flags = copy(&udp_sk(sk)->udp_flags);
///         return 0;
/// }
/// ```
fn assemble(
    fields: &ReadFields,
    result: i16,
    (netns, port): (u32, Option<u16>),
    counts: &PerCpuMap<[u64; 1], ReadTotal>,
) -> Result<Vec<Instruction>, AssemblyError> {
    let mut program = Assembler::new();
    program.load(Size::Double, R2, R1, 8);
    program.load(Size::Word, R2, R2, fields.message_flags);
    program.compute(Operation::And, R2, TRUNCATED);
    program.jump_if(Condition::Equal, R2, 0, "done");
    program.load(Size::Double, R2, R1, 24);
    program.jump_if32(Condition::AnyBit, R2, NO_LOSS, "done");
    program.load(Size::Double, R2, R1, result);
    program.jump_if32(Condition::Above, R2, RESULT_MAX, "done");
    program.load(Size::Double, R7, R1, 16);
    program.jump_if(Condition::Equal, R7, 0, "done");
    program.load(Size::Double, R6, R1, 0);
    if let Some(port) = port {
        program.load(Size::Half, R2, R6, fields.port);
        program.jump_if(Condition::NotEqual, R2, i32::from(port), "done");
    }
    program.load(Size::Double, R2, R6, fields.net);
    program.load(Size::Word, R2, R2, fields.net_inode);
    // Bit for bit.
    program.jump_if32(Condition::NotEqual, R2, netns as i32, "done");
    program.set(R1, R6).call(Helper::SocketCookie);
    program.store(Size::Double, R10, KEY, R0);
    find_total(&mut program, counts);
    count(&mut program, fields);
    program.label("done").set(R0, 0).exit();
    program.finish()
}

/// Leaves the total of the socket in `R8`.
fn find_total(program: &mut Assembler, counts: &PerCpuMap<[u64; 1], ReadTotal>) {
    let find = |program: &mut Assembler| {
        program.set_map(R1, counts.as_fd()).set(R2, R10);
        program.compute(Operation::Add, R2, i32::from(KEY));
    };
    find(program);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::NotEqual, R0, 0, "found");
    for at in [0, 8, 16, 24] {
        program.store(Size::Double, R10, TOTAL + at, 0);
    }
    find(program);
    program.set(R3, R10).set(R4, ONLY_NEW);
    program.compute(Operation::Add, R3, i32::from(TOTAL));
    program.call(Helper::MapUpdate);
    find(program);
    program.call(Helper::MapLookup);
    program.jump_if(Condition::Equal, R0, 0, "done");
    program.label("found").set(R8, R0);
}

/// Counts a read with a buffer of `R7` bytes, of the socket in `R6`, in the total at `R8`.
fn count(program: &mut Assembler, fields: &ReadFields) {
    program.load(Size::Double, R1, R8, 0);
    program.compute(Operation::Add, R1, 1);
    program.store(Size::Double, R8, 0, R1);
    program.load(Size::Double, R1, R8, 8);
    program.jump_if(Condition::Equal, R1, 0, "least");
    program.jump_if(Condition::AtLeast, R7, R1, "not least");
    program.label("least").store(Size::Double, R8, 8, R7);
    program.label("not least").load(Size::Double, R1, R8, 16);
    program.jump_if(Condition::AtMost, R7, R1, "not most");
    program.store(Size::Double, R8, 16, R7);
    program.label("not most");
    let Some(flags) = fields.socket_flags else {
        return;
    };
    // The argument is a `struct sock`, and these are behind its end.
    program.store(Size::Double, R10, FLAGS, 0);
    program.set(R1, R10).set(R2, 8).set(R3, R6);
    program.compute(Operation::Add, R1, i32::from(FLAGS));
    program.compute(Operation::Add, R3, i32::from(flags));
    program.call(Helper::ProbeReadKernel);
    program.load(Size::Double, R1, R10, FLAGS);
    program.store(Size::Double, R8, 24, R1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_cpus_add_up() {
        let of = |totals: &[ReadTotal]| {
            let totals = totals.iter().copied();
            totals.fold(ReadCount::default(), ReadCount::and)
        };
        // CPUs that counted nothing have zeros.
        let sum = of(&[[0; 4], [2, 100, 200, 9], [1, 50, 50, 1]]);
        let expected = ReadCount {
            cut: 3,
            buffers: (50, 200),
            takes_trains: true,
        };
        assert_eq!(sum, expected);
        assert!(!of(&[[1, 50, 50, 1]]).takes_trains);
    }
}
