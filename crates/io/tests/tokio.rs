//! Receivers in a tokio runtime: over every kind of socket, and over rings between the hosts of a lab.

use crate::{can, has_lab};
use mpps_io::{AsyncRx, BACKENDS, Backend, Layer, RxConfig, Stop, backend};
use mpps_lab::{Delivery, Lab, LabConfig};
use mpps_trial::{Need, Trial, example, trials};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Longer than anything here takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Backends that read an interface, and have a descriptor to wait for.
const RINGS: [&str; 2] = ["packet_mmap", "af_xdp"];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![
        waits:
            everything_that_is_sent_comes_and_a_dropped_wait_takes_nothing,
            servers_and_clients_share_a_runtime,
            a_flood_does_not_starve_the_runtime,
            what_cannot_be_waited_for_is_refused;
        waits(Need::probe(built)): the_example_answers;
    ];
    for row in RINGS {
        let name = format!("tokio::a_ring_wakes_its_task::{row}");
        let trial = Trial::waits(name, move || a_ring_wakes_its_task(row));
        let trial = trial.needs(Need::probe(move || can(row)));
        trials.push(trial.needs(Need::probe(has_lab)));
    }
    trials
}

fn built() -> Result<(), String> {
    match example("tokio_echo").exists() {
        true => Ok(()),
        false => Err(
            "not built: cargo build -p mpps-io --features tokio --example tokio_echo".to_owned(),
        ),
    }
}

/// An example that runs; killed if the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn the_example_answers() {
    sockets().for_each(|row| the_example_answers_over(row.name));
}

/// It ends by its count, having answered each.
fn the_example_answers_over(backend: &str) {
    let mut command = Command::new(example("tokio_echo"));
    command.args(["127.0.0.1:0", "--backend", backend, "--count", "100"]);
    let server = command.stdout(Stdio::piped()).spawn();
    let mut server = Server(server.expect("it is built"));
    let mut said = BufReader::new(server.0.stdout.take().expect("it is piped")).lines();
    let first = said.next().expect("it says where").expect("in UTF-8");
    let (address, _) = first.split_once(" by ").expect("where, and by what");
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect(address).expect("an address");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    for number in 0..100_u8 {
        client.send(&[number, 7]).expect("it is sent");
        let mut came = [0; 8];
        let bytes = client.recv(&mut came).expect("it is answered");
        assert_eq!(came[..bytes], [number, 7], "{backend}");
    }
    let last = said.next().expect("it says how many").expect("in UTF-8");
    assert_eq!(last, "answered 100", "{backend}");
    assert!(server.0.wait().expect("it ends").success(), "{backend}");
}

/// Each burst finds the task asleep and comes whole.
fn a_ring_wakes_its_task(name: &'static str) {
    const BURSTS: u64 = 50;
    const EACH: u64 = 100;
    let config = LabConfig {
        queues: 1,
        // The sender of a burst polls the ring: it holds 256, and nothing waits for a thread.
        delivery: Delivery::SoftInterrupt,
        ..LabConfig::default()
    };
    let lab = Lab::new(&config).expect("a lab can be had");
    let at = SocketAddr::new(lab.receiver().v4()[0].into(), 4321);
    let client = lab.sender().run(|| UdpSocket::bind("0.0.0.0:0"));
    let client = client.expect("it can be entered").expect("a socket");
    let receiving = move || {
        let rx = backend::find(name).and_then(|row| row.open_rx(&RxConfig::new(at)));
        let rx = rx.expect("it opens");
        runtime().block_on(async {
            let mut rx = AsyncRx::new(rx).expect("it is in a runtime");
            let mut came = 0;
            for burst in 1..=BURSTS {
                // Nothing is there, and the wait is given up.
                let given_up = timeout(Duration::from_millis(1), async {
                    while rx.recv().await.expect("it receives").is_empty() {}
                });
                assert!(given_up.await.is_err(), "burst {burst}");
                for number in 0..EACH {
                    client.send_to(&[number as u8], at).expect("it is sent");
                }
                while came < burst * EACH {
                    let batch = timeout(PATIENCE, rx.recv()).await.expect("it comes");
                    came += batch.expect("it receives").datagrams();
                }
            }
            assert_eq!(rx.rx().counters().dropped, 0);
            came
        })
    };
    let came = lab.receiver().run(receiving).expect("it can be entered");
    assert_eq!(came, BURSTS * EACH);
}

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

fn what_cannot_be_waited_for_is_refused() {
    let outside = backend::find("recvmmsg").and_then(|row| row.open_rx(&config(false)));
    AsyncRx::new(outside.expect("it opens")).expect_err("there is no runtime");
    let rx = backend::find("memory").and_then(|row| row.open_rx(&config(false)));
    let refused = runtime().block_on(async { AsyncRx::new(rx.expect("it opens")).map(drop) });
    let refused = refused.expect_err("there is nothing to wait for");
    assert!(refused.to_string().contains("memory"), "{refused}");
}
