//! The load against a server of a few lines that each test scripts, over every engine.
//!
//! Plain loopback and no privilege: addresses of 127.0.0.0/8, ports that the kernel chooses.

use crate::serve::scenario::usual;
use mpps_http::{
    Close, ENGINES, Engine, EngineSupport, Failure, HttpLoad, LoadConfig, LoadReport, Server,
    Switch, Task, Url,
};
use mpps_trial::{Trial, trials};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits:
            one_request_for_each_connection,
            several_requests_for_each_connection_over_several_threads,
            connections_that_are_never_closed,
            connections_that_end_with_a_reset,
            replies_in_pieces_chunked_and_until_the_close,
            a_body_of_megabytes_is_counted_to_its_last_byte,
            a_server_that_closes_early_is_connected_to_again,
            every_kind_of_failure_has_its_name,
            nobody_listens,
            an_own_address_that_is_nobodys,
            a_server_that_says_nothing_is_given_up,
            what_is_in_flight_at_the_end_is_counted,
            a_load_ends_when_it_is_told_to,
            a_server_that_keeps_the_socket_full_holds_nothing_up,
            an_open_loop_keeps_its_count_and_its_lateness,
            a_server_that_is_too_slow_for_the_rate_does_not_hide_it,
            own_addresses_take_turns,
            a_server_that_half_closes_and_waits_is_left,
            both_ends_agree_about_what_was_asked_and_answered,
            what_cannot_be_is_refused_before_anything_is_opened;
    ]
}

/// Longer than anything takes that works.
const LONG: Duration = Duration::from_secs(30);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";

/// The server's part in one connection; it gets the connection's number.
type Script = fn(TcpStream, u64);

/// A server in threads, one for each connection, until it is dropped.
struct Scripted {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Scripted {
    fn new(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(AtomicU64::new(0));
        let (is_over, count) = (Arc::clone(&over), Arc::clone(&accepted));
        let accept = move || {
            thread::scope(|scope| {
                for stream in listener.incoming() {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    let stream = stream.unwrap();
                    // A script that waits for a client which is gone must end as well.
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    scope.spawn(move || script(stream, number));
                }
            });
        };
        Self {
            address,
            over,
            accepted,
            thread: Some(thread::spawn(accept)),
        }
    }

    fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // It waits for a connection, so it gets one.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request; true if it is the connection's last.
fn request(stream: &mut TcpStream) -> Option<bool> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return None,
        }
    }
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.starts_with("GET /path?query HTTP/1.1\r\nHost: example.org\r\n"),
        "{text}"
    );
    Some(text.contains("Connection: close\r\n"))
}

/// Closes with a RST: what the client sent is not read, or is thrown away by the linger of zero.
fn reset(stream: TcpStream) {
    let stream = mpps_os::tcp::TcpStream::from(std::os::fd::OwnedFd::from(stream));
    stream.reset();
}

/// Answers as it is asked, until the last request.
fn well_behaved(mut stream: TcpStream, _: u64) {
    while let Some(is_last) = request(&mut stream) {
        let reply = if is_last { LAST } else { OK };
        if stream.write_all(reply).is_err() || is_last {
            return;
        }
    }
}

fn config(target: SocketAddr) -> LoadConfig {
    LoadConfig {
        target,
        url: Url::parse("http://example.org/path?query").unwrap(),
        connections: 8,
        rate: None,
        duration: Some(LONG),
        requests: Some(40),
        requests_per_connection: Some(1),
        sources: Vec::new(),
        close: Close::Server,
        timeout: LONG,
        threads: 1,
        cpus: Vec::new(),
    }
}

/// Engines that run here; the plain ones always do.
fn engines() -> impl Iterator<Item = &'static Engine> {
    ENGINES
        .iter()
        .filter(|engine| (engine.support)(Task::Load) == EngineSupport::Yes)
}

fn run(engine: &'static Engine, config: &LoadConfig) -> LoadReport {
    run_until(engine, config, || false)
}

/// Runs it until something has happened, or it ends by itself.
fn run_until(engine: &'static Engine, config: &LoadConfig, is_so: impl Fn() -> bool) -> LoadReport {
    let stop = AtomicBool::new(false);
    let look = |_: &_| stop.store(is_so(), Ordering::Relaxed);
    let report = HttpLoad::run(engine, config, &stop, look).unwrap();
    for ledger in report.ledger.both() {
        assert_eq!(ledger.remainder(), 0, "{}: {report:#?}", report.engine);
    }
    report
}

/// Every engine against a script.
fn each(script: Script, adjust: fn(&mut LoadConfig), check: fn(&LoadReport, &Scripted)) {
    for engine in engines() {
        let server = Scripted::new(script);
        let mut config = config(server.address);
        adjust(&mut config);
        let report = run(engine, &config);
        check(&report, &server);
    }
}

