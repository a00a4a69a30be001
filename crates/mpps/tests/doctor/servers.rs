//! Servers from Debian 12, which drop their rights, fork or start threads. Each is healthy, and
//! starved in four ways. After the remedy it is healthy again.

use super::gallery;
use super::program::Group;
use super::scenario::{Found, PORT, Scenario, healthy};
use super::server_table::{SERVERS, Server, ZONE};
use crate::common::{Running, mpps, run, words};
use mpps_lab::address;
use mpps_os::netlink::sock_diag;
use mpps_os::sched;
use mpps_trial::{Need, Trial, name};
use serde_json::Value;
use std::any::Any;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TOOLS: Need = Need::Program("pgrep taskset chrt", "procps, util-linux");
/// Source ports of the traffic: enough for each socket of a group (`SO_REUSEPORT`).
const FLOWS: usize = 64;
/// Datagrams of a healthy look. Buffers have room for them where the server does not answer.
const QUESTIONS: u64 = 100;

/// A cgroup's folder for CPU quotas (version 1, then 2), its file, 1 % of a CPU, and no quota.
const QUOTAS: [[&str; 4]; 2] = [
    ["/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "1000", "-1"],
    ["/sys/fs/cgroup", "cpu.max", "1000 100000", "max"],
];

/// A fault, and the finding that names it.
struct Fault {
    name: &'static str,
    /// Makes the fault, which ends when the result is dropped and the server is continued.
    make: fn(&Group) -> Box<dyn Any>,
    /// The pause after each datagram of all flows.
    pause: Duration,
    /// How long datagrams come at least. They come until each socket has lost some.
    lasts: Duration,
    /// The sender has a CPU to itself.
    is_urgent: bool,
    /// It ends during the look.
    ends_within: bool,
    check: &'static str,
    /// Words in the finding, and words that would name another fault.
    words: [&'static str; 2],
    remedy: &'static str,
    is_certain: bool,
}

const FAULTS: [Fault; 4] = [
    Fault {
        name: "stopped",
        make: stop,
        pause: Duration::ZERO,
        lasts: Duration::ZERO,
        is_urgent: false,
        ends_within: false,
        check: "socket_buffer",
        words: ["the program is stopped", "bursts"],
        remedy: "kill -CONT",
        is_certain: true,
    },
    Fault {
        name: "after_a_burst",
        make: stop,
        pause: Duration::ZERO,
        lasts: Duration::ZERO,
        is_urgent: false,
        ends_within: true,
        check: "socket_buffer",
        words: ["was full", "stopped"],
        remedy: "SO_RCVBUF",
        is_certain: false,
    },
    Fault {
        name: "under_a_quota",
        make: Quota::make,
        pause: Duration::from_millis(2),
        lasts: Duration::from_secs(1),
        is_urgent: false,
        ends_within: false,
        check: "quota",
        words: ["held the program back", "bursts"],
        remedy: "a larger quota",
        is_certain: false,
    },
    Fault {
        name: "on_a_shared_cpu",
        make: crowd,
        pause: Duration::ZERO,
        lasts: Duration::from_secs(2),
        is_urgent: true,
        ends_within: false,
        check: "socket_buffer",
        words: ["lacked a CPU", "bursts"],
        remedy: "a CPU of its own",
        is_certain: false,
    },
];

/// Servers that also share their CPU with busy loops: one thread, a few of many threads, several processes of one socket,
/// and threads that pass work on to each other.
const SHARING: [&str; 5] = ["dnsmasq", "influxd", "knotd", "nsd", "syslog-ng"];

pub(crate) fn trials() -> Vec<Trial> {
    let of = |server: &'static Server| {
        let named = move |what| name(module_path!(), &format!("{}_{what}", server.name));
        let faults = FAULTS
            .iter()
            .filter(|fault| fault.name != "on_a_shared_cpu" || SHARING.contains(&server.name));
        let starved = faults.map(move |fault| {
            let test = move || is_starved(server, fault);
            match fault.name {
                "under_a_quota" => {
                    Trial::waits(named(fault.name), test).needs(Need::probe(Quota::probe))
                }
                // The busy loops would starve other trials.
                "on_a_shared_cpu" => Trial::measures(named(fault.name), test).needs(Need::Cpus(2)),
                _ => Trial::waits(named(fault.name), test),
            }
        });
        let healthy = Trial::waits(named("healthy"), move || is_healthy(server));
        let all = std::iter::once(healthy).chain(starved);
        all.map(|trial| {
            let program = Need::Program(server.name, server.package);
            trial.needs(Need::Root).needs(program).needs(TOOLS)
        })
        .collect::<Vec<_>>()
    };
    SERVERS.iter().flat_map(of).collect()
}

/// Trials of `mpps fix`.
pub(crate) fn fixes() -> Vec<Trial> {
    let trials = SERVERS.iter().map(|server| {
        let name = name(module_path!(), &format!("{}_fixed", server.name));
        let program = Need::Program(server.name, server.package);
        let trial = Trial::waits(name, move || is_fixed(server));
        trial.needs(Need::Root).needs(program).needs(TOOLS)
    });
    trials.collect()
}

fn is_healthy(server: &'static Server) {
    let scenario = Scenario::new();
    let service = Service::start(server, &scenario);
    healthy(&service.look(), QUESTIONS);
}

fn is_starved(server: &'static Server, fault: &Fault) {
    let scenario = Scenario::new();
    let service = Service::start(server, &scenario);
    let mut made = Some((fault.make)(&service.group));
    let found = scenario.doctor(Some(PORT), || {
        let sockets = thread::scope(|scope| {
            let flood = scope.spawn(|| service.flood(fault));
            flood.join().expect("no panic")
        });
        if fault.ends_within {
            service.remedy(made.take());
            // Its work on the burst is a small part of the look.
            thread::sleep(Duration::from_secs(2));
        }
        drop(sockets);
        scenario.lab.settle().expect("it comes to rest");
    });
    service.is_named(&found, fault);
    service.remedy(made);
    healthy(&service.look(), QUESTIONS);
    // The line of the look before the remedy.
    gallery::add(&[fault.check], &found.told());
}

/// Bursts come that its buffers do not hold. `mpps fix` gives it larger ones while it runs, and fewer datagrams of the
/// ledger are lost. Undo restores them.
fn is_fixed(server: &'static Server) {
    let scenario = Scenario::new();
    let service = Service::start(server, &scenario);
    let buffers = || {
        let all = scenario
            .on_receiver(sock_diag::udp)
            .expect("it can be asked");
        let own = all.into_iter().filter(|one| one.local.port() == PORT);
        let mut own: Vec<_> = own.map(|one| (one.inode, one.buffer_bytes)).collect();
        own.sort_unstable();
        own
    };
    let before = buffers();
    let json = tempfile::NamedTempFile::new().expect("a file");
    let file = format!("--json={}", json.path().display());
    // They come from the same host: a link would overflow before the largest buffers.
    let sockets = scenario.on_receiver(|| connected(address::v4(1)));
    let burst = 2 * service.room(&sockets);
    let pause = Duration::from_millis(100).max(Duration::from_micros(40) * burst as u32);
    let run_ms = format!("{}ms", 3 * pause.as_millis());
    let (started, cpus) = (
        Instant::now(),
        thread::available_parallelism().map_or(1, usize::from),
    );
    let fixed = thread::scope(|scope| {
        let (service, sockets) = (&service, &sockets);
        let burst = |cpu| {
            let (end, over) = mpsc::channel::<()>();
            let part = burst / cpus;
            scope.spawn(move || service.bursts((cpu, started), (sockets, part), pause, &over));
            end
        };
        let _ends: Vec<_> = (0..cpus).map(burst).collect();
        let mut words = words("fix --yes --port 4321 --duration 2 --repeat 3");
        words.extend(["--run", &run_ms, &file]);
        scenario.on_receiver(|| run(&mut mpps(&words)))
    });
    let fixed = fixed.without_error();
    assert!(fixed.out.contains("receive buffer"), "{}", fixed.out);
    let result = fs::read_to_string(json.path()).expect("it was written");
    let result: Value = serde_json::from_str(&result).expect("it is JSON");
    let steps = result["steps"].as_array().expect("a list").iter();
    let kept: Vec<_> = steps
        .filter(|step| step["stage"] == "buffer" && step["measured"]["kept"] == true)
        .collect();
    assert!(!kept.is_empty(), "{}", fixed.out);
    for step in kept {
        let [without, with] = ["without", "with"].map(|side| lost_share(&step["measured"][side]));
        assert!(with < without, "{with} {without}: {step:#}");
    }
    // The same sockets, so that no program was restarted.
    let after = buffers();
    assert!(
        after
            .iter()
            .map(|one| one.0)
            .eq(before.iter().map(|one| one.0))
    );
    assert_ne!(after, before, "{}", fixed.out);
    let undone = scenario.on_receiver(|| run(&mut mpps(&["undo"])));
    assert!(undone.fine().out.contains("undone"));
    assert_eq!(buffers(), before);
}

/// The share that was lost, by the balanced ledgers of some runs.
fn lost_share(runs: &Value) -> f64 {
    let ledgers = runs["sample_ledgers"].as_array().expect("a list");
    let [mut lost, mut offered] = [0; 2];
    for ledger in ledgers {
        assert_eq!(ledger["unaccounted"], 0, "{ledger:#}");
        let losses = ledger["losses"].as_array().expect("a list").iter();
        lost += losses.filter_map(|one| one["count"].as_u64()).sum::<u64>();
        offered += ledger["offered"].as_u64().expect("a number");
    }
    lost as f64 / offered as f64
}

/// A server under way on the receiver. Its configuration is in a folder that its user owns.
struct Service<'a> {
    server: &'static Server,
    scenario: &'a Scenario,
    group: Group,
    _folder: TempDir,
}

