//! Every way to receive, over the same traffic, in one table.
//!
//! A `Stage` is a lab with somebody on each CPU; a `Path` is one way to receive; a run of a path
//! on a stage gives a `Sample`, and its repeats give a row. `comparison` has every path on every
//! stage, `overload` offers more than a path can take, `spread` brings the traffic by more and more
//! queues, and `live` takes what another host sends.

mod advice;
mod comparison;
mod document;
mod live;
mod overload;
mod path;
pub mod result;
mod rotation;
mod run;
mod sample;
mod sender;
mod spread;
mod stage;

pub(crate) use advice::advice;
pub(crate) use comparison::{Plan as RowPlan, cases};
pub(crate) use document::{balances, document};
pub(crate) use path::{Napi, PATHS, Path};
pub(crate) use run::Plan;
pub(crate) use sample::Sample;
pub(crate) use sender::Sender;
pub(crate) use stage::Stage;
