//! The ways to those that a receiver sends to unasked, kept for a while: the kernel's answers take longer
//! than a frame.

use super::XdpInterface;
use crate::link_path::LinkPath;
use crate::wire::Template;
use crate::{RingConfig, RxConfig, Transmit};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::address;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a way is used before the kernel is asked again, and how long none is looked for again.
const KEPT: Duration = Duration::from_secs(10);
const UNKNOWN: Duration = Duration::from_millis(100);
/// Most ways that are kept: a flood of made-up clients must not take all memory.
const WAYS_MAX: usize = 16_384;

#[derive(Debug)]
pub(super) struct XdpPeers {
    /// The interface that frames leave by.
    ring: RingConfig,
    interface_index: u32,
    /// That of the interface; the caller may be in another one.
    namespace: NetNamespace,
    local: SocketAddr,
    known: HashMap<(SocketAddr, Option<IpAddr>), (Instant, Option<LinkPath>)>,
}

impl XdpPeers {
    /// None without a ring to send by or a port to send from, or if the thread's network namespace cannot
    /// be had.
    pub(super) fn of(config: &RxConfig, interface: &XdpInterface) -> Option<Self> {
        let sends = config.answers && config.address.port() != 0;
        Some(Self {
            namespace: sends.then(NetNamespace::current)?.ok()?,
            ring: RingConfig {
                interface: Some(interface.name.clone()),
                ..RingConfig::default()
            },
            interface_index: interface.index,
            local: config.address,
            known: HashMap::new(),
        })
    }

    /// The headers of a frame with `payload_bytes` of this datagram; none if only the kernel knows how to
    /// send it now: its neighbour is unknown, or it goes another way, or is too long.
    pub(super) fn headers(&mut self, one: &Transmit<'_>, payload_bytes: usize) -> Option<Template> {
        let key = (one.destination, one.source);
        let now = Instant::now();
        let is_fresh = |(until, _): &&(Instant, _)| now < *until;
        let way = match self.known.get(&key).filter(is_fresh) {
            Some((_, way)) => way,
            None => {
                if self.known.len() >= WAYS_MAX {
                    self.known.clear();
                }
                let find = || self.find(one.destination, one.source);
                let here = NetNamespace::current().ok()?;
                let way = match here.inode() == self.namespace.inode() {
                    true => find(),
                    false => self.namespace.run(find).ok()?,
                };
                let kept = if way.is_some() { KEPT } else { UNKNOWN };
                &self
                    .known
                    .entry(key)
                    .insert_entry((now + kept, way))
                    .into_mut()
                    .1
            }
        };
        let template = way.as_ref()?.template(payload_bytes).ok()?;
        Some(template.marked(one.traffic_class, one.hop_limit))
    }

    fn find(&self, target: SocketAddr, source: Option<IpAddr>) -> Option<LinkPath> {
        if let Some(source) = source {
            address::interface_of(source).ok()??;
        }
        let source = SocketAddr::new(source.unwrap_or(self.local.ip()), self.local.port());
        let path = LinkPath::known(target, source, &self.ring).ok()?;
        // A group's address has the lowest bit; this host has none.
        let is_host = path.target_mac[0] & 1 == 0 && path.target_mac != [0; 6];
        (is_host && path.interface_index == self.interface_index).then_some(path)
    }
}