impl<'a> Service<'a> {
    /// Starts it, and waits until it has dropped its rights and reads its socket.
    fn start(server: &'static Server, scenario: &'a Scenario) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().to_str().expect("a plain name");
        let filled = |text: &str| {
            let text = text.replace("{DIR}", path);
            text.replace("{PORT}", &PORT.to_string())
        };
        for (name, text) in [("server.conf", server.conf), ("example", ZONE)] {
            fs::write(folder.path().join(name), filled(text)).expect("it can be written");
        }
        run(Command::new("chown").args(["-R", server.user, path])).fine();
        let words = filled(&format!("{} {}", server.name, server.arguments));
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        let group = Group::serving(scenario, command.args(words).current_dir("/"));
        let service = Self {
            server,
            scenario,
            group,
            _folder: folder,
        };
        let [socket] = service.sockets();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("an option");
        let end = Instant::now() + Duration::from_secs(60);
        while !service.asked(&socket) {
            assert!(Instant::now() < end, "no answer: {:#?}", service.group);
        }
        service.group.await_read();
        // It may answer before it drops its rights.
        let mut own = Command::new("pgrep");
        own.args(["-g", &service.group.pid().to_string(), "-u", server.user]);
        while run(&mut own).code() != 0 {
            assert!(Instant::now() < end, "as root still: {:#?}", service.group);
            thread::sleep(Duration::from_millis(5));
        }
        service
    }

    /// Sockets of the sender that send to the server.
    fn sockets<const N: usize>(&self) -> [UdpSocket; N] {
        self.scenario.on_sender(|| connected(address::v4(30)))
    }

    /// Sends one datagram. False if the answer that it waits for does not come.
    fn asked(&self, socket: &UdpSocket) -> bool {
        let sent = socket.send(self.server.datagram);
        sent.is_ok() && (!self.server.answers || socket.recv(&mut [0; 2048]).is_ok())
    }

    /// A look while it gets questions that it has room for, and answers them.
    fn look(&self) -> Found {
        self.scenario.lab.settle().expect("it comes to rest");
        self.scenario.doctor(Some(PORT), || {
            let patience = Some(Duration::from_secs(60));
            for _ in 0..QUESTIONS {
                // FreeRADIUS drops a question that equals one under way, of the same source port.
                let [socket] = self.sockets();
                socket.set_read_timeout(patience).expect("an option");
                assert!(self.asked(&socket), "no answer");
            }
            self.group.await_read();
            self.scenario.lab.settle().expect("it comes to rest");
        })
    }

    /// Sends until each of its sockets has lost datagrams. The result keeps the ports of the answers.
    fn flood(&self, fault: &Fault) -> [UdpSocket; FLOWS] {
        let sockets = self.sockets();
        if fault.is_urgent {
            become_urgent(0);
        }
        let started = Instant::now();
        while started.elapsed() < fault.lasts || !self.group.all_dropped() {
            assert!(started.elapsed() < Duration::from_secs(120), "no drops");
            for _ in 0..16 {
                for socket in &sockets {
                    socket.send(self.server.datagram).expect("it can be sent");
                }
                thread::sleep(fault.pause);
            }
        }
        sockets
    }

    /// How many datagrams its sockets have room for, until all of them drop.
    fn room(&self, sockets: &[UdpSocket; FLOWS]) -> usize {
        self.group.signal("STOP");
        let mut room = 0;
        while !self.group.all_dropped() {
            self.send(sockets, FLOWS);
            room += FLOWS;
        }
        self.group.signal("CONT");
        room
    }

    /// Sends a part of each burst, and takes all of this CPU for that time.
    fn bursts(
        &self,
        (cpu, started): (usize, Instant),
        (sockets, part): (&[UdpSocket; FLOWS], usize),
        pause: Duration,
        over: &mpsc::Receiver<()>,
    ) {
        become_urgent(cpu);
        for number in 1.. {
            let next = started + pause * number;
            let left = next.saturating_duration_since(Instant::now());
            if over.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            self.send(sockets, part);
        }
    }

    fn send(&self, sockets: &[UdpSocket; FLOWS], count: usize) {
        for socket in sockets.iter().cycle().take(count) {
            let _ = socket.send(self.server.datagram);
        }
    }

    /// Ends a fault, and waits until the server has read what waited.
    fn remedy(&self, made: Option<Box<dyn Any>>) {
        drop(made);
        self.group.signal("CONT");
        self.group.await_read();
    }

    /// Each finding is of the fault, and names a socket of the server. They count all drops.
    fn is_named(&self, found: &Found, fault: &Fault) {
        let told = found.told();
        let counted: u64 = told.iter().map(|(_, count)| count).sum();
        // The small buffers may overflow already as the server is asked whether it is ready.
        let before = |one: &Value| one["evidence"][0]["before"].as_u64();
        let before: u64 = found.findings().iter().filter_map(before).sum();
        assert_eq!(
            counted,
            found.kernels_drops(&self.group) - before,
            "{found:#?}"
        );
        let pids = pids(&self.group, &[]);
        for finding in found.findings() {
            let text = |key: &str| finding[key].as_str().unwrap_or_default();
            let (what, [word, other]) = (text("what"), fault.words);
            let socket = format!(" 192.168.254.1:{PORT} of {}", self.server.name);
            let (_, pid) = what.split_once("(pid ").unwrap_or_default();
            let pid = pid.split(')').next().unwrap_or_default();
            assert_eq!(text("check"), fault.check, "{found:#?}");
            assert!(what.contains(&socket), "{what}");
            assert!(pids.iter().any(|own| own == pid), "{pids:?}: {what}");
            assert!(what.contains(word) && !what.contains(other), "{what}");
            // A remedy names the buffer in the words of the program's own configuration.
            let has_words = |words: &str| text("remedy").contains(words);
            let may_be_own = fault.remedy == "SO_RCVBUF" && !has_words("SO_RCVBUF");
            let own = ["buf", " -B ", "rmem_default"].into_iter().any(has_words);
            assert!(has_words(fault.remedy) || may_be_own && own, "{finding:#}");
            let is_certain = text("confidence") == "certain";
            assert_eq!(is_certain, fault.is_certain, "{finding:#}");
        }
    }
}

