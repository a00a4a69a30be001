//! The page as tables of cells: the same on a screen and as text.

use mpps_host::ledger::loss::LOSSES as KINDS;
use mpps_host::{CpuLoad, Finding, Loss, Overview, QueueLoad, SocketLoad, Station};
use mpps_report::Quantity;

/// How many tables the page has.
pub(super) const PANES: usize = 4;

/// A table of the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pane {
    /// Its columns; the first one's head names the table.
    pub(super) heads: &'static [PaneColumn],
    /// The text of a table without lines.
    pub(super) nothing: &'static str,
    /// Its lines, from the top.
    pub(super) lines: Vec<PaneLine>,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PaneColumn {
    pub(super) name: &'static str,
    /// How wide it is at least.
    pub(super) width: u16,
    /// The kind of its content.
    pub(super) kind: PaneKind,
}

/// The kind of a column's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaneKind {
    /// Figures, from the right.
    Figures,
    /// Words, short ones.
    Words,
    /// Words that take what room there is. Where there is too little, their beginning stays.
    Beginning,
    /// The same, and their end stays: the port of an address.
    End,
}

/// A line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PaneLine {
    pub(super) cells: Vec<PaneCell>,
    /// True if the line shows a problem.
    pub(super) is_marked: bool,
    /// The part of the host that it is about.
    pub(super) subject: LineSubject,
}

/// The part of the host that a line is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum LineSubject {
    #[default]
    Host,
    /// A row of the ledger: its station, and the counters and checks that have it.
    Loss(Station, Vec<String>),
    Interface(String),
    Cpu(usize),
    /// Where a socket receives.
    Socket(String),
}

/// The checks of CPUs whose findings do not have the number of one.
const OF_CPUS: [&str; 5] = [
    "backlog",
    "soft_interrupts",
    "shared_cpu",
    "shared_core",
    "steal",
];

impl LineSubject {
    fn of(loss: &Loss) -> Self {
        let kind = KINDS.iter().find(|kind| kind.words == loss.reason);
        let checks = kind
            .iter()
            .flat_map(|kind| kind.checks)
            .map(|&check| check.to_owned());
        let counters = loss.source.split(" + ").map(str::to_owned);
        Self::Loss(loss.station, counters.chain(checks).collect())
    }

    /// The findings about it, of these. A loss without one has those of its station.
    pub(super) fn findings(&self, all: Vec<Finding>) -> Vec<Finding> {
        let is_own = all
            .iter()
            .map(|finding| self.is_of(finding))
            .collect::<Vec<_>>();
        let has_own = is_own.contains(&true);
        let near = |finding: &Finding| match self {
            Self::Loss(station, _) => finding.station == *station,
            Self::Cpu(_) => OF_CPUS.contains(&&*finding.check),
            _ => false,
        };
        let all = all.into_iter().zip(is_own);
        let ours = all.filter(|(finding, own)| *own || !has_own && near(finding));
        ours.map(|(finding, _)| finding).collect()
    }

    fn is_of(&self, finding: &Finding) -> bool {
        let mut sources = finding.evidence.iter().map(|one| &*one.source);
        match self {
            Self::Host => false,
            Self::Loss(_, names) => {
                let has = |name: &str| names.iter().any(|one| one == name);
                has(&finding.check) || sources.any(has)
            }
            Self::Interface(name) => {
                let is_name = |word: &str| word.trim_end_matches([':', ',', ';']) == name;
                sources.any(|source| source.split(' ').next() == Some(name))
                    || finding.what.split(' ').any(is_name)
            }
            Self::Cpu(cpu) => {
                let name = format!("CPU {cpu}");
                let is_it = |text: &str| {
                    let mut found = text.match_indices(&name);
                    found.any(|(at, _)| {
                        !text[at + name.len()..].starts_with(|next: char| next.is_ascii_digit())
                    })
                };
                sources.any(is_it) || is_it(&finding.what)
            }
            Self::Socket(local) => {
                sources.any(|source| source.contains(&format!("socket {local} ")))
            }
        }
    }
}

