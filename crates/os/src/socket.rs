//! UDP sockets with the options that decide how many packets a second they take.

use crate::CallResult;
use crate::bpf::classic::{self, ClassicAssembler, ClassicInstruction};
use crate::control::{self, Extras, TransmitClock};
use crate::error::On;
use crate::messages::storage;
use crate::option::{
    BUFFER_BYTES_MAX, UDP_SEGMENT, send_buffer, set_option, set_send_buffer, words,
};
use rustix::net::sockopt::{self, Timeout};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

// Values from include/uapi/asm-generic/socket.h and include/uapi/linux/udp.h, for the names that
// the `libc` crate does not have on every target.
const SO_BUSY_POLL: libc::c_int = 46;
pub(crate) const SO_ATTACH_REUSEPORT_CBPF: libc::c_int = 51;
const SO_MEMINFO: libc::c_int = 55;
// Values from include/uapi/linux/in.h and in6.h.
const MCAST_JOIN_GROUP: libc::c_int = 42;
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;
const IPV6_MULTICAST_ALL: libc::c_int = 29;

/// `struct group_source_req` of include/uapi/linux/in.h, which begins as `struct group_req` does.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupRequest {
    interface_index: u32,
    padding: u32,
    group: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
}

/// A UDP socket over IPv4 or IPv6; closed when dropped.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    is_ipv4: bool,
    /// The address it was opened for, which names it in errors.
    name: String,
}

/// A socket's memory and drops, from `SO_MEMINFO`: the same figures that `sock_diag` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes in the receive queue, kernel overhead included.
    pub receive_queued_bytes: u32,
    /// Limit of the receive queue in bytes, as the kernel counts it (twice what was asked for).
    pub receive_limit_bytes: u32,
    /// Bytes in flight on the sending side, kernel overhead included.
    pub send_queued_bytes: u32,
    /// Limit of the sending side in bytes, as the kernel counts it.
    pub send_limit_bytes: u32,
    /// Packets that the kernel dropped at this socket since it was opened. It wraps at 32 bits,
    /// and a GRO train counts once.
    pub drops: u32,
}

