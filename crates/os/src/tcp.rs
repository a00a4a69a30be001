//! TCP sockets that never block, with the options that decide what a short connection costs.

use crate::error::On;
use crate::option::{set_option, words};
use crate::socket::attach_cpu_steering;
use crate::{CallError, CallResult};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sockopt,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The options of a listener. Every connection that it accepts inherits them, which saves a system
/// call for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
    pub backlog: u32,
    /// Lets several listeners of one user share the address (`SO_REUSEPORT`, Linux 3.9).
    pub reuse_port: bool,
    /// Accepts a connection when its first bytes are there, or after so long without any
    /// (`TCP_DEFER_ACCEPT`, tcp(7)).
    pub defer_accept: Option<Duration>,
    /// Sends what is written at once, and does not wait to fill a segment (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Lets the reply to the first bytes carry their acknowledgement, which otherwise goes ahead in
    /// a segment of its own (`TCP_QUICKACK` of zero, tcp(7)).
    pub late_acknowledgement: bool,
    /// `close(2)` ends the connection with a RST, and leaves no TIME_WAIT (`SO_LINGER` of zero).
    pub reset_on_close: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            // More than any somaxconn that is useful: the sysctl decides.
            backlog: 65_535,
            reuse_port: false,
            defer_accept: None,
            no_delay: true,
            late_acknowledgement: false,
            reset_on_close: false,
        }
    }
}

/// A socket that accepts connections; closed when dropped, which resets those that wait in it.
#[derive(Debug)]
pub struct AcceptingSocket {
    fd: OwnedFd,
    address: SocketAddr,
}

/// One connection; closed when dropped.
#[derive(Debug)]
pub struct TcpStream {
    fd: OwnedFd,
}

impl AcceptingSocket {
    /// Opens, binds and listens (`socket(2)`, `bind(2)`, `listen(2)`); port 0 takes a free one.
    /// `SO_REUSEADDR` is set: an address whose old connections are in TIME_WAIT is not in use.
    ///
    /// # Errors
    /// `EADDRINUSE` if another socket listens there, `EADDRNOTAVAIL` if no interface has the
    /// address, `EACCES` for a port below `net.ipv4.ip_unprivileged_port_start`, `EMFILE`.
    pub fn listen(address: &SocketAddr, options: &ListenOptions) -> CallResult<Self> {
        let failed = |call: &'static str| {
            move |errno: rustix::io::Errno| CallError::new(call, address, errno.into())
        };
        let fd = open_to_bind(address)?;
        if options.reuse_port {
            sockopt::set_socket_reuseport(&fd, true).map_err(failed("setsockopt SO_REUSEPORT"))?;
        }
        if options.no_delay {
            sockopt::set_tcp_nodelay(&fd, true).map_err(failed("setsockopt TCP_NODELAY"))?;
        }
        if options.reset_on_close {
            let linger = Some(Duration::ZERO);
            sockopt::set_socket_linger(&fd, linger).map_err(failed("setsockopt SO_LINGER"))?;
        }
        if let Some(time) = options.defer_accept {
            // Whole seconds, which the kernel turns into retransmissions of its SYN-ACK
            // (secs_to_retrans, net/ipv4/tcp.c); zero would turn it off.
            let seconds = libc::c_int::try_from(time.as_secs().max(1)).unwrap_or(libc::c_int::MAX);
            set_option(&fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &seconds)
                .on("setsockopt TCP_DEFER_ACCEPT", address)?;
        }
        rustix::net::bind(&fd, address).map_err(failed("bind"))?;
        let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&fd, backlog).map_err(failed("listen"))?;
        if options.late_acknowledgement {
            // Not earlier, because listen(2) forgets it (inet_csk_delack_init); connections have it
            // from their listener.
            sockopt::set_tcp_quickack(&fd, false).map_err(failed("setsockopt TCP_QUICKACK"))?;
        }
        let address = local_address(&fd).map_err(failed("getsockname"))?;
        Ok(Self { fd, address })
    }

    /// Accepts no more: connections that still wait are reset (`shutdown(2)`). This ends the
    /// listening even if other descriptors of the socket are open.
    pub fn stop(&self) {
        // ENOTCONN: the listening has already ended.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Where it listens, with the port that was got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Steers connections of this listener's reuseport group by the CPU that received the SYN:
    /// those of `cpus[i]` go to the listener that began to listen `i`th, others to the listener
    /// `CPU modulo listeners` (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.6 for TCP, socket(7)).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on older kernels, `EINVAL` if the group is larger than a program can be.
    pub fn steer_by_cpu(&self, cpus: &[usize]) -> CallResult<()> {
        attach_cpu_steering(self.fd.as_raw_fd(), self.address, cpus)
    }

    /// Takes the next connection that waits (`accept4(2)`).
    ///
    /// # Errors
    /// `EAGAIN` if none waits; `ECONNABORTED` if it has gone meanwhile; `EMFILE`, `ENFILE`,
    /// `ENOBUFS`, `ENOMEM` if something ran out, and it still waits; network errors of the new
    /// connection, which accept(2) lists.
    #[inline]
    pub fn accept(&self) -> io::Result<TcpStream> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::accept_with(&self.fd, flags)?;
        Ok(TcpStream { fd })
    }
}

