//! Where the receiver runs relative to its queue's CPU, and what that is worth: the four placements
//! of the 2015 article, in the lab or of traffic that arrives at an interface.

mod document;

pub(crate) use document::document;

use crate::machine;
use crate::measure::document::Balanced;
use crate::measure::envelope::{Envelope, EnvelopeBody};
use crate::measure::outcome::CommandEnding;
use crate::measure::rounds::Case;
use crate::measure::series::Series;
use crate::measure::session::Session;
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use crate::udp::RATE_DEFINITION;
use crate::udp::arriving::{Arriving, PATIENCE_SOCKET, any_of};
use crate::udp::labs::Labs;
use crate::udp::path::SOCKET;
use crate::udp::roles::{ARTICLE_PLACES, CpuLayout};
use crate::udp::run::{Purpose, UdpRun};
use crate::udp::runs::Runs;
use crate::udp::sender::{LabSender, TRAIN};
use crate::udp::trial::Trial;
use anyhow::{Context, Result};
use clap::Args;
use mpps_host::{Fingerprint, Snapshot, Topology};
use mpps_io::{Inspect, Rx, RxConfig, Wait, backend};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Arguments of `mpps placement`.
#[derive(Debug, Args)]
#[command(
    mut_arg("quick", |arg| arg.help("Run each placement once and briefly; too short for conclusions")),
    mut_arg("repeat", |arg| arg.help("Run each placement N times, in N rounds over all placements")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./placement.json; without FILE, to \
    standard output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./placement.html"))
)]
pub(crate) struct PlacementPlan {
    /// Receive live traffic at --port of this interface instead of the lab's. No other program may have
    /// the port
    #[arg(long, value_name = "IF", requires = "port")]
    interface: Option<String>,
    /// Set the UDP port of the live traffic (required with --interface)
    #[arg(long, value_name = "PORT", requires = "interface",
          value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[command(flatten)]
    series: Series,
}

/// A run on one machine.
pub(crate) type PlacementResult = Envelope<Placements>;

/// The results.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Placements {
    /// The definition of every rate in it.
    #[schemars(length(min = 1))]
    rate_definition: String,
    /// The CPU of each role, and how it is known.
    placement: String,
    /// The sender.
    sender: String,
    /// The interface where the traffic arrived; absent for the lab's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    /// Cases and options that this machine lacks, and why.
    notes: Vec<String>,
    /// Nearest first.
    rows: Vec<PlacementRow>,
}

/// A placement, measured or skipped.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("dependentRequired" = {"mpps_samples": ["sample_ledgers"]}))]
struct PlacementRow {
    /// `same CPU`, `sibling hyper-thread`, `another core`, `another node`.
    place: String,
    /// The lowest and highest figure of the article, in million datagrams per second.
    article_mpps: [f64; 2],
    /// The CPU that serves the receive queue.
    queue_cpu: Option<usize>,
    /// The receiver's CPU.
    receiver_cpu: Option<usize>,
    /// The sender's CPU, if it is the lab's.
    sender_cpu: Option<usize>,
    /// The results of its runs.
    #[serde(flatten)]
    runs: Runs,
    #[serde(skip)]
    layout: Option<CpuLayout>,
}

impl fmt::Display for PlacementRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

impl EnvelopeBody for Placements {
    const SCHEMA: &'static str = "mpps.placement.v2";
    const COMMAND: &'static str = "mpps placement";

    fn unsound(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.runs.is_unsound())?;
        Some(row.place.clone())
    }
}

impl Placements {
    /// How many ledgers balance.
    fn balanced(&self) -> Balanced {
        let runs = self.rows.iter().map(|row| &row.runs);
        runs.flat_map(Runs::ledgers).collect()
    }
}

/// The placements on this layout, each with its CPUs or with what it would need.
fn places(layout: &CpuLayout) -> Vec<PlacementRow> {
    let place = |(relation, place, article_mpps): (_, &str, _)| {
        let layout = layout.place(relation);
        let first =
            |cpus: fn(&CpuLayout) -> &Vec<usize>| Some(*cpus(layout.as_ref().ok()?).first()?);
        PlacementRow {
            place: place.to_owned(),
            article_mpps,
            queue_cpu: first(|layout| &layout.queues),
            receiver_cpu: first(|layout| &layout.applications),
            sender_cpu: first(|layout| &layout.senders),
            runs: Runs::skipped(layout.as_ref().err().cloned()),
            layout: layout.ok(),
        }
    };
    ARTICLE_PLACES.map(place).into()
}

