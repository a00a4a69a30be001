//! Whether a group of `SO_REUSEPORT` has a program that chooses its sockets.
//!
//! No call shows that: `SO_DETACH_REUSEPORT_BPF` says it, and removes the program. So a BPF program, which this
//! process runs once, reads it in the kernel. It is attached to nothing.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd};

use mpps_os::borrowed::BorrowedSocket;
use mpps_os::bpf::asm::{
    Assembler, Condition, Helper, Operation, R0, R1, R2, R3, R6, R7, R10, Size,
};
use mpps_os::bpf::btf::Btf;
use mpps_os::bpf::{Program, ProgramKind};
use mpps_os::{CallError, CallResult};

/// From a process to the open files of its table.
const TO_TABLE: [(&str, &str); 3] = [
    ("task_struct", "files"),
    ("files_struct", "fdt"),
    ("fdtable", "fd"),
];
/// From an open file to the group of a socket, and to the program of that.
const TO_GROUP: [(&str, &str); 3] = [
    ("file", "private_data"),
    ("socket", "sk"),
    ("sock", "sk_reuseport_cb"),
];
const TO_PROGRAM: (&str, &str) = ("sock_reuseport", "prog");
/// The answers; 0 if something could not be read.
const NONE: i32 = 1;
const SOME: i32 = 2;
/// The place of a pointer on the stack.
const POINTER: i16 = -8;

thread_local! {
    static READER: OnceCell<Option<Program>> = const { OnceCell::new() };
}

/// True if the group of a socket has a program; none if that is not seen (`CAP_BPF`, `CAP_PERFMON`, Linux 5.10).
pub(super) fn has_program(socket: &BorrowedSocket) -> Option<bool> {
    READER.with(|reader| {
        let reader = reader.get_or_init(|| load().ok()).as_ref()?;
        // A descriptor is never negative, so the cast keeps its value.
        let descriptor = socket.as_fd().as_raw_fd() as u64;
        match i32::try_from(reader.run_with(&[descriptor]).ok()?).ok()? {
            NONE => Some(false),
            SOME => Some(true),
            _ => None,
        }
    })
}

/// Puts the program together. In C, with a copy of each pointer:
///
/// ```c
/// int read(__u64 descriptor)
/// {
///         struct file *file = current->files->fdt->fd[descriptor];
///         struct sock_reuseport *group = ((struct socket *)file->private_data)->sk->sk_reuseport_cb;
///         return group && group->prog ? SOME : NONE;
/// }
/// ```
fn load() -> CallResult<Program> {
    let btf = Btf::kernel()?;
    let mut program = Assembler::new();
    let follow = |program: &mut Assembler, (structure, field)| -> CallResult<()> {
        let offset = btf.member(structure, field)?.offset;
        read(program, i32::try_from(offset).unwrap_or(i32::MAX));
        Ok::<_, CallError>(())
    };
    program.load(Size::Double, R6, R1, 0);
    program.compute(Operation::ShiftLeft, R6, 3);
    program.call(Helper::CurrentTask).set(R7, R0);
    for field in TO_TABLE {
        follow(&mut program, field)?;
    }
    program.compute(Operation::Add, R7, R6);
    read(&mut program, 0);
    for field in TO_GROUP {
        follow(&mut program, field)?;
    }
    program.jump_if(Condition::Equal, R7, 0, "none");
    follow(&mut program, TO_PROGRAM)?;
    program.jump_if(Condition::Equal, R7, 0, "none");
    program.set(R0, SOME).exit();
    program.label("none").set(R0, NONE).exit();
    program.label("unread").set(R0, 0).exit();
    Program::load(ProgramKind::RawTracepoint, "mpps_group", &program.finish()?)
}

/// Leaves in `R7` the pointer that is this far behind it.
fn read(program: &mut Assembler, offset: i32) {
    program.set(R1, R10).set(R2, 8).set(R3, R7);
    program.compute(Operation::Add, R1, i32::from(POINTER));
    program.compute(Operation::Add, R3, offset);
    program.call(Helper::ProbeReadKernel);
    program.jump_if(Condition::NotEqual, R0, 0, "unread");
    program.load(Size::Double, R7, R10, POINTER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_os::borrowed::SpreadWay;
    use mpps_os::socket::UdpSocket;

    #[test]
    fn a_program_of_a_group_is_seen() {
        // Not by a user.
        if load().is_err() {
            return;
        }
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let address = host.parse().expect("an address");
            let socket = UdpSocket::new(&address).expect("a socket");
            let own = std::process::id();
            let Ok(copy) = BorrowedSocket::borrow(own, socket.as_fd().as_raw_fd()) else {
                return;
            };
            assert_eq!(has_program(&copy), Some(false), "{host}: of no group");
            socket.set_reuse_port().expect("an option");
            socket.bind(&address).expect("a port is free");
            assert_eq!(has_program(&copy), Some(false), "{host}");
            copy.spread(&SpreadWay::Cpu.program(1)).expect("a group");
            assert_eq!(has_program(&copy), Some(true), "{host}");
            copy.stop_spreading().expect("Linux 5.3");
            assert_eq!(has_program(&copy), Some(false), "{host}");
        }
    }
}
