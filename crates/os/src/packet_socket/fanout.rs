//! Fan-out: several packet sockets share the frames of one interface.

use super::PacketSocket;
use crate::CallResult;
use crate::bpf::Program;
use crate::error::On;
use crate::option::words;
use std::os::fd::{AsFd, AsRawFd};

/// How the members of a group share the frames (packet(7), `PACKET_FANOUT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanoutMode {
    /// By the flow's hash (`PACKET_FANOUT_HASH`).
    Hash,
    /// By the CPU that received it, modulo members (`PACKET_FANOUT_CPU`).
    Cpu,
    /// By what a program returns, modulo members (`PACKET_FANOUT_EBPF`). Until
    /// [`PacketSocket::set_fanout_program`] all go to the first member.
    Ebpf,
}

/// A group of packet sockets. It ends with its last member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FanoutGroup {
    /// Its number in this network namespace.
    id: u16,
    mode: FanoutMode,
    /// Outgoing frames are left out by the group (Linux 6.2); a member's filter must do it before.
    ignores_outgoing: bool,
}

impl PacketSocket {
    /// Makes a group of only this socket, with a number that the kernel chooses
    /// (`PACKET_FANOUT_FLAG_UNIQUEID`, Linux 4.12). The socket must be bound.
    ///
    /// The group leaves out frames that this host sends, if the kernel can (Linux 6.2).
    ///
    /// # Errors
    /// `EINVAL` if it is not bound or before Linux 4.12, `EALREADY` if it is in a group,
    /// `EPERM` for [`FanoutMode::Ebpf`] in a user namespace.
    pub fn new_fanout(&self, mode: FanoutMode) -> CallResult<FanoutGroup> {
        let unique = libc::PACKET_FANOUT_FLAG_UNIQUEID;
        let incoming = libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let mut ignores_outgoing = true;
        if self.set_fanout(0, mode, unique | incoming).is_err() {
            // A kernel that does not know the second flag takes the rest.
            ignores_outgoing = false;
            self.set_fanout(0, mode, unique)?;
        }
        let answer = words(&self.fd, libc::SOL_PACKET, libc::PACKET_FANOUT);
        let [word] = answer.on("getsockopt PACKET_FANOUT", &self.name)?;
        Ok(FanoutGroup {
            // The low half of the word is the number (struct fanout_args).
            id: word as u16,
            mode,
            ignores_outgoing,
        })
    }

    /// Joins a group whose members are bound alike. The socket must be bound.
    ///
    /// # Errors
    /// `EINVAL` if it is bound to another interface, `ENOSPC` if the group has 256 members.
    pub fn join_fanout(&self, group: &FanoutGroup) -> CallResult<()> {
        let flag = match group.ignores_outgoing {
            true => libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING,
            false => 0,
        };
        self.set_fanout(group.id, group.mode, flag)
    }

    /// Sets the program of its group (`PACKET_FANOUT_DATA`), a socket filter.
    ///
    /// # Errors
    /// `EINVAL` if it is in no group of [`FanoutMode::Ebpf`].
    pub fn set_fanout_program(&self, program: &Program) -> CallResult<()> {
        let fd = program.as_fd().as_raw_fd();
        self.set_int(
            libc::PACKET_FANOUT_DATA,
            "setsockopt PACKET_FANOUT_DATA",
            fd,
        )
    }

    fn set_fanout(&self, id: u16, mode: FanoutMode, flags: u32) -> CallResult<()> {
        let mode = match mode {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutMode::Ebpf => libc::PACKET_FANOUT_EBPF,
        };
        // The number in the low half, mode and flags in the high one (packet(7)).
        let word = u32::from(id) | (mode | flags) << 16;
        self.set(libc::PACKET_FANOUT, "setsockopt PACKET_FANOUT", &word)
    }
}
