//! The cost of short TCP connections: the experiments of the 2014 paper on two hosts inside this
//! machine. They measure our server, and other servers as they are packaged.
//!
//! A `PlannedCell` is one server in one state under one load. A `ConnectionLab` runs the cells,
//! one after the other. A run of a cell gives a `CellSample`. `cell_runs::run` interleaves the runs.

mod adaptive;
mod best;
mod cell_runs;
mod cpu_split;
pub(crate) mod document;
mod link_rate;
mod load;
mod paper_2014;
mod plan;
mod process_tree;
pub mod result;
mod sample;
mod server;
mod stage;

pub(crate) use cell_runs::{CellSchedule, run};
pub(crate) use cpu_split::Deal;
pub(crate) use link_rate::LinkRate;
pub(crate) use plan::{CellChoice, PlannedCell, cells};
