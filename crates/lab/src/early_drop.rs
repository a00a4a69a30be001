//! Dropping packets before any program could receive them.
//!
//! A packet costs the receiving host least if it drops it first thing. So the rates of these drops
//! are upper limits. No way of receiving takes more packets than the host can drop at the same
//! place, by the same means.

mod command;
mod iptables;
mod nftables;
mod xdp;

use std::fmt;

use mpps_os::capability::{CAP_BPF, CAP_NET_ADMIN, Rights};

use crate::{Lab, LabError};

/// A place where the receiving host drops packets, and the means; latest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EarlyDrop {
    /// A rule of legacy iptables in `PREROUTING` of the table `raw`, before connection tracking.
    IptablesRaw,
    /// The same place, by nftables: hook `prerouting`, priority `raw`.
    NftRaw,
    /// A rule of nftables at the hook `ingress` of the device, before the IP layer.
    NftIngress,
    /// An XDP program in the driver, which reads Ethernet, IP and UDP headers as far as the port.
    XdpParsed,
    /// An XDP program in the driver, which reads the first byte of each frame and drops them all.
    XdpRead,
    /// An XDP program in the driver, which drops all frames without a look.
    XdpUntouched,
}

/// Why a lab cannot have a drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// The missing part.
    pub why: String,
    /// How a user can fix it.
    pub remedy: String,
}

/// A drop at work, until it is removed or this value is dropped.
#[derive(Debug)]
pub struct Installed<'lab> {
    rule: Box<dyn EarlyDropRule + 'lab>,
}

/// Connection tracking at work on the receiver of a lab, until this value is dropped.
#[derive(Debug)]
pub struct Tracking<'lab> {
    table: nftables::NftTable<'lab>,
}

impl Tracking<'_> {
    /// The number of packets to the port that were tracked. Without `tracked` (see [`Lab::track`]),
    /// the number that was exempt.
    ///
    /// # Errors
    ///
    /// The counter cannot be read.
    pub fn packets(&self) -> Result<u64, LabError> {
        self.table.dropped()
    }

    /// Removes the rules, and returns the error that dropping this value would ignore.
    ///
    /// # Errors
    ///
    /// The rules are still there. They go with the lab.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.table.remove()
    }
}

impl Drop for Tracking<'_> {
    fn drop(&mut self) {
        // Remaining rules end with the lab.
        let _ = self.table.remove();
    }
}

impl Lab {
    /// Makes the receiver track connections from now on, by nftables, as a host with a stateful
    /// firewall does. Without `tracked`, a rule exempts UDP datagrams to `port`.
    ///
    /// # Errors
    ///
    /// nft(8) is not there, or failed: the kernel has no `CONFIG_NFT_CT`, or `EPERM` without root's
    /// rights.
    pub fn track(&self, port: u16, tracked: bool) -> Result<Tracking<'_>, LabError> {
        let table = nftables::NftTable::tracking(self.receiver(), port, tracked)?;
        Ok(Tracking { table })
    }
}

/// Drops or marks packets and counts them, until this value is dropped.
trait EarlyDropRule: fmt::Debug + Send {
    /// Packets counted so far.
    fn dropped(&self) -> Result<u64, LabError>;

    /// Ends it. The second call does nothing.
    fn remove(&mut self) -> Result<(), LabError>;
}

