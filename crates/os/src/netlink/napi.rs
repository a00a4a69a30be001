//! NAPI contexts: the kernel's receivers, one for each receive queue of an interface.

use super::generic::{Attributes, Question, attributes, u32_of, u64_of};
use crate::CallResult;
use std::collections::BTreeMap;

/// The commands and attributes of include/uapi/linux/netdev.h.
const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const INTERFACE: u16 = 1;
const ID: u16 = 2;
const INTERRUPT: u16 = 3;
const THREAD: u16 = 4;
const QUEUE: u16 = 1;
const QUEUE_INTERFACE: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const QUEUE_LEASE: u16 = 8;
const LEASE_INTERFACE: u16 = 1;
const LEASE_QUEUE: u16 = 2;
/// `NETDEV_QUEUE_TYPE_RX`.
const RECEIVE: u32 = 0;

/// A number of a NAPI context that can be set (Linux 6.13, Documentation/networking/napi.rst), by its
/// attribute of include/uapi/linux/netdev.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NapiSetting {
    /// Empty polls before its interrupts are on again.
    DeferHardIrqs = 5,
    /// Nanoseconds until the kernel polls by itself while they are off.
    GroFlushTimeout = 6,
    /// Nanoseconds that its interrupts stay off after epoll_wait(2) that prefers to poll it has found
    /// packets ("IRQ suspension").
    IrqSuspendTimeout = 7,
}

impl NapiSetting {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::DeferHardIrqs,
        Self::GroFlushTimeout,
        Self::IrqSuspendTimeout,
    ];

    /// Its name in Documentation/netlink/specs/netdev.yaml.
    pub fn name(self) -> &'static str {
        [
            "defer-hard-irqs",
            "gro-flush-timeout",
            "irq-suspend-timeout",
        ][self as usize - 5]
    }
}

/// One NAPI context of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Napi {
    /// Its number, unique on this host for as long as it lives.
    pub id: u32,
    /// Its interrupt, if the driver says so.
    pub interrupt: Option<u32>,
    /// The kernel thread that polls it, in threaded mode; none if this PID namespace does not hold
    /// it. Older kernels number it as the initial PID namespace does: check its name.
    pub thread: Option<u32>,
    settings: [Option<u64>; 3],
}

impl Napi {
    /// The present value; none before Linux 6.13.
    pub fn setting(&self, setting: NapiSetting) -> Option<u64> {
        self.settings[setting as usize - 5]
    }
}

/// The NAPI contexts of the interface with this number, ascending by their own (the generic
/// netlink family `netdev`, Linux 6.8).
///
/// # Errors
///
/// `ENOENT` or `EOPNOTSUPP` before Linux 6.8; `ENODEV`.
pub fn list(index: u32) -> CallResult<Vec<Napi>> {
    let answers = ask("netlink NETDEV_CMD_NAPI_GET", NAPI_GET, INTERFACE, index)?;
    let mut contexts: Vec<Napi> = answers
        .iter()
        .filter_map(|attributes| {
            Some(Napi {
                id: u32_of(attributes, ID)?,
                interrupt: u32_of(attributes, INTERRUPT),
                // 0 is a thread outside this PID namespace (task_pid_nr_ns, kernel/pid.c).
                thread: u32_of(attributes, THREAD).filter(|pid| *pid != 0),
                settings: NapiSetting::ALL.map(|setting| u64_of(attributes, setting as u16)),
            })
        })
        .collect();
    contexts.sort_unstable();
    Ok(contexts)
}

/// The receive queue of each interrupt of the interface with this number, by the interrupt's number.
/// Some drivers do not say which they use. An interrupt of several queues has the first.
///
/// # Errors
///
/// As for [`list`].
pub fn queue_interrupts(index: u32) -> CallResult<BTreeMap<u32, usize>> {
    let call = "netlink NETDEV_CMD_QUEUE_GET";
    let queues = ask(call, QUEUE_GET, QUEUE_INTERFACE, index)?;
    Ok(interrupts_of(&queues, &list(index)?))
}

/// The context that polls a receive queue of the interface with this number; none where there is none. A
/// driver that does not say which (veth) makes one for each queue, in their order.
///
/// # Errors
///
/// As for [`list`].
pub fn of_queue(index: u32, queue: u32) -> CallResult<Option<Napi>> {
    let call = "netlink NETDEV_CMD_QUEUE_GET";
    let queues = ask(call, QUEUE_GET, QUEUE_INTERFACE, index)?;
    Ok(context_of(&queues, &list(index)?, queue))
}

/// The queues of the interface with this number that are leased (netkit, Linux 7.1): for each the number of
/// the other interface, in its own network namespace, and its queue there.
///
/// # Errors
///
/// As for [`list`].
pub fn leases(index: u32) -> CallResult<BTreeMap<u32, (u32, u32)>> {
    let call = "netlink NETDEV_CMD_QUEUE_GET";
    Ok(leases_of(&ask(call, QUEUE_GET, QUEUE_INTERFACE, index)?))
}