lends_descriptor!(AcceptingSocket, fd);

/// How far a peer's kernel has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProgress {
    /// Bytes that it has acknowledged since the start of the connection. They only grow.
    pub acknowledged: u64,
    /// True if it has answered everything, probes of its full window included. It lives, and its
    /// program has not read the rest. The time of the last answer is a weaker sign: probes come up
    /// to two minutes apart.
    pub is_answered: bool,
}

impl TcpStream {
    /// Begins a connection and does not wait for it (`connect(2)`). When it is writable, or broken,
    /// [`TcpStream::take_error`] returns the outcome.
    ///
    /// With a `source`, the own address is that one, and the port is chosen when the peer is known
    /// (`IP_BIND_ADDRESS_NO_PORT`, Linux 4.2), so that each pair of addresses has all the ports.
    ///
    /// The first data carries the acknowledgement of the handshake, and a close that of the reply.
    /// Otherwise each would be a segment of its own (`TCP_QUICKACK` of zero, tcp(7)). That saves
    /// both ends of a short connection two packets.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if no port is left for the pair, or no interface has `source`; `EMFILE`;
    /// `ENETUNREACH`; `ECONNREFUSED` where it is known at once.
    pub fn connect(target: &SocketAddr, source: Option<IpAddr>) -> CallResult<Self> {
        let stream = Self { fd: open(target)? };
        if let Some(source) = source {
            stream.bind_address(source)?;
        }
        sockopt::set_tcp_quickack(&stream.fd, false).on("setsockopt TCP_QUICKACK", target)?;
        match rustix::net::connect(&stream.fd, target) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(stream),
            Err(errno) => Err(CallError::new("connect", target, errno.into())),
        }
    }

    /// Sets the own address, and leaves the port open.
    fn bind_address(&self, source: IpAddr) -> CallResult<()> {
        // The option is one of level IP for both families.
        set_option(
            &self.fd,
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            &1_i32,
        )
        .on("setsockopt IP_BIND_ADDRESS_NO_PORT", source)?;
        rustix::net::bind(&self.fd, &SocketAddr::new(source, 0)).on("bind", source)
    }

    /// Receives what is there (`recv(2)`); 0 is the peer's end.
    ///
    /// # Errors
    /// `EAGAIN` if nothing is there, `ECONNRESET`, `ETIMEDOUT`.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(&self.fd, buffer, RecvFlags::empty())?;
        Ok(received)
    }

    /// Sends what there is room for (`send(2)` with `MSG_NOSIGNAL`); `more` says that more follows
    /// at once, which the kernel may put into the same segment (`MSG_MORE`).
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `ECONNRESET`, `EPIPE`, `ENOTCONN` before the connection is
    /// made.
    #[inline]
    pub fn send(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        Ok(rustix::net::send(&self.fd, bytes, flags)?)
    }

    /// Ends the own side: the peer sees the end after what was sent (`shutdown(2)`).
    ///
    /// # Errors
    /// `ENOTCONN` if there is no connection any more.
    #[inline]
    pub fn finish(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Closes with a RST, which throws away what was not sent yet, and leaves no TIME_WAIT
    /// (`SO_LINGER` of zero, socket(7), then `close(2)`).
    pub fn reset(self) {
        // On a connection that is gone already, both are without effect.
        let _ = self.reset_on_close();
    }

    /// Lets the close end the connection with a RST.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO))?)
    }

    /// Bytes that were sent and that the peer has not acknowledged (`SIOCOUTQ`, tcp(7)).
    ///
    /// # Errors
    /// `EINVAL` on a listener.
    #[inline]
    pub fn unacknowledged_bytes(&self) -> io::Result<usize> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which is TIOCOUTQ by another name (include/uapi/linux/sockios.h),
        // writes one int, and `bytes` lives across the call.
        let answer = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if answer != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// The bytes that the peer's kernel has acknowledged and answered (`TCP_INFO`, tcp(7)).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    #[inline]
    pub fn delivery(&self) -> io::Result<PeerProgress> {
        // Bytes and words of struct tcp_info, include/uapi/linux/tcp.h. `tcpi_probes` counts those
        // without an answer. Two words are milliseconds since the last send and the last answer.
        const PROBES: usize = 3;
        const SENT: usize = 11;
        const ANSWERED: usize = 14;
        const BYTES_ACKED: usize = 30;
        let info = words::<{ BYTES_ACKED + 2 }>(&self.fd, libc::IPPROTO_TCP, libc::TCP_INFO)?;
        let [a, b, c, d] = info[BYTES_ACKED].to_ne_bytes();
        let [e, f, g, h] = info[BYTES_ACKED + 1].to_ne_bytes();
        Ok(PeerProgress {
            acknowledged: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            is_answered: info[0].to_ne_bytes()[PROBES] == 0 && info[ANSWERED] <= info[SENT],
        })
    }

    /// The error that waits at the socket, which is taken from it (`SO_ERROR`, socket(7)): how a
    /// connection that was begun came out.
    ///
    /// # Errors
    /// That error.
    #[inline]
    pub fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// The own address and port (`getsockname(2)`).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(local_address(&self.fd)?)
    }
}

