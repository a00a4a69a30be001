//! Every way to receive, over the same traffic, in one table.
//!
//! A `PathLab` is a lab with a task on each CPU. A `Path` is one way to receive. A run of a path on a
//! stage gives a `UdpRun`, and its repeats give a row. `comparison` has every path on every stage.
//! `overload` offers more than a path can take. `spread` brings the traffic by more and more
//! queues. `live` takes the traffic of another host, and `remote` makes that host send for each
//! trial. `ndr` runs the trials that `search` asks for. `search` is MLRsearch without I/O.

mod advice;
mod comparison;
mod document;
mod far_traffic;
/// The highest rate without loss of each path.
pub mod ndr;
mod overload;
mod remote;
pub mod result;
mod run;
mod sample;
mod search;
mod sender;
mod spread;
mod stage;

pub(crate) use advice::advice;
pub(crate) use comparison::{ComparedPath as RowPlan, cases};
pub(crate) use document::{balances, document};
pub(crate) use run::BenchPlan;
pub(crate) use sender::PathSender;
pub(crate) use stage::NapiPlace;
pub(crate) use stage::PathLab;