impl UdpSocket {
    /// Opens a socket of the address's family (`socket(2)`, `SOCK_CLOEXEC`). It is not bound yet.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` if the kernel has no IPv6, `EMFILE` if descriptors ran out.
    pub fn new(address: &SocketAddr) -> CallResult<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = socket_with(
            family,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(ipproto::UDP),
        )
        .on("socket", address)?;
        let socket = Self {
            fd,
            is_ipv4: address.is_ipv4(),
            name: address.to_string(),
        };
        if address.is_ipv6() {
            // `[::]:4321` and `0.0.0.0:4321` are two sockets here; the sysctl bindv6only would
            // otherwise decide.
            sockopt::set_ipv6_v6only(&socket.fd, true).on("setsockopt IPV6_V6ONLY", address)?;
        }
        Ok(socket)
    }

    /// Binds to a local address (`bind(2)`).
    ///
    /// # Errors
    /// `EADDRINUSE` if the port is taken, `EADDRNOTAVAIL` if no interface has the address.
    pub fn bind(&self, address: &SocketAddr) -> CallResult<()> {
        rustix::net::bind(&self.fd, address).on("bind", address)
    }

    /// Fixes the peer (`connect(2)`), which saves a route look-up per packet.
    ///
    /// # Errors
    /// `ENETUNREACH` if there is no route.
    pub fn connect(&self, address: &SocketAddr) -> CallResult<()> {
        rustix::net::connect(&self.fd, address).on("connect", address)
    }

    /// The local address (`getsockname(2)`), with the chosen port after a bind to port 0.
    ///
    /// # Errors
    /// None that a bound socket meets.
    pub fn local_address(&self) -> CallResult<SocketAddr> {
        let any = rustix::net::getsockname(&self.fd).on("getsockname", &self.name)?;
        SocketAddr::try_from(any).on("getsockname", &self.name)
    }

    /// Lets several sockets bind the same address and port, and spreads flows over them by hash
    /// (`SO_REUSEPORT`, socket(7)). To be called before [`UdpSocket::bind`].
    ///
    /// # Errors
    /// None on kernels from 3.9.
    pub fn set_reuse_port(&self) -> CallResult<()> {
        sockopt::set_socket_reuseport(&self.fd, true).on("setsockopt SO_REUSEPORT", &self.name)
    }

    /// Asks for a receive buffer of `bytes` and returns what the kernel granted, without its
    /// doubling for overhead. `SO_RCVBUFFORCE` is tried first: it passes `net.core.rmem_max`, and
    /// needs `CAP_NET_ADMIN` in the initial user namespace; `SO_RCVBUF` is cut to that sysctl.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_receive_buffer(&self, bytes: usize) -> CallResult<usize> {
        let asked = bytes.min(BUFFER_BYTES_MAX);
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, asked).is_err() {
            sockopt::set_socket_recv_buffer_size(&self.fd, asked)
                .on("setsockopt SO_RCVBUF", &self.name)?;
        }
        self.receive_buffer()
    }

    /// The same for the send buffer (`SO_SNDBUFFORCE`, `SO_SNDBUF`, `net.core.wmem_max`).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_send_buffer(&self, bytes: usize) -> CallResult<usize> {
        set_send_buffer(&self.fd, &self.name, bytes)
    }

    /// The receive buffer in bytes, without the kernel's doubling.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn receive_buffer(&self) -> CallResult<usize> {
        let doubled = sockopt::socket_recv_buffer_size(&self.fd);
        Ok(doubled.on("getsockopt SO_RCVBUF", &self.name)? / 2)
    }

    /// The send buffer in bytes, without the kernel's doubling.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn send_buffer(&self) -> CallResult<usize> {
        send_buffer(&self.fd, &self.name)
    }

    /// Asks the kernel for what a receive is to bring besides the payload: trains (`UDP_GRO`, kernel
    /// 5.0, udp(7)), and details of each datagram.
    ///
    /// # Errors
    /// `ENOPROTOOPT` on a kernel that does not know the option.
    pub fn ask(&self, extras: &Extras) -> CallResult<()> {
        extras.ask(&self.fd, self.is_ipv4, &self.name)
    }

    /// Has the socket keep what it learns of datagrams that it sent, for
    /// [`crate::messages::next_error`].
    ///
    /// # Errors
    /// None is known.
    pub fn keep_errors(&self) -> CallResult<()> {
        control::keep_errors(&self.fd, self.is_ipv4, &self.name)
    }

    /// Has the socket take times to leave at ([`Transmit::time`](crate::messages::Transmit)).
    ///
    /// # Errors
    /// `EPERM` for `CLOCK_TAI` without `CAP_NET_ADMIN`.
    pub fn set_transmit_clock(&self, clock: TransmitClock) -> CallResult<()> {
        clock.ask(&self.fd, &self.name)
    }

    /// Lets one send pass many datagrams of `segment_bytes` each (`UDP_SEGMENT`, kernel 4.18).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on kernels before 4.18.
    pub fn set_segment(&self, segment_bytes: u16) -> CallResult<()> {
        self.set_int(
            libc::IPPROTO_UDP,
            UDP_SEGMENT,
            "setsockopt UDP_SEGMENT",
            libc::c_int::from(segment_bytes),
        )
    }

    /// Lets a waiting receive poll the device queue for this time (`SO_BUSY_POLL`).
    ///
    /// # Errors
    /// `EPERM` for a raise without `CAP_NET_ADMIN`.
    pub fn set_busy_poll(&self, microseconds: u32) -> CallResult<()> {
        let value = libc::c_int::try_from(microseconds).unwrap_or(libc::c_int::MAX);
        self.set_int(
            libc::SOL_SOCKET,
            SO_BUSY_POLL,
            "setsockopt SO_BUSY_POLL",
            value,
        )
    }

    /// Limits how long a blocking receive waits (`SO_RCVTIMEO`); zero for no limit.
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_receive_timeout(&self, timeout: Duration) -> CallResult<()> {
        self.set_timeout(Timeout::Recv, "setsockopt SO_RCVTIMEO", timeout)
    }

    /// Limits how long a blocking send waits for room in the send buffer (`SO_SNDTIMEO`).
    ///
    /// # Errors
    /// None besides a closed descriptor.
    pub fn set_send_timeout(&self, timeout: Duration) -> CallResult<()> {
        self.set_timeout(Timeout::Send, "setsockopt SO_SNDTIMEO", timeout)
    }

    /// Joins a multicast group on an interface (`MCAST_JOIN_GROUP`), or only what one sender sends to it
    /// (`MCAST_JOIN_SOURCE_GROUP`, RFC 3678). If `interface_index` is 0, the route decides on the
    /// interface. From then on the socket gets nothing of groups that only other sockets joined
    /// (`IP_MULTICAST_ALL`, ip(7)).
    ///
    /// # Errors
    /// `EINVAL` if the address is no multicast group, `ENODEV` if no interface serves it.
    pub fn join_group(
        &self,
        group: IpAddr,
        source: Option<IpAddr>,
        interface_index: u32,
    ) -> CallResult<()> {
        let [level, all] = match self.is_ipv4 {
            true => [libc::IPPROTO_IP, libc::IP_MULTICAST_ALL],
            false => [libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL],
        };
        self.set_int(level, all, "setsockopt IP_MULTICAST_ALL", 0)?;
        let [group_storage, source_storage] =
            [group, source.unwrap_or(group)].map(|ip| storage(&SocketAddr::new(ip, 0)).0);
        let request = GroupRequest {
            interface_index,
            padding: 0,
            group: group_storage,
            source: source_storage,
        };
        let option = match source {
            None => MCAST_JOIN_GROUP,
            Some(_) => MCAST_JOIN_SOURCE_GROUP,
        };
        set_option(&self.fd, level, option, &request).on("join multicast group", group)
    }

    /// Steers packets of this socket's reuseport group by the CPU that received them: packets
    /// received on `cpus[i]` go to the socket that was bound `i`th, others to `CPU modulo sockets`
    /// (`SO_ATTACH_REUSEPORT_CBPF`, kernel 4.5, socket(7)).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on kernels before 4.5, `EINVAL` if the group is larger than a program can be.
    pub fn steer_by_cpu(&self, cpus: &[usize]) -> CallResult<()> {
        attach_cpu_steering(self.fd.as_raw_fd(), &self.name, cpus)
    }

    /// The socket's memory and drops (`SO_MEMINFO`, kernel 4.11).
    ///
    /// # Errors
    /// `ENOPROTOOPT` on kernels before 4.11.
    pub fn memory(&self) -> CallResult<SocketMemory> {
        let values: [u32; 9] = words(&self.fd, libc::SOL_SOCKET, SO_MEMINFO)
            .on("getsockopt SO_MEMINFO", &self.name)?;
        // Order of enum in include/uapi/linux/sock_diag.h: SK_MEMINFO_RMEM_ALLOC, _RCVBUF,
        // _WMEM_ALLOC, _SNDBUF, _FWD_ALLOC, _WMEM_QUEUED, _OPTMEM, _BACKLOG, _DROPS.
        Ok(SocketMemory {
            receive_queued_bytes: values[0],
            receive_limit_bytes: values[1],
            send_queued_bytes: values[2],
            send_limit_bytes: values[3],
            drops: values[8],
        })
    }

    fn set_timeout(&self, which: Timeout, call: &'static str, timeout: Duration) -> CallResult<()> {
        let timeout = (!timeout.is_zero()).then_some(timeout);
        sockopt::set_socket_timeout(&self.fd, which, timeout).on(call, &self.name)
    }

    fn set_int(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        call: &'static str,
        value: libc::c_int,
    ) -> CallResult<()> {
        set_option(&self.fd, level, name, &value).on(call, &self.name)
    }
}

