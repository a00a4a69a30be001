//! Options of backends that take frames from an interface, or put frames on one.

use crate::{Destination, SocketMap};

/// Where an XDP program runs.
pub use mpps_os::bpf::XdpAttach as Attach;
/// How packets are dealt out among the members of a fan-out group.
pub use mpps_os::packet_socket::FanoutMode as Fanout;

/// How a ring over an interface is opened. The default leaves every choice to the backend, which
/// reports its choice ([`crate::Mode`]).
///
/// A backend without an option refuses it by the field's name:
///
/// ```
/// use mpps_io::{CopyMode, RxConfig, backend};
///
/// let mut config = RxConfig::new("10.0.0.1:4321".parse().unwrap());
/// config.ring.interface = Some("eth1".to_owned());
/// config.ring.copy = Some(CopyMode::ZeroCopy);
/// let refused = backend::find("packet_mmap").unwrap().open_rx(&config).unwrap_err();
/// assert!(refused.to_string().contains("ring.copy"), "{refused}");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingConfig {
    /// The interface. None takes the owner of the address (receiving), or follows the route
    /// (sending).
    pub interface: Option<String>,
    /// The first queue; none is queue 0. [`crate::Rx::share`] opens the next.
    pub queue: Option<u32>,
    /// Where the XDP program runs; none is in the driver, or before the stack if the driver has no
    /// place for it.
    pub attach: Option<Attach>,
    /// Whether packets are copied; none is "not where the kernel can do without".
    pub copy: Option<CopyMode>,
    /// How many frames the ring holds; none is the backend's own figure.
    pub frames: Option<u32>,
    /// Take every frame of the interface, and not only those of the address.
    pub all_traffic: bool,
    /// Take the datagrams to these, too. Their ports are not held: the kernel answers packets that
    /// come by a queue without a receiver as if no program listened there.
    pub destinations: Vec<Destination>,
    /// Attach no XDP program, but receive what the user's own redirects to this map.
    pub sockets: Option<SocketMap>,
    /// Another interface that received frames may leave by ([`crate::Request::forward`]). While it
    /// is down, a serve that forwards fails with `ENETDOWN`; its frames then go with a later one.
    pub forward_to: Option<OutQueue>,
    /// Drop the kernel's own copy of each packet behind the tap.
    pub take: bool,
    /// How members of a fan-out group share the packets; none is by flow hash.
    pub fanout: Option<Fanout>,
    /// Keep packets in huge pages.
    pub hugepages: bool,
    /// Hardware address of the next hop; none is the neighbour table's.
    pub target_mac: Option<[u8; 6]>,
    /// Arguments for a library that has its own: DPDK's EAL.
    pub arguments: Vec<String>,
}

/// A transmit queue of an interface. The kernel gives each queue to one memory: two receivers that
/// forward to each other's interface use another queue than the other one receives by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutQueue {
    /// The interface.
    pub interface: String,
    /// The queue, for what comes by the first receive queue; the next one for the next.
    pub queue: u32,
}

/// Whether the kernel copies a packet between the driver's memory and the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// It copies (`XDP_COPY`, plain send).
    Copy,
    /// It does not (`XDP_ZEROCOPY`, `IORING_OP_SEND_ZC`).
    ZeroCopy,
}

impl RingConfig {
    /// The fields that are not at their default, after those of `beside` that are asked for.
    pub(crate) fn asked_beside(&self, beside: &[(bool, &'static str)]) -> Vec<&'static str> {
        let asked = [
            (self.interface.is_some(), "ring.interface"),
            (self.queue.is_some(), "ring.queue"),
            (self.attach.is_some(), "ring.attach"),
            (self.copy.is_some(), "ring.copy"),
            (self.frames.is_some(), "ring.frames"),
            (self.all_traffic, "ring.all_traffic"),
            (!self.destinations.is_empty(), "ring.destinations"),
            (self.sockets.is_some(), "ring.sockets"),
            (self.forward_to.is_some(), "ring.forward_to"),
            (self.take, "ring.take"),
            (self.fanout.is_some(), "ring.fanout"),
            (self.hugepages, "ring.hugepages"),
            (self.target_mac.is_some(), "ring.target_mac"),
            (!self.arguments.is_empty(), "ring.arguments"),
        ];
        let asked = beside.iter().copied().chain(asked);
        asked
            .filter_map(|(asked, field)| asked.then_some(field))
            .collect()
    }
}
