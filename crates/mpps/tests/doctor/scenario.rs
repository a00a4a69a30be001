//! Two hosts of a lab, the traffic between them, and the doctor's output about the receiver.

use super::gallery;
use super::program::Group;
use crate::common::{Ended, Running, mpps, run, words};
use mpps_lab::{Delivery, Lab, LabConfig, address};
use mpps_os::netlink::{address as addresses, link, neighbour};
use mpps_trial::Need;
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::Duration;

pub(crate) const PORT: u16 = 4321;
/// How many datagrams most scenarios lose.
pub(crate) const SENT: u64 = 1000;

pub(crate) const NFT: Need = Need::Program("nft", "nftables");
pub(crate) const IPTABLES: Need = Need::Program("iptables-legacy", "iptables");
pub(crate) const PYTHON: Need = Need::Program("python3", "python3");
pub(crate) const IP: Need = Need::Program("ip", "iproute2");

/// A network that the receiver does not know.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

pub(crate) struct Scenario {
    pub(crate) lab: Lab,
}

/// Datagrams that the sender sends.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    pub(crate) source: IpAddr,
    pub(crate) to: SocketAddr,
    pub(crate) datagrams: u64,
    /// The number of source ports, used in turn.
    pub(crate) flows: u16,
    pub(crate) bytes: usize,
}

impl Traffic {
    pub(crate) fn to(to: &str, datagrams: u64) -> Self {
        let to: SocketAddr = to.parse().expect("an address");
        let source = match to {
            SocketAddr::V4(_) => address::v4(30).into(),
            SocketAddr::V6(_) => address::v6(30).into(),
        };
        Self {
            source,
            to,
            datagrams,
            flows: 1,
            bytes: 100,
        }
    }

    pub(crate) fn from_elsewhere(to: &str, datagrams: u64) -> Self {
        Self {
            source: ELSEWHERE.into(),
            ..Self::to(to, datagrams)
        }
    }
}

impl Scenario {
    pub(crate) fn new() -> Self {
        let config = LabConfig {
            queues: 2,
            // A sender cannot overrun a ring that it empties itself.
            delivery: Delivery::SoftInterrupt,
            ..LabConfig::default()
        };
        let lab = Lab::new(&config).expect("the probe made a namespace");
        Self { lab }
    }

