//! The stream ring on the loopback interface: every verb, and that nothing is ever lost.

mod dialling;

use super::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

/// Longer than anything takes that works.
const LONG: Option<Duration> = Some(Duration::from_secs(30));
const LISTENER: u32 = 1_000_000;

struct Server {
    ring: StreamRing,
    listener: RingSocket,
    address: SocketAddr,
    _listener: TcpListener,
}

/// A ring that listens, or nothing where io_uring is forbidden.
fn server(options: &StreamOptions) -> Option<Server> {
    super::super::probe().ok()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ring = StreamRing::new(options).unwrap();
    Some(Server {
        listener: ring.adopt(listener.as_fd()).unwrap(),
        address: listener.local_addr().unwrap(),
        ring,
        _listener: listener,
    })
}

/// The same, or nothing where a ring cannot set options and dial: it binds since Linux 6.11.
fn dialler(options: &StreamOptions) -> Option<Server> {
    let server = server(options)?;
    let mut probe = io_uring::Probe::new();
    let submitter = server.ring.ring.uring.submitter();
    submitter.register_probe(&mut probe).unwrap();
    probe
        .is_supported(io_uring::opcode::Bind::CODE)
        .then_some(server)
}

const DIRECT: StreamOptions = StreamOptions {
    requests: 16,
    completions: 64,
    slots: 8,
    dial_slots: 4,
    buffers: 4,
    buffer_bytes: 64,
};

impl Server {
    fn event(&mut self) -> RingEvent {
        event(&mut self.ring)
    }

    fn outcome(&mut self) -> CompletedCall {
        self.event().outcome
    }

    fn accept(&mut self, placement: DescriptorKind, multishot: bool) -> RequestKey {
        self.ring
            .accept(LISTENER, &self.listener, placement, multishot)
    }

    fn accepted(&mut self) -> RingSocket {
        match self.event() {
            RingEvent {
                token: LISTENER,
                outcome:
                    CompletedCall::Accepted {
                        socket: Ok(socket), ..
                    },
            } => socket,
            other => panic!("{other:?}"),
        }
    }
}

fn event(ring: &mut StreamRing) -> RingEvent {
    loop {
        if let Some(event) = ring.next() {
            return event;
        }
        ring.wait(1, LONG).unwrap();
    }
}

fn received(event: RingEvent) -> Buffer {
    match event.outcome {
        CompletedCall::Received(Ok(buffer)) => buffer,
        other => panic!("{other:?}"),
    }
}

fn shared(bytes: &[u8]) -> Arc<[u8]> {
    Arc::from(bytes)
}

/// A client that says one line and reads until the end.
fn client(address: SocketAddr) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    })
}

#[test]
fn accept_receive_send_and_close_in_every_kind_of_descriptor() {
    for direct in [false, true] {
        // On such a kernel the client of a closed slot waits without end.
        if direct && !crate::uring::closes_slots().unwrap_or(false) {
            continue;
        }
        for multishot in [false, true] {
            for lent in [false, true] {
                one_kind(direct, multishot, lent);
            }
        }
    }
}

fn one_kind(direct: bool, multishot: bool, lent: bool) {
    let mut server = granted!(server(&DIRECT));
    let placement = |direct| match direct {
        false => DescriptorKind::Ordinary,
        true => DescriptorKind::Chosen,
    };
    server.accept(placement(direct), multishot);
    for round in 0..50 {
        let client = client(server.address);
        let socket = server.accepted();
        assert_eq!(socket.is_direct(), direct);
        let ring = &mut server.ring;
        if lent {
            ring.receive(round, &socket);
        } else {
            ring.receive_into(round, &socket, Buffer::new(64));
        }
        let buffer = received(event(ring));
        assert_eq!(ring.bytes(&buffer), b"hello");
        ring.give_back(buffer);
        ring.send_and_close(round, socket, shared(b"..world.."), 2..7);
        let ended = event(ring);
        assert_eq!(ended.token, round);
        assert!(
            matches!(ended.outcome, CompletedCall::Ended(Ok(()))),
            "{ended:?}"
        );
        assert_eq!(client.join().unwrap(), b"world");
        assert_eq!((ring.open_slots(), ring.free_buffers()), (0, 4));
        assert_eq!(ring.in_flight(), usize::from(multishot));
        if !multishot {
            server.accept(placement(direct), multishot);
        }
    }
}

