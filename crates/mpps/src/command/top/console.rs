//! The terminal as a screen: made ready, drawn on, read from, and put back. It may go at any time,
//! and its size is whatever another program set.

use mpps_os::epoll::{Epoll, Events, Interest};
use mpps_os::signal::{ignore_reserved, is_ignored, restore_terminal_on_fault};
use mpps_os::terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, Frame, Terminal, TerminalOptions, Viewport};
use signal_hook::consts::{SIGSTOP, SIGTSTP};
use signal_hook::low_level::raise;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The largest page; the memory for a screen of 65535 by 65535 letters does not exist.
const LARGEST: (u16, u16) = (1000, 400);
/// The size of a terminal that does not know its own.
const USUAL: (u16, u16) = (80, 24);

/// Leaves the alternate screen and shows the cursor, as [`put_back`] does.
const PUT_BACK: &[u8] = b"\x1b[?1049l\x1b[?25h";

/// The bytes that keys send (console_codes(4), and `kcbt` of terminfo(5)), in either mode of the
/// cursor keys.
const SEQUENCES: [(&str, KeyCode); 15] = [
    ("\x1b[A", KeyCode::Up),
    ("\x1bOA", KeyCode::Up),
    ("\x1b[B", KeyCode::Down),
    ("\x1bOB", KeyCode::Down),
    ("\x1b[C", KeyCode::Right),
    ("\x1bOC", KeyCode::Right),
    ("\x1b[D", KeyCode::Left),
    ("\x1bOD", KeyCode::Left),
    ("\x1b[Z", KeyCode::BackTab),
    ("\x1b[5~", KeyCode::PageUp),
    ("\x1b[6~", KeyCode::PageDown),
    ("\x1b[H", KeyCode::Home),
    ("\x1bOH", KeyCode::Home),
    ("\x1b[1~", KeyCode::Home),
    ("\x1b[7~", KeyCode::Home),
];

/// The terminal in raw mode, with the alternate screen, until this is dropped.
pub(super) struct Console {
    /// Not to be dropped: that prints an error, and panics where standard error has gone as well.
    terminal: ManuallyDrop<DefaultTerminal>,
    /// Standard input, read only when there is something in it: a read from a terminal that has
    /// gone returns at once, again and again.
    input: File,
    area: Rect,
    /// SIGTSTP came, which is to stop the process with the terminal put back.
    stops: Arc<AtomicBool>,
}

impl Console {
    /// # Errors
    /// If the terminal cannot be used; it is put back then.
    pub(super) fn open() -> io::Result<Self> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            put_back();
            hook(info);
        }));
        Self::make().inspect_err(|_| put_back())
    }

    fn make() -> io::Result<Self> {
        let stops = Arc::default();
        if !is_ignored(SIGTSTP) {
            signal_hook::flag::register(SIGTSTP, Arc::clone(&stops))?;
        }
        restore_terminal_on_fault(PUT_BACK)?;
        ignore_reserved();
        take()?;
        let area = area();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(area),
        };
        let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), options)?;
        Ok(Self {
            terminal: ManuallyDrop::new(terminal),
            input: io::stdin().as_fd().try_clone_to_owned()?.into(),
            area,
            stops,
        })
    }

    /// Stops the process if SIGTSTP came, until SIGCONT; then the page is drawn anew.
    fn stop(&mut self) -> io::Result<()> {
        if self.stops.swap(false, Ordering::Relaxed) {
            put_back();
            raise(SIGSTOP)?;
            take()?;
            self.area = Rect::ZERO;
        }
        Ok(())
    }

    /// Draws, at the size that the terminal has now.
    ///
    /// # Errors
    /// If the terminal takes nothing.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        if self.is_resized() {
            self.area = area();
            execute!(stdout(), Clear(ClearType::All))?;
            self.terminal.resize(self.area)?;
        }
        self.terminal.draw(draw).map(drop)
    }

    pub(super) fn is_resized(&self) -> bool {
        area() != self.area
    }

    /// The keys that were pressed, waited for so long at most; none once the terminal has gone.
    pub(super) fn keys(&mut self, timeout: Duration) -> Option<Vec<KeyEvent>> {
        let mut bytes = [0; 1024];
        self.stop().ok()?;
        match terminal::await_input(timeout) {
            Ok(false) => return Some(Vec::new()),
            Ok(true) => {}
            Err(_) => return None,
        }
        match self.input.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Some(Vec::new()),
            Ok(0) | Err(_) => None,
            Ok(read) => Some(parse(&String::from_utf8_lossy(&bytes[..read]))),
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        put_back();
    }
}

