//! A run does not touch the traffic of other programs. A killed run leaves nothing behind.

use super::{PORT, address, lab, link, on, receiver, start};
use mpps::udp::traffic::RecvTotal;
use mpps_lab::{Lab, LabConfig};
use mpps_trial::{Need, Trial, trials};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        measures(Need::Root): other_traffic_is_untouched;
        waits(Need::Root):
            a_killed_af_xdp_receiver_leaves_nothing,
            a_killed_taking_tap_leaves_nothing,
            a_killed_generator_leaves_nothing;
    ]
}

/// Far beyond any scheduling delay; only a loss waits so long.
const PATIENCE: Duration = Duration::from_secs(10);
const TRANSFER_BYTES: usize = 8 << 20;
const ROUND_TRIPS: u32 = 500;

/// Beside a flood that an AF_XDP receiver takes, TCP and UDP on another port of the same address.
///
/// The flood may fill the link's ring, and a packet that finds it full is lost for any program. So
/// the senders on the other port have a queue that waits for room. Only the receiver can then lose
/// packets.
fn other_traffic_is_untouched() {
    let config = LabConfig {
        back_pressure: true,
        ..LabConfig::default()
    };
    let lab = Lab::new(&config).expect("root has a lab");
    let at = address(&lab, 4, PORT);
    let other = address(&lab, 4, PORT + 1);
    let running = receiver(&lab, &at, &["af_xdp"], &[]);
    let flood = ["send", &at, "--backend", "xdp", "--rate", "300k"];
    let mut flooding = start(lab.sender(), &flood);
    flooding.line("pps");
    let transferred = transfer(&lab, &other);
    let answered = round_trips(&lab, &other);
    let sent = flooding.interrupt().fine();
    lab.settle().expect("silence comes");
    let told = running.interrupt().fine();
    let total = RecvTotal::parse(&told.out).expect("totals");
    assert_eq!(transferred, TRANSFER_BYTES);
    assert_eq!(answered, ROUND_TRIPS);
    assert!(total.received > 0, "{sent:#?} {told:#?}");
}

/// How many bytes arrive of those that a TCP connection carries.
fn transfer(lab: &Lab, at: &str) -> usize {
    let listener = lab.receiver().run(|| TcpListener::bind(at));
    let listener = listener.expect("it can be entered").expect("a free port");
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it goes on");
        assert!(
            bytes
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == pattern(at))
        );
        bytes.len()
    });
    let stream = lab.sender().run(|| TcpStream::connect(at));
    let mut stream = stream.expect("it can be entered").expect("it answers");
    let bytes: Vec<u8> = (0..TRANSFER_BYTES).map(pattern).collect();
    stream.write_all(&bytes).expect("it goes on");
    drop(stream);
    reader.join().expect("all came as it was")
}

fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// How many datagrams come back from an echo, each sent once.
fn round_trips(lab: &Lab, at: &str) -> u32 {
    let socket = lab.receiver().run(|| UdpSocket::bind(at));
    let socket = socket.expect("it can be entered").expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let echo = thread::spawn(move || {
        let mut buffer = [0; 64];
        for _ in 0..ROUND_TRIPS {
            let Ok((bytes, from)) = socket.recv_from(&mut buffer) else {
                return;
            };
            socket
                .send_to(&buffer[..bytes], from)
                .expect("it can answer");
        }
    });
    let asking = lab.sender().run(|| UdpSocket::bind("0.0.0.0:0"));
    let asking = asking.expect("it can be entered").expect("a free port");
    asking.set_read_timeout(Some(PATIENCE)).expect("a time");
    asking.connect(at).expect("there is a route");
    let mut answered = 0;
    for number in 0..ROUND_TRIPS {
        asking.send(&number.to_be_bytes()).expect("it can be sent");
        let mut answer = [0; 64];
        match asking.recv(&mut answer) {
            Ok(4) if answer[..4] == number.to_be_bytes() => answered += 1,
            _ => break,
        }
    }
    echo.join().expect("it ends");
    answered
}

/// Receives some datagrams by an ordinary socket, and all of them must come.
fn a_socket_gets_all(lab: &Lab, at: &str) {
    let running = receiver(lab, at, &["recvmmsg"], &["--rcvbuf", "4M"]);
    let send = ["send", at, "--json", "--count", "500", "--rate", "5k"];
    let told = super::exchange(lab, running, &send);
    told.balances();
    assert!(told.recv.received >= 400, "{}", told.people);
}

fn a_killed_af_xdp_receiver_leaves_nothing() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    for mode in [&["af_xdp"][..], &["af_xdp", "--xdp", "generic"]] {
        let running = receiver(&lab, &at, mode, &[]);
        assert!(link(lab.receiver()).native_xdp.is_some(), "it is attached");
        running.signal("KILL");
        assert!(running.end().status.code().is_none(), "it was killed");
        assert!(link(lab.receiver()).native_xdp.is_none(), "it is detached");
        receiver(&lab, &at, mode, &[]).interrupt().fine();
        assert!(link(lab.receiver()).native_xdp.is_none(), "it is detached");
    }
    a_socket_gets_all(&lab, &at);
}

/// While the tap runs, an ordinary socket gets none of its packets. After that it gets all.
fn a_killed_taking_tap_leaves_nothing() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let socket = start(
        lab.receiver(),
        &["recv", &at, "--json", "--reuseport", "--rcvbuf", "4M"],
    );
    let mut socket = socket;
    socket.address();
    let taking = receiver(&lab, &at, &["packet_mmap", "--take"], &[]);
    let send = ["send", &at, "--count", "500", "--rate", "5k"];
    on(lab.sender(), &send).fine();
    lab.settle().expect("silence comes");
    let told = socket.interrupt().fine();
    let total = RecvTotal::parse(&told.out).expect("totals");
    assert_eq!(total.received, 0, "it was taken: {told:#?}");
    taking.signal("KILL");
    assert!(taking.end().status.code().is_none(), "it was killed");
    a_socket_gets_all(&lab, &at);
    receiver(&lab, &at, &["packet_mmap", "--take"], &[])
        .interrupt()
        .fine();
}

fn a_killed_generator_leaves_nothing() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let mut running = start(lab.sender(), &["send", &at, "--backend", "xdp"]);
    running.line("pps");
    running.signal("KILL");
    assert!(running.end().status.code().is_none(), "it was killed");
    for host in [lab.sender(), lab.receiver()] {
        assert!(link(host).native_xdp.is_none(), "{}", host.name());
    }
    lab.settle().expect("silence comes");
    let running = receiver(&lab, &at, &["af_xdp"], &[]);
    let send = ["send", &at, "--json", "--backend", "xdp", "--count", "1000"];
    let told = super::exchange(
        &lab,
        running,
        &[send.as_slice(), &["--rate", "10k"]].concat(),
    );
    told.balances();
}
