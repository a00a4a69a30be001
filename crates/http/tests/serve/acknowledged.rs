//! Clients that take a reply slowly and steadily. No close by the server may discard its rest.

use super::client::Client;
use super::scenario::{Running, Scenario, check, scenario};
use mpps_http::{Close, Ending, ServeConfig, ServedContent, Switch};
use mpps_trial::Failed;
use std::time::Duration;

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("a_slow_reader_is_idle_only_with_all_of_its_reply")
        .switches(&[Switch::Fds])
        .configure(|config| configure(config, Close::Rst))
        .act(|running| {
            let mut client = read_slowly(running, GET, |_, _| Ok(()))?;
            running.until_ended(Ending::IdleTimeout, 1)?;
            check(client.sees_end().is_err(), "no reset")
        })
        .ends(Ending::IdleTimeout, 1),
    scenario("a_client_that_takes_nothing_of_its_reply_is_late_and_not_idle")
        .switches(&[Switch::Fds])
        .configure(|config| {
            configure(config, Close::Rst);
            config.limits.send_time = Duration::from_millis(100);
        })
        .act(|running| {
            let _client = running.asks(GET)?;
            running.until("all sent", |counters| {
                counters.bytes_sent > BODY_BYTES as u64
            })?;
            running.until_ended(Ending::SendTimeout, 1)
        })
        .ends(Ending::SendTimeout, 1),
    scenario("a_drain_lets_a_slow_reader_have_all")
        .switches(&[Switch::Fds])
        .configure(|config| configure(config, Close::Rst))
        .act(|running| {
            read_slowly(running, GET, |_, step| {
                if step == 3 {
                    running.server.drain();
                }
                Ok(())
            })?;
            running.until_ended(Ending::Drained, 1)
        })
        .ends(Ending::Drained, 1),
    scenario("a_slow_reader_may_end_its_side")
        .switches(&[Switch::Fds])
        .configure(|config| configure(config, Close::Rst))
        .act(|running| {
            read_slowly(running, GET, |client, step| match step {
                3 => client.finish(),
                _ => Ok(()),
            })?;
            running.until_ended(Ending::Client, 1)
        })
        .ends(Ending::Client, 1),
    scenario("a_stray_line_costs_a_slow_reader_nothing")
        .switches(&[Switch::Events])
        .configure(|config| configure(config, Close::Server))
        .act(stray)
        .ends(Ending::Done, 1),
    scenario("a_client_that_is_to_close_has_all_first")
        .configure(|config| configure(config, Close::Client))
        .act(stray)
        .ends(Ending::Done, 1),
    scenario("content_costs_a_slow_reader_nothing")
        .configure(|config| configure(config, Close::Server))
        .act(content)
        .ends(Ending::Done, 1),
];

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// More than the receive buffer of a client takes at first (`net.ipv4.tcp_rmem`). The send buffer
/// of a socket on the loopback has room for it.
const BODY_BYTES: usize = 1 << 20;

/// Bytes that a client takes at a time.
const STEP_BYTES: usize = 32 << 10;

fn configure(config: &mut ServeConfig, close: Close) {
    config.content = ServedContent::Size(BODY_BYTES);
    config.close = close;
    config.limits.idle_time = Duration::from_millis(500);
}

/// Asks, and takes the reply for longer than any limit but those of the head and of the reply.
fn read_slowly(
    running: &Running,
    request: &[u8],
    mut meanwhile: impl FnMut(&mut Client, usize) -> std::io::Result<()>,
) -> Result<Client, Failed> {
    let mut client = running.asks(request)?;
    let mut got = 0;
    for step in 0.. {
        std::thread::sleep(Duration::from_millis(100));
        meanwhile(&mut client, step)?;
        let until = got + STEP_BYTES;
        while got < until.min(BODY_BYTES) {
            let some = client.read_some(until - got);
            let some = some.map_err(|error| format!("{error} after {got} bytes"))?;
            check(some > 0, format!("an end after {got} bytes"))?;
            got += some;
        }
        if got >= BODY_BYTES {
            break;
        }
    }
    // The rest is what the head has made it longer.
    while running.server.counters().bytes_sent > got as u64 {
        got += client.read_some(STEP_BYTES)?;
    }
    Ok(client)
}

fn stray(running: &Running) -> Result<(), Failed> {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let client = read_slowly(running, request, |client, step| match step {
        5 => client.send(b"\r\n"),
        _ => Ok(()),
    })?;
    client.finish()?;
    running.until_ended(Ending::Done, 1)
}

fn content(running: &Running) -> Result<(), Failed> {
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    let client = read_slowly(running, request, |client, _| client.send(&[b'x'; 2_000]))?;
    client.finish()?;
    running.until_ended(Ending::Done, 1)
}