#[test]
fn a_failed_send_closes_all_the_same() {
    let mut server = granted!(server(&DIRECT));
    let (socket, client) = connected(&mut server, DescriptorKind::Chosen);
    server.ring.shutdown(0, &socket, Shutdown::Write);
    assert!(matches!(server.outcome(), CompletedCall::ShutDown(Ok(()))));
    server.ring.send_and_close(3, socket, shared(b"late"), 0..4);
    match server.event() {
        RingEvent {
            token: 3,
            outcome: CompletedCall::Ended(Err(error)),
        } => assert_eq!(error.raw_os_error(), Some(libc::EPIPE)),
        other => panic!("{other:?}"),
    }
    assert_eq!((server.ring.open_slots(), server.ring.in_flight()), (0, 0));
    drop(client);
}

#[test]
fn what_a_peer_lacks_is_told_while_the_reply_is_sent() {
    for placement in [DescriptorKind::Ordinary, DescriptorKind::Chosen] {
        let mut server = granted!(dialler(&DIRECT));
        let (socket, client) = connected(&mut server, placement);
        // More than both sockets' buffers hold.
        let bytes: Arc<[u8]> = vec![7; 24 << 20].into();
        let sending = server.ring.send_and_close(3, socket, bytes, 0..24 << 20);
        assert!(server.ring.lend_of(6, sending).is_some());
        match server.outcome() {
            CompletedCall::Lent(Ok(fd)) => {
                let lent = crate::tcp::TcpStream::from(fd);
                assert!(lent.unacknowledged_bytes().unwrap() > 0);
            }
            // Before Linux 6.8, of a slot.
            CompletedCall::Lent(Err(_)) if placement == DescriptorKind::Chosen => {}
            other => panic!("{other:?}"),
        }
        drop(client);
        assert!(matches!(server.outcome(), CompletedCall::Ended(Err(_))));
        assert!(server.ring.lend_of(5, sending).is_none());
        assert_eq!((server.ring.open_slots(), server.ring.in_flight()), (0, 0));
    }
}

#[test]
fn a_reset_is_no_end() {
    for placement in [DescriptorKind::Ordinary, DescriptorKind::Chosen] {
        let mut server = granted!(dialler(&DIRECT));
        let (socket, mut client) = connected(&mut server, placement);
        server.ring.reset(9, socket);
        let closed = server.event();
        assert_eq!(closed.token, 9);
        assert!(matches!(closed.outcome, CompletedCall::Closed(Ok(()))));
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
        assert_eq!((server.ring.open_slots(), server.ring.in_flight()), (0, 0));
    }
}

#[test]
fn more_requests_than_the_queue_holds_are_all_answered() {
    let mut server = granted!(server(&DIRECT));
    let (socket, client) = connected(&mut server, DescriptorKind::Chosen);
    for token in 0..1000 {
        server.ring.unsent(token, &socket);
    }
    let mut answered: Vec<u32> = (0..1000).map(|_| server.event().token).collect();
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..1000));
    drop(client);
}

#[test]
fn buffers_run_out_and_come_back() {
    let mut server = granted!(server(&DIRECT));
    let (socket, mut client) = connected(&mut server, DescriptorKind::Chosen);
    client.write_all(&[7; 1000]).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        server.ring.receive(0, &socket);
        held.push(received(server.event()));
    }
    assert_eq!(server.ring.free_buffers(), 0);
    server.ring.receive(0, &socket);
    match server.outcome() {
        CompletedCall::Received(Err(error)) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS))
        }
        other => panic!("{other:?}"),
    }
    for buffer in held {
        assert_eq!(server.ring.bytes(&buffer), [7; 64]);
        server.ring.give_back(buffer);
    }
    // A receive that waits holds no buffer.
    client.shutdown(Shutdown::Write).unwrap();
    let mut bytes = 256;
    loop {
        server.ring.receive(0, &socket);
        let buffer = received(server.event());
        bytes += buffer.filled();
        let is_end = buffer.filled() == 0;
        server.ring.give_back(buffer);
        if is_end {
            break;
        }
    }
    assert_eq!((bytes, server.ring.free_buffers()), (1000, 4));
}

