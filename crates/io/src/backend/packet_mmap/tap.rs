//! The common part of all receivers of one tap: interface, filter, port, group, and the program
//! behind.

use super::filter;
use crate::backend::held_port::{HeldPort, ListenedInterface, Neighbour};
use crate::filter::{FlowCounters, FlowFilter};
use crate::{Error, Fanout, Mode, RxConfig};
use mpps_os::bpf::classic::{ClassicInstruction, NOTHING};
use mpps_os::bpf::{BpfLink, PerCpuMapKind, Program, ProgramKind};
use mpps_os::packet_socket::{FanoutGroup, PacketRxRing, PacketSocket, Protocol, RxRingSize};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// Of include/uapi/asm-generic/errno-base.h.
const EINVAL: i32 = 22;
/// Frames that a ring holds, if the user gave no other figure: 8.5 MiB.
const FRAMES: u32 = 4096;
/// The longest time that a frame waits until its block is handed over. At low rates each block
/// holds only the frames of this time. So the ring lasts at least (blocks - 1) times as long.
const RETIRE_MS: u32 = 1;

/// A tap on one interface, or on all, for one address.
#[derive(Debug)]
pub(super) struct PacketTap {
    /// The address with its true port.
    pub(super) address: SocketAddr,
    pub(super) size: RxRingSize,
    pub(super) mode: Mode,
    pub(super) interface: ListenedInterface,
    filter: Vec<ClassicInstruction>,
    fanout: Option<Fanout>,
    /// The group, once there are two members or the user asked for one.
    group: Mutex<Option<FanoutGroup>>,
    /// Keeps the kernel from answering for the port.
    pub(super) port: HeldPort,
    /// Drops the kernel's own copies.
    taken: Option<BpfLink>,
}

impl PacketTap {
    /// Finds the interface, holds the port, and attaches what `RingConfig::take` asks for. The first
    /// receiver is returned with it.
    pub(super) fn open(config: &RxConfig) -> Result<(Self, PacketRxRing), Error> {
        let ring = &config.ring;
        let interface = ListenedInterface::find(config)?;
        if ring.take {
            check_take(config, &interface)?;
        }
        let port = HeldPort::open(config.address, Neighbour::Tolerated)?;
        if config.errors {
            port.keep_errors()?;
        }
        let flow = match ring.all_traffic {
            true => FlowFilter::everything(),
            false => FlowFilter::new(port.address),
        };
        let frame_bytes = u32::try_from(config.buffer_bytes).unwrap_or(u32::MAX);
        let mut tap = Self {
            address: port.address,
            size: RxRingSize::holding(ring.frames.unwrap_or(FRAMES), frame_bytes, RETIRE_MS),
            mode: Mode::default(),
            filter: filter::incoming(&flow, ring.all_traffic),
            fanout: ring.fanout,
            group: Mutex::new(None),
            interface,
            port,
            taken: None,
        };
        let first = tap.first()?;
        if ring.take {
            let taken = take(&flow, tap.interface.index);
            tap.taken = Some(taken.map_err(|error| explain_take(error, config))?);
        }
        let mode = Mode::new(tap.summary(ring.take, ring.all_traffic));
        tap.mode = match ring.take {
            true => mode,
            false => mode.tap(),
        };
        Ok((tap, first))
    }

    /// Packets dropped at the held port, if the copies of packets that the tap takes do not come
    /// there.
    pub(super) fn taken_port_drops(&self) -> Option<u64> {
        self.taken.as_ref().and_then(|_| self.port.dropped())
    }

    /// One more receiver: it and `first` share what comes from now on.
    ///
    /// A member can join a group only when it is bound, and a bound socket that is in no group
    /// takes every packet. So it lets nothing in until it has joined; what the group gives it in
    /// that moment is lost. Receivers are to be opened before the traffic.
    pub(super) fn join(&self, first: &PacketSocket) -> Result<PacketRxRing, Error> {
        let mut known = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let group = match *known {
            Some(group) => group,
            None => *known.insert(self.new_group(first)?),
        };
        let ring = self.ring(&NOTHING)?;
        ring.socket().join_fanout(&group)?;
        ring.socket().set_filter(&self.filter)?;
        Ok(ring)
    }

