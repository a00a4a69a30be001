//! Sockets of other processes, borrowed by a copy of their descriptor (`pidfd_getfd(2)`, Linux 5.6).
//! An option that is set by the copy holds for the socket, and so for its process.

mod lender;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::sockopt;

use crate::bpf::classic::{self, ClassicAssembler, ClassicInstruction};
use crate::error::On;
use crate::option::UDP_GRO;
use crate::option::{set_option, words};
use crate::socket::SO_ATTACH_REUSEPORT_CBPF;
use crate::{CallError, CallResult};

/// include/uapi/asm-generic/socket.h; libc lacks it.
const SO_BUF_LOCK: libc::c_int = 72;

/// A socket of another process, for as long as this copy of its descriptor is held. The socket stays
/// open for that time, also if its process ends.
#[derive(Debug)]
pub struct BorrowedSocket {
    fd: OwnedFd,
    name: String,
}

impl BorrowedSocket {
    /// Copies a descriptor of a process.
    ///
    /// # Errors
    /// `EPERM` without the rights of ptrace over that process (ptrace(2), "Ptrace access mode checking"),
    /// `ESRCH` if it has ended, `EBADF` if it has no such descriptor, `ENOTSOCK` for another file, `ENOSYS` before Linux 5.6.
    pub fn borrow(process: u32, descriptor: i32) -> CallResult<Self> {
        let mut copies = Self::borrow_each(&[(process, descriptor)]);
        copies.remove(0)
    }

    /// The same for descriptors of several processes: a copy or an error for each, in order. One process of its own
    /// makes all copies.
    pub fn borrow_each(asked: &[(u32, i32)]) -> Vec<CallResult<Self>> {
        let copies = lender::lend(asked).into_iter().zip(asked);
        let named = copies.map(|(copy, (process, descriptor))| {
            let name = format!("descriptor {descriptor} of process {process}");
            match copy {
                Ok(fd) => Ok(Self { fd, name }),
                Err((call, error)) => Err(CallError::new(call, name, error)),
            }
        });
        named.collect()
    }

    /// The number that no other socket of this boot has (`SO_COOKIE`, Linux 4.12).
    ///
    /// # Errors
    /// `ENOTSOCK` for another file, as in the other methods.
    pub fn cookie(&self) -> CallResult<u64> {
        sockopt::socket_cookie(&self.fd).on("getsockopt SO_COOKIE", &self.name)
    }

