//! Who sends in a lab: an argument of all that measure receivers there.

use clap::ValueEnum;

/// Who sends in a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GeneratorArg {
    /// The one that outruns the receiver
    Auto,
    /// The kernel's own generator
    Xdp,
    /// A sending socket
    Sendmmsg,
}

impl GeneratorArg {
    /// The backend that was asked for; none if the choice is ours.
    pub(crate) fn backend(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Xdp => Some("xdp"),
            Self::Sendmmsg => Some("sendmmsg"),
        }
    }
}
