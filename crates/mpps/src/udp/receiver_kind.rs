//! The kind of receiver of a run's packets: sockets, a ring or a rule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of receiver of a run's packets: sockets, a ring or a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TakenBy {
    /// Sockets.
    #[default]
    Socket,
    /// A ring that a program shares with the kernel.
    Ring,
    /// A rule that drops and counts them. No program receives. The rate is the ceiling for all
    /// programs that could.
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
