//! Replies as servers send them, damaged ones, and both in every kind of pieces.

use super::*;
use proptest::prelude::*;

/// Reads a reply that comes in pieces of these sizes, by turns.
fn read(bytes: &[u8], splits: &[usize]) -> Result<(Response, ReplyState), BadReply> {
    let mut response = Response::default();
    let mut last_head = LastHead::default();
    let mut received = ReplyState::More;
    let mut rest = bytes;
    for split in splits.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at(rest.len().min(*split));
        received = response.receive(piece, &mut last_head)?;
        rest = more;
    }
    Ok((response, received))
}

fn whole(bytes: &[u8]) -> Result<(Response, ReplyState), BadReply> {
    read(bytes, &[usize::MAX])
}

/// A head, its body, and the result of both: status, bytes, whether the server closes, and whether only
/// its close shows the end.
const REPLIES: &[(&str, &str, &str)] = &[
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "hello",
        "200 5",
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "",
        "200 0 closes",
    ),
    (
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
        "x",
        "200 1 closes",
    ),
    (
        "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n",
        "x",
        "200 1",
    ),
    (
        "HTTP/1.1 200 OK\r\n\r\n",
        "until the end",
        "200 13 closes at-close",
    ),
    ("HTTP/1.1 204 No Content\r\n\r\n", "", "204 0"),
    (
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "",
        "304 0",
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n",
        "no",
        "404 2",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "3\r\nabc\r\n0\r\n\r\n",
        "200 3",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 4\r\n\r\n",
        "3\r\nabc\r\n0\r\n\r\n",
        "200 3 closes",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "abc",
        "200 3 closes at-close",
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        "ab",
        "200 2 closes",
    ),
];

#[test]
fn replies_are_read_to_their_end_and_no_further() {
    for &(head, body, expected) in REPLIES {
        let (mut response, received) = whole(format!("{head}{body}").as_bytes()).unwrap();
        let mut said = format!("{} {}", response.status(), response.body_bytes());
        said += if response.closes() { " closes" } else { "" };
        let is_known = received == ReplyState::Whole;
        said += if is_known { "" } else { " at-close" };
        assert_eq!(said, expected, "{head}");
        assert_eq!(response.end(), ReplyEnd::Whole, "{head}");
        let more = format!("{head}{body}H");
        assert!(!is_known || whole(more.as_bytes()).is_err(), "{head}");
    }
}

#[test]
fn an_early_end_is_told_from_a_whole_reply() {
    let mut response = Response::default();
    assert_eq!(response.end(), ReplyEnd::Nothing);
    for (text, end) in [
        ("HTTP/1.1 200", ReplyEnd::ShortHead),
        ("HTTP/1.1 100 Continue\r\n\r\n", ReplyEnd::ShortHead),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            ReplyEnd::ShortBody,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
            ReplyEnd::ShortBody,
        ),
    ] {
        let (mut response, received) = whole(text.as_bytes()).unwrap();
        assert_eq!(
            (received, response.end()),
            (ReplyState::More, end),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_reply_is_refused() {
    let long = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(HEAD_BYTES_MAX));
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}\r\n",
        "A: b\r\n".repeat(HEADERS_MAX + 1)
    );
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(usize::from(INTERIM_MAX) + 1);
    for text in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5, \r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        &long,
        &many,
        &interim,
    ] {
        assert!(whole(text.as_bytes()).is_err(), "{text}");
        // Each piece is read from the head's beginning; Miri would take minutes.
        let piece = if cfg!(miri) { 4096 } else { 7 };
        assert!(read(text.as_bytes(), &[piece]).is_err(), "{text}");
    }
}

#[test]
fn a_head_that_comes_again_is_known_and_another_is_not_taken_for_it() {
    let mut response = Response::default();
    let mut last_head = LastHead::default();
    let mut receive = |text: &str| {
        response.reset();
        let received = response.receive(text.as_bytes(), &mut last_head);
        (received, response.status(), response.body_bytes())
    };
    let first = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    for _ in 0..3 {
        assert_eq!(receive(first), (Ok(ReplyState::Whole), 200, 2));
    }
    let other = "HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\na";
    assert_eq!(receive(other), (Ok(ReplyState::Whole), 404, 1));
    assert_eq!(receive(first), (Ok(ReplyState::Whole), 200, 2));
    let longer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\n\r\nab";
    assert_eq!(receive(longer), (Ok(ReplyState::Whole), 200, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn pieces_make_no_difference(
        which in 0..REPLIES.len(),
        splits in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let (head, body, ..) = REPLIES[which];
        let text = format!("{head}{body}");
        match (whole(text.as_bytes()), read(text.as_bytes(), &splits)) {
            (Ok((one, received)), Ok((other, also))) => {
                prop_assert_eq!(received, also);
                prop_assert_eq!(one.head, other.head);
                prop_assert_eq!(one.body_bytes, other.body_bytes);
                prop_assert_eq!(one.state, other.state);
            }
            (one, other) => prop_assert!(one.is_err() && other.is_err()),
        }
    }

    #[test]
    fn no_bytes_break_it_and_none_is_counted_twice(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        begins_well in any::<bool>(),
        splits in proptest::collection::vec(1_usize..40, 1..20),
    ) {
        let start: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let bytes = [if begins_well { start } else { b"" }, &bytes].concat();
        if let Ok((mut response, _)) = read(&bytes, &splits) {
            prop_assert!(response.body_bytes() <= bytes.len() as u64);
            response.end();
        }
    }
}