    pub(crate) fn on_receiver<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.lab.receiver().run(work).expect("it can be entered")
    }

    pub(crate) fn on_sender<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.lab.sender().run(work).expect("it can be entered")
    }

    /// Drops packets from addresses that the receiver would not answer by this link (RFC 3704).
    pub(crate) fn filter_strictly(&self) {
        self.set("net/ipv4/conf/all/rp_filter", "1");
        self.sender_has(ELSEWHERE.into());
    }

    pub(crate) fn sender_has(&self, address: IpAddr) {
        let index = self.lab.sender().interface_index();
        let added = self.on_sender(|| addresses::add(index, address, 32));
        added.expect("the address is free here");
    }

    /// The sender believes that the address has this hardware address.
    pub(crate) fn neighbour(&self, address: IpAddr, hardware: &[u8]) {
        let index = self.lab.sender().interface_index();
        let added = self.on_sender(|| neighbour::add_permanent(index, address, hardware));
        added.expect("it can be told");
    }

    pub(crate) fn hardware_address(&self) -> Vec<u8> {
        let index = self.lab.receiver().interface_index();
        let link = self.on_receiver(|| link::of(index));
        link.expect("it is there").address
    }

    /// The receiver has no memory for fragments.
    pub(crate) fn keep_no_fragments(&self) {
        self.on_receiver(|| {
            for limit in ["low", "high"] {
                let path = format!("/proc/sys/net/ipv4/ipfrag_{limit}_thresh");
                fs::write(path, "1").expect("it is this namespace's");
            }
        });
    }

    /// Takes the sender's end of the link down and up again. Waits until the receiver's end is
    /// back.
    pub(crate) fn bounce(&self) {
        let sender = self.lab.sender().interface_index();
        let receiver = self.lab.receiver().interface_index();
        let name = self
            .on_sender(|| link::of(sender))
            .expect("it is there")
            .name;
        for way in ["down", "up"] {
            let command = ["link", "set", &name, way];
            self.on_sender(|| run(Command::new("ip").args(command)).fine());
        }
        let has_carrier = || {
            self.on_receiver(|| link::of(receiver))
                .expect("it is there")
                .carrier
        };
        while !has_carrier() {
            thread::yield_now();
        }
    }

    pub(crate) fn wake_loopback(&self) {
        let woken = self.on_receiver(|| link::index("lo").and_then(link::set_up));
        woken.expect("it has a loopback interface");
    }

    /// Runs a program in Python on the sender, and waits until nothing moves.
    pub(crate) fn python(&self, text: &str) {
        self.on_sender(|| run(Command::new("python3").args(["-c", text])).fine());
        self.lab.settle().expect("it comes to rest");
    }

    /// A server in Python on the receiver, which says that it is ready.
    pub(crate) fn server(&self, text: &str) -> Group {
        let mut command = Command::new("python3");
        Group::ready(self, command.args(["-c", text]), "ready")
    }

    /// Runs a command on the receiver.
    pub(crate) fn command(&self, line: &str) {
        let words = words(line);
        self.on_receiver(|| run(Command::new(words[0]).args(&words[1..])).fine());
    }

    pub(crate) fn ip(&self, words: &str) {
        self.command(&format!("ip {words}"));
    }

    /// Sets a sysctl of the receiver.
    pub(crate) fn set(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{name}");
        self.on_receiver(|| fs::write(path, value).expect("it is this namespace's"));
    }

    pub(crate) fn nft(&self, command: &str) {
        self.on_receiver(|| run(Command::new("nft").arg(command)).fine());
    }

    pub(crate) fn send(&self, traffic: Traffic) {
        self.on_sender(|| {
            let sockets: Vec<UdpSocket> = (0..traffic.flows)
                .map(|_| UdpSocket::bind((traffic.source, 0)).expect("it is the sender's"))
                .collect();
            let is_broadcast = traffic.to.ip() == IpAddr::from(address::v4(255));
            for socket in &sockets {
                socket.set_broadcast(is_broadcast).expect("an option");
            }
            let payload = vec![0; traffic.bytes];
            for at in 0..traffic.datagrams {
                let socket = &sockets[at as usize % sockets.len()];
                // This call may report the refusal of an earlier datagram (ICMP). That is no
                // failure of this one.
                if socket.send_to(&payload, traffic.to).is_err() {
                    socket
                        .send_to(&payload, traffic.to)
                        .expect("it can be sent");
                }
            }
        });
        self.lab.settle().expect("it comes to rest");
    }

    /// A server of the receiver gets `datagrams` datagrams, reads none, and ends.
    pub(crate) fn end_unread(&self, datagrams: u64) {
        let server = self.on_receiver(|| UdpSocket::bind(at(1)).expect("the port is free"));
        self.send(Traffic::to(&at(1), datagrams));
        drop(server);
        // The kernel frees a socket some time after it was closed (`SOCK_RCU_FREE`).
        thread::sleep(Duration::from_secs(1));
    }

    /// Makes `connections` connections to the receiver, and serves each.
    pub(crate) fn connect(&self, connections: usize) {
        let local = SocketAddr::from((address::v4(1), PORT));
        let listener = self.on_receiver(|| TcpListener::bind(local).expect("the port is free"));
        let server = thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.expect("a connection");
                stream.read_exact(&mut [0; 1]).expect("a byte");
            }
        });
        self.on_sender(|| {
            for _ in 0..connections {
                let mut stream = TcpStream::connect(local).expect("somebody listens");
                std::io::Write::write_all(&mut stream, b"x").expect("a byte");
            }
        });
        server.join().expect("no panic");
        self.lab.settle().expect("it comes to rest");
    }

    /// The output of the doctor about the receiver while `happen` runs.
    pub(crate) fn doctor(&self, port: Option<u16>, happen: impl FnOnce()) -> Found {
        let namespace = self.lab.receiver().namespace().as_fd().as_raw_fd();
        let namespace = format!("/proc/{}/fd/{namespace}", std::process::id());
        let port = port.map(|port| port.to_string());
        let mut asked = vec!["--netns", &namespace];
        asked.extend(port.iter().flat_map(|port| ["--port", port]));
        self.doctor_asked(&asked, happen)
    }

    /// The output of the doctor with these arguments.
    pub(crate) fn doctor_asked(&self, asked: &[&str], happen: impl FnOnce()) -> Found {
        let mut doctor = mpps(&["doctor", "--seconds", "600", "--json"]);
        let mut running = Running::start(doctor.args(asked));
        running.line("looking at");
        let before = self.on_receiver(netstat);
        happen();
        let after = self.on_receiver(netstat);
        let ended = running.interrupt();
        let later = self.on_receiver(netstat);
        let value = serde_json::from_str(&ended.out);
        let mut value: Value = value.unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
        // The hypervisor of this machine is no part of a scenario.
        if let Some(findings) = value["findings"].as_array_mut() {
            findings.retain(|one| one["check"] != "steal");
        }
        Found {
            value,
            ended,
            counters: [before, after, later],
            drops: RefCell::default(),
        }
    }
}