lends_descriptor!(UdpSocket, fd);

/// Gives a reuseport group the program of [`UdpSocket::steer_by_cpu`].
pub(crate) fn attach_cpu_steering(
    fd: RawFd,
    object: impl fmt::Display,
    cpus: &[usize],
) -> CallResult<()> {
    const CALL: &str = "setsockopt SO_ATTACH_REUSEPORT_CBPF";
    classic::set(fd, SO_ATTACH_REUSEPORT_CBPF, &cpu_steering_program(cpus)).on(CALL, object)
}

/// The classic BPF of [`UdpSocket::steer_by_cpu`]. As C:
///
/// ```c
/// if (cpu == cpus[0]) return 0;
/// if (cpu == cpus[1]) return 1;
/// ...
/// return cpu % n;
/// ```
///
/// The fall-back is a modulo, because a value beyond the group makes the kernel fall back to the
/// hash without a word (`reuseport_select_sock`, net/core/sock_reuseport.c).
fn cpu_steering_program(cpus: &[usize]) -> Vec<ClassicInstruction> {
    let mut program = ClassicAssembler::new();
    program.load_cpu();
    for (index, cpu) in cpus.iter().enumerate() {
        program.answer_for(*cpu as u32, index as u32);
    }
    program.finish_modulo(cpus.len().max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn tells_what_buffer_it_got_without_the_kernels_doubling() {
        let socket = UdpSocket::new(&loopback()).unwrap();
        let got = socket.set_receive_buffer(64 * 1024).unwrap();
        assert_eq!(got, 64 * 1024);
        assert_eq!(socket.receive_buffer().unwrap(), got);
        assert_eq!(
            socket.memory().unwrap().receive_limit_bytes as usize,
            2 * got
        );
    }

    #[test]
    fn counts_what_a_full_buffer_drops() {
        let receiver = UdpSocket::new(&loopback()).unwrap();
        receiver.set_receive_buffer(4096).unwrap();
        receiver.bind(&loopback()).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = receiver.local_address().unwrap();
        for _ in 0..1000 {
            sender.send_to(&[0; 32], target).unwrap();
        }
        let reader = std::net::UdpSocket::from(receiver.fd.try_clone().unwrap());
        reader.set_nonblocking(true).unwrap();
        let mut read = 0;
        while reader.recv(&mut [0; 64]).is_ok() {
            read += 1;
        }
        assert!(read < 1000, "the buffer of 4 KiB held everything");
        assert_eq!(read + receiver.memory().unwrap().drops, 1000);
    }

    #[test]
    fn a_taken_port_is_named() {
        let first = UdpSocket::new(&loopback()).unwrap();
        first.bind(&loopback()).unwrap();
        let address = first.local_address().unwrap();
        let second = UdpSocket::new(&address).unwrap();
        let error = second.bind(&address).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EADDRINUSE));
        assert!(error.to_string().contains(&address.to_string()));
    }

    /// Runs the steering program as the kernel would, for one CPU.
    fn run(program: &[ClassicInstruction], cpu: u32) -> u32 {
        let mut a = 0;
        let mut at = 0;
        loop {
            let op = program[at];
            at += 1;
            match u32::from(op.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    assert_eq!(op.constant as i32, libc::SKF_AD_OFF + libc::SKF_AD_CPU);
                    a = cpu;
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if a == op.constant {
                        op.jump_true
                    } else {
                        op.jump_false
                    });
                }
                code if code == libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K => a %= op.constant,
                code if code == libc::BPF_RET | libc::BPF_K => return op.constant,
                0x16 => return a,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn steers_each_cpu_to_its_socket_and_never_beyond_the_group() {
        let program = cpu_steering_program(&[5, 1, 9]);
        assert_eq!(run(&program, 5), 0);
        assert_eq!(run(&program, 1), 1);
        assert_eq!(run(&program, 9), 2);
        assert!((0..64).all(|cpu| run(&program, cpu) < 3));
    }

    #[test]
    fn the_kernel_takes_the_steering_program() {
        let socket = UdpSocket::new(&loopback()).unwrap();
        socket.set_reuse_port().unwrap();
        socket.bind(&loopback()).unwrap();
        socket.steer_by_cpu(&[0, 1]).unwrap();
    }
}
