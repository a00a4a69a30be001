//! Many datagrams in one system call: `recvmmsg(2)` and `sendmmsg(2)` with their arrays.

use crate::control::{self, SOURCE_BYTES, TRANSMIT_BYTES};
pub use crate::control::{
    DatagramDetails, Extras, SendError, Transmit, TransmitClock, WantedDetails,
};
use std::fmt;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// How a receive waits for its first datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveWait {
    /// Not at all (`MSG_DONTWAIT`).
    No,
    /// Until one datagram is there, or the socket's `SO_RCVTIMEO` has passed (`MSG_WAITFORONE`).
    ForOne,
}

/// Buffers for up to `count` datagrams, filled by one `recvmmsg(2)`.
pub struct ReceiveMessages {
    headers: Vec<libc::mmsghdr>,
    // The headers point into the four vectors below, which are never resized or replaced. Boxes
    // would not do: moving a box asserts that no other pointer leads into it.
    _iovecs: Vec<libc::iovec>,
    controls: Vec<u8>,
    /// Bytes of each of them.
    control_bytes: usize,
    sources: Vec<libc::sockaddr_storage>,
    arena: Vec<u8>,
    buffer_bytes: usize,
    stride: usize,
    extras: Extras,
}

/// The result of `recvmmsg(2)` for one datagram, or one GRO train.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Where its bytes begin in [`ReceiveMessages::arena`].
    pub offset: usize,
    /// Bytes that fitted into the buffer.
    pub bytes: usize,
    /// Bytes that it had, which is more than `bytes` if it was cut.
    pub wire_bytes: usize,
    /// Size in bytes of each datagram of a train but the last; 0 for a single datagram.
    pub segment_bytes: u16,
}

// SAFETY: the raw pointers in `headers` and `_iovecs` point into vectors owned by the same value, so
// they move to another thread together with what they point to.
unsafe impl Send for ReceiveMessages {}

impl ReceiveMessages {
    /// Allocates `count` buffers of `buffer_bytes` each.
    pub fn new(count: usize, buffer_bytes: usize, extras: Extras) -> Self {
        // One cache line more than needed would waste little; rounding up keeps buffers from
        // sharing lines, which matters when two threads read neighbours.
        let stride = buffer_bytes.next_multiple_of(64);
        let mut arena = vec![0_u8; stride * count];
        // One pointer for all: a borrow of the arena for each would end the one before it.
        let base = arena.as_mut_ptr();
        let mut iovecs: Vec<libc::iovec> = (0..count)
            .map(|at| libc::iovec {
                iov_base: base.wrapping_add(at * stride).cast(),
                iov_len: buffer_bytes,
            })
            .collect();
        let control_bytes = extras.control_bytes();
        let mut controls = vec![0; control_bytes * count];
        let sources_needed = if extras.details.source { count } else { 0 };
        // SAFETY: all zeros is a valid `sockaddr_storage`, a plain C struct of integers.
        let empty: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let mut sources = vec![empty; sources_needed];
        let vectors = iovecs.as_mut_ptr();
        let (controls_base, sources_base) = (controls.as_mut_ptr(), sources.as_mut_ptr());
        let headers = (0..count)
            .map(|at| {
                // SAFETY: all zeros is a valid `mmsghdr`: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vectors.wrapping_add(at);
                header.msg_hdr.msg_iovlen = 1;
                if control_bytes > 0 {
                    let own = controls_base.wrapping_add(at * control_bytes);
                    header.msg_hdr.msg_control = own.cast();
                    header.msg_hdr.msg_controllen = control_bytes as _;
                }
                if extras.details.source {
                    header.msg_hdr.msg_name = sources_base.wrapping_add(at).cast();
                    header.msg_hdr.msg_namelen =
                        mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
                }
                header
            })
            .collect();
        Self {
            headers,
            _iovecs: iovecs,
            controls,
            control_bytes,
            sources,
            arena,
            buffer_bytes,
            stride,
            extras,
        }
    }

