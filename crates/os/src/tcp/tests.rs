//! Against the kernel, over loopback.

use super::*;
use crate::poll::Waiter;
use crate::sched;
use std::io::{Read, Write};
use std::net::TcpStream as Plain;
use std::os::fd::{AsFd, BorrowedFd};

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn listen(options: &ListenOptions) -> AcceptingSocket {
    AcceptingSocket::listen(&loopback(), options).unwrap()
}

/// The next connection, when it is there.
fn accept(listener: &AcceptingSocket) -> TcpStream {
    wait(listener.as_fd());
    listener.accept().unwrap()
}

fn wait(fd: BorrowedFd<'_>) {
    let patience = Duration::from_secs(20);
    assert!(Waiter::new().poll(fd, patience).unwrap());
}

#[test]
fn bytes_go_both_ways_and_an_end_is_seen() {
    let listener = listen(&ListenOptions::default());
    let mut client = Plain::connect(listener.address()).unwrap();
    let server = accept(&listener);
    let mut buffer = [0; 8];
    assert!(would_block(&server.receive(&mut buffer).unwrap_err()));
    client.write_all(b"ping").unwrap();
    wait(server.as_fd());
    assert_eq!(server.receive(&mut buffer).unwrap(), 4);
    assert_eq!(server.send(b"po", true).unwrap(), 2);
    assert_eq!(server.send(b"ng", false).unwrap(), 2);
    server.finish().unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    assert_eq!(text, "pong");
    drop(client);
    wait(server.as_fd());
    assert_eq!(server.receive(&mut buffer).unwrap(), 0);
}

#[test]
fn a_reset_is_no_end() {
    for inherited in [false, true] {
        let listener = listen(&ListenOptions {
            reset_on_close: inherited,
            ..ListenOptions::default()
        });
        let mut client = Plain::connect(listener.address()).unwrap();
        let server = accept(&listener);
        if inherited {
            drop(server);
        } else {
            server.reset();
        }
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn what_was_sent_is_acknowledged() {
    let listener = listen(&ListenOptions::default());
    let mut client = Plain::connect(listener.address()).unwrap();
    let server = accept(&listener);
    // More than the client's side takes without reading.
    let bytes = vec![7; 1 << 20];
    let mut sent = 0;
    while let Ok(count) = server.send(&bytes, false) {
        sent += count;
    }
    assert!(server.unacknowledged_bytes().unwrap() > 0);
    // Its program reads nothing, and its kernel says so.
    while !server.delivery().unwrap().is_answered {
        std::thread::yield_now();
    }
    let before = server.delivery().unwrap().acknowledged;
    assert!(before < sent as u64);
    server.finish().unwrap();
    let mut received = Vec::new();
    // The end comes after all bytes, and acknowledges them when the client ends, too.
    client.read_to_end(&mut received).unwrap();
    drop(client);
    wait(server.as_fd());
    assert_eq!(received.len(), sent);
    assert_eq!(server.receive(&mut [0; 1]).unwrap(), 0);
    assert_eq!(server.unacknowledged_bytes().unwrap(), 0);
    // The kernel counts the SYN, the FIN or neither.
    let extra = server.delivery().unwrap().acknowledged - sent as u64;
    assert!(extra <= 2, "{extra}");
}

#[test]
fn nothing_is_accepted_before_the_first_bytes() {
    let listener = listen(&ListenOptions {
        defer_accept: Some(Duration::from_secs(20)),
        ..ListenOptions::default()
    });
    let mut client = Plain::connect(listener.address()).unwrap();
    assert!(would_block(&listener.accept().unwrap_err()));
    client.write_all(b"x").unwrap();
    let server = accept(&listener);
    assert_eq!(server.receive(&mut [0; 8]).unwrap(), 1);
}

#[test]
fn a_shared_address_is_noticed() {
    let shared = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = listen(&shared);
    let error = free_address(&first.address()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EADDRINUSE));
    let second = AcceptingSocket::listen(&first.address(), &shared).unwrap();
    let address = first.address();
    drop((first, second));
    assert_eq!(free_address(&address).unwrap(), address);
}

/// The order is that of `listen(2)`, and not of `bind(2)`: a TCP socket joins its group when it
/// begins to listen (inet_csk_listen_start, net/ipv4/inet_connection_sock.c).
#[test]
fn a_connection_goes_to_the_listener_of_its_cpu() {
    let shared = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = listen(&shared);
    let second = AcceptingSocket::listen(&first.address(), &shared).unwrap();
    let listeners = [&first, &second];
    for cpu in sched::affinity(sched::thread_id()).unwrap() {
        let elsewhere = cpu + 1;
        for (wanted, cpus) in [[cpu, elsewhere], [elsewhere, cpu]].into_iter().enumerate() {
            first.steer_by_cpu(&cpus).unwrap();
            let address = first.address();
            // Over loopback the SYN is received where it was sent.
            std::thread::spawn(move || {
                sched::pin_current(&[cpu]).unwrap();
                Plain::connect(address).unwrap()
            })
            .join()
            .unwrap();
            wait(listeners[wanted].as_fd());
            listeners[wanted].accept().unwrap();
            assert!(listeners[1 - wanted].accept().is_err());
        }
    }
}

#[test]
fn a_stopped_listener_takes_nobody() {
    let listener = listen(&ListenOptions::default());
    let _waits = Plain::connect(listener.address()).unwrap();
    listener.stop();
    listener.stop();
    assert!(Plain::connect(listener.address()).is_err());
    let error = listener.accept().unwrap_err();
    assert!(!would_block(&error) && !ran_out(&error));
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let address = free_address(&loopback()).unwrap();
    // Over loopback the answer is there before connect(2) returns, or right after it.
    let refused = match TcpStream::connect(&address, None) {
        Ok(stream) => {
            wait(stream.as_fd());
            stream.take_error().unwrap_err()
        }
        Err(error) => error.source,
    };
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}
