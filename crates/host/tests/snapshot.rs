//! Snapshots against a living kernel: exact counts, in network namespaces made for the purpose.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use mpps_host::{Delta, Snapshot};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            datagrams_are_counted_exactly,
            delivery_is_counted_when_read,
            a_full_socket_is_counted_exactly,
            a_replaced_interface_is_an_anomaly;
    ]
}

/// Moves this process to a host of its own, whose only interface is up.
fn enter_host() -> Result<(), Failed> {
    NetNamespace::new()?.enter()?;
    Ok(link::set_up(link::index("lo")?)?)
}

/// The differences that some work makes, taken when nothing moves any more.
fn delta(interfaces: &[&str], work: impl FnOnce() -> Result<(), Failed>) -> Result<Delta, Failed> {
    let before = Snapshot::take(interfaces)?;
    work()?;
    let mut after = Snapshot::take(interfaces)?;
    loop {
        // On a busy machine the kernel may hand the last packets to a thread of its own.
        std::thread::sleep(std::time::Duration::from_millis(10));
        let last = std::mem::replace(&mut after, Snapshot::take(interfaces)?);
        if (&last.snmp, &last.links) == (&after.snmp, &after.links) {
            return Ok(after.since(&before));
        }
    }
}

/// Sends datagrams of 32 bytes from a new socket.
fn send(count: usize, to: SocketAddr) -> Result<(), Failed> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    for _ in 0..count {
        socket.send_to(&[0; 32], to)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), Failed> {
    match got == wanted {
        true => Ok(()),
        false => Err(format!("{what}: {got:?} instead of {wanted:?}").into()),
    }
}

fn datagrams_are_counted_exactly() -> Result<(), Failed> {
    enter_host()?;
    let delta = delta(&["lo"], || {
        send(300, (Ipv4Addr::LOCALHOST, 4321).into())?;
        send(40, (Ipv6Addr::LOCALHOST, 4321).into())
    })?;
    // Other activity of this machine happens in other namespaces.
    same(
        "Udp.OutDatagrams",
        delta.snmp("Udp.OutDatagrams"),
        Some(300),
    )?;
    same(
        "Udp6.OutDatagrams",
        delta.snmp("Udp6.OutDatagrams"),
        Some(40),
    )?;
    same("both NoPorts", delta.udp("NoPorts"), Some(340))?;
    let received = delta.link("lo").map(|link| link.rx_packets);
    // Each of them is answered by an ICMP message, as far as the rate limit of those allows.
    let answers = delta.snmp("Icmp.OutDestUnreachs").unwrap_or(0)
        + delta.snmp("Icmp6.OutDestUnreachs").unwrap_or(0);
    same("loopback packets", received, Some(340 + answers))?;
    same("anomalies", delta.anomalies, Vec::new())
}

fn delivery_is_counted_when_read() -> Result<(), Failed> {
    enter_host()?;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 4321))?;
    let address = receiver.local_addr()?;
    let arrival = delta(&[], || send(10, address))?;
    same("before reading", arrival.udp("InDatagrams"), Some(0))?;
    let reading = delta(&[], || {
        for _ in 0..7 {
            receiver.recv(&mut [0; 64])?;
        }
        Ok(())
    })?;
    same("after reading", reading.udp("InDatagrams"), Some(7))?;
    let closing = delta(&[], || {
        drop(receiver);
        Ok(())
    })?;
    let counted: Vec<_> = closing
        .snmp
        .iter()
        .filter(|(_, count)| **count != 0)
        .collect();
    same(
        "the three that die with their socket are in no counter",
        counted,
        Vec::new(),
    )
}

fn a_full_socket_is_counted_exactly() -> Result<(), Failed> {
    enter_host()?;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 4321))?;
    receiver.set_nonblocking(true)?;
    let address = receiver.local_addr()?;
    // More than any default buffer of `net.core.rmem_default` holds.
    let delta = delta(&[], || send(20_000, address))?;
    let mut queued = 0;
    while receiver.recv(&mut [0; 64]).is_ok() {
        queued += 1;
    }
    let lost = delta.udp("RcvbufErrors");
    same(
        "queued and lost",
        lost.map(|lost| lost + queued),
        Some(20_000),
    )?;
    same(
        "InErrors includes RcvbufErrors",
        delta.udp("InErrors"),
        lost,
    )
}

fn a_replaced_interface_is_an_anomaly() -> Result<(), Failed> {
    enter_host()?;
    let here = NetNamespace::current()?;
    let make = || link::create_veth("mpps-t0", 1, "mpps-t1", 1, std::os::fd::AsFd::as_fd(&here));
    make()?;
    let delta = delta(&["mpps-t0"], || {
        link::delete(link::index("mpps-t0")?)?;
        Ok(make()?)
    })?;
    same("anomalies", delta.anomalies.len(), 1)?;
    same(
        "replaced",
        delta.anomalies[0].contains("mpps-t0 was replaced"),
        true,
    )
}
