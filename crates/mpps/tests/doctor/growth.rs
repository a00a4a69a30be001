//! The number of system calls for one look at a large host. Also, Ctrl-C does not wait for the
//! look.

use super::scenario::PORT;
use crate::common::{self, Entered, Running, run};
use mpps_os::netlink::link;
use mpps_os::socket;
use mpps_trial::{Need, Trial, trials};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

const STRACE: Need = Need::Program("strace", "strace");

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, STRACE): calls_grow_as_the_interfaces_do, sockets_at_one_address_are_found_together,
            ctrl_c_ends_the_first_look_at_once;
    ]
}

/// Pairs of interfaces, each as many more than the ones before.
const PAIRS: [u64; 3] = [4, 36, 68];

/// The calls grow by the cost of the further interfaces, however many there are already. If each
/// interface made a list of all of them, the second step would be half as large again.
fn calls_grow_as_the_interfaces_do() {
    let counts = thread::scope(|threads| {
        let counts = PAIRS.map(|pairs| threads.spawn(move || calls(pairs)));
        counts.map(|count| count.join().expect("no panic"))
    });
    let [first, second] = [counts[1] - counts[0], counts[2] - counts[1]];
    assert!(first > 64, "each interface is looked at: {counts:?}");
    assert!(second * 10 <= first * 11, "{counts:?}");
}

/// The number of calls that the doctor makes in a namespace with `pairs` veth pairs.
fn calls(pairs: u64) -> u64 {
    let namespace = common::quiet_namespace();
    let make = || -> mpps_os::CallResult<()> {
        for pair in 0..pairs {
            let (name, peer) = (format!("a{pair}"), format!("b{pair}"));
            link::create_veth(&name, 1, &peer, 1, namespace.as_fd())?;
        }
        Ok(())
    };
    let made = namespace.within(make);
    made.expect("there is room for them");
    let directory = tempfile::tempdir().expect("a directory");
    let table = directory.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--summary-only", "--output"]);
    strace.arg(&table).arg(env!("CARGO_BIN_EXE_mpps"));
    strace.args(["doctor", "--seconds", "1"]);
    let ended = namespace.within(|| run(&mut strace));
    assert!(ended.code() < 2, "{ended:#?}");
    let table = fs::read_to_string(table).expect("a table");
    let total = table.lines().find(|line| line.ends_with("total"));
    let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    calls.unwrap_or_else(|| panic!("{table} {ended:#?}"))
}

/// The descriptors of a process are read once for all of its sockets at one address. Per look this
/// is for their owner, and for whether they share the address or take trains.
fn sockets_at_one_address_are_found_together() {
    let namespace = common::quiet_namespace();
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    let open = || {
        let socket = socket::UdpSocket::new(&address).expect("a socket");
        socket.set_reuse_port().expect("an option");
        socket.bind(&address).expect("the group has the port");
        socket
    };
    let _sockets = namespace.within(|| (0..16).map(|_| open()).collect::<Vec<_>>());
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("links");
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--trace=/^readlink", "--output"]);
    strace.arg(&file).arg(env!("CARGO_BIN_EXE_mpps"));
    strace.args(["doctor", "--seconds", "1", "--port", &PORT.to_string()]);
    let ended = namespace.within(|| run(&mut strace));
    let text = fs::read_to_string(&file).expect("it was written");
    let folder = format!("/proc/{}/fd/", std::process::id());
    let mut links = BTreeMap::new();
    for link in text.split('"').filter(|text| text.starts_with(&folder)) {
        *links.entry(link).or_insert(0) += 1;
    }
    assert!(links.len() >= 16, "{ended:#?}");
    assert!(links.values().all(|&reads| reads <= 4), "{links:#?}");
}

/// The number of descriptors that this test has open. A search takes some time for each.
const DESCRIPTORS: usize = 300;

/// A tracer delays each look of the doctor at a descriptor.
fn ctrl_c_ends_the_first_look_at_once() {
    let open = || File::open("/dev/null").expect("every machine has it");
    let _open: Vec<File> = (0..DESCRIPTORS).map(|_| open()).collect();
    let namespace = common::quiet_namespace();
    let socket = namespace.within(|| UdpSocket::bind("127.0.0.1:0"));
    let _socket = socket.expect("it has a port");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("links");
    let links = || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.lines().filter(|line| line.contains("/fd/")).count()
    };
    let mut strace = Command::new("strace");
    // The doctor is the child, and the tracer the grandchild.
    strace.args(["--daemonize=grandchild", "--quiet=all", "--output"]);
    strace.arg(&file).arg("--trace=/^readlink");
    strace.arg("--inject=/^readlink:delay_enter=50ms");
    strace.args([env!("CARGO_BIN_EXE_mpps"), "doctor", "--seconds", "1"]);
    let doctor = namespace.within(|| Running::start(&mut strace));
    while links() == 0 {
        assert!(!doctor.has_said("looking at"), "it did not search");
        thread::sleep(Duration::from_millis(5));
    }
    let ended = doctor.interrupt();
    assert_eq!(ended.code(), 130, "{ended:#?}");
    assert_eq!((&*ended.out, &*ended.err), ("", ""));
    let seen = links();
    assert!(seen < DESCRIPTORS, "it went on to {seen}");
}
