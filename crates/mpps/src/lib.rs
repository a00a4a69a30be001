//! The `mpps` command as a library: the modules that its tests, fuzzers and benchmarks reach.
//!
//! Programs that want to receive packets use the `mpps-io` crate; this one is the instrument.
#![forbid(unsafe_code)]

/// What the command line may say, checked in one conversion.
mod args;
/// One file per subcommand.
mod command;
/// What is measured: the ladder, the receive paths, connections.
pub mod experiment;
/// What is said when something cannot be done, and what helps.
mod failure;
/// Files that users name to be read.
mod input;
/// The machine that a result is of.
mod machine;
/// Repeats, their spread, and change told from noise.
pub mod measure;
/// Standard output and error, which may close at any time.
mod output;
/// What runs until it is stopped.
pub mod program;
/// Ctrl-C and its kin.
mod signal;
/// One run of UDP datagrams.
pub mod udp;
/// Values with units: `1.5M`, `64k`, `2.5s`.
mod value;

pub use command::{BackendsObject, main};
