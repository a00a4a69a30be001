//! Every way to receive, over the same traffic, in one table.
//!
//! A `Stage` is a lab with somebody on each CPU; a `Path` is one way to receive; a run of a path
//! on a stage gives a `Sample`. `Comparison` interleaves the runs, `overload` offers more than a
//! path can take, and `Spread` brings the traffic by more and more queues.

mod advice;
mod comparison;
mod live;
mod overload;
mod path;
pub mod result;
mod rotation;
mod sample;
mod sender;
mod spread;
mod stage;
mod traffic;

pub(crate) use advice::advice;
pub(crate) use comparison::{Comparison, Schedule};
pub(crate) use live::Live;
pub(crate) use overload::{Loads, overload};
pub(crate) use path::{Napi, PATHS, Path};
pub(crate) use sender::Sender;
pub(crate) use spread::{Arrangement, Spread, advice as spread_advice};
pub(crate) use stage::{Cpus, Stage};
