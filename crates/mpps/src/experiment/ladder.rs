//! The million-packet ladder: the experiments of the 2015 article, and what today adds, on two
//! hosts inside this machine.

pub(crate) mod compare;
pub(crate) mod document;
pub mod evidence;
mod lesson;
mod live;
pub(crate) mod placements;
mod probe_cost;
pub mod result;
pub(crate) mod run;
mod rungs;

pub(crate) use run::ClimbSchedule;