impl EarlyDrop {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IptablesRaw,
        Self::NftRaw,
        Self::NftIngress,
        Self::XdpParsed,
        Self::XdpRead,
        Self::XdpUntouched,
    ];

    /// The name in reports. The three kinds of XDP share one; [`EarlyDrop::mode`] differs.
    pub fn path(self) -> &'static str {
        match self {
            Self::IptablesRaw => "iptables_raw_drop",
            Self::NftRaw => "nft_raw_drop",
            Self::NftIngress => "nft_ingress_drop",
            Self::XdpUntouched | Self::XdpRead | Self::XdpParsed => "xdp_drop",
        }
    }

    /// Where and how it drops.
    pub fn mode(self) -> &'static str {
        match self {
            Self::IptablesRaw => "legacy iptables, table raw, PREROUTING",
            Self::NftRaw => "nftables, hook prerouting, priority raw",
            Self::NftIngress => "nftables, hook ingress of the device",
            Self::XdpParsed => "native XDP, headers read as far as the port",
            Self::XdpRead => "native XDP, first byte read",
            Self::XdpUntouched => "native XDP, frame not touched",
        }
    }

    /// True if it drops only datagrams to the port. The others drop every frame.
    pub fn is_selective(self) -> bool {
        !matches!(self, Self::XdpUntouched | Self::XdpRead)
    }

    /// True if it drops datagrams over IPv6, too. Legacy iptables needs another program and table
    /// for these.
    pub fn drops_v6(self) -> bool {
        self != Self::IptablesRaw
    }

    /// Installs it and removes it at once, which is the only way to know that it works. The lab
    /// should be idle. [`EarlyDrop::is_selective`] says which packets are dropped meanwhile.
    ///
    /// # Errors
    ///
    /// The missing part, and how to fix it.
    pub fn probe(self, lab: &Lab) -> Result<(), Unavailable> {
        // Port 9 is the discard port of RFC 863: its datagrams are to be dropped anyway.
        let tried = self.install(lab, 9).and_then(Installed::remove);
        tried.map_err(|error| Unavailable {
            remedy: self.remedy(&error),
            why: error.to_string(),
        })
    }

    /// Makes the receiver of this lab drop UDP datagrams to `port` from now on. That is over IPv4
    /// and, if [`EarlyDrop::drops_v6`], IPv6. If it is not selective, it drops every frame.
    ///
    /// # Errors
    ///
    /// The program that makes the rule is not there, or failed; `EPERM` without root's rights.
    pub fn install(self, lab: &Lab, port: u16) -> Result<Installed<'_>, LabError> {
        let host = lab.receiver();
        let rule: Box<dyn EarlyDropRule + '_> = match self {
            Self::IptablesRaw => Box::new(iptables::RawRule::new(host, port)?),
            Self::NftRaw => Box::new(nftables::NftTable::raw(host, port)?),
            Self::NftIngress => Box::new(nftables::NftTable::ingress(host, port)?),
            Self::XdpParsed => Box::new(xdp::XdpDrop::new(host, xdp::Reading::Headers { port })?),
            Self::XdpRead => Box::new(xdp::XdpDrop::new(host, xdp::Reading::FirstByte)?),
            Self::XdpUntouched => Box::new(xdp::XdpDrop::new(host, xdp::Reading::Nothing)?),
        };
        Ok(Installed { rule })
    }

    fn remedy(self, error: &LabError) -> String {
        let (package, option) = match self {
            Self::IptablesRaw => ("iptables", "CONFIG_IP_NF_RAW"),
            Self::NftRaw => ("nftables", "CONFIG_NF_TABLES_INET"),
            Self::NftIngress => ("nftables", "CONFIG_NF_TABLES_NETDEV"),
            Self::XdpUntouched | Self::XdpRead | Self::XdpParsed => {
                let remedy = Rights::own().remedy(&[CAP_BPF, CAP_NET_ADMIN]);
                return format!("{remedy}; on Linux 5.10 or later");
            }
        };
        match error {
            LabError::NoProgram(_) => format!("apt-get install {package}"),
            _ => {
                let remedy = Rights::own().remedy(&[CAP_NET_ADMIN]);
                format!("{remedy}; on a kernel with {option}")
            }
        }
    }
}

impl fmt::Display for EarlyDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path(), self.mode())
    }
}

impl Installed<'_> {
    /// The number of packets dropped so far, by the rule's own counter. It is exact when the
    /// traffic has settled ([`Lab::settle`]).
    ///
    /// # Errors
    ///
    /// The counter cannot be read.
    pub fn dropped(&self) -> Result<u64, LabError> {
        self.rule.dropped()
    }

    /// Removes it, and returns the error that dropping this value would ignore.
    ///
    /// # Errors
    ///
    /// It is still there. It goes with the lab.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.rule.remove()
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        // Call `remove` to see the error. A remaining rule ends with the lab.
        let _ = self.rule.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_from_the_others() {
        let names: std::collections::BTreeSet<String> =
            EarlyDrop::ALL.iter().map(EarlyDrop::to_string).collect();
        assert_eq!(names.len(), EarlyDrop::ALL.len());
    }

    #[test]
    fn a_missing_program_is_a_package_and_a_refusal_a_right() {
        let missing = LabError::NoProgram("nft".to_owned());
        assert_eq!(
            EarlyDrop::NftIngress.remedy(&missing),
            "apt-get install nftables"
        );
        let refused = LabError::Program {
            command: "nft".to_owned(),
            why: "Operation not permitted".to_owned(),
        };
        for early in EarlyDrop::ALL {
            let said = early.remedy(&refused);
            assert!(
                said.contains("on a kernel with") || said.contains("Linux 5.10"),
                "{said}"
            );
        }
    }
}
