//! What takes the packets of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What takes the packets of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TakenBy {
    /// Sockets.
    #[default]
    Socket,
    /// A ring that a program shares with the kernel.
    Ring,
    /// A rule that drops and counts them: nobody receives, and the rate is the ceiling of all who
    /// could.
    Rule,
}

impl TakenBy {
    /// True if sockets do.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands fields over by reference"
    )]
    pub(crate) fn is_socket(&self) -> bool {
        *self == Self::Socket
    }
}
