//! `mpps backends IF`: every receive path, and whether this interface has it.

use super::BackendsObject;
use crate::failure;
use crate::output::{self, OutputStream};
use anyhow::Result;
use mpps_host::facts::receive_path::{PathFacts, Usable};
use mpps_host::{Interface, PathVerdict, RECEIVE_PATHS, ReceivePath, Spreading};
use mpps_io::backend::{self, Support};
use mpps_io::{Attach, CopyMode, RxConfig};
use mpps_report::{Block, Column, Row, Style, Table, Text};
use schemars::JsonSchema;
use serde::Serialize;
use std::net::Ipv4Addr;

/// The receive paths that `--try` tries, and how.
const TRIALS: [(&str, Attach, CopyMode); 3] = [
    ("AF_XDP generic", Attach::Generic, CopyMode::Copy),
    ("AF_XDP native", Attach::Native, CopyMode::Copy),
    ("AF_XDP zero-copy", Attach::Native, CopyMode::ZeroCopy),
];

/// Every receive path, judged for an interface.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OfInterface {
    /// [`BackendsObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// The interface that was asked about.
    interface: String,
    /// Every receive path, those that take least first.
    #[schemars(length(min = 1))]
    techniques: Vec<Judged>,
    /// The facts behind the verdicts.
    facts: PathFacts,
    /// How its packets are spread over its receive queues.
    spreading: Spreading,
}

impl OfInterface {
    /// Judges them by what is known of the interface, and by trying those that can be tried.
    pub(super) fn judge(name: &str, tries: bool) -> Result<Self> {
        let interface = Interface::read(name);
        let facts = PathFacts::gather(&interface)?;
        let judged = RECEIVE_PATHS.iter().map(|one| Judged::new(one, &facts));
        let mut techniques: Vec<Judged> = judged.collect();
        if tries {
            let warning =
                format!("trying AF_XDP on queue 0 of {name}: its link may go down for seconds");
            output::line(OutputStream::Err, &warning)?;
            for judged in &mut techniques {
                judged.try_out(name)?;
            }
        }
        Ok(Self {
            schema: BackendsObject::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            interface: name.to_owned(),
            techniques,
            spreading: Spreading::gather(&interface, facts.nic.rx_queues),
            facts,
        })
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        vec![
            table(&self.techniques).into(),
            Block::heading("how packets are spread over receive queues"),
            spread(&self.spreading).into(),
        ]
    }
}

/// One receive path, judged for the interface.
#[derive(Debug, Serialize, JsonSchema)]
struct Judged {
    /// Its name.
    technique: &'static str,
    /// The backend of this program that uses it; absent where another program does.
    backend: Option<&'static str>,
    /// True if the verdict is what came of trying it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tried: bool,
    #[serde(flatten)]
    verdict: PathVerdict,
}

impl Judged {
    fn new(path: &ReceivePath, facts: &PathFacts) -> Self {
        let verdict = path.assess(facts);
        let verdict = match path.backend {
            Some(name) => with_backend(verdict, name),
            None => verdict,
        };
        Self {
            technique: path.name,
            backend: path.backend,
            tried: false,
            verdict,
        }
    }

    /// Opens a receiver as `mpps recv` would, and replaces the verdict with the result. The kernel
    /// chooses the port of its flow, so no packets come for it.
    fn try_out(&mut self, interface: &str) -> Result<()> {
        let trial = TRIALS.iter().find(|(name, ..)| *name == self.technique);
        let (Some((_, attach, copy)), Some(name)) = (trial, self.backend) else {
            return Ok(());
        };
        let mut config = RxConfig::new((Ipv4Addr::UNSPECIFIED, 0).into());
        config.ring.interface = Some(interface.to_owned());
        config.ring.attach = Some(*attach);
        config.ring.copy = Some(*copy);
        let opened = backend::find(name)?.open_rx(&config);
        self.tried = true;
        let judged = &mut self.verdict;
        // The facts read before may say more than the kernel's answer.
        let why_not = match judged.usable {
            Usable::No => format!("; {}", judged.why),
            Usable::Yes | Usable::Unknown => String::new(),
        };
        if opened.is_ok() || why_not.is_empty() {
            judged.remedy = None;
        }
        (judged.usable, judged.why) = match opened {
            Ok(rx) => (Usable::Yes, format!("tried: {}", rx.caps().mode)),
            Err(error) => {
                let refusal = failure::explain(&error.into());
                (Usable::No, format!("tried: {refusal}{why_not}"))
            }
        };
        Ok(())
    }
}