/// A cell, and by what it is sorted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PaneCell {
    pub(super) text: String,
    figure: Option<f64>,
}

const fn head(name: &'static str, width: u16, kind: PaneKind) -> PaneColumn {
    PaneColumn { name, width, kind }
}

/// A column of figures.
const fn figures(name: &'static str, width: u16) -> PaneColumn {
    head(name, width, PaneKind::Figures)
}

const LOSSES: &[PaneColumn] = &[
    head("LOST AT", 12, PaneKind::Words),
    head("REASON", 20, PaneKind::Beginning),
    figures("LOST/s", 10),
    figures("%", 6),
    head("COUNTER", 20, PaneKind::Beginning),
];
const CPUS: &[PaneColumn] = &[
    head("CPU", 5, PaneKind::Words),
    figures("NODE", 4),
    figures("PROGRAMS%", 9),
    figures("SOFTIRQ%", 8),
    figures("STEAL%", 6),
    figures("PACKETS/s", 10),
    figures("DROPS/s", 8),
    figures("SQUEEZED/s", 10),
    figures("STEERED/s", 10),
];
const QUEUES: &[PaneColumn] = &[
    head("INTERFACE", 17, PaneKind::Words),
    figures("QUEUE", 5),
    figures("PACKETS/s", 10),
    figures("SHARE%", 6),
    figures("DROPS/s", 8),
    figures("IRQ", 4),
    figures("IRQ/s", 8),
    figures("CPU", 4),
    figures("NODE", 4),
    figures("UNHANDLED/s", 11),
];
const SOCKETS: &[PaneColumn] = &[
    head("SOCKET", 15, PaneKind::End),
    head("PROGRAM", 15, PaneKind::Beginning),
    figures("DROPS/s", 8),
    figures("QUEUED%", 7),
    figures("RAN%", 5),
    figures("WAITED%", 7),
    figures("CPU", 4),
    figures("NODE", 4),
];

/// The columns of each table, in their order on the page.
pub(super) const HEADS: [&[PaneColumn]; PANES] = [LOSSES, QUEUES, CPUS, SOCKETS];

/// So much more a column of words takes at most: the longest address has 47 characters.
const GROW_MAX: u16 = 32;
/// From this share on a CPU is full.
const FULL: f64 = 0.9;

/// The tables of a page, in their order on it.
pub(super) fn panes(page: &Overview) -> [Pane; PANES] {
    let lost = page.ledger.losses.iter().map(|loss| {
        let share = loss.count as f64 / page.ledger.offered.max(1) as f64;
        PaneLine::marked(
            true,
            [
                loss.station.name().into(),
                PaneCell::from(&*loss.reason),
                PaneCell::rate(loss.count as f64 / page.seconds),
                PaneCell::share(Some(share)),
                PaneCell::from(&*loss.source),
            ],
        )
        .about(LineSubject::of(loss))
    });
    [
        Pane {
            heads: LOSSES,
            nothing: "nothing is lost",
            lines: lost.collect(),
        },
        Pane {
            heads: QUEUES,
            nothing: "no interface",
            lines: page.queues.iter().map(queue).collect(),
        },
        Pane {
            heads: CPUS,
            nothing: "no CPU counts packets",
            lines: page.cpus.iter().map(cpu).collect(),
        },
        Pane {
            heads: SOCKETS,
            nothing: "no UDP socket",
            lines: page.sockets.iter().map(socket).collect(),
        },
    ]
}

fn queue(row: &QueueLoad) -> PaneLine {
    let is_marked = row.is_uneven || row.is_far || row.dropped_pps.is_some_and(|rate| rate > 0.0);
    let interface = match row.queue {
        None => row.interface.clone(),
        Some(_) => format!(" {}", row.interface),
    };
    PaneLine::marked(
        is_marked,
        [
            PaneCell::from(&*interface),
            PaneCell::number(row.queue),
            PaneCell::rate(row.received_pps),
            PaneCell::share(row.share),
            row.dropped_pps.map_or(PaneCell::none(), PaneCell::rate),
            PaneCell::number(row.interrupt.map(|number| number as usize)),
            row.interrupts_ps.map_or(PaneCell::none(), PaneCell::rate),
            PaneCell::number(row.cpu),
            PaneCell::number(row.node),
            row.unhandled_pps.map_or(PaneCell::none(), PaneCell::rate),
        ],
    )
    .about(LineSubject::Interface(row.interface.clone()))
}

