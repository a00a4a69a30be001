//! A program in the kernel, checked by its verifier.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::{AssemblyError, Command, Instruction, call, object_info, object_name, owned};
use crate::error::On;
use crate::{CallError, CallResult};

/// A loaded program. It does nothing until a [`BpfLink`](super::BpfLink) attaches it.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
}

/// The kind of a program, from `enum bpf_prog_type`. It decides where a program may be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramKind {
    /// Decides what a socket receives (`BPF_PROG_TYPE_SOCKET_FILTER`).
    SocketFilter = 1,
    /// Sees frames that enter or leave an interface (`BPF_PROG_TYPE_SCHED_CLS`).
    Classifier = 3,
    /// Sees frames before the kernel does (`BPF_PROG_TYPE_XDP`).
    Xdp = 6,
    /// Sees the raw arguments of a tracepoint (`BPF_PROG_TYPE_RAW_TRACEPOINT`).
    RawTracepoint = 17,
    /// Sees the arguments and the result of a function of the kernel when it returns
    /// (`BPF_PROG_TYPE_TRACING` with `BPF_TRACE_FEXIT`); see [`Program::load_exit`].
    FunctionExit = 26,
}

/// The result of running a program on one made-up packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's return value.
    pub answer: u32,
    /// The packet as it left it.
    pub data: Vec<u8>,
}

/// Where the frames of [`Program::send_live`] seem to have been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveFrames {
    /// The interface, in the calling thread's network namespace.
    pub interface_index: u32,
    /// One of its receive queues.
    pub queue: u32,
}

/// A flag of [`Program::load_with_flags`] for XDP programs that take frames in several buffers
/// (`BPF_F_XDP_HAS_FRAGS`, Linux 5.18); their data ends where the first buffer does.
pub const XDP_HAS_FRAGMENTS: u32 = 1 << 5;

/// `BPF_F_XDP_DEV_BOUND_ONLY`.
const XDP_BOUND: u32 = 1 << 6;

/// `BPF_F_TEST_XDP_LIVE_FRAMES` of `include/uapi/linux/bpf.h` (Linux 5.18).
const LIVE_FRAMES: u32 = 1 << 1;

/// The `BPF_PROG_TEST_RUN` part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestRunAttributes {
    program: u32,
    answer: u32,
    data_in_size: u32,
    data_out_size: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    context_in_size: u32,
    context_out_size: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    reserved: u32,
}

/// `struct xdp_md` of `include/uapi/linux/bpf.h`: the context of a program in a test run.
#[repr(C)]
#[derive(Default)]
struct XdpContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    interface_index: u32,
    queue: u32,
    egress_interface_index: u32,
}

/// The start of the `BPF_PROG_LOAD` part of `union bpf_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LoadAttributes {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface_index: u32,
    attach_type: u32,
    /// Of types and source lines of the program; it has none.
    debugging: [u64; 4],
    line_count: u32,
    attach_function: u32,
}

/// `BPF_XDP` of `enum bpf_attach_type`.
const XDP: u32 = 37;
/// `BPF_TRACE_FEXIT` of `enum bpf_attach_type` (Linux 5.5).
const FUNCTION_EXIT: u32 = 25;

/// `struct bpf_prog_info` up to and with `recursion_misses`, its last eight bytes (Linux 5.12).
const PROGRAM_INFO_SIZE: usize = 216;

/// Room for the verifier's explanation. It is only asked for when a program was refused.
const LOG_SIZE: u32 = 1 << 20;

/// Some helpers are open only to programs whose licence the kernel counts as compatible with its
/// own; MIT, one of the two licences of this project, is, under this spelling
/// (`license_is_gpl_compatible` in `include/linux/license.h`).
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

