//! Receivers that answer: a client with an ordinary socket gets its packets back, from the address
//! that it asked. The counts are those of both.

use super::kernel::datagrams_out;
use super::pair::{PATIENCE, Pair, receive, within_patience};
use super::place::Version;
use mpps_io::backend::find;
use mpps_io::{Layer, Rx, RxConfig, Served, Stop, Transmit, Wait};
use mpps_os::netlink::address;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

scenarios! {
    Receivers ["kernel"]:
        every_question_is_answered_in_place,
        an_answer_may_be_shorter_longer_or_none,
        an_answer_that_cannot_be_sent_is_refused;
    Receivers ["rx ring.frames"]: more_answers_than_there_are_frames;
    Receivers ["receiving socket", "kernel"]: an_answer_leaves_from_the_address_that_was_asked;
    Receivers ["rx errors"]: what_became_of_a_datagram_comes_back, datagrams_leave_as_asked;
    Receivers []: nobody_answers_unasked;
}

/// Of include/uapi/asm-generic/errno.h.
const ECONNREFUSED: i32 = 111;
const EMSGSIZE: i32 = 90;

/// Questions that are under way at a time: few enough for every queue between the two.
const WINDOW: u32 = 32;

fn open(pair: &Pair) -> Box<dyn Rx> {
    let mut config = pair.rx_config();
    config.answers = true;
    pair.open_rx(&config)
}

