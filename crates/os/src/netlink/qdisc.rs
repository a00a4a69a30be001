//! Queue disciplines: where packets wait in front of an interface (`tc(8)`).

use std::collections::BTreeMap;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};

use super::NetlinkSocket;
use crate::CallResult;

/// Puts a queue in front of each of an interface's transmit queues, first in, first out. Its length
/// is the interface's `txqueuelen` (`tc-pfifo(8)`). One for all would be one lock for all CPUs.
///
/// From Linux 6.16 on, packets then wait if a veth's ring is full (drivers/net/veth.c,
/// `veth_xmit`); without a queue they are dropped.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN` over the namespace; `ENODEV`; `ENOENT` in a kernel without
/// disciplines (`CONFIG_NET_SCHED`).
pub fn set_first_in_first_out(index: u32, queues: u16) -> CallResult<()> {
    if queues == 1 {
        return set(index, TcHandle::ROOT, "pfifo", Vec::new());
    }
    set(index, TcHandle::ROOT, "mq", Vec::new())?;
    for minor in 1..=queues {
        set(index, TcHandle { major: MQ, minor }, "pfifo", Vec::new())?;
    }
    Ok(())
}

/// The number of the discipline that has one of its own for each queue (`tc-mq(8)`).
const MQ: u16 = 1;

/// Has every packet dropped in front of the interface, with no word to who sends it: a loss that a
/// test can make (`blackhole_enqueue` in net/sched/sch_blackhole.c).
///
/// # Errors
///
/// As [`set_first_in_first_out`].
pub fn set_black_hole(index: u32) -> CallResult<()> {
    set(index, TcHandle::ROOT, "blackhole", Vec::new())
}

/// Limits an interface to `rate` bytes per second, with `burst` bytes at once (`tc-tbf(8)`): of all
/// queues together, and of frames with their Ethernet headers. Up to `waiting` bytes wait; more are
/// dropped.
///
/// # Errors
///
/// As [`set_first_in_first_out`]; `ENOENT` also in a kernel without tbf (`CONFIG_NET_SCH_TBF`).
pub fn limit_rate(index: u32, rate: u64, burst: u32, waiting: u32) -> CallResult<()> {
    // include/uapi/linux/pkt_sched.h: `TCA_TBF_PARMS`, `TCA_TBF_RATE64`, `TCA_TBF_BURST`, and struct
    // tc_tbf_qopt. That has two struct tc_ratespec, the second for no peak rate, and three words. The
    // kernel computes times by itself for the link layer Ethernet (`tbf_change`, net/sched/sch_tbf.c).
    let [parms, rate64, burst_bytes] = [1, 4, 6];
    const ETHERNET: u8 = 1;
    let mut parameters = [0; 36];
    parameters[1] = ETHERNET;
    let rate_32 = u32::try_from(rate).unwrap_or(u32::MAX);
    parameters[8..12].copy_from_slice(&rate_32.to_ne_bytes());
    parameters[24..28].copy_from_slice(&waiting.to_ne_bytes());
    let options = [
        (parms, parameters.to_vec()),
        (rate64, rate.to_ne_bytes().to_vec()),
        (burst_bytes, burst.to_ne_bytes().to_vec()),
    ];
    let options = options.map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value)));
    set(index, TcHandle::ROOT, "tbf", options.into())
}

fn set(index: u32, parent: TcHandle, kind: &str, options: Vec<TcOption>) -> CallResult<()> {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(index).unwrap_or(i32::MAX);
    message.header.parent = parent;
    if kind == "mq" {
        message.header.handle = TcHandle {
            major: MQ,
            minor: 0,
        };
    }
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    if !options.is_empty() {
        message.attributes.push(TcAttribute::Options(options));
    }
    let object = format!("interface {index}");
    NetlinkSocket::open("rtnetlink RTM_NEWQDISC", &object)?.change(
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )
}

/// Packets dropped by all queues of an interface together, by the interface's number: the counter
/// `dropped` of `tc -s qdisc show dev IF root`, which has 32 bits. A queue counts what it holds, so
/// that a train is one.
///
/// `RTM_GETQDISC`, `TCA_STATS2` (include/uapi/linux/gen_stats.h).
///
/// # Errors
///
/// `EOPNOTSUPP` in a kernel without disciplines; an answer that cannot be read.
pub fn drops() -> CallResult<BTreeMap<u32, u32>> {
    drops_of(TcHandle::ROOT)
}

/// The same of the filters of each interface, in both directions (`tc-bpf(8)`, `clsact`).
///
/// # Errors
///
/// As [`drops`].
pub fn filter_drops() -> CallResult<BTreeMap<u32, u32>> {
    // `TC_H_CLSACT` of include/uapi/linux/pkt_sched.h.
    drops_of(TcHandle {
        major: 0xffff,
        minor: 0xfff1,
    })
}

fn drops_of(parent: TcHandle) -> CallResult<BTreeMap<u32, u32>> {
    let socket = NetlinkSocket::open("rtnetlink RTM_GETQDISC", "all interfaces")?;
    let replies = socket.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
    let replies = replies.into_iter();
    Ok(replies
        .filter_map(|reply| discipline_drops(reply, parent))
        .collect())
}

/// The interface and the drops of a discipline with this parent.
fn discipline_drops(reply: RouteNetlinkMessage, parent: TcHandle) -> Option<(u32, u32)> {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = reply else {
        return None;
    };
    if message.header.parent != parent {
        return None;
    }
    let index = u32::try_from(message.header.index).ok()?;
    let stats = message.attributes.into_iter().find_map(|one| match one {
        TcAttribute::Stats2(stats) => Some(stats),
        _ => None,
    })?;
    let drops = stats.into_iter().find_map(|one| match one {
        TcStats2::Queue(queue) => Some(queue.drops),
        _ => None,
    })?;
    Some((index, drops))
}
