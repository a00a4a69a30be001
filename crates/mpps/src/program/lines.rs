//! The lines that a program prints while it runs, and the wait for its end.

use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
pub(crate) use crate::signal::LOOK;
use anyhow::{Result, bail};
use clap::Args;
use mpps_io::{Backend, Mode, Property};
use mpps_os::clock::monotonic_ns;
use mpps_report::Block;
use serde::Serialize;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// The help of `--json` where it writes several objects.
pub(crate) const JSON_LINES: &str = "Write JSON to FILE, in addition to the text; without FILE, to standard \
                                     output instead of the text. One object per line: each second, then \
                                     the totals";

/// `--json[=FILE]`, as every command has it that writes JSON.
#[derive(Debug, Clone, Args)]
pub(crate) struct JsonArgs {
    /// Write JSON to FILE, in addition to the text; without FILE, to standard output instead of the
    /// text
    #[arg(id = "json", long = "json", value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    file: Option<PathBuf>,
}

impl JsonArgs {
    /// True if JSON is wanted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.file.is_some()
    }

    /// Opens the file before anything is done.
    pub(crate) fn begin(&self) -> Result<OutputLines> {
        if let Some(path) = &self.file {
            output::json_to(path)?;
        }
        Ok(OutputLines {
            json: self.is_wanted(),
            text: self
                .file
                .as_ref()
                .is_none_or(|path| path.as_os_str() != "-"),
        })
    }
}

/// Lines for people on standard output, and objects for programs, one a line, as `--json` says.
/// While objects have standard output, people read standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLines {
    /// True with `--json`.
    pub(crate) json: bool,
    /// True if people read standard output.
    pub(crate) text: bool,
}

impl OutputLines {
    /// Lines for people only.
    pub(crate) const PEOPLE: Self = Self {
        json: false,
        text: true,
    };

    /// A line for people.
    pub(crate) fn say(self, text: &str) -> Result<()> {
        Ok(output::sentence(OutputStream::People, text)?)
    }

    /// A piece of a report for people.
    pub(crate) fn tell(self, blocks: &[Block]) -> Result<()> {
        Ok(output::blocks(OutputStream::People, blocks)?)
    }

    /// An object for programs, if they are served.
    pub(crate) fn object(self, object: &impl Serialize) -> Result<()> {
        if self.json {
            output::line(OutputStream::Json, &output::json(object)?)?;
        }
        Ok(())
    }

    /// Writes the result of a command: as JSON, and as text if people read standard output.
    pub(crate) fn found(
        self,
        found: &impl Serialize,
        blocks: impl FnOnce() -> Vec<Block>,
    ) -> Result<()> {
        if self.json {
            output::text(OutputStream::Json, &output::pretty_json(found)?)?;
        }
        match self.text {
            true => self.tell(&blocks()),
            false => Ok(()),
        }
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

/// Calls `look` every 20 ms, and at the moment that it returned. Ends when it returns none or a
/// signal asks to stop. `first_ns` is the first such moment (`CLOCK_MONOTONIC`, nanoseconds).
pub(crate) fn until_stopped(
    interrupt: &EndSignal,
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