/// The counters as another reader sees them.
fn netstat() -> String {
    let read =
        |file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).expect("it is there");
    read("netstat") + &read("snmp")
}

/// The output of the doctor.
#[derive(Debug)]
pub(crate) struct Found {
    value: Value,
    ended: Ended,
    /// Before, after, and when the doctor had ended.
    counters: [String; 3],
    drops: RefCell<Option<u64>>,
}

impl Found {
    /// The first finding in the output.
    pub(crate) fn first(&self) -> &Value {
        &self.value["findings"][0]
    }

    /// This finding and no other, with this count and these words.
    #[track_caller]
    pub(crate) fn is(&self, check: &str, count: u64, words: &str) {
        expect(self, &[(check, count, words)]);
    }

    /// The first finding has these words in this field.
    #[track_caller]
    pub(crate) fn says(&self, field: &str, words: &str) {
        let text = self.first()[field].as_str().unwrap_or_default();
        assert!(text.contains(words), "{text}");
    }

    pub(crate) fn findings(&self) -> &Vec<Value> {
        self.value["findings"].as_array().expect("findings")
    }

    /// The drops of a group's sockets by the kernel's own table. It had no drops before.
    pub(crate) fn kernels_drops(&self, group: &Group) -> u64 {
        let drops = group.drops();
        assert!(drops > 0, "the scenario makes a loss: {self:#?}");
        *self.drops.borrow_mut() = Some(drops);
        drops
    }

    /// The growth of a counter, as another reader sees it.
    pub(crate) fn grown(&self, name: &str) -> u64 {
        let [before, after, _] = self.counters.each_ref().map(|text| counter(text, name));
        after - before
    }

    /// The growth of the first counter of the first finding.
    pub(crate) fn evidence(&self) -> u64 {
        let evidence = &self.first()["evidence"][0];
        let value = |at: &str| evidence[at].as_u64().expect("a count");
        value("after") - value("before")
    }

    /// The first finding rests on this counter, and another reader saw it grow as much. A timer may
    /// send packets again after that reader has looked.
    pub(crate) fn has_counted(&self, name: &str) {
        assert_eq!(self.first()["evidence"][0]["source"], name, "{self:#?}");
        let [before, after, later] = self.counters.each_ref().map(|text| counter(text, name));
        let counted = self.evidence();
        assert!(after > before, "{name} stands still");
        assert!(
            (after - before..=later - before).contains(&counted),
            "{counted}: {self:#?}"
        );
    }

    /// The notes in the output.
    pub(crate) fn notes(&self) -> String {
        self.value["notes"].to_string()
    }

