//! The million-packet ladder: the experiments of the 2015 article, and what today adds, on two
//! hosts inside this machine.

mod climb;
mod climbed;
mod experiment;
mod layout;
mod limit;
mod probe_cost;
mod rung;
mod sample;
mod sender;
mod traffic;
mod trial;

pub(crate) use climb::{Climb, Schedule, Step};
pub(crate) use experiment::Bench;
pub(crate) use layout::Layout;
pub(crate) use rung::{Rung, rungs};
pub(crate) use sender::{Choice, Sender};
