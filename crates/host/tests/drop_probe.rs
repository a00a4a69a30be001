//! The drop probe against packets that the kernel really drops, counted one by one.
//!
//! Everything happens in network namespaces that the tests make; only the probe sees the whole
//! machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mpps_host::counters::drop_probe::UNKNOWN_NAMESPACE;
use mpps_host::{DropFilter, DropProbe, LockProbe};
use mpps_os::messages::Extras;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_os::{ethtool, socket, sysfs::Sysfs};
use mpps_trial::{Failed, Need, Trial, trials};

const LOOPBACK: [&str; 2] = ["127.0.0.1", "[::1]"];
/// How long the kernel may take to free what was queued. No test measures it.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(|| probe().map(drop))):
            no_listener,
            other_ports_are_others,
            full_socket,
            two_senders_at_once,
            train_at_full_socket,
            train_without_listener,
            closed_socket,
            fragments_at_full_socket,
            flooded_veth;
        waits(Need::probe(|| LockProbe::attach().map(drop).map_err(|error| error.to_string()))):
            lock_of_a_terminal;
    ]
}

/// Two threads read one terminal: one waits for input, and the other for the first one's lock
/// (`atomic_read_lock` of `n_tty_read`).
fn lock_of_a_terminal() -> Result<(), Failed> {
    let probe = LockProbe::attach()?;
    let waits = || probe.waits().map(|waits| waits.iter().sum::<u64>());
    let before = waits()?;
    let terminal = File::open("/dev/ptmx")?;
    for _ in 0..2 {
        let mut terminal = terminal.try_clone()?;
        // It ends with this trial's process.
        std::thread::spawn(move || terminal.read(&mut [0]));
    }
    let deadline = Instant::now() + PATIENCE;
    while waits()? == before {
        if Instant::now() > deadline {
            return Err("no wait was counted".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// A port that no other trial uses at the same time, below those that the kernel chooses. Drops
/// without a namespace are known only by the port.
fn port() -> u16 {
    20_000 + (std::process::id() % 10_000) as u16
}

/// Refused, with the remedy, as a user would see it.
fn probe() -> Result<DropProbe, String> {
    let ports = port()..=port();
    let probe = DropProbe::attach(&DropFilter {
        details_of: None,
        ports,
    });
    probe.map_err(|error| format!("{error}: {}", error.remedy()))
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
        let probe = probe()?;
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
            listener.ask(&Extras {
                segments: true,
                ..Extras::default()
            })?;
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

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("found {found:?}, expected {expected:?}").into()),
    }
}

fn one(reason: &str, datagrams: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(reason.to_owned(), datagrams)])
}

fn no_listener() -> Result<(), Failed> {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        let sender = stage.socket(&format!("{address}:0"))?;
        for _ in 0..1000 {
            sender.send_to(b"nobody", format!("{address}:{}", port()))?;
        }
        expect(stage.drops()?, one("NO_SOCKET", 1000))?;
    }
    Ok(())
}

fn other_ports_are_others() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let sender = stage.socket("127.0.0.1:0")?;
    for port in [port() - 1, port(), port() + 1] {
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

fn full_socket() -> Result<(), Failed> {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        let target = format!("{address}:{}", port());
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

fn two_senders_at_once() -> Result<(), Failed> {
    const EACH: u64 = 50_000;
    let stage = Stage::new()?;
    let senders = [stage.socket("127.0.0.1:0")?, stage.socket("127.0.0.1:0")?];
    std::thread::scope(|scope| {
        let threads = senders.map(|sender| {
            scope.spawn(move || -> std::io::Result<()> {
                for _ in 0..EACH {
                    sender.send_to(b"nobody", ("127.0.0.1", port()))?;
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
fn send_trains(stage: &Stage, address: &str, trains: usize) -> Result<(), Failed> {
    let source: SocketAddr = format!("{address}:0").parse()?;
    let sender = stage.host.run(|| socket::UdpSocket::new(&source))??;
    sender.set_segment(100)?;
    let sender = UdpSocket::from(sender.as_fd().try_clone_to_owned()?);
    for _ in 0..trains {
        sender.send_to(&[7; 4000], format!("{address}:{}", port()))?;
    }
    Ok(())
}

fn train_at_full_socket() -> Result<(), Failed> {
    for address in LOOPBACK {
        for merge in [true, false] {
            let stage = Stage::new()?;
            let listener = stage.small_listener(&format!("{address}:{}", port()), merge)?;
            send_trains(&stage, address, 50)?;
            let received = drain(&listener)? as u64 / 100;
            expect(received > 0 && received < 2000, true)?;
            expect(stage.drops()?, one("SOCKET_RCVBUFF", 2000 - received))?;
        }
    }
    Ok(())
}

fn train_without_listener() -> Result<(), Failed> {
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
fn closed_socket() -> Result<(), Failed> {
    let stage = Stage::new()?;
    let listener = stage.socket(&format!("127.0.0.1:{}", port()))?;
    let sender = stage.socket("127.0.0.1:0")?;
    for _ in 0..100 {
        sender.send_to(b"too late", ("127.0.0.1", port()))?;
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
fn fragments_at_full_socket() -> Result<(), Failed> {
    for address in LOOPBACK {
        let stage = Stage::new()?;
        stage
            .host
            .run(|| link::set_mtu(link::index("lo")?, 1500))??;
        let target = format!("{address}:{}", port());
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
fn flooded_veth() -> Result<(), Failed> {
    const OFFERED: u64 = 30_000;
    let stage = Stage::new()?;
    let receiver = NetNamespace::new()?;
    join_by_veth(&stage.host, &receiver)?;
    let listener = listener(&receiver, &format!("10.9.0.2:{}", port()))?;
    listener.set_receive_buffer(1 << 20)?;
    let listener = UdpSocket::from(listener.as_fd().try_clone_to_owned()?);
    let sender = stage.socket("10.9.0.1:0")?;
    for _ in 0..OFFERED {
        sender.send_to(&[7; 10], ("10.9.0.2", port()))?;
    }
    let deadline = Instant::now() + PATIENCE;
    let mut received = 0;
    loop {
        received += drain(&listener)? as u64 / 10;
        let sent_away: u64 = stage.drops()?.values().sum();
        let lost: u64 = drops(&stage.probe, receiver.inode(), true)?.values().sum();
        let found = received + sent_away + lost;
        // The kernel's thread hands on what it has when its turn comes.
        if found >= OFFERED || Instant::now() > deadline {
            expect(received > 0, true)?;
            return expect(found, OFFERED);
        }
    }
}

fn join_by_veth(sender: &NetNamespace, receiver: &NetNamespace) -> Result<(), Failed> {
    sender.run(|| link::create_veth("left", 1, "right", 1, receiver.as_fd()))??;
    sender.run(|| -> mpps_os::CallResult<()> {
        let index = link::index("left")?;
        address::add(index, [10, 9, 0, 1].into(), 24)?;
        for feature in ["tx-generic-segmentation", "tx-udp-segmentation"] {
            ethtool::set_feature("left", feature, false)?;
        }
        link::set_up(index)
    })??;
    receiver.run(|| -> mpps_os::CallResult<()> {
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
