//! `mpps compare A.json B.json`.

use super::CommandEnding;
use crate::experiment::ladder::compare::compare;
use crate::experiment::ladder::result::LabResult;
use crate::input;
use crate::program::lines::JsonArgs;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `mpps compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Read the earlier result: the JSON file of `mpps lab` (not of lab tcp, bench or ndr)
    pub(crate) a: PathBuf,
    /// Read the later result: the JSON file of `mpps lab`
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Compares two results; status 1 if the second is worse, or lacks what the first measured.
pub(super) fn run(args: &CompareArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let (a, b) = (load(&args.a)?, load(&args.b)?);
    let (a_name, b_name) = (args.a.display().to_string(), args.b.display().to_string());
    let comparison = compare((&a_name, &a), (&b_name, &b))?;
    lines.found(&comparison, || comparison.blocks())?;
    Ok(if comparison.worse {
        CommandEnding::Found
    } else {
        CommandEnding::Fine
    })
}

fn load(path: &Path) -> Result<LabResult> {
    LabResult::parse(&input::text(path)?).with_context(|| path.display().to_string())
}
