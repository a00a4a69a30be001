//! Arguments of `mpps backends`.

use clap::Args;

/// Arguments of `mpps backends`.
#[derive(Debug, Args)]
pub(crate) struct BackendsArgs {
    /// Tell of this interface which techniques it has, those of other programs included
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Attach an XDP program that takes nothing, and bind an AF_XDP socket to queue 0, in each of
    /// the three ways, then undo it: some cards take their link down for seconds
    #[arg(long = "try", requires = "interface")]
    pub(crate) tries: bool,
    /// Write it as JSON to standard output, with the facts it rests on
    #[arg(long)]
    pub(crate) json: bool,
}
