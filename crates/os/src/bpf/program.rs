//! A program in the kernel, checked by its verifier.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Command, Instruction, call, object_name, owned};
use crate::{Error, Result};

/// A loaded program. It does nothing until a [`Link`](super::Link) attaches it.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
}

/// What a program may be attached to, from `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgramKind {
    /// Sees frames that enter or leave an interface (`BPF_PROG_TYPE_SCHED_CLS`).
    Classifier = 3,
    /// Sees the raw arguments of a tracepoint (`BPF_PROG_TYPE_RAW_TRACEPOINT`).
    RawTracepoint = 17,
}

/// The start of the `BPF_PROG_LOAD` part of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
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
}

/// The `BPF_OBJ_GET_INFO_BY_FD` part of `union bpf_attr`.
#[repr(C)]
struct InfoAttributes {
    fd: u32,
    size: u32,
    info: u64,
}

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
    pub fn load(kind: ProgramKind, name: &str, instructions: &[Instruction]) -> Result<Self> {
        let loaded = load(kind, name, instructions, None).or_else(|refusal| {
            // Permission is not the verifier's subject, and it would say nothing.
            if refusal.raw_os_error() == Some(libc::EPERM) {
                return Err(Error::new("bpf BPF_PROG_LOAD", name, refusal));
            }
            let mut log = vec![0; LOG_SIZE as usize];
            load(kind, name, instructions, Some(&mut log)).map_err(|again| {
                let object = format!("{name} (verifier: {})", last_words(&log));
                Error::new("bpf BPF_PROG_LOAD", object, again)
            })
        })?;
        Ok(Self {
            fd: loaded,
            name: name.to_owned(),
        })
    }

    /// How often the kernel left the program out because it was already running on that CPU.
    ///
    /// bpf(2), `BPF_OBJ_GET_INFO_BY_FD`; Linux 5.12, zero before.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn recursion_misses(&self) -> Result<u64> {
        let mut info = [0u8; PROGRAM_INFO_SIZE];
        let mut attributes = InfoAttributes {
            fd: self.fd.as_raw_fd() as u32,
            size: PROGRAM_INFO_SIZE as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: the layout is `info` of `union bpf_attr`; the kernel writes at most `size` bytes
        // to `info`, which outlives the call. All the address fields in the zeroed input are null.
        unsafe { call(Command::ObjectInfo, &mut attributes) }
            .map_err(|refusal| Error::new("bpf BPF_OBJ_GET_INFO_BY_FD", &self.name, refusal))?;
        Ok(info
            .last_chunk()
            .map_or(0, |field| u64::from_ne_bytes(*field)))
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn load(
    kind: ProgramKind,
    name: &str,
    instructions: &[Instruction],
    log: Option<&mut Vec<u8>>,
) -> std::io::Result<OwnedFd> {
    let mut attributes = LoadAttributes {
        kind: kind as u32,
        instruction_count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        name: object_name(name),
        ..LoadAttributes::default()
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
