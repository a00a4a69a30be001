//! What a look at a large host costs, in calls of the kernel, and that Ctrl-C does not wait for it.

use crate::common::{self, Need, Running, Test, run};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, sock_diag};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const STRACE: Need = Need::RootAnd("strace", "strace");

pub(crate) const TESTS: &[Test] = &[
    (
        "calls_grow_as_the_interfaces_do",
        STRACE,
        calls_grow_as_the_interfaces_do,
    ),
    (
        "ctrl_c_ends_the_first_look_at_once",
        STRACE,
        ctrl_c_ends_the_first_look_at_once,
    ),
    (
        "ctrl_c_in_the_wait_begins_no_search",
        STRACE,
        ctrl_c_in_the_wait_begins_no_search,
    ),
];

/// Pairs of interfaces, each as many more than the ones before.
const PAIRS: [u64; 3] = [4, 36, 68];

/// From one size to the next the calls grow by what the further interfaces cost, whatever there is
/// already. A list of all interfaces for each of them would make the second step half as large again.
fn calls_grow_as_the_interfaces_do() {
    let counts = thread::scope(|threads| {
        let counts = PAIRS.map(|pairs| threads.spawn(move || calls(pairs)));
        counts.map(|count| count.join().expect("no panic"))
    });
    let [first, second] = [counts[1] - counts[0], counts[2] - counts[1]];
    assert!(first > 64, "each interface is looked at: {counts:?}");
    assert!(second * 10 <= first * 11, "{counts:?}");
}

/// How many calls the doctor makes in a namespace with so many pairs.
fn calls(pairs: u64) -> u64 {
    let namespace = common::quiet_namespace();
    let make = || -> mpps_os::Result<()> {
        for pair in 0..pairs {
            let (name, peer) = (format!("a{pair}"), format!("b{pair}"));
            link::create_veth(&name, 1, &peer, 1, namespace.as_fd())?;
        }
        Ok(())
    };
    let made = namespace.run(make).expect("it can be entered");
    made.expect("there is room for them");
    let directory = tempfile::tempdir().expect("a directory");
    let table = directory.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--summary-only", "--output"]);
    strace.arg(&table).arg(env!("CARGO_BIN_EXE_mpps"));
    strace.args(["doctor", "--seconds", "1"]);
    let ended = namespace.run(|| run(&mut strace));
    let ended = ended.expect("it can be entered");
    assert!(ended.code() < 2, "{ended:#?}");
    let table = fs::read_to_string(table).expect("a table");
    let total = table.lines().find(|line| line.ends_with("total"));
    let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    calls.unwrap_or_else(|| panic!("{table} {ended:#?}"))
}

/// So many descriptors this test has open, each of which takes a search a while.
const DESCRIPTORS: usize = 300;

/// A doctor whose search for owners takes a long time: it waits before it looks at a descriptor.
struct SlowDoctor {
    running: Running,
    directory: tempfile::TempDir,
    _open: Vec<File>,
}

impl SlowDoctor {
    fn start(namespace: &NetNamespace) -> Self {
        let open = || File::open("/dev/null").expect("every machine has it");
        let _open = (0..DESCRIPTORS).map(|_| open()).collect();
        let directory = tempfile::tempdir().expect("a directory");
        let mut strace = Command::new("strace");
        // It is the doctor that is the child, and not the one who watches it.
        strace.args(["--daemonize=grandchild", "--quiet=all", "--output"]);
        strace.arg(directory.path().join("links"));
        strace.args(["--trace=/^readlink", "--inject=/^readlink:delay_enter=50ms"]);
        strace.args([env!("CARGO_BIN_EXE_mpps"), "doctor", "--seconds", "600"]);
        let running = namespace.run(|| Running::start(&mut strace));
        Self {
            running: running.expect("it can be entered"),
            directory,
            _open,
        }
    }
}

/// The descriptors that have been looked at.
fn links(directory: &Path) -> usize {
    let text = fs::read_to_string(directory.join("links")).unwrap_or_default();
    text.lines().filter(|line| line.contains("/fd/")).count()
}

fn ctrl_c_ends_the_first_look_at_once() {
    let namespace = common::quiet_namespace();
    let socket = namespace.run(|| UdpSocket::bind("127.0.0.1:0"));
    let _socket = socket.expect("it can be entered").expect("it has a port");
    let doctor = SlowDoctor::start(&namespace);
    while links(doctor.directory.path()) == 0 {
        assert!(!doctor.running.has_said("looking at"), "it did not search");
        thread::sleep(Duration::from_millis(5));
    }
    doctor.running.signal("INT");
    let SlowDoctor {
        running, directory, ..
    } = doctor;
    let ended = running.end();
    assert_eq!(ended.code(), 130, "{ended:#?}");
    assert_eq!((&*ended.out, &*ended.err), ("", ""));
    let seen = links(directory.path());
    assert!(seen < DESCRIPTORS, "it went on to {seen}");
}

/// What was counted is told, with the remark that not all owners are known.
fn ctrl_c_in_the_wait_begins_no_search() {
    let namespace = common::quiet_namespace();
    let mut doctor = SlowDoctor::start(&namespace);
    doctor.running.line("looking at");
    assert_eq!(links(doctor.directory.path()), 0, "nobody has a socket");
    let flood = || -> io::Result<(UdpSocket, SocketAddr)> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let local = socket.local_addr()?;
        let drops = || sock_diag::udp().map(|all| all.iter().any(|one| one.drops > 0));
        while !drops().map_err(|error| error.source)? {
            for _ in 0..100 {
                socket.send_to(&[0; 1000], local)?;
            }
        }
        Ok((socket, local))
    };
    let flooded = namespace.run(flood).expect("it can be entered");
    let (_socket, local) = flooded.expect("it can be sent to");
    doctor.running.signal("INT");
    let SlowDoctor {
        running, directory, ..
    } = doctor;
    let ended = running.end();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        &format!("{local} of a process that is not seen"),
        "UNACCOUNTED",
        "search for them was interrupted",
    ] {
        assert!(words.contains(told), "{told}: {words}");
    }
    assert_eq!(links(directory.path()), 0, "it searched");
}
