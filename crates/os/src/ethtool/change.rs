//! Settings made by netlink, which explains in words why a driver refuses
//! (Documentation/networking/ethtool-netlink.rst; Linux 5.7 has all of it).

use std::io;

use crate::CallResult;
use crate::netlink::generic::{Question, nested};

/// The header of each message, and the name in it (include/uapi/linux/ethtool_netlink.h).
const HEADER: u16 = 1;
const NAME: u16 = 2;

/// `ETHTOOL_A_RINGS_RX` and `ETHTOOL_A_CHANNELS_COMBINED_COUNT`.
pub(super) const RX_RING: u16 = 6;
pub(super) const COMBINED: u16 = 9;

/// The settings that can be made, by the number of their netlink command.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChangeKind {
    Rings = 16,
    Channels = 18,
    Coalescing = 20,
}

/// Sets these attributes of an interface, and leaves the others.
pub(super) fn set(
    interface: &str,
    what: ChangeKind,
    values: Vec<(u16, Vec<u8>)>,
) -> CallResult<()> {
    let mut name = interface.as_bytes().to_vec();
    name.push(0);
    let mut attributes = vec![nested(HEADER, &[(NAME, name)])];
    attributes.extend(values);
    Question {
        call: match what {
            ChangeKind::Rings => "netlink ETHTOOL_MSG_RINGS_SET",
            ChangeKind::Channels => "netlink ETHTOOL_MSG_CHANNELS_SET",
            ChangeKind::Coalescing => "netlink ETHTOOL_MSG_COALESCE_SET",
        },
        object: interface,
        family: "ethtool",
        command: what as u8,
        attributes: &attributes,
    }
    .execute()
    .map_err(|mut error| {
        // An interface that is not there is ENODEV.
        if error.errno() == Some(libc::ENOENT) {
            let missing = "this kernel has no ethtool by netlink (CONFIG_ETHTOOL_NETLINK)";
            error.source = io::Error::other(missing);
        }
        error
    })
}
