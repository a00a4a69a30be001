//! `cargo xtask docs`: tables of the documentation that come from the code.

use anyhow::{Context, Result, bail};
use mpps_io::{BACKENDS, Layer};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The file with the table of backends.
pub(crate) const README: &str = "README.md";
/// The line before the table.
const OPEN: &str = "<!-- backends -->";
/// The line after it.
const CLOSE: &str = "<!-- /backends -->";

/// Writes the table of backends into the README.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let path = root.join(README);
    let text = fs::read_to_string(&path).context(README)?;
    let Some(written) = with_backends(&text) else {
        bail!("{README} has no place for the table: a line {OPEN} and below it a line {CLOSE}");
    };
    if written != text {
        fs::write(&path, written).context(README)?;
        println!("docs: wrote the table of backends in {README}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The text with the table of backends between its two markers, if it has them.
pub(crate) fn with_backends(text: &str) -> Option<String> {
    let start = text.find(&format!("{OPEN}\n"))? + OPEN.len() + 1;
    let end = start + text[start..].find(CLOSE)?;
    let (before, after) = (&text[..start], &text[end..]);
    Some(format!("{before}{}{after}", backends()))
}

/// The table of backends in Markdown.
fn backends() -> String {
    let mut table = String::from(
        "| backend | direction | packets are | needs | takes the NIC | what it is |\n\
         |---|---|---|---|---|---|\n",
    );
    for backend in BACKENDS {
        let direction = match (backend.receives(), backend.sends()) {
            (true, true) => "receives, sends",
            (true, false) => "receives",
            (false, true) => "sends",
            (false, false) => "none",
        };
        let layer = match backend.layer {
            Layer::Payload => "UDP payloads",
            Layer::Frame => "frames",
        };
        let takes_nic = if backend.takes_nic { "yes" } else { "no" };
        let (name, needs, summary) = (backend.name, backend.needs, backend.summary);
        table.push_str(&format!(
            "| `{name}` | {direction} | {layer} | {needs} | {takes_nic} | {summary} |\n"
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_has_a_row_of_six_cells() {
        let table = backends();
        assert_eq!(table.lines().count(), BACKENDS.len() + 2);
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 7, "{line}");
        }
    }

    #[test]
    fn the_table_is_put_between_the_markers_and_stays() {
        let text = format!("a\n{OPEN}\nold\n{CLOSE}\nb\n");
        let written = with_backends(&text).unwrap();
        assert_eq!(written, format!("a\n{OPEN}\n{}{CLOSE}\nb\n", backends()));
        assert_eq!(with_backends(&written), Some(written));
    }

    #[test]
    fn without_both_markers_there_is_no_place() {
        assert_eq!(with_backends("a\n"), None);
        assert_eq!(with_backends(&format!("{OPEN}\n")), None);
        assert_eq!(with_backends(&format!("{CLOSE}\n{OPEN}\n")), None);
    }
}