/// Sockets of this address of the host, connected to the server.
fn connected<const N: usize>(own: Ipv4Addr) -> [UdpSocket; N] {
    std::array::from_fn(|_| {
        let socket = UdpSocket::bind((own, 0)).expect("it is the host's");
        let connected = socket.connect((address::v4(1), PORT));
        connected.expect("there is a route");
        socket
    })
}

/// This thread goes before all ordinary ones on a CPU.
fn become_urgent(cpu: usize) {
    sched::pin_current(&[cpu]).expect("it is there");
    let thread = fs::read_link("/proc/thread-self").expect("/proc is mounted");
    let thread = thread.file_name().expect("a thread");
    run(Command::new("chrt").args(["-f", "-p", "1"]).arg(thread)).fine();
}

/// The processes of a server, chosen by these options of pgrep(1).
fn pids(group: &Group, chosen: &[&str]) -> Vec<String> {
    let mut pgrep = Command::new("pgrep");
    pgrep.args(["-g", &group.pid().to_string()]).args(chosen);
    let pids = run(&mut pgrep).fine().out;
    pids.lines().map(str::to_owned).collect()
}

fn stop(group: &Group) -> Box<dyn Any> {
    group.signal("STOP");
    Box::new(())
}

/// Three busy loops on the server's only CPU.
fn crowd(group: &Group) -> Box<dyn Any> {
    for pid in pids(group, &[]) {
        run(Command::new("taskset").args(["-acp", "1", &pid])).fine();
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "sh", "-c", "while :; do :; done"]);
    Box::new([(); 3].map(|()| Running::start(&mut command)))
}

