//! The XDP features of an interface's driver, as reported by the kernel.

use super::generic::{Question, u32_of, u64_of};
use crate::CallResult;

/// The command and attributes of include/uapi/linux/netdev.h.
const DEVICE_GET: u8 = 1;
const INTERFACE: u16 = 1;
const XDP_FEATURES: u16 = 3;
const ZERO_COPY_SEGMENTS_MAX: u16 = 4;

/// `enum netdev_xdp_act`: what the driver of an interface does with XDP programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// The mask as the kernel gave it.
    pub mask: u64,
    /// The buffers that one zero-copy packet may have; none where there is no zero-copy.
    pub zero_copy_segments_max: Option<u32>,
}

impl XdpFeatures {
    /// Programs run in the driver, and may drop, pass and send back (`NETDEV_XDP_ACT_BASIC`).
    pub fn basic(&self) -> bool {
        self.mask & 1 != 0
    }

    /// Programs may redirect, which AF_XDP needs (`NETDEV_XDP_ACT_REDIRECT`).
    pub fn redirect(&self) -> bool {
        self.mask & 2 != 0
    }

    /// AF_XDP without a copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
    pub fn zero_copy(&self) -> bool {
        self.mask & 8 != 0
    }

    /// The names of the bits, as `Documentation/netlink/specs/netdev.yaml` spells them. A bit
    /// that this version does not know has none.
    pub fn names(&self) -> Vec<&'static str> {
        const NAMES: [&str; 7] = [
            "basic",
            "redirect",
            "ndo-xmit",
            "xsk-zerocopy",
            "hw-offload",
            "rx-sg",
            "ndo-xmit-sg",
        ];
        let set = |bit: &usize| self.mask >> bit & 1 == 1;
        (0..NAMES.len()).filter(set).map(|bit| NAMES[bit]).collect()
    }
}

/// The XDP features of the interface with this number (the generic netlink family `netdev`,
/// Linux 6.3); none where the interface is not in the calling thread's network namespace.
///
/// # Errors
///
/// `ENOENT` before Linux 6.3.
pub fn xdp_features(index: u32) -> CallResult<Option<XdpFeatures>> {
    let question = Question {
        call: "netlink NETDEV_CMD_DEV_GET",
        object: &format!("interface {index}"),
        family: "netdev",
        command: DEVICE_GET,
        attributes: &[],
    };
    let devices = question.dump()?;
    let own = devices
        .iter()
        .find(|attributes| u32_of(attributes, INTERFACE) == Some(index));
    Ok(own.map(|attributes| XdpFeatures {
        mask: u64_of(attributes, XDP_FEATURES).unwrap_or(0),
        zero_copy_segments_max: u32_of(attributes, ZERO_COPY_SEGMENTS_MAX),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_their_names() {
        let features = XdpFeatures {
            mask: 1 | 2 | 8 | 32 | 1 << 40,
            zero_copy_segments_max: Some(1),
        };
        assert_eq!(
            features.names(),
            ["basic", "redirect", "xsk-zerocopy", "rx-sg"]
        );
        assert!(features.basic() && features.redirect());
        assert!(features.zero_copy());
        assert_eq!(XdpFeatures::default().names(), [""; 0]);
    }

    #[test]
    fn an_interface_that_does_not_exist_has_none() {
        // A kernel without the family refuses, which is as good.
        assert!(matches!(xdp_features(u32::MAX), Ok(None) | Err(_)));
    }
}
