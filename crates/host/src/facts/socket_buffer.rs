//! How large a socket's buffer became, and what stood in the way of more.

use mpps_os::capability;
use serde::{Deserialize, Serialize};

use crate::HostResult;
use crate::facts::sysctl;
use crate::root::Root;

/// Which of a socket's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Packets that wait for the program (`SO_RCVBUF`).
    Receive,
    /// Packets that wait for the wire (`SO_SNDBUF`).
    Send,
}

/// A socket buffer as it was asked for and as it became (`socket(7)`).
///
/// The kernel books twice the size that is asked for, because it charges each packet with its
/// own overhead, and `getsockopt` returns the booked size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketBuffer {
    /// Which buffer.
    pub direction: Direction,
    /// The size given to `setsockopt`, in bytes.
    pub asked_bytes: usize,
    /// The size that `getsockopt` returned, in bytes: twice what was granted.
    pub booked_bytes: usize,
    /// The limit for an ordinary process, `net.core.rmem_max` or `net.core.wmem_max`, in bytes;
    /// absent where this network namespace does not show it.
    pub limit_bytes: Option<usize>,
    /// The process may pass the limit by `SO_RCVBUFFORCE` or `SO_SNDBUFFORCE`: it has
    /// `CAP_NET_ADMIN` in the initial user namespace.
    pub may_force: bool,
}

/// The most that the kernel takes before it doubles it, in bytes (`INT_MAX / 2`,
/// `__sock_set_rcvbuf` in `net/core/sock.c`).
const KERNEL_BYTES_MAX: usize = i32::MAX as usize / 2;

impl SocketBuffer {
    /// A receive buffer that was asked for, with the limits of the calling thread.
    ///
    /// # Errors
    /// [`crate::HostError::Kernel`] where `net.core.rmem_max` is there and cannot be read.
    pub fn receive(asked_bytes: usize, booked_bytes: usize) -> HostResult<Self> {
        Self::with_limits(Direction::Receive, asked_bytes, booked_bytes)
    }

    /// A send buffer that was asked for, with the limits of the calling thread.
    ///
    /// # Errors
    /// [`crate::HostError::Kernel`] where `net.core.wmem_max` is there and cannot be read.
    pub fn send(asked_bytes: usize, booked_bytes: usize) -> HostResult<Self> {
        Self::with_limits(Direction::Send, asked_bytes, booked_bytes)
    }

    /// The size that the kernel granted, in the same measure as the size asked for.
    pub fn granted_bytes(&self) -> usize {
        self.booked_bytes / 2
    }

    /// Whether the socket got less than was asked for.
    pub fn is_short(&self) -> bool {
        self.granted_bytes() < self.asked_bytes
    }

    /// The size that the socket got. If it is less than was asked for, also the obstacle and the
    /// remedy.
    pub fn explanation(&self) -> String {
        let name = self.direction.name();
        let granted = self.granted_bytes();
        let booked = self.booked_bytes;
        if !self.is_short() {
            return format!(
                "{name} buffer {granted} bytes (the kernel books twice that, {booked})"
            );
        }
        let asked = self.asked_bytes;
        let limit = self.direction.limit();
        let force = self.direction.force();
        let shortage = format!("{name} buffer {granted} bytes instead of {asked}");
        if granted >= KERNEL_BYTES_MAX {
            return format!("{shortage}: that is the most that Linux gives a socket");
        }
        if self.may_force {
            return format!(
                "{shortage}: {limit} cut it; this process may pass that limit with {force}"
            );
        }
        match self.limit_bytes {
            Some(bytes) if bytes <= granted => format!(
                "{shortage}: {limit} is {bytes}; as root on the host: sysctl -w {limit}={asked}, \
                 or give the process CAP_NET_ADMIN ({force} passes the limit, though not from a \
                 user namespace)"
            ),
            Some(bytes) => format!(
                "{shortage}, although {limit} is {bytes}: the limit was raised after the socket \
                 was made, or a container cuts it; start again"
            ),
            None => format!(
                "{shortage}: this network namespace hides {limit}; as root on the host: \
                 sysctl -w {limit}={asked}"
            ),
        }
    }

    fn with_limits(
        direction: Direction,
        asked_bytes: usize,
        booked_bytes: usize,
    ) -> HostResult<Self> {
        let limit = sysctl::value_from(&Root::machine(), direction.limit())?;
        Ok(Self {
            direction,
            asked_bytes,
            booked_bytes,
            limit_bytes: limit.and_then(|text| text.parse().ok()),
            may_force: capability::effective(capability::CAP_NET_ADMIN)
                && capability::in_initial_user_namespace(),
        })
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Self::Receive => "net.core.rmem_max",
            Self::Send => "net.core.wmem_max",
        }
    }

    fn force(self) -> &'static str {
        match self {
            Self::Receive => "SO_RCVBUFFORCE",
            Self::Send => "SO_SNDBUFFORCE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: usize = 1 << 20;

    fn buffer(asked_bytes: usize, booked_bytes: usize) -> SocketBuffer {
        SocketBuffer {
            direction: Direction::Receive,
            asked_bytes,
            booked_bytes,
            limit_bytes: Some(4 * MEBIBYTE),
            may_force: false,
        }
    }

    #[test]
    fn a_buffer_of_the_size_asked_for() {
        let full = buffer(MEBIBYTE, 2 * MEBIBYTE);
        assert!(!full.is_short());
        assert_eq!(
            full.explanation(),
            "receive buffer 1048576 bytes (the kernel books twice that, 2097152)"
        );
    }

    #[test]
    fn cut_by_the_sysctl() {
        let short = buffer(64 * MEBIBYTE, 8 * MEBIBYTE);
        assert!(short.is_short());
        assert_eq!(
            short.explanation(),
            "receive buffer 4194304 bytes instead of 67108864: net.core.rmem_max is 4194304; as \
             root on the host: sysctl -w net.core.rmem_max=67108864, or give the process \
             CAP_NET_ADMIN (SO_RCVBUFFORCE passes the limit, though not from a user namespace)"
        );
    }

    #[test]
    fn each_obstacle_has_a_sentence_of_its_own() {
        let short = buffer(64 * MEBIBYTE, 8 * MEBIBYTE);
        let privileged = SocketBuffer {
            may_force: true,
            ..short.clone()
        };
        assert!(
            privileged
                .explanation()
                .contains("may pass that limit with SO_RCVBUFFORCE")
        );
        let hidden = SocketBuffer {
            limit_bytes: None,
            ..short.clone()
        };
        assert!(hidden.explanation().contains("hides net.core.rmem_max"));
        let raised = SocketBuffer {
            limit_bytes: Some(64 * MEBIBYTE),
            ..short.clone()
        };
        assert!(
            raised
                .explanation()
                .contains("although net.core.rmem_max is 67108864")
        );
        let send = SocketBuffer {
            direction: Direction::Send,
            ..short
        };
        assert!(send.explanation().starts_with("send buffer"));
        assert!(
            send.explanation()
                .contains("sysctl -w net.core.wmem_max=67108864")
        );
        let huge = buffer(usize::MAX, i32::MAX as usize - 1);
        assert!(
            huge.explanation()
                .ends_with("the most that Linux gives a socket")
        );
    }

    #[test]
    fn the_limits_of_this_thread_can_be_read() {
        let buffer = SocketBuffer::receive(1, 2).expect("/proc is here");
        assert_eq!((buffer.asked_bytes, buffer.booked_bytes), (1, 2));
        let buffer = SocketBuffer::send(3, 4).expect("/proc is here");
        assert_eq!((buffer.asked_bytes, buffer.booked_bytes), (3, 4));
    }
}
