//! `mpps ndr`: the highest rate of each receive path within a loss goal. Its arguments are the plan
//! of the experiment.

pub(super) use crate::experiment::receive_paths::ndr::NdrPlan as NdrArgs;
