//! All counters of a host at one moment.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use mpps_os::netlink::{link, qdisc};
use mpps_os::{clock, ethtool};
use serde::{Deserialize, Serialize};

use crate::link_counters::LinkCounters;
use crate::queue_packets::by_kernel;
use crate::{Error, Result, Snmp, Softnet};

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
    /// The interface's number, by which a re-made one of the same name is told apart.
    pub index: u32,
    /// The counters that every interface has.
    pub counters: LinkCounters<u64>,
    /// The driver's own counters (`ethtool -S`), and the kernel's of its receive queues
    /// (`NETDEV_CMD_QSTATS_GET`: `qstats rx 0 rx-hw-drops`); empty where there are neither. A name that
    /// the driver gives to several counters is followed by `#2`, `#3` and so on.
    pub driver: BTreeMap<String, u64>,
    /// The driver; empty where it does not say.
    #[serde(default)]
    pub driver_name: String,
    /// What the queues in front of it have dropped (`tc -s qdisc`); none where it has no queue.
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
    /// [`crate::Error::Kernel`] where `/proc` is missing or an interface does not exist,
    /// [`crate::Error::Malformed`] where a file has an unknown form.
    pub fn take(interfaces: &[impl AsRef<str>]) -> Result<Self> {
        let (snapshot, refused) = Self::take_of(interfaces)?;
        refused.into_iter().next().map_or(Ok(snapshot), Err)
    }

    /// The same of those interfaces that answer, and why the others do not: one that goes meanwhile, as
    /// that of a container does that ends, and one whose driver begins anew.
    ///
    /// # Errors
    /// As above, but for interfaces.
    pub(crate) fn take_of(interfaces: &[impl AsRef<str>]) -> Result<(Self, Vec<Error>)> {
        let monotonic_ns = clock::monotonic_ns();
        let unix_time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let unix_ns = u64::try_from(unix_time.as_nanos()).unwrap_or(u64::MAX);
        let (mut links, mut refused) = (BTreeMap::new(), Vec::new());
        // A kernel without disciplines (`CONFIG_NET_SCHED`) has no such counters.
        let qdiscs = qdisc::drops().unwrap_or_default();
        for name in interfaces.iter().map(AsRef::as_ref) {
            match LinkSnapshot::take(name, &qdiscs) {
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
        Ok((snapshot, refused))
    }
}

impl LinkSnapshot {
    fn take(name: &str, qdiscs: &BTreeMap<u32, u32>) -> Result<Self> {
        let index = link::index(name)?;
        let counters = link::statistics(index)?.into();
        let mut driver = match ethtool::statistics(name) {
            Ok(counters) => named_once(counters),
            // A driver without counters of its own, such as loopback, says so in this way.
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        driver.extend(by_kernel(index));
        Ok(Self {
            index,
            counters,
            driver,
            driver_name: ethtool::driver(name).map_or_else(|_| String::new(), |told| told.name),
            qdisc_drops: qdiscs.get(&index).copied().map(u64::from),
            carrier_changes: link::carrier_changes(index)?,
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
