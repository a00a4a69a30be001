//! The terminal on standard output.

/// Its width in columns (`ioctl TIOCGWINSZ`), or none if standard output is no terminal.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
