//! The drop probe against packets that the kernel really drops, counted one by one.
//!
//! Everything happens in network namespaces that the tests make; only the probe sees the whole
//! machine. A test that may not run is reported as ignored, with the reason; with
//! `MPPS_REQUIRE_LAB=1` that is a failure.

#[path = "../../os/tests/common/trial.rs"]
mod trial;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed};
use mpps_host::drop_probe::UNKNOWN_NAMESPACE;
use mpps_host::{DropFilter, DropProbe};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_os::{ethtool, socket, sysfs::Sysfs};

type Outcome = Result<(), Failed>;
type Test = (&'static str, fn() -> Outcome);

/// A port that nobody else on the machine is likely to use: drops without a namespace are known by
/// it alone.
const PORT: u16 = 50_123;
const LOOPBACK: [&str; 2] = ["127.0.0.1", "[::1]"];
/// How long the kernel may take to free what was queued. No test measures it.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let tests: [Test; 9] = [
        ("no_listener", no_listener),
        ("other_ports_are_others", other_ports_are_others),
        ("full_socket", full_socket),
        ("two_senders_at_once", two_senders_at_once),
        ("train_at_full_socket", train_at_full_socket),
        ("train_without_listener", train_without_listener),
        ("closed_socket", closed_socket),
        ("fragments_at_full_socket", fragments_at_full_socket),
        ("flooded_veth", flooded_veth),
    ];
    let mut arguments = Arguments::from_args();
    // A socket that is closed gives its drops to no namespace, so tests are not to mix.
    arguments.test_threads = Some(1);
    let obstacle = probe().err().map(|refusal| refusal.message());
    let trials = tests.map(|(name, test)| {
        let obstacle = obstacle.clone();
        trial::new(name, || obstacle, test)
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// A refusal with its remedy, as a user would see it.
struct Refusal(mpps_host::DropProbeError);

impl Refusal {
    fn message(&self) -> String {
        format!("{}: {}", self.0, self.0.remedy())
    }
}

fn probe() -> Result<DropProbe, Refusal> {
    DropProbe::attach(&DropFilter { ports: PORT..=PORT }).map_err(Refusal)
}

/// A host of its own, with nothing but a loopback, and a probe.
struct Stage {
    host: NetNamespace,
    probe: DropProbe,
}

impl Stage {
    fn new() -> Result<Self, Failed> {
        let host = NetNamespace::new()?;
        host.run(|| link::set_up(link::index("lo")?))??;
        let probe = probe().map_err(|refusal| refusal.message())?;
        Ok(Self { host, probe })
    }

    fn socket(&self, address: &str) -> Result<UdpSocket, Failed> {
        bind(&self.host, address)
    }

    /// A listener whose buffer is soon full, with or without merging of trains.
    fn small_listener(&self, address: &str, merge: bool) -> Result<UdpSocket, Failed> {
        let listener = listener(&self.host, address)?;
        listener.set_receive_buffer(30_000)?;
        if merge {
            listener.set_gro()?;
        }
        Ok(listener.as_fd().try_clone_to_owned()?.into())
    }

    /// Our datagrams dropped in this host, by reason.
    fn drops(&self) -> Result<BTreeMap<String, u64>, Failed> {
        drops(&self.probe, self.host.inode(), true)
    }
}

fn bind(host: &NetNamespace, address: &str) -> Result<UdpSocket, Failed> {
    Ok(host.run(|| UdpSocket::bind(address))??)
}

fn listener(host: &NetNamespace, address: &str) -> Result<socket::UdpSocket, Failed> {
    let address: SocketAddr = address.parse()?;
    let listener = host.run(|| socket::UdpSocket::new(&address))??;
    listener.bind(&address)?;
    Ok(listener)
}

fn drops(probe: &DropProbe, netns: u32, ours: bool) -> Result<BTreeMap<String, u64>, Failed> {
    let overflowed = probe.overflowed().map_err(|e| e.to_string())?;
    if overflowed != 0 {
        return Err(format!("{overflowed} drops are missing from the counts").into());
    }
    let counts = probe.counts().map_err(|e| e.to_string())?;
    let counts = counts.into_iter();
    Ok(counts
        .filter(|count| count.netns == netns && count.ours == ours)
        .map(|count| (count.reason_name, count.datagrams))
        .collect())
}

/// Reads until nothing has come for a while: bytes received in all.
fn drain(listener: &UdpSocket) -> Result<usize, Failed> {
    listener.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    while let Ok(length) = listener.recv(&mut buffer) {
        bytes += length;
    }
    Ok(bytes)
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Outcome {
    match found == expected {
        true => Ok(()),
        false => Err(format!("found {found:?}, expected {expected:?}").into()),
    }
}

fn one(reason: &str, datagrams: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(reason.to_owned(), datagrams)])
}

fn no_listener() -> Outcome {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        let sender = stage.socket(&format!("{address}:0"))?;
        for _ in 0..1000 {
            sender.send_to(b"nobody", format!("{address}:{PORT}"))?;
        }
        expect(stage.drops()?, one("NO_SOCKET", 1000))?;
    }
    Ok(())
}

