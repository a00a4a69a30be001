//! Early drops with real packets. Each drops exactly the packets that are sent, and none once it is
//! removed.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::{check, placement};
use mpps_lab::{EarlyDrop, Installed, Lab, LabConfig, address};
use mpps_trial::{Failed, Need, Trial, trials};

const PORT: u16 = 4321;
const OTHER_PORT: u16 = 4322;
/// How many connections the kernel knows of this namespace.
const CONNECTIONS: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
/// Fewer than the 256 that a ring holds. None is lost, however late a queue is served.
const DATAGRAMS: u64 = 200;

/// A test of a drop, and its name.
type Scenario = (&'static str, fn(EarlyDrop) -> Result<(), Failed>);

const SCENARIOS: [Scenario; 4] = [
    ("is_exact", is_exact),
    ("queues_add_up", queues_add_up),
    ("others_go_on", others_go_on),
    ("rules_are_of_the_lab_alone", rules_are_of_the_lab_alone),
];

/// Each scenario with each drop. A drop that cannot be installed on this machine is skipped; the
/// others are still tried.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        waits(Need::probe(|| can_install(&[EarlyDrop::NftRaw]))):
            connections_are_tracked_or_spared_that;
        waits(Need::probe(|| can_install(&EarlyDrop::ALL))): one_follows_the_other;
    ];
    for early in EarlyDrop::ALL {
        for (name, test) in SCENARIOS {
            if early.is_selective() || name != "others_go_on" {
                let name = format!("early_drop::{early:?}::{name}");
                let can_install = Need::probe(move || can_install(&[early]));
                trials.push(Trial::waits(name, move || test(early)).needs(can_install));
            }
        }
    }
    trials
}

/// Returns what this machine lacks for these drops.
fn can_install(drops: &[EarlyDrop]) -> Result<(), String> {
    placement()?;
    let lab = Lab::new(&LabConfig::default()).map_err(|error| error.to_string())?;
    for early in drops {
        let probed = early.probe(&lab);
        probed.map_err(|lacks| format!("{}; {}", lacks.why, lacks.remedy))?;
    }
    Ok(())
}

/// Each packet to the port is counted as tracked, or as exempt. One flow is one connection.
fn connections_are_tracked_or_spared_that() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = IpAddr::from(address::v4(1));
    let sockets = listen(&lab, &[target], PORT)?;
    for (tracked, connections) in [(false, "0"), (true, "1")] {
        let tracking = lab.track(PORT, tracked)?;
        send(&lab, target, PORT, DATAGRAMS)?;
        let counted = tracking.packets()?;
        check(counted == DATAGRAMS, || {
            format!("{counted} counted, {tracked}")
        })?;
        let known = lab
            .receiver()
            .run(|| std::fs::read_to_string(CONNECTIONS))??;
        check(known.trim() == connections, || {
            format!("{known} known, {tracked}")
        })?;
    }
    let received = drain(&sockets);
    check(received == 2 * DATAGRAMS, || format!("{received} came"))
}

/// Drops all packets over a version of IP that it drops. Once removed, it lets all of them reach a
/// socket.
fn is_exact(early: EarlyDrop) -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let targets = [IpAddr::from(address::v4(1)), address::v6(1).into()];
    let sockets = listen(&lab, &targets, PORT)?;
    let installed = early.install(&lab, PORT)?;
    check(installed.dropped()? == 0, || "it began with drops".into())?;
    let (mut to_drop, mut to_pass) = (0, 0);
    for target in targets {
        send(&lab, target, PORT, DATAGRAMS)?;
        match target.is_ipv4() || early.drops_v6() {
            true => to_drop += DATAGRAMS,
            false => to_pass += DATAGRAMS,
        }
        let dropped = installed.dropped()?;
        check(dropped == to_drop, || {
            format!("{dropped} of {to_drop} dropped, last to {target}")
        })?;
    }
    let passed = drain(&sockets);
    check(passed == to_pass, || {
        format!("{passed} of {to_pass} passed")
    })?;
    installed.remove()?;
    for target in targets {
        send(&lab, target, PORT, DATAGRAMS)?;
    }
    let received = drain(&sockets);
    check(received == 2 * DATAGRAMS, || {
        format!("{received} of {} came after its removal", 2 * DATAGRAMS)
    })
}

/// All on one queue, then on two, then on four.
fn queues_add_up(early: EarlyDrop) -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    for queues in [1, 2, 4] {
        let installed = early.install(&lab, PORT)?;
        let mut used = std::collections::BTreeSet::new();
        for last in 1..=queues {
            let target = IpAddr::from(address::v4(last));
            used.insert(lab.queue_of(target).ok_or("not steered")?);
            send(&lab, target, PORT, DATAGRAMS)?;
        }
        let sent = u64::from(queues) * DATAGRAMS;
        let dropped = installed.dropped()?;
        check(used.len() == usize::from(queues) && dropped == sent, || {
            format!("{dropped} of {sent} over the queues {used:?}")
        })?;
    }
    Ok(())
}