/// An ordinary socket on the sender's host, which receives only from this receiver.
fn client(pair: &Pair, server: SocketAddr) -> UdpSocket {
    let opened = pair.place.at_sender(|| {
        let socket = UdpSocket::bind((pair.place.sender(), 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(server)?;
        Ok::<_, std::io::Error>(socket)
    });
    opened.expect("a client can be had")
}

/// Serves until `questions` came, or nothing more comes.
fn serve(
    mut rx: Box<dyn Rx>,
    questions: u64,
    mut answer: impl FnMut(mpps_io::Request<'_>) + Send + 'static,
) -> thread::JoinHandle<Served> {
    thread::spawn(move || {
        let mut sum = Served::default();
        while sum.received < questions {
            let wait = Wait::Auto(PATIENCE);
            let served = rx.serve(wait, &mut |requests| requests.for_each(&mut answer));
            let served = served.expect("it was opened for that");
            if served.received == 0 {
                break;
            }
            sum.received += served.received;
            sum.sent += served.sent;
            sum.refused += served.refused;
        }
        assert_eq!(rx.counters().datagrams, sum.received);
        assert_eq!(rx.counters().dropped, 0);
        sum
    })
}

fn every_question_is_answered_in_place(pair: &Pair) {
    const ROUNDS: u32 = 200;
    let rx = open(pair);
    let client = client(pair, rx.caps().local_address);
    let questions = u64::from(ROUNDS * WINDOW);
    let asker = client.local_addr().ok();
    let serving = serve(rx, questions, move |request| {
        assert_eq!(request.source(), asker);
        request.reply_in_place(|room, bytes| {
            room[..bytes].iter_mut().for_each(|byte| *byte ^= 0xff);
            Some(bytes)
        });
    });
    let mut came = [0; 64];
    for round in 0..ROUNDS {
        let numbers = round * WINDOW..(round + 1) * WINDOW;
        for number in numbers.clone() {
            client.send(&number.to_be_bytes()).expect("it is sent");
        }
        // A connected socket takes nothing from another address or port. The answers come in the
        // order of the questions, unless the server moves to another CPU: a veth queues on the
        // sender's.
        let answer = |_| {
            let bytes = client.recv(&mut came).expect("an answer comes");
            let number = came[..bytes].try_into().expect("four bytes, inverted");
            !u32::from_be_bytes(number)
        };
        let mut answers: Vec<u32> = numbers.clone().map(answer).collect();
        answers.sort_unstable();
        assert_eq!(answers, numbers.collect::<Vec<_>>());
    }
    let served = within_patience("the server", move || serving.join()).expect("it did not panic");
    assert_eq!(
        served,
        Served {
            received: questions,
            sent: questions,
            refused: 0
        }
    );
}

fn an_answer_may_be_shorter_longer_or_none(pair: &Pair) {
    let rx = open(pair);
    let client = client(pair, rx.caps().local_address);
    let serving = serve(rx, 6, |request| {
        let asked = usize::from(request.payload()[0]) * 100 + usize::from(request.payload()[1]);
        match asked {
            0 => {}
            bytes => assert!(request.reply(&vec![b'a'; bytes - 2])),
        }
    });
    // No answer to the first; then none of no byte, odd and even lengths, up to a usual MTU's.
    let mut came = [0; 2048];
    client.send(&[0, 0, 9]).expect("it is sent");
    for asked in [2_usize, 3, 101, 502, 1402] {
        let question = [(asked / 100) as u8, (asked % 100) as u8, 7];
        client.send(&question).expect("it is sent");
        let bytes = client.recv(&mut came).expect("an answer comes");
        assert_eq!(bytes, asked - 2);
        assert!(came[..bytes].iter().all(|byte| *byte == b'a'));
    }
    let served = within_patience("the server", move || serving.join()).expect("it did not panic");
    assert_eq!((served.received, served.sent, served.refused), (6, 5, 0));
}

fn an_answer_that_cannot_be_sent_is_refused(pair: &Pair) {
    let rx = open(pair);
    let layer = rx.caps().layer;
    let client = client(pair, rx.caps().local_address);
    let serving = serve(rx, 2, move |request| {
        let mut room = 0;
        let is_first = request.payload() == b"first";
        let is_sent = request.reply_in_place(|buffer, _| {
            room = buffer.len();
            Some(if is_first { room + 1 } else { 1 })
        });
        assert_eq!(is_sent, !is_first);
        let most = if layer == Layer::Frame { 1500 } else { 2048 };
        assert!((1000..=most).contains(&room), "{room}");
    });
    client.send(b"first").expect("it is sent");
    client.send(b"second").expect("it is sent");
    assert_eq!(client.recv(&mut [0; 2048]).expect("an answer comes"), 1);
    let served = within_patience("the server", move || serving.join()).expect("it did not panic");
    assert_eq!((served.received, served.sent), (2, 1));
}

/// Frames that were sent come back and are filled again, and a burst that takes all of them leaves a
/// receiver that still answers, and does not wait for the end of its time.
fn more_answers_than_there_are_frames(pair: &Pair) {
    const BURST: u32 = 128;
    let mut config = pair.rx_config();
    config.answers = true;
    config.ring.frames = Some(64);
    let mut rx = pair.open_rx(&config);
    let client = client(pair, rx.caps().local_address);
    let stop = Stop::new();
    let stopped = stop.clone();
    let serving = thread::spawn(move || {
        let mut sum = Served::default();
        while !stopped.is_stopped() {
            let served = rx.serve(Wait::Block(Duration::from_millis(100)), &mut |requests| {
                requests.for_each(|request| {
                    request.reply_in_place(|_, bytes| Some(bytes));
                });
            });
            let served = served.expect("it was opened for that");
            sum.received += served.received;
            sum.sent += served.sent;
            sum.refused += served.refused;
        }
        sum
    });
    let mut came = [0; 64];
    let mut answers = 0;
    for round in 0..20_u32 {
        // More than there are frames: some may be lost.
        for number in 0..BURST {
            client
                .send(&(round * BURST + number).to_be_bytes())
                .expect("it is sent");
        }
        // The last one is asked again until it is answered.
        let last = (round + 1) * 1_000_000;
        client
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a time");
        let mut asked = 0;
        client.send(&last.to_be_bytes()).expect("it is sent");
        loop {
            match client.recv(&mut came) {
                Ok(bytes) => {
                    answers += 1;
                    if came[..bytes] == last.to_be_bytes() {
                        break;
                    }
                }
                Err(_) => {
                    asked += 1;
                    assert!(asked < 50, "round {round}: it answers no more");
                    client.send(&last.to_be_bytes()).expect("it is sent");
                }
            }
        }
    }
    stop.stop();
    let served = within_patience("the server", move || serving.join()).expect("it did not panic");
    assert!(
        answers <= served.sent && served.sent + served.refused == served.received,
        "{served:?}"
    );
    assert!(answers >= 20 * 32, "{answers} answers, {served:?}");
}

/// Of a server at the wildcard of a host with several addresses. The route would choose another one. The
/// client's socket takes answers from no other address than it asked.
fn an_answer_leaves_from_the_address_that_was_asked(pair: &Pair) {
    let mut config = pair.rx_config();
    config.answers = true;
    let asked = config.address;
    // Of loopback there are many over IPv4, and one over IPv6.
    let others = match asked.ip() {
        IpAddr::V4(_) => vec![[127, 0, 0, 9].into(), [127, 200, 0, 1].into(), asked.ip()],
        IpAddr::V6(_) => vec![asked.ip()],
    };
    config.address = match asked {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let rx = pair.open_rx(&config);
    let port = rx.caps().local_address.port();
    let mut asked = others.clone().into_iter();
    let serving = serve(rx, others.len() as u64, move |request| {
        assert_eq!(request.details().local, asked.next());
        request.reply_in_place(|_, bytes| Some(bytes));
    });
    for address in &others {
        let client = client(pair, (*address, port).into());
        client.send(b"asked").expect("it is sent");
        assert_eq!(
            client.recv(&mut [0; 8]).expect("an answer comes"),
            5,
            "{address}"
        );
    }
    let served = within_patience("the server", move || serving.join()).expect("it did not panic");
    assert_eq!((served.sent, served.refused), (others.len() as u64, 0));
}

/// A receiver sends unasked, from its own address, and hears of a port without a socket.
fn what_became_of_a_datagram_comes_back(pair: &Pair) {
    let mut config = pair.rx_config();
    config.errors = true;
    let mut rx = pair.open_rx(&config);
    let client = client(pair, rx.caps().local_address);
    let destination = client.local_addr().expect("it is bound");
    let datagram = Transmit::new(destination, b"unasked");
    let sent = rx.transmit(&[datagram; 40]).expect("it has a socket");
    assert_eq!((sent.accepted, sent.refused), (40, 0));
    for _ in 0..40 {
        assert_eq!(client.recv(&mut [0; 8]).expect("it comes"), 7);
    }
    assert_eq!(rx.errors().expect("it has a socket"), []);
    drop(client);
    // Both leave: the error of the first is not taken for one of the second.
    for _ in 0..2 {
        let sent = rx.transmit(&[datagram]).expect("it has a socket");
        assert_eq!((sent.accepted, sent.refused), (1, 0));
    }
    // That the packet is too long is its own error.
    let long = vec![0; 65_530];
    let sent = rx.transmit(&[Transmit::new(destination, &long)]);
    let sent = sent.expect("it has a socket");
    assert_eq!((sent.accepted, sent.refused), (0, 1));
    // The error wakes a waiting receive, and is no datagram. That of a port comes by the link.
    let mut errors = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while errors.len() < 3 && Instant::now() < deadline {
        let came = rx.recv(Wait::Block(Duration::from_millis(1)));
        assert_eq!(came.expect("no fault of its own").len(), 0);
        errors.extend(rx.errors().expect("it has a socket"));
    }
    let told = errors
        .iter()
        .map(|error| (error.errno, error.destination.ip()));
    let refused = (ECONNREFUSED, destination.ip());
    let mut told: Vec<_> = told.collect();
    told.sort();
    assert_eq!(told, [(EMSGSIZE, destination.ip()), refused, refused]);
}

/// Each with its source, mark and hop limit, and a train as its datagrams. AF_XDP sends by the stack until
/// that has found the neighbour, and then past it.
fn datagrams_leave_as_asked(pair: &Pair) {
    let place = pair.place;
    let mut config = pair.rx_config();
    config.answers = true;
    let mut rx = pair.open_rx(&config);
    let mut config = RxConfig::new(SocketAddr::new(place.sender(), 0));
    if let Some(lab) = place.lab() {
        let (address, prefix) = match place.version() {
            Version::V4 => (mpps_lab::address::v4(98).into(), 24),
            Version::V6 => (mpps_lab::address::v6(98).into(), 64),
        };
        config.address.set_ip(address);
        place
            .at_sender(|| address::add(lab.sender().interface_index(), address, prefix))
            .expect("an address can be added");
    }
    config.details.source = true;
    config.details.traffic_class = true;
    config.details.hop_limit = true;
    let opened = place.at_sender(|| find("recvmmsg").and_then(|row| row.open_rx(&config)));
    let mut peer = opened.expect("it opens");
    let plain = Transmit::new(peer.caps().local_address, b"plain");
    let own = rx.caps().local_address;
    let source = place.receivers().last().copied();
    let marked = Transmit {
        payload: b"abcabcab",
        segment_bytes: Some(3),
        source,
        traffic_class: Some(0xb9),
        hop_limit: Some(7),
        ..plain
    };
    let from = |ip: Option<IpAddr>| Some(SocketAddr::new(ip.unwrap_or(own.ip()), own.port()));
    let expected = [(&b"plain"[..], None, 0, 64), (b"abc", source, 0xb9, 7)];
    let expected = [
        expected[0],
        expected[1],
        expected[1],
        (b"ab", source, 0xb9, 7),
    ];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = place.at_receiver(datagrams_out);
        let sent = rx.transmit(&[plain, marked]).expect("it has a socket");
        assert_eq!((sent.accepted, sent.refused), (2, 0));
        let by_stack = place.at_receiver(datagrams_out) - before;
        let mut expected = expected.into_iter();
        receive(&mut *peer, 4, |came| {
            let details = came.details.unwrap_or_default();
            let (payload, ip, class, hops) = expected.next().expect("no more");
            assert_eq!((came.data, details.source), (payload, from(ip)));
            let marks = (details.traffic_class, details.hop_limit);
            assert_eq!(marks, (Some(class), Some(hops)));
        });
        if pair.rx.name != "af_xdp" || by_stack == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{by_stack} by the stack");
    }
}

fn nobody_answers_unasked(pair: &Pair) {
    let mut rx = pair.open_rx(&pair.rx_config());
    let wait = Wait::Block(Duration::from_millis(1));
    let refused = rx.serve(wait, &mut |_| unreachable!("nothing comes"));
    let refused = refused.expect_err("it was not opened for that");
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
}
