//! The frame around an experiment's runs: its files, Ctrl-C, and the progress.

use super::envelope::{Envelope, EnvelopeBody};
use super::outcome::{CommandEnding, ended};
use crate::machine;
use crate::output::file::{OutputFile, UnwritablePlace};
use crate::output::{self, OutputStream, PrintableBar};
use crate::signal::EndSignal;
use anyhow::{Result, anyhow};
use mpps_host::Fingerprint;
use mpps_report::{Block, Document};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// An experiment under way.
#[derive(Debug)]
pub(crate) struct Session {
    /// None if standard output has it, or if it is among the missing.
    json: Option<OutputFile>,
    page: Option<OutputFile>,
    /// Why files that no option names will be missing: their folder takes none.
    missing: Vec<String>,
    /// True if its runs are too short to be compared with others.
    pub(crate) quick: bool,
    pub(crate) interrupt: EndSignal,
    /// When it began, RFC 3339, UTC.
    pub(crate) started: String,
}

impl Session {
    /// Tries both files before anything is measured: those that options name, otherwise those of the
    /// command. A folder that takes no file costs the latter and not the run.
    pub(crate) fn begin(
        name: &str,
        json: Option<&Path>,
        page: Option<&Path>,
        interrupt: EndSignal,
    ) -> Result<Self> {
        let mut missing = Vec::new();
        let mut claim = |option: &str, named: Option<&Path>| {
            let own = format!("{name}.{}", option.trim_start_matches('-'));
            match OutputFile::claim(option, named.unwrap_or(own.as_ref())) {
                Err(error) if named.is_none() && error.is::<UnwritablePlace>() => {
                    missing.push(error.to_string());
                    Ok(None)
                }
                claimed => claimed.map(Some),
            }
        };
        let page = claim("--html", page)?;
        let json = match json {
            Some(json) if json.as_os_str() == "-" => {
                output::json_to(json)?;
                None
            }
            json => claim("--json", json)?,
        };
        Ok(Self {
            json,
            page,
            missing,
            quick: false,
            interrupt,
            started: machine::now(),
        })
    }

    /// The files, as kinds and paths.
    pub(crate) fn files(&self) -> Vec<(&'static str, &Path)> {
        let files = [("report", &self.page), ("data", &self.json)];
        let files = files.into_iter();
        files
            .filter_map(|(kind, file)| Some((kind, file.as_ref()?.path())))
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
    pub(crate) fn write(&self, result: &impl Serialize, document: &Document) -> Result<()> {
        let data = json(result).map_err(Into::into);
        let data = data.and_then(|text| match &self.json {
            Some(file) => file.write(text.as_bytes()),
            None if output::has_json() => Ok(output::text(OutputStream::Json, &text)?),
            None => Ok(()),
        });
        let page = self.page.as_ref();
        let page = page.map_or(Ok(()), |page| {
            page.write(mpps_report::page(document).as_bytes())
        });
        let missing = match self.missing.is_empty() {
            true => Ok(()),
            false => Err(anyhow!(self.missing.join("; "))),
        };
        ended(ended(page, data), missing)
    }

    /// Writes both files, prints these blocks, and returns how the run ended.
    pub(crate) fn conclude<T: Serialize>(
        &self,
        result: &Envelope<T>,
        document: &Document,
        shown: &[Block],
        balances: bool,
    ) -> Result<CommandEnding> {
        let written = self.write(result, document);
        let printed = output::blocks(OutputStream::People, shown);
        ended(printed.map_err(Into::into), written)?;
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
