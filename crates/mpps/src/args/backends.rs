//! Arguments of `mpps backends`.

use clap::Args;

/// Arguments of `mpps backends`.
#[derive(Debug, Args)]
pub(crate) struct BackendsArgs {
    /// Tell of this interface which techniques it has, those of other programs included
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Write it as JSON to standard output, with the facts it rests on
    #[arg(long)]
    pub(crate) json: bool,
}
