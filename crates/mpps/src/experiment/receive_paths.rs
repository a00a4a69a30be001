//! Every way to receive, over the same traffic, in one table.
//!
//! A `UdpTrial` is one way to receive in a layout of CPUs. Its repeats give a row. `comparison` has every
//! path in every layout. `overload` offers more than a path can take. `spread` brings the traffic by
//! more and more queues. `far_traffic` takes the traffic of another host, and can make that host
//! send for each trial. `ndr` runs the trials that `search` asks for. `search` is MLRsearch without I/O.

mod advice;
mod comparison;
mod document;
mod far_traffic;
/// The highest rate without loss of each path.
pub mod ndr;
mod overload;
pub mod result;
mod run;
mod search;
mod spread;

pub(crate) use advice::advice;
pub(crate) use document::{answer, balances, document};
pub(crate) use run::BenchPlan;
