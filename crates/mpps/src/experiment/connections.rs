//! The cost of short TCP connections: the experiments of the 2014 paper on two hosts inside this
//! machine. They measure our server, and other servers as they are packaged.
//!
//! A `Cell` is one server in one state under one load. A `Stage` is the lab that runs the cells,
//! one after the other. A run of a cell gives a `Sample`. `campaign::run` interleaves the runs.

mod adaptive;
mod best;
mod campaign;
mod deal;
pub(crate) mod document;
mod load;
mod paper;
mod plan;
mod process_tree;
pub mod result;
mod sample;
mod server;
mod stage;

pub(crate) use campaign::{CellSchedule, run};
pub(crate) use deal::Deal;
pub(crate) use plan::{CellChoice, PlannedCell, cells};
