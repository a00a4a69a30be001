//! The frame around an experiment's runs: its files, Ctrl-C, and the progress.

use super::envelope::{Envelope, EnvelopeBody};
use super::outcome::{CommandEnding, ended};
use crate::machine;
use crate::output::{self, OutputStream, PrintableBar, file::OutputFile};
use crate::signal::EndSignal;
use anyhow::Result;
use mpps_host::Fingerprint;
use mpps_report::Document;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// An experiment under way.
#[derive(Debug)]
pub(crate) struct Session {
    /// None if standard output has it.
    json: Option<OutputFile>,
    page: OutputFile,
    /// True if its runs are too short to be compared with others.
    pub(crate) quick: bool,
    pub(crate) interrupt: EndSignal,
    /// When it began, RFC 3339, UTC.
    pub(crate) started: String,
}

impl Session {
    /// Tries both files before anything is measured.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn begin(json: &Path, page: &Path, interrupt: EndSignal) -> Result<Self> {
        let page = OutputFile::claim("--html", page)?;
        let json = match json.as_os_str() == "-" {
            true => {
                output::json_to(json)?;
                None
            }
            false => Some(OutputFile::claim("--json", json)?),
        };
        Ok(Self {
            json,
            page,
            quick: false,
            interrupt,
            started: machine::now(),
        })
    }

    /// The files, as kinds and paths.
    pub(crate) fn files(&self) -> Vec<(&'static str, &Path)> {
        let data = self.json.as_ref().map(|json| ("data", json.path()));
        std::iter::once(("report", self.page.path()))
            .chain(data)
            .collect()
    }

    /// The result on this machine so far: only `body` yet.
    pub(crate) fn result<T: EnvelopeBody>(&self, machine: Fingerprint, body: T) -> Envelope<T> {
        let command = machine::command_line();
        let mut result = Envelope::new(machine, command, self.started.clone(), body);
        result.quick = self.quick;
        result
    }

    /// Writes what is known so far to the data file, so that no failure takes it away.
    pub(crate) fn keep(&self, result: &impl Serialize) {
        if let (Some(file), Ok(text)) = (&self.json, json(result)) {
            file.keep(text.as_bytes());
        }
    }

    /// Writes both files, the page also if the data cannot be written.
    ///
    /// # Errors
    /// If one cannot be written, or if the result has a number that JSON cannot say.
    pub(crate) fn write(&self, result: &impl Serialize, document: &Document) -> Result<()> {
        let data = json(result).map_err(Into::into);
        let data = data.and_then(|text| match &self.json {
            Some(file) => file.write(text.as_bytes()),
            None => Ok(output::text(OutputStream::Json, &text)?),
        });
        let page = self.page.write(mpps_report::page(document).as_bytes());
        ended(page, data)
    }

    /// Writes both files, prints the report, and returns how the run ended.
    ///
    /// # Errors
    /// As [`Session::write`]'s, and if standard output takes no more.
    pub(crate) fn conclude<T: Serialize>(
        &self,
        result: &Envelope<T>,
        document: &Document,
        balances: bool,
    ) -> Result<CommandEnding> {
        self.write(result, document)?;
        output::blocks(OutputStream::People, &document.blocks)?;
        Ok(CommandEnding::of(result.complete, balances))
    }
}

/// A result as the text of its data file: indented, with a line end.
pub(crate) fn json(result: &impl Serialize) -> serde_json::Result<String> {
    // Sentences keep a figure and its unit together by this blank, which users would not search
    // for.
    let text = output::pretty_json(result)?.replace('\u{a0}', " ");
    Ok(text + "\n")
}

/// A line on standard error that shows the progress of a run of `steps` steps.
pub(crate) fn progress(steps: usize) -> PrintableBar {
    let template = "{bar:20} {pos}/{len} ends in {eta}  {wide_msg}";
    let bar = output::bar(steps as u64, template);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use crate::program::connections::LoadResult;

    const FIXTURE: &str = include_str!("../../tests/fixtures/load.json");

    #[test]
    fn what_was_read_is_written_back_byte_for_byte() {
        let result: LoadResult = LoadResult::parse(FIXTURE).unwrap();
        let text = super::json(&result).unwrap();
        assert_eq!(text, FIXTURE);
    }
}
