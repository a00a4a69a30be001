//! Connections that a ring makes by itself.

use super::*;

#[test]
fn dialling_makes_binds_and_connects() {
    let mut server = granted!(dialler(&DIRECT));
    server.accept(DescriptorKind::Chosen, true);
    let target = Address::from(server.address);
    let source = Address::from(SocketAddr::from(([127, 0, 0, 77], 0)));
    for (source, reset) in [(None, false), (Some(&source), false), (Some(&source), true)] {
        let dialling = Dialling {
            target: &target,
            source,
            reset,
        };
        server.ring.dial(5, &dialling).unwrap();
        let mut ends = Vec::new();
        while ends.len() < 2 {
            match server.outcome() {
                CompletedCall::Dialled(socket) => ends.push(socket.unwrap()),
                CompletedCall::Accepted { socket, .. } => ends.push(socket.unwrap()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(server.ring.free_dial_slots(), 3);
        for end in ends {
            server.ring.close(6, end);
            assert!(matches!(server.outcome(), CompletedCall::Closed(Ok(()))));
        }
        assert_eq!(
            (server.ring.open_slots(), server.ring.free_dial_slots()),
            (0, 4)
        );
    }
}

#[test]
fn a_dial_is_read_whole_by_the_call_that_passes_it_on() {
    let mut server = granted!(dialler(&DIRECT));
    let target = Address::from(server.address);
    let dialling = Dialling {
        target: &target,
        source: None,
        reset: true,
    };
    server.ring.dial(5, &dialling).unwrap();
    // It passes on, and waits for nothing: the parts of a chain would not have their turn.
    server.ring.wait(0, None).unwrap();
    let listener = server._listener.as_fd();
    let readable = rustix::event::PollFlags::IN;
    let ten = rustix::event::Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let mut polled = [rustix::event::PollFd::from_borrowed_fd(listener, readable)];
    assert_eq!(rustix::event::poll(&mut polled, Some(&ten)), Ok(1));
}

#[test]
fn more_dials_than_the_queue_holds_all_succeed() {
    let dials = 64;
    let mut server = granted!(dialler(&StreamOptions {
        dial_slots: dials,
        ..DIRECT
    }));
    let target = Address::from(server.address);
    let source = Address::from(SocketAddr::from(([127, 0, 0, 77], 0)));
    let dialling = Dialling {
        target: &target,
        source: Some(&source),
        reset: true,
    };
    for token in 0..dials {
        server.ring.dial(token, &dialling).unwrap();
    }
    for _ in 0..dials {
        match server.outcome() {
            CompletedCall::Dialled(socket) => drop(socket.unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_dial_without_a_socket_says_why_there_is_none() {
    let mut server = granted!(dialler(&DIRECT));
    let dialling = Dialling {
        target: &Address::from(server.address),
        source: None,
        reset: false,
    };
    let request = server.ring.dial(5, &dialling).unwrap().key;
    // As the kernel would report it: no socket, and so nothing to set an option of or to connect.
    let last = requests::STAGE_BIND + 1;
    for (stage, errno) in [(0, libc::ENFILE), (0, libc::EBADF)] {
        assert!(server.ring.complete(request, stage, -errno, 0).is_none());
    }
    let event = server.ring.complete(request, last, -libc::EBADF, 0);
    match event.unwrap().outcome {
        CompletedCall::Dialled(Err(error)) => assert_eq!(error.raw_os_error(), Some(libc::ENFILE)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_dial_gives_its_slot_back() {
    let mut server = granted!(dialler(&DIRECT));
    // No program listens at a port that was just given up.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let target = Address::from(gone);
    let nowhere = Address::from(SocketAddr::from(([192, 0, 2, 1], 0)));
    for (source, expected) in [
        (None, libc::ECONNREFUSED),
        (Some(&nowhere), libc::EADDRNOTAVAIL),
    ] {
        let dialling = Dialling {
            target: &target,
            source,
            reset: true,
        };
        server.ring.dial(5, &dialling).unwrap();
        match server.outcome() {
            CompletedCall::Dialled(Err(error)) => assert_eq!(error.raw_os_error(), Some(expected)),
            other => panic!("{other:?}"),
        }
        while server.ring.in_flight() > 0 {
            server.ring.wait(1, LONG).unwrap();
            assert!(server.ring.next().is_none());
        }
        assert_eq!(
            (server.ring.open_slots(), server.ring.free_dial_slots()),
            (0, 4)
        );
    }
}

#[test]
fn a_dial_that_nobody_answers_can_be_cancelled() {
    let mut server = granted!(dialler(&DIRECT));
    // A listener with room for one connection, which it does not accept: further SYNs are
    // dropped.
    let full = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&full, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&full).unwrap()).unwrap();
    let _first = TcpStream::connect(address).unwrap();
    // Its handshake is over at this end, too.
    let readable = rustix::event::PollFlags::IN;
    rustix::event::poll(&mut [rustix::event::PollFd::new(&full, readable)], None).unwrap();
    let target = Address::from(address);
    let dialling = Dialling {
        target: &target,
        source: None,
        reset: true,
    };
    let requests = [1, 2, 3].map(|token| server.ring.dial(token, &dialling).unwrap());
    let mut cancelled = 0;
    while cancelled < requests.len() {
        // One whose connect has not begun is not found.
        server.ring.wait(1, Some(Duration::from_millis(1))).unwrap();
        requests
            .iter()
            .for_each(|request| server.ring.cancel(*request));
        while let Some(event) = server.ring.next() {
            assert_eq!(error(event.outcome), Some(libc::ECANCELED));
            cancelled += 1;
        }
    }
    while server.ring.in_flight() > 0 {
        server.ring.wait(1, LONG).unwrap();
        while server.ring.next().is_some() {}
    }
    assert_eq!(
        (server.ring.open_slots(), server.ring.free_dial_slots()),
        (0, 4)
    );
}
