//! Tools for every measurement: repeats, their spread, and the test of changes against the noise.

/// The account of connections as an equation.
pub(crate) mod connection_ledger;
/// The common parts of the documents of all experiments.
pub(crate) mod document;
/// The head of every result file.
pub mod envelope;
/// Whether two sets of repeats differ.
pub(crate) mod noise;
/// How a run ended, and what could not be put back after it.
pub(crate) mod outcome;
/// Cases in turn, round after round.
pub(crate) mod rounds;
/// Median and spread.
pub(crate) mod samples;
/// The published schemas of result files.
pub mod schema;
/// The rates of seconds, drawn.
pub(crate) mod seconds;
/// How long and how often, and into which files.
pub(crate) mod series;
/// The frame around an experiment's runs.
pub(crate) mod session;
