//! `mpps recv`: arguments → plan.

mod best;

use super::{CommandEnding, backend, pinned};
use crate::machine::interface_at;
use crate::program::recv::{Carving, RecvArgs, RecvPlan};
use anyhow::{Context, Result, bail, ensure};
use mpps_io::{MulticastGroup, RingConfig, RxConfig, Wait};
use mpps_os::netlink::link;

/// Chooses the backend by what is known of host and interface.
const BEST: &str = "best";

/// The backends whose epoll_wait(2) polls the device queue.
const POLLS_BY_EPOLL: [&str; 3] = ["recv", "recvmmsg", "af_xdp"];

/// Receives until the count, the time or Ctrl-C.
pub(super) fn run(args: RecvArgs) -> Result<CommandEnding> {
    plan(args)?.run()
}

fn plan(args: RecvArgs) -> Result<RecvPlan> {
    let asked = args.threads.or(args.positional_threads).map(usize::from);
    let reuse_port = args.reuseport || args.positional_reuseport == Some(1);
    let pin = pinned(args.pin.as_ref())?;
    if args.steers_by_cpu {
        ensure!(
            reuse_port,
            "--steer cpu chooses among sockets: add --reuseport"
        );
        ensure!(
            args.pin.is_some(),
            "--steer cpu needs to know the CPU of each socket: add --pin"
        );
    }
    args.ring.check()?;
    let config = config(&args, reuse_port)?;
    let (backend, because) = if args.backend == BEST {
        let interface = interface_at(args.ring.interface.as_deref(), args.address.ip());
        let threads = asked.or_else(|| queues(&args)).unwrap_or(1);
        let best = best::choose(&config, interface, threads)?;
        (best.backend, best.because)
    } else {
        (backend(&args.backend, true)?, Vec::new())
    };
    ensure!(
        args.queue_carve_out.is_none() || backend.rx_fields.contains(&"ring.queue"),
        "--queue-carve-out: backend {} does not read a queue; add --backend af_xdp",
        backend.name
    );
    check_flows(&args)?;
    ensure!(
        args.suspend_irqs.is_none()
            || (matches!(args.wait, Wait::Epoll(_)) && args.busy_poll.is_some()),
        "--suspend-irqs: only epoll_wait(2) that polls keeps interrupts off; add --wait epoll and \
         --busy-poll 0"
    );
    ensure!(
        args.suspend_irqs.is_none() || POLLS_BY_EPOLL.contains(&backend.name),
        "--suspend-irqs: backend {} does not poll in epoll_wait(2); take {}",
        backend.name,
        POLLS_BY_EPOLL.join(", ")
    );
    let threads = match asked {
        Some(threads) => threads,
        // A queue without a reader would pass its packets on to the kernel.
        None if backend.rx_fields.contains(&"ring.queue") && args.ring.queue.is_none() => {
            queues(&args).unwrap_or(1)
        }
        None => 1,
    };
    Ok(RecvPlan {
        backend,
        because,
        config,
        threads,
        pin,
        lines: args.json.begin()?,
        asked: args,
    })
}

/// Refuses flows that would be steered and not received.
fn check_flows(args: &RecvArgs) -> Result<()> {
    ensure!(
        args.flow.is_empty() || args.queue_carve_out != Some(Carving::Rule),
        "--flow: a rule steers all datagrams to the address; leave it out, or take \
         --queue-carve-out=slot"
    );
    let at = args.address;
    let other = args.flow.iter().find(|flow| {
        let to = flow.destination;
        let is_here = to.ip() == at.ip() || at.ip().is_unspecified();
        to.port() != at.port() || to.is_ipv4() != at.is_ipv4() || !is_here
    });
    match other {
        Some(flow) => bail!("--flow {flow}: it is not to {at}, where this receives"),
        None => Ok(()),
    }
}

fn config(args: &RecvArgs, reuse_port: bool) -> Result<RxConfig> {
    let mut config = RxConfig::new(args.address);
    if args.gro {
        config = config.with_gro();
    }
    let groups = args.join.iter().map(|text| group(text));
    Ok(RxConfig {
        batch: args.batch.unwrap_or(config.batch),
        buffer_bytes: args.buffer.unwrap_or(config.buffer_bytes),
        receive_buffer_bytes: args.rcvbuf,
        reuse_port,
        busy_poll_us: args.busy_poll,
        groups: groups.collect::<Result<_>>()?,
        ring: RingConfig {
            all_traffic: args.all_traffic,
            take: args.take,
            fanout: args.fanout,
            ..args.ring.config()
        },
        ..config
    })
}

/// How many queues the interface of the address receives on, if there is such a number.
fn queues(args: &RecvArgs) -> Option<usize> {
    if args.queue_carve_out.is_some() {
        return Some(1);
    }
    let interface = interface_at(args.ring.interface.as_deref(), args.address.ip());
    let channels = mpps_os::ethtool::channels(&interface.ok()?).ok()?;
    usize::try_from(channels.rx.max(channels.combined)).ok()
}

/// `GROUP[%IF]`.
fn group(text: &str) -> Result<MulticastGroup> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (text, None),
    };
    let Ok(address) = address.parse() else {
        bail!("--join {text}: `{address}` is no address; write 239.1.2.3 or ff02::4321%eth1");
    };
    if let Some(name) = interface {
        link::index(name).with_context(|| format!("--join {text}"))?;
    }
    Ok(MulticastGroup {
        interface: interface.map(str::to_owned),
        ..MulticastGroup::new(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_name_its_interface() {
        let interface = |text| group(text).unwrap().interface;
        assert_eq!(interface("239.1.2.3"), None);
        assert_eq!(interface("239.1.2.3%lo").as_deref(), Some("lo"));
        let error = group("239.1.2.3%nosuch0").unwrap_err();
        assert!(format!("{error:#}").contains("nosuch0"));
        assert!(group("%").is_err());
    }
}
