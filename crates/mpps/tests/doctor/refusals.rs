//! Sockets that are refused datagrams by IPsec, by a filter or by a program of their cgroup.

use super::program::{Group, Way};
use super::scenario::{IP, PORT, PYTHON, SENT, Scenario, Traffic, at, expect, healthy, silent};
use crate::common::run;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root, IP):
            a_policy_that_asks_for_encryption,
            a_policy_that_asks_for_it_over_ipv6,
            a_default_that_blocks;
        waits(Need::Root, PYTHON):
            a_filtered_socket_beside_a_full_one,
            a_proxy_without_its_backend,
            a_cgroup_that_denies;
    ]
}

fn a_policy_that_asks_for_encryption() {
    let policy = "add dir in src 0.0.0.0/0 dst 0.0.0.0/0 proto udp tmpl proto esp mode transport";
    a_policy(policy, "flush", &at(1), "asks for encryption");
}

fn a_policy_that_asks_for_it_over_ipv6() {
    let policy = "add dir in src ::/0 dst ::/0 proto udp tmpl proto esp mode transport";
    let to = format!("[fd00:254::1]:{PORT}");
    a_policy(policy, "flush", &to, "asks for encryption");
}

fn a_default_that_blocks() {
    let (block, accept) = ("setdefault in block", "setdefault in accept");
    a_policy(block, accept, &at(1), "the default is to block");
}

/// The proxy and what it passes on to are on the host in question.
fn a_proxy_without_its_backend() {
    let scenario = Scenario::new();
    scenario.wake_loopback();
    let _proxy = scenario.server(&format!(
        "import socket\n\
         s, to = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]\n\
         s.bind(('', {PORT})); to.connect(('127.0.0.1', 7777))\n\
         print('ready', flush=True)\n\
         while True:\n \
          data = s.recv(100)\n \
          try: to.send(data)\n \
          except ConnectionRefusedError: pass"
    ));
    let look = |port| scenario.doctor(port, || scenario.send(Traffic::to(&at(1), 200)));
    let found = look(None);
    let missed = found.grown("Udp.NoPorts");
    found.is("no_listener", missed, "sends to 127.0.0.1:7777");
    let found = look(Some(PORT));
    let missed = found.grown("Udp.NoPorts");
    let words = "and no program has that port";
    expect(
        &found,
        &[("refused_sends", 0, words), ("not_asked", missed, "")],
    );
    let _backend = Group::start(&scenario, Way::Read, 1, "127.0.0.1:7777");
    silent(&look(Some(PORT)));
}

/// With this policy the datagrams to a server that reads are refused. With the remedy they arrive.
fn a_policy(policy: &str, remedy: &str, to: &str, words: &str) {
    let scenario = Scenario::new();
    let _group = Group::start(&scenario, Way::Read, 1, to);
    let set = |command: &str| scenario.ip(&format!("xfrm policy {command}"));
    let look = || scenario.doctor(None, || scenario.send(Traffic::to(to, SENT)));
    set(policy);
    let found = look();
    found.is("drop_reason", SENT, words);
    let what = found.first()["what"].as_str().unwrap_or_default();
    assert!(
        !what.contains("buffer") && !what.contains("filter"),
        "{what}"
    );
    found.balances();
    set(remedy);
    healthy(&look(), SENT);
}

/// A filter that drops all (`ret #0`, SO_ATTACH_FILTER of socket(7)).
const FILTER: &str = "code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0))\n\
     s.setsockopt(1, 26, struct.pack('HL', 1, ctypes.addressof(code)))\n";

/// A server that reads all. It is ready after these lines.
fn server(scenario: &Scenario, before: &str, after: &str) -> Group {
    scenario.server(&format!(
        "import ctypes, os, socket, struct\n\
         {before}s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.setsockopt(1, 8, 1 << 22)\n\
         {after}s.bind(('192.168.254.1', 4321))\n\
         print('ready', flush=True)\n\
         while True: s.recv(2048)"
    ))
}

