//! The kernel's names for the reasons why it drops packets, asked of the running kernel.
//!
//! The numbers change from version to version, so there is no table here: the names come from
//! `enum skb_drop_reason` in the kernel's type information.

use std::collections::HashMap;

use mpps_os::bpf::btf::{Btf, BtfError};

/// The names of the running kernel's drop reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropReasons {
    names: HashMap<u32, String>,
}

/// Reasons with something in the upper 16 bits belong to a subsystem (`mac80211`, `openvswitch`)
/// and are not in the enumeration (`SKB_DROP_REASON_SUBSYS_SHIFT`, `include/net/dropreason.h`).
const SUBSYSTEM_SHIFT: u32 = 16;

impl DropReasons {
    /// Reads the names from the kernel's type information.
    ///
    /// # Errors
    ///
    /// A kernel before 5.17, which has no drop reasons.
    pub fn read(btf: &Btf) -> Result<Self, BtfError> {
        Ok(Self::from_enumerators(btf.enumeration("skb_drop_reason")?))
    }

    fn from_enumerators(enumerators: Vec<(String, u32)>) -> Self {
        let short = |name: String| {
            let prefixes = ["SKB_DROP_REASON_", "SKB_"];
            let cut = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
            cut.map(str::to_owned).unwrap_or(name)
        };
        let names = enumerators.into_iter();
        Self {
            names: names.map(|(name, value)| (value, short(name))).collect(),
        }
    }

    /// All names.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.values().map(String::as_str)
    }

    /// The number of the reason with this name, without the kernel's prefix.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let mut names = self.names.iter();
        names.find_map(|(number, one)| (one == name).then_some(*number))
    }

    /// The name of a reason, without the kernel's prefix: `SOCKET_RCVBUFF`.
    ///
    /// A number that this kernel does not name is spelled out: `REASON_999`, or
    /// `SUBSYSTEM_1_REASON_2` for those of a part of the kernel with its own numbers.
    pub fn name(&self, reason: u32) -> String {
        if let Some(name) = self.names.get(&reason) {
            return name.clone();
        }
        match reason >> SUBSYSTEM_SHIFT {
            0 => format!("REASON_{reason}"),
            subsystem => {
                let own = reason & ((1 << SUBSYSTEM_SHIFT) - 1);
                format!("SUBSYSTEM_{subsystem}_REASON_{own}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_prefix_and_numbers_keep_a_name() {
        let reasons = DropReasons::from_enumerators(vec![
            ("SKB_CONSUMED".to_owned(), 1),
            ("SKB_DROP_REASON_SOCKET_RCVBUFF".to_owned(), 6),
            ("OTHER".to_owned(), 7),
        ]);
        assert_eq!(reasons.name(1), "CONSUMED");
        assert_eq!(reasons.name(6), "SOCKET_RCVBUFF");
        assert_eq!(reasons.name(7), "OTHER");
        assert_eq!(reasons.name(8), "REASON_8");
        assert_eq!(reasons.name(0x0003_0005), "SUBSYSTEM_3_REASON_5");
    }

    #[test]
    fn the_running_kernel_names_a_full_socket() {
        if let Ok(btf) = Btf::kernel() {
            let reasons = DropReasons::read(&btf).expect("this kernel has drop reasons");
            let names: Vec<&str> = reasons.names().collect();
            assert!(names.contains(&"SOCKET_RCVBUFF") && names.contains(&"NO_SOCKET"));
        }
    }
}
