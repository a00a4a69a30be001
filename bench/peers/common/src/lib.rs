//! The common part of the programs: the command line, when they end, and what they count.

mod args;
mod run;

pub use args::{Args, Mode};
pub use run::{PATIENCE, RECEIVE_BUFFER_BYTES, Run};
