//! The terminal on standard input and output.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// Its width in columns (`ioctl TIOCGWINSZ`), or none if standard output is no terminal.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Waits with `poll(2)` until there is something to read from standard input, for `timeout` at most, or
/// until a signal comes. False once the terminal has gone (`POLLHUP`): whoever goes on to read gets an end
/// of file at once, again and again.
pub fn await_input(timeout: Duration) -> bool {
    let input = rustix::stdio::stdin();
    let mut events = [PollFd::new(&input, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    // An interruption is no news of the terminal.
    let _ = poll(&mut events, timeout.as_ref());
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    !events[0].revents().intersects(gone)
}