impl PlacementPlan {
    /// Measures every placement that this host has.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        // In a user namespace, the owners of links on the way to a file are unknown.
        let session = self.series.begin("placement", EndSignal::listen()?)?;
        if self.interface.is_none() {
            machine::become_able()?;
        }
        let result = match (&self.interface, self.port) {
            (Some(interface), Some(port)) => self.arriving(interface, port, &session)?,
            _ => self.in_lab(&session)?,
        };
        let balances = result.interface.is_some() || result.balanced().is_good();
        session.conclude(&result, &document(&result, &session.files()), balances)
    }

    /// Measures these rows. `run` also gets whether it is the first of its row.
    fn measure(
        &self,
        mut result: PlacementResult,
        session: &Session,
        mut run: impl FnMut(&CpuLayout, bool) -> Result<UdpRun>,
    ) -> Result<PlacementResult> {
        result.rate_definition = RATE_DEFINITION.to_owned();
        let cases = result.rows.iter();
        let cases = cases.map(|row| Case::new(row.clone(), row.runs.skipped.clone()));
        let mut cases: Vec<_> = cases.collect();
        let row = |case: &Case<PlacementRow, UdpRun>| PlacementRow {
            runs: match case.unmeasured() {
                Some(why) => Runs::skipped(Some(why)),
                None => Runs::of(&case.samples),
            },
            ..case.plan.clone()
        };
        let run = |case: &Case<PlacementRow, UdpRun>| {
            let layout = case.plan.layout.as_ref().context("it has no CPU")?;
            run(layout, case.samples.is_empty())
        };
        let known = result.notes.len();
        result.complete = self.series.run(&mut cases, session, run, |cases| {
            result.rows = cases.iter().map(row).collect();
            result.notes.truncate(known);
            let stopped =
                |case: &Case<PlacementRow, _>| Some(format!("{}: {}", case.plan, case.stopped()?));
            result.notes.extend(cases.iter().filter_map(stopped));
            session.keep(&result);
            Ok(())
        })?;
        Ok(result)
    }

    fn in_lab(&self, session: &Session) -> Result<PlacementResult> {
        let mut labs = Labs::new(&session.interrupt);
        let layout = labs.usual(CpuLayout::new(Topology::read()?, None))?;
        let mut rows = places(&layout);
        for row in &mut rows {
            let Some(layout) = row.layout.take() else {
                continue;
            };
            let layout = row.layout.insert(labs.add(layout)?);
            row.runs.skipped = labs.lacks_threads(layout).map(str::to_owned);
        }
        let mut notes = layout.notes();
        labs.note(&mut notes);
        let place = layout.sentence(&machine::kernel_release());
        let found = Placements {
            placement: format!("two hosts on this machine   {place}"),
            sender: format!("sendmmsg, trains of {TRAIN}, 32 bytes, as fast as it goes"),
            notes,
            rows,
            ..Placements::default()
        };
        let result = session.result(machine::of_lab(labs.of(&layout)?)?, found);
        let time = self.series.time();
        self.measure(result, session, |layout, is_first| {
            let sender = LabSender::Socket { train: TRAIN };
            let trial = Trial {
                batch: 1024,
                ..Trial::new(layout.clone(), SOCKET, sender)
            };
            trial.round(&labs, (time, time), is_first, Purpose::default())
        })
    }

    fn arriving(&self, interface: &str, port: u16, session: &Session) -> Result<PlacementResult> {
        let address = any_of(interface, port).context("--interface")?;
        let at = &*format!("port {port} of {interface}");
        output::line(OutputStream::Err, &format!("waiting for packets at {at}"))?;
        let receive = |cpu| {
            let arriving = Arriving {
                at,
                cpu,
                wait: Wait::Block(Duration::from_secs(1)),
                inspect: Inspect::Never,
                time: self.series.time(),
                patience: PATIENCE_SOCKET,
                interrupt: &session.interrupt,
                snapshot: &|| Ok(Snapshot::take(&[interface])?),
            };
            arriving.run(receiver(address)?)
        };
        let (cpu, known) = receive(None)?.serving(interface)?;
        let found = Placements {
            placement: format!("{at}   {known}   Linux {}", machine::kernel_release()),
            sender: "any program that sends to this address".to_owned(),
            interface: Some(interface.to_owned()),
            rows: places(&CpuLayout::served_by(
                Topology::read()?,
                Vec::new(),
                vec![cpu],
            )),
            ..Placements::default()
        };
        let result = session.result(Fingerprint::collect(&[interface])?, found);
        let mut moved: Vec<String> = Vec::new();
        let mut result = self.measure(result, session, |layout, _| {
            let arrived = receive(layout.applications.first().copied())?;
            let (now, known) = arrived.serving(interface)?;
            if now != cpu {
                moved.push(format!("in a run the queue had moved: {known}"));
            }
            Ok(arrived.sample(interface))
        })?;
        result.notes.extend(moved);
        Ok(result)
    }
}

