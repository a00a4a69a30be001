//! A queue that is kept for what is received: by a rule, or by entries of the RSS table.

use super::{Carving, Finished, RecvPlan};
use crate::udp::traffic::{CarveOutCounts, CarvedFlow, CarvedOut};
use anyhow::{Result, bail};
use mpps_host::{Applied, CarveOut, HostError};
use mpps_io::RxDrop;
use mpps_report::Quantity;

/// The number of ports that the text shows. JSON has them all.
const PORTS_SHOWN: usize = 8;

/// Finds the queue that can be taken for what a receiver wants. Changes nothing.
pub(super) fn queue(plan: &RecvPlan, how: Carving) -> Result<u32> {
    let (_, out) = choose(plan, how, plan.config.ring.queue, Ok)?;
    Ok(out.queue)
}

/// Takes a queue for what a receiver wants, once the receiver is open: a virtio_net whose table is a
/// user's makes its device forget it when an XDP program comes or goes (`virtnet_set_queues` sends
/// `VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET`, drivers/net/virtio_net.c).
pub(super) fn make(plan: &RecvPlan, how: Carving, queue: u32) -> Result<(CarvedOut, Applied)> {
    let applied = |out: CarveOut| Applied::new(&out.change).map(|applied| (out, applied));
    let (because, (out, applied)) = choose(plan, how, Some(queue), applied)?;
    Ok((carved(&out, because), applied))
}

/// Does something with the way that can be had, and says why with that one.
fn choose<T>(
    plan: &RecvPlan,
    how: Carving,
    queue: Option<u32>,
    done: impl Fn(CarveOut) -> mpps_host::HostResult<T>,
) -> Result<(String, T)> {
    let interface = plan.interface()?;
    let by_rule = || CarveOut::by_rule(&interface, plan.config.address, queue).and_then(&done);
    let by_slots = || CarveOut::by_slots(&interface, &plan.asked.flow, queue).and_then(&done);
    let asked = "it was asked for".to_owned();
    Ok(match how {
        Carving::Rule => (asked, by_rule()?),
        Carving::Slot => (asked, by_slots()?),
        Carving::Auto => match by_rule() {
            Ok(made) => ("the driver took a rule and shows it".to_owned(), made),
            Err(failed @ HostError::PutBack { .. }) => return Err(failed.into()),
            Err(no_rule) => match by_slots() {
                Ok(made) => (format!("no rule: {no_rule}"), made),
                Err(no_slot) if no_slot.to_string() == no_rule.to_string() => {
                    return Err(no_rule.into());
                }
                Err(no_slot) => bail!("no rule: {no_rule}; and no slot: {no_slot}"),
            },
        },
    })
}

fn carved(out: &CarveOut, because: String) -> CarvedOut {
    let slots = out.slots.as_ref();
    let flows = slots.map_or(&[][..], |slots| &slots.flows);
    let flows = flows.iter().map(|one| CarvedFlow {
        flow: one.flow.to_string(),
        fields: one.hashed.letters().to_owned(),
        slot: one.slot,
    });
    CarvedOut {
        how: if slots.is_some() { "slot" } else { "rule" }.to_owned(),
        because,
        queue: out.queue,
        slots: slots.map_or_else(Vec::new, |slots| slots.taken().into_iter().collect()),
        entries: slots.map_or(0, |slots| slots.entries),
        share: slots.map_or(0.0, |slots| slots.share()),
        key_from: slots.map(|slots| slots.key_from.clone()),
        flows: flows.collect(),
        ports: slots.map_or_else(Vec::new, |slots| slots.ports.clone()),
        counted: None,
    }
}

/// The facts that a user must know before traffic comes.
pub(super) fn said(carved: &CarvedOut) -> Vec<String> {
    let CarvedOut {
        how,
        because,
        queue,
        entries,
        ports,
        ..
    } = carved;
    let mut said = vec![format!("queue {queue} by {how}: {because}")];
    let Some(key_from) = &carved.key_from else {
        return said;
    };
    said.push(format!(
        "queue {queue} has {} of the {entries} entries of the RSS table: {} of all other traffic, if its \
         hashes are even, comes there as well, and is passed on to the kernel; key: {key_from}",
        carved.slots.len(),
        Quantity::Share(carved.share),
    ));
    let of_fields = |fields| carved.flows.iter().find(|flow| flow.fields == fields);
    if let Some(flow) = of_fields("sdfn") {
        let (source, destination) = flow.flow.split_once('-').unwrap_or_default();
        let host = source.rsplit_once(':').map_or(source, |(host, _)| host);
        let shown: Vec<String> = ports.iter().take(PORTS_SHOWN).map(u16::to_string).collect();
        said.push(format!(
            "addresses and ports are hashed (sdfn): {} source ports of {host} to {destination} come by \
             queue {queue}: {}{}",
            ports.len(),
            shown.join(", "),
            if ports.len() > shown.len() { " ..." } else { "" },
        ));
    }
    if let Some(flow) = of_fields("sd") {
        said.push(format!(
            "only addresses are hashed (sd): all UDP between the hosts of {} comes by queue {queue}",
            flow.flow
        ));
    }
    said
}

/// The same, with what came by the queue and past it.
pub(super) fn counted(carved: CarvedOut, plan: &RecvPlan, finished: &Finished) -> CarvedOut {
    let interface = plan.interface().unwrap_or_default();
    let host = finished.host.as_ref();
    let queues = host.map_or_else(Vec::new, |host| host.queue_packets(&interface));
    let mut queues = queues.into_iter();
    let queue = queues.find(|queue| queue.queue == carved.queue as usize);
    let reports = &finished.reports;
    let drops = reports.iter().flat_map(|report| &report.drops);
    let elsewhere = drops.filter(|drop| drop.reason == RxDrop::OTHER_QUEUE);
    let queue_packets = queue
        .as_ref()
        .map(|queue| u64::try_from(queue.packets).unwrap_or(0));
    let is_received = reports.iter().any(|report| report.counters.datagrams > 0);
    let passed_on = reports.iter().map(|report| report.counters.passed_on);
    let counted = CarveOutCounts {
        passed_on: passed_on.sum(),
        elsewhere: elsewhere.map(|drop| drop.count).sum(),
        is_proved: is_received && queue_packets != Some(0),
        counter: queue.map(|queue| queue.counter),
        queue_packets,
    };
    CarvedOut {
        counted: Some(counted),
        ..carved
    }
}
