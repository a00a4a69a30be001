//! Packets that are not for a ring go on to the kernel, and nothing of a ring outlives its process.

use super::pair::{PATIENCE, Pair, open_descriptors, receive, send_numbers, within_patience};
use super::place::{Place, Version};
use mpps_io::{RxConfig, Tx, Wait};
use mpps_os::netlink::address;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

scenarios! {
    Receivers ["receiving ring"]:
        foreign_traffic_is_not_seen_and_goes_on,
        neighbours_are_still_found,
        other_traffic_is_untouched_by_a_flood,
        a_killed_process_leaves_nothing;
}

/// The variable that gives this program, started again, a row to open and an address.
const ROLE: &str = "MPPS_CONFORMANCE_ROLE";

/// An ordinary socket of the lab's receiver, which waits no longer than a test does.
fn socket_at(place: Place, address: SocketAddr) -> UdpSocket {
    let bound = place.at_receiver(|| UdpSocket::bind(address));
    patient(bound.unwrap_or_else(|error| panic!("{address}: {error}")))
}

/// The same of the sender, at any port.
fn sending_socket(place: Place) -> UdpSocket {
    let source = place.sender();
    let bound = place.at_sender(|| UdpSocket::bind((source, 0)));
    patient(bound.expect("a port is free"))
}

fn patient(socket: UdpSocket) -> UdpSocket {
    let set = socket.set_read_timeout(Some(PATIENCE));
    set.expect("a time that a socket can wait");
    socket
}

/// A datagram there and one back.
fn exchange(client: &UdpSocket, server: &UdpSocket, target: SocketAddr, number: u64) {
    let mut bytes = [0; 64];
    let sent = client.send_to(&number.to_le_bytes(), target);
    sent.unwrap_or_else(|error| panic!("request {number}: {error}"));
    let (length, source) = server
        .recv_from(&mut bytes)
        .unwrap_or_else(|error| panic!("request {number} did not come: {error}"));
    assert_eq!(bytes[..length], number.to_le_bytes());
    server.send_to(&bytes[..length], source).expect("an answer");
    let (length, source) = client
        .recv_from(&mut bytes)
        .unwrap_or_else(|error| panic!("answer {number} did not come: {error}"));
    assert_eq!(
        (&bytes[..length], source),
        (&number.to_le_bytes()[..], target)
    );
}

/// Another port, another address, the other version of IP, TCP to the very port: each is answered
/// by the kernel, and the ring sees none.
fn foreign_traffic_is_not_seen_and_goes_on(pair: &Pair) {
    let place = pair.place;
    let (mut rx, mut tx) = pair.open();
    let own = rx.caps().local_address;
    let other_version = Place::Lab(match place.version() {
        Version::V4 => Version::V6,
        Version::V6 => Version::V4,
    });
    let mut targets = vec![
        (place, SocketAddr::new(own.ip(), own.port() + 1)),
        (place, SocketAddr::new(own.ip(), own.port() - 1)),
        (place, SocketAddr::new(place.receivers()[1], own.port())),
    ];
    if other_version.is_there().is_ok() {
        let target = SocketAddr::new(other_version.receiver(), own.port());
        targets.push((other_version, target));
    }
    for (number, (place, target)) in (0..).zip(targets) {
        exchange(
            &sending_socket(place),
            &socket_at(place, target),
            target,
            number,
        );
        send_numbers(&mut *tx, 0, number, 1);
        pair.expect(&mut *rx, number..number + 1);
    }
    transfer(place, own, 100_000);
    place.settle();
    let batch = rx.recv(Wait::Poll).expect("receiving works");
    assert_eq!(batch.len(), 0, "something foreign came");
    assert_eq!(rx.counters().dropped, 0);
}

/// The receiver gets a new address that no host knows. The sender has to ask for it (ARP, or
/// neighbour discovery). The answer must come although a ring is at work.
fn neighbours_are_still_found(pair: &Pair) {
    static LAST: AtomicU8 = AtomicU8::new(100);
    let place = pair.place;
    let (mut rx, mut tx) = pair.open();
    let last = LAST.fetch_add(1, Ordering::Relaxed);
    let (unknown, prefix_length): (IpAddr, u8) = match place.version() {
        Version::V4 => (mpps_lab::address::v4(last).into(), 24),
        Version::V6 => (mpps_lab::address::v6(last).into(), 64),
    };
    let index = place.lab().map(|lab| lab.receiver().interface_index());
    let index = index.expect("rings are tried in a lab");
    place
        .at_receiver(|| address::add(index, unknown, prefix_length))
        .expect("an address can be added");
    let target = SocketAddr::new(unknown, place.port());
    exchange(&sending_socket(place), &socket_at(place, target), target, 1);
    send_numbers(&mut *tx, 0, 0, 1);
    pair.expect(&mut *rx, 0..1);
}

