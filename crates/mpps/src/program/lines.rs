//! What a program says while it runs, and how it waits for its end.

use crate::output::{self, Stream};
use crate::signal::Interrupt;
use anyhow::{Result, bail};
use mpps_io::{Backend, Mode, Property};
use mpps_os::clock::monotonic_ns;
use mpps_report::Block;
use serde::Serialize;
use std::thread;
use std::time::Duration;

/// How often a program looks for Ctrl-C, the first packet and finished workers.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Lines for people on standard output; with `--json` they are on standard error, and objects for
/// programs, one a line, have standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    /// True with `--json`.
    pub(crate) json: bool,
}

impl Lines {
    /// A line for people.
    ///
    /// # Errors
    /// If the stream cannot take it; this is so of the others, too.
    pub(crate) fn say(self, text: &str) -> Result<()> {
        Ok(output::line(self.stream(), text)?)
    }

    /// A piece of a report for people.
    pub(crate) fn tell(self, blocks: &[Block]) -> Result<()> {
        Ok(output::blocks(self.stream(), blocks)?)
    }

    /// Where lines for people go.
    pub(crate) fn stream(self) -> Stream {
        if self.json { Stream::Err } else { Stream::Out }
    }

    /// An object for programs, if they are served.
    pub(crate) fn object(self, object: &impl Serialize) -> Result<()> {
        if self.json {
            output::line(Stream::Out, &output::json(object)?)?;
        }
        Ok(())
    }
}

/// Fails if the kernel granted a backend less than was required.
pub(crate) fn require(backend: &Backend, granted: &Mode, required: &[Property]) -> Result<()> {
    let lacking = granted.lacks(required);
    let Some(first) = lacking.first() else {
        return Ok(());
    };
    let name = backend.name;
    bail!("--require {first}: not granted; {name} works as: {granted}")
}

/// Calls `look` every 20 ms, and at the moment that it names, until it names none or somebody asks
/// to stop; `first_ns` is the first such moment (`CLOCK_MONOTONIC`, nanoseconds).
pub(crate) fn until_stopped(
    interrupt: &Interrupt,
    first_ns: u64,
    mut look: impl FnMut() -> Result<Option<u64>>,
) -> Result<()> {
    let mut next_ns = Some(first_ns);
    while let Some(at_ns) = next_ns.filter(|_| !interrupt.came()) {
        let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
        thread::sleep(LOOK.min(left));
        next_ns = look()?;
    }
    Ok(())
}
