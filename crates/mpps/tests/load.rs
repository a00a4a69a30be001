//! `mpps load`: every connection and request is accounted for. It runs against our server, servers
//! that misbehave, and popular servers.

mod servers;

use crate::common::{Ended, Running, mpps, run, valid, words};
use mpps::program::connections::LoadBody;
use mpps_trial::{Trial, trials};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const ENGINES: [&str; 2] = ["epoll", "io_uring"];

pub(crate) fn trials() -> Vec<Trial> {
    of_this_file()
        .into_iter()
        .chain(servers::trials())
        .collect()
}

fn of_this_file() -> Vec<Trial> {
    trials![
        waits:
            as_many_requests_as_asked_for,
            kept_connections_are_few,
            a_server_that_does_not_answer_is_a_failure,
            an_interrupt_ends_it_and_everything_is_told,
            several_addresses_and_threads,
            people_and_scripts_are_told,
            everybody_may_close,
            another_family_is_asked,
            a_page_is_written;
        measures: a_rate_is_kept_or_the_rest_is_told;
    ]
}

/// Our own server, and its URL.
fn server(options: &str) -> (Running, String) {
    let line = format!("serve 127.0.0.1:0 {options}");
    let mut server = Running::start(&mut mpps(&words(&line)));
    let line = server.line("serving at ");
    let url = line.rsplit(' ').next().expect("a URL").to_owned();
    (server, url)
}

fn load(engine: &str, url: &str, options: &str) -> Ended {
    let line = format!("load {url} --engine {engine} {options}");
    run(&mut mpps(&words(&line)))
}

/// The result, valid by its schema and with an account that balances by plain addition.
fn result(ended: &Ended) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("load.json");
    std::fs::write(&path, &ended.out).expect("written");
    let result: Value = serde_json::from_str(&valid::<LoadBody>(&path)).expect("it is JSON");
    for what in ["connections", "requests"] {
        let account = &result["ledger"][what];
        let count = |value: &Value| value.as_u64().expect("a count");
        let failed = account["failed"].as_object().expect("an object");
        let failed: u64 = failed.values().map(count).sum();
        let known = count(&account["completed"]) + failed + count(&account["aborted_at_end"]);
        assert_eq!(count(&account["started"]), known, "{what}: {result}");
        assert_eq!(account["unaccounted"], 0);
    }
    result
}

fn as_many_requests_as_asked_for() {
    for serving in ENGINES {
        let (server, url) = server(&format!("--json --engine {serving}"));
        for engine in ENGINES {
            let ended = load(engine, &url, "--json -n 3000 -c 30").fine();
            let told = result(&ended);
            for what in ["connections", "requests"] {
                assert_eq!(
                    told["ledger"][what]["completed"], 3000,
                    "{engine}: {ended:#?}"
                );
            }
            assert_eq!(told["body_bytes"], 3000 * 1024);
            assert_eq!(told["statuses"]["2xx"], 3000);
            assert_eq!(told["latency_us"]["last_byte"]["count"], 3000);
            assert!(told["cps"].as_f64() > Some(0.0));
            assert_eq!(
                (&told["engine"], &told["complete"]),
                (&engine.into(), &true.into())
            );
        }
        let total = server.interrupt().fine().last_json();
        assert_eq!(
            (&total["accepted"], &total["requests"]),
            (&6000.into(), &6000.into())
        );
        assert_eq!(total["unaccounted"], 0);
    }
}

fn kept_connections_are_few() {
    let (server, url) = server("--json");
    for engine in ENGINES {
        let common = "--json -n 2000 -c 10";
        let ended = load(engine, &url, &format!("{common} --keep-alive=100")).fine();
        let told = result(&ended);
        assert_eq!(told["ledger"]["requests"]["completed"], 2000);
        let made = told["ledger"]["connections"]["started"]
            .as_u64()
            .expect("a count");
        assert!((20..=30).contains(&made), "{made} connections");
        let ended = load(engine, &url, &format!("{common} --keep-alive")).fine();
        let told = result(&ended);
        assert_eq!(told["ledger"]["requests"]["completed"], 2000);
        assert!(told["ledger"]["connections"]["started"].as_u64() <= Some(10));
    }
    server.interrupt().fine();
}

fn a_rate_is_kept_or_the_rest_is_told() {
    let (server, url) = server("--json");
    for engine in ENGINES {
        let options = "--json --rate 1k --duration 1500ms -t 2";
        let told = result(&load(engine, &url, options).fine());
        let started = told["ledger"]["requests"]["started"]
            .as_u64()
            .expect("a count");
        let missed = told["not_started"].as_u64().expect("a count");
        // The number of requests due in the time is fixed beforehand. The end itself is a moment
        // late.
        assert!(
            (1450..=1600).contains(&(started + missed)),
            "{started} + {missed}"
        );
        assert!(told["lateness_us_max"].as_f64() >= Some(0.0));
        let seconds = told["each_second"].as_array().expect("whole seconds");
        let first = seconds[0]["connections_completed"].as_u64();
        assert!(seconds.len() == 1 && first > Some(0), "{seconds:?}");
    }
    server.interrupt().fine();
}

