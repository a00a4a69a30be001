//! `mpps bench`: receive paths on the same traffic. Its arguments are the plan of the experiment.

pub(super) use crate::experiment::receive_paths::BenchPlan as BenchArgs;
