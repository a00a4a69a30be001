//! Arguments of `mpps undo`.

use clap::Args;

/// Arguments of `mpps undo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 nothing is left, 1 somebody else has changed a setting since, \
    which was left as it is, 2 something could not be put back, or looked for."
)]
pub(crate) struct UndoArgs {
    /// Enter other network namespaces as well
    #[arg(long, conflicts_with = "list")]
    pub(crate) all: bool,
    /// Only list what is changed, also by runs that are still alive
    #[arg(long)]
    pub(crate) list: bool,
}