    /// The checks that speak, each with its count.
    pub(crate) fn told(&self) -> Vec<(&str, u64)> {
        let told = self.findings().iter().map(|one| {
            let check = one["check"].as_str().unwrap_or_default();
            (check, one["count"].as_u64().unwrap_or(0))
        });
        told.collect()
    }

    /// This many came, by the ledger.
    pub(crate) fn came(&self, datagrams: u64) {
        assert_eq!(self.value["ledger"]["offered"], datagrams, "{self:#?}");
    }

    /// Every datagram is accounted for.
    pub(crate) fn balances(&self) {
        let ledger = &self.value["ledger"];
        assert_eq!(ledger["unaccounted"], 0, "{ledger:#}");
    }
}

/// A counter of `/proc/net/netstat` or `/proc/net/snmp`.
fn counter(text: &str, name: &str) -> u64 {
    let (protocol, name) = name.split_once('.').expect("a protocol and a name");
    let mut lines = text
        .lines()
        .filter(|line| line.split(':').next() == Some(protocol));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut both = names.split(' ').zip(values.split(' '));
    let value = both
        .find(|(known, _)| *known == name)
        .expect("the kernel has it")
        .1;
    value.parse().expect("a number")
}

/// These findings and no others, in this order, each with its count and with these words.
pub(crate) fn expect(found: &Found, expected: &[(&str, u64, &str)]) {
    let checks: Vec<&str> = expected.iter().map(|&(check, ..)| check).collect();
    let told = found.told();
    gallery::add(&checks, &told);
    let findings = found.value["findings"].as_array().expect("findings");
    let asked: Vec<_> = expected
        .iter()
        .map(|&(check, count, _)| (check, count))
        .collect();
    assert_eq!(told, asked, "{found:#?}");
    for (finding, (.., words)) in findings.iter().zip(expected) {
        let said = ["what", "why"].map(|key| finding[key].as_str().unwrap_or_default());
        assert!(
            said.iter().any(|said| said.contains(words)),
            "{words}: {said:?}"
        );
    }
    assert_eq!(found.ended.code(), 1);
}

/// No problem is found. There is only this remark, with this count.
pub(crate) fn remarks(found: &Found, check: &str, count: u64) {
    gallery::add(&[&format!("{check} as a remark")], &found.told());
    let findings = found.value["findings"].as_array().expect("findings");
    assert_eq!((findings.len(), found.ended.code()), (1, 0), "{found:#?}");
    let told = (
        &findings[0]["check"],
        &findings[0]["count"],
        &findings[0]["is_remark"],
    );
    assert_eq!(told, (&check.into(), &count.into(), &true.into()));
}

/// Nothing is said to be wrong.
pub(crate) fn silent(found: &Found) {
    gallery::add(&[], &found.told());
    let findings = found.value["findings"].as_array().map(Vec::len);
    assert_eq!((findings, found.ended.code()), (Some(0), 0), "{found:#?}");
}

/// Nothing is said to be wrong, with or without a remark of this check.
pub(crate) fn silent_but_for(found: &Found, remark: &str) {
    gallery::add(&[], &found.told());
    let findings = found.value["findings"].as_array().expect("findings");
    let is_remark = |finding: &Value| finding["check"] == remark && finding["is_remark"] == true;
    assert!(findings.iter().all(is_remark), "{found:#?}");
    assert_eq!(found.ended.code(), 0, "{found:#?}");
}

/// No problem is found, and this many datagrams were received.
pub(crate) fn healthy(found: &Found, datagrams: u64) {
    silent(found);
    assert_eq!(found.value["ledger"]["delivered"], datagrams, "{found:#?}");
    found.balances();
}

/// Datagrams of two fragments.
pub(crate) fn large(to: &str) -> Traffic {
    Traffic {
        bytes: 2000,
        ..Traffic::to(to, SENT)
    }
}

/// A receiver's address, with the port.
pub(crate) fn at(last: u8) -> String {
    let address: Ipv4Addr = address::v4(last);
    format!("{address}:{PORT}")
}
