//! Clients that are slow, wrong, greedy or malicious. Others are served meanwhile.

use super::client::Client;
use super::scenario::{BODY_BYTES, Running, Scenario, check, scenario};
use mpps_http::{Close, Ending, Switch};
use mpps_os::limit::allow_descriptors;
use mpps_os::tcp::TcpStream as Raw;
use mpps_trial::Failed;
use std::io;
use std::time::{Duration, Instant};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("slow_heads_are_told_and_closed")
        .switches(&[Switch::Events])
        .configure(|config| config.limits.head_time = SOON)
        .act(slow_heads)
        .ends(Ending::HeadTimeout, SOME)
        .expect(|counters| check(counters.statuses[3] == SOME, "408 each")),
    scenario("who_says_nothing_is_closed")
        .switches(&[Switch::Events])
        // With TCP_DEFER_ACCEPT the kernel counts in retransmissions, the first after a second.
        .configure(|config| config.limits.head_time = SOON)
        .act(silent),
    scenario("an_idle_connection_is_closed")
        .switches(&[Switch::Events])
        .configure(|config| config.limits.idle_time = SOON)
        .act(idle)
        .ends(Ending::IdleTimeout, 1),
    scenario("who_takes_nothing_is_reset")
        .switches(&[Switch::Fds])
        // Its kernel answers, so that it has twenty times as long. Another client has to take
        // all of it meanwhile, on a machine with other work.
        .configure(|config| config.limits.send_time = 2 * SOON)
        .content(LARGE_BYTES)
        .act(never_reads)
        .ends(Ending::SendTimeout, 3),
    scenario("who_reads_slowly_and_steadily_gets_all")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.send_time = 3 * SOON)
        .content(LARGE_BYTES)
        .act(slow_reader)
        .ends(Ending::SendTimeout, 0)
        .expect(|counters| check(counters.system_calls < 5_000, "it asks all the time")),
    scenario("a_full_window_that_is_answered_for_is_waited_for")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.send_time = 5 * SOON)
        .content(LARGE_BYTES)
        .act(|running| reads_late(running, LARGE_BYTES))
        .ends(Ending::SendTimeout, 0),
    scenario("a_full_window_is_waited_for_before_a_reset")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.send_time = 5 * SOON)
        .content(QUEUED_BYTES)
        .closes(Close::Rst)
        .act(|running| reads_late(running, QUEUED_BYTES))
        .ends(Ending::SendTimeout, 0),
    scenario("who_reads_slowly_and_steadily_gets_all_before_a_reset")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.send_time = 5 * SOON)
        .content(LARGE_BYTES)
        .closes(Close::Rst)
        .act(|running| {
            slow_readers(running)?;
            running.until_ended(Ending::Done, READERS)
        })
        .ends(Ending::Done, READERS),
    scenario("who_acknowledges_nothing_is_reset")
        .switches(&[Switch::Fds])
        .configure(|config| config.limits.send_time = SOON)
        .content(QUEUED_BYTES)
        .closes(Close::Rst)
        .act(|running| {
            let _client = queue_reply(running)?;
            running.serves_others()?;
            running.until_ended(Ending::SendTimeout, 1)
        })
        .ends(Ending::SendTimeout, 1),
    scenario("a_slow_client_gets_all_before_a_reset")
        // It has its head sent in time, and takes longer for the reply.
        .configure(|config| config.limits.head_time = SOON)
        .content(QUEUED_BYTES)
        .closes(Close::Rst)
        .act(|running| {
            let mut client = queue_reply(running)?;
            std::thread::sleep(2 * SOON);
            check(client.reply()?.body.len() == QUEUED_BYTES, "a part is lost")?;
            running.until_ended(Ending::Done, 1)
        })
        .ends(Ending::Done, 1)
        .expect(|counters| check(counters.system_calls < 1_000, "it asks all the time")),
    scenario("a_reset_is_seen_while_an_acknowledgement_is_waited_for")
        .switches(&[Switch::Fds])
        .content(QUEUED_BYTES)
        .closes(Close::Rst)
        .act(|running| {
            queue_reply(running)?.reset();
            running.until_ended(Ending::Reset, 1)
        })
        .ends(Ending::Reset, 1)
        .expect(|counters| check(counters.system_calls < 1_000, "it asks all the time")),
    scenario("garbage_is_answered_and_closed")
        .act(garbage)
        .ends(Ending::Refused, GARBAGE.len() as u64),
    scenario("an_oversize_head_is_answered_and_closed")
        .switches(&[Switch::Buffers])
        .act(oversize)
        .ends(Ending::Refused, 2),
    scenario("a_flood_of_pipelined_requests_is_answered")
        .switches(&[Switch::Buffers])
        .act(flood)
        .expect(|counters| check(counters.requests >= FLOOD, "all of them")),
    scenario("a_flood_that_reads_nothing_harms_nobody")
        .configure(|config| config.limits.send_time = SOON)
        .act(flood_unread)
        .ends(Ending::SendTimeout, 1),
    scenario("a_reset_at_any_step_frees_everything")
        .switches(&[Switch::Fds, Switch::Events, Switch::Buffers])
        .content(LARGE_BYTES)
        .act(resets),
    scenario("resets_are_met_by_resets")
        .switches(&[Switch::Fds])
        .content(LARGE_BYTES)
        .closes(Close::Rst)
        .act(resets),
    scenario("many_connects_without_data_stop_nobody")
        .switches(&[Switch::Fds])
        // With this number of closed sockets the kernel silently forgets some
        // (`net.ipv4.tcp_max_orphans`). The other end then learns of it by its own time-out.
        .configure(|config| config.limits.head_time = Duration::from_secs(4))
        .act(many_connects),
    scenario("who_is_too_many_is_closed")
        .switches(&[Switch::Fds, Switch::Events])
        .configure(|config| config.limits.connections = SOME as usize)
        .act(too_many)
        .ends(Ending::OverLimit, 3),
];