fn a_filtered_socket_beside_a_full_one() {
    let scenario = Scenario::new();
    let filtered = server(&scenario, "", FILTER);
    let _full = Group::start(&scenario, Way::Sleep, 1, "192.168.254.1:4322");
    let both = || {
        scenario.send(Traffic::to(&at(1), SENT));
        scenario.send(Traffic::to("192.168.254.1:4322", 8 * SENT));
    };
    let found = scenario.doctor(None, both);
    let lost = found.grown("Udp.RcvbufErrors");
    let (buffer, filter) = (
        ("socket_buffer", lost, ":4322"),
        "a filter of the socket itself",
    );
    expect(&found, &[buffer, ("drop_reason", SENT, filter)]);
    let found = scenario.doctor(Some(PORT), both);
    let others = ("port_owner", 8 * SENT, "none of these was for port 4321");
    expect(&found, &[("drop_reason", SENT, filter), others]);
    drop(filtered);
    let _server = server(&scenario, "", "");
    healthy(
        &scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT))),
        SENT,
    );
}

/// A cgroup of version 2, as long as it is wanted.
struct Cgroup(PathBuf);

impl Cgroup {
    /// None where none is mounted.
    fn new() -> Option<Self> {
        let all = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = all
            .into_iter()
            .find(|path| path.join("cgroup.controllers").exists())?;
        let path = root.join(format!("mpps-{}", std::process::id()));
        fs::create_dir(&path).expect("root makes it");
        Some(Self(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It is empty when the kernel has ended its processes.
        let gone = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            fs::remove_dir(&self.0).is_ok()
        });
        assert!(
            gone || std::thread::panicking(),
            "{} stays",
            self.0.display()
        );
    }
}

/// Attaches a program that drops all that sockets of the group receive, or detaches it (bpf(2)).
const DENY: &str = "import ctypes, os, platform, struct\n\
     libc = ctypes.CDLL(None, use_errno=True)\n\
     number = {'x86_64': 321, 'aarch64': 280}[platform.machine()]\n\
     def bpf(command, attributes):\n\
     \x20   text = ctypes.create_string_buffer(attributes, 128)\n\
     \x20   answer = libc.syscall(number, command, text, 128)\n\
     \x20   assert answer >= 0, os.strerror(ctypes.get_errno())\n\
     \x20   return answer\n\
     code = ctypes.create_string_buffer(struct.pack('<BBhiBBhi', 0xb7, 0, 0, 0, 0x95, 0, 0, 0))\n\
     licence = ctypes.create_string_buffer(b'GPL')\n\
     group = os.open(path, os.O_RDONLY)\n\
     program = bpf(5, struct.pack('<IIQQIIQII16s', 8, 2, ctypes.addressof(code),\n\
     \x20   ctypes.addressof(licence), 0, 0, 0, 0, 0, b'deny_all'))\n\
     bpf(command, struct.pack('<IIII', group, program, 0, 0))";

fn a_cgroup_that_denies() {
    let Some(group) = Cgroup::new() else { return };
    let path = group.0.display().to_string();
    let deny = |command: u32| {
        let program = format!("path, command = '{path}', {command}\n{DENY}");
        run(Command::new("python3").args(["-c", &program])).fine();
    };
    let scenario = Scenario::new();
    let enter = format!("open('{path}/cgroup.procs', 'w').write(str(os.getpid()))\n");
    let server = server(&scenario, &enter, "");
    let look = || scenario.doctor(Some(PORT), || scenario.send(Traffic::to(&at(1), SENT)));
    deny(8);
    let found = look();
    let words = format!("cgroup /mpps-{} (deny_all) dropped", std::process::id());
    found.is("drop_reason", SENT, &words);
    deny(9);
    healthy(&look(), SENT);
    drop(server);
    drop(group);
}