/// A cgroup with a CPU quota.
struct Quota {
    folder: PathBuf,
    row: &'static [&'static str; 4],
}

impl Quota {
    /// A new cgroup without a quota, where this machine has quotas.
    fn new() -> Result<Self, String> {
        let name = format!("mpps-trial-{}", std::process::id());
        let quota = QUOTAS.iter().find_map(|row| {
            let folder = Path::new(row[0]).join(&name);
            fs::create_dir(&folder).ok()?;
            let quota = Self { folder, row };
            quota.folder.join(row[1]).exists().then_some(quota)
        });
        quota.ok_or_else(|| "no cgroup with a CPU quota can be made here".to_owned())
    }

    fn probe() -> Result<(), String> {
        Self::new().map(drop)
    }

    /// All processes of the group share 1 % of a CPU.
    fn make(group: &Group) -> Box<dyn Any> {
        let quota = Self::new().expect("it was probed");
        for pid in pids(group, &[]) {
            fs::write(quota.folder.join("cgroup.procs"), pid).expect("it lives");
        }
        fs::write(quota.folder.join(quota.row[1]), quota.row[2]).expect("a quota");
        Box::new(quota)
    }
}

impl Drop for Quota {
    /// Its processes go back to the first cgroup. Those that have ended cannot.
    fn drop(&mut self) {
        let [root, file, _, none] = self.row;
        let _ = fs::write(self.folder.join(file), none);
        let procs = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines() {
            let _ = fs::write(Path::new(root).join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