#[test]
fn a_ring_that_ends_in_the_middle_lets_go_of_everything() {
    for used in [false, true] {
        let mut server = granted!(server(&DIRECT));
        server.accept(DescriptorKind::Chosen, true);
        let mut client = TcpStream::connect(server.address).unwrap();
        if used {
            let socket = server.accepted();
            server.ring.receive(0, &socket);
            server.ring.receive_into(0, &socket, Buffer::new(64));
            // More than a socket holds whose peer does not read.
            let large: Arc<[u8]> = vec![0; 16 << 20].into();
            let whole = SendRequest {
                whole: true,
                more: false,
            };
            server
                .ring
                .send(0, &socket, Arc::clone(&large), 0..16 << 20, whole);
            server.ring.wait(0, None).unwrap();
            assert_eq!(server.ring.in_flight(), 4);
            drop(server);
            // Its share has gone: the memory is not leaked.
            assert_eq!(Arc::strong_count(&large), 1);
            // Reset or finished, but over.
            let _ = client.read_to_end(&mut Vec::new());
        } else {
            drop(server);
        }
    }
}

/// Dials a listener, and answers both ends.
fn dialled(server: &mut Server) -> (RingSocket, TcpStream) {
    let target = Address::from(server.address);
    let dialling = Dialling {
        target: &target,
        source: None,
        reset: false,
    };
    server.ring.dial(5, &dialling).unwrap();
    let CompletedCall::Dialled(Ok(socket)) = server.outcome() else {
        panic!("it listens");
    };
    (socket, server._listener.accept().unwrap().0)
}

