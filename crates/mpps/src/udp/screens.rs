//! Where packets are lost, as the article's author saw it: what each receive queue of the interface
//! got, what UDP made of it, and what each CPU was busy with.

use crate::machine;
use crate::output;
use anyhow::Result;
use mpps_host::{CpuBusy, Delta, ProcStat, Snapshot};
use mpps_lab::LabHost;
use mpps_os::clock::monotonic_ns;
use mpps_report::{Block, Column, Quantity, Row, Table, Terminal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counters of UDP that are shown, by the names of `/proc/net/snmp`.
const UDP: [&str; 4] = ["InDatagrams", "NoPorts", "InErrors", "RcvbufErrors"];

/// Parts of the names that drivers give to what they had no room for.
const LOSSES: [&str; 6] = ["drop", "discard", "missed", "nodesc", "no_buf", "nobuf"];

/// A CPU below this share is listed in one line with the other idle CPUs.
const IDLE: f64 = 0.01;

/// The three screens over some time. A counter that is missing or was reset has no rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Screens {
    /// The time between the two readings of the counters.
    pub seconds: f64,
    /// The interface of the address. For an address of all interfaces it is the interface that
    /// received most meanwhile; absent if none received anything.
    pub interface: Option<String>,
    /// Packets that it received per second, over all queues; absent in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_pps: Option<f64>,
    /// Its receive queues; none if its driver does not count by queue.
    pub queues: Vec<QueueRate>,
    /// Packets that its driver dropped or had no room for, per second, by the driver's names.
    /// Counters that did not change are left out.
    pub drops: BTreeMap<String, f64>,
    /// UDP in this network namespace, IPv4 and IPv6 together, per second, by the kernel's names.
    pub udp: BTreeMap<String, f64>,
    /// How busy each CPU of the machine was.
    pub cpus: Vec<CpuBusy>,
    /// Parts that cannot be shown, and why.
    pub notes: Vec<String>,
}

/// The rate of one receive queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueRate {
    /// The queue.
    pub queue: usize,
    /// The driver's name for the counter; the first of them where several are added up.
    pub counter: String,
    /// Packets per second.
    pub pps: f64,
}

/// All that the screens need, at one moment.
#[derive(Debug)]
pub(crate) struct ScreenLook {
    at_ns: u64,
    counters: Result<Snapshot, String>,
    cpus: Result<ProcStat, String>,
}

impl ScreenLook {
    /// Reads the counters of the calling thread's namespace and of this interface, or of all.
    pub(crate) fn take(interface: Option<&str>) -> Self {
        let counters = match interface {
            Some(name) => Snapshot::take(&[name]).map_err(anyhow::Error::from),
            None => machine::snapshot(),
        };
        Self {
            at_ns: monotonic_ns(),
            counters: counters.map_err(|error| format!("interface and UDP: {error:#}")),
            cpus: ProcStat::read().map_err(|error| format!("CPUs: {error}")),
        }
    }

    /// The screens since an earlier look at the same.
    pub(crate) fn since(&self, earlier: &Self) -> Screens {
        let mut screens = Screens {
            seconds: self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9,
            ..Screens::default()
        };
        match (&earlier.counters, &self.counters) {
            (Ok(earlier), Ok(now)) => screens.enter(&now.since(earlier)),
            (_, Err(why)) | (Err(why), _) => screens.notes.push(why.clone()),
        }
        match (&earlier.cpus, &self.cpus) {
            (Ok(earlier), Ok(now)) => {
                screens.cpus = now.busy_since(earlier);
                let came = now
                    .cpus
                    .keys()
                    .filter(|cpu| !earlier.cpus.contains_key(cpu));
                let came = came.map(|cpu| format!("CPU {cpu} came online"));
                screens.notes.extend(came);
            }
            (_, Err(why)) | (Err(why), _) => screens.notes.push(why.clone()),
        }
        screens
    }
}