    /// True if it shares its port (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn shares_port(&self) -> CallResult<bool> {
        sockopt::socket_reuseport(&self.fd).on("getsockopt SO_REUSEPORT", &self.name)
    }

    /// True if it takes trains of datagrams (`UDP_GRO`).
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.0.
    pub fn takes_trains(&self) -> CallResult<bool> {
        let value = words::<1>(&self.fd, libc::IPPROTO_UDP, UDP_GRO);
        Ok(value.on("getsockopt UDP_GRO", &self.name)? != [0])
    }

    /// The smaller of the hop limits that it sends unicast with (`IP_TTL`, ip(7);
    /// `IPV6_UNICAST_HOPS`, ipv6(7)).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn hop_limit(&self) -> CallResult<u32> {
        let v4 = words::<1>(&self.fd, libc::IPPROTO_IP, libc::IP_TTL);
        let [v4] = v4.on("getsockopt IP_TTL", &self.name)?;
        let v6 = words::<1>(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS);
        // A socket of IPv4 has no such option.
        Ok(v6.map_or(v4, |[v6]| v6.min(v4)))
    }

    /// The bytes that may wait to be read, with the kernel's doubling (`SO_RCVBUF`).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn receive_buffer(&self) -> CallResult<u32> {
        let value = words(&self.fd, libc::SOL_SOCKET, libc::SO_RCVBUF);
        let [bytes] = value.on("getsockopt SO_RCVBUF", &self.name)?;
        Ok(bytes)
    }

    /// Sets them, also beyond `net.core.rmem_max` (`SO_RCVBUFFORCE`): to half of `bytes`, which the kernel
    /// doubles.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` in the first user namespace.
    pub fn set_receive_buffer(&self, bytes: u32) -> CallResult<()> {
        let set = self.force(libc::SO_RCVBUFFORCE, bytes);
        set.on("setsockopt SO_RCVBUFFORCE", &self.name)
    }

    /// Sets half of `bytes` by this option. The kernel then marks the size as the program's own wish
    /// (`SOCK_RCVBUF_LOCK`, `SOCK_SNDBUF_LOCK` of include/net/sock.h). If it had no such mark,
    /// that is removed (`SO_BUF_LOCK`, Linux 5.14; an earlier kernel keeps it).
    fn force(&self, option: libc::c_int, bytes: u32) -> io::Result<()> {
        let marks = words::<1>(&self.fd, libc::SOL_SOCKET, SO_BUF_LOCK);
        set_option(&self.fd, libc::SOL_SOCKET, option, &(bytes / 2))?;
        match marks {
            Ok([marks]) => set_option(&self.fd, libc::SOL_SOCKET, SO_BUF_LOCK, &marks),
            Err(_) => Ok(()),
        }
    }

    /// The bytes that may wait to leave this host, with the kernel's doubling (`SO_SNDBUF`).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn send_buffer(&self) -> CallResult<u32> {
        let value = words(&self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF);
        let [bytes] = value.on("getsockopt SO_SNDBUF", &self.name)?;
        Ok(bytes)
    }

    /// Sets them, also beyond `net.core.wmem_max` (`SO_SNDBUFFORCE`): to half of `bytes`, which the kernel
    /// doubles.
    ///
    /// # Errors
    /// As [`BorrowedSocket::set_receive_buffer`].
    pub fn set_send_buffer(&self, bytes: u32) -> CallResult<()> {
        let set = self.force(libc::SO_SNDBUFFORCE, bytes);
        set.on("setsockopt SO_SNDBUFFORCE", &self.name)
    }

    /// The most connections that may wait to be accepted, less one: the backlog of listen(2); none unless it
    /// listens (`TCP_INFO`, `tcp_get_info` in net/ipv4/tcp.c).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn backlog(&self) -> CallResult<Option<u32>> {
        /// `TCP_LISTEN` (include/net/tcp_states.h), and `tcpi_state` and `tcpi_sacked` as words of
        /// `struct tcp_info`.
        const LISTENING: u8 = 10;
        let info = words(&self.fd, libc::IPPROTO_TCP, libc::TCP_INFO);
        let [state, .., backlog] = info.on("getsockopt TCP_INFO", &self.name)? as [u32; 8];
        Ok((state.to_ne_bytes()[0] == LISTENING).then_some(backlog))
    }

    /// Lets N connections wait, up to `net.core.somaxconn` (`listen(2)` once more). A socket that does not listen
    /// stays as it is.
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn set_backlog(&self, connections: u32) -> CallResult<()> {
        let Some(_) = self.backlog()? else {
            return Ok(());
        };
        let connections = i32::try_from(connections).unwrap_or(i32::MAX);
        rustix::net::listen(&self.fd, connections).on("listen", &self.name)
    }

    /// Gives its group of `SO_REUSEPORT` a program that chooses the socket of each datagram by its
    /// place in the group (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5). It replaces the program
    /// before it, which no call shows.
    ///
    /// # Errors
    /// `EINVAL` if it is in no group.
    pub fn spread(&self, program: &[ClassicInstruction]) -> CallResult<()> {
        let set = classic::set(self.fd.as_raw_fd(), SO_ATTACH_REUSEPORT_CBPF, program);
        set.on("setsockopt SO_ATTACH_REUSEPORT_CBPF", &self.name)
    }

    /// Takes the program of its group away; false if it had none (`SO_DETACH_REUSEPORT_BPF`, Linux 5.3).
    ///
    /// # Errors
    /// As [`BorrowedSocket::cookie`].
    pub fn stop_spreading(&self) -> CallResult<bool> {
        /// include/uapi/asm-generic/socket.h; libc lacks it.
        const SO_DETACH_REUSEPORT_BPF: libc::c_int = 68;
        let none = 0_u32;
        match set_option(&self.fd, libc::SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &none) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            told => told
                .map(|()| true)
                .on("setsockopt SO_DETACH_REUSEPORT_BPF", &self.name),
        }
    }
}

lends_descriptor!(BorrowedSocket, fd);

/// How [`BorrowedSocket::spread`] chooses the socket of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpreadWay {
    /// By a hash of its source address and ports, which differs from the kernel's: each flow has one socket.
    Flow,
    /// By the CPU that handles it: a flow has one socket while one CPU serves it.
    Cpu,
    /// At random: one flow comes to all sockets and loses its order.
    Random,
}