fn one_request_for_each_connection() {
    each(
        well_behaved,
        |_| {},
        |report, server| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.ledger.requests.completed, 40);
            assert_eq!(report.ledger.connections.completed, 40);
            assert_eq!(server.accepted(), 40);
            assert_eq!(report.bytes_received, 40 * LAST.len() as u64);
            assert_eq!(report.body_bytes, 40 * 5);
            let request = "GET /path?query HTTP/1.1\r\nHost: example.org\r\n\
                           User-Agent: mpps/\r\nAccept: */*\r\nConnection: close\r\n\r\n";
            assert_eq!(
                report.bytes_sent,
                40 * (request.len() + env!("CARGO_PKG_VERSION").len()) as u64
            );
            assert_eq!(report.latency_us.connect.count, 40);
            assert_eq!(report.latency_us.first_byte.count, 40);
            assert_eq!(report.latency_us.last_byte.count, 40);
            assert_eq!(report.statuses.values().sum::<u64>(), 40);
            assert_eq!(report.statuses["2xx"], 40);
        },
    );
}

fn several_requests_for_each_connection_over_several_threads() {
    each(
        well_behaved,
        |config| {
            config.requests_per_connection = Some(5);
            config.threads = 3;
        },
        |report, server| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.ledger.requests.completed, 40);
            // Threads that find no request left end with a connection that is not used up.
            assert!(
                (8..=16).contains(&report.ledger.connections.completed),
                "{report:#?}"
            );
            assert_eq!(server.accepted(), report.ledger.connections.completed);
        },
    );
}

fn connections_that_are_never_closed() {
    each(
        well_behaved,
        |config| config.requests_per_connection = None,
        |report, server| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.ledger.requests.completed, 40);
            assert!(server.accepted() <= 8);
            assert_eq!(report.ledger.connections.completed, server.accepted());
        },
    );
}

fn connections_that_end_with_a_reset() {
    each(
        well_behaved,
        |config| config.close = Close::Rst,
        |report, _| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.ledger.connections.completed, 40);
        },
    );
}

fn replies_in_pieces_chunked_and_until_the_close() {
    each(
        |mut stream, number| {
            if request(&mut stream).is_none() {
                return;
            }
            let reply: &[&[u8]] = match number % 3 {
                0 => &[
                    b"HTTP/1.1 2",
                    b"00 OK\r\nContent-Le",
                    b"ngth: 5\r\n\r\nhe",
                    b"llo",
                ],
                1 => &[
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r",
                    b"\nhell\r\n1;a=b\r\no\r\n",
                    b"0\r\nTrailer: x\r\n\r\n",
                ],
                _ => &[b"HTTP/1.0 200 OK\r\n\r\nhe", b"llo"],
            };
            for piece in reply {
                stream.write_all(piece).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        },
        |_| {},
        |report, _| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.body_bytes, 40 * 5);
        },
    );
}

fn a_body_of_megabytes_is_counted_to_its_last_byte() {
    const BYTES: usize = 3 << 20;
    each(
        |mut stream, _| {
            if request(&mut stream).is_some() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&vec![b'x'; BYTES]).unwrap();
            }
        },
        |config| config.requests = Some(10),
        |report, _| {
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.body_bytes, 10 * BYTES as u64);
        },
    );
}

fn a_server_that_closes_early_is_connected_to_again() {
    each(
        |mut stream, _| {
            for _ in 0..2 {
                if request(&mut stream).is_none() || stream.write_all(OK).is_err() {
                    return;
                }
            }
        },
        |config| config.requests_per_connection = None,
        |report, _| {
            // The third request crosses the close, or meets the reset that answers it.
            assert!(report.is_clean(), "{report:#?}");
            assert_eq!(report.ledger.requests.completed, 40);
            assert!(report.closed_early >= 12, "{report:#?}");
        },
    );
}

fn every_kind_of_failure_has_its_name() {
    for engine in engines() {
        let cases: [(Failure, Script); 6] = [
            (Failure::NoReply, |mut stream, _| {
                request(&mut stream);
            }),
            (Failure::Reset, |mut stream, _| {
                request(&mut stream);
                reset(stream);
            }),
            (Failure::ShortBody, |mut stream, _| {
                request(&mut stream);
                stream.write_all(&LAST[..LAST.len() - 1]).unwrap();
            }),
            (Failure::BadStatus, |mut stream, _| {
                request(&mut stream);
                let reply = b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(reply).unwrap();
            }),
            (Failure::BadReply, |mut stream, _| {
                request(&mut stream);
                stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
            }),
            (Failure::BadReply, |mut stream, _| {
                request(&mut stream);
                stream.write_all(&[LAST, LAST].concat()).unwrap();
            }),
        ];
        for (failure, script) in cases {
            let server = Scripted::new(script);
            let report = run(engine, &config(server.address));
            for ledger in report.ledger.both() {
                assert_eq!(ledger.failed(failure), 40, "{failure:?}: {report:#?}");
            }
            assert!(report.error_examples.contains_key(&failure), "{failure:?}");
        }
    }
}

