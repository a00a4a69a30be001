//! Which cells there are: experiments, servers, steps and body sizes.

use super::paper;
use super::result::TcpCell;
use super::server::{SERVERS, Server};
use mpps_http::{Switch, Switches};
use std::fmt;
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

/// One server in one state under one load, to be run.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) server: &'static Server,
    /// As the result tells it.
    pub(crate) row: TcpCell,
}

/// As `--only` names it.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.row.key())
    }
}

/// What of the plan is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Names that cells have to have, of which one must fit; empty takes all.
    pub(crate) only: Vec<String>,
    /// CPUs of the server.
    pub(crate) server_cpus: usize,
    /// The period of moderation where it is a step.
    pub(crate) moderation: Duration,
    /// What `net.core.skb_defer_max` of the machine is, or why it is not to be changed.
    pub(crate) skb_defer_max: Result<u32, String>,
    /// Only the third experiment, and only with the smallest body.
    pub(crate) quick: bool,
}

impl Cell {
    /// With the smallest body; `step` is what was done last to get here.
    fn new(
        experiment: u8,
        server: &'static Server,
        step: &str,
        switches: Switches,
        period: Duration,
    ) -> Self {
        let moderation = switches.has(Switch::Moderation).then_some(period);
        let row = TcpCell {
            experiment,
            server: server.name.to_owned(),
            step: step.to_owned(),
            body_bytes: SMALL,
            switches: switches.iter().collect(),
            moderation_us: moderation.map(|period| period.as_secs_f64() * 1e6),
            ..TcpCell::default()
        };
        Self { server, row }
    }

    pub(crate) fn switches(&self) -> Switches {
        Switches::of(&self.row.switches)
    }

    /// The server's queue is polled once in so long; none leaves it to wake up for every packet.
    pub(super) fn moderation(&self) -> Option<Duration> {
        let us = self.row.moderation_us?;
        Some(Duration::from_secs_f64(us / 1e6))
    }

    /// Makes of it what can be run where the server's queue cannot be held back: the steps of
    /// moderation are skipped, and all others are without it.
    pub(super) fn leave_out_moderation(&mut self) {
        let row = &mut self.row;
        let is_step = row.experiment == 1 || row.step == Switch::Moderation.to_string();
        if row.moderation_us.take().is_some() && is_step && row.skipped.is_none() {
            let why = "soft interrupts poll the server's queue here, which are not held back";
            row.skipped = Some(why.to_owned());
        }
        row.switches.retain(|switch| *switch != Switch::Moderation);
    }

    /// Whether `wanted` names this cell: words of its key in their order, as in `nginx`, `3/1k`.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        let key = self.row.key();
        let mut words = key.split('/');
        wanted
            .split('/')
            .all(|wanted| words.any(|word| word == wanted))
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
            cells.extend(steps(server, *body, choice));
        }
    }
    let wanted = |cell: &Cell| choice.only.iter().any(|wanted| cell.is_called(wanted));
    cells.retain(|cell| choice.only.is_empty() || wanted(cell));
    cells
}

/// The first experiment: moderation from a thousand wake-ups per second to none held back.
fn moderation_sweep() -> Vec<Cell> {
    let cell = |step: &str, period: Option<Duration>, paper: Option<&str>| {
        let switches = period.map_or(Switches::NONE, |_| Switches::of(&[Switch::Moderation]));
        let period = period.unwrap_or_default();
        let mut cell = Cell::new(1, &SERVERS[0], step, switches, period);
        cell.row.paper = paper.map(str::to_owned);
        cell
    };
    let steps = paper::MODERATION.iter().map(|(per_second, says)| {
        let period = Duration::from_nanos(1_000_000_000 / u64::from(*per_second));
        cell(&format!("{per_second} per s"), Some(period), *says)
    });
    let mut dynamic = cell("dynamic", None, None);
    let why = "a veth has no moderation that adapts itself (net/dim.h is for drivers of cards)";
    dynamic.row.skipped = Some(why.to_owned());
    let last = [cell("off", None, Some(paper::UNMODERATED)), dynamic];
    steps.chain(last).collect()
}

/// The second experiment: moderation, then descriptors reused, then events; and, with all switches
/// on, what the kernel's own reuse of packet buffers is worth.
fn reuse(choice: &Choice) -> Vec<Cell> {
    let mut cells = Vec::new();
    for server in SERVERS.iter().filter(|server| server.is_ours()) {
        let switches = [Switch::Moderation, Switch::Fds, Switch::Events];
        let mut steps = cumulative(2, server, &switches, choice);
        for (cell, switch) in steps.iter_mut().zip(switches).skip(1) {
            cell.row.paper = Some(paper::step(switch).to_owned());
        }
        cells.extend(steps);
        cells.extend(skb_reuse(server, choice));
    }
    cells
}

