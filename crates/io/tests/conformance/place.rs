//! Where a pair meets: the loopback interface, or the two hosts of a lab.
//!
//! Rows that take frames from an interface are tried in the lab. Its link has one queue, so that no
//! frame is on a queue that is not read; sharing has a lab with more. Each lab is made once.

use super::frame;
use mpps_io::{Layer, Rx};
use mpps_lab::{Delivery, Lab, LabConfig, LabHost};
use mpps_os::netlink::link::{self, LinkStatistics};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Queues of the lab for receivers that share.
pub(crate) const SHARED_QUEUES: u16 = 2;

/// Ports of the lab for receivers: below those that its kernel gives to senders (`ip_local_port_range`
/// of ip(7)).
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Where a pair meets, and which version of IP it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The loopback interface of this process's network namespace.
    Loopback(Version),
    /// The lab with one queue.
    Lab(Version),
    /// The lab with several.
    SharedLab(Version),
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Version {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

impl Place {
    pub(crate) fn version(self) -> Version {
        match self {
            Self::Loopback(version) | Self::Lab(version) | Self::SharedLab(version) => version,
        }
    }

    pub(crate) fn is_loopback(self) -> bool {
        matches!(self, Self::Loopback(_))
    }

    /// The same with several queues.
    pub(crate) fn shared(self) -> Self {
        match self {
            Self::Loopback(_) => self,
            Self::Lab(version) | Self::SharedLab(version) => Self::SharedLab(version),
        }
    }

    /// The receiver's address; in the lab there are more, and this is the first.
    pub(crate) fn receiver(self) -> IpAddr {
        self.receivers()[0]
    }

    /// All addresses of the receiver.
    pub(crate) fn receivers(self) -> Vec<IpAddr> {
        match self.lab() {
            None => vec![self.loopback()],
            Some(lab) => self.addresses(lab.receiver()),
        }
    }

    /// The sender's address.
    pub(crate) fn sender(self) -> IpAddr {
        match self.lab() {
            None => self.loopback(),
            Some(lab) => self.addresses(lab.sender())[0],
        }
    }

    /// A port for a receiver. Over loopback, where other programs live, the kernel chooses. In the
    /// lab it is a port unused for a long time: no kernel chooses for rings.
    pub(crate) fn port(self) -> u16 {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        if self.is_loopback() {
            return 0;
        }
        PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.end - PORTS.start)
    }

    /// Runs `work` on the receiver.
    pub(crate) fn at_receiver<R: Send>(self, work: impl FnOnce() -> R + Send) -> R {
        match self.lab() {
            None => work(),
            Some(lab) => on(lab.receiver(), work),
        }
    }

    /// Runs `work` on the sender.
    pub(crate) fn at_sender<R: Send>(self, work: impl FnOnce() -> R + Send) -> R {
        match self.lab() {
            None => work(),
            Some(lab) => on(lab.sender(), work),
        }
    }

    /// Packets that the link lost because a queue of it was full. Loopback has no queue that could
    /// lose one without counting it at a socket.
    pub(crate) fn lost_on_link(self) -> u64 {
        self.lab()
            .map_or(0, |lab| statistics(lab.sender()).tx_dropped)
    }

    /// Waits until no packet moves.
    pub(crate) fn settle(self) {
        if let Some(lab) = self.lab() {
            lab.settle().expect("the lab comes to rest");
        }
    }

    /// Whether there is such a place; why not.
    pub(crate) fn is_there(self) -> Result<(), String> {
        match self {
            Self::Loopback(_) => {
                // Not even the loopback address is there where IPv6 is switched off.
                let bound = std::net::UdpSocket::bind((self.loopback(), 0));
                let refused = |error| format!("{}: {error}", self.loopback());
                bound.map(drop).map_err(refused)
            }
            Self::Lab(version) | Self::SharedLab(version) => {
                mpps_trial::able()?;
                let lab = lab_of(self).as_ref().map_err(Clone::clone)?;
                match version == Version::V6 && lab.receiver().v6().is_empty() {
                    true => Err("no IPv6 in the lab".to_owned()),
                    false => Ok(()),
                }
            }
        }
    }

    /// The lab, which is there: a trial without its place is not run.
    pub(crate) fn lab(self) -> Option<&'static Lab> {
        if self.is_loopback() {
            return None;
        }
        Some(lab_of(self).as_ref().expect("a place without obstacle"))
    }

    fn loopback(self) -> IpAddr {
        match self.version() {
            Version::V4 => Ipv4Addr::LOCALHOST.into(),
            Version::V6 => Ipv6Addr::LOCALHOST.into(),
        }
    }

    fn addresses(self, host: &LabHost) -> Vec<IpAddr> {
        match self.version() {
            Version::V4 => host.v4().iter().copied().map(IpAddr::V4).collect(),
            Version::V6 => host.v6().iter().copied().map(IpAddr::V6).collect(),
        }
    }
}

/// The lab of a place, made when it is first asked for; it ends with the process.
fn lab_of(place: Place) -> &'static Result<Lab, String> {
    static ONE_QUEUE: OnceLock<Result<Lab, String>> = OnceLock::new();
    static SHARED: OnceLock<Result<Lab, String>> = OnceLock::new();
    let (lab, queues) = match place {
        Place::SharedLab(_) => (&SHARED, SHARED_QUEUES),
        _ => (&ONE_QUEUE, 1),
    };
    lab.get_or_init(|| {
        let config = LabConfig {
            queues,
            // A send delivers its packets itself: none waits for a kernel thread.
            delivery: Delivery::SoftInterrupt,
            ..LabConfig::default()
        };
        Lab::new(&config).map_err(|error| error.to_string())
    })
}

fn on<R: Send>(host: &LabHost, work: impl FnOnce() -> R + Send) -> R {
    host.run(work).expect("the host can be entered")
}

fn statistics(host: &LabHost) -> LinkStatistics {
    let index = host.interface_index();
    on(host, || link::statistics(index)).expect("a link counts")
}

/// Bytes that a receiver counts for a datagram besides its payload.
pub(crate) fn header_bytes(rx: &dyn Rx) -> u64 {
    match rx.caps().layer {
        Layer::Payload => 0,
        Layer::Frame => frame::header_bytes(rx.caps().local_address),
    }
}