fn nobody_listens() {
    for engine in engines() {
        // The kernel gives none of these ports to a client (`ip_local_port_range`). Otherwise the client
        // might get it as its own, and TCP connects the socket to itself.
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = (20_000..30_000).find(is_free).unwrap();
        let report = run(engine, &config(([127, 0, 0, 1], port).into()));
        assert_eq!(report.ledger.connections.failed(Failure::Refused), 40);
        assert_eq!(report.ledger.requests.failed(Failure::Refused), 40);
        assert_eq!(report.latency_us.connect.count, 0);
    }
}

fn an_own_address_that_is_nobodys() {
    for engine in engines() {
        let server = Scripted::new(well_behaved);
        let mut config = config(server.address);
        // An address for documentation (RFC 5737), which no host has.
        config.sources = vec![IpAddr::from([192, 0, 2, 1])];
        let report = run(engine, &config);
        let no_port = report.ledger.connections.failed(Failure::NoPort);
        assert_eq!(no_port, report.ledger.connections.started, "{report:#?}");
        assert!(Failure::NoPort.remedy().is_some());
    }
}

fn a_server_that_says_nothing_is_given_up() {
    each(
        |mut stream, _| {
            // Until the client has gone.
            while request(&mut stream).is_some() {}
        },
        |config| {
            config.timeout = Duration::from_millis(50);
            config.requests = Some(16);
        },
        |report, _| {
            assert_eq!(
                report.ledger.connections.failed(Failure::TimedOut),
                16,
                "{report:#?}"
            );
            assert_eq!(report.latency_us.connect.count, 16);
            assert_eq!(report.latency_us.last_byte.count, 0);
        },
    );
}

