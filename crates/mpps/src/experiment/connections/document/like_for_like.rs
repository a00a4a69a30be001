//! What may be said of a run in sentences: comparisons of what differs in one thing only.

use super::{Group, cps, cpu, microseconds, times};
use crate::experiment::connections::result::{TcpCell, TcpFigures, TcpLabResult, body};
use mpps_http::{Switch, Switches};

const ENGINES: [&str; 2] = ["mpps", "mpps-epoll"];

/// For the smallest body: each engine of ours with its techniques and without; the engines at their
/// base, and with all that they have; and the servers of files, all under moderation.
pub(super) fn claims(result: &TcpLabResult) -> Vec<String> {
    let third = Group::all(result).into_iter();
    let mut third = third.filter(|group| group.experiment == 3);
    let Some(smallest) = third.find(|group| group.measured().next().is_some()) else {
        return Vec::new();
    };
    let size = body(smallest.body_bytes);
    let about = [
        (
            format!("{size} bodies, each engine against itself: "),
            themselves(&smallest),
        ),
        (
            format!(
                "one engine against the other, {} and {}: ",
                ENGINES[0], ENGINES[1]
            ),
            engines(&smallest),
        ),
        (
            "servers of a file, all under moderation: ".to_owned(),
            files(&smallest),
        ),
    ];
    let said = about.into_iter().filter(|(_, said)| !said.is_empty());
    said.map(|(about, said)| about + &said.join("; ")).collect()
}

type Found<'a> = (&'a TcpCell, &'a TcpFigures);

/// A server's cell of this step.
fn at<'a>(group: &Group<'a>, server: &str, step: &str) -> Option<Found<'a>> {
    let mut cells = group.measured();
    let found = cells.find(|(cell, ..)| cell.server == server && cell.step == step)?;
    Some((found.0, found.1))
}

/// An engine's cell with all that it has.
fn whole<'a>(group: &Group<'a>, server: &str) -> Option<Found<'a>> {
    let cells = group.measured().filter(|(cell, ..)| cell.server == server);
    let (cell, figures, _) = cells.last()?;
    (cell.step == Switch::Events.to_string()).then_some((cell, figures))
}

fn cost(figures: &TcpFigures) -> String {
    microseconds(cpu(figures))
}

fn themselves(group: &Group<'_>) -> Vec<String> {
    let own = ENGINES.iter().filter_map(|server| {
        let ((_, base), (cell, all)) = (at(group, server, "base")?, whole(group, server)?);
        Some(format!(
            "{server} with {} takes {} of CPU per connection and {} at its base ({}), at {} the \
             connections per second",
            Switches::of(&cell.switches),
            cost(all),
            cost(base),
            times(cpu(all), cpu(base)),
            times(cps(all), cps(base)),
        ))
    });
    own.collect()
}

fn engines(group: &Group<'_>) -> Vec<String> {
    let at_base = ENGINES.map(|server| at(group, server, "base"));
    let with_all = ENGINES.map(|server| whole(group, server));
    let both = [("at base", at_base), ("with all that each has", with_all)];
    let both = both.into_iter().filter_map(|(when, [one, other])| {
        let ((_, one), (_, other)) = (one?, other?);
        let ratio = times(cpu(one), cpu(other));
        Some(format!(
            "{when} {} and {} ({ratio})",
            cost(one),
            cost(other)
        ))
    });
    both.collect()
}

fn files(group: &Group<'_>) -> Vec<String> {
    let Some((_, own)) = at(group, "mpps-files", "all") else {
        return Vec::new();
    };
    let moderation = Switch::Moderation.to_string();
    let others = group
        .measured()
        .filter(|(cell, ..)| cell.step == moderation && !cell.server.starts_with(ENGINES[0]));
    let others = others.map(|(cell, other, _)| {
        let ratio = times(cpu(other), cpu(own));
        format!("{} {} ({ratio})", cell.server, cost(other))
    });
    let others: Vec<String> = others.collect();
    let all = [format!("mpps-files {}", cost(own))]
        .into_iter()
        .chain(others);
    let all: Vec<String> = all.collect();
    if all.len() > 1 { all } else { Vec::new() }
}