fn other_ports_are_others() -> Outcome {
    let stage = Stage::new()?;
    let sender = stage.socket("127.0.0.1:0")?;
    for port in [PORT - 1, PORT, PORT + 1] {
        for _ in 0..100 {
            sender.send_to(b"nobody", ("127.0.0.1", port))?;
        }
    }
    expect(stage.drops()?, one("NO_SOCKET", 100))?;
    let others = drops(&stage.probe, stage.host.inode(), false)?;
    // The answers ("port unreachable") are dropped at the sender, an unconnected socket, and
    // how many are sent is limited: they are other reasons, or none.
    expect(others.get("NO_SOCKET"), Some(&200))
}

fn full_socket() -> Outcome {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        let target = format!("{address}:{PORT}");
        let listener = stage.small_listener(&target, false)?;
        let sender = stage.socket(&format!("{address}:0"))?;
        for _ in 0..3000 {
            sender.send_to(b"x", &target)?;
        }
        let received = drain(&listener)? as u64;
        expect(received > 0 && received < 3000, true)?;
        expect(stage.drops()?, one("SOCKET_RCVBUFF", 3000 - received))?;
    }
    Ok(())
}

fn two_senders_at_once() -> Outcome {
    const EACH: u64 = 50_000;
    let stage = Stage::new()?;
    let senders = [stage.socket("127.0.0.1:0")?, stage.socket("127.0.0.1:0")?];
    std::thread::scope(|scope| {
        let threads = senders.map(|sender| {
            scope.spawn(move || -> std::io::Result<()> {
                for _ in 0..EACH {
                    sender.send_to(b"nobody", ("127.0.0.1", PORT))?;
                }
                Ok(())
            })
        });
        threads.into_iter().try_for_each(|thread| {
            let outcome = thread.join().map_err(|_| "a sender panicked")?;
            outcome.map_err(Failed::from)
        })
    })?;
    expect(stage.drops()?, one("NO_SOCKET", 2 * EACH))
}

/// Datagrams of 100 bytes, sent as trains of 40.
fn send_trains(stage: &Stage, address: &str, trains: usize) -> Outcome {
    let source: SocketAddr = format!("{address}:0").parse()?;
    let sender = stage.host.run(|| socket::UdpSocket::new(&source))??;
    sender.set_segment(100)?;
    let sender = UdpSocket::from(sender.as_fd().try_clone_to_owned()?);
    for _ in 0..trains {
        sender.send_to(&[7; 4000], format!("{address}:{PORT}"))?;
    }
    Ok(())
}

fn train_at_full_socket() -> Outcome {
    for address in LOOPBACK {
        for merge in [true, false] {
            let stage = Stage::new()?;
            let listener = stage.small_listener(&format!("{address}:{PORT}"), merge)?;
            send_trains(&stage, address, 50)?;
            let received = drain(&listener)? as u64 / 100;
            expect(received > 0 && received < 2000, true)?;
            expect(stage.drops()?, one("SOCKET_RCVBUFF", 2000 - received))?;
        }
    }
    Ok(())
}