    /// How many datagrams one call can bring.
    pub fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// All buffers; [`ReceivedMessage::offset`] points into it.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// The same, to be changed.
    pub fn arena_mut(&mut self) -> &mut [u8] {
        &mut self.arena
    }

    /// Bytes from one message's buffer to the next one's.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Fills buffers from a socket (`recvmmsg(2)`) and returns how many messages came.
    ///
    /// # Errors
    /// `EAGAIN` if none came in time, `EINTR`, and a pending error of the socket such as
    /// `ECONNREFUSED`.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, waiting: ReceiveWait) -> io::Result<usize> {
        self.rearm();
        let flags = match waiting {
            ReceiveWait::No => libc::MSG_DONTWAIT,
            ReceiveWait::ForOne => libc::MSG_WAITFORONE,
        };
        // SAFETY: each header points to one iovec, and that to `buffer_bytes` writable bytes of the
        // arena. All are owned by `self` and have not moved since `new`. Control and name pointers
        // are null or point to whole elements with their true lengths (`rearm`). `&mut self` keeps
        // all other code away while the kernel writes. The time-out pointer may be null.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                // With MSG_TRUNC the kernel returns the datagram's whole length, recv(2).
                flags | libc::MSG_TRUNC,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Fills only the first buffer (`recvmsg(2)`): one datagram a call, the yardstick.
    ///
    /// # Errors
    /// As [`ReceiveMessages::receive`].
    pub fn receive_one(
        &mut self,
        socket: BorrowedFd<'_>,
        waiting: ReceiveWait,
    ) -> io::Result<usize> {
        self.rearm();
        let Some(first) = self.headers.first_mut() else {
            return Ok(0);
        };
        let flags = match waiting {
            ReceiveWait::No => libc::MSG_DONTWAIT,
            ReceiveWait::ForOne => 0,
        };
        // SAFETY: as in `receive`, for the one header.
        let bytes = unsafe {
            libc::recvmsg(
                socket.as_raw_fd(),
                &raw mut first.msg_hdr,
                flags | libc::MSG_TRUNC,
            )
        };
        let bytes = u32::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
        first.msg_len = bytes;
        Ok(1)
    }

    /// The result of the last receive for message `at`, which must be below the number received.
    #[inline]
    pub fn received(&self, at: usize) -> ReceivedMessage {
        let header = &self.headers[at];
        let wire_bytes = header.msg_len as usize;
        ReceivedMessage {
            offset: at * self.stride,
            bytes: wire_bytes.min(self.buffer_bytes),
            wire_bytes,
            segment_bytes: if self.extras.segments {
                control::segment_bytes(self.control(at))
            } else {
                0
            },
        }
    }

    /// The details of message `at` that were asked for.
    pub fn details(&self, at: usize) -> DatagramDetails {
        DatagramDetails {
            source: self.sources.get(at).and_then(socket_address),
            ..control::details(self.control(at))
        }
    }

    /// The control messages of message `at`, or none.
    #[inline]
    fn control(&self, at: usize) -> &[u8] {
        // 32 bits of musl, 64 of glibc.
        let told = self.headers[at].msg_hdr.msg_controllen as u64 as usize;
        let from = at * self.control_bytes;
        let bytes = told.min(self.control_bytes);
        self.controls.get(from..from + bytes).unwrap_or(&[])
    }

    /// Sets back the lengths that the kernel overwrote in the last call.
    fn rearm(&mut self) {
        if self.controls.is_empty() && self.sources.is_empty() {
            return;
        }
        for header in &mut self.headers {
            if !self.controls.is_empty() {
                header.msg_hdr.msg_controllen = self.control_bytes as _;
            }
            if !self.sources.is_empty() {
                header.msg_hdr.msg_namelen =
                    mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
        }
    }
}

impl fmt::Debug for ReceiveMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveMessages")
            .field("capacity", &self.capacity())
            .field("buffer_bytes", &self.buffer_bytes)
            .finish_non_exhaustive()
    }
}

fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a `sockaddr_in`, which is smaller than and aligned as the
            // storage that it is in.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for a `sockaddr_in6`.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Payloads of up to `count` messages, passed to the kernel by one `sendmmsg(2)`.
pub struct SendMessages {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    // The destination of an unconnected socket, one element, one for each message, or none; the
    // headers point to them, and to the control messages of those that leave from an address.
    targets: Vec<libc::sockaddr_storage>,
    controls: Vec<[u8; SOURCE_BYTES]>,
    arena: Vec<u8>,
    stride: usize,
}

// SAFETY: as for `ReceiveMessages`: every raw pointer points into a vector of the same value.
unsafe impl Send for SendMessages {}

impl SendMessages {
    /// Allocates `count` messages of `message_bytes` zeros each, to `target` or, if that is none,
    /// to the peer that the socket is connected to.
    pub fn new(count: usize, message_bytes: usize, target: Option<SocketAddr>) -> Self {
        let target = target.map(|address| storage(&address));
        let target_bytes = target.map_or(0, |(_, bytes)| bytes);
        let targets = target.map(|(storage, _)| storage).into_iter().collect();
        Self::with_targets(count, message_bytes, targets, target_bytes)
    }

    /// The same, to a target of each message's own ([`SendMessages::set_target`]).
    pub fn to_each(count: usize, message_bytes: usize) -> Self {
        // SAFETY: all zeros is a valid `sockaddr_storage`, a plain C struct of integers.
        let empty: libc::sockaddr_storage = unsafe { mem::zeroed() };
        Self::with_targets(count, message_bytes, vec![empty; count], 0)
    }

    fn with_targets(
        count: usize,
        message_bytes: usize,
        mut targets: Vec<libc::sockaddr_storage>,
        target_bytes: libc::socklen_t,
    ) -> Self {
        let stride = message_bytes.next_multiple_of(64).max(64);
        let mut arena = vec![0_u8; stride * count];
        // One pointer for all: a borrow of the arena for each would end the one before it.
        let base = arena.as_mut_ptr();
        let mut iovecs: Vec<libc::iovec> = (0..count)
            .map(|at| libc::iovec {
                iov_base: base.wrapping_add(at * stride).cast(),
                iov_len: message_bytes,
            })
            .collect();
        let vectors = iovecs.as_mut_ptr();
        let is_common = targets.len() == 1 && target_bytes > 0;
        let has_targets = !targets.is_empty();
        let targets_base = targets.as_mut_ptr();
        let headers = (0..count)
            .map(|at| {
                // SAFETY: all zeros is a valid `mmsghdr`: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = vectors.wrapping_add(at);
                header.msg_hdr.msg_iovlen = 1;
                if has_targets {
                    let own = if is_common { 0 } else { at };
                    header.msg_hdr.msg_name = targets_base.wrapping_add(own).cast();
                    header.msg_hdr.msg_namelen = target_bytes;
                }
                header
            })
            .collect();
        Self {
            headers,
            iovecs,
            targets,
            controls: Vec::new(),
            arena,
            stride,
        }
    }

    /// How many messages one call can pass.
    pub fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// All payloads; message `at` begins at `at` times [`SendMessages::stride`].
    pub fn arena_mut(&mut self) -> &mut [u8] {
        &mut self.arena
    }

    /// Bytes from one message's payload to the next one's.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Changes the length of message `at`, up to the room that it was given.
    pub fn set_bytes(&mut self, at: usize, bytes: usize) {
        self.iovecs[at].iov_len = bytes.min(self.stride);
    }

    /// Sets where message `at` goes, of messages that have each their own target.
    ///
    /// # Panics
    /// If they have not.
    pub fn set_target(&mut self, at: usize, target: &SocketAddr) {
        let (storage, bytes) = storage(target);
        self.targets[at] = storage;
        self.headers[at].msg_hdr.msg_namelen = bytes;
    }