fn receiver(address: SocketAddr) -> Result<Box<dyn Rx>> {
    let opened = backend::find("recvmmsg")?.open_rx(&RxConfig::new(address));
    opened.with_context(|| format!("cannot receive at {address}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::roles::tests::{article, flat, two_by_two_by_two, two_cpus};
    use mpps_host::Ledger;
    use mpps_report::Terminal;

    /// The queue's and the receiver's CPU of each placement that there is.
    fn cpus(layout: &CpuLayout) -> Vec<Option<(usize, usize)>> {
        let rows = places(layout);
        let cpus = rows
            .iter()
            .map(|row| Some((row.queue_cpu?, row.receiver_cpu?)));
        cpus.collect()
    }

    #[test]
    fn each_machine_has_the_placements_that_its_topology_has() {
        let of = |topology| cpus(&CpuLayout::new(topology, None));
        assert_eq!(
            of(article()),
            [Some((0, 0)), Some((0, 12)), Some((0, 2)), Some((0, 10))]
        );
        assert_eq!(
            of(two_by_two_by_two()),
            [Some((0, 0)), Some((0, 1)), Some((0, 2)), Some((0, 4))]
        );
        assert_eq!(of(flat(4)), [Some((1, 1)), None, Some((1, 2)), None]);
        // In soft interrupts the queue is on the sender's CPU, and moves to the receiver's.
        assert_eq!(cpus(&two_cpus()), [Some((1, 1)), None, Some((0, 1)), None]);
        assert_eq!(of(flat(1)), [Some((0, 0)), None, None, None]);
    }

    #[test]
    fn the_document_tells_rate_spread_loss_and_what_the_others_need() {
        let mut ledger = Ledger::new(100, 60, 0);
        ledger.lose(mpps_host::Loss {
            station: mpps_host::Station::Socket,
            reason: "socket buffer full".to_owned(),
            count: 39,
            source: "sk_drops".to_owned(),
            scope: mpps_host::Scope::Socket,
            by_difference: false,
            exact: true,
        });
        let mut rows = places(&two_cpus());
        let runs = [0.0, 0.21, 0.25, 0.23].map(|mpps| UdpRun {
            mpps,
            offered_mpps: 0.5,
            ledger: ledger.clone(),
            ..UdpRun::default()
        });
        rows[0].runs = Runs {
            ledger: Some(ledger.clone()),
            ..Runs::of(&runs[1..])
        };
        rows[2].runs = Runs::of(&[1.0, 1.01, 0.99].map(|mpps| UdpRun {
            mpps,
            offered_mpps: 0.5,
            ledger: ledger.clone(),
            ..UdpRun::default()
        }));
        let found = Placements {
            rate_definition: RATE_DEFINITION.to_owned(),
            placement: "two hosts".to_owned(),
            rows,
            ..Placements::default()
        };
        let machine = mpps_host::Fingerprint::collect(&[""; 0]).unwrap();
        let mut result = Envelope::new(machine, "mpps placement".to_owned(), String::new(), found);
        result.quick = true;
        let read = PlacementResult::parse(&serde_json::to_string(&result).unwrap()).unwrap();
        assert_eq!(document(&read, &[]), document(&result, &[]));
        assert!(!result.balanced().is_good());
        let text = Terminal::new(200, false).document(&document(&result, &[]));
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "same CPU 0.23 0.21-0.25 39.0 % socket buffer full 39.0 %, UNACCOUNTED 3 1 1 0 0.00-0.43",
            "sibling hyper-thread skipped: this host has no hyper-thread sibling for CPU 0",
            "another node skipped: this host has no CPU on another NUMA node for CPU 0",
            "The most is received on another core, 1.00 Mpps; 4.35x as much as on same CPU.",
            "ledger of same CPU DOES NOT BALANCE",
            "a quick run",
        ] {
            assert!(said.contains(part), "{part} is missing in\n{text}");
        }
    }
}
