//! What the programs have in common: the command line, when they end, and what they count.

mod args;
mod run;

pub use args::{Args, Mode};
pub use run::{PATIENCE, RECEIVE_BUFFER_BYTES, Run};
