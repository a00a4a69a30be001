//! Fuzzed input from a server under load, and from the user who names it.

use mpps_http::{LastHead, ReplyEnd, ReplyState, Response, Url};

/// The longest piece of a reply. The first byte of the data chooses the length.
const PIECE_BYTES_MAX: usize = 64;

/// The result of a reply once all bytes have come.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    received: ReplyState,
    end: ReplyEnd,
    status: u16,
    body_bytes: u64,
    closes: bool,
}

/// A reply of any content, whole, in pieces, byte by byte, and once more with its head known.
pub(crate) fn http_response(data: &[u8]) -> Option<()> {
    let (piece, stream) = data.split_first()?;
    let mut known = LastHead::default();
    let whole = read([stream], &mut known);
    for length in [1, 1 + usize::from(*piece) % PIECE_BYTES_MAX] {
        let in_pieces = read(stream.chunks(length), &mut LastHead::default());
        assert_eq!(in_pieces, whole, "in pieces of {length}");
    }
    assert_eq!(read([stream], &mut known), whole, "with its head known");
    let whole = whole?;
    assert!(whole.body_bytes <= stream.len() as u64);
    assert!(whole.received == ReplyState::More || whole.end == ReplyEnd::Whole);
    (whole.end == ReplyEnd::Whole).then_some(())
}

fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    last_head: &mut LastHead,
) -> Option<Outcome> {
    let mut response = Response::default();
    let mut received = ReplyState::More;
    for piece in pieces {
        received = response.receive(piece, last_head).ok()?;
    }
    Some(Outcome {
        received,
        status: response.status(),
        body_bytes: response.body_bytes(),
        closes: response.closes(),
        end: response.end(),
    })
}

/// A URL that a user typed. The part that is sent splits no header. Written out, it reads as
/// before.
pub(crate) fn url(data: &[u8]) -> Option<()> {
    let url = Url::parse(str::from_utf8(data).ok()?).ok()?;
    let sent = format!("{}{}", url.authority(), url.path);
    assert!(sent.bytes().all(|byte| byte.is_ascii_graphic()), "{sent}");
    assert_eq!(Url::parse(&url.to_string()).ok(), Some(url));
    Some(())
}
