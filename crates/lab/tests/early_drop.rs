//! Early drops with real packets: each drops exactly what is sent, and nothing any more when it is
//! removed.

mod common;

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use common::{Need, Test};
use libtest_mimic::Failed;
use mpps_lab::{EarlyDrop, Installed, Lab, LabConfig, address};

const PORT: u16 = 4321;
const OTHER_PORT: u16 = 4322;
const DATAGRAMS: u64 = 2000;

fn main() -> ExitCode {
    let tests: Vec<Test> = vec![
        ("iptables_raw_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::IptablesRaw)
        }),
        ("nft_raw_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::NftRaw)
        }),
        ("nft_ingress_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::NftIngress)
        }),
        ("xdp_parsed_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::XdpParsed)
        }),
        ("xdp_read_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::XdpRead)
        }),
        ("xdp_untouched_is_exact", Need::Placement, || {
            is_exact(EarlyDrop::XdpUntouched)
        }),
        ("queues_add_up", Need::Placement, queues_add_up),
        ("others_go_on", Need::Placement, others_go_on),
        (
            "one_follows_the_other",
            Need::Placement,
            one_follows_the_other,
        ),
        (
            "rules_are_of_the_lab_alone",
            Need::Placement,
            rules_are_of_the_lab_alone,
        ),
    ];
    common::run(tests).exit_code()
}

/// All that is sent is dropped, over both versions of IP, and reaches a socket afterwards.
fn is_exact(early: EarlyDrop) -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    early
        .probe(&lab)
        .map_err(|lacks| format!("{}; {}", lacks.why, lacks.remedy))?;
    let targets = [IpAddr::from(address::v4(1)), address::v6(1).into()];
    let sockets = listen(&lab, &targets, PORT)?;
    let installed = early.install(&lab, PORT)?;
    check(installed.dropped()? == 0, || "it began with drops".into())?;
    for (round, target) in (1..).zip(targets) {
        send(&lab, target, PORT, DATAGRAMS)?;
        lab.settle()?;
        let dropped = installed.dropped()?;
        check(dropped == round * DATAGRAMS, || {
            format!("{dropped} dropped after {round} times {DATAGRAMS}, last to {target}")
        })?;
    }
    check(drain(&sockets) == 0, || "some came through".to_owned())?;
    installed.remove()?;
    for target in targets {
        send(&lab, target, PORT, DATAGRAMS)?;
    }
    lab.settle()?;
    let received = drain(&sockets);
    check(received == 2 * DATAGRAMS, || {
        format!("{received} of {} came after its removal", 2 * DATAGRAMS)
    })
}

/// All on one queue, then on two, then on four.
fn queues_add_up() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    for early in EarlyDrop::ALL {
        for queues in [1, 2, 4] {
            let installed = early.install(&lab, PORT)?;
            let mut used = std::collections::BTreeSet::new();
            for last in 1..=queues {
                let target = IpAddr::from(address::v4(last));
                used.insert(lab.queue_of(target).ok_or("not steered")?);
                send(&lab, target, PORT, DATAGRAMS)?;
            }
            lab.settle()?;
            let sent = u64::from(queues) * DATAGRAMS;
            let dropped = installed.dropped()?;
            check(used.len() == usize::from(queues) && dropped == sent, || {
                format!("{early}: {dropped} of {sent} over the queues {used:?}")
            })?;
        }
    }
    Ok(())
}

/// What is not for the port goes on: datagrams to another one, and a connection to the same one.
fn others_go_on() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let targets = [IpAddr::from(address::v4(1)), address::v6(1).into()];
    let sockets = listen(&lab, &targets, OTHER_PORT)?;
    for early in EarlyDrop::ALL.into_iter().filter(|one| one.is_selective()) {
        let installed = early.install(&lab, PORT)?;
        for target in targets {
            send(&lab, target, OTHER_PORT, DATAGRAMS)?;
            transfer(&lab, SocketAddr::from((target, PORT)))?;
        }
        lab.settle()?;
        let received = drain(&sockets);
        check(received == 2 * DATAGRAMS, || {
            format!("{early}: {received} of {} came", 2 * DATAGRAMS)
        })?;
        let dropped = installed.dropped()?;
        check(dropped == 0, || format!("{early}: {dropped} dropped"))?;
    }
    Ok(())
}

/// None leaves anything that the next would stumble over, and each counts from zero.
fn one_follows_the_other() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    for round in 0..3 {
        for early in EarlyDrop::ALL {
            let installed = early.install(&lab, PORT)?;
            send(&lab, address::v4(1).into(), PORT, 10)?;
            lab.settle()?;
            let dropped = installed.dropped()?;
            check(dropped == 10, || {
                format!("{early}, round {round}: {dropped} of 10")
            })?;
        }
    }
    Ok(())
}

/// Two labs drop each their own, and this machine has no rule of theirs.
fn rules_are_of_the_lab_alone() -> Result<(), Failed> {
    let labs = [
        Lab::new(&LabConfig::default())?,
        Lab::new(&LabConfig::default())?,
    ];
    for early in EarlyDrop::ALL {
        let installed: Vec<Installed<'_>> = labs
            .iter()
            .map(|lab| early.install(lab, PORT))
            .collect::<Result<_, _>>()?;
        for (lab, datagrams) in labs.iter().zip([30, 50]) {
            send(lab, address::v4(1).into(), PORT, datagrams)?;
            lab.settle()?;
        }
        let dropped = [installed[0].dropped()?, installed[1].dropped()?];
        check(dropped == [30, 50], || format!("{early}: {dropped:?}"))?;
        let own = UdpSocket::bind(("127.0.0.1", 0))?;
        own.set_read_timeout(Some(Duration::from_secs(5)))?;
        own.send_to(b"not of a lab", own.local_addr()?)?;
        own.recv(&mut [0; 64])?;
    }
    Ok(())
}

/// Sockets of the receiver that never wait.
fn listen(lab: &Lab, targets: &[IpAddr], port: u16) -> Result<Vec<UdpSocket>, Failed> {
    let bound = lab.receiver().run(|| {
        let sockets = targets.iter().map(|target| {
            let socket = mpps_os::socket::UdpSocket::new(&SocketAddr::from((*target, port)))?;
            // Nobody reads before all of them have come.
            socket.set_receive_buffer(8 << 20)?;
            socket.bind(&SocketAddr::from((*target, port)))?;
            Ok::<_, mpps_os::Error>(socket)
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

/// Sends so slowly that nothing is lost on the way: a ring holds 256 packets.
fn send(lab: &Lab, target: IpAddr, port: u16, datagrams: u64) -> Result<(), Failed> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => address::v4(30).into(),
        IpAddr::V6(_) => address::v6(30).into(),
    };
    let socket = lab.sender().run(|| UdpSocket::bind((any, 0)))??;
    for number in 0..datagrams {
        socket.send_to(&[1; 32], (target, port))?;
        if number % 100 == 99 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
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

fn check(good: bool, why: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why().into()) }
}
