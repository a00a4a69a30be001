//! Which cells there are: experiments, servers, steps and body sizes.

use super::paper;
use super::server::{SERVERS, Server};
use mpps_http::{Switch, Switches};
use std::time::Duration;

/// Bodies of the third experiment, in bytes: the paper's.
const BODIES: [usize; 7] = [
    1 << 10,
    2 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
];
/// The body of the other two.
const SMALL: usize = BODIES[0];

/// The step without the kernel's reuse of packet buffers across CPUs.
pub(crate) const NO_SKB_DEFER: &str = "no-skb-defer";
/// The step with it.
pub(crate) const SKB_DEFER: &str = "skb-defer";

/// One server in one state under one load.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) experiment: u8,
    pub(crate) server: &'static Server,
    /// What was done last to get here.
    pub(crate) step: String,
    pub(crate) switches: Switches,
    /// The server's queue is polled once in so long; none leaves it to wake up for every packet.
    pub(crate) moderation: Option<Duration>,
    /// What `net.core.skb_defer_max` of the machine is to be, where the cell is about that; all
    /// others have it as it is.
    pub(crate) skb_defer_max: Option<u32>,
    pub(crate) body_bytes: usize,
    /// What the paper says of this step.
    pub(crate) paper: Option<String>,
    /// Why it cannot be run.
    pub(crate) skipped: Option<String>,
}

/// What of the plan is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Names that cells have to have, of which one must fit; empty takes all.
    pub(crate) only: Vec<String>,
    /// The period of moderation where it is a step.
    pub(crate) moderation: Duration,
    /// What `net.core.skb_defer_max` of the machine is, or why it is not to be changed.
    pub(crate) skb_defer_max: Result<u32, String>,
    /// Only the third experiment, and only with the smallest body.
    pub(crate) quick: bool,
}

impl Cell {
    /// `3/nginx/affinity/1k`.
    pub(crate) fn key(&self) -> String {
        let (experiment, server) = (self.experiment, self.server.name);
        format!(
            "{experiment}/{server}/{}/{}",
            self.step,
            body(self.body_bytes)
        )
    }

    /// Whether `wanted` names this cell: words of its key in their order, as in `nginx`, `3/1k`.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        let key = self.key();
        let mut words = key.split('/');
        wanted
            .split('/')
            .all(|wanted| words.any(|word| word == wanted))
    }
}

/// A size as the paper and the flags write it: `16k`.
pub(crate) fn body(bytes: usize) -> String {
    if bytes.is_multiple_of(1024) {
        format!("{}k", bytes / 1024)
    } else {
        bytes.to_string()
    }
}

/// The cells of a choice, in the order of the experiments.
pub(crate) fn cells(choice: &Choice) -> Vec<Cell> {
    let mut cells = Vec::new();
    if !choice.quick {
        cells.extend(moderation_sweep());
        cells.extend(reuse(choice));
    }
    let bodies = if choice.quick { &BODIES[..1] } else { &BODIES };
    for server in SERVERS {
        for body in bodies {
            cells.extend(steps(server, *body, choice.moderation));
        }
    }
    let wanted = |cell: &Cell| choice.only.iter().any(|wanted| cell.is_called(wanted));
    cells.retain(|cell| choice.only.is_empty() || wanted(cell));
    cells
}

/// The first experiment: moderation from a thousand wake-ups per second to none held back.
fn moderation_sweep() -> Vec<Cell> {
    let server = &SERVERS[0];
    let cell = |step: String, moderation: Option<Duration>, paper: Option<&str>| Cell {
        experiment: 1,
        server,
        step,
        switches: moderation.map_or(Switches::NONE, |_| Switches::of(&[Switch::Moderation])),
        moderation,
        skb_defer_max: None,
        body_bytes: SMALL,
        paper: paper.map(str::to_owned),
        skipped: None,
    };
    let mut cells: Vec<Cell> = paper::MODERATION
        .iter()
        .map(|(per_second, says)| {
            let period = Duration::from_nanos(1_000_000_000 / u64::from(*per_second));
            cell(format!("{per_second} per s"), Some(period), *says)
        })
        .collect();
    cells.push(cell("off".to_owned(), None, Some(paper::UNMODERATED)));
    let mut dynamic = cell("dynamic".to_owned(), None, None);
    dynamic.skipped = Some(
        "a veth has no moderation that adapts itself (net/dim.h is for drivers of cards)"
            .to_owned(),
    );
    cells.push(dynamic);
    cells
}

/// The second experiment: moderation, then descriptors reused, then events; and, with all switches
/// on, what the kernel's own reuse of packet buffers is worth.
fn reuse(choice: &Choice) -> Vec<Cell> {
    let period = choice.moderation;
    let mut cells = Vec::new();
    for server in SERVERS.iter().filter(|server| server.is_ours()) {
        let mut switches = Switches::NONE;
        for switch in [Switch::Moderation, Switch::Fds, Switch::Events] {
            let says = (switch != Switch::Moderation).then(|| paper::step(switch).to_owned());
            cells.push(add(server, 2, SMALL, switch, &mut switches, period, says));
        }
        cells.extend(skb_reuse(server, choice));
    }
    cells
}

