//! What every measurement needs: repeats, their spread, and change told from noise.

/// The account of connections as an equation.
pub(crate) mod connection_ledger;
/// What the documents of all experiments have in common.
pub(crate) mod document;
/// What every result file begins with.
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
/// How long and how often, and into which files.
pub(crate) mod series;
/// What every experiment has around its runs.
pub(crate) mod session;
