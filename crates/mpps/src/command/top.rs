//! This host's packets on one page, refreshed: on a screen, as text, as JSON, and for Prometheus.

mod console;
mod exporter;
mod history;
mod pane;
mod screen;

use crate::command::doctor;
use crate::machine;
use crate::measure::outcome::CommandEnding;
use crate::output;
use crate::program::host::{HostArgs, PaceArgs};
use crate::program::lines::{JsonArgs, OutputLines};
use crate::signal::EndSignal;
use crate::value;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use console::Console;
use exporter::{Containers, ExporterOutput, ExporterTotals};
use history::{TopHistory, TopTotals};
use mpps_host::check::findings;
use mpps_host::{Overview, ReasonCount, Watch};
use mpps_os::On;
use mpps_report::{Block, Column, Quantity, Row, Text};
use pane::{LineSubject, Pane, PaneKind, panes};
use schemars::JsonSchema;
use screen::{Screen, TopView};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGINT;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::iter;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::{Duration, Instant};

/// The schema name in each object of `mpps top --json`.
pub const SCHEMA: &str = "mpps.top.v1";

/// Arguments of `mpps top`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |arg| arg.help("Write JSON instead of the screen: one object per line, each \
--interval. To FILE, with text pages on standard output; without FILE, to standard output")))]
pub(crate) struct TopArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    pace: PaceArgs,
    /// Print one page as text and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    json: JsonArgs,
    /// Serve Prometheus metrics at this address, path /metrics, instead of the screen. PORT is at 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = value::target, conflicts_with_all = ["once", "json"])]
    listen: Option<SocketAddr>,
    /// Write Prometheus metrics to FILE each --interval, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "json", "listen"])]
    textfile: Option<PathBuf>,
    /// With --listen or --textfile: add metrics of containers and of the namespaces of `ip netns`, at most
    /// 64, with the label container. Needs root
    #[arg(long, conflicts_with_all = ["once", "json"])]
    all_netns: bool,
}

/// A page, as `mpps top --json` writes it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopObject {
    /// [`SCHEMA`].
    schema: String,
    /// When it was looked, in nanoseconds since 1970.
    unix_ns: u64,
    /// The network namespace: its name for `ip netns`, `init`, or its number.
    namespace: String,
    /// The changes since the last look.
    page: Overview,
    /// The changes since it began.
    totals: TopTotals,
    /// Packets that the kernel dropped meanwhile by its own reasons, of this port or of all of UDP;
    /// none if they cannot be seen.
    drop_reasons: Option<Vec<ReasonCount>>,
    /// Facts that could not be read, and why.
    notes: Vec<String>,
}

impl TopArgs {
    /// Looks until it is ended.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let exports = self.listen.is_some() || self.textfile.is_some();
        ensure!(
            exports || !self.all_netns,
            "--all-netns is for --listen or --textfile"
        );
        let on_screen = !self.once && !self.json.is_wanted() && !exports;
        if on_screen && !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
            bail!(
                "standard input or output is no terminal; --once shows one page, --json writes \
                 objects, --listen answers Prometheus"
            );
        }
        // A second signal must not leave the terminal as it is.
        let interrupt = match on_screen {
            true => EndSignal::listen_held(),
            false => EndSignal::listen(),
        }?;
        let lines = self.json.begin()?;
        // Before another namespace is entered: the address is of this one.
        let listener = self.listen.map(ExporterOutput::listen).transpose()?;
        let file = output::file::optional("--textfile", self.textfile.as_deref())?;
        let watch = self.host.watch(&interrupt)?;
        let mut top = Top {
            namespace: watch.namespace(),
            watch,
            history: TopHistory::default(),
            pace: &self.pace,
            interrupt,
        };
        match listener.or(file.map(|file| ExporterOutput::File(file, Cell::default()))) {
            Some(output) => top.export(&output, self.all_netns),
            None if on_screen => top.on_screen(),
            None => top.as_lines(self.once, lines),
        }?;
        Ok(CommandEnding::Fine)
    }
}

/// A host that is looked at.
struct Top<'a> {
    watch: Watch,
    /// The name of its network namespace.
    namespace: String,
    history: TopHistory,
    pace: &'a PaceArgs,
    interrupt: EndSignal,
}