fn train_without_listener() -> Outcome {
    let stage = Stage::new()?;
    send_trains(&stage, "127.0.0.1", 10)?;
    expect(stage.drops()?, one("NO_SOCKET", 400))?;
    let counts = stage.probe.counts().map_err(|e| e.to_string())?;
    let skbs = counts
        .iter()
        .find(|c| c.ours && c.netns == stage.host.inode());
    expect(skbs.map(|count| count.skbs), Some(10))
}

/// Datagrams that die with their socket have forgotten their namespace, but not their port.
fn closed_socket() -> Outcome {
    let stage = Stage::new()?;
    let listener = stage.socket(&format!("127.0.0.1:{PORT}"))?;
    let sender = stage.socket("127.0.0.1:0")?;
    for _ in 0..100 {
        sender.send_to(b"too late", ("127.0.0.1", PORT))?;
    }
    expect(stage.drops()?, BTreeMap::new())?;
    drop(listener);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let lost: u64 = drops(&stage.probe, UNKNOWN_NAMESPACE, true)?.values().sum();
        if lost >= 100 || Instant::now() > deadline {
            expect(lost, 100)?;
            return expect(stage.drops()?, BTreeMap::new());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A reassembled datagram is one drop, its fragments are none; a delivered one is no drop at all.
fn fragments_at_full_socket() -> Outcome {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        stage
            .host
            .run(|| link::set_mtu(link::index("lo")?, 1500))??;
        let target = format!("{address}:{PORT}");
        let listener = stage.small_listener(&target, false)?;
        let sender = stage.socket(&format!("{address}:0"))?;
        for _ in 0..200 {
            sender.send_to(&[7; 5000], &target)?;
        }
        let received = drain(&listener)? as u64 / 5000;
        expect(received > 0 && received < 200, true)?;
        expect(stage.drops()?, one("SOCKET_RCVBUFF", 200 - received))?;
        let others = drops(&stage.probe, stage.host.inode(), false)?;
        expect(others.get("NOT_SPECIFIED"), None)?;
    }
    Ok(())
}

/// Single datagrams over a veth, merged into trains by the receiver and handed one by one to an
/// ordinary socket: what is not delivered is a drop, what is delivered is none.
fn flooded_veth() -> Outcome {
    const OFFERED: u64 = 30_000;
    let stage = Stage::new()?;
    let receiver = NetNamespace::new()?;
    join_by_veth(&stage.host, &receiver)?;
    let listener = listener(&receiver, &format!("10.9.0.2:{PORT}"))?;
    listener.set_receive_buffer(1 << 20)?;
    let listener = UdpSocket::from(listener.as_fd().try_clone_to_owned()?);
    let sender = stage.socket("10.9.0.1:0")?;
    for _ in 0..OFFERED {
        sender.send_to(&[7; 10], ("10.9.0.2", PORT))?;
    }
    let received = drain(&listener)? as u64 / 10;
    expect(received > 0, true)?;
    let sent_away: u64 = stage.drops()?.values().sum();
    let lost: u64 = drops(&stage.probe, receiver.inode(), true)?.values().sum();
    expect(received + sent_away + lost, OFFERED)
}

fn join_by_veth(sender: &NetNamespace, receiver: &NetNamespace) -> Outcome {
    sender.run(|| link::create_veth("left", 1, "right", 1, receiver.as_fd()))??;
    sender.run(|| -> mpps_os::Result<()> {
        let index = link::index("left")?;
        address::add(index, [10, 9, 0, 1].into(), 24)?;
        for feature in ["tx-generic-segmentation", "tx-udp-segmentation"] {
            ethtool::set_feature("left", feature, false)?;
        }
        link::set_up(index)
    })??;
    receiver.run(|| -> mpps_os::Result<()> {
        let index = link::index("right")?;
        address::add(index, [10, 9, 0, 2].into(), 24)?;
        for feature in ["rx-gro", "rx-udp-gro-forwarding"] {
            ethtool::set_feature("right", feature, true)?;
        }
        link::set_up(index)?;
        Sysfs::mount()?.write("class/net/right/threaded", "1")
    })??;
    Ok(())
}
