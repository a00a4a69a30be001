//! Which cells there are: experiments, servers, steps and body sizes.

use super::paper_2014::{self, Rate, percent};
use super::result::TcpCell;
use super::server::{MeasuredServer, SERVERS};
use mpps_http::{Switch, Switches};
use std::borrow::Cow;
use std::fmt;
use std::mem::take;
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

/// The part of the load that is a low one.
const LOW: f64 = 0.1;
/// The period of moderation, if neither the user nor the first experiment says: some connections per
/// poll, at a small part of their life.
const MODERATION: Duration = Duration::from_micros(500);

/// The step without the kernel's reuse of packet buffers across CPUs.
pub(crate) const NO_SKB_DEFER: &str = "no-skb-defer";
/// The step with it.
pub(crate) const SKB_DEFER: &str = "skb-defer";

/// One server in one state under one load, to be run.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCell {
    pub(crate) server: &'static MeasuredServer,
    /// The row of the result.
    pub(crate) row: TcpCell,
    /// Its moderation is what the first experiment finds best, if that runs.
    pub(super) follows: bool,
}

/// As `--only` names it.
impl fmt::Display for PlannedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.row.key())
    }
}

/// The part of the plan that the user asks for.
#[derive(Debug, Clone)]
pub(crate) struct CellChoice {
    /// Names of cells. A cell must fit one of them; empty takes all.
    pub(crate) only: Vec<String>,
    /// CPUs of the server.
    pub(crate) server_cpus: usize,
    /// The period of moderation where it is a step, if it is not to be found.
    pub(crate) moderation: Option<Duration>,
    /// `net.core.skb_defer_max` of the machine, or why it must not be changed.
    pub(crate) skb_defer_max: Result<u32, String>,
    /// Only the third experiment, and only with the smallest body.
    pub(crate) quick: bool,
}

impl PlannedCell {
    /// With the smallest body; `step` is what was done last to get here.
    fn new(
        experiment: u8,
        server: &'static MeasuredServer,
        step: &str,
        switches: Switches,
        choice: &CellChoice,
    ) -> Self {
        let period = choice.moderation.unwrap_or(MODERATION);
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
        Self {
            server,
            row,
            follows: experiment > 1 && moderation.is_some() && choice.moderation.is_none(),
        }
    }

    pub(crate) fn switches(&self) -> Switches {
        Switches::of(&self.row.switches)
    }

    /// The server's queue is polled once in so long; none leaves it to wake up for every packet.
    pub(super) fn moderation(&self) -> Option<Duration> {
        let us = self.row.moderation_us?;
        Some(Duration::from_secs_f64(us / 1e6))
    }

    /// Takes the moderation that was found best.
    pub(super) fn follow(&mut self, us: f64) {
        if self.follows {
            self.row.moderation_us = Some(us);
        }
    }