/// Combines the verdict of the host with that of this build. The build's lack comes first, because
/// other remedies do not help before it is fixed. If the host has no remedy, its verdict stays.
fn with_backend(verdict: PathVerdict, name: &str) -> PathVerdict {
    let never = verdict.usable == Usable::No && verdict.remedy.is_none();
    let (why, remedy) = match backend::find(name).map(|backend| (backend.probe)()) {
        _ if never => return verdict,
        Ok(Support::Yes) => return verdict,
        Ok(Support::No { why, remedy }) => (why, Some(remedy)),
        Err(_) => (format!("this build has no backend {name}"), None),
    };
    PathVerdict {
        usable: Usable::No,
        why,
        remedy,
        ..verdict
    }
}

fn table(judged: &[Judged]) -> Table {
    let columns = [
        Column::words("technique", 17),
        Column::words("usable", 6),
        Column::words("packets", 9).priority(1),
        Column::words("takes", 13).priority(1),
        Column::words("why", 26).grow(400).priority(2),
    ];
    let rows = judged.iter().map(|row| {
        let verdict = &row.verdict;
        let style = match verdict.usable {
            Usable::Yes => Style::Good,
            Usable::No => Style::Bad,
            Usable::Unknown => Style::Faint,
        };
        let cells = Row::new([
            row.technique.into(),
            Text::styled(style, verdict.usable.to_string()).into(),
            verdict.copies.to_string().into(),
            verdict.takes.to_string().into(),
            (*verdict.why).into(),
        ]);
        let remedy = verdict.remedy.iter();
        remedy.fold(cells, |cells, remedy| {
            cells.below(Text::from("→ ").strong(&**remedy))
        })
    });
    Table::new(columns).rows(rows)
}

/// How packets are spread, with the command that changes each.
fn spread(spreading: &Spreading) -> Table {
    let row = |name: &str, now: String, commands: &[String]| {
        let row = Row::new([name.into(), now.into()]);
        let commands = commands.iter();
        commands.fold(row, |row, command| {
            row.below(Text::from("→ ").strong(&**command))
        })
    };
    let fields = spreading.fields.iter();
    let fields = fields.map(|one| row(&format!("{} hash", one.flow), one.words(), &one.commands));
    let [table, key] = spreading.words();
    let rows = fields.chain([
        row("RSS table", table, &spreading.table_commands),
        row("RSS key", key, &spreading.key_commands),
    ]);
    let columns = [Column::words("", 9), Column::words("now", 20).grow(400)];
    Table::new(columns).rows(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::facts::receive_path::{Copies, StackPart};
    use mpps_report::Terminal;

    fn row(usable: Usable, remedy: Option<&str>) -> Judged {
        Judged {
            technique: "AF_XDP native",
            backend: Some("af_xdp"),
            tried: false,
            verdict: PathVerdict {
                usable,
                why: "driver veth, xdp-features: basic, redirect; 4 receive queues".to_owned(),
                remedy: remedy.map(str::to_owned),
                takes: StackPart::Flow,
                copies: Copies::Copy,
            },
        }
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let command = "mpps recv --backend af_xdp --xdp generic --interface near ADDR:PORT";
        let rows = [row(Usable::Yes, None), row(Usable::No, Some(command))];
        for width in [24, 40, 91, 92, 100, 200] {
            let text = Terminal::new(width, false).blocks(&[table(&rows).into()]);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {widest:?}\n{text}");
            let letters = |text: &str| text.chars().filter(|c| *c != ' ').collect::<String>();
            let all: String = text.lines().collect();
            assert!(letters(&all).contains(&letters(command)), "{text}");
        }
    }

    #[test]
    fn what_is_tried_are_receive_paths() {
        for (name, ..) in TRIALS {
            let of_name = |path: &&ReceivePath| path.name == name;
            let found = RECEIVE_PATHS.iter().find(of_name).expect(name);
            assert_eq!(found.backend, Some("af_xdp"));
        }
    }

    #[test]
    fn what_the_build_lacks_comes_first_unless_nothing_helps() {
        let yes = row(Usable::Yes, None).verdict;
        let lacking = with_backend(yes.clone(), "no-such-backend");
        assert_eq!(lacking.usable, Usable::No);
        assert!(lacking.why.contains("no-such-backend"));
        assert_eq!(with_backend(yes.clone(), "recv"), yes);
        let never = row(Usable::No, None).verdict;
        assert_eq!(with_backend(never.clone(), "no-such-backend"), never);
    }
}
