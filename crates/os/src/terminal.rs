//! The terminal on standard input and output.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::time::Duration;

/// Its width in columns, or none if standard output is no terminal.
pub fn columns() -> Option<usize> {
    let (columns, _) = size()?;
    (columns > 0).then_some(columns.into())
}

/// Its columns and rows (`ioctl TIOCGWINSZ`), or none if standard output is no terminal. Any
/// program may have set them, to anything; one that never was told has 0.
pub fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Waits with `poll(2)` until there is something to read from standard input, for `timeout` at
/// most, or until a signal comes. True if there is.
///
/// # Errors
/// The terminal has gone (`POLLHUP`): whoever goes on to read gets an end of file at once, again
/// and again.
pub fn await_input(timeout: Duration) -> io::Result<bool> {
    let input = rustix::stdio::stdin();
    let mut events = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    // An interruption is no news of the terminal.
    let _ = poll(&mut events, timeout.as_ref());
    let told = events[0].revents();
    match told.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        true => Err(io::ErrorKind::BrokenPipe.into()),
        false => Ok(told.intersects(PollFlags::IN)),
    }
}
