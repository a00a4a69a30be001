//! A process that copies descriptors of other processes, and lends those of sockets.
//!
//! A process may put another file in the place of its socket before it is copied. The close of a copy may wait
//! until the server of that file answers (FUSE), and no signal ends a thread that waits there. So the copy is made
//! in a process of its own. This one gets only sockets, and waits for no other close.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitOptions, kill_process, pidfd_getfd, pidfd_open,
    waitpid,
};
use rustix::stdio;

/// The calls of a copy. An answer has the number of the call that failed.
const CALLS: [&str; 3] = ["pidfd_open", "pidfd_getfd", "getsockopt SO_TYPE"];
/// The number of a copy that was made.
const MADE: u32 = CALLS.len() as u32;
/// An answer takes some microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// With this many processes that wait for the close of a file, none is started.
const WAITING_MAX: usize = 8;

/// Processes that have not ended yet.
static WAITING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A call that failed, and why.
type LendRefusal = (&'static str, io::Error);

/// Copies descriptors, each of a process and its number there, in order; those that are sockets.
pub(super) fn lend(asked: &[(u32, i32)]) -> Vec<Result<OwnedFd, LendRefusal>> {
    let refused = |error: io::Error| {
        let each = asked.iter().map(|_| {
            let error = io::Error::new(error.kind(), error.to_string());
            Err(("fork", error))
        });
        each.collect()
    };
    if asked.is_empty() {
        return Vec::new();
    }
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
    if waiting.len() >= WAITING_MAX {
        let why = "programs put other files in the place of their sockets, and closing those does not end";
        return refused(io::Error::other(why));
    }
    match begin(asked) {
        Err(error) => refused(error),
        Ok((child, socket)) => {
            let answers: Vec<_> = asked.iter().map(|_| answer(&socket)).collect();
            // Another file than a socket is closed as the process ends.
            let is_brief = |one: &Result<OwnedFd, LendRefusal>| match one {
                Ok(_) => true,
                Err((call, _)) => CALLS[..2].contains(call),
            };
            let ends = answers.iter().all(is_brief);
            if !ends || waitpid(Some(child), WaitOptions::empty()).is_err() {
                let _ = kill_process(child, Signal::KILL);
                waiting.push(child);
            }
            answers
        }
    }
}

/// Starts the process, and returns the end of its socket.
fn begin(asked: &[(u32, i32)]) -> io::Result<(Pid, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (own, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_timeout(&own, sockopt::Timeout::Recv, Some(PATIENCE))?;
    // SAFETY: the child makes system calls only: it neither allocates nor takes a lock.
    match unsafe { libc::fork() } {
        0 => serve(&its, asked),
        child => {
            let child = Pid::from_raw(child).filter(|child| child.as_raw_nonzero().get() > 0);
            Ok((child.ok_or_else(io::Error::last_os_error)?, own))
        }
    }
}

/// Answers each request, and ends. All other files of the program are closed first: nothing that reads its output
/// waits for this end.
fn serve(socket: &OwnedFd, asked: &[(u32, i32)]) -> ! {
    let _ = stdio::dup2_stdin(socket);
    // SAFETY: these are descriptors of this process only, which uses no other than 0. If the kernel lacks the call
    // (before Linux 5.9), they stay open.
    unsafe { libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32) };
    for (process, descriptor) in asked {
        let made = copy(*process, *descriptor);
        let (words, copied) = match &made {
            Ok(copied) => ([MADE, 0], Some(copied.as_fd())),
            Err((call, error)) => ([*call, error.raw_os_error() as u32], None),
        };
        if send(stdio::stdin(), words, copied).is_err() {
            break;
        }
    }
    // SAFETY: ends the process without running anything of the program that it was forked from.
    unsafe { libc::_exit(0) }
}

fn copy(process: u32, descriptor: i32) -> Result<OwnedFd, (u32, Errno)> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or((0, Errno::SRCH))?;
    let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| (0, error))?;
    let copied = pidfd_getfd(&held, descriptor, PidfdGetfdFlags::empty());
    let copied = copied.map_err(|error| (1, error))?;
    match sockopt::socket_type(&copied) {
        Ok(_) => Ok(copied),
        Err(error) => {
            // The end of this process closes it.
            mem::forget(copied);
            Err((2, error))
        }
    }
}

fn send(
    to: BorrowedFd<'_>,
    [call, error]: [u32; 2],
    copied: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&call.to_ne_bytes());
    bytes[4..].copy_from_slice(&error.to_ne_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = copied.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts = [IoSlice::new(&bytes)];
    retry_on_intr(|| sendmsg(to, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn answer(from: &OwnedFd) -> Result<OwnedFd, LendRefusal> {
    let failed = |error: io::Error| ("recvmsg", error);
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = retry_on_intr(|| recvmsg(from, &mut parts, &mut control, flags));
    let got = got.map_err(|error| failed(error.into()))?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if let Some(copied) = descriptors.last() {
        return Ok(copied);
    }
    let [call, error] =
        [0, 4].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|one| bytes[at + one])));
    match CALLS
        .get(call as usize)
        .filter(|_| got.bytes == bytes.len())
    {
        Some(call) => Err((call, io::Error::from_raw_os_error(error as i32))),
        None => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}
