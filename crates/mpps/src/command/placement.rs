//! `mpps placement`: the best CPU for the receiver. Its arguments are the plan of the experiment.

pub(super) use crate::experiment::placement::PlacementPlan as PlacementArgs;
