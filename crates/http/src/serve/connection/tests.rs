//! Conversations with connections, piece by piece, without a socket.

use super::*;
use crate::serve::TICK_MS;
use crate::serve::rehearsal::rehearse;
use crate::serve::site::ServedSite;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const HEAD_BYTES_MAX: usize = 1024;

/// A connection and what it needs to answer.
struct Talk {
    connection: Connection,
    responder: Responder,
    limits: Limits,
}

impl Talk {
    fn new(close: Close) -> Self {
        let limits = Limits {
            head_bytes: HEAD_BYTES_MAX,
            head_time: Duration::from_millis(100),
            idle_time: Duration::from_millis(200),
            send_time: Duration::from_millis(400),
            ..Limits::default()
        };
        let site =
            ServedSite::open(&crate::serve::ServedContent::Size(100)).expect("memory is there");
        Self {
            connection: Connection::new(0),
            responder: Responder::new(Arc::new(site), &limits, close),
            limits,
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> ServeStep {
        self.connection.receive(bytes, &mut self.responder, 0)
    }

    /// Receives bytes that are to be answered at once.
    fn reply(&mut self, bytes: &[u8]) -> Reply {
        match self.receive(bytes) {
            ServeStep::Send(reply) => reply,
            step => panic!("{step:?}"),
        }
    }

    fn sent(&mut self) -> ServeStep {
        self.connection.sent(&mut self.responder, 0)
    }

    /// A look finds that the peer lacks `left` bytes; 0 if it has everything.
    fn look(&mut self, left: usize, now_ms: u64) -> bool {
        self.connection
            .look(AcknowledgedBytes::left(left), &self.limits, now_ms)
    }

    fn deadline_ms(&self) -> u64 {
        self.connection.deadline_ms(&self.limits)
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.part.as_slice()).into_owned()
}

#[test]
fn it_is_small_and_holds_nothing_while_idle() {
    assert!(size_of::<Connection>() <= 128);
    let mut talk = Talk::new(Close::Server);
    for _ in 0..3 {
        assert_eq!(talk.reply(GET).status, 200);
        assert_eq!(talk.connection.waiting.capacity(), 0, "nothing was copied");
        assert!(matches!(talk.sent(), ServeStep::Receive));
        assert!(talk.connection.is_idle());
    }
    assert!(matches!(talk.receive(&GET[..9]), ServeStep::Receive));
    assert!(!talk.connection.is_idle());
    talk.reply(&GET[9..]);
    assert_eq!(
        talk.connection.waiting.capacity(),
        0,
        "what was kept is freed"
    );
}

#[test]
fn head_and_body_are_one_piece_that_is_shared() {
    let mut talk = Talk::new(Close::Server);
    let first = talk.reply(GET);
    let head = text(&first);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{head}");
    assert!(head.contains("\r\nContent-Length: 100\r\n"), "{head}");
    assert!(!head.contains("Connection"), "{head}");
    assert!(first.is_last_part());
    assert_eq!(
        head.split_once("\r\n\r\n").expect("a head ends").1.len(),
        100
    );
    talk.sent();
    let second = talk.reply(GET);
    assert!(Arc::ptr_eq(&first.part.bytes, &second.part.bytes));
}

#[test]
fn a_head_is_answered_without_the_body() {
    let mut talk = Talk::new(Close::Server);
    let reply = talk.reply(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(text(&reply).ends_with("\r\nContent-Length: 100\r\n\r\n"));
}

#[test]
fn a_client_of_http_1_0_is_told_that_it_may_go_on() {
    let mut talk = Talk::new(Close::Server);
    let reply = talk.reply(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(text(&reply).contains("\r\nConnection: keep-alive\r\n"));
    assert!(matches!(talk.sent(), ServeStep::Receive));
    let reply = talk.reply(b"GET / HTTP/1.0\r\n\r\n");
    assert!(reply.last && text(&reply).contains("\r\nConnection: close\r\n"));
}

#[test]
fn what_was_pipelined_is_answered_one_by_one() {
    let mut talk = Talk::new(Close::Server);
    let requests = [GET, GET, GET_CLOSE, GET].concat();
    assert!(!talk.reply(&requests).last);
    let ServeStep::Send(second) = talk.sent() else {
        panic!("the second request is there");
    };
    assert!(!second.last);
    let ServeStep::Send(third) = talk.sent() else {
        panic!("the third request is there");
    };
    // The request behind the last one is not answered, and must not cost the reply.
    assert!(!third.last);
    assert!(matches!(talk.sent(), ServeStep::Shutdown));
}

#[test]
fn more_may_arrive_while_a_reply_is_on_its_way() {
    let mut talk = Talk::new(Close::Server);
    talk.reply(GET);
    assert!(matches!(talk.receive(&GET[..5]), ServeStep::Receive));
    assert!(matches!(
        talk.receive(&[&GET[5..], GET].concat()),
        ServeStep::Receive
    ));
    assert!(matches!(talk.sent(), ServeStep::Send(_)));
    assert!(matches!(talk.sent(), ServeStep::Send(_)));
    assert!(matches!(talk.sent(), ServeStep::Receive));
    assert!(talk.connection.is_idle());
}

#[test]
fn a_flood_while_a_reply_is_on_its_way_ends_it() {
    let mut talk = Talk::new(Close::Server);
    talk.reply(GET);
    let flood = [b'x'; 64 << 10];
    let closes = |_| matches!(talk.receive(&flood), ServeStep::Close);
    assert_eq!(
        (0..100).position(closes),
        Some(WAITING_BYTES_MAX / flood.len())
    );
}

#[test]
fn each_way_to_close_has_its_steps() {
    let mut server = Talk::new(Close::Server);
    assert!(server.reply(GET_CLOSE).last);
    let mut reset = Talk::new(Close::Rst);
    assert!(reset.reply(GET_CLOSE).last);
    let mut client = Talk::new(Close::Client);
    let reply = client.reply(GET_CLOSE);
    assert!(!reply.last && text(&reply).contains("\r\nConnection: close\r\n"));
    assert!(matches!(client.sent(), ServeStep::Receive));
    assert_eq!(client.connection.state, ConnectionState::Part);
    assert!(client.look(0, 0));
    assert_eq!(client.deadline_ms(), 200);
    assert!(
        matches!(client.receive(GET), ServeStep::Receive),
        "it asked for no more"
    );
    assert!(matches!(client.connection.end(), ServeStep::Close));
}

#[test]
fn a_client_that_is_to_close_and_does_not_is_not_waited_for_like_one_that_may_ask_again() {
    let mut talk = Talk::new(Close::Client);
    talk.limits.idle_time = Duration::from_secs(3600);
    talk.reply(GET_CLOSE);
    assert!(matches!(talk.sent(), ServeStep::Receive));
    assert!(talk.look(0, 0));
    assert_eq!(talk.deadline_ms(), PART_MS);
    let ending = talk.connection.ending_if_late();
    assert_eq!(ending, Some(Ending::IdleTimeout));
    let step = talk.connection.expire(&mut talk.responder, PART_MS);
    assert!(matches!(step, ServeStep::Close), "{step:?}");
    assert_eq!(talk.connection.ending_if_late(), None);
}

#[test]
fn a_drain_makes_every_reply_the_last() {
    let mut talk = Talk::new(Close::Server);
    talk.reply(GET);
    talk.sent();
    talk.responder.is_draining = true;
    let reply = talk.reply(GET);
    assert!(!reply.last && text(&reply).contains("\r\nConnection: close\r\n"));
    assert!(matches!(talk.sent(), ServeStep::Shutdown));
    let mut asks = Talk::new(Close::Server);
    asks.responder.is_draining = true;
    assert!(asks.reply(GET_CLOSE).last);
}

#[test]
fn what_a_client_sends_behind_its_last_request_does_not_cost_the_reply() {
    for (behind, lingers) in [(&b""[..], false), (GET, true), (b"x", true)] {
        let mut talk = Talk::new(Close::Server);
        assert_eq!(talk.reply(&[GET_CLOSE, behind].concat()).last, !lingers);
        assert_eq!(matches!(talk.sent(), ServeStep::Shutdown), lingers);
    }
    // A client gets a RST in any case.
    let mut talk = Talk::new(Close::Rst);
    assert!(talk.reply(&[GET_CLOSE, GET].concat()).last);
}

#[test]
fn what_cannot_be_followed_is_refused_and_the_client_has_time_to_read_it() {
    let mut talk = Talk::new(Close::Server);
    let reply = talk.reply(b"\x16\x03\x01 what is this\r\n");
    assert_eq!(reply.status, 400);
    assert!(!reply.last && text(&reply).contains("\r\nConnection: close\r\n"));
    assert!(matches!(talk.sent(), ServeStep::Shutdown));
    assert!(
        matches!(talk.receive(GET), ServeStep::Receive),
        "it is read and thrown away"
    );
    assert!(talk.look(0, 0));
    assert_eq!(talk.deadline_ms(), LINGER_MS);
    assert!(matches!(talk.connection.end(), ServeStep::Close));
}

#[test]
fn content_is_thrown_away_up_to_a_limit() {
    let post = |length: u64| {
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes()
    };
    let mut talk = Talk::new(Close::Server);
    let reply = talk.reply(&[post(7), b"content".to_vec(), GET.to_vec()].concat());
    assert_eq!(reply.status, 405);
    assert!(text(&reply).contains("\r\nAllow: GET, HEAD\r\n"));
    assert!(matches!(
        talk.sent(),
        ServeStep::Send(Reply { status: 200, .. })
    ));
    assert!(matches!(talk.sent(), ServeStep::Receive));
    talk.reply(&post(CONTENT_BYTES_MAX));
    assert!(matches!(talk.sent(), ServeStep::Receive));
    let content = vec![b'\n'; CONTENT_BYTES_MAX as usize - 1];
    assert!(matches!(talk.receive(&content), ServeStep::Receive));
    assert_eq!(talk.reply(&[b"\n", GET].concat()).status, 200);
    talk.sent();
    assert!(!talk.reply(&post(CONTENT_BYTES_MAX + 1)).last);
    assert!(matches!(talk.sent(), ServeStep::Shutdown));
}

#[test]
fn content_that_is_still_to_come_does_not_cost_the_last_reply() {
    let heads = [
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 7\r\n\r\n",
        "GET / HTTP/1.0\r\nContent-Length: 7\r\n\r\n",
    ];
    for (head, close) in heads
        .iter()
        .flat_map(|head| [(head, Close::Server), (head, Close::Rst)])
    {
        let mut early = Talk::new(close);
        let reply = early.reply(&[head.as_bytes(), b"con"].concat());
        assert!(!reply.last && text(&reply).contains("\r\nConnection: close\r\n"));
        assert!(matches!(early.sent(), ServeStep::Shutdown));
        assert!(matches!(early.receive(b"tent"), ServeStep::Receive));
        assert!(matches!(early.connection.end(), ServeStep::Close));
        let mut whole = Talk::new(close);
        assert!(whole.reply(&[head.as_bytes(), b"content"].concat()).last);
        assert!(matches!(whole.sent(), ServeStep::Close));
    }
}

#[test]
fn a_wrong_head_leaves_nothing_behind() {
    let mut talk = Talk::new(Close::Server);
    assert!(matches!(
        talk.receive(b"GET / HTTP/1.1\r\nX: "),
        ServeStep::Receive
    ));
    let reply = talk.reply(&[b'x'; HEAD_BYTES_MAX]);
    assert_eq!(reply.status, 431);
    assert_eq!(talk.connection.waiting.capacity(), 0);
}

#[test]
fn deadlines_follow_what_is_waited_for() {
    let mut talk = Talk::new(Close::Server);
    assert_eq!(
        (talk.deadline_ms(), talk.connection.state),
        (100, ConnectionState::Head)
    );
    talk.connection.receive(&GET[..3], &mut talk.responder, 50);
    assert_eq!(
        talk.deadline_ms(),
        100,
        "the first head counts from the start"
    );
    talk.connection.receive(&GET[3..], &mut talk.responder, 60);
    assert_eq!(
        (talk.deadline_ms(), talk.connection.state),
        (60 + TICK_MS, ConnectionState::Send(After::Request)),
        "then its peer is looked at"
    );
    talk.connection.progress(70);
    assert_eq!(talk.deadline_ms(), 70 + TICK_MS);
    // The time begins anew when a peer takes something. A peer that takes nothing is late.
    for (left, now_ms, goes_on) in [
        (9, 140, true),
        (8, 530, true),
        (8, 929, true),
        (8, 930, false),
    ] {
        assert_eq!(talk.look(left, now_ms), goes_on, "{now_ms}");
    }
    talk.connection.progress(70);
    talk.connection.sent(&mut talk.responder, 80);
    assert_eq!(
        (talk.deadline_ms(), talk.connection.state),
        (80 + TICK_MS, ConnectionState::Idle),
        "the peer is looked at once more"
    );
    assert!(talk.look(0, 80 + TICK_MS));
    assert_eq!(talk.deadline_ms(), 280);
    talk.connection.receive(b"\r\n", &mut talk.responder, 90);
    assert_eq!(talk.deadline_ms(), 280, "an empty line is no request");
    talk.connection.receive(&GET[..3], &mut talk.responder, 100);
    assert_eq!(
        (talk.deadline_ms(), talk.connection.state),
        (200, ConnectionState::Head)
    );
    talk.connection
        .receive(&GET[3..4], &mut talk.responder, 190);
    assert_eq!(talk.deadline_ms(), 200, "a byte now and then gains nothing");
}

#[test]
fn a_wait_behind_a_reply_begins_when_it_is_acknowledged() {
    for (request, close, wait_ms) in [
        (GET, Close::Rst, 200),
        (GET_CLOSE, Close::Client, 200),
        (b"nonsense\r\n\r\n", Close::Server, LINGER_MS),
    ] {
        let mut talk = Talk::new(close);
        talk.reply(request);
        talk.sent();
        // It goes on for much longer than the wait, while the peer takes something now and then.
        for round in 1..100 {
            let now_ms = round * 300;
            assert!(talk.deadline_ms() <= now_ms && talk.connection.needs_look());
            assert!(talk.look(200 - round as usize, now_ms), "{now_ms}");
        }
        let ending = talk.connection.ending_if_late();
        assert_eq!(ending, Some(Ending::SendTimeout));
        assert!(talk.look(0, 30_000) && !talk.connection.needs_look());
        assert_eq!(talk.deadline_ms(), 30_000 + wait_ms);
        assert_ne!(talk.connection.ending_if_late(), ending);
        assert!(!talk.connection.end_as(Ending::Drained, close));
    }
    // If the kernel does not report it, only the wait is left.
    let mut untold = Talk::new(Close::Rst);
    untold.reply(GET);
    untold.sent();
    assert!(untold.look(usize::MAX, 100));
    assert_eq!(untold.deadline_ms(), 200);
    // Behind a FIN, a close would discard the rest of a reply. So the peer has the time of a reply.
    let mut untold = Talk::new(Close::Server);
    untold.limits.send_time = Duration::from_millis(2 * LINGER_MS);
    untold.reply(b"nonsense\r\n\r\n");
    assert!(matches!(untold.sent(), ServeStep::Shutdown));
    for now_ms in [LINGER_MS, 2 * LINGER_MS - 1] {
        assert!(untold.look(usize::MAX, now_ms), "{now_ms}");
        assert!(untold.connection.needs_look());
    }
    assert!(!untold.look(usize::MAX, 2 * LINGER_MS));
}

#[test]
fn no_close_discards_what_the_peer_has_not_got() {
    for (ending, close, waits) in [
        (Ending::Done, Close::Rst, true),
        (Ending::Client, Close::Rst, true),
        (Ending::Refused, Close::Rst, true),
        (Ending::Drained, Close::Rst, true),
        (Ending::Drained, Close::Server, true),
        // The kernel goes on to send, and the client has no more to say.
        (Ending::Client, Close::Server, false),
        // The client is not waited for any more.
        (Ending::SendTimeout, Close::Rst, false),
        (Ending::Reset, Close::Rst, false),
    ] {
        let mut talk = Talk::new(close);
        talk.reply(GET);
        talk.sent();
        let must_wait = talk.connection.end_as(ending, close);
        assert_eq!(must_wait, waits, "{ending} {close}");
        assert!(talk.connection.is_closed());
    }
}

#[test]
fn behind_more_than_a_first_flight_the_rest_is_read_and_thrown_away() {
    // One long reply, or many short ones.
    for many in [false, true] {
        for (close, lingers) in [(Close::Server, true), (Close::Rst, false)] {
            let bytes = if many { 1_000 } else { 100_000 };
            let mut talk = Talk::new(close);
            let site = ServedSite::open(&crate::serve::ServedContent::Size(bytes))
                .expect("memory is there");
            talk.responder = Responder::new(Arc::new(site), &talk.limits, close);
            for _ in 0..if many { 20 } else { 0 } {
                talk.reply(GET);
                talk.sent();
            }
            assert_eq!(talk.reply(GET_CLOSE).last, !lingers);
            assert_eq!(matches!(talk.sent(), ServeStep::Shutdown), lingers);
            if lingers {
                assert!(matches!(talk.receive(b"\r\n"), ServeStep::Receive));
                assert!(matches!(talk.connection.end(), ServeStep::Close));
            }
        }
    }
}

#[test]
fn half_a_request_is_told_when_its_time_is_over() {
    let mut talk = Talk::new(Close::Server);
    talk.receive(&GET[..3]);
    let ServeStep::Send(reply) = talk.connection.expire(&mut talk.responder, 100) else {
        panic!("half a request is there");
    };
    assert!(!reply.last && reply.status == 408);
    assert!(matches!(talk.sent(), ServeStep::Shutdown));
    assert!(matches!(talk.receive(&GET[3..]), ServeStep::Receive));
    let mut silent = Talk::new(Close::Server);
    let step = silent.connection.expire(&mut silent.responder, 100);
    assert!(matches!(step, ServeStep::Close));
    let mut stuck = Talk::new(Close::Server);
    stuck.reply(GET);
    let step = stuck.connection.expire(&mut stuck.responder, 400);
    assert!(matches!(step, ServeStep::Close));
}

#[test]
fn a_client_that_ends_first_still_gets_what_it_asked_for() {
    let mut talk = Talk::new(Close::Server);
    talk.reply(&[GET, GET, &GET[..5]].concat());
    assert!(matches!(talk.connection.end(), ServeStep::Receive));
    assert!(matches!(talk.sent(), ServeStep::Send(_)));
    assert!(
        matches!(talk.sent(), ServeStep::Close),
        "the rest will not come"
    );
    assert!(matches!(talk.receive(GET), ServeStep::Close));
    let mut idle = Talk::new(Close::Server);
    assert!(matches!(idle.connection.end(), ServeStep::Close));
}

/// Requests, good and bad, and what may lie between them; with an end that decides every head.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(GET.to_vec()),
        2 => Just(b"HEAD /x?y HTTP/1.0\nConnection: keep-alive\n\n".to_vec()),
        1 => Just(b"BREW / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_vec()),
        1 => Just(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
        1 => Just(GET_CLOSE.to_vec()),
        1 => Just(b"\r\n\r\n".to_vec()),
        1 => "[GET /HTP1.:\r\nab]{0,30}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..12),
        1 => (1usize..9000).prop_map(|length| vec![b'x'; length]),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|mut pieces| {
        pieces.push(b"\r\n\r\n".to_vec());
        pieces.concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    /// How bytes are cut on their way makes no difference.
    #[test]
    fn pieces_are_answered_as_the_whole(stream in stream(), piece in 1usize..40) {
        let whole = rehearse([&stream[..]]);
        prop_assert_eq!(&rehearse(stream.chunks(piece)), &whole);
        prop_assert_eq!(&rehearse(stream.chunks(1)), &whole);
    }

    #[test]
    fn no_bytes_break_it(stream in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..40) {
        rehearse(stream.chunks(piece));
    }
}
