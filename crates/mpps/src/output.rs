//! Standard output and error, which may close at any time: a closed pipe ends a run quietly.

use std::io::{self, Write};

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Writes one line, flushed, so that a reader behind a pipe sees it at once.
///
/// # Errors
/// If the stream cannot take it; [`is_closed`] tells a closed pipe from a full disk.
pub(crate) fn line(stream: Stream, text: &str) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            writeln!(out, "{text}")?;
            out.flush()
        }
        Stream::Err => writeln!(io::stderr().lock(), "{text}"),
    }
}

/// Writes bytes as they are.
///
/// # Errors
/// As for [`line()`].
pub(crate) fn bytes(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}

/// The text with a blank for each control character: what comes from a file or from elsewhere must
/// not steer the terminal, nor end the line.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// True if the reader has gone, which is no error: `mpps recv | head`.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The width of the terminal in columns, or 100 where there is none.
pub(crate) fn width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    columns
        .or_else(mpps_os::terminal::columns)
        .unwrap_or(100)
        .clamp(20, 400)
}

/// True if colour helps: a terminal, and nobody said no (<https://no-color.org>).
pub(crate) fn colour() -> bool {
    use std::io::IsTerminal;
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}