fn cpu(row: &CpuLoad) -> PaneLine {
    let parts = [row.application, row.soft_interrupt, row.steal];
    let busy: f64 = parts.iter().flatten().sum();
    PaneLine::marked(
        busy >= FULL || row.dropped_pps > 0.0,
        [
            PaneCell {
                text: row.cpu.to_string(),
                figure: Some(row.cpu as f64),
            },
            PaneCell::number(row.node),
            PaneCell::share(row.application),
            PaneCell::share(row.soft_interrupt),
            PaneCell::share(row.steal),
            PaneCell::rate(row.packets_pps),
            PaneCell::rate(row.dropped_pps),
            PaneCell::rate(row.squeezes_ps),
            PaneCell::rate(row.steered_ps),
        ],
    )
    .about(LineSubject::Cpu(row.cpu))
}

fn socket(row: &SocketLoad) -> PaneLine {
    let stopped = if row.is_stopped { " stopped" } else { "" };
    let program = match (&row.process, row.pid) {
        (Some(name), Some(pid)) => format!("{name} {pid}{stopped}"),
        _ => "hidden".to_owned(),
    };
    let queued = f64::from(row.queued_bytes) / f64::from(row.buffer_bytes.max(1));
    PaneLine::marked(
        row.dropped > 0,
        [
            PaneCell::from(&*row.local.to_string()),
            PaneCell::from(&*program),
            PaneCell::rate(row.dropped_pps),
            PaneCell::share(Some(queued)),
            PaneCell::share(row.ran),
            PaneCell::share(row.waited),
            PaneCell::number(row.cpu),
            PaneCell::number(row.node),
        ],
    )
    .about(LineSubject::Socket(row.local.to_string()))
}

impl PaneLine {
    fn marked(is_marked: bool, cells: impl IntoIterator<Item = PaneCell>) -> Self {
        Self {
            cells: cells.into_iter().collect(),
            is_marked,
            subject: LineSubject::Host,
        }
    }

    fn about(self, subject: LineSubject) -> Self {
        Self { subject, ..self }
    }

    /// True if a cell has this in it; capitals do not matter.
    fn has(&self, wanted: &str) -> bool {
        let wanted = wanted.to_lowercase();
        let mut cells = self.cells.iter();
        cells.any(|cell| cell.text.to_lowercase().contains(&wanted))
    }
}

impl From<&str> for PaneCell {
    /// Words of the kernel's and of programs: they must not steer the terminal.
    fn from(words: &str) -> Self {
        Self {
            text: crate::output::printable(words),
            figure: None,
        }
    }
}

impl PaneCell {
    /// The text, cut to fit this room.
    pub(super) fn cut(&self, kind: PaneKind, room: usize) -> String {
        let length = self.text.chars().count();
        if length <= room || room == 0 {
            return self.text.clone();
        }
        if kind == PaneKind::Figures {
            return self.figure.map_or_else(|| "#".repeat(room), short);
        }
        let kept = room - 1;
        match kind {
            PaneKind::End => format!(
                "~{}",
                self.text.chars().skip(length - kept).collect::<String>()
            ),
            _ => format!("{}~", self.text.chars().take(kept).collect::<String>()),
        }
    }

    fn none() -> Self {
        "-".into()
    }

    fn rate(rate: f64) -> Self {
        Self {
            // Less than one in two seconds is not none.
            text: match rate > 0.0 && rate < 0.5 {
                true => "<1".to_owned(),
                false => Quantity::PerSecond(rate).figure().replace('\u{a0}', " "),
            },
            figure: Some(rate),
        }
    }

