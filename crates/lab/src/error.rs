//! Why there is no lab.

use std::fmt;

/// Why a lab could not be made or used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The kernel refused something that traffic depends on.
    #[error(transparent)]
    Kernel(#[from] mpps_os::CallError),
    /// A veth has from 1 to 4096 queues (drivers/net/veth.c asks rtnetlink, which allows that).
    #[error("a lab of {0} queues: 1 to 4096 are possible")]
    Queues(u16),
    /// Either no queue has a CPU, or each has one.
    #[error("{cpus} CPUs for {queues} queues: name one for each queue, or none at all")]
    QueueCpus {
        /// How many CPUs were named.
        cpus: usize,
        /// How many queues there are.
        queues: u16,
    },
    /// IPv6 needs 1280 bytes (RFC 8200, section 5), and no IP packet is longer than 65535.
    #[error("an MTU of {0} bytes: 1280 to 65535 are possible")]
    Mtu(u32),
    /// The sender's addresses end in 30 to 254.
    #[error("a sender with {0} addresses: 1 to 225 are possible")]
    SenderAddresses(u8),
    /// Packets still moved after the longest wait.
    #[error("packets still move in the lab after {0} ms")]
    Restless(u128),
    /// A program that makes rules of packet filters is not on this machine.
    #[error("there is no program {0}")]
    NoProgram(String),
    /// A program that makes rules of packet filters failed.
    #[error("{command}: {why}")]
    Program {
        /// The command line.
        command: String,
        /// The reason, mostly the program's own message.
        why: String,
    },
}

/// Prints the text of `Display`, because `fn main() -> Result<(), Error>` prints an error this way.
impl fmt::Debug for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