fn what_is_in_flight_at_the_end_is_counted() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    for engine in engines() {
        ASKED.store(0, Ordering::Relaxed);
        let server = Scripted::new(|mut stream, _| {
            while request(&mut stream).is_some() {
                ASKED.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut config = config(server.address);
        (config.duration, config.requests) = (None, None);
        let report = run_until(engine, &config, || ASKED.load(Ordering::Relaxed) == 8);
        assert_eq!(report.ledger.connections.aborted_at_end, 8, "{report:#?}");
        assert_eq!(report.ledger.requests.aborted_at_end, 8);
        assert_eq!(report.ledger.requests.started, 8);
    }
}

fn a_load_ends_when_it_is_told_to() {
    for engine in engines() {
        let server = Scripted::new(well_behaved);
        let mut config = config(server.address);
        (config.duration, config.requests) = (None, None);
        let stop = AtomicBool::new(false);
        let mut last = 0;
        let report = HttpLoad::run(engine, &config, &stop, |progress| {
            assert!(progress.requests_completed >= last);
            last = progress.requests_completed;
            stop.store(last >= 20, Ordering::Relaxed);
        })
        .unwrap();
        assert!(report.ledger.requests.completed >= last && last >= 20);
        assert_eq!(report.ledger.connections.remainder(), 0);
    }
}

/// More than is read in the time of that load.
const FULL_BYTES: u64 = 4 << 30;

fn a_server_that_keeps_the_socket_full_holds_nothing_up() {
    // Pieces of one byte take longer to read than to send.
    let script = |mut stream: TcpStream, number| {
        request(&mut stream);
        if number > 0 {
            let _ = stream.write_all(LAST);
            return;
        }
        let pieces = b"1\r\na\r\n".repeat(1_000_000);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..FULL_BYTES / pieces.len() as u64 {
            if stream.write_all(&pieces).is_err() {
                return;
            }
        }
    };
    each(
        script,
        |config| {
            (config.connections, config.requests) = (2, None);
            config.duration = Some(Duration::from_secs(3));
        },
        |report, _| {
            assert!(report.bytes_received < FULL_BYTES / 2, "{report:#?}");
            assert!(report.ledger.requests.completed > 0, "{report:#?}");
        },
    );
}

fn an_open_loop_keeps_its_count_and_its_lateness() {
    each(
        well_behaved,
        |config| {
            config.rate = Some(400.0);
            config.requests = None;
            config.duration = Some(Duration::from_millis(500));
            config.requests_per_connection = None;
            config.threads = 2;
        },
        |report, _| {
            assert_eq!(report.ledger.requests.failed_total(), 0, "{report:#?}");
            // Each start was taken, or is reported as missed. A thread that wakes after the end
            // also takes those that came due meanwhile.
            let due = report.ledger.requests.started + report.not_started.unwrap();
            let most = (400.0 * report.seconds) as u64 + 1;
            assert!((199..=most).contains(&due), "{report:#?}");
        },
    );
}

fn a_server_that_is_too_slow_for_the_rate_does_not_hide_it() {
    each(
        |mut stream, _| {
            while request(&mut stream).is_some() {
                thread::sleep(Duration::from_millis(20));
                if stream.write_all(OK).is_err() {
                    return;
                }
            }
        },
        |config| {
            config.connections = 1;
            config.rate = Some(100.0);
            config.requests = Some(20);
            config.requests_per_connection = None;
        },
        |report, _| {
            // Two become due while one is answered: the last is late by ten of them at least.
            assert_eq!(report.ledger.requests.completed, 20, "{report:#?}");
            let late = report.latency_us.last_byte.max;
            assert!(late >= 190_000.0, "{late}");
            assert!(report.lateness_us_max >= Some(170_000.0));
        },
    );
}

fn own_addresses_take_turns() {
    static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    each(
        |stream, number| {
            if let Ok(SocketAddr::V4(peer)) = stream.peer_addr() {
                SEEN[usize::from(peer.ip().octets()[3]) % 4].fetch_add(1, Ordering::Relaxed);
            }
            well_behaved(stream, number);
        },
        |config| {
            SEEN.iter()
                .for_each(|seen| seen.store(0, Ordering::Relaxed));
            config.sources = (5..8).map(|last| IpAddr::from([127, 0, 0, last])).collect();
            config.requests = Some(30);
        },
        |report, _| {
            assert!(report.is_clean(), "{report:#?}");
            let seen: Vec<u64> = SEEN
                .iter()
                .map(|seen| seen.load(Ordering::Relaxed))
                .collect();
            assert_eq!(seen, [0, 10, 10, 10]);
        },
    );
}

fn a_server_that_half_closes_and_waits_is_left() {
    each(
        |mut stream, _| {
            if request(&mut stream).is_some() {
                let _ = stream.write_all(LAST);
                let _ = stream.shutdown(Shutdown::Write);
                assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
            }
        },
        |_| {},
        |report, _| assert!(report.is_clean(), "{report:#?}"),
    );
}

fn both_ends_agree_about_what_was_asked_and_answered() {
    for engine in engines() {
        for serving in engines() {
            for close in [Close::Server, Close::Client, Close::Rst] {
                let switches = serving.default_switches().without(Switch::Affinity);
                let mut serve = usual(serving, switches);
                serve.close = close;
                let server = Server::start(&serve).unwrap();
                // A RST waits for the client's acknowledgement, which its kernel delays.
                let requests = if close == Close::Rst { 40 } else { 200 };
                let config = LoadConfig {
                    requests: Some(requests),
                    close: if close == Close::Client {
                        close
                    } else {
                        Close::Server
                    },
                    ..config(server.address())
                };
                let report = run(engine, &config);
                server.drain();
                let served = server.wait().unwrap();
                let of = format!("{} of {}, {close:?}", engine.name, serving.name);
                assert!(report.is_clean(), "{of}: {report:#?}");
                assert_eq!(report.body_bytes, requests * 1024, "{of}");
                assert_eq!(served.requests, requests, "{of}: {served:?}");
                assert_eq!(served.accepted, requests, "{of}: {served:?}");
                let ended = (served.closed(), served.open);
                assert_eq!(ended, (requests, 0), "{of}: {served:?}");
            }
        }
    }
}

fn what_cannot_be_is_refused_before_anything_is_opened() {
    let server = Scripted::new(well_behaved);
    let good = config(server.address);
    let refused: [fn(&mut LoadConfig); 11] = [
        |config| config.connections = 0,
        |config| config.threads = 0,
        |config| config.threads = 9,
        |config| config.rate = Some(0.0),
        |config| config.rate = Some(f64::NAN),
        |config| config.requests = Some(0),
        |config| config.requests_per_connection = Some(0),
        |config| config.timeout = Duration::ZERO,
        |config| config.url.path = "/a\r\nX: y".to_owned(),
        |config| config.url.host = "a b".to_owned(),
        |config| config.sources = vec![IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])],
    ];
    for (number, change) in refused.into_iter().enumerate() {
        let mut config = good.clone();
        change(&mut config);
        let error =
            HttpLoad::run(&ENGINES[0], &config, &AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(
            matches!(error, mpps_http::HttpError::Invalid { .. }),
            "{number}: {error}"
        );
    }
    assert_eq!(server.accepted(), 0);
}