    fn share(share: Option<f64>) -> Self {
        let cell = |share| Self {
            text: Quantity::Share(share).figure(),
            figure: Some(share),
        };
        share.map_or_else(Self::none, cell)
    }

    fn number(number: Option<usize>) -> Self {
        let cell = |number: usize| Self {
            text: number.to_string(),
            figure: Some(number as f64),
        };
        number.map_or_else(Self::none, cell)
    }
}

/// A figure in six places or fewer: a part of its digits would be another figure.
fn short(figure: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let fitting = units.into_iter().find(|(unit, _)| figure >= *unit);
    let (unit, name) = fitting.unwrap_or((1.0, ""));
    format!("{:.1}{name}", figure / unit)
}

impl Pane {
    /// Leaves the lines that have this.
    pub(super) fn filter(&mut self, wanted: &str) {
        if wanted.is_empty() || self.lines.is_empty() {
            return;
        }
        self.lines.retain(|line| line.has(wanted));
        self.nothing = "no line has what is looked for";
    }

    /// The columns that fit into so much room, from the left, and how wide each is.
    pub(super) fn widths(&self, room: u16) -> Vec<u16> {
        let mut widths = Vec::new();
        let mut left = room;
        for head in self.heads {
            // A blank stands between two.
            let needed = head.width.saturating_add(u16::from(!widths.is_empty()));
            if needed > left {
                break;
            }
            left -= needed;
            widths.push(head.width);
        }
        let grows = |head: &PaneColumn| matches!(head.kind, PaneKind::Beginning | PaneKind::End);
        let growing: Vec<usize> = (0..widths.len())
            .filter(|&at| grows(&self.heads[at]))
            .collect();
        let each = left
            .checked_div(u16::try_from(growing.len()).unwrap_or(0))
            .unwrap_or(0);
        for at in growing {
            widths[at] = widths[at].saturating_add(each.min(GROW_MAX));
        }
        widths
    }

