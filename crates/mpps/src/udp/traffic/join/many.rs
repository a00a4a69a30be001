//! Several senders and receivers of one run in one ledger.

use super::{Stamps, drops, is_apart, join, take_other_family, take_strange};
use crate::udp::traffic::{RecvTotal, SendTotal};
use anyhow::{Result, bail, ensure};
use mpps_host::{Delta, Ledger};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The ledger of a run in all, by sender and by receiver.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Together {
    /// All of them.
    pub all: Ledger,
    /// Each sender, in the order of the files.
    pub senders: Vec<TogetherSender>,
    /// Each receiver, in the order of the files.
    pub receivers: Vec<TogetherReceiver>,
}

/// The datagrams of one sender, end markers included.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TogetherSender {
    /// Its file.
    pub file: String,
    /// Datagrams handed to the kernel.
    pub offered: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Datagrams that came to each receiver, each once, by their stamps.
    pub arrived: Vec<u64>,
    /// The others.
    pub missing: u64,
}

/// The datagrams of one receiver, end markers included.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TogetherReceiver {
    /// Its file.
    pub file: String,
    /// Its address.
    pub address: String,
    /// Datagrams of these senders, each once.
    pub arrived: u64,
    /// Drops at its sockets or rings, with those of other senders.
    pub dropped: u64,
    /// Datagrams received that are not among `arrived`: duplicates, other senders', or undecided ones.
    pub others: u64,
}

/// A file and its totals.
type TotalsFile<T> = (String, T);

/// Joins the files of any number of senders and receivers.
///
/// # Errors
/// If they do not belong together.
pub fn join_all(
    sends: &[TotalsFile<SendTotal>],
    recvs: &[TotalsFile<RecvTotal>],
) -> Result<Together> {
    ensure!(
        !sends.is_empty(),
        "no result of a sender; add that of mpps send --stamp --json=FILE"
    );
    ensure!(
        !recvs.is_empty(),
        "no result of a receiver; add that of mpps recv --json=FILE"
    );
    if let ([(_, send)], [(_, recv)]) = (sends, recvs) {
        return Ok(together(join(send, recv), sends, recvs));
    }
    belong(sends, recvs)?;
    let send = sender(sends);
    let (recv, strange) = receiver(&send, recvs);
    let mut all = join(&send, &recv);
    strange.into_iter().for_each(|note| all.note(note));
    Ok(together(all, sends, recvs))
}

fn together(
    ledger: Ledger,
    sends: &[TotalsFile<SendTotal>],
    recvs: &[TotalsFile<RecvTotal>],
) -> Together {
    let came = |send, recv: &RecvTotal| {
        let stamps = Stamps::new(send, recv);
        // Of flows that a receiver did not follow, the sender is not known.
        stamps.map_or(all_of(recv), |stamps| match stamps.has_many_flows {
            true => stamps.came.saturating_sub(stamps.unread),
            false => stamps.came,
        })
    };
    let senders = sends.iter().map(|(file, send)| {
        let arrived: Vec<u64> = recvs.iter().map(|(_, recv)| came(send, recv)).collect();
        let offered = send.offered.saturating_add(send.end_markers);
        TogetherSender {
            file: file.clone(),
            offered,
            refused: all(send.end_refused_by.values().copied().chain([send.refused])),
            missing: offered.saturating_sub(all(arrived.iter().copied())),
            arrived,
        }
    });
    let senders: Vec<TogetherSender> = senders.collect();
    let receivers = recvs.iter().enumerate().map(|(at, (file, recv))| {
        let arrived = all(senders.iter().map(|sender| sender.arrived[at]));
        TogetherReceiver {
            file: file.clone(),
            address: recv.address.clone(),
            arrived,
            dropped: all(drops(recv).iter().map(|drop| drop.count)),
            others: all_of(recv).saturating_sub(arrived),
        }
    });
    Together {
        all: ledger,
        receivers: receivers.collect(),
        senders,
    }
}

