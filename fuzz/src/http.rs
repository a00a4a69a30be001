//! Fuzzed input from a client of the server.

/// The longest piece of a request. The first byte of the data chooses the length.
const PIECE_BYTES_MAX: usize = 64;

/// A stream of requests of any content, whole, in pieces, and byte by byte.
///
/// An error in half a head may be found earlier or later, as its bytes come. So an empty line is
/// appended, which completes the head. The answers to complete heads must be the same.
pub(crate) fn http_request(data: &[u8]) -> Option<()> {
    let (piece, stream) = data.split_first()?;
    let stream = [stream, b"\r\n\r\n"].concat();
    let (statuses, is_closed) = mpps_http::rehearse([&stream[..]]);
    for length in [1, 1 + usize::from(*piece) % PIECE_BYTES_MAX] {
        let in_pieces = mpps_http::rehearse(stream.chunks(length));
        assert_eq!(
            in_pieces,
            (statuses.clone(), is_closed),
            "in pieces of {length}"
        );
    }
    for status in &statuses {
        assert!(
            [200, 400, 405, 414, 431, 501, 505].contains(status),
            "{status}"
        );
    }
    statuses.contains(&200).then_some(())
}