impl Program {
    /// Hands a program to the verifier, which proves that it ends and reads nothing foreign.
    ///
    /// bpf(2), `BPF_PROG_LOAD`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal: `EPERM` without the capabilities, otherwise the last lines of the
    /// verifier's log are in the error's object.
    pub fn load(kind: ProgramKind, name: &str, instructions: &[Instruction]) -> CallResult<Self> {
        Self::load_with_flags(kind, name, instructions, 0)
    }

    /// The same with flags of `prog_flags`, such as [`XDP_HAS_FRAGMENTS`].
    ///
    /// # Errors
    ///
    /// Also `EINVAL` for a flag that this kernel does not know.
    pub fn load_with_flags(
        kind: ProgramKind,
        name: &str,
        instructions: &[Instruction],
        flags: u32,
    ) -> CallResult<Self> {
        let attributes = LoadAttributes {
            kind: kind as u32,
            flags,
            ..LoadAttributes::default()
        };
        Self::load_as(attributes, name, instructions)
    }

    /// Loads a program for the return of a kernel function, which
    /// [`Btf::function`](super::btf::Btf::function) finds. Its context has the arguments and then the
    /// result, eight bytes each; it may read what typed arguments point to.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and `EINVAL` or the verifier's words before Linux 5.5, on machines
    /// without BPF trampolines, or for a function that cannot be traced.
    pub fn load_exit(function: u32, name: &str, instructions: &[Instruction]) -> CallResult<Self> {
        let attributes = LoadAttributes {
            kind: ProgramKind::FunctionExit as u32,
            attach_type: FUNCTION_EXIT,
            attach_function: function,
            ..LoadAttributes::default()
        };
        Self::load_as(attributes, name, instructions)
    }

    fn load_as(
        attributes: LoadAttributes,
        name: &str,
        instructions: &[Instruction],
    ) -> CallResult<Self> {
        let loaded = load(attributes, name, instructions, None).or_else(|refusal| {
            // Rights and room are not the verifier's subject. Its log would show a program that it granted.
            const OTHERS: [i32; 4] = [libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
            if OTHERS.map(Some).contains(&refusal.raw_os_error()) {
                return Err(CallError::new("bpf BPF_PROG_LOAD", name, refusal));
            }
            let mut log = vec![0; LOG_SIZE as usize];
            load(attributes, name, instructions, Some(&mut log)).map_err(|again| {
                let object = format!("{name} (verifier: {})", last_words(&log));
                CallError::new("bpf BPF_PROG_LOAD", object, again)
            })
        })?;
        Ok(Self {
            fd: loaded,
            name: name.to_owned(),
        })
    }

    /// Loads an XDP program for frames in several buffers. Before Linux 5.18 it loads one for
    /// frames in one buffer. Returns true in the first case; `instructions` is called with the same
    /// value.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and the errors of `instructions`.
    pub fn load_xdp(
        name: &str,
        instructions: impl Fn(bool) -> CallResult<Vec<Instruction>, AssemblyError>,
    ) -> CallResult<(Self, bool)> {
        let load = |fragments, flags| {
            Self::load_with_flags(ProgramKind::Xdp, name, &instructions(fragments)?, flags)
        };
        match load(true, XDP_HAS_FRAGMENTS) {
            // The verifier has no other word for a flag or a helper that it does not know.
            Err(error) if error.errno() == Some(libc::EINVAL) => Ok((load(false, 0)?, false)),
            program => Ok((program?, true)),
        }
    }

    /// Loads an XDP program, for frames in several buffers, that only this interface can have. It may ask
    /// the driver about a frame (`bpf_xdp_metadata_rx_timestamp` and others,
    /// Documentation/networking/xdp-rx-metadata.rst, Linux 6.3).
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); `EINVAL` before Linux 6.3.
    pub fn load_bound(
        name: &str,
        interface_index: u32,
        instructions: &[Instruction],
    ) -> CallResult<Self> {
        let attributes = LoadAttributes {
            kind: ProgramKind::Xdp as u32,
            flags: XDP_HAS_FRAGMENTS | XDP_BOUND,
            interface_index,
            attach_type: XDP,
            ..LoadAttributes::default()
        };
        Self::load_as(attributes, name, instructions)
    }

