//! Two CPUs: a sending CPU and a receiving CPU.

use mpps_host::Topology;
use std::fmt;

/// The CPUs of the generator and the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpus {
    pub(crate) generator: usize,
    pub(crate) application: usize,
}

impl Cpus {
    /// The first two usable CPUs that share no core, if there are such; on a machine with one CPU
    /// everybody shares it.
    pub(crate) fn choose(topology: &Topology) -> Self {
        let usable = topology.usable();
        let first = usable.first().copied().unwrap_or(0);
        let is_sibling = |cpu: &usize| {
            let first = topology.cpu(first);
            first.is_some_and(|first| first.siblings.contains(cpu))
        };
        let other = usable.iter().copied().find(|cpu| !is_sibling(cpu));
        let application = other.or(usable.get(1).copied()).unwrap_or(first);
        Self {
            generator: first,
            application,
        }
    }
}

/// `generator: CPU 0   application: CPU 1`.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            generator,
            application,
        } = self;
        write!(
            f,
            "generator: CPU {generator}   application: CPU {application}"
        )
    }
}