impl Top<'_> {
    /// The page of the last look, which the history gets too.
    fn page(&mut self) -> Overview {
        let page = Overview::of(&self.watch.seen());
        self.history.add(&page, &self.watch.seen_in_all());
        page
    }

    /// The findings of the doctor about a line: in the last look, otherwise since the page began.
    fn why(&self, subject: &LineSubject) -> Vec<Block> {
        let looks = [
            (self.watch.seen(), "last look"),
            (self.watch.seen_in_all(), "whole time"),
        ];
        let mut blocks = Vec::new();
        for (seen, name) in &looks {
            let found = subject.findings(findings(seen));
            if !found.is_empty() {
                let time = Quantity::Seconds(seen.seconds());
                blocks.push(Block::paragraph(format!(
                    "the doctor's findings of the {name}, {time}"
                )));
                let found = found.iter().enumerate();
                blocks.extend(found.flat_map(|(at, one)| doctor::of_finding(at + 1, one)));
                return blocks;
            }
        }
        let nothing = "the doctor finds nothing here; ? says what marks a line";
        blocks.push(Block::paragraph(nothing));
        blocks
    }

    fn as_lines(&mut self, once: bool, lines: OutputLines) -> Result<()> {
        // The last look is at the end, so that nothing is missing.
        loop {
            let goes_on = self.pace.wait(&self.interrupt);
            self.watch.look_while(&|| !self.interrupt.came())?;
            let notes = self.watch.notes();
            let page = self.page();
            if lines.text {
                lines.tell(&blocks(
                    &page,
                    &notes,
                    (!once).then_some(&self.history.totals),
                ))?;
            }
            if lines.json {
                lines.object(&TopObject {
                    schema: SCHEMA.to_owned(),
                    unix_ns: self.watch.seen().after.snapshot.unix_ns,
                    namespace: self.namespace.clone(),
                    page,
                    totals: self.history.totals.clone(),
                    drop_reasons: self.watch.seen().drops,
                    notes,
                })?;
            }
            if once || !goes_on {
                return Ok(());
            }
        }
    }

    fn export(&mut self, to: &ExporterOutput, all_netns: bool) -> Result<()> {
        let mut told = BTreeSet::new();
        let mut totals = ExporterTotals::default();
        let mut containers = all_netns.then(Containers::new).transpose()?;
        self.watch.leave_out_owners();
        to.put(exporter::text(iter::once(&totals)))?;
        to.begin()?;
        loop {
            for note in self.watch.notes() {
                let text = format!("mpps: {note}");
                if told.len() < NOTES_MAX && told.insert(note) {
                    output::line(output::OutputStream::Err, &text)?;
                }
            }
            if !self.pace.wait(&self.interrupt) {
                return Ok(());
            }
            let goes_on = || !self.interrupt.came();
            self.watch.look_while(&goes_on)?;
            totals.look(&self.watch.seen(), &self.watch.seen_in_all());
            if let Some(containers) = &mut containers {
                totals.see("namespaces", containers.look(&goes_on)?);
            }
            let others = containers.iter().flat_map(Containers::totals);
            to.put(exporter::text(iter::once(&totals).chain(others)))?;
        }
    }

    fn on_screen(&mut self) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let watched = thread::Builder::new().spawn(move || end_stuck(&interrupt));
        watched.on("clone", "terminal")?;
        // It is put back at the end, also after a panic.
        let console = Console::open().context("the terminal cannot be used");
        let ended = console.and_then(|console| self.draw(console));
        self.interrupt.release();
        match ended {
            // The error would have no reader.
            Err(_) if console::has_gone() => Ok(()),
            ended => ended,
        }
    }

    /// Looks once more; a key cuts that short, as a signal does.
    fn look_without_keys(&mut self) -> Result<()> {
        let has_key = || mpps_os::terminal::await_input(Duration::ZERO).unwrap_or(true);
        let goes_on = || !self.interrupt.came() && !has_key();
        Ok(self.watch.look_while(&goes_on)?)
    }

    fn draw(&mut self, mut console: Console) -> Result<()> {
        let mut screen = Screen::new(output::colour());
        thread::sleep(FIRST);
        self.look_without_keys()?;
        let (mut page, mut looked) = (self.page(), Instant::now());
        while !self.interrupt.came() {
            if !screen.paused && looked.elapsed() >= self.pace.interval() {
                self.look_without_keys()?;
                (page, looked) = (self.page(), Instant::now());
            }
            let now = machine::now();
            let view = TopView {
                page: &page,
                notes: &self.watch.notes(),
                history: &self.history,
                namespace: &self.namespace,
                // The time of RFC 3339.
                clock: now.split_once('T').map_or(&*now, |(_, time)| time),
                why: &|subject| self.why(subject),
            };
            console.draw(|frame| screen.draw(frame, &view))?;
            let left = self.pace.interval().saturating_sub(looked.elapsed());
            // A signal, and another size, is looked for now and then; nothing is drawn meanwhile.
            let until = match screen.paused {
                true => Instant::now() + self.pace.interval(),
                false => Instant::now() + left,
            };
            while !self.interrupt.came() && !console.is_resized() && Instant::now() < until {
                let left = until.saturating_duration_since(Instant::now());
                let Some(keys) = console.keys(left.min(SIGNALS)) else {
                    return Ok(());
                };
                if keys.iter().any(|key| screen.key(*key)) {
                    return Ok(());
                }
                if !keys.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Ends the process a while after a signal in any case: a terminal that takes nothing (a stopped one, or
/// one whose reader hangs) holds up the thread that writes to it, and that does not see the signal.
fn end_stuck(interrupt: &EndSignal) {
    while !interrupt.came() {
        thread::sleep(SIGNALS);
    }
    thread::sleep(STUCK);
    // The terminal may get stuck just now.
    interrupt.release();
    console::put_back_unheld();
    process::exit(128 + interrupt.signal().unwrap_or(SIGINT));
}

/// Most notes that an exporter reports. Notes with numbers in them could grow without end.
const NOTES_MAX: usize = 100;
/// How soon the first page stands: a rate over less says little.
const FIRST: Duration = Duration::from_millis(250);
/// How often a signal and another size are looked for while no key is pressed.
const SIGNALS: Duration = Duration::from_millis(100);
/// How long the terminal may take to be put back after a signal.
const STUCK: Duration = Duration::from_secs(2);

/// The page as text.
fn blocks(page: &Overview, notes: &[String], totals: Option<&TopTotals>) -> Vec<Block> {
    let ledger = &page.ledger;
    let rate = |count: u64| Quantity::PerSecond(count as f64 / page.seconds);
    let said = format!(
        "{} of UDP: {} came, {} were read, {} were lost, UNACCOUNTED {}",
        Quantity::Seconds(page.seconds),
        rate(ledger.offered),
        rate(ledger.delivered),
        rate(ledger.lost()),
        Quantity::Signed(page.unaccounted().into()),
    );
    let mut blocks = vec![Block::paragraph(said)];
    if page.unaccounted() != ledger.unaccounted {
        let rest = Quantity::Signed(ledger.unaccounted.into());
        let said = format!("{rest} came or waited while counters were read, one after the other");
        blocks.push(Block::note(said));
    }
    if let Some(all) = totals {
        let count = |count: u64| mpps_report::grouped(count.into());
        blocks.push(Block::paragraph(format!(
            "since it began, {}: {} came, {} were read, {} were lost; at most {} came, {} were lost",
            Quantity::Seconds(all.seconds),
            count(all.offered),
            count(all.delivered),
            count(all.lost),
            Quantity::PerSecond(all.peak_offered_pps),
            Quantity::PerSecond(all.peak_lost_pps),
        )));
    }
    blocks.extend(panes(page).into_iter().map(table));
    blocks.extend(
        ledger
            .notes
            .iter()
            .chain(notes)
            .map(|note| Block::note(&**note)),
    );
    blocks
}

fn table(pane: Pane) -> Block {
    if pane.lines.is_empty() {
        return Block::paragraph(pane.nothing);
    }
    let columns = pane.heads.iter().enumerate().map(|(at, head)| {
        let lines = pane.lines.iter();
        let widest = lines.map(|line| line.cells[at].text.chars().count()).max();
        let width = widest.unwrap_or(0).max(head.name.chars().count());
        match head.kind {
            PaneKind::Figures => Column::figure(head.name, width).priority(u8::from(at > 4)),
            _ => Column::words(head.name, width.min(21)).grow(width.saturating_sub(21)),
        }
    });
    let rows = pane.lines.iter().map(|line| {
        let cells = line.cells.iter().map(|cell| {
            let text = cell.text.replace(' ', "\u{a0}");
            match line.is_marked {
                true => Text::styled(mpps_report::Style::Bad, text).into(),
                false => text.into(),
            }
        });
        Row::new(cells)
    });
    Block::Table(mpps_report::Table::new(columns).rows(rows))
}
