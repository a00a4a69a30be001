//! The terminal on standard input and output.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How long one wait for room is.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// The bytes that a pipe with room takes at once (`PIPE_BUF`, pipe(7)), and those of a terminal.
const PIPE_PIECE: usize = 4096;
const TERMINAL_PIECE: usize = 256;

/// The width of a stream in columns, or none if it is no terminal.
pub fn columns(stream: impl AsFd) -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// Its columns and rows (`ioctl TIOCGWINSZ`), or none if standard output is no terminal. Any
/// program may have set them, to anything; they are 0 if none has.
pub fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Writes all bytes, a piece whenever there is room (`poll(2)`). A plain write would not end if no
/// program empties the pipe, or if the terminal is held (Ctrl-S). While there is no room, it calls
/// `gives_up` every 20 ms.
///
/// # Errors
/// As write(2); `TimedOut` if `gives_up` returned true.
pub fn write_all(
    stream: impl AsFd,
    bytes: &[u8],
    mut gives_up: impl FnMut() -> bool,
) -> io::Result<()> {
    let most = match rustix::termios::isatty(&stream) {
        true => TERMINAL_PIECE,
        false => PIPE_PIECE,
    };
    let mut left = bytes;
    while !left.is_empty() {
        let has_room = match poll(&mut [PollFd::new(&stream, PollFlags::OUT)], Some(&LOOK)) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        if !has_room {
            if gives_up() {
                let text = "its reader did not read in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            continue;
        }
        match rustix::io::write(&stream, &left[..left.len().min(most)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => left = &left[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits with `poll(2)` until there is something to read from standard input, for `timeout` at
/// most, or until a signal comes. True if there is.
///
/// # Errors
/// The terminal has gone (`POLLHUP`): every further read would return an end of file at once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::thread;

    #[test]
    fn who_reads_gets_all_and_who_does_not_is_given_up() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let text = vec![7; 300_000];
        let (given_up, got) = thread::scope(|scope| {
            let read = scope.spawn(|| {
                let mut got = vec![0; text.len()];
                reader.read_exact(&mut got).map(|()| got)
            });
            (write_all(&writer, &text, || false), read.join())
        });
        given_up.expect("it was read");
        assert_eq!(got.expect("no panic").expect("all came"), text);
        // The pipe is full and no thread reads it.
        let mut asked = 0;
        let stuck = write_all(&writer, &text, || {
            asked += 1;
            asked == 3
        });
        assert_eq!(stuck.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(reader);
        let closed = write_all(&writer, &text, || false);
        assert_eq!(closed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