/// Without the kernel's reuse of packet buffers, then with it: what switches it on again also wakes
/// lists that somebody left asleep before.
fn skb_reuse(server: &'static Server, choice: &Choice) -> [Cell; 2] {
    let found = choice.skb_defer_max.as_ref();
    let states = [
        (NO_SKB_DEFER, found.map(|_| 0)),
        (SKB_DEFER, found.copied()),
    ];
    states.map(|(step, value)| {
        let switches = server.switches(choice.server_cpus);
        let mut cell = Cell::new(2, server, step, switches, choice.moderation);
        cell.row.skb_defer_max = value.ok();
        cell.row.skipped = value.err().cloned();
        cell
    })
}

/// The third experiment for one server and one body: the base, and one step after the other.
fn steps(server: &'static Server, body_bytes: usize, choice: &Choice) -> Vec<Cell> {
    let mut cells = Vec::new();
    let period = choice.moderation;
    if server.is_single() {
        let switches = server.switches(choice.server_cpus);
        cells.push(Cell::new(3, server, "all", switches, period));
    } else {
        cells.push(Cell::new(3, server, "base", Switches::NONE, period));
        let mut steps = cumulative(3, server, &Switch::ALL, choice);
        for (cell, switch) in steps.iter_mut().zip(Switch::ALL) {
            let all = paper::all(server.name);
            cell.row.paper = match (server.is_ours(), switch, all) {
                (true, Switch::Events, Some(all)) => {
                    Some(format!("{}; {all}", paper::step(switch)))
                }
                (true, ..) => Some(paper::step(switch).to_owned()),
                (false, Switch::Moderation, all) => all.map(str::to_owned),
                (false, ..) => None,
            };
        }
        cells.extend(steps);
    }
    for cell in &mut cells {
        cell.row.body_bytes = body_bytes;
    }
    cells
}

/// A cell for each switch, with those before it on; one that the server does not have stays off.
fn cumulative(
    experiment: u8,
    server: &'static Server,
    switches: &[Switch],
    choice: &Choice,
) -> Vec<Cell> {
    let (mut on, period) = (Switches::NONE, choice.moderation);
    let step = |switch: &Switch| {
        let skipped = server.obstacle(*switch, choice.server_cpus);
        if skipped.is_none() {
            on = on.with(*switch);
        }
        let mut cell = Cell::new(experiment, server, &switch.to_string(), on, period);
        cell.row.skipped = skipped.map(str::to_owned);
        cell
    };
    switches.iter().map(step).collect()
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
            server_cpus: 2,
            moderation: Duration::from_micros(100),
            skb_defer_max: Ok(64),
            quick,
        }
    }

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        let all = all();
        let keys: BTreeSet<String> = all.iter().map(|cell| cell.row.key()).collect();
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
        let ours = SERVERS[1].switches(2).to_string();
        for (name, last) in [
            ("mpps", &*ours),
            ("mpps-epoll", "affinity+moderation+buffers+events"),
            ("lighttpd", "moderation"),
        ] {
            let cells = cells(&choice(&[&format!("3/{name}/events/1k")], false));
            assert_eq!(cells[0].switches().to_string(), last);
        }
    }

    /// A bar of one technique where nothing of it can show would mislead.
    #[test]
    fn one_server_cpu_shows_no_affinity() {
        let choice = Choice {
            server_cpus: 1,
            ..choice(&[], false)
        };
        for cell in cells(&choice) {
            assert!(!cell.switches().has(Switch::Affinity), "{}", cell.row.key());
            if cell.row.step == "affinity" {
                let why = cell.row.skipped.expect("it is skipped");
                assert_eq!(why, "technique 1 needs at least 2 server CPUs; here 1");
            }
        }
    }

    #[test]
    fn without_moderation_its_steps_are_skipped_and_the_others_lack_it() {
        for mut cell in all() {
            let had = cell.moderation().is_some();
            let was_skipped = cell.row.skipped.is_some();
            cell.leave_out_moderation();
            assert!(cell.moderation().is_none() && !cell.switches().has(Switch::Moderation));
            let is_step = had && (cell.row.experiment == 1 || cell.row.step == "moderation");
            assert_eq!(
                cell.row.skipped.is_some(),
                was_skipped || is_step,
                "{}",
                cell.row.key()
            );
        }
    }

    #[test]
    fn buffers_are_reused_or_not_with_all_switches_on_and_only_where_that_may_be() {
        let only = &["skb-defer", "no-skb-defer"];
        let pairs = |cells: &[Cell]| -> Vec<(&str, Option<u32>)> {
            let pair = |cell: &Cell| (cell.server.name, cell.row.skb_defer_max);
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
            assert!(cell.row.skipped.is_none());
            let lacks = Switch::ALL
                .into_iter()
                .filter(|one| !cell.switches().has(*one));
            assert!(
                lacks
                    .into_iter()
                    .all(|one| cell.server.obstacle(one, 2).is_some())
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
                .all(|cell| cell.row.skipped.as_deref() == Some("no"))
        );
    }

    #[test]
    fn a_quick_choice_is_the_third_experiment_with_small_bodies() {
        let cells = cells(&choice(&[], true));
        assert!(
            cells
                .iter()
                .all(|cell| cell.row.experiment == 3 && cell.row.body_bytes == SMALL)
        );
        let servers: BTreeSet<&str> = cells.iter().map(|cell| cell.server.name).collect();
        assert_eq!(servers.len(), SERVERS.len());
    }
}