impl Screens {
    /// Enters what the interface and UDP counted.
    fn enter(&mut self, delta: &Delta) {
        let seconds = delta.duration_ns as f64 / 1e9;
        let rate = |count: i64| (count >= 0 && seconds > 0.0).then(|| count as f64 / seconds);
        for name in UDP {
            let both = [format!("Udp.{name}"), format!("Udp6.{name}")];
            let both = both.iter().filter_map(|name| delta.snmp(name));
            let rates: Option<Vec<f64>> = both.map(rate).collect();
            let rates = rates.filter(|rates| !rates.is_empty());
            let whole = rates.map(|rates| (name.to_owned(), rates.iter().sum()));
            self.udp.extend(whole);
        }
        let links = delta.links.iter();
        let busiest = links.max_by_key(|(_, link)| link.counters.rx_packets);
        // An interface that the user named is shown even if it received nothing.
        let busiest =
            busiest.filter(|(_, link)| delta.links.len() == 1 || link.counters.rx_packets > 0);
        self.interface = busiest.map(|(name, _)| name.clone());
        if let Some((name, link)) = busiest {
            self.received_pps = rate(link.counters.rx_packets);
            let queues = delta.queue_packets(name).into_iter();
            let queues = queues.filter_map(|queue| {
                Some(QueueRate {
                    queue: queue.queue,
                    counter: queue.counter,
                    pps: rate(queue.packets)?,
                })
            });
            self.queues = queues.collect();
            let is_loss = |name: &str| LOSSES.iter().any(|part| name.contains(part));
            let lost = link.driver.iter().filter(|(name, count)| {
                **count > 0 && !name.starts_with("tx") && is_loss(&name.to_ascii_lowercase())
            });
            let lost = lost.filter_map(|(name, count)| Some((name.clone(), rate(*count)?)));
            self.drops = lost.collect();
        }
        let notes = delta.anomalies_of(self.interface.as_deref());
        self.notes.extend(notes.cloned());
    }

    /// The same as people read it.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let interface = self.interface.as_deref().unwrap_or("queues");
        let mut rows = vec![(interface.to_owned(), self.of_interface())];
        let udp = UDP.iter().map(|name| {
            let rate = self.udp.get(*name);
            format!(
                "{name} {}",
                rate.map_or("-".to_owned(), |rate| per_second(*rate))
            )
        });
        rows.push(("UDP".to_owned(), udp.collect::<Vec<_>>().join(", ")));
        let is_busy = |cpu: &&CpuBusy| cpu.busy >= IDLE || cpu.steal >= IDLE;
        let (busy, idle): (Vec<&CpuBusy>, Vec<&CpuBusy>) = self.cpus.iter().partition(is_busy);
        let more = if busy.is_empty() { "" } else { " more" };
        let busy = busy.into_iter();
        rows.extend(busy.map(|cpu| (format!("CPU {}", cpu.cpu), of_cpu(cpu))));
        if !idle.is_empty() {
            let idle = format!("{}{more} less than 1 % busy", idle.len());
            rows.push(("CPUs".to_owned(), idle));
        }
        let notes = self.notes.iter();
        rows.extend(notes.map(|note| ("note".to_owned(), note.clone())));
        let widest = rows.iter().map(|(name, _)| name.chars().count()).max();
        let columns = [
            Column::words("", widest.unwrap_or(0)),
            Column::words("", 20).grow(400),
        ];
        let rows = rows
            .into_iter()
            .map(|(name, said)| Row::new([name.into(), said.into()]));
        vec![Table::new(columns).rows(rows).into()]
    }

    fn of_interface(&self) -> String {
        if self.interface.is_none() {
            // Without any counter the note says why.
            let why = if self.udp.is_empty() {
                "-"
            } else {
                "no interface received anything"
            };
            return why.to_owned();
        }
        let busy = self.queues.iter().filter(|queue| queue.pps > 0.0);
        let busy = busy.map(|queue| (&queue.counter, queue.pps));
        let drops = self.drops.iter().map(|(name, rate)| (name, *rate));
        let mut said: Vec<String> = busy
            .chain(drops)
            .map(|(name, rate)| format!("{name} {}", per_second(rate)))
            .collect();
        let idle = self.queues.iter().filter(|queue| queue.pps == 0.0).count();
        let all = self.queues.len();
        let received = self.received_pps.filter(|pps| *pps > 0.0);
        match (idle, received) {
            // A veth counts by queue only packets that NAPI polls.
            (_, Some(pps)) if all == idle => {
                let pps = per_second(pps);
                said.insert(0, format!("rx_packets {pps}, not counted by receive queue"));
            }
            _ if all == 0 => said.push("its driver counts no packets by receive queue".to_owned()),
            (0, _) => {}
            _ if all == idle => said.push(format!("nothing at {all} queue{}", plural(all))),
            _ => said.push(format!("nothing at {idle} more")),
        }
        said.join(", ")
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn per_second(rate: f64) -> String {
    Quantity::PerSecond(rate).to_string()
}

fn of_cpu(cpu: &CpuBusy) -> String {
    let share = |share| Quantity::Share(share).figure();
    let steal = match cpu.steal > 0.0 {
        true => format!("; {} taken by the hypervisor", Quantity::Share(cpu.steal)),
        false => String::new(),
    };
    format!(
        "{} busy = user {} + system {} + soft interrupt {}{steal}",
        Quantity::Share(cpu.busy),
        share(cpu.user),
        share(cpu.system),
        share(cpu.softirq),
    )
}

/// The screens of a lab's host on standard error: each second of a run, and the rest at its end. A
/// failure to read or print does not end the measurement.
#[derive(Debug)]
pub(super) struct ScreenWatch<'a> {
    host: &'a LabHost,
    last: ScreenLook,
    is_first: bool,
}