/// Short enough for a test, and longer than a request takes.
const SOON: Duration = Duration::from_millis(300);

/// Clients at a time.
const SOME: u64 = 20;

/// Slow readers at a time.
const READERS: u64 = 4;

/// Requests of a flood.
const FLOOD: u64 = 5_000;

/// Connects without data, as many at a time as descriptors allow.
const CONNECTS: usize = 6_000;

/// More than both sockets' buffers hold (`net.ipv4.tcp_wmem`, `tcp_rmem`).
const LARGE_BYTES: usize = 24 << 20;

/// More than the receive buffer of a client that reads nothing (`net.ipv4.tcp_rmem`), and less than
/// the send buffer of a socket on the loopback.
const QUEUED_BYTES: usize = 512 << 10;

const GARBAGE: &[&[u8]] = &[
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 the start of TLS\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"\0\0\0\0\r\n\r\n",
];

fn slow_heads(running: &Running) -> Result<(), Failed> {
    let mut clients = running.many(SOME, b"GET / HTTP/1.1\r\nHo")?;
    running.serves_others()?;
    for client in &mut clients {
        check(client.reply()?.status == 408, "another status")?;
        check(client.sees_end()?, "no end")?;
    }
    Ok(())
}

fn silent(running: &Running) -> Result<(), Failed> {
    let mut clients = Vec::new();
    for _ in 0..SOME {
        clients.push(running.connect()?);
    }
    running.serves_others()?;
    for client in &mut clients {
        check(client.sees_end()?, "no end")?;
    }
    running.until_ended(Ending::HeadTimeout, SOME)
}

fn idle(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    client.get("/")?;
    running.serves_others()?;
    check(client.sees_end()?, "no end")
}

