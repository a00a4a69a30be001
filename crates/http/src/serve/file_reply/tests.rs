//! Files as a client gets them.

use crate::serve::connection::{Connection, ServeStep};
use crate::serve::reply::{Reply, ReplyBody};
use crate::serve::responder::Responder;
use crate::serve::site::ServedSite;
use crate::serve::{Close, Limits, ServedContent};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;

const LARGE_BYTES: u64 = 10 << 20;

/// A client of a server of files.
struct Client {
    _folder: TempDir,
    responder: Responder,
}

/// A reply taken apart.
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// The bytes of a file that were to be sent by the engine.
    file_bytes: Option<std::ops::Range<u64>>,
}

impl Client {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a directory");
        let root = folder.path();
        fs::write(root.join("empty.txt"), "").expect("a file");
        fs::write(root.join("ten"), "0123456789").expect("a file");
        let large = File::create(root.join("large")).expect("a file");
        large
            .write_all_at(b"end", LARGE_BYTES - 3)
            .expect("a hole takes no room");
        let site =
            ServedSite::open(&ServedContent::Root(root.to_owned())).expect("the root is there");
        let responder = Responder::new(Arc::new(site), &Limits::default(), Close::Server, None);
        Self {
            _folder: folder,
            responder,
        }
    }

    fn ask(&mut self, line: &str) -> Got {
        let request = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut connection = Connection::new(0);
        match connection.receive(request.as_bytes(), &mut self.responder, 0) {
            ServeStep::Send(reply) => Got::from(reply),
            step => panic!("{step:?}"),
        }
    }
}

impl From<Reply> for Got {
    fn from(reply: Reply) -> Self {
        let bytes = reply.head.as_slice();
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let (head, body) = bytes.split_at(end.expect("a head ends") + 4);
        Self {
            status: reply.status,
            head: String::from_utf8_lossy(head).into_owned(),
            body: body.to_vec(),
            file_bytes: match reply.body {
                ReplyBody::File { range, .. } => Some(range),
                _ => None,
            },
        }
    }
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(other, _)| *other == name)
            .map(|(_, value)| value)
            .next()
    }
}

#[test]
fn a_small_file_comes_in_one_piece() {
    let mut client = Client::new();
    let got = client.ask("GET /ten?query");
    assert_eq!((got.status, &got.body[..]), (200, &b"0123456789"[..]));
    assert_eq!(got.field("Content-Length"), Some("10"));
    assert_eq!(got.field("Content-Type"), Some("application/octet-stream"));
    let head = client.ask("HEAD /ten");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.head, got.head);
    let empty = client.ask("GET /empty.txt");
    assert_eq!(
        (empty.status, empty.field("Content-Length")),
        (200, Some("0"))
    );
}

#[test]
fn a_large_file_is_left_to_the_engine() {
    let mut client = Client::new();
    let got = client.ask("GET /large");
    assert_eq!((got.status, got.file_bytes), (200, Some(0..LARGE_BYTES)));
    let head = client.ask("HEAD /large");
    assert_eq!(
        (head.file_bytes.clone(), head.field("Content-Length")),
        (None, Some("10485760"))
    );
    assert_eq!(head.head, got.head);
}

#[test]
fn what_is_not_there_is_said_in_words() {
    let mut client = Client::new();
    let got = client.ask("GET /nothing");
    assert_eq!((got.status, &got.body[..]), (404, &b"404 Not Found\n"[..]));
    let head = client.ask("HEAD /nothing");
    assert_eq!((head.status, head.body.len()), (404, 0));
    assert_eq!(head.head, got.head);
}