/// From the first request on, or after a few answers: shorter than a request's time-out either way.
fn a_server_that_does_not_answer_is_a_failure() {
    for (answers, time, words) in [
        (
            0,
            "300ms",
            "no request was completed: 2 connections made, and not a byte",
        ),
        (
            5,
            "2s",
            "the server stopped answering: at the end a request had waited",
        ),
    ] {
        for engine in ENGINES {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let url = format!("http://{}/", listener.local_addr().expect("it has one"));
            thread::spawn(move || {
                let mut held = Vec::new();
                for (at, stream) in listener.incoming().flatten().enumerate() {
                    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    match at < answers {
                        true => answer(stream, reply),
                        false => held.push(stream),
                    }
                }
            });
            let ended = load(engine, &url, &format!("--json -d {time} -c 2"));
            assert_eq!(ended.code(), 1, "{ended:#?}");
            let requests = &result(&ended)["ledger"]["requests"];
            assert_eq!(
                (&requests["completed"], &requests["aborted_at_end"]),
                (&answers.into(), &2.into())
            );
            let said = ended.err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(words), "{said}");
        }
    }
    let (server, url) = server("");
    for engine in ENGINES {
        let ended = load(engine, &url, "-d 500ms -c 2").fine();
        let said = ended.out.contains("answer") || ended.out.contains("no request");
        assert!(!said, "{ended:#?}");
    }
    server.interrupt().fine();
}

fn answer(mut stream: TcpStream, reply: &str) {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend(&piece[..read]),
        }
    }
    // A client that has gone does not read it.
    let _ = stream.write_all(reply.as_bytes());
}

fn an_interrupt_ends_it_and_everything_is_told() {
    let (server, url) = server("--json");
    for engine in ENGINES {
        let arguments = format!("load {url} --json --engine {engine} --duration 10m");
        let mut running = Running::start(&mut mpps(&words(&arguments)));
        running.line("in flight");
        let ended = running.interrupt();
        assert_eq!(ended.code(), 130, "{ended:#?}");
        assert_eq!(result(&ended)["complete"], false);
    }
    server.interrupt().fine();
}

fn several_addresses_and_threads() {
    let (server, url) = server("--json");
    for engine in ENGINES {
        let options = "--json -n 1000 -t 3 --pin 0 --source 127.0.0.1,127.0.0.2 --close rst";
        let told = result(&load(engine, &url, options).fine());
        assert_eq!(told["ledger"]["requests"]["completed"], 1000);
        assert_eq!(
            (&told["threads"], &told["close"]),
            (&3.into(), &"rst".into())
        );
    }
    server.interrupt().fine();
}

fn people_and_scripts_are_told() {
    let (server, url) = server("");
    let ended = load("epoll", &url, "-n 500").fine();
    for part in [
        " connections/s",
        "last byte",
        "completed 500",
        "UNACCOUNTED 0",
        "this side's CPU",
    ] {
        assert!(ended.out.contains(part), "{part}: {ended:#?}");
    }
    let ended = load("epoll", &url, "-n 500 --ab").fine();
    for line in [
        "Complete requests:      500",
        "Failed requests:        0",
        "Requests per second:",
    ] {
        assert!(ended.out.contains(line), "{line}: {ended:#?}");
    }
    for width in ["40", "80"] {
        let mut command = mpps(&["load", &url, "-n", "100"]);
        let ended = run(command.env("COLUMNS", width)).fine();
        let widest = ended.out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= width.parse().ok(), "{width}: {ended:#?}");
    }
    server.interrupt().fine();
}

fn everybody_may_close() {
    for close in ["server", "client", "rst"] {
        let (server, url) = server(&format!("--json --close {close}"));
        for engine in ENGINES {
            let arguments = format!("--json -n 500 --close {close}");
            let told = result(&load(engine, &url, &arguments).fine());
            assert_eq!(told["ledger"]["connections"]["completed"], 500);
            assert_eq!(told["close"], close);
        }
        let total = server.interrupt().fine().last_json();
        let count = |how: &str| total["ended"][how].as_u64().expect("a count");
        let mut ended = count("done") + count("client");
        if close == "rst" {
            // Both ends are about to reset, and the client may be the first.
            ended += count("reset");
        }
        assert_eq!(ended, 1000, "{close}: {total}");
        assert_eq!(total["unaccounted"], 0);
    }
}

fn another_family_is_asked() {
    let mut server = Running::start(&mut mpps(&["serve", "[::1]:0", "--json"]));
    let line = server.line("serving at ");
    let url = line.rsplit(' ').next().expect("a URL");
    assert!(url.starts_with("http://[::1]:"), "{url}");
    for engine in ENGINES {
        let told = result(&load(engine, url, "--json -n 100").fine());
        assert_eq!(told["ledger"]["requests"]["completed"], 100);
    }
    server.interrupt().fine();
}

fn a_page_is_written() {
    let (server, url) = server("");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("load.html");
    let name = path.to_str().expect("plain letters");
    load("epoll", &url, &format!("-n 500 --html {name}")).fine();
    let page = std::fs::read_to_string(&path).expect("it was written");
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<polyline"),
        "{page}"
    );
    server.interrupt().fine();
}
