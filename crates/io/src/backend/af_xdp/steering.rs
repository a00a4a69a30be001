//! The XDP program that brings packets to the sockets of an interface: ours, or the user's own.

use super::errno::{EINVAL, ERANGE};
use super::interface::XdpInterface;
use crate::filter::{FlowFilter, FlowProgram, Metadata};
use crate::{Error, RxConfig, SocketMap, WantedDetails};
use mpps_os::netlink::link;
use mpps_os::text::ShellWord;
use std::os::fd::BorrowedFd;

/// The MTU of Ethernet, whose frames every driver with XDP has room for.
const MTU_OF_ANY_DRIVER: u32 = 1500;

#[derive(Debug)]
pub(super) enum FlowSteering {
    Ours(FlowProgram),
    /// The map of a program that the user attached, and whether that is in the driver.
    Theirs(SocketMap, bool),
}

impl FlowSteering {
    /// Attaches a program for this configuration, or finds the user's own.
    pub(super) fn open(config: &RxConfig, interface: &XdpInterface) -> Result<Self, Error> {
        let ring = &config.ring;
        if let Some(sockets) = &ring.sockets {
            return Self::of_another(config, interface, sockets);
        }
        let filter = match ring.all_traffic {
            true => FlowFilter::everything(),
            false => FlowFilter::new(config.address),
        };
        let destinations = ring.destinations.iter().cloned();
        let filter = destinations.fold(filter, FlowFilter::or);
        let queues = interface.rx_queues;
        let metadata = metadata(&config.details);
        FlowProgram::attach_with(interface.index, &filter, ring.attach, queues, &metadata)
            .map(Self::Ours)
            .map_err(|error| explain_attach(error, interface))
    }

    fn of_another(
        config: &RxConfig,
        interface: &XdpInterface,
        sockets: &SocketMap,
    ) -> Result<Self, Error> {
        let name = &interface.name;
        let refused = |value: String, why: String| Error::invalid("ring.sockets", value, why);
        let ring = &config.ring;
        let asked = [
            (ring.attach.is_some(), "ring.attach"),
            (ring.all_traffic, "ring.all_traffic"),
            (!ring.destinations.is_empty(), "ring.destinations"),
            (!config.groups.is_empty(), "groups"),
            (
                !metadata(&config.details).is_empty(),
                "details of the driver",
            ),
        ];
        if let Some((_, field)) = asked.iter().find(|(asked, _)| *asked) {
            let why = "the program that is there decides which packets come; leave it out";
            return Err(refused(format!("with {field}"), why.to_owned()));
        }
        if sockets.queues() < interface.rx_queues {
            let (room, queues) = (sockets.queues(), interface.rx_queues);
            let why = format!("{name} has {queues} receive queues: give the map as many entries");
            return Err(refused(format!("of {room} entries"), why));
        }
        let link = link::find(interface.index)?;
        let is_native = link.and_then(|link| link.native_xdp).ok_or_else(|| {
            let why = "no XDP program is attached to it: attach the program with the map first";
            refused(format!("on {name}"), why.to_owned())
        })?;
        Ok(Self::Theirs(sockets.clone(), is_native))
    }

    /// Gives the packets of this queue to an AF_XDP socket that is bound to it.
    pub(super) fn bind(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        match self {
            Self::Ours(program) => program.bind(queue, socket),
            Self::Theirs(sockets, _) => sockets.bind(queue, socket),
        }
    }

    /// How many frames of this queue were left to the kernel; none if the program does not count
    /// them.
    pub(super) fn passed_on(&self, queue: u32) -> Option<u64> {
        let Self::Ours(program) = self else {
            return None;
        };
        let counts = program.counts(queue).ok()?;
        Some(counts.passed + counts.other)
    }

    /// How many wanted frames came by queues without a socket; none if the program does not count
    /// them.
    pub(super) fn unclaimed(&self, queues: u32) -> Option<u64> {
        let Self::Ours(program) = self else {
            return None;
        };
        (0..queues)
            .map(|queue| Some(program.counts(queue).ok()?.passed))
            .sum()
    }

    /// Whether the program runs in the driver.
    pub(super) fn is_native(&self) -> bool {
        match self {
            Self::Ours(program) => program.is_native(),
            Self::Theirs(_, is_native) => *is_native,
        }
    }

    /// A description in words.
    pub(super) fn summary(&self) -> &'static str {
        match (self, self.is_native()) {
            (Self::Ours(_), true) => "native XDP",
            (Self::Ours(_), false) => "generic XDP",
            (Self::Theirs(..), true) => "another program's native XDP",
            (Self::Theirs(..), false) => "another program's generic XDP",
        }
    }
}

/// The details that only the driver knows.
pub(super) fn metadata(wanted: &WantedDetails) -> Vec<Metadata> {
    let asked = [
        (wanted.hardware_time, Metadata::Time),
        (wanted.hash, Metadata::Hash),
        (wanted.vlan, Metadata::Vlan),
    ];
    let asked = asked.into_iter();
    asked
        .filter_map(|(asked, one)| asked.then_some(one))
        .collect()
}

/// Adds the MTU to the error if the driver refuses a program and the MTU may be why. Drivers have
/// no error of their own for it: veth answers `ERANGE`, the others `EINVAL`.
fn explain_attach(error: Error, interface: &XdpInterface) -> Error {
    let XdpInterface { name, mtu, .. } = interface;
    match error {
        Error::Kernel(refusal)
            if refusal.call == "bpf BPF_LINK_CREATE"
                && matches!(refusal.errno(), Some(EINVAL | ERANGE))
                && *mtu > MTU_OF_ANY_DRIVER =>
        {
            Error::Invalid {
                field: "ring.attach",
                value: "native".to_owned(),
                why: format!(
                    "{refusal}: most likely for the MTU of {mtu}, whose frames are longer than the \
                     driver's buffers for XDP; ip link set dev {} mtu {MTU_OF_ANY_DRIVER}, or \
                     `ring.attach` generic",
                    ShellWord::new(name)
                ),
            }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_large_mtu_is_named_where_a_driver_refuses_the_program() {
        let refused_on = |name, errno, mtu| {
            let refusal = io::Error::from_raw_os_error(errno);
            let error =
                mpps_os::CallError::new("bpf BPF_LINK_CREATE", "native XDP of eth1", refusal);
            explain_attach(error.into(), &XdpInterface::named(name, mtu)).to_string()
        };
        let refused = |errno, mtu| refused_on("eth1", errno, mtu);
        let said = refused_on("a;id", EINVAL, 3500);
        assert!(said.contains("dev 'a;id' mtu"), "{said}");
        for errno in [EINVAL, ERANGE] {
            let said = refused(errno, 3500);
            for part in [
                "MTU of 3500",
                "ip link set dev eth1 mtu 1500",
                "`ring.attach` generic",
            ] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert!(!refused(errno, 1500).contains("MTU"));
        }
        assert!(!refused(super::super::errno::EBUSY, 3500).contains("MTU"));
    }
}
