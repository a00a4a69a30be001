//! The difference between two snapshots.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counters::driver_counters::{self, Meaning};
use crate::counters::link_counters::{LinkCounters, difference};
use crate::counters::queue_packets::{QueuePackets, queue_packets};
use crate::counters::snapshot::{LinkSnapshot, Snapshot};
use crate::counters::snmp::{Snmp, is_gauge, is_printed_on_demand};
use crate::counters::softnet::{Softnet, SoftnetRow};

/// The differences of all counters, with their signs.
///
/// A counter that is in only one of the two snapshots has no difference and is named in
/// `anomalies`. A counter that went back is named there, too. Nothing is smoothed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    /// The time between the snapshots, in nanoseconds.
    pub duration_ns: i64,
    /// When the snapshots were taken by the host's own clock (`CLOCK_REALTIME`), in nanoseconds since
    /// 1970. Both are 0 in files of older versions.
    #[serde(default)]
    pub taken_unix_ns: [u64; 2],
    /// The protocol counters by name, such as `Udp.RcvbufErrors`.
    pub snmp: BTreeMap<String, i64>,
    /// The per-CPU queues of the whole host.
    pub softnet: Vec<SoftnetDelta>,
    /// The interfaces by name.
    pub links: BTreeMap<String, LinkDelta>,
    /// Reasons to doubt some of these differences, in sentences; empty in a clean run.
    pub anomalies: Vec<String>,
}

/// The difference of one CPU's queue; see [`SoftnetRow`] for the meaning of each field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetDelta {
    /// The CPU.
    pub cpu: usize,
    /// Packets taken into the network stack.
    pub processed: i64,
    /// Packets dropped because the backlog was full.
    pub dropped: i64,
    /// Times that the receive softirq stopped with work left.
    pub time_squeeze: i64,
    /// Wake-ups by another CPU.
    pub received_rps: i64,
    /// Packets dropped by the flow limit; counted in `dropped` as well.
    pub flow_limit: i64,
}

/// The difference of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDelta {
    /// The counters that every interface has.
    pub counters: LinkCounters<i64>,
    /// The driver's own counters (`ethtool -S`).
    pub driver: BTreeMap<String, i64>,
    /// The driver, such as `igb`; empty where it does not say, and in files of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// Drops of the queues in front of it; none if it had no queue.
    #[serde(default)]
    pub qdisc_drops: Option<i64>,
}

impl LinkDelta {
    /// The packets that found no descriptor or no room in the card. The counters are those of the
    /// driver, or otherwise those of every interface. They count different packets.
    pub fn no_room(&self) -> Vec<(&str, i64)> {
        let names = self.driver.keys().map(String::as_str);
        let own = driver_counters::of(&self.driver_name, Meaning::NoRoom, names);
        if !own.is_empty() || driver_counters::is_virtual(&self.driver_name) {
            let counted = own.into_iter().map(|name| (name, self.driver[name]));
            return counted.collect();
        }
        let missed = ("rx_missed_errors", self.counters.rx_missed_errors);
        let full = ("rx_fifo_errors", self.counters.rx_fifo_errors);
        // Some drivers write one count into both (amd8111e, alx).
        let full = Some(full).filter(|full| full.1 != missed.1);
        [Some(missed), full].into_iter().flatten().collect()
    }
}

impl Snapshot {
    /// The difference from an earlier snapshot of the same namespace.
    pub fn since(&self, earlier: &Self) -> Delta {
        Delta::between(earlier, self)
    }
}

impl Delta {
    /// The differences from `earlier` to `later`.
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Self {
        let mut delta = Self {
            duration_ns: difference(earlier.monotonic_ns, later.monotonic_ns),
            taken_unix_ns: [earlier.unix_ns, later.unix_ns],
            ..Self::default()
        };
        if delta.duration_ns < 0 {
            let sentence = "the later snapshot was taken first, or before the machine restarted";
            delta.anomalies.push(sentence.to_owned());
        }
        delta.add_snmp(&earlier.snmp, &later.snmp);
        delta.add_softnet(&earlier.softnet, &later.softnet);
        delta.add_links(&earlier.links, &later.links);
        delta
    }