/// While a ring takes a flood, a connection and requests over the same interface lose nothing. A
/// receiver that has no CPU for a while loses some of the flood, and counts that.
fn other_traffic_is_untouched_by_a_flood(pair: &Pair) {
    const BYTES: usize = 4 << 20;
    const ROUND_TRIPS: u64 = 1000;
    let place = pair.place;
    let (mut rx, tx) = pair.open();
    let own = rx.caps().local_address;
    let other = SocketAddr::new(own.ip(), place.port());
    let lost_before = place.lost_on_link();
    let (stop, flooded) = (AtomicBool::new(false), AtomicU64::new(0));
    let (offered, received) = thread::scope(|scope| {
        let flood = scope.spawn(|| flood(tx, &stop, &flooded));
        let reader = scope.spawn(|| {
            let mut idle = 0;
            // A few empty waits after the end of the flood, and all of it has come.
            while idle < 5 {
                let wait = Wait::Block(Duration::from_millis(100));
                let batch = rx.recv(wait).expect("receiving works");
                let quiet = batch.is_empty() && stop.load(Ordering::Acquire);
                idle = if quiet { idle + 1 } else { 0 };
            }
            rx.counters()
        });
        let transfer = scope.spawn(|| transfer(place, other, BYTES));
        let (client, server) = (sending_socket(place), socket_at(place, other));
        // However slowly the flood begins, most of it comes between round trips.
        let more =
            |number: &u64| *number < ROUND_TRIPS || flooded.load(Ordering::Relaxed) <= ROUND_TRIPS;
        let numbers = (0..100 * ROUND_TRIPS).take_while(more);
        numbers.for_each(|number| exchange(&client, &server, other, number));
        let transferred = transfer.join();
        stop.store(true, Ordering::Release);
        transferred.expect("the connection carried it all");
        let offered = flood.join().expect("the flood goes on to its end");
        (offered, reader.join().expect("the receiver goes on, too"))
    });
    assert!(offered > ROUND_TRIPS, "{offered} are no flood");
    let lost = place.lost_on_link() - lost_before;
    assert!(received.datagrams > 0, "nothing of {offered} came");
    assert_eq!(
        received.datagrams + received.dropped + lost,
        offered,
        "{} received, {} dropped, {lost} lost on the link",
        received.datagrams,
        received.dropped
    );
}

/// Sends until `stop` is set, and stores in `flooded` how many until now; returns how many.
fn flood(mut tx: Box<dyn Tx>, stop: &AtomicBool, flooded: &AtomicU64) -> u64 {
    while !stop.load(Ordering::Acquire) {
        let most = tx.caps().batch;
        tx.send(0, most).expect("sending works");
        flooded.store(tx.counters().accepted, Ordering::Relaxed);
    }
    tx.counters().accepted
}

/// A connection that carries this many bytes, in pieces that are confirmed one by one, so that they
/// never fill the link.
fn transfer(place: Place, target: SocketAddr, bytes: usize) {
    const PIECE: usize = 16 << 10;
    let content: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
    let bound = place.at_receiver(|| TcpListener::bind(target));
    let listener = bound.expect("no other listener has the port");
    let connected = place.at_sender(|| TcpStream::connect_timeout(&target, PATIENCE));
    let mut client = connected.expect("the kernel answers");
    let (mut server, _) = listener.accept().expect("the connection comes");
    for stream in [&client, &server] {
        let set = stream.set_read_timeout(Some(PATIENCE));
        set.and(stream.set_nodelay(true)).expect("options of TCP");
    }
    let mut came = Vec::new();
    for piece in content.chunks(PIECE) {
        client.write_all(piece).expect("the connection is open");
        let start = came.len();
        came.resize(start + piece.len(), 0);
        server.read_exact(&mut came[start..]).expect("a piece");
        server.write_all(&[1]).expect("a confirmation");
        client.read_exact(&mut [0]).expect("it comes back");
    }
    assert!(came == content, "the connection changed something");
}

/// A process that receives is killed: its datagrams then go to an ordinary socket, and the next
/// receiver finds everything free.
fn a_killed_process_leaves_nothing(pair: &Pair) {
    let place = pair.place;
    // A library may open what the process keeps for good.
    drop(pair.open_rx(&pair.rx_config()));
    let descriptors = open_descriptors();
    for _ in 0..3 {
        let address = SocketAddr::new(place.receiver(), place.port());
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command
            .env(ROLE, format!("{} {address}", pair.rx.name))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let lab = place.lab().expect("rings are tried in a lab");
        let mut child = lab.receiver().spawn(command).expect("it starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout().expect("it was asked for"));
        output.read_line(&mut line).expect("it says something");
        assert_eq!(line, "open\n");
        child.kill().expect("it is killed");
        drop((child, output));

        let socket = within_patience("the port", move || free_socket(place, address));
        let client = sending_socket(place);
        exchange(&client, &socket, address, 1);
        drop(socket);
        let config = RxConfig {
            address,
            ..pair.rx_config()
        };
        let mut rx = pair.open_rx(&config);
        let mut tx = pair.open_tx(&pair.tx_config(address));
        send_numbers(&mut *tx, 0, 0, 10);
        receive(&mut *rx, 10, |_| {});
    }
    assert_eq!(open_descriptors(), descriptors);
}

/// The kernel frees what a killed process had when it finds the time.
fn free_socket(place: Place, address: SocketAddr) -> UdpSocket {
    loop {
        if let Ok(socket) = place.at_receiver(|| UdpSocket::bind(address)) {
            return patient(socket);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The work of this program, started again: it receives until it is killed.
pub(crate) fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let (name, address) = role.split_once(' ')?;
    let row = mpps_io::backend::find(name).ok()?;
    let mut config = RxConfig::new(address.parse().ok()?);
    // All that could be left behind is asked for.
    config.ring.take = row.rx_fields.contains(&"ring.take");
    let mut rx = match row.open_rx(&config) {
        Ok(rx) => rx,
        Err(error) => {
            let _ = writeln!(std::io::stdout(), "{error}");
            return Some(ExitCode::FAILURE);
        }
    };
    writeln!(std::io::stdout(), "open").ok()?;
    while rx.recv(Wait::Block(PATIENCE)).is_ok() {}
    Some(ExitCode::FAILURE)
}