    /// Sorts the lines by a column: figures from the highest, words from A, or the other way; what is
    /// not known stands last.
    pub(super) fn sort(&mut self, column: usize, reversed: bool) {
        let in_order = |ordering: std::cmp::Ordering| match reversed {
            true => ordering.reverse(),
            false => ordering,
        };
        self.lines.sort_by(|a, b| {
            let [Some(a), Some(b)] = [a, b].map(|line| line.cells.get(column)) else {
                return std::cmp::Ordering::Equal;
            };
            match (a.figure, b.figure) {
                (Some(a), Some(b)) => in_order(b.total_cmp(&a)),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => in_order(a.text.cmp(&b.text)),
            }
        });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use mpps_host::{Ledger, Loss, Scope, Station};

    /// A page with something wrong in each of its tables.
    pub(in crate::command::top) fn page() -> Overview {
        let mut ledger = Ledger::new(352_000, 350_000, 0);
        ledger.lose(Loss {
            station: Station::Socket,
            reason: "socket buffer full".to_owned(),
            count: 2000,
            source: "Udp.RcvbufErrors".to_owned(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: true,
        });
        let cpu = |cpu: usize, application, soft_interrupt| CpuLoad {
            cpu,
            node: Some(0),
            application: Some(application),
            soft_interrupt: Some(soft_interrupt),
            steal: Some(0.0),
            packets_pps: 176_000.0,
            dropped_pps: 0.0,
            squeezes_ps: 0.2,
            steered_ps: 0.0,
        };
        let queue = |queue, share: Option<f64>| QueueLoad {
            interface: "eth0".to_owned(),
            queue,
            received_pps: 352_000.0 * share.unwrap_or(1.0),
            dropped_pps: queue.is_none().then_some(0.0),
            unhandled_pps: queue.is_none().then_some(0.0),
            share,
            is_uneven: share == Some(0.9),
            interrupt: queue.map(|_| 41),
            interrupts_ps: queue.map(|_| 9000.0),
            cpu: queue,
            node: queue.map(|_| 0),
            is_far: false,
        };
        let socket = |port: u16, dropped| SocketLoad {
            local: format!("[fe80:1234:5678:9abc:def0::1]:{port}")
                .parse()
                .expect("an address"),
            process: (port == 53).then(|| "unbound\u{1b}[2J".to_owned()),
            pid: (port == 53).then_some(812),
            dropped,
            dropped_pps: dropped as f64,
            queued_bytes: 106_496,
            buffer_bytes: 212_992,
            ran: Some(0.98),
            waited: None,
            cpu: Some(1),
            node: Some(0),
            is_stopped: port == 53,
        };
        Overview {
            seconds: 1.0,
            ledger,
            between_reads: 9,
            cpus: vec![cpu(0, 0.3, 0.1), cpu(1, 0.5, 0.45)],
            queues: vec![
                queue(None, None),
                queue(Some(0), Some(0.1)),
                queue(Some(1), Some(0.9)),
            ],
            sockets: vec![socket(53, 2000), socket(123, 0)],
        }
    }

    #[test]
    fn what_is_wrong_is_marked() {
        let marked = panes(&page()).map(|pane| {
            let lines = pane.lines.iter();
            lines.map(|line| line.is_marked).collect::<Vec<_>>()
        });
        let expected = [
            vec![true],
            vec![false, false, true],
            vec![false, true],
            vec![true, false],
        ];
        assert_eq!(marked, expected);
    }

    #[test]
    fn each_line_has_a_cell_for_each_column_and_steers_no_terminal() {
        for pane in panes(&page()) {
            for line in &pane.lines {
                assert_eq!(line.cells.len(), pane.heads.len(), "{line:?}");
                let mut text = line.cells.iter().flat_map(|cell| cell.text.chars());
                assert!(!text.any(char::is_control), "{line:?}");
            }
        }
    }

    #[test]
    fn what_has_no_room_is_cut_where_it_says_least() {
        let [.., sockets] = panes(&page());
        let address = &sockets.lines[0].cells[0];
        assert_eq!(address.cut(PaneKind::End, 9), "~0::1]:53");
        assert_eq!(address.cut(PaneKind::Beginning, 7), "[fe80:~");
        assert_eq!(address.cut(PaneKind::End, 99), address.text);
        assert_eq!(sockets.widths(80).len(), 8);
        assert_eq!(sockets.widths(71), [17, 17, 8, 7, 5, 7, 4]);
        assert_eq!(sockets.widths(200)[..2], [47, 47]);
        assert_eq!(sockets.widths(10), [0; 0]);
    }

    #[test]
    fn a_figure_that_has_no_room_is_another_unit_and_no_part_of_itself() {
        for (figure, expected) in [
            (999_999.0, "999 999"),
            (1_234_567.0, "1.2M"),
            (148_809_523.0, "148.8M"),
            (40_000_000_000.0, "40.0G"),
        ] {
            assert_eq!(PaneCell::rate(figure).cut(PaneKind::Figures, 8), expected);
        }
    }

    #[test]
    fn lines_are_sorted_and_filtered() {
        let [_, mut queues, ..] = panes(&page());
        let numbers = |pane: &Pane| -> Vec<String> {
            let lines = pane.lines.iter();
            lines.map(|line| line.cells[1].text.clone()).collect()
        };
        queues.sort(1, false);
        assert_eq!(numbers(&queues), ["1", "0", "-"]);
        queues.sort(1, true);
        assert_eq!(
            numbers(&queues),
            ["0", "1", "-"],
            "what is not known is last"
        );
        queues.sort(99, false);
        queues.filter("ETH0");
        assert_eq!(queues.lines.len(), 3);
        queues.filter("316 800");
        assert_eq!(numbers(&queues), ["1"]);
        let [.., mut sockets] = panes(&page());
        sockets.sort(0, false);
        assert!(
            sockets.lines[0].cells[0].text.ends_with(":123"),
            "words from A"
        );
    }
}
