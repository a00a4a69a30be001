//! What a carve-out asks of a card, so that a test can answer instead.

use std::fmt;

use mpps_os::Result;
use mpps_os::ethtool::{self, Feature, ntuple, rss};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;

/// The kernel's name for the switch that `ethtool -K` calls `ntuple` (net/ethtool/common.c).
pub(crate) const FILTERS: &str = "rx-ntuple-filter";

/// The settings of interfaces that decide which queue a packet takes. Every method fails as the
/// call of `mpps-os` does that it stands for.
pub trait Steering: Send + fmt::Debug {
    /// The network namespace in which the others work.
    fn namespace(&self) -> Result<u32>;
    /// The number of an interface.
    fn index(&self, interface: &str) -> Result<u32>;
    /// The present name of an interface; none where it is gone.
    fn name(&self, index: u32) -> Result<Option<String>>;
    /// How many receive queues there are.
    fn rings(&self, interface: &str) -> Result<u32>;
    /// The switch for rules, where the driver has it.
    fn filters(&self, interface: &str) -> Result<Option<Feature>>;
    /// Switches rules on or off.
    fn set_filters(&self, interface: &str, on: bool) -> Result<()>;
    /// The RSS table.
    fn indirection(&self, interface: &str) -> Result<Vec<u32>>;
    /// Sets the RSS table, or, if it is empty, lets the kernel choose.
    fn set_indirection(&self, interface: &str, table: &[u32]) -> Result<()>;
    /// The places of the rules.
    fn rules(&self, interface: &str) -> Result<ntuple::Table>;
    /// The rule at a place.
    fn rule(&self, interface: &str, location: u32) -> Result<ntuple::Shown>;
    /// Adds a rule and returns its place.
    fn insert(&self, interface: &str, rule: &ntuple::Rule, location: Option<u32>) -> Result<u32>;
    /// Takes a rule away.
    fn remove(&self, interface: &str, location: u32) -> Result<()>;
}

/// The kernel, in the network namespace of the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelSteering;

impl Steering for KernelSteering {
    fn namespace(&self) -> Result<u32> {
        NetNamespace::current().map(|namespace| namespace.inode())
    }

    fn index(&self, interface: &str) -> Result<u32> {
        link::index(interface)
    }

    fn name(&self, index: u32) -> Result<Option<String>> {
        let links = link::list()?;
        let found = links.into_iter().find(|link| link.index == index);
        Ok(found.map(|link| link.name))
    }

    fn rings(&self, interface: &str) -> Result<u32> {
        ntuple::rings(interface)
    }

    fn filters(&self, interface: &str) -> Result<Option<Feature>> {
        let features = ethtool::features(interface)?;
        Ok(features.into_iter().find(|known| known.name == FILTERS))
    }

    fn set_filters(&self, interface: &str, on: bool) -> Result<()> {
        ethtool::set_feature(interface, FILTERS, on)
    }

    fn indirection(&self, interface: &str) -> Result<Vec<u32>> {
        rss::read(interface).map(|rss| rss.indirection)
    }

    fn set_indirection(&self, interface: &str, table: &[u32]) -> Result<()> {
        if table.is_empty() {
            rss::reset_indirection(interface)
        } else {
            rss::set_indirection(interface, table)
        }
    }

    fn rules(&self, interface: &str) -> Result<ntuple::Table> {
        ntuple::table(interface)
    }

    fn rule(&self, interface: &str, location: u32) -> Result<ntuple::Shown> {
        ntuple::rule(interface, location)
    }

    fn insert(&self, interface: &str, rule: &ntuple::Rule, location: Option<u32>) -> Result<u32> {
        ntuple::insert(interface, rule, location)
    }

    fn remove(&self, interface: &str, location: u32) -> Result<()> {
        ntuple::remove(interface, location)
    }
}