#[test]
fn an_exchange_is_answered_once_whatever_happens() {
    let mut server = granted!(dialler(&DIRECT));
    let (socket, mut peer) = dialled(&mut server);
    let question = shared(b"[ping]");
    server
        .ring
        .exchange(7, &socket, Arc::clone(&question), 1..5);
    server.ring.wait(0, None).unwrap();
    let mut asked = [0; 4];
    peer.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"ping");
    peer.write_all(b"pong").unwrap();
    let buffer = received(server.event());
    assert_eq!(server.ring.bytes(&buffer), b"pong");
    server.ring.give_back(buffer);
    // No answer comes, and the request must not wait without end. Before the second part has begun,
    // which takes a wait, there is nothing to cancel.
    let request = server
        .ring
        .exchange(7, &socket, Arc::clone(&question), 0..6);
    let moment = Some(Duration::from_millis(1));
    server.ring.wait(1, moment).unwrap();
    server.ring.cancel(request);
    let CompletedCall::Received(Err(error)) = server.outcome() else {
        panic!("it was cancelled");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    // The peer closes with bytes unread: a reset, which the send meets.
    drop(peer);
    let mut met = Vec::new();
    for _ in 0..2 {
        server
            .ring
            .exchange(7, &socket, Arc::clone(&question), 0..6);
        match server.outcome() {
            CompletedCall::Received(Err(error)) => met.extend(error.raw_os_error()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(met, [libc::ECONNRESET, libc::EPIPE]);
    server.ring.close(8, socket);
    assert!(matches!(server.outcome(), CompletedCall::Closed(Ok(()))));
    assert_eq!(server.ring.in_flight(), 0);
    assert_eq!(
        (server.ring.free_buffers(), server.ring.open_slots()),
        (4, 0)
    );
    assert_eq!(Arc::strong_count(&question), 1);
}

/// An accepted socket, and its client, which waits for nothing without a limit.
fn connected(server: &mut Server, placement: DescriptorKind) -> (RingSocket, TcpStream) {
    server.accept(placement, false);
    let client = TcpStream::connect(server.address).unwrap();
    client.set_read_timeout(LONG).unwrap();
    (server.accepted(), client)
}

#[test]
fn an_end_among_many_requests_lets_go_of_every_one() {
    let mut server = granted!(server(&DIRECT));
    let (socket, mut client) = connected(&mut server, DescriptorKind::Chosen);
    let (other, _second) = connected(&mut server, DescriptorKind::Ordinary);
    let large: Arc<[u8]> = vec![0; 1 << 20].into();
    let sending = SendRequest::default();
    for token in 0..200 {
        let range = 0..large.len();
        let ring = &mut server.ring;
        ring.send(token, &socket, Arc::clone(&large), range.clone(), sending);
        ring.exchange(token, &other, Arc::clone(&large), range);
        ring.receive_into(token, &socket, Buffer::new(64));
    }
    server.ring.wait(0, None).unwrap();
    // Answers that are on their way when it ends: more than one call brings, and more than the
    // queue of completions holds.
    client.write_all(&[0; 100 * 64]).unwrap();
    server
        .ring
        .send(0, &socket, Arc::clone(&large), 0..1, sending);
    server
        .ring
        .send_and_close(0, other, Arc::clone(&large), 0..1);
    drop(server);
    assert_eq!(Arc::strong_count(&large), 1);
    drop(socket);
}

#[test]
fn what_was_to_be_closed_is_closed_by_the_end() {
    for has_backlog in [false, true] {
        for close in [
            StreamRing::close as fn(&mut StreamRing, u32, RingSocket) -> RequestKey,
            StreamRing::reset,
            |ring, token, socket| ring.send_and_close(token, socket, shared(b"late"), 0..4),
        ] {
            let mut server = granted!(server(&DIRECT));
            let (first, mut client) = connected(&mut server, DescriptorKind::Ordinary);
            if has_backlog {
                // As if the kernel had taken no more: what follows waits behind it.
                server.ring.backlog.push_back(Vec::new());
            }
            close(&mut server.ring, 7, first);
            drop(server);
            // Nothing was sent.
            assert_eq!(client.read(&mut [0; 4]).unwrap(), 0);
        }
    }
}

#[test]
fn the_end_closes_what_a_failed_send_left_open() {
    let mut server = granted!(server(&DIRECT));
    let (socket, mut client) = connected(&mut server, DescriptorKind::Ordinary);
    server.ring.shutdown(0, &socket, Shutdown::Write);
    assert!(matches!(server.outcome(), CompletedCall::ShutDown(Ok(()))));
    server.ring.send_and_close(1, socket, shared(b"late"), 0..4);
    // The send fails here, which no code looks at before the end.
    server.ring.wait(0, None).unwrap();
    drop(server);
    // Far more than a socket holds while no program reads it.
    client.set_write_timeout(LONG).unwrap();
    let error = client.write_all(&vec![0; 64 << 20]).unwrap_err();
    let gone = [Some(libc::EPIPE), Some(libc::ECONNRESET)];
    assert!(gone.contains(&error.raw_os_error()), "{error}");
}

#[test]
fn a_ring_that_was_cut_short_does_nothing_more() {
    for is_held in [false, true] {
        let mut server = granted!(server(&DIRECT));
        let (socket, mut client) = connected(&mut server, DescriptorKind::Chosen);
        // As if memory had run out between two requests.
        server.ring.ring.is_cut = true;
        let calls = server.ring.calls();
        let bytes = shared(b"bytes");
        for _ in 0..2 {
            let error = server.ring.wait(0, None).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
            if is_held {
                server.ring.exchange(1, &socket, Arc::clone(&bytes), 0..5);
            }
        }
        assert!(server.ring.wait(1, LONG).is_err());
        assert_eq!(server.ring.calls(), calls + 1);
        drop(server);
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"");
        // Memory that the kernel may have is leaked, as far as can be known.
        assert_eq!(Arc::strong_count(&bytes), if is_held { 3 } else { 1 });
    }
}

#[test]
fn what_is_another_rings_is_refused() {
    let (Some(mut server), Some(mut stranger)) = (server(&DIRECT), server(&DIRECT)) else {
        return;
    };
    let (socket, mut client) = connected(&mut server, DescriptorKind::Chosen);
    let (own, _other) = connected(&mut stranger, DescriptorKind::Chosen);
    // They have the same slot.
    assert_eq!(format!("{socket:?}"), format!("{own:?}"));
    client.write_all(b"hello").unwrap();
    server.ring.receive(0, &socket);
    let buffer = received(server.event());

    let ring = &mut stranger.ring;
    let sending = SendRequest::default();
    ring.receive(0, &socket);
    ring.receive_into(1, &socket, Buffer::new(4));
    ring.send(2, &socket, shared(b"x"), 0..1, sending);
    ring.exchange(3, &socket, shared(b"x"), 0..1);
    ring.shutdown(4, &socket, Shutdown::Both);
    ring.poll_readable(5, &socket);
    ring.unsent(6, &socket);
    ring.lend(8, &socket);
    ring.accept(7, &socket, DescriptorKind::Chosen, false);
    let mut refused: Vec<(u32, Option<i32>)> = (0..9)
        .map(|_| {
            let event = event(ring);
            (event.token, error(event.outcome))
        })
        .collect();
    refused.sort_unstable();
    assert!(
        refused
            .into_iter()
            .eq((0..9).map(|token| (token, Some(libc::EBADF))))
    );

    assert_eq!((ring.bytes(&buffer), ring.free_buffers()), (&b""[..], 4));
    assert_eq!(server.ring.bytes(&buffer), b"hello");
    // Nor may the kernel be given a buffer that it chooses by itself.
    server.ring.receive_into(9, &socket, buffer);
    assert_eq!(error(server.outcome()), Some(libc::EINVAL));
    assert_eq!(server.ring.free_buffers(), 4);

    // Both may wait for a connection, under the same number.
    let waiting = stranger.accept(DescriptorKind::Chosen, false);
    let ring = server.ring.id;
    stranger.ring.cancel(RequestKey { ring, ..waiting });
    stranger.ring.unsent(10, &own);
    assert_eq!(stranger.event().token, 10);
    assert_eq!(stranger.ring.in_flight(), 1);

    // No ring may close a socket that was given away.
    stranger.ring.close(11, socket);
    assert_eq!(error(stranger.event().outcome), Some(libc::EBADF));
    assert_eq!(
        (stranger.ring.open_slots(), server.ring.open_slots()),
        (1, 1)
    );
}

/// Why something could not be done.
fn error(outcome: CompletedCall) -> Option<i32> {
    let error = match outcome {
        CompletedCall::Accepted { socket, .. } => socket.err(),
        CompletedCall::Received(result) => result.err(),
        CompletedCall::Sent(result) | CompletedCall::Unsent(result) => result.err(),
        CompletedCall::Closed(result)
        | CompletedCall::Ended(result)
        | CompletedCall::ShutDown(result)
        | CompletedCall::Ready(result) => result.err(),
        CompletedCall::Dialled(result) => result.err(),
        CompletedCall::Lent(result) => result.err(),
    };
    error.and_then(|error| error.raw_os_error())
}

#[test]
fn what_one_request_cannot_send_is_refused() {
    let mut server = granted!(server(&DIRECT));
    let (socket, mut client) = connected(&mut server, DescriptorKind::Chosen);
    let ring = &mut server.ring;
    ring.send_bytes_max = 4;
    let sending = SendRequest::default();
    ring.send(0, &socket, shared(b"12345"), 0..5, sending);
    assert_eq!(error(event(ring).outcome), Some(libc::EMSGSIZE));
    ring.exchange(1, &socket, shared(b"12345"), 0..5);
    assert_eq!(error(event(ring).outcome), Some(libc::EMSGSIZE));
    ring.send(2, &socket, shared(b"12345"), 1..5, sending);
    assert!(matches!(event(ring).outcome, CompletedCall::Sent(Ok(4))));
    ring.send_and_close(3, socket, shared(b"12345"), 0..5);
    let ended = event(ring).outcome;
    assert!(matches!(ended, CompletedCall::Ended(Err(_))));
    assert_eq!(error(ended), Some(libc::EMSGSIZE));
    assert_eq!((ring.open_slots(), ring.in_flight()), (0, 0));
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).unwrap();
    assert_eq!(sent, b"2345");
}

#[test]
fn a_buffer_whose_filling_cannot_be_told_is_refused() {
    if super::super::probe().is_err() {
        return;
    }
    let options = StreamOptions {
        buffer_bytes: i32::MAX as usize + 1,
        ..DIRECT
    };
    let error = StreamRing::new(&options).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EINVAL));
}
