//! Receivers in a tokio runtime, over every backend that has something to wait for here.

use mpps_io::{AsyncRx, BACKENDS, Backend, Layer, RxConfig, Stop, backend};
use std::net::UdpSocket;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime can be had")
}

fn config(answers: bool) -> RxConfig {
    let mut config = RxConfig::new("127.0.0.1:0".parse().expect("an address"));
    config.answers = answers;
    config.batch = 16;
    config
}

/// The backends over sockets, as far as this host runs them.
fn sockets() -> impl Iterator<Item = &'static Backend> {
    let is_here = |row: &&Backend| matches!((row.probe)(), backend::Support::Yes);
    BACKENDS
        .iter()
        .filter(|row| row.layer == Layer::Payload && row.receives() && !row.in_process)
        .filter(is_here)
}

#[test]
fn everything_that_is_sent_comes_and_a_dropped_wait_takes_nothing() {
    for row in sockets() {
        let came = runtime().block_on(async {
            let rx = row.open_rx(&config(false)).expect("it opens");
            let address = rx.caps().local_address;
            let mut rx = AsyncRx::new(rx).expect("it is in a runtime");
            let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let mut came = 0;
            for round in 0..100_u64 {
                // Nothing is there, and the wait is given up.
                let given_up = timeout(Duration::from_micros(50), async {
                    while rx.recv().await.expect("it receives").is_empty() {}
                });
                assert!(given_up.await.is_err(), "{}: round {round}", row.name);
                for number in 0..50_u8 {
                    client.send_to(&[number], address).expect("it is sent");
                }
                while came < (round + 1) * 50 {
                    let batch = timeout(PATIENCE, rx.recv()).await.expect("it comes");
                    for packet in batch.expect("it receives").packets() {
                        assert_eq!(u64::from(packet.data[0]), came % 50);
                        came += 1;
                    }
                }
            }
            assert_eq!(rx.rx().counters().dropped, 0);
            let rx = rx.into_inner();
            assert_eq!(rx.counters().datagrams, came);
            came
        });
        assert_eq!(came, 5_000, "{}", row.name);
    }
}

#[test]
fn servers_and_clients_share_a_runtime() {
    for row in sockets() {
        runtime().block_on(async {
            let rx = row.open_rx(&config(true)).expect("it opens");
            let address = rx.caps().local_address;
            let mut rx = AsyncRx::new(rx).expect("it is in a runtime");
            let serving = tokio::spawn(async move {
                let mut sent = 0;
                while sent < 1_000 {
                    let served = rx.serve(|requests| {
                        requests.for_each(|request| {
                            request.reply_in_place(|_, bytes| Some(bytes));
                        });
                    });
                    sent += served.await.expect("it serves").sent;
                }
                sent
            });
            let clients = (0..10_u8).map(|client| {
                tokio::spawn(async move {
                    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
                    socket.connect(address).await?;
                    for number in 0..100_u8 {
                        socket.send(&[client, number]).await?;
                        let mut came = [0; 8];
                        let bytes = socket.recv(&mut came).await?;
                        assert_eq!(came[..bytes], [client, number]);
                    }
                    Ok::<_, std::io::Error>(())
                })
            });
            for client in clients.collect::<Vec<_>>() {
                let asked = timeout(PATIENCE, client).await.expect("it is answered");
                asked.expect("it did not panic").expect("sockets work");
            }
            assert_eq!(
                serving.await.expect("it did not panic"),
                1_000,
                "{}",
                row.name
            );
        });
    }
}

/// A receiver that always has something to take leaves time to others in its runtime.
#[test]
fn a_flood_does_not_starve_the_runtime() {
    let (stop, rx) = (Stop::new(), backend::find("recv"));
    let rx = rx
        .and_then(|row| row.open_rx(&config(false)))
        .expect("it opens");
    let address = rx.caps().local_address;
    let stopped = stop.clone();
    let flood = std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        while !stopped.is_stopped() {
            socket.send_to(&[1; 8], address).expect("it is sent");
        }
    });
    let received = runtime().block_on(async {
        let mut rx = AsyncRx::new(rx).expect("it is in a runtime");
        let receiving = tokio::spawn(async move {
            loop {
                rx.recv().await.expect("it receives");
                // It is slower than its sender, so that there is always something to take.
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        receiving.abort();
        receiving.await.expect_err("it was ended").is_cancelled()
    });
    stop.stop();
    flood.join().expect("it did not panic");
    assert!(received);
}

#[test]
fn what_cannot_be_waited_for_is_refused() {
    let outside = backend::find("recvmmsg").and_then(|row| row.open_rx(&config(false)));
    AsyncRx::new(outside.expect("it opens")).expect_err("there is no runtime");
    let rx = backend::find("memory").and_then(|row| row.open_rx(&config(false)));
    let refused = runtime().block_on(async { AsyncRx::new(rx.expect("it opens")).map(drop) });
    let refused = refused.expect_err("there is nothing to wait for");
    assert!(refused.to_string().contains("memory"), "{refused}");
}
