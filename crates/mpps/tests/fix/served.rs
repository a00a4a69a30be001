//! A Python server in a namespace of its own, and bursts to it.

use super::PORT;
use crate::common::{Entered, Running, mpps, quiet_namespace};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::sock_diag::{self, UdpEntry};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
/// Sockets of one group, a thread each, that reads one datagram, or all that wait, and sleeps.
pub(super) const SERVER: &str = r"
import ctypes, os, socket, sys, threading, time
sockets, pause, reads_all = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == 'all'
def serve(s):
    while True:
        s.recv(2048)
        try:
            while reads_all:
                s.recv(2048, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        time.sleep(pause)
for at in range(sockets):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if sockets > 1:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('127.0.0.1', 4400))
    if sys.argv[4:] == ['processes']:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG
            serve(s)
        s.close()
    else:
        threading.Thread(target=serve, args=(s,), daemon=True).start()
print('ready', flush=True)
threading.Event().wait()
";

/// A host, its server, and one flow to it.
pub(super) struct Served {
    pub(super) host: NetNamespace,
    pub(super) server: Running,
}

impl Served {
    pub(super) fn start(arguments: [&str; 3]) -> Self {
        Self::start_as(arguments, 0)
    }

    pub(super) fn start_as(arguments: [&str; 3], user: u32) -> Self {
        Self::start_program(SERVER, &arguments, user)
    }

    pub(super) fn start_program(program: &str, arguments: &[&str], user: u32) -> Self {
        let host = quiet_namespace();
        let server = Self::program(&host, program, arguments, user);
        Self { host, server }
    }

    pub(super) fn program(
        host: &NetNamespace,
        code: &str,
        arguments: &[&str],
        user: u32,
    ) -> Running {
        let mut python = Command::new("python3");
        python
            .args(["-c", code])
            .args(arguments)
            .uid(user)
            .gid(user)
            .process_group(0);
        let mut server = host.within(|| Running::start(&mut python));
        server.line("ready");
        server
    }

    /// Does this while bursts of this size come, one each 2 ms.
    pub(super) fn under<R: Send>(&self, burst: usize, work: impl FnOnce() -> R + Send) -> R {
        self.under_flows(burst, &[self.flow()], work)
    }

    pub(super) fn under_bursts<R: Send>(
        &self,
        pause: Duration,
        burst: usize,
        work: impl FnOnce() -> R + Send,
    ) -> R {
        self.under_flows_each(pause, burst, &[self.flow()], work)
    }

    pub(super) fn flow(&self) -> UdpSocket {
        let client = self.host.within(|| UdpSocket::bind("127.0.0.1:0"));
        client.expect("a port is free")
    }

    /// The same with a burst of these flows together.
    pub(super) fn under_flows<R: Send>(
        &self,
        burst: usize,
        flows: &[UdpSocket],
        work: impl FnOnce() -> R + Send,
    ) -> R {
        self.under_flows_each(Duration::from_millis(2), burst, flows, work)
    }

    pub(super) fn under_flows_each<R: Send>(
        &self,
        pause: Duration,
        burst: usize,
        flows: &[UdpSocket],
        work: impl FnOnce() -> R + Send,
    ) -> R {
        let (end, over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || bursts(pause, burst, flows, &over));
            let _end = end;
            self.host.within(work)
        })
    }

    pub(super) fn sockets(&self) -> Vec<UdpEntry> {
        let mut all = self.host.within(sock_diag::udp).expect("it can be asked");
        all.retain(|one| one.local.port() == PORT);
        all.sort_by_key(|one| one.inode);
        all
    }

    pub(super) fn buffers(&self) -> Vec<u32> {
        self.sockets().iter().map(|one| one.buffer_bytes).collect()
    }

    pub(super) fn pid(&self) -> String {
        self.server.id().to_string()
    }

    /// The bytes that a flow of 64 datagrams leaves in the queue of each socket while the server is stopped.
    pub(super) fn queues(&self) -> Vec<u32> {
        self.queues_of(&self.flow())
    }

    pub(super) fn queues_of(&self, client: &UdpSocket) -> Vec<u32> {
        let wait_until = |holds: &dyn Fn() -> bool| {
            while !holds() {
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait_until(&|| self.sockets().iter().all(|one| one.queued_bytes == 0));
        self.server.signal("STOP");
        wait_until(&|| {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
            let mut stats = threads
                .flatten()
                .map(|one| fs::read_to_string(one.path().join("stat")));
            stats.all(|stat| stat.is_ok_and(|stat| stat.contains(") T ")))
        });
        let before = self.sockets();
        for _ in 0..64 {
            client
                .send_to(&[0; 100], ("127.0.0.1", PORT))
                .expect("to loopback");
        }
        let after = self.sockets();
        self.server.signal("CONT");
        let grown = after
            .iter()
            .zip(&before)
            .map(|(now, then)| now.queued_bytes - then.queued_bytes);
        grown.collect()
    }
}

/// Sends them each 2 ms until the other end of the channel is gone, also if its work panics.
pub(super) fn bursts(
    pause: Duration,
    burst: usize,
    flows: &[UdpSocket],
    over: &mpsc::Receiver<()>,
) {
    let mut all = flows.iter().cycle();
    while over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        for client in all.by_ref().take(burst) {
            let _ = client.send_to(&[0; 100], ("127.0.0.1", PORT));
        }
    }
}

/// The words of a fix with short looks and N runs: the differences of these trials are plain.
pub(super) fn words(repeat: &str) -> Vec<&str> {
    let fixed = "fix --yes --port 4400 --duration 1 --run 300ms --repeat";
    fixed.split(' ').chain([repeat]).collect()
}

pub(super) fn fix(repeat: &str) -> Command {
    mpps(&words(repeat))
}