    /// Runs the program once, in the kernel, on this packet, which goes nowhere.
    ///
    /// bpf(2), `BPF_PROG_TEST_RUN` (`net/bpf/test_run.c`). For kinds that see packets. Without a
    /// context an XDP program finds itself on queue 0 of the loopback interface.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a packet shorter than an Ethernet header or longer than a page takes.
    pub fn test_run(&self, packet: &[u8]) -> CallResult<TestRun> {
        self.test(packet, None)
    }

    /// The same for an XDP program, with only the first `linear_bytes` of the packet in its first
    /// buffer. The program must have been loaded with [`XDP_HAS_FRAGMENTS`].
    ///
    /// # Errors
    ///
    /// Also `EINVAL` where the kernel does not let the caller choose (before Linux 6.18), or if
    /// there are fewer bytes.
    pub fn test_run_in_fragments(&self, packet: &[u8], linear_bytes: u32) -> CallResult<TestRun> {
        let context = XdpContext {
            data_end: linear_bytes,
            ..XdpContext::default()
        };
        self.test(packet, Some(context))
    }

    /// Runs a program for a raw tracepoint in the calling thread, with these arguments, at most 12. Returns its
    /// answer.
    ///
    /// bpf(2), `BPF_PROG_TEST_RUN` (Linux 5.10).
    ///
    /// # Errors
    ///
    /// `EINVAL` for fewer arguments than it reads.
    pub fn run_with(&self, arguments: &[u64]) -> CallResult<u32> {
        let mut attributes = TestRunAttributes {
            program: self.fd.as_raw_fd() as u32,
            context_in: arguments.as_ptr() as u64,
            context_in_size: u32::try_from(size_of_val(arguments)).unwrap_or(u32::MAX),
            ..TestRunAttributes::default()
        };
        // SAFETY: the layout is the test part of `union bpf_attr` with its padding spelled out.
        // The kernel reads the arguments, which outlive the call, and writes only the attributes.
        unsafe { call(Command::ProgramTestRun, &mut attributes) }
            .on("bpf BPF_PROG_TEST_RUN", &self.name)?;
        Ok(attributes.answer)
    }

    /// Has the XDP program handle `repeat` copies of this frame as if an interface had received
    /// them, for real: `XDP_TX` and redirects send them, `XDP_PASS` hands them to the kernel.
    ///
    /// bpf(2), `BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`
    /// (`Documentation/bpf/bpf_prog_run.rst`, Linux 5.18). It handles `batch` frames at a time, at
    /// most 256; 0 means 64. Frames are recycled: a frame that the program has changed may come
    /// back changed.
    ///
    /// # Errors
    ///
    /// `EINTR` if a signal came when some of the frames were handled: only the program's own
    /// counters know how many. `ENODEV` or `EINVAL` for an interface or queue that does not exist.
    /// `E2BIG` for a larger batch. `EINVAL` for a frame that does not fit into a page with its
    /// headroom (about 3 400 bytes). `EINVAL` or `E2BIG` before Linux 5.18.
    pub fn send_live(
        &self,
        frame: &[u8],
        context: LiveFrames,
        repeat: u32,
        batch: u32,
    ) -> CallResult<()> {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let told = XdpContext {
            data_end: length,
            interface_index: context.interface_index,
            queue: context.queue,
            ..XdpContext::default()
        };
        let mut attributes = TestRunAttributes {
            program: self.fd.as_raw_fd() as u32,
            data_in: frame.as_ptr() as u64,
            data_in_size: length,
            context_in: std::ptr::from_ref(&told) as u64,
            context_in_size: size_of::<XdpContext>() as u32,
            repeat,
            flags: LIVE_FRAMES,
            batch,
            ..TestRunAttributes::default()
        };
        // SAFETY: the layout is the test part of `union bpf_attr` with its padding spelled out.
        // The kernel reads the frame and the context, which outlive the call, in their sizes, and
        // with live frames it writes nothing but the attributes.
        unsafe { call(Command::ProgramTestRun, &mut attributes) }
            .map(drop)
            .on("bpf BPF_PROG_TEST_RUN", &self.name)
    }

