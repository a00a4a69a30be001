//! How a server ends, and what happens to files while they are being sent.

use super::scenario::{Running, Scenario, check, scenario};
use mpps_http::{Ending, ServedContent, Switch};
use mpps_trial::Failed;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("a_drain_finishes_what_was_begun")
        .switches(&[Switch::Events])
        .content(LARGE_BYTES)
        .act(drain)
        .expect(|counters| {
            // Finished connections may be counted either way.
            let finished = counters.ended(Ending::Drained) + counters.ended(Ending::Done);
            check(finished == 2, "both")
        }),
    scenario("a_drain_ends_with_its_time")
        .switches(&[Switch::Fds])
        .configure(|config| config.drain_time = Duration::from_millis(200))
        .content(LARGE_BYTES)
        .act(drain_stuck)
        .ends(Ending::Drained, 2),
    scenario("a_stop_resets_at_once")
        .switches(&[Switch::Fds])
        .act(stop)
        .ends(Ending::Drained, 1),
    scenario("an_address_is_not_shared_without_a_word").act(address_taken),
    scenario("files_are_served_whole")
        .switches(&[Switch::Buffers])
        .configure(|config| config.content = ServedContent::Root(directory()))
        .act(files)
        .expect(|counters| check(counters.statuses == [0, 3, 0, 1, 0], "statuses")),
    scenario("a_file_that_vanishes_is_still_sent")
        .configure(|config| config.content = ServedContent::Root(directory()))
        .act(vanishing),
    scenario("a_file_that_shrinks_ends_its_connection")
        .configure(|config| config.content = ServedContent::Root(directory()))
        .act(shrinking)
        .ends(Ending::Error, 1),
];

/// More than both sockets' buffers hold (`net.ipv4.tcp_wmem`, `tcp_rmem`).
const LARGE_BYTES: usize = 24 << 20;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

fn drain(running: &Running) -> Result<(), Failed> {
    let mut idle = running.connect()?;
    idle.get("/")?;
    let mut busy = running.connect()?;
    busy.send(REQUEST)?;
    busy.read_some(1)?;
    running.until("two requests", |counters| counters.requests == 2)?;
    running.server.drain();
    check(idle.sees_end()?, "an idle connection stays")?;
    let refused = running.connect().err();
    check(refused.is_some(), "it still accepts")?;
    let rest = busy.read_to_end();
    // The reply had begun, and does not say that it is the last; then the connection ends.
    check(rest?.len() > LARGE_BYTES, "the reply was broken off")
}

fn drain_stuck(running: &Running) -> Result<(), Failed> {
    let _clients = running.many(2, REQUEST)?;
    running.until("two requests", |counters| counters.requests == 2)?;
    running.server.drain();
    running.until("all gone", |counters| counters.open == 0)
}

fn stop(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    client.get("/")?;
    running.server.stop();
    let error = client.sees_end().err().ok_or("an end, and no reset")?;
    check(
        error.kind() == ErrorKind::ConnectionReset,
        error.to_string(),
    )
}

fn address_taken(running: &Running) -> Result<(), Failed> {
    let mut config = running.config.clone();
    config.address = running.address;
    let second = mpps_http::Server::start(&config);
    let error = second.err().ok_or("a second server listens there")?;
    let text = error.to_string();
    check(text.contains(&running.address.to_string()), text)?;
    running.serves_others()
}

/// The directory of one scenario, empty: each has a process of its own.
fn directory() -> PathBuf {
    let path = std::env::temp_dir().join(format!("mpps-serve-{}", std::process::id()));
    // Where it cannot be made, the server says so.
    let _ = fs::create_dir(&path);
    path
}

/// One file in the directory; both are removed afterwards.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, content: &[u8]) -> Result<Self, Failed> {
        let files = Self(directory());
        fs::write(files.0.join(name), content)?;
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A file that a scenario has removed itself is no failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    // Of a length that no buffer has.
    let mut pattern = Vec::from_iter(0..251_u8).repeat(bytes.div_ceil(251));
    pattern.truncate(bytes);
    pattern
}

fn files(running: &Running) -> Result<(), Failed> {
    let content = pattern(3_000_001);
    let _files = Files::new("a.html", &content)?;
    let mut client = running.connect()?;
    for _ in 0..2 {
        let reply = client.get("/a.html")?;
        check(reply.body == content, "another body")?;
    }
    client.send(b"HEAD /a.html HTTP/1.1\r\nHost: x\r\n\r\n")?;
    check(client.reply_to(false)?.status == 200, "no head")?;
    check(client.get("/../a.html")?.status >= 400, "outside")
}

fn vanishing(running: &Running) -> Result<(), Failed> {
    let content = pattern(LARGE_BYTES);
    let files = Files::new("large", &content)?;
    let mut client = running.asks(b"GET /large HTTP/1.0\r\n\r\n")?;
    running.until("a part", |counters| counters.bytes_sent > 0)?;
    drop(files);
    check(client.reply()?.body == content, "another body")?;
    check(client.sees_end()?, "no end")?;
    let mut late = running.connect()?;
    check(late.get("/large")?.status == 404, "it is still there")
}

fn shrinking(running: &Running) -> Result<(), Failed> {
    let content = pattern(LARGE_BYTES);
    let files = Files::new("large", &content)?;
    let mut client = running.asks(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")?;
    running.until("a part", |counters| counters.bytes_sent > 0)?;
    fs::OpenOptions::new()
        .write(true)
        .open(files.0.join("large"))?
        .set_len(1)?;
    check(client.reply().is_err(), "a short file has a whole reply")?;
    running.until_ended(Ending::Error, 1)?;
    let mut other = running.connect()?;
    check(
        other.get("/large")?.body.len() == 1,
        "others are not served",
    )
}
