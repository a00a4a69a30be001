//! What short TCP connections cost: the experiments of the 2014 paper on two hosts inside this
//! machine, for our server and for others as they are packaged.
//!
//! A `Cell` is one server in one state under one load; a `Stage` is the lab on which cells are
//! run, one after the other; a run of a cell gives a `Sample`. `Campaign` interleaves the runs.

mod body;
mod campaign;
mod load;
mod paper;
mod plan;
mod process_tree;
pub mod result;
mod sample;
mod server;
mod stage;

pub(crate) use campaign::{Campaign, Schedule};
pub(crate) use plan::{Cell, Choice, NO_SKB_DEFER, SKB_DEFER, body as body_name, cells};
pub(crate) use sample::CPU_METHOD;

pub(crate) use stage::Stage;