    fn first(&mut self) -> Result<PacketRxRing, Error> {
        let ring = self.ring(&self.filter)?;
        if self.fanout.is_some() {
            let group = self.new_group(ring.socket())?;
            self.group = Mutex::new(Some(group));
        }
        Ok(ring)
    }

    /// A bound receiver. Its filter and ring are there before it is bound: `socket(2)` was given no
    /// protocol, and until `bind(2)` gives one, no foreign packet gets in.
    fn ring(&self, filter: &[ClassicInstruction]) -> Result<PacketRxRing, Error> {
        let socket = PacketSocket::new(&self.interface.name)?;
        socket.set_filter(filter)?;
        socket.ignore_outgoing()?;
        let ring = PacketRxRing::new(socket, self.size)?;
        ring.socket().bind(Protocol::All, self.interface.index)?;
        Ok(ring)
    }

    fn new_group(&self, first: &PacketSocket) -> Result<FanoutGroup, Error> {
        let mode = self.fanout.unwrap_or(Fanout::Hash);
        let group = first.new_fanout(mode)?;
        if mode == Fanout::Ebpf {
            first.set_fanout_program(&filter::by_queue()?)?;
        }
        Ok(group)
    }

    fn summary(&self, take: bool, all_traffic: bool) -> String {
        let handled = match take {
            true => "taken: the kernel's copy is dropped behind the tap (tcx)",
            false => "the kernel handles each packet too",
        };
        let what = match all_traffic {
            true => ", all traffic",
            false => "",
        };
        let fanout = match self.fanout {
            None => "",
            Some(Fanout::Hash) => ", fan-out by flow hash",
            Some(Fanout::Cpu) => ", fan-out by CPU",
            Some(Fanout::Ebpf) => ", fan-out by receive queue (eBPF)",
        };
        let (name, port) = (&self.interface.name, self.port.owner);
        format!("tap on {name}{what}{fanout}, copy; {handled}; {port}")
    }
}

/// Refuses `RingConfig::take` where it would do nothing, or far too much.
fn check_take(config: &RxConfig, interface: &ListenedInterface) -> Result<(), Error> {
    let why = if interface.index == 0 {
        "a program is attached to one interface: give `ring.interface`"
    } else if config.ring.all_traffic {
        "with `ring.all_traffic` the kernel would get nothing any more, neither ARP nor ssh"
    } else {
        return Ok(());
    };
    Err(Error::invalid("ring.take", config.address, why))
}

/// `EINVAL` is the answer of a kernel that has no such link: before Linux 6.6, or built without.
fn explain_take(error: Error, config: &RxConfig) -> Error {
    let has_none = |refusal: &mpps_os::CallError| {
        refusal.call == "bpf BPF_LINK_CREATE" && refusal.errno() == Some(EINVAL)
    };
    match error {
        Error::Kernel(refusal) if has_none(&refusal) => Error::Invalid {
            field: "ring.take",
            value: config.address.to_string(),
            why: "this kernel has no TCX (Linux 6.6, CONFIG_NET_XGRESS), which drops the kernel's \
                  copies; leave `ring.take` out, or use `backend af_xdp`"
                .to_owned(),
        },
        error => error,
    }
}

/// Drops the kernel's copies of a flow's frames. Programs at this place run behind the taps, and
/// before the kernel does anything more with a frame (`__netif_receive_skb_core`, net/core/dev.c).
fn take(flow: &FlowFilter, interface_index: u32) -> Result<BpfLink, Error> {
    // The program keeps the map alive.
    let counters = FlowCounters::create(PerCpuMapKind::Array, "mppstaken", 1)?;
    let instructions = flow
        .tcx_drop(counters.as_fd())
        .map_err(mpps_os::CallError::from)?;
    let program = Program::load(ProgramKind::Classifier, "mpps_take", &instructions)?;
    Ok(BpfLink::tcx_ingress(&program, interface_index)?)
}
