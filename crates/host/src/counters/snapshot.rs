//! All counters of a host at one moment.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use mpps_os::netlink::link::{self, NetlinkLink};
use mpps_os::netlink::qdisc;
use mpps_os::netlink::queue_statistics::QueueCounter;
use mpps_os::{clock, ethtool};
use serde::{Deserialize, Serialize};

use crate::counters::link_counters::LinkCounters;
use crate::counters::queue_packets::{by_kernel, named};
use crate::{HostError, HostResult, Snmp, Softnet};

/// The counters that a ledger needs, read one after the other.
///
/// The files are not read at one instant: take a snapshot when no packet is on its way, before
/// the traffic starts and after it has drained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `CLOCK_MONOTONIC` before the first counter was read, in nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME` then, in nanoseconds since 1970, for a look at what another host read.
    #[serde(default)]
    pub unix_ns: u64,
    /// The protocol counters of the calling thread's network namespace.
    pub snmp: Snmp,
    /// The per-CPU queues of the whole host, whatever the namespace.
    pub softnet: Softnet,
    /// The interfaces asked for, by name.
    pub links: BTreeMap<String, LinkSnapshot>,
}

/// The counters of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSnapshot {
    /// The interface's number. It distinguishes a new interface from an old one of the same name.
    pub index: u32,
    /// The counters that every interface has.
    pub counters: LinkCounters<u64>,
    /// The driver's own counters (`ethtool -S`), and the kernel's of its receive queues
    /// (`NETDEV_CMD_QSTATS_GET`: `qstats rx 0 rx-hw-drops`); empty where there are neither. A name that
    /// the driver gives to several counters is followed by `#2`, `#3` and so on.
    pub driver: BTreeMap<String, u64>,
    /// The driver, or the kind of a virtual device; empty where neither is known.
    #[serde(default)]
    pub driver_name: String,
    /// Drops of the queues in front of it (`tc -s qdisc`); none if it has no queue.
    #[serde(default)]
    pub qdisc_drops: Option<u64>,
    /// How often its carrier came or went.
    #[serde(default)]
    pub carrier_changes: u32,
}

impl Snapshot {
    /// Reads the counters of the calling thread's network namespace and of these interfaces.
    ///
    /// # Errors
    /// [`crate::HostError::Kernel`] where `/proc` is missing or an interface does not exist,
    /// [`crate::HostError::Malformed`] where a file has an unknown form.
    pub fn take(interfaces: &[impl AsRef<str>]) -> HostResult<Self> {
        let names: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        let taken = Self::take_of(Some(&names))?;
        let mut refused = taken.refused.into_iter();
        refused.next().map_or(Ok(taken.snapshot), Err)
    }

    /// Reads those of these interfaces that answer, or of all. Each list of the kernel is asked for
    /// once, however many interfaces there are.
    ///
    /// # Errors
    /// As above, but for interfaces.
    pub(crate) fn take_of(interfaces: Option<&[&str]>) -> HostResult<Taken> {
        let monotonic_ns = clock::monotonic_ns();
        let unix_time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let unix_ns = u64::try_from(unix_time.as_nanos()).unwrap_or(u64::MAX);
        let all = link::list()?;
        let lists = Lists {
            links: all.iter().map(|link| (&*link.name, link)).collect(),
            // A kernel without disciplines (`CONFIG_NET_SCHED`) has no such counters.
            qdiscs: qdisc::drops().unwrap_or_default(),
            queues: by_kernel(),
        };
        let (mut links, mut refused) = (BTreeMap::new(), Vec::new());
        let every = || all.iter().map(|link| &*link.name).collect();
        for name in interfaces.map_or_else(every, <[&str]>::to_vec) {
            match LinkSnapshot::take(name, &lists) {
                Ok(link) => {
                    links.insert(name.to_owned(), link);
                }
                Err(error) => refused.push(error),
            }
        }
        let snapshot = Self {
            monotonic_ns,
            unix_ns,
            snmp: Snmp::read()?,
            softnet: Softnet::read()?,
            links,
        };
        Ok(Taken {
            snapshot,
            links: all,
            refused,
        })
    }
}

