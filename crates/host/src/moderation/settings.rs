//! What a moderation asks of an interface, so that a test can answer instead.

use std::fmt;

use mpps_os::Result;
use mpps_os::ethtool::coalesce::{self, Coalescing};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, napi};
use mpps_os::sysfs::Sysfs;
use serde::{Deserialize, Serialize};

/// A file of an interface in `/sys/class/net` (`Documentation/ABI/testing/sysfs-class-net`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// Nanoseconds until the kernel polls a queue again by itself.
    GroFlushTimeout,
    /// Empty polls of a queue before its interrupts are on again.
    NapiDeferHardIrqs,
}

impl Attribute {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::GroFlushTimeout => "gro_flush_timeout",
            Self::NapiDeferHardIrqs => "napi_defer_hard_irqs",
        }
    }
}

/// The settings of interfaces that decide when they interrupt. Every method fails as the call of
/// `mpps-os` does that it stands for.
pub trait Settings: Send + fmt::Debug {
    /// The network namespace in which the others work.
    fn namespace(&self) -> Result<u32>;
    /// The number of an interface.
    fn index(&self, interface: &str) -> Result<u32>;
    /// The present name of an interface; none where it is gone.
    fn name(&self, index: u32) -> Result<Option<String>>;
    /// How many queues of an interface the kernel polls; none where it does not tell.
    fn polled_queues(&self, index: u32) -> Option<usize>;
    /// What a file says.
    fn attribute(&self, interface: &str, attribute: Attribute) -> Result<String>;
    /// Makes it say something else.
    fn set_attribute(&self, interface: &str, attribute: Attribute, value: &str) -> Result<()>;
    /// The card's coalescing.
    fn coalescing(&self, interface: &str) -> Result<Coalescing>;
    /// Sets the card's coalescing.
    fn set_coalescing(&self, interface: &str, coalescing: &Coalescing) -> Result<()>;
}

/// The kernel, in the network namespace of the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelSettings;

impl Settings for KernelSettings {
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

    fn polled_queues(&self, index: u32) -> Option<usize> {
        // Linux before 6.8 has no such question.
        napi::list(index).ok().map(|queues| queues.len())
    }

    fn attribute(&self, interface: &str, attribute: Attribute) -> Result<String> {
        Sysfs::mount()?.read(&path(interface, attribute))
    }

    fn set_attribute(&self, interface: &str, attribute: Attribute, value: &str) -> Result<()> {
        Sysfs::mount()?.write(&path(interface, attribute), value)
    }

    fn coalescing(&self, interface: &str) -> Result<Coalescing> {
        coalesce::read(interface)
    }

    fn set_coalescing(&self, interface: &str, coalescing: &Coalescing) -> Result<()> {
        coalesce::set(interface, coalescing)
    }
}

fn path(interface: &str, attribute: Attribute) -> String {
    format!("class/net/{interface}/{}", attribute.name())
}