/// True if the terminal on standard input has gone.
pub(super) fn has_gone() -> bool {
    terminal::await_input(Duration::ZERO).is_err()
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)
}

/// Puts the terminal back. One that has gone needs nothing.
fn put_back() {
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
}

/// Does the same from another thread, as far as the terminal accepts it. The console's thread may
/// hold the lock of standard output indefinitely.
pub(super) fn put_back_unheld() {
    let _ = disable_raw_mode();
    if let Ok(true) = takes_output()
        && let Ok(output) = stdout().as_fd().try_clone_to_owned()
    {
        let mut output = BufWriter::new(File::from(output));
        let _ = execute!(output, LeaveAlternateScreen, Show);
    }
}

fn takes_output() -> io::Result<bool> {
    let epoll = Epoll::new().map_err(|error| error.source)?;
    let mut events = Events::new(1);
    epoll.add(stdout(), 0, Interest::WRITE)?;
    epoll.wait(&mut events, Some(Duration::ZERO))?;
    Ok(events.at(0).is_some_and(|event| event.is_writable()))
}

/// Where the page is drawn.
fn area() -> Rect {
    sane(terminal::size().unwrap_or_default())
}

fn sane((columns, rows): (u16, u16)) -> Rect {
    let sane = |size: u16, usual: u16, largest: u16| match size {
        0 => usual,
        _ => size.min(largest),
    };
    Rect::new(
        0,
        0,
        sane(columns, USUAL.0, LARGEST.0),
        sane(rows, USUAL.1, LARGEST.1),
    )
}

/// The keys for these bytes. Unknown keys are left out.
fn parse(mut text: &str) -> Vec<KeyEvent> {
    let mut keys = Vec::new();
    while let Some(first) = text.chars().next() {
        let known = SEQUENCES.iter().find(|(bytes, _)| text.starts_with(bytes));
        let (length, code) = match (known, first) {
            (Some((bytes, code)), _) => (bytes.len(), Some(*code)),
            (None, '\x1b') => escape(text),
            (None, '\r' | '\n') => (1, Some(KeyCode::Enter)),
            (None, '\t') => (1, Some(KeyCode::Tab)),
            (None, '\x7f' | '\x08') => (1, Some(KeyCode::Backspace)),
            (None, '\x03') => (1, Some(KeyCode::Char('c'))),
            (None, other) if other.is_control() => (1, None),
            (None, other) => (other.len_utf8(), Some(KeyCode::Char(other))),
        };
        let modifiers = match first {
            '\x03' => KeyModifiers::CONTROL,
            _ => KeyModifiers::NONE,
        };
        keys.extend(code.map(|code| KeyEvent::new(code, modifiers)));
        text = text.get(length..).unwrap_or_default();
    }
    keys
}

/// The length of what begins with Esc, and the key, if it is that.
fn escape(text: &str) -> (usize, Option<KeyCode>) {
    // A control sequence has parameters, and ends with a letter of this range (ECMA-48, 5.4).
    match text.strip_prefix("\x1b[") {
        Some(rest) => {
            let end = rest.find(|letter| ('@'..='~').contains(&letter));
            (end.map_or(text.len(), |end| end + 3), None)
        }
        None => (1, Some(KeyCode::Esc)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_size_is_absurd() {
        let sizes = [(0, 0), (0, 50), (1, 1), (132, 43), (u16::MAX, u16::MAX)];
        let sane = sizes.map(sane).map(|area| (area.width, area.height));
        assert_eq!(sane, [USUAL, (USUAL.0, 50), (1, 1), (132, 43), LARGEST]);
    }

    #[test]
    fn bytes_are_keys() {
        let codes = |text| {
            let keys = parse(text).into_iter();
            keys.map(|key| key.code).collect::<Vec<_>>()
        };
        use KeyCode::*;
        assert_eq!(
            codes("q\x1b[A\x1bOB\x1b[5~\x1b[Z\r\x7f\t"),
            [Char('q'), Up, Down, PageUp, BackTab, Enter, Backspace, Tab]
        );
        assert_eq!(codes("\x1b"), [Esc]);
        assert_eq!(codes("\x1bx\u{e4}"), [Esc, Char('x'), Char('\u{e4}')]);
        // F5, Shift-Up, half a sequence, and a control letter.
        assert_eq!(codes("\x1b[15~\x1b[1;2Ap\x1b["), [Char('p')]);
        assert_eq!(codes("\0z"), [Char('z')]);
        let interrupt = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(parse("\x03"), [interrupt]);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes: Vec<u8>) {
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
