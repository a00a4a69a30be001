//! The measurements that `mpps` makes by itself. Each module is an experiment: a plan, its runs,
//! its result, and the document about it.

/// The cost of short TCP connections, on two hosts inside this machine.
pub mod connections;
/// The million-packet ladder.
pub mod ladder;
/// Every way to receive, over the same traffic, in one table.
pub mod receive_paths;
