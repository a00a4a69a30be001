//! `mpps backends IF --for af_xdp`: what will happen when AF_XDP comes, before it does.

use super::BackendsObject;
use anyhow::Result;
use mpps_host::Interface;
use mpps_host::facts::receive_path::PathFacts;
use mpps_host::setting::preflight::{self, Expectation, Obstacle};
use mpps_os::text::ShellWord;
use mpps_report::{Block, Column, Row, Style, Table, Text};
use schemars::JsonSchema;
use serde::Serialize;

/// The expected behaviour of AF_XDP on an interface.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Preflight {
    /// [`BackendsObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// The interface that was asked about.
    interface: String,
    /// The backend in question.
    #[serde(rename = "for")]
    goal: &'static str,
    /// True if nothing stands in the way, as far as known without trying.
    ready: bool,
    /// The results of the checks.
    #[schemars(length(min = 1))]
    checks: Vec<Expectation>,
    /// The facts behind the checks.
    facts: PathFacts,
}

impl Preflight {
    pub(super) fn read(name: &str) -> Result<Self> {
        let facts = PathFacts::gather(&Interface::read(name))?;
        let checks = preflight::of_af_xdp(&facts);
        Ok(Self {
            schema: BackendsObject::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            interface: name.to_owned(),
            goal: "af_xdp",
            ready: preflight::is_ready(&checks),
            checks,
            facts,
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let (name, operand) = (
            ShellWord::new(&self.interface),
            ShellWord::operand(&self.interface),
        );
        let end = match self.ready {
            true => Text::from(format!(
                "nothing is known to stand in the way; `mpps backends --try {operand}` tries it, and \
                 `mpps recv --backend af_xdp --interface {name} ADDR:PORT` receives"
            )),
            false => Text::from("what has `no` stands in the way"),
        };
        vec![table(&self.checks).into(), Block::Paragraph(end)]
    }
}

fn table(checks: &[Expectation]) -> Table {
    let columns = [
        Column::words("", 19),
        Column::words("", 4),
        Column::words("", 26).grow(400),
    ];
    let rows = checks.iter().map(|check| {
        let style = match check.state {
            Obstacle::Fine => Style::Good,
            Obstacle::Refused => Style::Bad,
            Obstacle::Note | Obstacle::Unknown => Style::Faint,
        };
        let row = Row::new([
            check.check.into(),
            Text::styled(style, check.state.to_string()).into(),
            (*check.finding).into(),
        ]);
        let remedy = check.remedy.iter();
        let row = remedy.fold(row, |row, remedy| {
            row.below(Text::from("→ ").strong(&**remedy))
        });
        let source = check.source.iter();
        source.fold(row, |row, source| row.below(Text::new().faint(*source)))
    });
    Table::new(columns).rows(rows)
}
