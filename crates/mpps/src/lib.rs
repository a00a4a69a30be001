//! The `mpps` command as a library: the modules that its tests, fuzzers and benchmarks reach.
//!
//! Programs that want to receive packets use the `mpps-io` crate; this one is the instrument.
#![forbid(unsafe_code)]

/// What the command line may say, checked in one conversion.
mod args;
/// Every way to receive, over the same traffic, in one table.
pub mod bench;
/// One file per subcommand.
mod command;
/// Two results of the ladder, change told from noise.
mod compare;
/// What `serve` and `load` found, as they write it with `--json`.
pub mod connections;
/// What is said when something cannot be done, and what helps.
mod failure;
/// The million-packet ladder.
mod ladder;
/// Rates over measured intervals.
mod meter;
/// Standard output and error, which may close at any time.
mod output;
/// Renderers of the ladder's result.
mod report;
/// The ladder's result file.
pub mod result;
/// Ctrl-C and its kin.
mod signal;
/// What short TCP connections cost, on two hosts inside this machine.
pub mod tcp_lab;
/// What `recv` and `send` found, as they write it with `--json`.
pub mod traffic;
/// Values with units: `1.5M`, `64k`, `2.5s`.
mod value;

pub use command::main;
