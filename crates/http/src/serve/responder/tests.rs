//! Replies as a client gets them.

use super::*;
use crate::serve::ServedContent;
use crate::serve::request::{Parsed, parse};

fn responder(size: usize) -> Responder {
    let site = ServedSite::open(&ServedContent::Size(size)).expect("memory is there");
    Responder::new(Arc::new(site), &Limits::default(), Close::Server)
}

fn answer(responder: &mut Responder, line: &str, now_ms: u64) -> Reply {
    let text = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
    match parse(text.as_bytes(), 1024) {
        Parsed::Whole { request, .. } => responder.answer(&request, true, now_ms),
        other => panic!("{other:?}"),
    }
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.part.as_slice()).into_owned()
}

#[test]
fn a_ready_reply_lasts_for_a_second_at_most() {
    let mut responder = responder(10);
    let first = answer(&mut responder, "GET /", 5_000);
    let date_ends_ms = responder.heads.date_ends_ms;
    let same = answer(&mut responder, "HEAD /", date_ends_ms - 1);
    assert!(Arc::ptr_eq(&first.part.bytes, &same.part.bytes));
    assert!(date_ends_ms > 5_000 && date_ends_ms <= 6_000);
    let later = answer(&mut responder, "GET /", 6_000);
    assert!(!Arc::ptr_eq(&first.part.bytes, &later.part.bytes));
}

#[test]
fn a_large_body_lies_apart_and_is_not_copied() {
    let mut responder = responder(ONE_PIECE_BYTES_MAX + 1);
    let body = |reply: Reply| match reply.rest {
        ReplyBody::Memory(chunk) => chunk,
        other => panic!("{other:?}"),
    };
    let first = body(answer(&mut responder, "GET /", 0));
    let later = body(answer(&mut responder, "GET /", 9_000));
    assert_eq!(first.as_slice().len(), ONE_PIECE_BYTES_MAX + 1);
    assert!(Arc::ptr_eq(&first.bytes, &later.bytes));
    let head = answer(&mut responder, "HEAD /", 9_000);
    assert!(head.is_last_part());
    assert!(text(&head).contains("\r\nContent-Length: 262145\r\n"));
}

#[test]
fn files_are_sent_whole_in_parts_and_others_are_said_in_words() {
    let folder = tempfile::tempdir().expect("there is room for a directory");
    let large = Vec::from_iter(0..251_u8).repeat(300);
    for (name, content) in [
        ("empty", &b""[..]),
        ("ten", b"0123456789"),
        ("large", &large),
    ] {
        std::fs::write(folder.path().join(name), content).expect("a file");
    }
    let site = ServedSite::open(&ServedContent::Root(folder.path().to_owned()));
    let site = Arc::new(site.expect("the root is there"));
    let mut responder = Responder::new(site, &Limits::default(), Close::Server);
    for (path, status, body, parts) in [
        ("empty", 200, &b""[..], 1),
        ("ten?query", 200, b"0123456789", 1),
        ("large", 200, &large, 3),
        ("nothing", 404, b"404 Not Found\n", 1),
    ] {
        let head = answer(&mut responder, &format!("HEAD /{path}"), 0);
        assert!(head.status == status && head.is_last_part());
        let mut reply = answer(&mut responder, &format!("GET /{path}"), 0);
        assert_eq!(
            (reply.status, reply.bytes()),
            (status, head.bytes() + body.len() as u64)
        );
        let mut sent = reply.part.as_slice().to_vec();
        let mut count = 1;
        while reply.advance().expect("the file is there") {
            sent.extend_from_slice(reply.part.as_slice());
            count += 1;
        }
        assert_eq!(
            (count, sent),
            (parts, [head.part.as_slice(), body].concat()),
            "{path}"
        );
        let length = format!("\r\nContent-Length: {}\r\n", body.len());
        assert!(text(&head).contains(&length), "{path}");
    }
}

#[test]
fn other_methods_are_named_what_they_are() {
    let mut responder = responder(10);
    let not_allowed = answer(&mut responder, "DELETE /", 0);
    assert_eq!(not_allowed.status, 405);
    assert!(text(&not_allowed).contains("\r\nAllow: GET, HEAD\r\n"));
    assert_eq!(answer(&mut responder, "BREW /", 0).status, 501);
    for status in [400, 408, 414, 431, 501, 505] {
        let refusal = responder.refuse(status, 0);
        let line = format!(
            "HTTP/1.1 {status} {}\r\n",
            crate::serve::heads::reason(status)
        );
        assert!(text(&refusal).starts_with(&line) && !line.contains(" \r"));
        assert!(text(&refusal).contains("\r\nConnection: close\r\n"));
    }
}