    fn test(&self, packet: &[u8], mut context: Option<XdpContext>) -> CallResult<TestRun> {
        // A program may make the packet longer, at most by the headroom of a page.
        let mut data = vec![0; packet.len() + 4096];
        let mut attributes = TestRunAttributes {
            program: self.fd.as_raw_fd() as u32,
            data_in: packet.as_ptr() as u64,
            data_in_size: u32::try_from(packet.len()).unwrap_or(u32::MAX),
            data_out: data.as_mut_ptr() as u64,
            data_out_size: u32::try_from(data.len()).unwrap_or(u32::MAX),
            ..TestRunAttributes::default()
        };
        if let Some(context) = &mut context {
            attributes.context_in = std::ptr::from_mut(context) as u64;
            attributes.context_in_size = size_of::<XdpContext>() as u32;
        }
        // SAFETY: the layout is the test part of `union bpf_attr` with its padding spelled out.
        // The kernel reads the packet and the context, and writes at most `data_out_size` bytes to
        // `data`; all three outlive the call.
        unsafe { call(Command::ProgramTestRun, &mut attributes) }
            .on("bpf BPF_PROG_TEST_RUN", &self.name)?;
        data.truncate(attributes.data_out_size as usize);
        Ok(TestRun {
            answer: attributes.answer,
            data,
        })
    }

    /// How often the kernel left the program out because it was already running on that CPU.
    ///
    /// bpf(2), `BPF_OBJ_GET_INFO_BY_FD`; Linux 5.12, zero before.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn recursion_misses(&self) -> CallResult<u64> {
        let mut info = [0u8; PROGRAM_INFO_SIZE];
        object_info(self.fd.as_fd(), &self.name, &mut info)?;
        Ok(info
            .last_chunk()
            .map_or(0, |field| u64::from_ne_bytes(*field)))
    }
}

lends_descriptor!(Program, fd);

fn load(
    attributes: LoadAttributes,
    name: &str,
    instructions: &[Instruction],
    log: Option<&mut Vec<u8>>,
) -> std::io::Result<OwnedFd> {
    let mut attributes = LoadAttributes {
        instruction_count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        name: object_name(name),
        ..attributes
    };
    if let Some(log) = log {
        attributes.log_level = 1;
        attributes.log_size = u32::try_from(log.len()).unwrap_or(u32::MAX);
        attributes.log = log.as_mut_ptr() as u64;
    }
    // SAFETY: the layout is the start of the load part of `union bpf_attr`, without padding. The
    // instructions, the licence and the log live until the call returns, the counts are their
    // lengths, and `Instruction` has the layout of `struct bpf_insn`.
    owned(unsafe { call(Command::ProgramLoad, &mut attributes) }?)
}

/// The end of the verifier's log on one line, without its closing statistics.
fn last_words(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text
        .trim_end_matches('\0')
        .lines()
        .filter(|line| !line.starts_with("processed ") && !line.trim().is_empty())
        .collect();
    match lines.len() {
        0 => "no explanation".to_owned(),
        count => lines[count.saturating_sub(4)..].join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn the_log_is_cut_to_its_point() {
        let log = b"0: (b7) r0 = 0\n1: bad\nR1 !read_ok\nprocessed 2 insns\n\0\0\0\0";
        assert_eq!(last_words(log), "0: (b7) r0 = 0 | 1: bad | R1 !read_ok");
        assert_eq!(last_words(&[0; 8]), "no explanation");
    }
}