/// Fails with the first reason why these are not the files of one run.
fn belong(sends: &[TotalsFile<SendTotal>], recvs: &[TotalsFile<RecvTotal>]) -> Result<()> {
    let (mut runs, mut stamps) = (BTreeMap::new(), BTreeMap::new());
    for (file, send) in sends {
        for (at, thread) in send.threads.iter().enumerate() {
            let Some(run) = thread.run else {
                bail!(
                    "{file}: not stamped, so that its datagrams are not known among others; use send --stamp"
                );
            };
            if let Some(other) = stamps.insert((thread.number(at), run), file) {
                bail!("{other} and {file} have the stamps of one sender: name each result once");
            }
        }
        runs.extend(send.run_id.iter().map(|run| (run, file)));
    }
    let mut named = runs.iter();
    if let (Some((run, file)), Some((other_run, other))) = (named.next(), named.next()) {
        bail!("{file} is of run {run}, and {other} of run {other_run}: join one run at a time");
    }
    let senders = sends
        .iter()
        .map(|(file, send)| (file, &send.boot_id, send.namespace));
    let receivers = recvs
        .iter()
        .map(|(file, recv)| (file, &recv.boot_id, recv.namespace));
    for hosts in [senders.collect::<Vec<_>>(), receivers.collect()] {
        let mut known = BTreeMap::new();
        for (file, boot_id, namespace) in hosts {
            let place = boot_id.as_ref().zip(namespace);
            if let Some(other) = place.and_then(|place| known.insert(place, file)) {
                bail!(
                    "{other} and {file} are of one network namespace, whose counters would count twice; there, \
                     use one command with several addresses or threads"
                );
            }
        }
    }
    for (file, send) in sends {
        let mut apart = recvs.iter().map(|(_, recv)| is_apart(send, recv));
        if let Some(why) = apart.try_fold("", |_, why| why) {
            bail!("{file} belongs to none of the receivers: {why}");
        }
    }
    for (file, recv) in recvs {
        let mut apart = sends.iter().map(|(_, send)| is_apart(send, recv));
        if let Some(why) = apart.try_fold("", |_, why| why) {
            bail!("{file} belongs to none of the senders: {why}");
        }
        ensure!(
            recv.groups.is_empty() || recvs.len() == 1,
            "{file} joined a multicast group, whose datagrams come to each receiver: join each receiver's file \
             alone with those of the senders"
        );
    }
    let kinds: BTreeSet<_> = recvs.iter().map(|(_, recv)| &recv.arrival).collect();
    let ways: BTreeSet<_> = sends
        .iter()
        .map(|(_, send)| format!("{:?}", send.departure))
        .collect();
    ensure!(
        kinds.len() == 1 && ways.len() == 1,
        "the files are of different kinds of backends, whose counters are not the same: join them pair by pair"
    );
    Ok(())
}

/// Adds the counters of hosts; those of their interfaces have one name. The time is that of any of them,
/// or that of all.
fn hosts<'a>(
    hosts: impl Iterator<Item = (Option<&'a Delta>, &'a Option<String>, &'a Option<String>)> + Clone,
    name: &Option<String>,
    is_any: bool,
) -> Option<Delta> {
    let mut machines = BTreeSet::new();
    let mut sum: Option<Delta> = None;
    for (host, boot_id, interface) in hosts {
        let mut host = host?.clone();
        if let (Some(own), Some(name)) = (interface, name)
            && let Some(link) = host.links.remove(own)
        {
            host.links.insert(name.clone(), link);
        }
        let is_other = boot_id.is_none() || machines.insert(boot_id);
        let Some(sum) = &mut sum else {
            sum = Some(host);
            continue;
        };
        sum.add(&host, is_other);
        let ([began, ended], [from, to]) = (sum.taken_unix_ns, host.taken_unix_ns);
        sum.taken_unix_ns = match is_any {
            true => [began.min(from), ended.max(to)],
            false => [began.max(from), ended.min(to)],
        };
    }
    sum
}

/// One name for the interfaces of several hosts, if each has one.
fn name<'a>(interfaces: impl Iterator<Item = &'a Option<String>>) -> Option<String> {
    let all: Option<BTreeSet<&str>> = interfaces.map(|one| one.as_deref()).collect();
    Some(all?.into_iter().collect::<Vec<_>>().join("+"))
}

/// The machine of several hosts, if it is one.
fn machine<'a>(mut boots: impl Iterator<Item = &'a Option<String>>) -> Option<String> {
    let first = boots.next()?;
    boots
        .all(|boot| boot == first)
        .then(|| first.clone())
        .flatten()
}

