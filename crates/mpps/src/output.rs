//! Standard output and error, which may close at any time: a closed pipe ends a run quietly.
//!
//! All that this program prints passes here. Names of interfaces and programs, and the words of
//! result files and of other hosts, must not steer a terminal: a line lets clean characters through
//! and no others ([`mpps_report::harmless`]). Only this module has a renderer with colours.

mod bar;
pub(crate) mod file;

pub(crate) use bar::{PrintableBar, bar};

use crate::signal;
use mpps_os::terminal::write_all;
use mpps_report::{Block, Row, Table, Terminal, harmless};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// Text for people: standard output, or standard error while JSON has standard output.
    People,
    /// JSON: the file of `--json=FILE`, or standard output.
    Json,
}

/// Where JSON goes, once a command has said so: a file, or standard output.
static JSON: OnceLock<Option<file::OutputFileLines>> = OnceLock::new();

/// Sends JSON to this file, or to standard output. Text for people then leaves standard output.
pub(crate) fn json_to(path: &Path) -> anyhow::Result<()> {
    let file = match path.as_os_str() == "-" {
        true => None,
        false => file::OutputFile::claim("--json", path)?.into_lines(),
    };
    // A command says it once.
    let _ = JSON.set(file);
    Ok(())
}

/// True if JSON has a place.
pub(crate) fn has_json() -> bool {
    JSON.get().is_some()
}

/// Opens the file for JSON, if there is one, for a process that is to give up the right to.
pub(crate) fn open_json() -> anyhow::Result<()> {
    match JSON.get() {
        Some(Some(file)) => file.open(b""),
        _ => Ok(()),
    }
}

/// Writes one line, flushed, so that a reader behind a pipe sees it at once.
///
/// # Errors
/// If the stream cannot take it; [`is_closed`] distinguishes a closed pipe from a full disk.
pub(crate) fn line(stream: OutputStream, text: &str) -> io::Result<()> {
    bytes(stream, (printable(text) + "\n").as_bytes())
}

/// Writes a line for people, broken between words where a terminal is too narrow for it.
pub(crate) fn sentence(stream: OutputStream, text: &str) -> io::Result<()> {
    match columns() {
        Some(columns) => rendered(stream, &Terminal::new(columns, false).line(text)),
        None => line(stream, text),
    }
}

/// Writes several lines, such as Markdown and JSON.
pub(crate) fn text(stream: OutputStream, text: &str) -> io::Result<()> {
    bytes(stream, (printable_lines(text) + "\n").as_bytes())
}

/// Writes a piece of a report; nothing if it is empty. Standard output has colours.
pub(crate) fn blocks(stream: OutputStream, blocks: &[Block]) -> io::Result<()> {
    rendered(stream, &terminal(stream).blocks(blocks))
}

/// Writes the names of a table's columns, before its first row is known.
pub(crate) fn head(stream: OutputStream, table: &Table) -> io::Result<()> {
    rendered(stream, &terminal(stream).head(table))
}

/// Writes one row of a table.
pub(crate) fn row(stream: OutputStream, table: &Table, row: &Row) -> io::Result<()> {
    rendered(stream, &terminal(stream).row(table, row))
}

fn terminal(stream: OutputStream) -> Terminal {
    Terminal::new(width(), is_stdout(stream) && colour())
}

/// Writes what the renderer made: its words are clean, and its colours are its own.
fn rendered(stream: OutputStream, text: &str) -> io::Result<()> {
    match text.trim_end() {
        "" => Ok(()),
        text => bytes(stream, format!("{text}\n").as_bytes()),
    }
}

/// Writes the help of a command, in colours where they help.
pub(crate) fn help(stream: OutputStream, help: &clap::builder::StyledStr) -> io::Result<()> {
    let coloured = match is_stdout(stream) {
        true => colour(),
        false => may_show_bar(),
    };
    match coloured {
        true => rendered(stream, &help.ansi().to_string()),
        false => rendered(stream, &help.to_string()),
    }
}

/// An object as JSON in one line. Characters that are not clean are escaped, those, too, that JSON
/// takes as they are.
pub(crate) fn json(object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(object).map(escaped)
}

/// The same in many lines.
pub(crate) fn pretty_json(object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(object).map(escaped)
}

