//! Settings of a running program, made from outside: of its sockets, by a copy of their descriptor
//! (`pidfd_getfd(2)`), and of its threads. They end with the socket or the process.

use std::borrow::Cow;

use mpps_os::borrowed::{BorrowedSocket, SocketOption, at_random};
use mpps_os::{CallResult, CpuList, process, sched};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::owner::{Life, Owner};
use crate::facts::socket_descriptors;
use crate::root::Root;

/// How a change names the process that it is about: `process-4711`.
pub(super) const PROCESS: &str = "process-";
/// The value of a group that the kernel spreads by the hash of addresses and ports; any other is not seen.
pub(super) const BY_HASH: &str = "by hash";
pub(super) const AT_RANDOM: &str = "at random";
/// Read of any group: no call shows its program.
const UNREAD: &str = "not shown";
const STOPPED: &str = "stopped";
pub(super) const RUNNING: &str = "running";

/// A socket of a process, so described that no later one is taken for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ProgramSocket {
    /// The process.
    pub process: Owner,
    /// Its inode number, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Its cookie (`SO_COOKIE`), which no other socket of this boot has.
    pub cookie: u64,
}

/// One thing of a program that can be read and written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum OfProgram {
    /// The bytes that may wait at a socket, with the kernel's doubling (`SO_RCVBUF`).
    ReceiveBuffer {
        /// The socket.
        socket: ProgramSocket,
    },
    /// How datagrams are spread over a group of sockets (`SO_REUSEPORT`): `by hash` or `at random`.
    Spreading {
        /// One of the group.
        socket: ProgramSocket,
        /// How many the group has.
        sockets: u32,
    },
    /// The CPUs that a thread may run on.
    ThreadCpus {
        /// Its process.
        process: Owner,
        /// Its number.
        thread: u32,
    },
    /// Whether a signal has stopped the process: `stopped` or `running`.
    Stopped {
        /// The process.
        process: Owner,
    },
}

impl ProgramSocket {
    /// A copy of its descriptor; none if the socket or its process is gone.
    fn borrow(&self) -> CallResult<Option<BorrowedSocket>> {
        if self.process.life() != Life::Alive {
            return Ok(None);
        }
        let root = Root::machine();
        let mut descriptors = socket_descriptors(&root, self.process.pid, self.inode);
        let Some(descriptor) = descriptors.next() else {
            return Ok(None);
        };
        let socket = BorrowedSocket::borrow(self.process.pid, descriptor)?;
        Ok((socket.cookie()? == self.cookie).then_some(socket))
    }
}

impl OfProgram {
    /// The number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process().pid
    }

    fn process(&self) -> &Owner {
        match self {
            Self::ReceiveBuffer { socket } | Self::Spreading { socket, .. } => &socket.process,
            Self::ThreadCpus { process, .. } | Self::Stopped { process } => process,
        }
    }

    /// Its present value; none if it is gone.
    pub(super) fn read(&self) -> CallResult<Option<String>> {
        Ok(match self {
            Self::ReceiveBuffer { socket } => match socket.borrow()? {
                Some(copy) => Some(copy.number(SocketOption::ReceiveBuffer)?.to_string()),
                None => None,
            },
            Self::Spreading { socket, .. } => socket.borrow()?.map(|_| UNREAD.to_owned()),
            _ if self.process().life() != Life::Alive => None,
            Self::ThreadCpus { thread, .. } => Some(CpuList(sched::affinity(*thread)?).to_string()),
            Self::Stopped { process } => {
                let state = [RUNNING, STOPPED][usize::from(process.is_stopped())];
                Some(state.to_owned())
            }
        })
    }

    /// Sets it, if it is still there.
    pub(super) fn write(&self, text: &str) -> CallResult<()> {
        match self {
            Self::ReceiveBuffer { socket } => match socket.borrow()?.zip(text.parse().ok()) {
                Some((copy, bytes)) => copy.set_number(SocketOption::ReceiveBuffer, bytes),
                None => Ok(()),
            },
            Self::Spreading { socket, sockets } => match socket.borrow()? {
                Some(copy) if text == AT_RANDOM => copy.spread(&at_random(*sockets)),
                Some(copy) => copy.stop_spreading().map(drop),
                None => Ok(()),
            },
            Self::ThreadCpus { thread, .. } => match text.parse::<CpuList>() {
                Ok(CpuList(cpus)) => sched::pin(*thread, &cpus),
                Err(_) => Ok(()),
            },
            Self::Stopped { process } => process::stop(process.pid, text == STOPPED),
        }
    }

    /// Whether a value is of its kind.
    pub(super) fn takes(&self, text: &str) -> bool {
        match self {
            Self::ReceiveBuffer { .. } => text.parse::<u32>().is_ok_and(|bytes| bytes > 0),
            Self::Spreading { .. } => [BY_HASH, AT_RANDOM, UNREAD].contains(&text),
            Self::ThreadCpus { .. } => text.parse::<CpuList>().is_ok(),
            Self::Stopped { .. } => [STOPPED, RUNNING].contains(&text),
        }
    }

    /// True if it may be set to this value, as far as can be seen.
    pub(super) fn may_be(&self, now: &str) -> bool {
        matches!(self, Self::Spreading { .. }) && now == UNREAD
    }

    /// Its name in a sentence.
    pub(super) fn noun(&self) -> Cow<'static, str> {
        match self {
            Self::ReceiveBuffer { .. } => "receive buffer".into(),
            Self::Spreading { sockets, .. } => format!("spreading over {sockets} sockets").into(),
            Self::ThreadCpus { thread, .. } => format!("CPUs of thread {thread}").into(),
            Self::Stopped { process } => format!("process {}", process.pid).into(),
        }
    }

    /// The right to set it (capabilities(7)), besides that of ptrace over the process.
    pub(super) fn needs(&self) -> &'static str {
        match self {
            Self::ReceiveBuffer { .. } => "CAP_NET_ADMIN",
            _ => "the program's user",
        }
    }

    /// The plain command that sets it; empty if there is none.
    pub(super) fn command(&self, text: &str) -> String {
        match self {
            Self::ReceiveBuffer { .. } | Self::Spreading { .. } => String::new(),
            Self::ThreadCpus { thread, .. } => format!("taskset -pc {text} {thread}"),
            Self::Stopped { process } => {
                let signal = ["CONT", "STOP"][usize::from(text == STOPPED)];
                format!("kill -{signal} {}", process.pid)
            }
        }
    }
}