/// A snapshot, and what was learned on the way.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) snapshot: Snapshot,
    /// All interfaces of the namespace.
    pub(crate) links: Vec<NetlinkLink>,
    /// Why interfaces do not answer. The interface has gone meanwhile, such as that of an ended
    /// container, or its driver restarts.
    pub(crate) refused: Vec<HostError>,
}

/// The kernel's answers about all interfaces at once.
struct Lists<'a> {
    links: BTreeMap<&'a str, &'a NetlinkLink>,
    qdiscs: BTreeMap<u32, u32>,
    queues: BTreeMap<u32, Vec<QueueCounter>>,
}

impl LinkSnapshot {
    /// The counters of one interface.
    fn take(name: &str, lists: &Lists<'_>) -> HostResult<Self> {
        const CALL: &str = "rtnetlink RTM_GETLINK";
        let no_link = |kind: io::ErrorKind| mpps_os::CallError::new(CALL, name, kind.into());
        let link = match lists.links.get(name) {
            Some(link) => link,
            // Another name of one of them (`ip link property add altname`), or it has gone.
            None => {
                let index = link::index(name)?;
                let mut links = lists.links.values();
                let link = links.find(|link| link.index == index);
                link.ok_or_else(|| no_link(io::ErrorKind::NotFound))?
            }
        };
        let counters = link.statistics;
        let counters = counters.ok_or_else(|| no_link(io::ErrorKind::Unsupported))?;
        let mut driver = match ethtool::statistics(name) {
            Ok(counters) => named_once(counters),
            // A driver without counters of its own, such as loopback, says so in this way.
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        let queues = lists.queues.get(&link.index).into_iter().flatten();
        driver.extend(queues.map(named));
        Ok(Self {
            index: link.index,
            counters: counters.into(),
            driver,
            driver_name: ethtool::driver(name).map_or_else(|_| link.kind.clone(), |told| told.name),
            qdisc_drops: lists.qdiscs.get(&link.index).copied().map(u64::from),
            carrier_changes: link.carrier_changes,
        })
    }
}

/// Drivers may use a name twice; a map would keep only the last of them.
fn named_once(counters: Vec<(String, u64)>) -> BTreeMap<String, u64> {
    let mut map = BTreeMap::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (name, value) in counters {
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        match *times {
            1 => map.insert(name, value),
            times => map.insert(format!("{name}#{times}"), value),
        };
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_counters_of_the_loopback_interface() {
        let snapshot = Snapshot::take(&["lo"]).expect("every namespace has a loopback interface");
        assert_eq!(
            snapshot.links["lo"].index, 1,
            "loopback is always the first"
        );
        assert!(snapshot.snmp.value("Udp.InDatagrams").is_some());
        assert!(!snapshot.softnet.rows.is_empty());
    }

    #[test]
    fn an_interface_that_does_not_exist_is_an_error_that_names_it() {
        let error = Snapshot::take(&["mpps-nowhere"]).unwrap_err().to_string();
        assert!(error.contains("mpps-nowhere"), "{error}");
    }

    #[test]
    fn a_name_used_twice_keeps_both_values() {
        let counters = [("a", 1), ("b", 2), ("a", 3)].map(|(n, v)| (n.to_owned(), v));
        let map = named_once(counters.to_vec());
        let expected = [("a", 1), ("a#2", 3), ("b", 2)].map(|(n, v)| (n.to_owned(), v));
        assert_eq!(map, BTreeMap::from(expected));
    }

    #[test]
    fn json_round_trip() {
        let snapshot = Snapshot::take(&["lo"]).expect("a snapshot");
        let text = serde_json::to_string(&snapshot).expect("maps have text keys");
        let back: Snapshot = serde_json::from_str(&text).expect("the same form");
        assert_eq!(back, snapshot);
    }
}
