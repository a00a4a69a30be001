//! A program that mpps did not start: this test program, started again, with sockets of its own.

use super::scenario::{PORT, Scenario};
use crate::common::{Running, kill, words};
use mpps_os::socket::UdpSocket;
use std::env;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

/// The orders of the program: how it treats its sockets, their number, and the address: `spin 1
/// 192.168.254.1:4321`.
const ASKED: &str = "MPPS_DOCTOR_PROGRAM";
/// It ends by itself after this time, if its test does not end it.
const LIFE: Duration = Duration::from_secs(600);

/// The program's treatment of its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Receives all that comes, and has a buffer for all of it.
    Read,
    /// Receives a datagram, computes for a millisecond, and sleeps for one.
    Slow,
    /// Receives nothing and computes.
    Spin,
    /// Receives nothing and sleeps.
    Sleep,
    /// Receives nothing, and two threads that have the socket compute.
    Shared,
    /// Receives from one partner, which does not send.
    Connected,
}

const WAYS: [(&str, Way); 6] = [
    ("shared", Way::Shared),
    ("read", Way::Read),
    ("slow", Way::Slow),
    ("spin", Way::Spin),
    ("sleep", Way::Sleep),
    ("connected", Way::Connected),
];

pub(crate) fn is_asked_for() -> bool {
    env::var_os(ASKED).is_some()
}

/// The program itself.
pub(crate) fn run() -> ExitCode {
    let asked = env::var(ASKED).expect("somebody asked");
    let words = words(&asked);
    let [way, count, local] = words[..] else {
        panic!("{asked}");
    };
    let (_, way) = WAYS.iter().find(|(name, _)| *name == way).expect("a way");
    let count: usize = count.parse().expect("a number");
    let local: SocketAddr = local.parse().expect("an address");
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let socket = UdpSocket::new(&local).expect("a socket");
            socket.set_reuse_port().expect("an option");
            if *way == Way::Read {
                // A burst may come while it has no CPU.
                socket.set_receive_buffer(8 << 20).expect("an option");
            }
            socket.bind(&local).expect("the address is this host's");
            if *way == Way::Connected {
                let partner = SocketAddr::from((Ipv4Addr::new(192, 168, 254, 30), 9));
                socket.connect(&partner).expect("there is a route");
            }
            let owned = socket.as_fd().try_clone_to_owned().expect("a descriptor");
            let (way, socket) = (*way, std::net::UdpSocket::from(owned));
            if way == Way::Shared {
                let same = socket.try_clone().expect("a descriptor");
                thread::spawn(move || live(way, &same));
            }
            thread::spawn(move || live(way, &socket))
        })
        .collect();
    writeln!(std::io::stdout(), "ready").expect("somebody waits for it");
    for thread in threads {
        thread.join().expect("no panic");
    }
    ExitCode::SUCCESS
}

fn live(way: Way, socket: &std::net::UdpSocket) {
    let end = Instant::now() + LIFE;
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("an option");
    while Instant::now() < end {
        match way {
            Way::Read | Way::Connected => {
                let _ = socket.recv(&mut [0; 2048]);
            }
            Way::Slow => {
                let _ = socket.recv(&mut [0; 2048]);
                let work = Instant::now() + Duration::from_millis(1);
                while Instant::now() < work {
                    std::hint::spin_loop();
                }
                thread::sleep(Duration::from_millis(1));
            }
            Way::Spin | Way::Shared => std::hint::spin_loop(),
            Way::Sleep => thread::sleep(Duration::from_secs(60)),
        }
    }
}

/// A server under way on the receiver of a lab, in a process group of its own. The kernel hangs up
/// on a whole group if a stopped process in it loses its parent (setpgid(2)). The server's children
/// end with it.
#[derive(Debug)]
pub(crate) struct Group {
    running: Running,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

fn asked(way: Way, sockets: usize, local: &str) -> Command {
    let (name, _) = WAYS.iter().find(|(_, known)| *known == way).expect("a way");
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(ASKED, format!("{name} {sockets} {local}"));
    command
}

impl Group {
    /// This test program with `sockets` sockets.
    pub(crate) fn start(scenario: &Scenario, way: Way, sockets: usize, local: &str) -> Self {
        Self::ready(scenario, &mut asked(way, sockets, local), "ready")
    }

    /// This test program, with one socket, on the sender of the lab.
    pub(crate) fn on_sender(scenario: &Scenario, local: &str) -> Self {
        let mut command = asked(Way::Read, 1, local);
        let start = || Running::start(command.process_group(0));
        let mut running = scenario.on_sender(start);
        running.line("ready");
        Self { running }
    }

    /// A server that says this when it is ready.
    pub(crate) fn ready(scenario: &Scenario, command: &mut Command, said: &str) -> Self {
        let mut group = Self::begin(scenario, command);
        group.running.line(said);
        group
    }

    /// A server that is ready once it has a socket.
    pub(crate) fn serving(scenario: &Scenario, command: &mut Command) -> Self {
        let group = Self::begin(scenario, command);
        group.await_socket();
        group
    }

    fn begin(scenario: &Scenario, command: &mut Command) -> Self {
        command.process_group(0);
        let running = scenario.on_receiver(|| Running::start(command));
        Self { running }
    }

    /// Waits until it says this.
    pub(crate) fn says(&mut self, said: &str) {
        self.running.line(said);
    }

    /// Waits until a UDP socket has the port.
    fn await_socket(&self) {
        self.wait("a socket", || !self.rows().is_empty());
    }

    /// Waits until its sockets have dropped something.
    pub(crate) fn await_drops(&self) {
        self.wait("drops", || self.drops() > 0);
    }

    /// Waits until nothing is queued in its sockets.
    pub(crate) fn await_read(&self) {
        let is_empty = |row: &String| {
            let queues = row.split_ascii_whitespace().nth(4);
            queues.is_some_and(|queues| queues.ends_with(":00000000"))
        };
        self.wait("read all", || self.rows().iter().all(is_empty));
    }

    fn wait(&self, what: &str, is_there: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_there() {
            assert!(
                Instant::now() < end,
                "never had {what}: {:#?}",
                self.running
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to all its processes.
    pub(crate) fn signal(&self, name: &str) {
        kill(name, &format!("-{}", self.pid()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.id()
    }

    /// The drops of its sockets by the kernel's count.
    pub(crate) fn drops(&self) -> u64 {
        self.each_drops().iter().sum()
    }

    /// True if each of its sockets has dropped something.
    pub(crate) fn all_dropped(&self) -> bool {
        self.each_drops().iter().all(|drops| *drops > 0)
    }

    /// The last column of `/proc/net/udp`.
    fn each_drops(&self) -> Vec<u64> {
        let rows = self.rows();
        let drops = rows
            .iter()
            .filter_map(|row| row.split_ascii_whitespace().last());
        drops.filter_map(|drops| drops.parse().ok()).collect()
    }

    /// The lines of that table that have the port.
    fn rows(&self) -> Vec<String> {
        let files = ["udp", "udp6"].map(|file| format!("/proc/{}/net/{file}", self.pid()));
        let texts = files.map(|file| std::fs::read_to_string(file).expect("it lives"));
        let port = format!(":{PORT:04X}");
        let rows = texts.iter().flat_map(|text| text.lines());
        let own = rows.filter(|row| {
            let local = row.split_ascii_whitespace().nth(1);
            local.is_some_and(|local| local.ends_with(&port))
        });
        own.map(str::to_owned).collect()
    }
}
