//! The `mpps` command as a library: the modules that its tests and fuzzers reach.
//!
//! Programs that want to receive packets use the `mpps-io` crate; this one is the instrument.
#![forbid(unsafe_code)]

/// One file per subcommand.
pub mod command;
/// The measurements: the ladder, the receive paths, connections.
pub mod experiment;
/// Messages for failures, with their remedies.
mod failure;
/// Files that users name to be read.
mod input;
/// The machine that a result is of.
mod machine;
/// Repeats, their spread, and the test of changes against the noise.
pub mod measure;
/// Standard output and error, which may close at any time.
mod output;
/// Programs that run until they are stopped.
pub mod program;
/// Ctrl-C and its kin.
mod signal;
/// One run of UDP datagrams.
pub mod udp;
/// Values with units: `1.5M`, `64k`, `2.5s`.
mod value;

pub use command::{BackendsObject, main};