    /// Adds the counters of another network namespace, interface by interface of the same name. Those of the
    /// machine are added only for another machine.
    pub fn add(&mut self, other: &Self, is_other_machine: bool) {
        let add = |sums: &mut BTreeMap<String, i64>, counts: &BTreeMap<String, i64>| {
            for (name, count) in counts {
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        };
        add(&mut self.snmp, &other.snmp);
        if is_other_machine {
            self.softnet.extend(&other.softnet);
        }
        for (name, link) in &other.links {
            let Some(sum) = self.links.get_mut(name) else {
                self.links.insert(name.clone(), link.clone());
                continue;
            };
            sum.counters.add(&link.counters);
            add(&mut sum.driver, &link.driver);
            if sum.driver_name != link.driver_name {
                let said = "interfaces have different drivers: counts of full cards may be missing";
                self.anomalies.push(format!("{name}: {said}"));
            }
            let drops = sum.qdisc_drops.zip(link.qdisc_drops);
            sum.qdisc_drops = drops.map(|(one, other)| one.saturating_add(other));
        }
        self.anomalies.extend(other.anomalies.iter().cloned());
    }

    /// A protocol counter by its full name; none where the kernel does not have it.
    pub fn snmp(&self, name: &str) -> Option<i64> {
        self.snmp.get(name).copied()
    }

    /// A UDP counter, IPv4 and IPv6 together: `udp("RcvbufErrors")`. None where the kernel has
    /// it for neither.
    pub fn udp(&self, name: &str) -> Option<i64> {
        let v4 = self.snmp(&format!("Udp.{name}"));
        let v6 = self.snmp(&format!("Udp6.{name}"));
        v4.or(v6)
            .map(|_| v4.unwrap_or(0).saturating_add(v6.unwrap_or(0)))
    }

    /// The counters of an interface that was in both snapshots.
    pub fn link(&self, name: &str) -> Option<&LinkCounters<i64>> {
        self.links.get(name).map(|link| &link.counters)
    }

    /// The anomalies of UDP and of this interface; of all, if none is named.
    pub fn anomalies_of(&self, interface: Option<&str>) -> impl Iterator<Item = &String> {
        let concerns = move |said: &&String| {
            let mut words = said.split_ascii_whitespace();
            words.any(|word| word.starts_with("Udp") || interface.is_none_or(|name| name == word))
        };
        self.anomalies.iter().filter(concerns)
    }

    /// The packets of each receive queue by the driver's counters, in the order of the queues.
    ///
    /// Empty where the interface was not in both snapshots, or its driver does not count by
    /// queue in a way that is known here.
    pub fn queue_packets(&self, interface: &str) -> Vec<QueuePackets> {
        self.links
            .get(interface)
            .map(|link| queue_packets(link.driver.iter().map(|(name, &n)| (name.as_str(), n))))
            .unwrap_or_default()
    }

    /// Packets dropped by full backlogs of all CPUs, host-wide.
    pub fn softnet_dropped(&self) -> i64 {
        let dropped = self.softnet.iter().map(|row| row.dropped);
        // A delta can come from a file, so that any value is possible.
        dropped.fold(0, i64::saturating_add)
    }

    fn add_snmp(&mut self, earlier: &Snmp, later: &Snmp) {
        let mut changes = Presence::default();
        for (name, now) in later.iter() {
            let before = match earlier.value(name) {
                Some(before) => before,
                None if is_printed_on_demand(name) => 0,
                None => {
                    changes.appeared.push(name.to_owned());
                    continue;
                }
            };
            if now < before && !is_gauge(name) {
                self.went_back(name, before, now);
            }
            self.snmp.insert(name.to_owned(), now.wrapping_sub(before));
        }
        let gone = earlier
            .iter()
            .filter(|(name, _)| later.value(name).is_none());
        changes
            .vanished
            .extend(gone.map(|(name, _)| name.to_owned()));
        changes.tell("protocol counter", &mut self.anomalies);
    }

    fn add_softnet(&mut self, earlier: &Softnet, later: &Softnet) {
        let mut changes = Presence::default();
        for now in &later.rows {
            match earlier.row(now.cpu) {
                Some(before) => {
                    let row = self.softnet_row(before, now);
                    self.softnet.push(row);
                }
                None => changes.appeared.push(now.cpu.to_string()),
            }
        }
        let gone = earlier
            .rows
            .iter()
            .filter(|row| later.row(row.cpu).is_none());
        changes.vanished.extend(gone.map(|row| row.cpu.to_string()));
        changes.tell("softnet row of CPU", &mut self.anomalies);
    }

    fn softnet_row(&mut self, before: &SoftnetRow, now: &SoftnetRow) -> SoftnetDelta {
        let cpu = now.cpu;
        let mut column = |name: &str, value: fn(&SoftnetRow) -> u32| {
            let (before, now) = (value(before), value(now));
            if now < before {
                // With 32 bits, a counter that wrapped looks like a counter that was reset.
                self.went_back(&format!("softnet {name} of CPU {cpu}"), before, now);
            }
            i64::from(now) - i64::from(before)
        };
        SoftnetDelta {
            cpu,
            processed: column("processed", |row| row.processed),
            dropped: column("dropped", |row| row.dropped),
            time_squeeze: column("time_squeeze", |row| row.time_squeeze),
            received_rps: column("received_rps", |row| row.received_rps),
            flow_limit: column("flow_limit", |row| row.flow_limit),
        }
    }

    fn add_links(
        &mut self,
        earlier: &BTreeMap<String, LinkSnapshot>,
        later: &BTreeMap<String, LinkSnapshot>,
    ) {
        let mut changes = Presence::default();
        for (name, now) in later {
            match earlier.get(name) {
                Some(before) => {
                    let link = self.link_delta(name, before, now);
                    self.links.insert(name.clone(), link);
                }
                None => changes.appeared.push(name.clone()),
            }
        }
        let gone = earlier.keys().filter(|name| !later.contains_key(*name));
        changes.vanished.extend(gone.cloned());
        changes.tell("interface", &mut self.anomalies);
    }

    fn link_delta(&mut self, name: &str, before: &LinkSnapshot, now: &LinkSnapshot) -> LinkDelta {
        if before.index != now.index {
            self.anomalies.push(format!(
                "interface {name} was replaced by another of the same name in between"
            ));
        } else if before.carrier_changes != now.carrier_changes {
            let times = now.carrier_changes.wrapping_sub(before.carrier_changes);
            self.anomalies.push(format!(
                "the carrier of {name} came or went in between ({times} changes): what was sent \
                 meanwhile is lost without a counter"
            ));
        }
        let counters = now
            .counters
            .since(&before.counters, |counter, before, now| {
                self.went_back(&format!("{name} {counter}"), before, now);
            });
        let mut driver = BTreeMap::new();
        let mut changes = Presence::default();
        for (counter, &now) in &now.driver {
            let Some(&before) = before.driver.get(counter) else {
                changes.appeared.push(counter.clone());
                continue;
            };
            if now < before {
                self.went_back(&format!("{name} {counter}"), before, now);
            }
            driver.insert(counter.clone(), difference(before, now));
        }
        let gone = before.driver.keys();
        let gone = gone.filter(|counter| !now.driver.contains_key(*counter));
        changes.vanished.extend(gone.cloned());
        changes.tell(&format!("{name} driver counter"), &mut self.anomalies);
        let drops = before.qdisc_drops.zip(now.qdisc_drops);
        let qdisc_drops = drops.map(|(before, now)| {
            if now < before {
                self.went_back(&format!("{name} qdisc dropped"), before, now);
            }
            difference(before, now)
        });
        LinkDelta {
            counters,
            driver,
            driver_name: now.driver_name.clone(),
            qdisc_drops,
        }
    }

    fn went_back(
        &mut self,
        name: &str,
        before: impl std::fmt::Display,
        now: impl std::fmt::Display,
    ) {
        self.anomalies.push(format!(
            "{name} went back from {before} to {now}: it was reset, or it wrapped"
        ));
    }
}

/// Names that were present at one end only.
#[derive(Debug, Default)]
struct Presence {
    appeared: Vec<String>,
    vanished: Vec<String>,
}

impl Presence {
    /// A sentence each, because a change of the number of queues concerns many counters at once.
    fn tell(self, kind: &str, anomalies: &mut Vec<String>) {
        for (names, verb) in [(self.appeared, "appeared"), (self.vanished, "vanished")] {
            let others = names.len().saturating_sub(1);
            match names.first() {
                None => {}
                Some(name) if others == 0 => {
                    anomalies.push(format!("{kind} {name} {verb} in between"));
                }
                Some(name) => {
                    anomalies.push(format!("{kind} {name} and {others} more {verb} in between"))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(snmp: &str, softnet: &str, links: &[(&str, LinkSnapshot)]) -> Snapshot {
        let links = links
            .iter()
            .map(|(name, link)| ((*name).to_owned(), link.clone()));
        Snapshot {
            monotonic_ns: 5,
            unix_ns: 0,
            snmp: Snmp::parse_pairs(snmp).expect("counters of a test"),
            softnet: Softnet::parse(softnet).expect("rows of a test"),
            links: links.collect(),
        }
    }

    fn link(index: u32, rx_packets: u64, driver: &[(&str, u64)]) -> LinkSnapshot {
        let driver = driver.iter().map(|&(name, value)| (name.to_owned(), value));
        LinkSnapshot {
            index,
            counters: LinkCounters {
                rx_packets,
                ..LinkCounters::default()
            },
            driver: driver.collect(),
            driver_name: String::new(),
            qdisc_drops: None,
            carrier_changes: 0,
        }
    }

    #[test]
    fn a_carrier_that_changed_is_an_anomaly_of_its_interface() {
        let changed = |times| LinkSnapshot {
            carrier_changes: times,
            ..link(2, 0, &[])
        };
        let [earlier, later] = [3, 5].map(|times| snapshot("", "", &[("eth1", changed(times))]));
        let delta = later.since(&earlier);
        let said: Vec<_> = delta.anomalies_of(Some("eth1")).collect();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("the carrier of eth1 came or went in between (2 changes)"));
        assert_eq!(delta.anomalies_of(Some("eth2")).count(), 0);
        assert_eq!(later.since(&later).anomalies, [""; 0]);
    }

    fn queued(drops: u64, link: LinkSnapshot) -> LinkSnapshot {
        LinkSnapshot {
            qdisc_drops: Some(drops),
            ..link
        }
    }

    #[test]
    fn what_found_no_room_counts_once() {
        for (driver, counters, missed, full, sum) in [
            // 4 found the card's memory full, and 5 no descriptor: its driver's own sum has both.
            ("igb", &[("rx_fifo_errors", 9)][..], 4, 9, 9),
            (
                "vmxnet3",
                &[("pkts rx OOB", 3), ("pkts rx OOB#2", 4)],
                0,
                0,
                7,
            ),
            // One count in both; two that have nothing in common.
            ("alx", &[], 6, 6, 6),
            ("", &[("rx_fifo_errors", 9)], 6, 1, 7),
            ("veth", &[("rx_queue_0_drops", 3)], 0, 0, 0),
        ] {
            let mut link = LinkDelta {
                driver_name: driver.to_owned(),
                ..LinkDelta::default()
            };
            link.counters.rx_missed_errors = missed;
            link.counters.rx_fifo_errors = full;
            let counters = counters.iter();
            link.driver
                .extend(counters.map(|(name, count)| ((*name).to_owned(), *count)));
            let no_room = link.no_room().into_iter().map(|(_, count)| count);
            assert_eq!(no_room.sum::<i64>(), sum, "{driver}");
        }
    }

    #[test]
    fn counters_are_subtracted() {
        let at = |[read, read_v6]: [u64; 2], softnet, packets, first| {
            let udp = format!(
                "Udp: InDatagrams NoPorts\nUdp: {read} 2\nUdp6: InDatagrams\nUdp6: {read_v6}"
            );
            let queues = [("rx0_packets", first), ("rx1_packets", 40)];
            let eth9 = queued(2, link(3, packets, &queues));
            snapshot(&udp, softnet, &[("eth9", eth9)])
        };
        let earlier = at([10, 1], "a 1 0", 100, 60);
        let later = at([15, 3], "1a 4 0", 110, 69);
        let delta = later.since(&earlier);
        assert_eq!(delta.snmp("Udp.InDatagrams"), Some(5));
        assert_eq!(delta.udp("InDatagrams"), Some(7));
        assert_eq!(delta.udp("NoSuchCounter"), None);
        assert_eq!(delta.softnet_dropped(), 3);
        let rows = delta.softnet.iter().map(|row| (row.cpu, row.processed));
        assert_eq!(rows.collect::<Vec<_>>(), [(0, 16)]);
        assert_eq!(delta.link("eth9").map(|link| link.rx_packets), Some(10));
        assert_eq!(delta.link("eth8"), None);
        let queues = delta.queue_packets("eth9");
        let queues: Vec<_> = queues.iter().map(|q| (q.queue, q.packets)).collect();
        assert_eq!(queues, [(0, 9), (1, 0)]);
        assert_eq!(delta.anomalies, [""; 0]);
    }

    #[test]
    fn a_counter_of_one_protocol_alone_is_that_counter() {
        let earlier = snapshot("Udp: A\nUdp: 1", "", &[]);
        let later = snapshot("Udp: A\nUdp: 4", "", &[]);
        assert_eq!(later.since(&earlier).udp("A"), Some(3));
    }

    #[test]
    fn what_went_back_is_said_and_keeps_its_sign() {
        let earlier = snapshot(
            "Udp: A\nUdp: 9\nTcp: CurrEstab\nTcp: 5",
            "ffffffff 0 0",
            &[("eth9", queued(9, link(3, 7, &[("x", 2)])))],
        );
        let later = snapshot(
            "Udp: A\nUdp: 4\nTcp: CurrEstab\nTcp: 2",
            "1 0 0",
            &[("eth9", queued(4, link(3, 0, &[("x", 1)])))],
        );
        let delta = later.since(&earlier);
        assert_eq!(delta.udp("A"), Some(-5));
        assert_eq!(delta.snmp("Tcp.CurrEstab"), Some(-3), "a state may go down");
        assert_eq!(delta.links["eth9"].qdisc_drops, Some(-5));
        let wrapped = "it was reset, or it wrapped";
        assert_eq!(
            delta.anomalies,
            [
                format!("Udp.A went back from 9 to 4: {wrapped}"),
                format!("softnet processed of CPU 0 went back from 4294967295 to 1: {wrapped}"),
                format!("eth9 rx_packets went back from 7 to 0: {wrapped}"),
                format!("eth9 x went back from 2 to 1: {wrapped}"),
                format!("eth9 qdisc dropped went back from 9 to 4: {wrapped}"),
            ]
        );
    }

    #[test]
    fn what_appears_or_vanishes_is_said_and_has_no_difference() {
        let earlier = snapshot(
            "Udp: A\nUdp: 9",
            "1 0 0\n1 0 0",
            &[("eth8", link(2, 0, &[])), ("eth9", link(3, 0, &[("a", 1)]))],
        );
        let later = snapshot(
            "Udp: B\nUdp: 9\nIcmpMsg: InType3\nIcmpMsg: 4\nIcmp6: InType1 OutType2\nIcmp6: 5 6",
            "1 0 0",
            &[
                ("eth9", link(4, 0, &[("b", 1), ("c", 1), ("d", 1)])),
                ("eth7", link(9, 0, &[])),
            ],
        );
        let delta = later.since(&earlier);
        let types = ["IcmpMsg.InType3", "Icmp6.InType1", "Icmp6.OutType2"];
        let types = types.map(|name| delta.snmp(name));
        assert_eq!(types, [Some(4), Some(5), Some(6)], "absence meant zero");
        assert_eq!((delta.snmp("Udp.A"), delta.snmp("Udp.B")), (None, None));
        assert_eq!(
            delta.anomalies,
            [
                "protocol counter Udp.B appeared in between",
                "protocol counter Udp.A vanished in between",
                "softnet row of CPU 1 vanished in between",
                "interface eth9 was replaced by another of the same name in between",
                "eth9 driver counter b and 2 more appeared in between",
                "eth9 driver counter a vanished in between",
                "interface eth7 appeared in between",
                "interface eth8 vanished in between",
            ]
        );
    }

    #[test]
    fn snapshots_in_the_wrong_order_are_said() {
        let earlier = snapshot("", "", &[]);
        let mut later = earlier.clone();
        assert_eq!(later.since(&earlier).anomalies, [""; 0]);
        later.monotonic_ns -= 1;
        later.unix_ns = 7;
        let delta = later.since(&earlier);
        assert_eq!((delta.duration_ns, delta.taken_unix_ns), (-1, [0, 7]));
        assert_eq!(delta.anomalies.len(), 1);
    }

    #[test]
    fn json_round_trip() {
        let earlier = snapshot(
            "Udp: A\nUdp: 9",
            "2 0 0",
            &[("eth9", link(3, 1, &[("a", 1)]))],
        );
        let later = snapshot(
            "Udp: A\nUdp: 8",
            "3 0 0",
            &[("eth9", link(3, 2, &[("a", 5)]))],
        );
        let delta = later.since(&earlier);
        let text = serde_json::to_string(&delta).expect("maps have text keys");
        assert_eq!(
            serde_json::from_str::<Delta>(&text).expect("the same form"),
            delta
        );
    }
}