lends_descriptor!(TcpStream, fd);

impl From<OwnedFd> for TcpStream {
    /// The descriptor must not block.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl From<TcpStream> for OwnedFd {
    fn from(stream: TcpStream) -> Self {
        stream.fd
    }
}

/// Checks that no program listens at an address. With port 0 it finds a free port.
///
/// Listeners with [`ListenOptions::reuse_port`] silently share an address, even with another
/// process of the same user. A socket that does not share is refused.
///
/// # Errors
/// As [`AcceptingSocket::listen`].
pub fn free_address(address: &SocketAddr) -> CallResult<SocketAddr> {
    let fd = open_to_bind(address)?;
    rustix::net::bind(&fd, address)
        .and_then(|()| local_address(&fd))
        .on("bind", address)
}

/// Whether an error of a connection means no more than "not now".
#[inline]
pub fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Whether an error of `accept4(2)` means that the process or the host has run out of something,
/// so that the connection waits on, and a further call at once would find the same.
pub fn ran_out(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

fn open(address: &SocketAddr) -> CallResult<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
        .on("socket", address)
}

/// A socket that is to be bound to an address which others may have used before.
fn open_to_bind(address: &SocketAddr) -> CallResult<OwnedFd> {
    let failed = |call: &'static str| {
        move |errno: rustix::io::Errno| CallError::new(call, address, errno.into())
    };
    let fd = open(address)?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("setsockopt SO_REUSEADDR"))?;
    if address.is_ipv6() {
        // `[::]:80` and `0.0.0.0:80` are two listeners here; the sysctl bindv6only would
        // otherwise decide.
        sockopt::set_ipv6_v6only(&fd, true).map_err(failed("setsockopt IPV6_V6ONLY"))?;
    }
    Ok(fd)
}

fn local_address(fd: &OwnedFd) -> rustix::io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(fd)?)
}

#[cfg(test)]
mod tests;