impl<'a> ScreenWatch<'a> {
    pub(super) fn begin(host: &'a LabHost) -> Option<Self> {
        Some(Self {
            host,
            last: look(host)?,
            is_first: true,
        })
    }

    /// Prints the screens if so much time has passed since the last ones.
    pub(super) fn tick(&mut self, seconds: f64) {
        let passed = monotonic_ns().saturating_sub(self.last.at_ns);
        if (passed as f64) < seconds * 1e9 {
            return;
        }
        let Some(now) = look(self.host) else { return };
        let screens = now.since(&self.last);
        (self.last, self.is_first) = (now, false);
        let text = Terminal::new(output::width(), false).blocks(&screens.blocks());
        let text = format!(
            "  over {}\n{}",
            Quantity::Seconds(screens.seconds),
            text.trim_end()
        );
        let _ = output::above_bar(&text);
    }

    /// Prints the rest. A rest too short for a rate is left out, unless it would be the only
    /// output.
    pub(super) fn finish(mut self) {
        self.tick(if self.is_first { 0.0 } else { 0.5 });
    }
}

fn look(host: &LabHost) -> Option<ScreenLook> {
    host.run(|| ScreenLook::take(Some(host.interface()))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::{LinkCounters, LinkSnapshot, Snmp, Softnet};
    use mpps_trial::mentions;

    /// An interface, what it received, and its driver's counters.
    type Link<'a> = (&'a str, u64, &'a [(&'a str, u64)]);

    /// A look at one second; `udp` are datagrams, no port, errors and RcvbufErrors.
    fn look(second: u64, udp: [u64; 4], links: &[Link<'_>], cpus: &str) -> ScreenLook {
        let link = |(name, rx, driver): &Link<'_>| {
            let counters = LinkCounters {
                rx_packets: *rx,
                ..LinkCounters::default()
            };
            let driver = driver
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            let link = LinkSnapshot {
                index: 2,
                counters,
                driver: driver.collect(),
                ..LinkSnapshot::default()
            };
            ((*name).to_owned(), link)
        };
        let [came, no_port, errors, full] = udp;
        let udp = format!(
            "Udp: InDatagrams NoPorts InErrors RcvbufErrors\nUdp: {came} {no_port} {errors} {full}"
        );
        ScreenLook {
            at_ns: second * 1_000_000_000,
            counters: Ok(Snapshot {
                monotonic_ns: second * 1_000_000_000,
                unix_ns: 0,
                snmp: Snmp::parse_pairs(&udp).unwrap(),
                softnet: Softnet::parse("1 0 0").unwrap(),
                links: links.iter().map(link).collect(),
            }),
            cpus: ProcStat::parse(cpus).map_err(|error| error.to_string()),
        }
    }

    fn text(screens: &Screens, width: usize) -> String {
        Terminal::new(width, false)
            .blocks(&screens.blocks())
            .replace('\u{a0}', " ")
    }

    const BEFORE: &str = "cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0";
    /// CPU 1: 12 user, 20 system, 60 soft, 3 of an interrupt, 5 idle.
    const AFTER: &str = "cpu0 0 0 0 200\ncpu1 24 0 40 10 0 6 120 0\ncpu2 0 0 0 199 0 0 1 0";

    /// The article's third and sixth experiment: all in one queue, and then too much for the socket.
    #[test]
    fn the_article_s_screens() {
        let before = [
            ("rx-3.rx_packets", 5),
            ("rx-4.rx_packets", 0),
            ("rx_nodesc_drop_cnt", 0),
        ];
        let after = [
            ("rx-3.rx_packets", 5),
            ("rx-4.rx_packets", 710_024),
            ("rx_nodesc_drop_cnt", 902_600),
        ];
        let then = look(1, [0; 4], &[("eth2", 0, &before)], BEFORE);
        let now = look(
            3,
            [874_000, 2, 773_800, 247_600],
            &[("eth2", 710_024, &after)],
            AFTER,
        );
        let screens = now.since(&then);
        assert_eq!(
            (screens.seconds, screens.interface.as_deref()),
            (2.0, Some("eth2"))
        );
        let queues = screens.queues.iter().map(|queue| (queue.queue, queue.pps));
        assert_eq!(queues.collect::<Vec<_>>(), [(3, 0.0), (4, 355_012.0)]);
        assert_eq!(screens.udp["RcvbufErrors"], 123_800.0);
        let expected = "\
eth2   rx-4.rx_packets 355 012/s, rx_nodesc_drop_cnt 451 300/s, nothing at 1
       more
UDP    InDatagrams 437 000/s, NoPorts 1/s, InErrors 386 900/s, RcvbufErrors
       123 800/s
CPU 1  95.0 % busy = user 12.0 + system 20.0 + soft interrupt 63.0
CPUs   2 more less than 1 % busy";
        let text = text(&screens, 80);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let expected: Vec<&str> = expected.lines().map(str::trim).collect();
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn what_was_reset_or_appeared_is_said_and_is_no_negative_rate() {
        let before = [("rx_queue_0_packets", 900), ("rx_queue_1_packets", 7)];
        let after = [
            ("rx_queue_0_packets", 3),
            ("rx_queue_1_packets", 9),
            ("rx_queue_2_packets", 5),
        ];
        let then = look(0, [50, 0, 0, 0], &[("eth2", 907, &before)], "cpu0 1 1 1 1");
        let now = look(
            1,
            [20, 1, 0, 0],
            &[("eth2", 12, &after)],
            "cpu0 2 1 1 1\ncpu1 1 1 1 1",
        );
        let screens = now.since(&then);
        let queues: Vec<_> = screens
            .queues
            .iter()
            .map(|queue| (queue.queue, queue.pps))
            .collect();
        assert_eq!(queues, [(1, 2.0)]);
        assert_eq!(screens.udp.get("InDatagrams"), None);
        assert_eq!(screens.udp["NoPorts"], 1.0);
        let reset = "it was reset, or it wrapped";
        let expected = [
            format!("Udp.InDatagrams went back from 50 to 20: {reset}"),
            format!("eth2 rx_packets went back from 907 to 12: {reset}"),
            format!("eth2 rx_queue_0_packets went back from 900 to 3: {reset}"),
            "eth2 driver counter rx_queue_2_packets appeared in between".to_owned(),
            "CPU 1 came online".to_owned(),
        ];
        let mut notes = screens.notes.clone();
        notes.sort_by_key(|note| expected.iter().position(|one| one == note));
        assert_eq!(notes, expected);
        assert!(text(&screens, 80).contains("InDatagrams -, NoPorts 1/s"));
    }

    #[test]
    fn an_address_of_all_interfaces_has_the_one_that_received_most() {
        let links = |second, a, b| {
            let links = [("eth1", a, &[][..]), ("eth2", b, &[])];
            look(second, [0; 4], &links, BEFORE)
        };
        let screens = links(2, 3, 9).since(&links(1, 1, 1));
        assert_eq!(screens.interface.as_deref(), Some("eth2"));
        assert!(text(&screens, 80).contains("rx_packets 8/s, not counted by receive queue"));
        let idle = links(2, 1, 1).since(&links(1, 1, 1));
        assert_eq!(idle.interface, None);
        assert!(
            text(&idle, 80).contains("no interface received anything"),
            "{idle:?}"
        );
    }

    #[test]
    fn what_cannot_be_read_is_one_line_and_the_rest_is_shown() {
        let refused = ScreenLook {
            counters: Err("interface and UDP: not permitted".to_owned()),
            ..look(2, [0; 4], &[], AFTER)
        };
        let screens = refused.since(&look(0, [0; 4], &[], BEFORE));
        assert_eq!(screens.notes, ["interface and UDP: not permitted"]);
        let text = text(&screens, 80);
        mentions(&text, "CPU 1 | not permitted");
        assert!(!text.contains("received anything"), "nobody knows: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn this_machine_has_all_three() {
        let then = ScreenLook::take(Some("lo"));
        let screens = ScreenLook::take(Some("lo")).since(&then);
        assert_eq!(screens.interface.as_deref(), Some("lo"));
        assert_eq!(
            (screens.udp.len(), screens.notes.len()),
            (UDP.len(), 0),
            "{screens:?}"
        );
    }
}
