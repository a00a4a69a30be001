//! How long, how often and into which files: the arguments that experiments share.

use super::session::Session;
use crate::signal::EndSignal;
use crate::value;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Repeated runs, which are kept in files; with `--quick` each takes so long.
#[derive(Debug, Args)]
pub(crate) struct Series<const QUICK_MS: u64 = 350> {
    /// Run each measurement once and briefly, to try it; too short for conclusions
    #[arg(long, conflicts_with_all = ["duration", "repeat"])]
    pub(crate) quick: bool,
    /// Set the length of each run [default: 500ms]
    #[arg(long, alias = "seconds", value_name = "TIME", value_parser = value::seconds)]
    pub(crate) duration: Option<Duration>,
    /// Run each measurement N times, in N rounds over all of them
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// Write JSON to FILE; without FILE, to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl<const QUICK_MS: u64> Series<QUICK_MS> {
    /// The length of each run.
    pub(crate) fn time(&self) -> Duration {
        match self.quick {
            true => Duration::from_millis(QUICK_MS),
            false => self.duration.unwrap_or(Duration::from_millis(500)),
        }
    }

    /// Runs of each.
    pub(crate) fn repeats(&self) -> usize {
        if self.quick { 1 } else { self.repeat.into() }
    }

    /// Tries both files before anything is measured; `name` is the command's.
    pub(crate) fn begin(&self, name: &str, interrupt: EndSignal) -> Result<Session> {
        let (json, html) = (self.json.as_deref(), self.html.as_deref());
        let mut session = Session::begin(name, json, html, interrupt)?;
        session.quick = self.quick;
        Ok(session)
    }
}
