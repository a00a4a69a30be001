//! Where this kernel keeps what the probe reads.

use mpps_os::bpf::btf::{Btf, BtfError, Member};

use super::DropProbeError;

/// Offsets in bytes, of fields whose sizes have been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// In `struct sk_buff`, which is read as a whole up to [`skb_size`](Self::skb_size).
    pub(super) device: i16,
    pub(super) socket: i16,
    pub(super) came_by: i16,
    pub(super) protocol: i16,
    pub(super) network_header: i16,
    pub(super) mac_header: i16,
    pub(super) tail: i16,
    pub(super) end: i16,
    pub(super) head: i16,
    pub(super) data: i16,
    pub(super) skb_size: i32,
    /// `skb_shared_info.gso_segs`.
    pub(super) train_length: i32,
    /// `net_device.dev_addr`, a pointer.
    pub(super) device_address: i32,
    /// `net_device.nd_net`, `sock.__sk_common.skc_net`, `net.ns.inum`.
    pub(super) device_net: i32,
    pub(super) socket_net: i32,
    pub(super) net_inode: i32,
    /// Whether the tracepoint names the receiving socket (Linux 6.11). Without it a packet dropped
    /// at a socket is known by its device, which such kernels still know at that point.
    pub(super) names_socket: bool,
}

/// The most that is copied of a packet to the program's 512 bytes of stack.
pub(super) const SKB_ROOM: i16 = 240;

impl Fields {
    pub(super) fn read(btf: &Btf) -> Result<Self, DropProbeError> {
        // The arguments are the packet, the place, the reason, and the socket.
        let arguments = match btf.tracepoint_arguments("kfree_skb") {
            Ok(0..3) => return Err(DropProbeError::NoReasons),
            Ok(arguments) => arguments,
            Err(missing) => return Err(DropProbeError::Types(missing.into())),
        };
        Self::find(btf, arguments > 3).map_err(|missing| DropProbeError::Types(missing.into()))
    }

    fn find(btf: &Btf, names_socket: bool) -> Result<Self, BtfError> {
        let mut skb_size = 0;
        let mut skb = |path, size| {
            let start = offset(btf, "sk_buff", path, size)?;
            // Fields are at most eight bytes.
            let end = start.saturating_add(size as i32);
            match i16::try_from(start) {
                Ok(start) if end <= i32::from(SKB_ROOM) => {
                    skb_size = end.max(skb_size);
                    Ok(start)
                }
                _ => Err(missing("sk_buff", path, size)),
            }
        };
        Ok(Self {
            device: skb("dev", 8)?,
            socket: skb("sk", 8)?,
            came_by: skb("skb_iif", 4)?,
            protocol: skb("protocol", 2)?,
            network_header: skb("network_header", 2)?,
            mac_header: skb("mac_header", 2)?,
            tail: skb("tail", 4)?,
            end: skb("end", 4)?,
            head: skb("head", 8)?,
            data: skb("data", 8)?,
            skb_size,
            train_length: offset(btf, "skb_shared_info", "gso_segs", 2)?,
            device_address: offset(btf, "net_device", "dev_addr", 8)?,
            device_net: offset(btf, "net_device", "nd_net.net", 8)?,
            socket_net: offset(btf, "sock", "__sk_common.skc_net.net", 8)?,
            net_inode: offset(btf, "net", "ns.inum", 4)?,
            names_socket,
        })
    }
}

/// The offset of a field that must have the size that the program reads.
fn offset(btf: &Btf, name: &str, path: &str, size: usize) -> Result<i32, BtfError> {
    let field: Member = btf.member(name, path)?;
    match i32::try_from(field.offset) {
        Ok(offset) if field.size == size => Ok(offset),
        _ => Err(missing(name, path, size)),
    }
}

fn missing(name: &str, path: &str, size: usize) -> BtfError {
    BtfError::NoMember {
        structure: name.to_owned(),
        member: format!("{path} of {size} bytes where it is looked for"),
    }
}
