//! The service that a well-behaved client may expect.

use super::client::Client;
use super::scenario::{BODY_BYTES, Running, Scenario, check, ended, scenario};
use mpps_http::{Close, Ending, Switch};
use mpps_trial::Failed;
use std::io;
use std::time::Duration;

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("a_connection_has_many_requests")
        .switches(&[Switch::Buffers, Switch::Events])
        .act(many_requests)
        .ends(Ending::Refused, 1)
        .expect(|counters| {
            check(counters.requests == 5, "5 requests")?;
            check(counters.statuses == [0, 3, 0, 2, 0], "status classes")
        }),
    scenario("requests_may_come_in_any_pieces")
        .switches(&[Switch::Buffers])
        .act(pieces)
        .expect(|counters| check(counters.requests == 101, "101 requests")),
    scenario("an_old_client_is_served_and_closed")
        .switches(&[Switch::Events])
        .act(old_client)
        .ends(Ending::Done, 1),
    scenario("a_large_body_comes_whole")
        .switches(&[Switch::Fds])
        .content(LARGE_BYTES)
        .act(large_body)
        .ends(Ending::Done, 2),
    scenario("a_large_body_comes_whole_before_a_reset")
        .switches(&[Switch::Fds])
        .content(LARGE_BYTES)
        .closes(Close::Rst)
        .act(large_body_then_reset)
        .ends(Ending::Done, 1),
    scenario("the_server_closes_with_a_fin")
        .switches(&[Switch::Fds, Switch::Events])
        .act(|running| {
            let mut client = running.connect()?;
            last_request(&mut client)?;
            check(client.sees_end()?, "no end")
        })
        .ends(Ending::Done, 1),
    scenario("the_client_closes_first")
        .switches(&[Switch::Fds])
        .closes(Close::Client)
        .act(client_closes)
        .ends(Ending::Done, 2),
    scenario("a_client_that_does_not_close_is_not_waited_for_without_end")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.idle_time = Duration::from_millis(200))
        .closes(Close::Client)
        .act(|running| {
            let mut client = running.connect()?;
            last_request(&mut client)?;
            check(client.sees_end()?, "no end")
        })
        .ends(Ending::IdleTimeout, 1),
    scenario("the_server_closes_with_a_reset")
        .switches(&[Switch::Fds, Switch::Events])
        .closes(Close::Rst)
        .act(|running| {
            let mut client = running.connect()?;
            last_request(&mut client)?;
            let error = client.sees_end().err().ok_or("an end, and no reset")?;
            let is_reset = error.kind() == io::ErrorKind::ConnectionReset;
            check(is_reset, error.to_string())
        })
        .ends(Ending::Done, 1),
    scenario("a_client_may_end_its_side_first")
        .switches(&[Switch::Events])
        .act(half_close)
        .expect(|counters| check(counters.requests == 2, "2 requests")),
    scenario("content_may_come_after_the_last_reply")
        .switches(&[Switch::Events])
        .act(late_content)
        .ends(Ending::Refused, 1)
        .expect(|counters| ended(counters, Ending::Done, 1)),
];

/// More than the send buffer of a socket holds (`net.ipv4.tcp_wmem`: 4 MiB at most).
const LARGE_BYTES: usize = 9 << 20;

fn many_requests(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    for _ in 0..2 {
        let reply = client.get("/any/path?query")?;
        check(reply.status == 200, "not found")?;
        check(reply.body.len() == BODY_BYTES, "another body")?;
    }
    client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let reply = client.reply_to(false)?;
    let length = BODY_BYTES.to_string();
    check(reply.field("content-length") == Some(&length), "no length")?;
    client.send(b"DELETE / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")?;
    check(client.reply()?.status == 405, "deleted")?;
    client.send(b"GET / HTTP/1.1\r\n\r\n")?;
    check(client.reply()?.status == 400, "no host, and no error")?;
    check(client.sees_end()?, "goes on after an error")?;
    Ok(())
}

fn pieces(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    for byte in b"GET /piecemeal HTTP/1.1\r\nHost: x\r\n\r\n" {
        client.send(&[*byte])?;
    }
    check(client.reply()?.status == 200, "not found")?;
    client.send(&b"GET /p HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100))?;
    for _ in 0..100 {
        check(client.reply()?.body.len() == BODY_BYTES, "another body")?;
    }
    Ok(())
}

fn old_client(running: &Running) -> Result<(), Failed> {
    let mut client = running.asks(b"GET / HTTP/1.0\r\n\r\n")?;
    check(client.reply()?.body.len() == BODY_BYTES, "another body")?;
    check(client.sees_end()?, "no end")
}

fn late_content(running: &Running) -> Result<(), Failed> {
    const CONTENT: &[u8] = &[b'x'; 1000];
    let heads: [(&[u8], u16); 2] = [
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n",
            405,
        ),
        (b"GET / HTTP/1.0\r\nContent-Length: 1000\r\n\r\n", 200),
    ];
    let mut received = 0;
    for (head, status) in heads {
        let mut client = running.asks(head)?;
        check(client.reply()?.status == status, "another status")?;
        check(client.sees_end()?, "no end")?;
        client.send(CONTENT)?;
        received += (head.len() + CONTENT.len()) as u64;
        running.until("all read", |counters| counters.bytes_received == received)?;
    }
    running.until("both closed", |counters| counters.open == 0)
}

fn last_request(client: &mut Client) -> Result<(), Failed> {
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let reply = client.reply()?;
    check(reply.field("connection") == Some("close"), "not told")?;
    check(reply.status == 200, "not found")
}

fn large_body(running: &Running) -> Result<(), Failed> {
    let mut other = running.connect()?;
    other.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut client = running.connect()?;
    let first = client.get("/")?.body;
    check(first.len() == LARGE_BYTES, "another length")?;
    last_request(&mut client)?;
    check(client.sees_end()?, "no end")?;
    check(other.reply()?.body == first, "another body")
}

fn large_body_then_reset(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    last_request(&mut client)?;
    running.until_ended(Ending::Done, 1)
}

fn client_closes(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    last_request(&mut client)?;
    // Meanwhile another comes and goes.
    running.serves_others()?;
    running.until_ended(Ending::Done, 1)?;
    check(running.server.counters().open == 1, "closed first")?;
    client.finish()?;
    check(client.sees_end()?, "no end")
}

fn half_close(running: &Running) -> Result<(), Failed> {
    let mut client =
        running.asks(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    client.finish()?;
    check(client.reply()?.body.len() == BODY_BYTES, "no first reply")?;
    check(client.reply()?.body.len() == BODY_BYTES, "no second reply")?;
    check(client.sees_end()?, "no end")
}