    /// Sets the address of this host that message `at` leaves from; without one the route decides.
    pub fn set_source(&mut self, at: usize, source: Option<IpAddr>) {
        if self.controls.is_empty() {
            if source.is_none() {
                return;
            }
            self.controls = vec![[0; SOURCE_BYTES]; self.headers.len()];
        }
        let header = &mut self.headers[at].msg_hdr;
        let bytes = source.map_or(0, |source| {
            control::source_address(&mut self.controls[at], source)
        });
        // The kernel looks at no control message of no bytes.
        header.msg_controllen = bytes as _;
        header.msg_control = match bytes {
            0 => ptr::null_mut(),
            _ => self.controls.as_mut_ptr().wrapping_add(at).cast(),
        };
    }

    /// Passes a range of messages to the kernel (`sendmmsg(2)`) and returns how many it took.
    /// Without waiting (`MSG_DONTWAIT`) it ends at the first message without room.
    ///
    /// # Errors
    /// The error of the first message of the range: `EAGAIN` when the send buffer stayed full for
    /// the socket's `SO_SNDTIMEO`, `ECONNREFUSED`, `EMSGSIZE`, `EPERM`, ... An error of a later
    /// message is not reported; it shows when that message is tried again.
    pub fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        range: Range<usize>,
        waits: bool,
    ) -> io::Result<usize> {
        let range = &mut self.headers[range];
        let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: each header points to one iovec with a length inside its stride of the arena,
        // and to a whole socket address and control message or none; all are owned by `self` and have not moved. The
        // kernel reads the payloads and writes only `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                range.as_mut_ptr(),
                range.len() as libc::c_uint,
                flags,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Passes only message `at` (`sendmsg(2)`): one datagram a call, the yardstick.
    ///
    /// # Errors
    /// As [`SendMessages::send`].
    pub fn send_one(&mut self, socket: BorrowedFd<'_>, at: usize) -> io::Result<()> {
        let header = &raw const self.headers[at].msg_hdr;
        // SAFETY: as in `send`, for the one header.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, 0) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for SendMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMessages")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Most messages that one [`transmit`] passes to the kernel.
const TRANSMIT_MAX: usize = 32;

/// Passes datagrams to the kernel, each to its own destination, from where they lie (`sendmmsg(2)`).
/// Returns how many it took, at most 32. It does not wait for room.
///
/// # Errors
/// That of the first: `EAGAIN` while the send buffer is full, `EMSGSIZE`, `EPERM`, ...
pub fn transmit(socket: BorrowedFd<'_>, transmits: &[Transmit<'_>]) -> io::Result<usize> {
    let count = transmits.len().min(TRANSMIT_MAX);
    // SAFETY: all zeros are valid for each of these plain C structs: null pointers, and no lengths.
    let (mut headers, mut iovecs, mut names) = unsafe {
        (
            mem::zeroed::<[libc::mmsghdr; TRANSMIT_MAX]>(),
            mem::zeroed::<[libc::iovec; TRANSMIT_MAX]>(),
            mem::zeroed::<[libc::sockaddr_storage; TRANSMIT_MAX]>(),
        )
    };
    let mut controls = [[0; TRANSMIT_BYTES]; TRANSMIT_MAX];
    for (at, one) in transmits[..count].iter().enumerate() {
        let name_bytes;
        (names[at], name_bytes) = storage(&one.destination);
        iovecs[at] = libc::iovec {
            iov_base: one.payload.as_ptr().cast_mut().cast(),
            iov_len: one.payload.len(),
        };
        let control_bytes = one.control(&mut controls[at]);
        let header = &mut headers[at].msg_hdr;
        header.msg_name = (&raw mut names[at]).cast();
        header.msg_namelen = name_bytes;
        header.msg_iov = &raw mut iovecs[at];
        header.msg_iovlen = 1;
        if control_bytes > 0 {
            header.msg_control = controls[at].as_mut_ptr().cast();
            header.msg_controllen = control_bytes as _;
        }
    }
    // SAFETY: the first `count` headers point to one iovec, one address and one control buffer each, of
    // the arrays above, which have not moved. The kernel only reads the payloads, which are borrowed.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Room for a `struct sock_extended_err` of 16 bytes and a `sockaddr_in6`, in its control message.
const ERROR_BYTES: usize = 16 + 16 + 32;

/// The next error that a socket keeps of a datagram it sent (`MSG_ERRQUEUE`, recvmsg(2)); none if there
/// is none.
///
/// # Errors
/// `EBADF`, `ENOTSOCK`.
pub fn next_error(socket: BorrowedFd<'_>) -> io::Result<Option<SendError>> {
    // SAFETY: all zeros are valid for both: null pointers, lengths and plain integers.
    let (mut header, mut name) = unsafe {
        let header: libc::msghdr = mem::zeroed();
        let name: libc::sockaddr_storage = mem::zeroed();
        (header, name)
    };
    // Beside the error, detail messages that were asked for come, too.
    let mut control = [0_u8; ERROR_BYTES + 256];
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: name and control point to the variables above with their lengths; there is no payload.
    let answer = unsafe {
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags)
    };
    if answer < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    let told = (header.msg_controllen as u64 as usize).min(control.len());
    let destination = socket_address(&name);
    Ok(destination.and_then(|destination| control::send_error(&control[..told], destination)))
}

/// A socket address as the kernel reads it, and its length.
pub(crate) fn storage(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeros is a valid `sockaddr_storage`, a plain C struct of integers.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let bytes = match address {
        SocketAddr::V4(v4) => {
            let to = (&raw mut storage).cast::<libc::sockaddr_in>();
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than and aligned as a `sockaddr_in`.
            unsafe { to.write(value) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let to = (&raw mut storage).cast::<libc::sockaddr_in6>();
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the storage is larger than and aligned as a `sockaddr_in6`.
            unsafe { to.write(value) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, bytes as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::UdpSocket;
    use std::os::fd::AsFd;

    fn pair(loopback: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
        let any: SocketAddr = loopback.parse().unwrap();
        let receiver = UdpSocket::new(&any).unwrap();
        receiver.bind(&any).unwrap();
        let target = receiver.local_address().unwrap();
        let sender = UdpSocket::new(&any).unwrap();
        sender.bind(&any).unwrap();
        (sender, receiver, target)
    }

    #[test]
    fn brings_payload_source_and_the_true_length_of_a_cut_datagram() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let (sender, receiver, target) = pair(loopback);
            let mut out = SendMessages::new(3, 100, Some(target));
            out.arena_mut()[..100].fill(7);
            out.set_bytes(1, 10);
            out.set_bytes(2, 0);
            assert_eq!(out.send(sender.as_fd(), 0..3, true).unwrap(), 3);
            let mut extras = Extras::default();
            extras.details.source = true;
            let mut into = ReceiveMessages::new(8, 64, extras);
            assert_eq!(
                into.receive(receiver.as_fd(), ReceiveWait::ForOne).unwrap(),
                3
            );
            let cut = into.received(0);
            assert_eq!((cut.bytes, cut.wire_bytes), (64, 100));
            assert_eq!(into.arena()[cut.offset..cut.offset + cut.bytes], [7; 64]);
            assert_eq!(into.received(1).bytes, 10);
            assert_eq!(into.received(2).bytes, 0);
            assert_eq!(
                into.details(1).source,
                Some(sender.local_address().unwrap())
            );
        }
    }

    #[test]
    fn a_train_arrives_with_its_segment_size() {
        let (sender, receiver, target) = pair("127.0.0.1:0");
        let extras = Extras {
            segments: true,
            ..Extras::default()
        };
        receiver.ask(&extras).unwrap();
        sender.connect(&target).unwrap();
        sender.set_segment(32).unwrap();
        let mut out = SendMessages::new(1, 32 * 10 + 5, None);
        assert_eq!(out.send(sender.as_fd(), 0..1, true).unwrap(), 1);
        let mut into = ReceiveMessages::new(4, 65_536, extras);
        assert_eq!(
            into.receive(receiver.as_fd(), ReceiveWait::ForOne).unwrap(),
            1
        );
        assert_eq!(
            (into.received(0).bytes, into.received(0).segment_bytes),
            (325, 32)
        );
        // The next message is a single datagram: the control length is set back between calls.
        out.set_bytes(0, 9);
        out.send(sender.as_fd(), 0..1, true).unwrap();
        into.receive(receiver.as_fd(), ReceiveWait::ForOne).unwrap();
        assert_eq!(
            (into.received(0).bytes, into.received(0).segment_bytes),
            (9, 0)
        );
    }

    #[test]
    fn a_datagram_brings_what_its_sender_said_of_it() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let (sender, receiver, target) = pair(loopback);
            let mut extras = Extras {
                segments: true,
                ..Extras::default()
            };
            extras.details.local = true;
            extras.details.traffic_class = true;
            extras.details.hop_limit = true;
            receiver.ask(&extras).unwrap();
            let plain = Transmit::new(target, b"plain");
            let marked = Transmit {
                payload: b"abcabcab",
                segment_bytes: Some(3),
                source: Some(target.ip()),
                traffic_class: Some(0xb9),
                hop_limit: Some(7),
                ..plain
            };
            assert_eq!(transmit(sender.as_fd(), &[plain, marked]).unwrap(), 2);
            let mut into = ReceiveMessages::new(4, 100, extras);
            into.receive(receiver.as_fd(), ReceiveWait::ForOne).unwrap();
            let said = |at| (into.received(at).segment_bytes, into.details(at));
            let details = DatagramDetails {
                local: Some(target.ip()),
                interface: Some(1),
                traffic_class: Some(0),
                hop_limit: Some(64),
                ..DatagramDetails::default()
            };
            assert_eq!(said(0), (0, details));
            let details = DatagramDetails {
                traffic_class: Some(0xb9),
                hop_limit: Some(7),
                ..details
            };
            assert_eq!(said(1), (3, details));
            assert_eq!((details.ecn(), details.dscp()), (Some(1), Some(46)));
        }
    }

    #[test]
    fn a_source_that_is_not_this_host_s_is_refused() {
        let (sender, _, target) = pair("127.0.0.1:0");
        let mut from = Transmit::new(target, b"");
        from.source = Some([192, 0, 2, 1].into());
        assert!(transmit(sender.as_fd(), &[from]).is_err());
        assert_eq!(transmit(sender.as_fd(), &[]).unwrap(), 0);
    }

    #[test]
    fn an_error_comes_back_with_its_destination() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let (sender, receiver, target) = pair(loopback);
            sender.keep_errors().unwrap();
            assert_eq!(next_error(sender.as_fd()).unwrap(), None);
            drop(receiver);
            transmit(sender.as_fd(), &[Transmit::new(target, b"to nobody")]).unwrap();
            let refused = SendError {
                destination: target,
                errno: libc::ECONNREFUSED,
                mtu: None,
                reporter: Some(target.ip()),
            };
            assert_eq!(next_error(sender.as_fd()).unwrap(), Some(refused));
            assert_eq!(next_error(sender.as_fd()).unwrap(), None);
        }
    }

    #[test]
    fn an_empty_socket_says_so_at_once() {
        let (_, receiver, _) = pair("127.0.0.1:0");
        let mut into = ReceiveMessages::new(4, 64, Extras::default());
        let error = into.receive(receiver.as_fd(), ReceiveWait::No).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
