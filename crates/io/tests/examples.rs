//! The examples, each run by clients that are not ours: sockets of the standard library, `dig` and
//! `dnsperf`; over sockets on this machine, and over AF_XDP between the two hosts of a lab.

use crate::{can, has_lab};
use mpps_io::{RxConfig, TxConfig, Wait, wire};
use mpps_lab::address::{v4, v6};
use mpps_lab::{Delivery, Lab, LabConfig};
use mpps_os::ethtool;
use mpps_os::netlink::{address, link};
use mpps_trial::{Need, Trial, example, trials};
use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// Receive queues of the lab.
const QUEUES: u16 = 2;
/// Streams of RTP, a port each.
const PORTS: u16 = 100;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        waits(built(), row("af_xdp"), row("xdp"), Need::probe(has_lab)): reflector, balancer;
        waits(built(), row("af_xdp"), Need::probe(has_lab)): the_readme_has_an_echo_server;
        waits(built()): reflector_wants_frames, the_readme_s_echo_server_needs_no_rights;
    ];
    for backend in ["recv", "recvmmsg", "io_uring"] {
        for version in [4, 6] {
            let tests: [(_, _, fn(&Place)); 2] = [
                ("feed", Need::Program("socat", "socat"), feed),
                ("rtp", Need::Program("python3", "python3"), rtp),
            ];
            for (name, program, test) in tests {
                let run = move || test(&Place::in_lab(backend, version));
                let trial = Trial::waits(format!("examples::{name}::{backend}::ipv{version}"), run);
                let needs = [built(), row(backend), Need::probe(has_lab), program];
                trials.push(needs.into_iter().fold(trial, Trial::needs));
            }
        }
    }
    let tests = named![fn(&Place); counter, dns, dns_dig, dns_wildcard_dig, dns_dnsperf];
    for backend in ["recv", "recvmmsg", "io_uring", "af_xdp"] {
        for (name, test) in tests {
            for version in [4, 6] {
                let run = move || test(&Place::new(backend, version));
                let name = format!("examples::{name}::{backend}::ipv{version}");
                let needs = needs(&name, backend, version).into_iter();
                trials.push(needs.fold(Trial::waits(name, run), Trial::needs));
            }
        }
    }
    trials
}

fn needs(name: &str, backend: &'static str, version: u8) -> Vec<Need> {
    let mut needs = vec![built(), row(backend)];
    if backend == "af_xdp" {
        needs.push(Need::probe(has_lab));
    }
    if version == 6 {
        let bind = || UdpSocket::bind("[::1]:0").map_err(|error| format!("[::1]: {error}"));
        needs.push(Need::probe(move || bind().map(drop)));
    }
    if name.contains("_dig") {
        needs.push(Need::Program("dig", "bind9-dnsutils"));
    }
    if name.contains("dns_dnsperf") {
        needs.push(Need::Program("dnsperf", "dnsperf"));
    }
    needs
}

/// `cargo test` builds examples, `cargo test --test trials` does not.
fn built() -> Need {
    let build = "the examples are not built: cargo build -p mpps-io --examples";
    Need::probe(move || match example("dns").exists() {
        true => Ok(()),
        false => Err(build.to_owned()),
    })
}

fn row(name: &'static str) -> Need {
    Need::probe(move || can(name))
}

/// Where a server and its client meet.
struct Place {
    backend: &'static str,
    /// Of IP.
    version: u8,
    lab: Option<Lab>,
}

impl Place {
    fn new(backend: &'static str, version: u8) -> Self {
        if backend == "af_xdp" {
            return Self::in_lab(backend, version);
        }
        Self {
            backend,
            version,
            lab: None,
        }
    }

    fn in_lab(backend: &'static str, version: u8) -> Self {
        let config = LabConfig {
            queues: QUEUES,
            // The sender of a burst polls the ring: it holds 256, and nothing waits for a thread.
            delivery: Delivery::SoftInterrupt,
            ..LabConfig::default()
        };
        Self {
            backend,
            version,
            lab: Some(Lab::new(&config).expect("a lab can be had")),
        }
    }