/// Datagrams that a receiver got.
fn all_of(recv: &RecvTotal) -> u64 {
    recv.received.saturating_add(recv.end_markers)
}

fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

fn all(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn add_all(sums: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        add(sums.entry(name.clone()).or_default(), *count);
    }
}

/// All senders as one.
fn sender(sends: &[TotalsFile<SendTotal>]) -> SendTotal {
    let mut sum = sends[0].1.clone();
    for (at, thread) in sum.threads.iter_mut().enumerate() {
        thread.sender = u8::try_from(thread.number(at)).ok();
    }
    for (_, send) in &sends[1..] {
        add(&mut sum.offered, send.offered);
        add(&mut sum.sent, send.sent);
        add(&mut sum.refused, send.refused);
        add(&mut sum.end_markers, send.end_markers);
        add(&mut sum.blocked, send.blocked);
        sum.gso = sum.gso.max(send.gso);
        add_all(&mut sum.refused_by, &send.refused_by);
        add_all(&mut sum.end_refused_by, &send.end_refused_by);
        for (at, thread) in send.threads.iter().enumerate() {
            let mut thread = thread.clone();
            thread.sender = u8::try_from(thread.number(at)).ok();
            sum.threads.push(thread);
        }
    }
    let all = sends.iter().map(|(_, send)| send);
    sum.interface = name(all.clone().map(|send| &send.interface));
    sum.boot_id = machine(all.clone().map(|send| &send.boot_id));
    let all = all.map(|send| (send.host.as_ref(), &send.boot_id, &send.interface));
    sum.host = hosts(all, &sum.interface, true);
    sum
}

/// All receivers as one, without packets that cannot be of the run; notes name those.
fn receiver(send: &SendTotal, recvs: &[TotalsFile<RecvTotal>]) -> (RecvTotal, Vec<String>) {
    let mut own: Vec<RecvTotal> = recvs.iter().map(|(_, recv)| recv.clone()).collect();
    let mut notes = Vec::new();
    for recv in &mut own {
        let mut to_it = send.clone();
        to_it
            .threads
            .retain(|thread| is_to(&thread.target, &recv.address));
        let came = Stamps::new(&to_it, recv).is_some_and(|stamps| stamps.came > 0);
        if let Some(mut host) = recv.host.take() {
            take_other_family(&mut host, send);
            notes.extend(take_strange(&mut host, &to_it, recv, came));
            recv.host = Some(host);
        }
    }
    let mut sum = own[0].clone();
    for recv in &own[1..] {
        add(&mut sum.received, recv.received);
        add(&mut sum.end_markers, recv.end_markers);
        add(&mut sum.queued, recv.queued);
        add(&mut sum.untracked, recv.untracked);
        add(&mut sum.unstamped, recv.unstamped);
        add(&mut sum.socket_drops, recv.socket_drops);
        sum.socket_drops_are_trains |= recv.socket_drops_are_trains;
        sum.flows.extend(recv.flows.iter().cloned());
        for drop in &recv.drops {
            match sum.drops.iter_mut().find(|one| one.reason == drop.reason) {
                Some(one) => add(&mut one.count, drop.count),
                None => sum.drops.push(drop.clone()),
            }
        }
    }
    sum.interface = name(own.iter().map(|recv| &recv.interface));
    sum.boot_id = machine(own.iter().map(|recv| &recv.boot_id));
    let all = own.iter();
    let all = all.map(|recv| (recv.host.as_ref(), &recv.boot_id, &recv.interface));
    sum.host = hosts(all, &sum.interface, false);
    // Counts that cannot be of the run were taken out above, receiver by receiver.
    if own.len() > 1 {
        sum.address = String::new();
    }
    (sum, notes)
}

/// Whether a target is the address of a receiver.
fn is_to(target: &str, address: &str) -> bool {
    let parsed = |text: &str| text.parse::<SocketAddr>().ok();
    let both = parsed(target).zip(parsed(address));
    both.is_some_and(|(to, own)| {
        to.port() == own.port() && (own.ip().is_unspecified() || own.ip() == to.ip())
    })
}
