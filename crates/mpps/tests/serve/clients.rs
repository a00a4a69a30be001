//! Popular clients, against each engine.

use super::{address_of, run, serve, totals};
use mpps_trial::{Need, Trial};
use std::process::Command;

/// A program, its Debian package, and the trial of an engine by it.
type Client = (&'static str, &'static str, fn(&str));

/// A trial for each client. A client that is not installed is skipped, with the reason.
pub(super) fn trials(engine: &'static str) -> Vec<Trial> {
    let rows: [Client; 4] = [
        ("curl", "curl", by_curl),
        ("ab", "apache2-utils", by_ab),
        ("wrk", "wrk", by_wrk),
        ("h2load", "nghttp2-client", by_h2load),
    ];
    rows.into_iter()
        .map(|(program, package, test)| {
            let name = format!("serve::clients::{program}_is_content_with_{engine}");
            Trial::waits(name, move || test(engine)).needs(Need::Program(program, package))
        })
        .collect()
}

fn client(program: &str, arguments: &[&str]) -> String {
    let ended = run(Command::new(program).args(arguments)).fine();
    ended.out + &ended.err
}

fn by_curl(engine: &str) {
    let mut server = serve(&["--json", "--engine", engine]);
    let url = format!("http://{}/", address_of(&mut server));
    let twice = client("curl", &["-sS", "-v", &url, &url]);
    assert_eq!(twice.matches("HTTP/1.1 200").count(), 2, "{twice}");
    assert!(
        twice
            .to_lowercase()
            .contains("re-using existing connection"),
        "{twice}"
    );
    let head = client("curl", &["-sS", "-I", &url]);
    assert!(head.contains("Content-Length: 1024"), "{head}");
    let posted = client("curl", &["-sS", "-i", "-d", "a=b", &url]);
    assert!(posted.starts_with("HTTP/1.1 4"), "{posted}");
    totals(&server.interrupt().fine());
}

fn by_ab(engine: &str) {
    for keep in [false, true] {
        let mut server = serve(&["--json", "--engine", engine]);
        let url = format!("http://{}/", address_of(&mut server));
        let mut arguments = vec!["-q", "-n", "2000", "-c", "20"];
        if keep {
            arguments.push("-k");
        }
        arguments.push(&url);
        let told = client("ab", &arguments);
        assert!(told.contains("Complete requests:      2000"), "{told}");
        assert!(told.contains("Failed requests:        0"), "{told}");
        if keep {
            assert!(told.contains("Keep-Alive requests:    2000"), "{told}");
        }
        let total = totals(&server.interrupt().fine());
        assert_eq!(total["requests"], 2000);
    }
}

fn by_wrk(engine: &str) {
    for header in ["Connection: close", "X-Keep: yes"] {
        let mut server = serve(&["--json", "--engine", engine]);
        let url = format!("http://{}/", address_of(&mut server));
        let told = client("wrk", &["-t1", "-c20", "-d1s", "-H", header, &url]);
        assert!(told.contains("requests in"), "{told}");
        assert!(
            !told.contains("Socket errors") && !told.contains("Non-2xx"),
            "{told}"
        );
        totals(&server.interrupt().fine());
    }
}

fn by_h2load(engine: &str) {
    let mut server = serve(&["--json", "--engine", engine]);
    let url = format!("http://{}/", address_of(&mut server));
    let told = client("h2load", &["--h1", "-n2000", "-c20", &url]);
    assert!(
        told.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"),
        "{told}"
    );
    totals(&server.interrupt().fine());
}