    /// Where the client is.
    fn at_client<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.lab {
            None => work(),
            Some(lab) => lab.sender().run(work).expect("it can be entered"),
        }
    }

    /// Starts an example, and waits until it says where it receives.
    fn start(&self, name: &str, count: u64) -> Server {
        self.start_with(name, count, &[])
    }

    fn start_with(&self, name: &str, count: u64, more: &[&str]) -> Server {
        let address = match (&self.lab, self.version) {
            (None, 4) => "127.0.0.1:0".to_owned(),
            (None, _) => "[::1]:0".to_owned(),
            (Some(lab), 4) => format!("{}:5300", lab.receiver().v4()[0]),
            (Some(lab), _) => format!("[{}]:5300", lab.receiver().v6()[0]),
        };
        self.start_at(name, &address, count, more)
    }

    fn start_at(&self, name: &str, address: &str, count: u64, more: &[&str]) -> Server {
        let mut command = Command::new(example(name));
        let count = count.to_string();
        command.args([address, "--backend", self.backend, "--count", &count]);
        command.args(more);
        command.stdout(Stdio::piped());
        let started = match &self.lab {
            None => command.spawn(),
            Some(lab) => lab
                .receiver()
                .run(|| command.spawn())
                .expect("it can be entered"),
        };
        let mut child = started.expect("the example is built");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped"));
        let receivers = match (self.backend, name) {
            (_, "rtp") => PORTS,
            ("af_xdp", _) => QUEUES,
            _ => 1,
        };
        let mut line = String::new();
        for _ in 0..receivers {
            line.clear();
            said.read_line(&mut line).expect("it says where");
        }
        let address = line.split_once(" by ").expect("where, and by what").0;
        let address = address.parse().expect("an address");
        Server {
            child,
            said,
            address,
        }
    }

    fn client(&self, server: &Server) -> UdpSocket {
        let opened = self.at_client(|| {
            let any = match self.version {
                4 => "0.0.0.0:0",
                _ => "[::]:0",
            };
            let socket = UdpSocket::bind(any)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect(server.address)?;
            Ok::<_, std::io::Error>(socket)
        });
        opened.expect("a socket can be had")
    }
}