fn never_reads(running: &Running) -> Result<(), Failed> {
    let _clients = running.many(3, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    running.serves_others()?;
    running.until_ended(Ending::SendTimeout, 3)
}

/// For twice the time that a reply has without progress, a client takes less than what makes room in the
/// server's socket. That time is long beside a step, on a machine with other work.
fn slow_reader(running: &Running) -> Result<(), Failed> {
    let mut client = running.asks(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let began = Instant::now();
    let mut got = 0;
    while began.elapsed() < 6 * SOON {
        got += client.read_some(8 << 10)?;
        std::thread::sleep(SOON / 10);
    }
    while got < LARGE_BYTES {
        let some = client.read_some(1 << 20)?;
        check(some > 0, format!("an end after {got} bytes"))?;
        got += some;
    }
    running.serves_others()
}

/// Clients that pause longer than it is from one look at them to the next, so that a look is due when
/// the last part of a reply goes.
fn slow_readers(running: &Running) -> Result<(), Failed> {
    let clients = running.many(
        READERS,
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )?;
    let mut clients: Vec<_> = clients.into_iter().map(|client| (client, 0)).collect();
    while clients.iter().any(|(_, got)| *got < LARGE_BYTES) {
        std::thread::sleep(SOON / 2);
        for (client, got) in clients.iter_mut().filter(|(_, got)| *got < LARGE_BYTES) {
            // One large buffer is more than one read brings.
            let until = *got + (2 << 20);
            while *got < until.min(LARGE_BYTES) {
                let some = client.read_some(1 << 20)?;
                check(some > 0, format!("an end after {got} bytes"))?;
                *got += some;
            }
        }
    }
    Ok(())
}

/// A client that reads nothing for longer than a dead client's time. That time is long compared
/// with the probes that its kernel leaves unanswered: of two probes in half a second the later one
/// (`tcp_invalid_ratelimit`).
fn reads_late(running: &Running, bytes: usize) -> Result<(), Failed> {
    let mut client = running.asks(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    std::thread::sleep(8 * SOON);
    check(client.reply()?.body.len() == bytes, "a part is lost")
}

fn garbage(running: &Running) -> Result<(), Failed> {
    for bytes in GARBAGE {
        let mut client = running.asks(bytes)?;
        let reply = client.reply()?;
        check(reply.status >= 400, "taken for a request")?;
        check(client.sees_end()?, "no end")?;
    }
    running.until_ended(Ending::Refused, GARBAGE.len() as u64)?;
    running.serves_others()
}

/// A client whose whole reply the server's kernel has, and that reads nothing.
fn queue_reply(running: &Running) -> Result<Client, Failed> {
    let client = running.asks(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    running.until("all sent", |counters| {
        counters.bytes_sent > QUEUED_BYTES as u64
    })?;
    Ok(client)
}

/// The reply must arrive, although the server has not read what it answers.
fn oversize(running: &Running) -> Result<(), Failed> {
    for (start, status) in [("GET / HTTP/1.1\r\nHost: x\r\nA: ", 431), ("GET /", 414)] {
        let mut client = running.connect()?;
        let mut request = start.as_bytes().to_vec();
        request.resize(200_000, b'a');
        client.send(&request)?;
        client.finish()?;
        let reply = client.reply()?;
        check(reply.status == status, format!("status {}", reply.status))?;
        check(client.sees_end()?, "no end")?;
    }
    running.until_ended(Ending::Refused, 2)?;
    running.serves_others()
}

fn flood(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    let batch = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
    for _ in 0..FLOOD / 500 {
        client.send(&batch)?;
        running.serves_others()?;
        for _ in 0..500 {
            check(client.reply()?.body.len() == BODY_BYTES, "another body")?;
        }
    }
    Ok(())
}

fn flood_unread(running: &Running) -> Result<(), Failed> {
    let mut client = running.connect()?;
    let batch = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
    // The server stops to read when its replies are not taken, and in the end resets.
    let error = loop {
        if let Err(error) = client.send(&batch) {
            break error;
        }
    };
    let is_reset = matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    );
    check(is_reset, error.to_string())?;
    running.serves_others()
}

fn resets(running: &Running) -> Result<(), Failed> {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..5 {
        running.connect()?.reset();
        let mut half = running.connect()?;
        half.send(&REQUEST[..9])?;
        half.reset();
        let mut unread = running.connect()?;
        unread.send(REQUEST)?;
        unread.reset();
        let mut in_the_middle = running.connect()?;
        in_the_middle.send(REQUEST)?;
        in_the_middle.read_some(100_000)?;
        in_the_middle.reset();
        let mut ended = running.connect()?;
        ended.send(REQUEST)?;
        ended.finish()?;
        ended.read_some(100_000)?;
        ended.reset();
        let mut refused = running.connect()?;
        refused.send(GARBAGE[0])?;
        refused.reset();
        let mut idle = running.connect()?;
        idle.get("/")?;
        idle.reset();
    }
    running.serves_others()?;
    running.until("all gone", |counters| counters.open == 0)
}

fn many_connects(running: &Running) -> Result<(), Failed> {
    // Both ends are in this process, and need a descriptor each.
    let most = allow_descriptors(3 * CONNECTS as u64)?.min(3 * CONNECTS as u64) as usize;
    let at_a_time = (most / 2).saturating_sub(1_000).clamp(1, CONNECTS);
    let mut made = 0;
    while made < CONNECTS {
        let mut streams = Vec::with_capacity(at_a_time);
        for _ in 0..at_a_time.min(CONNECTS - made) {
            streams.push(Raw::connect(&running.address, None)?);
        }
        made += streams.len();
        running.serves_others()?;
        drop(streams);
        running.until("all gone", |counters| counters.open == 0)?;
        running.serves_others()?;
    }
    Ok(())
}

fn too_many(running: &Running) -> Result<(), Failed> {
    let mut clients = Vec::new();
    for _ in 0..SOME {
        let mut client = running.connect()?;
        client.get("/")?;
        clients.push(client);
    }
    for _ in 0..3 {
        let mut client = running.connect()?;
        // It may be closed before it has sent, and with a RST if it had.
        let _ = client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        let served = client.reply();
        check(served.is_err(), "one too many was served")?;
    }
    check(
        clients[0].get("/")?.status == 200,
        "the first are not served",
    )?;
    clients.clear();
    running.until("gone", |counters| counters.open == 0)?;
    running.serves_others()
}