impl SpreadWay {
    /// The program for a group of this many sockets.
    pub fn program(self, sockets: u32) -> Vec<ClassicInstruction> {
        let sockets = sockets.max(1);
        let mut program = ClassicAssembler::new();
        match self {
            Self::Flow => return classic::flow_modulo(sockets),
            Self::Cpu => program.load_cpu(),
            Self::Random => program.load_random(),
        }
        .finish_modulo(sockets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Extras;
    use crate::sched;
    use crate::socket::UdpSocket;
    use std::net::UdpSocket as StdSocket;
    use std::os::fd::AsFd;

    /// A sandbox may forbid to copy a descriptor: none then.
    fn borrowed(socket: &impl AsFd) -> Option<BorrowedSocket> {
        let descriptor = socket.as_fd().as_raw_fd();
        let copy = BorrowedSocket::borrow(std::process::id(), descriptor).ok()?;
        copy.cookie().ok()?;
        Some(copy)
    }

    #[test]
    fn an_option_set_by_the_copy_holds_for_the_socket() {
        let socket = UdpSocket::new(&([127, 0, 0, 1], 0).into()).expect("a socket");
        let Some(copy) = borrowed(&socket) else {
            return;
        };
        assert!(!copy.takes_trains().expect("an option"));
        let trains = Extras {
            segments: true,
            ..Extras::default()
        };
        socket.ask(&trains).expect("an option");
        assert!(copy.takes_trains().expect("an option"));
        let buffer = copy.receive_buffer().expect("an option");
        if copy.set_receive_buffer(2 * buffer).is_ok() {
            assert_eq!(socket.receive_buffer().expect("an option"), buffer as usize);
            let again = borrowed(&socket).expect("as before");
            assert_eq!(again.receive_buffer().expect("an option"), 2 * buffer);
        }
    }

    /// The kernel marks sizes that a program asked for.
    #[test]
    fn a_forced_size_is_not_the_programs_own() {
        let asks = StdSocket::bind("127.0.0.1:0").expect("a port");
        let silent = StdSocket::bind("127.0.0.1:0").expect("a port");
        sockopt::set_socket_recv_buffer_size(&asks, 8192).expect("an option");
        let marks = |socket: &StdSocket| words::<1>(socket, libc::SOL_SOCKET, SO_BUF_LOCK);
        // Linux 5.14.
        let Ok([0]) = marks(&silent) else { return };
        for (socket, marked) in [(&silent, 0), (&asks, 2)] {
            let Some(copy) = borrowed(socket) else { return };
            if copy.set_receive_buffer(1 << 20).is_err() {
                return;
            }
            copy.set_send_buffer(1 << 20).expect("as before");
            assert_eq!(copy.receive_buffer().expect("an option"), 1 << 20);
            assert_eq!(marks(socket).expect("an option"), [marked]);
        }
    }

    #[test]
    fn a_listener_gets_a_longer_queue_and_goes_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let Some(copy) = borrowed(&listener) else {
            return;
        };
        let address = listener.local_addr().expect("it is bound");
        let waiting = std::net::TcpStream::connect(address).expect("it has room");
        let old = copy.backlog().expect("an option").expect("it listens");
        copy.set_backlog(7).expect("it listens");
        assert_eq!(copy.backlog().expect("an option"), Some(7));
        copy.set_backlog(old).expect("it listens");
        assert_eq!(copy.backlog().expect("an option"), Some(old));
        assert!(listener.accept().is_ok(), "what waited is still there");
        // A connection is no listener, and does not become one.
        let copy = borrowed(&waiting).expect("as before");
        copy.set_backlog(7).expect("nothing is done");
        assert_eq!(copy.backlog().expect("an option"), None);
        let datagrams = UdpSocket::new(&([127, 0, 0, 1], 0).into()).expect("a socket");
        borrowed(&datagrams).map(|copy| copy.backlog().expect_err("no TCP"));
    }

    #[test]
    fn a_group_is_spread_and_no_longer() {
        let first = UdpSocket::new(&([127, 0, 0, 1], 0).into()).expect("a socket");
        let Some(copy) = borrowed(&first) else { return };
        first.set_reuse_port().expect("an option");
        first
            .bind(&([127, 0, 0, 1], 0).into())
            .expect("a port is free");
        let address = first.local_address().expect("it is bound");
        let second = UdpSocket::new(&address).expect("a socket");
        second.set_reuse_port().expect("an option");
        second.bind(&address).expect("shared");
        let sender = StdSocket::bind("127.0.0.1:0").expect("a port");
        let each = |count: u32| {
            for _ in 0..count {
                sender.send_to(b"x", address).expect("to loopback");
            }
            [&first, &second].map(|one| one.memory().expect("Linux 4.11").receive_queued_bytes)
        };
        let hashed = each(16);
        assert!(hashed.contains(&0), "one flow, one socket: {hashed:?}");
        assert!(!copy.stop_spreading().expect("Linux 5.3"), "it had none");
        let random = SpreadWay::Random.program(2);
        copy.spread(&random).expect("a group");
        let spread = each(64);
        assert!(spread[0] > hashed[0] && spread[1] > hashed[1], "{spread:?}");
        assert!(copy.stop_spreading().expect("Linux 5.3"));
        let before = spread;
        let after = each(16);
        assert_eq!(
            [0, 1].map(|at| hashed[at] == 0),
            [0, 1].map(|at| before[at] == after[at])
        );
    }

    /// The numbers of the datagrams of each flow at both sockets of a group, in the order of arrival. Each of 16
    /// flows sends 32 from each CPU.
    fn numbers_of_flows(way: SpreadWay, host: &str) -> Option<Vec<[Vec<u8>; 2]>> {
        let open = |port: u16| {
            let address = format!("{host}:{port}").parse().expect("an address");
            let socket = UdpSocket::new(&address).expect("a socket");
            socket.set_reuse_port().expect("an option");
            socket.bind(&address).expect("a port is free");
            socket
        };
        let first = open(0);
        let address = first.local_address().expect("it is bound");
        let second = open(address.port());
        borrowed(&first)?
            .spread(&way.program(2))
            .expect("it is a group");
        let flow = || StdSocket::bind(format!("{host}:0")).expect("a port is free");
        let flows: Vec<StdSocket> = (0..16).map(|_| flow()).collect();
        let port = |flow: &StdSocket| flow.local_addr().expect("it is bound").port();
        let cpus = sched::affinity(sched::thread_id()).expect("own CPUs");
        for (at, cpu) in cpus.iter().take(2).enumerate() {
            sched::pin_current(&[*cpu]).expect("an own CPU");
            for number in 0..32_u8 {
                for flow in &flows {
                    let number = at as u8 * 32 + number;
                    flow.send_to(&[number], address).expect("to loopback");
                }
            }
        }
        sched::pin_current(&cpus).expect("own CPUs");
        let mut numbers = vec![[const { Vec::new() }; 2]; flows.len()];
        for (at, socket) in [first, second].into_iter().enumerate() {
            let copy = socket.as_fd().try_clone_to_owned();
            let socket = StdSocket::from(copy.expect("a descriptor is free"));
            socket.set_nonblocking(true).expect("an option");
            let mut number = [0];
            while let Ok((_, from)) = socket.recv_from(&mut number) {
                let flow = flows.iter().position(|flow| port(flow) == from.port());
                numbers[flow.expect("one of these")][at].push(number[0]);
            }
        }
        Some(numbers)
    }

    /// True if one socket has the whole flow, and in order.
    fn is_in_order(flow: &[Vec<u8>; 2]) -> bool {
        flow.iter().any(Vec::is_empty) && flow.iter().all(|numbers| numbers.is_sorted())
    }

    #[test]
    fn a_flow_keeps_its_order_by_hash_and_while_one_cpu_serves_it() {
        for host in ["127.0.0.1", "[::1]"] {
            let Some(flows) = numbers_of_flows(SpreadWay::Flow, host) else {
                return;
            };
            assert!(flows.iter().all(is_in_order), "{flows:?}");
            // All 16 at one socket: 1 of 32 768.
            let first = flows.iter().filter(|flow| flow[1].is_empty()).count();
            assert!((1..16).contains(&first), "{flows:?}");
            let flows = numbers_of_flows(SpreadWay::Cpu, host).expect("as before");
            for one_cpu in [0..32_u8, 32..64] {
                let part = |numbers: &Vec<u8>| {
                    let part = numbers.iter().filter(|number| one_cpu.contains(*number));
                    part.copied().collect()
                };
                let parts = flows.iter().map(|flow| [part(&flow[0]), part(&flow[1])]);
                let parts: Vec<[Vec<u8>; 2]> = parts.collect();
                assert!(parts.iter().all(is_in_order), "{parts:?}");
            }
            let flows = numbers_of_flows(SpreadWay::Random, host).expect("as before");
            assert!(!flows.iter().any(is_in_order), "{flows:?}");
        }
    }

    #[test]
    fn what_is_no_socket_and_no_process_is_an_error() {
        assert!(BorrowedSocket::borrow(u32::MAX, 0).is_err());
        let file = std::fs::File::open("/proc/self/stat").expect("/proc");
        let copy = BorrowedSocket::borrow(std::process::id(), file.as_fd().as_raw_fd());
        copy.expect_err("it is no socket");
    }
}
