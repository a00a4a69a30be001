//! Sentences about a run: comparisons of cells that differ in one thing only.

use super::{CellGroup, cps, cpu, microseconds, named, times};
use crate::experiment::connections::result::{TcpCell, TcpFigures, TcpLabResult, body};
use crate::measure::document::firsts;
use mpps_http::{Switch, Switches};

const ENGINES: [&str; 2] = ["mpps", "mpps-epoll"];

/// A measured cell.
type MeasuredCell<'a> = Option<(&'a TcpCell, &'a TcpFigures)>;

/// For the smallest body: each engine of ours with its techniques and without; the engines at their
/// base, and with all that they have; and the servers of files, all under moderation.
pub(super) fn claims(result: &TcpLabResult) -> Vec<String> {
    let third = CellGroup::all(result).into_iter();
    let mut third = third.filter(|group| group.experiment == 3);
    let Some(smallest) = third.find(|group| group.measured().next().is_some()) else {
        return Vec::new();
    };
    let cells = smallest.measured();
    let cells = firsts(cells.map(|(cell, figures, _)| ((cell, figures), named(cell))));
    let find = |server, step| cells.get(&[server, step]).copied();
    let [moderation, events] = [Switch::Moderation, Switch::Events].map(|step| step.to_string());
    let [base, all] = ["base", &*events].map(|step| ENGINES.map(|server| find(server, step)));
    let files = find("mpps-files", "all");
    let others = smallest.measured().map(|(cell, ..)| &*cell.server);
    let mut others: Vec<&str> = others.filter(|name| !name.starts_with("mpps")).collect();
    others.dedup();
    let others = others.into_iter().map(|name| find(name, &moderation));
    let about: [(&str, Vec<_>); 3] = [
        (
            "each engine against itself",
            vec![(all[0], base[0]), (all[1], base[1])],
        ),
        (
            "one engine against the other",
            vec![(base[0], base[1]), (all[0], all[1])],
        ),
        (
            "servers of a file",
            others.map(|other| (files, other)).collect(),
        ),
    ];
    let size = body(smallest.body_bytes);
    let said = about.into_iter().filter_map(|(about, pairs)| {
        let said = pairs
            .into_iter()
            .filter_map(|(one, other)| pair(one, other));
        let said: Vec<String> = said.collect();
        let head = format!("CPU per connection, {size} bodies, {about}: ");
        (!said.is_empty()).then(|| head + &said.join("; "))
    });
    said.collect()
}

/// One against the other, if both were measured.
fn pair(one: MeasuredCell<'_>, other: MeasuredCell<'_>) -> Option<String> {
    let name = |cell: &TcpCell, figures| {
        let with = match (&*cell.step, Switches::of(&cell.switches)) {
            ("base", _) => " at base".to_owned(),
            ("all", _) => String::new(),
            (_, switches) => format!(" with {switches}"),
        };
        format!("{}{with} {}", cell.server, microseconds(cpu(figures)))
    };
    let ((cell, one), (other_cell, other)) = (one?, other?);
    Some(format!(
        "{} and {} ({}, at {} the connections per second)",
        name(cell, one),
        name(other_cell, other),
        times(cpu(one), cpu(other)),
        times(cps(one), cps(other)),
    ))
}