/// Without the kernel's reuse of packet buffers, then with it: what switches it on again also wakes
/// lists that somebody left asleep before.
fn skb_reuse(server: &'static Server, choice: &Choice) -> [Cell; 2] {
    let own = Switch::ALL.into_iter();
    let own = own.filter(|switch| server.obstacle(*switch).is_none());
    let switches = Switches::of(&own.collect::<Vec<_>>());
    let found = choice.skb_defer_max.as_ref();
    [
        (NO_SKB_DEFER, found.map(|_| 0)),
        (SKB_DEFER, found.copied()),
    ]
    .map(|(step, value)| Cell {
        experiment: 2,
        server,
        step: step.to_owned(),
        switches,
        moderation: Some(choice.moderation),
        skb_defer_max: value.ok(),
        body_bytes: SMALL,
        paper: None,
        skipped: value.err().cloned(),
    })
}

/// The third experiment for one server and one body: the base, and one step after the other.
fn steps(server: &'static Server, body_bytes: usize, period: Duration) -> Vec<Cell> {
    if server.is_single() {
        let switches = Switches::of(&Switch::ALL);
        return vec![Cell {
            experiment: 3,
            server,
            step: "all".to_owned(),
            switches,
            moderation: Some(period),
            skb_defer_max: None,
            body_bytes,
            paper: None,
            skipped: None,
        }];
    }
    let mut cells = vec![Cell {
        experiment: 3,
        server,
        step: "base".to_owned(),
        switches: Switches::NONE,
        moderation: None,
        skb_defer_max: None,
        body_bytes,
        paper: None,
        skipped: None,
    }];
    let mut switches = Switches::NONE;
    for switch in Switch::ALL {
        let mut says = paper::step(switch).to_owned();
        if let (Switch::Events, Some(all)) = (switch, paper::all(server.name)) {
            says = format!("{says}; {all}");
        }
        let says = server.is_ours().then_some(says);
        let mut cell = add(server, 3, body_bytes, switch, &mut switches, period, says);
        if switch == Switch::Moderation && !server.is_ours() {
            cell.paper = paper::all(server.name).map(str::to_owned);
        }
        cells.push(cell);
    }
    cells
}

/// The cell of one more switch; one that the server does not have stays off.
fn add(
    server: &'static Server,
    experiment: u8,
    body_bytes: usize,
    switch: Switch,
    switches: &mut Switches,
    period: Duration,
    paper: Option<String>,
) -> Cell {
    let skipped = server.obstacle(switch);
    if skipped.is_none() {
        *switches = switches.with(switch);
    }
    Cell {
        experiment,
        server,
        step: switch.name().to_owned(),
        switches: *switches,
        moderation: switches.has(Switch::Moderation).then_some(period),
        skb_defer_max: None,
        body_bytes,
        paper,
        skipped: skipped.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Cell> {
        cells(&choice(&[], false))
    }

    fn choice(only: &[&str], quick: bool) -> Choice {
        Choice {
            only: only.iter().map(|&name| name.to_owned()).collect(),
            moderation: Duration::from_micros(100),
            skb_defer_max: Ok(64),
            quick,
        }
    }

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let all = all();
        let keys: BTreeSet<String> = all.iter().map(Cell::key).collect();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn words_of_a_name_choose_cells() {
        let count = |only: &[&str]| cells(&choice(only, false)).len();
        assert_eq!(count(&["3/nginx/base/16k"]), 1);
        assert_eq!(count(&["nginx/16k"]), 6);
        assert_eq!(count(&["16k/nginx"]), 0);
        assert_eq!(count(&["1"]), paper::MODERATION.len() + 2);
        assert_eq!(
            count(&["3/nginx/base", "3/lighttpd/base/1k"]),
            BODIES.len() + 1
        );
    }

    #[test]
    fn steps_are_cumulative_and_what_a_server_lacks_stays_off() {
        for (name, last) in [
            ("mpps", "affinity+moderation+buffers+fds+events"),
            ("mpps-epoll", "affinity+moderation+buffers+events"),
            ("lighttpd", "moderation"),
        ] {
            let cells = cells(&choice(&[&format!("3/{name}/events/1k")], false));
            assert_eq!(cells[0].switches.to_string(), last);
        }
    }

    #[test]
    fn buffers_are_reused_or_not_with_all_switches_on_and_only_where_that_may_be() {
        let only = &["skb-defer", "no-skb-defer"];
        let pairs = |cells: &[Cell]| -> Vec<(&str, Option<u32>)> {
            let pair = |cell: &Cell| (cell.server.name, cell.skb_defer_max);
            cells.iter().map(pair).collect()
        };
        let allowed = cells(&choice(only, false));
        let both = |on, off| {
            [
                ("mpps-epoll", off),
                ("mpps-epoll", on),
                ("mpps", off),
                ("mpps", on),
            ]
        };
        assert_eq!(pairs(&allowed), both(Some(64), Some(0)));
        for cell in &allowed {
            assert!(cell.skipped.is_none());
            let lacks = Switch::ALL
                .into_iter()
                .filter(|one| !cell.switches.has(*one));
            assert!(
                lacks
                    .into_iter()
                    .all(|one| cell.server.obstacle(one).is_some())
            );
        }
        let refused = cells(&Choice {
            skb_defer_max: Err("no".to_owned()),
            ..choice(only, false)
        });
        assert_eq!(pairs(&refused), both(None, None));
        assert!(
            refused
                .iter()
                .all(|cell| cell.skipped.as_deref() == Some("no"))
        );
    }

    #[test]
    fn a_quick_choice_is_the_third_experiment_with_small_bodies() {
        let cells = cells(&choice(&[], true));
        assert!(
            cells
                .iter()
                .all(|cell| cell.experiment == 3 && cell.body_bytes == SMALL)
        );
        let servers: BTreeSet<&str> = cells.iter().map(|cell| cell.server.name).collect();
        assert_eq!(servers.len(), SERVERS.len());
    }
}
