//! `mpps backends`: the table of ways to receive and send.

use super::Outcome;
use crate::output::{self, Stream};
use anyhow::Result;
use mpps_io::backend::Support;
use mpps_io::{BACKENDS, Layer};

/// Prints one line per row of the table.
pub(super) fn run() -> Result<Outcome> {
    output::line(
        Stream::Out,
        " backend   direction  usable  packets are   what it is",
    )?;
    for backend in BACKENDS {
        let direction = match (backend.receives(), backend.sends()) {
            (true, true) => "recv, send",
            (true, false) => "recv",
            _ => "send",
        };
        let (usable, why) = match (backend.probe)() {
            Support::Yes => ("yes", String::new()),
            Support::No { why, remedy } => ("no", format!(" ({why}; {remedy})")),
        };
        let layer = match backend.layer {
            Layer::Payload => "UDP payloads",
            Layer::Frame => "frames",
        };
        let (name, summary) = (backend.name, backend.summary);
        let line = format!(" {name:<9} {direction:<10} {usable:<7} {layer:<13} {summary}{why}");
        output::line(Stream::Out, &line)?;
    }
    Ok(Outcome::Fine)
}
