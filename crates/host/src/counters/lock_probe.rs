//! Counts waits for locks of the kernel, by CPU.
//!
//! A BPF program at the tracepoint `lock:contention_begin` (Linux 5.19) counts in a map. In a virtual
//! machine whose host does not wake waiting CPUs, spin locks do not pass there (`virt_spin_lock`).

use mpps_os::bpf::asm::{Assembler, Condition, Helper, Operation, R0, R1, R2, R10, Size};
use mpps_os::bpf::{BpfLink, PerCpuMap, PerCpuMapKind, Program, ProgramKind};
use mpps_os::{CallError, CallResult};
use std::os::fd::AsFd;

/// The place on the stack of the index of the map's only entry.
const INDEX: i16 = -8;

/// Counts waits on the whole machine for as long as it lives.
#[derive(Debug)]
pub struct LockProbe {
    waits: PerCpuMap<[u32; 1], [u64; 1]>,
    _link: BpfLink,
}

impl LockProbe {
    /// Starts to count.
    ///
    /// # Errors
    /// `ENOENT` if this kernel has no such tracepoint, `EPERM` without the capabilities.
    pub fn attach() -> CallResult<Self> {
        let waits = PerCpuMap::create(PerCpuMapKind::Array, "mpps_locks", 1)?;
        let mut program = Assembler::new();
        program.store(Size::Word, R10, INDEX, 0);
        program.set_map(R1, waits.as_fd()).set(R2, R10);
        program.compute(Operation::Add, R2, i32::from(INDEX));
        program.call(Helper::MapLookup);
        program.jump_if(Condition::Equal, R0, 0, "done");
        program.load(Size::Double, R1, R0, 0);
        program.compute(Operation::Add, R1, 1);
        program.store(Size::Double, R0, 0, R1);
        program.label("done").set(R0, 0).exit();
        let program = program.finish().map_err(CallError::from)?;
        let program = Program::load(ProgramKind::RawTracepoint, "mpps_locks", &program)?;
        let link = BpfLink::raw_tracepoint(&program, c"contention_begin")?;
        Ok(Self { waits, _link: link })
    }

    /// The waits of each possible CPU since then.
    ///
    /// # Errors
    /// The kernel's refusal to read its map.
    pub fn waits(&self) -> CallResult<Vec<u64>> {
        let waits = self.waits.values(&[0])?;
        Ok(waits.into_iter().map(|[count]| count).collect())
    }
}