    /// Makes of it what can be run where the server's queue cannot be held back: the steps of
    /// moderation are skipped, and all others are without it.
    pub(super) fn leave_out_moderation(&mut self) {
        let row = &mut self.row;
        let is_step = row.experiment == 1 || row.step == Switch::Moderation.to_string();
        let had = row.moderation_us.take().is_some() || take(&mut row.adaptive);
        self.follows = false;
        if had && is_step && row.skipped.is_none() {
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
pub(crate) fn cells(choice: &CellChoice) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    if !choice.quick {
        cells.extend(moderation_sweep(choice));
        cells.extend(reuse(choice));
    }
    let bodies = if choice.quick { &BODIES[..1] } else { &BODIES };
    for server in SERVERS {
        for body in bodies {
            cells.extend(steps(server, *body, choice));
        }
    }
    let wanted = |cell: &PlannedCell| choice.only.iter().any(|wanted| cell.is_called(wanted));
    cells.retain(|cell| choice.only.is_empty() || wanted(cell));
    cells
}

/// The first experiment: each setting of moderation, for each of our engines, with all other
/// techniques on; beside it with all off; and with all on at a small part of the load.
fn moderation_sweep(choice: &CellChoice) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    for server in SERVERS.iter().filter(|server| server.is_ours()) {
        let others = server.switches(choice.server_cpus);
        let others = others.without(Switch::Moderation);
        for (suffix, others, share) in [
            ("", others, None),
            (" alone", Switches::NONE, None),
            (" at 10 %", others, Some(LOW)),
        ] {
            for (rate, says) in paper_2014::MODERATION {
                let switches = match rate {
                    Rate::Off => others,
                    _ => others.with(Switch::Moderation),
                };
                let step = format!("{rate}{suffix}");
                let mut cell = PlannedCell::new(1, server, &step, switches, choice);
                cell.row.moderation_us = match rate {
                    Rate::PerSecond(rate) => Some(1e6 / f64::from(rate)),
                    Rate::Off | Rate::Adaptive => None,
                };
                cell.row.adaptive = rate == Rate::Adaptive;
                cell.row.load_share = share;
                if cell.row.is_sweep() {
                    cell.row.paper = says.map(|ratio| {
                        let beside = if ratio > 1.0 { "over" } else { "against" };
                        format!("{} {beside} adaptive", percent(ratio))
                    });
                }
                cells.push(cell);
            }
        }
    }
    cells
}

/// The second experiment: moderation, then descriptors reused, then events; and, with all switches
/// on, what the kernel's own reuse of packet buffers is worth.
fn reuse(choice: &CellChoice) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    for server in SERVERS.iter().filter(|server| server.is_ours()) {
        let switches = [Switch::Moderation, Switch::Fds, Switch::Events];
        let mut steps = cumulative(2, server, &switches, choice);
        for (cell, switch) in steps.iter_mut().zip(switches).skip(1) {
            cell.row.paper = Some(percent(paper_2014::step(switch)));
        }
        cells.extend(steps);
        cells.extend(skb_reuse(server, choice));
    }
    cells
}

/// Cells without the kernel's reuse of packet buffers, then with it. Switching it on again also
/// wakes lists that another program left asleep before.
fn skb_reuse(server: &'static MeasuredServer, choice: &CellChoice) -> [PlannedCell; 2] {
    let found = choice.skb_defer_max.as_ref();
    let states = [
        (NO_SKB_DEFER, found.map(|_| 0)),
        (SKB_DEFER, found.copied()),
    ];
    states.map(|(step, value)| {
        let switches = server.switches(choice.server_cpus);
        let mut cell = PlannedCell::new(2, server, step, switches, choice);
        cell.row.skb_defer_max = value.ok();
        cell.row.skipped = value.err().cloned();
        cell
    })
}