/// An example that runs; killed if the test fails.
struct Server {
    child: Child,
    said: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    /// The rest of its output, once it has ended by its count.
    fn ended(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("it ran") {
                Some(status) => break status,
                None if Instant::now() >= deadline => panic!("it goes on"),
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut rest = String::new();
        let read = self.said.read_to_string(&mut rest);
        read.expect("it speaks UTF-8");
        assert!(status.success(), "{rest}");
        rest
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program in the README is the example, and it also answers packets of the second queue.
fn the_readme_has_an_echo_server() {
    let place = Place::new("af_xdp", 4);
    let code = include_str!("../examples/readme.rs");
    let (_, program) = code.split_once("\n\n").expect("a comment comes first");
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(program), "the README differs from it");

    let lab = place.lab.as_ref().expect("it has one");
    // The lab chooses the queue by the address.
    let address = SocketAddr::new(lab.receiver().v4()[1].into(), 5300);
    let mut command = Command::new(example("readme"));
    command.args([&address.to_string(), "af_xdp"]);
    let _server = lab.receiver().spawn(command).expect("it is built");
    let client = lab.sender().run(|| UdpSocket::bind("0.0.0.0:0"));
    let client = client.expect("it can be entered").expect("a socket");
    client.connect(address).expect("an address");
    echoes(&client);
}

/// Without rights or an interface, as a reader tries it first.
fn the_readme_s_echo_server_needs_no_rights() {
    let port = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = port.local_addr().expect("it is bound");
    drop(port);
    let mut command = Command::new(example("readme"));
    let child = command.arg(address.to_string()).spawn();
    let _server = Running(child.expect("it is built"));
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect(address).expect("an address");
    echoes(&client);
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a server, once it is there, sends each datagram back.
fn echoes(client: &UdpSocket) {
    let soon = Some(Duration::from_millis(100));
    client.set_read_timeout(soon).expect("a time");
    let mut came = [0; 64];
    let deadline = Instant::now() + PATIENCE;
    // It does not say when it has begun.
    while client.send(b"first").is_err() || client.recv(&mut came).is_err() {
        assert!(Instant::now() < deadline, "nothing is answered");
    }
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    for number in 0..1_000_u16 {
        client.send(&number.to_be_bytes()).expect("it is sent");
        // An answer to the first question may be late.
        while client.recv(&mut came).expect("it is answered") != 2 {}
        assert_eq!(came[..2], number.to_be_bytes());
    }
}

fn counter(place: &Place) {
    // As many as fit into a socket's default buffer, and into the queue of a veth, at once.
    let server = place.start("counter", 401);
    let client = place.client(&server);
    for number in 0..200 {
        let lines = format!("sum:{number}|c\nnothing\nhits:1|c");
        client.send(lines.as_bytes()).expect("it is sent");
    }
    client.send(b"a:b:-7|c").expect("it is sent");
    assert_eq!(server.ended(), "401 lines\na:b -7\nhits 200\nsum 19900\n");
}

/// Each frame comes back to the link that it left by.
fn reflector() {
    let place = Place::new("af_xdp", 4);
    let frames = frames();
    let server = place.start("reflector", frames);
    let lab = place.lab.as_ref().expect("it has one");
    pour(lab, server.address, lab.sender().interface(), frames);
    assert_eq!(server.ended(), format!("reflected {frames}\n"));
}

/// Each datagram leaves once, by the other interface, and those of a client all for the same server.
fn balancer() {
    let place = Place::new("af_xdp", 4);
    const EACH: usize = 50;
    let servers = [[2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]];
    let lab = place.lab.as_ref().expect("it has one");
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let wire = || -> mpps_os::CallResult<()> {
        link::create_veth("out", 2, "far", 2, sender.namespace().as_fd())?;
        link::set_up(link::index("out")?)
    };
    let wired = receiver.run(wire).expect("it can be entered");
    wired.expect("a wire");
    let mut config = RxConfig::new(SocketAddr::from(([0, 0, 0, 0], 0)));
    config.ring.interface = Some("far".to_owned());
    config.ring.all_traffic = true;
    let open = || {
        link::set_up(link::index("far")?)?;
        mpps_io::backend::find("packet_mmap")?.open_rx(&config)
    };
    let opened = sender.run(open).expect("it can be entered");
    let mut far = opened.expect("it opens");

    let options = [
        "--out",
        "out",
        "--to",
        "02:00:00:00:00:07",
        "--to",
        "02:00:00:00:00:08",
    ];
    let frames = frames();
    let all = 20 * EACH as u64 + frames;
    let server = place.start_with("balancer", all, &options);
    let clients: Vec<UdpSocket> = (0..20).map(|_| place.client(&server)).collect();
    let mut chosen = BTreeMap::new();
    let mut came = 0;
    for _ in 0..EACH {
        clients
            .iter()
            .for_each(|client| assert_eq!(client.send(b"!").expect("it is sent"), 1));
        let expected = came + clients.len();
        while came < expected {
            let batch = far.recv(Wait::Block(PATIENCE)).expect("it receives");
            assert!(!batch.is_empty(), "{came} came");
            for packet in batch.packets() {
                // The kernel says something about IPv6 at each new link.
                let Some(datagram) = wire::datagram(packet.data).filter(|one| one.payload == b"!")
                else {
                    continue;
                };
                let server = chosen
                    .entry(datagram.source)
                    .or_insert(packet.data[..6].to_vec());
                assert_eq!(packet.data[..6], server[..], "another server");
                came += 1;
            }
        }
    }
    assert_eq!((came, chosen.len()), (20 * EACH, 20));
    for server in servers {
        assert!(
            chosen.values().any(|chosen| *chosen == server),
            "{chosen:?}"
        );
    }
    drop(far);
    pour(lab, server.address, "far", frames);
    assert_eq!(server.ended(), format!("forwarded {all}\n"));
}

fn reflector_wants_frames() {
    let mut command = Command::new(example("reflector"));
    let ended = command.arg("127.0.0.1:0").output().expect("it is built");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        !ended.status.success() && said.contains("--backend af_xdp"),
        "{said}"
    );
}

/// Frames that the kernel's generator sends at a time: the ring of a veth holds 256, and there is to be
/// room for what IPv6 sends by itself.
const BURST: u64 = 160;

/// How many frames to pour: some, or `MPPS_FRAMES`.
fn frames() -> u64 {
    let asked = env::var("MPPS_FRAMES").map(|count| count.parse().expect("a number"));
    asked.unwrap_or(25_600) / BURST * BURST
}

/// Sends `frames` frames to a server on AF_XDP, and waits until all have come to `interface` on the
/// sender's host. None is lost, and none comes twice, by the counts of both links.
fn pour(lab: &Lab, address: SocketAddr, interface: &str, frames: u64) {
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let mut config = TxConfig::new(address);
    config.source = Some(SocketAddr::new(sender.v4()[0].into(), 0));
    let came = || {
        let index = link::index(interface).expect("it is there");
        link::statistics(index).expect("a link counts").rx_packets
    };
    let redirected = || -> u64 {
        let counted = ethtool::statistics(receiver.interface()).expect("a veth counts");
        let queues = counted
            .iter()
            .filter(|(name, _)| name.ends_with("_xdp_redirect"));
        queues.map(|(_, count)| count).sum()
    };
    let redirected = || receiver.run(redirected).expect("it can be entered");
    lab.settle().expect("silence comes");
    let taken_before = redirected();
    let sending = || {
        let opened = mpps_io::backend::find("xdp").and_then(|row| row.open_tx(&config));
        let mut tx = opened.expect("it opens");
        let before = came();
        for sent in (BURST..=frames).step_by(BURST as usize) {
            let taken = tx.send(0, BURST as usize).expect("it is sent");
            assert_eq!((taken.accepted, taken.refused), (BURST, 0));
            let deadline = Instant::now() + PATIENCE;
            // A frame sent while another waits for its soft interrupt may find the ring full.
            while came() - before < sent {
                assert!(
                    Instant::now() < deadline,
                    "{} of {sent} came, {} were taken; {:?}",
                    came() - before,
                    redirected() - taken_before,
                    receiver.run(|| link::statistics(receiver.interface_index())),
                );
            }
        }
        before
    };
    let before = sender.run(sending).expect("it can be entered");
    lab.settle().expect("silence comes");
    assert_eq!(redirected() - taken_before, frames);
    let came = sender.run(came).expect("it can be entered");
    // Of what IPv6 sends by itself there is hardly any.
    assert!((frames..frames + 16).contains(&(came - before)), "{came}");
}

/// A message that is no question, or a strange one, is answered or not, and ends nothing.
fn dns(place: &Place) {
    let server = place.start("dns", 4);
    let client = place.client(&server);
    let ask = |message: &[u8]| {
        client.send(message).expect("it is sent");
        let mut came = [0; 2048];
        let bytes = client.recv(&mut came).expect("it is answered");
        came[..bytes].to_vec()
    };
    let header = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    // Too short, or an answer itself: silence.
    client.send(&header[..11]).expect("it is sent");
    let mut answer = header;
    answer[2] |= 0x80;
    client.send(&answer).expect("it is sent");
    let failed = |code| [7, 9, 0x85, code, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    assert_eq!(ask(&header), failed(1), "no question");
    let pointer = [&header[..], &[0xc0, 12, 0, 1, 0, 1]].concat();
    assert_eq!(ask(&pointer), failed(1), "a loop");
    let mut update = header;
    update[2] = 0x29;
    assert_eq!(
        ask(&update),
        [&[7, 9, 0xad, 4][..], &[0; 8]].concat(),
        "an update"
    );
    let question = [&header[..], b"\x01a\x00\x00\x01\x00\x01"].concat();
    let record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc0\x00\x02\x01";
    let expected = [
        &[7, 9, 0x85, 0, 0, 1, 0, 1, 0, 0, 0, 0],
        &question[12..],
        record,
    ]
    .concat();
    assert_eq!(ask(&question), expected);
    assert_eq!(server.ended(), "answered 4\n");
}

fn dns_dig(place: &Place) {
    let server = place.start("dns", 3);
    assert_eq!(dig(place, server.address, "A"), "192.0.2.1\n");
    assert_eq!(dig(place, server.address, "AAAA"), "2001:db8::1\n");
    assert_eq!(dig(place, server.address, "MX"), "");
    assert_eq!(server.ended(), "answered 3\n");
}

/// A server at a wildcard is asked at an address that its host would not choose; dig takes an answer from
/// no other.
fn dns_wildcard_dig(place: &Place) {
    let (wildcard, loopback) = match place.version {
        4 => ("0.0.0.0", "127.0.0.2"),
        _ => ("::", "::1"),
    };
    let (asked, interface) = match &place.lab {
        None => (loopback.parse().expect("an address"), None),
        Some(lab) if place.version == 4 => (lab.receiver().v4()[1].into(), Some(lab)),
        Some(lab) => (IpAddr::from(lab.receiver().v6()[1]), Some(lab)),
    };
    let interface = interface.map(|lab| ["--interface", lab.receiver().interface()]);
    let address = SocketAddr::new(wildcard.parse().expect("an address"), 0).to_string();
    let more = interface.as_ref().map_or(&[][..], |more| &more[..]);
    let server = place.start_at("dns", &address, 1, more);
    let asked = SocketAddr::new(asked, server.address.port());
    assert_eq!(dig(place, asked, "A"), "192.0.2.1\n");
    assert_eq!(server.ended(), "answered 1\n");
}

fn dig(place: &Place, server: SocketAddr, kind: &str) -> String {
    let mut command = Command::new("dig");
    command.args(["+short", "+tries=1", "+noedns", "-p"]);
    command.arg(server.port().to_string());
    command.arg(format!("@{}", server.ip()));
    command.args(["www.example.org", kind]);
    let ended = place.at_client(|| command.output()).expect("it starts");
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

fn dns_dnsperf(place: &Place) {
    const QUESTIONS: u64 = 20_000;
    let server = place.start("dns", QUESTIONS);
    let directory = tempfile::tempdir().expect("a directory can be had");
    let data = directory.path().join("questions");
    std::fs::write(&data, "a.example.org A\nb.example.org AAAA\n").expect("it can be written");
    let mut command = Command::new("dnsperf");
    command.args(["-s", &server.address.ip().to_string()]);
    command.args(["-p", &server.address.port().to_string()]);
    command.args(["-n", &(QUESTIONS / 2).to_string(), "-q", "50", "-d"]);
    let ended = place
        .at_client(|| command.arg(&data).output())
        .expect("it starts");
    let said = String::from_utf8_lossy(&ended.stdout);
    let completed = format!("Queries completed:    {QUESTIONS} (100.00%)");
    assert!(said.contains(&completed), "{said}");
    let codes = format!("Response codes:       NOERROR {QUESTIONS} (100.00%)");
    assert!(said.contains(&codes), "{said}");
    assert_eq!(server.ended(), format!("answered {QUESTIONS}\n"));
}

/// socat sends a session without four messages, and one of them twice. The receiver that joined for one
/// sender hears of no other.
fn feed(place: &Place) {
    let lab = place.lab.as_ref().expect("it has one");
    let host = lab.sender();
    let (group, own, other, prefix) = match place.version {
        4 => (
            "232.1.1.1",
            IpAddr::from(host.v4()[0]),
            IpAddr::from(v4(99)),
            24,
        ),
        _ => ("ff3e::8000:1", host.v6()[0].into(), v6(99).into(), 64),
    };
    place
        .at_client(|| address::add(host.interface_index(), other, prefix))
        .expect("an address can be added");
    let group = SocketAddr::new(group.parse().expect("an address"), 26_477);
    let directory = tempfile::tempdir().expect("a directory can be had");
    let file = directory.path().join("session");
    std::fs::write(&file, session()).expect("it can be written");
    let send = |from: IpAddr| {
        let mut command = Command::new("socat");
        let bound = SocketAddr::new(from, 0).to_string();
        let bound = bound.trim_end_matches(":0");
        let device = host.interface();
        command.args(["-u", "-b26", &format!("OPEN:{}", file.display())]);
        command.arg(format!(
            "UDP{}-DATAGRAM:{group},bind={bound},so-bindtodevice={device}",
            place.version
        ));
        let ended = place.at_client(|| command.output()).expect("it starts");
        assert!(ended.status.success(), "{ended:?}");
    };
    let own_text = own.to_string();
    let interface = ["--interface", lab.receiver().interface()];
    let of_one = [&interface[..], &["--from", &own_text]].concat();
    for (more, is_filtered) in [(&of_one[..], true), (&interface[..], false)] {
        let server = place.start_at("feed", &group.to_string(), u64::MAX, more);
        let begun = SystemTime::now();
        send(other);
        // The other's session ends it unless it is left out.
        if is_filtered {
            send(own);
        }
        let said = server.ended();
        let lines: Vec<_> = said.lines().collect();
        let counts = "98 packets, 96 messages, 4 lost, 0 packets dropped here";
        assert_eq!((lines.len(), lines.last()), (3, Some(&counts)), "{said}");
        for (line, gap) in lines.iter().zip(["lost 41 to 43", "lost 90 to 90"]) {
            let at = line.strip_prefix(&*format!("{gap}, seen at "));
            let (at, _) = at.and_then(|rest| rest.split_once(' ')).expect(line);
            let at = UNIX_EPOCH + Duration::from_secs_f64(at.parse().expect("a time"));
            // Its seconds are a float here.
            let soon = begun - Duration::from_millis(1);
            assert!((soon..=SystemTime::now()).contains(&at), "{said}");
        }
    }
}

/// A session of messages 1 to 100 in MoldUDP64, one a packet, without 41 to 43 and 90, and 50 twice.
fn session() -> Vec<u8> {
    let packet = |number: u64, count: u16, message: &[u8]| {
        let number = number.to_be_bytes();
        [
            b"a session ",
            &number[..],
            &count.to_be_bytes()[..],
            message,
        ]
        .concat()
    };
    let numbers = (1..=50).filter(|number| !(41..=43).contains(number));
    let numbers = numbers.chain((50..=100).filter(|number| *number != 90));
    let packets = numbers.map(|number| packet(number, 1, b"\0\x04news"));
    packets
        .chain([packet(101, 0xffff, b"")])
        .flatten()
        .collect()
}

/// Python sends streams at 8 kHz with a sequence number that wraps. Those at even ports lack packets and
/// come as their time stamps say; those at odd ports come at once, each a second ahead of time.
const RTP: &str = r#"
import socket, struct, sys
host, port = sys.argv[1], int(sys.argv[2])
out = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
for number in range(20):
    for at in range(100):
        odd = at % 2
        if odd or number in (0, 19) or number % 10 != at % 10:
            head = struct.pack("!BBHII", 0x80, 0, (65530 + number) & 0xffff, odd * number * 8000, at)
            out.sendto(head + bytes(160), (host, port + at))
"#;

fn rtp(place: &Place) {
    let server = place.start_with("rtp", 1910, &["--ports", &PORTS.to_string()]);
    let mut python = Command::new("python3");
    let (host, first) = (server.address.ip(), 5300);
    python.args(["-c", RTP, &host.to_string(), &first.to_string()]);
    let ended = place.at_client(|| python.output()).expect("it starts");
    assert!(ended.status.success(), "{ended:?}");
    let said = server.ended();
    assert!(
        said.ends_with("100 streams, 0 packets dropped here\n"),
        "{said}"
    );
    for (at, line) in (0..PORTS).zip(said.lines()) {
        let lost = match at % 10 {
            0 => 1,
            digit => 2 * (1 - digit % 2),
        };
        let port = first + at;
        let counts = format!(
            "port {port} source {at:08x}: {} received, {lost} lost, jitter ",
            20 - lost
        );
        let jitter = line
            .strip_prefix(&*counts)
            .and_then(|rest| rest.strip_suffix(" ms"));
        let jitter: f64 = jitter.expect(line).parse().expect("a number");
        // Nineteen times a sixteenth of what is missing to a second.
        let expected = f64::from(at % 2) * 1e3 * (1.0 - (15.0_f64 / 16.0).powi(19));
        assert!((jitter - expected).abs() < 100.0, "{line}: {expected}");
    }
}
