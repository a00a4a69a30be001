//! Standard output and error, which may close at any time: a closed pipe ends a run quietly.

pub(crate) mod file;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

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
    bytes(stream, format!("{text}\n").as_bytes())
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

/// Lines on standard error, in place of a bar that stands there; the bar comes back below them.
///
/// # Errors
/// As for [`line()`].
pub(crate) fn above_bar(text: &str) -> io::Result<()> {
    let shows = io::stderr().is_terminal() && may_steer(|name| std::env::var_os(name));
    let clear = if shows { "\r\x1b[2K" } else { "" };
    line(Stream::Err, &format!("{clear}{text}"))
}

/// The text with a blank for each letter that steers: what comes from a file or from elsewhere must
/// not steer the terminal, nor end the line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(mpps_report::harmless).collect()
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

/// True if colour helps on standard output.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && may_steer(|name| std::env::var_os(name))
}

/// A line on standard error that shows how far a run of `steps` is; none where that is no terminal,
/// or one that is not to be steered.
pub(crate) fn bar(steps: u64, template: &str) -> ProgressBar {
    let shows = io::stderr().is_terminal() && may_steer(|name| std::env::var_os(name));
    let target = match shows {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(steps), target).with_style(style)
}

/// True if a terminal knows colours and a cursor that moves (term(7)), and nobody said no
/// (<https://no-color.org>).
fn may_steer(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    variable("TERM").is_none_or(|term| term != "dumb")
        && variable("NO_COLOR").is_none_or(|no| no.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_and_a_user_who_says_no_get_plain_text() {
        let may = |term: Option<&str>, no_color: Option<&str>| {
            may_steer(|name| match name {
                "TERM" => term.map(OsString::from),
                _ => no_color.map(OsString::from),
            })
        };
        assert!(may(Some("xterm"), None) && may(None, Some("")));
        assert!(!may(Some("dumb"), None) && !may(Some("xterm"), Some("1")));
    }
}