/// Other packets go on: datagrams to another port, and a connection to the same one.
fn others_go_on(early: EarlyDrop) -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let targets = [IpAddr::from(address::v4(1)), address::v6(1).into()];
    let sockets = listen(&lab, &targets, OTHER_PORT)?;
    let installed = early.install(&lab, PORT)?;
    for target in targets {
        send(&lab, target, OTHER_PORT, DATAGRAMS)?;
        transfer(&lab, SocketAddr::from((target, PORT)))?;
    }
    lab.settle()?;
    let received = drain(&sockets);
    check(received == 2 * DATAGRAMS, || {
        format!("{received} of {} came", 2 * DATAGRAMS)
    })?;
    let dropped = installed.dropped()?;
    check(dropped == 0, || format!("{dropped} dropped"))
}

/// No drop leaves anything that disturbs the next one, and each counts from zero.
fn one_follows_the_other() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    for round in 0..3 {
        for early in EarlyDrop::ALL {
            let installed = early.install(&lab, PORT)?;
            send(&lab, address::v4(1).into(), PORT, 10)?;
            let dropped = installed.dropped()?;
            check(dropped == 10, || {
                format!("{early}, round {round}: {dropped} of 10")
            })?;
        }
    }
    Ok(())
}

/// Two labs each drop only their own packets, and this machine has none of their rules.
fn rules_are_of_the_lab_alone(early: EarlyDrop) -> Result<(), Failed> {
    let labs = [
        Lab::new(&LabConfig::default())?,
        Lab::new(&LabConfig::default())?,
    ];
    let installed: Vec<Installed<'_>> = labs
        .iter()
        .map(|lab| early.install(lab, PORT))
        .collect::<Result<_, _>>()?;
    for (lab, datagrams) in labs.iter().zip([30, 50]) {
        send(lab, address::v4(1).into(), PORT, datagrams)?;
    }
    let dropped = [installed[0].dropped()?, installed[1].dropped()?];
    check(dropped == [30, 50], || format!("{dropped:?}"))?;
    let own = UdpSocket::bind(("127.0.0.1", 0))?;
    own.set_read_timeout(Some(Duration::from_secs(5)))?;
    own.send_to(b"not of a lab", own.local_addr()?)?;
    own.recv(&mut [0; 64])?;
    Ok(())
}

/// Sockets of the receiver that never wait.
fn listen(lab: &Lab, targets: &[IpAddr], port: u16) -> Result<Vec<UdpSocket>, Failed> {
    let bound = lab.receiver().run(|| {
        let sockets = targets.iter().map(|target| {
            let socket = mpps_os::socket::UdpSocket::new(&SocketAddr::from((*target, port)))?;
            // All of them wait in the buffer before any is read.
            socket.set_receive_buffer(8 << 20)?;
            socket.bind(&SocketAddr::from((*target, port)))?;
            Ok::<_, mpps_os::CallError>(socket)
        });
        sockets.collect::<Result<Vec<_>, _>>()
    })??;
    bound
        .iter()
        .map(|socket| {
            let fd = std::os::fd::AsFd::as_fd(socket).try_clone_to_owned()?;
            let socket = UdpSocket::from(fd);
            socket.set_nonblocking(true)?;
            Ok(socket)
        })
        .collect()
}

/// How many datagrams wait in the sockets, which are empty then.
fn drain(sockets: &[UdpSocket]) -> u64 {
    let of_one =
        |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count() as u64;
    sockets.iter().map(of_one).sum()
}

/// Sends, and waits until nothing is on the way any more.
fn send(lab: &Lab, target: IpAddr, port: u16, datagrams: u64) -> Result<(), Failed> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => address::v4(30).into(),
        IpAddr::V6(_) => address::v6(30).into(),
    };
    let socket = lab.sender().run(|| UdpSocket::bind((any, 0)))??;
    for _ in 0..datagrams {
        socket.send_to(&[1; 32], (target, port))?;
    }
    Ok(lab.settle()?)
}

/// A connection that carries a few bytes.
fn transfer(lab: &Lab, target: SocketAddr) -> Result<(), Failed> {
    let listener = lab.receiver().run(|| TcpListener::bind(target))??;
    let mut sending = lab
        .sender()
        .run(|| TcpStream::connect_timeout(&target, Duration::from_secs(5)))??;
    std::io::Write::write_all(&mut sending, b"a few bytes")?;
    drop(sending);
    let (mut receiving, _) = listener.accept()?;
    let mut bytes = Vec::new();
    receiving.read_to_end(&mut bytes)?;
    check(bytes == b"a few bytes", || format!("{bytes:?} came"))
}
