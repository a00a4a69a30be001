//! What `mpps` measures by itself, one module an experiment: a plan, its runs, its result, and the
//! document that tells it.

/// What short TCP connections cost, on two hosts inside this machine.
pub mod connections;
/// The million-packet ladder.
pub mod ladder;
/// Every way to receive, over the same traffic, in one table.
pub mod paths;
/// Where the receiver runs relative to its queue's CPU.
pub mod placement;