/// JSON whose strings have escapes for what is not clean; outside of strings there is none of it.
fn escaped(json: String) -> String {
    let is_clean = |letter: char| letter == '\n' || letter == harmless(letter);
    // A million flows are one text; no copy of it is made.
    if json.chars().all(is_clean) {
        return json;
    }
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_clean(letter) {
            true => text.push(letter),
            false => {
                let units = letter.encode_utf16(&mut [0; 2]).to_vec();
                text.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    text
}

/// How long a reader may take for the last words, after a signal to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes bytes as they are, and gives up as [`patience`] says.
fn bytes(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    if let (OutputStream::Json, Some(Some(file))) = (stream, JSON.get()) {
        return file.write(bytes);
    }
    let name = match is_stdout(stream) {
        true => "standard output",
        false => "standard error",
    };
    written(stream, bytes).map_err(|error| file::named(&name, &error))
}

fn written(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    match is_stdout(stream) {
        true => write_all(io::stdout().lock(), bytes, patience()),
        false => write_all(io::stderr().lock(), bytes, patience()),
    }
}

/// True if the stream is standard output now.
fn is_stdout(stream: OutputStream) -> bool {
    match stream {
        OutputStream::Out => true,
        OutputStream::Err => false,
        OutputStream::People => !matches!(JSON.get(), Some(None)),
        OutputStream::Json => !matches!(JSON.get(), Some(Some(_))),
    }
}

/// Decides when to give up a write. After a signal, a reader that takes nothing has some time only:
/// undoing changes must not wait for it.
fn patience() -> impl FnMut() -> bool {
    static HAS_GONE: AtomicBool = AtomicBool::new(false);
    let mut since = None;
    move || {
        let since: &mut Instant = match signal::came() {
            true => since.get_or_insert_with(Instant::now),
            false => return false,
        };
        let gone = HAS_GONE.load(Ordering::Relaxed) || since.elapsed() > PATIENCE;
        HAS_GONE.store(gone, Ordering::Relaxed);
        gone
    }
}

/// Lines on standard error, in place of a bar that stands there; the bar comes back below them.
pub(crate) fn above_bar(text: &str) -> io::Result<()> {
    let clear = if may_show_bar() { "\r\x1b[2K" } else { "" };
    let text = printable_lines(text);
    bytes(OutputStream::Err, format!("{clear}{text}\n").as_bytes())
}

/// The text as one line of clean characters: what comes from a file or from elsewhere must not
/// steer the terminal, nor end the line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(harmless).collect()
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.trim_end().split('\n').map(printable).collect();
    lines.join("\n")
}

/// True if the reader has gone, which is no error: `mpps recv | head`.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The width of the terminal in columns, or 100 where there is none.
pub(crate) fn width() -> usize {
    columns().unwrap_or(100)
}

fn columns() -> Option<usize> {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let columns = columns.or_else(|| mpps_os::terminal::columns(io::stdout()).map(usize::from));
    columns.map(|columns: usize| columns.clamp(20, 400))
}

/// True if colour helps on standard output.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal() && may_steer(|name| std::env::var_os(name))
}

/// True if standard error may show how far a run is.
fn may_show_bar() -> bool {
    io::stderr().is_terminal() && may_steer(|name| std::env::var_os(name))
}

/// True if a terminal knows colours and a cursor that moves (term(7)), and the user did not forbid
/// them (<https://no-color.org>).
fn may_steer(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    variable("TERM").is_none_or(|term| term != "dumb")
        && variable("NO_COLOR").is_none_or(|no| no.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_os::text::clean;

    #[test]
    fn reports_and_commands_agree_on_what_is_clean() {
        for letter in '\0'..=char::MAX {
            assert_eq!(harmless(letter), clean(letter), "{letter:?}");
        }
    }

    #[test]
    fn a_line_stays_one_and_lines_stay_lines() {
        let hostile = "a\x1b[2J\nb\r\u{9b}c\u{202e}\n";
        let shown = "a\u{fffd}[2J b \u{fffd}c\u{fffd} ";
        assert_eq!(printable(hostile), shown);
        assert_eq!(
            printable_lines(hostile),
            "a\u{fffd}[2J\nb \u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn json_has_no_character_that_steers_and_is_read_back() {
        let hostile: String = "eth0\x07\u{7f}\u{9b}\u{202e}\u{e0041}\u{feff} é\n".into();
        for text in [json(&[&hostile]), pretty_json(&[&hostile])] {
            let text = text.expect("it is text");
            assert!(
                text.chars().all(|one| one == '\n' || one == harmless(one)),
                "{text}"
            );
            assert!(
                text.contains("\\u009b\\u202e\\udb40\\udc41\\ufeff é"),
                "{text}"
            );
            let read: [String; 1] = serde_json::from_str(&text).expect("it is JSON");
            assert_eq!(read[0], hostile);
        }
    }

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
