//! A line on standard error that shows how far a run is.

use super::{OutputStream, bytes, may_show_bar, printable};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use mpps_os::terminal::columns;
use std::io;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// How often a second it is drawn at most.
const DRAWN_HZ: u8 = 20;
/// The width of a terminal that does not report it.
const COLUMNS: u16 = 80;
/// Columns left free for the `^C` that a terminal echoes twice: a line that it fills goes on in the
/// next one, and only that would be cleared.
const ECHO: u16 = 5;

/// Shows the progress of a run of `steps`. Shows nothing if standard error is no terminal, or a
/// terminal that must not be steered.
pub(crate) fn bar(steps: u64, template: &str) -> PrintableBar {
    let target = match may_show_bar() {
        true => ProgressDrawTarget::term_like_with_hz(Box::new(BarFrame::default()), DRAWN_HZ),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    PrintableBar(ProgressBar::with_draw_target(Some(steps), target).with_style(style))
}

/// A bar whose message is printable.
pub(crate) struct PrintableBar(ProgressBar);

impl PrintableBar {
    /// Shows a message beside the bar.
    pub(crate) fn set_message(&self, text: impl AsRef<str>) {
        self.0.set_message(printable(text.as_ref()));
    }
}

impl Deref for PrintableBar {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.0
    }
}

/// The text to draw at once. It takes the way of all output, which gives up a blocked terminal. The
/// library itself would wait in write(2).
#[derive(Debug, Default)]
struct BarFrame(Mutex<String>);

impl BarFrame {
    fn add(&self, text: &str) -> io::Result<()> {
        let mut frame = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frame.push_str(text);
        Ok(())
    }

    /// Moves the cursor (console_codes(4)); 0 would be 1.
    fn go(&self, cells: usize, way: char) -> io::Result<()> {
        match cells {
            0 => Ok(()),
            _ => self.add(&format!("\x1b[{cells}{way}")),
        }
    }
}

impl TermLike for BarFrame {
    fn width(&self) -> u16 {
        columns(io::stderr())
            .unwrap_or(COLUMNS)
            .saturating_sub(ECHO)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.go(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.go(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.go(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.go(columns, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let mut frame = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bytes(OutputStream::Err, std::mem::take(&mut *frame).as_bytes())
    }
}