/// The third experiment for one server and one body: the base, and one step after the other.
fn steps(
    server: &'static MeasuredServer,
    body_bytes: usize,
    choice: &CellChoice,
) -> Vec<PlannedCell> {
    let mut cells = Vec::new();
    if server.is_single() {
        let switches = server.switches(choice.server_cpus);
        cells.push(PlannedCell::new(3, server, "all", switches, choice));
    } else {
        cells.push(PlannedCell::new(3, server, "base", Switches::NONE, choice));
        let mut steps = cumulative(3, server, &Switch::ALL, choice);
        for (cell, switch) in steps.iter_mut().zip(Switch::ALL) {
            let own = percent(paper_2014::step(switch));
            let all = paper_2014::all(server.name);
            let all = all.map(|all| format!("{} all five", percent(all)));
            cell.row.paper = match (server.is_ours(), switch, all) {
                (true, Switch::Events, Some(all)) => Some(format!("{own}; {all}")),
                (true, ..) => Some(own),
                (false, Switch::Moderation, all) => {
                    all.map(|all| format!("{all}, in a changed kernel"))
                }
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

/// A cell for each switch, with the earlier ones on. A switch that the server lacks stays off.
fn cumulative(
    experiment: u8,
    server: &'static MeasuredServer,
    switches: &[Switch],
    choice: &CellChoice,
) -> Vec<PlannedCell> {
    let mut on = Switches::NONE;
    let step = |switch: &Switch| {
        let skipped = server.obstacle(*switch, choice.server_cpus);
        if skipped.is_none() {
            on = on.with(*switch);
        }
        let mut cell = PlannedCell::new(experiment, server, &switch.to_string(), on, choice);
        cell.row.skipped = skipped.map(Cow::into_owned);
        cell
    };
    switches.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<PlannedCell> {
        cells(&choice(&[], false))
    }

    fn choice(only: &[&str], quick: bool) -> CellChoice {
        CellChoice {
            only: only.iter().map(|&name| name.to_owned()).collect(),
            server_cpus: 2,
            moderation: None,
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
        assert_eq!(count(&["1"]), 2 * 3 * paper_2014::MODERATION.len());
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

    /// As the paper had it, with nothing beside it that differs in more than one thing.
    #[test]
    fn the_sweep_is_with_the_others_on_off_and_at_a_low_load_each_engine_by_itself() {
        let sweep = cells(&choice(&["1"], false));
        let steps = |server: &str, fits: fn(&TcpCell) -> bool| {
            let rows = sweep.iter().map(|cell| &cell.row);
            let rows = rows.filter(|row| row.server == server && fits(row));
            rows.map(|row| row.step.clone()).collect::<Vec<_>>()
        };
        for server in SERVERS.iter().filter(|server| server.is_ours()) {
            let on = steps(server.name, TcpCell::is_sweep);
            let rates =
                [1000, 1900, 4000, 10_000, 19_000, 400_000].map(|rate| format!("{rate} per s"));
            assert_eq!(on[..6], rates);
            assert_eq!(on[6..], ["off", "adaptive"]);
            let off = steps(server.name, |row| !row.has_others());
            assert_eq!(
                off,
                on.iter()
                    .map(|step| format!("{step} alone"))
                    .collect::<Vec<_>>()
            );
            let low = steps(server.name, |row| {
                row.load_share == Some(0.1) && row.has_others()
            });
            assert_eq!(
                low,
                on.iter()
                    .map(|step| format!("{step} at 10 %"))
                    .collect::<Vec<_>>()
            );
        }
        for PlannedCell {
            row,
            follows,
            server,
        } in &sweep
        {
            let is_fixed = row.step.contains(" per s");
            assert_eq!(row.moderation_us.is_some(), is_fixed, "{}", row.step);
            assert_eq!(
                row.adaptive,
                row.step.starts_with("adaptive"),
                "{}",
                row.step
            );
            let others = server.switches(2).without(Switch::Moderation);
            let own = Switches::of(&row.switches).without(Switch::Moderation);
            assert!(own == others || own == Switches::NONE && row.step.ends_with("alone"));
            assert!(!follows && row.skipped.is_none());
        }
    }

    #[test]
    fn the_others_follow_the_best_unless_a_moderation_was_named() {
        let named = CellChoice {
            moderation: Some(Duration::from_micros(70)),
            ..choice(&["2", "3"], false)
        };
        for (choice, expected) in [(choice(&["2", "3"], false), 1000.0), (named, 70.0)] {
            for mut cell in cells(&choice) {
                let had = cell.row.moderation_us.is_some();
                cell.follow(1000.0);
                let us = had.then_some(expected);
                assert_eq!(cell.row.moderation_us, us, "{}", cell.row.key());
            }
        }
    }

    /// A bar of one technique where nothing of it can show would mislead.
    #[test]
    fn one_server_cpu_shows_no_affinity() {
        let choice = CellChoice {
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
            let had = cell.moderation().is_some() || cell.row.adaptive;
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
        let pairs = |cells: &[PlannedCell]| -> Vec<(&str, Option<u32>)> {
            let pair = |cell: &PlannedCell| (cell.server.name, cell.row.skb_defer_max);
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
        let refused = cells(&CellChoice {
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