fn leases_of(queues: &[Attributes]) -> BTreeMap<u32, (u32, u32)> {
    let lease = |queue: &Attributes| {
        let inside = |all: &Attributes, kind| {
            let found = all.iter().find(|(found, _)| *found == kind);
            found.map(|(_, value)| attributes(value))
        };
        let lease = inside(queue, QUEUE_LEASE)?;
        let other = u32_of(&inside(&lease, LEASE_QUEUE)?, QUEUE)?;
        Some((
            u32_of(queue, QUEUE)?,
            (u32_of(&lease, LEASE_INTERFACE)?, other),
        ))
    };
    queues.iter().filter_map(lease).collect()
}

fn context_of(queues: &[Attributes], contexts: &[Napi], number: u32) -> Option<Napi> {
    let receive = queues.iter();
    let receive = receive.filter(|queue| u32_of(queue, QUEUE_TYPE) == Some(RECEIVE));
    let (own, others): (Vec<_>, Vec<_>) =
        receive.partition(|queue| u32_of(queue, QUEUE) == Some(number));
    let id = |queue: &&Attributes| u32_of(queue, QUEUE_NAPI);
    let said = own.iter().chain(&others).any(|queue| id(queue).is_some());
    match said || contexts.len() != own.len() + others.len() {
        true => {
            let own = own.first().and_then(id);
            contexts.iter().find(|one| Some(one.id) == own).copied()
        }
        false => contexts.get(number as usize).copied(),
    }
}

fn interrupts_of(queues: &[Attributes], contexts: &[Napi]) -> BTreeMap<u32, usize> {
    let mut interrupts = BTreeMap::new();
    let receive = queues.iter();
    for queue in receive.filter(|queue| u32_of(queue, QUEUE_TYPE) == Some(RECEIVE)) {
        let id = u32_of(queue, QUEUE_NAPI);
        let context = contexts.iter().find(|context| Some(context.id) == id);
        let interrupt = context.and_then(|context| context.interrupt);
        if let Some((interrupt, number)) = interrupt.zip(u32_of(queue, QUEUE)) {
            let first = interrupts.entry(interrupt).or_insert(number as usize);
            *first = (*first).min(number as usize);
        }
    }
    interrupts
}

/// The objects of an interface. `attribute` names the interface.
fn ask(call: &'static str, command: u8, attribute: u16, index: u32) -> CallResult<Vec<Attributes>> {
    let question = Question {
        call,
        object: &format!("interface {index}"),
        family: "netdev",
        command,
        attributes: &[(attribute, index.to_ne_bytes().to_vec())],
    };
    question.dump()
}

/// Sets a number of the context with this id; 0 is off.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`, `ENOENT` if there is no such context, `EOPNOTSUPP` before Linux
/// 6.13.
pub fn set(id: u32, setting: NapiSetting, value: u32) -> CallResult<()> {
    let attributes = [
        (ID, id.to_ne_bytes().to_vec()),
        (setting as u16, value.to_ne_bytes().to_vec()),
    ];
    Question {
        call: "netlink NETDEV_CMD_NAPI_SET",
        object: &format!("NAPI context {id}"),
        family: "netdev",
        command: NAPI_SET,
        attributes: &attributes,
    }
    .execute()
}

#[cfg(test)]
mod tests {
    use super::super::generic::nested;
    use super::*;

    #[test]
    fn an_interrupt_has_the_receive_queue_of_its_context() {
        let context = |id, interrupt| Napi {
            id,
            interrupt,
            thread: None,
            settings: [None; 3],
        };
        let queue = |number: u32, kind: u32, napi: Option<u32>| {
            let word = |value: u32| value.to_ne_bytes().to_vec();
            let known = [(QUEUE, word(number)), (QUEUE_TYPE, word(kind))].into_iter();
            known
                .chain(napi.map(|id| (QUEUE_NAPI, word(id))))
                .collect::<Attributes>()
        };
        let contexts = [
            context(257, Some(40)),
            context(258, Some(41)),
            context(259, None),
        ];
        let queues = [
            queue(2, RECEIVE, Some(258)),
            queue(1, RECEIVE, Some(258)),
            queue(0, RECEIVE, Some(257)),
            queue(3, RECEIVE, Some(259)),
            queue(4, RECEIVE, None),
            queue(9, 1, Some(257)),
        ];
        let expected = [(40, 0), (41, 1)].into();
        assert_eq!(interrupts_of(&queues, &contexts), expected);
        let ids = |queues: &[Attributes], contexts: &[Napi]| {
            [0, 1, 4, 9].map(|number| Some(context_of(queues, contexts, number)?.id))
        };
        assert_eq!(ids(&queues, &contexts), [Some(257), Some(258), None, None]);
        let (kind, lease) = nested(
            QUEUE_LEASE,
            &[
                nested(LEASE_QUEUE, &[(QUEUE, vec![3, 0, 0, 0])]),
                (LEASE_INTERFACE, vec![7, 0, 0, 0]),
            ],
        );
        let mut leased = queue(1, RECEIVE, None);
        // The bits of nesting are cut where an answer is read.
        leased.push((kind & 0x3fff, lease));
        assert_eq!(
            leases_of(&[leased, queues[0].clone()]),
            [(1, (7, 3))].into()
        );
        // Where the driver does not say, their order does, if there are as many.
        let silent = [
            queue(0, RECEIVE, None),
            queue(1, RECEIVE, None),
            queue(0, 1, None),
        ];
        assert_eq!(ids(&silent, &contexts), [None; 4]);
        assert_eq!(
            ids(&silent, &contexts[..2]),
            [Some(257), Some(258), None, None]
        );
    }
}
